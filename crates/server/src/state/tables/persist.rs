//! Persistent sessions (RFC 8881 §2.10.6.5): sessions whose replies survive a restart.
//!
//! A request that ran in a session of an earlier server is answered with its original reply, even after a crash of the
//! machine. Nothing else runs in that session: it is *dead*, and its client gets DEADSESSION and repeats its requests in a new
//! session, as after any restart. A reply that was not kept was never sent.
//!
//! The RFC also allows a server to revive such a session. This server does not: opens, locks and delegations are lost, so the
//! client must learn of the restart anyway, and Linux's client then creates a new session in any case. A revived session would
//! need the sequence IDs of requests that were not logged (READ, GETATTR, …), or a log entry for every request. A dead session
//! does not, because its client repeats those requests in the new session.
//!
//! So the log has the session with its number of slots, its client's name and principal, and for each slot the last request
//! that must not run twice, with its reply. Requests that can be repeated cost nothing. Space for the replies of all slots is
//! reserved when a session is created; if there is none, the session is an ordinary one. One client gets a bounded part of that
//! space ([`room`]).
//!
//! Requests that started and have no reply are in the call log ([`crate::replay::crash_replay`]). It must be as durable:
//! without a durable call log, no session is persistent.

mod room;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tracing::info;
use vfs::{Op, Thread};
use xdr::{Decode, Encode, Opaque};

use super::client::Client;
use super::principal::Principal;
use super::recovery::Recorded;
use super::slot::{CACHED_REPLY_MAX, Replay};
use super::wire::{SequenceArgs, SequenceOk, SequenceStatus, SessionId, Status};
use crate::replay::crash_replay::{CallId, REMEMBER_FOR, Stable};
use crate::state::state_log::key;
use crate::{Now, StateLog};
use room::{Full, Room};

/// The time for which dead sessions are kept. RFC 8881 §2.10.6.5 allows to delete "a session … because the client failed to use the
/// session for an extended period of time". It is measured by the wall clock: otherwise servers that restart daily would keep all
/// sessions. Because that clock may be wrong, sessions stay at least as long as calls are remembered.
const DEAD_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Bytes of a client's owner string (RFC 8881 §3.3.1, `NFS4_OPAQUE_LIMIT`).
const OWNER_BYTES_MAX: usize = 1024;
/// Bytes of a kept reply.
const REPLY_BYTES_MAX: usize = CACHED_REPLY_MAX as usize;

/// The log entry of a session.
#[derive(Debug, Encode, Decode)]
struct SessionRecord {
    slots: u32,
    owner: Opaque<OWNER_BYTES_MAX>,
    principal: Recorded,
}

/// The entry that earlier versions wrote, without a principal.
#[derive(Debug, Decode)]
struct OldSessionRecord {
    slots: u32,
    owner: Opaque<OWNER_BYTES_MAX>,
}

/// The client of a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SessionOwner {
    owner: Bytes,
    /// `None` if the log does not have it.
    principal: Option<Principal>,
}

impl SessionOwner {
    fn of(client: &Client) -> Self {
        Self { owner: client.owner().clone(), principal: Some(client.principal().clone()) }
    }

    /// Returns whether both may be the same client. Clients of different principals are different (RFC 8881 §18.35.4).
    fn may_be(&self, other: &Self) -> bool {
        let is_known = self.principal.is_some() && other.principal.is_some();
        self.owner == other.owner && (!is_known || self.principal == other.principal)
    }
}

/// The log entry of a slot's last request that must not run twice.
#[derive(Debug, Encode, Decode)]
struct RequestRecord {
    sequence_id: u32,
    /// Identifies the request, as in the call log.
    digest: u64,
    /// Starts with the compound's status; `None` if it was too long.
    reply: Option<Opaque<REPLY_BYTES_MAX>>,
}

fn session_key(id: &SessionId) -> Vec<u8> {
    [&[key::SESSION], &id[..]].concat()
}

fn slot_key(id: &SessionId, slot: u32) -> Vec<u8> {
    [&[key::SLOT], &id[..], &slot.to_be_bytes()].concat()
}

/// Returns the key of a dead session. Its value is the Unix time, in seconds, at which a server first found the session.
fn dead_key(id: &SessionId) -> Vec<u8> {
    [&[key::DEAD], &id[..]].concat()
}

/// The kind of an entry, from its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    Session,
    Dead,
    Slot(u32),
}

