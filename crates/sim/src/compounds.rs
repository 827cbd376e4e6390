//! Sequences of NFSv4 compounds from arbitrary bytes, for fuzzing: one client for each minor version, few names, valid and invalid
//! stateids, recalls, elapsed time, and truncated or repeated requests.

mod client;

use std::time::Duration;

use protocol::nfs4::attributes::{Attributes, FileAttributes};
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::access::{AccessArgs, AccessMask};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::commit::CommitArgs;
use protocol::nfs4::ops::copy::CopyArgs;
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::link::LinkArgs;
use protocol::nfs4::ops::lock::{
    ExistingLockOwner, LockArgs, LockOutcome, LockTArgs, LockType, LockUArgs, Locker, OpenToLockOwner,
};
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::open::{
    CreateHow, DelegationWant, OpenArgs, OpenClaim, OpenDelegation, OpenHow, ShareAccess, ShareDeny,
};
use protocol::nfs4::ops::open_state::OpenDowngradeArgs;
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::read_plus::ReadPlusArgs;
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::space::{AllocateArgs, DataContent, DeallocateArgs, SeekArgs};
use protocol::nfs4::ops::stateid::{FreeStateidArgs, TestStateidArgs};
use protocol::nfs4::ops::verify::VerifyArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::ops::xattr::{
    GetXattrArgs, ListXattrsArgs, RemoveXattrArgs, SetXattrArgs, SetXattrOption,
};
use protocol::nfs4::types::{Bitmap, Component, HasStatus, Outcome, StableHow, Stateid, Status};
use rpc::message::parse_reply;
use xdr::{List, Opaque};

use self::client::{ClientSet, CompoundClient};
use crate::network::Faults;
use crate::world::World;

/// Maximum number of compounds.
const MAX_COMPOUNDS: usize = 256;
/// Operations of a compound, without the SEQUENCE.
const MAX_OPS: u64 = 8;
/// Maximum number of known stateids; the oldest are dropped.
const MAX_STATEIDS: usize = 16;

/// The input bytes that make all choices; followed by zeros.
struct Choices<'d> {
    data: &'d [u8],
}

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.data.split_first() {
            Some((first, rest)) => {
                self.data = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.byte()) % bound
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }
}

/// The effects of an input.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Played {
    /// Delegations granted.
    pub delegations: usize,
    /// Delegations recalled.
    pub recalls: usize,
    /// Opens by the client of version 4.0.
    pub opens_40: usize,
}

impl std::ops::AddAssign for Played {
    fn add_assign(&mut self, other: Self) {
        self.delegations += other.delegations;
        self.recalls += other.recalls;
        self.opens_40 += other.opens_40;
    }
}

/// Runs the compounds of `data` against a server in memory.
///
/// # Panics
/// Panics if the server does, or if its replies contradict each other or the request.
pub fn play(data: &[u8]) -> Played {
    let mut choices = Choices { data };
    let mut world = World::new(u64::from(choices.byte()), Faults::NONE);
    let mut set = ClientSet::new(&mut world);
    let mut stateids = vec![Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, Stateid::INVALID];
    let mut compounds = 0;
    while !choices.data.is_empty() && compounds < MAX_COMPOUNDS {
        compounds += 1;
        let who = choices.below(3) as usize;
        let ops = operations(&mut choices, &mut set.clients[who], &stateids);
        let request = set.clients[who].request(ops.clone());
        match choices.byte() {
            // Mostly: send it, and sometimes repeat it.
            0..=223 => {
                let reply = set.ask(&mut world, who, request.clone()).expect("a whole request is answered");
                let result = parse_reply::<CompoundResult>(reply.clone()).expect("the reply is a compound");
                assert_whole(&result, ops.len() + set.clients[who].before());
                let opens = remember(&result, &mut stateids, &mut set.played);
                set.played.opens_40 += if set.clients[who].has_slots() { 0 } else { opens };
                set.clients[who].learn(&result);
                if choices.flag() && set.clients[who].has_slots() {
                    let again = set.ask(&mut world, who, request);
                    assert_eq!(again, Some(reply), "a retransmission gets the reply again");
                }
            }
            // Truncate it. Reuse the sequence number if the slot was not used.
            224..=239 => {
                let length = request.len() * usize::from(choices.byte()) / 256;
                let result = set.compound(&mut world, who, request.slice(..length));
                result.iter().for_each(assert_consistent);
                set.clients[who].cut(result.as_ref());
            }
            // Advance the time, sometimes beyond the lease.
            byte => {
                set.clients[who].cut(None);
                world.wait(Duration::from_secs(u64::from(byte - 239) * 10));
            }
        }
        set.revive(&mut world, who);
    }
    set.played
}

fn assert_consistent(result: &CompoundResult) {
    let statuses: Vec<Status> = result.results.iter().map(HasStatus::status).collect();
    match statuses.split_last() {
        Some((last, before)) => {
            assert_eq!(*last, result.status, "the status is the last operation's");
            assert!(
                before.iter().all(|status| *status == Status::OK),
                "{statuses:?}: nothing runs after a failure"
            );
        }
        None => assert_ne!(result.status, Status::OK),
    }
}

