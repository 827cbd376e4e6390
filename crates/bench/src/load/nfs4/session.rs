//! A client and its session: created for one connection, destroyed after it.

use std::rc::Rc;

use protocol::nfs4;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::backchannel::{CallbackSecParms, SecParmsList};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::exchange_id::{
    DestroyClientIdArgs, ExchangeIdArgs, ExchangeIdFlags, StateProtectArgs,
};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::session::{
    ChannelAttributes, CreateSessionArgs, CreateSessionFlags, DestroySessionArgs, ReclaimCompleteArgs,
};
use protocol::nfs4::types::{ClientId, ClientOwner, Handle, Outcome as Answer, SessionId, Stateid};
use tokio::net::TcpStream;
use xdr::{List, Opaque};

use super::slots::{Slots, all_well, arguments};
use super::{NFS4, component};
use crate::error::LoadError;
use crate::layout;
use crate::load::LoadPlan;
use crate::load::caller::Caller;
use crate::load::workload::Xids;
use crate::operation::LARGE_BYTES;

/// Room for a compound's other operations around a large payload.
const COMPOUND_SLACK_BYTES: u32 = 4 << 10;
/// Most operations of one compound that this generator sends.
const OPERATIONS_MAX: u32 = 16;
/// A program number for callbacks, which are never sent: the session has no back channel.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// A client and its session.
#[derive(Debug)]
pub(crate) struct Session {
    client: ClientId,
    id: SessionId,
    slots: Rc<Slots>,
    minor_version: u32,
    /// Opens that last for the whole measurement, and are closed after it.
    open: Vec<(Handle, Stateid)>,
}

impl Session {
    /// Makes a client, and a session of `slots` slots over `caller`'s connection.
    pub(super) async fn open(
        caller: &mut Caller,
        minor_version: u32,
        slots: u32,
        xids: &Xids,
    ) -> Result<Self, LoadError> {
        let mut bare = Bare { caller, minor_version, xids };
        let owner = format!("enfys-bench-{}-{}", std::process::id(), xids.take(0));
        let (client, first) = bare.exchange_id(owner).await?;
        let (id, granted) = bare.create_session(client, first, slots).await?;
        let slots = Rc::new(Slots::new(id, minor_version, granted as usize));
        let mut session = Self { client, id, slots, minor_version, open: Vec::new() };
        let complete = vec![Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })];
        session.call(caller, "RECLAIM_COMPLETE", complete, xids).await?;
        Ok(session)
    }

    /// Returns the slots that the server granted; at most as many as requested.
    pub(super) fn slots(&self) -> Rc<Slots> {
        Rc::clone(&self.slots)
    }

    /// Returns the number of slots.
    pub(crate) fn depth(&self) -> usize {
        self.slots.count()
    }

    /// Sends `operations` outside the measured window and returns their results.
    async fn call(
        &mut self,
        caller: &mut Caller,
        what: &str,
        operations: Vec<Op>,
        xids: &Xids,
    ) -> Result<Vec<OpResult>, LoadError> {
        let compound = self.slots.single(operations);
        let result = caller.call(what, xids.take(0), NFS4, nfs4::PROC_COMPOUND, &compound).await?;
        let mut results = all_well(result).map_err(|why| LoadError::wrong(what, why))?;
        results.remove(0);
        Ok(results)
    }

    /// Destroys the session and its client.
    async fn end(mut self, caller: &mut Caller, xids: &Xids) -> Result<(), LoadError> {
        for (handle, open_stateid) in std::mem::take(&mut self.open) {
            let close = Op::Close(CloseArgs { seqid: 0, open_stateid });
            self.call(caller, "CLOSE", vec![Op::PutFh(PutFhArgs { handle }), close], xids).await?;
        }
        let mut bare = Bare { caller, minor_version: self.minor_version, xids };
        let session = Op::DestroySession(DestroySessionArgs { session_id: self.id });
        bare.call("DESTROY_SESSION", session).await?;
        let client = Op::DestroyClientId(DestroyClientIdArgs { client_id: self.client });
        bare.call("DESTROY_CLIENTID", client).await?;
        Ok(())
    }
}

/// Destroys each session on the connection with the same index.
pub(crate) async fn end_all(
    sessions: Vec<Session>,
    streams: Vec<TcpStream>,
    xids: &Xids,
) -> Result<(), LoadError> {
    for (session, stream) in sessions.into_iter().zip(streams) {
        session.end(&mut Caller::from_stream(stream), xids).await?;
    }
    Ok(())
}

/// Tools for a workload's preparation.
pub(super) struct Setup<'a> {
    /// Number of the connection, from 0.
    pub(super) connection: u32,
    pub(super) session: &'a mut Session,
    plan: &'a LoadPlan,
    caller: &'a mut Caller,
}

