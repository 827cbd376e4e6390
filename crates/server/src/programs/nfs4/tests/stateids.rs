//! Every operation with a stateid, and every kind of wrong stateid: a table of the statuses in the RFCs.
//!
//! RFC 8881 §8.2.2 to §8.2.4 apply to versions 4.1 and 4.2; rules of single operations are next to their rows. RFC 7530 §9.1.4.2
//! to §9.1.4.4 apply to version 4.0. Each cell of the table has its own server.

mod minor_0;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::copy::{CopyArgs, CopyNotifyArgs, OffloadArgs};
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::lock::{
    ExistingLockOwner, LockArgs, LockOutcome, LockType, LockUArgs, Locker, OpenToLockOwner,
};
use protocol::nfs4::ops::open::{OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny};
use protocol::nfs4::ops::open_state::OpenDowngradeArgs;
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::read_plus::{AppDataBlock, ReadPlusArgs, WriteSameArgs};
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::space::{
    AllocateArgs, CloneArgs, DataContent, DeallocateArgs, IoAdviseArgs, SeekArgs,
};
use protocol::nfs4::ops::stateid::{FreeStateidArgs, TestStateidArgs};
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{
    Bitmap, Handle, NetAddress, NetLocation, StableHow, StateOwner, Stateid, Status, Utf8,
};
use xdr::{List, Opaque};

use crate::Export;
use crate::programs::nfs4::tests::delegations::hold;
use crate::testing::{Lab, export, lab_with, open_args, putfh, size};

/// The state that an operation's stateid names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Basis {
    Open,
    Lock,
    Delegation,
}

/// The kind of stateid that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// The valid one.
    Given,
    /// The valid one with seqid zero: §8.2.2, "the most up-to-date seqid".
    SeqidZero,
    /// All zeros.
    Anonymous,
    /// All ones.
    Bypass,
    /// The current stateid, if no operation has returned one: "the server MUST return the error NFS4ERR_BAD_STATEID".
    NoCurrent,
    /// `other` zero and seqid NFS4_UINT32_MAX: "a reserved stateid value defined to be invalid".
    Reserved,
    /// `other` zero or all ones with an invalid seqid.
    Undefined,
    /// An older seqid: "required to return NFS4ERR_OLD_STATEID if the seqid is lower".
    Old,
    /// A future seqid: "and NFS4ERR_BAD_STATEID if the seqid is greater".
    Future,
    /// Never issued: "of a different generation than that specified".
    Unknown,
    /// Issued by an earlier instance of the server.
    Earlier,
    /// "the client ID in the table entry does not match".
    OtherClient,
    /// "does not match the current filehandle".
    OtherFile,
    /// Closed, or returned.
    Ended,
    /// Revoked, by the administrator: "NFS4ERR_EXPIRED, NFS4ERR_ADMIN_REVOKED, or NFS4ERR_DELEG_REVOKED, as appropriate".
    Taken,
    /// "the stateid type is not valid for the context in which the stateid appears".
    OtherKind,
}

use Sent::*;

const COLUMNS: [Sent; 16] = [
    Given,
    SeqidZero,
    Anonymous,
    Bypass,
    NoCurrent,
    Reserved,
    Undefined,
    Old,
    Future,
    Unknown,
    Earlier,
    OtherClient,
    OtherFile,
    Ended,
    Taken,
    OtherKind,
];

/// An operation on the stateid, with its other arguments.
type Make = fn(&Scene, Stateid) -> Vec<Op>;

/// An operation, the state that its stateid names, and the status of each column; `None` if the case does not exist.
struct Row {
    name: &'static str,
    basis: Basis,
    make: Make,
    expected: [Option<Status>; COLUMNS.len()],
}

const K: Option<Status> = Some(Status::OK);
const B: Option<Status> = Some(Status::BAD_STATEID);
const O: Option<Status> = Some(Status::OLD_STATEID);
const H: Option<Status> = Some(Status::LOCKS_HELD);
const R: Option<Status> = Some(Status::ADMIN_REVOKED);
const X: Option<Status> = Some(Status::XDEV);
const N: Option<Status> = None;

