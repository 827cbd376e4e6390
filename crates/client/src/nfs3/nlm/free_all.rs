//! FREE_ALL (RFC 1813 §6.3.9; XNFS): frees the locks of a client that has ended without unlocking them.

use protocol::nlm::{self, Name, Notify, Proc};

use super::super::side::SideConnection;
use super::Nlm;
use crate::calls::Procedure;
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;

impl Nlm {
    /// Frees all locks of the client of this name, which must have ended. A server knows it by its name and this machine's address.
    /// The call is made once: it can be repeated at any time.
    ///
    /// # Errors
    /// EINVAL if the name is too long; ENOLCK if the server has no lock manager, or it cannot be reached.
    pub(crate) async fn free_all(&self, name: &[u8]) -> Result<(), OpError> {
        let name =
            Name::new(name.to_vec()).map_err(|_| OpError::Invalid(Errno::EINVAL, "the name is too long"))?;
        let port = self.reach().await?;
        // Version 1, for NFS version 2, has no such procedure.
        let procedure = Procedure { program: nlm::PROGRAM, version: nlm::VERSION, number: Proc::FREE_ALL.0 };
        let connection = SideConnection::open(&self.engine, self.config.transport, port)?;
        connection.call(&Caller::anonymous(), procedure, &Notify { name, state: self.state }).await
    }
}