impl<'a> Setup<'a> {
    pub(super) fn new(
        plan: &'a LoadPlan,
        connection: u32,
        caller: &'a mut Caller,
        session: &'a mut Session,
    ) -> Self {
        Self { connection, session, plan, caller }
    }

    /// Calls inside the session.
    pub(super) async fn call(&mut self, what: &str, operations: Vec<Op>) -> Result<Vec<OpResult>, LoadError> {
        self.session.call(self.caller, what, operations, &self.plan.xids).await
    }

    /// Returns the handle of `name` in the directory of the measurement.
    pub(super) async fn find(&mut self, name: &str) -> Result<Handle, LoadError> {
        let export = self.plan.export.split('/').filter(|part| !part.is_empty());
        let path = export.chain([layout::DIRECTORY, name]);
        let lookups = path.map(|part| Op::Lookup(LookupArgs { name: component(part) }));
        let operations = std::iter::once(Op::PutRootFh).chain(lookups).chain([Op::GetFh]).collect();
        let results = self.call(&format!("LOOKUP {name}"), operations).await?;
        match results.last() {
            Some(OpResult::GetFh(Answer::Ok(handle))) => Ok(*handle),
            _ => Err(unexpected("GETFH", &results)),
        }
    }

    /// Registers the open of the file `handle` for a CLOSE after the measurement.
    pub(super) fn close_later(&mut self, handle: Handle, open: Stateid) {
        self.session.open.push((handle, open));
    }
}

/// Results of the right status and the wrong kind.
pub(super) fn unexpected(what: &str, results: &[OpResult]) -> LoadError {
    LoadError::wrong(what, format!("results {results:?}"))
}

/// Calls before and after all sessions.
struct Bare<'a> {
    caller: &'a mut Caller,
    minor_version: u32,
    xids: &'a Xids,
}

impl Bare<'_> {
    async fn call(&mut self, what: &str, operation: Op) -> Result<Vec<OpResult>, LoadError> {
        let compound = arguments(self.minor_version, vec![operation]);
        let xid = self.xids.take(0);
        let result = self.caller.call(what, xid, NFS4, nfs4::PROC_COMPOUND, &compound).await?;
        all_well(result).map_err(|why| LoadError::wrong(what, why))
    }

    async fn exchange_id(&mut self, owner: String) -> Result<(ClientId, u32), LoadError> {
        let exchange = exchange_id(owner);
        let results = self.call("EXCHANGE_ID", Op::ExchangeId(exchange)).await?;
        match &results[..] {
            [OpResult::ExchangeId(Answer::Ok(made))] => Ok((made.client_id, made.sequence_id)),
            _ => Err(unexpected("EXCHANGE_ID", &results)),
        }
    }

    async fn create_session(
        &mut self,
        client_id: ClientId,
        sequence: u32,
        slots: u32,
    ) -> Result<(SessionId, u32), LoadError> {
        let create = create_session(client_id, sequence, slots);
        let results = self.call("CREATE_SESSION", Op::CreateSession(create)).await?;
        match &results[..] {
            [OpResult::CreateSession(Answer::Ok(made))] if made.fore_channel.max_requests > 0 => {
                Ok((made.session_id, made.fore_channel.max_requests.min(slots)))
            }
            _ => Err(unexpected("CREATE_SESSION", &results)),
        }
    }
}

/// EXCHANGE_ID of a client without pNFS.
///
/// # Panics
/// If the owner's name is longer than the protocol allows.
#[must_use]
pub fn exchange_id(owner: String) -> ExchangeIdArgs {
    let owner_id = Opaque::new(owner.into_bytes()).expect("a short name");
    ExchangeIdArgs {
        // The owner's name is new on every run, so that the verifier does not matter.
        client_owner: ClientOwner { verifier: [0; 8], owner_id },
        flags: ExchangeIdFlags::USE_NON_PNFS,
        state_protect: StateProtectArgs::None,
        implementation: List::default(),
    }
}

/// CREATE_SESSION with this number of slots, without a back channel.
#[must_use]
pub fn create_session(client_id: ClientId, sequence: u32, slots: u32) -> CreateSessionArgs {
    let channel = |bytes, max_requests| ChannelAttributes {
        header_pad_size: 0,
        max_request_size: bytes,
        max_response_size: bytes,
        max_response_size_cached: COMPOUND_SLACK_BYTES,
        max_operations: OPERATIONS_MAX,
        max_requests,
        rdma_ird: List::default(),
    };
    CreateSessionArgs {
        client_id,
        sequence,
        flags: CreateSessionFlags::empty(),
        fore_channel: channel(LARGE_BYTES + COMPOUND_SLACK_BYTES, slots),
        back_channel: channel(COMPOUND_SLACK_BYTES, 1),
        callback_program: CALLBACK_PROGRAM,
        sec_parms: SecParmsList::new(vec![CallbackSecParms::None]).unwrap_or_default(),
    }
}
