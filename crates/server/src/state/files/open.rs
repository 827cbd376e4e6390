//! The state of OPEN, OPEN_DOWNGRADE and CLOSE (RFC 8881 §9.7 to §9.9, §18.2, §18.16, §18.18).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use vfs::Pin;

use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::delegation::conflict::Conflict;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::gauges::weight;
use crate::state::tables::recovery::V40Request;
use crate::state::tables::shard::share::{Modes, valid_bits};
use crate::state::tables::shard::{Deferred, EntryEvent, EntryKind, NewOpen, OpenKey, Shard};
use crate::state::tables::stateid::{EntryId, next_seqid};
use crate::state::tables::wire::{ShareAccess, ShareDeny, Stateid, Status};

/// The opener of an open that two users made with one owner: it gives the permission of neither. It is not a user ID (32 bits)
/// and not the anonymous caller (all ones).
const NO_OPENER: u64 = u64::MAX - 1;

/// The arguments of OPEN.
#[derive(Debug)]
pub struct OpenRequest {
    /// The file.
    pub file: FileKey,
    /// The open-owner's bytes; in version 4.0, as [`OwnerRequest::owner`](crate::state::OwnerRequest::owner) gives them.
    pub owner: Arc<[u8]>,
    /// A number of the user: the open gives the granted permission only to this user.
    pub opener: u64,
    /// `share_access`; `want` flags for delegations are ignored.
    pub access: ShareAccess,
    /// `share_deny`.
    pub deny: ShareDeny,
    /// Whether the file will be truncated: then another open's deny of writing conflicts, with any `access`.
    pub truncates: bool,
    /// CLAIM_PREVIOUS.
    pub reclaim: bool,
    /// From the backend.
    pub pin: Arc<dyn Pin>,
}

/// The result of OPEN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenGrant {
    /// The open's stateid.
    pub stateid: Stateid,
    /// The modes of the open before; `None` for a new open. For [`State::withdraw_open`].
    previous: Option<Modes>,
}

impl OpenGrant {
    /// Returns whether the owner had not opened the file before.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.previous.is_none()
    }
}

impl State {
    /// Checks that a client may open files now and that the open fits; called before a file is created.
    ///
    /// # Errors
    /// GRACE, NO_GRACE; DELAY if there is no room here or in the log of state.
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

    /// Checks that a client may open or lock files now.
    ///
    /// # Errors
    /// GRACE, NO_GRACE.
    pub(crate) fn admit(&self, now: Duration, client: &Client, reclaim: bool) -> Result<(), Status> {
        if !reclaim {
            // RFC 8881 §18.51.3: "If non-reclaim locking operations are done before the RECLAIM_COMPLETE, an NFS4ERR_GRACE error
            // will be returned." §8.4.2.1: the same holds for all clients in the grace period.
            // Version 4.0 has no RECLAIM_COMPLETE (RFC 7530 §9.6.2).
            let is_early = client.v40().is_none() && !client.has_completed();
            self.note_v40_request(now, client, V40Request::Asks);
            let is_refused = is_early || self.recovery.in_grace(now);
            return if is_refused { Err(Status::GRACE) } else { Ok(()) };
        }
        self.note_v40_request(now, client, V40Request::Reclaims);
        // §18.51.3: "Once the client sends RECLAIM_COMPLETE, the server will not allow the client to do subsequent reclaims …
        // and, if these are attempted, will return NFS4ERR_NO_GRACE."
        // §15.1.9.3, NO_GRACE: "There is no active grace period … The client making the request has no current role in
        // reclaiming locks. Previous operations have created a situation in which the server is not able to determine that a
        // reclaim-interfering edge condition does not exist."
        let may_reclaim = !client.has_completed() && self.recovery.in_grace(now) && client.is_reclaiming();
        if !may_reclaim {
            return Err(Status::NO_GRACE);
        }
        self.recovery.reclaims(now);
        Ok(())
    }

    /// Notes a request of a client of version 4.0 that shows whether it has finished its reclaims.
    pub(crate) fn note_v40_request(&self, now: Duration, client: &Client, says: V40Request) {
        let may_reclaim = client.v40().is_some() && client.is_reclaiming();
        if may_reclaim && self.recovery.note_v40_request(now, client, says) && client.complete_reclaim() {
            self.recovery.complete_reclaim(client, true);
        }
    }

