//! Open files.

use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use protocol::nfs4::types::Status;

use super::Inode;
use super::hidden_name::HiddenName;
use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::cache::attributes::Started;
use crate::cache::limiter::User;
use crate::cache::read_ahead::ReadAhead;
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::locks::LockOwner;
use crate::results::{FileHandle, Object, OpenMode, OpenState, Opened, Stability};
use crate::write;

/// Options of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFlags {
    /// For reading or writing.
    pub mode: OpenMode,
    /// Stability of data when a write returns: `DataSync` for O_DSYNC, `FileSync` for O_SYNC.
    pub stability: Stability,
    /// Whether reads and writes bypass the cache (O_DIRECT).
    pub direct: bool,
}

impl OpenFlags {
    /// Flags to read.
    pub const READ: Self = Self::of(OpenMode::READ);
    /// Flags to write.
    pub const WRITE: Self = Self::of(OpenMode::WRITE);
    /// Flags to read and write.
    pub const BOTH: Self = Self::of(OpenMode::BOTH);

    /// Returns flags with only this mode.
    #[must_use]
    pub const fn of(mode: OpenMode) -> Self {
        Self { mode, stability: Stability::Unstable, direct: false }
    }
}

/// An open file description. End it by [`Self::release`].
pub struct OpenFile {
    pub(super) description: Arc<Description>,
    attributes: Attributes,
    /// The errors of earlier writes that were reported here; `None` after the release.
    errors: Mutex<Option<write::OpenFile>>,
    /// An error that was taken from there, and that no program has got yet.
    late: Mutex<Option<Errno>>,
    is_released: AtomicBool,
    /// The number of this open file in its client.
    pub(super) number: u64,
    /// Owners that may have locked something through this file.
    pub(super) lock_owners: Mutex<BTreeSet<LockOwner>>,
}

/// State that requests for an open file need. Background requests hold it too.
pub(super) struct Description {
    pub(super) inode: Inode,
    pub(super) caller: Caller,
    pub(super) flags: OpenFlags,
    pub(super) state: OpenState,
    pub(super) user: User,
    pub(super) ahead: Mutex<ReadAhead>,
    /// READs in the background.
    pub(super) fetches: Mutex<Fetches>,
}

#[derive(Default)]
pub(super) struct Fetches {
    pub(super) count: usize,
    /// The task that releases the file.
    pub(super) waker: Option<Waker>,
}

