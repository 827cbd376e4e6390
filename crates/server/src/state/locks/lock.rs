//! LOCK, LOCKT and LOCKU (RFC 8881 §18.10 to §18.12).
//!
//! READW_LT and WRITEW_LT are answered as READ_LT and WRITE_LT; those that are denied are told when they may have the lock
//! ([`lock_queue`](super::lock_queue)).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::MutexGuard;

use super::lock_queue::LockNotice;
use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::gauges::weight;
use crate::state::tables::range::{Held, LockRange};
use crate::state::tables::shard::{Dropped, Event, Kind, Shard};
use crate::state::tables::stateid::next_seqid;
use crate::state::tables::wire::{LockDenied, LockType, StateOwner, Stateid, Status};

/// Whose lock.
#[derive(Debug, Clone, Copy)]
pub enum Locker<'a> {
    /// `open_to_lock_owner4`.
    New {
        /// The open.
        open_stateid: Stateid,
        /// The lock-owner's bytes; in version 4.0, as [`Turn::owner`](crate::state::Turn::owner) gives them.
        owner: &'a Arc<[u8]>,
    },
    /// `exist_lock_owner4`: the lock stateid.
    Existing(Stateid),
}

/// What LOCK asks.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    /// The file.
    pub file: FileKey,
    /// Type.
    pub lock_type: LockType,
    /// Bytes.
    pub range: LockRange,
    /// Whether it reclaims.
    pub reclaim: bool,
    /// Whose.
    pub locker: Locker<'a>,
    /// How its client is told when a lock may be had for which it waits; `None`: it asks again by itself.
    pub notice: Option<LockNotice<'a>>,
}

/// What LOCKT asks.
#[derive(Debug, Clone, Copy)]
pub struct LockTest<'a> {
    /// The file.
    pub file: FileKey,
    /// Type.
    pub lock_type: LockType,
    /// Bytes.
    pub range: LockRange,
    /// The lock-owner's bytes.
    pub owner: &'a [u8],
}

/// Why there is no lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockError {
    /// DENIED, by this lock.
    Denied(Box<LockDenied>),
    /// Any other status.
    Status(Status),
}

impl From<Status> for LockError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Ranges that one LOCK adds at most: its own, and one more where it splits another.
const RANGES_A_LOCK: usize = 2;

/// Whose lock it is, found in the shard.
struct Found {
    /// The open that the lock is under.
    open: u32,
    /// The lock-owner's bytes.
    owner: Arc<[u8]>,
}

impl State {
    /// LOCK.
    ///
    /// # Errors
    /// DENIED; GRACE, NO_GRACE, RECLAIM_CONFLICT, OPENMODE, DELAY (no room), DEADSESSION (the client is gone), and
    /// as for every stateid.
    pub fn lock(
        &self,
        now: Duration,
        client: &Arc<Client>,
        request: &LockRequest<'_>,
    ) -> Result<Stateid, LockError> {
        self.admit(now, client, request.reclaim)?;
        // An owner that is known here already needs less.
        let owner = match request.locker {
            Locker::New { owner, .. } => weight(owner),
            Locker::Existing(_) => 0,
        };
        self.make_room(now, client, owner + RANGES_A_LOCK)?;
        let mut dropped = Dropped::new();
        let (mut shard, found) = self.find_locker(client, request)?;
        let result = self.lock_in(&mut shard, now, client, request, &found, &mut dropped);
        match &result {
            Ok(_) => self.waits_no_more(&mut shard, client, request, &found.owner, &mut dropped),
            Err(LockError::Denied(_)) => {
                let asks = (found.open, &found.owner);
                self.denied_lock(&mut shard, now, client, request, asks, &mut dropped);
            }
            Err(LockError::Status(_)) => {}
        }
        self.give_back(shard, dropped);
        result
    }

    fn lock_in(
        &self,
        shard: &mut Shard,
        now: Duration,
        client: &Arc<Client>,
        request: &LockRequest<'_>,
        found: &Found,
        dropped: &mut Dropped,
    ) -> Result<Stateid, LockError> {
        if client.is_gone() {
            return Err(Status::DEADSESSION.into());
        }
        let write = request.lock_type.is_write();
        if !shard.open_at(found.open).modes.may_lock(write) {
            return Err(Status::OPENMODE.into());
        }
        let own = shard.lock_owner(request.file, client.id(), Arc::clone(&found.owner));
        if let Some(held) =
            self.conflict(shard, now, client, request.file, (request.range, write), own, dropped)
        {
            if request.reclaim {
                return Err(Status::RECLAIM_CONFLICT.into());
            }
            return Err(LockError::Denied(Box::new(self.denied(shard, client, &held))));
        }
        let index = shard.lock_entry(found.open, &found.owner, client, &self.gauges);
        let Kind::Lock(lock) = &shard.entry(index).kind else { unreachable!("just found as a lock") };
        let number = lock.owner_number;
        self.change_ranges(shard, client, request.file, dropped, |ranges| {
            ranges.lock(number, request.range, write, index);
        });
        let entry = shard.entry_mut(index);
        // §9.4: "The server MUST increment the value of the "seqid" field whenever there is any change to the locking status of
        // any byte"; it may where there is none.
        entry.seqid = next_seqid(entry.seqid);
        Ok(shard.stateid(index, self.ids.boot()))
    }

