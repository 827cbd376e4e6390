//! Persistent sessions (RFC 8881 §2.10.6.5): what a restart leaves of a session.
//!
//! Criteria. A request that was executed in a session of before is answered with the reply of then, however the server or its
//! machine ended; nothing else is executed in that session any more: it is *dead*, and the client, told so (DEADSESSION), asks
//! anew in its next session, as after any restart. What is not there to be answered was not answered before.
//!
//! The RFC also lets a server bring such a session to life again. That is not done: opens, locks and delegations are gone, so
//! that the client has to be told of the restart all the same, and Linux's client makes another session then whatever it is
//! told. A session that lives on would have to know the sequence IDs of requests that were not written down (READ, GETATTR, …),
//! or write down every request; a dead one does not, because those are repeated in the next session.
//!
//! Kept is, therefore: the session with its number of slots, its client's name and principal, and of each slot the last request that may
//! not be executed twice, with its reply. Requests that can be repeated cost nothing. Room for the replies of all slots is
//! set aside when a session is made; where there is none, it is an ordinary one.
//!
//! One client has a part of that room at most ([`room`]).
//!
//! What was begun and not answered is the log of calls' ([`crate::replay::crash_replay`]), which has to be as durable: without one that is, no
//! session is persistent.

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

use super::client::{Client, Principal};
use super::recovery::Recorded;
use super::slot::CACHED_REPLY_MAX;
use super::wire::{SequenceArgs, SequenceOk, SequenceStatus, SessionId, Status};
use crate::replay::crash_replay::{CallId, REMEMBER_FOR, Stable};
use crate::state::sessions::sequence::{Replay, Running};
use crate::state::snapshot::PersistenceSnapshot;
use crate::state::state_log::key;
use crate::{Now, StateLog};
use room::{Full, Room};

/// How long dead sessions are kept. RFC 8881 §2.10.6.5 lets go of "a session that has been deleted because the client failed
/// to use the session for an extended period of time". By the time of day, since servers that start again every day would otherwise keep
/// all that there ever were; and, as that may go wrong, as long at least as calls are remembered.
const DEAD_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Bytes of a client's name (RFC 8881 §3.3.1, `NFS4_OPAQUE_LIMIT`).
const OWNER_BYTES_MAX: usize = 1024;
/// Bytes of a reply that is kept.
const REPLY_BYTES_MAX: usize = CACHED_REPLY_MAX as usize;

/// What is kept of a session.
#[derive(Debug, Encode, Decode)]
struct SessionRecord {
    slots: u32,
    owner: Opaque<OWNER_BYTES_MAX>,
    principal: Recorded,
}

/// The same by servers that did not keep principals.
#[derive(Debug, Decode)]
struct OldSessionRecord {
    slots: u32,
    owner: Opaque<OWNER_BYTES_MAX>,
}

/// Whose a session is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Whose {
    owner: Bytes,
    /// None where it was not kept.
    principal: Option<Principal>,
}

impl Whose {
    fn of(client: &Client) -> Self {
        Self { owner: client.owner().clone(), principal: Some(client.principal().clone()) }
    }

    /// Whether both may be the same client: one of another principal is not, by whatever name (RFC 8881 §18.35.4).
    fn may_be(&self, other: &Self) -> bool {
        let is_known = self.principal.is_some() && other.principal.is_some();
        self.owner == other.owner && (!is_known || self.principal == other.principal)
    }
}

/// What is kept of the last request of a slot that may not be executed twice.
#[derive(Debug, Encode, Decode)]
struct RequestRecord {
    sequence_id: u32,
    /// By which it is known again, as in the log of calls.
    digest: u64,
    /// From the compound's status on; none where it is too long.
    reply: Option<Opaque<REPLY_BYTES_MAX>>,
}

fn session_key(id: &SessionId) -> Vec<u8> {
    [&[key::SESSION], &id[..]].concat()
}

fn slot_key(id: &SessionId, slot: u32) -> Vec<u8> {
    [&[key::SLOT], &id[..], &slot.to_be_bytes()].concat()
}

/// Its value is when a server found it first, in seconds of Unix time.
fn dead_key(id: &SessionId) -> Vec<u8> {
    [&[key::DEAD], &id[..]].concat()
}

/// What a key tells of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    Session,
    Dead,
    Slot(u32),
}

