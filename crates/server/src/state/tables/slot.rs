//! Slots of a session's fore channel: the reply cache of RFC 8881 §2.10.6.
//!
//! Criteria. A request is executed at most once, however often it is sent and over whichever connection. A slot therefore
//! has a phase "in progress", and it moves only when a request begins or ends, never by an error of SEQUENCE. A slot's
//! reply is kept as encoded bytes. Slots are granted by the hundred and mostly idle, so they are made in chunks when first
//! used. How many a client may use follows its load ([`Window`]), as far as there is memory. That is bounded by
//! [`SlotMemory`], strictly but for the replies of requests in progress.

use std::cmp::Ordering;
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::slot_memory::{STEPS, SlotMemory};
use super::transitions::{Row, step};
use super::window::Window;
use super::wire::{SequenceOk, Status};

/// Bytes of a reply that is kept in a slot at most (`ca_maxresponsesize_cached`). Twice what Linux's server keeps: room for
/// every non-idempotent compound of the Linux client, an OPEN with two GETATTRs among them.
pub(crate) const CACHED_REPLY_MAX: u32 = 4096;
/// Slots whose replies always find memory, reserved when the session is created: under pressure a client makes progress
/// with these. Two, so that a slow request does not hold up the lease.
pub(crate) const GUARANTEED_SLOTS: u32 = 2;
/// Slots made at a time.
const CHUNK: u32 = 16;

/// Seconds by which a request must be older than the one that shows its reply to have arrived. One would do, for cores that
/// tell the time once for several requests; more leaves a client that names too low a slot the time to ask again.
const SEEN_BEFORE_S: u32 = 10;

/// What a slot is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Never used.
    Fresh,
    /// Its request is being executed.
    InProgress,
    /// Its request is done, the reply kept.
    Cached,
    /// Its request is done, or was abandoned in the middle; the reply is not kept.
    Uncached,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A new request: the sequence ID is one greater.
    Begin,
    /// It ended, its reply is kept.
    Keep,
    /// It ended, or will never end; no reply is kept.
    Forget,
    /// The client has its reply: nobody will ask for it again.
    Release,
}

const TRANSITIONS: &[Row<Phase, Event>] = &[
    (Phase::Fresh, Event::Begin, Phase::InProgress),
    (Phase::Cached, Event::Begin, Phase::InProgress),
    (Phase::Uncached, Event::Begin, Phase::InProgress),
    (Phase::InProgress, Event::Keep, Phase::Cached),
    (Phase::InProgress, Event::Forget, Phase::Uncached),
    (Phase::Cached, Event::Release, Phase::Uncached),
];

#[derive(Debug)]
struct Slot {
    phase: Phase,
    /// Of the last request that began; 0 in a fresh slot (RFC 8881 §18.36.4: "the server sets the sequence ID to zero").
    sequence_id: u32,
    /// When it began, in seconds of the server's time.
    began_s: u32,
    /// Of that request's bytes and caller.
    digest: u64,
    /// The reply, where kept. Its capacity is charged, and used again by the next one.
    reply: Vec<u8>,
}

impl Slot {
    const FRESH: Self =
        Self { phase: Phase::Fresh, sequence_id: 0, began_s: 0, digest: 0, reply: Vec::new() };

    /// Judges a request; changes nothing (RFC 8881 §2.10.6.1.2: "Any time SEQUENCE … returns an error, the sequence ID of
    /// the slot MUST NOT change").
    fn judge(&self, sequence_id: u32, digest: u64) -> Result<Verdict, Status> {
        if sequence_id == self.sequence_id.wrapping_add(1) {
            return match self.phase {
                // §2.10.6.2: "A requester MUST wait for a reply to a request before using the slot for another request."
                Phase::InProgress => Err(Status::SEQ_MISORDERED),
                _ => Ok(Verdict::New),
            };
        }
        // §18.36.4: a fresh slot answers sequence ID 0 with SEQ_MISORDERED. §2.10.6.1: less, or two or more greater, MUST be
        // SEQ_MISORDERED.
        if sequence_id != self.sequence_id || self.phase == Phase::Fresh {
            return Err(Status::SEQ_MISORDERED);
        }
        // §2.10.6.1.3.1: another request, or another user's, under the same sequence ID is a false retry.
        if digest != self.digest {
            return Err(Status::SEQ_FALSE_RETRY);
        }
        match self.phase {
            // §2.10.6.2: "A retry might be sent while the original request is still in progress … The replier SHOULD deal
            // with the issue by returning NFS4ERR_DELAY as the reply to SEQUENCE".
            Phase::InProgress => Err(Status::DELAY),
            Phase::Cached => Ok(Verdict::Replay(Some(Bytes::copy_from_slice(&self.reply)))),
            Phase::Uncached | Phase::Fresh => Ok(Verdict::Replay(None)),
        }
    }

