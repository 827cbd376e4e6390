//! The replies of one batch, in memory that is initialized once.

use crate::operation::LARGE_BYTES;

/// Replies are sent before the whole batch is done when they have grown to this: large ones leave while still cached.
const FLUSH_BYTES: usize = 256 << 10;
/// The head of any reply of the floor fits in here.
const HEAD_BYTES_MAX: usize = 1 << 10;
/// Room for one more reply of the largest kind after replies that need not be sent yet.
const CAPACITY_BYTES: usize = FLUSH_BYTES + HEAD_BYTES_MAX + LARGE_BYTES as usize;

/// A buffer whose bytes are never cleared: a `Vec` would fill the room for each READ with zeros first.
#[derive(Debug)]
pub(super) struct Replies {
    bytes: Box<[u8]>,
    length: usize,
}

impl Replies {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; CAPACITY_BYTES].into_boxed_slice(), length: 0 }
    }

    /// Returns the data to send.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    /// Returns whether another reply of any kind fits.
    pub(super) fn have_room(&self) -> bool {
        self.length < FLUSH_BYTES
    }

    /// Returns whether this many bytes fit.
    pub(super) fn have_room_for(&self, bytes: usize) -> bool {
        self.bytes.len() - self.length >= bytes
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
    }

    /// Returns `count` bytes at the end, to be overwritten.
    pub(super) fn room(&mut self, count: usize) -> &mut [u8] {
        let start = self.length;
        self.length += count;
        &mut self.bytes[start..self.length]
    }

    pub(super) fn patch(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