fn parse_key(bytes: &[u8]) -> Option<(SessionId, About)> {
    let (head, rest) = bytes.split_first()?;
    let (id, rest) = rest.split_first_chunk()?;
    match *head {
        key::SESSION if rest.is_empty() => Some((*id, About::Session)),
        key::DEAD if rest.is_empty() => Some((*id, About::Dead)),
        key::SLOT => Some((*id, About::Slot(u32::from_be_bytes(rest.try_into().ok()?)))),
        _ => None,
    }
}

/// A session of before.
#[derive(Debug)]
struct Dead {
    slots: u32,
    whose: Whose,
    /// Its client has another session, and repeats here what it still has to.
    is_superseded: bool,
    /// The log has when it was found first.
    is_dated: bool,
    /// When it is let go, monotonic.
    bury_at: Duration,
    /// By slot.
    last: HashMap<u32, RequestRecord>,
}

impl Dead {
    /// One that is found at `now`, for the first time as far as is known; `None` where nothing can be made of its record.
    fn read(record: &Bytes, now: Now) -> Option<Self> {
        let (slots, owner, principal) = match xdr::from_bytes(record.clone()) {
            Ok(SessionRecord { slots, owner, principal }) => (slots, owner, Some(principal.into())),
            Err(_) => {
                let OldSessionRecord { slots, owner } = xdr::from_bytes(record.clone()).ok()?;
                (slots, owner, None)
            }
        };
        let whose = Whose { owner: owner.bytes().clone(), principal };
        let bury_at = now.monotonic + DEAD_FOR;
        Some(Self { slots, whose, is_superseded: false, is_dated: false, bury_at, last: HashMap::new() })
    }

    /// Takes in what the log tells of it; false where nothing can be made of that.
    fn learn(&mut self, about: About, value: &Bytes, now: Now) -> bool {
        match about {
            About::Session => true,
            About::Dead => xdr::from_bytes(value.clone()).is_ok_and(|since| self.was_found(since, now)),
            About::Slot(slot) => {
                xdr::from_bytes(value.clone()).map(|last| self.last.insert(slot, last)).is_ok()
            }
        }
    }

    /// It was found before, by the time of day; false where that is still to come.
    fn was_found(&mut self, since: i64, now: Now) -> bool {
        let Ok(dead_for) = u64::try_from(now.wall.seconds.saturating_sub(since)) else { return false };
        let rest = DEAD_FOR.saturating_sub(Duration::from_secs(dead_for));
        (self.is_dated, self.bury_at) = (true, now.monotonic + rest.max(REMEMBER_FOR));
        true
    }

