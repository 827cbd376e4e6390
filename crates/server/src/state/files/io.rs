//! Whether READ, WRITE and SETATTR of the size may go ahead (RFC 8881 §8.2.3, §8.2.5, §9.1.2).
//!
//! Byte-range locks are advisory here, as on every POSIX system without mandatory ones: "they only prevent the granting of
//! conflicting lock requests and have no effect on READs or WRITEs".

use std::time::Duration;

use vfs::Authority;

use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::gauges;
use crate::state::tables::shard::{Dropped, Kind, Shard};
use crate::state::tables::stateid::{Flaw, Place};
use crate::state::tables::wire::{Stateid, Status};

/// What I/O wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    /// READ.
    Read,
    /// WRITE, SETATTR of the size, ALLOCATE, …
    Write,
}

impl IoKind {
    /// The bit of `share_access` that covers it, and of `share_deny` that forbids it.
    pub(crate) fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
        }
    }
}

/// I/O may go ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoPermit {
    /// [`Authority::Opened`] where an open stands for the access, [`Authority::Caller`] where the caller must have it.
    pub authority: Authority,
    /// Whose open it is that stands for the access, as [`OpenRequest::opener`](crate::state::OpenRequest::opener) told.
    pub opener: Option<u64>,
    /// The stateid with its present seqid, for the compound's current stateid; special ones as they came.
    pub stateid: Stateid,
}

impl IoPermit {
    /// As it is for this user: a stateid is no secret among the users of a client, and an open stands for what its opener may,
    /// and nobody else.
    #[must_use]
    pub fn for_caller(self, caller: u64) -> Self {
        match self.opener {
            Some(opener) if opener != caller => Self { authority: Authority::Caller, ..self },
            _ => self,
        }
    }
}

impl State {
    /// Whether I/O may go ahead. The compound has replaced the current stateid before.
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
        let caller = IoPermit { authority: Authority::Caller, opener: None, stateid: *stateid };
        if *stateid == Stateid::READ_BYPASS && kind == IoKind::Read {
            // §8.2.3: "When used in READ, the server MAY grant access, even if access would normally be denied".
            return Ok(caller);
        }
        if *stateid == Stateid::ANONYMOUS || *stateid == Stateid::READ_BYPASS {
            // §8.4.2.1: a deny that will be reclaimed could forbid it.
            if self.recovery.in_grace(now) {
                return Err(Status::GRACE);
            }
            self.check_denials(now, client, file, kind)?;
            return Ok(caller);
        }
        let (mut shard, index) = self.find_entry(client, file, stateid, |_| true)?;
        let stateid = shard.stateid(index, self.ids.boot());
        // §9.1.2: "For stateids returned by byte-range LOCK operations, the appropriate mode is the access mode for the OPEN
        // stateid associated with the lock set".
        let open = match &shard.entry(index).kind {
            Kind::Open(open) => open,
            Kind::Lock(lock) => shard.open_at(lock.open),
            Kind::Delegation(delegation) => return delegation.permit(kind, stateid),
        };
        let covered = match kind {
            IoKind::Read => open.modes.reads(),
            IoKind::Write => open.modes.writes(),
        };
        if covered {
            return Ok(IoPermit { authority: Authority::Opened, opener: Some(open.opener), stateid });
        }
        if kind == IoKind::Write {
            // "the server MUST verify that the access mode allows writing and MUST return an NFS4ERR_OPENMODE error".
            return Err(Status::OPENMODE);
        }
        // "it may choose to allow READ on OPENs for OPEN4_SHARE_ACCESS_WRITE, to accommodate clients whose WRITE implementation
        // may unavoidably do reads … the server MUST still check for locks that conflict with the READ". The open was not
        // judged for reading, so that the caller is now.
        let mut dropped = Dropped::new();
        let denied = self.is_io_denied(&mut shard, now, client, file, kind, &mut dropped);
        self.give_back(shard, dropped);
        if denied {
            Err(Status::LOCKED)
        } else {
            Ok(IoPermit { authority: Authority::Caller, opener: None, stateid })
        }
    }

    /// Whether a stateid is what another client has of this file.
    #[must_use]
    pub fn is_anothers(&self, client: &Client, file: FileKey, stateid: &Stateid) -> bool {
        let Ok(place) = Place::parse(stateid, self.ids.boot()) else { return false };
        let found = self.shards[place.shard].lock().find(place, client, Some(file));
        matches!(found, Err(Flaw::OtherClient))
    }

    /// Whether any open denies anything: mostly none does, and [`Self::check_stateless_io`] need not be asked.
    #[must_use]
    pub fn has_denials(&self) -> bool {
        gauges::read(&self.gauges.denying) > 0
    }

    /// Whether I/O without any NFSv4 client (NFSv3) may go ahead: an open may deny it.
    ///
    /// # Errors
    /// LOCKED.
    pub fn check_stateless_io(&self, now: Duration, file: FileKey, kind: IoKind) -> Result<(), Status> {
        self.check_denials(now, &self.nobody, file, kind)
    }

    /// Most files of most servers are never opened with a deny: one look at a counter then.
    fn check_denials(
        &self,
        now: Duration,
        client: &Client,
        file: FileKey,
        kind: IoKind,
    ) -> Result<(), Status> {
        if !self.has_denials() {
            return Ok(());
        }
        let mut dropped = Dropped::new();
        let mut shard = self.shards[self.shard_of(file)].lock();
        let denied = self.is_io_denied(&mut shard, now, client, file, kind, &mut dropped);
        self.give_back(shard, dropped);
        if denied { Err(Status::LOCKED) } else { Ok(()) }
    }

    fn is_io_denied(
        &self,
        shard: &mut Shard,
        now: Duration,
        client: &Client,
        file: FileKey,
        kind: IoKind,
        dropped: &mut Dropped,
    ) -> bool {
        self.is_denied(shard, now, client, file, (kind.bit(), 0), dropped)
    }
}
