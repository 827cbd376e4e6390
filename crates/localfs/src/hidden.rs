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
use vfs::FileKind;

use crate::attributes::{changed, device_of, kind_of, status};
use crate::change::{nanoseconds, present_ns};
use crate::object::Object;
use crate::streams;
use crate::sys;

/// Directories that are climbed from the state directory to the top of all.
const MAX_PARENTS: usize = 4096;
/// After a change that is no longer ago than this, another may show the same time.
const TICK_NS: u64 = 100_000_000;

/// Device and inode number.
type Key = (u64, u64);

/// A directory that clients never see, and a socket.
#[derive(Debug)]
pub(crate) struct Hidden {
    directory: OwnedFd,
    pub(crate) key: Key,
    /// The directories above it.
    pub(crate) above: HashSet<Key>,
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
        if root_key == key || ancestors(root)?.contains(&key) {
            return Err(io::Error::other("it is the state directory of this server, or lies inside of it"));
        }
        // By device and inode: the export may be another mount of what the state directory lies in.
        let above = ancestors(directory.as_fd())?;
        let socket = socket.and_then(|socket| place_of(socket, root_key));
        let is_within = above.contains(&root_key) || socket.is_some();
        Ok(is_within.then(|| Self { directory, key, above, socket, inside: Mutex::default() }))
    }

    /// Whether `status` is of the directory, or of a file in it.
    pub(crate) fn hides(&self, status: &Statx) -> bool {
        let (device, inode) = (device_of(status), status.stx_ino);
        (device, inode) == self.key || device == self.key.0 && self.is_inside(inode)
    }

    /// The same of what was found by a name outside of the directory.
    pub(crate) fn hides_named(&self, status: &Statx) -> bool {
        let is_linked = status.stx_nlink > 1 && kind_of(status.stx_mode) != FileKind::Directory;
        (device_of(status), status.stx_ino) == self.key || is_linked && self.hides(status)
    }

    pub(crate) fn is_socket(&self, directory: &Object, name: &[u8]) -> bool {
        self.socket.as_ref().is_some_and(|(parent, socket)| *parent == directory.key && socket == name)
    }

    /// Whether a file of this inode number is in the directory; where that cannot be told, none is believed to be outside.
    fn is_inside(&self, inode: u64) -> bool {
        self.inodes().map_or(true, |inodes| inodes.contains(&inode))
    }

    /// Inode numbers of what is in the directory now.
    pub(crate) fn inodes(&self) -> rustix::io::Result<Arc<HashSet<u64>>> {
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

/// The key of a socket's directory, and its name there, where that is at or below the directory of the key `root`.
fn place_of(socket: &Path, root: Key) -> Option<(Key, Vec<u8>)> {
    let parent = socket.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let parent = rustix::fs::open(parent, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let key = key_of(parent.as_fd()).ok()?;
    let is_within = key == root || ancestors(parent.as_fd()).ok()?.contains(&root);
    is_within.then_some((key, socket.file_name()?.as_bytes().to_vec()))
}

fn key_of(fd: BorrowedFd<'_>) -> rustix::io::Result<Key> {
    let status = status(fd)?;
    Ok((device_of(&status), status.stx_ino))
}

/// The directories above one.
fn ancestors(directory: BorrowedFd<'_>) -> io::Result<HashSet<Key>> {
    let (mut above, mut here) = (HashSet::new(), directory.try_clone_to_owned()?);
    let mut last = key_of(here.as_fd())?;
    for _ in 0..MAX_PARENTS {
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