    /// Judges a request (RFC 8881 §18.46.4: what was "performed and recorded in a persistent reply cache … will be processed
    /// successfully, while requests that were not previously performed and recorded are rejected with NFS4ERR_DEADSESSION").
    fn judge(&self, request: &SequenceArgs, digest: u64) -> Result<Replay, Status> {
        if request.slot_id >= self.slots {
            return Err(Status::BADSLOT);
        }
        let last = self.last.get(&request.slot_id).ok_or(Status::DEADSESSION)?;
        // How far this request is ahead of the one that is kept: those between were not written down, since they can be repeated.
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

/// What a session that lives has in the log.
#[derive(Debug, Default)]
pub(crate) struct KeptSlots(Mutex<Option<BTreeSet<u32>>>);

impl KeptSlots {
    /// Of a persistent session, or of an ordinary one.
    pub(crate) fn new(is_persistent: bool) -> Self {
        Self(Mutex::new(is_persistent.then(BTreeSet::new)))
    }
}

/// What outlives the server of sessions, and what outlived the one before.
#[derive(Debug)]
pub(crate) struct Persistence {
    log: Arc<dyn StateLog>,
    /// The log of calls; none where it is not as durable.
    stable: Option<Arc<Stable>>,
    /// What is set aside.
    room: Mutex<Room>,
    /// The last change of the log that a reply must not overtake.
    last: AtomicU64,
    dead: Mutex<HashMap<SessionId, Dead>>,
    has_dead: AtomicBool,
}

/// Places that a session of so many slots takes.
fn places(slots: u32) -> usize {
    slots as usize + 1
}

/// The sessions that a log knows of at a start. What nothing can be made of is taken away.
fn read(log: &dyn StateLog, entries: &[(Bytes, Bytes)], now: Now) -> HashMap<SessionId, Dead> {
    let told = || entries.iter().filter_map(|(key, value)| Some((key, parse_key(key)?, value)));
    let mut dead: HashMap<SessionId, Dead> = HashMap::new();
    for (_, (id, _), value) in told().filter(|(_, (_, about), _)| *about == About::Session) {
        dead.extend(Dead::read(value, now).map(|session| (id, session)));
    }
    for (key, (id, about), value) in told() {
        // Of a slot whose session is not there nobody knows what else was executed: the session is lost.
        if !dead.get_mut(&id).is_some_and(|dead| dead.learn(about, value, now)) {
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
    /// `entries` are what the log has, other things among it; `room` is how many slots may be kept.
    pub(crate) fn new(log: Arc<dyn StateLog>, entries: &[(Bytes, Bytes)], room: usize, now: Now) -> Self {
        let dead = read(&*log, entries, now);
        if !dead.is_empty() {
            info!(count = dead.len(), "persistent sessions of the previous server, kept for retransmissions");
        }
        let mut places_of = Room::new(room);
        dead.values().for_each(|dead| places_of.hold(&dead.whose, places(dead.slots)));
        Self {
            log,
            stable: None,
            room: Mutex::new(places_of),
            last: AtomicU64::new(0),
            has_dead: AtomicBool::new(!dead.is_empty()),
            dead: Mutex::new(dead),
        }
    }

    /// Whether sessions can be kept.
    pub(crate) fn is_sound(&self) -> bool {
        // What is kept of sessions leaves its room to records of clients.
        let has_log = self.log.is_written() && self.log.has_room();
        has_log && self.stable.as_ref().is_some_and(|stable| !stable.is_broken())
    }

    /// Makes a session of so many slots a persistent one, where there is room for them, and the client's share allows it.
    pub(crate) fn admit(&self, id: &SessionId, client: &Client, slots: u32) -> bool {
        if !self.is_sound() {
            return false;
        }
        let owner = Opaque::new(client.owner().clone()).ok();
        let Some((owner, principal)) = owner.zip(Recorded::of(client.principal())) else { return false };
        let whose = Whose::of(client);
        self.supersede(&whose);
        if !self.take(&whose, places(slots)) {
            return false;
        }
        self.set(&session_key(id), Some(&xdr::to_bytes(&SessionRecord { slots, owner, principal })));
        true
    }

    /// A persistent session of so many slots is gone.
    pub(crate) fn leave(&self, id: &SessionId, client: &Client, slots: u32, kept: &KeptSlots) {
        let kept = kept.0.lock().take();
        self.forget(id, &Whose::of(client), slots, kept.into_iter().flatten());
    }

    fn forget(&self, id: &SessionId, whose: &Whose, slots: u32, kept: impl IntoIterator<Item = u32>) {
        self.set(&session_key(id), None);
        kept.into_iter().for_each(|slot| self.set(&slot_key(id, slot), None));
        self.room.lock().give_back(whose, places(slots));
    }

    /// Sets places aside; dead sessions whose clients have others already make room, first those of the one that asks.
    fn take(&self, whose: &Whose, places: usize) -> bool {
        let mut taken = self.room.lock().take(whose, places);
        if taken == Err(Full::Share) {
            self.bury(|_, dead| dead.is_superseded && dead.whose.may_be(whose));
            taken = self.room.lock().take(whose, places);
        }
        if taken == Err(Full::All) {
            self.bury(|_, dead| dead.is_superseded);
            taken = self.room.lock().take(whose, places);
        }
        taken.is_ok()
    }

    /// How things stand; none where no session is made persistent.
    pub(crate) fn look(&self) -> Option<PersistenceSnapshot> {
        self.stable.as_ref()?;
        let (places, places_taken) = self.room.lock().places();
        Some(PersistenceSnapshot { is_sound: self.is_sound(), places, places_taken })
    }

    /// Sessions that live, and those of before.
    pub(crate) fn count(&self) -> (u64, u64) {
        let dead = self.dead.lock().len();
        let live = self.room.lock().sessions().saturating_sub(dead);
        (live as u64, dead as u64)
    }

    fn set(&self, key: &[u8], value: Option<&[u8]>) {
        self.last.fetch_max(self.log.set(key, value), Relaxed);
    }

    /// Keeps what a request was answered with.
    fn keep(&self, kept: &KeptSlots, request: &SequenceOk, record: &RequestRecord) {
        let mut kept = kept.0.lock();
        // Under the lock by which the session leaves: what comes behind that would stay for ever.
        if let Some(slots) = &mut *kept {
            slots.insert(request.slot_id);
            self.set(&slot_key(&request.session_id, request.slot_id), Some(&xdr::to_bytes(record)));
        }
    }

    /// What a request is told in a session of before; `None` where there was none.
    fn recall(&self, request: &SequenceArgs, digest: u64) -> Option<Result<Replay, Status>> {
        if !self.has_dead.load(Relaxed) {
            return None;
        }
        Some(self.dead.lock().get(&request.session_id)?.judge(request, digest))
    }

    fn is_dead(&self, id: &SessionId) -> bool {
        self.has_dead.load(Relaxed) && self.dead.lock().contains_key(id)
    }

    /// The client gets another session: what it still repeats of before is all that its dead sessions are for.
    fn supersede(&self, whose: &Whose) {
        if self.has_dead.load(Relaxed) {
            let mut dead = self.dead.lock();
            let own = dead.values_mut().filter(|dead| dead.whose.may_be(whose));
            own.for_each(|dead| dead.is_superseded = true);
        }
    }

    /// Lets dead sessions go; returns how many.
    fn bury(&self, over: impl Fn(&SessionId, &Dead) -> bool) -> usize {
        let mut dead = self.dead.lock();
        let gone: Vec<_> = dead.extract_if(|id, dead| over(id, dead)).collect();
        self.has_dead.store(!dead.is_empty(), Relaxed);
        drop(dead);
        for (id, dead) in &gone {
            self.set(&dead_key(id), None);
            self.forget(id, &dead.whose, dead.slots, dead.last.keys().copied());
        }
        gone.len()
    }

    /// Lets dead sessions go when their time is over.
    pub(crate) fn maintain(&self, now: Duration) {
        if self.has_dead.load(Relaxed) {
            self.bury(|_, dead| now >= dead.bury_at);
        }
    }
}

impl crate::state::State {
    /// Has sessions outlive the server where clients ask for that; `stable` is the log of calls.
    pub(crate) fn keep_sessions(&mut self, stable: Arc<Stable>) {
        if let Some(persistence) = &mut self.persistence {
            persistence.stable = Some(stable);
        }
    }

    /// Requests of before whose replies are kept.
    pub(crate) fn answered_before(&self) -> Vec<CallId> {
        let Some(persistence) = &self.persistence else { return Vec::new() };
        let dead = persistence.dead.lock();
        let requests = dead.values().flat_map(|dead| &dead.last);
        let call =
            |(slot, last): (&u32, &RequestRecord)| CallId::in_slot(last.digest, *slot, last.sequence_id);
        requests.map(call).collect()
    }

    /// Keeps what a request in a persistent session was answered with, `reply` from the compound's status on, where it is at
    /// hand; true where there is nothing more to keep.
    pub(crate) fn keep_reply(&self, running: &Running, digest: u64, reply: Option<&[u8]>) -> bool {
        let Some((persistence, kept)) = self.persistence.as_ref().zip(running.kept_slots()) else {
            return false;
        };
        let request = running.sequence();
        let reply = reply.and_then(|reply| Opaque::new(Bytes::copy_from_slice(reply)).ok());
        let record = RequestRecord { sequence_id: request.sequence_id, digest, reply };
        persistence.keep(kept, request, &record);
        true
    }

    /// Waits until what was kept so far is on stable storage. The calling thread has the log of calls to wait for beside.
    pub(crate) fn kept(&self) -> Op<'_, ()> {
        match &self.persistence {
            Some(persistence) => persistence.log.reached(persistence.last.load(Relaxed), Thread::Shared),
            None => Op::ok(()),
        }
    }

    /// What a request is told in a persistent session of before this server; `None` where there was none.
    pub(crate) fn remembered(&self, request: &SequenceArgs, digest: u64) -> Option<Result<Replay, Status>> {
        self.persistence.as_ref()?.recall(request, digest)
    }

    /// What an operation on a session is told that is not known.
    pub(crate) fn without_session(&self, id: &SessionId) -> Status {
        let is_dead = self.persistence.as_ref().is_some_and(|persistence| persistence.is_dead(id));
        if is_dead { Status::DEADSESSION } else { Status::BADSESSION }
    }

    /// DESTROY_SESSION of a session of before. Nobody's connection is associated with it any more; whoever knows its ID had it.
    pub(crate) fn bury(&self, id: &SessionId) -> Result<(), Status> {
        let persistence = self.persistence.as_ref().ok_or(Status::BADSESSION)?;
        if persistence.bury(|other, _| other == id) > 0 { Ok(()) } else { Err(Status::BADSESSION) }
    }
}
