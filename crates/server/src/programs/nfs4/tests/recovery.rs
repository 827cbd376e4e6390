//! Restarts, for clients of every version.

use std::sync::Arc;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::lock::{LockArgs, LockOutcome, LockType, Locker, OpenToLockOwner};
use protocol::nfs4::ops::open::{CreateHow, DelegationType, OpenArgs, OpenClaim, OpenHow, ShareAccess};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::session::{ReclaimCompleteArgs, SequenceStatus};
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::setclientid::RenewArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{Handle, HasStatus, StableHow, StateOwner, Stateid, Status};
use vfs::{Context, Credentials, Timestamp};
use xdr::Opaque;

use crate::state::MemoryLog;
use crate::testing::minor0::V40Lab;
use crate::testing::{
    KEY, Lab, at, channel, create, export, name, open, open_args, open_result, putfh, session_args, size,
};
use crate::{Export, ExportTable, Server, Settings};

/// A log, an export, and the servers that use them in turn.
struct Site {
    disk: Arc<MemoryLog>,
    exports: Vec<Export>,
    starts: u64,
    server: Arc<Server>,
    connections: u64,
}

impl Site {
    /// Returns a site with an empty file `file`.
    fn new() -> Self {
        let (disk, exports) = (Arc::new(MemoryLog::default()), vec![export(1, "/export")]);
        let server = start(&disk, &exports, 1);
        let mut site = Self { disk, exports, starts: 1, server, connections: 0 };
        let mut maker = site.client(b"maker", 1);
        maker.file(&["export", "file"], b"hello");
        let id = maker.client_id;
        site.server.shared.state.evict(id).unwrap();
        site
    }

    fn restart(&mut self) {
        self.starts += 1;
        self.server = start(&self.disk, &self.exports, self.starts);
    }

    /// Returns the change attributes of the export's directory and of its `file`, if it exists.
    fn seen(&self) -> [Option<u64>; 2] {
        let (backend, context) = (&self.exports[0].backend, &root_context());
        let root = backend.root();
        let directory = backend.getattr(context, &root).at_once().ok().and_then(Result::ok);
        let file = backend.lookup(context, &root, b"file").at_once().ok().and_then(Result::ok);
        [directory.map(|it| it.change), file.map(|it| it.attributes.change)]
    }

    /// Returns an unregistered client.
    fn stranger(&mut self, minor: u32) -> Lab {
        self.connections += 1;
        let mut lab = Lab::without_session(Arc::clone(&self.server), self.connections);
        lab.minor = minor;
        lab
    }

    /// Returns a client with a session that reclaims nothing.
    fn client(&mut self, name: &'static [u8], minor: u32) -> Lab {
        let mut lab = self.stranger(minor);
        lab.connect(name);
        lab
    }

    /// Returns a client that registers again after a restart.
    fn again(&mut self, name: &'static [u8], minor: u32) -> Lab {
        let mut lab = self.stranger(minor);
        let id = lab.exchange(name);
        let session = lab.create_session(&id, channel());
        (lab.session, lab.sequence, lab.client_id) = (session.session_id, 0, id.client_id);
        lab
    }
}

fn root_context() -> Context {
    Context::new(Arc::new(Credentials::root()), Timestamp::default())
}

fn start(disk: &Arc<MemoryLog>, exports: &[Export], number: u64) -> Arc<Server> {
    let settings = Settings::new(KEY, number, [number as u8; 16], b"test".to_vec());
    let exports = ExportTable::new(exports.to_vec()).unwrap();
    let mut server = Server::new(settings.clone(), exports);
    server.shared.state = crate::state::State::new(&settings, disk.records(), std::time::Duration::ZERO);
    Arc::new(server)
}

fn reclaiming() -> Op {
    let claim = OpenClaim::Previous(DelegationType::NONE);
    Op::Open(OpenArgs { claim, ..open_args("", b"o", ShareAccess::BOTH, OpenHow::NoCreate) })
}

fn locking(open_stateid: Stateid, name: &'static [u8], reclaim: bool) -> Op {
    let lock_owner = StateOwner { client_id: 0, owner: Opaque::from_static(name) };
    let new = OpenToLockOwner { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner };
    let (lock_type, offset, length) = (LockType::Write, 0, 10);
    Op::Lock(LockArgs { lock_type, reclaim, offset, length, locker: Locker::New(new) })
}

