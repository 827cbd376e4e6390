//! What no client reaches of an export: the server's state directory, where it lies inside, and the control socket.
//!
//! Whoever reads the state directory has the key of all file handles. So it has no name for clients and no handle, and neither has any file
//! in it, whatever handle was given of it before and whatever other name (a hard link) leads to it. Its place is kept too: directories above
//! it are not moved, or a client could put a state directory of its own there for the next start.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, SeekFrom, Statx};
use vfs::{Error, FileKind, Result};

use crate::attributes::{changed, device_of, kind_of, status, status_of_name};
use crate::change::{nanoseconds, present_ns};
use crate::name::Name;
use crate::object::Object;
use crate::streams::{self, RawEntry};
use crate::sys;
use crate::volume::Volume;

/// Directories that are climbed from the state directory to the top of all.
const MAX_CLIMB: usize = 4096;
/// After a change that is no longer ago than this, another may show the same time.
const TICK_NS: u64 = 100_000_000;

/// Device and inode number.
type Key = (u64, u64);

/// A directory that clients never see, and a socket.
#[derive(Debug)]
pub(crate) struct Hidden {
    directory: OwnedFd,
    key: Key,
    /// The directories above it.
    above: HashSet<Key>,
    /// The socket's directory, and its name there.
    socket: Option<(Key, Vec<u8>)>,
    inside: Mutex<Inside>,
}

/// What is in the directory, which has no directories inside.
#[derive(Debug, Default)]
struct Inside {
    inodes: Arc<HashSet<u64>>,
    /// When the directory had last changed by then, in nanoseconds.
    as_of_ns: Option<u64>,
}

impl Hidden {
    /// Hides `directory` and `socket` from clients of the export at `root`; `None` where neither lies inside. The thread must be the
    /// server's.
    ///
    /// # Errors
    /// The directory cannot be opened; or the top of the export is that directory or lies inside of it.
    pub(crate) fn open(
        directory: &Path,
        socket: Option<&Path>,
        root: BorrowedFd<'_>,
    ) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty())?;
        let (key, root_key) = (key_of(directory.as_fd())?, key_of(root)?);
        if root_key == key || climb(root)?.contains(&key) {
            return Err(io::Error::other("it is the state directory of this server, or lies inside of it"));
        }
        // By device and inode: the export may be another mount of what the state directory lies in.
        let above = climb(directory.as_fd())?;
        let socket = socket.and_then(|socket| place_of(socket, root_key));
        let is_within = above.contains(&root_key) || socket.is_some();
        Ok(is_within.then(|| Self { directory, key, above, socket, inside: Mutex::default() }))
    }

    /// Whether `status` is of the directory, or of a file in it.
    fn hides(&self, status: &Statx) -> bool {
        let (device, inode) = (device_of(status), status.stx_ino);
        (device, inode) == self.key || device == self.key.0 && self.is_inside(inode)
    }

    /// The same of what was found by a name outside of the directory.
    fn hides_named(&self, status: &Statx) -> bool {
        let is_linked = status.stx_nlink > 1 && kind_of(status.stx_mode) != FileKind::Directory;
        (device_of(status), status.stx_ino) == self.key || is_linked && self.hides(status)
    }

    fn is_socket(&self, directory: &Object, name: &[u8]) -> bool {
        self.socket.as_ref().is_some_and(|(parent, socket)| *parent == directory.key && socket == name)
    }

    /// Whether a file of this inode number is in the directory; where that cannot be told, none is believed to be outside.
    fn is_inside(&self, inode: u64) -> bool {
        self.inodes().map_or(true, |inodes| inodes.contains(&inode))
    }

    /// Inode numbers of what is in the directory now.
    fn inodes(&self) -> rustix::io::Result<Arc<HashSet<u64>>> {
        let mut inside = self.inside.lock();
        inside.update(&self.directory)?;
        Ok(Arc::clone(&inside.inodes))
    }
}

impl Inside {
    /// Lists the directory, unless nothing has changed there. By its own descriptor, which needs no rights.
    fn update(&mut self, directory: &OwnedFd) -> rustix::io::Result<()> {
        let changed_ns = nanoseconds(changed(&status(directory.as_fd())?));
        if self.as_of_ns == Some(changed_ns) {
            return Ok(());
        }
        // Before the listing: what comes meanwhile is found the next time.
        let as_of_ns = (changed_ns + TICK_NS < present_ns()).then_some(changed_ns);
        rustix::fs::seek(directory, SeekFrom::Start(0))?;
        let (mut inodes, mut buffer) = (HashSet::new(), vec![0; streams::BUFFER_BYTES]);
        loop {
            let filled = sys::getdents64(directory.as_fd(), &mut buffer)?;
            if filled == 0 {
                (self.inodes, self.as_of_ns) = (Arc::new(inodes), as_of_ns);
                return Ok(());
            }
            let entries = streams::entries(&buffer[..filled]);
            let others = entries.filter(|entry| !matches!(entry.name.to_bytes(), b"." | b".."));
            inodes.extend(others.map(|entry| entry.inode));
        }
    }
}

