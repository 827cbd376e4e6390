//! Copies from another server, which the tests simulate.

use core::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use protocol::nfs4::callback::offload::OffloadInfo;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::copy::{CopyArgs, CopyOk, CopyResult, OffloadArgs};
use protocol::nfs4::ops::open::{DelegationWant, ShareAccess};
use protocol::nfs4::ops::read_plus::Extent;
use protocol::nfs4::types::{Handle, NetAddress, NetLocation, Outcome, Stateid, Status, Utf8};
use vfs::MemFs;
use vfs::fault::{Fault, Faulty, Method, Rule};
use xdr::List;

use crate::copy::offload::Advanced;
use crate::testing::{Lab, PendingCall, at, content, export, faulty, lab_with, open, open_result, putfh};
use crate::{ExportTable, Fetch, FetchError, Fetched, Now, Offload};

mod read_ahead;

const MIB: u64 = 1 << 20;
/// Maximum size of a READ.
const GRANTED: u32 = 1 << 20;
/// The stateid of COPY_NOTIFY, and the handle of the source file.
const NOTIFIED: Stateid = Stateid { seqid: 7, other: [8; 12] };
const SOURCE: &[u8] = b"a handle of another server";

/// A client with a callback path, with its destination open.
struct Scene {
    backend: Arc<Faulty<MemFs>>,
    lab: Lab,
    client: Lab,
    to: (Handle, Stateid),
    slot: u32,
}

fn scene() -> Scene {
    let (exported, backend) = faulty();
    let mut lab = lab_with(vec![exported], |settings| {
        settings.copy_from = vec!["192.0.2.0/24".parse().unwrap()];
    });
    lab.minor = 2;
    lab.file(&["export", "destination"], b"");
    let mut client = lab.reachable(b"copier", 11);
    client.minor = 2;
    let access = ShareAccess::BOTH.with_want(DelegationWant::NO_DELEG);
    let opened = client.ok(at(&["export"], vec![open("destination", b"owner", access), Op::GetFh]));
    let [.., open, OpResult::GetFh(handle)] = &opened[..] else { panic!("{opened:?}") };
    let to = (*handle.as_result().unwrap(), open_result(open).stateid);
    Scene { backend, lab, client, to, slot: 0 }
}

fn at_address(netid: &'static [u8], address: &'static [u8]) -> NetLocation {
    let (netid, address) = (Utf8::from_static(netid), Utf8::from_static(address));
    NetLocation::Address(NetAddress { netid, address })
}

fn args(scene: &Scene, count: u64) -> CopyArgs {
    CopyArgs {
        source_stateid: NOTIFIED,
        destination_stateid: scene.to.1,
        source_offset: 0,
        destination_offset: 0,
        count,
        consecutive: true,
        synchronous: false,
        source_servers: List::new(vec![at_address(b"tcp", b"192.0.2.7.8.1")]).unwrap(),
    }
}

/// Returns the source's bytes; neighbors differ.
fn bytes(offset: u64, length: u64) -> Bytes {
    (offset..offset + length).map(|at| (at % 251) as u8).collect::<Vec<_>>().into()
}

/// Returns the reply of a source of `size` bytes.
fn of_size(fetch: &Fetch, size: u64, at: Now) -> Fetched {
    let length = size.saturating_sub(fetch.offset).min(fetch.count.into());
    let is_end = fetch.offset + length >= size;
    let content = vec![Extent::Data(bytes(fetch.offset, length))];
    Fetched { content, is_end, granted: GRANTED, size: fetch.wants_size.then_some(size), at }
}

impl Scene {
    fn ops(&self, args: CopyArgs) -> Vec<Op> {
        vec![putfh(Handle::new(SOURCE).unwrap()), Op::SaveFh, putfh(self.to.0), Op::Copy(args)]
    }

    /// Sends COPY, which waits for the source.
    fn ask(&mut self, args: CopyArgs) -> PendingCall {
        let ops = self.ops(args);
        self.slot += 1;
        let mut flight = self.client.start(self.slot, ops);
        assert!(flight.poll().is_none(), "it waits for the source");
        flight
    }

