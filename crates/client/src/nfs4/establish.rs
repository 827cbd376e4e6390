//! How a client gets its client ID and session (RFC 8881 §18.35, §18.36), and how it leaves.

use std::sync::Arc;

use futures_util::future::join;
use protocol::nfs4::compound::{CompoundResult, Op};
use protocol::nfs4::ops::backchannel::{
    BindConnToSessionArgs, CallbackSecParms, DirFromClient, SecParmsList,
};
use protocol::nfs4::ops::exchange_id::{
    DestroyClientIdArgs, ExchangeIdArgs, ExchangeIdFlags, StateProtectArgs,
};
use protocol::nfs4::ops::session::{
    ChannelAttributes, CreateSessionArgs, CreateSessionFlags, DestroySessionArgs, ReclaimCompleteArgs,
};
use protocol::nfs4::types::{ClientId, ClientOwner, OPAQUE_LIMIT, Status};
use rpc::message::{AcceptStatus, RpcError, parse_reply};
use xdr::{List, Opaque};

use super::callback::{CALLBACK_PROGRAM, CALLBACK_SLOTS};
use super::sequencer::Sequencer;
use super::session::{DELAY_FIRST, DELAY_MAX, Limits, NewSession, Session, Unexecuted};
use super::wire::{Results, encode_compound, take};
use crate::config::{Config, SLOTS_MAX};
use crate::engine::{CallError, ConnectionId, Engine};
use crate::error::OpError;
use crate::slots::Slots;

/// Number of times that a client that the server forgot in a restart is established again before the caller gets an error.
const SESSIONS_LOST_MAX: u32 = 16;
/// Bytes of a request or reply in addition to the data of one READ or WRITE.
pub(super) const OVERHEAD: u32 = 4096;
/// Maximum bytes of a reply that the server is asked to keep for a retransmission.
const CACHED_MAX: u32 = 8192;
/// Maximum number of operations in a compound to ask for.
const OPERATIONS_MAX: u32 = 512;
/// Maximum bytes of a callback.
const CALLBACK_SIZE: u32 = 8192;
/// Maximum number of BIND_CONN_TO_SESSION before DESTROY_SESSION fails.
const BINDS_MAX: u32 = 16;

/// A client ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) client_id: ClientId,
    /// The sequence ID of the next CREATE_SESSION; unused in 4.0.
    pub(crate) sequence: u32,
    /// Whether the server knew this client already, so that its state is still there.
    pub(crate) is_confirmed: bool,
}

/// The part of a client that sends operations outside sessions.
pub(crate) struct Setup<'a> {
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) connection: ConnectionId,
    pub(crate) config: &'a Config,
    pub(crate) minor_version: u32,
    /// The request of CREATE_SESSION.
    pub(crate) flags: CreateSessionFlags,
    /// Whether another process still has the state of the client.
    pub(crate) is_taking_over: bool,
}

/// The flags of CREATE_SESSION that a client of files requests.
pub(crate) const SESSION_FLAGS: CreateSessionFlags =
    CreateSessionFlags::PERSIST.union(CreateSessionFlags::CONN_BACK_CHAN);

