//! Slots of a session's fore channel: the reply cache of RFC 8881 §2.10.6.
//!
//! A request is executed at most once, however often it is sent and over which connections. So a slot has a phase "in
//! progress", and it changes only when a request begins or ends, never by an error of SEQUENCE. A slot keeps its reply as
//! encoded bytes.
//!
//! Most slots are never used, so they are allocated in chunks at first use. The number of slots that a client may use follows
//! its load ([`Window`]), as far as [`SlotMemory`] allows. That bound is strict except for the replies of requests in
//! progress.

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

/// Bytes of a cached reply (`ca_maxresponsesize_cached`): twice as many as in Linux's server. Every non-idempotent compound of
/// the Linux client fits, also an OPEN with two GETATTRs.
pub(crate) const CACHED_REPLY_MAX: u32 = 4096;
/// Slots whose replies always find memory, reserved when the session is created, so that a client makes progress under
/// pressure. Two, so that a slow request does not prevent lease renewal.
pub(crate) const GUARANTEED_SLOTS: u32 = 2;
/// Slots allocated at a time.
const CHUNK: u32 = 16;

/// Seconds between two requests after which the later one proves that the reply to the earlier one arrived. One would suffice,
/// for cores that read the time once for several requests; more gives a client that reports too low a slot time to retry.
const SEEN_BEFORE_S: u32 = 10;

/// The phase of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotPhase {
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
enum SlotEvent {
    /// A new request begins: its sequence ID is the slot's plus one.
    Begin,
    /// The request ended, its reply is kept.
    Keep,
    /// The request ended or was abandoned; no reply is kept.
    Forget,
    /// The client has received the reply and will not request it again.
    Release,
}

const TRANSITIONS: &[Row<SlotPhase, SlotEvent>] = &[
    (SlotPhase::Fresh, SlotEvent::Begin, SlotPhase::InProgress),
    (SlotPhase::Cached, SlotEvent::Begin, SlotPhase::InProgress),
    (SlotPhase::Uncached, SlotEvent::Begin, SlotPhase::InProgress),
    (SlotPhase::InProgress, SlotEvent::Keep, SlotPhase::Cached),
    (SlotPhase::InProgress, SlotEvent::Forget, SlotPhase::Uncached),
    (SlotPhase::Cached, SlotEvent::Release, SlotPhase::Uncached),
];

#[derive(Debug)]
struct Slot {
    phase: SlotPhase,
    /// Of the last request that began; 0 in a fresh slot (RFC 8881 §18.36.4: "the server sets the sequence ID to zero").
    sequence_id: u32,
    /// When that request began, in seconds of the server's time.
    began_s: u32,
    /// Digest of that request's bytes and caller.
    digest: u64,
    /// The reply, if kept. Its capacity is charged, and reused by the next reply.
    reply: Vec<u8>,
}

impl Slot {
    const FRESH: Self =
        Self { phase: SlotPhase::Fresh, sequence_id: 0, began_s: 0, digest: 0, reply: Vec::new() };

    /// Classifies a request without changing the slot (RFC 8881 §2.10.6.1.2: "Any time SEQUENCE … returns an error, the
    /// sequence ID of the slot MUST NOT change").
    fn judge(&self, sequence_id: u32, digest: u64) -> Result<Verdict, Status> {
        if sequence_id == self.sequence_id.wrapping_add(1) {
            return match self.phase {
                // §2.10.6.2: "A requester MUST wait for a reply to a request before using the slot for another request."
                SlotPhase::InProgress => Err(Status::SEQ_MISORDERED),
                _ => Ok(Verdict::New),
            };
        }
        // §18.36.4: a fresh slot answers sequence ID 0 with SEQ_MISORDERED. §2.10.6.1: so does a slot whose ID is greater, or
        // less by two or more.
        if sequence_id != self.sequence_id || self.phase == SlotPhase::Fresh {
            return Err(Status::SEQ_MISORDERED);
        }
        // §2.10.6.1.3.1: another request, or another user's, under the same sequence ID is a false retry.
        if digest != self.digest {
            return Err(Status::SEQ_FALSE_RETRY);
        }
        match self.phase {
            // §2.10.6.2: "A retry might be sent while the original request is still in progress … The replier SHOULD deal
            // with the issue by returning NFS4ERR_DELAY as the reply to SEQUENCE".
            SlotPhase::InProgress => Err(Status::DELAY),
            SlotPhase::Cached => Ok(Verdict::Replay(Some(Bytes::copy_from_slice(&self.reply)))),
            SlotPhase::Uncached | SlotPhase::Fresh => Ok(Verdict::Replay(None)),
        }
    }

    fn turn(&mut self, event: SlotEvent) {
        self.phase = step(TRANSITIONS, self.phase, event).expect("a slot moves as its table says");
    }
}

/// Answer to a retransmission.
#[derive(Debug, Clone)]
pub struct Replay {
    /// SEQUENCE's result.
    pub sequence: SequenceOk,
    /// The bytes given to [`SlotRequest::finish`](crate::state::SlotRequest::finish), or `None` if they were not kept. Then the
    /// reply is SEQUENCE with `sequence`, and RETRY_UNCACHED_REP for the next operation, if any (RFC 8881 §2.10.6.1.3).
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
    /// Digest of its bytes and caller.
    pub(crate) digest: u64,
    /// `sa_cachethis`.
    pub(crate) keep: bool,
    /// The time, in seconds.
    pub(crate) now_s: u32,
}

