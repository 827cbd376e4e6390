//! Record marking (RFC 5531 §11): splits the bytes of a stream into records.
//!
//! A record is one or more fragments, each after a four-byte header. The header's top bit marks the last fragment, the other
//! 31 bits are its length.
//!
//! The decoder returns a record of one fragment, as nearly all are, without a copy. It never holds more than `max_record`
//! bytes for a peer, on any path: each header is checked against the bytes received so far before any byte of its fragment
//! is stored. The number of fragments has a bound too, because empty fragments need no memory.

use bytes::{Buf, Bytes, BytesMut};
use xdr::{Mark, Writer};

/// The length in bytes of a fragment's header.
pub const HEADER_LENGTH: usize = 4;

/// The header bit that marks a record's last fragment.
pub const LAST_FRAGMENT: u32 = 0x8000_0000;

/// The maximum length in bytes of a fragment.
pub const MAX_FRAGMENT_LENGTH: usize = 0x7fff_ffff;

/// The maximum number of fragments in a record. Senders use fragments of 2 KB or more, so this allows 16 MiB.
pub const MAX_FRAGMENTS: u32 = 8192;

/// Why a stream cannot be decoded. The start of the next record is unknown, so the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// The record is too long.
    TooLong {
        /// The length in bytes of the fragments announced so far.
        announced: usize,
        /// The maximum length in bytes.
        max: usize,
    },
    /// The record has more than [`MAX_FRAGMENTS`] fragments.
    TooManyFragments,
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { announced, max } => {
                write!(f, "a record of at least {announced} bytes exceeds the limit of {max}")
            }
            Self::TooManyFragments => write!(f, "a record has more than {MAX_FRAGMENTS} fragments"),
        }
    }
}

impl std::error::Error for RecordError {}

/// The decoder's position in the stream.
#[derive(Debug)]
enum State {
    /// Before the first header of a record, or in its only fragment. All its bytes are in the caller's buffer.
    Start,
    /// Before a further header; `assembled` holds the earlier fragments.
    Header,
    /// In a fragment that lacks `missing` bytes.
    Fragment { missing: usize, last: bool },
    /// After an error.
    Failed(RecordError),
}

/// Splits a receive buffer into records.
#[derive(Debug)]
pub struct RecordDecoder {
    max_record: usize,
    state: State,
    assembled: BytesMut,
    fragments: u32,
    wanted: usize,
}

impl RecordDecoder {
    /// Creates a decoder for records of at most `max_record` bytes, headers not counted.
    #[must_use]
    pub fn new(max_record: usize) -> Self {
        Self {
            max_record,
            state: State::Start,
            assembled: BytesMut::new(),
            fragments: 0,
            wanted: HEADER_LENGTH,
        }
    }

    /// Removes the next record from the front of `buffer`; `None` if it is incomplete.
    ///
    /// Call until it returns `None`, then append received bytes to `buffer`. A record of one fragment shares `buffer`'s memory;
    /// otherwise fragments are copied out of `buffer` as they arrive.
    ///
    /// # Errors
    /// A [`RecordError`]; every later call returns the same.
    #[inline]
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, RecordError> {
        if let State::Start = self.state
            && let Some(header) = peek_header(buffer)
            && header.last
            && header.length <= self.max_record
            && buffer.len() - HEADER_LENGTH >= header.length
        {
            self.wanted = HEADER_LENGTH;
            let mut record = buffer.split_to(HEADER_LENGTH + header.length).freeze();
            record.advance(HEADER_LENGTH);
            return Ok(Some(record));
        }
        self.decode_slowly(buffer)
    }

    /// Returns the minimum number of further bytes for a record, after [`Self::decode`] returned `None`. Never more than the
    /// maximum length of a record and a header.
    #[must_use]
    pub fn bytes_wanted(&self) -> usize {
        self.wanted
    }

    /// Returns the number of bytes that the decoder holds of an incomplete record, without those in the buffer.
    #[must_use]
    pub fn bytes_assembled(&self) -> usize {
        self.assembled.len()
    }

