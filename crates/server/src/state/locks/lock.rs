//! LOCK, LOCKT and LOCKU (RFC 8881 §18.10 to §18.12).
//!
//! READW_LT and WRITEW_LT are answered like READ_LT and WRITE_LT. A client that was denied such a lock is notified when it may
//! have it ([`wait`](super::wait)).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::MutexGuard;
use vfs::{LocalLock, LocalLocks, Pin};

use super::request::{FoundLocker, LockError, LockRequest, LockTest, Locker, kind_of};
use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::delegation::kind::DelegationKind;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::gauges::weight;
use crate::state::tables::locks::{
    HeldLock, LockKind, LockOwner, LockRange, LockSet, LockedRanges, OwnerName,
};
use crate::state::tables::shard::{Deferred, EntryEvent, EntryKind, Shard};
use crate::state::tables::stateid::next_seqid;
use crate::state::tables::wire::{LockDenied, LockType, StateOwner, Stateid, Status};

/// The owner that DENIED names for a lock of a local process.
const LOCAL_PROCESS: &[u8] = b"local process";
/// Maximum number of ranges that one LOCK adds: its own, and one if it splits another.
const RANGES_PER_LOCK: usize = 2;

impl State {
    /// LOCK.
    ///
    /// # Errors
    /// DENIED; GRACE, NO_GRACE, RECLAIM_CONFLICT, OPENMODE, DELAY (no room), DEADSESSION (the client's record is removed), and
    /// as for every stateid.
    pub fn lock(
        &self,
        now: Duration,
        client: &Arc<Client>,
        request: &LockRequest<'_>,
    ) -> Result<Stateid, LockError> {
        self.admit(now, client, request.reclaim)?;
        // An owner that has a lock stateid already needs less.
        let owner = match request.locker {
            Locker::New { owner, .. } => weight(owner),
            Locker::Existing(_) => 0,
        };
        self.make_room(now, client, owner + RANGES_PER_LOCK)?;
        let local = self.local_locks(request.file, None);
        let mut deferred = Deferred::new();
        let (mut shard, locker) = self.find_locker(client, request)?;
        if let Some(local) = &local {
            shard.file_mut(request.file).ranges.set_local(local);
        }
        let result = self.lock_in(&mut shard, now, client, request, &locker, &mut deferred);
        match &result {
            Ok(_) => self.stop_waiting(&mut shard, request, &locker.name, &mut deferred),
            Err(LockError::Denied(_)) => {
                self.lock_denied(&mut shard, now, client, request, &locker, &mut deferred);
            }
            Err(LockError::Status(_)) => {}
        }
        self.unlock_shard(shard, deferred);
        result
    }

    fn lock_in(
        &self,
        shard: &mut Shard,
        now: Duration,
        client: &Arc<Client>,
        request: &LockRequest<'_>,
        locker: &FoundLocker,
        deferred: &mut Deferred,
    ) -> Result<Stateid, LockError> {
        if client.is_removed() {
            return Err(Status::DEADSESSION.into());
        }
        let (file, range, kind) = (request.file, request.range, kind_of(request.lock_type));
        if !shard.open_at(locker.open).modes.may_lock(kind) {
            return Err(Status::OPENMODE.into());
        }
        let own = shard.files.get(&file).and_then(|record| record.lock_owners.find(&locker.name));
        if let Some(held) = self.lock_conflict(shard, now, client, file, (range, kind, own), deferred) {
            if request.reclaim {
                return Err(Status::RECLAIM_CONFLICT.into());
            }
            return Err(LockError::Denied(Box::new(self.denied(shard, client, &held))));
        }
        if let Err(held) = shard.file_mut(file).ranges.lock_locally(range, kind) {
            let denied = || LockError::Denied(Box::new(denied_locally(held)));
            return Err(if request.reclaim { Status::RECLAIM_CONFLICT.into() } else { denied() });
        }
        let index = shard.lock_entry(locker.open, &locker.name, client, &self.gauges);
        let lock = HeldLock { range, kind, owner: shard.lock_at(index).owner, set: LockSet(index) };
        self.change_ranges(shard, client, file, deferred, |ranges| ranges.lock(lock));
        let entry = shard.entry_mut(index);
        // §9.4: "The server MUST increment the value of the "seqid" field whenever there is any change to the locking status of
        // any byte"; it may if there is none.
        entry.seqid = next_seqid(entry.seqid);
        Ok(shard.stateid(index, self.ids.boot()))
    }