/// §8.2.3: the anonymous stateid "can be used in READ, WRITE, and SETATTR requests"; that of all ones "is treated like the
/// anonymous value" in WRITE and SETATTR. Every kind of state permits I/O (§8.2.5), so no kind is wrong.
///
/// RFC 7862 has ALLOCATE (§15.1.3), DEALLOCATE (§15.4.3), the destinations of COPY (§15.2.3) and CLONE (§15.13.3) take one "that is valid
/// for a WRITE operation and follows the rules for stateids in Sections 8.2.5 and 18.32.3 of [RFC5661]", their sources alike for
/// READ; SEEK "must follow the same rules for stateids as READ_PLUS" (§15.11.3), and these are READ's (§15.10.3).
const IO: [Option<Status>; COLUMNS.len()] = [K, K, K, K, B, B, B, O, B, B, B, B, B, B, R, N];
/// RFC 7862 §15.2.3: the source's stateid must be "valid for a READ operation". One case deviates: after XDEV Linux's client reads
/// and writes itself. After BAD_STATEID it tests its stateids and retries forever, because it has confused the mounts of two clients.
const COPY_SOURCE: [Option<Status>; COLUMNS.len()] = [K, K, K, K, B, B, B, O, B, B, B, X, B, B, R, N];
/// §8.2.4: "an all-zero stateid is used when an OPEN stateid is required in a LOCK operation"; likewise for all operations on the
/// state itself.
const STATE: [Option<Status>; COLUMNS.len()] = [K, K, B, B, B, B, B, O, B, B, B, B, B, B, R, B];
/// A delegation's seqid never changes.
const DELEGATION: [Option<Status>; COLUMNS.len()] = [K, K, B, B, B, B, B, N, B, B, B, B, B, B, R, B];
/// RFC 7862 §15.3.3: "The cna_src_stateid MUST refer to either open or locking states provided earlier by the server."
const COPY_NOTIFY: [Option<Status>; COLUMNS.len()] = [K, K, B, B, B, B, B, O, B, B, B, B, B, B, R, N];
/// RFC 8881 §18.38.3: "If there are valid locks (of any kind) associated with the stateid in question, the error NFS4ERR_LOCKS_HELD
/// will be returned." No file handle, and any kind of state.
const FREE: [Option<Status>; COLUMNS.len()] = [H, H, B, B, B, B, B, O, B, B, B, B, N, B, K, N];
/// RFC 8881 §18.48.3: "There is no check for the type of stateid object"; "There is no reference to the current filehandle"; "Special
/// stateids are always considered invalid (they result in the error code NFS4ERR_BAD_STATEID)".
const TEST: [Option<Status>; COLUMNS.len()] = [K, K, B, B, B, B, B, O, B, B, B, B, N, B, R, N];
/// RFC 7862 §4.8: these take copy stateids only.
const OFFLOAD: [Option<Status>; COLUMNS.len()] = [B, B, B, B, B, B, B, B, B, B, B, B, B, B, B, N];

#[rustfmt::skip]
const TABLE: [Row; 25] = [
    Row { name: "READ", basis: Basis::Open, make: read, expected: IO },
    Row { name: "READ by a lock", basis: Basis::Lock, make: read, expected: IO },
    Row { name: "WRITE", basis: Basis::Open, make: write, expected: IO },
    Row { name: "WRITE by a lock", basis: Basis::Lock, make: write, expected: IO },
    Row { name: "SETATTR of the size", basis: Basis::Open, make: set_size, expected: IO },
    Row { name: "READ_PLUS", basis: Basis::Open, make: read_plus, expected: IO },
    Row { name: "SEEK", basis: Basis::Open, make: seek, expected: IO },
    Row { name: "ALLOCATE", basis: Basis::Open, make: allocate, expected: IO },
    Row { name: "DEALLOCATE", basis: Basis::Open, make: deallocate, expected: IO },
    Row { name: "WRITE_SAME", basis: Basis::Open, make: write_same, expected: IO },
    Row { name: "IO_ADVISE", basis: Basis::Open, make: io_advise, expected: IO },
    Row { name: "COPY, source", basis: Basis::Open, make: copy_from, expected: COPY_SOURCE },
    Row { name: "COPY, destination", basis: Basis::Open, make: copy_to, expected: IO },
    Row { name: "CLONE, source", basis: Basis::Open, make: clone_from, expected: IO },
    Row { name: "CLONE, destination", basis: Basis::Open, make: clone_to, expected: IO },
    Row { name: "LOCK, first", basis: Basis::Open, make: lock_first, expected: STATE },
    Row { name: "LOCK, another", basis: Basis::Lock, make: lock_another, expected: STATE },
    Row { name: "LOCKU", basis: Basis::Lock, make: unlock, expected: STATE },
    Row { name: "CLOSE", basis: Basis::Open, make: close, expected: STATE },
    Row { name: "OPEN_DOWNGRADE", basis: Basis::Open, make: downgrade, expected: STATE },
    Row { name: "DELEGRETURN", basis: Basis::Delegation, make: return_delegation, expected: DELEGATION },
    Row { name: "OPEN by a delegation", basis: Basis::Delegation, make: open_by_delegation, expected: DELEGATION },
    Row { name: "COPY_NOTIFY", basis: Basis::Open, make: copy_notify, expected: COPY_NOTIFY },
    Row { name: "OFFLOAD_STATUS", basis: Basis::Open, make: offload_status, expected: OFFLOAD },
    Row { name: "OFFLOAD_CANCEL", basis: Basis::Open, make: offload_cancel, expected: OFFLOAD },
];

