//! LOCK, TEST, UNLOCK and CANCEL of NLM.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use vfs::{LocalLocks, Pin};

use crate::state::State;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::gauges::weight;
use crate::state::tables::host_calls::{CallKind, Grant};
use crate::state::tables::locks::{HeldLock, LockKind, LockRange, LockSet, LockWaiter, OwnerName};
use crate::state::tables::nlm_hosts::NlmHost;
use crate::state::tables::shard::{Deferred, EntryEvent, EntryKind, LockNotify, Shard, waiting_host};

/// Maximum number of ranges that one LOCK adds: its own, and one if it splits another.
const RANGES_PER_LOCK: usize = 2;

/// An owner of an NLM host, and bytes of a file.
#[derive(Debug, Clone)]
pub struct NlmOwner {
    /// The host.
    pub host: Arc<NlmHost>,
    /// The file.
    pub file: FileKey,
    /// The bytes by which the host names the owner.
    pub owner: Arc<[u8]>,
}

impl NlmOwner {
    fn name(&self) -> OwnerName {
        OwnerName { client: self.host.id(), owner: Arc::clone(&self.owner) }
    }
}

/// The arguments of LOCK.
#[derive(Debug, Clone)]
pub struct NlmLockRequest {
    /// The owner and the file.
    pub owner: NlmOwner,
    /// The bytes.
    pub range: LockRange,
    /// Whether the lock excludes all others.
    pub is_exclusive: bool,
    /// Whether the host held the lock before the server's restart.
    pub reclaim: bool,
    /// Whether the host needs a record for a restart of the server.
    pub is_monitored: bool,
    /// From the backend.
    pub pin: Arc<dyn Pin>,
    /// The version and the encoded arguments of the GRANTED that follows, if the host waits.
    pub granted: Option<(u32, Bytes)>,
}

/// The holder of a conflicting lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NlmHolder {
    /// Whether the lock is exclusive.
    pub is_exclusive: bool,
    /// The bytes.
    pub range: LockRange,
    /// The owner's bytes, as its host gave them; `None` if a client of NFSv4, or a local process, holds the lock.
    pub owner: Option<Arc<[u8]>>,
}

/// The reason for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NlmRefusal {
    /// Another lock or share reservation conflicts.
    Denied,
    /// As [`Self::Denied`], and GRANTED follows.
    Blocked,
    /// The grace period runs, or it does not and the request is a reclaim.
    Grace,
    /// A bound is reached.
    NoRoom,
}

impl State {
    /// LOCK. Returns the change that must be stable before the reply, if there is one.
    ///
    /// # Errors
    /// Any [`NlmRefusal`].
    pub fn nlm_lock(&self, now: Duration, request: &NlmLockRequest) -> Result<Option<u64>, NlmRefusal> {
        let NlmLockRequest { owner: NlmOwner { host, file, owner }, .. } = request;
        self.admit_host(now, host, request.reclaim)?;
        let needs_record = request.is_monitored && !self.recovery.has_room_for_host(host.name());
        let room = self.make_room(now, &host.client, weight(owner) + RANGES_PER_LOCK);
        if needs_record || room.is_err() {
            return Err(NlmRefusal::NoRoom);
        }
        let name = request.owner.name();
        let local = self.local_locks(*file, Some(&request.pin));
        let mut deferred = Deferred::new();
        let mut shard = self.shards[self.shard_of(*file)].lock();
        let result = self.nlm_lock_in(&mut shard, now, (request, local), &name, &mut deferred);
        self.unlock_shard(shard, deferred);
        result?;
        let change =
            request.is_monitored.then(|| self.recovery.note_host(host.name(), host.path())).flatten();
        Ok(change)
    }

