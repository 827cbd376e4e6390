//! The operations of a slot's program, on one file after the other; each must be executed once.

use protocol::nfs4::attributes::{Attributes, FileAttributes, SetAttributes};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::copy::{CopyArgs, CopyResult, OffloadArgs};
use protocol::nfs4::ops::delegation::{DelegReturnArgs, DelegationClaim, WantDelegationArgs};
use protocol::nfs4::ops::exchange_id::DestroyClientIdArgs;
use protocol::nfs4::ops::lock::{
    ExistingLockOwner, LockArgs, LockOutcome, LockType, LockUArgs, Locker, OpenToLockOwner,
};
use protocol::nfs4::ops::open::{
    CreateHow, DelegationWant, OpenArgs, OpenClaim, OpenDelegation, OpenHow, ShareAccess, ShareDeny,
};
use protocol::nfs4::ops::open_state::OpenDowngradeArgs;
use protocol::nfs4::ops::read_plus::{AppDataBlock, WriteSameArgs};
use protocol::nfs4::ops::session::{CreateSessionFlags, DestroySessionArgs, SequenceArgs};
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::space::{AllocateArgs, CloneArgs};
use protocol::nfs4::ops::stateid::FreeStateidArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{ClientId, Handle, Outcome, SessionId, StableHow, StateOwner, Stateid};
use xdr::{List, Opaque};

use crate::client::{Step, change, component, create_session, exchange_id, export};
use crate::copy_ops::putfh;

const MIB: u64 = 1 << 20;
/// Longer than a synchronous copy.
const LENGTH: u64 = 20 * MIB;

/// An operation that must be executed once. A second execution changes the stateid's seqid, or fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SlotOp {
    /// OPEN for reading, which creates the file.
    Open,
    /// OPEN for both by the same owner.
    Upgrade,
    /// SETATTR of the size.
    Grow,
    /// WRITE at an offset.
    Write(u64),
    /// LOCK by a new owner, and by one that has a lock.
    Lock,
    LockMore,
    Unlock,
    FreeStateid,
    Downgrade,
    Close,
    /// WANT_DELEGATION, repeated until it is granted.
    Want,
    Return,
    /// EXCHANGE_ID, CREATE_SESSION, DESTROY_SESSION and DESTROY_CLIENTID of another client, in this one's slot: RFC 8881 §18.50.3 forbids
    /// destroying the session's own client ID.
    Introduce,
    Session,
    /// SEQUENCE of that session alone, which associates the connection (RFC 8881 §18.37.3).
    Associate,
    DestroySession,
    DestroyClient,
    /// OPEN and CLOSE of the destination of copies. This and the rest are of version 4.2.
    OpenTarget,
    CloseTarget,
    Allocate,
    Deallocate,
    WriteSame,
    Clone,
    Copy,
    /// COPY in the background, and OFFLOAD_CANCEL.
    Background,
    Cancel,
    /// A change without state.
    Change(Step),
}

/// Results of the operations so far.
#[derive(Debug)]
pub(super) struct SlotState {
    /// The file's name; other names begin with it.
    name: String,
    pub(super) client_id: ClientId,
    file: Handle,
    open: Stateid,
    target: (Handle, Stateid),
    lock: Stateid,
    delegation: Stateid,
    copy: Stateid,
    /// The other client: its ID, the sequence of its CREATE_SESSION, its session, and its last sequence number.
    other: (ClientId, u32, SessionId, u32),
}

/// Returns a round of operations.
pub(super) fn round(name: &str, minor: u32) -> Vec<SlotOp> {
    let on_file = |what: &str| format!("{name}-{what}");
    let mut ops =
        vec![SlotOp::Open, SlotOp::Upgrade, SlotOp::Grow, SlotOp::Write(0), SlotOp::Lock, SlotOp::LockMore];
    if minor >= 2 {
        ops.extend([
            SlotOp::Allocate,
            SlotOp::Deallocate,
            SlotOp::WriteSame,
            SlotOp::OpenTarget,
            SlotOp::Clone,
        ]);
        // After a hole that is longer than a synchronous copy.
        ops.extend([
            SlotOp::Write(LENGTH - MIB),
            SlotOp::Copy,
            SlotOp::Background,
            SlotOp::Cancel,
            SlotOp::CloseTarget,
        ]);
        ops.extend([Step::SetXattr(name.to_owned()), Step::RemoveXattr(name.to_owned())].map(SlotOp::Change));
    }
    ops.extend([
        SlotOp::Unlock,
        SlotOp::FreeStateid,
        SlotOp::Downgrade,
        SlotOp::Close,
        SlotOp::Want,
        SlotOp::Return,
    ]);
    ops.extend([SlotOp::Introduce, SlotOp::Session, SlotOp::DestroySession, SlotOp::DestroyClient]);
    let changes = [
        Step::Mkdir(on_file("d")),
        Step::Link(name.to_owned(), on_file("l")),
        Step::Rename(on_file("l"), on_file("m")),
        Step::Remove(on_file("m")),
    ];
    ops.extend(changes.map(SlotOp::Change));
    ops
}

