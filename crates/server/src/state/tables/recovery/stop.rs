//! Records that an orderly stop writes for the next server.

use std::collections::HashSet;
use std::time::Duration;

use super::super::wire::ClientId;
use super::reclaimers::NAMES_MAX;
use super::{Reclaimers, RecordState, Recovery};

impl Recovery {
    /// Removes the records of clients that are not among the `holders` of state. Returns the clients that may reclaim after this server, and
    /// the number of the last change, or zero.
    ///
    /// Clients that may still reclaim from before this server keep their records.
    pub(crate) fn keep_holders(&self, now: Duration, holders: &HashSet<ClientId>) -> (Reclaimers, u64) {
        // Ends a grace period whose time is over.
        self.in_grace(now);
        let mut clients = self.clients.lock();
        let mut last = 0;
        clients.entry.retain(|name, entry| {
            let stays = match entry.state {
                RecordState::Awaited { .. } => true,
                RecordState::Present(id) => holders.contains(&id),
            };
            if !stays {
                last = self.set(name, None);
            }
            stays
        });
        let reclaimers = clients.entry.keys().map(|name| name.owner());
        (Reclaimers::new(reclaimers, NAMES_MAX), last)
    }
}
