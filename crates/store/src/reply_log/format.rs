//! The bytes of the file: header, cells, records, checksums. See the module above.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use server::RECORD_BYTES_MAX;

/// Bytes of the file: records of some 25,000 calls. The calls that were in progress when the server was killed began seconds before.
pub(super) const FILE_BYTES: usize = 16 << 20;
/// Bytes of a cell, the smallest size of a record; also of the file's header.
pub(super) const CELL: usize = 64;
/// Cells of the file.
pub(super) const CELLS: usize = FILE_BYTES / CELL - 1;
/// Bytes of number and length, before a record's content.
pub(super) const PREFIX: usize = 8 + 4;
/// Bytes of the checksum, after the content.
pub(super) const SUFFIX: usize = 4;
/// Cells of the longest record.
const CELLS_MAX: usize = (PREFIX + RECORD_BYTES_MAX + SUFFIX).div_ceil(CELL);
/// First bytes of the file; the last one is the format's version.
pub(super) const MAGIC: &[u8; 8] = b"EnfysRp\x04";
/// Offsets in the header: the [boot ID](boot_id), the [`Key`], and a 1 if the log is synced.
pub(super) const BOOT_AT: usize = MAGIC.len();
const KEY_AT: usize = BOOT_AT + 16;
const SYNCED_AT: usize = KEY_AT + 16;
/// Bytes of the header in use.
const HEADER: usize = SYNCED_AT + 1;
const _: () = assert!(HEADER <= CELL);
/// Bytes of the file that are read at a time when it is opened; more than the longest record.
const WINDOW: usize = 256 << 10;
const _: () = assert!(WINDOW > CELLS_MAX * CELL && WINDOW.is_multiple_of(CELL));

/// The key of a log's checksums, random for each new log.
///
/// A reply may contain bytes that a client chose. If its record is torn, those bytes must not be taken for records. Checksums
/// never leave the server, so one guess in 2^32 succeeds, and only a kill in the middle of a copy tears a record.
pub(super) type Key = [u8; 16];

/// Content of a file.
pub(super) enum Scan {
    /// Nothing.
    Empty,
    /// Not a log of this version; with a description.
    Unknown(&'static str),
    /// A log that was written before the last boot and not synced.
    BeforeBoot,
    /// A log: its whole records, oldest first, and the number of damaged places.
    Log { key: Key, records: Vec<Location>, damaged: usize },
}

/// The location of a record in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Location {
    pub(super) number: u64,
    /// The first cell.
    pub(super) cell: usize,
    /// Bytes of the content.
    pub(super) bytes: usize,
}

/// Reads the whole file.
pub(super) fn scan(file: &File) -> io::Result<Scan> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok(Scan::Empty);
    }
    let mut header = [0; HEADER];
    let read = file.read_at(&mut header, 0)?;
    let (magic, rest) = header.split_at(BOOT_AT);
    if read < HEADER || length != FILE_BYTES as u64 || magic != MAGIC {
        let is_other_version = magic[..7] == MAGIC[..7] && magic[7] != MAGIC[7];
        return Ok(Scan::Unknown(if is_other_version {
            "of another version"
        } else {
            "not a reply log, or damaged"
        }));
    }
    let (boot, rest) = rest.split_at(KEY_AT - BOOT_AT);
    let (key, is_synced) = rest.split_at(SYNCED_AT - KEY_AT);
    // Zeros: the boot ID is unknown, and each boot may be another.
    let is_this_boot = boot == boot_id() && boot != [0; 16];
    if !is_this_boot && is_synced != [1] {
        return Ok(Scan::BeforeBoot);
    }
    let key = Key::try_from(key).unwrap_or_default();
    let (mut records, damaged) = scan_cells(file, checksum_seed(&key))?;
    records.sort_unstable_by_key(|record| record.number);
    Ok(Scan::Log { key, records, damaged })
}

/// Returns the whole records in the order of their cells, and the number of damaged places.
fn scan_cells(file: &File, seed: u32) -> io::Result<(Vec<Location>, usize)> {
    let (mut records, mut damaged) = (Vec::new(), 0);
    let (mut window, mut cell, mut was_damaged) = (vec![0; WINDOW], 0, false);
    while cell < CELLS {
        let bytes = WINDOW.min((CELLS - cell) * CELL);
        file.read_exact_at(&mut window[..bytes], (CELL + cell * CELL) as u64)?;
        // A record that may continue after this window is read with the next one.
        let last = if cell + bytes / CELL == CELLS { bytes } else { bytes - CELLS_MAX * CELL };
        let mut at = 0;
        while at < last {
            let rest = &window[at..bytes];
            if let Some((number, length)) = parse(seed, rest) {
                records.push(Location { number, cell: cell + at / CELL, bytes: length });
                at += cells(length) * CELL;
                was_damaged = false;
                continue;
            }
            let is_damaged = rest[..CELL].iter().any(|byte| *byte != 0);
            damaged += usize::from(is_damaged && !was_damaged);
            was_damaged = is_damaged;
            at += CELL;
        }
        cell += at / CELL;
    }
    Ok((records, damaged))
}

/// Returns number and length of the whole record at the beginning of `bytes`.
fn parse(seed: u32, bytes: &[u8]) -> Option<(u64, usize)> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    let length = u32::from_le_bytes(*bytes[8..].first_chunk()?) as usize;
    if number == 0 || length > RECORD_BYTES_MAX {
        return None;
    }
    let (whole, rest) = bytes.split_at_checked(PREFIX + length)?;
    (rest.get(..SUFFIX)? == checksum(seed, whole)).then_some((number, length))
}

/// Reads the content of a record.
pub(super) fn read(file: &File, record: &Location) -> io::Result<Vec<u8>> {
    let mut content = vec![0; record.bytes];
    file.read_exact_at(&mut content, (CELL + record.cell * CELL + PREFIX) as u64)?;
    Ok(content)
}

/// Writes the header of an empty log, with a new key.
pub(super) fn write_header(file: &File) -> io::Result<Key> {
    let mut key = Key::default();
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
    file.write_all_at(&[&MAGIC[..], &boot_id(), &key].concat(), 0)?;
    Ok(key)
}

/// Marks the log as written in this boot, and synced or not.
pub(super) fn mark(file: &File, key: &Key, is_synced: bool) -> io::Result<()> {
    file.write_all_at(&[&boot_id(), &key[..], &[u8::from(is_synced)]].concat(), BOOT_AT as u64)
}

/// Returns the number of cells that a record with this many bytes of content takes.
pub(super) fn cells(bytes: usize) -> usize {
    (PREFIX + bytes + SUFFIX).div_ceil(CELL)
}

/// Returns the seed of all checksums of a log.
pub(super) fn checksum_seed(key: &Key) -> u32 {
    crc32c::crc32c(key)
}

/// Returns the checksum of the key and a record up to its content's end.
pub(super) fn checksum(seed: u32, whole: &[u8]) -> [u8; SUFFIX] {
    crc32c::crc32c_append(seed, whole).to_le_bytes()
}

/// Returns the kernel's boot ID, random for each boot; zeros if it is unknown.
#[must_use]
pub fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.chars().filter_map(|digit| digit.to_digit(16)).take(32);
    digits.fold(0u128, |id, digit| id << 4 | u128::from(digit)).to_be_bytes()
}
