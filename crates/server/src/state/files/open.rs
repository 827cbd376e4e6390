//! OPEN, OPEN_DOWNGRADE and CLOSE, as far as state goes (RFC 8881 §9.7 to §9.9, §18.2, §18.16, §18.18).

use std::sync::Arc;
use std::time::Duration;

use vfs::Pin;

use crate::state::State;
use crate::state::delegations::delegation::Against;
use crate::state::tables::client::Client;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::gauges::weight;
use crate::state::tables::recovery::Says;
use crate::state::tables::shard::{Dropped, Event, Kind, OpenKey, Opened, Shard};
use crate::state::tables::share::{Modes, valid_bits};
use crate::state::tables::stateid::{Place, next_seqid};
use crate::state::tables::wire::{ShareAccess, ShareDeny, Stateid, Status};

/// Nobody's number, neither a user ID's (32 bits) nor the anonymous caller's (all ones): the opener where two callers opened
/// with one owner. Each was granted a part, and the open stands for the permission of neither.
const NOBODY: u64 = u64::MAX - 1;

/// What OPEN asks.
#[derive(Debug)]
pub struct OpenRequest {
    /// The file.
    pub file: FileKey,
    /// The open-owner's bytes; in version 4.0, as [`Turn::owner`](crate::state::Turn::owner) gives them.
    pub owner: Arc<[u8]>,
    /// Who opens, as a number: only to this caller the open stands for the permission that it was granted with.
    pub opener: u64,
    /// `share_access`; wishes for delegations are ignored here.
    pub access: ShareAccess,
    /// `share_deny`.
    pub deny: ShareDeny,
    /// Whether the file will be truncated: another's deny of writing forbids it, whatever `access` says.
    pub truncates: bool,
    /// CLAIM_PREVIOUS.
    pub reclaim: bool,
    /// From the backend.
    pub pin: Arc<dyn Pin>,
}

/// What OPEN gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenGrant {
    /// The open's stateid.
    pub stateid: Stateid,
    /// What the open was before; `None` where it is new. For [`State::withdraw_open`].
    previous: Option<Modes>,
}

impl OpenGrant {
    /// Whether the owner had not opened the file before.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.previous.is_none()
    }
}

impl State {
    /// Whether this client may open now, and whether there is room for what it opens; before a file is created.
    ///
    /// # Errors
    /// GRACE, NO_GRACE, DELAY (no room, here or in the log of state).
    pub fn admit_open(
        &self,
        now: Duration,
        client: &Client,
        owner: &[u8],
        reclaim: bool,
    ) -> Result<(), Status> {
        self.admit(now, client, reclaim)?;
        if !self.recovery.has_room_for(client) {
            return Err(Status::DELAY);
        }
        self.make_room(now, client, weight(owner))
    }

    /// Whether this client may open, or lock, now.
    ///
    /// # Errors
    /// GRACE, NO_GRACE.
    pub(crate) fn admit(&self, now: Duration, client: &Client, reclaim: bool) -> Result<(), Status> {
        if !reclaim {
            // RFC 8881 §18.51.3: "If non-reclaim locking operations are done before the RECLAIM_COMPLETE, an NFS4ERR_GRACE error
            // will be returned." §8.4.2.1: and to everyone while the grace period runs.
            // Version 4.0 has no RECLAIM_COMPLETE (RFC 7530 §9.6.2).
            let is_early = client.sessionless().is_none() && !client.has_completed();
            self.hear(now, client, Says::Asks);
            let wait = is_early || self.recovery.in_grace(now);
            return if wait { Err(Status::GRACE) } else { Ok(()) };
        }
        self.hear(now, client, Says::Reclaims);
        // §18.51.3: "Once the client sends RECLAIM_COMPLETE, the server will not allow the client to do subsequent reclaims …
        // and, if these are attempted, will return NFS4ERR_NO_GRACE."
        // §15.1.9.3, NO_GRACE: "There is no active grace period … The client making the request has no current role in
        // reclaiming locks. Previous operations have created a situation in which the server is not able to determine that a
        // reclaim-interfering edge condition does not exist."
        let may = !client.has_completed() && self.recovery.in_grace(now) && client.is_reclaiming();
        if !may {
            return Err(Status::NO_GRACE);
        }
        self.recovery.reclaims(now);
        Ok(())
    }

