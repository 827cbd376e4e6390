//! Open-owners and lock-owners of version 4.0: their seqids and last replies (RFC 7530 §9.1.7 to §9.1.11).

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;
use vfs::Handle;

use super::stateid::next_seqid;
use super::wire::{ClientId, Status};
use crate::ExportId;

/// The `other` field of a stateid.
pub(crate) type Other = [u8; 12];

/// The name space of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// `open_owner4`.
    Open,
    /// `lock_owner4`.
    Lock,
}

/// A cached reply for retransmissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedReply {
    /// The operation's status.
    pub status: Status,
    /// The bytes after the status.
    pub body: Bytes,
    /// The current file handle after OPEN.
    pub current: Option<(ExportId, Handle)>,
}

/// Maximum number of callers that are remembered for one owner: the latest ones. Linux and libnfs use one owner for each user.
pub(crate) const CALLERS_AN_OWNER: usize = 16;

/// A client's owners.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    pub(crate) open: HashMap<Arc<[u8]>, Owner>,
    pub(crate) lock: HashMap<Arc<[u8]>, Owner>,
    /// Time of the last search for owners without state.
    pub(crate) swept: Duration,
}

impl Owners {
    pub(crate) fn of(&mut self, role: Role) -> &mut HashMap<Arc<[u8]>, Owner> {
        match role {
            Role::Open => &mut self.open,
            Role::Lock => &mut self.lock,
        }
    }
}

/// The last request of an owner.
#[derive(Debug)]
pub(crate) struct Last {
    pub(crate) seqid: u32,
    pub(crate) digest: u64,
    pub(crate) reply: SavedReply,
}

#[derive(Debug)]
pub(crate) struct Owner {
    /// `None` before the first reply.
    pub(crate) last: Option<Last>,
    /// A request of the owner is in progress.
    pub(crate) running: bool,
    /// Always true for a lock-owner.
    pub(crate) confirmed: bool,
    /// The stateid that waits for OPEN_CONFIRM.
    pub(crate) opened: Option<Other>,
    /// The stateid that the last request closed: a retransmission of that request names it.
    pub(crate) closed: Option<Other>,
    /// A lock-owner's stateids. Some may have ended.
    pub(crate) stateids: Vec<Other>,
    /// The callers whose OPENs and LOCKs with this owner succeeded, as numbers; at most [`CALLERS_AN_OWNER`].
    pub(crate) callers: SmallVec<[u64; 1]>,
    pub(crate) used: Duration,
}

/// The result of checking a seqid.
pub(crate) enum Check {
    Next,
    Replay(SavedReply),
    Running,
    Wrong,
}

impl Owner {
    pub(crate) fn new(confirmed: bool, now: Duration) -> Self {
        Self {
            last: None,
            running: true,
            confirmed,
            opened: None,
            closed: None,
            stateids: Vec::new(),
            callers: SmallVec::new(),
            used: now,
        }
    }

    /// Remembers a caller that obtained state with this owner.
    pub(crate) fn obtained_by(&mut self, caller: u64) {
        if !self.callers.contains(&caller) {
            if self.callers.len() == CALLERS_AN_OWNER {
                self.callers.remove(0);
            }
            self.callers.push(caller);
        }
    }

    /// §9.1.7: "If a duplicate of last request (r == L) is received, the stored response is returned. If the sequence value
    /// received is any other value, it is rejected with the return of error NFS4ERR_BAD_SEQID." §9.1.9: so too "When the
    /// server can determine that the request differs from the original".
    pub(crate) fn check(&self, seqid: u32, digest: u64) -> Check {
        if self.running {
            return Check::Running;
        }
        match &self.last {
            None => Check::Next,
            Some(last) if last.seqid == seqid && last.digest == digest => Check::Replay(last.reply.clone()),
            Some(last) if last.seqid == seqid => Check::Wrong,
            // §9.1.3 continues with one after the maximum, Linux's client with zero.
            Some(last) if seqid == next_seqid(last.seqid) || seqid == last.seqid.wrapping_add(1) => {
                Check::Next
            }
            Some(_) => Check::Wrong,
        }
    }
}

/// The stateid that each owner of all clients closed last.
#[derive(Debug, Default)]
pub(crate) struct ClosedStateids(pub(crate) Mutex<HashMap<Other, Closer>>);

/// The client and the name of the owner that closed it.
pub(crate) type Closer = (ClientId, Weak<[u8]>);
