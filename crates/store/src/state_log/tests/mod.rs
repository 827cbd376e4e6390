//! The log over restarts, crashes and damage; the threads that write it, and the times of their writes.

use std::future::Future;
use std::hash::Hasher;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::pin::pin;
use std::task::{Context, Wake, Waker};

use server::StateLog;
use siphasher::sip::SipHasher13;
use vfs::SyncLatency;
use vfs::Thread::{Exclusive, Shared};

use super::format::Key;
use super::*;

mod full_disk;

type Map = HashMap<Vec<u8>, Vec<u8>>;

fn new_path() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    (directory, path)
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl FileStateLog {
    /// Waits until a change is stable.
    fn wait(&self, number: u64, thread: Thread) {
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut reached = pin!(self.reached(number, thread));
        while reached.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            std::thread::park();
        }
        assert!(self.stable() >= number);
    }
}

fn set(log: &FileStateLog, key: &[u8], value: Option<&[u8]>) {
    log.wait(log.set(key, value), Shared);
}

/// Returns the entries that the next server finds, and its line about damage.
fn found(path: &Path) -> (Map, Option<String>) {
    let (_log, recovered) = FileStateLog::open(path, false).unwrap();
    (recovered.entries.into_iter().collect(), recovered.damage)
}

/// Returns the map in the file now, and the line about damage.
fn in_file(path: &Path) -> (Map, Option<String>) {
    format::scan(&fs::read(path).unwrap()).into_map()
}

fn map(entries: &[(&str, &str)]) -> Map {
    entries.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

/// Returns the file without the zeros after the records.
fn written(path: &Path) -> Vec<u8> {
    without_zeros(&fs::read(path).unwrap()).to_vec()
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)]
}

/// Makes a file of some changes, each synced by itself; returns the end of each record.
fn file_of(path: &Path) -> Vec<usize> {
    let (log, _) = FileStateLog::open(path, false).unwrap();
    set(&log, b"c-first", Some(b"1"));
    let mut ends = vec![written(path).len()];
    for (key, value) in [
        ("c-a", Some("may reclaim")),
        ("c-b", Some("may reclaim")),
        ("c-a", Some("lost something")),
        ("c-b", None),
        ("c-d", Some("may reclaim")),
    ] {
        set(&log, key.as_bytes(), value.map(str::as_bytes));
        ends.push(written(path).len());
    }
    ends
}

/// Returns the line about a torn tail; `None` for one without bytes other than zeros.
fn torn(tail: &[u8]) -> Option<String> {
    let bytes = without_zeros(tail).len();
    (bytes > 0).then(|| format!("torn: ignored its last {bytes} bytes, which no client has seen"))
}

/// Returns the map in the file of `file_of`.
fn all() -> Map {
    map(&[("c-first", "1"), ("c-a", "lost something"), ("c-d", "may reclaim")])
}

#[test]
fn acknowledged_changes_are_in_the_file_while_it_is_open() {
    let (_directory, path) = new_path();
    file_of(&path);
    let (log, recovered) = FileStateLog::open(&path, false).unwrap();
    assert_eq!((recovered.entries.into_iter().collect::<Map>(), recovered.damage), (all(), None));
    set(&log, b"c-e", Some(b"late"));
    let mut expected = all();
    expected.insert(b"c-e".to_vec(), b"late".to_vec());
    assert_eq!(in_file(&path), (expected.clone(), None));
    drop(log);
    assert_eq!(found(&path), (expected, None));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn changes_of_many_threads_are_all_written() {
    let (_directory, path) = new_path();
    let (log, _) = FileStateLog::open(&path, false).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..100u8 {
                    set(log, &[b'c', thread, number], Some(&[number]));
                }
            });
        }
    });
    assert_eq!(log.stable(), 800);
    assert_eq!(in_file(&path).0.len(), 800);
}