    /// Version 4.0: a client says something from which follows whether it has done with reclaims.
    pub(crate) fn hear(&self, now: Duration, client: &Client, says: Says) {
        let may_reclaim = client.sessionless().is_some() && client.is_reclaiming();
        if may_reclaim && self.recovery.hears(now, client, says) && client.complete_reclaim() {
            self.recovery.completes(client, true);
        }
    }

    /// OPEN: a new open, or an upgrade of the owner's open of this file.
    ///
    /// # Errors
    /// As [`Self::admit_open`]; SHARE_DENIED (RECLAIM_CONFLICT in a reclaim), INVAL, DELAY (no room), DEADSESSION (the client
    /// is gone).
    pub fn open(
        &self,
        now: Duration,
        client: &Arc<Client>,
        request: OpenRequest,
    ) -> Result<OpenGrant, Status> {
        let bits = valid_bits(request.access, request.deny)?;
        self.admit_open(now, client, &request.owner, request.reclaim)?;
        // §8.4.3: of what was taken from it nothing is reclaimed.
        if request.reclaim && !self.recovery.may_reclaim(client, request.file) {
            return Err(Status::NO_GRACE);
        }
        let mut dropped = Dropped::new();
        let number = self.shard_of(request.file);
        let mut shard = self.shards[number].lock();
        let result = self.open_in(&mut shard, now, client, request, bits, &mut dropped);
        self.give_back(shard, dropped);
        if result.is_ok() {
            self.recovery.holds(client);
        }
        result
    }

    fn open_in(
        &self,
        shard: &mut Shard,
        now: Duration,
        client: &Arc<Client>,
        request: OpenRequest,
        bits: (u8, u8),
        dropped: &mut Dropped,
    ) -> Result<OpenGrant, Status> {
        // The record may have gone since SEQUENCE: its part of this shard is swept after it is marked.
        if client.is_gone() {
            return Err(Status::DEADSESSION);
        }
        // RFC 8881 §9.1.2: to change the size is "treated as if … writing the area between the old and new sizes".
        let writes = if request.truncates { ShareAccess::WRITE.bits() as u8 } else { 0 };
        if self.is_denied(shard, now, client, request.file, (bits.0 | writes, bits.1), dropped) {
            let reclaim = request.reclaim;
            return Err(if reclaim { Status::RECLAIM_CONFLICT } else { Status::SHARE_DENIED });
        }
        // A delegation that was granted since the operation looked: it looks again.
        let against = Against::open((bits.0 | writes, bits.1));
        if shard.has_conflict(request.file, Some(client.id()), against) {
            return Err(Status::DELAY);
        }
        let OpenRequest { file, owner, opener, pin, .. } = request;
        if let Some(index) = shard.find_open(OpenKey { file, client: client.id(), owner: &owner }) {
            // §9.9: "represented by a single stateid whose "other" value matches that of the original open, and whose "seqid"
            // value is incremented", even where "the "upgrade" results in no change to the open mode".
            let previous = shard.open_at(index).modes;
            shard.set_modes(index, previous.upgraded(bits), &self.gauges, dropped);
            let entry = shard.entry_mut(index);
            entry.seqid = next_seqid(entry.seqid);
            if let Kind::Open(open) = &mut entry.kind {
                dropped.pins.extend(open.pin.replace(pin));
                if open.opener != opener {
                    open.opener = NOBODY;
                }
            }
            return Ok(OpenGrant {
                stateid: shard.stateid(index, self.ids.boot()),
                previous: Some(previous),
            });
        }
        let opened = Opened { owner, opener, modes: Modes::new(bits), pin };
        let index = shard.add_open(client, file, opened, &self.gauges);
        Ok(OpenGrant { stateid: shard.stateid(index, self.ids.boot()), previous: None })
    }

    /// Whether share reservations are in the way of `bits`. Those of other clients' expired leases are not: "locks associated
    /// with an expired lease do not prevent such a conflicting lock from being granted but MUST be revoked as necessary"
    /// (§8.4.3).
    pub(crate) fn is_denied(
        &self,
        shard: &mut Shard,
        now: Duration,
        client: &Client,
        file: FileKey,
        bits: (u8, u8),
        dropped: &mut Dropped,
    ) -> bool {
        let Some(record) = shard.files.get(&file) else { return false };
        // "revoked as necessary": where another conflict stands, nothing is gained by it.
        if !record.opens.in_the_way(bits).all(|index| self.yields(shard, index, now, client)) {
            return true;
        }
        for index in record.opens.in_the_way(bits).collect::<Vec<u32>>() {
            shard.end(index, Event::Conflict, &self.gauges, dropped);
        }
        false
    }

