//! Delegations of a whole server: grants, recalls, waits, returns, revocation.

use protocol::nfs4::callback::recall::CbRecallArgs;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundResult, Op};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::open::{DelegationType, OpenDelegation, ShareAccess};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{Handle, Outcome, StableHow, Stateid, Status};
use xdr::Opaque;

use crate::Versions;
use crate::testing::{Lab, at, export, lab_with, open, open_result, putfh};

mod cb_getattr;
mod changes;
mod directories;
mod grants;
mod local_changes;
mod recalls;
mod reclaims;
mod rights;
mod times;
mod uses;
mod waits;

const READ: ShareAccess = ShareAccess::READ;
const WRITE: ShareAccess = ShareAccess::WRITE;
const BOTH: ShareAccess = ShareAccess::BOTH;
const LEASE_SECONDS: u64 = 90;

/// A file, and two clients with a callback path; the lab's own client has none.
struct Scene {
    lab: Lab,
    holder: Lab,
    other: Lab,
    file: Handle,
}

fn scene() -> Scene {
    scene_in(lab_with(vec![export(1, "/export")], |settings| settings.versions |= Versions::V2))
}

fn scene_in(mut lab: Lab) -> Scene {
    let file = lab.file(&["export", "file"], b"hello");
    let (holder, other) = (lab.reachable(b"holder", 11), lab.reachable(b"other", 12));
    Scene { lab, holder, other, file }
}

/// Sends an OPEN; returns its result with the delegation.
#[track_caller]
fn opened(client: &mut Lab, op: Op) -> (Stateid, OpenDelegation) {
    let results = client.ok(at(&["export"], vec![op]));
    let opened = open_result(results.last().unwrap());
    (opened.stateid, opened.delegation.clone())
}

fn delegated(delegation: &OpenDelegation) -> Option<(DelegationType, Stateid)> {
    match delegation {
        OpenDelegation::Read(read) => Some((DelegationType::READ, read.stateid)),
        OpenDelegation::Write(write) => Some((DelegationType::WRITE, write.stateid)),
        OpenDelegation::WriteAttributes(write) => Some((DelegationType::WRITE_ATTRS_DELEG, write.stateid)),
        _ => None,
    }
}

/// Opens and closes a file, and keeps the delegation.
#[track_caller]
pub(crate) fn hold(client: &mut Lab, text: &'static str, access: ShareAccess) -> Stateid {
    let op = open(text, b"holder", access);
    let close = Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT });
    let results = client.ok(at(&["export"], vec![op, close]));
    let delegation = &open_result(&results[results.len() - 2]).delegation;
    delegated(delegation).unwrap_or_else(|| panic!("{delegation:?}")).1
}

/// Returns the delegations that are recalled from a client; the client answers the recalls.
pub(crate) fn recalled(client: &Lab) -> Vec<CbRecallArgs> {
    let calls = client.calls();
    let recalls = calls.iter().map(|call| {
        let CbOp::Recall(args) = call.operation() else { panic!("{:?}", call.operation()) };
        client.answer(call.results(CbOpResult::Recall(Outcome::Ok(()))));
        *args
    });
    recalls.collect()
}

pub(crate) fn return_delegation(client: &mut Lab, file: Handle, stateid: Stateid) -> Status {
    client.status(vec![putfh(file), Op::DelegReturn(DelegReturnArgs { stateid })])
}

fn read(stateid: Stateid) -> Op {
    Op::Read(ReadArgs { stateid, offset: 0, count: 100 })
}

fn write(stateid: Stateid) -> Op {
    let data = Opaque::from_static(b"HELLO");
    Op::Write(WriteArgs { stateid, offset: 0, stable: StableHow::FileSync, data })
}

fn set(attributes: protocol::nfs4::attributes::FileAttributes) -> Op {
    Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes })
}

fn status(result: Option<CompoundResult>) -> Option<Status> {
    result.map(|result| result.status)
}

fn counts(lab: &Lab) -> (u64, u64, u64) {
    let counts = lab.server.counts();
    (counts.opens, counts.delegations, counts.revoked)
}

/// Returns the status of a reply of either version.
fn first_word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}
