//! NFS version 3 (RFC 1813), with its companions MOUNT, NFS_ACL, NLM and NSM. Version 2 has the same operations: [`nfs2`](crate::nfs2)
//! performs the procedures of version 3 by its own.
//!
//! Version 3 has no session and no state: a call is its transaction ID, its arguments and its reply. [`calls`] sends them,
//! [`ops`] are the operations, [`mount`] finds the handle of the root, [`nlm`] has the locks.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::future::{Either, select};
use protocol::nfs3::{PORT, PROGRAM};
use rpc::message::{AcceptStatus, RpcError};

use crate::calls::{Calls, open_connection};
use crate::config::{Config, LEAVE_MAX, Version};
use crate::engine::{CallError, ConnectionId, Engine};
use crate::error::OpError;
use crate::locks::LocalLocks;

mod calls;
mod convert;
mod mount;
mod nlm;
mod ops;
mod side;

use mount::MountPaths;
use nlm::Nlm;

/// NFS version 3 or 2 with one server.
pub(crate) struct Nfs3 {
    engine: Arc<Engine>,
    config: Arc<Config>,
    version: Version,
    calls: Calls,
    /// The port of NFS.
    port: u16,
    mounts: MountPaths,
    local_locks: LocalLocks,
    /// Locks at the server.
    nlm: Arc<Nlm>,
    /// Set once the server has rejected READDIRPLUS as unknown.
    lacks_readdirplus: AtomicBool,
}

impl Nfs3 {
    /// Checks that the server has the version, which is 3 or 2. If the configuration has the usual port and the version is not found
    /// there, this asks the port mapper for another.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] if the server does not have the version.
    pub(crate) async fn establish(
        engine: Arc<Engine>,
        config: Arc<Config>,
        connections: Vec<ConnectionId>,
        version: Version,
    ) -> Result<Self, OpError> {
        let mut nfs3 = Self {
            port: config.port,
            nlm: Nlm::new(Arc::clone(&engine), Arc::clone(&config), config.port, version),
            calls: Calls::new(Arc::clone(&engine), &config, connections),
            engine,
            config,
            version,
            mounts: MountPaths::default(),
            local_locks: LocalLocks::default(),
            lacks_readdirplus: AtomicBool::new(false),
        };
        let at_usual_port = nfs3.null().await;
        if let Err(error) = at_usual_port {
            let is_elsewhere = nfs3.config.port == PORT
                && matches!(error, OpError::Call(CallError::Unreachable(_)) | OpError::Unsupported(_));
            let port = if is_elsewhere { nfs3.mapped_port().await } else { None };
            let Some(port) = port else { return Err(error) };
            nfs3.connect_to(port)?;
            nfs3.null().await?;
        }
        Ok(nfs3)
    }

    /// Replaces the connections by ones to another port.
    fn connect_to(&mut self, port: u16) -> Result<(), OpError> {
        let (engine, policy, transport) = (&self.engine, self.config.retry, self.config.transport);
        let open = |_: &ConnectionId| open_connection(engine, transport, port, policy);
        let replaced = self.calls.connections.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        for old in std::mem::replace(&mut self.calls.connections, replaced) {
            self.engine.close_connection(old);
        }
        self.port = port;
        self.nlm = Nlm::new(Arc::clone(engine), Arc::clone(&self.config), port, self.version);
        Ok(())
    }

    /// Keeps locks until the client is closed.
    pub(crate) async fn run(&self) {
        let calls = async {
            // Servers call at a port of its own; here for the sake of those that use the client's connection.
            while let Some((path, record)) = poll_fn(|context| self.engine.poll_callback(context)).await {
                self.engine.answer(path, self.nlm.answer(record), false);
            }
        };
        select(pin!(calls), pin!(self.nlm.run())).await;
    }

    /// Releases locks, and tells the server that its mounts are gone. Their list at the server is for information only
    /// (RFC 1813 §5.2.3), so that failures of that do not matter.
    ///
    /// # Errors
    /// That of a lock that was not released.
    pub(crate) async fn leave(&self) -> Result<(), OpError> {
        let released = match select(pin!(self.nlm.leave()), pin!(self.engine.sleep(LEAVE_MAX))).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(_) => Err(CallError::TimedOut.into()),
        };
        self.unmount_all().await;
        released
    }

    /// Returns the number of calls in flight, and of those that had to wait for others.
    pub(crate) fn slot_use(&self) -> (usize, usize) {
        self.calls.usage()
    }

    /// Calls NULL, which every version has.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] if the server does not have the version.
    async fn null(&self) -> Result<(), OpError> {
        self.calls.null(PROGRAM, self.number()).await.map_err(|error| match error {
            error if lacks_program(&error) => OpError::Unsupported(match self.version {
                Version::V2 => "NFS version 2",
                _ => "NFS version 3",
            }),
            error => error,
        })
    }

    /// Returns the number of the version in calls.
    fn number(&self) -> u32 {
        match self.version {
            Version::V2 => protocol::nfs2::VERSION,
            _ => protocol::nfs3::VERSION,
        }
    }
}

/// Returns whether the server does not have a program, or not in this version.
fn lacks_program(error: &OpError) -> bool {
    matches!(
        error,
        OpError::Call(CallError::Rpc(RpcError::NotExecuted(
            AcceptStatus::ProgramUnavailable | AcceptStatus::ProgramMismatch(_)
        )))
    )
}
