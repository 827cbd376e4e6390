//! A file in memory, the one thing here that the compiler cannot vouch for.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::{MmapMut, MmapOptions};

/// Maps the first `bytes` bytes of `file`, shared: what is written there is in the file, for whoever opens it next, from the
/// moment that it is written, even if the process is killed at once.
///
/// The file must have that length and its space (a write where the disk has none would be a SIGBUS), and must keep both: it
/// lies in the state directory, which is locked for this process alone, and nobody here makes it shorter. A file system that
/// never overwrites in place cannot promise the space.
///
/// # Errors
/// Where the file has another length, and what mmap(2) says.
pub(crate) fn map(file: &File, bytes: usize) -> io::Result<MmapMut> {
    if file.metadata()?.len() != bytes as u64 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a mapping of a file is undefined behaviour where somebody else changes the file under it. This one is under the
    // state directory's lock, of mode 0600, and in use through this one mapping: only a process of the same user or root that
    // disregards the lock could change it. The bytes are read as bytes alone, and nothing is believed of them without
    // its checksum.
    unsafe { MmapOptions::new().len(bytes).map_mut(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_in_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(map(file.as_file(), 4096).is_err(), "shorter than it should be");
        file.as_file().set_len(4096).unwrap();
        let mut mapped = map(file.as_file(), 4096).unwrap();
        mapped[7..10].copy_from_slice(b"abc");
        assert_eq!(&std::fs::read(file.path()).unwrap()[6..11], b"\0abc\0");
    }
}