    fn turn(&mut self, event: Event) {
        self.phase = step(TRANSITIONS, self.phase, event).expect("a slot moves as its table says");
    }
}

/// Answer to a retransmission.
#[derive(Debug, Clone)]
pub struct Replay {
    /// SEQUENCE's result.
    pub sequence: SequenceOk,
    /// The bytes given to [`Running::finish`](crate::state::Running::finish); `None` where they were not kept: then the reply is SEQUENCE with
    /// `sequence`, and the next operation, if there is one, with RETRY_UNCACHED_REP (RFC 8881 §2.10.6.1.3).
    pub reply: Option<Bytes>,
}

/// A request as its SEQUENCE describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// `sa_slotid`.
    pub(crate) slot: u32,
    /// `sa_sequenceid`.
    pub(crate) sequence_id: u32,
    /// `sa_highest_slotid`.
    pub(crate) highest: u32,
    /// Of its bytes and caller.
    pub(crate) digest: u64,
    /// `sa_cachethis`.
    pub(crate) keep: bool,
    /// The time, in seconds.
    pub(crate) now_s: u32,
}

/// What the use of a table has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotUse {
    /// Slots granted: the most that the client was ever asked to keep to.
    pub granted: u32,
    /// Slots that the client is asked to keep to: by its load, or fewer where memory is scarce.
    pub target: u32,
    /// Bytes of a reply that one slot may pin, at most.
    pub reply_max: u32,
    /// Requests in progress.
    pub in_use: u32,
    /// Bytes of replies that are kept.
    pub reply_bytes: u64,
    /// Requests that took the last slot that the client may use: any more at that time waited there.
    pub full: u64,
    /// Requests put off (DELAY) for want of memory.
    pub deferred: u64,
    /// Retransmissions answered by a reply that was kept.
    pub replayed: u64,
}

/// What a request on a slot is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// To be executed; the slot is in progress now.
    New,
    /// A retransmission, with the reply where it is kept.
    Replay(Option<Bytes>),
}

/// Some slots, made when the first of them is used.
type Chunk = OnceLock<Box<[Mutex<Slot>]>>;

/// The slots of a session.
#[derive(Debug)]
pub(crate) struct SlotTable {
    /// The slots granted at first.
    chunks: Box<[Chunk]>,
    /// The others that there may ever be, made when the first of them is used.
    more: OnceLock<Box<[Chunk]>>,
    window: Window,
    reply_max: u32,
    memory: Arc<SlotMemory>,
    /// What this table was promised of `memory`.
    promised: usize,
    /// What it holds of it besides.
    charged: AtomicUsize,
    /// What the last request told: above which slot nothing was outstanding, and the second when the one before it on its slot
    /// began; see [`Self::release_idle`]. The slot in the upper half.
    acknowledged: AtomicU64,
    full: AtomicU64,
    deferred: AtomicU64,
    replayed: AtomicU64,
}

impl SlotTable {
    /// Bytes of a chunk, not counting replies.
    const CHUNK_BYTES: usize = size_of::<Mutex<Slot>>() * CHUNK as usize;

    /// A table of the slots of `window` that keep replies of at most `reply_max` bytes; `None` where memory does not even
    /// suffice for the guaranteed ones.
    pub(crate) fn new(window: Window, reply_max: u32, memory: &Arc<SlotMemory>) -> Option<Self> {
        let chunks: Box<[_]> = (0..window.first().div_ceil(CHUNK)).map(|_| OnceLock::new()).collect();
        let promised = size_of::<Self>()
            + size_of_val(&*chunks)
            + Self::CHUNK_BYTES
            + (GUARANTEED_SLOTS.min(window.first()) * reply_max) as usize;
        memory.promise(promised).then(|| Self {
            chunks,
            more: OnceLock::new(),
            window,
            reply_max,
            memory: Arc::clone(memory),
            promised,
            charged: AtomicUsize::new(0),
            acknowledged: AtomicU64::new(0),
            full: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
        })
    }

