//! Directories of disk caches: what a later process finds in them, and what it refuses.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use client::attributes::{Attributes, FileKind, FsId, Timestamp};
use client::cache::limiter::{Budget, Kind, Limiter};
use client::results::FileHandle;
use tempfile::TempDir;

use super::*;

const SIZE: u64 = 64 << 20;
/// Longest wait for a thread; far above the usual time.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns a file of `blocks` blocks; the last one has a byte.
fn file(number: u8, blocks: u64) -> Arc<FileVersion> {
    let time = Timestamp::default();
    let attributes = Attributes {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: (blocks - 1) * BLOCK + 1,
        used: 0,
        device: (0, 0),
        fsid: FsId::default(),
        fileid: 1,
        atime: time,
        mtime: time,
        ctime: time,
        change: Some(1),
    };
    let handle = FileHandle::new(&[number]).expect("a short handle");
    Arc::new(FileVersion::new(("server", 2049), &handle, &attributes))
}

fn content(number: u8, blocks: u64) -> Bytes {
    (0..(blocks - 1) * BLOCK + 1).map(|at| (at % 253) as u8 ^ number).collect::<Vec<u8>>().into()
}

fn directory() -> (TempDir, PathBuf) {
    let top = tempfile::tempdir().expect("a temporary directory");
    let path = top.path().join("cache");
    (top, path)
}

/// Opens a cache; the threads of the last one may still end.
fn open(path: &Path) -> Arc<DiskCache> {
    DiskCache::open(path, SIZE, WhileBusy::Wait(LIMIT)).expect("a cache")
}

fn put(cache: &DiskCache, number: u8, blocks: u64) {
    let memory = Limiter::new(Budget::new(0)).user().try_reserve(Kind::Requests, 1).expect("memory");
    cache.put(&file(number, blocks), 0, content(number, blocks), memory);
}

/// Returns the blocks of a file that the cache has, after a check of their content.
fn blocks(cache: &DiskCache, number: u8, blocks: u64) -> Vec<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let found = runtime.block_on(cache.get(&file(number, blocks), 0..blocks));
    let all = content(number, blocks);
    let expected = all.chunks(BLOCK as usize);
    found
        .iter()
        .zip(expected)
        .map(|(found, expected)| found.as_ref().map(|data| assert!(data == expected)).is_some())
        .collect()
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the files of blocks.
fn files(path: &Path) -> Vec<PathBuf> {
    let parts = fs::read_dir(path.join("blocks")).expect("blocks").map(|part| part.expect("a part").path());
    parts
        .flat_map(|part| fs::read_dir(part).expect("a part").map(|file| file.expect("a file").path()))
        .collect()
}

/// Makes a cache with a file of four blocks, and ends it.
fn filled(path: &Path) {
    let cache = open(path);
    put(&cache, 1, 4);
    cache.close(LIMIT);
    assert_eq!((cache.counts().stored, cache.counts().dropped), (4, 0));
}

#[test]
fn the_next_process_finds_the_blocks_which_only_the_user_can_read() {
    let (_top, path) = directory();
    filled(&path);
    let mode = |path: &Path| fs::metadata(path).expect("it exists").mode() & 0o7777;
    assert_eq!((mode(&path), mode(&path.join("blocks"))), (0o700, 0o700));
    let all = files(&path);
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|file| mode(file) == 0o600 && mode(file.parent().unwrap()) == 0o700));
    let cache = open(&path);
    assert_eq!(blocks(&cache, 1, 4), [true; 4]);
    assert_eq!(blocks(&cache, 2, 4), [false; 4]);
    await_that("the directory is scanned", || cache.counts().bytes > 3 * BLOCK);
    assert_eq!(blocks(&cache, 2, 4), [false; 4]);
    let counts = cache.counts();
    assert_eq!((counts.hits, counts.misses, counts.damaged, counts.bytes_max), (4, 8, 0, SIZE));
}

