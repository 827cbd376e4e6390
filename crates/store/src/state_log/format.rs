//! The file's bytes: see the module above.

use std::collections::HashMap;
use std::hash::Hasher;

use server::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use siphasher::sip::SipHasher13;

/// What a file begins with; the last byte is the format's version.
pub(super) const MAGIC: &[u8; 8] = b"EnfysSt\x02";
/// Bytes before the first record.
pub(super) const HEADER: usize = MAGIC.len() + 16 + 8;
/// Bytes before a record's body.
pub(super) const HEAD: usize = 32;
/// What a disk writes at once at least.
const SECTOR: usize = 512;
/// Kind and length of the key.
const BODY_HEAD: usize = 3;
/// What a body ends with: no zero, so that a record that was written whole shows it.
const END: u8 = 0xa5;
/// Bytes of a body beside key and value.
const BODY_MIN: usize = BODY_HEAD + 1;
const BODY_MAX: usize = BODY_MIN + KEY_BYTES_MAX + VALUE_BYTES_MAX;

/// Of a file's checksums, chosen at random when it is made: what a client has put into a value shall not pass for a record.
pub(super) type Key = [u8; 16];

/// What a file costs that tells nothing.
pub(super) const NOBODY: &str = "clients of the server before reclaim nothing";

type Map = HashMap<Vec<u8>, Vec<u8>>;

/// What is in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// Nothing.
    Empty,
    /// No log of this version: what it is.
    Other(&'static str),
    /// What it says; in how many places there is no record where one should be; bytes of a torn tail, up to the last that is
    /// not zero; where records may be appended.
    Log { map: Map, damaged: usize, torn: usize, tail: Tail },
}

/// Where a sound file's records end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// Of its checksums.
    pub(super) key: Key,
    /// Bytes up to there.
    pub(super) end: u64,
    /// The last record's number; zero where there is none.
    pub(super) last: u64,
}

impl Scan {
    /// Where records may be appended; `None` where not all before can be believed.
    pub(super) fn tail(&self) -> Option<Tail> {
        match self {
            Self::Log { damaged: 0, tail, .. } => Some(*tail),
            _ => None,
        }
    }

    /// What is to be believed, and what is wrong and what that costs.
    pub(super) fn into_map(self) -> (Map, Option<String>) {
        match self {
            // The server cuts the file to nothing when it can neither write it nor take it away.
            Self::Empty => (Map::new(), Some(format!("empty; {NOBODY}"))),
            Self::Other(what) => (Map::new(), Some(format!("{what}; {NOBODY}"))),
            Self::Log { map, damaged: 0, torn: 0, .. } => (map, None),
            Self::Log { map, damaged: 0, torn, .. } => {
                (map, Some(format!("torn: its last {torn} bytes are left out; nobody was told of them")))
            }
            Self::Log { map, damaged, .. } => {
                let cost = "who may have been concerned reclaims nothing";
                (map, Some(format!("damaged in {damaged} places; {cost}")))
            }
        }
    }
}

/// Bytes that a record takes.
pub(super) fn record_bytes(key: &[u8], value: Option<&[u8]>) -> u64 {
    (HEAD + BODY_MIN + key.len() + value.map_or(0, <[u8]>::len)) as u64
}

/// Bytes that a file takes whose records take so many.
pub(super) fn file_bytes(records: u64) -> u64 {
    HEADER as u64 + records
}

/// A whole file, of which nobody reads anything before all of it is synced. `last` is the number of the last change that the map has.
pub(super) fn whole(map: &Map, last: u64, sums: &Key) -> Vec<u8> {
    let mut file = header(sums);
    // The numbers end where the next change goes on.
    let first = last - map.len() as u64 + 1;
    // In order: see `StateLog`.
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable();
    for (number, (key, value)) in (first..).zip(entries) {
        put_synced(&mut file, sums, number, key, value);
    }
    file
}

/// The same records as one batch.
pub(super) fn as_batch(records: &[u8], sums: &Key) -> Vec<u8> {
    let (mut batch, mut at) = (Vec::with_capacity(records.len()), 0);
    while let Some(record) = parse(sums, &records[at..], None) {
        put(&mut batch, sums, record.number, record.key, record.value);
        at += record.bytes;
    }
    batch
}

/// A new file's header.
pub(super) fn header(key: &Key) -> Vec<u8> {
    let sum = checksum(key, &[MAGIC]).to_le_bytes();
    [&MAGIC[..], key, &sum].concat()
}

/// Appends a record to the batch `to`, all of which is written and synced at once.
pub(super) fn put(batch: &mut Vec<u8>, sums: &Key, number: u64, key: &[u8], value: Option<&[u8]>) {
    // Where that does not fit, the record says that it began a batch: then what is lost before it is damage.
    let in_batch = u32::try_from(batch.len()).unwrap_or(0);
    put_behind(batch, in_batch, sums, number, key, value);
}

