//! Opening a file: version 3 has no OPEN. As on Linux, the file is looked up or created (RFC 1813 §3.3.3, §3.3.8), and the
//! server is asked whether the caller may open it (§3.3.4).

use protocol::nfs3::{CreateArgs, CreateHow, CreateOk};
use protocol::nfs4::types::Status;

use super::super::Nfs3;
use super::super::convert::{changed, entry_of, set_attributes};
use crate::attributes::{Attributes, FileKind, SetAttributes, SetTime};
use crate::config::{Caller, Version};
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::{Creation, FileHandle, Object, OpenMode, OpenState, Opened};

impl Nfs3 {
    /// Opens a file by its name in a directory, and creates it if asked to.
    pub(crate) async fn open(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: OpenMode,
        creation: Creation,
        set: &SetAttributes,
    ) -> Result<Opened, OpError> {
        match creation {
            Creation::No => {}
            Creation::Exclusive(verifier) if self.version == Version::V2 => {
                return self.create_by_link(caller, directory, name, verifier, set).await;
            }
            Creation::Exclusive(verifier) => {
                return self.create_exclusively(caller, directory, name, verifier, set).await;
            }
            Creation::Guarded => return self.create_guarded(caller, directory, name, set).await,
            // CREATE needs permission to change the directory, which an existing file must not need.
            Creation::IfMissing => match self.lookup(caller, directory, name).await {
                Ok(object) => return self.open_existing(caller, object, mode, set.size).await,
                Err(OpError::Status(Status::NOENT)) => {
                    let how = CreateHow::Unchecked(set_attributes(set));
                    let arguments = CreateArgs { where_: entry_of(&directory, name)?, how };
                    let ok = self.call(caller, &arguments).await?;
                    return self.opened(caller, directory, name, &ok).await;
                }
                Err(error) => return Err(error),
            },
        }
        let object = self.lookup(caller, directory, name).await?;
        self.open_existing(caller, object, mode, None).await
    }

    /// Opens a file by its handle.
    pub(crate) async fn open_handle(
        &self,
        caller: &Caller,
        handle: FileHandle,
        _name: Option<(FileHandle, &[u8])>,
        mode: OpenMode,
    ) -> Result<Opened, OpError> {
        let attributes = self.open_access(caller, handle, mode).await?;
        check_kind(attributes.kind)?;
        let object = Object { handle, attributes };
        Ok(Opened { object, state: OpenState::default(), directory: None, delegation: None })
    }

    /// Asks whether the caller may open the file.
    async fn open_access(
        &self,
        caller: &Caller,
        handle: FileHandle,
        mode: OpenMode,
    ) -> Result<Attributes, OpError> {
        let needed = mode.permissions();
        let (granted, attributes) = self.access(caller, handle, needed).await?;
        if granted != needed {
            return Err(OpError::Status(Status::ACCESS));
        }
        Ok(attributes)
    }

    /// Creates a file, or opens an existing one with a size of `set`. A new file takes one call.
    pub(crate) async fn open_anew(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<Opened, OpError> {
        let arguments = CreateArgs {
            where_: entry_of(&directory, name)?,
            // Servers differ in how UNCHECKED treats the mode of an existing file.
            how: CreateHow::Guarded(set_attributes(set)),
        };
        match self.call(caller, &arguments).await {
            Ok(ok) => self.opened(caller, directory, name, &ok).await,
            // An existing file needs no permission to change the directory.
            Err(OpError::Status(Status::EXIST | Status::ACCESS | Status::PERM | Status::ROFS)) => {
                self.open(caller, directory, name, OpenMode::WRITE, Creation::IfMissing, set).await
            }
            Err(error) => Err(error),
        }
    }

    /// Opens an object that was found, and sets its size if there is one.
    async fn open_existing(
        &self,
        caller: &Caller,
        object: Object,
        mode: OpenMode,
        size: Option<u64>,
    ) -> Result<Opened, OpError> {
        check_kind(object.attributes.kind)?;
        let mut attributes = self.open_access(caller, object.handle, mode).await?;
        let state = OpenState::default();
        if let Some(size) = size {
            let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
            attributes = self.set_attributes(caller, object.handle, &state, &set).await?;
        }
        let object = Object { attributes, ..object };
        Ok(Opened { object, state, directory: None, delegation: None })
    }

    /// Creates a file that must be missing. The server keeps the verifier in the file's times, so that attributes follow in a
    /// SETATTR of their own (§3.3.8).
    async fn create_exclusively(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        verifier: [u8; 8],
        set: &SetAttributes,
    ) -> Result<Opened, OpError> {
        let where_ = entry_of(&directory, name)?;
        let exclusive = CreateArgs { where_: where_.clone(), how: CreateHow::Exclusive(verifier) };
        let ok = match self.call(caller, &exclusive).await {
            // §3.3.8 allows a server to have no place for the verifier.
            Err(OpError::Status(Status::NOTSUPP)) => {
                let guarded = CreateArgs { where_, how: CreateHow::Guarded(set_attributes(set)) };
                let ok = self.call(caller, &guarded).await?;
                return self.opened(caller, directory, name, &ok).await;
            }
            created => created?,
        };
        let mut opened = self.opened(caller, directory, name, &ok).await?;
        let or_now = |time| if time == SetTime::Keep { SetTime::Now } else { time };
        let set = SetAttributes { atime: or_now(set.atime), mtime: or_now(set.mtime), size: None, ..*set };
        let handle = opened.object.handle;
        opened.object.attributes = self.set_attributes(caller, handle, &opened.state, &set).await?;
        Ok(opened)
    }

    /// Creates a file that must be missing.
    async fn create_guarded(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<Opened, OpError> {
        let how = CreateHow::Guarded(set_attributes(set));
        let arguments = CreateArgs { where_: entry_of(&directory, name)?, how };
        let replied = self.call_once(caller, &arguments).await?;
        self.opened(caller, directory, name, &replied.result?).await
    }

    /// Returns a file that was created. Its creator may use it regardless of its mode.
    pub(super) async fn opened(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        ok: &CreateOk,
    ) -> Result<Opened, OpError> {
        let object = self.created(caller, directory, name, ok).await?;
        if object.attributes.kind != FileKind::Regular {
            return Err(OpError::BadReply("a new file that is not a regular file"));
        }
        Ok(Opened {
            object,
            state: OpenState::default(),
            directory: Some(changed(&ok.dir_wcc)?),
            delegation: None,
        })
    }

    /// Closes a file. A server of version 3 keeps no state for it.
    pub(crate) async fn close_file(
        &self,
        _caller: &Caller,
        _handle: FileHandle,
        _state: &OpenState,
    ) -> Result<(), OpError> {
        Ok(())
    }
}

fn check_kind(kind: FileKind) -> Result<(), OpError> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(OpError::Status(Status::ISDIR)),
        FileKind::Symlink => Err(OpError::Status(Status::SYMLINK)),
        _ => Err(OpError::Invalid(Errno::ENXIO, "not a regular file")),
    }
}
