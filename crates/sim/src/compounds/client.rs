//! The clients of the compounds: two with sessions and callbacks, and one of version 4.0.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::lock::ReleaseLockOwnerArgs;
use protocol::nfs4::ops::open_state::OpenConfirmArgs;
use protocol::nfs4::ops::session::ReclaimCompleteArgs;
use protocol::nfs4::ops::setclientid::{RenewArgs, SetClientIdConfirmArgs, SetClientIdResult};
use protocol::nfs4::types::{ClientId, HasStatus, Outcome, StateOwner, Stateid, Status};
use rpc::message::{RpcError, parse_reply};
use server::Connection;
use xdr::Opaque;

use super::Played;
use crate::backchannel::BackChannel;
use crate::client::{SessionCalls, compound, set_client_id};
use crate::world::World;

/// A client of version 4.0.
#[derive(Debug)]
pub(super) struct V40Session {
    client_id: ClientId,
    /// The last seqid of its open-owner that the server has accepted.
    seqid: u32,
    /// The last seqid that it has used.
    used: u32,
    xid: u32,
}

/// A client.
#[derive(Debug)]
pub(super) enum CompoundClient {
    /// Of version 4.1 or 4.2.
    InSession(SessionCalls),
    /// Of version 4.0.
    V40(V40Session),
}

impl CompoundClient {
    /// Returns whether it has a session, whose slots keep replies.
    pub(super) fn has_slots(&self) -> bool {
        matches!(self, Self::InSession(_))
    }

    /// Returns the number of operations before the requested ones.
    pub(super) fn before(&self) -> usize {
        usize::from(self.has_slots())
    }

    pub(super) fn owner(&self) -> StateOwner {
        match self {
            Self::InSession(calls) => calls.owner(),
            Self::V40(_) => self.lock_owner(b"three"),
        }
    }

    pub(super) fn lock_owner(&self, name: &'static [u8]) -> StateOwner {
        let client_id = match self {
            Self::InSession(_) => 0,
            Self::V40(older) => older.client_id,
        };
        StateOwner { client_id, owner: Opaque::from_static(name) }
    }

    /// Returns the next seqid of version 4.0; 0 in later versions.
    pub(super) fn next_seqid(&mut self) -> u32 {
        match self {
            Self::InSession(_) => 0,
            Self::V40(older) => {
                older.used += 1;
                older.used
            }
        }
    }

    /// Returns an operation of version 4.0 that later versions do not have.
    pub(super) fn operation_40(&mut self, choice: u64, open_stateid: Stateid, lock_owner: StateOwner) -> Op {
        let client_id = lock_owner.client_id;
        match choice {
            0 => Op::OpenConfirm(OpenConfirmArgs { open_stateid, seqid: self.next_seqid() }),
            1 => Op::Renew(RenewArgs { client_id }),
            _ => Op::ReleaseLockOwner(ReleaseLockOwnerArgs { lock_owner }),
        }
    }

    pub(super) fn request(&mut self, ops: Vec<Op>) -> Bytes {
        match self {
            Self::InSession(calls) => calls.in_session(ops),
            Self::V40(older) => {
                older.xid += 1;
                compound(older.xid, 0, ops)
            }
        }
    }

    /// RFC 7530 §9.1.7: some errors leave the open-owner's seqid unchanged.
    pub(super) fn learn(&mut self, result: &CompoundResult) {
        let Self::V40(older) = self else { return };
        let unchanged = [
            Status::STALE_CLIENTID,
            Status::STALE_STATEID,
            Status::BAD_STATEID,
            Status::BAD_SEQID,
            Status::BADXDR,
            Status::RESOURCE,
            Status::NOFILEHANDLE,
            Status::MOVED,
        ];
        let numbered = result.results.iter().filter(|result| {
            matches!(
                result,
                OpResult::Open(_)
                    | OpResult::OpenConfirm(_)
                    | OpResult::OpenDowngrade(_)
                    | OpResult::Close(_)
            ) && !unchanged.contains(&result.status())
        });
        older.seqid += numbered.count() as u32;
        older.used = older.seqid;
    }

    /// Handles a request that arrived in part, or not at all, and its reply, if there is one.
    pub(super) fn cut(&mut self, result: Option<&CompoundResult>) {
        let first = result.and_then(|result| result.results.first());
        let is_used = matches!(first, Some(OpResult::Sequence(first)) if first.status() == Status::OK);
        match self {
            Self::InSession(calls) if !is_used => calls.take_back(),
            Self::InSession(_) => {}
            Self::V40(older) => older.used = older.seqid,
        }
        result.iter().for_each(|result| self.learn(result));
    }
}

/// All clients with their connections.
pub(super) struct ClientSet {
    pub(super) clients: [CompoundClient; 3],
    lines: [(Arc<Connection>, BackChannel); 3],
    pub(super) played: Played,
}

