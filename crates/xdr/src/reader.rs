use bytes::Bytes;

use crate::{DecodeError, padding};

/// Decodes received bytes. Opaque data are returned as slices that share the buffer, without a copy.
#[derive(Debug, Clone)]
pub struct Reader {
    bytes: Bytes,
    position: usize,
}

impl Reader {
    /// Creates a reader at the start of `bytes`.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, position: 0 }
    }

    /// Returns the number of bytes read so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Moves back to an earlier [`Self::position`].
    ///
    /// # Panics
    /// If `position` is after the current one.
    pub fn rewind(&mut self, position: usize) {
        assert!(position <= self.position, "rewind must move backwards");
        self.position = position;
    }

    /// Returns the number of unread bytes.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Returns the unread bytes without consuming them.
    #[must_use]
    pub fn peek(&self) -> &[u8] {
        &self.bytes[self.position..]
    }

    /// Returns the bytes from `start` (an earlier [`Self::position`]) to the current position, sharing the buffer.
    ///
    /// # Panics
    /// If `start` is after the current position.
    #[must_use]
    pub fn since(&self, start: usize) -> Bytes {
        self.bytes.slice(start..self.position)
    }

    /// Returns the unread bytes without consuming them, sharing the buffer.
    #[must_use]
    pub fn unread(&self) -> Bytes {
        self.bytes.slice(self.position..)
    }

    /// Consumes and returns all unread bytes, sharing the buffer.
    #[must_use]
    pub fn rest(&mut self) -> Bytes {
        let rest = self.unread();
        self.position = self.bytes.len();
        rest
    }

    /// Checks that all bytes were read.
    ///
    /// # Errors
    /// [`DecodeError::TrailingBytes`] otherwise.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes(count)),
        }
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.bytes[self.position..].first_chunk::<N>() {
            Some(chunk) => {
                self.position += N;
                Ok(*chunk)
            }
            None => Err(DecodeError::Truncated { missing: N - self.remaining() }),
        }
    }

    /// Reads an unsigned integer (RFC 4506 §4.2).
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_be_bytes)
    }

    /// Reads a signed integer (RFC 4506 §4.1).
    #[inline]
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.take().map(i32::from_be_bytes)
    }

    /// Reads an unsigned hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_be_bytes)
    }

    /// Reads a hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.take().map(i64::from_be_bytes)
    }

    /// Reads a boolean (RFC 4506 §4.4).
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::InvalidBool(other)),
        }
    }

    /// Reads the length of a variable-length value, in bytes or elements, and checks it against its bound.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] above `max`.
    #[inline]
    pub fn length(&mut self, max: usize) -> Result<usize, DecodeError> {
        let length = self.u32()? as usize;
        if length > max { Err(DecodeError::TooLong { length, max }) } else { Ok(length) }
    }

    /// Skips `length` bytes of opaque data and their padding; returns where the data start. Does not check the content of
    /// the padding: RFC 4506 §3.0 asks senders for zeros, but real peers send other bytes.
    #[inline]
    fn skip_opaque(&mut self, length: usize) -> Result<usize, DecodeError> {
        let padded = length + padding(length);
        if padded > self.remaining() {
            return Err(DecodeError::Truncated { missing: padded - self.remaining() });
        }
        let start = self.position;
        self.position += padded;
        Ok(start)
    }

    /// Reads fixed-length opaque data (RFC 4506 §4.9).
    #[inline]
    pub fn opaque_fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let start = self.skip_opaque(N)?;
        Ok(*self.bytes[start..].first_chunk::<N>().expect("skip_opaque checked the length"))
    }

    /// Reads variable-length opaque data (RFC 4506 §4.10) of at most `max` bytes, sharing the buffer.
    #[inline]
    pub fn opaque(&mut self, max: usize) -> Result<Bytes, DecodeError> {
        let length = self.length(max)?;
        let start = self.skip_opaque(length)?;
        Ok(self.bytes.slice(start..start + length))
    }

    /// Reads opaque data like [`Self::opaque`], but returns a reference.
    #[inline]
    pub fn opaque_ref(&mut self, max: usize) -> Result<&[u8], DecodeError> {
        let length = self.length(max)?;
        let start = self.skip_opaque(length)?;
        Ok(&self.bytes[start..start + length])
    }
}