/// Usage of a slot table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotUse {
    /// Slots granted: the most that the client was permitted to use so far.
    pub granted: u32,
    /// Slots that the client should use at present, by its load and the memory left.
    pub target: u32,
    /// Maximum bytes of one slot's cached reply.
    pub reply_max: u32,
    /// Requests in progress.
    pub in_use: u32,
    /// Bytes of cached replies.
    pub reply_bytes: u64,
    /// Requests that used the last slot the client may use: further requests had to wait.
    pub full: u64,
    /// Requests answered with DELAY because memory was short.
    pub deferred: u64,
    /// Retransmissions answered from the cache.
    pub replayed: u64,
}

/// Result of a request's arrival at a slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A new request; the slot is in progress now.
    New,
    /// A retransmission, with the reply if it was kept.
    Replay(Option<Bytes>),
}

/// Slots that are allocated together, at the first use of one of them.
type Chunk = OnceLock<Box<[Mutex<Slot>]>>;

/// The slots of a session.
#[derive(Debug)]
pub(crate) struct SlotTable {
    /// The slots granted at creation.
    chunks: Box<[Chunk]>,
    /// Further slots, up to the window's bound; allocated at the first use of one of them.
    more: OnceLock<Box<[Chunk]>>,
    window: Window,
    reply_max: u32,
    memory: Arc<SlotMemory>,
    /// Bytes reserved in `memory` at creation.
    promised: usize,
    /// Bytes charged to `memory` beyond these.
    charged: AtomicUsize,
    /// From the last request: the highest slot with an outstanding request (upper half), and when the previous request on the
    /// same slot began, in seconds (lower half). See [`Self::release_idle`].
    acknowledged: AtomicU64,
    full: AtomicU64,
    deferred: AtomicU64,
    replayed: AtomicU64,
}

impl SlotTable {
    /// Bytes of a chunk without replies.
    const CHUNK_BYTES: usize = size_of::<Mutex<Slot>>() * CHUNK as usize;

    /// Returns a table for this window with replies of at most `reply_max` bytes; `None` if there is no memory even for the
    /// guaranteed slots.
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

    /// Returns the number of slots granted: `sr_highest_slotid` plus one.
    pub(crate) fn granted(&self) -> u32 {
        self.window.granted()
    }

    /// Returns whether a slot's last request has this sequence ID.
    pub(crate) fn is_last(&self, slot: u32, sequence_id: u32) -> bool {
        let chunk = (slot < self.granted()).then(|| self.chunk(slot).get()).flatten();
        chunk.is_some_and(|slots| slots[(slot % CHUNK) as usize].lock().sequence_id == sequence_id)
    }

    /// Returns `sr_target_highest_slotid`: the last slot of the window; when memory is scarce, a half, a quarter and so on of
    /// it, down to the guaranteed slots.
    pub(crate) fn target_highest(&self) -> u32 {
        let target = self.window.target();
        let wanted = match self.memory.pressure() {
            0 => target,
            STEPS => 0,
            step => target >> step,
        };
        wanted.max(GUARANTEED_SLOTS).min(target) - 1
    }

    /// Classifies a request, and begins it if it is new.
    ///
    /// # Errors
    /// BADSLOT, SEQ_MISORDERED, SEQ_FALSE_RETRY, DELAY; the slot does not change.
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
        // Only requests that need more memory are delayed, and only beyond the guaranteed slots. DELAY leaves the slot
        // unchanged, so that the client sends the same request again.
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
            slot.turn(SlotEvent::Begin);
            slot.began_s = arrival.now_s;
            slot.sequence_id = sequence_id;
            slot.digest = digest;
        }
        Ok(verdict)
    }

    /// Ends the request in progress on `slot`, and keeps `reply` if it fits.
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
                guard.turn(SlotEvent::Keep);
            }
            None => {
                // Its buffer helps others more than this slot.
                if had > 0 && !is_guaranteed && self.memory.is_scarce() {
                    guard.reply = Vec::new();
                }
                guard.turn(SlotEvent::Forget);
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

    /// Releases replies that the client has received, and narrows an unused window. Called periodically.
    pub(crate) fn tend(&self, now_s: u32) {
        self.window.adjust(now_s, self.memory.is_scarce());
        self.release_idle();
    }

    /// Releases the replies that the client has received.
    ///
    /// §2.10.6.1: "The requester MUST always indicate the slot ID representing the outstanding request with the
    /// highest-numbered slot value". So the client has received the replies to earlier requests on higher slots. Requests
    /// overtake each other, so "earlier" must be certain: the client sent its last request after it got the reply to the previous
    /// request on that slot. Requests that began [`SEEN_BEFORE_S`] before that previous request were sent before it too.
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
                if slot.phase == SlotPhase::Cached && slot.began_s.saturating_add(SEEN_BEFORE_S) < before_s {
                    slot.turn(SlotEvent::Release);
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
        slots.filter(|slot| slot.lock().phase == SlotPhase::InProgress).count() as u32
    }

    /// Returns the usage of the slots.
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
            usage.in_use += u32::from(slot.phase == SlotPhase::InProgress);
            usage.reply_bytes += slot.reply.capacity() as u64;
        }
        usage
    }

    /// Notes a new request on `slot`, before the slot changes: the client has received the slot's previous reply.
    fn acknowledge(&self, slot: &Slot, highest: u32) {
        if slot.phase != SlotPhase::Fresh {
            self.acknowledged.store(u64::from(highest) << 32 | u64::from(slot.began_s), Relaxed);
        }
    }

    /// Counts a request that is delayed because memory is short.
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

/// Returns the server's time in whole seconds.
pub(crate) fn whole_seconds(now: Duration) -> u32 {
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}

/// Unpacks a slot number and a time in seconds.
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