#[test]
fn a_torn_tail_loses_only_unacknowledged_changes() {
    let (_directory, path) = new_path();
    let ends = file_of(&path);
    let whole = written(&path);
    // Cut anywhere: the whole records count, and the line names the number of bytes after them.
    for cut in ends[0]..whole.len() {
        let end = *ends.iter().rfind(|end| **end <= cut).unwrap();
        let (expected, nothing) = format::scan(&whole[..end]).into_map();
        assert_eq!(nothing, None);
        let damage = torn(&whole[end..cut]);
        assert_eq!(format::scan(&whole[..cut]).into_map(), (expected, damage), "cut at {cut}");
    }
    // The server reports it, and appends after the last whole record.
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let (log, recovered) = FileStateLog::open(&path, true).unwrap();
    let damage = torn(&whole[ends[ends.len() - 2]..whole.len() - 3]).unwrap();
    assert_eq!(recovered.damage, Some(format!("{}: {damage}", path.display())));
    set(&log, b"c-f", Some(b"since"));
    drop(log);
    let expected = map(&[("c-first", "1"), ("c-a", "lost something"), ("c-f", "since")]);
    assert_eq!(found(&path), (expected, None));
}

#[test]
fn a_missing_sector_is_a_torn_tail_and_other_zeros_in_a_record_are_damage() {
    let (_directory, path) = new_path();
    let (log, _) = FileStateLog::open(&path, false).unwrap();
    let mut ends = vec![format::HEADER];
    // Headers and bodies cross sector boundaries.
    for number in 0..20u8 {
        set(&log, &[b'c', number], Some(&vec![7; 1 + 37 * usize::from(number)]));
        ends.push(written(&path).len());
    }
    drop(log);
    let whole = written(&path);
    let (mut torn_ones, mut damaged) = (0, 0);
    for cut in (ends[1]..whole.len()).filter(|cut| matches!(cut % 512, 0 | 100)) {
        // Only the file's length was written.
        let zeros = [&whole[..cut], &vec![0; 8192]].concat();
        let (seen, damage) = format::scan(&zeros).into_map();
        let whole_records = ends.iter().rposition(|end| *end <= cut).unwrap();
        if cut % 512 == 0 {
            assert_eq!(
                (seen.len(), damage),
                (whole_records, torn(&whole[ends[whole_records]..cut])),
                "zeros from {cut}"
            );
            torn_ones += 1;
        } else if damage.is_some_and(|damage| damage.starts_with("damaged ")) {
            assert!(seen.is_empty(), "records before damage are ignored");
            damaged += 1;
        }
    }
    assert!(torn_ones > 10 && damaged > 5, "{torn_ones} torn, {damaged} damaged");
}

#[test]
fn any_flipped_bit_is_noticed_and_only_later_records_count() {
    let (_directory, path) = new_path();
    let ends = file_of(&path);
    let whole = written(&path);
    for at in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            let (seen, damage) = format::scan(&bytes).into_map();
            assert!(damage.is_some_and(|damage| !damage.starts_with("torn")), "byte {at}");
            // Only records after the damage count.
            let behind = ends.iter().filter(|end| **end > at).count().saturating_sub(1);
            let expected = match behind {
                _ if at < format::HEADER => Map::new(),
                0 => Map::new(),
                1 | 2 => map(&[("c-d", "may reclaim")]),
                3.. => map(&[("c-a", "lost something"), ("c-d", "may reclaim")]),
            };
            let seen_of_b = seen.get(b"c-b".as_slice());
            assert_eq!(seen_of_b, None, "byte {at}: it was removed");
            assert_eq!(seen, expected, "byte {at}");
        }
    }
    let mut bytes = whole;
    bytes[ends[2] + 40] ^= 1;
    fs::write(&path, bytes).unwrap();
    let damage = found(&path).1.unwrap();
    let expected = "damaged in 1 places: clients that may be affected cannot reclaim";
    assert_eq!(damage, format!("{}: {expected}", path.display()));
    // Rewritten, so that it is reported once.
    assert_eq!(found(&path).1, None);
}

#[test]
fn a_file_that_is_not_a_log_of_this_version_is_replaced() {
    let (_directory, path) = new_path();
    file_of(&path);
    let whole = written(&path);
    let other = [&whole[..7], &[whole[7] + 1], &whole[8..]].concat();
    for (bytes, what) in [
        (other, "of another version"),
        (vec![0; 4096], "not a state log, or damaged"),
        (b"Enfys".to_vec(), "not a state log, or damaged"),
    ] {
        fs::write(&path, bytes).unwrap();
        let (seen, damage) = found(&path);
        assert!(seen.is_empty());
        assert!(damage.unwrap().contains(&format!("{}: {what}:", path.display())));
        assert_eq!(found(&path), (Map::new(), None));
    }
}

