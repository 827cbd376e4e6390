//! Recalls of delegations, their return, and the operations that wait for it.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use protocol::nfs4::callback::CbOp;
use protocol::nfs4::callback::recall::CbRecallArgs;

use crate::state::State;
use crate::state::tables::callback::{Callback, CallbackPurpose};
use crate::state::tables::client::Client;
use crate::state::tables::delegation::active_changes::{ChangeEpoch, ChangeGuard};
use crate::state::tables::delegation::conflict::Conflict;
use crate::state::tables::delegation::phase::{DelegationEvent, DelegationPhase};
use crate::state::tables::file_key::FileKey;
use crate::state::tables::io::IoKind;
use crate::state::tables::shard::{Deferred, EntryEvent, EntryKind, Shard};
use crate::state::tables::stateid::EntryId;
use crate::state::tables::waiter::DelegationWaiter;
use crate::state::tables::wire::{Stateid, Status};

/// The longest wait of an operation for delegations. It is less if the lease is short: a client that does nothing else than wait
/// must keep its own lease.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The result of an administrator's recall of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileRecall {
    /// Delegations that were recalled, now or before.
    pub recalled: usize,
    /// Delegations of clients with expired leases, which were revoked.
    pub revoked: usize,
}

/// Callbacks to send once the shard's lock is released.
pub(super) type Calls = Vec<(Arc<Client>, Callback)>;

impl State {
    /// Returns whether any delegation exists that an operation could conflict with. Mostly none does, and
    /// [`Self::recall_conflicting`] is not needed.
    #[must_use]
    pub fn has_delegations(&self, conflict: Conflict) -> bool {
        let gauges = &self.gauges;
        let counter = match conflict {
            Conflict::Any => &gauges.delegations,
            Conflict::Write => &gauges.write_delegations,
            Conflict::Directory(_) => &gauges.directory_delegations,
        };
        counter.load(SeqCst) > 0
    }