    /// Slots granted: `sr_highest_slotid` is the last of them.
    pub(crate) fn granted(&self) -> u32 {
        self.window.granted()
    }

    /// Whether a slot's last request has this sequence ID.
    pub(crate) fn is_last(&self, slot: u32, sequence_id: u32) -> bool {
        let chunk = (slot < self.granted()).then(|| self.chunk(slot).get()).flatten();
        chunk.is_some_and(|slots| slots[(slot % CHUNK) as usize].lock().sequence_id == sequence_id)
    }

    /// `sr_target_highest_slotid`: the last slot of the window; where memory is scarce half as many, a quarter, and so on down
    /// to the guaranteed ones.
    pub(crate) fn target_highest(&self) -> u32 {
        let target = self.window.target();
        let wanted = match self.memory.pressure() {
            0 => target,
            STEPS => 0,
            step => target >> step,
        };
        wanted.max(GUARANTEED_SLOTS).min(target) - 1
    }

    /// Judges a request, and begins it where it is new.
    ///
    /// # Errors
    /// BADSLOT, SEQ_MISORDERED, SEQ_FALSE_RETRY, DELAY; the slot is as it was then.
    pub(crate) fn arrive(&self, arrival: Arrival) -> Result<Verdict, Status> {
        let judged = self.judge(arrival);
        match judged {
            Ok(Verdict::New) => {
                if arrival.slot >= self.target_highest() {
                    count(&self.full);
                    self.memory.count_full();
                }
                self.window.use_slot(arrival.slot, || !self.memory.is_scarce());
            }
            Ok(Verdict::Replay(Some(_))) => count(&self.replayed),
            _ => {}
        }
        judged
    }

    fn judge(&self, arrival: Arrival) -> Result<Verdict, Status> {
        let Arrival { slot, sequence_id, digest, keep, .. } = arrival;
        if slot >= self.granted() {
            return Err(Status::BADSLOT);
        }
        // Only what would take more memory waits, and only beyond the guaranteed slots. DELAY leaves the slot as it is, so
        // that the client sends the same request again.
        let refused = || slot >= GUARANTEED_SLOTS && self.memory.is_exhausted();
        let slots = match self.chunk(slot).get() {
            Some(slots) => slots,
            None if sequence_id != 1 => return Err(Status::SEQ_MISORDERED),
            None if slot >= CHUNK && refused() => return Err(self.defer()),
            None => self.make_chunk(slot),
        };
        let mut slot = slots[(slot % CHUNK) as usize].lock();
        let verdict = slot.judge(sequence_id, digest)?;
        if verdict == Verdict::New {
            if keep && refused() {
                return Err(self.defer());
            }
            self.acknowledge(&slot, arrival.highest);
            slot.turn(Event::Begin);
            slot.began_s = arrival.now_s;
            slot.sequence_id = sequence_id;
            slot.digest = digest;
        }
        Ok(verdict)
    }

    /// Ends the request in progress on `slot`, keeping `reply` where there is one that fits.
    pub(crate) fn finish(&self, slot: u32, reply: Option<&[u8]>) {
        let Some(slots) = self.chunk(slot).get() else { return };
        let mut guard = slots[(slot % CHUNK) as usize].lock();
        let had = guard.reply.capacity();
        guard.reply.clear();
        let is_guaranteed = slot < GUARANTEED_SLOTS;
        match reply.filter(|reply| reply.len() <= self.reply_max as usize) {
            Some(reply) => {
                guard.reply.reserve_exact(reply.len());
                guard.reply.extend_from_slice(reply);
                guard.turn(Event::Keep);
            }
            None => {
                // Empty, it is of use to others now rather than to this slot again.
                if had > 0 && !is_guaranteed && self.memory.is_scarce() {
                    guard.reply = Vec::new();
                }
                guard.turn(Event::Forget);
            }
        }
        let has = guard.reply.capacity();
        match has.cmp(&had) {
            _ if is_guaranteed => {}
            Ordering::Greater => self.charge(has - had),
            Ordering::Less => self.release(had - has),
            Ordering::Equal => {}
        }
    }

    /// Gives back what is idle: replies that the client has seen, and the width of the window; to be called from time to time.
    pub(crate) fn tend(&self, now_s: u32) {
        self.window.look(now_s, self.memory.is_scarce());
        self.release_idle();
    }