#[test]
fn an_empty_or_missing_log_is_reported() {
    let (_directory, path) = new_path();
    file_of(&path);
    let message =
        |what: &str| format!("{}: {what}: clients of the previous server cannot reclaim", path.display());
    // As if the server could neither write nor remove it.
    fs::write(&path, b"").unwrap();
    assert_eq!(found(&path), (Map::new(), Some(message("empty"))));
    assert_eq!(found(&path), (Map::new(), None), "rewritten, so that it is reported once");
    // As if the server could not write it.
    for (is_expected, damage) in [(true, Some(message("missing"))), (false, None)] {
        fs::remove_file(&path).unwrap();
        let (_log, recovered) = FileStateLog::open(&path, is_expected).unwrap();
        assert_eq!((recovered.entries, recovered.damage), (Vec::new(), damage), "expected: {is_expected}");
    }
}

#[test]
fn the_size_of_the_file_is_proportional_to_its_map() {
    let (_directory, path) = new_path();
    let (log, _) = FileStateLog::open(&path, false).unwrap();
    let value = vec![7; VALUE_BYTES_MAX];
    for round in 0..200u8 {
        set(&log, &[b'c', round % 4], Some(&value));
    }
    let length = fs::metadata(&path).unwrap().len();
    assert!(length < 3 << 20, "{length} bytes for 4 values of 64 KiB");
    drop(log);
    assert_eq!(found(&path).0.len(), 4);
}

#[test]
fn a_log_that_cannot_be_written_is_removed_without_a_wait() {
    let (directory, path) = new_path();
    file_of(&path);
    // It is damaged and must be rewritten, but the spare file cannot be made.
    let mut bytes = written(&path);
    bytes[format::HEADER] ^= 1;
    fs::write(&path, bytes).unwrap();
    let new = file::SpareFile::path(&path);
    fs::remove_file(&new).unwrap();
    fs::create_dir(&new).unwrap();
    let (log, recovered) = FileStateLog::open(&path, false).unwrap();
    assert_eq!(recovered.entries.len(), 2, "records after the damage");
    set(&log, b"c-g", Some(b"not written"));
    assert!(!path.exists(), "the next server finds nothing");
    // Later it is written again, with all changes since.
    fs::remove_dir(&new).unwrap();
    while !path.exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    set(&log, b"c-h", Some(b"written"));
    let mut expected: Map = recovered.entries.into_iter().collect();
    expected.extend(map(&[("c-g", "not written"), ("c-h", "written")]));
    assert_eq!(in_file(&path), (expected, None));
    drop(directory);
}

#[test]
fn a_file_that_cannot_be_rewritten_is_appended_to() {
    let (_directory, path) = new_path();
    file_of(&path);
    let new = file::SpareFile::path(&path);
    fs::remove_file(&new).unwrap();
    fs::create_dir(&new).unwrap();
    let (log, recovered) = FileStateLog::open(&path, false).unwrap();
    assert_eq!((recovered.entries.into_iter().collect::<Map>(), recovered.damage), (all(), None));
    let value = vec![7; VALUE_BYTES_MAX];
    for round in 0..40u8 {
        set(&log, b"c-a", Some(&value));
        set(&log, b"c-b", Some(&[round]));
    }
    assert!(fs::metadata(&path).unwrap().len() > 2 << 20, "it would have been rewritten");
    assert!(log.is_written() && log.has_room());
    let (seen, damage) = in_file(&path);
    assert_eq!((seen[b"c-b".as_slice()].as_slice(), damage), ([39].as_slice(), None));
}

#[test]
fn a_path_that_is_not_a_file_is_reported() {
    let (_directory, path) = new_path();
    fs::create_dir(&path).unwrap();
    let (_log, recovered) = FileStateLog::open(&path, false).unwrap();
    assert!(recovered.damage.unwrap().starts_with(&format!("{}: cannot be read: ", path.display())));
}

#[test]
fn records_replace_zeros_and_the_file_grows_rarely() {
    let (_directory, path) = new_path();
    let (log, _) = FileStateLog::open(&path, false).unwrap();
    let mut lengths = Vec::new();
    for number in 0..1000u16 {
        set(&log, b"c-a", Some(&[&number.to_le_bytes()[..], &[7; 998]].concat()));
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.blocks() * 512 >= metadata.len(), "zeros are written, too");
        lengths.push(metadata.len());
    }
    lengths.dedup();
    assert!((2..=5).contains(&lengths.len()), "1 MB of records: {lengths:?}");
    assert_eq!(in_file(&path), (Map::from([(b"c-a".to_vec(), [&[0xe7, 3][..], &[7; 998]].concat())]), None));
}