    fn nlm_lock_in(
        &self,
        shard: &mut Shard,
        now: Duration,
        (request, local): (&NlmLockRequest, Option<Arc<dyn LocalLocks>>),
        name: &OwnerName,
        deferred: &mut Deferred,
    ) -> Result<(), NlmRefusal> {
        let NlmOwner { host, file, .. } = &request.owner;
        let local = shard.local_locks(*file, local.as_ref()).cloned();
        let (range, kind) = (request.range, kind_of(request.is_exclusive));
        let own = shard.files.get(file).and_then(|record| record.lock_owners.find(name));
        let conflict = self.lock_conflict(shard, now, &host.client, *file, (range, kind, own), deferred);
        let is_it = |waiter: &LockWaiter<LockNotify>| waiter.is_for(name, range);
        let lock_locally = |local: &Arc<dyn LocalLocks>| local.lock(range.local(kind)).is_ok();
        if conflict.is_none() && local.as_ref().is_none_or(lock_locally) {
            shard.leave_queue(*file, &self.gauges, deferred, is_it);
            // The reply answers a GRANTED that is under way: the host, which no longer waits, may refuse that.
            self.withdraw_grants(host, *file, name, range);
            let owner = (name, &request.pin);
            self.insert_nlm_lock(shard, (host, *file), owner, (range, kind), local.as_ref(), deferred);
            return Ok(());
        }
        let Some((version, arguments)) = request.granted.clone().filter(|_| !request.reclaim) else {
            shard.leave_queue(*file, &self.gauges, deferred, is_it);
            return Err(NlmRefusal::Denied);
        };
        let grant = Grant {
            host: Arc::clone(host),
            file: *file,
            name: name.clone(),
            range,
            kind,
            pin: Arc::clone(&request.pin),
            local,
            path: host.path(),
            version,
            arguments,
        };
        match shard.join_queue(*file, waiting_host(Arc::new(grant), now), &self.gauges) {
            true => Err(NlmRefusal::Blocked),
            // The host repeats the request.
            false => Err(NlmRefusal::NoRoom),
        }
    }

    /// Locks a range that no other owner's lock conflicts with, and that is locked against local processes.
    pub(crate) fn insert_nlm_lock(
        &self,
        shard: &mut Shard,
        (host, file): (&NlmHost, FileKey),
        (name, pin): (&OwnerName, &Arc<dyn Pin>),
        (range, kind): (LockRange, LockKind),
        local: Option<&Arc<dyn LocalLocks>>,
        deferred: &mut Deferred,
    ) {
        let index = shard.nlm_lock_entry(file, (&host.client, name), pin, &self.gauges);
        if let Some(local) = local {
            shard.file_mut(file).ranges.set_local(local);
        }
        let lock = HeldLock { range, kind, owner: shard.nlm_lock_owner(index), set: LockSet(index) };
        self.change_ranges(shard, &host.client, file, deferred, |ranges| ranges.lock(lock));
    }

    /// TEST. Returns the conflicting lock.
    ///
    /// # Errors
    /// [`NlmRefusal::Grace`]: a lock that is reclaimed later may conflict.
    pub fn nlm_test(
        &self,
        now: Duration,
        (host, file, owner): (Option<&NlmHost>, FileKey, &Arc<[u8]>),
        pin: &Arc<dyn Pin>,
        (range, is_exclusive): (LockRange, bool),
    ) -> Result<Option<NlmHolder>, NlmRefusal> {
        if self.recovery.in_grace(now) {
            return Err(NlmRefusal::Grace);
        }
        let local = self.local_locks(file, Some(pin));
        let kind = kind_of(is_exclusive);
        let shard = self.shards[self.shard_of(file)].lock();
        let local_holder = || {
            let held = shard.local_locks(file, local.as_ref())?.conflict(range.local(kind))?;
            let range = LockRange::of_local(held);
            Some(NlmHolder { is_exclusive: held.is_exclusive, range, owner: None })
        };
        let Some(record) = shard.files.get(&file) else { return Ok(local_holder()) };
        let name = host.map(|host| OwnerName { client: host.id(), owner: Arc::clone(owner) });
        let own = name.and_then(|name| record.lock_owners.find(&name));
        let client = host.map_or(&self.anonymous, |host| &host.client);
        let counts = |LockSet(index)| !self.is_lease_over(&shard, index, now, client);
        let held = record.ranges.conflict(range, kind, own, counts);
        let holder = held.map(|held| NlmHolder {
            is_exclusive: held.kind == LockKind::Exclusive,
            range: held.range,
            owner: match &shard.entry(held.set.0).kind {
                EntryKind::NlmLock(lock) => Some(Arc::clone(&lock.name.owner)),
                _ => None,
            },
        });
        Ok(holder.or_else(local_holder))
    }

