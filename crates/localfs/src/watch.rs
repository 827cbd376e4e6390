//! Reports changes by other processes, from fanotify(7).
//!
//! Requirements: a watcher must not be notified of this server's own changes, which are nearly all changes. fanotify
//! names the process that caused an event, at least if it is this one, to a group of any user (Linux 5.13). inotify
//! does not. Marks are on objects, not on a mount, so that other users' files cost nothing. An event names its object
//! by the kernel's handle, so that no path has to be resolved. Rejected: a lease (`F_SETLEASE`) would make the local
//! process wait, but needs the object open as long as it lasts, and the same owner.
//!
//! An event comes after the change. Lost events, because the queue was full or a record is malformed, count as
//! changes of every watched object. There may also be too many notifications: the process is not always known, and
//! two interests in one object share one mark.
//!
//! Each volume has one thread, which sleeps until there is an event. After it has read all events it pauses for
//! [`PAUSE`]. Events of one process on one object meanwhile merge into one, so that the server's own WRITEs to a
//! watched file do not wake the thread one by one. The first event after a pause is reported at once.
//!
//! Not seen: writes through a mapping until it is unmapped or closed (`FAN_CLOSE_WRITE`); on a network file system,
//! changes by other machines.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use vfs::{ChangeListener, FileKind, Handle, Interest};

use crate::fanotify::Events;
use crate::handle;
use crate::object::{Object, OpenFile, Reach};
use crate::sys::{self, Mark};

/// The time that events gather before they are read again.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// As [`PAUSE`], after a failed read.
const FAULT_PAUSE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Room for some hundred events.
const BUFFER_BYTES: usize = 16 << 10;
/// Reads that follow each other without a pause.
const READS_MAX: usize = 64;
/// Locks under which objects are watched.
const PARTS: usize = 16;

/// Events that change a file, or its names; a change of names is an event of its attributes. Writes through a mapping
/// show when it is closed.
const FILE_CHANGES: u64 =
    libc::FAN_MODIFY | libc::FAN_ATTRIB | libc::FAN_CLOSE_WRITE | libc::FAN_DELETE_SELF | libc::FAN_MOVE_SELF;
/// Events that change a directory's entries, including subdirectories, or itself.
const DIRECTORY_CHANGES: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_ATTRIB
    | libc::FAN_DELETE_SELF
    | libc::FAN_MOVE_SELF
    | libc::FAN_ONDIR;

/// Returns the events for an interest.
pub(crate) fn events_of(kind: FileKind, interest: Interest) -> u64 {
    match (kind, interest) {
        (FileKind::Directory, _) => DIRECTORY_CHANGES,
        (_, Interest::Changes) => FILE_CHANGES,
        // Without FAN_ACCESS: a process that has the file open already is past the check, and each READ of this
        // server would be an event.
        (_, Interest::Uses) => FILE_CHANGES | libc::FAN_OPEN,
    }
}

/// The [`Watches`] of a volume, opened at the first use: without use there is no thread and no group, which are
/// limited per user.
#[derive(Debug)]
pub(crate) struct LazyWatches {
    max_kept: usize,
    opened: OnceLock<Result<Watches, String>>,
}

impl LazyWatches {
    /// Allows up to `max_kept` objects to be kept open, if they have to be.
    pub(crate) fn new(max_kept: usize) -> Self {
        Self { max_kept, opened: OnceLock::new() }
    }

    /// Returns the watches for the file system of `root`, which is the same each time.
    ///
    /// # Errors
    /// Why nothing can be watched there.
    pub(crate) fn get(&self, root: BorrowedFd<'_>) -> Result<&Watches, &str> {
        let opened = self.opened.get_or_init(|| Watches::open(root, self.max_kept));
        opened.as_ref().map_err(String::as_str)
    }
}

/// The watched objects of a volume. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Watches(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    group: OwnedFd,
    /// Readable when the thread has to end.
    end: OwnedFd,
    /// This process.
    process: u32,
    /// Each for a part of all objects, by the handles in events.
    parts: [Mutex<HashMap<Handle, Watched>>; PARTS],
    numbers: AtomicU64,
    /// The number of objects that are kept open, and its limit.
    kept: AtomicUsize,
    max_kept: usize,
}

