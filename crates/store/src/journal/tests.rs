use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use vfs::journal::{BLOCK_BYTES, Journaled, LOG_BYTES_MIN, Log};
use vfs::{
    Authority, Backend, Context, Create, CreateMode, Credentials, Handle, MemFs, MemOptions, SetAttributes,
    Stability, Timestamp,
};

use super::*;

const IDENTITY: [u8; 16] = [7; 16];
const KEY: [u8; 16] = [8; 16];
const BOOT: [u8; 16] = [9; 16];

struct Place {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    Place { _directory: directory, path }
}

fn expected() -> Expected {
    Expected { identity: IDENTITY, bytes: LOG_BYTES_MIN, in_use: None, may_be_lost: false }
}

fn block<T>(operation: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(operation)
}

fn context() -> Context {
    Context::new(Arc::new(Credentials::root()), Timestamp { seconds: 5, nanoseconds: 6 })
}

/// Starts a journal in a new file, and writes `count` times through it.
fn written(place: &Place, count: u64) -> Handle {
    let (file, found) = JournalFile::open(&place.path, expected()).unwrap();
    assert!(found.is_none());
    let log = Arc::new(Log::create(IDENTITY, (KEY, BOOT), file.bytes(), Arc::default()));
    let writer = JournalWriter::start(file, Arc::clone(&log), &place.path).unwrap();
    let journal = Journaled::new(MemFs::new(&MemOptions::default()), log);
    block(async {
        journal.log().ready().await.unwrap();
        let what = Create::File(CreateMode::Guarded);
        let set = SetAttributes::default();
        let file = journal.create(&context(), &journal.root(), b"file", &what, &set).await.unwrap().handle;
        for number in 0..count {
            let data = number.to_le_bytes().to_vec().into();
            let write =
                journal.write(&context(), &file, number * 8, &data, Stability::FileSync, Authority::Caller);
            assert_eq!(write.await.unwrap().stability, Stability::FileSync);
        }
        drop(writer);
        file
    })
}

#[test]
fn what_was_answered_is_in_the_file() {
    let place = place();
    let file = written(&place, 5);
    let (_, found) = JournalFile::open(&place.path, expected()).unwrap();
    let found = found.unwrap();
    assert_eq!((found.records.len(), found.key(), found.is_damaged), (5, KEY, false));
    assert!(found.records.iter().all(|record| record.file == file));
    assert!(found.needs_replay([1; 16]) && !found.needs_replay(BOOT));
}

#[test]
fn a_journal_has_one_user() {
    let place = place();
    let _first = JournalFile::open(&place.path, expected()).unwrap();
    let error = JournalFile::open(&place.path, expected()).unwrap_err();
    assert!(error.contains("another export or server uses it"), "{error}");
}

#[test]
fn a_missing_or_replaced_journal_is_refused_if_it_was_in_use() {
    let place = place();
    let in_use = Expected { in_use: Some([1; 16]), ..expected() };
    let error = JournalFile::open(&place.path, in_use).unwrap_err();
    assert!(
        error.contains("it is missing, and changes that clients were told are safe may be lost"),
        "{error}"
    );
    assert!(!place.path.exists(), "nothing was created");
    written(&place, 1);
    let error = JournalFile::open(&place.path, in_use).unwrap_err();
    assert!(error.contains("it is not the one that the last server used"), "{error}");
    JournalFile::open(&place.path, Expected { may_be_lost: true, ..in_use }).unwrap();
    JournalFile::open(&place.path, Expected { in_use: Some(KEY), ..in_use }).unwrap();
}

#[test]
fn a_journal_of_another_file_system_and_other_files_are_never_taken() {
    let place = place();
    written(&place, 1);
    let other = Expected { identity: [0; 16], may_be_lost: true, ..expected() };
    let error = JournalFile::open(&place.path, other).unwrap_err();
    assert!(error.contains("it belongs to another file system"), "{error}");
    std::fs::write(&place.path, "a text").unwrap();
    let error = JournalFile::open(&place.path, Expected { may_be_lost: true, ..expected() }).unwrap_err();
    assert!(error.contains("it is not a journal"), "{error}");
    assert_eq!(std::fs::read(&place.path).unwrap(), b"a text");
}

#[test]
fn a_torn_end_is_left_out_and_other_damage_is_refused() {
    let place = place();
    written(&place, 5);
    // Each WRITE waited for its own frame: a block each, after the two headers.
    let damage = |frame: u64| {
        let file = std::fs::OpenOptions::new().write(true).open(&place.path).unwrap();
        file.write_all_at(b"damage", (2 + frame) * BLOCK_BYTES as u64 + 64).unwrap();
    };
    damage(4);
    let (file, found) = JournalFile::open(&place.path, expected()).unwrap();
    assert_eq!(found.map(|found| (found.records.len(), found.is_torn)), Some((4, true)));
    drop(file);
    damage(2);
    let error = JournalFile::open(&place.path, expected()).unwrap_err();
    assert!(error.contains("it is damaged, and changes"), "{error}");
    let (_, found) = JournalFile::open(&place.path, Expected { may_be_lost: true, ..expected() }).unwrap();
    assert_eq!(found.map(|found| found.records.len()), Some(2), "what is before the damage");
}

#[test]
fn a_place_where_other_users_may_read_or_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = place();
    written(&place, 1);
    let set_mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(&place.path, 0o640);
    let error = JournalFile::open(&place.path, expected()).unwrap_err();
    assert!(error.contains("other users have access to it (mode 0640)"), "{error}");
    set_mode(&place.path, 0o600);
    let directory = place.path.parent().unwrap();
    set_mode(directory, 0o777);
    let error = JournalFile::open(&place.path, expected()).unwrap_err();
    assert!(error.contains("other users can change its directory (mode 0777)"), "{error}");
    set_mode(directory, 0o1777);
    JournalFile::open(&place.path, expected()).unwrap();
}