fn lock_status(lab: &mut Lab, file: Handle, op: Op) -> Status {
    match lab.run(vec![putfh(file), op]).results.into_vec().pop() {
        Some(OpResult::Lock(LockOutcome::Ok(_))) => Status::OK,
        Some(OpResult::Lock(LockOutcome::Denied(_))) => Status::DENIED,
        Some(OpResult::Lock(LockOutcome::Error(status))) => status,
        other => panic!("{other:?}"),
    }
}

fn reading(stateid: Stateid) -> Op {
    Op::Read(ReadArgs { stateid, offset: 0, count: 10 })
}

fn done() -> Vec<Op> {
    vec![Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })]
}

fn flags(lab: &mut Lab) -> SequenceStatus {
    match &lab.run(Vec::new()).results[0] {
        OpResult::Sequence(result) => result.as_result().unwrap().status_flags,
        other => panic!("{other:?}"),
    }
}

#[test]
fn restart_gives_statuses_of_rfc_8881() {
    for minor in [1, 2] {
        let mut site = Site::new();
        let mut client = site.client(b"client", minor);
        let (file, old) = client.open(&["export", "file"], b"o");
        assert_eq!(lock_status(&mut client, file, locking(old, b"l", false)), Status::OK);
        site.restart();

        // RFC 8881 §8.4.2.1: BADSESSION for SEQUENCE, STALE_CLIENTID for CREATE_SESSION, with IDs of the previous server.
        client.server = Arc::clone(&site.server);
        let sequence = client.next(true);
        assert_eq!(client.send(&crate::testing::compound(vec![sequence])).status, Status::BADSESSION);
        let create = Op::CreateSession(session_args(client.client_id, 2));
        assert_eq!(client.alone(create).status(), Status::STALE_CLIENTID);

        let mut client = site.again(b"client", minor);
        let mut rival = site.client(b"rival", minor);
        assert_eq!(flags(&mut client), SequenceStatus::RESTART_RECLAIM_NEEDED);
        assert_eq!(flags(&mut rival), SequenceStatus::empty());
        // §8.2.4: a stateid of the previous server is unknown; version 4.1 has no STALE_STATEID.
        assert_eq!(client.status(vec![putfh(file), reading(old)]), Status::BAD_STATEID);
        for lab in [&mut client, &mut rival] {
            let op = open("file", b"new", ShareAccess::READ);
            assert_eq!(lab.status_at(&["export"], op), Status::GRACE);
            assert_eq!(lab.status(vec![putfh(file), reading(Stateid::ANONYMOUS)]), Status::GRACE);
        }
        assert_eq!(rival.status(vec![putfh(file), reclaiming()]), Status::NO_GRACE);

        let results = client.ok(vec![putfh(file), reclaiming()]);
        let stateid = open_result(results.last().unwrap()).stateid;
        assert_eq!(lock_status(&mut client, file, locking(stateid, b"m", false)), Status::GRACE);
        assert_eq!(lock_status(&mut client, file, locking(stateid, b"l", true)), Status::OK);
        // The client held no such lock besides the other.
        assert_eq!(lock_status(&mut client, file, locking(stateid, b"m", true)), Status::RECLAIM_CONFLICT);
        assert_eq!(client.status(vec![putfh(file), reading(stateid)]), Status::OK);
        assert_eq!(client.status(done()), Status::OK);
        assert_eq!(client.status(done()), Status::COMPLETE_ALREADY);
        assert_eq!(flags(&mut client), SequenceStatus::empty());
        assert_eq!(client.status(vec![putfh(file), reclaiming()]), Status::NO_GRACE);

        // The last recorded client has finished its reclaims: grace ends, and the lock remains.
        let (_, of_rival) = rival.open(&["export", "file"], b"r");
        assert_eq!(lock_status(&mut rival, file, locking(of_rival, b"l", false)), Status::DENIED);
        assert_eq!(lock_status(&mut rival, file, locking(of_rival, b"l", true)), Status::NO_GRACE);
    }
}