#[derive(Debug, Default)]
struct Watched {
    /// The mark's events.
    events: u64,
    watchers: Vec<Watcher>,
    /// The object, if no handle finds it again to remove the mark.
    kept: Option<Arc<Object>>,
}

#[derive(Debug)]
struct Watcher {
    number: u64,
    events: u64,
    listener: Arc<dyn ChangeListener>,
}

impl Watches {
    fn open(root: BorrowedFd<'_>, max_kept: usize) -> Result<Self, String> {
        let group = sys::fanotify_init().map_err(no_group)?;
        // Marks the exported directory to test the file system's support.
        let probe = libc::FAN_ATTRIB | libc::FAN_ONDIR;
        sys::fanotify_mark(group.as_fd(), Mark::Add, probe, root, None).map_err(no_mark)?;
        sys::fanotify_mark(group.as_fd(), Mark::Remove, probe, root, None).map_err(no_mark)?;
        let end = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| errno.to_string())?;
        let shared = Arc::new(Shared {
            group,
            end,
            process: std::process::id(),
            parts: Default::default(),
            numbers: AtomicU64::new(0),
            kept: AtomicUsize::new(0),
            max_kept,
        });
        let reader = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("localfs-watch".into()).stack_size(256 * 1024);
        thread.spawn(move || reader.run()).map_err(|error| error.to_string())?;
        Ok(Self(shared))
    }

    /// Notifies `listener` of these events of the object that events call `name`. `file` leads to it. `kept` is the
    /// object if it has to be kept open, which fails beyond `max_kept`. Returns the number for
    /// [`remove`](Self::remove).
    ///
    /// # Errors
    /// `ENOSPC` if the user has no more marks, `EMFILE` if no more objects may be kept open.
    pub(crate) fn add(
        &self,
        name: &Handle,
        events: u64,
        listener: &Arc<dyn ChangeListener>,
        file: &OpenFile,
        (kept, max_kept): (Option<Arc<Object>>, usize),
    ) -> rustix::io::Result<u64> {
        let mut part = self.0.part(name).lock();
        let present = part.get(name).map_or(0, |watched| watched.events);
        if !part.contains_key(name)
            && kept.is_some()
            && self.0.kept.load(Ordering::Relaxed) >= self.0.max_kept.min(max_kept)
        {
            return Err(Errno::MFILE);
        }
        if events & !present != 0 {
            mark(self.0.group.as_fd(), Mark::Add, events & !present, file)?;
        }
        let number = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        let watched = part.entry(*name).or_insert_with(|| {
            self.0.kept.fetch_add(usize::from(kept.is_some()), Ordering::Relaxed);
            Watched { kept, ..Watched::default() }
        });
        watched.events |= events;
        watched.watchers.push(Watcher { number, events, listener: Arc::clone(listener) });
        Ok(number)
    }

    /// Removes a watcher; `open` finds the object if it was not kept. Returns the object that is no longer kept open.
    pub(crate) fn remove(
        &self,
        name: &Handle,
        number: u64,
        open: impl FnOnce() -> Option<Arc<OpenFile>>,
    ) -> Option<Arc<Object>> {
        let mut part = self.0.part(name).lock();
        let watched = part.get_mut(name)?;
        watched.watchers.retain(|watcher| watcher.number != number);
        let wanted = watched.watchers.iter().fold(0, |all, watcher| all | watcher.events);
        let surplus = std::mem::replace(&mut watched.events, wanted) & !wanted;
        if surplus != 0
            && let Some(file) = watched.kept.as_ref().map(|object| object.file()).or_else(open)
        {
            // If the object is gone, so is the mark.
            let _ = mark(self.0.group.as_fd(), Mark::Remove, surplus, &file);
        }
        if wanted != 0 {
            return None;
        }
        let kept = part.remove(name)?.kept;
        self.0.kept.fetch_sub(usize::from(kept.is_some()), Ordering::Relaxed);
        kept
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        // An eventfd accepts this number, however often it was written.
        let _ = rustix::io::write(&self.0.end, &1_u64.to_ne_bytes());
    }
}

