//! Sequences of NFSv4.1 and 4.2 compounds made of arbitrary bytes, for fuzzing: two clients, a handful of names, stateids that were
//! given and ones that never were, time that passes, requests that are cut short or sent again.

use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::attributes::{Attributes, FileAttributes};
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::access::{AccessArgs, AccessMask};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::commit::CommitArgs;
use protocol::nfs4::ops::copy::CopyArgs;
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::link::LinkArgs;
use protocol::nfs4::ops::lock::{
    ExistingLockOwner, LockArgs, LockOutcome, LockTArgs, LockType, LockUArgs, Locker, OpenToLockOwner,
};
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::open::{CreateHow, OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny};
use protocol::nfs4::ops::open_state::OpenDowngradeArgs;
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::read_plus::ReadPlusArgs;
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::ops::session::ReclaimCompleteArgs;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::space::{AllocateArgs, DataContent, DeallocateArgs, SeekArgs};
use protocol::nfs4::ops::stateid::{FreeStateidArgs, TestStateidArgs};
use protocol::nfs4::ops::verify::VerifyArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::ops::xattr::{
    GetXattrArgs, ListXattrsArgs, RemoveXattrArgs, SetXattrArgs, SetXattrOption,
};
use protocol::nfs4::types::{Bitmap, Component, HasStatus, StableHow, StateOwner, Stateid, Status};
use rpc::message::{RpcError, parse_reply};
use xdr::{List, Opaque};

use crate::client::Words;
use crate::network::Faults;
use crate::world::World;

/// Compounds played at most: more bytes show nothing new.
const MAX_COMPOUNDS: usize = 256;
/// Operations of a compound, the SEQUENCE apart.
const MAX_OPS: u64 = 8;
/// Stateids remembered; the oldest are forgotten.
const MAX_STATEIDS: usize = 16;

/// The bytes that decide everything; zeros when they are used up.
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

/// Plays what `data` says against a server in memory.
///
/// # Panics
/// Where the server does, or where its answers contradict each other or the request.
pub fn play(data: &[u8]) {
    let mut choices = Choices { data };
    let mut world = World::new(u64::from(choices.byte()), Faults::NONE);
    let mut clients = [Words::new("one", 1_000), Words::new("two", 2_000_000).newer()];
    for client in &mut clients {
        for introduce in [Words::exchange_id, Words::create_session] {
            let result = ask(&mut world, introduce(client)).expect("a client is let in");
            client.learn(&result).expect("a client is let in");
        }
        let complete = Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
        ask(&mut world, client.in_session(vec![complete])).expect("an answer");
    }
    let mut stateids = vec![Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, Stateid::INVALID];
    let mut compounds = 0;
    while !choices.data.is_empty() && compounds < MAX_COMPOUNDS {
        compounds += 1;
        let client = &mut clients[choices.below(2) as usize];
        let ops = operations(&mut choices, client, &stateids);
        let request = client.in_session(ops.clone());
        match choices.byte() {
            // Nearly always: send it, and sometimes send it again.
            0..=223 => {
                let reply = world.ask(request.clone()).expect("a whole request is answered");
                remember(&reply, &ops, &mut stateids);
                if choices.flag() {
                    assert_eq!(world.ask(request), Some(reply), "a retransmission gets the reply again");
                }
            }
            // Cut it short. The slot may or may not have been used: take the number back where it was not.
            224..=239 => {
                let length = request.len() * usize::from(choices.byte()) / 256;
                let used = ask_cut(&mut world, request.slice(..length));
                if !used {
                    client.take_back();
                }
            }
            // Let time pass, beyond the lease sometimes.
            byte => {
                client.take_back();
                world.wait(Duration::from_secs(u64::from(byte - 239) * 10));
            }
        }
        if let Some(renewed) = revive(&mut world, client) {
            *client = renewed;
        }
    }
}

/// A request and its whole reply; `None` where RPC itself refused it.
fn ask(world: &mut World, request: Bytes) -> Option<CompoundResult> {
    match parse_reply::<CompoundResult>(world.ask(request)?) {
        Ok(result) => Some(result),
        Err(RpcError::NotExecuted(_) | RpcError::Denied(_)) => None,
        Err(RpcError::Garbled(error)) => panic!("the reply is no compound: {error}"),
    }
}

