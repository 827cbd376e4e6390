//! Who waits for a byte-range lock, and is told when it may be had (RFC 8881 §9.6, §20.11).
//!
//! Criteria first. Nothing is granted here, and nothing is kept for anybody: "The server MUST NOT grant the byte-range lock to
//! the client unless and until it receives a LOCK operation from the client" (§20.11.4). A waiter has asked (READW_LT, WRITEW_LT),
//! was denied, and asks again by itself; CB_NOTIFY_LOCK spares it the time until then. So a waiter may be forgotten at any time,
//! and all queues are bounded. Rejected: to refuse others the lock until the first waiter has come ("may wait", §9.6), since one
//! whose program was killed meanwhile never comes, and would keep everybody waiting for a lease time.
//!
//! Waiters are told in the order in which they came, and no two of them of locks that exclude each other: one writer, or all
//! readers. One that was told has its turn until it has come, or for [`TURN`]. What frees a lock marks its file
//! ([`Dropped::unlocked`]); callbacks leave when the shard's lock is given back ([`State::give_back`]). What no operation
//! tells, the end of a holder's lease among it, the sweep finds.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::MutexGuard;
use protocol::nfs4::callback::CbOp;
use protocol::nfs4::callback::recall::CbNotifyLockArgs;
use protocol::nfs4::types::Handle;

use crate::state::callbacks::callback::{Callback, Purpose, Referring};
use crate::state::delegations::delegation::Recalls;
use crate::state::tables::audit::{Sums, same};
use crate::state::tables::client::Client;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::gauges::{Gauges, adjust, read};
use crate::state::tables::range::LockRange;
use crate::state::tables::shard::{Dropped, Shard};
use crate::state::tables::share::Modes;
use crate::state::tables::wire::StateOwner;
use crate::state::{Running, State};

/// Waiters of one file at most, so that a look through them is short. Who finds no room polls.
const WAITERS_A_FILE: usize = 1024;
/// Waiters of one client at most, so that none shuts the others out.
const WAITERS_A_CLIENT: u32 = 1024;
/// Waiters of all clients at most.
const WAITERS_MAX: u64 = 4096;
/// Bytes of an owner with which CB_NOTIFY_LOCK is no longer than what every back channel takes, CB_OFFLOAD: 4 + 68 + 8 + 4 + 32.
/// Linux's owners have 20.
const OWNER_BYTES_MAX: usize = 32;
/// How long a waiter is known that does not ask again, or the lease where that is longer. Linux's client, where it may be told,
/// asks every 30 s.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(90);
/// How long others that wait leave the lock to one that was told of it.
const TURN: Duration = Duration::from_secs(5);

/// How a client that waits for a lock is told of it.
#[derive(Debug, Clone, Copy)]
pub struct LockNotice<'a> {
    /// The file as the client knows it.
    pub handle: Handle,
    /// The request that asks for the lock.
    pub asked_by: Option<&'a Running>,
}

/// A lock that somebody waits for.
#[derive(Debug)]
pub(crate) struct Waiting {
    client: Arc<Client>,
    /// The open under which it was asked for.
    open: u32,
    /// The lock-owner's bytes.
    owner: Arc<[u8]>,
    range: LockRange,
    write: bool,
    handle: Handle,
    asked_by: Option<Referring>,
    asked: Duration,
    told: Option<Duration>,
}

impl Waiting {
    fn is_of(&self, client: &Client, owner: &[u8]) -> bool {
        self.client.id() == client.id() && *self.owner == *owner
    }

    /// Whether it is this owner's, for these bytes.
    fn is_for(&self, client: &Client, owner: &[u8], range: LockRange) -> bool {
        self.range == range && self.is_of(client, owner)
    }

    fn excludes(&self, other: &Self) -> bool {
        (self.write || other.write)
            && self.range.overlaps(other.range)
            && !self.is_of(&other.client, &other.owner)
    }

    fn callback(&self) -> Callback {
        // It came in an owner of the same bound.
        let owner = xdr::Opaque::new(Bytes::copy_from_slice(&self.owner)).unwrap_or_default();
        let lock_owner = StateOwner { client_id: self.client.id(), owner };
        let args = CbNotifyLockArgs { handle: self.handle, lock_owner };
        Callback::new(CbOp::NotifyLock(args), Purpose::Advice, self.asked_by.clone())
    }
}

/// Who waits for locks of one file, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct LockQueue(Vec<Waiting>);

impl LockQueue {
    /// As though all had their turn at once.
    #[cfg(test)]
    pub(crate) fn give_all_turns(&mut self) {
        self.0.iter_mut().for_each(|one| one.told = Some(Duration::ZERO));
    }

