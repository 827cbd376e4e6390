//! Watched directories.

use super::{Client, Protocol};
use crate::config::Caller;
use crate::directory_watches::{DirectoryEvent, DirectoryWatch};
use crate::error::OpError;
use crate::results::FileHandle;

/// Watched directories (RFC 8881 §10.9): versions 4.1 and 4.2, where the server has delegations of directories.
impl Client {
    /// Asks the server to tell of changes of the names in directories ([`Self::directory_events`]).
    ///
    /// # Errors
    /// The server or the version has no such delegations, or the status of a directory.
    pub async fn watch_directories(
        &self,
        caller: &Caller,
        directories: &[FileHandle],
    ) -> Vec<Result<DirectoryWatch, OpError>> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.watch_directories(caller, directories).await,
            Protocol::Nfs3(_) => {
                let unsupported = || Err(OpError::Unsupported("directory delegations"));
                directories.iter().map(|_| unsupported()).collect()
            }
        }
    }

    /// Ends watches. Nothing happens to directories that are not watched.
    pub async fn unwatch_directories(&self, caller: &Caller, directories: &[FileHandle]) {
        if let Protocol::Nfs4(nfs4) = &self.inner.protocol {
            nfs4.unwatch_directories(caller, directories).await;
        }
    }

    /// Takes what the server has told about watched directories; waits for it. Only one task may wait. After
    /// [`DirectoryEvent::Recalled`] the watcher must call [`Self::unwatch_directories`].
    pub async fn directory_events(&self) -> Vec<(FileHandle, DirectoryEvent)> {
        match &self.inner.protocol {
            Protocol::Nfs4(nfs4) => nfs4.directory_events().await,
            Protocol::Nfs3(_) => std::future::pending().await,
        }
    }
}