    /// Returns whether the incomplete record has more than one fragment, so that its length is unknown. True as soon as the
    /// first header arrives without the last-fragment bit.
    #[must_use]
    pub fn is_in_fragments(&self) -> bool {
        matches!(self.state, State::Header | State::Fragment { .. })
    }

    /// Returns whether the stream may end here, between two records.
    #[must_use]
    pub fn is_between_records(&self, buffer: &BytesMut) -> bool {
        matches!(self.state, State::Start) && buffer.is_empty()
    }

    fn decode_slowly(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, RecordError> {
        loop {
            match self.state {
                State::Failed(error) => return Err(error),
                State::Start | State::Header => {
                    let Some(header) = peek_header(buffer) else {
                        self.wanted = HEADER_LENGTH - buffer.len();
                        return Ok(None);
                    };
                    self.admit(header)?;
                    if header.last && matches!(self.state, State::Start) {
                        return Ok(self.only_fragment(header.length, buffer));
                    }
                    buffer.advance(HEADER_LENGTH);
                    self.fragments += 1;
                    self.state = State::Fragment { missing: header.length, last: header.last };
                }
                State::Fragment { missing, last } => {
                    let here = missing.min(buffer.len());
                    self.assembled.extend_from_slice(&buffer[..here]);
                    buffer.advance(here);
                    if here < missing {
                        self.state = State::Fragment { missing: missing - here, last };
                        // At least a header follows a fragment that is not the last one.
                        self.wanted = missing - here + if last { 0 } else { HEADER_LENGTH };
                        return Ok(None);
                    }
                    if last {
                        return Ok(Some(self.finish_assembly()));
                    }
                    self.state = State::Header;
                }
            }
        }
    }

    /// Checks a header before any byte of its fragment is stored.
    fn admit(&mut self, header: Header) -> Result<(), RecordError> {
        // Neither operand exceeds 2^31 here, so the sum cannot overflow.
        let announced = self.assembled.len() + header.length;
        let error = if announced > self.max_record {
            RecordError::TooLong { announced, max: self.max_record }
        } else if self.fragments == MAX_FRAGMENTS {
            RecordError::TooManyFragments
        } else {
            return Ok(());
        };
        self.state = State::Failed(error);
        self.assembled = BytesMut::new();
        self.wanted = 0;
        Err(error)
    }

    fn only_fragment(&mut self, length: usize, buffer: &mut BytesMut) -> Option<Bytes> {
        let total = HEADER_LENGTH + length;
        if buffer.len() < total {
            self.wanted = total - buffer.len();
            return None;
        }
        self.wanted = HEADER_LENGTH;
        let mut record = buffer.split_to(total).freeze();
        record.advance(HEADER_LENGTH);
        Some(record)
    }

    fn finish_assembly(&mut self) -> Bytes {
        self.state = State::Start;
        self.fragments = 0;
        self.wanted = HEADER_LENGTH;
        std::mem::take(&mut self.assembled).freeze()
    }
}

#[derive(Clone, Copy)]
struct Header {
    length: usize,
    last: bool,
}

#[inline]
fn peek_header(buffer: &[u8]) -> Option<Header> {
    let word = u32::from_be_bytes(*buffer.first_chunk()?);
    Some(Header { length: (word & !LAST_FRAGMENT) as usize, last: word & LAST_FRAGMENT != 0 })
}

/// Reserves the header of a record that starts here, for [`finish_record`].
pub fn start_record(writer: &mut Writer) -> Mark {
    writer.reserve_u32()
}

/// Completes a record of one fragment that starts at `start`, the result of [`start_record`].
///
/// # Panics
/// If the record is longer than [`MAX_FRAGMENT_LENGTH`].
pub fn finish_record(writer: &mut Writer, start: Mark) {
    let length = writer.length_since(start) - HEADER_LENGTH;
    assert!(length <= MAX_FRAGMENT_LENGTH, "a record of {length} bytes does not fit one fragment");
    writer.patch_u32(start, LAST_FRAGMENT | length as u32);
}
