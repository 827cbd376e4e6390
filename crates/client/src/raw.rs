//! The low-level interface: sessions and compounds of any operations, for load generators, for tests of servers, and for programs
//! that need a session without files.
//!
//! A [`RawSession`] is created like the session of a [`Client`](crate::Client), by the same code, but without a background task:
//! none renews its lease, replaces it when it is lost, or answers callbacks. Its callers do this if they need it; callbacks come
//! from [`Engine::poll_callback`]. [`send_compound`] sends compounds that no client would send, for instance with a wrong
//! sequence ID.

use std::sync::Arc;

use bytes::Bytes;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::session::{CreateSessionFlags, SequenceArgs};
use protocol::nfs4::types::{ClientId, NetAddress, SessionId, Status, Utf8};
use rpc::message::parse_reply;

use crate::config::{Caller, Config};
use crate::engine::{CallError, ConnectionId, Engine};
use crate::error::OpError;
pub use crate::nfs4::{CallbackHandler, Unexecuted};
use crate::nfs4::{Session, Setup, as_unsupported, encode_compound};

/// The results of an executed compound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompoundOutcome {
    /// The status of the last operation executed.
    pub status: Status,
    /// The results without SEQUENCE's, up to the first failure.
    pub results: Vec<OpResult>,
}

/// A client ID with one session of version 4.1 or 4.2 over one connection. See the [module's documentation](self).
pub struct RawSession {
    engine: Arc<Engine>,
    connection: ConnectionId,
    config: Arc<Config>,
    session: Arc<Session>,
}

impl RawSession {
    /// Gets a client ID (EXCHANGE_ID) and a session (CREATE_SESSION) with these flags, in the configured version. The client may
    /// reclaim state until [`Self::reclaim_complete`].
    ///
    /// # Errors
    /// [`OpError::Unsupported`] if the server does not support the version, or the configuration names none with sessions; the status
    /// with which the server refuses; the reason for a missing reply.
    pub async fn create(
        engine: Arc<Engine>,
        connection: ConnectionId,
        config: Arc<Config>,
        flags: CreateSessionFlags,
    ) -> Result<Self, OpError> {
        let setup = setup(&engine, connection, &config, flags)?;
        let mut registration = setup.register().await.map_err(as_unsupported)?;
        let session = setup.create_session(&mut registration, &[connection]).await?;
        Ok(Self { engine, connection, config, session })
    }

    /// As [`Self::create`], and sends RECLAIM_COMPLETE.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub async fn open(
        engine: Arc<Engine>,
        connection: ConnectionId,
        config: Arc<Config>,
        flags: CreateSessionFlags,
    ) -> Result<Self, OpError> {
        let session = Self::create(engine, connection, config, flags).await?;
        session.reclaim_complete().await?;
        Ok(session)
    }

    /// Sends RECLAIM_COMPLETE: the client has nothing to reclaim any longer.
    ///
    /// # Errors
    /// The status, or the reason for a missing reply.
    pub async fn reclaim_complete(&self) -> Result<(), OpError> {
        self.setup()?.reclaim_complete(&self.session).await
    }

    /// Waits for a free slot, and executes a compound in it; repeats it in the same slot while SEQUENCE returns DELAY.
    ///
    /// # Errors
    /// The reason why the compound was not executed, as far as known. A failed operation is in the outcome.
    pub async fn call(&self, caller: &Caller, ops: &[Op]) -> Result<CompoundOutcome, Unexecuted> {
        let mut results = self.session.compound(caller.credential(), ops, false).await?;
        let count = results.len();
        Ok(CompoundOutcome { status: results.status(), results: results.take_results(count) })
    }

    /// Answers a callback (RFC 8881 §20) and has `handler` execute its operations; a repetition gets the same reply. Returns the record
    /// of the reply, for [`Engine::send_reply`]; `None` if no reply is possible.
    pub fn answer_callback(&self, record: Bytes, handler: &dyn CallbackHandler) -> Option<Bytes> {
        self.session.callbacks.answer(record, handler)
    }

    /// Destroys the session and the client ID, so that the server forgets the client at once.
    ///
    /// # Errors
    /// The status, or the reason for a missing reply.
    pub async fn destroy(&self) -> Result<(), OpError> {
        self.setup()?.leave(&self.session).await.map(drop)
    }

    fn setup(&self) -> Result<Setup<'_>, OpError> {
        setup(&self.engine, self.connection, &self.config, self.session.granted)
    }
}

/// Getters.
impl RawSession {
    /// Returns the session ID.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.session.id
    }

    /// Returns the client ID.
    #[must_use]
    pub fn client_id(&self) -> ClientId {
        self.session.client_id
    }

    /// Returns the flags of CREATE_SESSION that the server granted.
    #[must_use]
    pub fn flags(&self) -> CreateSessionFlags {
        self.session.granted
    }

    /// Returns the maximum bytes of a reply.
    #[must_use]
    pub fn max_response(&self) -> u32 {
        self.session.limits.response
    }

    /// Returns the sequence ID of the last executed request in each slot, 0 before the first: for callers that send further requests
    /// without it. They must not use [`Self::call`] and [`Self::reclaim_complete`] any longer.
    #[must_use]
    pub fn sequences(&self) -> Vec<u32> {
        self.session.sequences()
    }

    /// Returns the status for which the session was lost.
    #[must_use]
    pub fn lost(&self) -> Option<Status> {
        self.session.lost()
    }
}

fn setup<'a>(
    engine: &'a Arc<Engine>,
    connection: ConnectionId,
    config: &'a Config,
    flags: CreateSessionFlags,
) -> Result<Setup<'a>, OpError> {
    let minor = config.version.and_then(crate::config::Version::minor).filter(|minor| *minor > 0);
    let minor_version = minor.ok_or(OpError::Unsupported("a session in this version of NFS"))?;
    Ok(Setup { engine, connection, config, minor_version, flags, is_taking_over: false })
}

/// Sends a compound unchanged, with this SEQUENCE or without one, and returns any result of the server.
///
/// # Errors
/// No reply came, or none that can be decoded.
pub async fn send_compound(
    engine: &Arc<Engine>,
    connection: ConnectionId,
    caller: &Caller,
    minor_version: u32,
    sequence: Option<SequenceArgs>,
    ops: &[Op],
) -> Result<CompoundResult, CallError> {
    let call = engine
        .call(connection, |xid| encode_compound(xid, caller.credential(), minor_version, sequence, ops));
    Ok(parse_reply(call.await?)?)
}

/// Returns EXCHANGE_ID of a client with this configuration, for callers without an engine.
///
/// # Errors
/// The client's name is too long.
pub fn exchange_id(config: &Config) -> Result<Op, OpError> {
    crate::nfs4::exchange_id(config)
}

/// Returns CREATE_SESSION of a client with this configuration, for callers without an engine.
#[must_use]
pub fn create_session(config: &Config, flags: CreateSessionFlags, client_id: ClientId, sequence: u32) -> Op {
    crate::nfs4::create_session(config, flags, client_id, sequence)
}

/// Returns SETCLIENTID of a client of version 4.0 with this configuration, for callers without an engine. The client accepts
/// callbacks at this universal address (RFC 5665 §5.2.3.3).
///
/// # Errors
/// The client's name is too long.
pub fn set_client_id(config: &Config, address: Utf8, callback_ident: u32) -> Result<Op, OpError> {
    let location = NetAddress { netid: Utf8::from_static(b"tcp"), address };
    crate::nfs4::set_client_id(config, location, callback_ident)
}
