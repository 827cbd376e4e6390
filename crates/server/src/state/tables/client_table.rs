//! The table of client records: EXCHANGE_ID, CREATE_SESSION, DESTROY_CLIENTID, RECLAIM_COMPLETE and expiry.
//!
//! These are rare, so that one lock over the whole table does. A record's sessions are named here; what a client holds is
//! in the shards and is let go after the table's lock.

mod audit;
mod room;

use core::net::IpAddr;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;

use super::backchannel::BackChannel;
use super::binding::Channels;
use super::client::{Client, nanos};
use super::host::{HostKey, Hosts};
use super::lease::Lease;
use super::persist::KeptSlots;
use super::session::{CreateSession, MAX_SESSIONS_A_CLIENT, Session, negotiate_back, negotiate_fore};
use super::slot_memory::SlotMemory;
use super::transitions::{Row, step};
use super::wire::{ClientId, CreateSessionFlags, CreateSessionOk, SessionId, Status, Verifier};
use crate::ConnectionId;
use crate::state::State;
use crate::state::clients::exchange::{Decision, Known, decide};
use crate::state::clients::protect::{Credential, StateProtect};
use crate::state::clients::setclientid::Confirmation;

/// Records that one sweep looks at.
const SWEEP: usize = 256;

/// What EXCHANGE_ID asks. The operation checks flags itself.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeId<'a> {
    /// `co_ownerid`.
    pub owner: &'a [u8],
    /// `co_verifier`.
    pub verifier: Verifier,
    /// Who asks.
    pub by: &'a Credential,
    /// `EXCHGID4_FLAG_UPD_CONFIRMED_REC_A`.
    pub update: bool,
    /// How a new record's state will be protected.
    pub protect: StateProtect,
    /// The address that it comes from, where that is known.
    pub from: Option<IpAddr>,
}

/// What EXCHANGE_ID answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangedId {
    /// `eir_clientid`.
    pub client_id: ClientId,
    /// `eir_sequenceid`.
    pub sequence_id: u32,
    /// `EXCHGID4_FLAG_CONFIRMED_R`.
    pub confirmed: bool,
    /// How the record's state is protected, whatever was asked for now.
    pub protect: StateProtect,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Client records removed.
    pub clients: usize,
    /// Whether records are left that this sweep has not looked at: call again soon.
    pub more: bool,
}

/// Where a record stands. Expiry is no phase of its own: it follows from the [`Lease`], and an expired client that comes back
/// before anyone has pressed is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Unconfirmed,
    Confirmed,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Its first CREATE_SESSION succeeded, or SETCLIENTID_CONFIRM.
    Confirm,
    /// Another incarnation was confirmed, or took the owner's name.
    Replace,
    /// DESTROY_CLIENTID.
    Destroy,
    /// Its time is over.
    Expire,
    /// The administrator takes it.
    Evict,
    /// It holds nothing, and there is no room for another one.
    Yield,
}

impl Event {
    /// Why a record goes, for the log.
    fn reason(self) -> &'static str {
        match self {
            Self::Confirm => "confirmed",
            Self::Replace => "replaced by a new client of this name",
            Self::Destroy => "DESTROY_CLIENTID",
            Self::Expire => "lease expired",
            Self::Evict => "evicted",
            Self::Yield => "without state, and the client table is full",
        }
    }
}

const TRANSITIONS: &[Row<Phase, Event>] = &[
    (Phase::Unconfirmed, Event::Confirm, Phase::Confirmed),
    (Phase::Unconfirmed, Event::Replace, Phase::Gone),
    (Phase::Unconfirmed, Event::Destroy, Phase::Gone),
    (Phase::Unconfirmed, Event::Expire, Phase::Gone),
    (Phase::Confirmed, Event::Replace, Phase::Gone),
    (Phase::Confirmed, Event::Destroy, Phase::Gone),
    (Phase::Confirmed, Event::Expire, Phase::Gone),
    (Phase::Unconfirmed, Event::Evict, Phase::Gone),
    (Phase::Confirmed, Event::Evict, Phase::Gone),
    (Phase::Unconfirmed, Event::Yield, Phase::Gone),
    (Phase::Confirmed, Event::Yield, Phase::Gone),
];

