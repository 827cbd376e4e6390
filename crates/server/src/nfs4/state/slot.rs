//! Slots of a session's fore channel: the reply cache of RFC 8881 §2.10.6.
//!
//! Criteria. A request is executed at most once, however often it is sent and over whichever connection. A slot therefore
//! has a phase "in progress", and it moves only when a request begins or ends, never by an error of SEQUENCE. A slot's
//! reply is kept as encoded bytes. Slots are granted by the hundred and mostly idle, so they are made in chunks when first
//! used. The memory is bounded by [`SlotMemory`], strictly but for the replies of requests in progress.

use std::cmp::Ordering;
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

use super::transitions::{Row, step};
use super::wire::Status;

/// Bytes of a reply that is kept in a slot at most (`ca_maxresponsesize_cached`). Twice what Linux's server keeps: room for
/// every non-idempotent compound of the Linux client, an OPEN with two GETATTRs among them.
pub(super) const CACHED_REPLY_MAX: u32 = 4096;
/// Slots whose replies always find memory, reserved when the session is created: under pressure a client makes progress
/// with these. Two, so that a slow request does not hold up the lease.
pub(super) const GUARANTEED_SLOTS: u32 = 2;
/// Slots made at a time.
const CHUNK: u32 = 16;

/// Seconds by which a request must be older than the one that shows its reply to have arrived. One would do, for cores that
/// tell the time once for several requests; more leaves a client that names too low a slot the time to ask again.
const SEEN_BEFORE_S: u32 = 10;

/// One client has this part of the memory at most, so that none shuts out the others.
const SHARE_PART: usize = 4;
/// Bytes that one client may have however small that part is: a session of a thousand slots, and some replies.
const SHARE_MIN: usize = 64 << 10;

/// Memory of sessions' slots and the replies that they keep: of all clients, or one client's share of it.
#[derive(Debug)]
pub(super) struct SlotMemory {
    used: AtomicUsize,
    budget: usize,
    /// Requests that took the last slot that their client may use.
    full: AtomicU64,
    /// Requests put off for want of memory.
    deferred: AtomicU64,
    /// All clients', where this is a share.
    whole: Option<Arc<SlotMemory>>,
}

impl SlotMemory {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            budget,
            full: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            whole: None,
        }
    }

    /// What one client may have of `whole`.
    pub(super) fn share_of(whole: &Arc<Self>) -> Self {
        let budget = (whole.budget / SHARE_PART).max(SHARE_MIN);
        Self { whole: Some(Arc::clone(whole)), ..Self::new(budget) }
    }

    /// This, and what it is a share of.
    fn both(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.whole.as_deref())
    }

    /// Bytes charged.
    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Requests that took the last slot that their client may use.
    pub(super) fn full(&self) -> u64 {
        self.full.load(Relaxed)
    }

    /// Requests put off for want of memory.
    pub(super) fn deferred(&self) -> u64 {
        self.deferred.load(Relaxed)
    }

    /// Whether what is not guaranteed must wait.
    fn is_exhausted(&self) -> bool {
        self.both().any(|memory| memory.used() >= memory.budget)
    }

    /// Whether clients should be asked to use fewer slots: three quarters are gone.
    pub(super) fn is_scarce(&self) -> bool {
        self.both().any(|memory| memory.used() >= memory.budget / 4 * 3)
    }

    fn charge(&self, bytes: usize) {
        for memory in self.both() {
            memory.used.fetch_add(bytes, Relaxed);
        }
    }

    fn release(&self, bytes: usize) {
        for memory in self.both() {
            memory.used.fetch_sub(bytes, Relaxed);
        }
    }

    /// Takes `bytes`, or nothing where they would not fit.
    fn reserve(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.budget);
        if self.used.fetch_update(Relaxed, Relaxed, fits).is_err() {
            return false;
        }
        let whole_fits = self.whole.as_ref().is_none_or(|whole| whole.reserve(bytes));
        if !whole_fits {
            self.used.fetch_sub(bytes, Relaxed);
        }
        whole_fits
    }
}

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

/// A request as its SEQUENCE describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// `sa_slotid`.
    pub(super) slot: u32,
    /// `sa_sequenceid`.
    pub(super) sequence_id: u32,
    /// `sa_highest_slotid`.
    pub(super) highest: u32,
    /// Of its bytes and caller.
    pub(super) digest: u64,
    /// `sa_cachethis`.
    pub(super) keep: bool,
    /// The time, in seconds.
    pub(super) now_s: u32,
}

