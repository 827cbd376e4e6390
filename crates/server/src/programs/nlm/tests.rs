//! Scenarios of NLM against a file system in memory, through the whole server, together with NFSv4 clients.

mod hosts;
mod restarts;
mod versions;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::lock as lock4;
use protocol::nfs4::ops::open::{OpenDelegation, ShareAccess as Access4, ShareDeny};
use protocol::nfs4::types::{Handle, StateOwner, Stateid, Status};
use protocol::nlm::*;
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{AcceptStatus, CallHeader, RpcError, encode_call, parse_reply};
use vfs::Timestamp;
use xdr::{Decode, Encode, Opaque, Writer};

use crate::testing::{Lab, at, lab, open_args, open_result, putfh};
use crate::work::{HostAnswer, HostCall};
use crate::{Connection, ConnectionId, Disposition, Now, Server, Transport, Work};

/// A host that calls the lock manager.
struct Host {
    server: Arc<Server>,
    connection: Arc<Connection>,
    name: &'static str,
    uid: u32,
    seconds: u64,
    xid: u32,
}

/// A file, and a range of it.
#[derive(Clone, Copy)]
struct Range {
    file: Handle,
    svid: i32,
    start: u64,
    length: u64,
}

fn host_at(server: &Arc<Server>, address: [u8; 4], port: u16, name: &'static str) -> Host {
    let (peer, local) = ((address, port).into(), ([127, 0, 0, 1], 2049).into());
    let id = ConnectionId(1000 + u64::from(address[3]));
    let connection = Arc::new(Connection::new(id, peer, local, Transport::Tcp, false));
    Host { server: Arc::clone(server), connection, name, uid: 0, seconds: 1, xid: 0 }
}

fn host(server: &Arc<Server>, last: u8, name: &'static str) -> Host {
    host_at(server, [192, 0, 2, last], 700, name)
}

/// Returns a server with an empty file, and two hosts.
fn two_hosts() -> (Lab, Handle, Host, Host) {
    let mut lab = lab();
    let file = lab.file(&["export", "file"], b"");
    let (one, two) = (host(&lab.server, 1, "one"), host(&lab.server, 2, "two"));
    (lab, file, one, two)
}

impl Host {
    fn now(&self) -> Now {
        let wall = Timestamp { seconds: 1_000_000 + self.seconds as i64, nanoseconds: 5 };
        Now { monotonic: Duration::from_secs(self.seconds), wall }
    }

    fn record(&mut self, (program, version, procedure): (u32, u32, u32), args: &impl Encode) -> Bytes {
        self.xid += 1;
        let credential = OpaqueAuth::sys(&AuthSys {
            stamp: 0,
            machine_name: Opaque::from_static(b"client"),
            uid: self.uid,
            gid: self.uid,
            gids: GroupList::default(),
        });
        let header = CallHeader { credential, ..CallHeader::new(self.xid, program, version, procedure) };
        let mut call = Writer::new();
        encode_call(&mut call, &header, args);
        call.into_bytes()
    }

    fn send(&mut self, record: Bytes) -> Option<Bytes> {
        let mut reply = Writer::new();
        let outcome = self.server.handle(&self.connection, self.now(), record, &mut reply).now_or_never();
        let outcome = outcome.expect("a file system in memory answers at once");
        (outcome.disposition == Disposition::Reply).then(|| reply.into_bytes())
    }

    fn ask<T: Decode>(&mut self, version: u32, procedure: Proc, args: &impl Encode) -> Result<T, RpcError> {
        let record = self.record((PROGRAM, version, procedure.0), args);
        parse_reply(self.send(record).expect("a reply"))
    }

    fn lock_of(&self, range: Range) -> Lock {
        Lock {
            caller_name: Opaque::from_static(self.name.as_bytes()),
            fh: NetObj::new(range.file.to_vec()).unwrap(),
            oh: Opaque::from_static(self.name.as_bytes()),
            svid: range.svid,
            l_offset: range.start,
            l_len: range.length,
        }
    }

