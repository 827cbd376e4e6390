//! Exactly-once execution in version 4.0, which has no slots: a reply cache for whole compounds (RFC 7530 §3.1.1), and owner seqids
//! for OPEN, CLOSE, LOCK and similar operations (§9.1.7).
//!
//! An operation with a seqid first begins a request of its owner, with a digest of its arguments; a retransmission is answered there
//! ([`Failure::Saved`]). Then it runs as in any version, and [`Compound::end_owner_request`] keeps its result. Later versions take no turn.

use std::sync::Arc;

use bytes::Bytes;
use protocol::nfs4::types::{ClientId, MAX_HANDLE, OpNum, StateOwner, Stateid, Status};
use rpc::message::CallHeader;
use xdr::{Mark, Reader, Writer};

use super::compound::Compound;
use super::status::{Failure, Result, in_minor};
use crate::files::object::Object;
use crate::replay::crash_replay::{CallId, RecoveredCall};
use crate::replay::reply_cache::{Begin, CallKey, Execution};
use crate::request::Request;
use crate::state::{Client, OwnerEffect, OwnerRequest, SavedReply, V40Caller, V40Sequenced};

/// Bytes of the longest reply that is kept for a retransmission. Only a compound with a change and a READ or READDIR is longer.
const KEPT_REPLY_MAX: usize = 64 << 10;

/// The execution of a 4.0 compound that was not executed before.
pub(crate) struct First<'s> {
    execution: Execution<'s>,
    /// Its ID in the crash-replay log.
    pub(crate) call: CallId,
}

/// Whether a compound must be executed.
pub(crate) enum FirstTime<'s> {
    Yes(First<'s>),
    /// It was executed before; this is its reply.
    No(Bytes),
    /// It is being executed, and too many copies of it wait.
    Unknown,
}

/// Detects retransmissions of a 4.0 compound; `operations` are its encoded operations. A copy that arrives while the first is
/// executed waits for it: RFC 7530 §3.1.1 forbids to drop a request on a live connection.
pub(crate) async fn first_time<'s>(
    request: &Request<'s>,
    call: &CallHeader,
    operations: Reader,
) -> FirstTime<'s> {
    let server = request.server;
    let key = CallKey::new(&server.call_secret, request.connection.peer.ip(), call, &request.arguments);
    let cache = if is_write(operations) { &server.write_reply_cache } else { &server.reply_cache };
    let execution = loop {
        match cache.begin(key, request.now.monotonic) {
            Begin::Execute(execution) => break execution,
            Begin::Replay(cached) => return FirstTime::No(cached),
            Begin::InProgress => {
                if !cache.ended(key).await {
                    return FirstTime::Unknown;
                }
            }
        }
    };
    if let Some(journal) = &server.journal
        // An OPEN in progress is repeated under the client's next ID.
        && let RecoveredCall::Replied(kept) = journal.recognize(key.id(), request.logged.owner, request.now, true)
    {
        execution.finish(&kept);
        return FirstTime::No(kept);
    }
    FirstTime::Yes(First { execution, call: key.id() })
}

/// Returns whether a compound is PUTFH and WRITE, as nearly all WRITEs are: their replies have a cache of their own.
fn is_write(mut operations: Reader) -> bool {
    let mut next = || operations.u32().ok().map(OpNum);
    if next() != Some(OpNum::PUTFH) {
        return false;
    }
    operations.opaque_ref(MAX_HANDLE).is_ok() && operations.u32().ok().map(OpNum) == Some(OpNum::WRITE)
}

impl First<'_> {
    /// Keeps the reply of a compound that changed something; `reply` begins with its status.
    pub(crate) fn keep(self, reply: &[u8]) {
        if reply.len() <= KEPT_REPLY_MAX {
            self.execution.finish(reply);
        }
    }
}

/// An operation's number and arguments, for the digest of version 4.0.
pub(crate) struct V40Operation<'a> {
    number: OpNum,
    arguments: &'a Reader,
    start: usize,
}

impl<'a> V40Operation<'a> {
    /// Returns the arguments that were read since `start`.
    pub(crate) fn since(number: OpNum, arguments: &'a Reader, start: usize) -> Self {
        Self { number, arguments, start }
    }
}