fn parse_key(bytes: &[u8]) -> Option<(SessionId, EntryKind)> {
    let (head, rest) = bytes.split_first()?;
    let (id, rest) = rest.split_first_chunk()?;
    match *head {
        key::SESSION if rest.is_empty() => Some((*id, EntryKind::Session)),
        key::DEAD if rest.is_empty() => Some((*id, EntryKind::Dead)),
        key::SLOT => Some((*id, EntryKind::Slot(u32::from_be_bytes(rest.try_into().ok()?)))),
        _ => None,
    }
}

/// A session of an earlier server.
#[derive(Debug)]
struct DeadSession {
    slots: u32,
    owner: SessionOwner,
    /// The client has a newer session and only sends retransmissions here.
    is_superseded: bool,
    /// The log has the time at which it was first found.
    is_dated: bool,
    /// When it is removed, in monotonic time.
    remove_at: Duration,
    /// The last request of each slot.
    last: HashMap<u32, RequestRecord>,
}

impl DeadSession {
    /// Reads an entry that was found at `now`, presumably for the first time; `None` if it cannot be decoded.
    fn read(record: &Bytes, now: Now) -> Option<Self> {
        let (slots, owner, principal) = match xdr::from_bytes(record.clone()) {
            Ok(SessionRecord { slots, owner, principal }) => (slots, owner, Some(principal.into())),
            Err(_) => {
                let OldSessionRecord { slots, owner } = xdr::from_bytes(record.clone()).ok()?;
                (slots, owner, None)
            }
        };
        let owner = SessionOwner { owner: owner.bytes().clone(), principal };
        let remove_at = now.monotonic + DEAD_FOR;
        Some(Self { slots, owner, is_superseded: false, is_dated: false, remove_at, last: HashMap::new() })
    }

    /// Adds another entry about it; false if the entry cannot be decoded.
    fn add_entry(&mut self, kind: EntryKind, value: &Bytes, now: Now) -> bool {
        match kind {
            EntryKind::Session => true,
            EntryKind::Dead => xdr::from_bytes(value.clone()).is_ok_and(|since| self.set_found(since, now)),
            EntryKind::Slot(slot) => {
                xdr::from_bytes(value.clone()).map(|last| self.last.insert(slot, last)).is_ok()
            }
        }
    }

    /// Notes the wall-clock time at which it was first found; false if that is in the future.
    fn set_found(&mut self, since: i64, now: Now) -> bool {
        let Ok(dead_for) = u64::try_from(now.wall.seconds.saturating_sub(since)) else { return false };
        let rest = DEAD_FOR.saturating_sub(Duration::from_secs(dead_for));
        (self.is_dated, self.remove_at) = (true, now.monotonic + rest.max(REMEMBER_FOR));
        true
    }

    /// Answers a request (RFC 8881 §18.46.4: what was "performed and recorded in a persistent reply cache … will be processed
    /// successfully, while requests that were not previously performed and recorded are rejected with NFS4ERR_DEADSESSION").
    fn answer(&self, request: &SequenceArgs, digest: u64) -> Result<Replay, Status> {
        if request.slot_id >= self.slots {
            return Err(Status::BADSLOT);
        }
        let last = self.last.get(&request.slot_id).ok_or(Status::DEADSESSION)?;
        // Requests between the kept one and this one are not in the log, since they can be repeated.
        let ahead = request.sequence_id.wrapping_sub(last.sequence_id).cast_signed();
        if ahead != 0 {
            return Err(if ahead > 0 { Status::DEADSESSION } else { Status::SEQ_MISORDERED });
        }
        // §2.10.6.1.3.1.
        if digest != last.digest {
            return Err(Status::SEQ_FALSE_RETRY);
        }
        let sequence = SequenceOk {
            session_id: request.session_id,
            sequence_id: request.sequence_id,
            slot_id: request.slot_id,
            highest_slot_id: self.slots - 1,
            target_highest_slot_id: self.slots - 1,
            status_flags: SequenceStatus::empty(),
        };
        Ok(Replay { sequence, reply: last.reply.as_ref().map(|reply| reply.bytes().clone()) })
    }
}

/// The slots of a live session that have an entry in the log; `None` when the session is removed.
#[derive(Debug, Default)]
pub(crate) struct LoggedSlots(Mutex<Option<BTreeSet<u32>>>);

impl LoggedSlots {
    pub(crate) fn new(is_persistent: bool) -> Self {
        Self(Mutex::new(is_persistent.then(BTreeSet::new)))
    }
}

/// The log of persistent sessions, and the dead sessions of earlier servers.
#[derive(Debug)]
pub(crate) struct Persistence {
    log: Arc<dyn StateLog>,
    /// The call log; `None` if it is not durable.
    stable: Option<Arc<Stable>>,
    /// Reserved space.
    room: Mutex<Room>,
    /// The last log change that must be durable before a reply is sent.
    last: AtomicU64,
    dead: Mutex<HashMap<SessionId, DeadSession>>,
    has_dead: AtomicBool,
}

