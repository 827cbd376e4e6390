//! The bytes of the log's file.
//!
//! The file has two header blocks and a ring of blocks. A frame has the records of one group commit; it begins at a block of
//! the ring and takes whole blocks, so that writing a frame changes no block of an earlier one. Frames are numbered and
//! follow each other; the header names the first one that is needed (the tail). A new header replaces the older of the two.
//!
//! A frame is written only when the one before it is on stable storage. So a crash can tear only the last frame, and the
//! server has not answered its changes. Its checksum is wrong, and the reader leaves it out. A wrong frame that is followed by
//! another one was damaged otherwise, and the reader refuses the log. The checksums have a key that is random for each log, so that bytes
//! that a client wrote cannot pass for a frame. The head of a frame has a checksum of its own: the length of such bytes is
//! not believed, so reading a log takes time in proportion to its size.

use std::hash::Hasher;

use bytes::Bytes;
use siphasher::sip::SipHasher13;

use super::record::Record;

/// Bytes of a block. A disk writes each whole, or at least does not change another one.
pub const BLOCK_BYTES: usize = 4096;
/// The smallest file of a log.
pub const LOG_BYTES_MIN: u64 = 1 << 20;
/// The largest file of a log: it is read into memory at a start.
pub const LOG_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of bytes of the records of a frame.
pub(super) const FRAME_BYTES_MAX: usize = 4 << 20;

/// First bytes of the file; the last one is the format's version.
const MAGIC: &[u8; 8] = b"EnfysJn\x01";
const HEADER_BLOCKS: u64 = 2;
/// Bytes of a header before its checksum.
const HEADER_BYTES: usize = 8 + 16 + 16 + 16 + 4 * 8;
/// Bytes of a frame before its records.
const FRAME_HEADER_BYTES: usize = 40;

/// A position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The block, counted from the log's creation; the ring is as long as the remainder says.
    pub(super) at: u64,
    /// The number of the frame there.
    pub(super) number: u64,
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The file system whose changes it has.
    pub(super) identity: [u8; 16],
    /// The key of the checksums.
    pub(super) key: [u8; 16],
    /// The boot of the machine in which it was written; zeros if the records must be repeated anyway.
    pub(super) boot: [u8; 16],
    /// Blocks of the ring.
    pub(super) blocks: u64,
    /// Grows with each header.
    pub(super) generation: u64,
    /// The first frame that is needed, or the end.
    pub(super) tail: Place,
}

/// The content of a log's file.
#[derive(Debug)]
pub enum Scan {
    /// Nothing: it was never used.
    Empty,
    /// It is no log of this version, or too damaged to say more.
    Unknown(&'static str),
    /// A log.
    Log(Found),
}

/// A log of an earlier server.
#[derive(Debug)]
pub struct Found {
    pub(super) header: Header,
    pub(super) end: Place,
    /// The records, in their order. Those behind a damage are missing.
    pub records: Vec<Record>,
    /// Whether the last frame was torn, and left out.
    pub is_torn: bool,
    /// Whether it is damaged otherwise, so that records that were answered may be missing.
    pub is_damaged: bool,
}

impl Found {
    /// Returns the identity of the file system whose changes it has.
    #[must_use]
    pub fn identity(&self) -> [u8; 16] {
        self.header.identity
    }

    /// Returns the random number of the log.
    #[must_use]
    pub fn key(&self) -> [u8; 16] {
        self.header.key
    }

    /// Returns whether the machine may have crashed since, so that the records must be repeated. Otherwise the kernel still
    /// has all changes.
    #[must_use]
    pub fn needs_replay(&self, boot: [u8; 16]) -> bool {
        self.header.boot != boot || boot == [0; 16]
    }
}

impl Header {
    pub(super) fn new(identity: [u8; 16], key: [u8; 16], boot: [u8; 16], file_bytes: u64) -> Self {
        let blocks = file_bytes / BLOCK_BYTES as u64 - HEADER_BLOCKS;
        Self { identity, key, boot, blocks, generation: 0, tail: Place { at: 0, number: 1 } }
    }

    /// Returns the place and the bytes of the header in the file.
    pub(super) fn encode(&self) -> (u64, Vec<u8>) {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(self.identity);
        bytes.extend(self.key);
        bytes.extend(self.boot);
        for number in [self.blocks, self.generation, self.tail.at, self.tail.number] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(checksum(&self.key, &[&bytes]).to_le_bytes());
        bytes.resize(BLOCK_BYTES, 0);
        (self.generation % HEADER_BLOCKS * BLOCK_BYTES as u64, bytes)
    }

