//! Allocation of disk space before it is needed, so that the server's own files can be written when the disk is full.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, IFlags};
use rustix::io::Errno;

/// Zeros of one write.
const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
/// [`allocate_up_to`] does not try again for less than this.
const STEP_BYTES: u64 = 64 << 10;

/// Returns whether an error means that there is no space: the disk is full, or a quota is used up.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Makes an empty file overwritten in place (`chattr +C`). Otherwise Btrfs takes new space for each rewritten page, even if the file's space
/// is allocated. Other file systems have no such flag.
pub(crate) fn overwrite_in_place(file: &File) {
    if let Ok(flags) = rustix::fs::ioctl_getflags(file) {
        let _ = rustix::fs::ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

/// Allocates the first `bytes` bytes of a file. The file keeps its length; on file systems without fallocate(2), zeros are written after
/// its end instead.
///
/// # Errors
/// No space, or an error of a write.
pub(crate) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => zero(file, file.metadata()?.len(), bytes),
        done => Ok(done?),
    }
}

/// Allocates as many of the first `wanted` bytes of a file as possible; `has` bytes are allocated already. Returns the
/// number of allocated bytes, and the error if not all.
///
/// # Errors
/// Errors of `allocate` except a lack of space.
pub(crate) fn allocate_up_to(
    has: u64,
    wanted: u64,
    allocate: impl Fn(u64) -> io::Result<()>,
) -> io::Result<(u64, Option<io::Error>)> {
    let (mut bytes, mut shortage) = (wanted, None);
    while bytes > has {
        match allocate(bytes) {
            Ok(()) => return Ok((bytes, shortage)),
            Err(error) if is_full(&error) => shortage = Some(error),
            Err(error) => return Err(error),
        }
        let half = (bytes - has) / 2;
        bytes = if half < STEP_BYTES { has } else { has + half };
    }
    Ok((has, shortage))
}

/// Writes zeros from one offset to another.
///
/// # Errors
/// Errors of the writes.
pub(crate) fn zero(file: &File, from: u64, to: u64) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let bytes = ZEROS.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
        file.write_all_at(&ZEROS[..bytes], at)?;
        at += bytes as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn allocation_takes_space_and_keeps_the_length() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = File::create(directory.path().join("file")).unwrap();
        file.write_all_at(b"content", 0).unwrap();
        allocate(&file, 1 << 20).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), 7);
        assert!(metadata.blocks() * 512 >= 1 << 20);
    }

    #[test]
    fn allocation_uses_the_available_space() {
        let disk = |free: u64| {
            move |bytes: u64| if bytes <= free { Ok(()) } else { Err(io::Error::from(Errno::NOSPC)) }
        };
        let allocated = |has, free| {
            let (allocated, shortage) = allocate_up_to(has, 1 << 20, disk(free)).unwrap();
            (allocated, shortage.is_some())
        };
        assert_eq!(allocated(0, 1 << 20), (1 << 20, false));
        assert_eq!(allocated(0, 600_000), (512 << 10, true));
        assert_eq!(allocated(100_000, 0), (100_000, true), "nothing more");
        assert_eq!(allocated(2 << 20, 0), (2 << 20, false), "it has more than requested");
        assert!(allocate_up_to(0, 1, |_| Err(io::Error::from(Errno::IO))).is_err());
    }
}