/// What the use of a table has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotUse {
    /// Slots granted.
    pub granted: u32,
    /// Slots that the client is asked to keep to; fewer than granted where memory is scarce.
    pub target: u32,
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
pub(super) enum Verdict {
    /// To be executed; the slot is in progress now.
    New,
    /// A retransmission, with the reply where it is kept.
    Replay(Option<Bytes>),
}

/// Some slots, made when the first of them is used.
type Chunk = OnceLock<Box<[Mutex<Slot>]>>;

/// The slots of a session.
#[derive(Debug)]
pub(super) struct SlotTable {
    chunks: Box<[Chunk]>,
    granted: u32,
    reply_max: usize,
    memory: Arc<SlotMemory>,
    /// What this table holds of `memory`.
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

    /// A table of `granted` slots that keep replies of at most `reply_max` bytes; `None` where memory does not even
    /// suffice for the guaranteed ones.
    pub(super) fn new(granted: u32, reply_max: u32, memory: &Arc<SlotMemory>) -> Option<Self> {
        let chunks: Box<[_]> = (0..granted.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect();
        let base = size_of::<Self>()
            + size_of_val(&*chunks)
            + Self::CHUNK_BYTES
            + (GUARANTEED_SLOTS.min(granted) * reply_max) as usize;
        memory.reserve(base).then(|| Self {
            chunks,
            granted,
            reply_max: reply_max as usize,
            memory: Arc::clone(memory),
            charged: AtomicUsize::new(base),
            acknowledged: AtomicU64::new(0),
            full: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
        })
    }

    /// Slots granted.
    pub(super) fn granted(&self) -> u32 {
        self.granted
    }

    /// Whether a slot's last request has this sequence ID.
    pub(super) fn is_last(&self, slot: u32, sequence_id: u32) -> bool {
        let chunk = (slot < self.granted).then(|| self.chunk(slot).get()).flatten();
        chunk.is_some_and(|slots| slots[(slot % CHUNK) as usize].lock().sequence_id == sequence_id)
    }

    /// `sr_target_highest_slotid`: all slots, or the guaranteed ones where memory is scarce.
    pub(super) fn target_highest(&self) -> u32 {
        if self.memory.is_scarce() { GUARANTEED_SLOTS.min(self.granted) - 1 } else { self.granted - 1 }
    }

    /// Judges a request, and begins it where it is new.
    ///
    /// # Errors
    /// BADSLOT, SEQ_MISORDERED, SEQ_FALSE_RETRY, DELAY; the slot is as it was then.
    pub(super) fn arrive(&self, arrival: Arrival) -> Result<Verdict, Status> {
        let judged = self.judge(arrival);
        match judged {
            Ok(Verdict::New) if arrival.slot >= self.target_highest() => {
                count(&self.full);
                self.memory.both().for_each(|memory| count(&memory.full));
            }
            Ok(Verdict::Replay(Some(_))) => count(&self.replayed),
            _ => {}
        }
        judged
    }

    fn judge(&self, arrival: Arrival) -> Result<Verdict, Status> {
        let Arrival { slot, sequence_id, digest, keep, .. } = arrival;
        if slot >= self.granted {
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
    pub(super) fn finish(&self, slot: u32, reply: Option<&[u8]>) {
        let Some(slots) = self.chunk(slot).get() else { return };
        let mut guard = slots[(slot % CHUNK) as usize].lock();
        let had = guard.reply.capacity();
        guard.reply.clear();
        let is_guaranteed = slot < GUARANTEED_SLOTS;
        match reply.filter(|reply| reply.len() <= self.reply_max) {
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

    /// Gives back the replies that the client has seen; to be called from time to time.
    ///
    /// §2.10.6.1: "The requester MUST always indicate the slot ID representing the outstanding request with the
    /// highest-numbered slot value": what came before on the slots above it was answered, and the client has the answer. "Came
    /// before" is what must be sure, since requests overtake each other: the request that told it was sent after the reply to
    /// the one before it on its slot had arrived, so that whatever began earlier than that one was sent earlier too.
    /// [`SEEN_BEFORE_S`] lie between them.
    pub(super) fn release_idle(&self) {
        let (highest, before_s) = unpack(self.acknowledged.load(Relaxed));
        if before_s == 0 {
            return;
        }
        for (at, slots) in self.chunks.iter().enumerate() {
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
    pub(super) fn in_use(&self) -> u32 {
        let slots = self.chunks.iter().filter_map(OnceLock::get).flatten();
        slots.filter(|slot| slot.lock().phase == Phase::InProgress).count() as u32
    }

    /// How the slots are used now, and were until now.
    pub(super) fn usage(&self) -> SlotUse {
        let mut usage = SlotUse {
            granted: self.granted,
            target: self.target_highest() + 1,
            full: self.full.load(Relaxed),
            deferred: self.deferred.load(Relaxed),
            replayed: self.replayed.load(Relaxed),
            ..SlotUse::default()
        };
        for slot in self.chunks.iter().filter_map(OnceLock::get).flatten() {
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
        self.memory.both().for_each(|memory| count(&memory.deferred));
        Status::DELAY
    }

    fn chunk(&self, slot: u32) -> &Chunk {
        &self.chunks[(slot / CHUNK) as usize]
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
    }
}

#[cfg(test)]
mod tests {
    use super::super::transitions::check_table;
    use super::*;

    fn table(granted: u32, budget: usize) -> SlotTable {
        SlotTable::new(granted, CACHED_REPLY_MAX, &Arc::new(SlotMemory::new(budget))).unwrap()
    }

    fn arrive(
        slots: &SlotTable,
        slot: u32,
        sequence_id: u32,
        digest: u64,
        keep: bool,
    ) -> Result<Verdict, Status> {
        slots.arrive(Arrival { slot, sequence_id, highest: slot, digest, keep, now_s: 1 })
    }

    /// A request of this second from begin to end, and what its SEQUENCE says of the slots in use.
    fn pass(slots: &SlotTable, slot: u32, sequence_id: u32, highest: u32, now_s: u32) {
        let arrival = Arrival { slot, sequence_id, highest, digest: 0, keep: true, now_s };
        assert_eq!(slots.arrive(arrival), Ok(Verdict::New));
        slots.finish(slot, Some(&[0; 1000]));
    }

    #[test]
    fn the_table_of_phases_is_sound() {
        let phases = [Phase::Fresh, Phase::InProgress, Phase::Cached, Phase::Uncached];
        check_table(TRANSITIONS, Phase::Fresh, &phases);
        assert_eq!(step(TRANSITIONS, Phase::InProgress, Event::Begin), None, "a slot runs one request");
        for phase in [Phase::Fresh, Phase::Cached, Phase::Uncached] {
            assert_eq!(step(TRANSITIONS, phase, Event::Keep), None, "only what runs can end");
            assert_eq!(step(TRANSITIONS, phase, Event::Forget), None);
        }
    }

    #[test]
    fn sequence_ids_are_judged_and_wrap() {
        let slots = table(1, 1 << 20);
        for wrong in [0, 2, u32::MAX] {
            assert_eq!(arrive(&slots, 0, wrong, 7, true), Err(Status::SEQ_MISORDERED));
        }
        assert_eq!(arrive(&slots, 0, 1, 7, true), Ok(Verdict::New));
        slots.finish(0, Some(b"one"));
        slots.chunk(0).get().unwrap()[0].lock().sequence_id = u32::MAX;
        assert_eq!(
            arrive(&slots, 0, u32::MAX, 7, true),
            Ok(Verdict::Replay(Some(Bytes::from_static(b"one"))))
        );
        assert_eq!(arrive(&slots, 0, 1, 7, true), Err(Status::SEQ_MISORDERED));
        // RFC 8881 §2.10.6.1: "If the previous sequence ID was 0xFFFFFFFF, then the next request for the slot MUST have the
        // sequence ID set to zero".
        assert_eq!(arrive(&slots, 0, 0, 7, true), Ok(Verdict::New));
    }

    #[test]
    fn memory_is_charged_and_given_back() {
        let memory = Arc::new(SlotMemory::new(1 << 20));
        let slots = SlotTable::new(64, CACHED_REPLY_MAX, &memory).unwrap();
        let base = memory.used();
        assert!(base >= 2 * CACHED_REPLY_MAX as usize);
        for slot in 0..40 {
            assert_eq!(arrive(&slots, slot, 1, 0, true), Ok(Verdict::New));
            slots.finish(slot, Some(&[0; 100]));
        }
        assert!(memory.used() >= base + 38 * 100 + 2 * SlotTable::CHUNK_BYTES);
        let used = memory.used();
        assert_eq!(arrive(&slots, 20, 2, 0, true), Ok(Verdict::New));
        slots.finish(20, Some(&[0; 60]));
        assert_eq!(memory.used(), used, "a shorter reply takes the old one's room");
        drop(slots);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn under_pressure_guaranteed_slots_go_on_and_others_wait() {
        let memory = Arc::new(SlotMemory::new(12_000));
        let slots = SlotTable::new(64, CACHED_REPLY_MAX, &memory).unwrap();
        assert_eq!(slots.target_highest(), 1, "already scarce");
        let mut waiting = None;
        for slot in 2..16 {
            match arrive(&slots, slot, 1, 0, true) {
                Ok(_) => slots.finish(slot, Some(&[0; 2000])),
                Err(status) => {
                    assert_eq!(status, Status::DELAY);
                    waiting = Some(slot);
                    break;
                }
            }
        }
        let waiting = waiting.expect("the budget runs out");
        assert!(SlotTable::new(1, CACHED_REPLY_MAX, &memory).is_none(), "no other session fits");
        assert_eq!(arrive(&slots, 16, 1, 0, false), Err(Status::DELAY), "a new chunk is memory too");
        assert_eq!(arrive(&slots, waiting, 1, 0, false), Ok(Verdict::New), "what keeps nothing goes on");
        for sequence_id in 1..9 {
            assert_eq!(arrive(&slots, 0, sequence_id, 0, true), Ok(Verdict::New));
            slots.finish(0, Some(&[0; 4096]));
        }
    }

    #[test]
    fn under_pressure_a_slot_gives_back_what_it_no_longer_keeps() {
        let memory = Arc::new(SlotMemory::new(16_000));
        let slots = SlotTable::new(16, CACHED_REPLY_MAX, &memory).unwrap();
        let base = memory.used();
        assert_eq!(arrive(&slots, 5, 1, 0, true), Ok(Verdict::New));
        slots.finish(5, Some(&[0; 4000]));
        assert!(memory.is_scarce() && memory.used() >= base + 4000);
        assert_eq!(arrive(&slots, 5, 2, 0, false), Ok(Verdict::New));
        slots.finish(5, None);
        assert_eq!(memory.used(), base);
        drop(slots);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_reply_too_long_to_keep_is_not_kept() {
        let slots = table(1, 1 << 20);
        assert_eq!(arrive(&slots, 0, 1, 0, true), Ok(Verdict::New));
        slots.finish(0, Some(&vec![0; CACHED_REPLY_MAX as usize + 1]));
        assert_eq!(arrive(&slots, 0, 1, 0, true), Ok(Verdict::Replay(None)));
    }

    #[test]
    fn replies_that_the_client_has_seen_are_given_back() {
        let memory = Arc::new(SlotMemory::new(1 << 20));
        let slots = SlotTable::new(64, CACHED_REPLY_MAX, &memory).unwrap();
        for slot in 0..40 {
            pass(&slots, slot, 1, 39, 10);
        }
        let full = memory.used();
        slots.release_idle();
        assert_eq!(memory.used(), full, "no request has told anything yet");
        // It may have been sent before those on the other slots were: the one before it is no older than they are.
        pass(&slots, 0, 2, 0, 30);
        slots.release_idle();
        assert_eq!(memory.used(), full);
        assert_eq!(arrive(&slots, 39, 1, 0, true), Ok(Verdict::Replay(Some(Bytes::from(vec![0; 1000])))));
        // 5 says that it is in use still.
        pass(&slots, 0, 3, 5, 50);
        slots.release_idle();
        assert_eq!(memory.used(), full - 34 * 1000);
        assert_eq!(slots.usage().reply_bytes, 6 * 1000);
        assert_eq!(arrive(&slots, 5, 1, 0, true), Ok(Verdict::Replay(Some(Bytes::from(vec![0; 1000])))));
        // Executed it is all the same: never again.
        assert_eq!(arrive(&slots, 6, 1, 0, true), Ok(Verdict::Replay(None)));
        pass(&slots, 6, 2, 6, 51);
    }

    #[test]
    fn slots_that_are_in_progress_keep_what_they_will_answer() {
        let slots = table(64, 1 << 20);
        assert_eq!(arrive(&slots, 7, 1, 0, true), Ok(Verdict::New));
        for (sequence_id, now_s) in [(1, 20), (2, 40), (3, 60)] {
            pass(&slots, 0, sequence_id, 0, now_s);
        }
        slots.release_idle();
        assert_eq!(
            slots.usage(),
            SlotUse { granted: 64, target: 64, in_use: 1, reply_bytes: 1000, ..SlotUse::default() }
        );
        slots.finish(7, Some(b"done"));
        assert_eq!(arrive(&slots, 7, 1, 0, true), Ok(Verdict::Replay(Some(Bytes::from_static(b"done")))));
    }

    #[test]
    fn what_waits_for_slots_and_what_is_replayed_is_counted() {
        let slots = table(2, 1 << 20);
        pass(&slots, 0, 1, 0, 1);
        pass(&slots, 1, 1, 1, 1);
        assert!(matches!(arrive(&slots, 0, 1, 0, true), Ok(Verdict::Replay(Some(_)))));
        let usage = slots.usage();
        assert_eq!((usage.full, usage.replayed, usage.deferred), (1, 1, 0));
    }
}
