use std::os::fd::BorrowedFd;

use bytes::{Bytes, BytesMut};

use crate::padding;

/// Bytes of a reply that do not pass through the [`Writer`]: a range of a file for `sendfile`, or a shared buffer.
pub trait External: Send + Sync + std::fmt::Debug {
    /// Length in bytes; constant.
    fn length(&self) -> usize;
    /// The bytes, where they are in memory.
    fn bytes(&self) -> Option<&Bytes>;
    /// A descriptor and an offset in it that `sendfile` can send [`Self::length`] bytes from, where there is one.
    fn descriptor(&self) -> Option<(BorrowedFd<'_>, u64)>;
    /// [`descriptor`](Self::descriptor) could not be read.
    fn failed(&self) {}
    /// Copies bytes from `offset` on into `into`, for transports that cannot splice. What the file no longer has reads as zeros.
    fn copy_to(&self, offset: usize, into: &mut [u8]);
}

/// A place in a [`Writer`] to go back to, or to fill in later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    inline: usize,
    externals: usize,
}

/// One piece of a finished message, in order.
#[derive(Debug)]
pub enum Part<'a> {
    /// Bytes that were written into the buffer.
    Inline(&'a [u8]),
    /// Bytes that lie elsewhere.
    External(&'a dyn External),
}

/// External parts, each with the offset in the inline buffer at which it belongs.
pub type PlacedExternals = Vec<(usize, Box<dyn External>)>;

/// Builds a message in one contiguous buffer. Payloads that should not be copied are noted with the offset at
/// which they belong, so that every place in the buffer can still be patched or taken back.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: BytesMut,
    externals: PlacedExternals,
    externals_length: usize,
}

impl Writer {
    /// An empty message.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty message that reuses `buffer`'s memory, whose content is dropped.
    #[must_use]
    pub fn with_buffer(mut buffer: BytesMut) -> Self {
        buffer.clear();
        Self { buffer, externals: Vec::new(), externals_length: 0 }
    }

    /// Length of the message so far in bytes, external parts included.
    #[must_use]
    pub fn length(&self) -> usize {
        self.buffer.len() + self.externals_length
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length() == 0
    }

    /// Whether some part lies outside the buffer.
    #[must_use]
    pub fn has_externals(&self) -> bool {
        !self.externals.is_empty()
    }

    /// Drops everything, keeping the memory.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.externals.clear();
        self.externals_length = 0;
    }

    /// This place.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { inline: self.buffer.len(), externals: self.externals.len() }
    }

    /// Length in bytes of what was written since `mark`, external parts included.
    #[must_use]
    pub fn length_since(&self, mark: Mark) -> usize {
        let externals: usize = self.externals[mark.externals..].iter().map(|(_, e)| e.length()).sum();
        self.buffer.len() - mark.inline + externals
    }

    /// Takes back everything written since `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.buffer.truncate(mark.inline);
        for (_, external) in self.externals.drain(mark.externals..) {
            self.externals_length -= external.length();
        }
    }

    /// Leaves four bytes to be filled in by [`Self::patch_u32`].
    pub fn reserve_u32(&mut self) -> Mark {
        let mark = self.mark();
        self.u32(0);
        mark
    }

    /// Fills in the four bytes at `mark`.
    pub fn patch_u32(&mut self, mark: Mark, value: u32) {
        self.patch(mark, 0, &value.to_be_bytes());
    }

    /// Overwrites bytes `skip` bytes behind `mark`; they must have been written, with no external part among them.
    pub fn patch(&mut self, mark: Mark, skip: usize, bytes: &[u8]) {
        let start = mark.inline + skip;
        self.buffer[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes room for `bytes` more of a message that grows by pieces of that size: where there is none, for three times as much
    /// as was written too, so that little of a long message is ever moved.
    #[inline]
    pub fn make_room(&mut self, bytes: usize) {
        if self.buffer.capacity() - self.buffer.len() < bytes {
            self.buffer.reserve(bytes + 3 * self.buffer.len());
        }
    }

    /// The buffer itself, for producers that append bytes in place (a READ); the caller sees to lengths and padding.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// An unsigned integer (RFC 4506 §4.2).
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// A signed integer (RFC 4506 §4.1).
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// An unsigned hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// A hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    /// A boolean (RFC 4506 §4.4).
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Zero bytes up to the next multiple of four behind opaque data of `length` bytes.
    #[inline]
    pub fn pad(&mut self, length: usize) {
        // Copies of known length are instructions, not calls.
        match padding(length) {
            0 => {}
            1 => self.buffer.extend_from_slice(&[0]),
            2 => self.buffer.extend_from_slice(&[0; 2]),
            _ => self.buffer.extend_from_slice(&[0; 3]),
        }
    }

    /// Fixed-length opaque data (RFC 4506 §4.9).
    #[inline]
    pub fn opaque_fixed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.pad(bytes.len());
    }

    /// Variable-length opaque data (RFC 4506 §4.10).
    ///
    /// # Panics
    /// Where `bytes` is longer than 4 GiB.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("opaque data are shorter than 4 GiB"));
        self.opaque_fixed(bytes);
    }

    /// Bytes that are XDR already.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Puts `external` here, without length prefix or padding.
    pub fn external(&mut self, external: Box<dyn External>) {
        self.externals_length += external.length();
        self.externals.push((self.buffer.len(), external));
    }

    /// Calls `visit` with every piece of the message in order; empty inline pieces are left out.
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

    /// The bytes in the buffer, which are the whole message unless [`Self::has_externals`].
    #[must_use]
    pub fn inline(&self) -> &[u8] {
        &self.buffer
    }

    /// The bytes in the buffer from `mark` on; external parts are not among them.
    #[must_use]
    pub fn inline_since(&self, mark: Mark) -> &[u8] {
        &self.buffer[mark.inline..]
    }

    /// The bytes from `mark` to the end, external parts copied in.
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

    /// The whole message as one piece of memory; external parts are copied in.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        if self.externals.is_empty() {
            self.buffer.freeze()
        } else {
            self.copy_since(Mark { inline: 0, externals: 0 })
        }
    }

    /// Takes the message apart: the inline buffer, and the external parts with the offsets in it at which they belong.
    #[must_use]
    pub fn into_parts(self) -> (BytesMut, PlacedExternals) {
        (self.buffer, self.externals)
    }
}