    /// LOCKT.
    ///
    /// # Errors
    /// DENIED; GRACE.
    pub fn lock_test(&self, now: Duration, client: &Client, request: &LockTest<'_>) -> Result<(), LockError> {
        // A lock that is reclaimed later may conflict.
        if self.recovery.in_grace(now) {
            return Err(Status::GRACE.into());
        }
        let local = self.local_locks(request.file, None);
        let shard = self.shards[self.shard_of(request.file)].lock();
        // What no client has open is not opened for a test.
        let Some(file) = shard.files.get(&request.file) else { return Ok(()) };
        // §18.11.4: "The LOCKT operation's test for conflicting locks SHOULD exclude locks for the current lock-owner".
        let name = OwnerName { client: client.id(), owner: Arc::from(request.owner) };
        let own = file.lock_owners.find(&name);
        // Locks that a LOCK would revoke do not conflict. A test revokes nothing.
        let counts = |LockSet(index)| !self.is_lease_over(&shard, index, now, client);
        let (range, kind) = (request.range, kind_of(request.lock_type));
        if let Some(held) = file.ranges.conflict(range, kind, own, counts) {
            return Err(LockError::Denied(Box::new(self.denied(&shard, client, &held))));
        }
        let local = file.ranges.local().or(local.as_ref());
        match local.and_then(|local| local.conflict(range.local(kind))) {
            Some(held) => Err(LockError::Denied(Box::new(denied_locally(held)))),
            None => Ok(()),
        }
    }

    /// LOCKU. A range that is not locked, or only in part, is not an error, as in POSIX.
    ///
    /// # Errors
    /// As for every stateid; DELAY if there is no room for the range that a split adds.
    pub fn unlock(
        &self,
        now: Duration,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
        range: LockRange,
    ) -> Result<Stateid, Status> {
        let (has_room, mut deferred) = (self.make_room(now, client, 1), Deferred::new());
        let (mut shard, index) = self.find_lock(client, file, stateid)?;
        let owner = shard.lock_at(index).owner;
        // An operation that frees must not need room otherwise.
        if shard.file_mut(file).ranges.is_split_by(owner, range) {
            has_room?;
        }
        self.change_ranges(&mut shard, client, file, &mut deferred, |ranges| ranges.unlock(owner, range));
        let entry = shard.entry_mut(index);
        entry.seqid = next_seqid(entry.seqid);
        let stateid = shard.stateid(index, self.ids.boot());
        self.unlock_shard(shard, deferred);
        Ok(stateid)
    }

    /// Locks the shard of the lock stateid.
    fn find_lock(
        &self,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
    ) -> Result<(MutexGuard<'_, Shard>, u32), Status> {
        self.find_entry(client, file, stateid, |kind| matches!(kind, EntryKind::Lock(_)))
    }

    /// Locks the shard of the file, and finds the open and the owner of a LOCK.
    fn find_locker(
        &self,
        client: &Client,
        request: &LockRequest<'_>,
    ) -> Result<(MutexGuard<'_, Shard>, FoundLocker), Status> {
        match request.locker {
            Locker::New { open_stateid, owner } => {
                let is_open = |kind: &EntryKind| matches!(kind, EntryKind::Open(_));
                let (shard, open) = self.find_entry(client, request.file, &open_stateid, is_open)?;
                let name = OwnerName { client: client.id(), owner: Arc::clone(owner) };
                Ok((shard, FoundLocker { open, name }))
            }
            Locker::Existing(stateid) => {
                let (shard, index) = self.find_lock(client, request.file, &stateid)?;
                let lock = shard.lock_at(index);
                let locker = FoundLocker { open: lock.open, name: lock.name.clone() };
                Ok((shard, locker))
            }
        }
    }

