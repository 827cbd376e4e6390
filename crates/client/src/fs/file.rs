//! Open files.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use protocol::nfs4::types::Status;

use super::FileSystem;
use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::errno::Errno;
use crate::error::{Error, OpError};
use crate::results::{Creation, Object, OpenMode, OpenState, Stability};

/// READs or WRITEs of one call that are in flight: 32 MiB of 1 MiB each fill a link of 25 Gbit/s over 10 ms.
const REQUESTS_MAX: usize = 32;

/// How a file is opened (open(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// For reading or writing.
    pub mode: OpenMode,
    /// Whether a missing file is created (`O_CREAT`).
    pub create: bool,
    /// Whether the file must be missing (`O_EXCL`). Takes a verifier that is unique to the call.
    pub exclusive: Option<[u8; 8]>,
    /// Whether its content is dropped (`O_TRUNC`).
    pub truncate: bool,
    /// Mode bits of a file that is created.
    pub permissions: u32,
}

impl OpenOptions {
    /// Options to read a file that is there.
    pub const READ: Self =
        Self { mode: OpenMode::READ, create: false, exclusive: None, truncate: false, permissions: 0o666 };

    /// Options to write a new file, or a file anew.
    pub const CREATE: Self =
        Self { mode: OpenMode::WRITE, create: true, exclusive: None, truncate: true, permissions: 0o666 };
}

/// An open file. Close it by [`Self::close`]: errors of writing come out there at the latest.
pub struct File {
    fs: FileSystem,
    path: Vec<u8>,
    object: Object,
    state: OpenState,
    is_closed: AtomicBool,
    /// The verifier of unstable WRITEs since the last COMMIT; `None` if there were none.
    unstable: Mutex<Option<[u8; 8]>>,
}

impl FileSystem {
    /// Opens a regular file.
    ///
    /// # Errors
    /// As open(2).
    pub async fn open(&self, path: &[u8], options: &OpenOptions) -> Result<File, Error> {
        self.open_file(path, options).await.map_err(|cause| self.failed("open", path, cause))
    }

    async fn open_file(&self, path: &[u8], options: &OpenOptions) -> Result<File, OpError> {
        let (mut parent, mut name) = self.parent(path).await?;
        if !options.create {
            // A symbolic link is followed first.
            let object = self.resolve(path, true).await?;
            match object.attributes.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(OpError::Status(Status::ISDIR)),
                _ => return Err(OpError::Invalid(Errno::ENXIO, "not a regular file")),
            }
            (parent, name) = self.target(path, parent, name).await?;
        }
        let creation = match (options.create, options.exclusive) {
            (false, _) => Creation::No,
            (true, None) => Creation::IfMissing,
            (true, Some(verifier)) => Creation::Exclusive(verifier),
        };
        let mut set = SetAttributes::with_mode(options.permissions);
        if options.truncate {
            set.size = Some(0);
        }
        let opened =
            self.client().open(self.caller(), parent.handle, &name, options.mode, creation, &set).await;
        let opened = match opened {
            // The name is a symbolic link.
            Err(OpError::Status(Status::SYMLINK)) if options.exclusive.is_none() => {
                let (parent, name) = self.target(path, parent, name).await?;
                self.client().open(self.caller(), parent.handle, &name, options.mode, creation, &set).await?
            }
            opened => opened?,
        };
        let file = File {
            fs: self.clone(),
            path: path.to_vec(),
            object: opened.object,
            state: opened.state,
            is_closed: AtomicBool::new(false),
            unstable: Mutex::new(None),
        };
        if options.truncate && file.object.attributes.size > 0 {
            // O_TRUNC of a file that was there: an OPEN without creation, or one whose server kept the size.
            let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
            let handle = file.object.handle;
            self.client().set_attributes(self.caller(), handle, &file.state, &set).await?;
        }
        Ok(file)
    }

    /// Follows symbolic links at the end of a path to the directory and name of the file itself.
    async fn target(
        &self,
        path: &[u8],
        mut parent: Object,
        mut name: Vec<u8>,
    ) -> Result<(Object, Vec<u8>), OpError> {
        let mut path = path.to_vec();
        for _ in 0..40 {
            let object = match self.client().lookup(self.caller(), parent.handle, &name).await {
                Ok(object) => object,
                Err(error) if crate::client::is_missing(&error) => return Ok((parent, name)),
                Err(error) => return Err(error),
            };
            if object.attributes.kind != FileKind::Symlink {
                return Ok((parent, name));
            }
            let link = self.client().read_link(self.caller(), object.handle).await?;
            path = if link.starts_with(b"/") {
                link.to_vec()
            } else {
                let directory = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
                [&path[..directory], &link].concat()
            };
            (parent, name) = self.parent(&path).await?;
        }
        Err(OpError::Invalid(Errno::ELOOP, "too many symbolic links"))
    }
}

impl File {
    /// Returns the attributes as they were when the file was opened.
    #[must_use]
    pub fn opened_attributes(&self) -> Attributes {
        self.object.attributes
    }

    /// Returns the file's object.
    #[must_use]
    pub fn object(&self) -> Object {
        self.object
    }