/// A client ID's own reply cache of one slot (§18.36.4).
#[derive(Debug)]
struct CreateSlot {
    sequence: u32,
    result: Result<CreateSessionOk, Status>,
}

/// `eir_sequenceid` of a new record.
const FIRST_SEQUENCE: u32 = 1;

impl CreateSlot {
    /// "it initializes the client ID slot to be equal to eir_sequenceid - 1 (accounting for underflow), and records a
    /// contrived CREATE_SESSION result with a "cached" result of NFS4ERR_SEQ_MISORDERED."
    fn new() -> Self {
        Self { sequence: FIRST_SEQUENCE.wrapping_sub(1), result: Err(Status::SEQ_MISORDERED) }
    }

    fn next(&self) -> u32 {
        self.sequence.wrapping_add(1)
    }
}

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) client: Arc<Client>,
    /// Which of all it was, as they came.
    number: u64,
    phase: Phase,
    create: CreateSlot,
    pub(crate) sessions: Vec<SessionId>,
    /// Of a record of version 4.0.
    pub(crate) confirmation: Option<Confirmation>,
}

impl Record {
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether DESTROY_CLIENTID must leave it alone.
    pub(crate) fn is_in_use(&self, now: Duration, lease: Duration) -> bool {
        (self.client.has_state() || !self.sessions.is_empty()) && !self.client.is_expired(now, lease)
    }

    /// Whether a collision must leave it alone. `is_kept`: its client may still reclaim.
    pub(crate) fn stands(&self, now: Duration, lease: Duration, is_kept: bool) -> bool {
        self.is_in_use(now, lease) || (is_kept && !self.client.is_expired(now, lease))
    }
}

/// Which versions a record is for: their owners are other clients, whatever their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    /// Version 4.0: SETCLIENTID.
    Sessionless,
    /// Version 4.1 and later: EXCHANGE_ID.
    WithSessions,
}

impl Family {
    pub(crate) fn of(client: &Client) -> Self {
        if client.sessionless().is_some() { Self::Sessionless } else { Self::WithSessions }
    }
}

/// An owner's records: at most one of each.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Owned {
    pub(crate) confirmed: Option<ClientId>,
    unconfirmed: Option<ClientId>,
}

/// All records.
#[derive(Debug, Default)]
pub(crate) struct ClientTable {
    /// By their numbers, in the order in which they came.
    records: BTreeMap<u64, Record>,
    numbers: HashMap<ClientId, u64>,
    /// By family.
    owners: [HashMap<Bytes, Owned>; 2],
    /// Of which address each is.
    pub(crate) hosts: Hosts,
    /// The last record's number.
    last_number: u64,
    /// Where the last sweep ended.
    swept: u64,
}

impl ClientTable {
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn owned(&self, family: Family, owner: &[u8]) -> Owned {
        self.owners[family as usize].get(owner).copied().unwrap_or_default()
    }

    pub(crate) fn record_mut(&mut self, id: ClientId) -> Option<&mut Record> {
        self.records.get_mut(self.numbers.get(&id)?)
    }

    pub(crate) fn insert(&mut self, client: Arc<Client>, confirmation: Option<Confirmation>) {
        let (id, family) = (client.id(), Family::of(&client));
        self.owners[family as usize].entry(client.owner().clone()).or_default().unconfirmed = Some(id);
        self.last_number += 1;
        let number = self.last_number;
        self.hosts.add(client.host(), number);
        self.numbers.insert(id, number);
        let (phase, create, sessions) = (Phase::Unconfirmed, CreateSlot::new(), Vec::new());
        self.records.insert(number, Record { client, number, phase, create, sessions, confirmation });
    }

