use std::os::fd::BorrowedFd;

use bytes::{Bytes, BytesMut};

use crate::padding;

/// A part of a message that the [`Writer`] does not hold: a range of a file for `sendfile`, or a shared buffer.
pub trait External: Send + Sync + std::fmt::Debug {
    /// Returns the length in bytes, which is constant.
    fn length(&self) -> usize;
    /// Returns the bytes if they are in memory.
    fn bytes(&self) -> Option<&Bytes>;
    /// Returns a descriptor and an offset for `sendfile` of [`Self::length`] bytes, if there is one.
    fn descriptor(&self) -> Option<(BorrowedFd<'_>, u64)>;
    /// Handles a failure to read from [`descriptor`](Self::descriptor).
    fn failed(&self) {}
    /// Fills `into` with the bytes at `offset`, for transports without `sendfile`. Bytes beyond the end of the file are
    /// zeros.
    fn copy_to(&self, offset: usize, into: &mut [u8]);
}

/// A position in a [`Writer`] to rewind to or to patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    inline: usize,
    externals: usize,
}

/// One part of a finished message.
#[derive(Debug)]
pub enum Part<'a> {
    /// Bytes of the writer's buffer.
    Inline(&'a [u8]),
    /// Bytes that the buffer does not hold.
    External(&'a dyn External),
}

/// External parts, each with its offset in the inline buffer.
pub type PlacedExternals = Vec<(usize, Box<dyn External>)>;

/// Encodes a message into one contiguous buffer. External parts are stored separately with their offsets, so that
/// every position in the buffer can be patched or rewound.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: BytesMut,
    externals: PlacedExternals,
    externals_length: usize,
}

impl Writer {
    /// Creates an empty message.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty message in the memory of `buffer`.
    #[must_use]
    pub fn with_buffer(mut buffer: BytesMut) -> Self {
        buffer.clear();
        Self { buffer, externals: Vec::new(), externals_length: 0 }
    }

    /// Returns the length of the message so far in bytes, external parts included.
    #[must_use]
    pub fn length(&self) -> usize {
        self.buffer.len() + self.externals_length
    }

    /// Returns whether the message is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length() == 0
    }

    /// Returns whether the message has external parts.
    #[must_use]
    pub fn has_externals(&self) -> bool {
        !self.externals.is_empty()
    }

    /// Empties the message and keeps the memory.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.externals.clear();
        self.externals_length = 0;
    }

    /// Returns the current position.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { inline: self.buffer.len(), externals: self.externals.len() }
    }

    /// Returns the number of bytes written since `mark`, external parts included.
    #[must_use]
    pub fn length_since(&self, mark: Mark) -> usize {
        let externals: usize = self.externals[mark.externals..].iter().map(|(_, e)| e.length()).sum();
        self.buffer.len() - mark.inline + externals
    }

    /// Removes everything written since `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.buffer.truncate(mark.inline);
        for (_, external) in self.externals.drain(mark.externals..) {
            self.externals_length -= external.length();
        }
    }

    /// Reserves four bytes for [`Self::patch_u32`].
    pub fn reserve_u32(&mut self) -> Mark {
        let mark = self.mark();
        self.u32(0);
        mark
    }

    /// Overwrites the four bytes at `mark`.
    pub fn patch_u32(&mut self, mark: Mark, value: u32) {
        self.patch(mark, 0, &value.to_be_bytes());
    }

    /// Overwrites the bytes that start `skip` bytes after `mark`. They must be in the buffer, without an external part
    /// between them.
    pub fn patch(&mut self, mark: Mark, skip: usize, bytes: &[u8]) {
        let start = mark.inline + skip;
        self.buffer[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Reserves space for `bytes` more bytes. If the buffer must grow, it grows to four times the bytes written, so that a long
    /// message is rarely moved.
    #[inline]
    pub fn make_room(&mut self, bytes: usize) {
        if self.buffer.capacity() - self.buffer.len() < bytes {
            self.buffer.reserve(bytes + 3 * self.buffer.len());
        }
    }

    /// Returns the buffer, for callers that append data in place, such as READ. The caller adds length and padding.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Writes an unsigned integer (RFC 4506 §4.2).
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a signed integer (RFC 4506 §4.1).
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes an unsigned hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a boolean (RFC 4506 §4.4).
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Writes the padding after opaque data of `length` bytes.
    #[inline]
    pub fn pad(&mut self, length: usize) {
        // A copy of constant length compiles to an instruction instead of a call.
        match padding(length) {
            0 => {}
            1 => self.buffer.extend_from_slice(&[0]),
            2 => self.buffer.extend_from_slice(&[0; 2]),
            _ => self.buffer.extend_from_slice(&[0; 3]),
        }
    }

    /// Writes fixed-length opaque data (RFC 4506 §4.9).
    #[inline]
    pub fn opaque_fixed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.pad(bytes.len());
    }

    /// Writes variable-length opaque data (RFC 4506 §4.10).
    ///
    /// # Panics
    /// If `bytes` is longer than 4 GiB.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("opaque data are shorter than 4 GiB"));
        self.opaque_fixed(bytes);
    }

    /// Writes bytes that are already XDR.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Adds an external part at the current position, without length or padding.
    pub fn external(&mut self, external: Box<dyn External>) {
        self.externals_length += external.length();
        self.externals.push((self.buffer.len(), external));
    }

    /// Calls `visit` with every part of the message in order, without empty inline parts.
    pub fn for_each_part<'a>(&'a self, mut visit: impl FnMut(Part<'a>)) {
        let mut start = 0;
        for (offset, external) in &self.externals {
            if *offset > start {
                visit(Part::Inline(&self.buffer[start..*offset]));
                start = *offset;
            }
            visit(Part::External(external.as_ref()));
        }
        if start < self.buffer.len() {
            visit(Part::Inline(&self.buffer[start..]));
        }
    }

    /// Returns the buffer, which is the whole message unless [`Self::has_externals`].
    #[must_use]
    pub fn inline(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns the buffer after `mark`, without external parts.
    #[must_use]
    pub fn inline_since(&self, mark: Mark) -> &[u8] {
        &self.buffer[mark.inline..]
    }

    /// Returns a copy of the message after `mark`, external parts included.
    #[must_use]
    pub fn copy_since(&self, mark: Mark) -> Bytes {
        if self.externals.len() == mark.externals {
            return Bytes::copy_from_slice(&self.buffer[mark.inline..]);
        }
        let mut all = BytesMut::with_capacity(self.length_since(mark));
        let mut start = mark.inline;
        for (offset, external) in &self.externals[mark.externals..] {
            all.extend_from_slice(&self.buffer[start..*offset]);
            start = *offset;
            let from = all.len();
            all.resize(from + external.length(), 0);
            external.copy_to(0, &mut all[from..]);
        }
        all.extend_from_slice(&self.buffer[start..]);
        all.freeze()
    }

    /// Returns the whole message in one buffer; external parts are copied in.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        if self.externals.is_empty() {
            self.buffer.freeze()
        } else {
            self.copy_since(Mark { inline: 0, externals: 0 })
        }
    }

    /// Returns the inline buffer and the external parts with their offsets.
    #[must_use]
    pub fn into_parts(self) -> (BytesMut, PlacedExternals) {
        (self.buffer, self.externals)
    }
}
