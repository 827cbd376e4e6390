//! A mounted directory: system calls, which block their thread.
//!
//! Paths are relative to a descriptor of the directory, so that the way to it is not measured again and again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW};
use rustix::io::{Errno, retry_on_intr};

use super::{Buffer, Fault, Files, How, OpenFile, Status};
use crate::result::{ClientCounters, RequestCounters};

/// The files below a directory.
#[derive(Clone, Debug)]
pub struct DirectoryFiles {
    root: PathBuf,
    directory: Arc<OwnedFd>,
}

/// A file of it.
#[derive(Debug)]
pub struct DirectoryFile {
    file: File,
    path: PathBuf,
    size: u64,
}

impl DirectoryFiles {
    /// Opens a directory.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(root: &Path) -> Result<Self, Fault> {
        let directory = open_directory(root).map_err(|error| fault("open", root, &error.into()))?;
        Ok(Self { root: root.to_owned(), directory: Arc::new(directory) })
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    /// Runs an operation on a path relative to the directory.
    fn act<T>(
        &self,
        operation: &str,
        path: &str,
        act: impl Fn(&OwnedFd, &str) -> Result<T, Errno>,
    ) -> Result<T, Fault> {
        let relative = if path.is_empty() { "." } else { path };
        let done = retry_on_intr(|| act(&self.directory, relative));
        done.map_err(|error| fault(operation, &self.path(path), &error.into()))
    }

    fn open_file(&self, path: &str, flags: OFlags) -> Result<File, Fault> {
        let mode = Mode::from_raw_mode(0o666);
        let flags = flags | OFlags::CLOEXEC;
        self.act("open", path, |directory, path| {
            rustix::fs::openat(directory, path, flags, mode).map(File::from)
        })
    }

    /// Lists a directory by its path, as programs do.
    fn entries<T>(
        &self,
        path: &str,
        entry: impl Fn(&fs::DirEntry) -> io::Result<T>,
    ) -> Result<Vec<T>, Fault> {
        let path = self.path(path);
        let list = || fs::read_dir(&path)?.map(|found| entry(&found?)).collect::<io::Result<Vec<T>>>();
        list().map_err(|error| fault("list", &path, &error))
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
}

fn fault(operation: &str, path: &Path, error: &io::Error) -> Fault {
    Fault { errno: error.raw_os_error(), text: format!("{operation} {}: {error}", path.display()) }
}

fn status(stat: &Stat) -> Status {
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    Status { size: u64::try_from(stat.st_size).unwrap_or_default(), is_directory }
}

impl Files for DirectoryFiles {
    type File = DirectoryFile;

    async fn enter(&self, path: &str) -> Result<Self, Fault> {
        Self::open(&self.path(path))
    }

    async fn open(&self, path: &str, how: How) -> Result<DirectoryFile, Fault> {
        let access = match (how.read, how.write) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        let further = [(how.create, OFlags::CREATE), (how.truncate, OFlags::TRUNC), (how.sync, OFlags::SYNC)];
        let wanted = further.into_iter().filter(|(is_set, _)| *is_set);
        let file = self.open_file(path, wanted.fold(access, |flags, (_, flag)| flags | flag))?;
        let path = self.path(path);
        let size = file.metadata().map_err(|error| fault("stat", &path, &error))?.len();
        Ok(DirectoryFile { file, path, size })
    }

    async fn stat(&self, path: &str) -> Result<Status, Fault> {
        let stat =
            |directory: &OwnedFd, path: &str| rustix::fs::statat(directory, path, AtFlags::SYMLINK_NOFOLLOW);
        self.act("stat", path, stat).map(|found| status(&found))
    }

    async fn list_names(&self, path: &str) -> Result<Vec<String>, Fault> {
        self.entries(path, |entry| Ok(entry.file_name().to_string_lossy().into_owned()))
    }

    async fn list(&self, path: &str) -> Result<Vec<(String, Status)>, Fault> {
        self.entries(path, |entry| {
            let metadata = entry.metadata()?;
            let status = Status { size: metadata.len(), is_directory: metadata.is_dir() };
            Ok((entry.file_name().to_string_lossy().into_owned(), status))
        })
    }

    async fn make_directory(&self, path: &str) -> Result<(), Fault> {
        let mode = Mode::from_raw_mode(0o777);
        self.act("create directory", path, |directory, path| rustix::fs::mkdirat(directory, path, mode))
    }

    async fn remove_directory(&self, path: &str) -> Result<(), Fault> {
        self.act("remove directory", path, |directory, path| {
            rustix::fs::unlinkat(directory, path, AtFlags::REMOVEDIR)
        })
    }

    async fn remove(&self, path: &str) -> Result<(), Fault> {
        self.act("remove", path, |directory, path| rustix::fs::unlinkat(directory, path, AtFlags::empty()))
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), Fault> {
        self.act("rename", from, |directory, from| rustix::fs::renameat(directory, from, directory, to))
    }

