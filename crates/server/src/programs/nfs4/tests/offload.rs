//! Background copies and interruptions of them.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use protocol::nfs4::callback::offload::{CbOffloadArgs, OffloadInfo};
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::backchannel::{BindConnToSessionArgs, DirFromClient};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::commit::CommitArgs;
use protocol::nfs4::ops::copy::{CopyArgs, CopyOk, CopyResult, OffloadArgs, OffloadStatusOk};
use protocol::nfs4::ops::open::{DelegationWant, ShareAccess};
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{Handle, Outcome, StableHow, Stateid, Status};
use vfs::MemFs;
use vfs::fault::{Fault, Faulty, Gate, Method, Rule};
use xdr::{List, Opaque};

use crate::copy::offload::Advanced;
use crate::programs::nfs4::ops::copy::INLINE_BYTES;
use crate::programs::nfs4::tests::delegations::{hold, recalled, return_delegation};
use crate::testing::{Lab, at, faulty, lab_of, open, open_result, putfh, size, sparse};
use crate::{ExportTable, Offload};

const MIB: u64 = 1 << 20;
/// Three more steps than before the reply.
const LONG: u64 = INLINE_BYTES + 3 * MIB;

/// A client with a callback path, with two open files.
struct Scene {
    backend: Arc<Faulty<MemFs>>,
    lab: Lab,
    client: Lab,
    from: (Handle, Stateid),
    to: (Handle, Stateid),
}

fn scene() -> Scene {
    let (export, backend) = faulty();
    let mut lab = lab_of(vec![export]);
    lab.minor = 2;
    let source = sparse(&mut lab, "source", LONG - 4096, 4096, LONG);
    // Zeros instead of a hole, which would be copied in one step.
    for offset in (0..LONG - 4096).step_by(MIB as usize) {
        let data = Opaque::new(vec![0; MIB.min(LONG - 4096 - offset) as usize]).unwrap();
        let (stateid, stable) = (Stateid::ANONYMOUS, StableHow::Unstable);
        lab.ok(vec![putfh(source), Op::Write(WriteArgs { stateid, offset, stable, data })]);
    }
    lab.file(&["export", "destination"], b"");
    let mut client = lab.reachable(b"copier", 11);
    client.minor = 2;
    let (from, to) = open_both(&mut client);
    Scene { backend, lab, client, from, to }
}

/// Opens source and destination without delegations.
fn open_both(client: &mut Lab) -> ((Handle, Stateid), (Handle, Stateid)) {
    let access = ShareAccess::BOTH.with_want(DelegationWant::NO_DELEG);
    let mut opened = |name| {
        let results = client.ok(at(&["export"], vec![open(name, b"owner", access), Op::GetFh]));
        let [.., open, OpResult::GetFh(handle)] = &results[..] else { panic!("{results:?}") };
        (*handle.as_result().unwrap(), open_result(open).stateid)
    };
    (opened("source"), opened("destination"))
}

impl Scene {
    fn ask(&mut self, count: u64, synchronous: bool) -> CopyOk {
        let Self { client, from, to, .. } = self;
        let args = CopyArgs {
            source_stateid: from.1,
            destination_stateid: to.1,
            source_offset: 0,
            destination_offset: 0,
            count,
            consecutive: true,
            synchronous,
            source_servers: List::default(),
        };
        match client.last(vec![putfh(from.0), Op::SaveFh, putfh(to.0), Op::Copy(args)]) {
            OpResult::Copy(CopyResult::Ok(ok)) => ok,
            other => panic!("{other:?}"),
        }
    }

    /// Starts a copy in the background.
    fn begin(&mut self) -> (Stateid, Arc<Offload>) {
        let stateid = self.ask(0, false).response.callback_id[0];
        (stateid, self.next().expect("the driver must run it"))
    }

    fn next(&self) -> Option<Arc<Offload>> {
        self.lab.server.shared.state.next_offload(true)
    }

