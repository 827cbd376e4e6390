//! Connections to the programs beside NFS: MOUNT, the lock manager, the status monitor, and the port mapper (RFC 1833 §3).

use std::sync::Arc;
use std::time::Duration;

use protocol::{nfs3, portmap};
use rpc::message::{RpcError, parse_reply};
use xdr::{Decode, Encode};

use super::lacks_program;
use crate::calls::{Procedure, open_connection, start_record};
use crate::config::Caller;
use crate::engine::{CallError, ConnectionId, Engine, RetryPolicy};
use crate::error::OpError;
use crate::url::Transport;

/// Timeout of these programs, and retries. No data are lost if they fail, so that even a `hard` mount does not wait for them
/// without limit.
const SIDE_POLICY: RetryPolicy =
    RetryPolicy { timeout: Duration::from_secs(10), retries: Some(2), fails_fast: true };
/// The same over UDP. With each timeout twice the one before, it lasts 31 s.
const SIDE_POLICY_UDP: RetryPolicy =
    RetryPolicy { timeout: Duration::from_secs(1), retries: Some(4), fails_fast: true };

/// A connection to such a program, which is closed after use.
pub(super) struct SideConnection<'a> {
    engine: &'a Arc<Engine>,
    id: ConnectionId,
}

impl<'a> SideConnection<'a> {
    pub(super) fn open(engine: &'a Arc<Engine>, transport: Transport, port: u16) -> Result<Self, OpError> {
        let policy = match transport {
            Transport::Tcp => SIDE_POLICY,
            Transport::Udp => SIDE_POLICY_UDP,
        };
        Ok(Self { engine, id: open_connection(engine, transport, port, policy)? })
    }

    pub(super) async fn call<T: Decode>(
        &self,
        caller: &Caller,
        procedure: Procedure,
        arguments: &impl Encode,
    ) -> Result<T, OpError> {
        let call = self.engine.call(self.id, |xid| {
            let mut record = start_record(xid, caller, procedure);
            arguments.encode(record.writer());
            record.finish()
        });
        Ok(parse_reply(call.await?)?)
    }
}

impl Drop for SideConnection<'_> {
    fn drop(&mut self) {
        self.engine.close_connection(self.id);
    }
}

/// A possible location of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Port(u16),
    PortMapper,
}

impl Place {
    /// Returns the possible locations of a program, in order. At an unusual NFS port there is a server that other servers' port mapper
    /// may not know.
    pub(super) fn all(configured: Option<u16>, nfs_port: u16) -> Vec<Self> {
        match configured {
            Some(port) => vec![Self::Port(port)],
            None if nfs_port == nfs3::PORT => vec![Self::PortMapper, Self::Port(nfs_port)],
            None => vec![Self::Port(nfs_port), Self::PortMapper],
        }
    }

    /// Returns the port of a program there.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] with `what` if the port mapper does not know it.
    pub(super) async fn port(
        self,
        engine: &Arc<Engine>,
        transport: Transport,
        (program, version): (u32, u32),
        what: &'static str,
    ) -> Result<u16, OpError> {
        match self {
            Self::Port(port) => Ok(port),
            Self::PortMapper => {
                let port = ask_port_mapper(engine, transport, program, version).await?;
                port.ok_or(OpError::Unsupported(what))
            }
        }
    }
}

/// Returns the port that the server's port mapper has for a program. It is asked over the same transport.
pub(super) async fn ask_port_mapper(
    engine: &Arc<Engine>,
    transport: Transport,
    program: u32,
    version: u32,
) -> Result<Option<u16>, OpError> {
    let connection = SideConnection::open(engine, transport, portmap::PORT)?;
    let getport =
        Procedure { program: portmap::PROGRAM, version: portmap::VERSION, number: portmap::Proc::GETPORT.0 };
    let protocol = match transport {
        Transport::Tcp => portmap::Protocol::TCP,
        Transport::Udp => portmap::Protocol::UDP,
    };
    let service = portmap::Mapping { program, version, protocol, port: 0 };
    let port: u32 = connection.call(&Caller::anonymous(), getport, &service).await?;
    match u16::try_from(port) {
        Ok(0) => Ok(None),
        Ok(port) => Ok(Some(port)),
        Err(_) => Err(OpError::BadReply("a port above 65535")),
    }
}

/// Returns whether an error means that a program is not at this location.
pub(super) fn is_absent(error: &OpError) -> bool {
    lacks_program(error)
        || matches!(
            error,
            OpError::Call(
                CallError::Unreachable(_) | CallError::TimedOut | CallError::Rpc(RpcError::Garbled(_))
            ) | OpError::Unsupported(_)
        )
}
