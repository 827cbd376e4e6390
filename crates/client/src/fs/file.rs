//! Open files by path.

use bytes::Bytes;
use protocol::nfs4::types::Status;

use super::inode::{OpenFile, OpenFlags};
use super::{FileSystem, Inode};
use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::errno::Errno;
use crate::error::{Error, OpError};
use crate::results::{Creation, Object, OpenMode, Stability};

/// Options of open(2).
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
    /// The stability of data when [`File::write_at`] returns (`O_SYNC`).
    pub stability: Stability,
}

impl OpenOptions {
    /// Options to read an existing file.
    pub const READ: Self = Self {
        mode: OpenMode::READ,
        create: false,
        exclusive: None,
        truncate: false,
        permissions: 0o666,
        stability: Stability::Unstable,
    };

    /// Options to create or overwrite a file.
    pub const CREATE: Self = Self { mode: OpenMode::WRITE, create: true, truncate: true, ..Self::READ };
}

/// An open file. Close it by [`Self::close`]: it reports remaining errors of writing.
pub struct File {
    fs: FileSystem,
    path: Vec<u8>,
    pub(super) file: OpenFile,
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
        let (parent, name) = self.parent(path).await?;
        let creation = match (options.create, options.exclusive) {
            (false, _) => Creation::No,
            (true, None) => Creation::IfMissing,
            (true, Some(verifier)) => Creation::Exclusive(verifier),
        };
        let mut set = SetAttributes::with_mode(options.permissions);
        if options.truncate {
            set.size = Some(0);
        }
        let caller = self.caller();
        let flags = OpenFlags { stability: options.stability, ..OpenFlags::of(options.mode) };
        let file = match parent.create(caller, &name, flags, creation, &set).await {
            // The name is a symbolic link.
            Err(OpError::Status(Status::SYMLINK)) if options.exclusive.is_none() => {
                let (parent, name) = self.target(path, parent, name).await?;
                parent.create(caller, &name, flags, creation, &set).await
            }
            opened => opened,
        };
        let file = match file {
            // RFC 8881 §18.16.4, RFC 7530 §16.16.5: the statuses of special files; version 4.0 has none of their own.
            Err(OpError::Status(Status::WRONG_TYPE | Status::INVAL | Status::SYMLINK))
                if !matches!(
                    self.resolve(path, true).await?.attributes.kind,
                    FileKind::Regular | FileKind::Directory
                ) =>
            {
                return Err(OpError::Invalid(Errno::ENXIO, "not a regular file"));
            }
            opened => opened?,
        };
        Ok(File { fs: self.clone(), path: path.to_vec(), file })
    }

    /// Follows symbolic links at the end of a path to the directory and name of the file itself.
    async fn target(
        &self,
        path: &[u8],
        mut parent: Inode,
        mut name: Vec<u8>,
    ) -> Result<(Inode, Vec<u8>), OpError> {
        let mut path = path.to_vec();
        for _ in 0..40 {
            let (object, _) = match parent.lookup(self.caller(), &name).await {
                Ok(found) => found,
                Err(error) if error.is_missing() => return Ok((parent, name)),
                Err(error) => return Err(error),
            };
            if object.kind() != FileKind::Symlink {
                return Ok((parent, name));
            }
            let link = object.read_link(self.caller()).await?;
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
    /// Returns the attributes at the time of the open.
    #[must_use]
    pub fn opened_attributes(&self) -> Attributes {
        self.file.opened_attributes()
    }

    /// Returns the file's object, with the attributes from when it was opened.
    #[must_use]
    pub fn object(&self) -> Object {
        Object { handle: self.file.inode().handle(), attributes: self.file.opened_attributes() }
    }

    /// Reads `count` bytes at `offset`, or less at the end of the file.
    ///
    /// # Errors
    /// As pread(2).
    pub async fn read_at(&self, offset: u64, count: usize) -> Result<Vec<Bytes>, Error> {
        self.file.read(offset, count).await.map_err(|cause| self.failed("read", cause))
    }

    /// Writes all of `data` at `offset`. They are stable after [`Self::sync`], or on return if the
    /// [stability](OpenOptions::stability) of the open requires it.
    ///
    /// # Errors
    /// As pwrite(2). Some of the data may have been written.
    pub async fn write_at(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        self.file.write(offset, data).await.map_err(|cause| self.failed("write", cause))
    }

    /// Makes all written data stable.
    ///
    /// # Errors
    /// As fsync(2).
    pub async fn sync(&self) -> Result<(), Error> {
        self.file.sync().await.map_err(|cause| self.failed("fsync", cause))
    }

    /// Returns the attributes.
    ///
    /// # Errors
    /// As fstat(2).
    pub async fn stat(&self) -> Result<Attributes, Error> {
        self.file.attributes().await.map_err(|cause| self.failed("stat", cause))
    }

    /// Sets attributes.
    ///
    /// # Errors
    /// As fchmod(2), ftruncate(2).
    pub async fn set_attributes(&self, set: &SetAttributes) -> Result<Attributes, Error> {
        self.file.set_attributes(set).await.map_err(|cause| self.failed("set attributes of", cause))
    }

    /// Makes all written data stable, releases the locks of this file, and closes it. It is closed even if this fails. Under a
    /// delegation for writing, data may be sent up to about a second later ([`Self::sync`] does not wait for that).
    ///
    /// # Errors
    /// As close(2): errors of writing.
    pub async fn close(self) -> Result<(), Error> {
        let flushed = self.file.flush().await;
        let released = self.file.release().await;
        flushed.and(released).map_err(|cause| self.failed("close", cause))
    }

    pub(super) fn failed(&self, operation: &'static str, cause: OpError) -> Error {
        self.fs.failed(operation, &self.path, cause)
    }
}
