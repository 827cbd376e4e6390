//! Disk space that is allocated before it is needed, so that a disk which becomes full later takes nothing from the server's own files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, IFlags};
use rustix::io::Errno;

/// Zeros that are written at a time.
const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
/// Room that is not worth another try: see [`keep`].
const STEP_BYTES: u64 = 64 << 10;

/// Whether an error says that there is no space: the disk is full, or a quota is used up.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Has an empty file overwritten in place. Btrfs would want new space for each page that is written again, also where the file has its
/// space; other file systems know no such flag.
pub(crate) fn overwrite_in_place(file: &File) {
    if let Ok(flags) = rustix::fs::ioctl_getflags(file) {
        let _ = rustix::fs::ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

/// Allocates the first `bytes` bytes of a file. The file keeps its length, except on file systems that have no fallocate(2): there, zeros
/// are written behind its end.
///
/// # Errors
/// No space, or that of a write.
pub(crate) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => zero(file, file.metadata()?.len(), bytes),
        done => Ok(done?),
    }
}

/// Allocates as much of the first `wanted` bytes of a file as there is space for; returns how many bytes are allocated. `has` bytes are
/// already.
///
/// # Errors
/// Those of `allocate` other than that there is no space.
pub(crate) fn keep(
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
/// Those of the writes.
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
    fn what_is_allocated_takes_its_space_and_leaves_the_length() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = File::create(directory.path().join("file")).unwrap();
        file.write_all_at(b"content", 0).unwrap();
        allocate(&file, 1 << 20).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), 7);
        assert!(metadata.blocks() * 512 >= 1 << 20);
    }

    #[test]
    fn as_much_is_kept_as_there_is_space_for() {
        let disk = |free: u64| {
            move |bytes: u64| if bytes <= free { Ok(()) } else { Err(io::Error::from(Errno::NOSPC)) }
        };
        let kept = |has, free| {
            let (kept, shortage) = keep(has, 1 << 20, disk(free)).unwrap();
            (kept, shortage.is_some())
        };
        assert_eq!(kept(0, 1 << 20), (1 << 20, false));
        assert_eq!(kept(0, 600_000), (512 << 10, true));
        assert_eq!(kept(100_000, 0), (100_000, true), "nothing more");
        assert_eq!(kept(2 << 20, 0), (2 << 20, false), "it has more than is wanted");
        assert!(keep(0, 1, |_| Err(io::Error::from(Errno::IO))).is_err());
    }
}