    fn parse(block: &[u8]) -> Option<Self> {
        let content = block.get(..HEADER_BYTES)?;
        let array = |at: usize| content[at..].first_chunk::<16>().copied();
        let number = |at: usize| content[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let header = Self {
            identity: array(8)?,
            key: array(24)?,
            boot: array(40)?,
            blocks: number(56)?,
            generation: number(64)?,
            tail: Place { at: number(72)?, number: number(80)? },
        };
        let sum = u64::from_le_bytes(*block[HEADER_BYTES..].first_chunk()?);
        (content.starts_with(MAGIC) && checksum(&header.key, &[content]) == sum).then_some(header)
    }
}

/// Returns the number of blocks that a frame with this many bytes of records takes.
pub(super) fn frame_blocks(records: usize) -> u64 {
    (FRAME_HEADER_BYTES + records).div_ceil(BLOCK_BYTES) as u64
}

/// Encodes a frame.
pub(super) fn encode_frame(header: &Header, number: u64, records: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(frame_blocks(records.len()) as usize * BLOCK_BYTES);
    for value in [number, header.generation, records.len() as u64] {
        frame.extend(value.to_le_bytes());
    }
    frame.extend(checksum(&header.key, &[&frame, records]).to_le_bytes());
    frame.extend(checksum(&header.key, &[&frame]).to_le_bytes());
    frame.extend(records);
    frame.resize(frame_blocks(records.len()) as usize * BLOCK_BYTES, 0);
    frame
}

/// Cuts a frame where the ring ends. Returns the pieces with their places in the file.
pub(super) fn place_in_ring(header: &Header, at: u64, mut frame: Vec<u8>) -> Vec<(u64, Vec<u8>)> {
    let first = at % header.blocks;
    let room = ((header.blocks - first) as usize) * BLOCK_BYTES;
    let rest = if frame.len() > room { frame.split_off(room) } else { Vec::new() };
    let offset = |block: u64| (HEADER_BLOCKS + block) * BLOCK_BYTES as u64;
    [(offset(first), frame), (offset(0), rest)].into_iter().filter(|(_, piece)| !piece.is_empty()).collect()
}

/// Reads a whole file.
#[must_use]
pub fn scan(file: &[u8]) -> Scan {
    let headers = HEADER_BLOCKS as usize * BLOCK_BYTES;
    if file.iter().take(headers).all(|byte| *byte == 0) {
        return Scan::Empty;
    }
    let slots = file.chunks_exact(BLOCK_BYTES).take(HEADER_BLOCKS as usize);
    let Some(header) = slots.filter_map(Header::parse).max_by_key(|header| header.generation) else {
        let is_other = file.starts_with(&MAGIC[..7]) && file.get(7) != MAGIC.last();
        return Scan::Unknown(if is_other {
            "it is of another version"
        } else {
            "it is not a journal, or its header is damaged"
        });
    };
    let ring = &file[headers..];
    if header.blocks == 0 || header.blocks.checked_mul(BLOCK_BYTES as u64) != Some(ring.len() as u64) {
        return Scan::Unknown("its size has changed");
    }
    Scan::Log(scan_ring(header, ring))
}

fn scan_ring(header: Header, ring: &[u8]) -> Found {
    let (mut end, mut records) = (header.tail, Vec::new());
    let mut is_damaged = false;
    while end.at - header.tail.at < header.blocks {
        let Some(frame) = Frame::parse(&header, ring, end.at) else { break };
        if frame.number != end.number {
            break;
        }
        // A frame of a newer header than the newest: that header was lost.
        is_damaged |= frame.generation > header.generation;
        match Record::decode_all(&frame.records) {
            Some(more) => records.extend(more),
            None => is_damaged = true,
        }
        end = Place { at: end.at + frame_blocks(frame.records.len()), number: end.number + 1 };
    }
    let later =
        (0..header.blocks).filter_map(|block| Frame::parse(&header, ring, block)).map(|frame| frame.number);
    let last = later.max().filter(|last| *last > end.number);
    is_damaged |= last.is_some();
    let is_torn = !is_damaged && begins_frame(&header, ring, end);
    // If the loss is accepted, frames behind the damage must not be taken for later ones of the log that goes on.
    end.number = last.map_or(end.number, |last| last + 1);
    Found { header, end, records, is_torn, is_damaged }
}

/// Returns whether the block at the end of the log names itself the next frame.
fn begins_frame(header: &Header, ring: &[u8], end: Place) -> bool {
    let begin = (end.at % header.blocks) as usize * BLOCK_BYTES;
    ring[begin..].first_chunk().is_some_and(|number| u64::from_le_bytes(*number) == end.number)
}

/// A whole frame.
struct Frame {
    number: u64,
    /// The generation of the newest header when it was written.
    generation: u64,
    records: Bytes,
}

impl Frame {
    /// Returns the whole frame that begins at the block `at`.
    fn parse(header: &Header, ring: &[u8], at: u64) -> Option<Self> {
        let begin = (at % header.blocks) as usize * BLOCK_BYTES;
        let (head, rest) = ring[begin..].split_at(FRAME_HEADER_BYTES);
        let value = |at: usize| head[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let (number, generation, length) = (value(0)?, value(8)?, usize::try_from(value(16)?).ok()?);
        if checksum(&header.key, &[&head[..32]]) != value(32)? {
            return None;
        }
        if length > FRAME_BYTES_MAX || FRAME_HEADER_BYTES + length > ring.len() || number == 0 {
            return None;
        }
        let straight = &rest[..length.min(rest.len())];
        let wrapped = &ring[..length - straight.len()];
        if checksum(&header.key, &[&head[..24], straight, wrapped]) != value(24)? {
            return None;
        }
        Some(Self { number, generation, records: [straight, wrapped].concat().into() })
    }
}

fn checksum(key: &[u8; 16], parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(key);
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}
