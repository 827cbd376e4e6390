//! The operations of copies on a local tree.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use client::attributes::{Attributes, FileKind};
use client::tree::{Entry, NewAttributes, Tree, TreePath};
use rustix::io::Errno;

use super::tree::{LocalTree, TreeError, next_data, set_file_attributes};

/// Reads and writes of more bytes run outside of the thread of the connections.
const IN_PLACE_MAX: usize = 64 << 10;

/// A file of a local tree.
#[derive(Debug)]
pub struct LocalFile {
    file: Arc<OwnedFd>,
    path: TreePath,
}

impl Tree for LocalTree {
    type Error = TreeError;
    type Reader = LocalFile;
    type Writer = LocalFile;

    async fn attributes(&self, path: &TreePath) -> Result<Option<Attributes>, TreeError> {
        match Self::attributes(self, path) {
            Ok(attributes) => Ok(Some(attributes)),
            Err(error) if error.errno == Errno::NOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, path: &TreePath) -> Result<Vec<Entry>, TreeError> {
        let entry = |(name, attributes)| Entry { name, attributes, handle: None };
        Ok(Self::list(self, path)?.into_iter().map(entry).collect())
    }

    async fn read_link(&self, path: &TreePath) -> Result<Vec<u8>, TreeError> {
        Self::read_link(self, path)
    }

    async fn open(&self, path: &TreePath) -> Result<LocalFile, TreeError> {
        Ok(LocalFile { file: Arc::new(self.open_file(path)?), path: path.clone() })
    }

    async fn next_data(
        &self,
        file: &LocalFile,
        offset: u64,
        _: u64,
    ) -> Result<Option<(u64, u64)>, TreeError> {
        next_data(&*file.file, offset).map_err(|errno| self.error("read", &file.path, errno))
    }

    async fn read(&self, file: &LocalFile, offset: u64, length: usize) -> Result<Bytes, TreeError> {
        let fd = Arc::clone(&file.file);
        let read = in_place_or_not(length, move || read_fully(&*fd, offset, length)).await;
        read.map_err(|errno| self.error("read", &file.path, errno))
    }

    async fn close(&self, _: LocalFile) -> Result<(), TreeError> {
        Ok(())
    }

    async fn create(&self, path: &TreePath, mode: u32) -> Result<LocalFile, TreeError> {
        Ok(LocalFile { file: Arc::new(self.create_file(path, mode)?), path: path.clone() })
    }

    async fn write(&self, file: &LocalFile, offset: u64, data: Bytes) -> Result<(), TreeError> {
        let fd = Arc::clone(&file.file);
        let written = in_place_or_not(data.len(), move || write_fully(&*fd, offset, &data)).await;
        written.map_err(|errno| self.error("write", &file.path, errno))
    }

    async fn finish(&self, file: LocalFile, size: u64, new: &NewAttributes) -> Result<(), TreeError> {
        let error = |errno| self.error("write", &file.path, errno);
        // A hole at the end.
        let length = rustix::fs::fstat(&*file.file).map_err(error)?.st_size;
        if u64::try_from(length).is_ok_and(|length| length < size) {
            rustix::fs::ftruncate(&*file.file, size).map_err(error)?;
        }
        if *new == NewAttributes::default() {
            return Ok(());
        }
        // By its descriptor: another object may have the name by now.
        set_file_attributes(&*file.file, new).map_err(error)
    }

    async fn make_directory(&self, path: &TreePath, mode: u32) -> Result<bool, TreeError> {
        Self::make_directory(self, path, mode)
    }

    async fn make_link(&self, path: &TreePath, target: &[u8]) -> Result<(), TreeError> {
        Self::make_link(self, path, target)
    }

    async fn make_hard_link(&self, existing: &TreePath, path: &TreePath) -> Result<(), TreeError> {
        Self::make_hard_link(self, existing, path)
    }

    async fn make_special(&self, path: &TreePath, like: &Attributes) -> Result<(), TreeError> {
        Self::make_special(self, path, like.kind, like.mode, like.device)
    }

    async fn remove(&self, path: &TreePath, kind: FileKind) -> Result<(), TreeError> {
        Self::remove(self, path, kind == FileKind::Directory)
    }

    async fn set_attributes(&self, path: &TreePath, new: &NewAttributes) -> Result<(), TreeError> {
        Self::set_attributes(self, path, new)
    }

    fn user(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn server(&self) -> Option<String> {
        None
    }

    fn is_missing(error: &TreeError) -> bool {
        error.errno == Errno::NOENT
    }
}

/// Runs a short operation at once, and a longer one in a thread of its own if there is a runtime for it.
async fn in_place_or_not<T: Send + 'static>(
    length: usize,
    run: impl FnOnce() -> Result<T, Errno> + Send + 'static,
) -> Result<T, Errno> {
    if length <= IN_PLACE_MAX || tokio::runtime::Handle::try_current().is_err() {
        return run();
    }
    // The task is dropped only at the end of the runtime.
    tokio::task::spawn_blocking(run).await.unwrap_or(Err(Errno::CANCELED))
}

fn read_fully(file: impl AsFd, offset: u64, length: usize) -> Result<Bytes, Errno> {
    let mut bytes = BytesMut::zeroed(length);
    let mut done = 0;
    while done < length {
        match rustix::io::pread(&file, &mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    bytes.truncate(done);
    Ok(bytes.freeze())
}

fn write_fully(file: impl AsFd, offset: u64, data: &[u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(&file, &data[done..], offset + done as u64) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
