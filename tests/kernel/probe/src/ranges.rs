//! Operations on ranges of files: finding holes, reserving and freeing space, copying by the kernel.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use crate::{Checked, same, told};

/// A unit that is a multiple of every block size here.
const UNIT: u64 = 64 << 10;

/// Creates a file of data, a hole and data, by punching; finds its borders; reserves space.
pub(crate) fn check_holes(path: &Path) -> Checked {
    let mut file = File::options().read(true).write(true).create_new(true).open(path).map_err(told(path))?;
    let data = vec![7; 16 * UNIT as usize];
    file.write_all(&data).and_then(|()| file.sync_all()).map_err(told(path))?;
    let full = file.metadata().map_err(told(path))?.blocks();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 2 * UNIT, 4 * UNIT).map_err(told("punch a hole"))?;
    let after = file.metadata().map_err(told(path))?;
    same("size after punching", 16 * UNIT, after.len())?;
    if after.blocks() >= full {
        return Err(format!("{} blocks before punching, {} after", full, after.blocks()));
    }
    let mut read = vec![1; 16 * UNIT as usize];
    file.read_exact_at(&mut read, 0).map_err(told(path))?;
    let mut wanted = data;
    wanted[2 * UNIT as usize..6 * UNIT as usize].fill(0);
    same("content after punching", true, read == wanted)?;
    for (what, from, found) in [
        ("the hole", SeekFrom::Hole(0), Ok(2 * UNIT)),
        ("the hole from inside", SeekFrom::Hole(3 * UNIT + 1), Ok(3 * UNIT + 1)),
        ("data after the hole", SeekFrom::Data(3 * UNIT), Ok(6 * UNIT)),
        ("the hole at the end", SeekFrom::Hole(7 * UNIT), Ok(16 * UNIT)),
        ("data after the end", SeekFrom::Data(16 * UNIT), Err(Errno::NXIO)),
    ] {
        same(what, found, seek(&file, from))?;
    }
    fallocate(&file, FallocateFlags::empty(), 16 * UNIT, UNIT).map_err(told("extend"))?;
    let extended = file.metadata().map_err(told(path))?;
    same("size after reserving", 17 * UNIT, extended.len())
}

/// Makes the kernel copy a whole file, over existing data.
pub(crate) fn copy_over(source: &Path, target: &Path) -> Checked {
    let from = File::open(source).map_err(told(source))?;
    let to = File::options().write(true).open(target).map_err(told(target))?;
    let size = from.metadata().map_err(told(source))?.len();
    copy_all(&from, &to, (0, 0), size)
}

/// Makes the kernel copy a file from an offset to its end.
fn copy_all(from: &File, to: &File, (read_at, write_at): (u64, u64), size: u64) -> Checked {
    let (mut source_offset, mut target_offset, mut rounds) = (read_at, write_at, 0);
    while source_offset < size {
        let left = (size - source_offset) as usize;
        let copied = copy_file_range(from, Some(&mut source_offset), to, Some(&mut target_offset), left)
            .map_err(told("copy_file_range"))?;
        rounds += 1;
        if copied == 0 || rounds > 10_000 {
            return Err(format!("stopped at {source_offset} of {size}"));
        }
    }
    Ok(())
}

/// Makes the kernel copy a whole file, at an odd offset too, and compares.
pub(crate) fn check_copy(source: &Path, target: &Path) -> Checked {
    let from = File::open(source).map_err(told(source))?;
    let to = File::options().read(true).write(true).create(true).truncate(true).open(target);
    let to = to.map_err(told(target))?;
    let size = from.metadata().map_err(told(source))?.len();
    for (read_at, write_at) in [(0, 0), (1, size + 3)] {
        copy_all(&from, &to, (read_at, write_at), size)?;
        to.sync_all().map_err(told(target))?;
        let mut wanted = vec![0; (size - read_at) as usize];
        let mut read = vec![1; wanted.len()];
        from.read_exact_at(&mut wanted, read_at).map_err(told(source))?;
        to.read_exact_at(&mut read, write_at).map_err(told(target))?;
        same("the copy is the original", true, read == wanted)?;
    }
    Ok(())
}