/// A file of synced records with zeros after them, and a batch that was written but not synced.
struct Unsynced {
    synced: Vec<u8>,
    batch: Vec<u8>,
    /// Number of synced changes. Each change sets another key.
    changes: usize,
    /// The end of each record of the batch in the file.
    ends: Vec<usize>,
}

const SECTOR: usize = 512;
const SUMS: Key = [9; 16];

/// Returns the change of this number, with a value of `bytes` bytes.
fn change(number: usize, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    ([&b"c-"[..], &number.to_be_bytes()].concat(), vec![number as u8 | 1; bytes])
}

impl Unsynced {
    /// `synced` and `batch` are lengths of values.
    fn new(synced: &[usize], batch: &[usize]) -> Self {
        let mut it = Self {
            synced: format::header(&SUMS),
            batch: Vec::new(),
            changes: synced.len(),
            ends: Vec::new(),
        };
        for (number, bytes) in (1..).zip(synced) {
            let (key, value) = change(number, *bytes);
            let mut alone = Vec::new();
            format::push_to_batch(&mut alone, &SUMS, number as u64, &key, Some(&value));
            it.synced.extend(alone);
        }
        for (number, bytes) in (it.changes + 1..).zip(batch) {
            let (key, value) = change(number, *bytes);
            format::push_to_batch(&mut it.batch, &SUMS, number as u64, &key, Some(&value));
            it.ends.push(it.synced.len() + it.batch.len());
        }
        it
    }

    /// Returns the sectors of the batch.
    fn sectors(&self) -> std::ops::Range<usize> {
        let end = self.synced.len() + self.batch.len();
        self.synced.len() / SECTOR..end.div_ceil(SECTOR)
    }

    /// Returns the file if only these sectors of the batch were written.
    fn cut_off(&self, is_written: impl Fn(usize) -> bool) -> Vec<u8> {
        let new = [&self.synced[..], &self.batch].concat();
        let mut file = [&self.synced[..], &vec![0; self.batch.len() + 4 * SECTOR]].concat();
        for sector in self.sectors().filter(|sector| is_written(*sector)) {
            let end = new.len().min((sector + 1) * SECTOR);
            file[sector * SECTOR..end].copy_from_slice(&new[sector * SECTOR..end]);
        }
        file
    }

    /// Returns the number of changes that the file must have: all synced ones, and those of the batch up to the first incomplete one.
    fn expected(&self, is_written: impl Fn(usize) -> bool) -> usize {
        let starts = std::iter::once(self.synced.len()).chain(self.ends.iter().copied());
        let is_whole = |start: usize, end: usize| (start / SECTOR..end.div_ceil(SECTOR)).all(&is_written);
        let whole = starts.zip(&self.ends).take_while(|(start, end)| is_whole(*start, **end)).count();
        self.changes + whole
    }
}

fn first_changes(count: usize, file: &[u8]) {
    let (map, damage) = format::scan(file).into_map();
    assert!(damage.as_ref().is_none_or(|damage| damage.starts_with("torn")), "{damage:?}");
    assert_eq!(map.len(), count);
    assert!((1..=count).all(|number| map.contains_key(&change(number, 0).0)), "not the first {count}");
}

#[test]
fn any_sectors_of_the_last_batch_may_be_missing() {
    for (synced, batch) in [
        (&[1, 20, 300][..], &[1500][..]),
        (&[40], &[100, 100, 100, 100, 700, 100, 1100, 3, 3]),
        (&[], &[460, 30, 30, 600]),
        (&[2000, 7], &[15, 500, 470, 1, 470, 1, 470, 1]),
    ] {
        let it = Unsynced::new(synced, batch);
        let sectors = it.sectors();
        for mask in 0..1u32 << sectors.len() {
            let is_written = |sector: usize| mask >> (sector - sectors.start) & 1 == 1;
            first_changes(it.expected(is_written), &it.cut_off(is_written));
        }
    }
}

#[test]
fn a_missing_sector_before_a_later_batch_is_damage() {
    let it = Unsynced::new(&[30, 1500, 1500], &[100]);
    let mut file = it.cut_off(|_| true);
    assert_eq!(format::scan(&file).into_map().1, None);
    file[2 * SECTOR..3 * SECTOR].fill(0);
    let (map, damage) = format::scan(&file).into_map();
    assert_eq!(damage.unwrap(), "damaged in 1 places: clients that may be affected cannot reclaim");
    assert_eq!(map.len(), 2, "the later records");
}

