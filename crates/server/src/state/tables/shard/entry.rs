//! The state that a stateid names: an open, the locks of one lock-owner under one open, or a delegation; and the state of NLM hosts, which has
//! no stateid.

use std::sync::Arc;

use vfs::Pin;

use super::super::client::Client;
use super::super::file_key::FileKey;
use super::super::gauges::weight;
use super::super::locks::{LockOwner, OwnerName};
use super::delegation::{DELEGATION_WEIGHT, Delegation};
use super::entry_list::EntryList;
use super::nlm_entry::{NlmLock, NlmShare};
use super::phase::EntryPhase;
use super::share::Modes;

/// An entry of a shard.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) client: Arc<Client>,
    pub(crate) file: FileKey,
    pub(crate) seqid: u32,
    pub(super) phase: EntryPhase,
    pub(crate) kind: EntryKind,
    /// Its position in the client's list.
    pub(super) at_client: u32,
}

impl Entry {
    /// Returns its weight toward the bounds on state.
    pub(super) fn weight(&self) -> i32 {
        let owner = match &self.kind {
            EntryKind::Open(open) => &open.owner,
            EntryKind::Lock(lock) => &lock.name.owner,
            EntryKind::NlmLock(lock) => &lock.name.owner,
            EntryKind::NlmShare(share) => &share.owner,
            EntryKind::Delegation(_) => return DELEGATION_WEIGHT as i32,
        };
        weight(owner) as i32
    }
}

#[derive(Debug)]
pub(crate) enum EntryKind {
    Open(OpenEntry),
    Lock(LockEntry),
    Delegation(Box<Delegation>),
    NlmLock(Box<NlmLock>),
    NlmShare(Box<NlmShare>),
}

#[derive(Debug)]
pub(crate) struct OpenEntry {
    /// The open-owner's bytes.
    pub(crate) owner: Arc<[u8]>,
    /// The number of the user who opened it last.
    pub(crate) opener: u64,
    pub(crate) modes: Modes,
    /// `None` once the open is revoked.
    pub(crate) pin: Option<Arc<dyn Pin>>,
    /// Lock stateids under it, including revoked ones.
    pub(super) locks: EntryList,
    /// Its position in the file's list.
    pub(super) at_file: u32,
}

/// An open that is to be added.
#[derive(Debug)]
pub(crate) struct NewOpen {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) opener: u64,
    pub(crate) modes: Modes,
    pub(crate) pin: Arc<dyn Pin>,
}

/// A lock stateid. Its index is the number of its lock set.
#[derive(Debug)]
pub(crate) struct LockEntry {
    /// The open that it belongs to.
    pub(crate) open: u32,
    pub(crate) name: OwnerName,
    /// The owner's number in the file.
    pub(crate) owner: LockOwner,
    /// Its position in the open's list; `None` if it is revoked and outlives the open.
    pub(super) at_open: Option<u32>,
}

/// A place for an entry.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) generation: u64,
    pub(super) entry: Option<Entry>,
    /// Whether the last entry was removed with its client's record.
    pub(super) is_client_removed: bool,
}
