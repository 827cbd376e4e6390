//! Directories, rename, links, special files.

use client::attributes::FileKind;
use client::config::Version;
use client::errno::Errno;
use client::fs::OpenOptions;
use client::results::NewObject;
use net::blocking::{FileSystem, wait};

use super::{Outcome, Place, fails, holds, same};

/// Returns the sorted names in a directory.
fn names(fs: &FileSystem, path: &[u8]) -> Outcome<Vec<Vec<u8>>> {
    let mut names: Vec<Vec<u8>> = fs.read_dir(path)?.into_iter().map(|entry| entry.name.to_vec()).collect();
    names.sort();
    Ok(names)
}

pub(super) fn directories(place: &Place) -> Outcome {
    let fs = place.fs();
    fs.create_dir(b"dirs", 0o750)?;
    let is = place.other().stat(b"dirs")?;
    same("type and mode", (FileKind::Directory, 0o750), (is.kind, is.mode))?;
    fails("a second one", fs.create_dir(b"dirs", 0o755), Errno::EEXIST)?;
    fails("one below what is missing", fs.create_dir(b"missing/dir", 0o755), Errno::ENOENT)?;
    let mut wanted: Vec<Vec<u8>> = (0..40).map(|number| format!("dir {number}").into_bytes()).collect();
    wanted.sort();
    for name in &wanted {
        fs.create_dir(&[b"dirs/", &name[..]].concat(), 0o755)?;
    }
    same("a listing", &wanted, &names(place.other(), b"dirs")?)?;
    let entries = wait(fs.inner().read_dir(b"dirs", true))?;
    let directories = entries
        .iter()
        .filter(|entry| entry.object.is_some_and(|it| it.attributes.kind == FileKind::Directory))
        .count();
    // READDIR of version 2 has none (RFC 1094 §2.2.17).
    let with_attributes = if place.version() == Version::V2 { 0 } else { wanted.len() };
    same("a listing with attributes", (wanted.len(), with_attributes), (entries.len(), directories))?;

    fs.write(b"dirs/file", "content")?;
    fails("listing a file", fs.read_dir(b"dirs/file"), Errno::ENOTDIR)?;
    fails("removing what is not empty", fs.remove_dir(b"dirs"), Errno::ENOTEMPTY)?;
    fails("removing a file as a directory", fs.remove_dir(b"dirs/file"), Errno::ENOTDIR)?;
    fails("removing a directory as a file", fs.remove_file(b"dirs/dir 1"), Errno::EISDIR)?;
    fails("removing what is missing", fs.remove_file(b"dirs/missing"), Errno::ENOENT)?;
    fails("a name that is too long", fs.create_dir(&[b'n'; 256], 0o755), Errno::ENAMETOOLONG)?;
    fs.create_dir(&[b'n'; 255], 0o755)?;
    fs.remove_dir(&[b'n'; 255])?;
    fs.remove_file(b"dirs/file")?;
    for name in &wanted {
        fs.remove_dir(&[b"dirs/", &name[..]].concat())?;
    }
    fs.remove_dir(b"dirs")?;
    fails("what was removed", place.other().lstat(b"dirs"), Errno::ENOENT)
}

