//! Watches a directory's entries, so that cached listings can be reused.
//!
//! Requirements: every change by this server, by any name, export and version, and every change by local
//! processes must be known at once, and the check must be very cheap. Each watch has a fanotify(7) group of
//! its own with a mark on the directory and one on every entry. The kernel queues an event before the system call
//! that caused it returns. The queue is never read: once it is readable, something has changed, and poll(2) shows
//! it. There is no state to update, and so no race.
//!
//! Rejected: a mark on the directory alone, with `FAN_EVENT_ON_CHILD`, would take one call instead of a thousand, but
//! does not see changes by another name or by a handle, which has no name. A mark on the object sees changes on every path to it,
//! and a subdirectory's own entries too. So this server's changes need no separate tracking.
//!
//! Marks are set before the entries are first read, so that no change is lost in between. Removing a thousand of them
//! takes about ten milliseconds, during which no request waits.
//!
//! Watches do not see these changes, so users of cached listings have to bound their age: times of access, unless this server
//! sets them; the storage that a file uses, which changes when it is written out; writes through a mapping, until it is unmapped;
//! `chattr`; mounts on an entry. File systems that can change without this kernel are not watched.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use vfs::{Attributes, EntriesWatch, FileKind, Handle, Interest, Op, Peer, Result};

use crate::descriptors::Counted;
use crate::errno::translate;
use crate::pool::Lane;
use crate::streams::{BUFFER_BYTES, RawEntry, entries};
use crate::sys::{self, Mark};
use crate::volume::Volume;
use crate::watch::events_of;
use crate::watch_limits::WatchLimit;

/// Maximum number of entries of a watched directory; each mark keeps an inode in memory.
const MAX_ENTRIES: usize = 8192;
/// `f_type` of file systems that only this kernel changes, and whose changes it reports: ext2 to ext4, XFS, btrfs,
/// F2FS, tmpfs.
const WATCHED: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];

/// Number of times that this process has set a time of access and not that of modification. This is the one change of an
/// attribute without an event of its own: every READ causes `FAN_ACCESS`, too.
static ACCESS_TIMES_SET: AtomicU64 = AtomicU64::new(0);

/// Notes that a time of access, alone, was set.
pub(crate) fn access_time_was_set() {
    ACCESS_TIMES_SET.fetch_add(1, Ordering::SeqCst);
}

/// Marks on a directory and its entries.
#[derive(Debug)]
struct Marks {
    volume: Arc<Volume>,
    /// `None` while it is being closed.
    group: Option<(OwnedFd, Counted)>,
    entries: usize,
    /// [`ACCESS_TIMES_SET`] before the entries were first read.
    access_times_set: u64,
}

impl EntriesWatch for Marks {
    fn is_unchanged(&self) -> bool {
        let Some((group, _)) = &self.group else { return false };
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An error counts as a change.
        let has_none = rustix::event::poll(&mut [PollFd::new(group, PollFlags::IN)], Some(&at_once)) == Ok(0);
        has_none && ACCESS_TIMES_SET.load(Ordering::SeqCst) == self.access_times_set
    }

    fn is_final(&self, attributes: &Attributes) -> bool {
        self.volume.changes.is_final(attributes)
    }

    fn entries(&self) -> usize {
        self.entries
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        let group = self.group.take();
        // The kernel waits until the marks are unused.
        self.volume.pool.submit(Lane::Long, Peer::default(), move || drop(group));
    }
}

impl Volume {
    /// Watches a directory and its entries; `None` if that is impossible.
    pub(crate) fn watch_entries<'a>(
        self: &'a Arc<Self>,
        peer: Peer,
        directory: &Handle,
    ) -> Op<'a, Option<Arc<dyn EntriesWatch>>> {
        if !self.has_watched_entries {
            return Op::ok(None);
        }
        let directory = *directory;
        // It takes longer than the listing itself.
        Op::pending(self.read_on_pool(peer, move |volume| volume.mark_entries(&directory)))
    }

    fn mark_entries(self: &Arc<Self>, directory: &Handle) -> Result<Option<Arc<dyn EntriesWatch>>> {
        let directory = self.object(directory)?;
        directory.require_directory()?;
        if self.descriptors.is_used_up() {
            self.limit_log.report(WatchLimit::Groups, &self.root);
            return Ok(None);
        }
        self.act_as_server();
        let access_times_set = ACCESS_TIMES_SET.load(Ordering::SeqCst);
        let stream = self.open_directory(&directory)?;
        match mark_all(&stream) {
            Ok(Some((group, entries))) => {
                let (volume, group) = (Arc::clone(self), Some((group, self.descriptors.count())));
                Ok(Some(Arc::new(Marks { volume, group, entries, access_times_set })))
            }
            Err(Errno::NOSPC) => {
                self.limit_log.report(WatchLimit::EntryMarks, &self.root);
                Ok(None)
            }
            Err(Errno::MFILE) => {
                self.limit_log.report(WatchLimit::Groups, &self.root);
                Ok(None)
            }
            // A mark needs permission to read the object.
            Ok(None)
            | Err(
                Errno::ACCESS
                | Errno::PERM
                | Errno::NOSYS
                | Errno::INVAL
                | Errno::NODEV
                | Errno::XDEV
                | Errno::OPNOTSUPP
                // It was removed while others were marked.
                | Errno::NOENT
                | Errno::STALE,
            ) => Ok(None),
            Err(errno) => Err(translate(errno)),
        }
    }
}

/// Marks a directory and then its entries. Returns the number of entries, or `None` if there are too many.
fn mark_all(directory: &OwnedFd) -> rustix::io::Result<Option<(OwnedFd, usize)>> {
    let group = sys::fanotify_init()?;
    let events = events_of(FileKind::Directory, Interest::Changes);
    sys::fanotify_mark(group.as_fd(), Mark::Add, events, directory.as_fd(), None)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut count = 0;
    loop {
        let filled = sys::getdents64(directory.as_fd(), &mut buffer)?;
        if filled == 0 {
            return Ok(Some((group, count)));
        }
        for entry in entries(&buffer[..filled]).filter(|entry| !matches!(entry.name.to_bytes(), b"." | b".."))
        {
            count += 1;
            if count > MAX_ENTRIES {
                return Ok(None);
            }
            let events = events_of(kind_of(directory, &entry)?, Interest::Changes);
            sys::fanotify_mark(
                group.as_fd(),
                Mark::AddUnfollowed,
                events,
                directory.as_fd(),
                Some(entry.name),
            )?;
        }
    }
}

/// Returns the kind of an entry, directory or not, which determines its events.
fn kind_of(directory: &OwnedFd, entry: &RawEntry<'_>) -> rustix::io::Result<FileKind> {
    let is_directory = match entry.kind {
        libc::DT_UNKNOWN => {
            let status = rustix::fs::statat(directory, entry.name, AtFlags::SYMLINK_NOFOLLOW)?;
            rustix::fs::FileType::from_raw_mode(status.st_mode).is_dir()
        }
        kind => kind == libc::DT_DIR,
    };
    Ok(if is_directory { FileKind::Directory } else { FileKind::Regular })
}

/// Returns whether only this kernel changes a file system of this `f_type`, and reports all changes.
pub(crate) fn is_watched(f_type: u64) -> bool {
    WATCHED.contains(&f_type)
}
