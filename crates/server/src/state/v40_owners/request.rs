//! Requests with the seqid of an open-owner or lock-owner of version 4.0 (RFC 7530 §9.1.7 to §9.1.11).
//!
//! A request of an owner is executed once. The next request shows that the client has received the reply, so one cached reply for
//! each owner is enough; it is kept as encoded bytes. A retransmission gets that reply, and never BAD_SEQID. A digest of the
//! arguments tells a retransmission from another request with the same seqid. While a request runs, its owner accepts no
//! other ([`OwnerRequest`]). An owner's opens and locks share the allocation of its name, so the reference count shows whether it
//! has any. An owner without state is removed after a lease without use (§9.1.10).
//!
//! Every owner counts towards its client's share of `max_state` like an open.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::state::root::State;
use crate::state::tables::client::Client;
use crate::state::tables::gauges::weight;
use crate::state::tables::principal::Principal;
use crate::state::tables::recovery::V40Request;
use crate::state::tables::shard::EntryKind;
use crate::state::tables::stateid::EntryId;
use crate::state::tables::v40_owners::{Check, Last, Other, Owner, Role, SavedReply};
use crate::state::tables::wire::{StateOwner, Stateid, Status};

/// The effect of an operation on its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerEffect {
    /// None, or the operation failed.
    None,
    /// OPEN gave this stateid.
    Opened(Stateid),
    /// OPEN_CONFIRM confirmed the owner.
    Confirmed,
    /// CLOSE ended this stateid.
    Closed(Stateid),
    /// LOCK gave this stateid.
    Locked(Stateid),
}

/// The treatment of a request with a seqid.
#[derive(Debug)]
pub enum V40Sequenced {
    /// Execute it, then [`State::end_owner_request`].
    New(OwnerRequest),
    /// Send this cached reply to this client.
    Replay(Arc<Client>, SavedReply),
}

/// The caller of a version 4.0 request.
#[derive(Debug, Clone, Copy)]
pub struct V40Caller<'a> {
    /// The caller as a number, as in [`OpenRequest::opener`](super::OpenRequest::opener).
    pub caller: u64,
    /// The caller's principal, as in client records.
    pub principal: &'a Principal,
}

/// A request that has exclusive use of its owners. Dropping it without [`State::end_owner_request`] leaves the owners unchanged.
#[derive(Debug)]
#[must_use = "dropping it forgets the request"]
pub struct OwnerRequest {
    client: Arc<Client>,
    role: Role,
    owner: Arc<[u8]>,
    seqid: u32,
    /// The lock-owner of a first LOCK, with its own seqid.
    locker: Option<(Arc<[u8]>, u32)>,
    digest: u64,
    pub(crate) confirmed: bool,
    /// The caller as a number.
    caller: u64,
    /// The caller obtained the state, or the client ID.
    is_own: bool,
    ended: bool,
}

impl OwnerRequest {
    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Returns the owner's name: the open-owner's for OPEN, the lock-owner's for LOCK.
    #[must_use]
    pub fn owner(&self) -> &Arc<[u8]> {
        self.locker.as_ref().map_or(&self.owner, |(owner, _)| owner)
    }

    /// Checks that the caller obtained the state, or the client ID, so that it may release the state.
    ///
    /// # Errors
    /// `refusal` for other callers.
    pub fn admit(&self, refusal: Status) -> Result<(), Status> {
        if self.is_own { Ok(()) } else { Err(refusal) }
    }

    /// OPEN4_RESULT_CONFIRM.
    #[must_use]
    pub fn needs_confirmation(&self) -> bool {
        !self.confirmed
    }

    /// Iterates over the owners and the seqids of the request.
    fn parts(&self) -> impl Iterator<Item = (Role, &Arc<[u8]>, u32)> {
        let locker = self.locker.iter().map(|(owner, seqid)| (Role::Lock, owner, *seqid));
        std::iter::once((self.role, &self.owner, self.seqid)).chain(locker)
    }
}

