use bytes::Bytes;

use crate::{DecodeError, padding};

/// Walks over received bytes. Opaque data come out as slices that share the buffer: nothing is copied.
#[derive(Debug, Clone)]
pub struct Reader {
    bytes: Bytes,
    position: usize,
}

impl Reader {
    /// Starts at the first of `bytes`.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes, position: 0 }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Goes back to a former [`Self::position`].
    ///
    /// # Panics
    /// Where `position` lies behind the present one.
    pub fn rewind(&mut self, position: usize) {
        assert!(position <= self.position, "a reader goes back only");
        self.position = position;
    }

    /// Bytes not yet read.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// The unread bytes, without moving on.
    #[must_use]
    pub fn peek(&self) -> &[u8] {
        &self.bytes[self.position..]
    }

    /// The bytes from `start` (a former [`Self::position`]) to here, sharing the buffer.
    ///
    /// # Panics
    /// Where `start` lies behind the present position.
    #[must_use]
    pub fn since(&self, start: usize) -> Bytes {
        self.bytes.slice(start..self.position)
    }

    /// All unread bytes, sharing the buffer; they stay unread.
    #[must_use]
    pub fn unread(&self) -> Bytes {
        self.bytes.slice(self.position..)
    }

    /// Takes all unread bytes, sharing the buffer.
    #[must_use]
    pub fn rest(&mut self) -> Bytes {
        let rest = self.unread();
        self.position = self.bytes.len();
        rest
    }

    /// Confirms that nothing is left.
    ///
    /// # Errors
    /// [`DecodeError::TrailingBytes`] where something is.
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

    /// An unsigned integer (RFC 4506 §4.2).
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_be_bytes)
    }

    /// A signed integer (RFC 4506 §4.1).
    #[inline]
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.take().map(i32::from_be_bytes)
    }

    /// An unsigned hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_be_bytes)
    }

    /// A hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.take().map(i64::from_be_bytes)
    }

    /// A boolean (RFC 4506 §4.4).
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::InvalidBool(other)),
        }
    }

    /// The length of a variable-length value (bytes or elements), checked against its bound.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] above `max`.
    #[inline]
    pub fn length(&mut self, max: usize) -> Result<usize, DecodeError> {
        let length = self.u32()? as usize;
        if length > max { Err(DecodeError::TooLong { length, max }) } else { Ok(length) }
    }

    /// Moves over `length` bytes of opaque data and their padding; returns where they start.
    /// The content of the padding is not checked: RFC 4506 §3.0 asks senders for zeros, and real peers send other bytes.
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

    /// Fixed-length opaque data (RFC 4506 §4.9).
    #[inline]
    pub fn opaque_fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let start = self.skip_opaque(N)?;
        Ok(*self.bytes[start..].first_chunk::<N>().expect("length was checked"))
    }

    /// Variable-length opaque data (RFC 4506 §4.10) of at most `max` bytes, sharing the buffer.
    #[inline]
    pub fn opaque(&mut self, max: usize) -> Result<Bytes, DecodeError> {
        let length = self.length(max)?;
        let start = self.skip_opaque(length)?;
        Ok(self.bytes.slice(start..start + length))
    }

    /// As [`Self::opaque`], borrowed: for values that are looked at once.
    #[inline]
    pub fn opaque_ref(&mut self, max: usize) -> Result<&[u8], DecodeError> {
        let length = self.length(max)?;
        let start = self.skip_opaque(length)?;
        Ok(&self.bytes[start..start + length])
    }
}
