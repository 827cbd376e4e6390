//! The bytes of the file: header and records. See the module above.

use std::collections::HashMap;
use std::hash::Hasher;

use server::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use siphasher::sip::SipHasher13;

/// First bytes of the file; the last one is the format's version.
pub(super) const MAGIC: &[u8; 8] = b"EnfysSt\x02";
/// Bytes before the first record.
pub(super) const HEADER: usize = MAGIC.len() + 16 + 8;
/// Bytes of a record before its body.
pub(super) const RECORD_HEADER: usize = 32;
/// Bytes that a disk writes as a whole.
const SECTOR: usize = 512;
/// Bytes of a body's kind and key length.
const BODY_HEADER: usize = 3;
/// Last byte of a body: not zero, so that the end of a whole record differs from the zeros after it.
const END: u8 = 0xa5;
/// Bytes of a body without key and value.
const BODY_MIN: usize = BODY_HEADER + 1;
const BODY_MAX: usize = BODY_MIN + KEY_BYTES_MAX + VALUE_BYTES_MAX;

/// The key of a file's checksums, random for each new file: bytes that a client chose must not pass for a record.
pub(super) type Key = [u8; 16];

/// The consequence of a file that cannot be used.
pub(super) const NO_RECLAIMS: &str = "clients of the previous server cannot reclaim";

type Map = HashMap<Vec<u8>, Vec<u8>>;

/// Content of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// Nothing.
    Empty,
    /// Not a log of this version, and why.
    Unknown(&'static str),
    /// A log: its map, the number of damaged places, the bytes of a torn tail without zeros at the end, and where records can be
    /// appended.
    Log { map: Map, damaged: usize, torn: usize, tail: Tail },
}

/// The end of the records of an intact file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// The key of the file's checksums.
    pub(super) key: Key,
    /// Offset of the end.
    pub(super) end: u64,
    /// Number of the last record; 0 without records.
    pub(super) last: u64,
}

impl Scan {
    /// Returns where records can be appended; `None` for a damaged file.
    pub(super) fn tail(&self) -> Option<Tail> {
        match self {
            Self::Log { damaged: 0, tail, .. } => Some(*tail),
            _ => None,
        }
    }

    /// Returns the map, and one line about damage and its consequence.
    pub(super) fn into_map(self) -> (Map, Option<String>) {
        match self {
            // The server truncates the file if it can neither write nor remove it.
            Self::Empty => (Map::new(), Some(format!("empty: {NO_RECLAIMS}"))),
            Self::Unknown(what) => (Map::new(), Some(format!("{what}: {NO_RECLAIMS}"))),
            Self::Log { map, damaged: 0, torn: 0, .. } => (map, None),
            Self::Log { map, damaged: 0, torn, .. } => {
                (map, Some(format!("torn: ignored its last {torn} bytes, which no client has seen")))
            }
            Self::Log { map, damaged, .. } => {
                let consequence = "clients that may be affected cannot reclaim";
                (map, Some(format!("damaged in {damaged} places: {consequence}")))
            }
        }
    }
}

/// Returns the bytes that a record takes.
pub(super) fn record_bytes(key: &[u8], value: Option<&[u8]>) -> u64 {
    (RECORD_HEADER + BODY_MIN + key.len() + value.map_or(0, <[u8]>::len)) as u64
}

/// Returns the bytes that a file with this many bytes of records takes.
pub(super) fn file_bytes(records: u64) -> u64 {
    HEADER as u64 + records
}

/// Encodes a whole file, which is synced before it is used. `last` is the number of the map's last change.
pub(super) fn encode_map(map: &Map, last: u64, sums: &Key) -> Vec<u8> {
    let mut file = header(sums);
    // The next change continues these numbers.
    let first = last - map.len() as u64 + 1;
    // `StateLog` wants the order of keys.
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable();
    for (number, (key, value)) in (first..).zip(entries) {
        push_synced(&mut file, sums, number, key, value);
    }
    file
}

/// Encodes records again, as one batch.
pub(super) fn reencode_as_batch(records: &[u8], sums: &Key) -> Vec<u8> {
    let (mut batch, mut at) = (Vec::with_capacity(records.len()), 0);
    while let Some(record) = parse(sums, &records[at..], None) {
        push_to_batch(&mut batch, sums, record.number, record.key, record.value);
        at += record.bytes;
    }
    batch
}

/// Returns the header of a new file.
pub(super) fn header(key: &Key) -> Vec<u8> {
    let sum = checksum(key, &[MAGIC]).to_le_bytes();
    [&MAGIC[..], key, &sum].concat()
}

/// Appends a record to a batch, which is written and synced as a whole.
pub(super) fn push_to_batch(batch: &mut Vec<u8>, sums: &Key, number: u64, key: &[u8], value: Option<&[u8]>) {
    // If that does not fit, the record claims to begin a batch: then a loss before it counts as damage.
    let in_batch = u32::try_from(batch.len()).unwrap_or(0);
    push_record(batch, in_batch, sums, number, key, value);
}

/// Appends a record to a file that is synced before it is used.
fn push_synced(file: &mut Vec<u8>, sums: &Key, number: u64, key: &[u8], value: &[u8]) {
    push_record(file, 0, sums, number, key, Some(value));
}

