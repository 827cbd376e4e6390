//! The log of calls that are not idempotent, in the state directory ([`server::ReplyLog`]).
//!
//! A file of fixed size, mapped into memory, is a ring of records. What is in it survives the end of the process, however
//! that comes, because the kernel has it. Here nothing is ever synced: the end of the machine may have lost the last records, or
//! earlier ones only, as well as the changes that they vouch for. A log of before the machine's start is therefore not read,
//! unless it says that it was [synced](crate::stable_log).
//! Each record has a checksum too, and what is no whole record is left out.
//!
//! ```text
//! file    header (64 bytes: magic with version (8), the machine's start (16), key of checksums (16), 1 where it is synced, zeros), then cells of 64 bytes
//! record  number (8), length (4), content, checksum of all that (4), zeros to the end of its last cell
//! ```
//!
//! The checksum is CRC-32C (RFC 3720 appendix B.4), which the processor does, from a start that is made of the key. A keyed hash
//! of 64 bits was one instruction in eleven of all that the server executed for a CREATE or REMOVE, each waiting for the one before.
//!
//! A record never goes over the end of the file, and before it overwrites another one, what will be left of that one is
//! cleared: each cell of a sound file is zero or part of a whole record, and anything else is damage.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use memmap2::MmapMut;
use parking_lot::Mutex;
use server::{RECORD_BYTES_MAX, prefetch};

use crate::files::{error_text, open_file};
use crate::{disk_space, mapping};

/// Bytes of the file. Some 25,000 calls have their records in it: what is under way when the server is killed began
/// a few seconds before.
const FILE_BYTES: usize = 16 << 20;
/// Bytes of a cell, the least that a record takes; also of the file's header.
const CELL: usize = 64;
const CELLS: usize = FILE_BYTES / CELL - 1;
/// Number and length before a record's content.
const PREFIX: usize = 8 + 4;
/// Checksum behind it, so that what it is of lies in one piece.
const SUFFIX: usize = 4;
/// Cells of the longest record.
const CELLS_MAX: usize = (PREFIX + RECORD_BYTES_MAX + SUFFIX).div_ceil(CELL);
/// What the file begins with; the last byte is the format's version.
const MAGIC: &[u8; 8] = b"EnfysRp\x04";
/// Bytes behind the last record that are brought near: an operation's two records, and most replies.
const PREFETCHED: usize = 8 * CELL;
/// Where the header has the [boot ID](boot_id) and the [key](Key).
const BOOT_AT: usize = MAGIC.len();
const KEY_AT: usize = BOOT_AT + 16;
/// Where it has a 1 if whoever uses the log syncs it.
const SYNCED_AT: usize = KEY_AT + 16;
/// Bytes of the header in use.
const HEADER: usize = SYNCED_AT + 1;
const _: () = assert!(HEADER <= CELL);
/// Of a log's checksums, chosen at random when it is made: a reply may have bytes in it that a client chose, and if its
/// record is torn, they shall not pass for records of their own. Nobody is told a checksum, so that one in four thousand million
/// guesses is right, and only a kill in the midst of a copy tears a record.
type Key = [u8; 16];
/// Bytes of the file that are read at a time when it is opened; more than a record's.
const WINDOW: usize = 256 << 10;
const _: () = assert!(WINDOW > CELLS_MAX * CELL && WINDOW.is_multiple_of(CELL));

/// The log in use.
#[derive(Debug)]
pub struct ReplyFile {
    ring: Mutex<Ring>,
}

/// What a log told when it was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The records, oldest first.
    pub records: Vec<Vec<u8>>,
    /// One line that says what could not be read, if anything.
    pub damage: Option<String>,
    /// One line that says so where the log was of before the machine's start, and not read for that.
    pub outlived: Option<String>,
}

/// What a log outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process.
    Process,
    /// That of the machine too, since whoever uses it syncs it.
    Machine,
}