impl SlotState {
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            client_id: 0,
            file: Handle::default(),
            open: Stateid::default(),
            target: (Handle::default(), Stateid::default()),
            lock: Stateid::default(),
            delegation: Stateid::default(),
            copy: Stateid::default(),
            other: Default::default(),
        }
    }

    fn owner(&self) -> StateOwner {
        let owner = Opaque::new(self.name.clone().into_bytes()).expect("a short name");
        StateOwner { client_id: self.client_id, owner }
    }

    /// Returns the request of an operation.
    pub(super) fn ops(&mut self, op: &SlotOp) -> Vec<Op> {
        let (stateid, lock_stateid) = (self.open, self.lock);
        let op = match op {
            SlotOp::Change(step) => return change(step, &self.name),
            SlotOp::Open => return self.open(&self.name, ShareAccess::READ, true),
            SlotOp::Upgrade => return self.open(&self.name, ShareAccess::BOTH, false),
            SlotOp::OpenTarget => return self.open(&format!("{}-t", self.name), ShareAccess::BOTH, true),
            SlotOp::Cancel | SlotOp::CloseTarget => return self.at_target(op),
            SlotOp::Associate => return vec![self.associate()],
            SlotOp::Introduce | SlotOp::Session | SlotOp::DestroySession | SlotOp::DestroyClient => {
                return vec![self.of_other(op)];
            }
            SlotOp::Clone | SlotOp::Copy | SlotOp::Background => return self.copy(op),
            SlotOp::Grow => {
                let attributes = SetAttributes { size: Some(LENGTH), ..SetAttributes::default() };
                Op::SetAttr(SetAttrArgs { stateid, attributes: attributes.to_file_attributes() })
            }
            SlotOp::Write(offset) => {
                let (stable, data) = (StableHow::FileSync, Opaque::from_static(b"data"));
                Op::Write(WriteArgs { stateid, offset: *offset, stable, data })
            }
            SlotOp::Lock => {
                let lock_owner = self.owner();
                let new = OpenToLockOwner { open_seqid: 0, open_stateid: stateid, lock_seqid: 0, lock_owner };
                lock(0, Locker::New(new))
            }
            SlotOp::LockMore => {
                lock(100, Locker::Existing(ExistingLockOwner { lock_stateid, lock_seqid: 0 }))
            }
            SlotOp::Unlock => {
                let (lock_type, length) = (LockType::Write, u64::MAX);
                Op::LockU(LockUArgs { lock_type, seqid: 0, lock_stateid, offset: 0, length })
            }
            SlotOp::FreeStateid => Op::FreeStateid(FreeStateidArgs { stateid: lock_stateid }),
            SlotOp::Downgrade => {
                let (share_access, share_deny) = (ShareAccess::READ, ShareDeny::empty());
                let open_stateid = stateid;
                Op::OpenDowngrade(OpenDowngradeArgs { open_stateid, seqid: 0, share_access, share_deny })
            }
            SlotOp::Close => Op::Close(CloseArgs { seqid: 0, open_stateid: stateid }),
            SlotOp::Want => {
                let want = ShareAccess::empty().with_want(DelegationWant::READ_DELEG);
                Op::WantDelegation(WantDelegationArgs { want, claim: DelegationClaim::Fh })
            }
            SlotOp::Return => Op::DelegReturn(DelegReturnArgs { stateid: self.delegation }),
            SlotOp::Allocate => Op::Allocate(AllocateArgs { stateid, offset: 0, length: 8 * 1024 }),
            SlotOp::Deallocate => {
                Op::Deallocate(AllocateArgs { stateid, offset: 4 * 1024, length: 4 * 1024 })
            }
            SlotOp::WriteSame => Op::WriteSame(WriteSameArgs {
                stateid,
                stable: StableHow::FileSync,
                block: AppDataBlock {
                    offset: 0,
                    block_size: 512,
                    block_count: 4,
                    number_offset: u64::MAX,
                    block_number: 0,
                    pattern_offset: 0,
                    pattern: Opaque::from_static(b"pattern"),
                },
            }),
        };
        vec![putfh(self.file), op]
    }

    fn at_target(&self, op: &SlotOp) -> Vec<Op> {
        let (handle, open_stateid) = self.target;
        let op = match op {
            SlotOp::Cancel => Op::OffloadCancel(OffloadArgs { stateid: self.copy }),
            _ => Op::Close(CloseArgs { seqid: 0, open_stateid }),
        };
        vec![putfh(handle), op]
    }

    fn open(&self, name: &str, access: ShareAccess, is_new: bool) -> Vec<Op> {
        let created = OpenHow::Create(CreateHow::Guarded(FileAttributes::from(&Attributes::default())));
        let open = Op::Open(OpenArgs {
            seqid: 0,
            share_access: access.with_want(DelegationWant::NO_DELEG),
            share_deny: ShareDeny::empty(),
            owner: self.owner(),
            how: if is_new { created } else { OpenHow::NoCreate },
            claim: OpenClaim::Null(component(name)),
        });
        export().into_iter().chain([open, Op::GetFh]).collect()
    }

    /// Returns CLONE or COPY of a part of the file, or of all of it.
    fn copy(&self, op: &SlotOp) -> Vec<Op> {
        let (source_stateid, (target, destination_stateid)) = (self.open, self.target);
        let (source_offset, destination_offset, count) = (0, 0, MIB);
        let op = if *op == SlotOp::Clone {
            let args =
                CloneArgs { source_stateid, destination_stateid, source_offset, destination_offset, count };
            Op::Clone(args)
        } else {
            let goes_on = *op == SlotOp::Background;
            Op::Copy(CopyArgs {
                source_stateid,
                destination_stateid,
                source_offset,
                destination_offset,
                count: if goes_on { LENGTH } else { count },
                consecutive: true,
                synchronous: !goes_on,
                source_servers: List::default(),
            })
        };
        vec![putfh(self.file), Op::SaveFh, putfh(target), op]
    }

    fn of_other(&self, op: &SlotOp) -> Op {
        let (client_id, sequence, session_id, _) = self.other;
        match op {
            SlotOp::Introduce => exchange_id(&self.name),
            SlotOp::Session => create_session(client_id, sequence, CreateSessionFlags::empty()),
            SlotOp::DestroySession => Op::DestroySession(DestroySessionArgs { session_id }),
            _ => Op::DestroyClientId(DestroyClientIdArgs { client_id }),
        }
    }

    fn associate(&mut self) -> Op {
        self.other.3 += 1;
        Op::Sequence(SequenceArgs::in_first_slot(self.other.2, self.other.3))
    }

    /// Handles the results of an operation; returns false if it is to be repeated.
    ///
    /// # Errors
    /// Returns the evidence that it was not executed exactly once.
    pub(super) fn learn(&mut self, op: &SlotOp, results: &[OpResult]) -> Result<bool, String> {
        let before = (self.open.seqid, self.lock.seqid);
        let expected = match (op, results) {
            (SlotOp::Open, [.., OpResult::Open(Outcome::Ok(open)), OpResult::GetFh(Outcome::Ok(file))]) => {
                (self.open, self.file) = (open.stateid, *file);
                // RFC 8881 §8.2.2: "When such a set of locks is first created, the server returns a stateid with seqid value of one."
                (1, before.1)
            }
            (
                SlotOp::OpenTarget,
                [.., OpResult::Open(Outcome::Ok(open)), OpResult::GetFh(Outcome::Ok(file))],
            ) => {
                self.target = (*file, open.stateid);
                before
            }
            (SlotOp::Upgrade, [.., OpResult::Open(Outcome::Ok(open)), OpResult::GetFh(_)]) => {
                self.open = open.stateid;
                (before.0 + 1, before.1)
            }
            (SlotOp::Downgrade, [.., OpResult::OpenDowngrade(Outcome::Ok(stateid))]) => {
                self.open = *stateid;
                (before.0 + 1, before.1)
            }
            (SlotOp::Lock, [.., OpResult::Lock(LockOutcome::Ok(stateid))]) => {
                self.lock = *stateid;
                (before.0, 1)
            }
            (SlotOp::LockMore, [.., OpResult::Lock(LockOutcome::Ok(stateid))])
            | (SlotOp::Unlock, [.., OpResult::LockU(Outcome::Ok(stateid))]) => {
                self.lock = *stateid;
                (before.0, before.1 + 1)
            }
            (SlotOp::Want, [.., OpResult::WantDelegation(Outcome::Ok(delegation))]) => match delegation {
                OpenDelegation::Read(read) => {
                    self.delegation = read.stateid;
                    before
                }
                _ => return Ok(false),
            },
            (SlotOp::Introduce, [.., OpResult::ExchangeId(Outcome::Ok(known))]) => {
                self.other = (known.client_id, known.sequence_id, SessionId::default(), 0);
                before
            }
            (SlotOp::Session, [.., OpResult::CreateSession(Outcome::Ok(made))]) => {
                self.other.2 = made.session_id;
                before
            }
            (SlotOp::Background, [.., OpResult::Copy(CopyResult::Ok(done))]) => {
                // The copy is synchronous if the client cannot be called back.
                let Some(stateid) = done.response.callback_id.first() else { return Ok(false) };
                self.copy = *stateid;
                before
            }
            (SlotOp::Open | SlotOp::Upgrade | SlotOp::Downgrade | SlotOp::Lock | SlotOp::LockMore, other)
            | (
                SlotOp::OpenTarget
                | SlotOp::Unlock
                | SlotOp::Introduce
                | SlotOp::Session
                | SlotOp::Background,
                other,
            ) => {
                return Err(format!("{op:?}: {:?}", other.last()));
            }
            _ => before,
        };
        let after = (self.open.seqid, self.lock.seqid);
        if after == expected {
            Ok(true)
        } else {
            Err(format!("{op:?}: open and lock have the seqids {after:?} instead of {expected:?}"))
        }
    }
}

fn lock(offset: u64, locker: Locker) -> Op {
    Op::Lock(LockArgs { lock_type: LockType::Write, reclaim: false, offset, length: 10, locker })
}