    fn args(&self, range: Range, exclusive: bool, block: bool) -> LockArgs {
        LockArgs {
            cookie: Opaque::from_static(b"cookie"),
            block,
            exclusive,
            alock: self.lock_of(range),
            reclaim: false,
            state: 3,
        }
    }

    #[track_caller]
    fn status(&mut self, procedure: Proc, args: &impl Encode) -> Stats {
        let Res { cookie, stat } = self.ask(VERSION, procedure, args).unwrap();
        assert_eq!(&*cookie, b"cookie");
        stat
    }

    /// Locks exclusively without waiting.
    fn lock(&mut self, range: Range) -> Stats {
        self.status(Proc::LOCK, &self.args(range, true, false))
    }

    /// Locks exclusively, and waits.
    fn wait(&mut self, range: Range) -> Stats {
        self.status(Proc::LOCK, &self.args(range, true, true))
    }

    fn unlock(&mut self, range: Range) -> Stats {
        let args = UnlockArgs { cookie: Opaque::from_static(b"cookie"), alock: self.lock_of(range) };
        self.status(Proc::UNLOCK, &args)
    }

    fn cancel(&mut self, range: Range) -> Stats {
        let LockArgs { cookie, block, exclusive, alock, .. } = self.args(range, true, true);
        self.status(Proc::CANCEL, &CancelArgs { cookie, block, exclusive, alock })
    }

    fn test(&mut self, range: Range, exclusive: bool) -> TestReply {
        let args = TestArgs { cookie: NetObj::default(), exclusive, alock: self.lock_of(range) };
        self.ask::<TestRes>(VERSION, Proc::TEST, &args).unwrap().stat
    }

    fn share_args(&self, file: Handle, access: ShareAccess, mode: ShareMode) -> ShareArgs {
        let Lock { caller_name, fh, oh, .. } = self.lock_of(whole(file));
        let share = Share { caller_name, fh, oh, mode, access };
        ShareArgs { cookie: Opaque::from_static(b"cookie"), share, reclaim: false }
    }

    fn share(&mut self, file: Handle, access: ShareAccess, mode: ShareMode) -> Stats {
        let args = self.share_args(file, access, mode);
        self.ask::<ShareRes>(VERSION, Proc::SHARE, &args).unwrap().stat
    }
}

fn whole(file: Handle) -> Range {
    Range { file, svid: 7, start: 0, length: 0 }
}

fn bytes(file: Handle, start: u64, length: u64) -> Range {
    Range { file, svid: 7, start, length }
}

/// Takes the next call to a host from the driver's queue.
fn next_call(lab: &Lab) -> Option<HostCall> {
    match lab.work() {
        Some(Work::CallHost(call)) => Some(call),
        Some(other) => panic!("{other:?}"),
        None => None,
    }
}

/// Returns procedure and arguments of a call to a host.
fn called<T: Decode>(call: &HostCall) -> (u32, T) {
    let mut reader = xdr::Reader::new(call.record().clone());
    let header = CallHeader::parse(&mut reader).unwrap();
    assert_eq!((header.program, header.version), call.program());
    (header.procedure, T::decode(&mut reader).unwrap())
}

/// Answers a GRANTED.
fn answer(lab: &Lab, call: &HostCall, stat: Stats) {
    let mut reply = Writer::new();
    rpc::message::encode_success(&mut reply, u32::from_be_bytes(call.record()[..4].try_into().unwrap()));
    Res { cookie: NetObj::default(), stat }.encode(&mut reply);
    lab.server.handle_host_answer(call, HostAnswer::Reply(reply.into_bytes()), lab.now());
}

