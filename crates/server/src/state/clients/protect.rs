//! Checks of SP4_MACH_CRED before operations on client IDs and sessions.

use protocol::nfs4::types::OpNum;

use crate::state::root::State;
use crate::state::tables::principal::Credential;
use crate::state::tables::wire::{ClientId, SessionId, Status};

impl State {
    /// Checks that `by` may execute an operation that SP4_MACH_CRED restricts, on this client ID (§18.36, §18.50). An unknown ID
    /// passes; the operation refuses it.
    ///
    /// # Errors
    /// WRONG_CRED.
    pub fn admit_to_client(&self, operation: OpNum, id: ClientId, by: &Credential) -> Result<(), Status> {
        let table = self.clients.lock();
        table.record(id).map_or(Ok(()), |record| record.client.admit(operation, by))
    }

    /// As [`Self::admit_to_client`], for a session: §18.34, §18.37.
    ///
    /// # Errors
    /// WRONG_CRED.
    pub fn admit_to_session(&self, operation: OpNum, id: &SessionId, by: &Credential) -> Result<(), Status> {
        self.sessions.get(id).map_or(Ok(()), |session| session.client.admit(operation, by))
    }
}