/// Checks the reply to a request with this number of operations.
fn assert_whole(result: &CompoundResult, operations: usize) {
    assert_consistent(result);
    assert!(result.results.len() <= operations);
    assert!(result.status != Status::OK || result.results.len() == operations);
}

/// Keeps the stateids of a reply; returns the number of opens.
fn remember(result: &CompoundResult, stateids: &mut Vec<Stateid>, played: &mut Played) -> usize {
    let mut opens = 0;
    for result in &result.results {
        let given = match result {
            OpResult::Open(Outcome::Ok(open)) => {
                opens += 1;
                let delegation = delegated(&open.delegation);
                played.delegations += usize::from(delegation.is_some());
                [Some(open.stateid), delegation]
            }
            OpResult::Lock(LockOutcome::Ok(stateid))
            | OpResult::LockU(Outcome::Ok(stateid))
            | OpResult::OpenConfirm(Outcome::Ok(stateid))
            | OpResult::OpenDowngrade(Outcome::Ok(stateid)) => [Some(*stateid), None],
            _ => [None, None],
        };
        for stateid in given.into_iter().flatten() {
            if stateids.len() == MAX_STATEIDS {
                stateids.remove(4);
            }
            stateids.push(stateid);
        }
    }
    opens
}

fn delegated(delegation: &OpenDelegation) -> Option<Stateid> {
    match delegation {
        OpenDelegation::Read(read) => Some(read.stateid),
        OpenDelegation::Write(write) | OpenDelegation::WriteAttributes(write) => Some(write.stateid),
        _ => None,
    }
}

fn operations(choices: &mut Choices<'_>, client: &mut CompoundClient, stateids: &[Stateid]) -> Vec<Op> {
    let mut ops = if choices.flag() { crate::client::export() } else { vec![Op::PutRootFh] };
    for _ in 0..choices.below(MAX_OPS) {
        ops.push(operation(choices, client, stateids));
    }
    ops
}

