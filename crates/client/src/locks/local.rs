//! Locks that are kept on this machine (`local_lock=`, `nolock`): other clients of the server do not know them.

use std::collections::{BTreeMap, HashMap};
use std::future::pending;

use parking_lot::Mutex;
use protocol::nfs4::types::{Handle, Status};

use super::ranges::{HeldRange, HeldRanges};
use super::{LockConflict, LockKind, LockOwner, LockRange, Waiters};
use crate::errno::Errno;
use crate::error::OpError;

/// Locks by file and owner.
#[derive(Debug, Default)]
pub(crate) struct LocalLocks {
    files: Mutex<HashMap<Handle, BTreeMap<LockOwner, HeldRanges>>>,
    waiters: Waiters,
}

impl LocalLocks {
    /// Locks a range; waits until it is free if `wait`. Deadlocks of waiting owners are not found.
    ///
    /// # Errors
    /// DENIED if another owner has it and the caller does not wait; ENOLCK beyond a bound.
    pub(crate) async fn lock(
        &self,
        file: Handle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
        wait: bool,
    ) -> Result<(), OpError> {
        if !wait {
            return self.try_lock(file, owner, range, kind);
        }
        let too_many = OpError::Invalid(Errno::ENOLCK, "too many tasks wait for locks");
        let waiter = self.waiters.join(file, 0).ok_or(too_many)?;
        loop {
            waiter.reset();
            match self.try_lock(file, owner, range, kind) {
                Err(OpError::Status(Status::DENIED)) => waiter.notified(pending()).await,
                outcome => return outcome,
            }
        }
    }

    fn try_lock(
        &self,
        file: Handle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<(), OpError> {
        let mut files = self.files.lock();
        let owners = files.entry(file).or_default();
        if conflict(owners, owner, range, kind).is_some() {
            return Err(OpError::Status(Status::DENIED));
        }
        let held = owners.entry(owner).or_default();
        if !held.has_room() {
            return Err(OpError::Invalid(Errno::ENOLCK, "too many locked ranges"));
        }
        held.lock(HeldRange { range, kind, open: 0 });
        drop(files);
        // An exclusive lock may have become a shared one.
        self.waiters.unlocked(&file);
        Ok(())
    }

    /// Returns a lock that conflicts.
    pub(crate) fn test(
        &self,
        file: &Handle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Option<LockConflict> {
        conflict(self.files.lock().get(file)?, owner, range, kind)
    }

    /// Unlocks a range.
    pub(crate) fn unlock(&self, file: &Handle, owner: LockOwner, range: LockRange) {
        let mut files = self.files.lock();
        let Some(owners) = files.get_mut(file) else { return };
        if let Some(held) = owners.get_mut(&owner) {
            held.unlock(range);
        }
        owners.retain(|_, held| !held.is_empty());
        if owners.is_empty() {
            files.remove(file);
        }
        drop(files);
        self.waiters.unlocked(file);
    }
}

fn conflict(
    owners: &BTreeMap<LockOwner, HeldRanges>,
    owner: LockOwner,
    range: LockRange,
    kind: LockKind,
) -> Option<LockConflict> {
    owners.iter().filter(|(other, _)| **other != owner).find_map(|(other, held)| {
        let held = held.conflict(range, kind)?;
        Some(LockConflict {
            range: held.range,
            kind: held.kind,
            owner: Some(*other),
            name: bytes::Bytes::new(),
        })
    })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::task::noop_waker_ref;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn owners_exclude_each_other_and_waiters_get_their_turn() {
        let (locks, file) = (LocalLocks::default(), Handle::new(b"file").unwrap());
        let (one, two) = (LockOwner::Process(1), LockOwner::File(1));
        let range = LockRange::new(0, 10).unwrap();
        let lock = |owner, kind, wait| locks.lock(file, owner, range, kind, wait);
        lock(one, LockKind::Exclusive, false).now_or_never().unwrap().unwrap();
        let denied = lock(two, LockKind::Shared, false).now_or_never().unwrap();
        assert_eq!(denied.unwrap_err().errno(), Errno::EAGAIN);
        let conflict = locks.test(&file, two, LockRange::WHOLE, LockKind::Shared).unwrap();
        assert_eq!((conflict.owner, conflict.range), (Some(one), range));
        assert_eq!(locks.test(&file, one, range, LockKind::Exclusive), None);

        let mut waiting = pin!(lock(two, LockKind::Shared, true));
        let mut context = Context::from_waker(noop_waker_ref());
        assert!(waiting.poll_unpin(&mut context).is_pending());
        // A shared lock in place of the exclusive one lets the other in.
        lock(one, LockKind::Shared, false).now_or_never().unwrap().unwrap();
        assert!(waiting.poll_unpin(&mut context).is_ready());
        for owner in [one, two] {
            locks.unlock(&file, owner, LockRange::WHOLE);
        }
        assert!(locks.files.lock().is_empty());
    }
}