    /// Takes out a record whose lease is over.
    pub(crate) fn expire(&mut self, id: ClientId) -> Option<Record> {
        self.remove(id, Event::Expire)
    }

    /// Takes out an owner's unconfirmed record, for which another one comes.
    pub(crate) fn replace_unconfirmed(&mut self, owned: Owned) -> Option<Record> {
        owned.unconfirmed.and_then(|id| self.remove(id, Event::Replace))
    }

    /// Takes a record out; what it holds is for [`State::let_go`], after the lock.
    pub(crate) fn remove(&mut self, id: ClientId, event: Event) -> Option<Record> {
        let mut record = self.records.remove(&self.numbers.remove(&id)?)?;
        record.phase = step(TRANSITIONS, record.phase, event).expect("a record goes as its table says");
        record.client.set_gone(event.reason());
        self.hosts.remove(record.client.host(), record.number);
        let owners = &mut self.owners[Family::of(&record.client) as usize];
        if let Some(owned) = owners.get_mut(record.client.owner()) {
            owned.confirmed = owned.confirmed.filter(|other| *other != id);
            owned.unconfirmed = owned.unconfirmed.filter(|other| *other != id);
            if owned.confirmed.is_none() && owned.unconfirmed.is_none() {
                owners.remove(record.client.owner());
            }
        }
        Some(record)
    }

    /// Makes a record the owner's confirmed one, and takes out the one that it replaces.
    pub(crate) fn confirm(&mut self, id: ClientId) -> Option<Record> {
        let record = self.record_mut(id)?;
        if record.phase == Phase::Confirmed {
            return None;
        }
        record.phase =
            step(TRANSITIONS, record.phase, Event::Confirm).expect("only unconfirmed ones get here");
        let (owner, family) = (record.client.owner().clone(), Family::of(&record.client));
        let (host, number) = (Arc::clone(record.client.host()), record.number);
        self.hosts.confirm(&host, number);
        let old = self.owned(family, &owner).confirmed.and_then(|old| self.remove(old, Event::Replace));
        self.owners[family as usize].insert(owner, Owned { confirmed: Some(id), unconfirmed: None });
        old
    }

    /// Of the `SWEEP` records behind one, those of version 4.0.
    fn sessionless_behind(&self, number: u64) -> Vec<Arc<Client>> {
        let batch = self.records.range((Excluded(number), Unbounded)).take(SWEEP);
        let sessionless = batch.filter(|(_, record)| record.confirmation.is_some());
        sessionless.map(|(_, record)| Arc::clone(&record.client)).collect()
    }

    /// Of the `SWEEP` records behind one, those of clients that have had nothing for so long.
    fn resting_behind(&self, number: u64, now: Duration, long: Duration) -> Vec<Arc<Client>> {
        let batch = self.records.range((Excluded(number), Unbounded)).take(SWEEP);
        let resting = batch.filter(|(_, record)| record.client.is_resting(now, long));
        resting.map(|(_, record)| Arc::clone(&record.client)).collect()
    }

    pub(crate) fn record(&self, id: ClientId) -> Option<&Record> {
        self.records.get(self.numbers.get(&id)?)
    }

    /// Records with their numbers, in the order in which they came, from behind this one on.
    pub(crate) fn behind(&self, number: u64) -> impl Iterator<Item = (u64, &Record)> {
        self.records.range((Excluded(number), Unbounded)).map(|(number, record)| (*number, record))
    }

    /// The next `SWEEP` records behind the last sweep's.
    fn next_batch(&mut self) -> (Vec<ClientId>, bool) {
        let behind = self.records.range((Excluded(self.swept), Unbounded)).take(SWEEP);
        let batch: Vec<(u64, ClientId)> =
            behind.map(|(number, record)| (*number, record.client.id())).collect();
        let more = batch.len() == SWEEP;
        self.swept = if more { batch[SWEEP - 1].0 } else { 0 };
        (batch.into_iter().map(|(_, id)| id).collect(), more)
    }
}