impl Drop for OwnerRequest {
    fn drop(&mut self) {
        if !self.ended
            && let Some(v40) = self.client.v40()
        {
            let mut owners = v40.owners.lock();
            for (role, owner, _) in self.parts() {
                if let Some(owner) = owners.of(role).get_mut(owner) {
                    owner.running = false;
                }
            }
        }
    }
}

impl Check {
    /// Returns the reply to a request that is not the owner's next; `None` for the next one.
    fn answer(self, client: &Arc<Client>) -> Option<Result<V40Sequenced, Status>> {
        match self {
            Self::Next => None,
            Self::Replay(reply) => Some(Ok(V40Sequenced::Replay(Arc::clone(client), reply))),
            Self::Running => Some(Err(BUSY)),
            Self::Wrong => Some(Err(Status::BAD_SEQID)),
        }
    }
}

/// The owner of a stateid.
struct FoundOwner {
    client: Arc<Client>,
    role: Role,
    owner: Arc<[u8]>,
    /// The stateid is valid; otherwise the owner's last request closed it.
    is_known: bool,
}

/// Returns whether a reply with this status advances the seqid: "The client MUST advance the sequence number … The only exception
/// to this rule is if the previous operation received one of the following errors" (§9.1.7).
fn advances(status: Status) -> bool {
    !matches!(
        status,
        Status::STALE_CLIENTID
            | Status::STALE_STATEID
            | Status::BAD_STATEID
            | Status::BAD_SEQID
            | Status::BADXDR
            | Status::RESOURCE
            | Status::NOFILEHANDLE
            | Status::MOVED
    )
}

/// The status while the owner has a request in progress. §9.1.7: "for each state-owner, there should be no more than one
/// outstanding request". RESOURCE does not advance the client's seqid.
pub(super) const BUSY: Status = Status::RESOURCE;