/// What is in a file.
enum Scanned {
    /// Nothing.
    Empty,
    /// No log of this version: what it is.
    Other(&'static str),
    /// A log of before the machine's start.
    Outlived,
    /// All whole records, oldest first; in how many places there is something else.
    Log { key: Key, found: Vec<Found>, damaged: usize },
}

struct Ring {
    map: MmapMut,
    /// [Where](checksum_start) its checksums start.
    start: u32,
    /// The cell where the next record goes.
    head: usize,
    /// Number of the next record; they start with 1.
    next: u64,
    /// Where records lie and how many cells they have, from the one that is overwritten first.
    live: VecDeque<(u32, u32)>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("head", &self.head).field("next", &self.next).finish_non_exhaustive()
    }
}

/// A record as it lies in the file.
#[derive(Debug, Clone, Copy)]
struct Found {
    number: u64,
    cell: usize,
    bytes: usize,
}

impl ReplyFile {
    /// Opens the log, or makes it. Whatever is in the file, the log can be used afterwards.
    ///
    /// # Errors
    /// One line that names the file, where it cannot be had or there is no space for it.
    pub fn open(path: &Path) -> Result<(Self, Recovered), String> {
        Self::open_as(path, Durability::Process).map(|(log, _, recovered)| (log, recovered))
    }

    /// The same, for who keeps the log so, with its file.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_as(path: &Path, durability: Durability) -> Result<(Self, File, Recovered), String> {
        let open = || -> io::Result<_> {
            let file =
                open_file(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))?;
            let said = |what: &str| Some(format!("{}: {what}", path.display()));
            let mut recovered = Recovered::default();
            let (key, found, damaged) = match scan(&file)? {
                Scanned::Log { key, found, damaged } => (key, found, damaged),
                other => {
                    match other {
                        Scanned::Other(what) => recovered.damage = said(&format!("{what}: begun anew")),
                        Scanned::Outlived => {
                            recovered.outlived = said("of before the machine's start: begun anew");
                        }
                        Scanned::Empty | Scanned::Log { .. } => {}
                    }
                    (make(&file)?, Vec::new(), 0)
                }
            };
            recovered.records = found.iter().map(|found| read(&file, found)).collect::<io::Result<_>>()?;
            let is_synced = u8::from(durability == Durability::Machine);
            file.write_all_at(&[&boot_id(), &key[..], &[is_synced]].concat(), BOOT_AT as u64)?;
            let mut ring = Ring::new(mapping::map(&file, FILE_BYTES)?, key, &found);
            if damaged > 0 {
                ring.clear_remains();
                recovered.damage = said(&format!("damaged in {damaged} places, which are left out"));
            }
            Ok((Self { ring: Mutex::new(ring) }, file, recovered))
        };
        open().map_err(|error| format!("{}: {}", path.display(), error_text(&error)))
    }
}

impl server::ReplyLog for ReplyFile {
    fn append(&self, parts: &[&[u8]]) {
        self.ring.lock().append(parts);
    }
}

impl Ring {
    fn new(map: MmapMut, key: Key, found: &[Found]) -> Self {
        let head = found.last().map_or(0, |last| last.cell + cells(last.bytes));
        let next = found.last().map_or(1, |last| last.number + 1);
        // In the order in which the ring comes upon them.
        let mut live: Vec<_> =
            found.iter().map(|found| (found.cell as u32, cells(found.bytes) as u32)).collect();
        live.sort_unstable();
        let behind = live.partition_point(|(cell, _)| (*cell as usize) < head);
        live.rotate_left(behind);
        Self { map, start: checksum_start(&key), head, next, live: live.into() }
    }

