//! Scripted clients, one for each protocol version: they make the same changes, one call at a time, and retransmit each call until it
//! is answered.

mod v3;
mod v40;
mod v41;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::ops::open::{CreateHow, OpenHow};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use xdr::Opaque;

pub use v3::ClientV3;
pub(crate) use v3::call_v3;
pub use v40::ClientV40;
pub(crate) use v40::set_client_id;
pub use v41::{ClientV41, SessionCalls, at_export, export};
pub(crate) use v41::{change, component, compound, create_session, exchange_id};

use crate::rng::Rng;
use crate::world::Received;

/// Returns the credential of all clients.
fn superuser() -> OpaqueAuth {
    OpaqueAuth::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"sim"),
        uid: 0,
        gid: 0,
        gids: GroupList::default(),
    })
}

/// A scripted client.
pub trait Client {
    /// Returns the next call's record, or `None` at the end of the script.
    fn next_call(&mut self, now: Duration) -> Option<Bytes>;
    /// Handles a message.
    ///
    /// # Errors
    /// Returns the error in the reply to the current call.
    fn receive(&mut self, bytes: Bytes) -> Result<Received, String>;
    /// Returns the current call for retransmission.
    fn retransmit(&mut self, bytes: Bytes, _rng: &mut Rng) -> Bytes {
        bytes
    }
    /// Handles a new connection.
    fn reconnected(&mut self) {}
    /// Returns whether the script is done.
    fn is_done(&self) -> bool;
}

/// A change that must be executed once. A second execution fails, or shows in the backend's count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Create a file that must not exist.
    Create(String),
    /// Create a file exclusively, with a verifier.
    CreateExclusive(String),
    /// Change the mode of the last created file, guarded by its change time if the protocol supports that.
    SetAttr(u32),
    /// Write to the last created file.
    Write(u64),
    /// Link a file.
    Link(String, String),
    /// Rename.
    Rename(String, String),
    /// Remove a file.
    Remove(String),
    /// Create a directory.
    Mkdir(String),
    /// Remove it.
    Rmdir(String),
    /// Create a symbolic link.
    Symlink(String),
    /// Create a named pipe.
    Mkfifo(String),
    /// Set a new extended attribute of the last created file (version 4.2).
    SetXattr(String),
    /// Remove it.
    RemoveXattr(String),
    /// Create a directory that other clients try to create too, as a lock.
    Lock(String),
}

/// The verifier of exclusive creates; names distinguish them.
const VERIFIER: [u8; 8] = *b"verifier";

/// Locks that clients have obtained.
pub type Locks = Arc<Mutex<Vec<String>>>;

impl Step {
    /// Returns every kind of change, with unique names.
    #[must_use]
    pub fn round(client: usize, round: u32) -> Vec<Self> {
        let name = |what: &str| format!("c{client}-r{round}-{what}");
        vec![
            Self::CreateExclusive(name("e")),
            Self::Create(name("a")),
            Self::SetAttr(0o600 + round % 64),
            Self::Write(u64::from(round)),
            Self::Link(name("a"), name("b")),
            Self::Rename(name("b"), name("c")),
            Self::Remove(name("c")),
            Self::Mkdir(name("d")),
            Self::Rmdir(name("d")),
            Self::Symlink(name("s")),
            Self::Mkfifo(name("p")),
            Self::Rename(name("s"), name("t")),
        ]
    }

    fn guarded() -> OpenHow {
        OpenHow::Create(CreateHow::Guarded(FileAttributes::default()))
    }

    /// Returns the mode of creation, if the step is an OPEN that creates a file.
    fn created(&self) -> Option<(&str, OpenHow)> {
        match self {
            Self::Create(name) => Some((name, Self::guarded())),
            Self::CreateExclusive(name) => Some((name, OpenHow::Create(CreateHow::Exclusive(VERIFIER)))),
            _ => None,
        }
    }

    /// The same, with the changes of version 4.2.
    #[must_use]
    pub fn round_42(client: usize, round: u32) -> Vec<Self> {
        let name = format!("c{client}-r{round}-x");
        let mut steps = Self::round(client, round);
        steps.extend([Self::SetXattr(name.clone()), Self::RemoveXattr(name)]);
        steps
    }

    /// Returns the backend's record of the change; `None` if the change is by a handle.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        match self {
            Self::Create(name)
            | Self::CreateExclusive(name)
            | Self::Mkdir(name)
            | Self::Symlink(name)
            | Self::Mkfifo(name)
            | Self::Lock(name) => Some(format!("create {name}")),
            Self::Link(_, name) => Some(format!("link {name}")),
            Self::Rename(from, to) => Some(format!("rename {from} to {to}")),
            Self::Remove(name) | Self::Rmdir(name) => Some(format!("remove {name}")),
            Self::SetXattr(name) => Some(format!("set attribute {name}")),
            Self::RemoveXattr(name) => Some(format!("remove attribute {name}")),
            Self::SetAttr(_) | Self::Write(_) => None,
        }
    }
}