    /// Adds to `sums` who waits; `modes_of` says how a client has the file open there, if it has.
    ///
    /// # Errors
    /// What does not fit together.
    pub(crate) fn audit(
        &self,
        sums: &mut Sums,
        modes_of: impl Fn(&Client, u32) -> Option<Modes>,
    ) -> Result<(), String> {
        same("whether nobody waits in a queue", self.0.is_empty(), false)?;
        for (at, one) in self.0.iter().enumerate() {
            match modes_of(&one.client, one.open) {
                None => return Err(format!("{one:?} waits through an open that is gone")),
                Some(modes) if !modes.may_lock(one.write) => {
                    return Err(format!("{one:?} waits through an open for something else: {modes:?}"));
                }
                Some(_) => {}
            }
            for other in &self.0[..at] {
                if other.is_for(&one.client, &one.owner, one.range) {
                    return Err(format!("{one:?} waits twice"));
                }
                if one.told.is_some() && other.told.is_some() && one.excludes(other) {
                    return Err(format!("{one:?} and {other:?} have their turn at once"));
                }
            }
            sums.entry(one.client.id()).or_default().lock_waiters += 1;
        }
        Ok(())
    }

    /// Gives turns to those who have none, where `is_free` says that nobody holds what they want, and nobody whose turn it is
    /// wants it; tells whose they are now.
    fn give_turns(&mut self, now: Duration, is_free: impl Fn(&Waiting) -> bool) -> Recalls {
        let mut told: Vec<usize> = (0..self.0.len()).filter(|at| self.0[*at].told.is_some()).collect();
        let mut calls = Recalls::new();
        for at in 0..self.0.len() {
            let one = &self.0[at];
            let may = one.told.is_none() && one.client.is_reachable();
            if !may || told.iter().any(|other| one.excludes(&self.0[*other])) || !is_free(one) {
                continue;
            }
            calls.push((Arc::clone(&one.client), one.callback()));
            self.0[at].told = Some(now);
            told.push(at);
        }
        calls
    }
}

impl Shard {
    /// Somebody waits for a lock, anew or still; it keeps its place. What has no room is not remembered.
    fn join_queue(&mut self, file: FileKey, waiting: Waiting, gauges: &Gauges) {
        let queue = self.lock_queues.entry(file).or_default();
        let is_same = |one: &&mut Waiting| one.is_for(&waiting.client, &waiting.owner, waiting.range);
        if let Some(known) = queue.0.iter_mut().find(is_same) {
            *known = waiting;
            return;
        }
        let own = &waiting.client.holdings.lock_waiters;
        let has_room = queue.0.len() < WAITERS_A_FILE
            && own.load(Relaxed) < WAITERS_A_CLIENT
            && read(&gauges.lock_waiters) < WAITERS_MAX;
        if has_room {
            own.fetch_add(1, Relaxed);
            adjust(&gauges.lock_waiters, 1);
            queue.0.push(waiting);
        } else if queue.0.is_empty() {
            self.lock_queues.remove(&file);
        }
    }

    /// Forgets those of a file who wait no more; the next may have their turn then.
    fn leave_queue(
        &mut self,
        file: FileKey,
        gauges: &Gauges,
        dropped: &mut Dropped,
        is_over: impl Fn(&Waiting) -> bool,
    ) {
        let Some(queue) = self.lock_queues.get_mut(&file) else { return };
        let before = queue.0.len();
        queue.0.retain(|one| {
            let stays = !is_over(one);
            if !stays {
                one.client.holdings.lock_waiters.fetch_sub(1, Relaxed);
            }
            stays
        });
        let left = queue.0.len();
        adjust(&gauges.lock_waiters, left as i64 - before as i64);
        if left == 0 {
            self.lock_queues.remove(&file);
        } else if left < before {
            dropped.unlock(file);
        }
    }

    /// Nobody waits any more through an open that ends.
    pub(crate) fn leave_queue_of_open(
        &mut self,
        file: FileKey,
        open: u32,
        gauges: &Gauges,
        dropped: &mut Dropped,
    ) {
        self.leave_queue(file, gauges, dropped, |one| one.open == open);
    }

    /// Nor through one that is not for reading, or writing, any more: the LOCK that it was told to send would be OPENMODE.
    pub(crate) fn leave_queue_of_modes(
        &mut self,
        file: FileKey,
        (open, modes): (u32, Modes),
        gauges: &Gauges,
        dropped: &mut Dropped,
    ) {
        self.leave_queue(file, gauges, dropped, |one| one.open == open && !modes.may_lock(one.write));
    }

    /// Nor through the stateid of a lock-owner under an open; what that had locked is free.
    pub(crate) fn leave_queue_of_lock(
        &mut self,
        file: FileKey,
        (open, owner): (u32, &[u8]),
        gauges: &Gauges,
        dropped: &mut Dropped,
    ) {
        self.unlocked(file, dropped);
        self.leave_queue(file, gauges, dropped, |one| one.open == open && *one.owner == *owner);
    }