impl Inode {
    /// Opens a regular file. Cached data remain if no other client changed the file since (close-to-open consistency); with `nocto`
    /// also while the cached attributes may be used, in version 3 without a request.
    ///
    /// # Errors
    /// As open(2).
    pub async fn open(&self, caller: &Caller, flags: OpenFlags) -> Result<OpenFile, OpError> {
        match self.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(OpError::Status(Status::ISDIR)),
            FileKind::Symlink => return Err(OpError::Status(Status::SYMLINK)),
            _ => return Err(OpError::Invalid(Errno::ENXIO, "not a regular file")),
        }
        if let Some(file) = self.open_delegated(caller, flags) {
            return Ok(file);
        }
        if let Some(file) = self.open_unchecked(caller, flags).await? {
            return Ok(file);
        }
        if flags.mode.write {
            // The OPEN may then get one for writing.
            self.client().give_back_read(&self.handle()).await;
        }
        let name = self.known_name();
        let name = name.as_ref().map(|(directory, name)| (*directory, &name[..]));
        let started = self.mount.start();
        let opened = self.client().open_handle(caller, self.handle(), name, flags.mode).await;
        let opened = opened.inspect_err(|error| {
            if error.is_stale() {
                self.forget_known_name();
            }
            self.forget_if_stale(error);
        })?;
        self.forget_if_changing(&opened.object.attributes);
        Ok(OpenFile::new(self.clone(), caller.clone(), flags, opened, Some(started)))
    }

    /// Opens the file without a request, if its delegation allows it and its attributes are known.
    pub(super) fn open_delegated(&self, caller: &Caller, flags: OpenFlags) -> Option<OpenFile> {
        let held = self.client().delegation(&self.handle())?;
        let started = Some(self.mount.start());
        let attributes = {
            let state = self.mount.shared.state.lock();
            *state.metadata.attributes.get_delegated(self.node.id, held.id)?
        };
        let state = self.client().open_delegated(caller, self.handle(), flags.mode)?;
        let object = Object { handle: self.handle(), attributes };
        let opened = Opened { object, state, directory: None, delegation: Some(held.id) };
        Some(OpenFile::new(self.clone(), caller.clone(), flags, opened, started))
    }

    /// Opens the file by what is cached (`nocto`), which version 4 cannot: there an open is state at the server. `None` if its
    /// attributes must be fetched.
    async fn open_unchecked(&self, caller: &Caller, flags: OpenFlags) -> Result<Option<OpenFile>, OpError> {
        if self.mount.shared.close_to_open || self.client().version().minor().is_some() {
            return Ok(None);
        }
        let Some(attributes) = self.cached_attributes(self.mount.now()) else { return Ok(None) };
        let needed = flags.mode.permissions();
        if self.access(caller, needed).await? != needed {
            return Err(OpError::Status(Status::ACCESS));
        }
        let object = Object { handle: self.handle(), attributes };
        let opened = Opened { object, state: OpenState::default(), directory: None, delegation: None };
        Ok(Some(OpenFile::new(self.clone(), caller.clone(), flags, opened, None)))
    }

    /// Has the name under which this object was found looked up again. Version 4.0 opens by that name, which may have gone while the
    /// object exists.
    fn forget_known_name(&self) {
        let Some((directory, name)) = self.node.opens.lock().name.take() else { return };
        let mut state = self.mount.shared.state.lock();
        state.metadata.directories.invalidate(directory);
        state.metadata.names.forget(directory, &name);
    }

    /// Returns a directory and a name under which this object was found.
    fn known_name(&self) -> Option<(FileHandle, bytes::Bytes)> {
        let (directory, name) = self.node.opens.lock().name.clone()?;
        Some((self.mount.shared.state.lock().table.by_id(directory)?.handle, name))
    }
}

impl OpenFile {
    /// `started` is the request that returned the attributes; `None` if they are cached ones.
    pub(super) fn new(
        inode: Inode,
        caller: Caller,
        flags: OpenFlags,
        opened: Opened,
        started: Option<Started>,
    ) -> Self {
        {
            let mut opens = inode.node.opens.lock();
            opens.count += 1;
            opens.unprotected += usize::from(!opened.state.preserves_unlinked);
        }
        let shared = &inode.mount.shared;
        shared.open_files.fetch_add(1, Ordering::Relaxed);
        let attributes = match started {
            Some(started) => inode.learn(started, opened.object.attributes),
            None => opened.object.attributes,
        };
        let errors = {
            let mut state = shared.state.lock();
            if let Some(delegation) = opened.delegation {
                state.metadata.attributes.delegate(inode.node.id, delegation);
            }
            state.writes.open(inode.node.id)
        };
        let description = Description {
            caller,
            flags,
            state: opened.state,
            user: shared.limiter.user(),
            ahead: Mutex::default(),
            fetches: Mutex::default(),
            inode,
        };
        Self {
            number: description.inode.client().next_file_number(),
            description: Arc::new(description),
            attributes,
            errors: Mutex::new(Some(errors)),
            late: Mutex::default(),
            is_released: AtomicBool::new(false),
            lock_owners: Mutex::default(),
        }
    }

    /// Returns a description that another process had.
    pub(super) fn restored(
        description: Description,
        attributes: Attributes,
        errors: write::OpenFile,
        number: u64,
        lock_owners: BTreeSet<LockOwner>,
        late: Option<Errno>,
    ) -> Self {
        Self {
            description: Arc::new(description),
            attributes,
            errors: Mutex::new(Some(errors)),
            late: Mutex::new(late),
            is_released: AtomicBool::new(false),
            number,
            lock_owners: Mutex::new(lock_owners),
        }
    }

