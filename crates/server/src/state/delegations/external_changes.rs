//! Recalls because of changes by local processes, and the attributes that holders see until then.
//!
//! A local process changes a file before the holder learns of it. Linux's client treats every change up to the GETATTR of its
//! DELEGRETURN as its own and keeps its cache. So a holder sees the change attribute that the file had at the grant until it has
//! returned the delegation ([`State::granted_change`]); its next GETATTR shows the change.
//!
//! The driver takes each change ([`State::next_external_change`]) and passes it to [`State::recall_for`] with the time.

use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use super::recall::Calls;
use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::delegation::external_changes::{ChangeNotifier, ExternalChange};
use crate::state::tables::file_key::FileKey;
use crate::state::tables::wire::ClientId;

impl State {
    /// Returns a notifier for an object that may be delegated to a client. A watch with this notifier must begin before
    /// [`Self::grant_delegation`].
    #[must_use]
    pub fn change_notifier(&self, client: &Client, file: FileKey) -> Arc<ChangeNotifier> {
        self.delegations.external_changes.notifier(client.id(), file)
    }

    /// Takes the next change to recall for; the caller calls [`Self::recall_for`] with it.
    pub fn next_external_change(&self) -> Option<ExternalChange> {
        self.delegations.external_changes.next()
    }

    /// Recalls the delegation that a local change conflicts with, if it is still held.
    pub fn recall_for(&self, now: Duration, change: &ExternalChange) {
        let mut calls = Calls::new();
        let mut shard = self.shards[self.shard_of(change.file)].lock();
        let Some(index) = shard.find_delegation(change.file, change.holder) else { return };
        let watch = shard.delegation_at(index).watch.as_ref();
        if watch.is_some_and(|watch| watch.has_reported(change)) {
            calls.extend(self.recall(&mut shard, index, now));
        }
        drop(shard);
        self.delegations.counts.local_changes.fetch_add(calls.len() as u64, Relaxed);
        self.send_recalls(now, change.file, calls);
    }

    /// Returns whether any delegated object is watched.
    #[must_use]
    pub fn has_watches(&self) -> bool {
        self.gauges.watched_delegations.load(SeqCst) > 0
    }

    /// Returns whether `client` may have to see an older change attribute than that of an object.
    #[must_use]
    pub fn may_hide_changes(&self, client: &Client) -> bool {
        self.has_watches() && client.holdings.delegations.load(Relaxed) > 0
    }

    /// Calls `visit` with each holder of an object that sees another change attribute than `change`, or will once a local change is
    /// reported.
    pub fn holders_of_older_change(&self, file: FileKey, change: u64, mut visit: impl FnMut(ClientId)) {
        let shard = self.shards[self.shard_of(file)].lock();
        let Some(record) = shard.files.get(&file) else { return };
        for index in &record.delegations {
            let delegation = shard.delegation_at(*index);
            if delegation.watch.is_some() && delegation.queries.granted_change() != change {
                visit(shard.entry(*index).client.id());
            }
        }
    }

    /// Returns the number of delegations granted since the start. Each of them can be found by its object.
    #[must_use]
    pub fn grants(&self) -> u64 {
        self.gauges.grants.load(SeqCst)
    }

    /// Returns the change attribute that an object had when it was delegated to `client`, if the client must see that one. Other
    /// attributes are not hidden: clients judge their caches by the change attribute.
    #[must_use]
    pub fn granted_change(&self, client: &Client, file: FileKey) -> Option<u64> {
        let shard = self.shards[self.shard_of(file)].lock();
        let delegation = shard.delegation_at(shard.find_delegation(file, client.id())?);
        delegation.hides_changes().then(|| delegation.queries.granted_change())
    }
}
