//! Delegations as replies have them and as callers see them.

use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::ops::open::SpaceLimit;
use protocol::nfs4::types::{Component, Handle, Stateid};
use serde::{Deserialize, Serialize};

use crate::attributes::Timestamp;
use crate::config::Caller;
use crate::locks::LockKind;
use crate::opens::{OpenFile, OpenMode};

/// The type of a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Other clients may read the file (`OPEN_DELEGATE_READ`).
    Read,
    /// No other client uses the file (`OPEN_DELEGATE_WRITE`).
    Write,
    /// No other client changes the directory's entries or attributes (RFC 8881 §10.9).
    Directory,
}

impl Kind {
    /// Returns whether an open of this mode can be local.
    pub(super) const fn covers(self, mode: OpenMode) -> bool {
        match self {
            Self::Read => !mode.write,
            Self::Write => true,
            Self::Directory => false,
        }
    }

    /// Returns whether no other client can have a lock that conflicts with one of `kind` (§10.4.2): an exclusive lock needs an
    /// open for writing.
    pub(crate) fn excludes(self, kind: LockKind) -> bool {
        match self {
            Self::Read => kind == LockKind::Shared,
            Self::Write => true,
            Self::Directory => false,
        }
    }
}

/// Numbers of delegations so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DelegationCounts {
    /// Delegations that are held.
    pub held: usize,
    /// Delegations that the server has granted.
    pub granted: u64,
    /// Delegations that the server has recalled.
    pub recalled: u64,
    /// Delegations that were returned, for any reason.
    pub returned: u64,
    /// Delegations that the server has revoked, or did not let the client reclaim.
    pub lost: u64,
    /// Opens without a request to the server.
    pub local_opens: u64,
}

/// A directory and a name in it.
pub(crate) type Location = (Handle, Component);

/// A delegation in the reply to an OPEN.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) handle: Handle,
    /// The file's directory and name, where opens need them: in version 4.0.
    pub(crate) location: Option<Location>,
    pub(crate) kind: Kind,
    pub(crate) stateid: Stateid,
    /// The user and the mode of the OPEN.
    pub(crate) caller: Caller,
    pub(crate) mode: OpenMode,
    /// Whether the server keeps the file while it is open although its last name is removed.
    pub(crate) preserves_unlinked: bool,
    /// The written data that may stay in the cache after a close; `None` for a delegation for reading.
    pub(crate) limit: Option<SpaceLimit>,
    /// The file's change attribute at the grant.
    pub(crate) change: Option<u64>,
    /// The time of the file's last change at the grant, if this client keeps the time of further changes (RFC 9754 §5).
    pub(crate) modified: Option<Timestamp>,
    /// [`super::Opening::restarts`] of the request, if the delegation cannot be reclaimed.
    pub(crate) restarts: Option<u64>,
}

/// A delegation in a reply, without the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) kind: Kind,
    pub(crate) stateid: Stateid,
    /// Whether the server recalls it already.
    pub(crate) is_recalled: bool,
    /// As [`Grant::limit`].
    pub(crate) limit: Option<SpaceLimit>,
    /// Whether the client keeps the file's times (RFC 9754 §5).
    pub(crate) keeps_times: bool,
}

/// A delegation that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// The number of the delegation, which no other has.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// When the reply with the delegation had arrived: requests sent later are executed under it.
    pub(crate) granted_at: Duration,
    /// The written data that may stay in the cache after a close; `None` for a delegation for reading.
    pub(crate) limit: Option<SpaceLimit>,
}

impl Held {
    /// Returns whether a file of `size` bytes, of which `unwritten` are only in the cache, may be closed without writing them
    /// back (RFC 8881 §18.16.1).
    pub(crate) fn allows_unwritten(&self, size: u64, unwritten: u64) -> bool {
        match self.limit {
            None => false,
            Some(SpaceLimit::Size(limit)) => size <= limit,
            Some(SpaceLimit::Blocks(limit)) => {
                unwritten <= u64::from(limit.blocks) * u64::from(limit.bytes_per_block)
            }
        }
    }
}

/// An open without a request.
#[derive(Debug)]
pub(crate) struct LocalOpen {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) preserves_unlinked: bool,
}

/// How an open file is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The server does not know the open.
    Local,
    /// The open stays at the server for the next one, at most until the delegation ends.
    Parked,
    /// By CLOSE.
    AtServer,
}

/// The state that is given back with a delegation.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The delegation; `None` if it is lost.
    pub(crate) stateid: Option<Stateid>,
    pub(crate) caller: Caller,
    pub(crate) parked: Vec<Arc<OpenFile>>,
}