    /// Gives back the replies that the client has seen.
    ///
    /// §2.10.6.1: "The requester MUST always indicate the slot ID representing the outstanding request with the
    /// highest-numbered slot value": what came before on the slots above it was answered, and the client has the answer. "Came
    /// before" is what must be sure, since requests overtake each other: the request that told it was sent after the reply to
    /// the one before it on its slot had arrived, so that whatever began earlier than that one was sent earlier too.
    /// [`SEEN_BEFORE_S`] lie between them.
    fn release_idle(&self) {
        let (highest, before_s) = unpack(self.acknowledged.load(Relaxed));
        if before_s == 0 {
            return;
        }
        for (at, slots) in self.all_chunks().enumerate() {
            let first = at as u32 * CHUNK;
            let Some(slots) = slots.get().filter(|_| first + CHUNK > highest) else { continue };
            for (slot, number) in slots.iter().zip(first..).skip_while(|(_, number)| *number <= highest) {
                let mut slot = slot.lock();
                if slot.phase == Phase::Cached && slot.began_s.saturating_add(SEEN_BEFORE_S) < before_s {
                    slot.turn(Event::Release);
                    let had = std::mem::take(&mut slot.reply).capacity();
                    if number >= GUARANTEED_SLOTS {
                        self.release(had);
                    }
                }
            }
        }
    }

    /// Slots whose requests are in progress.
    pub(crate) fn in_use(&self) -> u32 {
        let slots = self.all_chunks().filter_map(OnceLock::get).flatten();
        slots.filter(|slot| slot.lock().phase == Phase::InProgress).count() as u32
    }

    /// How the slots are used now, and were until now.
    pub(crate) fn usage(&self) -> SlotUse {
        let mut usage = SlotUse {
            granted: self.granted(),
            target: self.target_highest() + 1,
            reply_max: self.reply_max,
            full: self.full.load(Relaxed),
            deferred: self.deferred.load(Relaxed),
            replayed: self.replayed.load(Relaxed),
            ..SlotUse::default()
        };
        for slot in self.all_chunks().filter_map(OnceLock::get).flatten() {
            let slot = slot.lock();
            usage.in_use += u32::from(slot.phase == Phase::InProgress);
            usage.reply_bytes += slot.reply.capacity() as u64;
        }
        usage
    }

    /// A new request on `slot`, which is as the one before left it: the client has that one's reply.
    fn acknowledge(&self, slot: &Slot, highest: u32) {
        if slot.phase != Phase::Fresh {
            self.acknowledged.store(u64::from(highest) << 32 | u64::from(slot.began_s), Relaxed);
        }
    }

    /// DELAY, for want of memory.
    fn defer(&self) -> Status {
        count(&self.deferred);
        self.memory.count_deferred();
        Status::DELAY
    }

    fn chunk(&self, slot: u32) -> &Chunk {
        let at = (slot / CHUNK) as usize;
        self.chunks.get(at).unwrap_or_else(|| &self.more()[at - self.chunks.len()])
    }

    fn more(&self) -> &[Chunk] {
        self.more.get_or_init(|| {
            let all = self.window.most().div_ceil(CHUNK) as usize;
            let more: Box<[_]> = (self.chunks.len()..all).map(|_| OnceLock::new()).collect();
            self.charge(size_of_val(&*more));
            more
        })
    }

    fn all_chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter().chain(self.more.get().into_iter().flatten())
    }

    fn make_chunk(&self, slot: u32) -> &[Mutex<Slot>] {
        self.chunk(slot).get_or_init(|| {
            if slot >= CHUNK {
                self.charge(Self::CHUNK_BYTES);
            }
            (0..CHUNK).map(|_| Mutex::new(Slot::FRESH)).collect()
        })
    }

    fn charge(&self, bytes: usize) {
        self.charged.fetch_add(bytes, Relaxed);
        self.memory.charge(bytes);
    }

    fn release(&self, bytes: usize) {
        self.charged.fetch_sub(bytes, Relaxed);
        self.memory.release(bytes);
    }
}

/// The server's time as slots have it.
pub(crate) fn whole_seconds(now: Duration) -> u32 {
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

/// A slot number, and a time in seconds.
fn unpack(acknowledged: u64) -> (u32, u32) {
    ((acknowledged >> 32) as u32, acknowledged as u32)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Drop for SlotTable {
    fn drop(&mut self) {
        self.memory.release(*self.charged.get_mut());
        self.memory.withdraw(self.promised);
    }
}

#[cfg(test)]
mod tests;
