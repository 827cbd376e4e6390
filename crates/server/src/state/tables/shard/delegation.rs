//! A delegation in the table of a shard.

use std::time::Duration;

use protocol::nfs4::types::Handle;
use vfs::Authority;

use super::super::delegation::entry_change::EntryChangeKind;
use super::super::delegation::external_changes::DelegationWatch;
use super::super::delegation::getattr::{HeldAttributes, HolderQueries};
use super::super::delegation::kind::DelegationKind;
use super::super::delegation::phase::{DelegationEvent, DelegationPhase};
use super::super::delegation::times::DelegatedTimes;
use super::super::io::{IoKind, IoPermit};
use super::super::notices::Notices;
use super::super::stateid::EntryId;
use super::super::wire::{Stateid, Status};
use crate::state::tables::callback::ReferringRequest;

/// The weight of a delegation toward the bounds on state: its record, and its positions in the lists of file and client.
pub(crate) const DELEGATION_WEIGHT: usize = 2;

/// A delegation.
#[derive(Debug)]
pub(crate) struct Delegation {
    pub(crate) kind: DelegationKind,
    /// The bits of `share_access` whose permission was checked by the OPEN that granted it.
    pub(crate) checked_access: u8,
    /// The number of the user who opened the file then.
    pub(crate) opener: u64,
    pub(crate) phase: DelegationPhase,
    /// The file's handle at the client.
    pub(crate) handle: Handle,
    /// The OPEN that granted it.
    pub(crate) granted_by: Option<ReferringRequest>,
    pub(crate) recalled_at: Option<Duration>,
    pub(crate) queries: HolderQueries,
    /// The file's times, if the holder maintains them.
    pub(crate) times: Option<Box<DelegatedTimes>>,
    /// Notifications to the holder of a directory.
    pub(crate) notices: Notices,
    /// Watches for changes by local processes, if the backend can.
    pub(crate) watch: Option<DelegationWatch>,
    /// Its position in the file's list.
    pub(crate) at_file: u32,
}

impl Delegation {
    /// Returns whether this user obtained it.
    pub(crate) fn is_of(&self, caller: u64) -> bool {
        self.opener == caller
    }

    /// Returns whether it is held and not recalled.
    pub(crate) fn is_granted(&self) -> bool {
        self.phase == DelegationPhase::Granted
    }

    pub(crate) fn advance(&mut self, event: DelegationEvent) {
        self.phase = self.phase.after(event).expect("a legal transition of a delegation");
    }

    /// Returns the permission for I/O by its stateid.
    pub(crate) fn permit(&self, kind: IoKind, stateid: Stateid) -> Result<IoPermit, Status> {
        if kind == IoKind::Write && !self.kind.is_write() {
            return Err(Status::OPENMODE);
        }
        // The delegation of a file that was opened only for writing allows reads: the client fills the pages that it writes
        // into. The permission to read was not checked by the OPEN.
        let is_checked = self.checked_access & kind.bit() != 0;
        let authority = if is_checked { Authority::Opened } else { Authority::Caller };
        Ok(IoPermit { authority, opener: Some(self.opener), stateid })
    }

    /// Returns whether its holder is notified of such a change, and need not return the delegation for it.
    pub(crate) fn is_notified_of(&self, change: EntryChangeKind) -> bool {
        let is_notified = |types: protocol::nfs4::types::Bitmap| types.has(change.notify_type());
        self.is_granted() && matches!(self.kind, DelegationKind::Directory(types) if is_notified(types))
    }

    /// Returns whether the holder must see the change attribute of the grant. A local process may have changed the file, and the
    /// holder does not know of it yet.
    pub(crate) fn hides_changes(&self) -> bool {
        let Some(watch) = &self.watch else { return false };
        // A report comes a little after the change. Until then it is not known whether the holder itself caused a new change attribute,
        // if it writes under a read delegation. It then rereads data that only it has changed.
        self.kind == DelegationKind::Read || watch.is_notified()
    }

    /// Returns the attributes that other clients see after the holder's last answer to CB_GETATTR.
    pub(crate) fn held_attributes(
        &mut self,
        entry_id: EntryId,
        now: vfs::Timestamp,
    ) -> Option<HeldAttributes> {
        self.queries.attributes(entry_id, self.times.as_deref_mut(), now)
    }
}
