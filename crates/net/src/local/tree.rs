//! A directory of this machine as a [`Tree`]; no file outside of it is read or written.
//!
//! Every path is resolved by openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS; on a kernel without it, component by
//! component with O_NOFOLLOW. The last name is used with its directory's descriptor. So no symbolic link, whether it was there
//! before or is exchanged meanwhile, leads out of the tree.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use client::attributes::{Attributes, FileKind, FsId, Timestamp};
use client::tree::{NewAttributes, TreePath};
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, SeekFrom, Stat, Timestamps, Uid};
use rustix::io::Errno;

/// Flags with which every descriptor is opened.
const COMMON: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);
/// Bytes of a block in `st_blocks`.
const BLOCK: u64 = 512;

/// A directory of this machine and everything below it.
#[derive(Debug)]
pub struct LocalTree {
    root: OwnedFd,
    shown: PathBuf,
    /// Whether the kernel has openat2.
    has_openat2: AtomicBool,
}

/// Why an operation on a local tree failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeError {
    /// The operation, for instance "create".
    pub operation: &'static str,
    /// The path, with that of the root in front.
    pub path: PathBuf,
    /// The system's error.
    pub errno: Errno,
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, path, errno } = self;
        let why = std::io::Error::from(*errno).to_string();
        let why = why.split(" (os error ").next().unwrap_or_default();
        write!(f, "cannot {operation} {}: {why}", path.display())
    }
}

impl std::error::Error for TreeError {}