impl Volume {
    /// Fails for what clients do not see, of which this was found by its name.
    pub(crate) fn require_shown(&self, status: &Statx) -> Result<()> {
        match &self.hidden {
            Some(hidden) if hidden.hides_named(status) => Err(Error::NotFound),
            _ => Ok(()),
        }
    }

    /// The same, of what was found by a handle.
    pub(crate) fn require_shown_by_handle(&self, status: &Statx) -> Result<()> {
        match &self.hidden {
            Some(hidden) if hidden.hides(status) => Err(Error::Stale),
            _ => Ok(()),
        }
    }

    /// Fails for a name that is not looked up.
    pub(crate) fn require_shown_name(&self, directory: &Object, name: &[u8]) -> Result<()> {
        match &self.hidden {
            Some(hidden) if hidden.is_socket(directory, name) => Err(Error::NotFound),
            _ => Ok(()),
        }
    }

    /// Inode numbers of what may have to be left out of a listing that is made now; none where nothing is hidden.
    pub(crate) fn unlisted(&self) -> Option<Arc<HashSet<u64>>> {
        // Where the directory cannot be listed, it is left out itself all the same.
        self.hidden.as_ref().map(|hidden| hidden.inodes().unwrap_or_default())
    }

    /// Whether an entry of a directory is left out, by what [`Self::unlisted`] said.
    pub(crate) fn hides_entry(
        &self,
        unlisted: Option<&HashSet<u64>>,
        directory: &Object,
        entry: &RawEntry<'_>,
    ) -> bool {
        let Some((hidden, unlisted)) = self.hidden.as_ref().zip(unlisted) else { return false };
        if hidden.is_socket(directory, entry.name.to_bytes()) {
            return true;
        }
        if entry.inode != hidden.key.1 && !unlisted.contains(&entry.inode) {
            return false;
        }
        // Inode numbers of other file systems inside the export may be the same. What cannot be looked at is not told of.
        let looked = directory.with_fd(|fd| status_of_name(fd, entry.name));
        looked.map_or(true, |status| hidden.hides_named(&status))
    }

    /// Fails where a name may not be moved to another: what is hidden has neither, and what it lies in stays.
    pub(crate) fn require_movable(
        &self,
        (from, old): (&Object, &Name),
        (to, new): (&Object, &Name),
    ) -> Result<()> {
        let Some(hidden) = &self.hidden else { return Ok(()) };
        let look =
            |directory: &Object, name: &Name| directory.with_fd(|fd| status_of_name(fd, name.as_c_str()));
        let hides = |directory: &Object, name: &Name, found: &rustix::io::Result<Statx>| {
            hidden.is_socket(directory, name.as_bytes())
                || found.as_ref().is_ok_and(|status| hidden.hides_named(status))
        };
        let (moved, replaced) = (look(from, old), look(to, new));
        if hides(from, old, &moved) {
            return Err(Error::NotFound);
        }
        if hides(to, new, &replaced) {
            return Err(Error::Exists);
        }
        let is_above = |status: &Statx| hidden.above.contains(&(device_of(status), status.stx_ino));
        if moved.is_ok_and(|status| is_above(&status)) { Err(Error::Access) } else { Ok(()) }
    }
}

/// The key of a socket's directory, and its name there, where that is at or below the directory of the key `root`.
fn place_of(socket: &Path, root: Key) -> Option<(Key, Vec<u8>)> {
    let parent = socket.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let parent = rustix::fs::open(parent, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let key = key_of(parent.as_fd()).ok()?;
    let is_within = key == root || climb(parent.as_fd()).ok()?.contains(&root);
    is_within.then_some((key, socket.file_name()?.as_bytes().to_vec()))
}

fn key_of(fd: BorrowedFd<'_>) -> rustix::io::Result<Key> {
    let status = status(fd)?;
    Ok((device_of(&status), status.stx_ino))
}

/// The directories above one.
fn climb(directory: BorrowedFd<'_>) -> io::Result<HashSet<Key>> {
    let (mut above, mut here) = (HashSet::new(), directory.try_clone_to_owned()?);
    let mut last = key_of(here.as_fd())?;
    for _ in 0..MAX_CLIMB {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        here = rustix::fs::openat(&here, c"..", flags, Mode::empty())?;
        let key = key_of(here.as_fd())?;
        // Above the top of all there is only itself.
        if key == last {
            break;
        }
        above.insert(key);
        last = key;
    }
    Ok(above)
}