    fn advance(&self, offload: &Arc<Offload>) -> Poll<Advanced> {
        let step = pin!(self.lab.server.shared.advance(offload, self.client.now()));
        step.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn finish(&self, offload: &Arc<Offload>) {
        while self.advance(offload) == Poll::Ready(Advanced::More) {}
    }

    fn status(&mut self, stateid: Stateid) -> Result<OffloadStatusOk, Status> {
        let op = Op::OffloadStatus(OffloadArgs { stateid });
        match self.client.run(vec![putfh(self.to.0), op]).results.into_vec().pop() {
            Some(OpResult::OffloadStatus(result)) => result.into_result(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the pending CB_OFFLOADs, and answers them.
    fn notices(&self) -> Vec<CbOffloadArgs> {
        let calls = self.client.calls();
        let offloads = calls.iter().map(|call| {
            let CbOp::Offload(args) = call.operation() else { panic!("{:?}", call.operation()) };
            self.client.answer(call.results(CbOpResult::Offload(Outcome::Ok(()))));
            args.clone()
        });
        offloads.collect()
    }

    /// Returns the outcome of the only copy.
    fn ending(&self) -> OffloadInfo {
        let notices = self.notices();
        assert_eq!(notices.len(), 1);
        notices[0].info.clone()
    }

    fn cancel(&self, stateid: Stateid) -> Vec<Op> {
        vec![putfh(self.to.0), Op::OffloadCancel(OffloadArgs { stateid })]
    }
}

fn known(scene: &Scene) -> u64 {
    scene.lab.server.counts().copies
}

#[test]
fn long_copy_continues_after_reply_and_reports_end() {
    let mut scene = scene();
    let answer = scene.ask(0, false);
    assert_eq!((answer.requirements.consecutive, answer.requirements.synchronous), (true, false));
    assert_eq!(answer.response.count, INLINE_BYTES);
    let stateid = answer.response.callback_id[0];
    assert_ne!(stateid.seqid, 0, "RFC 7862 §4.8");
    assert!(scene.notices().is_empty());
    let offload = scene.next().expect("the driver must run it");
    assert!(scene.next().is_none());
    assert_eq!(scene.advance(&offload), Poll::Ready(Advanced::More));
    let on_its_way = OffloadStatusOk { count: INLINE_BYTES + MIB, complete: List::default() };
    assert_eq!(scene.status(stateid), Ok(on_its_way));
    scene.finish(&offload);
    let complete = List::new(vec![Status::OK]).unwrap();
    assert_eq!(scene.status(stateid), Ok(OffloadStatusOk { count: LONG, complete }));
    let notices = scene.notices();
    assert_eq!((notices.len(), notices[0].handle, notices[0].stateid), (1, scene.to.0, stateid));
    let OffloadInfo::Ok(response) = notices[0].info.clone() else { panic!("{notices:?}") };
    assert_eq!((response.callback_id.len(), response.count), (0, LONG));
    assert_eq!(response.committed, StableHow::Unstable);
    let commit = scene.client.last(vec![putfh(scene.to.0), Op::Commit(CommitArgs { offset: 0, count: 0 })]);
    let OpResult::Commit(commit) = commit else { panic!("{commit:?}") };
    assert_eq!(commit.into_result().unwrap().verifier, response.verifier);
    // §4.8: valid until "the client replies to a CB_OFFLOAD operation".
    assert_eq!(scene.status(stateid), Err(Status::BAD_STATEID));
    assert_eq!(known(&scene), 0);
    let read = Op::Read(protocol::nfs4::ops::read::ReadArgs {
        stateid: Stateid::ANONYMOUS,
        offset: LONG - 4097,
        count: 4098,
    });
    let OpResult::Read(end) = scene.client.last(vec![putfh(scene.to.0), read]) else { panic!("READ") };
    let end = end.into_result().unwrap();
    assert_eq!((end.data[0], &end.data[1..], end.eof), (0, &[7; 4096][..], true));
}

#[test]
fn retries_delayed_cb_offload_within_bound() {
    let mut scene = scene();
    let (stateid, offload) = scene.begin();
    scene.finish(&offload);
    let later = |scene: &Scene| {
        let call = scene.client.calls().pop().expect("CB_OFFLOAD");
        scene.client.answer(call.results(CbOpResult::Offload(Outcome::Error(Status::DELAY))));
        call.operation().clone()
    };
    let first = later(&scene);
    assert!(scene.client.calls().is_empty(), "not at once");
    scene.lab.pass(1);
    assert_eq!(later(&scene), first);
    assert_eq!(scene.status(stateid).map(|status| status.count), Ok(LONG), "it is known until then");
    scene.lab.pass(1);
    assert_eq!(scene.notices()[0].stateid, stateid);
    assert_eq!(scene.status(stateid), Err(Status::BAD_STATEID));
    let (_, offload) = scene.begin();
    scene.finish(&offload);
    let mut asked = 0;
    while let Some(call) = scene.client.calls().pop() {
        scene.client.answer(call.results(CbOpResult::Offload(Outcome::Error(Status::DELAY))));
        scene.client.ok(vec![]);
        scene.lab.pass(1);
        (asked, scene.client.seconds) = (asked + 1, scene.lab.seconds);
    }
    assert_eq!((asked, known(&scene)), (101, 0));
}

#[test]
fn short_or_synchronous_copy_finishes_before_reply() {
    let mut scene = scene();
    let short = scene.ask(INLINE_BYTES, false);
    assert_eq!((short.response.callback_id.len(), short.response.count), (0, INLINE_BYTES));
    let asked = scene.ask(0, true);
    assert_eq!((asked.response.callback_id.len(), asked.response.count), (0, LONG));
    assert!(asked.requirements.synchronous);
    assert!(scene.next().is_none());
}

#[test]
fn background_copy_needs_back_channel_and_free_slot() {
    let mut scene = scene();
    let mut begun = 0;
    while !scene.ask(0, false).response.callback_id.is_empty() {
        begun += 1;
        assert!(begun < 100);
    }
    assert_eq!(known(&scene), begun);
    let answer = scene.ask(0, false);
    assert_eq!((answer.response.count, answer.requirements.synchronous), (LONG, true));
    // The lab's own client has no back channel.
    scene.client = scene.lab.other(b"unreachable");
    scene.client.minor = 2;
    (scene.from, scene.to) = open_both(&mut scene.client);
    assert_eq!(scene.ask(0, false).response.count, LONG);
}

#[test]
fn cancelled_copy_stops_without_callback() {
    let mut scene = scene();
    let (stateid, offload) = scene.begin();
    assert_eq!(scene.advance(&offload), Poll::Ready(Advanced::More));
    let cancel = scene.cancel(stateid);
    assert_eq!(scene.client.status(cancel.clone()), Status::OK);
    assert_eq!(scene.advance(&offload), Poll::Ready(Advanced::Done));
    assert_eq!(scene.client.status(cancel), Status::BAD_STATEID);
    assert_eq!(scene.status(stateid), Err(Status::BAD_STATEID));
    assert!(scene.notices().is_empty());
    assert_eq!(known(&scene), 0);
}

#[test]
fn offload_cancel_waits_for_running_step() {
    let mut scene = scene();
    let (stateid, offload) = scene.begin();
    let gate = Gate::new();
    scene.backend.add(Rule::on(Method::CopyRange, Fault::Hold(gate.clone())));
    let mut context = Context::from_waker(Waker::noop());
    let server = Arc::clone(&scene.lab.server);
    let mut step = pin!(server.shared.advance(&offload, scene.client.now()));
    assert!(step.as_mut().poll(&mut context).is_pending());
    let cancel = scene.cancel(stateid);
    let mut flight = scene.client.start(1, cancel);
    assert!(flight.poll().is_none());
    gate.open();
    assert!(flight.poll().is_none(), "the step has not ended");
    assert_eq!(step.as_mut().poll(&mut context), Poll::Ready(Advanced::Done));
    assert_eq!(flight.poll().expect("answered").status, Status::OK);
}

#[test]
fn copy_stateid_belongs_to_its_user_and_file() {
    let mut scene = scene();
    let (stateid, offload) = scene.begin();
    let cancel = scene.cancel(stateid);
    let wrong_file = vec![putfh(scene.from.0), Op::OffloadCancel(OffloadArgs { stateid })];
    assert_eq!(scene.client.status(wrong_file), Status::BAD_STATEID);
    let zero = scene.cancel(Stateid { seqid: 0, ..stateid });
    assert_eq!(scene.client.status(zero), Status::BAD_STATEID, "RFC 7862 §4.8");
    scene.client.uid = 1000;
    assert_eq!(scene.client.status(cancel.clone()), Status::BAD_STATEID);
    assert_eq!(scene.lab.status(cancel), Status::BAD_STATEID, "another client's");
    scene.finish(&offload);
    assert!(matches!(scene.ending(), OffloadInfo::Ok(_)));
}

#[test]
fn copy_continues_after_close() {
    let mut scene = scene();
    let (_, offload) = scene.begin();
    for (file, open_stateid) in [scene.from, scene.to] {
        let close = Op::Close(CloseArgs { seqid: 0, open_stateid });
        assert_eq!(scene.client.status(vec![putfh(file), close]), Status::OK);
    }
    scene.finish(&offload);
    let OffloadInfo::Ok(response) = scene.ending() else { panic!("it failed") };
    assert_eq!(response.count, LONG);
}

#[test]
fn copy_step_recalls_new_delegations() {
    let mut scene = scene();
    let (_, offload) = scene.begin();
    let (to, open_stateid) = scene.to;
    scene.client.ok(vec![putfh(to), Op::Close(CloseArgs { seqid: 0, open_stateid })]);
    let mut holder = scene.lab.reachable(b"holder", 12);
    let stateid = hold(&mut holder, "destination", ShareAccess::READ);
    let server = Arc::clone(&scene.lab.server);
    let mut context = Context::from_waker(Waker::noop());
    let mut step = pin!(server.shared.advance(&offload, scene.client.now()));
    assert!(step.as_mut().poll(&mut context).is_pending());
    assert_eq!(recalled(&holder).len(), 1);
    assert_eq!(return_delegation(&mut holder, to, stateid), Status::OK);
    assert_eq!(step.as_mut().poll(&mut context), Poll::Ready(Advanced::More));
    scene.finish(&offload);
    assert!(matches!(scene.ending(), OffloadInfo::Ok(_)));
}

#[test]
fn revoked_state_ends_copy() {
    let mut scene = scene();
    let (_, offload) = scene.begin();
    scene.lab.server.replace_exports(ExportTable::new(Vec::new()).unwrap());
    assert_eq!(scene.advance(&offload), Poll::Ready(Advanced::Done));
    assert_eq!(scene.ending(), OffloadInfo::Error(Status::STALE, INLINE_BYTES));
}

#[test]
fn failed_copy_reports_copied_bytes() {
    let mut scene = scene();
    let (_, offload) = scene.begin();
    let full = Fault::Fail(vfs::Error::NoSpace);
    scene.backend.add(Rule::on(Method::CopyRange, full).after(1));
    scene.finish(&offload);
    assert_eq!(scene.ending(), OffloadInfo::Error(Status::NOSPC, INLINE_BYTES + MIB));
    assert_eq!(scene.lab.server.offload_counts().failed.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn retries_offline_medium() {
    let mut scene = scene();
    let (_, offload) = scene.begin();
    scene.backend.add(Rule::on(Method::CopyRange, Fault::Fail(vfs::Error::Later)).times(1));
    assert_eq!(scene.advance(&offload), Poll::Ready(Advanced::Later));
    scene.finish(&offload);
    assert!(matches!(scene.ending(), OffloadInfo::Ok(_)));
}

#[test]
fn copy_ends_where_source_was_truncated() {
    let mut scene = scene();
    let (_, offload) = scene.begin();
    let (from, stateid) = scene.from;
    let cut = SetAttrArgs { stateid, attributes: size(INLINE_BYTES - MIB) };
    scene.client.ok(vec![putfh(from), Op::SetAttr(cut)]);
    scene.finish(&offload);
    let OffloadInfo::Ok(response) = scene.ending() else { panic!("it failed") };
    assert_eq!(response.count, INLINE_BYTES);
}

#[test]
fn dropped_step_sends_no_callback() {
    let mut scene = scene();
    let (stateid, offload) = scene.begin();
    scene.backend.add(Rule::on(Method::CopyRange, Fault::Hold(Gate::new())).times(1));
    assert_eq!(scene.advance(&offload), Poll::Pending);
    // A stopping server drops steps. A failure callback would make the client report an error instead of copying again.
    assert!(scene.client.calls().is_empty());
    assert!(scene.status(stateid).is_ok());
    scene.lab.server.shared.fail_offload(&offload);
    assert_eq!(scene.ending(), OffloadInfo::Error(Status::SERVERFAULT, INLINE_BYTES));
}

#[test]
fn copies_take_turns() {
    let mut scene = scene();
    let (_, first) = scene.begin();
    let (_, second) = scene.begin();
    for _ in 0..2 {
        for offload in [&first, &second] {
            scene.lab.server.shared.state.resume_offload(Arc::clone(offload));
        }
        assert!(scene.next().is_some_and(|next| Arc::ptr_eq(&next, &first)));
        scene.lab.server.shared.state.resume_offload(Arc::clone(&first));
        assert!(scene.next().is_some_and(|next| Arc::ptr_eq(&next, &second)), "the other copy's step");
        assert!(scene.next().is_some_and(|next| Arc::ptr_eq(&next, &first)));
    }
}

#[test]
fn repeats_lost_callback_over_another_connection() {
    let mut scene = scene();
    let (stateid, offload) = scene.begin();
    scene.finish(&offload);
    assert_eq!(scene.client.calls().len(), 1, "sent, and never answered");
    scene.lab.server.connection_closed(scene.client.connection.id);
    let mut next = Lab::without_session(Arc::clone(&scene.lab.server), 14);
    let (session_id, direction) = (scene.client.session, DirFromClient::FORE_OR_BOTH);
    let bind = BindConnToSessionArgs { session_id, direction, use_rdma: false };
    let OpResult::BindConnToSession(Outcome::Ok(_)) = next.alone(Op::BindConnToSession(bind)) else {
        panic!("BIND_CONN_TO_SESSION")
    };
    let calls = next.calls();
    let again = calls.iter().filter(|call| call.compound.is_some());
    let again: Vec<_> = again.map(|call| call.operation().clone()).collect();
    let [CbOp::Offload(args)] = &again[..] else { panic!("{again:?}") };
    assert_eq!(args.stateid, stateid);
    assert!(scene.status(stateid).is_ok(), "it is known until the client has acknowledged it");
}

#[test]
fn removes_copies_of_evicted_client() {
    let mut scene = scene();
    let (_, offload) = scene.begin();
    scene.lab.server.evict(scene.client.now(), "copier").expect("it is there");
    assert_eq!(known(&scene), 0);
    assert_eq!(scene.advance(&offload), Poll::Ready(Advanced::Done));
}
