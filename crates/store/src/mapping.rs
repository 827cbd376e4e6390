//! Memory-mapped files. This module has the crate's only `unsafe` code.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::{MmapMut, MmapOptions};

/// Maps the whole file of `bytes` bytes, shared. A store to the mapping is in the file at once, even if the process is killed
/// right after it.
///
/// The file's space must be allocated: a store without space on the disk is a SIGBUS. Nothing may shorten the file: it is in the
/// state directory, which is locked for this process, and this crate does not shorten it. A file system that never overwrites in
/// place cannot guarantee the space.
///
/// # Errors
/// The file has another length, or mmap(2) fails.
pub(crate) fn map(file: &File, bytes: usize) -> io::Result<MmapMut> {
    if file.metadata()?.len() != bytes as u64 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a change of the file by others while it is mapped is undefined behavior. The file has mode 0600, and the state
    // directory's lock is held; this is its only mapping. Only a process of the same user or root that ignores the lock could
    // change it. The content is read as bytes, and is not trusted without its checksum.
    unsafe { MmapOptions::new().len(bytes).map_mut(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_to_the_mapping_are_in_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(map(file.as_file(), 4096).is_err(), "a file that is too short");
        file.as_file().set_len(4096).unwrap();
        let mut mapped = map(file.as_file(), 4096).unwrap();
        mapped[7..10].copy_from_slice(b"abc");
        assert_eq!(&std::fs::read(file.path()).unwrap()[6..11], b"\0abc\0");
    }
}