/// Appends a record to a file that nobody reads before all of it is synced.
fn put_synced(file: &mut Vec<u8>, sums: &Key, number: u64, key: &[u8], value: &[u8]) {
    put_behind(file, 0, sums, number, key, Some(value));
}

fn put_behind(to: &mut Vec<u8>, in_batch: u32, sums: &Key, number: u64, key: &[u8], value: Option<&[u8]>) {
    let kind = [u8::from(value.is_some())];
    let parts: [&[u8]; 5] =
        [&kind, &(key.len() as u16).to_le_bytes(), key, value.unwrap_or_default(), &[END]];
    let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
    let start = to.len();
    to.extend(number.to_le_bytes());
    to.extend((bytes as u32).to_le_bytes());
    to.extend(in_batch.to_le_bytes());
    // The number is in it, so that a body cannot stand behind another head.
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
        return Scan::Other("no log of this server's, or a damaged one");
    }
    if file[7] != MAGIC[7] {
        return Scan::Other("of another version");
    }
    let key = *file[8..].first_chunk::<16>().unwrap_or(&[0; 16]);
    if header(&key) != file[..HEADER] {
        return Scan::Other("damaged at its beginning");
    }
    let (mut map, mut damaged, mut torn, mut at, mut last) = (Map::new(), 0, 0, HEADER, None);
    // Behind it there is nothing but what was kept free for records to come.
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
                // What was lost may have taken back anything that was said so far.
                map.clear();
                last = None;
                at = records(&key, file, at + 1).next().map_or(end, |(next, _)| next);
            }
        }
    }
    let tail = Tail { key, end: at as u64, last: last.unwrap_or(0) };
    Scan::Log { map, damaged, torn, tail }
}

/// Whole records that begin at `from` or anywhere behind it, and where.
fn records<'f>(sums: &Key, file: &'f [u8], from: usize) -> impl Iterator<Item = (usize, Record<'f>)> {
    (from..file.len()).filter_map(move |at| Some((at, parse(sums, &file[at..], None)?)))
}

struct Record<'f> {
    number: u64,
    /// Bytes before it that were written with it.
    in_batch: usize,
    key: &'f [u8],
    value: Option<&'f [u8]>,
    /// With its head.
    bytes: usize,
}

/// A whole record at the beginning of `bytes`, the one behind that of the number `last`.
fn parse<'f>(sums: &Key, bytes: &'f [u8], last: Option<u64>) -> Option<Record<'f>> {
    let Head { number, length, in_batch } = head(sums, bytes)?;
    if last.is_some_and(|last| last + 1 != number) {
        return None;
    }
    let body = bytes.get(HEAD..HEAD + length)?;
    let sum = u64::from_le_bytes(*bytes[16..].first_chunk()?);
    if checksum(sums, &[&number.to_le_bytes()[..], body]) != sum {
        return None;
    }
    let key_bytes = usize::from(u16::from_le_bytes(*body.get(1..)?.first_chunk()?));
    let (key, value) = body[BODY_HEAD..length - 1].split_at_checked(key_bytes)?;
    let value = match body[0] {
        0 => None,
        1 => Some(value),
        _ => return None,
    };
    Some(Record { number, in_batch, key, value, bytes: HEAD + length })
}

struct Head {
    number: u64,
    /// Of the body.
    length: usize,
    in_batch: usize,
}

/// A sound head at the beginning of `bytes`.
fn head(sums: &Key, bytes: &[u8]) -> Option<Head> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    let length = u32::from_le_bytes(*bytes.get(8..)?.first_chunk()?) as usize;
    let in_batch = u32::from_le_bytes(*bytes.get(12..)?.first_chunk()?) as usize;
    let sum = u64::from_le_bytes(*bytes.get(24..)?.first_chunk()?);
    let is_sound = (BODY_MIN..=BODY_MAX).contains(&length) && checksum(sums, &[&bytes[..24]]) == sum;
    is_sound.then_some(Head { number, length, in_batch })
}

/// Whether what begins at `at`, and is no whole record, is what the machine's end leaves of a write that it cut off: a disk
/// writes whole sectors, in any order, and where one was not written there is the file's end or are the zeros of before.
///
/// A damaged record of the last write looks like that too where a whole sector of it is zeros by itself.
fn is_torn(sums: &Key, file: &[u8], at: usize) -> bool {
    let length = match head(sums, &file[at..]) {
        Some(head) => HEAD + head.length,
        // Not even the head is whole: it is what was not written.
        None => HEAD,
    };
    let is_cut_off = at + length > file.len();
    let is_unwritten = |sector: usize| {
        let begin = sector.max(at);
        file[begin..(sector + SECTOR).min(file.len())].iter().all(|byte| *byte == 0)
    };
    let mut sectors = (at - at % SECTOR..at + length).step_by(SECTOR);
    (is_cut_off || sectors.any(is_unwritten)) && is_in_last_batch(sums, file, at)
}

/// Whether nothing was written that began when what is at `at` was synced.
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
