//! The bytes of TCP connections as RPC records: segments in any order, and repeated ones.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use rpc::record::RecordDecoder;

use super::capture::Segment;

/// Maximum bytes of a record: a WRITE of 16 MiB and its headers.
const RECORD_MAX: usize = 17 << 20;
/// Maximum bytes that wait for a segment before them. Then it counts as lost.
const PENDING_MAX: usize = 4 << 20;

/// One record with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    /// When its first segment was captured.
    pub(super) began_us: u64,
    /// When its last one was.
    pub(super) ended_us: u64,
    pub(super) record: Bytes,
}

/// All directions of all connections.
#[derive(Default)]
pub(super) struct Streams {
    directions: HashMap<(SocketAddr, SocketAddr), Direction>,
    /// Times that bytes were lost and a later record was searched.
    pub(super) gaps: u64,
    /// Segments that were not captured whole.
    pub(super) cut: u64,
}

/// One direction of a connection. Positions are sequence numbers that do not wrap.
struct Direction {
    /// Sequence number and position of the next byte.
    next: (u32, u64),
    /// Whether the next byte is known: a connection's first, or one that follows the last.
    is_synchronized: bool,
    /// Segments after a missing one, with the times of their capture.
    pending: BTreeMap<u64, (u64, Bytes)>,
    pending_bytes: usize,
    buffer: BytesMut,
    decoder: RecordDecoder,
    /// When the first byte of the buffer was captured.
    began_us: u64,
}

impl Streams {
    /// Takes a segment, and returns the records that are complete with it.
    pub(super) fn add(&mut self, segment: &Segment<'_>) -> Vec<Timed> {
        let Self { directions, gaps, cut } = self;
        let key = (segment.from, segment.to);
        let direction = directions.entry(key).or_insert_with(|| Direction::new(segment.sequence, false));
        if segment.is_syn {
            *direction = Direction::new(segment.sequence.wrapping_add(1), true);
            return Vec::new();
        }
        if segment.payload.is_empty() && segment.missing == 0 {
            return Vec::new();
        }
        let mut payload = BytesMut::from(segment.payload);
        if segment.missing > 0 {
            // Data are not looked at: only their length matters. Headers may be lost with them.
            *cut += 1;
            payload.resize(payload.len() + segment.missing, 0);
        }
        direction.keep(segment.sequence, segment.time_us, payload.freeze());
        let mut records = Vec::new();
        direction.take_pending(key, &mut records);
        if direction.pending_bytes > PENDING_MAX || !direction.is_synchronized {
            *gaps += u64::from(direction.is_synchronized);
            direction.skip_gap(key, &mut records);
        }
        records
    }

    /// Returns the records after segments that never came, at the end of a capture.
    pub(super) fn finish(&mut self) -> Vec<Timed> {
        let mut records = Vec::new();
        for (key, direction) in &mut self.directions {
            while !direction.pending.is_empty() {
                self.gaps += 1;
                direction.skip_gap(*key, &mut records);
            }
        }
        // Calls before their replies.
        records.sort_by_key(|timed| timed.ended_us);
        records
    }
}

impl Direction {
    fn new(sequence: u32, is_synchronized: bool) -> Self {
        Self {
            next: (sequence, 1 << 40),
            is_synchronized,
            pending: BTreeMap::new(),
            pending_bytes: 0,
            buffer: BytesMut::new(),
            decoder: RecordDecoder::new(RECORD_MAX),
            began_us: 0,
        }
    }

    /// Keeps a segment until those before it are there; of two that begin at the same byte, the longer one.
    fn keep(&mut self, sequence: u32, time_us: u64, payload: Bytes) {
        // Positive distances are ahead; half of the numbers are.
        let distance = sequence.wrapping_sub(self.next.0) as i32;
        let position = self.next.1.saturating_add_signed(distance.into());
        let known = self.pending.get(&position).map_or(0, |(_, known)| known.len());
        if payload.len() > known {
            self.pending_bytes += payload.len() - known;
            self.pending.insert(position, (time_us, payload));
        }
    }