/// Whether a record's time is over.
fn is_over(record: &Record, now: Duration, lease: Duration, press: bool) -> bool {
    let begun = match record.phase {
        Phase::Unconfirmed => Lease::Unconfirmed,
        Phase::Confirmed => Lease::Running,
        Phase::Gone => Lease::Over,
    };
    begun.after(record.client.idle(now), lease, record.client.has_state(), press) == Lease::Over
}

impl State {
    /// EXCHANGE_ID (RFC 8881 §18.35).
    ///
    /// # Errors
    /// CLID_INUSE, NOENT, NOT_SAME, PERM as §18.35.4 says; DELAY where there is no room for a record, or no ID.
    pub fn exchange_id(&self, now: Duration, request: &ExchangeId<'_>) -> Result<ExchangedId, Status> {
        let (result, removed) = self.decide_exchange(now, request);
        self.let_go(removed);
        result
    }

    fn decide_exchange(
        &self,
        now: Duration,
        request: &ExchangeId<'_>,
    ) -> (Result<ExchangedId, Status>, Vec<Record>) {
        let mut removed = Vec::new();
        let mut table = self.clients.lock();
        let owned = table.owned(Family::WithSessions, request.owner);
        let is_kept =
            self.recovery.keeps_from(now, Family::WithSessions, request.owner, &request.by.principal);
        let confirmed = owned.confirmed.and_then(|id| table.record(id));
        let known = confirmed.map(|record| Known {
            same_verifier: *record.client.verifier() == request.verifier,
            same_principal: record.client.protect().is_of(record.client.principal(), request.by),
            in_use: record.stands(now, self.lease, is_kept),
        });
        match decide(request.update, known, is_kept) {
            Decision::Refuse(status) => return (Err(status), removed),
            Decision::Existing => {
                // The slot's next ID, as Linux's server has it; the client ignores it where CONFIRMED_R is set.
                let record = confirmed.expect("an existing record is decided only where there is one");
                let sequence_id = record.create.next();
                let (client_id, protect) = (record.client.id(), record.client.protect());
                let found = ExchangedId { client_id, sequence_id, confirmed: true, protect };
                // 4, and the last words of 5: an unconfirmed record beside it is deleted first.
                if let Some(id) = owned.unconfirmed.filter(|_| !request.update) {
                    removed.extend(table.remove(id, Event::Replace));
                }
                return (Ok(found), removed);
            }
            Decision::Replace => {
                removed.extend(owned.confirmed.and_then(|id| table.remove(id, Event::Replace)))
            }
            Decision::New => {}
        }
        removed.extend(table.replace_unconfirmed(owned));
        let host = HostKey::of(request.from);
        if !self.has_room_for_record(&mut table, now, host, &mut removed) {
            return (Err(Status::DELAY), removed);
        }
        let Some(id) = self.ids.next_client_id(false, |id| table.record(id).is_none()) else {
            return (Err(Status::DELAY), removed);
        };
        let (owner, principal) = (Bytes::copy_from_slice(request.owner), request.by.principal.clone());
        let slots = Arc::new(SlotMemory::share_of(&self.slot_memory));
        let client = Client::new(id, owner, request.verifier, principal, slots, now);
        let client = client.protected_by(request.protect).at(table.hosts.host(host));
        table.insert(Arc::new(client), None);
        let (sequence_id, protect) = (FIRST_SEQUENCE, request.protect);
        (Ok(ExchangedId { client_id: id, sequence_id, confirmed: false, protect }), removed)
    }

