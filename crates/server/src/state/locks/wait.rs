//! Clients that wait for a byte-range lock, and CB_NOTIFY_LOCK when they may have it (RFC 8881 §9.6, §20.11).
//!
//! Nothing is granted or reserved: "The server MUST NOT grant the byte-range lock to the client unless and until it receives a
//! LOCK operation from the client" (§20.11.4). A waiter asked by READW_LT or WRITEW_LT, was denied, and repeats its request;
//! CB_NOTIFY_LOCK only makes this sooner. To reserve the lock for the first waiter ("may wait", §9.6) was rejected: a waiter whose
//! program was killed would block all others for a lease time.
//!
//! A notified waiter has its turn until its next request, or for [`TURN`]. An operation that frees a lock notes the file in
//! [`Deferred`]; callbacks are sent once the shard's lock is released ([`State::unlock_shard`]). The sweep finds locks that
//! become free without an operation, as by the end of a holder's lease.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::MutexGuard;
use protocol::nfs4::callback::CbOp;
use protocol::nfs4::callback::recall::CbNotifyLockArgs;
use vfs::LocalLocks;

use super::request::{FoundLocker, LockRequest, kind_of};
use crate::state::tables::callback::{Callback, CallbackPurpose};
use crate::state::tables::client::Client;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::gauges::{adjust, read};
use crate::state::tables::locks::{LockSet, LockWaiter, OwnerName};
use crate::state::tables::shard::{Deferred, LockNotify, Notice, Shard, waiting_host};
use crate::state::tables::wire::StateOwner;
use crate::state::{SlotRequest, State};

/// The longest owner, in bytes, of which CB_NOTIFY_LOCK is sent. With it the callback is as long as CB_OFFLOAD, which every back
/// channel takes: 4 + 68 + 8 + 4 + 32. Linux's owners have 20.
const OWNER_BYTES_MAX: usize = 32;
/// The time for which a waiter that does not repeat its request is remembered; the lease time if that is longer. Linux's client asks every 30 s if it
/// may be notified.
const WAITER_KEPT: Duration = Duration::from_secs(90);
/// The time for which other waiters leave the lock to one that was notified.
const TURN: Duration = Duration::from_secs(5);

/// Clients to call, with the callbacks.
type Calls = Vec<(Arc<Client>, Callback)>;

/// Returns the callback to a client of version 4; `None` for an NLM host.
fn callback(waiter: &LockWaiter<LockNotify>) -> Option<(Arc<Client>, Callback)> {
    let client = &waiter.notify.client;
    let Notice::Callback { handle, asked_by, .. } = &waiter.notify.how else { return None };
    // It was received in an owner of the same bound.
    let owner = xdr::Opaque::new(Bytes::copy_from_slice(&waiter.owner.owner)).unwrap_or_default();
    let lock_owner = StateOwner { client_id: client.id(), owner };
    let args = CbNotifyLockArgs { handle: *handle, lock_owner };
    Some((Arc::clone(client), Callback::new(CbOp::NotifyLock(args), CallbackPurpose::Advice, *asked_by)))
}

impl State {
    /// Releases a shard's lock and does the deferred work: notifies clients whose locks are free, and closes files.
    pub(crate) fn unlock_shard(&self, mut shard: MutexGuard<'_, Shard>, deferred: Deferred) {
        let mut calls = Calls::new();
        for file in &deferred.unlocked {
            calls.append(&mut self.give_turns(&mut shard, *file));
        }
        drop(shard);
        drop(deferred);
        adjust(&self.gauges.lock_notices, calls.len() as i64);
        for (client, callback) in calls {
            self.call(&client, callback);
        }
    }

    /// Gives turns to waiters of a file whose locks are free, and returns their callbacks.
    fn give_turns(&self, shard: &mut Shard, file: FileKey) -> Calls {
        let now = self.latest_time();
        // Removed, so that it can be changed while the rest of the shard is read.
        let Some(mut queue) = shard.lock_queues.remove(&file) else { return Calls::new() };
        let may_have_turn = |waiter: &LockWaiter<LockNotify>| {
            let client = &waiter.notify.client;
            let is_reachable = match &waiter.notify.how {
                Notice::Callback { .. } => client.is_reachable(),
                Notice::Grant(grant) => grant.host.is_reachable(now),
            };
            if !is_reachable {
                return false;
            }
            let wanted = waiter.range.local(waiter.kind);
            let is_free = |local: &Arc<dyn LocalLocks>| local.conflict(wanted).is_none();
            let Some(record) = shard.files.get(&file) else {
                return waiter.notify.local().is_none_or(is_free);
            };
            let own = record.lock_owners.find(&waiter.owner);
            let counts = |LockSet(index)| !self.is_lease_over(shard, index, now, client);
            record.ranges.conflict(waiter.range, waiter.kind, own, counts).is_none()
                && record.ranges.local().or(waiter.notify.local()).is_none_or(is_free)
        };
        let calls = queue.give_turns(now, may_have_turn, callback);
        let granted = queue
            .take(|waiter| waiter.notified_at.is_some() && matches!(waiter.notify.how, Notice::Grant(_)));
        if !queue.is_empty() {
            shard.lock_queues.insert(file, queue);
        }
        granted.into_iter().for_each(|waiter| self.grant_to_host(shard, waiter));
        calls.into_iter().flatten().collect()
    }

