//! A name that only keeps an open file: see [`super::unlinked`].

use protocol::nfs4::types::Status;

use super::Inode;
use crate::config::Caller;
use crate::error::OpError;

/// A name that only keeps an open file.
#[derive(Debug)]
pub(super) struct HiddenName {
    pub(super) directory: Inode,
    pub(super) name: Vec<u8>,
    pub(super) caller: Caller,
}

impl HiddenName {
    /// Removes the name. A name that does not exist any more is not an error.
    pub(super) async fn remove(self) -> Result<(), OpError> {
        match self.directory.remove(&self.caller, &self.name, false).await {
            Err(OpError::Status(Status::NOENT)) => Ok(()),
            outcome => outcome,
        }
    }
}
