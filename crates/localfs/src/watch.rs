//! Changes that other processes make, as fanotify(7) tells of them.
//!
//! Criteria first. Whoever watches must not be told of what this server does itself, which is nearly everything that happens: an event
//! names the process that caused it, to a group of any user (Linux 5.13) at least where that is this one. That is why it is not
//! inotify, which does not say who. Marks are on objects, not on a mount, so that nobody else's files cost anything; an event names its object by
//! the kernel's handle, which is looked up here: no path is resolved. A lease (`F_SETLEASE`), the rejected alternative, would make
//! the local process wait, but needs the object open for as long as it lasts, and to be its owner.
//!
//! An event comes behind what it tells of. What was missed, because the queue was full or a record makes no sense, counts as done to all that
//! is watched. What is told may also be too much: the process is not always known, and bits of two interests in one object add up.
//!
//! One thread for each volume, asleep unless there is an event. Having read what there was it rests for [`PAUSE`]: what one process
//! does to one object meanwhile becomes a single event, so that a client's WRITEs to a file that is watched wake nobody one by one. The first
//! event behind a rest is told at once.
//!
//! Not seen: writes through a mapping, until it goes or is closed (`FAN_CLOSE_WRITE`); on a network's file system, what
//! other machines do.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use vfs::{Alarm, FileKind, Handle, Interest};

use crate::fanotify::Events;
use crate::handle;
use crate::object::{Object, OpenFile, Reach};
use crate::sys::{self, Mark};

/// How long events gather before they are read again.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// The same after a read that failed.
const FAULT_PAUSE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Room for some hundred events.
const BUFFER_BYTES: usize = 16 << 10;
/// Reads that follow each other without a pause.
const READS_MAX: usize = 64;
/// Locks under which objects are watched.
const PARTS: usize = 16;

/// What changes a file, or its names, of which it loses or gains one by an event of its attributes. Whoever wrote through a mapping shows
/// by the close.
const FILE_CHANGES: u64 =
    libc::FAN_MODIFY | libc::FAN_ATTRIB | libc::FAN_CLOSE_WRITE | libc::FAN_DELETE_SELF | libc::FAN_MOVE_SELF;
/// What changes a directory's entries, subdirectories among them, or itself.
const DIRECTORY_CHANGES: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_ATTRIB
    | libc::FAN_DELETE_SELF
    | libc::FAN_MOVE_SELF
    | libc::FAN_ONDIR;

/// The events that tell what somebody wants to record of.
pub(crate) fn events_of(kind: FileKind, interest: Interest) -> u64 {
    match (kind, interest) {
        (FileKind::Directory, _) => DIRECTORY_CHANGES,
        (_, Interest::Changes) => FILE_CHANGES,
        // Not FAN_ACCESS: what a reader that has it open already has read it has read; and each READ of the server's own would be an event.
        (_, Interest::Uses) => FILE_CHANGES | libc::FAN_OPEN,
    }
}

/// [`Watches`] of a volume from when somebody first asks: where nobody does, no thread waits, and the group is left to others of the user's.
#[derive(Debug)]
pub(crate) struct LazyWatches {
    max_kept: usize,
    opened: OnceLock<Result<Watches, String>>,
}

impl LazyWatches {
    /// Up to `max_kept` objects are kept open, where they have to be.
    pub(crate) fn new(max_kept: usize) -> Self {
        Self { max_kept, opened: OnceLock::new() }
    }

    /// For the file system of `root`, the same each time.
    ///
    /// # Errors
    /// Why nothing can be watched there.
    pub(crate) fn get(&self, root: BorrowedFd<'_>) -> Result<&Watches, &str> {
        let opened = self.opened.get_or_init(|| Watches::open(root, self.max_kept));
        opened.as_ref().map_err(String::as_str)
    }
}

/// The objects of a volume that are watched. The thread that reads ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watches(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    group: OwnedFd,
    /// Readable when the thread shall end.
    end: OwnedFd,
    /// This one.
    process: u32,
    /// Each for a part of all objects, which are named as events name them.
    parts: [Mutex<HashMap<Handle, Watched>>; PARTS],
    numbers: AtomicU64,
    /// Objects that are kept open, and how many may be.
    kept: AtomicUsize,
    max_kept: usize,
}

#[derive(Debug, Default)]
struct Watched {
    /// The mark's events.
    events: u64,
    watchers: Vec<Watcher>,
    /// Where it could not be found again when the mark is to go.
    kept: Option<Arc<Object>>,
}

