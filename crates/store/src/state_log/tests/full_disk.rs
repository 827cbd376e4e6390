//! The map on a full disk.

use super::*;

impl FileStateLog {
    /// Fills the disk, or frees space.
    fn fill_disk(&self, is_full: bool) {
        self.log.writer.lock().disk.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Opens a log, and waits until it is written and its space is allocated.
    fn open_idle(path: &Path) -> Self {
        let (log, _) = Self::open(path, false).unwrap();
        set(&log, b"c-first", Some(b"1"));
        while !log.log.shared.queue.lock().is_idle {
            std::thread::yield_now();
        }
        log
    }
}

/// A value longer than a client's record.
const RECORD: &[u8] = &[7; 200];

fn client(number: u32) -> Vec<u8> {
    [b"c", &number.to_be_bytes()[..]].concat()
}

/// Adds keys until there is no room for more; returns their number.
fn use_up(log: &FileStateLog) -> u32 {
    let mut count = 0;
    while log.has_room() {
        set(log, &client(count), Some(RECORD));
        count += 1;
    }
    count
}

#[test]
fn on_a_full_disk_records_remain_and_new_clients_use_the_reserve() {
    let (_directory, path) = new_path();
    let log = FileStateLog::open_idle(&path);
    log.fill_disk(true);
    let count = use_up(&log);
    assert!(count > 5000, "{count} clients");
    assert!(log.is_written());
    // Existing keys can change any number of times.
    for round in 0..2000u32 {
        set(&log, &client(round % count), Some(&[&round.to_be_bytes()[..], &RECORD[4..]].concat()));
        set(&log, b"c-first", None);
        set(&log, b"c-first", Some(&round.to_be_bytes()));
    }
    let known = log.log.shared.queue.lock().map.clone();
    assert_eq!(known.len() as u32, count + 1);
    assert_eq!(in_file(&path), (known.clone(), None), "as after kill -9");
    // Removed keys make room.
    (0..count / 2).for_each(|number| _ = log.set(&client(number), None));
    assert!(log.has_room());
    set(&log, b"c-new", Some(RECORD));
    assert_eq!(in_file(&path).0.len() as u32, count - count / 2 + 2);
}

#[test]
fn changes_without_any_space_wait_until_there_is_some() {
    let (_directory, path) = new_path();
    let log = FileStateLog::open_idle(&path);
    log.fill_disk(true);
    use_up(&log);
    let stable = in_file(&path).0;
    // More than the rest of the reserve, without a query of `has_room`.
    let big = vec![7; VALUE_BYTES_MAX];
    let numbers: Vec<_> = (0..16u8).map(|number| log.set(&[b'b', number], Some(&big))).collect();
    log.push();
    while log.is_written() {
        std::thread::yield_now();
    }
    assert!(!log.has_room() && log.stable() < numbers[15], "nothing is acknowledged that is not on the disk");
    assert!(in_file(&path).0.len() >= stable.len(), "nothing is lost");
    assert!(in_file(&path).1.is_none_or(|damage| damage.starts_with("torn")));
    // Removes the surplus, while the disk is still full.
    (1..16u8).for_each(|number| _ = log.set(&[b'b', number], None));
    set(&log, b"c-more", Some(b"1"));
    assert_eq!(in_file(&path).0.len(), stable.len() + 2);
    let (_, damage) = in_file(&path);
    assert_eq!((damage, log.is_written()), (None, true));
    // The disk has space again.
    log.fill_disk(false);
    while !log.has_room() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    set(&log, b"c-space", Some(RECORD));
    assert_eq!(in_file(&path).0, log.log.shared.queue.lock().map);
}

#[test]
fn a_start_on_a_full_disk_rewrites_the_map_in_existing_space() {
    let (_directory, path) = new_path();
    let log = FileStateLog::open_idle(&path);
    log.fill_disk(true);
    let count = use_up(&log);
    drop(log);
    for round in 0..3u32 {
        let (log, recovered) = FileStateLog::open(&path, true).unwrap();
        log.fill_disk(true);
        assert_eq!((recovered.entries.len() as u32, recovered.damage), (count + 1, None));
        (0..500)
            .for_each(|number| set(&log, &client(number), Some(&[&[round as u8], &RECORD[1..]].concat())));
        let known = log.log.shared.queue.lock().map.clone();
        assert_eq!(in_file(&path), (known, None), "round {round}");
    }
}

#[test]
fn without_a_spare_file_and_space_the_existing_file_is_appended_to() {
    let (_directory, path) = new_path();
    // A torn tail is cleared before the first append.
    let log = FileStateLog::open_idle(&path);
    set(&log, b"c-a", Some(b"may reclaim"));
    set(&log, b"c-torn", Some(&[7; 2000]));
    drop(log);
    let mut bytes = fs::read(&path).unwrap();
    let end = without_zeros(&bytes).len();
    bytes[SECTOR * (end / SECTOR)..end].fill(0);
    fs::write(&path, &bytes).unwrap();
    let scan = format::scan(&bytes);
    let tail = scan.tail().unwrap();
    let (before, damage) = scan.into_map();
    assert!(damage.unwrap().starts_with("torn"));
    let log = Log::new(&path, before.clone(), Some(tail)).unwrap();
    let (shared, mut writer) = (&log.shared, log.writer.lock());
    writer.disk.is_full.store(true, Ordering::Relaxed);
    let (changes, _) = {
        let mut queue = shared.queue.lock();
        queue.set(b"c-a", None);
        queue.set(b"c-new", Some(b"since"));
        queue.take()
    };
    assert!(writer.append(shared, &changes));
    let mut expected = before;
    expected.remove(b"c-a".as_slice());
    expected.insert(b"c-new".to_vec(), b"since".to_vec());
    assert_eq!(in_file(&path), (expected, None));
}
