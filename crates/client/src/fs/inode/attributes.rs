//! Attributes, permissions, and the content of symbolic links.

use std::time::Duration;

use bytes::Bytes;

use super::{Inode, OpenFile};
use crate::attributes::{Attributes, Changed, FileKind, SetAttributes, SetTime};
use crate::cache::attributes::{Epoch, Started};
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::{FsStat, OpenState};

impl Inode {
    /// Returns the attributes, cached ones within their timeout. Data that are written behind are sent before, so that the size
    /// and the times are those of the last write; they need not be stable.
    ///
    /// # Errors
    /// As fstat(2).
    pub async fn attributes(&self, caller: &Caller) -> Result<Attributes, OpError> {
        self.send_data_for_times().await;
        self.known_attributes(caller).await
    }

    /// Returns the object with attributes that the server has just sent, or with later ones if data were written behind.
    pub(in crate::fs) async fn with_sent_data(
        self,
        caller: &Caller,
        attributes: Attributes,
    ) -> Result<(Self, Attributes), OpError> {
        if !self.send_data_for_times().await {
            return Ok((self, attributes));
        }
        let attributes = self.known_attributes(caller).await?;
        Ok((self, attributes))
    }

    /// As [`Self::send_data`], unless this client knows the time of the last change.
    async fn send_data_for_times(&self) -> bool {
        let (client, handle) = (self.client(), self.handle());
        if client.keeps_times(&handle) && client.kept_time(&handle).is_some() {
            return false;
        }
        self.send_data().await
    }

    /// Returns the size for programs, without sending unwritten data.
    pub(super) async fn size(&self, caller: &Caller) -> Result<u64, OpError> {
        self.known_attributes(caller).await.map(|attributes| attributes.size)
    }

    async fn known_attributes(&self, caller: &Caller) -> Result<Attributes, OpError> {
        let now = self.mount.now();
        let cached = self.cached_attributes(now);
        self.mount.shared.counts.attributes.note(cached.is_some());
        match cached {
            Some(attributes) => Ok(attributes),
            None => self.refresh(caller).await,
        }
    }

    /// Returns attributes that can be used without asking the server.
    pub(super) fn cached_attributes(&self, now: Duration) -> Option<Attributes> {
        let held = self.client().delegation(&self.handle());
        self.mount.shared.state.lock().attributes(self.node.id, held, now)
    }

    /// Returns whether the cached attributes were read under the object's delegation, which is held.
    pub(super) fn has_delegated_attributes(&self) -> bool {
        let held = self.client().delegation(&self.handle());
        let state = self.mount.shared.state.lock();
        held.is_some_and(|held| state.metadata.attributes.get_delegated(self.node.id, held.id).is_some())
    }

    /// Returns how long the attributes that the client has may be used without asking the server. Copies of them must not be used
    /// for longer. Zero if data are written behind which will change them: without a delegation, the server gives the file its time.
    #[must_use]
    pub fn attributes_usable_for(&self) -> Duration {
        let now = self.mount.now();
        let held = self.client().delegation(&self.handle());
        let state = self.mount.shared.state.lock();
        if state.writes.has_unacknowledged(self.node.id) && state.kept_time(self.node.id).is_none() {
            return Duration::ZERO;
        }
        let attributes = &state.metadata.attributes;
        if held.is_some_and(|held| attributes.get_delegated(self.node.id, held.id).is_some()) {
            return attributes.timeout(self.node.id);
        }
        attributes.usable_for(self.node.id, now)
    }

    /// Returns the time for which present and absent names of this directory may be used without a request to the server; zero
    /// if they are not cached (`lookupcache=none`).
    #[must_use]
    pub fn names_usable_for(&self) -> Duration {
        if !self.mount.shared.caches_names {
            return Duration::ZERO;
        }
        let now = self.mount.now();
        let held = self.client().delegation(&self.handle());
        let state = self.mount.shared.state.lock();
        let attributes = &state.metadata.attributes;
        match held.is_some_and(|held| attributes.is_delegated(self.node.id, held.id)) {
            true => attributes.timeout(self.node.id),
            false => attributes.fresh_for(self.node.id, now),
        }
    }