#[test]
fn restart_gives_statuses_of_rfc_7530() {
    let mut site = Site::new();
    let mut client = V40Lab::of(&site.server, 40, b"client");
    let (file, old) = client.open("file", b"o");
    site.restart();
    client.lab.server = Arc::clone(&site.server);
    // RFC 7530 §9.6.2: "the client will receive … NFS4ERR_STALE_STATEID or NFS4ERR_STALE_CLIENTID".
    let renew = |client: &V40Lab| vec![Op::Renew(RenewArgs { client_id: client.client_id })];
    let renewal = renew(&client);
    assert_eq!(client.status(renewal), Status::STALE_CLIENTID);
    assert_eq!(client.status(vec![putfh(file), reading(old)]), Status::STALE_STATEID);
    let op = client.open_op("file", b"o");
    assert_eq!(client.status(at(&["export"], vec![op])), Status::STALE_CLIENTID);

    let mut rival = V40Lab::of(&site.server, 41, b"rival");
    let mut client = V40Lab::of(&site.server, 42, b"client");
    let reclaiming = |client: &mut V40Lab| {
        let Op::Open(mut args) = reclaiming() else { unreachable!() };
        (args.owner, args.seqid) = (client.owner(b"o"), client.next(b"o"));
        vec![putfh(file), Op::Open(args)]
    };
    let ops = reclaiming(&mut rival);
    assert_eq!(rival.status(ops), Status::NO_GRACE);
    let ops = reclaiming(&mut client);
    assert_eq!(client.status(ops), Status::OK, "no OPEN_CONFIRM: RFC 7530 §9.1.11");
    let op = rival.open_op("file", b"r");
    assert_eq!(rival.status(at(&["export"], vec![op])), Status::GRACE);
    for expected in [Status::GRACE, Status::GRACE, Status::OK] {
        let op = client.open_op("file", b"o");
        assert_eq!(client.status(at(&["export"], vec![op])), expected);
    }
    let ops = reclaiming(&mut client);
    assert_eq!(client.status(ops), Status::NO_GRACE);
    rival.open("file", b"r");
}

#[test]
fn first_open_waits_for_durable_client_record() {
    let mut site = Site::new();
    let (mut client, mut other) = (site.again(b"client", 1), site.client(b"other", 1));
    site.disk.slow_down();
    let mut completing = client.start(1, done());
    assert_eq!(completing.poll(), None);
    other.open(&["export", "file"], b"o");
    let mut client0 = V40Lab::of(&site.server, 40, b"client");
    let op = client0.open_op("file", b"o");
    let mut opening0 =
        client0.lab.start_compound(&crate::testing::minor0::compound0(at(&["export"], vec![op])));
    assert_eq!(opening0.poll(), None);
    site.disk.sync();
    for flight in [&mut completing, &mut opening0] {
        assert_eq!(flight.poll().map(|result| result.status), Some(Status::OK));
    }
}

#[test]
fn retransmitted_open_waits_for_durable_record() {
    let site = Site::new();
    site.disk.slow_down();
    let mut client = V40Lab::of(&site.server, 40, b"client");
    let args = crate::testing::minor0::compound0(at(&["export"], vec![client.open_op("file", b"o")]));
    let mut first = client.lab.start_compound(&args);
    assert_eq!(first.poll(), None);
    // Over another connection, with another xid: the owner's seqid identifies the retransmission.
    let mut again = Lab::without_session(Arc::clone(&site.server), 41);
    let mut second = again.start_compound(&args);
    assert_eq!(second.poll(), None);
    site.disk.sync();
    for flight in [&mut first, &mut second] {
        assert_eq!(flight.poll().map(|result| result.status), Some(Status::OK));
    }
}

#[test]
fn all_versions_wait_for_durable_revocation() {
    let mut site = Site::new();
    let (mut client, mut other) = (site.client(b"client", 1), site.client(b"other", 1));
    let (file, _) = client.open(&["export", "file"], b"o");
    site.disk.slow_down();
    site.server.shared.state.evict(client.client_id).unwrap();
    let object = protocol::nfs3::FileHandle::new(&file).unwrap();
    let get = protocol::nfs3::GetattrArgs { object };
    let mut third = client.start_nfs3(protocol::nfs3::Proc::GETATTR.0, &get);
    let mut fourth = other.start(1, at(&["export"], vec![]));
    assert!(third.poll_bytes().is_none() && fourth.poll().is_none());
    site.disk.sync();
    assert!(third.poll_bytes().is_some());
    assert_eq!(fourth.poll().map(|result| result.status), Some(Status::OK));
}

