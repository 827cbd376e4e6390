//! Wire types of the state's arguments and results, gathered from `protocol::nfs4`.

pub(crate) use protocol::nfs4::ops::backchannel::{DirFromClient, DirFromServer, SecParmsList};
pub(crate) use protocol::nfs4::ops::lock::{LockDenied, LockType};
pub(crate) use protocol::nfs4::ops::open::{ShareAccess, ShareDeny};
pub(crate) use protocol::nfs4::ops::session::{
    ChannelAttributes, CreateSessionFlags, CreateSessionOk, SequenceArgs, SequenceOk, SequenceStatus,
};
pub(crate) use protocol::nfs4::ops::setclientid::SetClientIdOk;
pub(crate) use protocol::nfs4::types::{
    ClientId, NetAddress, OpNum, SessionId, StableHow, StateOwner, Stateid, Status, Verifier,
};

/// `stable_how4`.
pub(crate) fn stable_how(stability: vfs::Stability) -> StableHow {
    match stability {
        vfs::Stability::Unstable => StableHow::Unstable,
        vfs::Stability::DataSync => StableHow::DataSync,
        vfs::Stability::FileSync => StableHow::FileSync,
    }
}
