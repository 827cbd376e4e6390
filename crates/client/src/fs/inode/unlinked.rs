//! Files that are open although their last name is gone.
//!
//! A server of version 3 knows no opens, and removes a file with its last name. As every client does, this one renames an
//! open file to `.nfs…` instead, and removes that name at the last release. In version 4 it does the same, unless the server
//! promised to keep open files (`OPEN4_RESULT_PRESERVE_UNLINKED`, RFC 8881 §18.16.3).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use protocol::nfs4::types::Status;

use super::hidden_name::HiddenName;
use super::open::Description;
use super::{Inode, Mount};
use crate::cache::FileId;
use crate::config::Caller;
use crate::error::OpError;
use crate::results::OpenState;

/// Names that are tried for a file before its removal fails: another client may use the same ones.
const NAMES_MAX: u32 = 64;

/// The open descriptions of an object.
#[derive(Debug, Default)]
pub(super) struct Opens {
    pub(super) count: usize,
    /// Those whose server may remove the file while it is open.
    pub(super) unprotected: usize,
    /// A name under which the object was found last, and its directory. An OPEN of version 4.0 needs it.
    pub(super) name: Option<(FileId, Bytes)>,
    /// The description that WRITEs are made for, as long as there may be unstable data.
    pub(super) writer: Option<Arc<Description>>,
    /// Whether the writer was released, and only its data remain, under a delegation.
    pub(super) lingers: bool,
    /// The name to remove at the last release.
    pub(super) hidden: Option<HiddenName>,
}

impl Opens {
    /// Takes the description that lingers, if there is one.
    pub(super) fn take_lingering(&mut self) -> Option<Arc<Description>> {
        if std::mem::take(&mut self.lingers) { self.writer.take() } else { None }
    }

    /// Notes the release of a description.
    pub(super) fn uncount(&mut self, state: &OpenState) {
        self.count -= 1;
        self.unprotected -= usize::from(!state.preserves_unlinked);
    }

    pub(super) fn note_name(&mut self, directory: FileId, name: &[u8]) {
        if self.name.as_ref().is_none_or(|(known, known_name)| *known != directory || known_name != name) {
            self.name = Some((directory, Bytes::copy_from_slice(name)));
        }
    }
}

impl Mount {
    /// Returns whether any file of the mount is open.
    pub(super) fn has_open_files(&self) -> bool {
        self.shared.open_files.load(Ordering::Relaxed) > 0
    }
}

impl Inode {
    /// Renames this object if it is open and would be lost with its name in `directory`, which is about to be removed.
    /// Returns whether it did.
    pub(super) async fn keep_unlinked(
        &self,
        caller: &Caller,
        directory: &Self,
        name: &[u8],
    ) -> Result<bool, OpError> {
        let is_needed = {
            let opens = self.node.opens.lock();
            opens.unprotected > 0 && opens.hidden.is_none()
        };
        if !is_needed {
            return Ok(false);
        }
        let hidden = self.free_name(caller, directory).await?;
        let (from, to) = ((directory.handle(), name), (directory.handle(), &hidden[..]));
        let change = directory.start_change();
        match self.client().rename(caller, from, to).await {
            Ok((changed, _)) => change.end(Some(changed)),
            Err(error) => {
                change.end_failed(&error);
                return Err(error);
            }
        }
        directory.name_changed(name, None);
        directory.name_changed(&hidden, Some(self));
        let hidden = HiddenName { directory: directory.clone(), name: hidden, caller: caller.clone() };
        let unused = {
            let mut opens = self.node.opens.lock();
            match opens.count {
                0 => Some(hidden),
                _ => {
                    opens.hidden = Some(hidden);
                    None
                }
            }
        };
        if let Some(hidden) = unused {
            // The last description was released meanwhile.
            hidden.remove().await?;
        }
        Ok(true)
    }

    /// Returns a name that the directory does not have.
    async fn free_name(&self, caller: &Caller, directory: &Self) -> Result<Vec<u8>, OpError> {
        for _ in 0..NAMES_MAX {
            let number = self.mount.shared.next_hidden.fetch_add(1, Ordering::Relaxed);
            let name = format!(".nfs{:016x}{number:08x}", self.id().0).into_bytes();
            match self.client().lookup(caller, directory.handle(), &name).await {
                Err(OpError::Status(Status::NOENT)) => return Ok(name),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Err(OpError::Status(Status::FILE_OPEN))
    }
}
