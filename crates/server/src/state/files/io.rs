//! Checks whether READ, WRITE and SETATTR of the size are allowed (RFC 8881 §8.2.3, §8.2.5, §9.1.2).
//!
//! Byte-range locks are advisory, as on every POSIX system without mandatory locks: "they only prevent the granting of
//! conflicting lock requests and have no effect on READs or WRITEs".

use std::time::Duration;

use vfs::Authority;

use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::gauges;
use crate::state::tables::io::{IoKind, IoPermit};
use crate::state::tables::shard::{Deferred, EntryKind};
use crate::state::tables::stateid::{EntryId, StateidError};
use crate::state::tables::wire::{Stateid, Status};

impl State {
    /// Checks I/O by a stateid, which is not the "current" one.
    ///
    /// # Errors
    /// OPENMODE, LOCKED, GRACE, and as for every stateid.
    pub fn check_io(
        &self,
        now: Duration,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
        kind: IoKind,
    ) -> Result<IoPermit, Status> {
        let by_caller = IoPermit { authority: Authority::Caller, opener: None, stateid: *stateid };
        if *stateid == Stateid::READ_BYPASS && kind == IoKind::Read {
            // §8.2.3: "When used in READ, the server MAY grant access, even if access would normally be denied".
            return Ok(by_caller);
        }
        if *stateid == Stateid::ANONYMOUS || *stateid == Stateid::READ_BYPASS {
            // §8.4.2.1: a deny that is reclaimed later could forbid it.
            if self.recovery.in_grace(now) {
                return Err(Status::GRACE);
            }
            self.check_share_denies(now, client, file, kind)?;
            return Ok(by_caller);
        }
        let (mut shard, index) = self.find_entry(client, file, stateid, |_| true)?;
        let stateid = shard.stateid(index, self.ids.boot());
        // §9.1.2: "For stateids returned by byte-range LOCK operations, the appropriate mode is the access mode for the OPEN
        // stateid associated with the lock set".
        let open = match &shard.entry(index).kind {
            EntryKind::Open(open) => open,
            EntryKind::Lock(lock) => shard.open_at(lock.open),
            EntryKind::Delegation(delegation) => return delegation.permit(kind, stateid),
            // They have no stateid.
            EntryKind::NlmLock(_) | EntryKind::NlmShare(_) => return Err(Status::BAD_STATEID),
        };
        let is_covered = match kind {
            IoKind::Read => open.modes.reads(),
            IoKind::Write => open.modes.writes(),
        };
        if is_covered {
            return Ok(IoPermit { authority: Authority::Opened, opener: Some(open.opener), stateid });
        }
        if kind == IoKind::Write {
            // "the server MUST verify that the access mode allows writing and MUST return an NFS4ERR_OPENMODE error".
            return Err(Status::OPENMODE);
        }
        // "it may choose to allow READ on OPENs for OPEN4_SHARE_ACCESS_WRITE, to accommodate clients whose WRITE implementation
        // may unavoidably do reads … the server MUST still check for locks that conflict with the READ". The OPEN did not check
        // the permission to read, so the caller needs it now.
        let mut deferred = Deferred::new();
        let is_denied = self.is_share_denied(&mut shard, now, client, file, (kind.bit(), 0), &mut deferred);
        self.unlock_shard(shard, deferred);
        if is_denied {
            Err(Status::LOCKED)
        } else {
            Ok(IoPermit { authority: Authority::Caller, opener: None, stateid })
        }
    }

    /// Returns whether a stateid belongs to another client's state of this file.
    #[must_use]
    pub fn is_other_clients_stateid(&self, client: &Client, file: FileKey, stateid: &Stateid) -> bool {
        let Ok(entry_id) = EntryId::parse(stateid, self.ids.boot()) else { return false };
        let found = self.shards[entry_id.shard].lock().find(entry_id, client, Some(file));
        matches!(found, Err(StateidError::OtherClient))
    }

    /// Returns whether any open denies anything. Mostly none does, and [`Self::check_stateless_io`] is not needed.
    #[must_use]
    pub fn has_share_denies(&self) -> bool {
        gauges::read(&self.gauges.denying) > 0
    }

    /// Checks I/O that belongs to no NFSv4 client, as that of NFSv3.
    ///
    /// # Errors
    /// LOCKED if an open denies it.
    pub fn check_stateless_io(&self, now: Duration, file: FileKey, kind: IoKind) -> Result<(), Status> {
        self.check_share_denies(now, &self.anonymous, file, kind)
    }

    /// Checks I/O against the denies of opens. If no open of the server denies anything, it only reads a counter.
    fn check_share_denies(
        &self,
        now: Duration,
        client: &Client,
        file: FileKey,
        kind: IoKind,
    ) -> Result<(), Status> {
        if !self.has_share_denies() {
            return Ok(());
        }
        let mut deferred = Deferred::new();
        let mut shard = self.shards[self.shard_of(file)].lock();
        let is_denied = self.is_share_denied(&mut shard, now, client, file, (kind.bit(), 0), &mut deferred);
        self.unlock_shard(shard, deferred);
        if is_denied { Err(Status::LOCKED) } else { Ok(()) }
    }
}