    /// CREATE_SESSION (RFC 8881 §18.36), its own replays among it.
    ///
    /// # Errors
    /// STALE_CLIENTID, SEQ_MISORDERED, CLID_INUSE, TOOSMALL, INVAL (unknown flags), NOSPC (too many sessions), DELAY (no
    /// memory now; nothing has changed).
    pub fn create_session(
        &self,
        now: Duration,
        request: &CreateSession<'_>,
    ) -> Result<CreateSessionOk, Status> {
        let first = self.try_create_session(now, request);
        if !matches!(first.0, Err(Status::DELAY)) {
            self.let_go(first.1);
            return first.0;
        }
        // No memory: what expired clients hold goes, and once more.
        self.press(now);
        let (result, removed) = self.try_create_session(now, request);
        self.let_go(removed);
        result
    }

    fn try_create_session(
        &self,
        now: Duration,
        request: &CreateSession<'_>,
    ) -> (Result<CreateSessionOk, Status>, Option<Record>) {
        let mut table = self.clients.lock();
        // Phase 1, client record look up. A record whose time is over is gone, whether or not a sweep has come by.
        let late =
            |record: &Record| record.phase == Phase::Unconfirmed && is_over(record, now, self.lease, false);
        if table.record(request.client_id).is_some_and(late) {
            return (Err(Status::STALE_CLIENTID), table.remove(request.client_id, Event::Expire));
        }
        let Some(record) = table.record_mut(request.client_id).filter(|it| it.confirmation.is_none()) else {
            return (Err(Status::STALE_CLIENTID), None);
        };
        // Phase 3's "{ *, *, old_principal_arg, clientid_arg, * } … NFS4ERR_CLID_INUSE is returned to the client. No changes are
        // made to any client records on the server": before the slot is touched, or a stranger could put it out of step. "If
        // this would be the first session for the client ID, the CREATE_SESSION operation serves to confirm the client ID.
        // Otherwise, the client ID confirmation phase is skipped".
        if record.phase == Phase::Unconfirmed && record.client.principal() != request.principal {
            return (Err(Status::CLID_INUSE), None);
        }
        // Phase 2, sequence ID processing: "If csa_sequenceid is equal to the sequence ID in the client ID's slot, then this is
        // a replay of the previous CREATE_SESSION request, and the server returns the cached result."
        // What failed made nothing, so that it is tried again: the repetition fails as before, and a client that keeps the
        // number for a better request (as Linux's server lets it) is served as one that takes the next.
        let is_again = request.sequence == record.create.sequence;
        let may_retry = matches!(record.create.result, Err(status) if status != Status::SEQ_MISORDERED);
        if is_again && !may_retry {
            return (record.create.result.clone(), None);
        }
        if !is_again && request.sequence != record.create.next() {
            return (Err(Status::SEQ_MISORDERED), None);
        }
        let result = self.make_session(now, request, record);
        // A want of memory is no result: the request may come again. As no session was made, the slot may stay as it is.
        if matches!(result, Err(Status::DELAY)) {
            return (result, None);
        }
        record.create = CreateSlot { sequence: request.sequence, result: result.clone() };
        // Phase 3: "Once the session is successfully created, the scheduled client record replacement is committed. If the
        // session is not successfully created, then no changes are made to any client records on the server."
        let old = if result.is_ok() { table.confirm(request.client_id) } else { None };
        (result, old)
    }