/// State of persistent sessions (RFC 8881 §2.10.6.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PersistenceSnapshot {
    /// Whether the logs can be written. If not, no more sessions are persistent, and existing ones become dead.
    pub is_usable: bool,
    /// Units of space: one for each slot, and one for each session.
    pub places: usize,
    /// Units in use. May exceed `places` if an earlier server had more.
    pub places_taken: usize,
}

/// Returns the number of units of space that a session with this number of slots needs.
fn places(slots: u32) -> usize {
    slots as usize + 1
}

/// Reads the sessions of a log at the start. Removes entries that cannot be decoded.
fn read(log: &dyn StateLog, entries: &[(Bytes, Bytes)], now: Now) -> HashMap<SessionId, DeadSession> {
    let parsed = || entries.iter().filter_map(|(key, value)| Some((key, parse_key(key)?, value)));
    let mut dead: HashMap<SessionId, DeadSession> = HashMap::new();
    for (_, (id, _), value) in parsed().filter(|(_, (_, kind), _)| *kind == EntryKind::Session) {
        dead.extend(DeadSession::read(value, now).map(|session| (id, session)));
    }
    for (key, (id, kind), value) in parsed() {
        // A slot without its session: the log was damaged, and other slots may be missing too.
        if !dead.get_mut(&id).is_some_and(|dead| dead.add_entry(kind, value, now)) {
            log.set(key, None);
        }
    }
    for (id, dead) in dead.iter_mut().filter(|(_, dead)| !dead.is_dated) {
        dead.is_dated = true;
        log.set(&dead_key(id), Some(&xdr::to_bytes(&now.wall.seconds)));
    }
    dead
}

impl Persistence {
    /// `entries` are all entries of the log, also of other kinds. `room` is the maximum number of kept slots.
    pub(crate) fn new(log: Arc<dyn StateLog>, entries: &[(Bytes, Bytes)], room: usize, now: Now) -> Self {
        let dead = read(&*log, entries, now);
        if !dead.is_empty() {
            info!(count = dead.len(), "persistent sessions of the previous server, kept for retransmissions");
        }
        let mut places_of = Room::new(room);
        dead.values().for_each(|dead| places_of.hold(&dead.owner, places(dead.slots)));
        Self {
            log,
            stable: None,
            room: Mutex::new(places_of),
            last: AtomicU64::new(0),
            has_dead: AtomicBool::new(!dead.is_empty()),
            dead: Mutex::new(dead),
        }
    }

    /// Returns whether persistent sessions can be created.
    pub(crate) fn is_usable(&self) -> bool {
        // Client records have priority over sessions when the log gets full.
        let has_log = self.log.is_written() && self.log.has_room();
        has_log && self.stable.as_ref().is_some_and(|stable| !stable.is_broken())
    }

    /// Makes a session persistent; false if there is no space, or the client has its share.
    pub(crate) fn admit(&self, id: &SessionId, client: &Client, slots: u32) -> bool {
        if !self.is_usable() {
            return false;
        }
        let name = Opaque::new(client.owner().clone()).ok();
        let Some((name, principal)) = name.zip(Recorded::of(client.principal())) else { return false };
        let owner = SessionOwner::of(client);
        self.supersede(&owner);
        if !self.take(&owner, places(slots)) {
            return false;
        }
        self.set(&session_key(id), Some(&xdr::to_bytes(&SessionRecord { slots, owner: name, principal })));
        true
    }

    /// Removes a persistent session that is destroyed.
    pub(crate) fn leave(&self, id: &SessionId, client: &Client, slots: u32, kept: &LoggedSlots) {
        let kept = kept.0.lock().take();
        self.forget(id, &SessionOwner::of(client), slots, kept.into_iter().flatten());
    }

    fn forget(&self, id: &SessionId, owner: &SessionOwner, slots: u32, kept: impl IntoIterator<Item = u32>) {
        self.set(&session_key(id), None);
        kept.into_iter().for_each(|slot| self.set(&slot_key(id, slot), None));
        self.room.lock().release(owner, places(slots));
    }

    /// Reserves space. If necessary, removes dead sessions whose clients have newer ones, first those of the same client.
    fn take(&self, owner: &SessionOwner, places: usize) -> bool {
        let mut taken = self.room.lock().take(owner, places);
        if taken == Err(Full::Share) {
            self.remove_dead(|_, dead| dead.is_superseded && dead.owner.may_be(owner));
            taken = self.room.lock().take(owner, places);
        }
        if taken == Err(Full::All) {
            self.remove_dead(|_, dead| dead.is_superseded);
            taken = self.room.lock().take(owner, places);
        }
        taken.is_ok()
    }

