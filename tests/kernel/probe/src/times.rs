//! Times to the nanosecond, and operations that change them.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, utimensat};

use crate::{Checked, same, told};

/// (atime, mtime) as seconds and nanoseconds.
type Times = ((i64, i64), (i64, i64));

fn times_of(path: &Path) -> Result<Times, String> {
    let metadata = fs::symlink_metadata(path).map_err(told(path))?;
    Ok(((metadata.atime(), metadata.atime_nsec()), (metadata.mtime(), metadata.mtime_nsec())))
}

fn set(path: &Path, access: (i64, i64), modification: (i64, i64)) -> Checked {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time(access), last_modification: time(modification) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(told(path))
}

/// Checks files, directories and symbolic links below `directory`.
pub(crate) fn check(directory: &Path) -> Checked {
    let (file, subdirectory, link) =
        (directory.join("file"), directory.join("directory"), directory.join("link"));
    File::create(&file).map_err(told(&file))?;
    fs::create_dir(&subdirectory).map_err(told(&subdirectory))?;
    std::os::unix::fs::symlink("nowhere", &link).map_err(told(&link))?;
    for path in [&file, &subdirectory, &link] {
        exact(path)?;
        partly(path)?;
    }
    by_themselves(directory, &file)
}

fn exact(path: &Path) -> Checked {
    // The first and the last nanosecond of a second, and a second past 2038.
    for (access, modification) in [
        ((1, 0), (1, 999_999_999)),
        ((1_234_567_890, 123_456_789), (987_654_321, 1)),
        ((2_200_000_000, 5), (2_147_483_648, 7)),
    ] {
        set(path, access, modification)?;
        same(&format!("times of {path:?}"), (access, modification), times_of(path)?)?;
    }
    Ok(())
}

fn partly(path: &Path) -> Checked {
    set(path, (100, 1), (200, 2))?;
    set(path, (0, UTIME_OMIT), (300, 3))?;
    same("times, atime omitted", ((100, 1), (300, 3)), times_of(path)?)?;
    set(path, (400, 4), (0, UTIME_OMIT))?;
    same("times, mtime omitted", ((400, 4), (300, 3)), times_of(path)?)?;
    set(path, (0, UTIME_OMIT), (0, UTIME_NOW))?;
    let (access, modification) = times_of(path)?;
    same("atime omitted, mtime now", (400, 4), access)?;
    same("the server's `now` is after 2020", true, modification.0 > 1_577_836_800)
}

fn by_themselves(directory: &Path, file: &Path) -> Checked {
    let old = (1_000_000, 5);
    for path in [directory, file] {
        set(path, old, old)?;
    }
    fs::write(directory.join("another"), "").map_err(told(directory))?;
    same("a new name changes the directory's mtime", true, times_of(directory)?.1 != old)?;
    let mut open = File::options().append(true).open(file).map_err(told(file))?;
    open.write_all(b"x").and_then(|()| open.sync_all()).map_err(told(file))?;
    same("a write changes mtime", true, times_of(file)?.1 != old)?;
    set(file, old, old)?;
    open.set_len(0).map_err(told(file))?;
    same("a truncation changes mtime", true, times_of(file)?.1 != old)?;
    set(file, old, old)?;
    let before = ctime(file)?;
    fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).map_err(told(file))?;
    same("a chmod keeps mtime", old, times_of(file)?.1)?;
    same("a chmod does not set ctime back", true, ctime(file)? >= before)
}

fn ctime(path: &Path) -> Result<(i64, i64), String> {
    let metadata = fs::metadata(path).map_err(told(path))?;
    Ok((metadata.ctime(), metadata.ctime_nsec()))
}
