//! The files of the operations, and the pattern by which READs are verified.
//!
//! They are in one directory below the export, so that a server with other data can be measured too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::operation::{LARGE_BYTES, SMALL_BYTES};

/// The directory below the export that holds all files of a measurement.
pub const DIRECTORY: &str = "enfys-bench";
/// The file that is read; its content is [`pattern_word`].
pub const READ_FILE: &str = "read";
/// The file for small WRITEs; of the same size, so that none extends it.
///
/// It is written in small blocks from the start: ext4 walks all blocks of a page-cache folio for each write into it, and
/// the size of folios depends on that of the writes that created them. In a file made by large writes, more than half of a
/// small WRITE's time would be that walk.
pub const SMALL_WRITE_FILE: &str = "write-small";
/// The file for large WRITEs.
pub const LARGE_WRITE_FILE: &str = "write-large";
/// The directory for CREATE+REMOVE, empty before and after.
pub const CHURN_DIRECTORY: &str = "churn";
/// The directory of the small files, which are opened one by one and listed together.
pub const SMALL_DIRECTORY: &str = "small";
/// Number of small files; each is [`SMALL_BYTES`] long.
pub const SMALL_FILES: u32 = 1000;
/// Bytes of the results of READDIRPLUS for all of them, from a server whose file handles take 24:
/// 88 for the directory, the verifier and the end, and for each file as much as its entry, attributes and handle take.
pub const LISTING_BYTES: u32 = 4 + 88 + 8 + 8 + SMALL_FILES * (4 + 8 + 16 + 8 + 88 + 4 + 28);
/// Size of each large file, in bytes: larger than the caches of a core, far smaller than memory.
pub const FILE_BYTES: u64 = 64 << 20;

/// The files, each with the size of the writes that make it.
pub const FILES: [(&str, u32); 3] =
    [(READ_FILE, LARGE_BYTES), (SMALL_WRITE_FILE, SMALL_BYTES), (LARGE_WRITE_FILE, LARGE_BYTES)];

/// The difference between two consecutive words of the pattern, as big-endian numbers.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the eight bytes of [`READ_FILE`] at `offset` (a multiple of 8).
#[must_use]
pub fn pattern_word(offset: u64) -> [u8; 8] {
    // Multiplying by an odd constant is a bijection, so that no two places hold the same word.
    (offset / 8 + 1).wrapping_mul(STEP).to_be_bytes()
}

/// Returns the first place in `data`, which begin at file offset `offset`, that does not hold the pattern.
#[must_use]
pub fn first_difference(offset: u64, data: &[u8]) -> Option<usize> {
    let lead = (offset.next_multiple_of(8) - offset).min(data.len() as u64) as usize;
    let (head, rest) = data.split_at(lead);
    let (words, tail) = rest.as_chunks::<8>();
    let expected_byte = |place: u64| pattern_word(place - place % 8)[(place % 8) as usize];
    let is_equal = |start: usize, bytes: &[u8]| {
        (offset + start as u64..).zip(bytes).all(|(place, byte)| *byte == expected_byte(place))
    };
    // Consecutive words differ by a constant, so that a comparison needs no multiplication.
    let mut expected = u64::from_be_bytes(pattern_word(offset + lead as u64));
    let mut difference = 0;
    for word in words {
        difference |= u64::from_be_bytes(*word) ^ expected;
        expected = expected.wrapping_add(STEP);
    }
    if difference == 0 && is_equal(0, head) && is_equal(data.len() - tail.len(), tail) {
        return None;
    }
    (offset..).zip(data).position(|(place, byte)| *byte != expected_byte(place))
}

/// Fills `block`, which starts at file offset `offset`, with the pattern.
pub fn fill_pattern(offset: u64, block: &mut [u8]) {
    for (index, word) in block.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&pattern_word(offset + 8 * index as u64));
    }
}

/// Returns the name of the small file `index` (below [`SMALL_FILES`]); all names are equally long.
#[must_use]
pub fn small_name(index: u32) -> String {
    format!("small-{index:03}")
}

/// Returns the offset in the pattern of the content of the small file `index`; each file has a different one.
#[must_use]
pub fn small_offset(index: u32) -> u64 {
    u64::from(index) * u64::from(SMALL_BYTES)
}

/// Creates the measuring directory inside `export`; files that already have their size are kept.
///
/// # Errors
/// The error of the file system.
pub fn prepare(export: &Path) -> io::Result<()> {
    let directory = export.join(DIRECTORY);
    fs::create_dir_all(directory.join(CHURN_DIRECTORY))?;
    for (name, block_bytes) in FILES {
        let path = directory.join(name);
        if fs::metadata(&path).is_ok_and(|status| status.len() == FILE_BYTES) {
            continue;
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        write_pattern(&mut file, block_bytes)?;
        // Written back before anything is measured, so that the flusher is quiet.
        file.sync_all()?;
    }
    prepare_small_files(&directory.join(SMALL_DIRECTORY))
}

fn prepare_small_files(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut content = vec![0; SMALL_BYTES as usize];
    for index in 0..SMALL_FILES {
        let path = directory.join(small_name(index));
        if !fs::metadata(&path).is_ok_and(|status| status.len() == u64::from(SMALL_BYTES)) {
            fill_pattern(small_offset(index), &mut content);
            fs::write(path, &content)?;
        }
    }
    Ok(())
}

fn write_pattern(file: &mut File, block_bytes: u32) -> io::Result<()> {
    let mut block = vec![0; block_bytes as usize];
    for offset in (0..FILE_BYTES).step_by(block.len()) {
        fill_pattern(offset, &mut block);
        file.write_all(&block)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn any_difference_is_found_at_its_place() {
        let mut file = vec![0; 4096];
        fill_pattern(0, &mut file);
        for (start, end) in [(0, 4096), (0, 0), (3, 5), (3, 8), (5, 100), (8, 24), (1, 4095), (4090, 4093)] {
            let part = &file[start..end];
            assert_eq!(first_difference(start as u64, part), None, "{start}..{end}");
            for place in 0..part.len() {
                let mut damaged = part.to_vec();
                damaged[place] ^= 0x40;
                assert_eq!(first_difference(start as u64, &damaged), Some(place), "{start}..{end}");
                if let Some(last) = damaged.last_mut() {
                    *last ^= 1;
                }
                assert_eq!(first_difference(start as u64, &damaged), Some(place), "the first of two");
            }
        }
        assert_eq!(first_difference(8, &file[..64]), Some(0), "data of another place");
    }

    #[test]
    fn prepared_file_holds_the_pattern_everywhere() {
        let export = tempfile::tempdir().unwrap();
        prepare(export.path()).unwrap();
        let file = File::open(export.path().join(DIRECTORY).join(READ_FILE)).unwrap();
        for offset in [0, 8, u64::from(LARGE_BYTES) - 8, u64::from(LARGE_BYTES), FILE_BYTES - 8] {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, offset).unwrap();
            assert_eq!(word, pattern_word(offset), "at {offset}");
        }
        assert_eq!(file.metadata().unwrap().len(), 67_108_864);
        let small = export.path().join(DIRECTORY).join(SMALL_DIRECTORY);
        assert_eq!(small.read_dir().unwrap().count(), 1000);
        let content = fs::read(small.join("small-999")).unwrap();
        assert_eq!((content.len(), &content[..8]), (4096, &pattern_word(999 * 4096)[..]));
        assert_eq!(pattern_word(0), [0x9e, 0x37, 0x79, 0xb9, 0x7f, 0x4a, 0x7c, 0x15]);
    }
}
