//! Every change that a listing shows ends the watch of the directory's entries.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Fixture, again_without_privileges, is_ordinary, me};
use localfs::{Config, LocalFs};
use vfs::{Authority, Backend, Create, CreateMode, EntriesWatch, FileKind, Handle, ReadDir, Stability};

/// More than a tick takes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Returns a place with a directory `d`, created by a local process; `None` with a message if this system cannot
/// watch it.
fn fixture(change: fn(Config) -> Config) -> Option<Fixture> {
    let fixture = Fixture::with(change);
    fs::create_dir(fixture.path("d")).expect("mkdir");
    fs::create_dir(fixture.path("d/inner")).expect("mkdir");
    fs::create_dir(fixture.path("beside")).expect("mkdir");
    for name in ["d/file", "d/goes", "beside/over"] {
        fs::write(fixture.path(name), b"data").expect("write");
    }
    fs::hard_link(fixture.path("d/file"), fixture.path("beside/second name")).expect("link");
    symlink("file", fixture.path("d/link")).expect("symlink");
    if !is_ordinary(&fixture.path("")) || fixture.fs().why_unwatched().is_some() {
        println!("skipped: nothing is watched here");
        return None;
    }
    Some(fixture)
}

fn directory(fixture: &Fixture) -> Handle {
    fixture.lookup(&me(), &fixture.fs().root(), "d").expect("there")
}

fn watch(fixture: &Fixture) -> Arc<dyn EntriesWatch> {
    let watch = fixture.wait(fixture.fs().watch_entries(&me(), &directory(fixture)));
    watch.expect("a directory").expect("it can be watched")
}

/// Changes by local processes.
fn local_changes(fixture: &Fixture) {
    let path = |name: &str| fixture.path(name);
    let changes: &[(&str, &dyn Fn())] = &[
        ("write", &|| fs::write(path("d/file"), b"other").expect("write")),
        ("append", &|| {
            use std::io::Write as _;
            let mut file = fs::OpenOptions::new().append(true).open(path("d/file")).expect("open");
            file.write_all(b"more").expect("write");
        }),
        ("write by another name", &|| fs::write(path("beside/second name"), b"more").expect("write")),
        ("mode", &|| fs::set_permissions(path("d/file"), fs::Permissions::from_mode(0o640)).expect("chmod")),
        ("create", &|| fs::write(path("d/new"), b"").expect("write")),
        ("remove", &|| fs::remove_file(path("d/new")).expect("remove")),
        ("mkdir", &|| fs::create_dir(path("d/new")).expect("mkdir")),
        ("rmdir", &|| fs::remove_dir(path("d/new")).expect("rmdir")),
        ("link elsewhere", &|| fs::hard_link(path("d/file"), path("beside/third name")).expect("link")),
        ("remove elsewhere", &|| fs::remove_file(path("beside/third name")).expect("remove")),
        ("rename within", &|| fs::rename(path("d/goes"), path("d/went")).expect("rename")),
        ("rename over", &|| fs::rename(path("beside/over"), path("d/went")).expect("rename")),
        ("rename away", &|| fs::rename(path("d/went"), path("beside/over")).expect("rename")),
        ("create in a subdirectory", &|| fs::write(path("d/inner/new"), b"").expect("write")),
        ("the subdirectory's mode", &|| {
            fs::set_permissions(path("d/inner"), fs::Permissions::from_mode(0o750)).expect("chmod");
        }),
        ("a link's replacement", &|| {
            fs::remove_file(path("d/link")).expect("remove");
            symlink("goes", path("d/link")).expect("symlink");
        }),
        ("the directory's own mode", &|| {
            fs::set_permissions(path("d"), fs::Permissions::from_mode(0o750)).expect("chmod");
        }),
        ("rename of the directory", &|| {
            fs::rename(path("d"), path("e")).expect("rename");
            fs::rename(path("e"), path("d")).expect("rename");
        }),
    ];
    for (what, change) in changes {
        let watch = watch(fixture);
        assert!(watch.is_unchanged(), "before: {what}");
        change();
        // At once: the event was queued before the call returned.
        assert!(!watch.is_unchanged(), "{what}");
        assert!(!watch.is_unchanged(), "it is still changed: {what}");
    }
}

#[test]
fn changes_by_local_processes_end_the_watch_at_once() {
    let Some(fixture) = fixture(|config| config) else { return };
    local_changes(&fixture);
}

