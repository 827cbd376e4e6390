//! Another process continues the client.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Client, Protocol};
use crate::errno::Errno;
use crate::error::OpError;
use crate::hand_over::{ClientState, Identity};
use crate::results::OpenState;

/// For another process that continues the client. The order of calls: the other process connects with name, verifier and version
/// of the identity ([`Self::identity`]), and its client ID as [`Config::continues`](crate::config::Config::continues). When no
/// operation is under way any longer, this process calls [`Self::settle`] and [`Self::save`], the other one [`Self::restore`].
/// This one ends by [`Self::detach`].
impl Client {
    /// Returns who the client is for its server.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let config = &self.inner.config;
        let client_id = match &self.inner.protocol {
            Protocol::Nfs3(_) => None,
            Protocol::Nfs4(nfs4) => Some(nfs4.client_id()),
        };
        Identity {
            minor: self.inner.version.minor(),
            owner: config.owner.to_vec(),
            verifier: config.verifier,
            host_name: config.host_name.to_vec(),
            client_id,
        }
    }

    /// Returns all delegations, and waits until operations whose caller has gone have ended.
    pub async fn settle(&self) {
        self.background().awaited_ended().await;
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.nlm().settle().await,
            Protocol::Nfs4(nfs4) => nfs4.settle().await,
        }
    }

    /// Returns opens and locks.
    ///
    /// # Errors
    /// EBUSY: a request for one of them is under way.
    pub fn save(&self) -> Result<ClientState, OpError> {
        let state = match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => {
                let (lockers, last_lock_owner) = nfs3.nlm().save()?;
                ClientState { lockers, last_lock_owner, ..ClientState::default() }
            }
            Protocol::Nfs4(nfs4) => nfs4.save()?,
        };
        Ok(ClientState { files_opened: self.inner.files_opened.load(Ordering::Relaxed), ..state })
    }

    /// Takes opens and locks of another process. This client must not have any.
    ///
    /// # Errors
    /// EINVAL: they are not valid.
    pub fn restore(&self, state: ClientState) -> Result<(), OpError> {
        self.inner.files_opened.store(state.files_opened, Ordering::Relaxed);
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.nlm().restore_all(state.lockers, state.last_lock_owner),
            Protocol::Nfs4(nfs4) => nfs4.restore(state),
        }
    }

    /// Returns the state of an open that was restored.
    ///
    /// # Errors
    /// EINVAL: there is none with this number.
    pub(crate) fn restored_open(
        &self,
        number: Option<u32>,
        preserves_unlinked: bool,
    ) -> Result<OpenState, OpError> {
        let open = match (&self.inner.protocol, number) {
            (Protocol::Nfs3(_), None) => Some(OpenState { file: None, preserves_unlinked }),
            (Protocol::Nfs4(nfs4), Some(number)) => nfs4.restored_open(number, preserves_unlinked),
            _ => None,
        };
        open.ok_or(OpError::Invalid(Errno::EINVAL, "an open that does not exist"))
    }

    /// Closes in the background the opens whose numbers are not among `kept`.
    pub(crate) fn close_others(&self, kept: HashSet<u32>) {
        if let Protocol::Nfs4(nfs4) = &self.inner.protocol {
            let nfs4 = Arc::clone(nfs4);
            self.background().spawn(async move { nfs4.close_others(&kept).await });
        }
    }

    /// Ends the engine, and leaves opens and locks at the server to the process that continues the client, or has never begun.
    pub async fn detach(&self) {
        if let Protocol::Nfs4(nfs4) = &self.inner.protocol {
            // The server destroys it with the client ID.
            let _ = nfs4.detach().await;
        }
        self.inner.engine.shut_down();
    }
}