#[test]
fn a_flipped_bit_in_a_record_is_damage_and_one_in_the_zeros_is_harmless() {
    let it = Unsynced::new(&[30, 60, 500], &[100, 40]);
    let whole = it.cut_off(|_| true);
    let end = *it.ends.last().unwrap();
    for at in format::HEADER..end {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let (map, damage) = format::scan(&bytes).into_map();
        assert!(damage.is_some_and(|damage| damage.starts_with("damaged")), "byte {at}");
        let behind = it.ends.iter().filter(|record| **record > at).count().saturating_sub(1);
        assert!(map.len() >= behind && map.len() < 5, "byte {at}: {} changes", map.len());
    }
    for at in end.next_multiple_of(SECTOR)..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        first_changes(5, &bytes);
    }
}

#[test]
fn a_log_of_an_older_server_without_zeros_is_read() {
    // Its format: number, length, four zeros, both checksums.
    let record = |number: u64, body: &[u8]| {
        let sum = |parts: &[&[u8]]| {
            let mut hasher = SipHasher13::new_with_key(&SUMS);
            parts.iter().for_each(|part| hasher.write(part));
            hasher.finish().to_le_bytes()
        };
        let of_body = sum(&[&number.to_le_bytes()[..], body]);
        let head =
            [&number.to_le_bytes()[..], &(body.len() as u32).to_le_bytes(), &[0; 4], &of_body].concat();
        [&head[..], &sum(&[&head[..]]), body].concat()
    };
    let records = [
        record(8, b"\x01\x03\x00c-amay reclaim\xa5"),
        record(9, b"\x01\x03\x00c-bmay reclaim\xa5"),
        record(10, b"\x00\x03\x00c-a\xa5"),
    ];
    let file = [format::header(&SUMS), records.concat()].concat();
    assert_eq!(format::scan(&file).into_map(), (map(&[("c-b", "may reclaim")]), None));
    let torn_at = file.len() - 5;
    let both = map(&[("c-a", "may reclaim"), ("c-b", "may reclaim")]);
    let rest = torn(&file[file.len() - records[2].len()..torn_at]);
    assert_eq!(format::scan(&file[..torn_at]).into_map(), (both, rest));
}

impl FileStateLog {
    /// Waits until the log's thread is idle, and makes recent syncs count as short.
    fn set_fast(&self) {
        while !self.log.shared.queue.lock().is_idle {
            std::thread::yield_now();
        }
        (0..SyncLatency::SHORT_SYNCS)
            .for_each(|_| self.log.shared.sync_latency.record(std::time::Duration::ZERO));
    }

    /// Sets a key on a fast log, and waits on a thread that serves no other client.
    fn set_alone(&self, key: &[u8], value: &[u8]) {
        self.set_fast();
        let number = self.set(key, Some(value));
        self.wait(number, Exclusive);
    }

    /// Returns the numbers of syncs of the calling thread and the log's thread after the first `count`.
    fn syncs_since(&self, count: usize) -> (usize, usize) {
        let threads = &self.log.shared.syncs.lock()[count..];
        let here = threads.iter().filter(|thread| **thread == std::thread::current().id()).count();
        (here, threads.len() - here)
    }

    /// Returns the number of syncs of each thread during `change`.
    fn syncs_of(&self, change: impl FnOnce()) -> (usize, usize) {
        self.set_fast();
        let count = self.log.shared.syncs.lock().len();
        change();
        self.syncs_since(count)
    }
}

const HERE: (usize, usize) = (1, 0);
const ELSEWHERE: (usize, usize) = (0, 1);

#[test]
fn a_caller_that_waits_alone_syncs_itself() {
    let (_directory, path) = new_path();
    let (log, _) = FileStateLog::open(&path, false).unwrap();
    set(&log, b"c-first", Some(b"1"));
    let clients: Vec<_> = (0..100u8).map(|number| vec![b'c', number]).collect();
    let count = log.log.shared.syncs.lock().len();
    clients.iter().for_each(|client| log.set_alone(client, b"may reclaim"));
    assert_eq!(log.syncs_since(count), (100, 0), "one sync each, on this thread");
    assert_eq!(in_file(&path).0.len(), 101);
    drop(log);
    assert_eq!((found(&path).0.len(), found(&path).1), (101, None));
}