    /// Reads from `offset` on until `count` bytes or the end of the file. Several READs are in flight.
    ///
    /// # Errors
    /// As pread(2).
    pub async fn read_at(&self, offset: u64, count: usize) -> Result<Vec<Bytes>, Error> {
        let size = self.fs.info().read_max as usize;
        let mut ranges =
            (0..count).step_by(size).map(|start| (offset + start as u64, size.min(count - start)));
        let (mut running, mut parts) = (FuturesOrdered::new(), Vec::new());
        loop {
            while running.len() < REQUESTS_MAX
                && let Some((offset, length)) = ranges.next()
            {
                running.push_back(self.read_range(offset, length));
            }
            let Some(outcome) = running.next().await else { return Ok(parts) };
            let (read, is_end) = outcome.map_err(|cause| self.failed("read", cause))?;
            parts.extend(read);
            if is_end {
                // The other READs are behind the end.
                return Ok(parts);
            }
        }
    }

    /// Reads a range that fits one READ, with further READs if the server returns less. The second value tells whether the file
    /// ends in it.
    async fn read_range(&self, mut offset: u64, mut left: usize) -> Result<(Vec<Bytes>, bool), OpError> {
        let mut parts = Vec::new();
        while left > 0 {
            let (handle, state) = (self.object.handle, &self.state);
            let reply = self.fs.client().read(self.fs.caller(), handle, state, offset, left as u32).await?;
            let length = reply.data.len();
            if length > 0 {
                parts.push(reply.data);
            }
            if reply.eof || length == 0 {
                return Ok((parts, true));
            }
            offset += length as u64;
            left -= length;
        }
        Ok((parts, false))
    }

    /// Writes all of `data` at `offset`, with several WRITEs in flight. They are stable after [`Self::sync`].
    ///
    /// # Errors
    /// As pwrite(2). Some of the data may have been written.
    pub async fn write_at(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let size = self.fs.info().write_max as usize;
        let mut starts = (0..data.len()).step_by(size);
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < REQUESTS_MAX
                && let Some(start) = starts.next()
            {
                let part = data.slice(start..data.len().min(start + size));
                running.push(self.write_range(offset + start as u64, part));
            }
            match running.next().await {
                Some(written) => written?,
                None => return Ok(()),
            }
        }
    }

    /// Writes data that fit one WRITE, with further WRITEs if the server takes less.
    async fn write_range(&self, mut offset: u64, mut data: Bytes) -> Result<(), Error> {
        while !data.is_empty() {
            let (handle, state) = (self.object.handle, &self.state);
            let stability = Stability::Unstable;
            let write =
                self.fs.client().write(self.fs.caller(), handle, state, offset, data.clone(), stability);
            let reply = write.await.map_err(|cause| self.failed("write", cause))?;
            if reply.stability == Stability::Unstable {
                self.note_unstable(reply.verifier)?;
            }
            offset += u64::from(reply.count);
            data = data.slice(reply.count as usize..);
        }
        Ok(())
    }

    /// Notes an unstable WRITE. A verifier that changed says that earlier ones may be lost.
    fn note_unstable(&self, verifier: [u8; 8]) -> Result<(), Error> {
        let before = self.unstable.lock().replace(verifier);
        if before.is_some_and(|before| before != verifier) {
            let cause =
                OpError::Invalid(Errno::EIO, "the server restarted and has lost data that were written");
            return Err(self.failed("write", cause));
        }
        Ok(())
    }

    /// Makes all written data stable.
    ///
    /// # Errors
    /// As fsync(2).
    pub async fn sync(&self) -> Result<(), Error> {
        let Some(verifier) = self.unstable.lock().take() else { return Ok(()) };
        let commit = self.fs.client().commit(self.fs.caller(), self.object.handle, 0, 0);
        let reply = commit.await.map_err(|cause| self.failed("fsync", cause))?;
        if reply.verifier != verifier {
            let cause =
                OpError::Invalid(Errno::EIO, "the server restarted and has lost data that were written");
            return Err(self.failed("fsync", cause));
        }
        Ok(())
    }

    /// Returns the attributes.
    ///
    /// # Errors
    /// As fstat(2).
    pub async fn stat(&self) -> Result<Attributes, Error> {
        let attributes = self.fs.client().get_attributes(self.fs.caller(), self.object.handle);
        attributes.await.map_err(|cause| self.failed("stat", cause))
    }

    /// Sets attributes.
    ///
    /// # Errors
    /// As fchmod(2), ftruncate(2).
    pub async fn set_attributes(&self, set: &SetAttributes) -> Result<Attributes, Error> {
        let set = self.fs.client().set_attributes(self.fs.caller(), self.object.handle, &self.state, set);
        set.await.map_err(|cause| self.failed("set attributes of", cause))
    }

    /// Makes all written data stable and closes the file. The file is closed even if this fails.
    ///
    /// # Errors
    /// As close(2): errors of writing.
    pub async fn close(self) -> Result<(), Error> {
        let synced = self.sync().await;
        self.is_closed.store(true, Ordering::Relaxed);
        let closed = self.fs.client().close_file(self.fs.caller(), self.object.handle, &self.state).await;
        synced.and(closed.map_err(|cause| self.failed("close", cause)))
    }

    fn failed(&self, operation: &'static str, cause: OpError) -> Error {
        self.fs.failed(operation, &self.path, cause)
    }
}
