use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::task::{Context, Wake};
use std::thread::Thread;

use server::StateLog;

use super::*;

type Map = HashMap<Vec<u8>, Vec<u8>>;

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    (directory, path)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits until a change is stable.
fn wait(log: &StateFile, number: u64) {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut reached = pin!(log.reached(number));
    while reached.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        std::thread::park();
    }
    assert!(log.stable() >= number);
}

fn set(log: &StateFile, key: &[u8], value: Option<&[u8]>) {
    wait(log, log.set(key, value));
}

/// What a server that starts now finds, and what it says.
fn found(path: &Path) -> (Map, Option<String>) {
    let (_log, kept) = StateFile::open(path, false).unwrap();
    (kept.entries.into_iter().collect(), kept.damage)
}

/// What is in the file as it is.
fn in_file(path: &Path) -> (Map, Option<String>) {
    format::scan(&fs::read(path).unwrap()).into_map()
}

fn map(entries: &[(&str, &str)]) -> Map {
    entries.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

/// A file of some changes, each in a record of its own and synced; where each record ends.
fn file_of(path: &Path) -> Vec<usize> {
    let (log, _) = StateFile::open(path, false).unwrap();
    wait(&log, log.set(b"c-first", Some(b"1")));
    let mut ends = vec![fs::read(path).unwrap().len()];
    for (key, value) in [
        ("c-a", Some("may reclaim")),
        ("c-b", Some("may reclaim")),
        ("c-a", Some("lost something")),
        ("c-b", None),
        ("c-d", Some("may reclaim")),
    ] {
        set(&log, key.as_bytes(), value.map(str::as_bytes));
        ends.push(fs::read(path).unwrap().len());
    }
    ends
}

/// What is said of a torn tail.
fn torn(bytes: usize) -> String {
    format!("torn: its last {bytes} bytes are left out; nobody was told of them")
}

/// What stands in that file.
fn all() -> Map {
    map(&[("c-first", "1"), ("c-a", "lost something"), ("c-d", "may reclaim")])
}

#[test]
fn what_was_waited_for_is_in_the_file_while_it_is_in_use() {
    let (_directory, path) = place();
    file_of(&path);
    let (log, kept) = StateFile::open(&path, false).unwrap();
    assert_eq!((kept.entries.into_iter().collect::<Map>(), kept.damage), (all(), None));
    set(&log, b"c-e", Some(b"late"));
    let mut expected = all();
    expected.insert(b"c-e".to_vec(), b"late".to_vec());
    assert_eq!(in_file(&path), (expected.clone(), None));
    drop(log);
    assert_eq!(found(&path), (expected, None));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn changes_of_many_threads_share_syncs_and_none_is_lost() {
    let (_directory, path) = place();
    let (log, _) = StateFile::open(&path, false).unwrap();
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
fn a_torn_tail_costs_what_nobody_was_told_of() {
    let (_directory, path) = place();
    let ends = file_of(&path);
    let whole = fs::read(&path).unwrap();
    // Cut anywhere: what stands is what whole records say, and how much more there was is said.
    for cut in ends[0]..whole.len() {
        let end = *ends.iter().rfind(|end| **end <= cut).unwrap();
        let (expected, nothing) = format::scan(&whole[..end]).into_map();
        assert_eq!(nothing, None);
        let said = (cut > end).then(|| torn(cut - end));
        assert_eq!(format::scan(&whole[..cut]).into_map(), (expected, said), "cut at {cut}");
    }
    // The server says so, and goes on behind it.
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let (log, kept) = StateFile::open(&path, true).unwrap();
    let left_out = whole.len() - 3 - ends[ends.len() - 2];
    assert_eq!(kept.damage, Some(format!("{}: {}", path.display(), torn(left_out))));
    set(&log, b"c-f", Some(b"since"));
    drop(log);
    let expected = map(&[("c-first", "1"), ("c-a", "lost something"), ("c-f", "since")]);
    assert_eq!(found(&path), (expected, None));
}

#[test]
fn zeros_from_a_sector_on_are_a_torn_tail_and_others_are_damage() {
    let (_directory, path) = place();
    let (log, _) = StateFile::open(&path, false).unwrap();
    let mut ends = vec![format::HEADER];
    // Their heads and bodies lie across the sectors' borders.
    for number in 0..20u8 {
        set(&log, &[b'c', number], Some(&vec![7; 1 + 37 * usize::from(number)]));
        ends.push(fs::read(&path).unwrap().len());
    }
    drop(log);
    let whole = fs::read(&path).unwrap();
    let (mut torn_ones, mut damaged) = (0, 0);
    for cut in (ends[1]..whole.len()).filter(|cut| matches!(cut % 512, 0 | 100)) {
        // The file was made longer before its bytes came.
        let zeros = [&whole[..cut], &vec![0; 8192]].concat();
        let (seen, damage) = format::scan(&zeros).into_map();
        let stands = ends.iter().rposition(|end| *end <= cut).unwrap();
        if cut % 512 == 0 {
            let left_out = cut + 8192 - ends[stands];
            assert_eq!((seen.len(), damage), (stands, Some(torn(left_out))), "zeros from {cut}");
            torn_ones += 1;
        } else if damage.is_some_and(|damage| damage.starts_with("damaged ")) {
            assert!(seen.is_empty(), "what is before damage is not believed");
            damaged += 1;
        }
    }
    assert!(torn_ones > 10 && damaged > 5, "{torn_ones} torn, {damaged} damaged");
}

#[test]
fn any_flipped_bit_is_noticed_and_who_may_be_concerned_is_not_believed() {
    let (_directory, path) = place();
    let ends = file_of(&path);
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            let (seen, damage) = format::scan(&bytes).into_map();
            assert!(damage.is_some_and(|damage| !damage.starts_with("torn")), "byte {at}");
            // Only what was said in records behind the damage.
            let behind = ends.iter().filter(|end| **end > at).count().saturating_sub(1);
            let expected = match behind {
                _ if at < format::HEADER => Map::new(),
                0 => Map::new(),
                1 | 2 => map(&[("c-d", "may reclaim")]),
                3.. => map(&[("c-a", "lost something"), ("c-d", "may reclaim")]),
            };
            let seen_of_b = seen.get(b"c-b".as_slice());
            assert_eq!(seen_of_b, None, "byte {at}: it was taken away");
            assert_eq!(seen, expected, "byte {at}");
        }
    }
    let mut bytes = whole;
    bytes[ends[2] + 40] ^= 1;
    fs::write(&path, bytes).unwrap();
    let said = found(&path).1.unwrap();
    let expected = "damaged in 1 places; who may have been concerned reclaims nothing";
    assert_eq!(said, format!("{}: {expected}", path.display()));
    // Written anew, so that it is told once.
    assert_eq!(found(&path).1, None);
}

#[test]
fn what_is_no_log_of_this_version_tells_nothing_and_is_begun_anew() {
    let (_directory, path) = place();
    file_of(&path);
    let whole = fs::read(&path).unwrap();
    let other = [&whole[..7], &[whole[7] + 1], &whole[8..]].concat();
    for (bytes, what) in [
        (other, "of another version"),
        (vec![0; 4096], "no log of this server's, or a damaged one"),
        (b"Enfys".to_vec(), "no log of this server's, or a damaged one"),
    ] {
        fs::write(&path, bytes).unwrap();
        let (seen, damage) = found(&path);
        assert!(seen.is_empty());
        assert!(damage.unwrap().contains(&format!("{}: {what};", path.display())));
        assert_eq!(found(&path), (Map::new(), None));
    }
}

#[test]
fn a_log_that_is_empty_or_gone_is_said() {
    let (_directory, path) = place();
    file_of(&path);
    let said =
        |what: &str| format!("{}: {what}; clients of the server before reclaim nothing", path.display());
    // As where the server could neither write it nor take it away.
    fs::write(&path, b"").unwrap();
    assert_eq!(found(&path), (Map::new(), Some(said("empty"))));
    assert_eq!(found(&path), (Map::new(), None), "written anew, so that it is told once");
    // As where it could not write it.
    for (is_expected, damage) in [(true, Some(said("missing"))), (false, None)] {
        fs::remove_file(&path).unwrap();
        let (_log, kept) = StateFile::open(&path, is_expected).unwrap();
        assert_eq!((kept.entries, kept.damage), (Vec::new(), damage), "expected: {is_expected}");
    }
}

#[test]
fn the_file_stays_in_proportion_to_what_it_says() {
    let (_directory, path) = place();
    let (log, _) = StateFile::open(&path, false).unwrap();
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
fn where_it_cannot_be_written_nothing_is_left_to_be_believed_and_nobody_waits() {
    let (directory, path) = place();
    file_of(&path);
    // The file that would take its place cannot be made: as where the disk is full.
    let new = path.with_extension("log.new");
    fs::create_dir(&new).unwrap();
    let (log, kept) = StateFile::open(&path, false).unwrap();
    assert_eq!(kept.entries.len(), 3, "what was read is good");
    set(&log, b"c-g", Some(b"not written"));
    assert!(!path.exists(), "the next server finds nothing");
    // In its own time it is written again, with all that was said meanwhile.
    fs::remove_dir(&new).unwrap();
    while !path.exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    set(&log, b"c-h", Some(b"written"));
    let mut expected = all();
    expected.extend(map(&[("c-g", "not written"), ("c-h", "written")]));
    assert_eq!(in_file(&path), (expected, None));
    drop(directory);
}

#[test]
fn a_file_that_cannot_be_written_anew_is_appended_to_as_before() {
    let (_directory, path) = place();
    let (log, _) = StateFile::open(&path, false).unwrap();
    set(&log, b"c-a", Some(b"begun"));
    let new = path.with_extension("log.new");
    fs::create_dir(&new).unwrap();
    let value = vec![7; VALUE_BYTES_MAX];
    for round in 0..40u8 {
        set(&log, b"c-a", Some(&value));
        set(&log, b"c-b", Some(&[round]));
    }
    assert!(fs::metadata(&path).unwrap().len() > 2 << 20, "it would have been written anew");
    let (seen, damage) = in_file(&path);
    assert_eq!((seen[b"c-b".as_slice()].as_slice(), damage), ([39].as_slice(), None));
}

#[test]
fn what_is_no_file_is_named() {
    let (_directory, path) = place();
    fs::create_dir(&path).unwrap();
    let (_log, kept) = StateFile::open(&path, false).unwrap();
    assert!(kept.damage.unwrap().starts_with(&format!("{}: cannot be read: ", path.display())));
}