impl State {
    /// Begins an OPEN. `digest` is [`State::digest`] of its arguments; a `reclaim` makes the owner known without confirmation
    /// (§9.1.11).
    ///
    /// # Errors
    /// STALE_CLIENTID, EXPIRED; BAD_SEQID; RESOURCE if a request of the owner is in progress; DELAY if there is no room.
    pub fn begin_open_request(
        &self,
        now: Duration,
        owner: &StateOwner,
        seqid: u32,
        digest: u64,
        reclaim: bool,
        by: V40Caller<'_>,
    ) -> Result<V40Sequenced, Status> {
        let client = self.named_client(now, owner.client_id)?;
        let has_room = self.make_room(now, &client, weight(&owner.owner));
        let v40 = client.v40().ok_or(Status::STALE_CLIENTID)?;
        let mut owners = v40.owners.lock();
        if client.is_removed() {
            return Err(Status::EXPIRED);
        }
        let mut cancelled = None;
        let known = owners.open.get_key_value(&*owner.owner).map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| Arc::from(&owner.owner[..]));
        match owners.open.get_mut(&name) {
            Some(known) => {
                // §16.18.5: "the server assumes the second OPEN request is valid and the first one is a replay. The server
                // cancels the OPEN state of the first OPEN request".
                let check = match known.check(seqid, digest) {
                    Check::Wrong if !known.confirmed => Check::Next,
                    check => check,
                };
                if let Some(answer) = check.answer(&client) {
                    return answer;
                }
                cancelled = known.opened.take();
                v40.confirm(known, reclaim);
                known.running = true;
            }
            None => {
                has_room?;
                owners.open.insert(Arc::clone(&name), Owner::new(reclaim, now));
                self.gauges.charge(&client, weight(&name) as i32);
                v40.unconfirmed.fetch_add(u32::from(!reclaim), Relaxed);
            }
        }
        let confirmed = owners.open.get(&name).is_some_and(|owner| owner.confirmed);
        drop(owners);
        if let Some(opened) = cancelled {
            self.cancel(&client, opened);
        }
        let turn = OwnerRequest {
            client,
            role: Role::Open,
            owner: name,
            seqid,
            locker: None,
            digest,
            confirmed,
            caller: by.caller,
            is_own: true,
            ended: false,
        };
        Ok(V40Sequenced::New(turn))
    }

    /// Begins an OPEN_CONFIRM (`confirms`), OPEN_DOWNGRADE, CLOSE, LOCKU, or a LOCK with a lock stateid, for the owner of the
    /// stateid. Renews the lease.
    ///
    /// # Errors
    /// STALE_STATEID, BAD_STATEID; BAD_SEQID; RESOURCE if a request of the owner is in progress.
    pub fn begin_stateid_request(
        &self,
        now: Duration,
        stateid: &Stateid,
        seqid: u32,
        digest: u64,
        confirms: bool,
        by: V40Caller<'_>,
    ) -> Result<V40Sequenced, Status> {
        let found = self.owner_of(stateid)?;
        let client = found.client;
        let v40 = client.v40().ok_or(Status::BAD_STATEID)?;
        let mut owners = v40.owners.lock();
        let known = owners.of(found.role).get_mut(&found.owner).ok_or(Status::BAD_STATEID)?;
        let is_own = known.callers.contains(&by.caller) || client.principal() == by.principal;
        if is_own {
            client.renew(now);
        }
        let check = known.check(seqid, digest);
        // §16.18.4: "If the server receives an unexpected sequence id with respect to the original OPEN, then the server
        // assumes that the client will not confirm the original OPEN and all state associated with the original OPEN is
        // released by the server."
        let cancels = confirms && matches!(check, Check::Wrong);
        if let Some(answer) = check.answer(&client) {
            let opened = if cancels { known.opened.take() } else { None };
            drop(owners);
            if let Some(opened) = opened {
                self.cancel(&client, opened);
            }
            return answer;
        }
        // §16.18.5: if it is "not OPEN, or it is OPEN_CONFIRM but with the wrong stateid … even if the seqid is correct, the
        // server returns NFS4ERR_BAD_STATEID".
        let is_meant = if confirms { known.opened == Some(stateid.other) } else { known.confirmed };
        if !found.is_known || !is_meant {
            return Err(Status::BAD_STATEID);
        }
        known.running = true;
        drop(owners);
        let (role, owner) = (found.role, found.owner);
        let turn = OwnerRequest {
            client,
            role,
            owner,
            seqid,
            locker: None,
            digest,
            confirmed: true,
            caller: by.caller,
            is_own,
            ended: false,
        };
        Ok(V40Sequenced::New(turn))
    }

    /// Begins a LOCK with an open stateid, for its open-owner (seqid `seqids.0`) and its lock-owner (`seqids.1`). Renews the
    /// lease.
    ///
    /// # Errors
    /// As [`Self::begin_stateid_request`]; STALE_CLIENTID if the lock-owner belongs to another client.
    pub fn begin_lock_request(
        &self,
        now: Duration,
        stateid: &Stateid,
        locker: &StateOwner,
        seqids: (u32, u32),
        digest: u64,
        by: V40Caller<'_>,
    ) -> Result<V40Sequenced, Status> {
        let found = self.owner_of(stateid)?;
        let client = found.client;
        client.renew(now);
        let v40 = client.v40().ok_or(Status::BAD_STATEID)?;
        let mut owners = v40.owners.lock();
        let opener = owners.of(found.role).get(&found.owner).ok_or(Status::BAD_STATEID)?;
        if let Some(answer) = opener.check(seqids.0, digest).answer(&client) {
            return answer;
        }
        if !found.is_known || found.role != Role::Open || !opener.confirmed {
            return Err(Status::BAD_STATEID);
        }
        if locker.client_id != client.id() {
            return Err(Status::STALE_CLIENTID);
        }
        let name = match owners.lock.get_key_value(&*locker.owner) {
            Some((name, known)) => {
                // §16.10.5 demands BAD_SEQID if the owner already has a lock stateid under this open. Both seqids are the next ones,
                // so this is not a retransmission. Linux's server accepts it, and pynfs expects that (LOCK24).
                if let Some(answer) = known.check(seqids.1, digest).answer(&client) {
                    return answer;
                }
                Arc::clone(name)
            }
            None => {
                // `State::lock` checks for room later, because DELAY advances seqids (§9.1.7).
                let name: Arc<[u8]> = Arc::from(&locker.owner[..]);
                owners.lock.insert(Arc::clone(&name), Owner::new(true, now));
                self.gauges.charge(&client, weight(&name) as i32);
                name
            }
        };
        let turn = OwnerRequest {
            client: Arc::clone(&client),
            role: Role::Open,
            owner: found.owner,
            seqid: seqids.0,
            locker: Some((name, seqids.1)),
            digest,
            confirmed: true,
            caller: by.caller,
            is_own: true,
            ended: false,
        };
        for (role, owner, _) in turn.parts() {
            if let Some(owner) = owners.of(role).get_mut(owner) {
                owner.running = true;
            }
        }
        drop(owners);
        Ok(V40Sequenced::New(turn))
    }

    /// Ends a request with its reply, which is kept for retransmissions. `effect` applies if the request succeeded.
    pub fn end_owner_request(
        &self,
        now: Duration,
        mut turn: OwnerRequest,
        reply: &SavedReply,
        effect: OwnerEffect,
    ) {
        turn.ended = true;
        if turn.is_own {
            turn.client.renew(now);
        }
        let effect = if reply.status == Status::OK { effect } else { OwnerEffect::None };
        let Some(v40) = turn.client.v40() else { return };
        let mut owners = v40.owners.lock();
        for (role, name, seqid) in turn.parts() {
            let Some(owner) = owners.of(role).get_mut(name) else { continue };
            owner.running = false;
            owner.used = now;
            let is_new = owner.last.is_none();
            if !advances(reply.status) {
                if is_new && owner.opened.is_none() {
                    self.forget(&turn.client, &mut owners, role, name);
                }
                continue;
            }
            owner.last = Some(Last { seqid, digest: turn.digest, reply: reply.clone() });
            if let Some(closed) = owner.closed.take() {
                self.closed.0.lock().remove(&closed);
            }
            if matches!(
                (effect, role),
                (OwnerEffect::Opened(_), Role::Open) | (OwnerEffect::Locked(_), Role::Lock)
            ) {
                owner.obtained_by(turn.caller);
            }
            match effect {
                OwnerEffect::Opened(stateid) if !owner.confirmed => owner.opened = Some(stateid.other),
                OwnerEffect::Confirmed => {
                    owner.opened = None;
                    v40.confirm(owner, true);
                }
                OwnerEffect::Closed(stateid) => {
                    owner.closed = Some(stateid.other);
                    let names = (turn.client.id(), Arc::downgrade(name));
                    self.closed.0.lock().insert(stateid.other, names);
                }
                OwnerEffect::Locked(stateid) if role == Role::Lock => {
                    self.remember(&turn.client, owner, stateid.other);
                }
                // A lock-owner whose first LOCK failed is removed: the client's next LOCK names it again.
                OwnerEffect::None if role == Role::Lock && turn.locker.is_some() && is_new => {
                    self.forget(&turn.client, &mut owners, role, name);
                }
                _ => {}
            }
        }
    }

    /// Returns the version 4.0 client that holds the state of a stateid, and renews its lease. Special stateids have the
    /// anonymous client.
    ///
    /// # Errors
    /// STALE_STATEID, BAD_STATEID, also for an open that is not confirmed.
    pub fn holder(&self, now: Duration, stateid: &Stateid) -> Result<Arc<Client>, Status> {
        self.holder_for(now, stateid, None)
    }

    /// As [`Self::holder`], for DELEGRETURN: `by` must have obtained the delegation, or the client ID. It does not show that the client has
    /// finished its reclaims: the server may have granted a delegation that the client does not want with one of them.
    ///
    /// # Errors
    /// As [`Self::holder`]; BAD_STATEID for other callers (RFC 7530 §13.2 has no ACCESS for DELEGRETURN).
    pub fn holder_for_return(
        &self,
        now: Duration,
        stateid: &Stateid,
        by: V40Caller<'_>,
    ) -> Result<Arc<Client>, Status> {
        self.holder_for(now, stateid, Some(by))
    }

    fn holder_for(
        &self,
        now: Duration,
        stateid: &Stateid,
        by: Option<V40Caller<'_>>,
    ) -> Result<Arc<Client>, Status> {
        if *stateid == Stateid::ANONYMOUS || *stateid == Stateid::READ_BYPASS {
            return Ok(Arc::clone(&self.anonymous));
        }
        let entry_id = EntryId::parse(stateid, self.ids.boot()).map_err(|error| error.status(true))?;
        let shard = self.shards[entry_id.shard].lock();
        let entry = shard.named(entry_id).map_err(|error| error.status(true))?;
        let client = Arc::clone(&entry.client);
        let opener = match &entry.kind {
            EntryKind::Open(open) => Some(Arc::clone(&open.owner)),
            EntryKind::Lock(_) | EntryKind::NlmLock(_) | EntryKind::NlmShare(_) => None,
            EntryKind::Delegation(delegation) => {
                let is_own =
                    |by: V40Caller<'_>| delegation.is_of(by.caller) || client.principal() == by.principal;
                if !by.is_none_or(is_own) {
                    return Err(Status::BAD_STATEID);
                }
                None
            }
        };
        drop(shard);
        let v40 = client.v40().ok_or(Status::BAD_STATEID)?;
        if let Some(opener) = opener
            && v40.unconfirmed.load(Relaxed) > 0
            && v40.owners.lock().open.get(&opener).is_none_or(|owner| !owner.confirmed)
        {
            return Err(Status::BAD_STATEID);
        }
        client.renew(now);
        if by.is_none() {
            self.note_v40_request(now, &client, V40Request::Uses);
        }
        Ok(client)
    }

    fn owner_of(&self, stateid: &Stateid) -> Result<FoundOwner, Status> {
        let entry_id = EntryId::parse(stateid, self.ids.boot()).map_err(|error| error.status(true))?;
        let shard = self.shards[entry_id.shard].lock();
        let entry = match shard.named(entry_id) {
            Ok(entry) => entry,
            Err(error) => {
                drop(shard);
                return self.owner_that_closed(stateid.other).ok_or(error.status(true));
            }
        };
        if entry.client.v40().is_none() {
            return Err(Status::BAD_STATEID);
        }
        let (role, owner) = match &entry.kind {
            EntryKind::Open(open) => (Role::Open, Arc::clone(&open.owner)),
            EntryKind::Lock(lock) => (Role::Lock, Arc::clone(&lock.name.owner)),
            EntryKind::Delegation(_) | EntryKind::NlmLock(_) | EntryKind::NlmShare(_) => {
                return Err(Status::BAD_STATEID);
            }
        };
        Ok(FoundOwner { client: Arc::clone(&entry.client), role, owner, is_known: true })
    }

    fn owner_that_closed(&self, other: Other) -> Option<FoundOwner> {
        let closed = self.closed.0.lock();
        let (client, owner) = closed.get(&other)?;
        let (id, owner) = (*client, owner.upgrade()?);
        drop(closed);
        let client = self.clients.lock().record(id).map(|record| Arc::clone(&record.client))?;
        Some(FoundOwner { client, role: Role::Open, owner, is_known: false })
    }
}