impl ClientSet {
    pub(super) fn new(world: &mut World) -> Self {
        let calls = |name, xid| SessionCalls::new(name, xid).reachable();
        let older = V40Session { client_id: 0, seqid: 0, used: 0, xid: 4_000_000 };
        let clients = [
            CompoundClient::InSession(calls("one", 1_000)),
            CompoundClient::InSession(calls("two", 2_000_000).newer()),
            CompoundClient::V40(older),
        ];
        let lines = [(); 3].map(|()| (world.connection(), BackChannel::default()));
        let mut set = Self { clients, lines, played: Played::default() };
        (0..3).for_each(|who| set.introduce(world, who));
        set
    }

    /// Sends a request of this client, and answers callbacks to all clients until it is answered.
    pub(super) fn ask(&mut self, world: &mut World, who: usize, request: Bytes) -> Option<Bytes> {
        let Self { lines, played, .. } = self;
        let connection = Arc::clone(&lines[who].0);
        let reply = world.ask_over(connection, request, || answers(lines, played));
        for (connection, answer) in answers(lines, played) {
            world.ask_over(connection, answer, Vec::new);
        }
        reply
    }

    /// Sends a request and returns its reply; `None` if RPC refused it.
    pub(super) fn compound(
        &mut self,
        world: &mut World,
        who: usize,
        request: Bytes,
    ) -> Option<CompoundResult> {
        match parse_reply::<CompoundResult>(self.ask(world, who, request)?) {
            Ok(result) => Some(result),
            Err(RpcError::NotExecuted(_) | RpcError::Denied(_)) => None,
            Err(RpcError::Garbled(error)) => panic!("the reply is not a compound: {error}"),
        }
    }

    fn introduce(&mut self, world: &mut World, who: usize) {
        if let CompoundClient::InSession(calls) = &self.clients[who] {
            let mut calls = calls.clone();
            self.lines[who].1.clear();
            for introduce in [SessionCalls::exchange_id, SessionCalls::create_session] {
                let result = self.compound(world, who, introduce(&mut calls)).expect("a client is accepted");
                calls.learn(&result).expect("a client is accepted");
            }
            let complete = Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
            self.compound(world, who, calls.in_session(vec![complete])).expect("an answer");
            self.clients[who] = CompoundClient::InSession(calls);
            return;
        }
        let request = self.clients[who].request(vec![set_client_id("three")]);
        let result = self.compound(world, who, request).expect("a client is accepted");
        let Some(OpResult::SetClientId(SetClientIdResult::Ok(ok))) = result.results.first() else {
            panic!("{result:?}")
        };
        let (client_id, confirm) = (ok.client_id, ok.confirm);
        let confirm = Op::SetClientIdConfirm(SetClientIdConfirmArgs { client_id, confirm });
        let request = self.clients[who].request(vec![confirm]);
        let result = self.compound(world, who, request).expect("a client is accepted");
        assert_eq!(result.status, Status::OK);
        let CompoundClient::V40(older) = &mut self.clients[who] else { return };
        (older.client_id, older.seqid, older.used) = (client_id, 0, 0);
    }

    /// Reconnects a client that has lost its session or client ID after its lease expired.
    pub(super) fn revive(&mut self, world: &mut World, who: usize) {
        let (ops, lost) = match &self.clients[who] {
            CompoundClient::InSession(_) => (Vec::new(), [Status::BADSESSION, Status::BADSESSION]),
            CompoundClient::V40(older) => {
                let renew = Op::Renew(RenewArgs { client_id: older.client_id });
                (vec![renew], [Status::STALE_CLIENTID, Status::EXPIRED])
            }
        };
        let request = self.clients[who].request(ops);
        let result = self.compound(world, who, request).expect("an answer");
        if result.status != Status::OK {
            assert!(lost.contains(&result.status), "nothing else goes wrong: {:?}", result.status);
            self.introduce(world, who);
        }
    }
}

/// Returns the clients' replies to callbacks, with their connections.
fn answers(
    lines: &mut [(Arc<Connection>, BackChannel)],
    played: &mut Played,
) -> Vec<(Arc<Connection>, Bytes)> {
    let context = Context::from_waker(Waker::noop());
    let mut answers = Vec::new();
    for (connection, back) in lines {
        while let Poll::Ready(call) = connection.outbox.poll_record(&context) {
            let answer = back.called(call, |op| Ok(Some(answer(op, played)))).expect("a valid call");
            answers.extend(answer.map(|answer| (Arc::clone(connection), answer)));
        }
    }
    answers
}

/// Returns a client's reply to a callback; the input bytes choose it.
fn answer(op: &CbOp, played: &mut Played) -> CbOpResult {
    match op {
        CbOp::Recall(_) => {
            played.recalls += 1;
            CbOpResult::Recall(Outcome::Ok(()))
        }
        CbOp::GetAttr(_) => CbOpResult::GetAttr(Outcome::Error(Status::BADHANDLE)),
        CbOp::NotifyLock(_) => CbOpResult::NotifyLock(Outcome::Ok(())),
        CbOp::RecallAny(_) => CbOpResult::RecallAny(Outcome::Ok(())),
        CbOp::RecallSlot(_) => CbOpResult::RecallSlot(Outcome::Ok(())),
        other => panic!("no request here causes {other:?}"),
    }
}