    /// Returns the file.
    #[must_use]
    pub fn inode(&self) -> &Inode {
        &self.description.inode
    }

    /// Returns the caller that opened the file; reads and writes are made for it.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.description.caller
    }

    /// Returns the options of the open.
    #[must_use]
    pub fn flags(&self) -> OpenFlags {
        self.description.flags
    }

    /// Returns the attributes at the time of the open.
    #[must_use]
    pub fn opened_attributes(&self) -> Attributes {
        self.attributes
    }

    /// Returns the cached size, with the data that this client has not sent yet. `None` if the attributes were evicted.
    #[must_use]
    pub fn known_size(&self) -> Option<u64> {
        let id = self.inode().node.id;
        let state = self.inode().mount().shared.state.lock();
        let known = state.metadata.attributes.last_known(id)?;
        Some(state.size(id, known.size))
    }

    /// Returns the attributes.
    ///
    /// # Errors
    /// As fstat(2).
    pub async fn attributes(&self) -> Result<Attributes, OpError> {
        self.inode().attributes(self.caller()).await
    }

    /// Sets attributes and returns all of them.
    ///
    /// # Errors
    /// As fchmod(2), ftruncate(2).
    pub async fn set_attributes(&self, set: &SetAttributes) -> Result<Attributes, OpError> {
        self.inode().set_attributes(self.caller(), Some(self), set).await
    }

    pub(super) fn state(&self) -> &OpenState {
        &self.description.state
    }

    /// Fails if a request with the state of this description would fail: cached reads and writes send no request.
    ///
    /// # Errors
    /// [`OpError::LockLost`] if the server has dropped a lock through this description; the status if it has dropped the open.
    pub(super) fn check_state(&self) -> Result<(), OpError> {
        match &self.state().file {
            Some(file) if file.has_lost_lock() => Err(OpError::LockLost),
            Some(file) => Ok(file.stateid().map(drop)?),
            None => self.check_locks(),
        }
    }

    /// Fails if the server has dropped a lock of an owner that has locked through this description.
    fn check_locks(&self) -> Result<(), OpError> {
        let owners = self.lock_owners.lock();
        if owners.is_empty() {
            return Ok(());
        }
        let owners: Vec<LockOwner> = owners.iter().copied().collect();
        let has_lost = self.inode().client().has_lost_lock(self.inode().handle(), &owners);
        if has_lost { Err(OpError::LockLost) } else { Ok(()) }
    }

    /// Returns whether data bypass the cache.
    pub(super) fn is_direct(&self) -> bool {
        let inode = self.inode();
        // Under a delegation no lock is lost.
        let hides_lost_locks = self.state().file.as_ref().is_some_and(|file| file.hides_lost_locks())
            && inode.client().delegation(&inode.handle()).is_none();
        self.flags().direct || hides_lost_locks || !self.inode().mount.shared.caches_data
    }

    /// Returns an error of earlier writes that was not reported to this description yet.
    pub(super) fn take_error(&self) -> Result<(), OpError> {
        if let Some(errno) = self.late.lock().take() {
            return Err(late_error(errno));
        }
        let mut errors = self.errors.lock();
        let Some(errors) = errors.as_mut() else { return Ok(()) };
        let taken = self.inode().mount.shared.state.lock().writes.take_error(errors);
        taken.map_err(late_error)
    }

    /// Returns the error that [`Self::take_error`] would report, which it still does.
    pub(super) fn unreported_error(&self) -> Option<Errno> {
        if let Err(error) = self.take_error() {
            *self.late.lock() = Some(error.errno());
        }
        *self.late.lock()
    }

    /// Makes all written data stable. Call it at each close(2) of a descriptor, so that another client that opens the file
    /// later sees the data (close-to-open consistency). Under a delegation for writing it only reports errors: the data are written
    /// back when the server recalls the delegation, a second after they were written, or when memory is short.
    ///
    /// # Errors
    /// As close(2): errors of earlier writes that were not reported yet.
    pub async fn flush(&self) -> Result<(), OpError> {
        match self.flags().mode.write {
            true if self.inode().keeps_written() => {
                // As Linux's client does: the server gives files their times in about the order in which they are closed.
                if !self.inode().client().keeps_times(&self.inode().handle()) {
                    self.inode().start_sending();
                }
                self.take_error()
            }
            true => self.sync().await,
            false => Ok(()),
        }
    }

    /// Ends the description, and the locks of owners that have locked through it. Only the first call has an effect. Call
    /// [`Self::flush`] before, which reports errors. A description that is dropped ends in the background.
    ///
    /// # Errors
    /// An error of earlier writes that was not reported yet, or the server's refusal of CLOSE. The description has ended
    /// nevertheless. The next description of the file gets errors of data that are written back later.
    pub async fn release(&self) -> Result<(), OpError> {
        if self.is_released.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.unlock_all().await;
        let errors = self.errors.lock().take();
        Arc::clone(&self.description).end(errors).await
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if !self.is_released.swap(true, Ordering::Relaxed) {
            let (description, errors) = (Arc::clone(&self.description), self.errors.lock().take());
            let owners = std::mem::take(&mut *self.lock_owners.lock());
            self.inode().client().background().spawn(async move {
                if description.state.file.is_none() {
                    // No CLOSE ends them.
                    description.inode.unlock_all(&description.caller, owners).await;
                }
                // No caller can get an error any more; the file's next description gets it.
                let _ = description.end(errors).await;
            });
        }
    }
}

