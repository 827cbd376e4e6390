//! Scripted clients: each goes through the same changes in its own words, one call at a time, and sends a call again until
//! it is answered.

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

/// The credentials that all have.
fn superuser() -> OpaqueAuth {
    OpaqueAuth::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"sim"),
        uid: 0,
        gid: 0,
        gids: GroupList::default(),
    })
}

/// A client as the world sees it.
pub trait Client {
    /// The next call's record; `None` when there is nothing left to do.
    fn next_call(&mut self, now: Duration) -> Option<Bytes>;
    /// Looks at a message.
    ///
    /// # Errors
    /// What is wrong with the answer to the present call.
    fn receive(&mut self, bytes: Bytes) -> Result<Received, String>;
    /// The bytes of the present call when it is sent again.
    fn retransmit(&mut self, bytes: Bytes, _rng: &mut Rng) -> Bytes {
        bytes
    }
    /// The connection was lost, and there is a new one.
    fn reconnected(&mut self) {}
    /// Whether everything was done.
    fn is_done(&self) -> bool;
}

/// One change that must happen once. Each succeeds once only: a second execution fails, or is seen in the backend's count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make a file that must not be there.
    Create(String),
    /// The same, told from others by a verifier that the client chose: an exclusive CREATE, or OPEN.
    CreateExclusive(String),
    /// Change the mode of the file just made, guarded by its change time where the protocol has guards.
    SetAttr(u32),
    /// Write to the file just made.
    Write(u64),
    /// Give the file a second name.
    Link(String, String),
    /// Rename.
    Rename(String, String),
    /// Remove a file's name.
    Remove(String),
    /// Make a directory.
    Mkdir(String),
    /// Remove it.
    Rmdir(String),
    /// Make a symbolic link.
    Symlink(String),
    /// Make a named pipe.
    Mkfifo(String),
    /// Give the file made last an extended attribute that it must not have. Version 4.2 alone has these.
    SetXattr(String),
    /// Remove it.
    RemoveXattr(String),
    /// Make a directory that others try to make too: who made it has the lock that it stands for.
    Lock(String),
}

/// Of exclusive creations. Names tell them apart.
const VERIFIER: [u8; 8] = *b"verifier";

/// Locks that clients were told they have, in no order.
pub type Locks = Arc<Mutex<Vec<String>>>;

impl Step {
    /// Every kind of change, under names of its own.
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

    /// How the step makes a file, where it makes one by OPEN.
    fn created(&self) -> Option<(&str, OpenHow)> {
        match self {
            Self::Create(name) => Some((name, Self::guarded())),
            Self::CreateExclusive(name) => Some((name, OpenHow::Create(CreateHow::Exclusive(VERIFIER)))),
            _ => None,
        }
    }

    /// As [`Self::round`], with what only version 4.2 has.
    #[must_use]
    pub fn round_42(client: usize, round: u32) -> Vec<Self> {
        let name = format!("c{client}-r{round}-x");
        let mut steps = Self::round(client, round);
        steps.extend([Self::SetXattr(name.clone()), Self::RemoveXattr(name)]);
        steps
    }

    /// What the backend writes down when it executes the change; `None` where it names a handle.
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