    /// Gives a lock to a waiting NLM host, and queues a call to the host.
    fn grant_to_host(&self, shard: &mut Shard, waiter: LockWaiter<LockNotify>) {
        waiter.notify.client.holdings.lock_waiters.fetch_sub(1, Relaxed);
        adjust(&self.gauges.lock_waiters, -1);
        let Notice::Grant(grant) = waiter.notify.how else { return };
        let local = shard.local_locks(grant.file, grant.local.as_ref());
        let is_locked = local.is_none_or(|local| local.lock(grant.range.local(grant.kind)).is_ok());
        if !is_locked {
            // A local process was faster. The next sweep tries again.
            shard.join_queue(grant.file, waiting_host(grant, waiter.asked_at), &self.gauges);
            return;
        }
        let replaces = shard.find_nlm_lock(grant.file, &grant.name).is_some();
        // A lock that becomes shared may free others, which the next sweep finds.
        let mut later = Deferred::new();
        let (owner, lock) = ((&grant.name, &grant.pin), (grant.range, grant.kind));
        self.insert_nlm_lock(shard, (&grant.host, grant.file), owner, lock, grant.local.as_ref(), &mut later);
        self.send_grant(grant, replaces);
    }

    /// Handles a LOCK that was denied: adds a waiter if the client waits and can be notified. §9.6: "If a server receives a
    /// blocking LOCK operation, denies it, and then later receives a nonblocking request for the same lock, which is also denied,
    /// then it should remove the lock in question from its list of pending blocking locks."
    pub(super) fn lock_denied(
        &self,
        shard: &mut Shard,
        now: Duration,
        client: &Arc<Client>,
        request: &LockRequest<'_>,
        locker: &FoundLocker,
        deferred: &mut Deferred,
    ) {
        let Some(notice) = request.notice.filter(|_| request.lock_type.waits()) else {
            return self.stop_waiting(shard, request, &locker.name, deferred);
        };
        // Version 4.0 has no such callback.
        let is_too_long = locker.name.owner.len() > OWNER_BYTES_MAX;
        if client.v40().is_some() || !client.is_reachable() || is_too_long {
            return;
        }
        let notify = LockNotify {
            client: Arc::clone(client),
            how: Notice::Callback {
                open: locker.open,
                handle: notice.handle,
                asked_by: notice.asked_by.map(SlotRequest::as_referring),
            },
        };
        let waiter = LockWaiter {
            owner: locker.name.clone(),
            range: request.range,
            kind: kind_of(request.lock_type),
            asked_at: now,
            notified_at: None,
            notify,
        };
        shard.join_queue(request.file, waiter, &self.gauges);
        // If it had its turn and another client was faster, the turn passes to the next.
        shard.unlocked(request.file, deferred);
    }

    /// Removes a waiter that has its lock, or no longer waits for it.
    pub(super) fn stop_waiting(
        &self,
        shard: &mut Shard,
        request: &LockRequest<'_>,
        name: &OwnerName,
        deferred: &mut Deferred,
    ) {
        let is_it = |waiter: &LockWaiter<LockNotify>| waiter.is_for(name, request.range);
        shard.leave_queue(request.file, &self.gauges, deferred, is_it);
    }

    /// Returns whether denied LOCKs of this client may be followed by a notification, as far as is known: it has, or had, a back
    /// channel.
    #[must_use]
    pub fn may_notify_locks(&self, client: &Client) -> bool {
        client.v40().is_none() && client.has_wanted_callbacks()
    }

    /// Removes waiters that did not ask again, and notifies the next.
    pub(crate) fn sweep_lock_queues(&self, now: Duration) {
        if read(&self.gauges.lock_waiters) == 0 {
            return;
        }
        let kept = self.lease.max(WAITER_KEPT);
        let is_late = |since: Duration, limit| now.saturating_sub(since) >= limit;
        let is_over = |waiter: &LockWaiter<LockNotify>| {
            // An NLM host need not ask again: its request waits until it is granted or cancelled.
            matches!(waiter.notify.how, Notice::Callback { .. }) && is_late(waiter.asked_at, kept)
                || waiter.notified_at.is_some_and(|at| is_late(at, TURN))
        };
        for shard in &self.shards {
            let mut deferred = Deferred::new();
            let mut shard = shard.lock();
            for file in shard.lock_queues.keys().copied().collect::<Vec<_>>() {
                shard.leave_queue(file, &self.gauges, &mut deferred, is_over);
                shard.unlocked(file, &mut deferred);
            }
            self.unlock_shard(shard, deferred);
        }
    }
}