/// Sends a request that ends early; whether it used its slot.
fn ask_cut(world: &mut World, request: Bytes) -> bool {
    let Some(result) = ask(world, request) else { return false };
    assert_consistent(&result);
    matches!(result.results.first(), Some(OpResult::Sequence(first)) if first.status() == Status::OK)
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

/// Checks a reply and keeps the stateids in it.
fn remember(reply: &Bytes, ops: &[Op], stateids: &mut Vec<Stateid>) {
    let Ok(result) = parse_reply::<CompoundResult>(reply.clone()) else { panic!("the reply is no compound") };
    assert_consistent(&result);
    assert!(result.results.len() <= ops.len() + 1);
    assert_eq!(
        result.status == Status::OK,
        result.results.len() == ops.len() + 1 && result.status == Status::OK
    );
    for result in &result.results {
        let given = match result {
            OpResult::Open(open) => open.clone().into_result().ok().map(|ok| ok.stateid),
            OpResult::Lock(LockOutcome::Ok(stateid)) => Some(*stateid),
            OpResult::LockU(result) => result.clone().into_result().ok(),
            OpResult::OpenDowngrade(result) => result.clone().into_result().ok(),
            _ => None,
        };
        if let Some(stateid) = given {
            if stateids.len() == MAX_STATEIDS {
                stateids.remove(4);
            }
            stateids.push(stateid);
        }
    }
}

/// A client whose lease ran out into a conflict has lost its session: it comes back as a new one.
fn revive(world: &mut World, client: &mut Words) -> Option<Words> {
    let result = ask(world, client.in_session(Vec::new())).expect("an answer");
    if result.status == Status::OK {
        return None;
    }
    assert_eq!(result.status, Status::BADSESSION, "nothing else goes wrong with a sequence in order");
    let mut renewed = client.clone();
    for introduce in [Words::exchange_id, Words::create_session] {
        let result = ask(world, introduce(&mut renewed)).expect("an answer");
        renewed.learn(&result).expect("a client is let in again");
    }
    Some(renewed)
}

fn operations(choices: &mut Choices<'_>, client: &Words, stateids: &[Stateid]) -> Vec<Op> {
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

fn operation(choices: &mut Choices<'_>, client: &Words, stateids: &[Stateid]) -> Op {
    let mut stateid = stateids[choices.below(stateids.len() as u64) as usize];
    match choices.byte() {
        0 => stateid.seqid = stateid.seqid.wrapping_add(1),
        1 => stateid.other[usize::from(choices.byte()) % 12] ^= 1,
        2 => stateid.seqid = 0,
        _ => {}
    }
    let owner =
        StateOwner { client_id: 0, owner: Opaque::from_static(if choices.flag() { b"x" } else { b"y" }) };
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
        16 => Op::Close(CloseArgs { seqid: 0, open_stateid: stateid }),
        17 => {
            let (share_access, share_deny) = share(choices);
            Op::OpenDowngrade(OpenDowngradeArgs { open_stateid: stateid, seqid: 0, share_access, share_deny })
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
            let new =
                OpenToLockOwner { open_seqid: 0, open_stateid: stateid, lock_seqid: 0, lock_owner: owner };
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
        26 => match choices.below(3) {
            0 => Op::FreeStateid(FreeStateidArgs { stateid }),
            1 => Op::TestStateid(TestStateidArgs { stateids: List::new(stateids.to_vec()).expect("a few") }),
            _ => Op::Verify(VerifyArgs { attributes: attributes(choices) }),
        },
        _ => operation_42(choices, stateid),
    }
}

/// An operation that version 4.2 brought; in 4.1 there is none of this number.
fn operation_42(choices: &mut Choices<'_>, stateid: Stateid) -> Op {
    match choices.below(9) {
        0 => {
            let what = DataContent(choices.below(3) as u32);
            Op::Seek(SeekArgs { stateid, offset: offset(choices), what })
        }
        1 => Op::Allocate(AllocateArgs { stateid, offset: offset(choices), length: offset(choices) }),
        2 => Op::Deallocate(DeallocateArgs { stateid, offset: offset(choices), length: offset(choices) }),
        3 => Op::ReadPlus(ReadPlusArgs { stateid, offset: offset(choices), count: choices.byte().into() }),
        // Without a background: its end would come as a call that nobody here takes.
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

fn open(choices: &mut Choices<'_>, client: &Words) -> Op {
    let (share_access, share_deny) = share(choices);
    let how = match choices.below(5) {
        0 => OpenHow::Create(CreateHow::Unchecked(attributes(choices))),
        1 => OpenHow::Create(CreateHow::Guarded(attributes(choices))),
        2 => OpenHow::Create(CreateHow::Exclusive([choices.byte(); 8])),
        _ => OpenHow::NoCreate,
    };
    let claim = if choices.byte() < 64 { OpenClaim::Fh } else { OpenClaim::Null(name(choices)) };
    Op::Open(OpenArgs { seqid: 0, share_access, share_deny, owner: client.owner(), how, claim })
}