    /// OPEN: makes an open, or upgrades the owner's open of this file.
    ///
    /// # Errors
    /// As [`Self::admit_open`]; SHARE_DENIED (RECLAIM_CONFLICT in a reclaim), INVAL, DELAY (no room), DEADSESSION (the client's
    /// record is removed).
    pub fn open(
        &self,
        now: Duration,
        client: &Arc<Client>,
        request: OpenRequest,
    ) -> Result<OpenGrant, Status> {
        let bits = valid_bits(request.access, request.deny)?;
        self.admit_open(now, client, &request.owner, request.reclaim)?;
        // §8.4.3: a client reclaims nothing in files in which its state was revoked.
        if request.reclaim && !self.recovery.may_reclaim(client, request.file) {
            return Err(Status::NO_GRACE);
        }
        let mut deferred = Deferred::new();
        let number = self.shard_of(request.file);
        let mut shard = self.shards[number].lock();
        let result = self.open_in(&mut shard, now, client, request, bits, &mut deferred);
        self.unlock_shard(shard, deferred);
        if result.is_ok() {
            self.recovery.note_holder(client);
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
        deferred: &mut Deferred,
    ) -> Result<OpenGrant, Status> {
        // The record may have been removed since SEQUENCE. Its entries here are released after it is marked.
        if client.is_removed() {
            return Err(Status::DEADSESSION);
        }
        // RFC 8881 §9.1.2: to change the size is "treated as if … writing the area between the old and new sizes".
        let truncation = if request.truncates { ShareAccess::WRITE.bits() as u8 } else { 0 };
        let used = (bits.0 | truncation, bits.1);
        if self.is_share_denied(shard, now, client, request.file, used, deferred) {
            let reclaim = request.reclaim;
            return Err(if reclaim { Status::RECLAIM_CONFLICT } else { Status::SHARE_DENIED });
        }
        // A delegation that was granted since the operation recalled conflicts: it recalls again.
        if shard.has_conflict(request.file, Some(client.id()), Conflict::open(used)) {
            return Err(Status::DELAY);
        }
        let OpenRequest { file, owner, opener, pin, .. } = request;
        if let Some(index) = shard.find_open(OpenKey { file, client: client.id(), owner: &owner }) {
            // §9.9: "represented by a single stateid whose "other" value matches that of the original open, and whose "seqid"
            // value is incremented", even where "the "upgrade" results in no change to the open mode".
            let previous = shard.open_at(index).modes;
            shard.set_modes(index, previous.upgraded(bits), &self.gauges, deferred);
            let entry = shard.entry_mut(index);
            entry.seqid = next_seqid(entry.seqid);
            if let EntryKind::Open(open) = &mut entry.kind {
                deferred.pins.extend(open.pin.replace(pin));
                if open.opener != opener {
                    open.opener = NO_OPENER;
                }
            }
            let stateid = shard.stateid(index, self.ids.boot());
            return Ok(OpenGrant { stateid, previous: Some(previous) });
        }
        let new = NewOpen { owner, opener, modes: Modes::new(bits), pin };
        let index = shard.add_open(client, file, new, &self.gauges);
        Ok(OpenGrant { stateid: shard.stateid(index, self.ids.boot()), previous: None })
    }

    /// Returns whether share reservations conflict with `bits`. Those of NLM hosts do not exclude I/O of callers without a client
    /// record, which may be those hosts.
    pub(crate) fn is_share_denied(
        &self,
        shard: &mut Shard,
        now: Duration,
        client: &Client,
        file: FileKey,
        bits: (u8, u8),
        deferred: &mut Deferred,
    ) -> bool {
        let is_anonymous = client.id() == self.anonymous.id();
        let is_by_host = !is_anonymous && shard.nlm_shares(file).any(|(_, _, share)| share.excludes(bits));
        is_by_host || self.is_open_denied(shard, now, client, file, bits, deferred)
    }

    /// Returns whether share reservations of opens conflict with `bits`. Those of other clients' expired leases are revoked instead:
    /// "locks associated with an expired lease do not prevent such a conflicting lock from being granted but MUST be revoked as
    /// necessary" (§8.4.3).
    pub(crate) fn is_open_denied(
        &self,
        shard: &mut Shard,
        now: Duration,
        client: &Client,
        file: FileKey,
        bits: (u8, u8),
        deferred: &mut Deferred,
    ) -> bool {
        let Some(record) = shard.files.get(&file) else { return false };
        // "revoked as necessary": where another conflict remains, a revocation does not help.
        if !record.opens.conflicting(bits).all(|index| self.is_lease_over(shard, index, now, client)) {
            return true;
        }
        for index in record.opens.conflicting(bits).collect::<Vec<u32>>() {
            shard.end(index, EntryEvent::Conflict, &self.gauges, deferred);
        }
        false
    }

    /// Returns whether an open or a lock stateid belongs to another client than `client`, whose lease has expired.
    pub(crate) fn is_lease_over(&self, shard: &Shard, index: u32, now: Duration, client: &Client) -> bool {
        let holder = &shard.entry(index).client;
        holder.id() != client.id() && holder.is_expired(now, self.lease)
    }

    /// Undoes an OPEN whose operation failed afterwards, in a truncation. If the owner has opened the file again meanwhile, the
    /// open stays as it is.
    pub fn withdraw_open(&self, client: &Client, grant: OpenGrant) {
        let Ok(entry_id) = EntryId::parse(&grant.stateid, self.ids.boot()) else { return };
        let mut deferred = Deferred::new();
        let mut shard = self.shards[entry_id.shard].lock();
        let Ok(index) = shard.find(entry_id, client, None) else { return };
        if shard.entry(index).seqid != grant.stateid.seqid {
            return;
        }
        match grant.previous {
            Some(modes) => {
                shard.set_modes(index, modes, &self.gauges, &mut deferred);
                // The client has not seen this seqid and still uses the one before.
                let seqid = grant.stateid.seqid;
                shard.entry_mut(index).seqid = if seqid == 1 { u32::MAX } else { seqid - 1 };
            }
            None => shard.end(index, EntryEvent::Close, &self.gauges, &mut deferred),
        }
        self.unlock_shard(shard, deferred);
    }

    /// Returns whether any client has a file open, locked or delegated.
    #[must_use]
    pub fn is_file_held(&self, file: FileKey) -> bool {
        self.shards[self.shard_of(file)].lock().files.contains_key(&file)
    }

    /// OPEN_DOWNGRADE. Held locks remain: neither §18.18 nor POSIX takes them away. Waiters for locks that the open no
    /// longer allows are removed.
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
        let (bits, mut deferred) = (valid_bits(access, deny)?, Deferred::new());
        let (mut shard, index) = self.find_open(client, file, stateid)?;
        let modes = shard.open_at(index).modes.downgraded(bits)?;
        shard.set_modes(index, modes, &self.gauges, &mut deferred);
        let entry = shard.entry_mut(index);
        // §9.9: "The "seqid" value in the returned stateid MUST be incremented, even in situations in which there is no change".
        entry.seqid = next_seqid(entry.seqid);
        let stateid = shard.stateid(index, self.ids.boot());
        self.unlock_shard(shard, deferred);
        Ok(stateid)
    }