    /// Phase 4, session creation.
    fn make_session(
        &self,
        now: Duration,
        request: &CreateSession<'_>,
        record: &mut Record,
    ) -> Result<CreateSessionOk, Status> {
        let known =
            CreateSessionFlags::PERSIST | CreateSessionFlags::CONN_BACK_CHAN | CreateSessionFlags::CONN_RDMA;
        if request.flags.bits() & !known.bits() != 0 {
            return Err(Status::INVAL);
        }
        // RFC 8881 §18.36.3: "If the RPCSEC_GSS handle identified by gcbp_handle_from_server does not exist on the server, the
        // server will return NFS4ERR_NOENT." Not before phase 2: what succeeded is not undone by its context's end.
        if request.lacks_context {
            return Err(Status::NOENT);
        }
        let wants_back = request.flags.contains(CreateSessionFlags::CONN_BACK_CHAN);
        let fore = negotiate_fore(request.fore_channel, &self.settings)?;
        let back = negotiate_back(request.back_channel, wants_back)?;
        if record.sessions.len() >= MAX_SESSIONS_A_CLIENT {
            return Err(Status::NOSPC);
        }
        let id = self.ids.next_session_id(request.client_id);
        let calls = (request.callback_program, request.security);
        let channel = BackChannel::new(id, request.minor, calls, back.clone());
        let client = Arc::clone(&record.client);
        let wants_persistence = request.flags.contains(CreateSessionFlags::PERSIST);
        let persistence = self.persistence.as_ref().filter(|_| wants_persistence);
        let persistence = persistence.filter(|keeps| keeps.admit(&id, &record.client, fore.max_requests));
        let session =
            Session::new(id, client, fore.clone(), channel, persistence.is_some(), self.settings.max_slots);
        let Some(session) = session else {
            persistence
                .inspect(|keeps| keeps.leave(&id, &record.client, fore.max_requests, &KeptSlots::default()));
            return Err(Status::DELAY);
        };
        // "The connection CREATE_SESSION that is sent over is associated with the session's fore channel."
        let channels = if wants_back { Channels::FORE | Channels::BACK } else { Channels::FORE };
        let joined = session.join(request.connection, channels, request.outbox, &self.connections);
        record.client.renew(now);
        if record.phase == Phase::Unconfirmed && self.recovery.returns(now, &record.client) {
            record.client.set_reclaiming();
        }
        record.sessions.push(id);
        let session = self.sessions.insert(session);
        Self::add_way(&session);
        if wants_back && joined {
            self.try_path(&session);
        }
        // "If the server does not or cannot provide a persistent reply cache, the server MUST NOT set
        // CREATE_SESSION4_FLAG_PERSIST in the field csr_flags." No RDMA.
        let mut flags = CreateSessionFlags::empty();
        flags.set(CreateSessionFlags::PERSIST, persistence.is_some());
        flags.set(CreateSessionFlags::CONN_BACK_CHAN, wants_back && joined);
        Ok(CreateSessionOk {
            session_id: id,
            sequence: request.sequence,
            flags,
            fore_channel: fore,
            back_channel: back,
        })
    }

    /// DESTROY_SESSION (RFC 8881 §18.37). Where it ends a compound of the same session, call it before
    /// [`Running::finish`](crate::state::Running::finish) as any operation.
    ///
    /// # Errors
    /// BADSESSION; CONN_NOT_BOUND_TO_SESSION: "DESTROY_SESSION MUST be invoked on a connection that is associated with the
    /// session being destroyed."
    pub fn destroy_session(&self, connection: ConnectionId, id: &SessionId) -> Result<(), Status> {
        let Some(session) = self.sessions.get(id) else { return self.bury(id) };
        if !session.is_bound(connection) {
            return Err(Status::CONN_NOT_BOUND_TO_SESSION);
        }
        let mut table = self.clients.lock();
        if let Some(record) = table.record_mut(session.client.id()) {
            record.sessions.retain(|other| other != id);
        }
        self.remove_session(id);
        Ok(())
    }

    /// DESTROY_CLIENTID (RFC 8881 §18.50). `sequenced` is the client of the compound's SEQUENCE, if it has one.
    ///
    /// # Errors
    /// STALE_CLIENTID; CLIENTID_BUSY "If there are sessions (both idle and non-idle), opens, locks, delegations, layouts, and/or
    /// wants … associated with the unexpired lease of the client ID", and where the compound runs on a session of it.
    pub fn destroy_client(
        &self,
        now: Duration,
        id: ClientId,
        sequenced: Option<&Client>,
    ) -> Result<(), Status> {
        let mut table = self.clients.lock();
        let record = table.record(id).filter(|record| record.confirmation.is_none());
        let record = record.ok_or(Status::STALE_CLIENTID)?;
        if sequenced.is_some_and(|client| client.id() == id) || record.is_in_use(now, self.lease) {
            return Err(Status::CLIENTID_BUSY);
        }
        let record = table.remove(id, Event::Destroy);
        drop(table);
        self.let_go(record);
        Ok(())
    }