impl LocalTree {
    /// Opens a directory as the root of a tree. Symbolic links in this path are followed: it is the user's own.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(path: &Path) -> Result<Self, TreeError> {
        let flags = OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::RDONLY;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| TreeError {
            operation: "open directory",
            path: path.to_owned(),
            errno,
        })?;
        Ok(Self { root, shown: path.to_owned(), has_openat2: AtomicBool::new(true) })
    }

    /// Returns the attributes of an object, of a symbolic link itself.
    ///
    /// # Errors
    /// As statx(2).
    pub fn attributes(&self, path: &TreePath) -> Result<Attributes, TreeError> {
        self.at(path, "read attributes of", |parent, name| {
            Ok(attributes(&rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?))
        })
    }

    /// Lists a directory in the order of the system, without `.` and `..`. An entry that vanishes meanwhile is left out.
    ///
    /// # Errors
    /// As open(2) and getdents(2).
    pub fn list(&self, path: &TreePath) -> Result<Vec<(Vec<u8>, Attributes)>, TreeError> {
        self.run(path, "list", || {
            let directory = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
            let mut entries = Vec::new();
            for entry in Dir::read_from(&directory)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => entries.push((name.to_bytes().to_vec(), attributes(&stat))),
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
            Ok(entries)
        })
    }

    /// Returns where a symbolic link leads.
    ///
    /// # Errors
    /// As readlink(2).
    pub fn read_link(&self, path: &TreePath) -> Result<Vec<u8>, TreeError> {
        self.at(path, "read the link", |parent, name| {
            Ok(rustix::fs::readlinkat(parent, name, Vec::new())?.into_bytes())
        })
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// As open(2); EINVAL if it is another kind of object, which reading might wait for.
    pub fn open_file(&self, path: &TreePath) -> Result<OwnedFd, TreeError> {
        self.run(path, "open", || {
            let file = self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
            if kind == FileType::RegularFile { Ok(file) } else { Err(Errno::INVAL) }
        })
    }

    /// Opens a regular file for writing, creates it with this mode if it is missing, and empties it. A symbolic link in its place
    /// is removed, not followed.
    ///
    /// # Errors
    /// As open(2).
    pub fn create_file(&self, path: &TreePath, mode: u32) -> Result<OwnedFd, TreeError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | COMMON;
        let mode = Mode::from_raw_mode(mode);
        self.at(path, "create", |parent, name| {
            let open = || rustix::fs::openat(parent, name, flags, mode);
            let file = match open() {
                Err(Errno::LOOP) => {
                    rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
                    open()?
                }
                opened => opened?,
            };
            let found = rustix::fs::fstat(&file)?;
            if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
                return Err(Errno::EXIST);
            }
            // ext4 writes a file out at its close once it was truncated, also a new one.
            if found.st_size > 0 {
                rustix::fs::ftruncate(&file, 0)?;
            }
            Ok(file)
        })
    }

    /// Creates a directory; one that exists is left as it is, and returned as `false`.
    ///
    /// # Errors
    /// As mkdir(2); EEXIST if something else has the name.
    pub fn make_directory(&self, path: &TreePath, mode: u32) -> Result<bool, TreeError> {
        self.at(path, "create directory", |parent, name| {
            match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => {
                    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                    if is_directory { Ok(false) } else { Err(Errno::EXIST) }
                }
                Err(errno) => Err(errno),
            }
        })
    }

    /// Creates a symbolic link. Its target is not checked.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn make_link(&self, path: &TreePath, target: &[u8]) -> Result<(), TreeError> {
        self.at(path, "create symbolic link", |parent, name| rustix::fs::symlinkat(target, parent, name))
    }

    /// Gives a file another name in the same tree.
    ///
    /// # Errors
    /// As link(2).
    pub fn make_hard_link(&self, existing: &TreePath, path: &TreePath) -> Result<(), TreeError> {
        self.at(path, "create hard link", |parent, name| {
            let (directory, old) = self.parent(existing)?;
            rustix::fs::linkat(directory.as_fd(), old, parent, name, AtFlags::empty())
        })
    }

    /// Creates a named pipe, socket or device.
    ///
    /// # Errors
    /// As mknod(2); EINVAL for other kinds.
    pub fn make_special(
        &self,
        path: &TreePath,
        kind: FileKind,
        mode: u32,
        device: (u32, u32),
    ) -> Result<(), TreeError> {
        self.at(path, "create special file", |parent, name| {
            let kind = match kind {
                FileKind::Fifo => FileType::Fifo,
                FileKind::Socket => FileType::Socket,
                FileKind::BlockDevice => FileType::BlockDevice,
                FileKind::CharacterDevice => FileType::CharacterDevice,
                FileKind::Regular | FileKind::Directory | FileKind::Symlink => return Err(Errno::INVAL),
            };
            let device = rustix::fs::makedev(device.0, device.1);
            rustix::fs::mknodat(parent, name, kind, Mode::from_raw_mode(mode), device)
        })
    }

    /// Removes a name; of a directory only if it is empty.
    ///
    /// # Errors
    /// As unlink(2) and rmdir(2).
    pub fn remove(&self, path: &TreePath, is_directory: bool) -> Result<(), TreeError> {
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        self.at(path, "remove", |parent, name| rustix::fs::unlinkat(parent, name, flags))
    }

    /// Sets attributes: owners before the mode, whose set-ID bits a change of owners clears, and times last.
    ///
    /// # Errors
    /// As chown(2), chmod(2) and utimensat(2).
    pub fn set_attributes(&self, path: &TreePath, new: &NewAttributes) -> Result<(), TreeError> {
        self.at(path, "set attributes of", |parent, name| {
            if new.uid.is_some() || new.gid.is_some() {
                let (uid, gid) = (new.uid.map(Uid::from_raw), new.gid.map(Gid::from_raw));
                rustix::fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            if let Some(mode) = new.mode {
                set_mode(parent, name, mode)?;
            }
            if new.atime.is_some() || new.mtime.is_some() {
                let times =
                    Timestamps { last_access: timespec(new.atime), last_modification: timespec(new.mtime) };
                rustix::fs::utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Ok(())
        })
    }

    /// Opens an object below the root.
    fn resolve(&self, path: &TreePath, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let flags = flags | COMMON;
        if path.is_root() {
            return rustix::fs::openat(&self.root, c".", flags, mode);
        }
        if self.has_openat2.load(Relaxed) {
            let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            match rustix::fs::openat2(&self.root, path.as_bytes(), flags, mode, beneath) {
                // Old kernels, and sandboxes that do not know the call.
                Err(Errno::NOSYS | Errno::PERM) => self.has_openat2.store(false, Relaxed),
                opened => return opened,
            }
        }
        self.resolve_by_name(path, flags, mode)
    }

    /// Opens an object by its names, one after the other.
    fn resolve_by_name(&self, path: &TreePath, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let mut names = path.names().peekable();
        let mut directory: Option<OwnedFd> = None;
        while let Some(name) = names.next() {
            let at = directory.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            if names.peek().is_none() {
                return rustix::fs::openat(at, name, flags, mode);
            }
            let through = OFlags::PATH | OFlags::DIRECTORY | COMMON;
            directory = Some(rustix::fs::openat(at, name, through, Mode::empty())?);
        }
        Err(Errno::INVAL)
    }

    /// Returns the directory of a path, and the name in it.
    fn parent<'p>(&self, path: &'p TreePath) -> Result<(OwnedFd, &'p [u8]), Errno> {
        let Some((parent, _)) = path.split_last() else {
            return Ok((self.resolve(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?, b"."));
        };
        let directory = self.resolve(&parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        Ok((directory, path.names().last().unwrap_or(b".")))
    }

    /// Runs an operation with the descriptor of a path's directory and the name in it.
    fn at<T>(
        &self,
        path: &TreePath,
        operation: &'static str,
        run: impl Fn(BorrowedFd<'_>, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, TreeError> {
        self.run(path, operation, || {
            let (parent, name) = self.parent(path)?;
            run(parent.as_fd(), name)
        })
    }

    fn run<T>(
        &self,
        path: &TreePath,
        operation: &'static str,
        run: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, TreeError> {
        run().map_err(|errno| self.error(operation, path, errno))
    }

    /// Returns an error about a path.
    pub(super) fn error(&self, operation: &'static str, path: &TreePath, errno: Errno) -> TreeError {
        TreeError { operation, path: self.shown(path), errno }
    }

    /// Returns a path as messages show it.
    #[must_use]
    pub fn shown(&self, path: &TreePath) -> PathBuf {
        if path.is_root() { self.shown.clone() } else { self.shown.join(OsStr::from_bytes(path.as_bytes())) }
    }
}

/// Sets attributes of an open file.
pub(super) fn set_file_attributes(file: impl AsFd, new: &NewAttributes) -> Result<(), Errno> {
    if new.uid.is_some() || new.gid.is_some() {
        rustix::fs::fchown(&file, new.uid.map(Uid::from_raw), new.gid.map(Gid::from_raw))?;
    }
    if let Some(mode) = new.mode {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    }
    if new.atime.is_some() || new.mtime.is_some() {
        let (last_access, last_modification) = (timespec(new.atime), timespec(new.mtime));
        rustix::fs::futimens(&file, &Timestamps { last_access, last_modification })?;
    }
    Ok(())
}

/// Sets the mode of an object, of which a symbolic link has none.
fn set_mode(parent: BorrowedFd<'_>, name: &[u8], mode: u32) -> Result<(), Errno> {
    // fchmodat follows links. A descriptor names the object itself, and chmod(2) takes one by its path in /proc.
    let object = rustix::fs::openat(parent, name, OFlags::PATH | COMMON, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&object)?.st_mode) == FileType::Symlink {
        return Ok(());
    }
    rustix::fs::chmod(format!("/proc/self/fd/{}", object.as_raw_fd()), Mode::from_raw_mode(mode))
}

/// Returns the next range of data at or after `offset`, from one byte to the one after it; `None` if only a hole follows.
///
/// # Errors
/// As lseek(2). A file system without holes has one range.
pub(super) fn next_data(file: impl AsFd, offset: u64) -> Result<Option<(u64, u64)>, Errno> {
    let begins = match rustix::fs::seek(&file, SeekFrom::Data(offset)) {
        Ok(begins) => begins,
        Err(Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    Ok(Some((begins, rustix::fs::seek(&file, SeekFrom::Hole(begins))?)))
}

fn timespec(time: Option<Timestamp>) -> rustix::fs::Timespec {
    match time {
        Some(time) => rustix::fs::Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() },
        None => rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
    }
}

fn attributes(stat: &Stat) -> Attributes {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::Socket => FileKind::Socket,
        FileType::Fifo => FileKind::Fifo,
        _ => FileKind::Regular,
    };
    let time = |seconds: i64, nanoseconds: u64| Timestamp {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or_default(),
    };
    #[allow(clippy::useless_conversion, reason = "the fields' types differ between architectures")]
    Attributes {
        kind,
        mode: stat.st_mode & 0o7777,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        used: u64::try_from(stat.st_blocks).unwrap_or_default() * BLOCK,
        device: (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)),
        fsid: FsId { major: stat.st_dev, minor: 0 },
        fileid: stat.st_ino,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        change: None,
    }
}

#[cfg(test)]
mod tests;