    /// Moves segments that continue the stream into the buffer, and takes records out.
    fn take_pending(&mut self, (from, to): (SocketAddr, SocketAddr), records: &mut Vec<Timed>) {
        while self.is_synchronized
            && let Some(entry) = self.pending.first_entry()
            && *entry.key() <= self.next.1
        {
            let (position, (time_us, payload)) = entry.remove_entry();
            self.pending_bytes -= payload.len();
            let known = (self.next.1 - position) as usize;
            let Some(new) = payload.get(known..).filter(|new| !new.is_empty()) else { continue };
            if self.buffer.is_empty() && self.decoder.is_between_records(&self.buffer) {
                self.began_us = time_us;
            }
            self.buffer.extend_from_slice(new);
            self.next = (self.next.0.wrapping_add(new.len() as u32), self.next.1 + new.len() as u64);
            loop {
                match self.decoder.decode(&mut self.buffer) {
                    Ok(Some(record)) => {
                        let began_us = self.began_us;
                        records.push(Timed { from, to, began_us, ended_us: time_us, record });
                        self.began_us = time_us;
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.is_synchronized = false;
                        break;
                    }
                }
            }
        }
    }

    /// Continues at the first waiting segment that begins with a record; those before are dropped.
    fn skip_gap(&mut self, key: (SocketAddr, SocketAddr), records: &mut Vec<Timed>) {
        self.buffer.clear();
        self.decoder = RecordDecoder::new(RECORD_MAX);
        self.is_synchronized = false;
        while let Some((position, (_, payload))) = self.pending.first_key_value() {
            if begins_a_record(payload) {
                let distance = position.wrapping_sub(self.next.1) as u32;
                self.next = (self.next.0.wrapping_add(distance), *position);
                self.is_synchronized = true;
                break;
            }
            if let Some((_, (_, dropped))) = self.pending.pop_first() {
                self.pending_bytes -= dropped.len();
            }
        }
        self.take_pending(key, records);
    }
}

/// Returns whether bytes look like the start of an RPC message in a record.
fn begins_a_record(payload: &[u8]) -> bool {
    let word = |index: usize| Some(u32::from_be_bytes(*payload.get(index * 4..)?.first_chunk()?));
    let (Some(mark), Some(kind)) = (word(0), word(2)) else { return false };
    let length = (mark & !rpc::record::LAST_FRAGMENT) as usize;
    let is_message = match kind {
        // A call has RPC version 2 after it.
        0 => word(3) == Some(2),
        1 => word(3).is_some_and(|status| status <= 1),
        _ => false,
    };
    is_message && (24..=RECORD_MAX).contains(&length)
}

/// Calls that wait for their replies, with the connection they are of.
#[derive(Default)]
pub(super) struct Calls {
    waiting: BTreeMap<(SocketAddr, SocketAddr, u32), Timed>,
}

/// Maximum number of calls without replies that are kept.
const CALLS_MAX: usize = 1 << 16;

/// A call with its reply.
pub(super) struct Exchange {
    pub(super) call: Timed,
    pub(super) reply: Timed,
}

impl Calls {
    /// Takes a record. A reply returns the exchange that it ends.
    pub(super) fn add(&mut self, timed: Timed) -> Option<Exchange> {
        let (xid, kind) = rpc::message::peek(&timed.record).ok()?;
        match kind {
            rpc::message::MessageType::CALL => {
                if self.waiting.len() >= CALLS_MAX {
                    self.waiting.clear();
                }
                // A retransmission does not begin the call again.
                self.waiting.entry((timed.from, timed.to, xid)).or_insert(timed);
                None
            }
            _ => {
                let call = self.waiting.remove(&(timed.to, timed.from, xid))?;
                Some(Exchange { call, reply: timed })
            }
        }
    }

    /// Returns the number of calls without a reply.
    pub(super) fn unanswered(&self) -> usize {
        self.waiting.len()
    }
}