pub(super) fn renames(place: &Place) -> Outcome {
    let fs = place.fs();
    fs.create_dir(b"renames", 0o755)?;
    for name in ["renames/from", "renames/to"] {
        fs.create_dir(name.as_bytes(), 0o755)?;
        fs.write(format!("{name}/file").as_bytes(), name.to_owned())?;
    }
    fs.rename(b"renames/from/file", b"renames/to/moved")?;
    same("a file in another directory", b"renames/from".to_vec(), place.other().read(b"renames/to/moved")?)?;
    fs.rename(b"renames/to/moved", b"renames/to/file")?;
    same("a file that replaces another", b"renames/from".to_vec(), fs.read(b"renames/to/file")?)?;
    same("the names", vec![b"file".to_vec()], names(place.other(), b"renames/to")?)?;
    // POSIX leaves the choice: EEXIST or ENOTEMPTY.
    let refused = fs.rename(b"renames/from", b"renames/to").err().map(|error| error.errno());
    holds(
        "replacing a directory that is not empty",
        matches!(refused, Some(Errno::ENOTEMPTY | Errno::EEXIST)),
    )?;
    // Version 2 has no error of its own for it (RFC 1094 §2.3.1).
    let invalid = if place.version() == Version::V2 { Errno::EIO } else { Errno::EINVAL };
    fails("a directory into itself", fs.rename(b"renames/to", b"renames/to/below"), invalid)?;
    fails("what is missing", fs.rename(b"renames/missing", b"renames/new"), Errno::ENOENT)?;
    fs.rename(b"renames/to", b"renames/from")?;
    same(
        "a directory that replaces an empty one",
        vec![b"from".to_vec()],
        names(place.other(), b"renames")?,
    )?;
    same("what is in it", b"renames/from".to_vec(), fs.read(b"renames/from/file")?)
}

pub(super) fn links(place: &Place) -> Outcome {
    let (fs, other) = (place.fs(), place.other());
    fs.create_dir(b"links", 0o755)?;
    fs.write(b"links/file", "content")?;
    fs.link(b"links/file", b"links/second")?;
    let (one, two) = (other.stat(b"links/file")?, other.stat(b"links/second")?);
    same("a hard link", (2, one.fileid), (two.nlink, two.fileid))?;
    fails("a link over another name", fs.link(b"links/file", b"links/second"), Errno::EEXIST)?;
    fs.remove_file(b"links/file")?;
    same("names that are left", 1, fs.stat(b"links/second")?.nlink)?;

    let link = fs.symlink(b"second", b"links/symlink")?;
    same("what was made", FileKind::Symlink, link.attributes.kind)?;
    same("the link itself", FileKind::Symlink, other.lstat(b"links/symlink")?.kind)?;
    same("its content", b"second".to_vec(), other.read_link(b"links/symlink")?.to_vec())?;
    same(
        "what it names",
        (two.fileid, b"content".to_vec()),
        (fs.stat(b"links/symlink")?.fileid, fs.read(b"links/symlink")?),
    )?;
    fs.write(b"links/symlink", "through the link")?;
    same("what was written through it", b"through the link".to_vec(), other.read(b"links/second")?)?;
    fs.symlink(b"missing", b"links/dangling")?;
    fails("a link that leads nowhere", fs.stat(b"links/dangling"), Errno::ENOENT)?;
    fs.symlink(b"loop", b"links/loop")?;
    fails("a link to itself", fs.stat(b"links/loop"), Errno::ELOOP)?;
    fails("the content of a file", fs.read_link(b"links/second"), Errno::EINVAL)
}

pub(super) fn special_files(place: &Place) -> Outcome {
    let fs = place.fs();
    fs.create_dir(b"special", 0o755)?;
    let kinds = [
        ("special/fifo", NewObject::Fifo),
        ("special/socket", NewObject::Socket),
        ("special/character", NewObject::CharacterDevice(1, 3)),
        ("special/block", NewObject::BlockDevice(7, 260)),
    ];
    for (name, kind) in &kinds {
        fs.mknod(name.as_bytes(), kind, 0o640)?;
        let is = place.other().lstat(name.as_bytes())?;
        same(name, (kind.file_kind(), 0o640), (is.kind, is.mode))?;
        if let NewObject::CharacterDevice(major, minor) | NewObject::BlockDevice(major, minor) = kind {
            same(name, (*major, *minor), is.device)?;
        }
        fails("opening it", fs.open(name.as_bytes(), &OpenOptions::READ), Errno::ENXIO)?;
        fails("another one", fs.mknod(name.as_bytes(), kind, 0o640), Errno::EEXIST)?;
    }
    Ok(())
}