    /// LOCKT.
    ///
    /// # Errors
    /// DENIED; GRACE.
    pub fn lock_test(&self, now: Duration, client: &Client, request: &LockTest<'_>) -> Result<(), LockError> {
        // A lock that will be reclaimed may be in the way.
        if self.recovery.in_grace(now) {
            return Err(Status::GRACE.into());
        }
        let shard = self.shards[self.shard_of(request.file)].lock();
        let Some(file) = shard.files.get(&request.file) else { return Ok(()) };
        // §18.11.4: "The LOCKT operation's test for conflicting locks SHOULD exclude locks for the current lock-owner".
        let own = shard.lock_owner(request.file, client.id(), Arc::from(request.owner));
        // What a LOCK would push aside is not in its way; a test pushes nothing.
        let stands = |holder| !self.yields(&shard, holder, now, client);
        match file.ranges.conflict(request.range, request.lock_type.is_write(), own, stands) {
            Some(held) => Err(LockError::Denied(Box::new(self.denied(&shard, client, &held)))),
            None => Ok(()),
        }
    }

    /// LOCKU. A range that is not locked, or only in part, is no error: POSIX.
    ///
    /// # Errors
    /// As for every stateid; DELAY where splitting a range has no room.
    pub fn unlock(
        &self,
        now: Duration,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
        range: LockRange,
    ) -> Result<Stateid, Status> {
        let (has_room, mut dropped) = (self.make_room(now, client, 1), Dropped::new());
        let (mut shard, index) =
            self.find_entry(client, file, stateid, |kind| matches!(kind, Kind::Lock(_)))?;
        let Kind::Lock(lock) = &shard.entry(index).kind else { unreachable!("found as a lock") };
        let number = lock.owner_number;
        // What frees must not wait for room.
        if shard.file_mut(file).ranges.is_split_by(number, range) {
            has_room?;
        }
        self.change_ranges(&mut shard, client, file, &mut dropped, |ranges| ranges.unlock(number, range));
        let entry = shard.entry_mut(index);
        entry.seqid = next_seqid(entry.seqid);
        let stateid = shard.stateid(index, self.ids.boot());
        self.give_back(shard, dropped);
        Ok(stateid)
    }

    /// Locks the shard of the file, and finds the open and the owner of a LOCK.
    fn find_locker(
        &self,
        client: &Client,
        request: &LockRequest<'_>,
    ) -> Result<(MutexGuard<'_, Shard>, Found), Status> {
        match request.locker {
            Locker::New { open_stateid, owner } => {
                let (shard, open) = self
                    .find_entry(client, request.file, &open_stateid, |kind| matches!(kind, Kind::Open(_)))?;
                Ok((shard, Found { open, owner: Arc::clone(owner) }))
            }
            Locker::Existing(stateid) => {
                let (shard, index) =
                    self.find_entry(client, request.file, &stateid, |kind| matches!(kind, Kind::Lock(_)))?;
                let Kind::Lock(lock) = &shard.entry(index).kind else { unreachable!("found as a lock") };
                let found = Found { open: lock.open, owner: Arc::clone(&lock.owner) };
                Ok((shard, found))
            }
        }
    }

    /// The lock that is in the way, after those of expired leases have been pushed aside (§8.4.3).
    #[expect(clippy::too_many_arguments, reason = "a private step of LOCK, split off for its length")]
    fn conflict(
        &self,
        shard: &mut Shard,
        now: Duration,
        client: &Client,
        file: FileKey,
        (range, write): (LockRange, bool),
        own: Option<u32>,
        dropped: &mut Dropped,
    ) -> Option<Held> {
        let stands = |holder| !self.yields(shard, holder, now, client);
        let held = shard.files.get(&file)?.ranges.conflict(range, write, own, stands);
        // "revoked as necessary": where another conflict stands, nothing is gained by it.
        if held.is_some() {
            return held;
        }
        while let Some(held) = shard.files.get(&file)?.ranges.conflict(range, write, own, |_| true) {
            shard.end(held.holder, Event::Conflict, &self.gauges, dropped);
        }
        None
    }

    fn change_ranges(
        &self,
        shard: &mut Shard,
        client: &Client,
        file: FileKey,
        dropped: &mut Dropped,
        change: impl FnOnce(&mut crate::state::tables::range::Ranges),
    ) {
        let ranges = &mut shard.file_mut(file).ranges;
        let before = ranges.count();
        change(ranges);
        self.gauges.locks_changed(client, before, ranges.count());
        shard.unlocked(file, dropped);
    }

    /// What DENIED says. §18.10.3: "it MUST set the clientid field of the owner field of the denied field".
    fn denied(&self, shard: &Shard, asks: &Client, held: &Held) -> LockDenied {
        let entry = shard.entry(held.holder);
        let owner: &[u8] = match &entry.kind {
            Kind::Lock(lock) => &lock.owner,
            Kind::Open(_) | Kind::Delegation(_) => &[],
        };
        LockDenied {
            offset: held.range.offset(),
            length: held.range.length(),
            lock_type: if held.write { LockType::Write } else { LockType::Read },
            owner: StateOwner {
                client_id: self.ids.denied_owner(asks.id(), entry.client.id()),
                // It came in an owner of the same bound.
                owner: xdr::Opaque::new(Bytes::copy_from_slice(owner)).unwrap_or_default(),
            },
        }
    }
}
