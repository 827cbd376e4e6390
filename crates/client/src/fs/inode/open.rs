//! Open files.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use protocol::nfs4::types::Status;

use super::Inode;
use crate::attributes::{Attributes, FileKind, SetAttributes};
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::locks::LockOwner;
use crate::results::{FileHandle, OpenMode, OpenState, Opened, Stability};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFlags {
    /// For reading or writing.
    pub mode: OpenMode,
    /// How stable data are when a write returns: `DataSync` for O_DSYNC, `FileSync` for O_SYNC.
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

    /// Returns flags with this mode alone.
    #[must_use]
    pub const fn of(mode: OpenMode) -> Self {
        Self { mode, stability: Stability::Unstable, direct: false }
    }
}

/// An open file description. Give it back by [`Self::release`].
#[derive(Debug)]
pub struct OpenFile {
    inode: Inode,
    caller: Caller,
    flags: OpenFlags,
    state: OpenState,
    attributes: Attributes,
    is_released: AtomicBool,
    /// The number of this open file in its client.
    pub(super) number: u64,
    /// Owners that may have locked something through this file.
    pub(super) lock_owners: Mutex<BTreeSet<LockOwner>>,
    /// The verifier of unstable WRITEs since the last COMMIT; `None` if there were none.
    pub(super) unstable: Mutex<Option<[u8; 8]>>,
}

impl Inode {
    /// Opens a regular file.
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
        let name = self.known_name();
        let name = name.as_ref().map(|(directory, name)| (*directory, &name[..]));
        let opened = self.client().open_handle(caller, self.handle(), name, flags.mode).await?;
        Ok(OpenFile::new(self.clone(), caller.clone(), flags, opened))
    }

    /// Returns a directory and a name under which this object was found.
    fn known_name(&self) -> Option<(FileHandle, bytes::Bytes)> {
        let (directory, name) = self.node.opens.lock().name.clone()?;
        Some((self.mount.shared.table.lock().by_id(directory)?.handle, name))
    }
}

impl OpenFile {
    pub(super) fn new(inode: Inode, caller: Caller, flags: OpenFlags, opened: Opened) -> Self {
        {
            let mut opens = inode.node.opens.lock();
            opens.count += 1;
            opens.unprotected += usize::from(!opened.state.preserves_unlinked);
        }
        inode.mount.shared.open_files.fetch_add(1, Ordering::Relaxed);
        Self {
            number: inode.client().next_file_number(),
            inode,
            caller,
            flags,
            state: opened.state,
            attributes: opened.object.attributes,
            is_released: AtomicBool::new(false),
            lock_owners: Mutex::default(),
            unstable: Mutex::new(None),
        }
    }

    /// Returns the file.
    #[must_use]
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Returns who opened the file; reads and writes are made for this caller.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns how the file was opened.
    #[must_use]
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// Returns the attributes as they were when the file was opened.
    #[must_use]
    pub fn opened_attributes(&self) -> Attributes {
        self.attributes
    }

    /// Returns the attributes.
    ///
    /// # Errors
    /// As fstat(2).
    pub async fn attributes(&self) -> Result<Attributes, OpError> {
        self.inode.attributes(&self.caller).await
    }

    /// Sets attributes and returns all of them.
    ///
    /// # Errors
    /// As fchmod(2), ftruncate(2).
    pub async fn set_attributes(&self, set: &SetAttributes) -> Result<Attributes, OpError> {
        self.inode.set_attributes(&self.caller, Some(self), set).await
    }

    pub(super) fn state(&self) -> &OpenState {
        &self.state
    }

    /// Makes everything stable that was written. Call it at each close(2) of a descriptor: it is what another client sees that
    /// opens the file later (close-to-open consistency).
    ///
    /// # Errors
    /// As close(2): errors of earlier writes that were not reported yet.
    pub async fn flush(&self) -> Result<(), OpError> {
        if self.flags.mode.write { self.sync().await } else { Ok(()) }
    }

    /// Ends the description, and the locks of owners that have locked through it. Only the first call has an effect. Call [`Self::flush`] before, which reports errors.
    ///
    /// # Errors
    /// The server's refusal of CLOSE; the description has ended all the same.
    pub async fn release(&self) -> Result<(), OpError> {
        if self.is_released.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.unlock_all().await;
        let hidden = self.uncount();
        let closed = self.inode.client().close_file(&self.caller, self.inode.handle(), &self.state).await;
        if let Some(hidden) = hidden {
            // Nobody waits for the outcome; a name that stays is visible to the user.
            let _ = hidden.remove().await;
        }
        closed
    }

    fn uncount(&self) -> Option<super::unlinked::HiddenName> {
        self.inode.mount.shared.open_files.fetch_sub(1, Ordering::Relaxed);
        let mut opens = self.inode.node.opens.lock();
        opens.count -= 1;
        opens.unprotected -= usize::from(!self.state.preserves_unlinked);
        if opens.count == 0 { opens.hidden.take() } else { None }
    }
}