/// Locks by NFSv4.
fn lock_v4(lab: &mut Lab, file: Handle, open: Stateid, start: u64) -> lock4::LockOutcome<Stateid> {
    let lock_owner = StateOwner { client_id: 0, owner: Opaque::from_static(b"four") };
    let new = lock4::OpenToLockOwner { open_seqid: 0, open_stateid: open, lock_seqid: 0, lock_owner };
    let args = lock4::LockArgs {
        lock_type: lock4::LockType::Write,
        reclaim: false,
        offset: start,
        length: 10,
        locker: lock4::Locker::New(new),
    };
    match lab.run(vec![putfh(file), Op::Lock(args)]).results.into_vec().pop() {
        Some(OpResult::Lock(outcome)) => outcome,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lock_excludes_other_hosts_and_names_its_holder_until_it_is_unlocked() {
    let (lab, file, mut one, mut two) = two_hosts();
    assert_eq!(one.lock(bytes(file, 10, 10)), Stats::GRANTED);
    assert_eq!(two.lock(bytes(file, 19, 1)), Stats::DENIED);
    assert_eq!(two.lock(bytes(file, 20, 5)), Stats::GRANTED);
    let TestReply::Denied(holder) = two.test(bytes(file, 0, 0), false) else { panic!() };
    let expected =
        Holder { exclusive: true, svid: 7, oh: Opaque::from_static(b"one"), l_offset: 10, l_len: 10 };
    assert_eq!(holder, expected);
    assert_eq!(
        one.test(bytes(file, 0, 20), true),
        TestReply::Other(Stats::GRANTED),
        "its own does not count"
    );
    assert_eq!(one.unlock(bytes(file, 0, 0)), Stats::GRANTED);
    assert_eq!(two.lock(bytes(file, 0, 0)), Stats::GRANTED);
    lab.server.audit().unwrap();
    assert_eq!(two.unlock(whole(file)), Stats::GRANTED);
    lab.server.audit().unwrap();
    assert_eq!(lab.server.counts().locks, 0);
}

#[test]
fn shared_locks_exclude_exclusive_ones_only() {
    let (_lab, file, mut one, mut two) = two_hosts();
    let shared = |host: &mut Host| host.status(Proc::LOCK, &host.args(whole(file), false, false));
    assert_eq!((shared(&mut one), shared(&mut two)), (Stats::GRANTED, Stats::GRANTED));
    assert_eq!(one.lock(whole(file)), Stats::DENIED);
    assert_eq!(two.unlock(whole(file)), Stats::GRANTED);
    assert_eq!(one.lock(whole(file)), Stats::GRANTED, "an upgrade");
    assert_eq!(shared(&mut two), Stats::DENIED);
}

#[test]
fn processes_of_a_host_and_owners_of_two_hosts_are_different_owners() {
    let (lab, file, mut one, _) = two_hosts();
    let mut same_owner = host(&lab.server, 3, "one");
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    assert_eq!(one.lock(Range { svid: 8, ..whole(file) }), Stats::DENIED);
    assert_eq!(same_owner.lock(whole(file)), Stats::DENIED, "the same name and owner at another address");
    assert_eq!(same_owner.unlock(whole(file)), Stats::GRANTED);
    assert_eq!(one.lock(Range { svid: 8, ..whole(file) }), Stats::DENIED, "it unlocked nothing");
}

#[test]
fn locks_of_nlm_and_of_nfsv4_exclude_each_other() {
    let (mut lab, file, mut one, _) = two_hosts();
    let (_, open) = lab.open(&["export", "file"], b"owner");
    assert!(matches!(lock_v4(&mut lab, file, open, 0), lock4::LockOutcome::Ok(_)));
    assert_eq!(one.lock(bytes(file, 5, 1)), Stats::DENIED);
    let TestReply::Denied(holder) = one.test(bytes(file, 5, 1), true) else { panic!() };
    assert_eq!((holder.exclusive, holder.l_offset, holder.l_len), (true, 0, 10));
    assert_eq!(one.lock(bytes(file, 100, 10)), Stats::GRANTED);
    let denied = lock_v4(&mut lab, file, open, 105);
    let lock4::LockOutcome::Denied(denied) = denied else { panic!("{denied:?}") };
    assert_eq!((denied.offset, denied.length), (100, 10));
    lab.server.audit().unwrap();
    let close = Op::Close(CloseArgs { seqid: 0, open_stateid: open });
    lab.ok(vec![putfh(file), close]);
    assert_eq!(one.lock(bytes(file, 5, 1)), Stats::GRANTED);
    lab.server.audit().unwrap();
}

#[test]
fn share_reservations_of_nlm_and_of_nfsv4_exclude_each_other() {
    let (mut lab, file, mut one, mut two) = two_hosts();
    assert_eq!(one.share(file, ShareAccess::R, ShareMode::DW), Stats::GRANTED);
    assert_eq!(two.share(file, ShareAccess::W, ShareMode::DN), Stats::DENIED);
    assert_eq!(two.share(file, ShareAccess::R, ShareMode::DN), Stats::GRANTED);
    let open = |access, deny| {
        let mut args = open_args("file", b"o", access, protocol::nfs4::ops::open::OpenHow::NoCreate);
        args.share_deny = deny;
        at(&["export"], vec![Op::Open(args)])
    };
    assert_eq!(lab.status(open(Access4::WRITE, ShareDeny::empty())), Status::SHARE_DENIED);
    assert_eq!(lab.status(open(Access4::READ, ShareDeny::READ)), Status::SHARE_DENIED);
    let undo = one.share_args(file, ShareAccess::R, ShareMode::DW);
    assert_eq!(one.ask::<ShareRes>(VERSION, Proc::UNSHARE, &undo).unwrap().stat, Stats::GRANTED);
    let opened = lab.ok(open(Access4::BOTH, ShareDeny::WRITE));
    open_result(opened.last().unwrap());
    assert_eq!(one.share(file, ShareAccess::W, ShareMode::DN), Stats::DENIED);
    assert_eq!(one.share(file, ShareAccess::NONE, ShareMode::DN), Stats::GRANTED);
    lab.server.audit().unwrap();
}

#[test]
fn a_share_reservation_does_not_keep_its_owner_from_writing_by_nfsv3() {
    let (mut lab, file, mut one, _) = two_hosts();
    assert_eq!(one.share(file, ShareAccess::RW, ShareMode::DRW), Stats::GRANTED);
    let args = protocol::nfs3::WriteArgs {
        file: protocol::nfs3::FileHandle::new(&file).unwrap(),
        offset: 0,
        count: 1,
        stable: protocol::nfs3::StableHow::FileSync,
        data: Opaque::from_static(b"x"),
    };
    assert_eq!(lab.nfs3(protocol::nfs3::Proc::WRITE.0, &args), protocol::nfs3::NfsStat::OK);
}

#[test]
fn a_file_that_is_locked_is_not_delegated() {
    let (lab, file, mut one, _) = two_hosts();
    let mut other = lab.reachable(b"other", 12);
    assert_eq!(one.lock(bytes(file, 0, 1)), Stats::GRANTED);
    let delegated = |lab: &mut Lab| {
        let results = lab.ok(at(&["export"], vec![crate::testing::open("file", b"o", Access4::READ)]));
        matches!(open_result(results.last().unwrap()).delegation, OpenDelegation::Read(_))
    };
    assert!(!delegated(&mut other));
    assert_eq!(one.unlock(whole(file)), Stats::GRANTED);
    let mut third = lab.reachable(b"third", 13);
    assert!(delegated(&mut third), "nothing is locked any more");
}

#[test]
fn a_retransmission_gets_the_first_reply_and_undoes_nothing() {
    let (_lab, file, mut one, mut two) = two_hosts();
    let args = one.args(whole(file), true, false);
    let lock = one.record((PROGRAM, VERSION, Proc::LOCK.0), &args);
    let first = one.send(lock.clone());
    assert_eq!(one.unlock(whole(file)), Stats::GRANTED);
    assert_eq!(one.send(lock), first, "it is not executed again");
    assert_eq!(two.lock(whole(file)), Stats::GRANTED);
}

#[test]
fn a_late_copy_of_a_message_or_of_free_all_undoes_nothing() {
    let (_lab, file, mut one, mut two) = two_hosts();
    let unlock = UnlockArgs { cookie: NetObj::default(), alock: one.lock_of(whole(file)) };
    let free = Notify { name: Opaque::from_static(b"one"), state: 0 };
    let records = [
        one.record((PROGRAM, VERSION, Proc::UNLOCK_MSG.0), &unlock),
        one.record((PROGRAM, VERSION, Proc::FREE_ALL.0), &free),
    ];
    for record in records {
        assert_eq!(one.lock(whole(file)), Stats::GRANTED);
        let first = one.send(record.clone());
        assert_eq!(two.lock(whole(file)), Stats::GRANTED, "it is executed");
        assert_eq!(two.unlock(whole(file)), Stats::GRANTED);
        assert_eq!(one.lock(whole(file)), Stats::GRANTED);
        assert_eq!(one.send(record), first);
        assert_eq!(two.lock(whole(file)), Stats::DENIED, "it is not executed again");
    }
}

#[test]
fn the_caller_needs_the_right_to_read_or_to_write_what_it_locks() {
    let (mut lab, file, mut one, _) = two_hosts();
    let chmod = |lab: &mut Lab, bits| {
        let set = Op::SetAttr(protocol::nfs4::ops::setattr::SetAttrArgs {
            stateid: Stateid::ANONYMOUS,
            attributes: crate::testing::mode(bits),
        });
        lab.ok(vec![putfh(file), set]);
    };
    one.uid = 1000;
    chmod(&mut lab, 0o600);
    assert_eq!(one.lock(whole(file)), Stats::FAILED);
    assert!(matches!(one.test(whole(file), true), TestReply::Other(Stats::FAILED)));
    chmod(&mut lab, 0o602);
    let shared = one.args(whole(file), false, false);
    assert_eq!(one.status(Proc::LOCK, &shared), Stats::FAILED);
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    chmod(&mut lab, 0o600);
    assert_eq!(one.unlock(whole(file)), Stats::GRANTED, "unlocking needs no right");
}

#[test]
fn directories_unknown_handles_and_ranges_beyond_64_bits_are_refused() {
    let (mut lab, file, mut one, _) = two_hosts();
    let directory = lab.handle(&["export"]);
    assert_eq!(one.lock(whole(directory)), Stats::FAILED);
    assert_eq!(one.lock(bytes(file, 2, u64::MAX)), Stats::FBIG);
    let mut args = one.args(whole(file), true, false);
    args.alock.fh = Opaque::from_static(b"never made");
    assert_eq!(one.status(Proc::LOCK, &args), Stats::STALE_FH);
    args.alock.fh = NetObj::default();
    assert_eq!(one.status(Proc::LOCK, &args), Stats::STALE_FH);
}

#[test]
fn owners_of_1024_bytes_are_different_in_their_last_byte() {
    let (lab, file, mut one, _) = two_hosts();
    let mut args = one.args(whole(file), true, false);
    args.alock.oh = NetObj::new(vec![1; MAXNETOBJ_SZ]).unwrap();
    assert_eq!(one.status(Proc::LOCK, &args), Stats::GRANTED);
    let mut other = args.clone();
    other.alock.oh = NetObj::new([vec![1; MAXNETOBJ_SZ - 1], vec![2]].concat()).unwrap();
    assert_eq!(one.status(Proc::LOCK, &other), Stats::DENIED);
    let TestReply::Denied(holder) = one.test(whole(file), true) else { panic!() };
    assert_eq!(holder.oh, args.alock.oh);
    lab.server.audit().unwrap();
}

#[test]
fn truncated_arguments_and_unknown_procedures_are_refused() {
    let (lab, file, mut one, _) = two_hosts();
    let whole_args = xdr::to_bytes(&one.args(whole(file), true, true));
    struct Raw(Vec<u8>);
    impl Encode for Raw {
        fn encode(&self, writer: &mut Writer) {
            writer.raw(&self.0);
        }
    }
    // A lock of 32 bits is eight bytes shorter.
    for length in (0..whole_args.len() - 8).step_by(4) {
        for version in [VERSION_1, VERSION_3, VERSION] {
            let cut = Raw(whole_args[..length].to_vec());
            let reply = one.ask::<Res>(version, Proc::LOCK, &cut);
            let garbage = Err(RpcError::NotExecuted(AcceptStatus::GarbageArguments));
            assert_eq!(reply, garbage, "version {version}, {length} bytes");
        }
    }
    let unknown = one.ask::<Res>(VERSION, Proc(16), &());
    assert_eq!(unknown, Err(RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable)));
    assert_eq!(lab.server.counts().locks, 0);
}