    /// RECLAIM_COMPLETE (RFC 8881 §18.51); with `rca_one_fs` the operation answers OK and does not come here, since no
    /// file system migrates.
    ///
    /// # Errors
    /// COMPLETE_ALREADY.
    pub fn reclaim_complete(&self, client: &Client) -> Result<(), Status> {
        let was_reclaiming = client.is_reclaiming();
        if !client.complete_reclaim() {
            return Err(Status::COMPLETE_ALREADY);
        }
        self.recovery.completes(client, was_reclaiming);
        Ok(())
    }

    /// Looks after a bounded number of client records: unconfirmed ones of a lease ago go, expired ones without state go,
    /// expired ones with state stay until something presses, or a day.
    pub fn expire(&self, now: Duration) -> Swept {
        self.tick.fetch_max(nanos(now), Relaxed);
        // A period whose time is over ends, and is logged, though nobody asks for it.
        self.recovery.in_grace(now);
        self.tend_callbacks(now);
        self.recall_slots(now);
        self.tend_delegations(now);
        self.tend_offloads(now);
        self.tend_lock_queues(now);
        self.tend_slots(now);
        self.persistence.iter().for_each(|persistence| persistence.maintain(now));
        let (removed, kept, resting, more) = {
            let mut table = self.clients.lock();
            let behind = table.swept;
            let (removed, more) = self.take_expired(&mut table, now, false);
            // A lease: whoever is not heard of for as long, and holds nothing, goes altogether.
            let resting = table.resting_behind(behind, now, self.lease);
            (removed, table.sessionless_behind(behind), resting, more)
        };
        let clients = removed.len();
        self.let_go(removed);
        resting.iter().for_each(|client| self.recovery.rests(client));
        for client in kept {
            self.sweep_owners(now, &client);
            self.tend_path(now, &client);
        }
        self.recovery.push();
        Swept { clients, more }
    }

    /// Lets go what removed records hold. Not under the table's lock: it may be much.
    pub(crate) fn let_go(&self, records: impl IntoIterator<Item = Record>) {
        for record in records {
            self.log_departure(&record.client);
            self.recovery.forget(&record.client);
            self.release_owners(&record.client);
            self.path_down(&record.client);
            self.release_offloads(record.client.id());
            self.release_promises(record.client.id());
            for id in &record.sessions {
                self.remove_session(id);
            }
            self.release_state(record.client.id());
        }
    }

    fn remove_session(&self, id: &SessionId) {
        if let Some(session) = self.sessions.remove(id) {
            session.close(&self.connections);
            self.abandon_session(&session);
            if let Some(persistence) = self.persistence.as_ref().filter(|_| session.is_persistent) {
                let slots = session.slots.granted();
                persistence.leave(id, &session.client, slots, &session.kept_slots);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::transitions::check_table;
    use super::*;

    #[test]
    fn the_table_of_phases_is_sound() {
        check_table(TRANSITIONS, Phase::Unconfirmed, &[Phase::Unconfirmed, Phase::Confirmed, Phase::Gone]);
        for event in
            [Event::Confirm, Event::Replace, Event::Destroy, Event::Expire, Event::Evict, Event::Yield]
        {
            assert_eq!(step(TRANSITIONS, Phase::Gone, event), None, "gone is gone");
        }
        assert_eq!(step(TRANSITIONS, Phase::Confirmed, Event::Confirm), None);
    }
}