    /// UNLOCK. A range that is not locked is not an error.
    ///
    /// # Errors
    /// [`NlmRefusal::NoRoom`] for the range that a split adds.
    pub fn nlm_unlock(&self, now: Duration, owner: &NlmOwner, range: LockRange) -> Result<(), NlmRefusal> {
        let (host, file, name) = (&owner.host, owner.file, owner.name());
        let has_room = self.make_room(now, &host.client, 1).is_ok();
        let mut deferred = Deferred::new();
        let mut shard = self.shards[self.shard_of(file)].lock();
        self.withdraw_grants(host, file, &name, range);
        let result = self.nlm_unlock_in(&mut shard, host, (file, &name), (range, has_room), &mut deferred);
        self.unlock_shard(shard, deferred);
        result
    }

    /// Frees an owner's locks in a range. Without room it does not split a range.
    pub(super) fn nlm_unlock_in(
        &self,
        shard: &mut Shard,
        host: &NlmHost,
        (file, name): (FileKey, &OwnerName),
        (range, has_room): (LockRange, bool),
        deferred: &mut Deferred,
    ) -> Result<(), NlmRefusal> {
        let Some(index) = shard.find_nlm_lock(file, name) else { return Ok(()) };
        let owner = shard.nlm_lock_owner(index);
        // An operation that frees must not need room otherwise.
        if shard.file_mut(file).ranges.is_split_by(owner, range) && !has_room {
            return Err(NlmRefusal::NoRoom);
        }
        self.change_ranges(shard, &host.client, file, deferred, |ranges| ranges.unlock(owner, range));
        if !shard.holds_ranges(index) {
            shard.end(index, EntryEvent::Close, &self.gauges, deferred);
        }
        Ok(())
    }

    /// CANCEL. If the lock was granted meanwhile, and the host has not confirmed that, it is released: the GRANTED and the CANCEL
    /// have crossed. Returns whether the host had waited.
    pub fn nlm_cancel(&self, owner: &NlmOwner, range: LockRange) -> bool {
        let (host, file, name) = (&owner.host, owner.file, owner.name());
        let mut deferred = Deferred::new();
        let mut shard = self.shards[self.shard_of(file)].lock();
        let mut had_waited = false;
        if let Some(queue) = shard.lock_queues.get_mut(&file) {
            had_waited = queue.find_mut(&name, range).is_some();
        }
        shard.leave_queue(file, &self.gauges, &mut deferred, |waiter| waiter.is_for(&name, range));
        if self.withdraw_grants(host, file, &name, range) {
            let _ = self.nlm_unlock_in(&mut shard, host, (file, &name), (range, true), &mut deferred);
            had_waited = true;
        }
        self.unlock_shard(shard, deferred);
        had_waited
    }

    /// Withdraws the GRANTED of an owner for a range. Returns whether there was one. The caller holds the file's shard, so that the lock
    /// is not granted, or taken back, meanwhile.
    fn withdraw_grants(&self, host: &NlmHost, file: FileKey, name: &OwnerName, range: LockRange) -> bool {
        let is_it = |call: &CallKind| matches!(call, CallKind::Granted(grant) if grant.is_of(file, name) && grant.range.overlaps(range));
        self.host_calls.withdraw(host.name().address, is_it)
    }
}

/// Returns the kind of a lock.
fn kind_of(is_exclusive: bool) -> LockKind {
    if is_exclusive { LockKind::Exclusive } else { LockKind::Shared }
}
