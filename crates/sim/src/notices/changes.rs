//! Changes of directory entries, of every kind.

use protocol::nfs4::attributes::{FileAttributes, SetAttributes};
use protocol::nfs4::callback::notify::notify_type;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::link::LinkArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::open::{
    CreateHow, DelegationWant, OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny,
};
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::types::{Mode, StateOwner, Stateid};

use super::directory_history::DirectoryHistory;
use super::{DIRECTORIES, directory_name};
use crate::client::{at_export, component};
use crate::rng::Rng;

/// Names of each kind in a directory: few, so that they are reused.
const NAMES: u64 = 5;

/// A change: its operations, and the directories that it changes, with the [`notify_type`].
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    pub(super) ops: Vec<Op>,
    pub(super) touched: Vec<(u64, u32)>,
}

/// Returns a random change. Another client's change may make it fail.
pub(super) fn draw(history: &DirectoryHistory, owner: StateOwner, rng: &mut Rng) -> Change {
    let directory = rng.below(DIRECTORIES);
    let here = |op: Op| {
        let mut ops = at_export(&directory_name(directory));
        ops.push(op);
        ops
    };
    let one = |ops, kind| Change { ops, touched: vec![(directory, kind)] };
    match (rng.below(10), pick(history, directory, rng)) {
        (0..=1, Some(old)) => {
            one(here(Op::Remove(RemoveArgs { target: component(&old) })), notify_type::REMOVE_ENTRY)
        }
        (2..=4, Some(old)) => {
            let new = name(&old[..1], rng);
            let args = RenameArgs { old_name: component(&old), new_name: component(&new) };
            let mut ops = at_export(&directory_name(directory));
            ops.extend([Op::SaveFh, Op::Rename(args)]);
            one(ops, notify_type::RENAME_ENTRY)
        }
        (5, Some(old)) => across(directory, &old, rng),
        (6, Some(old)) if old.starts_with('f') => {
            let mut ops = here(Op::Lookup(LookupArgs { name: component(&old) }));
            ops.push(Op::SaveFh);
            ops.extend(here(Op::Link(LinkArgs { new_name: component(&name("f", rng)) })));
            one(ops, notify_type::ADD_ENTRY)
        }
        (0..=6, _) => {
            let (object_type, name) = (CreateType::DIRECTORY, component(&name("d", rng)));
            let attributes = FileAttributes::default();
            one(here(Op::Create(CreateArgs { object_type, name, attributes })), notify_type::ADD_ENTRY)
        }
        _ => {
            let mut ops = here(open(owner, &name("f", rng)));
            ops.push(Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT }));
            one(ops, notify_type::ADD_ENTRY)
        }
    }
}

/// Returns SETATTR of a directory.
pub(super) fn touch(directory: u64) -> Vec<Op> {
    let set = SetAttributes { mode: Some(Mode::from_bits_retain(0o777)), ..SetAttributes::default() };
    let mut ops = at_export(&directory_name(directory));
    ops.push(Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: (&set).into() }));
    ops
}

fn across(from: u64, old: &str, rng: &mut Rng) -> Change {
    let to = (from + 1 + rng.below(DIRECTORIES - 1)) % DIRECTORIES;
    let mut ops = at_export(&directory_name(from));
    ops.push(Op::SaveFh);
    ops.extend(at_export(&directory_name(to)));
    let new = name(&old[..1], rng);
    ops.push(Op::Rename(RenameArgs { old_name: component(old), new_name: component(&new) }));
    Change { ops, touched: vec![(from, notify_type::REMOVE_ENTRY), (to, notify_type::ADD_ENTRY)] }
}

fn open(owner: StateOwner, name: &str) -> Op {
    Op::Open(OpenArgs {
        seqid: 0,
        share_access: ShareAccess::READ.with_want(DelegationWant::NO_DELEG),
        share_deny: ShareDeny::empty(),
        owner,
        how: OpenHow::Create(CreateHow::Unchecked(FileAttributes::default())),
        claim: OpenClaim::Null(component(name)),
    })
}

/// Returns a random existing name.
fn pick(history: &DirectoryHistory, directory: u64, rng: &mut Rng) -> Option<String> {
    let names = history.names(directory);
    let chosen = rng.below(names.len().max(1) as u64) as usize;
    names.iter().nth(chosen).cloned()
}

/// Returns a random name; long ones fill callbacks sooner.
fn name(kind: &str, rng: &mut Rng) -> String {
    let number = rng.below(NAMES);
    format!("{kind}{number}{}", "-".repeat(60 * number as usize))
}
