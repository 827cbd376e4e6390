//! Another process continues the client: its client ID, opens and locks.

use std::collections::HashSet;
use std::sync::Arc;

use super::Nfs4;
use crate::error::OpError;
use crate::hand_over::ClientState;
use crate::results::OpenState;

impl Nfs4 {
    /// Returns all delegations, and waits until operations that were abandoned have ended, which may have got delegations.
    pub(crate) async fn settle(&self) {
        loop {
            self.background.idle().await;
            self.give_back_all().await;
            if self.delegations.is_empty() {
                return;
            }
        }
    }

    /// Returns the opens and locks.
    ///
    /// # Errors
    /// A request for one of them is under way, or one is under a delegation.
    pub(crate) fn save(&self) -> Result<ClientState, OpError> {
        let (opens, last_open_owner) = self.opens.save()?;
        let (lockers, last_lock_owner) = self.locks.save()?;
        Ok(ClientState { files_opened: 0, last_open_owner, last_lock_owner, opens, lockers })
    }

    /// Takes the opens and locks of another process.
    ///
    /// # Errors
    /// They are not valid, or the server has forgotten the client.
    pub(crate) fn restore(&self, state: ClientState) -> Result<(), OpError> {
        self.opens.restore(state.opens, state.last_open_owner)?;
        self.locks.restore(state.lockers, state.last_lock_owner, &self.opens)?;
        self.end_take_over()
    }

    /// Returns the open with this number.
    pub(crate) fn restored_open(&self, number: u32, preserves_unlinked: bool) -> Option<OpenState> {
        Some(OpenState { file: Some(self.opens.find(number)?), preserves_unlinked })
    }

    /// Closes the opens whose numbers are not among `kept`: no program has them any longer.
    pub(crate) async fn close_others(self: &Arc<Self>, kept: &HashSet<u32>) {
        for file in self.opens.all().into_iter().filter(|file| !kept.contains(&file.owner)) {
            let (caller, handle) = (file.caller.clone(), file.handle);
            let state = OpenState { file: Some(file), preserves_unlinked: true };
            // Its state ends with the client at the latest.
            let _ = self.close_file(&caller, handle, &state).await;
        }
    }

    /// Destroys the session: another process has continued the client.
    pub(crate) async fn detach(&self) -> Result<(), OpError> {
        let session = self.session().await?;
        self.setup().destroy_session(&session).await
    }
}
