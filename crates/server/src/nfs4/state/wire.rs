//! The wire types that the state is asked and answered with, gathered from `protocol::nfs4`.

pub(super) use protocol::nfs4::ops::backchannel::{DirFromClient, DirFromServer};
pub(super) use protocol::nfs4::ops::lock::{LockDenied, LockType};
pub(super) use protocol::nfs4::ops::open::{ShareAccess, ShareDeny};
#[allow(unused_imports, reason = "used by the parts that come next")]
pub(super) use protocol::nfs4::ops::session::SequenceStatus;
pub(super) use protocol::nfs4::ops::session::{
    ChannelAttributes, CreateSessionFlags, CreateSessionOk, SequenceArgs, SequenceOk,
};
#[allow(unused_imports, reason = "used by the parts that come next")]
pub(super) use protocol::nfs4::types::StateOwner;
pub(super) use protocol::nfs4::types::{ClientId, SessionId, Stateid, Status, Verifier};
