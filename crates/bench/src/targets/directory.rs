//! A mounted directory: system calls, which block their thread.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{Buffer, Fault, Files, How, OpenFile, Status};
use crate::result::{ClientCounters, RequestCounters};

/// The files below a directory.
#[derive(Clone, Debug)]
pub struct DirectoryFiles {
    root: PathBuf,
}

/// A file of it.
#[derive(Debug)]
pub struct DirectoryFile {
    file: File,
    path: PathBuf,
    size: u64,
}

impl DirectoryFiles {
    /// Takes a directory.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    /// Runs an operation on a path.
    fn act<T>(
        &self,
        operation: &str,
        path: &str,
        act: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<T, Fault> {
        let path = self.path(path);
        act(&path).map_err(|error| fault(operation, &path, &error))
    }
}

fn fault(operation: &str, path: &Path, error: &io::Error) -> Fault {
    Fault { errno: error.raw_os_error(), text: format!("{operation} {}: {error}", path.display()) }
}

fn status(metadata: &fs::Metadata) -> Status {
    Status { size: metadata.len(), is_directory: metadata.is_dir() }
}

impl Files for DirectoryFiles {
    type File = DirectoryFile;

    async fn enter(&self, path: &str) -> Result<Self, Fault> {
        self.act("open", path, |path| fs::metadata(path).map(|_| Self::new(path)))
    }

    async fn open(&self, path: &str, how: How) -> Result<DirectoryFile, Fault> {
        let mut options = OpenOptions::new();
        options.read(how.read).write(how.write).create(how.create).truncate(how.truncate);
        if how.sync {
            options.custom_flags(libc::O_SYNC);
        }
        self.act("open", path, |path| {
            let file = options.open(path)?;
            let size = file.metadata()?.len();
            Ok(DirectoryFile { file, path: path.to_owned(), size })
        })
    }

    async fn stat(&self, path: &str) -> Result<Status, Fault> {
        self.act("stat", path, |path| Ok(status(&fs::symlink_metadata(path)?)))
    }

    async fn list_names(&self, path: &str) -> Result<Vec<String>, Fault> {
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        self.act("list", path, |path| fs::read_dir(path)?.map(name).collect())
    }

    async fn list(&self, path: &str) -> Result<Vec<(String, Status)>, Fault> {
        self.act("list", path, |path| {
            let entry = |entry: io::Result<fs::DirEntry>| {
                let entry = entry?;
                Ok((entry.file_name().to_string_lossy().into_owned(), status(&entry.metadata()?)))
            };
            fs::read_dir(path)?.map(entry).collect()
        })
    }

    async fn make_directory(&self, path: &str) -> Result<(), Fault> {
        self.act("create directory", path, |path| fs::create_dir(path))
    }

    async fn remove_directory(&self, path: &str) -> Result<(), Fault> {
        self.act("remove directory", path, |path| fs::remove_dir(path))
    }

    async fn remove(&self, path: &str) -> Result<(), Fault> {
        self.act("remove", path, |path| fs::remove_file(path))
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), Fault> {
        self.act("rename", from, |from| fs::rename(from, self.path(to)))
    }

    async fn link(&self, from: &str, to: &str) -> Result<(), Fault> {
        self.act("link", to, |to| fs::hard_link(self.path(from), to))
    }

    async fn symlink(&self, target: &str, path: &str) -> Result<(), Fault> {
        self.act("create symbolic link", path, |path| symlink(target, path))
    }

    async fn read_link(&self, path: &str) -> Result<usize, Fault> {
        self.act("read link", path, |path| Ok(fs::read_link(path)?.as_os_str().len()))
    }

    async fn set_mode(&self, path: &str, mode: u32) -> Result<(), Fault> {
        self.act("set the mode of", path, |path| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
    }

    async fn set_size(&self, path: &str, size: u64) -> Result<(), Fault> {
        self.act("set the size of", path, |path| OpenOptions::new().write(true).open(path)?.set_len(size))
    }

    async fn touch(&self, path: &str) -> Result<(), Fault> {
        self.act("set the times of", path, |path| {
            let now = std::time::SystemTime::now();
            // A descriptor for reading suffices for the owner.
            File::open(path)?.set_times(fs::FileTimes::new().set_accessed(now).set_modified(now))
        })
    }

    async fn file_system_status(&self) -> Result<(), Fault> {
        self.act("statfs", "", |path| rustix::fs::statvfs(path).map(|_| ()).map_err(io::Error::from))
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

    async fn close(self) -> Result<(), Fault> {
        // The standard library ignores the error of close(2), with which a mount reports failed writes.
        close_file(self.file).map_err(|error| fault("close", &self.path, &error))
    }
}

fn close_file(file: File) -> io::Result<()> {
    use std::os::fd::IntoRawFd as _;
    // SAFETY: the descriptor was owned by `file`, which has released it.
    let closed = unsafe { libc::close(file.into_raw_fd()) };
    if closed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
