//! Stat, setattr, access, statfs.

use client::attributes::{FileKind, SetAttributes, SetTime, Timestamp};
use client::errno::Errno;
use client::results::access;
use net::blocking::wait;

use super::{BOTH, Outcome, Place, fails, holds, same};

pub(super) fn attributes_are_shown_and_set(place: &Place) -> Outcome {
    let fs = place.fs();
    fs.write(b"attributes", "content")?;
    let shown = fs.stat(b"attributes")?;
    same("type, size and names", (FileKind::Regular, 7, 1), (shown.kind, shown.size, shown.nlink))?;
    same("the owner", (0, 0), (shown.uid, shown.gid))?;

    let time = |seconds| Timestamp { seconds, nanoseconds: 0 };
    let times = (time(1_000_000_800), time(1_100_000_000));
    let (atime, mtime) = (SetTime::To(times.0), SetTime::To(times.1));
    let set = SetAttributes { mode: Some(0o604), size: Some(3), atime, mtime, ..Default::default() };
    let set_now = fs.set_attributes(b"attributes", &set)?;
    for is in [set_now, place.other().stat(b"attributes")?] {
        same("mode, size and times", (0o604, 3, times), (is.mode, is.size, (is.atime, is.mtime)))?;
    }
    let owner = SetAttributes { uid: Some(7), gid: Some(8), ..Default::default() };
    fs.set_attributes(b"attributes", &owner)?;
    // A mode that the owner's change would clear is set after it.
    let both = SetAttributes { mode: Some(0o4755), ..owner };
    fs.set_attributes(b"attributes", &both)?;
    let is = place.other().lstat(b"attributes")?;
    same("mode and owner", (0o4755, 7, 8), (is.mode, is.uid, is.gid))?;
    let now = SetAttributes { mtime: SetTime::Now, ..Default::default() };
    holds("the server's time", fs.set_attributes(b"attributes", &now)?.mtime > times.1)?;
    same("the content", b"con".to_vec(), place.other().read(b"attributes")?)?;

    let file = fs.open(b"attributes", &BOTH)?;
    file.write_at(3, "tents")?;
    same("the size of what is written", 8, file.stat()?.size)?;
    file.set_attributes(&SetAttributes { size: Some(5), ..Default::default() })?;
    same("the size of an open file", (5, b"conte".to_vec()), (file.stat()?.size, file.read_at(0, 10)?))?;
    file.close()?;
    fails("attributes of what is missing", fs.set_attributes(b"missing", &now), Errno::ENOENT)?;
    fails("attributes of what is missing", fs.stat(b"missing"), Errno::ENOENT)
}

pub(super) fn permissions_are_returned(place: &Place) -> Outcome {
    const USER: u32 = 1234;
    let fs = place.fs();
    fs.create_dir(b"permissions", 0o755)?;
    fs.write(b"permissions/file", "content")?;
    fs.set_attributes(b"permissions/file", &SetAttributes::with_mode(0o640))?;
    let asked = access::READ | access::MODIFY;
    same("what root may do", asked, fs.access(b"permissions/file", asked)?)?;
    let user = place.of_user(USER)?;
    same("what others may do", 0, user.access(b"permissions/file", asked)?)?;
    fails("reading", user.read(b"permissions/file"), Errno::EACCES)?;
    fails("creating", user.create_dir(b"permissions/new", 0o755), Errno::EACCES)?;
    fails(
        "changing the mode",
        user.set_attributes(b"permissions/file", &SetAttributes::with_mode(0o666)),
        Errno::EPERM,
    )?;
    fs.set_attributes(b"permissions/file", &SetAttributes { uid: Some(USER), ..Default::default() })?;
    let user = place.of_user(USER)?;
    same("what the owner may do", b"content".to_vec(), user.read(b"permissions/file")?)?;
    let directory = wait(fs.inner().subdirectory(b"permissions"))?;
    same("below a subdirectory", USER, wait(directory.stat(b"file"))?.uid)
}

pub(super) fn space_is_returned(place: &Place) -> Outcome {
    let space = place.fs().stat_fs(b"")?;
    let is_sane = space.total_bytes > 0
        && space.free_bytes <= space.total_bytes
        && space.available_bytes <= space.free_bytes
        && space.free_files <= space.total_files;
    holds(&format!("free space of {space:?}"), is_sane)
}