#[derive(Debug)]
struct Watcher {
    number: u64,
    events: u64,
    alarm: Arc<dyn Alarm>,
}

impl Watches {
    fn open(root: BorrowedFd<'_>, max_kept: usize) -> Result<Self, String> {
        let group = sys::fanotify_init().map_err(no_group)?;
        // What the file system lacks shows by its top.
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

    /// Has `alarm` rung at these events of the object that they name `name`. `file` leads to it; `kept` is it, where it has to be kept
    /// open, and as long as no more than `max_kept` are. Returns the number by which it is [removed](Self::remove).
    ///
    /// # Errors
    /// `ENOSPC` where the user has no more marks, `EMFILE` where no more objects may be kept.
    pub(crate) fn add(
        &self,
        name: &Handle,
        events: u64,
        alarm: &Arc<dyn Alarm>,
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
        watched.watchers.push(Watcher { number, events, alarm: Arc::clone(alarm) });
        Ok(number)
    }

    /// Takes a watcher back; `open` finds the object, where it was not kept. Returns what is not kept open any more.
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
            // What is not there any more has gone with the object.
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
        // An eventfd takes this number, however often it was written to.
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
            // Interrupted or not, what there is shows below.
            let _ = rustix::event::poll(&mut awaited, None);
            if !awaited[0].revents().is_empty() {
                return;
            }
            let pause = match self.read(&mut buffer) {
                Ok(()) => PAUSE,
                Err(errno) => {
                    tracing::error!("what local processes change cannot be read: {errno}");
                    self.ring_all();
                    FAULT_PAUSE
                }
            };
            let _ = rustix::event::poll(&mut [PollFd::new(&self.end, PollFlags::IN)], Some(&pause));
        }
    }

    /// Reads what there is.
    fn read(&self, buffer: &mut [u8]) -> rustix::io::Result<()> {
        for _ in 0..READS_MAX {
            match rustix::io::read(&self.group, &mut *buffer) {
                Ok(length) => self.tell(&buffer[..length]),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Tells of the events that were read, as far as others caused them.
    fn tell(&self, read: &[u8]) {
        for event in Events(read) {
            match event.object {
                _ if event.is_overflow() => self.ring_all(),
                _ if event.process == self.process => {}
                None => self.ring_all(),
                Some((kind, bytes)) => {
                    // What has another form was never watched.
                    if let Some(name) = handle::from_parts(kind, bytes) {
                        self.ring(&name, event.mask & !libc::FAN_ONDIR);
                    }
                }
            }
        }
    }

    fn ring(&self, name: &Handle, events: u64) {
        let part = self.part(name).lock();
        let watchers = part.get(name).map_or(&[][..], |watched| &watched.watchers);
        let told = watchers.iter().filter(|watcher| watcher.events & events != 0);
        let told: Vec<_> = told.map(|watcher| Arc::clone(&watcher.alarm)).collect();
        drop(part);
        told.iter().for_each(|alarm| alarm.ring());
    }

    /// Something was missed: it may have been anything.
    fn ring_all(&self) {
        for part in &self.parts {
            let part = part.lock();
            let all = part.values().flat_map(|watched| &watched.watchers);
            let all: Vec<_> = all.map(|watcher| Arc::clone(&watcher.alarm)).collect();
            drop(part);
            all.iter().for_each(|alarm| alarm.ring());
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

/// Why there is no group, for people.
fn no_group(errno: Errno) -> String {
    let why = match errno {
        Errno::NOSYS => "this kernel, or a sandbox, has no fanotify(7)",
        Errno::PERM => "fanotify(7) is root's before Linux 5.13, or forbidden by a sandbox",
        Errno::INVAL => "before Linux 5.1 fanotify(7) does not name what was changed by a handle",
        Errno::MFILE => "there are as many users of fanotify(7) as may be (user.max_fanotify_groups)",
        _ => return format!("fanotify_init: {errno}"),
    };
    why.into()
}

/// Why nothing of a file system can be watched, for people.
fn no_mark(errno: Errno) -> String {
    let why = match errno {
        Errno::NODEV | Errno::OPNOTSUPP => "its file system gives fanotify(7) no names for files",
        Errno::XDEV => "it is a subvolume, which this kernel cannot watch",
        Errno::NOSPC => "as many files are watched as may be (user.max_fanotify_marks)",
        _ => return format!("fanotify_mark: {errno}"),
    };
    why.into()
}

#[cfg(test)]
mod tests;
