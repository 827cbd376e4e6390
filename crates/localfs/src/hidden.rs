//! Files of an export that clients must not reach: the server's state directory, if it is inside, and the control
//! socket.
//!
//! The state directory contains the key of all file handles. So clients get neither a name nor a handle for it or for
//! any file in it, not even by an old handle or by another hard link. Directories above it cannot be renamed:
//! otherwise a client could put a state directory of its own there for the next start.

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

/// Maximum number of parents between the state directory and the root.
const MAX_PARENTS: usize = 4096;
/// If the directory changed less than this long ago, another change may have the same time.
const TICK_NS: u64 = 100_000_000;

/// Device and inode number.
type Key = (u64, u64);

/// A directory and a socket that clients never see.
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

/// The files in the directory, which contains no directories.
#[derive(Debug, Default)]
struct Inside {
    inodes: Arc<HashSet<u64>>,
    /// The change time of the directory for which `inodes` is valid, in nanoseconds.
    as_of_ns: Option<u64>,
}

impl Hidden {
    /// Hides `directory` and `socket` from clients of the export at `root`; `None` if both are outside. The thread
    /// must act as the server.
    ///
    /// # Errors
    /// The directory cannot be opened; or it is the exported directory, or contains it.
    pub(crate) fn open(
        directory: &Path,
        socket: Option<&Path>,
        root: BorrowedFd<'_>,
    ) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty())?;
        let (key, root_key) = (key_of(directory.as_fd())?, key_of(root)?);
        if root_key == key || ancestors(root)?.contains(&key) {
            return Err(io::Error::other("it is, or is inside, the state directory of this server"));
        }
        // By device and inode: the export may be another mount of the file system that contains the state directory.
        let above = ancestors(directory.as_fd())?;
        let socket = socket.and_then(|socket| place_of(socket, root_key));
        let is_within = above.contains(&root_key) || socket.is_some();
        Ok(is_within.then(|| Self { directory, key, above, socket, inside: Mutex::default() }))
    }

    /// Returns whether `status` is of the directory, or of a file in it.
    pub(crate) fn hides(&self, status: &Statx) -> bool {
        let (device, inode) = (device_of(status), status.stx_ino);
        (device, inode) == self.key || device == self.key.0 && self.is_inside(inode)
    }

    /// As [`Self::hides`], for a file that was found by a name outside of the directory.
    pub(crate) fn hides_named(&self, status: &Statx) -> bool {
        let is_linked = status.stx_nlink > 1 && kind_of(status.stx_mode) != FileKind::Directory;
        (device_of(status), status.stx_ino) == self.key || is_linked && self.hides(status)
    }

    pub(crate) fn is_socket(&self, directory: &Object, name: &[u8]) -> bool {
        self.socket.as_ref().is_some_and(|(parent, socket)| *parent == directory.key && socket == name)
    }

    /// Returns whether a file of this inode number is in the directory. If this cannot be determined, every file counts as
    /// inside.
    fn is_inside(&self, inode: u64) -> bool {
        self.inodes().map_or(true, |inodes| inodes.contains(&inode))
    }

    /// Returns the inode numbers of the files in the directory.
    pub(crate) fn inodes(&self) -> rustix::io::Result<Arc<HashSet<u64>>> {
        let mut inside = self.inside.lock();
        inside.update(&self.directory)?;
        Ok(Arc::clone(&inside.inodes))
    }
}

impl Inside {
    /// Lists the directory, unless it has not changed. Its own descriptor needs no permissions for that.
    fn update(&mut self, directory: &OwnedFd) -> rustix::io::Result<()> {
        let changed_ns = nanoseconds(changed(&status(directory.as_fd())?));
        if self.as_of_ns == Some(changed_ns) {
            return Ok(());
        }
        // Read before the listing: later changes are found the next time.
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

/// Returns the key of a socket's directory and its name there, if that is at or below the directory of the key
/// `root`.
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

/// Returns the directories above one.
fn ancestors(directory: BorrowedFd<'_>) -> io::Result<HashSet<Key>> {
    let (mut above, mut here) = (HashSet::new(), directory.try_clone_to_owned()?);
    let mut last = key_of(here.as_fd())?;
    for _ in 0..MAX_PARENTS {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        here = rustix::fs::openat(&here, c"..", flags, Mode::empty())?;
        let key = key_of(here.as_fd())?;
        // The parent of the root is the root.
        if key == last {
            break;
        }
        above.insert(key);
        last = key;
    }
    Ok(above)
}
