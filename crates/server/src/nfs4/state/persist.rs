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
//! Kept is, therefore: the session with its number of slots and its client's name, and of each slot the last request that may
//! not be executed twice, with its reply. Requests that can be repeated cost nothing. Room for the replies of all slots is
//! set aside when a session is made; where there is none, it is an ordinary one.
//!
//! One client has a part of that room at most ([`room`]).
//!
//! What was begun and not answered is the log of calls' ([`crate::once`]), which has to be as durable: without one that is, no
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

use super::sequence::{Replay, Running};
use super::slot::CACHED_REPLY_MAX;
use super::snapshot::PersistenceSnapshot;
use super::wire::{SequenceArgs, SequenceOk, SequenceStatus, SessionId, Status};
use crate::once::{CallId, REMEMBER_FOR, Stable};
use crate::state_log::key;
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
    owner: Bytes,
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
    /// One that is found at `now`, for the first time as far as is known.
    fn new(record: &SessionRecord, now: Now) -> Self {
        Self {
            slots: record.slots,
            owner: record.owner.bytes().clone(),
            is_superseded: false,
            is_dated: false,
            bury_at: now.monotonic + DEAD_FOR,
            last: HashMap::new(),
        }
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
pub(super) struct KeptSlots(Mutex<Option<BTreeSet<u32>>>);

impl KeptSlots {
    /// Of a persistent session, or of an ordinary one.
    pub(super) fn new(is_persistent: bool) -> Self {
        Self(Mutex::new(is_persistent.then(BTreeSet::new)))
    }
}

/// What outlives the server of sessions, and what outlived the one before.
#[derive(Debug)]
pub(super) struct Persistence {
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
        if let Ok(record) = xdr::from_bytes(value.clone()) {
            dead.insert(id, Dead::new(&record, now));
        }
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
    pub(super) fn new(log: Arc<dyn StateLog>, entries: &[(Bytes, Bytes)], room: usize, now: Now) -> Self {
        let dead = read(&*log, entries, now);
        if !dead.is_empty() {
            info!("persistent sessions of before, for what is sent again: {}", dead.len());
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

    /// Whether sessions can be kept.
    pub(super) fn is_sound(&self) -> bool {
        self.stable.as_ref().is_some_and(|stable| !stable.is_broken()) && self.log.is_written()
    }

    /// Makes a session of so many slots a persistent one, where there is room for them, and the client's share allows it.
    pub(super) fn admit(&self, id: &SessionId, owner: &Bytes, slots: u32) -> bool {
        if !self.is_sound() {
            return false;
        }
        let Ok(name) = Opaque::new(owner.clone()) else { return false };
        self.supersede(owner);
        if !self.take(owner, places(slots)) {
            return false;
        }
        self.set(&session_key(id), Some(&xdr::to_bytes(&SessionRecord { slots, owner: name })));
        true
    }

    /// A persistent session of so many slots is gone.
    pub(super) fn leave(&self, id: &SessionId, owner: &Bytes, slots: u32, kept: &KeptSlots) {
        let kept = kept.0.lock().take();
        self.forget(id, owner, slots, kept.into_iter().flatten());
    }

    fn forget(&self, id: &SessionId, owner: &Bytes, slots: u32, kept: impl IntoIterator<Item = u32>) {
        self.set(&session_key(id), None);
        kept.into_iter().for_each(|slot| self.set(&slot_key(id, slot), None));
        self.room.lock().give_back(owner, places(slots));
    }

    /// Sets places aside; dead sessions whose clients have others already make room, first those of the one that asks.
    fn take(&self, owner: &Bytes, places: usize) -> bool {
        let mut taken = self.room.lock().take(owner, places);
        if taken == Err(Full::Share) {
            self.bury(|_, dead| dead.is_superseded && dead.owner == owner);
            taken = self.room.lock().take(owner, places);
        }
        if taken == Err(Full::All) {
            self.bury(|_, dead| dead.is_superseded);
            taken = self.room.lock().take(owner, places);
        }
        taken.is_ok()
    }

    /// How things stand; none where no session is made persistent.
    pub(super) fn look(&self) -> Option<PersistenceSnapshot> {
        self.stable.as_ref()?;
        let (places, places_taken) = self.room.lock().places();
        Some(PersistenceSnapshot { is_sound: self.is_sound(), places, places_taken })
    }

    /// Sessions that live, and those of before.
    pub(super) fn count(&self) -> (u64, u64) {
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

    /// The owner gets another session: what it still repeats of before is all that its dead sessions are for.
    fn supersede(&self, owner: &[u8]) {
        if self.has_dead.load(Relaxed) {
            let mut dead = self.dead.lock();
            dead.values_mut().filter(|dead| dead.owner == owner).for_each(|dead| dead.is_superseded = true);
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
            self.forget(id, &dead.owner, dead.slots, dead.last.keys().copied());
        }
        gone.len()
    }

    /// Lets dead sessions go when their time is over.
    pub(super) fn maintain(&self, now: Duration) {
        if self.has_dead.load(Relaxed) {
            self.bury(|_, dead| now >= dead.bury_at);
        }
    }
}

impl super::State {
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
    pub(super) fn without_session(&self, id: &SessionId) -> Status {
        let is_dead = self.persistence.as_ref().is_some_and(|persistence| persistence.is_dead(id));
        if is_dead { Status::DEADSESSION } else { Status::BADSESSION }
    }

    /// DESTROY_SESSION of a session of before. Nobody's connection is associated with it any more; whoever knows its ID had it.
    pub(super) fn bury(&self, id: &SessionId) -> Result<(), Status> {
        let persistence = self.persistence.as_ref().ok_or(Status::BADSESSION)?;
        if persistence.bury(|other, _| other == id) > 0 { Ok(()) } else { Err(Status::BADSESSION) }
    }
}