#[test]
fn with_an_index_too() {
    let Some(fixture) = fixture(|config| Config { always_use_index: true, ..config }) else { return };
    assert!(fixture.fs().uses_index());
    local_changes(&fixture);
}

#[test]
fn as_an_ordinary_user_without_privileges_too() {
    again_without_privileges(&["--exact", "changes_by_local_processes_end_the_watch_at_once"]);
}

#[test]
fn reading_does_not_end_the_watch() {
    let Some(fixture) = fixture(|config| config) else { return };
    let watch = watch(&fixture);
    assert_eq!(watch.entries(), 4);
    fs::read(fixture.path("d/file")).expect("read");
    Command::new("ls").args(["-lL"]).arg(fixture.path("d")).output().expect("listed");
    let file = fixture.lookup(&me(), &directory(&fixture), "file").expect("there");
    assert_eq!(fixture.read(&me(), &file).expect("read"), b"data");
    fs::write(fixture.path("beside/over"), b"not in it").expect("write");
    assert!(watch.is_unchanged());
}

#[test]
fn changes_through_another_export_end_the_watch_at_once() {
    let Some(fixture) = fixture(|config| config) else { return };
    let state_directory = fixture.config.state_directory.as_ref().map(|state| state.join("other"));
    let config = Config { state_directory, ..Config::new(fixture.path("beside")) };
    let other = LocalFs::open(&config).expect("another export of the file system");
    let root = other.root();
    let file = fixture.wait(other.lookup(&me(), &root, b"second name")).expect("there").handle;
    let watch = watch(&fixture);
    let data = Bytes::from_static(b"by the other name");
    let write = other.write(&me(), &file, 0, &data, Stability::Unstable, Authority::Caller);
    assert!(watch.is_unchanged() || matches!(write, vfs::Op::Ready(_)));
    fixture.wait(write).expect("written");
    assert!(!watch.is_unchanged());
}

#[test]
fn an_object_without_a_cached_name_is_watched_too() {
    let Some(fixture) = fixture(|config| config) else { return };
    let file = fixture.lookup(&me(), &directory(&fixture), "file").expect("there");
    if !common::has_powers() {
        return;
    }
    // The kernel forgets unused names: an object that is opened by its handle then has none.
    let mut fixture = fixture;
    fixture.volume = None;
    fs::write("/proc/sys/vm/drop_caches", "2").ok();
    fixture.restart();
    let watch = watch(&fixture);
    let data = Bytes::from_static(b"by its handle");
    let write = fixture.fs().write(&me(), &file, 0, &data, Stability::Unstable, Authority::Caller);
    fixture.wait(write).expect("written");
    assert!(!watch.is_unchanged());
}

#[test]
fn attributes_are_final_after_a_tick() {
    let Some(fixture) = fixture(|config| config) else { return };
    let watch = watch(&fixture);
    let end = Instant::now() + TIMEOUT;
    let request = ReadDir { cookie: 0, verifier: [0; 8], plus: true };
    loop {
        let mut listed = Vec::new();
        let mut visit = |entry: vfs::Entry<'_>| {
            listed.push(entry.object.expect("there"));
            std::ops::ControlFlow::Continue(())
        };
        let root = directory(&fixture);
        fixture.wait(fixture.fs().readdir(&me(), &root, request, &mut visit)).expect("listed");
        assert_eq!(listed.len(), 4);
        let all_final = listed.iter().all(|(_, attributes)| watch.is_final(attributes));
        if all_final {
            for (handle, attributes) in &listed {
                assert_eq!(fixture.getattr(handle).expect("there").change, attributes.change);
            }
            assert!(listed.iter().any(|(_, attributes)| attributes.kind == FileKind::Directory));
            break;
        }
        assert!(Instant::now() < end, "nothing changes any more");
    }
    let newer = fixture.make(&me(), &directory(&fixture), "new", &Create::File(CreateMode::Guarded), 0o600);
    newer.expect("created");
    assert!(!watch.is_unchanged());
}

#[test]
fn too_many_entries_are_not_watched() {
    let Some(fixture) = fixture(|config| config) else { return };
    for number in 0..8192 - 4 {
        symlink("nowhere", fixture.path(&format!("d/{number}"))).expect("symlink");
    }
    assert_eq!(watch(&fixture).entries(), 8192);
    symlink("nowhere", fixture.path("d/one more")).expect("symlink");
    let watch = fixture.wait(fixture.fs().watch_entries(&me(), &directory(&fixture))).expect("a directory");
    assert!(watch.is_none());
}
