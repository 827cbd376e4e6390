//! What an orderly stop leaves to the next server.

use std::collections::HashSet;
use std::time::Duration;

use super::super::wire::ClientId;
use super::reclaimers::NAMES_MAX;
use super::{Reclaimers, RecordState, Recovery};

impl Recovery {
    /// Removes the records of clients that are not among the `holders` of state. Returns who may reclaim after this server, and the
    /// number of the last change; zero where there is none.
    ///
    /// The record of a client that may still reclaim what it held before this server stays: nobody else has had that.
    pub(crate) fn keep_holders(&self, now: Duration, holders: &HashSet<ClientId>) -> (Reclaimers, u64) {
        // Where the period's time is over and no request has come since, it ends here.
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
