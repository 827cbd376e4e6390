//! Locks of fcntl(2) and flock(2), which the server keeps.

use client::fs::inode::OpenFile;
use client::locks::{LockKind, LockOwner, LockRange};
use fuse::{Errno, Lock, NodeId};

use super::{Files, errno};

/// The last byte of a range without end.
const END: u64 = i64::MAX as u64;
/// Numbers of owners that are reserved for the client.
const OWN_NUMBERS: u64 = 1 << 63;

impl Files {
    pub(crate) async fn getlk(&self, _: fuse::Caller, request: Lock) -> Result<fuse::LockRange, Errno> {
        let file = self.open_files.get(request.handle)?;
        let kind = kind(request.range.kind).ok_or(Errno::INVAL)?;
        let tested = file.test_lock(owner(&request), range(&request.range)?, kind).await;
        let Some(conflict) = tested.map_err(|error| errno(&error))? else {
            return Ok(fuse::LockRange { kind: fuse::LockKind::Unlock, ..request.range });
        };
        let start = conflict.range.offset();
        Ok(fuse::LockRange {
            start,
            end: conflict.range.length().map_or(END, |length| start + (length - 1)),
            kind: match conflict.kind {
                LockKind::Shared => fuse::LockKind::Read,
                LockKind::Exclusive => fuse::LockKind::Write,
            },
            // The process may be on another machine.
            pid: 0,
        })
    }

    /// Sets a lock; waits until it is free if `waits`.
    pub(crate) async fn set_lock(&self, request: &Lock, waits: bool) -> Result<(), Errno> {
        let file = self.open_files.get(request.handle)?;
        let Some(kind) = kind(request.range.kind) else { return self.unlock(&file, request).await };
        let locked = match (request.is_flock, waits) {
            (true, true) => file.flock(kind).await,
            (true, false) => file.try_flock(kind).await,
            (false, true) => file.lock(owner(request), range(&request.range)?, kind).await,
            (false, false) => file.try_lock(owner(request), range(&request.range)?, kind).await,
        };
        locked.map_err(|error| errno(&error))?;
        if !request.is_flock {
            self.lockers.lock().insert((request.node, request.owner));
        }
        // An earlier holder of the lock may have changed the file.
        if !self.nodes.get(request.node)?.validate_pages() {
            self.drop_pages(request.node).await;
        }
        Ok(())
    }

    /// Unlocks, after the data written under the lock are at the server.
    async fn unlock(&self, file: &OpenFile, request: &Lock) -> Result<(), Errno> {
        if file.flags().mode.write {
            // Errors are reported at close and by fsync(2).
            let _ = file.flush().await;
        }
        let unlocked = if request.is_flock {
            file.funlock().await
        } else {
            file.unlock(owner(request), range(&request.range)?).await
        };
        unlocked.map_err(|error| errno(&error))
    }

    /// Releases a lock whose program has ended.
    pub(crate) async fn take_lock_back(&self, request: &Lock) {
        if let Ok(file) = self.open_files.get(request.handle) {
            // The server ends it with the file.
            let _ = self.unlock(&file, request).await;
        }
    }

    /// Ends the fcntl locks of a process that closes a file.
    pub(super) async fn end_locks(&self, file: &OpenFile, node: NodeId, locker: fuse::LockOwner) {
        if self.lockers.lock().remove(&(node, locker)) {
            let owner = LockOwner::Process(locker.0 & !OWN_NUMBERS);
            if let Err(error) = file.unlock(owner, LockRange::WHOLE).await {
                tracing::debug!(%error, "cannot unlock at close");
            }
        }
    }
}

fn owner(request: &Lock) -> LockOwner {
    LockOwner::Process(request.owner.0 & !OWN_NUMBERS)
}

fn kind(kind: fuse::LockKind) -> Option<LockKind> {
    match kind {
        fuse::LockKind::Read => Some(LockKind::Shared),
        fuse::LockKind::Write => Some(LockKind::Exclusive),
        fuse::LockKind::Unlock => None,
    }
}

fn range(range: &fuse::LockRange) -> Result<LockRange, Errno> {
    let length = if range.end >= END { 0 } else { range.end - range.start + 1 };
    LockRange::new(range.start, length).map_err(|error| errno(&error))
}
