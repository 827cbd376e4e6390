//! The files that the operations work on, and the pattern that tells a right READ from a wrong one.
//!
//! Everything lives in one directory below the export, so that a server that already holds data can be measured too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::operation::LARGE_BYTES;

/// The directory below the export that holds all files of a measurement.
pub const DIRECTORY: &str = "enfys-bench";
/// The file that is read; its content is [`pattern_word`].
pub const READ_FILE: &str = "read";
/// The file that is written; of the same size, so that no WRITE extends it.
pub const WRITE_FILE: &str = "write";
/// The directory where CREATE+REMOVE works, empty before and after.
pub const CHURN_DIRECTORY: &str = "churn";
/// Size of both files, in bytes: larger than the caches of a core, far smaller than memory.
pub const FILE_BYTES: u64 = 64 << 20;

/// The eight bytes that stand in [`READ_FILE`] at `offset` (a multiple of 8).
#[must_use]
pub fn pattern_word(offset: u64) -> [u8; 8] {
    // Multiplying by an odd constant is a bijection, so that no two places hold the same word.
    (offset / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Fills `block`, which starts at file offset `offset`, with the pattern.
pub fn fill_pattern(offset: u64, block: &mut [u8]) {
    for (index, word) in block.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&pattern_word(offset + 8 * index as u64));
    }
}

/// Makes the measuring directory inside `export`; files that already have their size are kept.
///
/// # Errors
/// Whatever the file system answers.
pub fn prepare(export: &Path) -> io::Result<()> {
    let directory = export.join(DIRECTORY);
    fs::create_dir_all(directory.join(CHURN_DIRECTORY))?;
    for name in [READ_FILE, WRITE_FILE] {
        let path = directory.join(name);
        if fs::metadata(&path).is_ok_and(|status| status.len() == FILE_BYTES) {
            continue;
        }
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        write_pattern(&mut file)?;
        // Written back before anything is measured, so that the flusher is quiet.
        file.sync_all()?;
    }
    Ok(())
}

fn write_pattern(file: &mut File) -> io::Result<()> {
    let mut block = vec![0; LARGE_BYTES as usize];
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
        assert_eq!(pattern_word(0), [0x9e, 0x37, 0x79, 0xb9, 0x7f, 0x4a, 0x7c, 0x15]);
    }
}