#[test]
fn damaged_swapped_and_cut_blocks_are_removed() {
    let (_top, path) = directory();
    filled(&path);
    let all = files(&path);
    let mut flipped = fs::read(&all[0]).unwrap();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x10;
    fs::write(&all[0], flipped).unwrap();
    fs::copy(&all[2], &all[1]).unwrap();
    fs::File::options().write(true).open(&all[3]).unwrap().set_len(30).unwrap();
    let cache = open(&path);
    let found = blocks(&cache, 1, 4);
    assert_eq!(found.iter().filter(|found| **found).count(), 1);
    assert_eq!((cache.counts().damaged, cache.counts().hits, files(&path).len()), (3, 1, 1));
    // They are stored again.
    put(&cache, 1, 4);
    cache.close(LIMIT);
    assert_eq!(blocks(&cache, 1, 4), [true; 4]);
    assert_eq!(cache.counts().damaged, 3);
}

#[test]
fn a_block_that_another_one_has_on_disk_is_no_block_of_this_file() {
    let (_top, path) = directory();
    let cache = open(&path);
    put(&cache, 1, 1);
    put(&cache, 2, 1);
    cache.close(LIMIT);
    let all = files(&path);
    let other = path.join("other");
    for (from, to) in [(&all[0], &other), (&all[1], &all[0]), (&other, &all[1])] {
        fs::rename(from, to).unwrap();
    }
    assert_eq!((blocks(&cache, 1, 1), blocks(&cache, 2, 1)), (vec![false], vec![false]));
    assert_eq!(cache.counts().damaged, 2);
}

#[test]
fn one_process_uses_a_directory_and_the_next_can_wait_for_it() {
    let (_top, path) = directory();
    let first = open(&path);
    let refused =
        DiskCache::open(&path, SIZE, WhileBusy::Wait(Duration::ZERO)).expect_err("it is in use").to_string();
    assert_eq!(refused, format!("the disk cache {}: another mount uses it", path.display()));
    let next = DiskCache::open(&path, SIZE, WhileBusy::WaitInBackground).expect("it waits");
    put(&first, 1, 4);
    first.close(LIMIT);
    assert_eq!(blocks(&next, 1, 4), [false; 4], "not yet");
    drop(first);
    await_that("the lock is free", || blocks(&next, 1, 4) == [true; 4]);
}

#[test]
fn a_cache_of_another_format_is_emptied() {
    let (_top, path) = directory();
    filled(&path);
    fs::write(path.join("enfys-cache"), "enfys disk cache, format 0\n").unwrap();
    let cache = open(&path);
    assert_eq!((blocks(&cache, 1, 4), files(&path).len()), (vec![false; 4], 0));
    put(&cache, 1, 4);
    cache.close(LIMIT);
    drop(cache);
    assert_eq!(blocks(&open(&path), 1, 4), [true; 4]);
}

#[test]
fn incomplete_blocks_of_a_killed_process_are_removed() {
    let (_top, path) = directory();
    filled(&path);
    let left = files(&path)[0].with_extension("new");
    fs::write(&left, "half").unwrap();
    let cache = open(&path);
    await_that("the directory is scanned", || !left.exists());
    assert_eq!(blocks(&cache, 1, 4), [true; 4]);
}

#[test]
fn the_size_of_the_directory_is_bounded_also_if_the_limit_has_become_smaller() {
    let (_top, path) = directory();
    let on_disk = || files(&path).iter().map(|file| fs::metadata(file).unwrap().len()).sum::<u64>();
    let cache = DiskCache::open(&path, 2 << 20, WhileBusy::Wait(LIMIT)).unwrap();
    for number in 0..8 {
        put(&cache, number, 16);
    }
    cache.close(LIMIT);
    assert!(on_disk() > 1 << 20 && on_disk() <= 2 << 20, "{}", on_disk());
    assert!(cache.counts().bytes <= 2 << 20);
    drop(cache);
    let cache = DiskCache::open(&path, 1 << 20, WhileBusy::Wait(LIMIT)).unwrap();
    cache.close(LIMIT);
    assert!(on_disk() <= 1 << 20);
}

#[test]
fn directories_that_are_no_caches_are_refused() {
    let (_top, path) = directory();
    let refused = || DiskCache::open(&path, SIZE, WhileBusy::Wait(LIMIT)).expect_err("it is refused").why;
    fs::write(&path, "a file").unwrap();
    assert_eq!(refused(), "not a directory");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(refused(), "others could read files there: it must be your own, with mode 0700");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(path.join("thesis"), "years").unwrap();
    assert_eq!(refused(), "it has other files: name a directory that is empty or does not exist");
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
    fs::remove_file(path.join("thesis")).unwrap();
    open(&path);
}