fn push_record(to: &mut Vec<u8>, in_batch: u32, sums: &Key, number: u64, key: &[u8], value: Option<&[u8]>) {
    let kind = [u8::from(value.is_some())];
    let parts: [&[u8]; 5] =
        [&kind, &(key.len() as u16).to_le_bytes(), key, value.unwrap_or_default(), &[END]];
    let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
    let start = to.len();
    to.extend(number.to_le_bytes());
    to.extend((bytes as u32).to_le_bytes());
    to.extend(in_batch.to_le_bytes());
    // With the number, so that a body is valid after its own header only.
    to.extend(checksum(sums, &[&number.to_le_bytes()[..], &parts.concat()]).to_le_bytes());
    to.extend(checksum(sums, &[&to[start..start + 24]]).to_le_bytes());
    parts.iter().for_each(|part| to.extend_from_slice(part));
}

/// Reads a whole file.
pub(super) fn scan(file: &[u8]) -> Scan {
    if file.is_empty() {
        return Scan::Empty;
    }
    if file.len() < HEADER || file[..7] != MAGIC[..7] {
        return Scan::Unknown("not a state log, or damaged");
    }
    if file[7] != MAGIC[7] {
        return Scan::Unknown("of another version");
    }
    let key = *file[8..].first_chunk::<16>().unwrap_or(&[0; 16]);
    if header(&key) != file[..HEADER] {
        return Scan::Unknown("with a damaged header");
    }
    let (mut map, mut damaged, mut torn, mut at, mut last) = (Map::new(), 0, 0, HEADER, None);
    // After it are only the zeros for future records.
    let end = file.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    while at < end {
        match parse(&key, &file[at..], last) {
            Some(record) => {
                apply(&mut map, &record);
                at += record.bytes;
                last = Some(record.number);
            }
            None if is_torn(&key, file, at) => {
                torn = end - at;
                break;
            }
            None => {
                damaged += 1;
                // A lost record may have removed any of these keys.
                map.clear();
                last = None;
                at = records(&key, file, at + 1).next().map_or(end, |(next, _)| next);
            }
        }
    }
    let tail = Tail { key, end: at as u64, last: last.unwrap_or(0) };
    Scan::Log { map, damaged, torn, tail }
}

/// Returns all whole records that begin at or after `from`, with their offsets.
fn records<'f>(sums: &Key, file: &'f [u8], from: usize) -> impl Iterator<Item = (usize, Record<'f>)> {
    (from..file.len()).filter_map(move |at| Some((at, parse(sums, &file[at..], None)?)))
}

struct Record<'f> {
    number: u64,
    /// Bytes before it in its batch.
    in_batch: usize,
    key: &'f [u8],
    value: Option<&'f [u8]>,
    /// Bytes of header and body.
    bytes: usize,
}

/// Returns the whole record at the beginning of `bytes`. With `last`, its number must be the next one.
fn parse<'f>(sums: &Key, bytes: &'f [u8], last: Option<u64>) -> Option<Record<'f>> {
    let RecordHeader { number, length, in_batch } = record_header(sums, bytes)?;
    if last.is_some_and(|last| last + 1 != number) {
        return None;
    }
    let body = bytes.get(RECORD_HEADER..RECORD_HEADER + length)?;
    let sum = u64::from_le_bytes(*bytes[16..].first_chunk()?);
    if checksum(sums, &[&number.to_le_bytes()[..], body]) != sum {
        return None;
    }
    let key_bytes = usize::from(u16::from_le_bytes(*body.get(1..)?.first_chunk()?));
    let (key, value) = body[BODY_HEADER..length - 1].split_at_checked(key_bytes)?;
    let value = match body[0] {
        0 => None,
        1 => Some(value),
        _ => return None,
    };
    Some(Record { number, in_batch, key, value, bytes: RECORD_HEADER + length })
}

struct RecordHeader {
    number: u64,
    /// Bytes of the body.
    length: usize,
    in_batch: usize,
}

/// Returns the intact record header at the beginning of `bytes`.
fn record_header(sums: &Key, bytes: &[u8]) -> Option<RecordHeader> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    let length = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?) as usize;
    let in_batch = u32::from_le_bytes(*bytes.get(12..)?.first_chunk()?) as usize;
    let sum = u64::from_le_bytes(*bytes.get(24..)?.first_chunk()?);
    let is_intact = (BODY_MIN..=BODY_MAX).contains(&length) && checksum(sums, &[&bytes[..24]]) == sum;
    is_intact.then_some(RecordHeader { number, length, in_batch })
}

/// Returns whether the bytes at `at`, which are not a whole record, are the rest of a write that a crash of the machine cut off.
/// A disk writes whole sectors in any order; a missing sector is the end of the file, or still has zeros.
///
/// A damaged record of the last batch also looks torn if a whole sector of it consists of zeros.
fn is_torn(sums: &Key, file: &[u8], at: usize) -> bool {
    let length = match record_header(sums, &file[at..]) {
        Some(header) => RECORD_HEADER + header.length,
        // The missing sector is in the header.
        None => RECORD_HEADER,
    };
    let is_cut_off = at + length > file.len();
    let is_unwritten = |sector: usize| {
        let begin = sector.max(at);
        file[begin..(sector + SECTOR).min(file.len())].iter().all(|byte| *byte == 0)
    };
    let mut sectors = (at - at % SECTOR..at + length).step_by(SECTOR);
    (is_cut_off || sectors.any(is_unwritten)) && is_in_last_batch(sums, file, at)
}

/// Returns whether no batch that began after `at` was written.
fn is_in_last_batch(sums: &Key, file: &[u8], at: usize) -> bool {
    records(sums, file, at + 1).all(|(place, record)| place.saturating_sub(record.in_batch) <= at)
}

fn apply(map: &mut Map, record: &Record<'_>) {
    match record.value {
        Some(value) => map.insert(record.key.to_vec(), value.to_vec()),
        None => map.remove(record.key),
    };
}

fn checksum(key: &Key, parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new_with_key(key);
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}
