//! Recovery of state over a restart, as operations use it.

use std::collections::HashSet;
use std::time::Duration;

use crate::state::root::State;
use crate::state::tables::client::Client;
use crate::state::tables::recovery::Reclaimers;
use crate::state::tables::wire::Status;

impl State {
    /// Makes the next server wait only for clients that hold opens, locks or delegations of files. Returns these clients, and the
    /// change to wait for ([`State::wait_durable`]).
    ///
    /// Called when no request is in progress and none follows: state granted after this call cannot be reclaimed.
    pub fn prepare_restart(&self, now: Duration) -> (Reclaimers, u64) {
        let mut holders = HashSet::new();
        self.shards.iter().for_each(|shard| shard.lock().add_holders(&mut holders));
        self.recovery.keep_holders(now, &holders)
    }

    /// RECLAIM_COMPLETE (RFC 8881 §18.51). With `rca_one_fs`, the operation answers OK by itself: no file system migrates.
    ///
    /// # Errors
    /// COMPLETE_ALREADY.
    pub fn reclaim_complete(&self, client: &Client) -> Result<(), Status> {
        let was_reclaiming = client.is_reclaiming();
        if !client.complete_reclaim() {
            return Err(Status::COMPLETE_ALREADY);
        }
        self.recovery.complete_reclaim(client, was_reclaiming);
        Ok(())
    }
}