#[test]
fn every_operation_checks_every_stateid() {
    let mut wrong = Vec::new();
    for row in &TABLE {
        for (sent, expected) in COLUMNS.iter().zip(row.expected) {
            let Some(expected) = expected else { continue };
            let mut scene = Scene::new(row.basis);
            let stateid = scene.stateid(row.basis, *sent);
            let ops = (row.make)(&scene, stateid);
            let status = scene.client.status(ops);
            if status != expected {
                wrong.push(format!("{}, {sent:?}: {status:?} instead of {expected:?}", row.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn free_stateid_checks_every_stateid() {
    for basis in [Basis::Open, Basis::Lock, Basis::Delegation] {
        for (sent, expected) in COLUMNS.iter().zip(FREE) {
            let Some(expected) = expected.filter(|_| has(basis, *sent)) else { continue };
            let mut scene = Scene::new(basis);
            let stateid = scene.stateid(basis, *sent);
            let status = scene.client.status(vec![Op::FreeStateid(FreeStateidArgs { stateid })]);
            assert_eq!(status, expected, "{basis:?}, {sent:?}");
        }
    }
}

#[test]
fn test_stateid_checks_every_stateid() {
    for basis in [Basis::Open, Basis::Lock, Basis::Delegation] {
        for (sent, expected) in COLUMNS.iter().zip(TEST) {
            let Some(expected) = expected.filter(|_| has(basis, *sent)) else { continue };
            let mut scene = Scene::new(basis);
            let stateids = List::new(vec![scene.stateid(basis, *sent)]).unwrap();
            match scene.client.last(vec![Op::TestStateid(TestStateidArgs { stateids })]) {
                OpResult::TestStateid(result) => {
                    assert_eq!(result.as_result().unwrap().to_vec(), [expected], "{basis:?}, {sent:?}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Returns whether such a stateid exists.
fn has(basis: Basis, sent: Sent) -> bool {
    (basis, sent) != (Basis::Delegation, Old)
}

/// Two files, the client whose stateids are sent, and another one.
struct Scene {
    exports: Vec<Export>,
    client: Lab,
    file: Handle,
    /// Another file, and an open of it.
    beside: (Handle, Stateid),
}

impl Scene {
    /// Clients without delegations, unless the case is about one.
    fn new(basis: Basis) -> Self {
        let exports = vec![export(1, "/export")];
        let mut maker = started(&exports, 1);
        let file = maker.file(&["export", "file"], b"some content");
        maker.file(&["export", "beside"], b"some of more");
        Self::of(exports, maker, basis, file)
    }

    fn of(exports: Vec<Export>, maker: Lab, basis: Basis, file: Handle) -> Self {
        let mut client = match basis {
            Basis::Delegation => maker.reachable(b"one", 11),
            Basis::Open | Basis::Lock => maker.other(b"one"),
        };
        client.minor = 2;
        let beside = match basis {
            // The holder's own OPEN would count as the start of a return.
            Basis::Delegation => (client.handle(&["export", "beside"]), Stateid::ANONYMOUS),
            Basis::Open | Basis::Lock => client.open(&["export", "beside"], b"neighbor"),
        };
        Self { exports, client, file, beside }
    }

    fn stateid(&mut self, basis: Basis, sent: Sent) -> Stateid {
        let given = |scene: &mut Self| give(&mut scene.client, basis, "file");
        match sent {
            Given => given(self),
            SeqidZero => Stateid { seqid: 0, ..given(self) },
            Anonymous => Stateid { seqid: 0, other: [0; 12] },
            Bypass => Stateid { seqid: u32::MAX, other: [0xff; 12] },
            NoCurrent => Stateid { seqid: 1, other: [0; 12] },
            Reserved => Stateid { seqid: u32::MAX, other: [0; 12] },
            Undefined => Stateid { seqid: 7, other: [0xff; 12] },
            Old => {
                let stateid = given(self);
                let next = change(&mut self.client, basis, self.file, stateid);
                assert_eq!((next.other, next.seqid), (stateid.other, stateid.seqid + 1), "§8.2.2");
                stateid
            }
            Future => {
                let stateid = given(self);
                Stateid { seqid: stateid.seqid + 1, ..stateid }
            }
            Unknown => {
                let mut stateid = given(self);
                stateid.other[11] ^= 0x40;
                stateid
            }
            Earlier => {
                let stateid = given(self);
                let next = started(&self.exports, 2);
                *self = Self::of(self.exports.clone(), next, basis, self.file);
                stateid
            }
            OtherClient => {
                let mut other = match basis {
                    Basis::Delegation => self.client.reachable(b"two", 12),
                    Basis::Open | Basis::Lock => self.client.other(b"two"),
                };
                give(&mut other, basis, "file")
            }
            OtherFile => give(&mut self.client, basis, "beside"),
            Ended => {
                let stateid = given(self);
                self.end(basis, stateid);
                stateid
            }
            Taken => {
                let stateid = given(self);
                let state = &self.client.server.shared.state;
                state.revoke(&state.client_of(&self.client.session).unwrap(), &stateid).unwrap();
                stateid
            }
            OtherKind => give(&mut self.client, other_kind(basis), "file"),
        }
    }

    fn end(&mut self, basis: Basis, stateid: Stateid) {
        let file = putfh(self.file);
        match basis {
            Basis::Open => drop(self.client.ok(vec![file, close_op(stateid)])),
            // The lock stateids end with the open.
            Basis::Lock => {
                let (_, open_stateid) = self.client.open(&["export", "file"], b"owner");
                let ops = [unlock(self, stateid), vec![file, close_op(open_stateid)]].concat();
                self.client.ok(ops);
            }
            Basis::Delegation => drop(self.client.ok(return_delegation(self, stateid))),
        }
    }
}

/// Returns a server with all operations that take stateids enabled.
fn started(exports: &[Export], instance: u64) -> Lab {
    lab_with(exports.to_vec(), |settings| {
        settings.instance = instance;
        settings.copy_source = true;
    })
}

fn other_kind(basis: Basis) -> Basis {
    match basis {
        Basis::Open => Basis::Lock,
        Basis::Lock | Basis::Delegation => Basis::Open,
    }
}

/// Gets state on a file.
fn give(client: &mut Lab, basis: Basis, text: &'static str) -> Stateid {
    match basis {
        Basis::Open => client.open(&["export", text], b"owner").1,
        Basis::Lock => {
            let (file, open) = client.open(&["export", text], b"owner");
            locked(client, file, first_lock(open))
        }
        Basis::Delegation => hold(client, text, ShareAccess::READ),
    }
}

/// Makes the server advance the stateid's seqid.
fn change(client: &mut Lab, basis: Basis, file: Handle, stateid: Stateid) -> Stateid {
    match basis {
        Basis::Open => client.open(&["export", "file"], b"owner").1,
        Basis::Lock => locked(client, file, more_lock(stateid)),
        Basis::Delegation => unreachable!("a delegation's seqid is constant"),
    }
}

fn locked(client: &mut Lab, file: Handle, lock: Op) -> Stateid {
    match client.last(vec![putfh(file), lock]) {
        OpResult::Lock(LockOutcome::Ok(stateid)) => stateid,
        other => panic!("{other:?}"),
    }
}

fn lock_op(offset: u64, locker: Locker) -> Op {
    Op::Lock(LockArgs { lock_type: LockType::Read, reclaim: false, offset, length: 10, locker })
}

fn first_lock(open_stateid: Stateid) -> Op {
    let lock_owner = StateOwner { client_id: 0, owner: Opaque::from_static(b"locker") };
    lock_op(0, Locker::New(OpenToLockOwner { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner }))
}

fn more_lock(lock_stateid: Stateid) -> Op {
    lock_op(100, Locker::Existing(ExistingLockOwner { lock_stateid, lock_seqid: 0 }))
}

fn close_op(open_stateid: Stateid) -> Op {
    Op::Close(CloseArgs { seqid: 0, open_stateid })
}

/// Returns an operation on the file.
fn on_file(scene: &Scene, op: Op) -> Vec<Op> {
    vec![putfh(scene.file), op]
}

fn read(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, Op::Read(ReadArgs { stateid, offset: 0, count: 10 }))
}

fn write(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    let data = Opaque::from_static(b"data");
    on_file(scene, Op::Write(WriteArgs { stateid, offset: 0, stable: StableHow::Unstable, data }))
}

fn set_size(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, Op::SetAttr(SetAttrArgs { stateid, attributes: size(3) }))
}

fn read_plus(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, Op::ReadPlus(ReadPlusArgs { stateid, offset: 0, count: 10 }))
}

fn seek(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, Op::Seek(SeekArgs { stateid, offset: 0, what: DataContent::DATA }))
}

fn allocate(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, Op::Allocate(AllocateArgs { stateid, offset: 0, length: 10 }))
}

fn deallocate(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, Op::Deallocate(DeallocateArgs { stateid, offset: 0, length: 10 }))
}

fn write_same(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    let block = AppDataBlock {
        offset: 0,
        block_size: 8,
        block_count: 2,
        number_offset: u64::MAX,
        block_number: 0,
        pattern_offset: 0,
        pattern: Opaque::from_static(b"pattern!"),
    };
    on_file(scene, Op::WriteSame(WriteSameArgs { stateid, stable: StableHow::Unstable, block }))
}

fn io_advise(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, Op::IoAdvise(IoAdviseArgs { stateid, offset: 0, count: 10, hints: Bitmap::EMPTY }))
}

/// PUTFH of the source, SAVEFH, PUTFH of the destination.
fn between(source: Handle, destination: Handle, op: Op) -> Vec<Op> {
    vec![putfh(source), Op::SaveFh, putfh(destination), op]
}

fn copy(source_stateid: Stateid, destination_stateid: Stateid) -> Op {
    Op::Copy(CopyArgs {
        source_stateid,
        destination_stateid,
        source_offset: 0,
        destination_offset: 0,
        count: 10,
        consecutive: true,
        synchronous: true,
        source_servers: List::default(),
    })
}

fn copy_from(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    between(scene.file, scene.beside.0, copy(stateid, scene.beside.1))
}

fn copy_to(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    between(scene.beside.0, scene.file, copy(scene.beside.1, stateid))
}

fn clone(source_stateid: Stateid, destination_stateid: Stateid) -> Op {
    let (source_offset, destination_offset, count) = (0, 0, 0);
    Op::Clone(CloneArgs { source_stateid, destination_stateid, source_offset, destination_offset, count })
}

fn clone_from(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    between(scene.file, scene.beside.0, clone(stateid, scene.beside.1))
}

fn clone_to(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    between(scene.beside.0, scene.file, clone(scene.beside.1, stateid))
}

fn lock_first(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, first_lock(stateid))
}

fn lock_another(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, more_lock(stateid))
}

fn unlock(scene: &Scene, lock_stateid: Stateid) -> Vec<Op> {
    let (lock_type, offset, length) = (LockType::Read, 0, u64::MAX);
    on_file(scene, Op::LockU(LockUArgs { lock_type, seqid: 0, lock_stateid, offset, length }))
}

fn close(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, close_op(stateid))
}

// To the current share access.
fn downgrade(scene: &Scene, open_stateid: Stateid) -> Vec<Op> {
    let (share_access, share_deny) = (ShareAccess::BOTH, ShareDeny::empty());
    on_file(scene, Op::OpenDowngrade(OpenDowngradeArgs { open_stateid, seqid: 0, share_access, share_deny }))
}

fn return_delegation(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, Op::DelegReturn(DelegReturnArgs { stateid }))
}

/// CLAIM_DELEG_CUR_FH.
fn open_by_delegation(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    let plain = open_args("file", b"owner", ShareAccess::READ, OpenHow::NoCreate);
    on_file(scene, Op::Open(OpenArgs { claim: OpenClaim::DelegateCurFh(stateid), ..plain }))
}

fn copy_notify(scene: &Scene, source_stateid: Stateid) -> Vec<Op> {
    let address =
        NetAddress { netid: Utf8::from_static(b"tcp"), address: Utf8::from_static(b"192.0.2.1.8.1") };
    let destination_server = NetLocation::Address(address);
    on_file(scene, Op::CopyNotify(CopyNotifyArgs { source_stateid, destination_server }))
}

fn offload_status(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, Op::OffloadStatus(OffloadArgs { stateid }))
}

fn offload_cancel(scene: &Scene, stateid: Stateid) -> Vec<Op> {
    on_file(scene, Op::OffloadCancel(OffloadArgs { stateid }))
}