    /// Begins a change of a file: until the guard is dropped, the file is not delegated. Call it before
    /// [`Self::has_delegations`].
    pub fn begin_change(&self, handle: &vfs::Handle) -> ChangeGuard<'_> {
        self.delegations.active_changes.begin(self.change_hash(handle))
    }

    /// As [`Self::begin_change`], for a file that is known only by name. Returns `None` once delegations are wanted: then the name
    /// must be looked up.
    pub fn begin_unnamed_change(&self) -> Option<ChangeGuard<'_>> {
        self.delegations.active_changes.begin_unnamed()
    }

    /// Returns the point from which changes of a file count that may be delegated. If a change ends between this and the grant,
    /// nothing is granted: the holder would take attributes from before the change for the present ones.
    #[must_use]
    pub fn change_epoch(&self, handle: &vfs::Handle) -> ChangeEpoch {
        self.delegations.active_changes.epoch(self.change_hash(handle))
    }

    /// Returns whether a change of such a file has ended since the epoch.
    #[must_use]
    pub fn has_changed_since(&self, handle: &vfs::Handle, epoch: ChangeEpoch) -> bool {
        self.delegations.active_changes.has_changed_since(self.change_hash(handle), epoch)
    }

    /// Hashes the backend's handle: the file's key costs a keyed hash.
    pub(super) fn change_hash(&self, handle: &vfs::Handle) -> u64 {
        self.hasher.hash_one(&**handle)
    }

    pub(super) fn recall_hash(&self, file: FileKey) -> u64 {
        self.hasher.hash_one(file)
    }

    /// Returns until when an operation that began at `now` waits for delegations.
    #[must_use]
    pub fn recall_wait_deadline(&self, now: Duration) -> Duration {
        now + (self.lease / 3).min(WAIT_MAX)
    }

    /// Returns by when a delegation that is recalled at `now` is returned or revoked: at the first sweep after a lease time.
    #[must_use]
    pub fn revocation_deadline(&self, now: Duration) -> Duration {
        now + self.lease + WAIT_MAX
    }

    /// Returns whether any client has this directory delegated; false for a file.
    #[must_use]
    pub fn is_directory_delegated(&self, directory: FileKey) -> bool {
        let shard = self.shards[self.shard_of(directory)].lock();
        let held = shard.files.get(&directory).map_or(&[][..], |record| &record.delegations);
        held.iter().any(|index| shard.delegation_at(*index).kind.is_directory())
    }

    /// Returns whether delegations of others conflict with an operation of `client`; `None` for one of no NFSv4 client. It
    /// recalls nothing.
    #[must_use]
    pub fn has_conflicting_delegation(
        &self,
        client: Option<&Client>,
        file: FileKey,
        conflict: Conflict,
    ) -> bool {
        let shard = self.shards[self.shard_of(file)].lock();
        shard.has_conflict(file, client.map(Client::id), conflict)
    }

    /// Recalls the delegations that conflict with an operation of `client`; `None` for one of no NFSv4 client. Returns `None` if
    /// none conflicts. Otherwise the operation waits for the waiter and calls this again.
    pub fn recall_conflicting(
        &self,
        now: Duration,
        deadline: Duration,
        client: Option<&Client>,
        file: FileKey,
        conflict: Conflict,
    ) -> Option<Arc<DelegationWaiter>> {
        let (mut deferred, mut calls) = (Deferred::new(), Calls::new());
        let mut shard = self.shards[self.shard_of(file)].lock();
        let found = shard.conflicts(file, client.map(Client::id), conflict);
        for index in &found {
            // §8.4.3: state of an expired lease conflicts with nothing.
            if shard.entry(*index).client.is_expired(now, self.lease) {
                // RFC 8881 §15.1.5: DELEG_REVOKED is for "the failure of the client to return the lock when it was recalled".
                // EXPIRED is for a delegation that was not recalled.
                let was_recalled = shard.delegation_at(*index).phase == DelegationPhase::Recalled;
                let event = if was_recalled { EntryEvent::Unreturned } else { EntryEvent::Conflict };
                shard.end(*index, event, &self.gauges, &mut deferred);
                self.delegations.counts.revoked.fetch_add(1, Relaxed);
            } else {
                calls.extend(self.recall(&mut shard, *index, now));
            }
        }
        let must_wait = !found.is_empty() && shard.has_conflict(file, client.map(Client::id), conflict);
        let waiter = must_wait.then(|| self.add_waiter(&mut shard, file, deadline));
        drop(shard);
        self.send_recalls(now, file, calls);
        waiter
    }

    /// Adds an operation that waits for a delegation of a file, or for its holder's answer.
    pub(super) fn add_waiter(
        &self,
        shard: &mut Shard,
        file: FileKey,
        deadline: Duration,
    ) -> Arc<DelegationWaiter> {
        let waiter = Arc::new(DelegationWaiter::new(deadline));
        shard.waiting.entry(file).or_default().push(Arc::clone(&waiter));
        self.delegations.waiting.fetch_add(1, Relaxed);
        self.delegations.counts.waits.fetch_add(1, Relaxed);
        waiter
    }

    /// Removes a waiter whose operation no longer waits.
    pub fn forget_waiter(&self, file: FileKey, waiter: &Arc<DelegationWaiter>) {
        self.delegations.waiting.fetch_sub(1, Relaxed);
        let mut shard = self.shards[self.shard_of(file)].lock();
        if let Some(waiting) = shard.waiting.get_mut(&file) {
            waiting.retain(|other| !Arc::ptr_eq(other, waiter));
            if waiting.is_empty() {
                shard.waiting.remove(&file);
            }
        }
    }

    /// Returns whether no operation waits for a delegation.
    #[cfg(test)]
    pub(crate) fn is_quiet(&self) -> bool {
        let is_quiet = |shard: &parking_lot::Mutex<Shard>| shard.lock().waiting.is_empty();
        self.delegations.waiting.load(Relaxed) == 0 && self.shards.iter().all(is_quiet)
    }

    /// Recalls all delegations of a file for the administrator. The file is not delegated again for a while, as after a conflict.
    pub fn recall_file(&self, now: Duration, file: FileKey) -> FileRecall {
        let (mut deferred, mut calls, mut done) = (Deferred::new(), Calls::new(), FileRecall::default());
        let mut shard = self.shards[self.shard_of(file)].lock();
        for index in shard.conflicts(file, None, Conflict::Any) {
            if shard.entry(index).client.is_expired(now, self.lease) {
                shard.end(index, EntryEvent::Conflict, &self.gauges, &mut deferred);
                done.revoked += 1;
            } else {
                calls.extend(self.recall(&mut shard, index, now));
                done.recalled += 1;
            }
        }
        drop(shard);
        self.delegations.recent_recalls.add(self.recall_hash(file), now);
        self.send_calls(calls);
        done
    }

    /// Begins the recall of a delegation; returns `None` if it was begun before.
    pub(super) fn recall(
        &self,
        shard: &mut Shard,
        index: u32,
        now: Duration,
    ) -> Option<(Arc<Client>, Callback)> {
        let entry_id = shard.entry_id(index);
        let client = Arc::clone(&shard.entry(index).client);
        let delegation = shard.delegation_at_mut(index);
        let is_first = delegation.is_granted();
        delegation.advance(DelegationEvent::Conflict);
        if !is_first {
            return None;
        }
        delegation.recalled_at = Some(now);
        delegation.notices.forget(self.gauges.notices_of(&client));
        self.delegations.recalled.lock().push_back((now, entry_id));
        self.delegations.counts.recalls.fetch_add(1, Relaxed);
        Some(self.recall_callback(shard, entry_id))
    }

    fn recall_callback(&self, shard: &Shard, entry_id: EntryId) -> (Arc<Client>, Callback) {
        let delegation = shard.delegation_at(entry_id.index);
        let stateid = shard.stateid(entry_id.index, self.ids.boot());
        let args = CbRecallArgs { stateid, truncate: false, handle: delegation.handle };
        let (purpose, referring) = (CallbackPurpose::Recall(entry_id), delegation.granted_by);
        let client = Arc::clone(&shard.entry(entry_id.index).client);
        (client, Callback::new(CbOp::Recall(args), purpose, referring))
    }

    /// Sends the recalls of a file. If there are any, the file is not delegated for a while.
    pub(super) fn send_recalls(&self, now: Duration, file: FileKey, calls: Calls) {
        if !calls.is_empty() {
            self.delegations.recent_recalls.add(self.recall_hash(file), now);
        }
        self.send_calls(calls);
    }

    pub(super) fn send_calls(&self, calls: Calls) {
        for (client, callback) in calls {
            self.call(&client, callback);
        }
    }

    /// Handles the reply to CB_RECALL. A client that does not know the delegation may not have seen the OPEN's reply yet (§20.2.4,
    /// §2.10.6.3). It is asked again until the lease time is over.
    pub(crate) fn recall_answered(&self, entry_id: EntryId, status: Status) {
        if status != Status::OK {
            self.delegations.unsent.lock().push(entry_id);
        }
    }

    /// DELEGRETURN (RFC 8881 §18.6).
    ///
    /// # Errors
    /// As for every stateid.
    pub fn return_delegation(
        &self,
        now: Duration,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
    ) -> Result<(), Status> {
        let mut deferred = Deferred::new();
        let is_delegation = |kind: &EntryKind| matches!(kind, EntryKind::Delegation(_));
        let (mut shard, index) = self.find_entry(client, file, stateid, is_delegation)?;
        if let Some(recalled_at) = shard.delegation_at(index).recalled_at {
            let micros = u64::try_from(now.saturating_sub(recalled_at).as_micros()).unwrap_or(u64::MAX);
            self.delegations.counts.returned.fetch_add(1, Relaxed);
            self.delegations.counts.return_micros.fetch_add(micros, Relaxed);
            self.delegations.counts.slowest_micros.fetch_max(micros, Relaxed);
        }
        shard.end(index, EntryEvent::Close, &self.gauges, &mut deferred);
        Ok(())
    }

    /// Checks that a stateid is the client's delegation of this file and covers these bits of `share_access`, for OPEN by
    /// CLAIM_DELEGATE_CUR.
    ///
    /// # Errors
    /// As for every stateid; INVAL if it does not cover them.
    pub fn check_delegation(
        &self,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
        access: u8,
    ) -> Result<(), Status> {
        let is_delegation = |kind: &EntryKind| matches!(kind, EntryKind::Delegation(_));
        let (shard, index) = self.find_entry(client, file, stateid, is_delegation)?;
        let is_covered = shard.delegation_at(index).kind.is_write() || access & IoKind::Write.bit() == 0;
        // RFC 8881 §10.4.1: a holder opens locally only with access that the delegation covers, so this is not a local open.
        if is_covered { Ok(()) } else { Err(Status::INVAL) }
    }

    /// Revokes delegations that were not returned in time, repeats recalls that did not arrive, and ends waits that take too long.
    pub(crate) fn sweep_delegations(&self, now: Duration) {
        let unsent = std::mem::take(&mut *self.delegations.unsent.lock());
        for entry_id in unsent {
            let shard = self.shards[entry_id.shard].lock();
            let call = shard.is_delegation(entry_id).then(|| self.recall_callback(&shard, entry_id));
            drop(shard);
            self.send_calls(call.into_iter().collect());
        }
        loop {
            // §10.4.5: "servers SHOULD revoke delegations that are not returned in a period of time equal to the lease period."
            let is_due = |entry: &mut (Duration, EntryId)| entry.0 + self.lease <= now;
            let Some((_, entry_id)) = self.delegations.recalled.lock().pop_front_if(is_due) else { break };
            let mut deferred = Deferred::new();
            let mut shard = self.shards[entry_id.shard].lock();
            if shard.is_delegation(entry_id) {
                shard.end(entry_id.index, EntryEvent::Unreturned, &self.gauges, &mut deferred);
                self.delegations.counts.revoked.fetch_add(1, Relaxed);
            }
        }
        if self.delegations.waiting.load(Relaxed) > 0 {
            for shard in &self.shards {
                let shard = shard.lock();
                let overdue = shard.waiting.values().flatten().filter(|waiter| waiter.deadline <= now);
                overdue.for_each(|waiter| {
                    self.delegations.counts.overdue.fetch_add(1, Relaxed);
                    waiter.end(false);
                });
            }
        }
    }
}