    /// Whether an open or a lock stateid is of another client whose lease has expired.
    pub(crate) fn yields(&self, shard: &Shard, index: u32, now: Duration, client: &Client) -> bool {
        let other = &shard.entry(index).client;
        other.id() != client.id() && other.is_expired(now, self.lease)
    }

    /// Takes an OPEN back whose operation failed afterwards (a truncation): as though it had not been. Where the owner has
    /// opened the file again meanwhile, that open stands with what it has.
    pub fn withdraw_open(&self, client: &Client, grant: OpenGrant) {
        let Ok(place) = Place::parse(&grant.stateid, self.ids.boot()) else { return };
        let mut dropped = Dropped::new();
        let mut shard = self.shards[place.shard].lock();
        let Ok(index) = shard.find(place, client, None) else { return };
        if shard.entry(index).seqid != grant.stateid.seqid {
            return;
        }
        match grant.previous {
            Some(modes) => {
                shard.set_modes(index, modes, &self.gauges, &mut dropped);
                // Nobody has seen the seqid, and the client still uses the one before.
                let seqid = grant.stateid.seqid;
                shard.entry_mut(index).seqid = if seqid == 1 { u32::MAX } else { seqid - 1 };
            }
            None => shard.end(index, Event::Close, &self.gauges, &mut dropped),
        }
        self.give_back(shard, dropped);
    }

    /// Whether any client has a file open, locked or delegated.
    #[must_use]
    pub fn is_file_held(&self, file: FileKey) -> bool {
        self.shards[self.shard_of(file)].lock().files.contains_key(&file)
    }

    /// OPEN_DOWNGRADE. Locks that are held stay: neither §18.18 nor POSIX takes them away. Who waits for one that it might
    /// not ask for any more is forgotten.
    ///
    /// # Errors
    /// INVAL, and as for every stateid: BAD_STATEID, OLD_STATEID, EXPIRED, ADMIN_REVOKED.
    pub fn open_downgrade(
        &self,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<Stateid, Status> {
        let (bits, mut dropped) = (valid_bits(access, deny)?, Dropped::new());
        let (mut shard, index) = self.find_open(client, file, stateid)?;
        let modes = shard.open_at(index).modes.downgraded(bits)?;
        shard.set_modes(index, modes, &self.gauges, &mut dropped);
        let entry = shard.entry_mut(index);
        // §9.9: "The "seqid" value in the returned stateid MUST be incremented, even in situations in which there is no change".
        entry.seqid = next_seqid(entry.seqid);
        let stateid = shard.stateid(index, self.ids.boot());
        self.give_back(shard, dropped);
        Ok(stateid)
    }

    /// CLOSE; the open's byte-range locks go with it: "The server MAY free all outstanding locks on CLOSE" (§18.2.3), so
    /// that none "would exist after the CLOSE", which alone would be LOCKS_HELD. With it the client acknowledges the loss of
    /// those that it lost under this open. Returns what the stateid would be next, for version 4.0.
    ///
    /// # Errors
    /// As for every stateid.
    pub fn close(&self, client: &Client, file: FileKey, stateid: &Stateid) -> Result<Stateid, Status> {
        let mut dropped = Dropped::new();
        let (mut shard, index) = self.find_open(client, file, stateid)?;
        let (last, had_lost) = (shard.stateid(index, self.ids.boot()), shard.has_lost_locks(index));
        shard.end(index, Event::Close, &self.gauges, &mut dropped);
        if had_lost {
            shard.acknowledged(client, file);
        }
        self.give_back(shard, dropped);
        Ok(Stateid { seqid: next_seqid(last.seqid), ..last })
    }

    /// OPEN_CONFIRM of version 4.0 (RFC 7530 §16.18), whose owner [`Self::stateid_turn`] has found.
    ///
    /// # Errors
    /// As for every stateid.
    pub fn confirm_open(&self, client: &Client, file: FileKey, stateid: &Stateid) -> Result<Stateid, Status> {
        let (mut shard, index) = self.find_open(client, file, stateid)?;
        let entry = shard.entry_mut(index);
        entry.seqid = next_seqid(entry.seqid);
        Ok(shard.stateid(index, self.ids.boot()))
    }

    /// Locks the shard of an open that a stateid names.
    fn find_open(
        &self,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
    ) -> Result<(parking_lot::MutexGuard<'_, Shard>, u32), Status> {
        self.find_entry(client, file, stateid, |kind| matches!(kind, Kind::Open(_)))
    }
}