impl Description {
    async fn end(self: Arc<Self>, errors: Option<write::OpenFile>) -> Result<(), OpError> {
        let (inode, shared) = (&self.inode, &self.inode.mount.shared);
        if inode.has_uncommitted_of(&self) {
            inode.commit_uncached().await;
        }
        if self.linger() {
            let late = errors.map_or(Ok(()), |errors| shared.state.lock().writes.close(errors));
            inode.written_back();
            return late.map_err(late_error);
        }
        if self.is_writer() {
            inode.sync_cached_data().await;
            let mut opens = inode.node.opens.lock();
            if opens.writer.as_ref().is_some_and(|writer| Arc::ptr_eq(writer, &self)) {
                opens.writer = None;
            }
        }
        let late = errors.map_or(Ok(()), |errors| shared.state.lock().writes.close(errors));
        let hidden = self.uncount();
        let closed = self.close().await;
        if let Some(hidden) = hidden {
            inode.give_back().await;
            // No caller waits for the outcome; a remaining name is visible to the user.
            let _ = hidden.remove().await;
        }
        late.map_err(late_error).and(closed)
    }

    /// Closes the file.
    pub(super) async fn close(&self) -> Result<(), OpError> {
        self.fetches_ended().await;
        let inode = &self.inode;
        inode.mount.shared.open_files.fetch_sub(1, Ordering::Relaxed);
        inode.client().close_file(&self.caller, inode.handle(), &self.state).await
    }

    /// Notes the release. Returns the name to remove.
    fn uncount(&self) -> Option<HiddenName> {
        let mut opens = self.inode.node.opens.lock();
        opens.uncount(&self.state);
        if opens.count == 0 { opens.hidden.take() } else { None }
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inode, flags) = (self.inode(), self.flags());
        f.debug_struct("OpenFile").field("inode", inode).field("flags", &flags).finish_non_exhaustive()
    }
}

impl fmt::Debug for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Description").field("inode", &self.inode.id()).finish_non_exhaustive()
    }
}

impl Description {
    /// Returns whether WRITEs of the file are made for this description.
    pub(super) fn is_writer(&self) -> bool {
        let opens = self.inode.node.opens.lock();
        opens.writer.as_ref().is_some_and(|writer| std::ptr::eq(&**writer, self))
    }

    /// Waits until no READ in the background uses the open state.
    async fn fetches_ended(&self) {
        poll_fn(|context| {
            let mut fetches = self.fetches.lock();
            if fetches.count == 0 {
                return Poll::Ready(());
            }
            fetches.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

fn late_error(errno: Errno) -> OpError {
    OpError::Invalid(errno, "data that were written earlier could not be stored")
}