    /// Locks of a file were freed, or became shared ones.
    pub(crate) fn unlocked(&self, file: FileKey, dropped: &mut Dropped) {
        if self.lock_queues.contains_key(&file) {
            dropped.unlock(file);
        }
    }
}

impl State {
    /// Gives a shard's lock back, with all that has to wait for that: who may have a lock now is told, and files that were let go
    /// are closed.
    pub(crate) fn give_back(&self, mut shard: MutexGuard<'_, Shard>, dropped: Dropped) {
        let mut calls = Recalls::new();
        for file in &dropped.unlocked {
            calls.append(&mut self.give_turns(&mut shard, *file));
        }
        drop(shard);
        drop(dropped);
        adjust(&self.gauges.lock_notices, calls.len() as i64);
        for (client, callback) in calls {
            self.call(&client, callback);
        }
    }

    fn give_turns(&self, shard: &mut Shard, file: FileKey) -> Recalls {
        let now = self.tick();
        // Taken out, so that it can be changed while the rest of the shard is read.
        let Some(mut queue) = shard.lock_queues.remove(&file) else { return Recalls::new() };
        let is_free = |one: &Waiting| {
            let Some(record) = shard.files.get(&file) else { return true };
            let own = record.known_owner(one.client.id(), Arc::clone(&one.owner));
            let stands = |holder| !self.yields(shard, holder, now, &one.client);
            record.ranges.conflict(one.range, one.write, own, stands).is_none()
        };
        let calls = queue.give_turns(now, is_free);
        shard.lock_queues.insert(file, queue);
        calls
    }

    /// A LOCK was denied. One that waits is remembered, where its client can be told; §9.6: "If a server receives a blocking LOCK
    /// operation, denies it, and then later receives a nonblocking request for the same lock, which is also denied, then it should
    /// remove the lock in question from its list of pending blocking locks."
    pub(crate) fn denied_lock(
        &self,
        shard: &mut Shard,
        now: Duration,
        client: &Arc<Client>,
        request: &crate::state::LockRequest<'_>,
        (open, owner): (u32, &Arc<[u8]>),
        dropped: &mut Dropped,
    ) {
        let Some(notice) = request.notice.filter(|_| request.lock_type.waits()) else {
            return self.waits_no_more(shard, client, request, owner, dropped);
        };
        // Version 4.0 has no such callback.
        if client.sessionless().is_some() || !client.is_reachable() || owner.len() > OWNER_BYTES_MAX {
            return;
        }
        let waiting = Waiting {
            client: Arc::clone(client),
            open,
            owner: Arc::clone(owner),
            range: request.range,
            write: request.lock_type.is_write(),
            handle: notice.handle,
            asked_by: notice.asked_by.map(Running::as_referring),
            asked: now,
            told: None,
        };
        shard.join_queue(request.file, waiting, &self.gauges);
        // It may have been this one's turn, and somebody came before it: what it leaves may be another's.
        shard.unlocked(request.file, dropped);
    }

    /// Who waited has its lock, or does not wait for it any longer.
    pub(crate) fn waits_no_more(
        &self,
        shard: &mut Shard,
        client: &Client,
        request: &crate::state::LockRequest<'_>,
        owner: &[u8],
        dropped: &mut Dropped,
    ) {
        let is_it = |one: &Waiting| one.is_for(client, owner, request.range);
        shard.leave_queue(request.file, &self.gauges, dropped, is_it);
    }

    /// Whether LOCKs of this client that are denied may be told of later, as far as that is known: it has, or had, a back channel.
    #[must_use]
    pub fn may_notify_locks(&self, client: &Client) -> bool {
        client.sessionless().is_none() && client.has_wanted_callbacks()
    }

    /// Forgets who did not come, and tells those who may go on.
    pub(crate) fn tend_lock_queues(&self, now: Duration) {
        if read(&self.gauges.lock_waiters) == 0 {
            return;
        }
        let kept = self.lease.max(FORGOTTEN_AFTER);
        let is_late = |since: Duration, limit| now.saturating_sub(since) >= limit;
        let is_over =
            |one: &Waiting| is_late(one.asked, kept) || one.told.is_some_and(|told| is_late(told, TURN));
        for shard in &self.shards {
            let mut dropped = Dropped::new();
            let mut shard = shard.lock();
            for file in shard.lock_queues.keys().copied().collect::<Vec<_>>() {
                shard.leave_queue(file, &self.gauges, &mut dropped, is_over);
                shard.unlocked(file, &mut dropped);
            }
            self.give_back(shard, dropped);
        }
    }
}