    /// Returns a snapshot; `None` if no session can be persistent.
    pub(crate) fn snapshot(&self) -> Option<PersistenceSnapshot> {
        self.stable.as_ref()?;
        let (places, places_taken) = self.room.lock().places();
        Some(PersistenceSnapshot { is_usable: self.is_usable(), places, places_taken })
    }

    /// Returns the numbers of live and of dead persistent sessions.
    pub(crate) fn count(&self) -> (u64, u64) {
        let dead = self.dead.lock().len();
        let live = self.room.lock().sessions().saturating_sub(dead);
        (live as u64, dead as u64)
    }

    fn set(&self, key: &[u8], value: Option<&[u8]>) {
        self.last.fetch_max(self.log.set(key, value), Relaxed);
    }

    /// Makes sessions persistent from now on, with `stable` as the call log.
    pub(crate) fn set_call_log(&mut self, stable: Arc<Stable>) {
        self.stable = Some(stable);
    }

    /// Returns the requests of dead sessions whose replies are kept, each with whether it succeeded. One whose reply was too long did.
    pub(crate) fn answered(&self) -> Vec<(CallId, bool)> {
        let dead = self.dead.lock();
        let requests = dead.values().flat_map(|dead| &dead.last);
        let call = |(slot, last): (&u32, &RequestRecord)| {
            let is_ok =
                last.reply.as_ref().is_none_or(|reply| reply.starts_with(&Status::OK.0.to_be_bytes()));
            (CallId::in_slot(last.digest, *slot, last.sequence_id), is_ok)
        };
        requests.map(call).collect()
    }

    /// Logs the reply of a request, from the compound's status on; `None` if the reply is not available as bytes.
    pub(crate) fn keep(&self, logged: &LoggedSlots, request: &SequenceOk, digest: u64, reply: Option<&[u8]>) {
        let reply = reply.and_then(|reply| Opaque::new(Bytes::copy_from_slice(reply)).ok());
        let record = RequestRecord { sequence_id: request.sequence_id, digest, reply };
        let mut logged = logged.0.lock();
        // Under the lock that [`Self::leave`] takes: an entry written after it would stay forever.
        if let Some(slots) = &mut *logged {
            slots.insert(request.slot_id);
            self.set(&slot_key(&request.session_id, request.slot_id), Some(&xdr::to_bytes(&record)));
        }
    }

    /// Waits until all kept replies are durable.
    pub(crate) fn wait_durable(&self) -> Op<'_, ()> {
        self.log.reached(self.last.load(Relaxed), Thread::Shared)
    }

    /// Answers a request in a dead session; `None` if the session is not one.
    pub(crate) fn replay(&self, request: &SequenceArgs, digest: u64) -> Option<Result<Replay, Status>> {
        if !self.has_dead.load(Relaxed) {
            return None;
        }
        Some(self.dead.lock().get(&request.session_id)?.answer(request, digest))
    }

    /// Returns whether a session is a dead one.
    pub(crate) fn is_dead(&self, id: &SessionId) -> bool {
        self.has_dead.load(Relaxed) && self.dead.lock().contains_key(id)
    }

    /// Marks a client's dead sessions as superseded by a newer session.
    fn supersede(&self, owner: &SessionOwner) {
        if self.has_dead.load(Relaxed) {
            let mut dead = self.dead.lock();
            let own = dead.values_mut().filter(|dead| dead.owner.may_be(owner));
            own.for_each(|dead| dead.is_superseded = true);
        }
    }

    /// Removes dead sessions; returns how many.
    fn remove_dead(&self, over: impl Fn(&SessionId, &DeadSession) -> bool) -> usize {
        let mut dead = self.dead.lock();
        let gone: Vec<_> = dead.extract_if(|id, dead| over(id, dead)).collect();
        self.has_dead.store(!dead.is_empty(), Relaxed);
        drop(dead);
        for (id, dead) in &gone {
            self.set(&dead_key(id), None);
            self.forget(id, &dead.owner, dead.slots, dead.last.keys().copied());
        }
        gone.len()
    }

    /// Removes a dead session; false if it is not one.
    pub(crate) fn destroy(&self, id: &SessionId) -> bool {
        self.remove_dead(|other, _| other == id) > 0
    }

    /// Removes dead sessions whose time is over.
    pub(crate) fn maintain(&self, now: Duration) {
        if self.has_dead.load(Relaxed) {
            self.remove_dead(|_, dead| now >= dead.remove_at);
        }
    }
}