    /// Returns the next READ for the driver.
    fn fetch(&self) -> Option<Fetch> {
        self.lab.server.shared.fetches.next()
    }

    /// Answers the next READ as a source of `size` bytes.
    fn serve(&self, size: u64) {
        let fetch = self.fetch().expect("something is to be read");
        let fetched = of_size(&fetch, size, self.client.now());
        fetch.answer(Ok(fetched));
    }

    /// Starts a copy of a source of `size` bytes in the background.
    fn begin(&mut self, size: u64) -> (Stateid, Arc<Offload>) {
        let args = args(self, 0);
        let mut flight = self.ask(args);
        self.serve(size);
        let stateid = ok(&mut flight).response.callback_id[0];
        (stateid, self.lab.server.shared.state.next_offload(true).expect("the driver must run it"))
    }

    /// Runs a step of the copy, in which the source answers `answer`.
    fn step(&self, offload: &Arc<Offload>, answer: Result<u64, FetchError>) -> Advanced {
        let mut step = pin!(self.lab.server.shared.advance(offload, self.client.now()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(step.as_mut().poll(&mut context).is_pending(), "it waits for the source");
        let fetch = self.fetch().expect("something is to be read");
        let answer = answer.map(|size| of_size(&fetch, size, self.client.now()));
        fetch.answer(answer);
        match step.poll(&mut context) {
            Poll::Ready(advanced) => advanced,
            Poll::Pending => panic!("it still waits"),
        }
    }

    /// Returns the outcome of the only copy.
    fn ending(&self) -> OffloadInfo {
        let calls = self.client.calls();
        let [call] = &calls[..] else { panic!("{} calls", calls.len()) };
        let CbOp::Offload(args) = call.operation() else { panic!("{:?}", call.operation()) };
        self.client.answer(call.results(CbOpResult::Offload(Outcome::Ok(()))));
        args.info.clone()
    }

    /// Makes the export read-only.
    fn make_read_only(&self) {
        let mut read_only = export(1, "/export");
        read_only.options.read_only = true;
        self.lab.server.replace_exports(ExportTable::new(vec![read_only]).unwrap());
    }

    fn size(&mut self) -> u64 {
        use protocol::nfs4::attributes::number;
        self.lab.attributes(&["export", "destination"], &[number::SIZE]).size.unwrap()
    }
}

fn ok(flight: &mut PendingCall) -> CopyOk {
    match flight.poll().expect("it is answered").results.into_vec().pop() {
        Some(OpResult::Copy(CopyResult::Ok(ok))) => ok,
        other => panic!("{other:?}"),
    }
}

#[test]
fn copies_short_file_from_other_server_synchronously() {
    let mut scene = scene();
    let args = CopyArgs { source_offset: 100, destination_offset: 3, ..args(&scene, 1000) };
    let mut flight = scene.ask(args);
    let fetch = scene.fetch().unwrap();
    assert_eq!(fetch.file.addresses, [SocketAddr::from(([192, 0, 2, 7], 2049))]);
    assert_eq!(fetch.file.local, IpAddr::from([127, 0, 0, 1]));
    assert_eq!((&fetch.file.handle[..], fetch.file.stateid), (SOURCE, NOTIFIED));
    assert_eq!((fetch.offset, fetch.count, fetch.file.credentials.uid), (100, 1000, 0));
    let fetched = of_size(&fetch, 5000, scene.client.now());
    fetch.answer(Ok(fetched));
    let done = ok(&mut flight);
    assert_eq!((done.response.count, done.response.callback_id.len()), (1000, 0));
    assert!(done.requirements.consecutive && done.requirements.synchronous);
    let expected = [&[0; 3][..], &bytes(100, 1000)].concat();
    assert_eq!(content(&mut scene.lab, scene.to.0), expected);
    assert!(scene.fetch().is_none());
}

#[test]
fn joins_short_reads() {
    let mut scene = scene();
    let args = CopyArgs { synchronous: true, ..args(&scene, 0) };
    let mut flight = scene.ask(args);
    let size = 3 * MIB + 5;
    let first = scene.fetch().unwrap();
    // RFC 8881 §18.22.3 lets a server return less than was requested.
    let (content, at) = (vec![Extent::Data(bytes(0, 10))], scene.client.now());
    let short = Fetched { content, is_end: false, granted: GRANTED, size: Some(size), at };
    first.answer(Ok(short));
    while flight.poll().is_none() {
        scene.serve(size);
    }
    assert_eq!(scene.size(), size);
    let mut ends = |offset: u64| {
        use protocol::nfs4::ops::read::ReadArgs;
        let read = Op::Read(ReadArgs { stateid: Stateid::ANONYMOUS, offset, count: 5 });
        let OpResult::Read(read) = scene.lab.last(vec![putfh(scene.to.0), read]) else { panic!() };
        read.into_result().unwrap().data.to_vec()
    };
    assert_eq!(
        (ends(8), ends(MIB + 8), ends(size - 5)),
        (bytes(8, 5).to_vec(), bytes(MIB + 8, 5).to_vec(), bytes(size - 5, 5).to_vec())
    );
}

#[test]
fn long_copy_continues_after_reply_and_reports_end() {
    let mut scene = scene();
    let size = 3 * MIB + 5;
    let (stateid, offload) = scene.begin(size);
    assert!(offload.is_from_elsewhere());
    assert_eq!(scene.step(&offload, Ok(size)), Advanced::More);
    let status = Op::OffloadStatus(OffloadArgs { stateid });
    let OpResult::OffloadStatus(status) = scene.client.last(vec![putfh(scene.to.0), status]) else {
        panic!("OFFLOAD_STATUS")
    };
    assert_eq!(status.into_result().unwrap().count, 2 * MIB);
    assert_eq!(scene.step(&offload, Ok(size)), Advanced::More);
    assert_eq!(scene.step(&offload, Ok(size)), Advanced::Done);
    let OffloadInfo::Ok(ending) = scene.ending() else { panic!("it failed") };
    assert_eq!((ending.count, scene.size()), (size, size));
    assert_eq!(scene.lab.server.counts().copies, 0);
}

#[test]
fn copy_ends_where_remote_source_was_truncated() {
    let mut scene = scene();
    let (_, offload) = scene.begin(3 * MIB);
    assert_eq!(scene.step(&offload, Ok(MIB + 7)), Advanced::Done);
    let OffloadInfo::Ok(ending) = scene.ending() else { panic!("it failed") };
    assert_eq!((ending.count, scene.size()), (MIB + 7, MIB + 7));
}

#[test]
fn waits_for_lost_source_within_bound() {
    let mut scene = scene();
    let (_, offload) = scene.begin(3 * MIB);
    for _ in 0..2 {
        for lost in [FetchError::Unreachable, FetchError::Refused(Status::GRACE), FetchError::Busy] {
            assert_eq!(scene.step(&offload, Err(lost)), Advanced::Later);
            scene.client.seconds += 15;
        }
        // Progress restarts the deadline.
        assert_eq!(scene.step(&offload, Ok(8 * MIB)), Advanced::More);
    }
    assert_eq!(scene.step(&offload, Err(FetchError::Unreachable)), Advanced::Later);
    scene.client.seconds += 60;
    assert_eq!(scene.step(&offload, Err(FetchError::Unreachable)), Advanced::Done);
    // RFC 7862 §11.1.2.1: the client "should fall back to the normal copy semantics".
    assert_eq!(scene.ending(), OffloadInfo::Error(Status::OFFLOAD_DENIED, 3 * MIB));
    assert_eq!(scene.lab.server.counts().copies, 0);
}

/// A busy source works, but serves others.
#[test]
fn busy_source_does_not_count_as_lost() {
    let mut scene = scene();
    let (_, offload) = scene.begin(3 * MIB);
    for _ in 0..5 {
        assert_eq!(scene.step(&offload, Err(FetchError::Busy)), Advanced::Later);
        scene.client.seconds += 30;
    }
    assert_eq!(scene.step(&offload, Ok(8 * MIB)), Advanced::More);
}

#[test]
fn failed_write_does_not_count_as_lost_source() {
    let mut scene = scene();
    let (_, offload) = scene.begin(3 * MIB);
    assert_eq!(scene.step(&offload, Err(FetchError::Unreachable)), Advanced::Later);
    scene.client.seconds += 50;
    scene.backend.add(Rule::on(Method::Write, Fault::Fail(vfs::Error::Later)).times(1));
    assert_eq!(scene.step(&offload, Ok(8 * MIB)), Advanced::Later);
    scene.client.seconds += 50;
    assert_eq!(scene.step(&offload, Err(FetchError::Unreachable)), Advanced::Later);
}

/// RFC 7862 §15.2.3 demands INVAL for a source that is too short. READs show the end of the source.
#[test]
fn late_invalid_read_fails_the_copy() {
    let mut scene = scene();
    let (_, offload) = scene.begin(3 * MIB);
    assert_eq!(scene.step(&offload, Err(FetchError::Refused(Status::INVAL))), Advanced::Done);
    assert_eq!(scene.ending(), OffloadInfo::Error(Status::OFFLOAD_DENIED, MIB));
}

#[test]
fn rechecks_rights_after_source_read() {
    let mut closed = scene();
    let args_closed = args(&closed, 0);
    let mut flight = closed.ask(args_closed);
    let (file, open_stateid) = closed.to;
    closed.client.ok(vec![putfh(file), Op::Close(CloseArgs { seqid: 0, open_stateid })]);
    closed.serve(10);
    assert_eq!(flight.poll().unwrap().status, Status::BAD_STATEID);
    assert_eq!(closed.size(), 0);
    let mut read_only = scene();
    let args_read_only = args(&read_only, 0);
    let mut flight = read_only.ask(args_read_only);
    let writes = read_only.backend.calls(Method::Write);
    read_only.make_read_only();
    read_only.serve(10);
    assert_eq!(flight.poll().unwrap().status, Status::ROFS);
    assert_eq!(read_only.backend.calls(Method::Write), writes);
}

#[test]
fn stops_reading_when_destination_is_not_writable() {
    let mut scene = scene();
    let (_, offload) = scene.begin(3 * MIB);
    scene.make_read_only();
    let mut step = pin!(scene.lab.server.shared.advance(&offload, scene.client.now()));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(step.as_mut().poll(&mut context), Poll::Ready(Advanced::Done));
    assert!(scene.fetch().is_none());
    assert_eq!(scene.ending(), OffloadInfo::Error(Status::ROFS, MIB));
}

#[test]
fn recalls_before_writing_copied_data() {
    use protocol::nfs4::attributes::number;
    let mut scene = scene();
    let mtime = |scene: &mut Scene| {
        let reported = scene.lab.attributes(&["export", "destination"], &[number::TIME_MODIFY]);
        reported.time_modify.unwrap().seconds
    };
    let args = args(&scene, 0);
    let mut flight = scene.ask(args);
    scene.client.seconds += 9;
    scene.serve(3 * MIB);
    assert!(flight.poll().is_some());
    assert_eq!(mtime(&mut scene), scene.client.now().wall.seconds);
    let offload = scene.lab.server.shared.state.next_offload(true).expect("the driver must run it");
    let server = Arc::clone(&scene.lab.server);
    let mut step = pin!(server.shared.advance(&offload, scene.client.now()));
    assert!(step.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    scene.client.seconds += 9;
    scene.serve(3 * MIB);
    assert!(step.poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!(mtime(&mut scene), scene.client.now().wall.seconds);
}

#[test]
fn revokes_copy_when_source_forgot_client() {
    let mut scene = scene();
    let (_, offload) = scene.begin(3 * MIB);
    let forgotten = FetchError::Refused(Status::BAD_STATEID);
    assert_eq!(scene.step(&offload, Err(forgotten)), Advanced::Done);
    assert_eq!(scene.ending(), OffloadInfo::Error(Status::PARTNER_NO_AUTH, MIB));
}

#[test]
fn cancels_copy_while_source_is_silent() {
    let mut scene = scene();
    let (stateid, offload) = scene.begin(3 * MIB);
    let server = Arc::clone(&scene.lab.server);
    let mut step = pin!(server.shared.advance(&offload, scene.client.now()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(step.as_mut().poll(&mut context).is_pending());
    let fetch = scene.fetch().unwrap();
    let cancel = vec![putfh(scene.to.0), Op::OffloadCancel(OffloadArgs { stateid })];
    let mut cancelled = scene.client.start(5, cancel);
    assert!(cancelled.poll().is_none(), "the step is not over");
    assert_eq!(step.poll(&mut context), Poll::Ready(Advanced::Done));
    assert_eq!(cancelled.poll().unwrap().status, Status::OK);
    assert!(fetch.poll_unwanted(&context).is_ready());
    let late = of_size(&fetch, 3 * MIB, scene.client.now());
    fetch.answer(Ok(late));
    assert_eq!(scene.size(), MIB, "a late reply is not written");
    assert!(scene.client.calls().is_empty());
}

#[test]
fn maps_source_errors_to_copy_statuses() {
    let mut scene = scene();
    let refused = FetchError::Refused;
    for (error, expected) in [
        (FetchError::Unreachable, Status::OFFLOAD_DENIED),
        (FetchError::Unsupported, Status::PARTNER_NOTSUPP),
        (FetchError::Busy, Status::DELAY),
        (refused(Status::DELAY), Status::DELAY),
        (refused(Status::GRACE), Status::DELAY),
        (refused(Status::PARTNER_NO_AUTH), Status::PARTNER_NO_AUTH),
        (refused(Status::BAD_STATEID), Status::OFFLOAD_DENIED),
        (refused(Status::ACCESS), Status::OFFLOAD_DENIED),
        (refused(Status::ISDIR), Status::WRONG_TYPE),
        (refused(Status::BADHANDLE), Status::STALE),
        (refused(Status::IO), Status::IO),
    ] {
        let args = args(&scene, 0);
        let mut flight = scene.ask(args);
        scene.fetch().unwrap().answer(Err(error));
        assert_eq!(flight.poll().unwrap().status, expected, "{error:?}");
    }
    assert_eq!((scene.size(), scene.lab.server.counts().copies), (0, 0));
}

#[test]
fn source_range_beyond_end_is_invalid() {
    let mut scene = scene();
    for (source_offset, count) in [(0, 11), (11, 0), (5, 6), (10, 1)] {
        let args = CopyArgs { source_offset, ..args(&scene, count) };
        let mut flight = scene.ask(args);
        scene.serve(10);
        assert_eq!(flight.poll().unwrap().status, Status::INVAL, "{source_offset} {count}");
    }
    assert_eq!(scene.size(), 0);
    let args = CopyArgs { source_offset: 10, ..args(&scene, 0) };
    let mut flight = scene.ask(args);
    scene.serve(10);
    assert_eq!(ok(&mut flight).response.count, 0, "nothing is to be copied");
}

#[test]
fn reads_only_from_permitted_servers() {
    let mut scene = scene();
    let named = NetLocation::Name(Utf8::from_static(b"192.0.2.7"));
    let url = NetLocation::Url(Utf8::from_static(b"nfs://192.0.2.7/"));
    for wrong in [
        named,
        url,
        at_address(b"tcp", b"192.0.3.7.8.1"),
        at_address(b"tcp", b"127.0.0.1.8.1"),
        at_address(b"udp", b"192.0.2.7.8.1"),
        at_address(b"tcp6", b"192.0.2.7.8.1"),
        at_address(b"tcp", b"192.0.2.7.0.0"),
        at_address(b"tcp", b"192.0.2.7"),
        at_address(b"tcp6", b"::1.8.1"),
        at_address(b"tcp6", b"::ffff:192.0.3.7.8.1"),
        // IPv4 addresses embedded in IPv6 in other ways than mapped are other addresses.
        at_address(b"tcp6", b"::192.0.2.7.8.1"),
        at_address(b"tcp6", b"64:ff9b::c000:207.8.1"),
        at_address(b"tcp6", b"fe80::1%1.8.1"),
        at_address(b"tcp", b"192.0.2.07.8.1"),
        at_address(b"tcp", b"3221226001.8.1"),
        at_address(b"tcp", b"192.0.2.7.8.256"),
        at_address(b"tcp", b"192.0.2.7.8.1.1"),
    ] {
        let source_servers = List::new(vec![wrong.clone()]).unwrap();
        let ops = scene.ops(CopyArgs { source_servers, ..args(&scene, 0) });
        assert_eq!(scene.client.status(ops), Status::OFFLOAD_DENIED, "{wrong:?}");
    }
    assert!(scene.fetch().is_none());
    let both = vec![at_address(b"tcp", b"10.0.0.1.8.1"), at_address(b"tcp6", b"::ffff:192.0.2.9.8.1")];
    let source_servers = List::new(both).unwrap();
    let args = CopyArgs { source_servers, ..args(&scene, 0) };
    let _flight = scene.ask(args);
    let addresses = scene.fetch().unwrap().file.addresses.clone();
    assert_eq!(addresses, ["[::ffff:192.0.2.9]:2049".parse::<SocketAddr>().unwrap()]);
}

#[test]
fn permitting_all_networks_excludes_own_addresses() {
    let (exported, _) = faulty();
    let lab = lab_with(vec![exported], |settings| {
        settings.copy_from = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
    });
    let local = "192.0.2.1".parse().unwrap();
    let permitted = |networks, netid, address| {
        crate::programs::nfs4::ops::copy::from_elsewhere::permitted(
            networks,
            local,
            &[at_address(netid, address)],
        )
        .len()
    };
    let is_permitted = |netid, address| permitted(&lab.server.settings().copy_from, netid, address) == 1;
    assert!(is_permitted(b"tcp", b"192.0.2.7.8.1") && is_permitted(b"tcp6", b"2001:db8::1.8.1"));
    for near in
        [&b"127.0.0.1.8.1"[..], b"127.9.9.9.8.1", b"0.0.0.0.8.1", b"0.1.2.3.8.1", b"169.254.169.254.0.80"]
    {
        assert!(!is_permitted(b"tcp", near), "{}", near.escape_ascii());
    }
    for near in [&b"::1.8.1"[..], b"::.8.1", b"fe80::1.8.1", b"::ffff:127.0.0.1.8.1", b"::ffff:0.0.0.0.8.1"] {
        assert!(!is_permitted(b"tcp6", near), "{}", near.escape_ascii());
    }
    let own = ["127.0.0.0/8".parse().unwrap()];
    assert_eq!(permitted(&own, b"tcp6", b"::ffff:127.0.0.1.8.1"), 1);
    // The address at which its clients reach it.
    assert!(!is_permitted(b"tcp", b"192.0.2.1.8.1") && !is_permitted(b"tcp6", b"::ffff:192.0.2.1.0.80"));
    assert_eq!(permitted(&["192.0.2.0/24".parse().unwrap()], b"tcp", b"192.0.2.1.8.1"), 1);
}

#[test]
fn refuses_invalid_copy_before_reading_source() {
    let mut scene = scene();
    let wrong = |change: &dyn Fn(&mut CopyArgs)| {
        let mut args = args(&scene, 0);
        change(&mut args);
        scene.ops(args)
    };
    let special = wrong(&|args| args.source_stateid = Stateid::ANONYMOUS);
    let bypass = wrong(&|args| args.source_stateid = Stateid::READ_BYPASS);
    let foreign = wrong(&|args| args.destination_stateid = NOTIFIED);
    let local = wrong(&|args| args.source_servers = List::default());
    let same = vec![putfh(scene.to.0), Op::SaveFh, Op::Copy(args(&scene, 0))];
    let source = putfh(Handle::new(SOURCE).unwrap());
    let onto_itself = vec![source, Op::SaveFh, Op::Copy(args(&scene, 0))];
    let client = &mut scene.client;
    assert_eq!(client.status(special), Status::BAD_STATEID);
    assert_eq!(client.status(bypass), Status::BAD_STATEID);
    assert_eq!(client.status(foreign), Status::BAD_STATEID);
    assert_eq!(client.status(local), Status::STALE, "a foreign handle names no file of this server");
    assert_eq!(client.status(same), Status::INVAL);
    assert_eq!(client.status(onto_itself), Status::STALE);
    scene.make_read_only();
    let ops = scene.ops(args(&scene, 0));
    assert_eq!(scene.client.status(ops), Status::ROFS);
    assert!(scene.fetch().is_none());
}