    /// Returns the epoch in which only this client has changed the object, as far as it knows. Content read in another
    /// epoch is not valid. `None` if it is unknown.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.mount.shared.state.lock().metadata.attributes.epoch(self.node.id)
    }

    /// Returns the server's current attributes, with the size for programs. Requests a delegation with those of a directory that are
    /// requested repeatedly.
    pub(super) async fn refresh(&self, caller: &Caller) -> Result<Attributes, OpError> {
        let started = self.mount.start();
        if self.kind() == FileKind::Directory {
            let is_worth = {
                let mut state = self.mount.shared.state.lock();
                state.metadata.attributes.revalidate_directory(self.node.id, started)
            };
            if is_worth {
                return self.refresh_delegated(caller, started).await;
            }
        }
        let attributes = self.client().get_attributes(caller, self.handle()).await;
        let attributes = attributes.inspect_err(|error| self.forget_if_stale(error))?;
        Ok(self.learn(started, attributes))
    }

    /// Returns the current attributes of a directory, and holds its delegation from now on if the server grants one.
    async fn refresh_delegated(&self, caller: &Caller, started: Started) -> Result<Attributes, OpError> {
        let delegated = self.client().delegate_directory(caller, self.handle()).await;
        let (attributes, delegation) = delegated.inspect_err(|error| self.forget_if_stale(error))?;
        let attributes = self.learn(started, attributes);
        if let Some(id) = delegation {
            self.mount.shared.state.lock().metadata.attributes.delegate(self.node.id, id);
        }
        Ok(attributes)
    }

    /// Expires this object's attributes if the server has reported that the object no longer exists.
    pub(super) fn forget_if_stale(&self, error: &OpError) {
        if error.is_stale() {
            self.expire();
        }
    }

    /// Stores attributes from the reply to the request `started`, and returns them for programs.
    pub(super) fn learn(&self, started: Started, attributes: Attributes) -> Attributes {
        let now = self.mount.now();
        let held = self.client().delegation(&self.handle());
        let mut state = self.mount.shared.state.lock();
        state.update(self.node.id, started, attributes, now);
        if let Some(held) = held.filter(|held| started.is_after(held.granted_at)) {
            state.metadata.attributes.delegate(self.node.id, held.id);
        }
        state.newest(self.node.id, attributes)
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
            self.sync_cached_data().await;
        }
        let none = OpenState::default();
        let state = file.map_or(&none, OpenFile::state);
        match set.size {
            Some(size) => self.set_size(caller, state, set, size).await,
            None => {
                self.give_back_times(set).await;
                self.send_attributes(caller, state, set).await
            }
        }
    }

    /// Gives a delegation back under which this client keeps the file's times, before `set` sets one: servers may set the time of a file
    /// that was written under it when it is returned.
    pub(super) async fn give_back_times(&self, set: &SetAttributes) {
        if set.mtime != SetTime::Keep && self.client().keeps_times(&self.handle()) {
            self.client().give_back(&self.handle()).await;
        }
    }

    pub(super) async fn send_attributes(
        &self,
        caller: &Caller,
        state: &OpenState,
        set: &SetAttributes,
    ) -> Result<Attributes, OpError> {
        let change = self.start_change();
        let changed = self.client().change_attributes(caller, self.handle(), state, set).await;
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            self.client().forget_permissions(&self.handle());
        }
        match changed {
            Ok((before, attributes)) => {
                if set.mtime == SetTime::Keep && set.size.is_some() {
                    self.client().note_modified(&self.handle());
                }
                change.end(Some(Changed { before, after: Some(attributes), ..Changed::default() }));
                Ok(self.mount.shared.state.lock().seen(self.node.id, attributes))
            }
            Err(error) => {
                change.end_failed(&error);
                Err(error)
            }
        }
    }

    /// Returns the requested permissions ([`crate::results::access`]) that the caller has.
    ///
    /// # Errors
    /// As access(2), except that missing permissions are not an error.
    pub async fn access(&self, caller: &Caller, asked: u32) -> Result<u32, OpError> {
        let now = self.mount.now();
        let held = self.client().delegation(&self.handle());
        let cached = self.mount.shared.state.lock().rights(self.node.id, held, caller, asked, now);
        self.mount.shared.counts.access.note(cached.is_some());
        if let Some(granted) = cached {
            return Ok(granted);
        }
        let started = self.mount.start();
        let asked_server = self.client().access(caller, self.handle(), asked).await;
        let (granted, attributes) = asked_server.inspect_err(|error| self.forget_if_stale(error))?;
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