impl Shared {
    fn part(&self, name: &Handle) -> &Mutex<HashMap<Handle, Watched>> {
        let part = name.iter().fold(0, |part, byte| part ^ byte);
        &self.parts[usize::from(part) % PARTS]
    }

    fn run(&self) {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let mut awaited =
                [PollFd::new(&self.end, PollFlags::IN), PollFd::new(&self.group, PollFlags::IN)];
            // Interrupted or not, the results are checked below.
            let _ = rustix::event::poll(&mut awaited, None);
            if !awaited[0].revents().is_empty() {
                return;
            }
            let pause = match self.read(&mut buffer) {
                Ok(()) => PAUSE,
                Err(errno) => {
                    tracing::error!("cannot read fanotify events: {errno}");
                    self.notify_all();
                    FAULT_PAUSE
                }
            };
            let _ = rustix::event::poll(&mut [PollFd::new(&self.end, PollFlags::IN)], Some(&pause));
        }
    }

    /// Reads all events.
    fn read(&self, buffer: &mut [u8]) -> rustix::io::Result<()> {
        for _ in 0..READS_MAX {
            match rustix::io::read(&self.group, &mut *buffer) {
                Ok(length) => self.report(&buffer[..length]),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Reports the events that other processes caused.
    fn report(&self, read: &[u8]) {
        for event in Events(read) {
            match event.object {
                _ if event.is_overflow() => self.notify_all(),
                _ if event.process == self.process => {}
                None => self.notify_all(),
                Some((kind, bytes)) => {
                    // An object with a handle of another form was never watched.
                    if let Some(name) = handle::from_parts(kind, bytes) {
                        self.notify(&name, event.mask & !libc::FAN_ONDIR);
                    }
                }
            }
        }
    }

    fn notify(&self, name: &Handle, events: u64) {
        let part = self.part(name).lock();
        let watchers = part.get(name).map_or(&[][..], |watched| &watched.watchers);
        let notified = watchers.iter().filter(|watcher| watcher.events & events != 0);
        let notified: Vec<_> = notified.map(|watcher| Arc::clone(&watcher.listener)).collect();
        drop(part);
        notified.iter().for_each(|listener| listener.notify());
    }

    /// Notifies all watchers, because events were lost.
    fn notify_all(&self) {
        for part in &self.parts {
            let part = part.lock();
            let all = part.values().flat_map(|watched| &watched.watchers);
            let all: Vec<_> = all.map(|watcher| Arc::clone(&watcher.listener)).collect();
            drop(part);
            all.iter().for_each(|listener| listener.notify());
        }
    }
}

fn mark(group: BorrowedFd<'_>, mark: Mark, events: u64, file: &OpenFile) -> rustix::io::Result<()> {
    if file.reach != Reach::Path {
        return sys::fanotify_mark(group, mark, events, file.as_fd(), None);
    }
    let path = CString::new(file.name_in_proc()).map_err(|_| Errno::INVAL)?;
    sys::fanotify_mark(group, mark, events, rustix::fs::CWD, Some(&path))
}

/// Returns the reason why there is no group, for the log.
fn no_group(errno: Errno) -> String {
    let why = match errno {
        Errno::NOSYS => "fanotify(7) is not available in this kernel or sandbox",
        Errno::PERM => "fanotify(7) needs root before Linux 5.13, or a sandbox forbids it",
        Errno::INVAL => "fanotify(7) reports no file handles before Linux 5.1",
        Errno::MFILE => "the limit of fanotify groups is reached (user.max_fanotify_groups)",
        _ => return format!("fanotify_init: {errno}"),
    };
    why.into()
}

/// Returns the reason why nothing on a file system can be watched, for the log.
fn no_mark(errno: Errno) -> String {
    let why = match errno {
        Errno::NODEV | Errno::OPNOTSUPP => "the file system does not support fanotify(7) file handles",
        Errno::XDEV => "this kernel cannot watch subvolumes",
        Errno::NOSPC => "the limit of fanotify marks is reached (user.max_fanotify_marks)",
        _ => return format!("fanotify_mark: {errno}"),
    };
    why.into()
}

#[cfg(test)]
mod tests;
