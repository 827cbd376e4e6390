//! A tree of many kinds of files, the same every time.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, mknodat, utimensat};

use crate::{Checked, told};

const FILES_PER_DIRECTORY: usize = 64;
/// Sizes around multiples of the units of programs, pages and transfers.
const SIZES: [usize; 16] =
    [0, 1, 100, 511, 512, 1000, 2048, 4095, 4096, 4097, 6000, 8192, 12_000, 16_385, 40_000, 65_537];
/// One file in this many is this large: more than one WRITE at any transfer size.
const LARGE_EVERY: usize = 500;
const LARGE_BYTES: usize = (3 << 20) + 7;
const MODES: [u32; 12] =
    [0o644, 0o600, 0o755, 0o444, 0o400, 0o000, 0o4755, 0o2755, 0o6711, 0o1644, 0o666, 0o777];
const OWNERS: [(u32, u32); 4] = [(0, 0), (1000, 1000), (1234, 2001), (65_534, 65_534)];

/// Creates `files` files below `root`, including directories, links and special files.
pub(crate) fn make(root: &Path, files: usize) -> Checked {
    let mut directories = vec![root.to_path_buf()];
    fs::create_dir_all(root).map_err(told(root))?;
    for index in 0..files {
        if index % FILES_PER_DIRECTORY == 0 {
            let directory = directory_of(root, index / FILES_PER_DIRECTORY);
            fs::create_dir_all(&directory).map_err(told(&directory))?;
            directories.push(directory);
        }
        let directory = directories.last().unwrap_or(&directories[0]).clone();
        entry(&directory, index)?;
    }
    for (index, directory) in directories.iter().enumerate().rev() {
        let mode = [0o755, 0o700, 0o2775, 0o1777][index % 4];
        finish(directory, index, mode)?;
    }
    Ok(())
}

/// Returns the path of a directory. Some directories are deep, and not all names are ASCII.
fn directory_of(root: &Path, number: usize) -> PathBuf {
    match number % 5 {
        0 => root.join(format!("plain-{number}")),
        1 => root.join(format!("with space {number}")),
        2 => root.join(format!("énfys-彩虹-{number}")),
        3 => root.join(format!("a/b/c/d/e/f/deep-{number}")),
        _ => root.join(format!(".hidden-{number}")),
    }
}

fn entry(directory: &Path, index: usize) -> Checked {
    let path = directory.join(format!("file-{index:05}"));
    match index {
        // A hard link needs an older file; tar turns a pipe with two names into two pipes.
        _ if index % 23 == 22 && index % FILES_PER_DIRECTORY > 1 && (index - 2) % 251 != 250 => {
            fs::hard_link(directory.join(format!("file-{:05}", index - 2)), &path).map_err(told(&path))
        }
        _ if index % 17 == 16 => {
            let target = std::ffi::OsStr::from_bytes(b"../no where/\xc3\xa9\xff/target");
            symlink(target, &path).map_err(told(&path))?;
            touch(&path, index)
        }
        _ if index % 251 == 250 => {
            mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).map_err(told(&path))?;
            finish(&path, index, 0o640)
        }
        _ => {
            let size =
                if index % LARGE_EVERY == LARGE_EVERY - 1 { LARGE_BYTES } else { SIZES[index % SIZES.len()] };
            fs::write(&path, contents(index as u64, size)).map_err(told(&path))?;
            finish(&path, index, MODES[index % MODES.len()])
        }
    }
}

/// Sets the owner before the mode, because a change of owner clears set-user-ID; times last.
fn finish(path: &Path, index: usize, mode: u32) -> Checked {
    let (uid, gid) = OWNERS[index % OWNERS.len()];
    chown(path, Some(uid), Some(gid)).map_err(told(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(told(path))?;
    touch(path, index)
}

fn touch(path: &Path, index: usize) -> Checked {
    // 2001 to 2033, with every digit of the nanoseconds in use.
    let seconds = 1_000_000_000 + (index as i64 * 7_919_993) % 1_000_000_000;
    let time = Timespec { tv_sec: seconds, tv_nsec: (index as i64 * 123_456_789 + 1) % 1_000_000_000 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(told(path))
}

/// Returns bytes that differ between files and positions (the generator is Knuth's MMIX one).
pub(crate) fn contents(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state >> 16).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::contents;

    #[test]
    fn contents_depend_on_the_seed_and_the_place() {
        assert_eq!(contents(1, 100), contents(1, 100));
        assert_eq!(contents(1, 50)[..], contents(1, 100)[..50]);
        assert_ne!(contents(1, 64), contents(2, 64));
        assert_ne!(contents(1, 128)[..64], contents(1, 128)[64..]);
    }
}