    async fn link(&self, from: &str, to: &str) -> Result<(), Fault> {
        self.act("link", to, |directory, to| {
            rustix::fs::linkat(directory, from, directory, to, AtFlags::empty())
        })
    }

    async fn symlink(&self, target: &str, path: &str) -> Result<(), Fault> {
        self.act("create symbolic link", path, |directory, path| {
            rustix::fs::symlinkat(target, directory, path)
        })
    }

    async fn read_link(&self, path: &str) -> Result<usize, Fault> {
        self.act("read link", path, |directory, path| {
            rustix::fs::readlinkat(directory, path, Vec::new()).map(|link| link.as_bytes().len())
        })
    }

    async fn set_mode(&self, path: &str, mode: u32) -> Result<(), Fault> {
        let mode = Mode::from_raw_mode(mode);
        self.act("set the mode of", path, |directory, path| {
            rustix::fs::chmodat(directory, path, mode, AtFlags::empty())
        })
    }

    async fn set_size(&self, path: &str, size: u64) -> Result<(), Fault> {
        let file = self.open_file(path, OFlags::WRONLY)?;
        file.set_len(size).map_err(|error| fault("set the size of", &self.path(path), &error))
    }

    async fn touch(&self, path: &str) -> Result<(), Fault> {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        self.act("set the times of", path, |directory, path| {
            rustix::fs::utimensat(directory, path, &times, AtFlags::empty())
        })
    }

    async fn file_system_status(&self) -> Result<(), Fault> {
        self.act("statfs", "", |directory, _| rustix::fs::fstatvfs(directory).map(|_| ()))
    }

    async fn sync_all(&self) -> Result<(), Fault> {
        rustix::fs::sync();
        Ok(())
    }

    fn local_path(&self, path: &str) -> Option<PathBuf> {
        Some(self.path(path))
    }

    fn traffic(&self) -> BTreeMap<String, RequestCounters> {
        BTreeMap::new()
    }

    fn counters(&self) -> Option<ClientCounters> {
        None
    }

    async fn leave(self) {}
}

impl DirectoryFile {
    fn failed(&self, operation: &str, error: &io::Error) -> Fault {
        fault(operation, &self.path, error)
    }
}

impl OpenFile for DirectoryFile {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, offset: u64, count: usize, buffer: &mut Buffer) -> Result<usize, Fault> {
        let space = buffer.space(count);
        let mut length = 0;
        // Repeats read(2): a mount may return less than requested before the end.
        while length < count {
            match self.file.read_at(&mut space[length..], offset + length as u64) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read", &error)),
            }
        }
        Ok(buffer.filled(length))
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<usize, Fault> {
        self.file.write_at(&data, offset).map_err(|error| self.failed("write", &error))
    }

    async fn sync(&self) -> Result<(), Fault> {
        self.file.sync_all().map_err(|error| self.failed("fsync", &error))
    }

    async fn lock_shared(&self) -> Result<(), Fault> {
        self.file.lock_shared().map_err(|error| self.failed("lock", &error))
    }

    async fn unlock(&self) -> Result<(), Fault> {
        self.file.unlock().map_err(|error| self.failed("unlock", &error))
    }

    async fn try_lock_bytes(&self, bytes: Range<u64>, exclusive: bool) -> Result<bool, Fault> {
        let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
        match set_lock(&self.file, &bytes, kind) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(self.failed("lock", &error)),
        }
    }

    async fn unlock_bytes(&self, bytes: Range<u64>) -> Result<(), Fault> {
        set_lock(&self.file, &bytes, libc::F_UNLCK).map_err(|error| self.failed("unlock", &error))
    }

    async fn close(self) -> Result<(), Fault> {
        // The standard library ignores the error of close(2), with which a mount reports failed writes.
        close_file(self.file).map_err(|error| fault("close", &self.path, &error))
    }
}

/// Sets or releases a lock of an open file description: those of the process would not exclude its other threads.
fn set_lock(file: &File, bytes: &Range<u64>, kind: libc::c_int) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let too_far = || io::Error::from_raw_os_error(libc::EOVERFLOW);
    // SAFETY: `flock` has only integers, for which zero is a value. `l_pid` must be zero for these locks.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = bytes.start.try_into().map_err(|_| too_far())?;
    // fcntl(2): a length of zero means all bytes that follow.
    lock.l_len = if bytes.end == u64::MAX {
        0
    } else {
        (bytes.end - bytes.start).try_into().map_err(|_| too_far())?
    };
    // SAFETY: the descriptor is open, and `lock` is a valid structure that the call only reads.
    let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn close_file(file: File) -> io::Result<()> {
    use std::os::fd::IntoRawFd as _;
    // SAFETY: the descriptor was owned by `file`, which has released it.
    let closed = unsafe { libc::close(file.into_raw_fd()) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
