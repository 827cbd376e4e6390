//! Operations on many files in few requests, and walks.

use bytes::Bytes;
use client::attributes::FileKind;
use client::errno::Errno;
use client::error::Error;
use client::fs::{Listing, NewPath, WholeFile};
use client::many::NewKind;
use client::results::NewObject;
use net::blocking::wait;

use super::{Outcome, Place, fails, holds, same};

const COUNT: usize = 60;
/// Enough for many requests, and for two READs of a small file.
const MAX: u32 = 70_000;

pub(super) fn many_files(place: &Place) -> Outcome {
    let fs = place.fs();
    let new = |path, kind| NewPath { path, kind, mode: 0o750 };
    let directory = || NewKind::Object(NewObject::Directory);
    for level in [
        vec![new(&b"many"[..], directory())],
        vec![
            new(b"many/a", directory()),
            new(b"many/empty", NewKind::File),
            new(b"many/link", NewKind::Object(NewObject::Symlink("a/file 1".into()))),
        ],
    ] {
        for made in fs.create_many(&level) {
            made?;
        }
    }
    let again =
        fs.create_many(&[new(b"many/a", directory()), new(b"many/fifo", NewKind::Object(NewObject::Fifo))]);
    let [again, fifo] = <[_; 2]>::try_from(again).map_err(|_| "two results are expected")?;
    fails("making what exists", again, Errno::EEXIST)?;
    same("the item after it", FileKind::Fifo, fifo?.attributes.kind)?;

    let content = |number: usize| Bytes::from(vec![number as u8; number * 1000]);
    let mut paths: Vec<Vec<u8>> =
        (1..=COUNT).map(|number| format!("many/a/file {number}").into_bytes()).collect();
    paths.push(b"many/missing/file".to_vec());
    let numbered = || paths.iter().zip(1..);
    let files: Vec<WholeFile<'_>> =
        numbered().map(|(path, number)| WholeFile { path, mode: 0o640, data: content(number) }).collect();
    last_is_missing("write_many", fs.write_many(&files))?;
    let paths: Vec<&[u8]> = paths.iter().map(|path| &path[..]).collect();
    let read = last_is_missing("read_many", place.other().read_many(&paths, MAX))?;
    let unopened = last_is_missing("read_many_unopened", place.other().read_many_unopened(&paths, MAX))?;
    for (data, number) in read.iter().zip(1..).chain(unopened.iter().zip(1..)) {
        // Not the contents themselves, which would fill the screen.
        let described = |data: &Bytes| (data.len(), data.first().copied(), *data == content(number));
        same(&format!("file {number}"), described(&content(number)), described(data))?;
    }
    let found = last_is_missing("stat_many", place.other().stat_many(&paths))?;
    holds(
        "all sizes and modes",
        found.iter().zip(1..).all(|(it, number)| (it.size, it.mode) == (number * 1000, 0o640)),
    )?;

    let mut read = fs.read_many(&[b"many/link", b"many/empty", b"many/a/file 60"], 1000).into_iter();
    let mut next = || read.next().ok_or("a result is missing");
    same("through a link", content(1), next()??)?;
    same("an empty file", Bytes::new(), next()??)?;
    fails("a file that is longer", next()?, Errno::EFBIG)?;
    drop(read);
    let kind =
        |found: Vec<Result<client::attributes::Attributes, Error>>| found.into_iter().next().ok_or("none");
    same("a link itself", FileKind::Symlink, kind(fs.stat_many(&[b"many/link"]))??.kind)?;

    last_is_missing("remove_many", fs.remove_many(&paths, false))?;
    same("what is left", 0, place.other().read_dir(b"many/a")?.len())?;
    for removed in fs.remove_many(&[b"many/a"], true) {
        removed?;
    }
    let refused = fs.remove_many(&[b"many"], true).pop().ok_or("a result is missing")?;
    fails("removing what is not empty", refused, Errno::ENOTEMPTY)
}

/// Returns all results but the last, which must be ENOENT.
#[track_caller]
fn last_is_missing<T>(what: &str, mut outcomes: Vec<Result<T, Error>>) -> Outcome<Vec<T>> {
    same(what, COUNT + 1, outcomes.len())?;
    fails(what, outcomes.pop().ok_or("a result is missing")?, Errno::ENOENT)?;
    Ok(outcomes.into_iter().collect::<Result<_, _>>()?)
}

pub(super) fn trees_are_listed(place: &Place) -> Outcome {
    let (fs, other) = (place.fs(), place.other().inner());
    let mut wanted = vec![Vec::new()];
    fs.create_dir(b"walked", 0o755)?;
    for path in ["a", "b", "a/c", "a/c/d"] {
        fs.create_dir(format!("walked/{path}").as_bytes(), 0o755)?;
        fs.write(format!("walked/{path}/file").as_bytes(), path.to_owned())?;
        wanted.push(path.as_bytes().to_vec());
    }
    let directory = wait(other.subdirectory(b"walked"))?;
    let mut walk = other.walk(directory.root(), usize::MAX);
    let (mut paths, mut files) = (Vec::new(), 0);
    while let Some(listed) = wait(walk.next()) {
        let listed = listed?;
        let objects = || listed.entries.iter().filter_map(|entry| entry.object);
        files += objects().filter(|object| object.attributes.kind == FileKind::Regular).count();
        paths.push(listed.path);
    }
    wanted.sort();
    paths.sort();
    same("the directories of a walk", (wanted, 4), (paths, files))?;
    let mut walk = other.walk(directory.root(), 0);
    holds("a walk of depth 0", wait(walk.next()).is_some() && wait(walk.next()).is_none())?;

    let failed = |error| format!("a listing: {error}");
    let entries = wait(other.list(&directory.root(), false)).map_err(failed)?;
    let rest = wait(other.list_rest(directory.root().handle, Listing::default(), true)).map_err(failed)?;
    same("two listings", (2, 2), (entries.len(), rest.len()))?;
    let objects: Vec<_> = rest.iter().filter_map(|entry| entry.object).collect();
    for (object, listing) in objects.iter().zip(wait(other.list_many(&objects))) {
        let entries = wait(other.list_whole(object, listing.map_err(failed)?)).map_err(failed)?;
        holds("listings of many", entries.iter().any(|entry| entry.name == "file"))?;
    }
    Ok(())
}

/// Removes all files, then the directories, those inside of others first.
pub(super) fn everything_is_removed(place: &Place) -> Outcome {
    let (fs, mut files, mut directories) = (place.fs(), Vec::new(), Vec::new());
    let mut walk = fs.inner().walk(fs.inner().root(), usize::MAX);
    while let Some(listed) = wait(walk.next()) {
        let listed = listed?;
        for entry in &listed.entries {
            let path = match &listed.path[..] {
                b"" => entry.name.to_vec(),
                parent => [parent, &entry.name].join(&b'/'),
            };
            let is_directory = entry.object.is_some_and(|it| it.attributes.kind == FileKind::Directory);
            if is_directory { &mut directories } else { &mut files }.push(path);
        }
    }
    directories.sort_by_key(|path: &Vec<u8>| std::cmp::Reverse(path.len()));
    let slices: Vec<&[u8]> = files.iter().map(|path| &path[..]).collect();
    for removed in fs.remove_many(&slices, false) {
        removed?;
    }
    for path in &directories {
        fs.remove_dir(path)?;
    }
    same("what is left", 0, place.other().read_dir(b"")?.len())
}
