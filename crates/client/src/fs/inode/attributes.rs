//! Attributes, permissions, and the content of symbolic links.

use bytes::Bytes;

use super::{Inode, OpenFile};
use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::{FsStat, OpenState};

impl Inode {
    /// Returns the attributes.
    ///
    /// # Errors
    /// As fstat(2).
    pub async fn attributes(&self, caller: &Caller) -> Result<Attributes, OpError> {
        self.client().get_attributes(caller, self.handle()).await
    }

    /// Sets attributes and returns all of them. `file` is an open description of this object whose size is set, as for
    /// ftruncate(2).
    ///
    /// # Errors
    /// As chmod(2), chown(2), truncate(2), utimensat(2).
    pub async fn set_attributes(
        &self,
        caller: &Caller,
        file: Option<&OpenFile>,
        set: &SetAttributes,
    ) -> Result<Attributes, OpError> {
        let none = OpenState::default();
        let state = file.map_or(&none, OpenFile::state);
        self.client().set_attributes(caller, self.handle(), state, set).await
    }

    /// Returns which of the asked permissions ([`crate::results::access`]) the caller has.
    ///
    /// # Errors
    /// As access(2), except that missing permissions are no error.
    pub async fn access(&self, caller: &Caller, asked: u32) -> Result<u32, OpError> {
        let (granted, _) = self.client().access(caller, self.handle(), asked).await?;
        Ok(granted)
    }

    /// Returns the content of a symbolic link.
    ///
    /// # Errors
    /// As readlink(2).
    pub async fn read_link(&self, caller: &Caller) -> Result<Bytes, OpError> {
        if self.kind() != FileKind::Symlink {
            return Err(OpError::Invalid(Errno::EINVAL, "not a symbolic link"));
        }
        self.client().read_link(caller, self.handle()).await
    }

    /// Returns the free space of the object's file system.
    ///
    /// # Errors
    /// As statfs(2).
    pub async fn stat_fs(&self, caller: &Caller) -> Result<FsStat, OpError> {
        self.client().fs_stat(caller, self.handle()).await
    }
}
