//! The interface of an operation for the closed loop.

use std::cell::Cell;

use super::replies::{HEAD_BYTES, Reply};
use crate::layout::FILE_BYTES;
use crate::operation::LARGE_BYTES;

/// The effect of a reply on its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The operation is done; it counts.
    Finished,
    /// Another request belongs to the same operation.
    Continues,
}

/// One operation on one connection: makes requests, checks replies.
pub(crate) trait Workload {
    /// Appends the next request of `slot` to `out`, without its payload.
    ///
    /// If there is a payload, all requests have the same length.
    fn request(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>);

    /// Returns the bytes that follow each request and are always the same.
    fn payload(&self) -> &[u8] {
        &[]
    }

    /// Returns the number of bytes of a split reply that are kept for [`Self::reply`].
    fn reply_head_bytes(&self) -> usize {
        HEAD_BYTES
    }

    /// Checks the reply to the last request of `slot`.
    ///
    /// # Errors
    /// The error in the reply.
    fn reply(&mut self, slot: usize, reply: &Reply<'_>) -> Result<Outcome, String>;
}

/// Source of transaction IDs: unique and rising over all connections of a program's run.
///
/// The low bits name the slot, so that a reply finds its request without a search.
#[derive(Debug)]
pub struct Xids {
    next: Cell<u32>,
}

/// Bits of an xid that name the slot; the other 25 count, enough for 33 million requests before one repeats.
const SLOT_BITS: u32 = 7;
/// Maximum number of requests that one connection keeps outstanding.
pub const DEPTH_MAX: usize = 1 << SLOT_BITS;

impl Xids {
    /// Starts counting at `first`.
    #[must_use]
    pub fn starting_at(first: u32) -> Self {
        Self { next: Cell::new(first) }
    }

    /// Returns the next ID, for `slot` (below [`DEPTH_MAX`]).
    pub(crate) fn take(&self, slot: usize) -> u32 {
        debug_assert!(slot < DEPTH_MAX);
        let count = self.next.get();
        self.next.set(count.wrapping_add(1));
        count << SLOT_BITS | slot as u32
    }

    /// Returns the slot of `xid`.
    pub(crate) fn slot_of(xid: u32) -> usize {
        (xid as usize) & (DEPTH_MAX - 1)
    }
}

/// The offsets that one connection works at: random for small payloads, in order for large ones; the same on every run.
#[derive(Debug)]
pub(crate) struct Offsets {
    bytes: u64,
    places: u64,
    state: u64,
}

impl Offsets {
    /// Creates the offsets of blocks of `bytes` bytes (0 for operations without data) for a connection.
    pub(crate) fn new(bytes: u32, connection: u32) -> Self {
        let bytes = u64::from(bytes.max(1));
        Self { bytes, places: FILE_BYTES / bytes, state: u64::from(connection) * 4 }
    }

    /// Returns the next offset.
    pub(crate) fn next(&mut self) -> u64 {
        if self.bytes == u64::from(LARGE_BYTES) {
            self.state = (self.state + 1) % self.places;
            return self.state * self.bytes;
        }
        // Knuth's MMIX generator; its high bits are good enough for random offsets.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % self.places * self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xids_are_distinct_rising_and_contain_their_slot() {
        let xids = Xids::starting_at(40);
        let mut last = 0;
        for slot in [0, 63, 0, DEPTH_MAX - 1, 5] {
            let xid = xids.take(slot);
            assert!(xid > last);
            assert_eq!(Xids::slot_of(xid), slot);
            last = xid;
        }
    }

    #[test]
    fn offsets_stay_inside_the_file_and_differ_between_connections() {
        for bytes in [4 << 10, LARGE_BYTES] {
            let walk = |connection| {
                let mut offsets = Offsets::new(bytes, connection);
                (0..100).map(|_| offsets.next()).collect::<Vec<_>>()
            };
            assert!(walk(3).iter().all(|offset| offset % u64::from(bytes) == 0));
            assert!(walk(3).iter().all(|offset| offset + u64::from(bytes) <= FILE_BYTES));
            assert_eq!(walk(3), walk(3));
            assert_ne!(walk(3), walk(4));
        }
    }
}