    fn append(&mut self, parts: &[&[u8]]) {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let cells = cells(bytes);
        if bytes > RECORD_BYTES_MAX {
            return;
        }
        if self.head + cells > CELLS {
            self.give_up(self.head, CELLS);
            self.zero(self.head, CELLS);
            self.head = 0;
        }
        let behind = self.head + cells;
        let end = self.give_up(self.head, behind);
        self.zero(behind, end);
        let (number, start) = (self.next, CELL + self.head * CELL);
        let place = &mut self.map[start..start + cells * CELL];
        place[..8].copy_from_slice(&number.to_le_bytes());
        place[8..PREFIX].copy_from_slice(&(bytes as u32).to_le_bytes());
        let mut at = PREFIX;
        for part in parts {
            place[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let (whole, rest) = place.split_at_mut(at);
        let (sum, rest) = rest.split_at_mut(SUFFIX);
        sum.copy_from_slice(&checksum(self.start, whole));
        rest.fill(0);
        self.live.push_back((self.head as u32, cells as u32));
        (self.head, self.next) = (self.head + cells, number + 1);
        // The next records' place, which nobody has touched since the ring came by: of that one store would wait for memory, and
        // with it every locked instruction behind it.
        let (next, most) = (CELL + self.head * CELL, self.map.len());
        prefetch(&self.map[next..most.min(next + PREFETCHED)]);
    }

    /// Gives up the records that begin in these cells; returns where the last of them ends, or `to`.
    fn give_up(&mut self, from: usize, to: usize) -> usize {
        let mut end = to;
        while let Some((cell, cells)) = self.live.front().copied() {
            let (start, behind) = (cell as usize, (cell + cells) as usize);
            if start < from || start >= to {
                break;
            }
            self.live.pop_front();
            end = end.max(behind);
        }
        end
    }

    fn zero(&mut self, from: usize, to: usize) {
        self.map[CELL + from * CELL..CELL + to * CELL].fill(0);
    }

    /// Clears every cell that is part of no record.
    fn clear_remains(&mut self) {
        let mut live: Vec<_> = self.live.iter().copied().collect();
        live.sort_unstable();
        let mut from = 0;
        for (cell, cells) in live.into_iter().chain([(CELLS as u32, 0)]) {
            self.zero(from, cell as usize);
            from = (cell + cells) as usize;
        }
    }
}

/// Makes an empty log of what is there; the key of its checksums.
fn make(file: &File) -> io::Result<Key> {
    // Nothing of what was there is to be seen, and a header only where all the rest is there.
    if file.metadata()?.len() == FILE_BYTES as u64 {
        // It has its space: on a disk that is full now, there would be none.
        disk_space::zero(file, 0, FILE_BYTES as u64)?;
    } else {
        take_space(file)?;
    }
    let mut key = Key::default();
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
    file.write_all_at(&[&MAGIC[..], &boot_id(), &key].concat(), 0)?;
    Ok(key)
}

/// Makes the file one of zeros that has all its space.
fn take_space(file: &File) -> io::Result<()> {
    file.set_len(0)?;
    // A full disk would otherwise be a SIGBUS.
    disk_space::overwrite_in_place(file);
    let taken = disk_space::allocate(file, FILE_BYTES as u64).and_then(|()| file.set_len(FILE_BYTES as u64));
    // What was got of it is given back.
    taken.inspect_err(|_| _ = file.set_len(0))
}

fn scan(file: &File) -> io::Result<Scanned> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(Scanned::Empty);
    }
    let mut header = [0; HEADER];
    let read = file.read_at(&mut header, 0)?;
    let (magic, rest) = header.split_at(BOOT_AT);
    if read < HEADER || length != FILE_BYTES as u64 || magic != MAGIC {
        let what = if magic[..7] == MAGIC[..7] && magic[7] != MAGIC[7] {
            "of another version"
        } else {
            "no log of calls, or a damaged one"
        };
        return Ok(Scanned::Other(what));
    }
    let (boot, rest) = rest.split_at(KEY_AT - BOOT_AT);
    let (key, is_synced) = rest.split_at(SYNCED_AT - KEY_AT);
    // Where the kernel does not tell its start, each may be another.
    let is_of_now = boot == boot_id() && boot != [0; 16];
    if !is_of_now && is_synced != [1] {
        return Ok(Scanned::Outlived);
    }
    let key = Key::try_from(key).unwrap_or_default();
    let checksums = checksum_start(&key);
    let (mut found, mut damaged) = (Vec::new(), 0);
    let (mut window, mut cell, mut was_damaged) = (vec![0; WINDOW], 0, false);
    while cell < CELLS {
        let want = WINDOW.min((CELLS - cell) * CELL);
        file.read_exact_at(&mut window[..want], (CELL + cell * CELL) as u64)?;
        // A record that may go on behind the window is looked at with the next one.
        let last = if cell + want / CELL == CELLS { want } else { want - CELLS_MAX * CELL };
        let mut at = 0;
        while at < last {
            let here = &window[at..want];
            if let Some((number, bytes)) = parse(checksums, here) {
                found.push(Found { number, cell: cell + at / CELL, bytes });
                at += cells(bytes) * CELL;
                was_damaged = false;
                continue;
            }
            let is_damaged = here[..CELL].iter().any(|byte| *byte != 0);
            damaged += usize::from(is_damaged && !was_damaged);
            was_damaged = is_damaged;
            at += CELL;
        }
        cell += at / CELL;
    }
    found.sort_unstable_by_key(|found| found.number);
    Ok(Scanned::Log { key, found, damaged })
}

