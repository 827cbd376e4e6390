//! Record marking (RFC 5531 §11): a stream's bytes ↔ records.
//!
//! A record is one or more fragments, each behind a four-byte header: the top bit says that it is the last one, the
//! other 31 bits are its length.
//!
//! What the decoder must do: hand out a record of one fragment, which is nearly every record there is, without a copy; let no
//! peer make it hold more than `max_record` bytes, nor keep it busy without end, on any path. So each header is checked
//! as soon as it is read and before a byte of its fragment is kept, against what the record has already taken; and
//! the number of fragments is bounded, because empty ones cost no bytes.

use bytes::{Buf, Bytes, BytesMut};
use xdr::{Mark, Writer};

/// Bytes of a fragment's header.
pub const HEADER_LENGTH: usize = 4;

/// The header's bit of a record's last fragment.
pub const LAST_FRAGMENT: u32 = 0x8000_0000;

/// The greatest length in bytes that a fragment's header can express.
pub const MAX_FRAGMENT_LENGTH: usize = 0x7fff_ffff;

/// The greatest number of fragments of one record. Senders that fragment use 2 KB or more, so that this is 16 MiB of them.
pub const MAX_FRAGMENTS: u32 = 8192;

/// Why a stream cannot be read on. Where the next record would start is unknown: the connection must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// The record would be longer than allowed.
    TooLong {
        /// Bytes of the record, as far as its fragments are announced.
        announced: usize,
        /// The greatest length allowed.
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

/// Where the decoder is in the stream.
#[derive(Debug)]
enum State {
    /// In front of the first header of a record, or in its only fragment: all its bytes are still in the buffer.
    Start,
    /// In front of a further header; `assembled` holds the fragments before.
    Header,
    /// In a fragment of which `missing` bytes have not come yet.
    Fragment { missing: usize, last: bool },
    /// Given up.
    Failed(RecordError),
}

/// Cuts a receive buffer into records.
#[derive(Debug)]
pub struct RecordDecoder {
    max_record: usize,
    state: State,
    assembled: BytesMut,
    fragments: u32,
    wanted: usize,
}

impl RecordDecoder {
    /// A decoder for a new connection, whose records have at most `max_record` bytes, headers not counted.
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

    /// Takes the next record off the front of `buffer`; `None` where it is not complete yet.
    ///
    /// Call until `None`, then append what the peer sends next. Where the record is one fragment it shares `buffer`'s
    /// memory and nothing is copied; otherwise its fragments are moved out of `buffer` as they come.
    ///
    /// # Errors
    /// A [`RecordError`], from then on always the same.
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

    /// At least so many bytes must follow those in the buffer before [`Self::decode`], which just returned `None`, can
    /// return a record: what to reserve. Never more than the limit on a record and a header.
    #[must_use]
    pub fn bytes_wanted(&self) -> usize {
        self.wanted
    }

    /// Bytes that it holds of the record that is arriving, beside those in the buffer: its fragments before this one, and this
    /// one's as far as it came.
    #[must_use]
    pub fn bytes_assembled(&self) -> usize {
        self.assembled.len()
    }

    /// Whether the record that is arriving comes in more than one fragment, so that nobody knows yet how long it gets. It is so
    /// from the first header on that is not a last one's, before anything behind it has come.
    #[must_use]
    pub fn is_in_fragments(&self) -> bool {
        matches!(self.state, State::Header | State::Fragment { .. })
    }

    /// Whether the stream may end here: between records, as far as `buffer` has been looked at.
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
                        // A fragment that is not the last one is followed by a header at least.
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

    /// Checks a header before anything of its fragment is kept.
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

/// Leaves room for the header of a record that starts here; [`finish_record`] fills it in.
pub fn start_record(writer: &mut Writer) -> Mark {
    writer.reserve_u32()
}

/// Makes what was written since `start` (from [`start_record`]) a record of one fragment.
///
/// # Panics
/// Where the record is longer than [`MAX_FRAGMENT_LENGTH`].
pub fn finish_record(writer: &mut Writer, start: Mark) {
    let length = writer.length_since(start) - HEADER_LENGTH;
    assert!(length <= MAX_FRAGMENT_LENGTH, "a record of {length} bytes does not fit one fragment");
    writer.patch_u32(start, LAST_FRAGMENT | length as u32);
}