#[test]
fn no_caller_syncs_on_a_shared_thread_or_if_syncs_are_slow_or_others_wait() {
    let (_directory, path) = new_path();
    let (log, _) = FileStateLog::open(&path, false).unwrap();
    set(&log, b"c-first", Some(b"1"));
    assert_eq!(log.syncs_of(|| set(&log, b"c-a", Some(b"shared"))), ELSEWHERE);
    let slow = || {
        log.log.shared.sync_latency.record(SyncLatency::SHORT);
        let number = log.set(b"c-b", Some(b"slow"));
        log.wait(number, Exclusive);
    };
    assert_eq!(log.syncs_of(slow), ELSEWHERE);
    // Another task waits already, and the log's thread is about to serve it.
    let beside_another = || {
        let (first, second) = (log.set(b"c-c", Some(b"first")), log.set(b"c-d", Some(b"second")));
        let mut ticket = None;
        log.log.shared.queue.lock().waiting.register(&mut ticket, first, Waker::noop());
        log.wait(second, Exclusive);
    };
    assert_eq!(log.syncs_of(beside_another), ELSEWHERE);
    // Another core writes.
    let while_written = || {
        let writing = log.log.writer.lock();
        let number = log.set(b"c-e", Some(b"written by"));
        let waker = Waker::noop();
        let mut reached = pin!(log.reached(number, Exclusive));
        assert!(reached.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        drop(writing);
        log.wait(number, Shared);
    };
    assert_eq!(log.syncs_of(while_written), ELSEWHERE);
    assert_eq!(log.syncs_of(|| log.set_alone(b"c-f", b"alone")), HERE);
}

#[test]
fn a_caller_does_not_write_long_changes_or_ones_without_zeros() {
    let (_directory, path) = new_path();
    let (log, _) = FileStateLog::open(&path, false).unwrap();
    set(&log, b"c-first", Some(b"1"));
    let little = vec![7; 60 << 10];
    assert_eq!(log.syncs_of(|| log.set_alone(b"c-a", &little)), HERE);
    let two = || {
        log.set(b"c-b", Some(&little));
        log.set_alone(b"c-c", &little);
    };
    assert_eq!(log.syncs_of(two), ELSEWHERE);
    // Sometimes the zeros end, and once the map is rewritten: the log's thread does both.
    let count = log.log.shared.syncs.lock().len();
    (0..32u8).for_each(|number| log.set_alone(b"c-a", &[&[number], &little[1..]].concat()));
    let (here, _) = log.syncs_since(count);
    assert!(
        (32 / 5 * 4 - 1..=32 / 5 * 4 + 2).contains(&here),
        "{here} of 32, where four fit the zeros and the fifth does not"
    );
    assert_eq!(in_file(&path).1, None);
    assert_eq!(in_file(&path).0[b"c-a".as_slice()][0], 31);
}

#[test]
fn changes_without_a_waiter_are_written_on_push_and_when_they_are_long() {
    let (_directory, path) = new_path();
    let (log, _) = FileStateLog::open(&path, false).unwrap();
    set(&log, b"c-first", Some(b"1"));
    let until_written = |number| {
        while log.stable() < number {
            std::thread::yield_now();
        }
    };
    let number = log.set(b"c-a", None);
    assert!(log.stable() < number, "no caller requested it");
    log.push();
    until_written(number);
    // A second push does nothing.
    assert_eq!(log.syncs_of(|| log.push()), (0, 0));
    let value = vec![7; VALUE_BYTES_MAX];
    let numbers: Vec<_> = (0..4u8).map(|number| log.set(&[b'c', number], Some(&value))).collect();
    until_written(numbers[3]);
    assert_eq!(in_file(&path).0.len(), 5);
}

#[test]
fn after_a_failed_write_of_a_caller_the_file_is_removed_and_the_logs_thread_writes_it_again() {
    let (_directory, path) = new_path();
    let (log, _) = FileStateLog::open(&path, false).unwrap();
    set(&log, b"c-a", Some(b"may reclaim"));
    log.set_fast();
    log.log.writer.lock().break_disk();
    assert_eq!(log.syncs_of(|| log.set_alone(b"c-a", b"lost something")), HERE);
    // Later the file exists again, with all changes.
    while !log.is_written() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(in_file(&path), (map(&[("c-a", "lost something")]), None));
    assert_eq!(log.syncs_of(|| log.set_alone(b"c-b", b"since")), HERE);
}
