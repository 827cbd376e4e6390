//! Attributes, permissions, and the content of symbolic links.

use bytes::Bytes;

use super::{Inode, OpenFile};
use crate::attributes::{Attributes, Changed, FileKind, SetAttributes, SetTime};
use crate::cache::attributes::Started;
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::{FsStat, OpenState};

impl Inode {
    /// Returns the attributes, cached ones within their timeout. The size covers data that are written behind; times are those
    /// that the server has sent last.
    ///
    /// # Errors
    /// As fstat(2).
    pub async fn attributes(&self, caller: &Caller) -> Result<Attributes, OpError> {
        let now = self.mount.now();
        let cached = self.mount.shared.state.lock().attributes(self.node.id, now);
        match cached {
            Some(attributes) => Ok(attributes),
            None => self.refresh(caller).await,
        }
    }

    /// Returns the attributes as the server has them now, with the size that programs see.
    pub(super) async fn refresh(&self, caller: &Caller) -> Result<Attributes, OpError> {
        let started = self.mount.start();
        let attributes = self.client().get_attributes(caller, self.handle()).await?;
        Ok(self.learn(started, attributes))
    }

    /// Stores attributes from the reply to the request `started`, and returns them as programs see them.
    pub(super) fn learn(&self, started: Started, attributes: Attributes) -> Attributes {
        let now = self.mount.now();
        let mut state = self.mount.shared.state.lock();
        state.update(self.node.id, started, attributes, now);
        state.seen(self.node.id, attributes)
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
        let sets_times = set.mtime != SetTime::Keep || set.atime != SetTime::Keep;
        if sets_times || set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            // A WRITE afterwards would change the times again, or may be refused.
            self.sync_data().await;
        }
        let none = OpenState::default();
        let state = file.map_or(&none, OpenFile::state);
        match set.size {
            Some(size) => self.set_size(caller, state, set, size).await,
            None => self.send_attributes(caller, state, set).await,
        }
    }

    pub(super) async fn send_attributes(
        &self,
        caller: &Caller,
        state: &OpenState,
        set: &SetAttributes,
    ) -> Result<Attributes, OpError> {
        let change = self.start_change();
        match self.client().set_attributes(caller, self.handle(), state, set).await {
            Ok(attributes) => {
                change.end(Some(Changed { after: Some(attributes), ..Changed::default() }));
                Ok(self.mount.shared.state.lock().seen(self.node.id, attributes))
            }
            Err(error) => {
                change.end_failed(&error);
                Err(error)
            }
        }
    }

    /// Returns which of the asked permissions ([`crate::results::access`]) the caller has.
    ///
    /// # Errors
    /// As access(2), except that missing permissions are not an error.
    pub async fn access(&self, caller: &Caller, asked: u32) -> Result<u32, OpError> {
        let now = self.mount.now();
        let cached = self.mount.shared.state.lock().rights(self.node.id, caller, asked, now);
        if let Some(granted) = cached {
            return Ok(granted);
        }
        let started = self.mount.start();
        let (granted, attributes) = self.client().access(caller, self.handle(), asked).await?;
        self.learn(started, attributes);
        self.mount.shared.state.lock().access.note(self.node.id, caller, asked, granted);
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