    /// Returns the locks of a file against local processes, or new ones if it has none; `None` if the backend has none. `pin` is
    /// of an open that is not in the tables. May open a descriptor, so no shard may be locked.
    pub(crate) fn local_locks(
        &self,
        file: FileKey,
        pin: Option<&Arc<dyn Pin>>,
    ) -> Option<Arc<dyn LocalLocks>> {
        let of_open = {
            let shard = self.shards[self.shard_of(file)].lock();
            let record = shard.files.get(&file);
            if let Some(local) = record.and_then(|record| record.ranges.local()) {
                return Some(Arc::clone(local));
            }
            let mut opens = record.into_iter().flat_map(|record| record.opens.iter());
            opens.find_map(|index| shard.open_at(*index).pin.clone())
        };
        pin.or(of_open.as_ref())?.local_locks()
    }

    /// Returns whether a local process has locked bytes of an open file that the holder of a delegation could lock by itself.
    /// May open a descriptor, so no shard may be locked.
    pub fn is_locked_locally(&self, file: FileKey, kind: DelegationKind) -> bool {
        let any = LocalLock { first: 0, last: u64::MAX, is_exclusive: kind.is_write() };
        self.local_locks(file, None).is_some_and(|local| local.conflict(any).is_some())
    }

    /// Returns the lock that conflicts. If only locks of expired leases do, revokes these (§8.4.3).
    pub(crate) fn lock_conflict(
        &self,
        shard: &mut Shard,
        now: Duration,
        client: &Client,
        file: FileKey,
        (range, kind, own): (LockRange, LockKind, Option<LockOwner>),
        deferred: &mut Deferred,
    ) -> Option<HeldLock> {
        let counts = |LockSet(index)| !self.is_lease_over(shard, index, now, client);
        let held = shard.files.get(&file)?.ranges.conflict(range, kind, own, counts);
        // "revoked as necessary": if another conflict remains, a revocation does not help.
        if held.is_some() {
            return held;
        }
        while let Some(held) = shard.files.get(&file)?.ranges.conflict(range, kind, own, |_| true) {
            shard.end(held.set.0, EntryEvent::Conflict, &self.gauges, deferred);
        }
        None
    }

    pub(crate) fn change_ranges(
        &self,
        shard: &mut Shard,
        client: &Client,
        file: FileKey,
        deferred: &mut Deferred,
        change: impl FnOnce(&mut LockedRanges),
    ) {
        let ranges = &mut shard.file_mut(file).ranges;
        let before = ranges.count();
        change(ranges);
        self.gauges.locks_changed(client, before, ranges.count());
        shard.unlocked(file, deferred);
    }

    /// Returns the result of DENIED. §18.10.3: "it MUST set the clientid field of the owner field of the denied field".
    fn denied(&self, shard: &Shard, asker: &Client, held: &HeldLock) -> LockDenied {
        let LockSet(index) = held.set;
        let (holder, owner) = (shard.entry(index).client.id(), &shard.lock_name(index).owner);
        LockDenied {
            offset: held.range.offset(),
            length: held.range.length(),
            lock_type: match held.kind {
                LockKind::Exclusive => LockType::Write,
                LockKind::Shared => LockType::Read,
            },
            owner: StateOwner {
                client_id: self.ids.denied_owner(asker.id(), holder),
                // It was received in an owner of the same bound; that of an NLM host, which may be longer, is left out then.
                owner: xdr::Opaque::new(Bytes::copy_from_slice(owner)).unwrap_or_default(),
            },
        }
    }
}

/// Returns the result of DENIED for a lock of a local process, which is no client.
fn denied_locally(held: LocalLock) -> LockDenied {
    let range = LockRange::of_local(held);
    LockDenied {
        offset: range.offset(),
        length: range.length(),
        lock_type: if held.is_exclusive { LockType::Write } else { LockType::Read },
        owner: StateOwner { client_id: 0, owner: xdr::Opaque::from_static(LOCAL_PROCESS) },
    }
}
