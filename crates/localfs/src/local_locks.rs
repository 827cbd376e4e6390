//! Byte-range locks that local processes respect, by an open file description of the server's own for each locked file
//! (`F_OFD_SETLK` of fcntl(2)).

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;
use vfs::{Handle, LocalLock, LocalLocks};

use crate::object::{OpenFile, Reach};
use crate::sys::{self, RangeLock};
use crate::volume::Volume;

/// `f_type` of file systems that lock without asking another machine or process: ext2 to ext4, XFS, btrfs, F2FS, tmpfs,
/// ZFS, bcachefs, overlayfs. Locks of others may wait for a network.
const LOCKS_AT_ONCE: [u64; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994, 0x2fc1_2fc1, 0xca45_1a4e, 0x794c_7630];
/// Attempts to lock bytes while locks of others come and go.
const TRIES: u32 = 8;
/// The greatest offset that the kernel can lock.
const LAST_BYTE: u64 = i64::MAX as u64;

/// Returns whether locks on a file system of this `f_type` never wait.
pub(crate) fn locks_at_once(f_type: u64) -> bool {
    LOCKS_AT_ONCE.contains(&f_type)
}

/// The locks of one file.
#[derive(Debug)]
struct FileLocks {
    file: OpenFile,
    /// The volume's number of such files.
    count: Arc<AtomicUsize>,
}

impl Drop for FileLocks {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FileLocks {
    /// Returns the kernel's form of a lock; `None` if it has no byte that the kernel can lock, or if the descriptor does not
    /// permit it: for these the kernel knows no locks of others.
    fn range(&self, lock: LocalLock) -> Option<RangeLock> {
        let LocalLock { first, last, is_exclusive } = lock;
        let is_permitted = if is_exclusive { self.file.reach.writes() } else { self.file.reach.reads() };
        (is_permitted && first <= LAST_BYTE).then(|| RangeLock {
            first,
            last: last.min(LAST_BYTE),
            is_exclusive,
        })
    }

    /// Returns the first lock of a local process that conflicts.
    fn holder(&self, range: RangeLock) -> Option<LocalLock> {
        let RangeLock { first, last, is_exclusive } =
            sys::conflicting_lock(self.file.as_fd(), range).ok()??;
        Some(LocalLock { first, last: if last == LAST_BYTE { u64::MAX } else { last }, is_exclusive })
    }
}

impl LocalLocks for FileLocks {
    fn lock(&self, lock: LocalLock) -> Result<(), LocalLock> {
        let Some(range) = self.range(lock) else { return Ok(()) };
        for _ in 0..TRIES {
            match sys::lock_range(self.file.as_fd(), range) {
                Err(Errno::AGAIN | Errno::ACCESS) => {}
                // Without memory for it (ENOLCK) the lock holds among clients alone.
                Ok(()) | Err(_) => return Ok(()),
            }
            // It may be gone by now.
            if let Some(holder) = self.holder(range) {
                return Err(holder);
            }
        }
        Err(lock)
    }

    fn unlock(&self, first: u64, last: u64) {
        if first <= LAST_BYTE {
            // It fails only without memory for the rest of a range that is split; then all of it stays locked.
            let _ = sys::unlock_range(self.file.as_fd(), first, last.min(LAST_BYTE));
        }
    }

    fn conflict(&self, lock: LocalLock) -> Option<LocalLock> {
        self.range(lock).and_then(|range| self.holder(range))
    }
}

impl Volume {
    /// Returns the locks of an open file, none of them locked; `None` if the file system may wait, or if descriptors are
    /// short: these cannot be closed as long as a lock is held.
    pub(crate) fn local_locks(&self, file: &Handle) -> Option<Arc<dyn LocalLocks>> {
        if !self.locks_at_once
            || self.files_with_locks.load(Ordering::Relaxed) >= self.descriptors.max_pinned() / 2
        {
            return None;
        }
        let object = self.objects.peek(file)?;
        let present = object.file();
        let (fd, reach) = match self.reopen(&object, &present, OFlags::RDWR) {
            Ok(fd) => (fd, Reach::ReadWrite),
            // Of a running program, or on a file system mounted read-only.
            Err(_) => (self.reopen(&object, &present, OFlags::RDONLY).ok()?, Reach::Read),
        };
        let count = Arc::clone(&self.files_with_locks);
        count.fetch_add(1, Ordering::Relaxed);
        Some(Arc::new(FileLocks { file: self.file_of(fd, reach), count }))
    }
}