/// Evicts a client that has the file open, while the disk is too slow to record that.
fn evicted_for_now() -> (Site, Lab, Handle) {
    let mut site = Site::new();
    let (mut client, mut other) = (site.client(b"client", 1), site.client(b"other", 1));
    let (file, _) = client.open(&["export", "file"], b"o");
    other.ok(at(&["export"], vec![]));
    site.disk.slow_down();
    site.server.shared.state.evict(client.client_id).unwrap();
    (site, other, file)
}

fn writing(stateid: Stateid) -> Op {
    let data = Opaque::from_static(b"other");
    Op::Write(WriteArgs { stateid, offset: 0, stable: StableHow::Unstable, data })
}

/// RFC 8881 §8.4.3: a client that reclaims a lock must find the data that the lock protected.
#[test]
fn changes_wait_for_durable_revocation() {
    let truncating = OpenHow::Create(CreateHow::Unchecked(size(0)));
    let opening = || Op::Open(open_args("file", b"p", ShareAccess::BOTH, truncating.clone()));
    let cutting = SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: size(0) };
    let removing = Op::Remove(RemoveArgs { target: name("file") });
    let inside = |op| at(&["export"], vec![op]);
    let onto = |op| at(&["export", "file"], vec![op]);
    let changes = [
        onto(writing(Stateid::ANONYMOUS)),
        at(&["export"], vec![open("file", b"p", ShareAccess::BOTH), writing(Stateid::CURRENT)]),
        inside(opening()),
        onto(Op::SetAttr(cutting)),
        inside(removing),
        inside(create("new", b"p")),
    ];
    for change in changes {
        let (site, mut other, _) = evicted_for_now();
        let shown = format!("{change:?}");
        let before = site.seen();
        let mut flight = other.start(1, change);
        assert_eq!(flight.poll(), None, "{shown}");
        assert_eq!(site.seen(), before, "{shown}");
        site.disk.sync();
        assert_eq!(flight.poll().map(|result| result.status), Some(Status::OK), "{shown}");
        assert_ne!(site.seen(), before, "{shown}");
    }
}

#[test]
fn version_3_changes_wait_for_durable_revocation() {
    let (site, mut other, file) = evicted_for_now();
    let before = site.seen();
    let args = protocol::nfs3::WriteArgs {
        file: protocol::nfs3::FileHandle::new(&file).unwrap(),
        offset: 0,
        count: 5,
        stable: protocol::nfs3::StableHow::Unstable,
        data: Opaque::from_static(b"other"),
    };
    let mut flight = other.start_nfs3(protocol::nfs3::Proc::WRITE.0, &args);
    assert!(flight.poll_bytes().is_none());
    assert_eq!(site.seen(), before);
    site.disk.sync();
    assert!(flight.poll_bytes().is_some());
    assert_ne!(site.seen(), before);
}

#[test]
fn reclaims_delegations_except_revoked_ones() {
    let mut site = Site::new();
    let mut maker = site.client(b"maker", 1);
    let second = maker.file(&["export", "second"], b"");
    let first = maker.handle(&["export", "file"]);
    let mut holder = maker.reachable(b"holder", 70);
    for name in ["file", "second"] {
        let results = holder.ok(at(&["export"], vec![open(name, b"o", ShareAccess::READ)]));
        let delegation = &open_result(results.last().unwrap()).delegation;
        assert!(matches!(delegation, protocol::nfs4::ops::open::OpenDelegation::Read(_)), "{delegation:?}");
    }
    let mut writing = maker.start(1, at(&["export"], vec![open("file", b"w", ShareAccess::WRITE)]));
    assert!(writing.poll().is_none(), "it is recalled");
    for _ in 0..95 {
        (maker.seconds, holder.seconds) = (maker.seconds + 1, maker.seconds + 1);
        assert_eq!((maker.status(vec![]), holder.status(vec![])), (Status::OK, Status::OK));
        maker.server.maintain(maker.now());
    }
    assert_eq!(site.server.counts().delegations, 1, "it was not returned in time");
    site.restart();
    let mut holder = site.again(b"holder", 1);
    assert_eq!(holder.status(vec![putfh(first), reclaiming()]), Status::NO_GRACE);
    assert_eq!(holder.status(vec![putfh(second), reclaiming()]), Status::OK);
}