fn name(choices: &mut Choices<'_>) -> Component {
    let names: [&'static [u8]; 8] = [b"a", b"b", b"c", b"export", b"..", b"a/b", b"", b"\xff\0"];
    Component::from_static(names[choices.below(8) as usize])
}

fn attributes(choices: &mut Choices<'_>) -> FileAttributes {
    let size = choices.flag().then(|| choices.below(100));
    FileAttributes::from(&Attributes { size, ..Attributes::default() })
}

fn offset(choices: &mut Choices<'_>) -> u64 {
    match choices.byte() {
        255 => u64::MAX,
        254 => u64::MAX - 1,
        253 => i64::MAX as u64,
        small => u64::from(small),
    }
}

fn lock_type(choices: &mut Choices<'_>) -> LockType {
    [LockType::Read, LockType::Write, LockType::ReadWait, LockType::WriteWait][choices.below(4) as usize]
}

fn share(choices: &mut Choices<'_>) -> (ShareAccess, ShareDeny) {
    let access = ShareAccess::from_bits_retain(choices.below(5) as u32);
    (access, ShareDeny::from_bits_retain(choices.below(5) as u32))
}

fn operation(choices: &mut Choices<'_>, client: &mut CompoundClient, stateids: &[Stateid]) -> Op {
    let mut stateid = stateids[choices.below(stateids.len() as u64) as usize];
    match choices.byte() {
        0 => stateid.seqid = stateid.seqid.wrapping_add(1),
        1 => stateid.other[usize::from(choices.byte()) % 12] ^= 1,
        2 => stateid.seqid = 0,
        _ => {}
    }
    let owner = client.lock_owner(if choices.flag() { b"x" } else { b"y" });
    match choices.below(29) {
        0 => Op::Lookup(LookupArgs { name: name(choices) }),
        1 => Op::LookupParent,
        2 => Op::GetFh,
        3 => Op::SaveFh,
        4 => Op::RestoreFh,
        5 => Op::GetAttr(GetAttrArgs { attributes: Bitmap::from_words([u32::MAX; 4]) }),
        6 => Op::Access(AccessArgs { access: AccessMask::from_bits_retain(u32::from(choices.byte())) }),
        7 => Op::ReadDir(ReadDirArgs {
            cookie: choices.below(8),
            cookie_verifier: [0; 8],
            dircount: u32::from(choices.byte()),
            maxcount: u32::from(choices.byte()) * 16,
            attributes: Bitmap::from_words([u32::MAX, u32::MAX, 0, 0]),
        }),
        8 => Op::ReadLink,
        9 => Op::Remove(RemoveArgs { target: name(choices) }),
        10 => Op::Rename(RenameArgs { old_name: name(choices), new_name: name(choices) }),
        11 => Op::Link(LinkArgs { new_name: name(choices) }),
        12 => Op::Create(CreateArgs {
            object_type: if choices.flag() {
                CreateType::DIRECTORY
            } else {
                CreateType::Other(choices.below(10) as u32)
            },
            name: name(choices),
            attributes: attributes(choices),
        }),
        13..=15 => open(choices, client),
        16 => Op::Close(CloseArgs { seqid: client.next_seqid(), open_stateid: stateid }),
        17 => {
            let (share_access, share_deny) = share(choices);
            let seqid = client.next_seqid();
            Op::OpenDowngrade(OpenDowngradeArgs { open_stateid: stateid, seqid, share_access, share_deny })
        }
        18 => Op::Read(ReadArgs { stateid, offset: offset(choices), count: u32::from(choices.byte()) }),
        19 => Op::Write(WriteArgs {
            stateid,
            offset: offset(choices),
            stable: StableHow::Unstable,
            data: Opaque::from_static(b"some data"),
        }),
        20 => Op::Commit(CommitArgs { offset: offset(choices), count: u32::from(choices.byte()) }),
        21 => Op::SetAttr(SetAttrArgs { stateid, attributes: attributes(choices) }),
        22 | 23 => {
            let existing = ExistingLockOwner { lock_stateid: stateid, lock_seqid: 0 };
            let open_seqid = client.next_seqid();
            let new = OpenToLockOwner { open_seqid, open_stateid: stateid, lock_seqid: 0, lock_owner: owner };
            Op::Lock(LockArgs {
                lock_type: lock_type(choices),
                reclaim: choices.byte() == 7,
                offset: offset(choices),
                length: offset(choices),
                locker: if choices.flag() { Locker::New(new) } else { Locker::Existing(existing) },
            })
        }
        24 => Op::LockT(LockTArgs {
            lock_type: lock_type(choices),
            offset: offset(choices),
            length: offset(choices),
            owner,
        }),
        25 => Op::LockU(LockUArgs {
            lock_type: lock_type(choices),
            seqid: 0,
            lock_stateid: stateid,
            offset: offset(choices),
            length: offset(choices),
        }),
        26 => match choices.below(5) {
            3 | 4 => Op::DelegReturn(DelegReturnArgs { stateid }),
            0 => Op::FreeStateid(FreeStateidArgs { stateid }),
            1 => Op::TestStateid(TestStateidArgs { stateids: List::new(stateids.to_vec()).expect("a few") }),
            _ => Op::Verify(VerifyArgs { attributes: attributes(choices) }),
        },
        _ if client.has_slots() => operation_42(choices, stateid),
        _ => client.operation_40(choices.below(3), stateid, owner),
    }
}

/// Returns an operation of version 4.2, which is illegal in 4.1.
fn operation_42(choices: &mut Choices<'_>, stateid: Stateid) -> Op {
    match choices.below(9) {
        0 => {
            let what = DataContent(choices.below(3) as u32);
            Op::Seek(SeekArgs { stateid, offset: offset(choices), what })
        }
        1 => Op::Allocate(AllocateArgs { stateid, offset: offset(choices), length: offset(choices) }),
        2 => Op::Deallocate(DeallocateArgs { stateid, offset: offset(choices), length: offset(choices) }),
        3 => Op::ReadPlus(ReadPlusArgs { stateid, offset: offset(choices), count: choices.byte().into() }),
        // Synchronous: the end of a background copy would be an unexpected callback.
        4 => Op::Copy(CopyArgs {
            source_stateid: stateid,
            destination_stateid: stateid,
            source_offset: offset(choices),
            destination_offset: offset(choices),
            count: offset(choices),
            consecutive: true,
            synchronous: true,
            source_servers: List::default(),
        }),
        5 => Op::SetXattr(SetXattrArgs {
            option: SetXattrOption(choices.below(4) as u32),
            key: name(choices),
            value: Opaque::from_static(b"some value"),
        }),
        6 => Op::GetXattr(GetXattrArgs { name: name(choices) }),
        7 => Op::ListXattrs(ListXattrsArgs { cookie: choices.below(4), maxcount: choices.byte().into() }),
        _ => Op::RemoveXattr(RemoveXattrArgs { name: name(choices) }),
    }
}

fn open(choices: &mut Choices<'_>, client: &mut CompoundClient) -> Op {
    let (mut share_access, share_deny) = share(choices);
    match choices.byte() {
        0..=99 => {}
        100..=179 => share_access = share_access.with_want(DelegationWant::READ_DELEG),
        _ => share_access = share_access.with_want(DelegationWant::WRITE_DELEG),
    }
    let how = match choices.below(5) {
        0 => OpenHow::Create(CreateHow::Unchecked(attributes(choices))),
        1 => OpenHow::Create(CreateHow::Guarded(attributes(choices))),
        2 => OpenHow::Create(CreateHow::Exclusive([choices.byte(); 8])),
        _ => OpenHow::NoCreate,
    };
    let claim = if choices.byte() < 64 { OpenClaim::Fh } else { OpenClaim::Null(name(choices)) };
    let (seqid, owner) = (client.next_seqid(), client.owner());
    Op::Open(OpenArgs { seqid, share_access, share_deny, owner, how, claim })
}