impl Setup<'_> {
    /// Executes one operation outside a session, again while the server says DELAY.
    pub(crate) async fn call(&self, op: Op) -> Result<Results, OpError> {
        let mut pause = DELAY_FIRST;
        let ops = [op];
        loop {
            let credential = self.config.machine.credential();
            let call = self.engine.call(self.connection, |xid| {
                encode_compound(xid, credential, self.minor_version, None, &ops)
            });
            let result: CompoundResult = parse_reply(call.await?)?;
            if result.status != Status::DELAY {
                // A server that does not know the minor version sends no results.
                return Ok(Results::new(result.status, result.results.into_vec(), false));
            }
            self.engine.sleep(pause).await;
            pause = (pause * 2).min(DELAY_MAX);
        }
    }

    /// Creates the first session of a client that has nothing to reclaim, and repeats this if the server forgets the client meanwhile.
    ///
    /// # Errors
    /// Among others [`OpError::Unsupported`] if the server does not have this minor version.
    pub(crate) async fn first_session(
        &self,
        connections: &[ConnectionId],
    ) -> Result<(Registration, Arc<Session>), OpError> {
        let mut tries = 0;
        loop {
            let mut registration = self.register().await.map_err(as_unsupported)?;
            if self.config.continues.is_some_and(|continued| continued != registration.client_id) {
                // The server has restarted. The process that is continued must find that out itself, and reclaim its state.
                return Err(OpError::Status(Status::STALE_CLIENTID));
            }
            let made = async {
                let session = self.create_session(&mut registration, connections).await?;
                self.reclaim_complete(&session).await?;
                Ok(session)
            };
            match made.await {
                Ok(session) => {
                    registration.is_confirmed = true;
                    return Ok((registration, session));
                }
                // The server has restarted since, or the reply was about an earlier start of this client.
                Err(OpError::Status(
                    Status::STALE_CLIENTID | Status::SEQ_MISORDERED | Status::BADSESSION,
                )) if tries < SESSIONS_LOST_MAX => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Gets a client ID.
    pub(crate) async fn register(&self) -> Result<Registration, OpError> {
        if self.minor_version == 0 { self.set_client_id().await } else { self.exchange_id().await }
    }

    /// EXCHANGE_ID.
    async fn exchange_id(&self) -> Result<Registration, OpError> {
        let ok = take!(self.call(exchange_id(self.config)?).await?, ExchangeId)?;
        Ok(Registration {
            client_id: ok.client_id,
            sequence: ok.sequence_id,
            is_confirmed: ok.flags.contains(ExchangeIdFlags::CONFIRMED_R),
        })
    }

    /// CREATE_SESSION, which 4.0 does not have. `connections` carry the session's compounds; the first has the back channel.
    pub(crate) async fn create_session(
        &self,
        registration: &mut Registration,
        connections: &[ConnectionId],
    ) -> Result<Arc<Session>, OpError> {
        if self.minor_version == 0 {
            return Ok(self.begin_v40_session(registration, connections));
        }
        let create = create_session(self.config, self.flags, registration.client_id, registration.sequence);
        let renewed_at = self.engine.now();
        let outcome = take!(self.call(create).await?, CreateSession);
        // §18.36.4: the sequence ID counts except after errors of the sequencing itself.
        if !matches!(outcome, Err(OpError::Status(Status::SEQ_MISORDERED | Status::STALE_CLIENTID))) {
            registration.sequence = registration.sequence.wrapping_add(1);
        }
        let ok = outcome?;
        let granted = &ok.fore_channel;
        if granted.max_requests == 0 || granted.max_operations < 2 || granted.max_response_size < OVERHEAD {
            return Err(OpError::BadReply("a session without room for a request"));
        }
        let limits = Limits {
            request: granted.max_request_size,
            response: granted.max_response_size,
            operations: granted.max_operations,
            in_flight: self.config.slots,
        };
        let slots_max = self.config.slots.clamp(1, SLOTS_MAX);
        let slots = Slots::new(ok.session_id, granted.max_requests.min(slots_max), slots_max);
        let new = NewSession {
            id: ok.session_id,
            client_id: registration.client_id,
            minor_version: self.minor_version,
            granted: ok.flags,
            limits,
            delay_limit: self.config.retry.delay_limit(),
            sequencer: Sequencer::Slots(slots),
            renewed_at,
        };
        Ok(Session::new(Arc::clone(self.engine), connections.to_vec(), new))
    }

    /// RECLAIM_COMPLETE: the client has reclaimed all its state. In 4.0 only the end of the grace period says so.
    pub(crate) async fn reclaim_complete(&self, session: &Arc<Session>) -> Result<(), OpError> {
        if self.minor_version == 0 {
            return Ok(());
        }
        let op = Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
        let done = session.compound(self.config.machine.credential(), &[op], true).await;
        match done.map(|results| results.status()) {
            Ok(Status::OK | Status::COMPLETE_ALREADY) => Ok(()),
            Ok(status) => Err(OpError::Status(status)),
            Err(Unexecuted::Call(error)) => Err(OpError::Call(error)),
            Err(Unexecuted::Refused(status)) => Err(OpError::Status(status)),
            Err(_) => Err(OpError::Status(Status::BADSESSION)),
        }
    }

    /// BIND_CONN_TO_SESSION: callbacks of the session may come over the connection.
    pub(crate) async fn bind(&self, session: &Session) -> Result<(), OpError> {
        let args = BindConnToSessionArgs {
            session_id: session.id,
            direction: DirFromClient::FORE_OR_BOTH,
            use_rdma: false,
        };
        self.call(Op::BindConnToSession(args)).await?.skip()
    }

    /// DESTROY_SESSION and DESTROY_CLIENTID. The server forgets the client at once instead of after a lease. If the server has
    /// forgotten it already, in a restart or because the reply to the first request was lost, this is a success too, and the result is
    /// false. 4.0 has no such request: the lease of a client without opens and locks just ends.
    pub(crate) async fn leave(&self, session: &Session) -> Result<bool, OpError> {
        if self.minor_version == 0 {
            return Ok(true);
        }
        let destroy = DestroyClientIdArgs { client_id: session.client_id };
        let destroy_client_id = async || self.call(Op::DestroyClientId(destroy)).await?.skip();
        // Both are sent together. A server that executes calls of a connection in another order still has the session.
        let (session_left, client_left) = join(self.destroy_session(session), destroy_client_id()).await;
        session_left?;
        let left = match client_left {
            Err(OpError::Status(Status::CLIENTID_BUSY)) => destroy_client_id().await,
            left => left,
        };
        match left {
            Err(OpError::Status(Status::STALE_CLIENTID)) => Ok(false),
            left => left.map(|()| true),
        }
    }

    /// DESTROY_SESSION, which 4.0 does not have. The client ID keeps its state, for a process that continues it.
    pub(crate) async fn destroy_session(&self, session: &Session) -> Result<(), OpError> {
        if self.minor_version == 0 {
            return Ok(());
        }
        let destroy = || self.call(Op::DestroySession(DestroySessionArgs { session_id: session.id }));
        let mut destroyed = destroy().await?.skip();
        for _ in 0..BINDS_MAX {
            if destroyed != Err(OpError::Status(Status::CONN_NOT_BOUND_TO_SESSION)) {
                break;
            }
            // §18.37.3: "DESTROY_SESSION MUST be invoked on a connection that is associated with the session being destroyed." This
            // one is new, and the next one may be too.
            destroyed = match self.bind(session).await {
                Ok(()) => destroy().await?.skip(),
                failed => failed,
            };
        }
        gone_is_left(destroyed)
    }
}

/// Returns EXCHANGE_ID of the client.
pub(crate) fn exchange_id(config: &Config) -> Result<Op, OpError> {
    Ok(Op::ExchangeId(ExchangeIdArgs {
        client_owner: ClientOwner { verifier: config.verifier, owner_id: owner_id(config)? },
        flags: ExchangeIdFlags::USE_NON_PNFS,
        state_protect: StateProtectArgs::None,
        implementation: List::default(),
    }))
}

/// Returns CREATE_SESSION of the client.
pub(crate) fn create_session(
    config: &Config,
    flags: CreateSessionFlags,
    client_id: ClientId,
    sequence: u32,
) -> Op {
    let channel = |request, response, operations, requests| ChannelAttributes {
        header_pad_size: 0,
        max_request_size: request,
        max_response_size: response,
        max_response_size_cached: CACHED_MAX,
        max_operations: operations,
        max_requests: requests,
        rdma_ird: List::default(),
    };
    let Config { read_size, write_size, slots, .. } = config;
    let (request, response) = (write_size + OVERHEAD, read_size + OVERHEAD);
    Op::CreateSession(CreateSessionArgs {
        client_id,
        sequence,
        flags,
        fore_channel: channel(request, response, OPERATIONS_MAX, (*slots).clamp(1, SLOTS_MAX)),
        back_channel: channel(CALLBACK_SIZE, CALLBACK_SIZE, 8, CALLBACK_SLOTS),
        callback_program: CALLBACK_PROGRAM,
        sec_parms: SecParmsList::new(vec![CallbackSecParms::None]).unwrap_or_default(),
    })
}

/// Returns success if the server does not know the session that was to be destroyed.
fn gone_is_left(outcome: Result<(), OpError>) -> Result<(), OpError> {
    match outcome {
        Err(OpError::Status(Status::BADSESSION | Status::DEADSESSION | Status::STALE_CLIENTID)) => Ok(()),
        outcome => outcome,
    }
}

/// Returns an error that names the missing program or minor version, if the server lacks one.
pub(crate) fn as_unsupported(error: OpError) -> OpError {
    match error {
        OpError::Status(Status::MINOR_VERS_MISMATCH)
        | OpError::Call(CallError::Rpc(RpcError::NotExecuted(
            AcceptStatus::ProgramMismatch(_) | AcceptStatus::ProgramUnavailable,
        ))) => OpError::Unsupported("this version of NFS"),
        error => error,
    }
}

/// Returns `co_ownerid`, which 4.0 calls `id`.
pub(super) fn owner_id(config: &Config) -> Result<Opaque<OPAQUE_LIMIT>, OpError> {
    Opaque::new(config.owner.clone())
        .map_err(|_| OpError::Invalid(crate::errno::Errno::EINVAL, "the client's name is too long"))
}