impl Compound<'_> {
    /// Takes the turn of an OPEN; `None` in versions with sessions.
    pub(crate) fn begin_open_request(
        &mut self,
        asked: &V40Operation<'_>,
        owner: &StateOwner,
        seqid: u32,
        reclaim: bool,
    ) -> Result<Option<OwnerRequest>> {
        let (state, now) = (self.state(), self.now());
        self.turn(asked, |digest, by| state.begin_open_request(now, owner, seqid, digest, reclaim, by))
    }

    /// Takes the turn of an operation on a stateid.
    pub(crate) fn begin_stateid_request(
        &mut self,
        asked: &V40Operation<'_>,
        stateid: &Stateid,
        seqid: u32,
    ) -> Result<Option<OwnerRequest>> {
        let confirms = asked.number == OpNum::OPEN_CONFIRM;
        let (state, now) = (self.state(), self.now());
        self.turn(asked, |digest, by| state.begin_stateid_request(now, stateid, seqid, digest, confirms, by))
    }

    /// Takes the turn of a LOCK on an open stateid, with the seqids of the open-owner and the lock-owner.
    pub(crate) fn begin_lock_request(
        &mut self,
        asked: &V40Operation<'_>,
        stateid: &Stateid,
        owner: &StateOwner,
        seqids: (u32, u32),
    ) -> Result<Option<OwnerRequest>> {
        let (state, now) = (self.state(), self.now());
        self.turn(asked, |digest, by| state.begin_lock_request(now, stateid, owner, seqids, digest, by))
    }

    /// Takes a turn. Its owner's client is the sender of this compound: the reply, and that to a retransmission, waits until the
    /// client's record is durable.
    fn turn(
        &mut self,
        asked: &V40Operation<'_>,
        take: impl FnOnce(u64, V40Caller<'_>) -> std::result::Result<V40Sequenced, Status>,
    ) -> Result<Option<OwnerRequest>> {
        if self.minor > 0 {
            return Ok(None);
        }
        // §9.1.9: "When the type of the operation does not match that originally used, NFS4ERR_BAD_SEQID is returned." The digest
        // includes the principal, so that no other one gets the reply, and the current file handle, in which OPEN looks its name up.
        let object = match self.current() {
            Ok(Object::File(file)) => file.key(self.server()).fileid,
            Ok(Object::Pseudo(node)) => node.id,
            Err(_) => 0,
        };
        let (arguments, principal) = (asked.arguments.since(asked.start), self.principal());
        let digest = self.state().digest_of_turn(self.caller(), asked.number, object, &arguments);
        match take(digest, self.sender(&principal))? {
            V40Sequenced::New(turn) => {
                self.set_sender(Arc::clone(turn.client()));
                Ok(Some(turn))
            }
            V40Sequenced::Replay(client, saved) => {
                self.set_sender(client);
                self.server().metrics().replayed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Err(Failure::Saved(Box::new(saved)))
            }
        }
    }

    /// Ends a turn, and keeps the operation's results since `body` for a retransmission.
    pub(crate) fn end_owner_request(
        &self,
        turn: Option<OwnerRequest>,
        done: Result<OwnerEffect>,
        body: Mark,
        reply: &Writer,
    ) -> Result {
        let Some(turn) = turn else { return done.map(drop) };
        let written = || Bytes::copy_from_slice(reply.inline_since(body));
        let (status, body) = match &done {
            Ok(_) => (Status::OK, written()),
            Err(Failure::Written(status)) => (*status, written()),
            Err(Failure::Status(status)) => (in_minor(*status, self.minor), Bytes::new()),
            // These come from taking a turn, not from running in it.
            Err(Failure::Replay(_) | Failure::Saved(_)) => return done.map(drop),
        };
        let effect = done.as_ref().copied().unwrap_or(OwnerEffect::None);
        let current = match (effect, self.current()) {
            (OwnerEffect::Opened(_), Ok(Object::File(file))) => Some((file.export.id, file.handle)),
            _ => None,
        };
        self.state().end_owner_request(self.now(), turn, &SavedReply { status, body, current }, effect);
        done.map(drop)
    }

    /// Returns the client whose state an operation uses: the owner's in a turn, the session's otherwise.
    pub(crate) fn actor<'c>(&'c self, turn: Option<&'c OwnerRequest>) -> Result<&'c Arc<Client>> {
        turn.map_or_else(|| self.client(), |turn| Ok(turn.client()))
    }

    /// Returns the client that an operation names; in versions with sessions always the session's (RFC 8881 §18.16.3: "The
    /// clientid in the owner field MAY be set to any value by the client and MUST be ignored by the server").
    pub(crate) fn named(&self, id: ClientId) -> Result<Arc<Client>> {
        if self.minor > 0 {
            return Ok(Arc::clone(self.client()?));
        }
        Ok(self.state().named_client(self.now(), id)?)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
    use protocol::nfs4::ops::getattr::GetAttrArgs;
    use protocol::nfs4::ops::remove::RemoveArgs;
    use protocol::nfs4::types::{Bitmap, Handle};
    use rpc::gss::Service;
    use vfs::MemFs;
    use vfs::fault::{Fault, Faulty, Gate, Method, Rule};

    use super::*;
    use crate::testing::minor0::{V40Lab, compound0, v40_lab, v40_lab_of};
    use crate::testing::{at, export, faulty, name, putfh, results};
    use crate::{Disposition, Flavor, Flavors};

    fn record(lab: &mut V40Lab, ops: Vec<Op>) -> Bytes {
        lab.lab.record(&xdr::to_bytes(&compound0(ops)))
    }

    fn answer(lab: &V40Lab, record: &Bytes) -> Bytes {
        let mut reply = Writer::new();
        let done = lab.lab.server.handle(&lab.lab.connection, lab.lab.now(), record.clone(), &mut reply);
        assert_eq!(done.now_or_never().unwrap().disposition, Disposition::Reply);
        reply.into_bytes()
    }

    fn status(reply: Bytes) -> Status {
        let mut writer = Writer::new();
        writer.raw(&reply);
        xdr::from_bytes::<CompoundResult>(results(writer).unwrap()).unwrap().status
    }

    fn remove() -> Vec<Op> {
        at(&["export"], vec![Op::Remove(RemoveArgs { target: name("file") })])
    }

    #[test]
    fn a_retransmitted_change_is_executed_once() {
        let mut lab = v40_lab();
        let call = record(&mut lab, remove());
        let first = answer(&lab, &call);
        assert_eq!(status(first.clone()), Status::OK);
        assert_eq!(answer(&lab, &call), first);
        // Over another connection of the client too.
        let mut other = lab.other(b"other");
        assert_eq!(answer(&other, &call), first);
        // The same call with another transaction number is another call.
        record(&mut other, remove());
        let anew = record(&mut other, remove());
        assert_eq!(status(answer(&other, &anew)), Status::NOENT);
    }

    fn directory(lab: &mut V40Lab) -> Handle {
        match lab.last(at(&["export"], vec![Op::GetFh])) {
            OpResult::GetFh(handle) => handle.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_repeated_open_rechecks_the_export() {
        let mut exported = export(1, "/export");
        let mut lab = v40_lab_of(vec![exported.clone()]);
        let open = lab.open_op("file", b"owner");
        lab.opened(open.clone());
        let directory = directory(&mut lab);
        let again = || vec![putfh(directory), open.clone(), Op::GetFh];
        assert_eq!(lab.status(again()), Status::OK);
        exported.options.clients.push("203.0.113.0/24".parse::<crate::Network>().unwrap().into());
        lab.lab.server.replace_exports(crate::ExportTable::new(vec![exported]).unwrap());
        assert_eq!(lab.status(again()), Status::STALE);
    }

    #[test]
    fn a_repeated_open_rechecks_the_flavor() {
        let mut exported = export(1, "/export");
        let mut lab = v40_lab_of(vec![exported.clone()]);
        let open = lab.open_op("file", b"owner");
        lab.opened(open.clone());
        let directory = directory(&mut lab);
        exported.options.flavors = Flavors::new(&[Flavor::Kerberos(Service::None)]).unwrap();
        lab.lab.server.replace_exports(crate::ExportTable::new(vec![exported]).unwrap());
        let result = lab.send(vec![putfh(directory), open, Op::GetFh]);
        assert_eq!((result.results.len(), result.status), (2, Status::WRONGSEC));
    }

    #[test]
    fn an_open_by_another_user_is_not_a_retransmission() {
        let mut lab = v40_lab();
        // An owner that is not confirmed starts again instead (RFC 7530 §16.18.5).
        lab.open("file", b"owner");
        let open = lab.open_op("file", b"owner");
        lab.opened(open.clone());
        let again = || at(&["export"], vec![open.clone(), Op::GetFh]);
        assert_eq!(lab.status(again()), Status::OK);
        lab.lab.uid = 1000;
        assert_eq!(lab.status(again()), Status::BAD_SEQID);
    }

    #[test]
    fn idempotent_compounds_are_executed_again() {
        let mut lab = v40_lab();
        let look = Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&[3, 4]) });
        let call = record(&mut lab, at(&["export", "file"], vec![look]));
        let before = answer(&lab, &call);
        assert_eq!(lab.status(remove()), Status::OK);
        assert_eq!((status(before), status(answer(&lab, &call))), (Status::OK, Status::NOENT));
    }

    /// Returns a REMOVE, whose first copy waits at the gate.
    fn held_up() -> (V40Lab, Arc<Faulty<MemFs>>, Gate, Bytes) {
        let (exported, backend) = faulty();
        let mut lab = v40_lab_of(vec![exported]);
        let gate = Gate::new();
        backend.add(Rule::on(Method::Remove, Fault::Hold(gate.clone())).times(1));
        let call = record(&mut lab, remove());
        (lab, backend, gate, call)
    }

    #[test]
    fn a_copy_of_a_running_compound_waits_for_the_reply() {
        let (lab, backend, gate, call) = held_up();
        let (server, connection, now) = (&lab.lab.server, &lab.lab.connection, lab.lab.now());
        let (mut first, mut copy) = (Writer::new(), Writer::new());
        let mut executing = Box::pin(server.handle(connection, now, call.clone(), &mut first));
        assert!((&mut executing).now_or_never().is_none(), "the gate holds it");
        let mut waiting = Box::pin(server.handle(connection, now, call.clone(), &mut copy));
        assert!((&mut waiting).now_or_never().is_none());
        gate.open();
        assert_eq!(executing.now_or_never().unwrap().disposition, Disposition::Reply);
        assert_eq!(waiting.now_or_never().unwrap().disposition, Disposition::Reply);
        assert_eq!(first.inline(), copy.inline());
        assert_eq!(backend.calls(Method::Remove), 1);
    }

    #[test]
    fn a_copy_that_has_no_place_to_wait_has_its_connection_closed() {
        let (lab, _backend, _gate, call) = held_up();
        let (server, connection, now) = (&lab.lab.server, &lab.lab.connection, lab.lab.now());
        let mut replies: Vec<_> = (0..1000).map(|_| Writer::new()).collect();
        let handle = |reply| Box::pin(server.handle(connection, now, call.clone(), reply));
        let mut calls: Vec<_> = replies.iter_mut().map(handle).collect();
        let refused = calls
            .iter_mut()
            .find_map(FutureExt::now_or_never)
            .expect("a call beyond the limit does not wait");
        // RFC 7530 §3.1.1: not silently.
        assert_eq!(refused.disposition, Disposition::Close);
    }

    #[test]
    fn a_thousand_operations_are_too_many() {
        let mut lab = v40_lab();
        let result = lab.send(vec![Op::PutRootFh; 1000]);
        assert_eq!((result.status, result.results.len()), (Status::RESOURCE, 1));
    }

    #[test]
    fn operations_of_later_versions_are_illegal() {
        let mut lab = v40_lab();
        let sequence = lab.lab.next(false);
        assert_eq!(lab.status(vec![sequence]), Status::OP_ILLEGAL);
        assert_eq!(lab.status(vec![Op::RestoreFh]), Status::RESTOREFH);
    }
}