    /// CLOSE. The open's byte-range locks end with it: "The server MAY free all outstanding locks on CLOSE" (§18.2.3), so that
    /// none "would exist after the CLOSE", which would be LOCKS_HELD. It acknowledges the loss of revoked locks under this open.
    /// Returns the next stateid, for version 4.0.
    ///
    /// # Errors
    /// As for every stateid.
    pub fn close(&self, client: &Client, file: FileKey, stateid: &Stateid) -> Result<Stateid, Status> {
        let mut deferred = Deferred::new();
        let (mut shard, index) = self.find_open(client, file, stateid)?;
        let (last, had_revoked) = (shard.stateid(index, self.ids.boot()), shard.has_revoked_locks(index));
        shard.end(index, EntryEvent::Close, &self.gauges, &mut deferred);
        if had_revoked {
            shard.acknowledged(client, file);
        }
        self.unlock_shard(shard, deferred);
        Ok(Stateid { seqid: next_seqid(last.seqid), ..last })
    }

    /// OPEN_CONFIRM of version 4.0 (RFC 7530 §16.18), after [`Self::begin_stateid_request`].
    ///
    /// # Errors
    /// As for every stateid.
    pub fn confirm_open(&self, client: &Client, file: FileKey, stateid: &Stateid) -> Result<Stateid, Status> {
        let (mut shard, index) = self.find_open(client, file, stateid)?;
        let entry = shard.entry_mut(index);
        entry.seqid = next_seqid(entry.seqid);
        Ok(shard.stateid(index, self.ids.boot()))
    }

    /// Locks the shard of the open that a stateid names.
    fn find_open(
        &self,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
    ) -> Result<(MutexGuard<'_, Shard>, u32), Status> {
        self.find_entry(client, file, stateid, |kind| matches!(kind, EntryKind::Open(_)))
    }
}