/// Number and length of a whole record at the beginning of `bytes`.
fn parse(checksums: u32, bytes: &[u8]) -> Option<(u64, usize)> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    let length = u32::from_le_bytes(*bytes[8..].first_chunk()?) as usize;
    if number == 0 || length > RECORD_BYTES_MAX {
        return None;
    }
    let (whole, rest) = bytes.split_at_checked(PREFIX + length)?;
    (rest.get(..SUFFIX)? == checksum(checksums, whole)).then_some((number, length))
}

fn read(file: &File, found: &Found) -> io::Result<Vec<u8>> {
    let mut record = vec![0; found.bytes];
    file.read_exact_at(&mut record, (CELL + found.cell * CELL + PREFIX) as u64)?;
    Ok(record)
}

fn cells(bytes: usize) -> usize {
    (PREFIX + bytes + SUFFIX).div_ceil(CELL)
}

/// What every checksum of a log begins with: that of its key.
fn checksum_start(key: &Key) -> u32 {
    crc32c::crc32c(key)
}

/// Of the key and everything before it.
fn checksum(start: u32, whole: &[u8]) -> [u8; SUFFIX] {
    crc32c::crc32c_append(start, whole).to_le_bytes()
}

/// Random at each start of the machine; zeros where the kernel does not tell.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.chars().filter_map(|digit| digit.to_digit(16)).take(32);
    digits.fold(0u128, |id, digit| id << 4 | u128::from(digit)).to_be_bytes()
}

/// Where it is.
pub fn path_in(state_directory: &Path) -> PathBuf {
    state_directory.join("replies.log")
}

#[cfg(test)]
mod tests {
    use server::ReplyLog;

    use super::*;

    /// Opens the log, and closes it again: the records, and what was said of damage.
    fn records(path: &Path) -> (Vec<Vec<u8>>, Option<String>) {
        let (_, recovered) = ReplyFile::open(path).unwrap();
        (recovered.records, recovered.damage)
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path());
        (directory, path)
    }

    fn record(number: usize, bytes: usize) -> Vec<u8> {
        let mut record = vec![number as u8 | 1; bytes];
        record[..8].copy_from_slice(&number.to_le_bytes());
        record
    }

    /// A log of so many records of a hundred bytes, two cells each.
    fn log_of(path: &Path, count: usize) {
        let (log, _) = ReplyFile::open(path).unwrap();
        (0..count).for_each(|number| log.append(&[&record(number, 100)]));
    }

    fn change(path: &Path, at: u64, to: &[u8]) {
        OpenOptions::new().write(true).open(path).unwrap().write_all_at(to, at).unwrap();
    }

    #[test]
    fn records_are_there_without_any_sync_or_close() {
        let (_directory, path) = place();
        let (log, recovered) = ReplyFile::open(&path).unwrap();
        assert!(recovered.records.is_empty() && recovered.damage.is_none());
        log.append(&[b"one"]);
        log.append(&[b"", b"two, ", b"in parts"]);
        log.append(&[&[3; RECORD_BYTES_MAX]]);
        log.append(&[&[4; RECORD_BYTES_MAX + 1]]);
        let expected = vec![b"one".to_vec(), b"two, in parts".to_vec(), vec![3; RECORD_BYTES_MAX]];
        // While it is still in use, as it would be found behind a SIGKILL.
        assert_eq!(records(&path), (expected.clone(), None));
        let (again, _) = ReplyFile::open(&path).unwrap();
        again.append(&[b"four"]);
        assert_eq!(records(&path).0, [expected, vec![b"four".to_vec()]].concat());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), FILE_BYTES as u64);
    }

    #[test]
    fn the_oldest_make_room_and_what_is_left_of_them_is_no_damage() {
        let (_directory, path) = place();
        let (mut log, _) = ReplyFile::open(&path).unwrap();
        let (mut number, mut seed) = (0, 7usize);
        let mut lengths = Vec::new();
        for round in 0..3 {
            while number < (round + 1) * 9_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Mostly short, now and then the longest.
                let bytes = if seed >> 33 & 63 == 0 { RECORD_BYTES_MAX } else { 8 + (seed >> 33) % 1500 };
                log.append(&[&record(number, bytes)]);
                lengths.push(bytes);
                number += 1;
            }
            drop(log);
            let recovered;
            (log, recovered) = ReplyFile::open(&path).unwrap();
            assert_eq!(recovered.damage, None, "round {round}");
            let kept = recovered.records.len();
            assert!(kept > 8_000 && (round < 2 || kept < number), "{kept} records kept");
            for (found, expected) in recovered.records.iter().zip(number - kept..) {
                assert_eq!(*found, record(expected, lengths[expected]), "in order, without a gap");
            }
        }
    }

    #[test]
    fn a_flipped_bit_costs_the_record_that_it_is_in() {
        for (offset, lost) in [(0, 3), (9, 3), (17, 3), (50, 3), (115, 3), (64 + 60, 3)] {
            let (_directory, path) = place();
            log_of(&path, 6);
            let at = (CELL + 2 * lost * CELL) as u64 + offset;
            let mut byte = [0];
            File::open(&path).unwrap().read_exact_at(&mut byte, at).unwrap();
            change(&path, at, &[byte[0] ^ 0x10]);
            let (found, damage) = records(&path);
            let mut expected: Vec<_> = (0..6).map(|number| record(number, 100)).collect();
            if offset < 64 + 52 {
                expected.remove(lost);
                assert!(damage.unwrap().ends_with("replies.log: damaged in 1 places, which are left out"));
            }
            assert_eq!(found, expected, "byte {offset}");
            // Cleared, so that it is told once.
            assert_eq!(records(&path), (expected, None));
        }
    }

    #[test]
    fn a_torn_tail_costs_what_was_torn() {
        let (_directory, path) = place();
        log_of(&path, 6);
        change(&path, (CELL + 11 * CELL) as u64, &[0; CELL]);
        let (found, damage) = records(&path);
        assert_eq!(found.len(), 5);
        assert!(damage.is_some());
        let (log, _) = ReplyFile::open(&path).unwrap();
        log.append(&[b"goes on"]);
        assert_eq!(records(&path).0.last().unwrap(), b"goes on");
    }

    #[test]
    fn what_is_no_log_of_this_version_is_begun_anew() {
        let whole = |path: &Path| {
            log_of(path, 3);
            std::fs::read(path).unwrap()
        };
        let (_directory, path) = place();
        let sound = whole(&path);
        let another_version = [&MAGIC[..7], b"\x01", &sound[8..]].concat();
        for (bytes, what) in [
            (another_version, "of another version: begun anew"),
            (sound[..FILE_BYTES - 1].to_vec(), "no log of calls, or a damaged one: begun anew"),
            (vec![0xff; 10], "no log of calls, or a damaged one: begun anew"),
            (vec![0; FILE_BYTES], "no log of calls, or a damaged one: begun anew"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let (found, damage) = records(&path);
            assert!(found.is_empty());
            assert_eq!(damage.unwrap(), format!("{}: {what}", path.display()));
            log_of(&path, 2);
            assert_eq!(records(&path), (vec![record(0, 100), record(1, 100)], None));
        }
        // Empty, as where the machine went down behind its creation: nothing to be said.
        std::fs::write(&path, b"").unwrap();
        assert_eq!(records(&path), (vec![], None));
    }

    #[test]
    fn a_log_of_before_the_machines_start_is_not_read() {
        let (_directory, path) = place();
        log_of(&path, 3);
        assert_eq!(records(&path).0.len(), 3, "the same start");
        let mut boot = boot_id();
        boot[15] ^= 1;
        change(&path, BOOT_AT as u64, &boot);
        let (log, recovered) = ReplyFile::open(&path).unwrap();
        assert!(recovered.records.is_empty());
        assert_eq!(recovered.damage, None, "it is no damage");
        let expected = format!("{}: of before the machine's start: begun anew", path.display());
        assert_eq!(recovered.outlived, Some(expected));
        log.append(&[b"since"]);
        let (_, again) = ReplyFile::open(&path).unwrap();
        assert_eq!((again.records, again.outlived), (vec![b"since".to_vec()], None));
    }

    #[test]
    fn the_checksum_is_crc32c_of_key_and_record() {
        // RFC 3720 appendix B.4: "32 bytes of zeroes: … CRC: aa 36 91 8a", and "32 bytes of ones: … 43 ab a8 62".
        assert_eq!(checksum(checksum_start(&[0; 16]), &[0; 16]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(checksum(checksum_start(&[0xff; 16]), &[0xff; 16]), [0x43, 0xab, 0xa8, 0x62]);
    }

    #[test]
    fn records_within_a_torn_record_are_none() {
        let inner = |path: &Path| {
            let (log, _) = ReplyFile::open(path).unwrap();
            log.append(&[b"another"]);
            std::fs::read(path).unwrap()[CELL..2 * CELL].to_vec()
        };
        let (_elsewhere, elsewhere) = place();
        let (_directory, path) = place();
        let (log, _) = ReplyFile::open(&path).unwrap();
        // As it would be in another log, and put so that it begins a cell.
        log.append(&[&[7; CELL - PREFIX], &inner(&elsewhere)]);
        change(&path, CELL as u64, &[0]);
        let (found, damage) = records(&path);
        assert!(found.is_empty() && damage.is_some());
    }

    #[test]
    fn random_bytes_never_stop_it() {
        let (_directory, path) = place();
        log_of(&path, 10);
        let noise: Vec<u8> =
            (0..100_000u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        change(&path, 5 * CELL as u64, &noise);
        let (found, damage) = records(&path);
        assert_eq!(found, [record(0, 100), record(1, 100)]);
        assert!(damage.is_some());
    }

    #[test]
    fn where_there_is_no_place_for_it_one_line_says_so() {
        let (directory, path) = place();
        std::fs::create_dir(&path).unwrap();
        let error = ReplyFile::open(&path).unwrap_err();
        assert_eq!(error, format!("{}: Is a directory", path.display()));
        let absent = path_in(&directory.path().join("absent"));
        assert!(ReplyFile::open(&absent).unwrap_err().ends_with("No such file or directory"));
        // Always full, and no file that could be had otherwise.
        let full = directory.path().join("full");
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        assert!(ReplyFile::open(&full).is_err());
    }
}
