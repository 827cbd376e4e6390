//! Watches report other processes' changes of an object, and not the server's.

mod common;

use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::{Fixture, me};
use localfs::Config;
use vfs::{
    Authority, Backend, ChangeListener, Create, CreateMode, Error, Handle, Interest, OpenAccess, Removal,
    Result, SetAttributes, Stability, Watch,
};

/// Longer than the delay of any event.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Set in a child that may watch a single object.
const ONE_MARK: &str = "ENFYS_TEST_ONE_MARK";

#[derive(Debug, Default)]
struct Recorder {
    is_notified: Mutex<bool>,
    notified: Condvar,
}

impl ChangeListener for Recorder {
    fn notify(&self) {
        *self.is_notified.lock().unwrap() = true;
        self.notified.notify_all();
    }
}

impl Recorder {
    /// Returns whether it was notified since the last call, or is within [`TIMEOUT`].
    fn wait(&self) -> bool {
        let is_notified = self.is_notified.lock().unwrap();
        let (mut is_notified, _) =
            self.notified.wait_timeout_while(is_notified, TIMEOUT, |notified| !*notified).unwrap();
        std::mem::take(&mut *is_notified)
    }

    fn is_notified(&self) -> bool {
        *self.is_notified.lock().unwrap()
    }
}

type Watched = (Arc<Recorder>, Box<dyn Watch>);

fn try_watch(fixture: &Fixture, object: &Handle, interest: Interest) -> Result<Watched> {
    let recorder = Arc::new(Recorder::default());
    let listener: Arc<dyn ChangeListener> = Arc::clone(&recorder) as Arc<dyn ChangeListener>;
    let watch = fixture.wait(fixture.fs().watch(&me(), object, interest, &listener))?;
    Ok((recorder, watch.expect("it can be watched")))
}

fn watch(fixture: &Fixture, object: &Handle, interest: Interest) -> Watched {
    try_watch(fixture, object, interest).expect("watched")
}

/// Returns a place to watch in; `None` with a message if this system cannot.
fn place_with(change: impl FnOnce(Config) -> Config) -> Option<Fixture> {
    let fixture = Fixture::with(change);
    if let Some(why) = fixture.fs().why_unwatched() {
        println!("skipped: {why}");
        return None;
    }
    Some(fixture)
}

fn fixture() -> Option<Fixture> {
    place_with(|config| config)
}

/// Another process runs a script in the exported directory.
fn local(fixture: &Fixture, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(&fixture.config.directory).status();
    assert!(status.expect("a shell").success(), "{script}");
}

/// Creates a file `f` with a line in it, and a directory `d` with a file `old` and a directory `sub`.
fn prepare(fixture: &Fixture) {
    local(fixture, "rm -rf -- * && mkdir d d/sub && echo text >f && echo text >d/old");
}

fn lookup(fixture: &Fixture, name: &str) -> Handle {
    fixture.lookup(&me(), &fixture.fs().root(), name).expect("lookup")
}

/// Waits until all earlier events have been reported: they come in order.
fn wait_for_all_events(fixture: &Fixture) {
    local(fixture, "echo >fence");
    let (recorder, _watch) = watch(fixture, &lookup(fixture, "fence"), Interest::Changes);
    local(fixture, "echo >>fence");
    assert!(recorder.wait());
}

const CHANGES_OF_F: [&str; 10] = [
    "echo more >>f",
    ": >f",
    "truncate -s 1 f",
    "chmod 640 f",
    "touch f",
    "ln f g",
    "rm f",
    "mv f g",
    "echo new >n && mv n f",
    // As a process that has written through a mapping.
    "exec 3<>f",
];

const CHANGES_OF_D: [&str; 8] = [
    "echo >d/new",
    "mkdir d/new",
    "rm d/old",
    "rmdir d/sub",
    "mv d/old d/new",
    "mv d/old .",
    "mv f d",
    "chmod 700 d",
];

#[track_caller]
fn each_is_reported(fixture: &Fixture, name: &str, interest: Interest, scripts: &[&str]) {
    for script in scripts {
        prepare(fixture);
        let (recorder, _watch) = watch(fixture, &lookup(fixture, name), interest);
        local(fixture, script);
        assert!(recorder.wait(), "{script}");
    }
}

#[track_caller]
fn stays_silent(fixture: &Fixture, name: &str, interest: Interest, scripts: &[&str]) {
    for script in scripts {
        prepare(fixture);
        let (recorder, _watch) = watch(fixture, &lookup(fixture, name), interest);
        local(fixture, script);
        wait_for_all_events(fixture);
        assert!(!recorder.is_notified(), "{script}");
    }
}

#[test]
fn each_change_of_a_file_by_another_process_is_reported() {
    let Some(fixture) = fixture() else { return };
    each_is_reported(&fixture, "f", Interest::Changes, &CHANGES_OF_F);
    each_is_reported(&fixture, "f", Interest::Uses, &CHANGES_OF_F);
    stays_silent(&fixture, "f", Interest::Changes, &["cat f", "ls -l f", "exec 3<f", "echo >>d/old"]);
}

#[test]
fn a_watch_for_uses_reports_readers() {
    let Some(fixture) = fixture() else { return };
    each_is_reported(&fixture, "f", Interest::Uses, &["cat f", "exec 3<f"]);
    stays_silent(&fixture, "f", Interest::Uses, &["ls -l f", "cat d/old"]);
}

#[test]
fn each_change_of_a_directory_by_another_process_is_reported() {
    let Some(fixture) = fixture() else { return };
    each_is_reported(&fixture, "d", Interest::Changes, &CHANGES_OF_D);
    stays_silent(&fixture, "d", Interest::Changes, &["ls -l d", "echo >>d/old", "echo >d/sub/new", "rm f"]);
}

#[test]
fn changes_are_reported_with_an_index() {
    let Some(fixture) = place_with(|config| Config { always_use_index: true, ..config }) else { return };
    each_is_reported(&fixture, "f", Interest::Changes, &CHANGES_OF_F);
    each_is_reported(&fixture, "d", Interest::Changes, &CHANGES_OF_D);
}

#[test]
fn changes_by_the_server_are_not_reported() {
    let Some(fixture) = fixture() else { return };
    prepare(&fixture);
    let (file, directory) = (lookup(&fixture, "f"), lookup(&fixture, "d"));
    let (of_file, _watch) = watch(&fixture, &file, Interest::Uses);
    let (of_directory, _other) = watch(&fixture, &directory, Interest::Changes);
    let fs = fixture.fs();
    let open = OpenAccess { read: true, write: true };
    let opened = fixture.wait(fs.open(&me(), &file, open, Authority::Caller)).expect("open");
    fixture.write(&me(), &file, b"data", Stability::FileSync).expect("write");
    let sizes = SetAttributes { size: Some(2), ..SetAttributes::default() };
    fixture.wait(fs.setattr(&me(), &file, &sizes, None, Authority::Caller)).expect("size");
    fixture.wait(fs.setattr(&me(), &file, &common::mode(0o600), None, Authority::Caller)).expect("mode");
    fixture.wait(fs.link(&me(), &file, &directory, b"link")).expect("link");
    let what = Create::File(CreateMode::Guarded);
    fixture.make(&me(), &directory, "new", &what, 0o600).expect("create");
    fixture.wait(fs.rename(&me(), (&directory, b"new"), (&directory, b"newer"))).expect("rename");
    fixture.wait(fs.remove(&me(), &directory, b"newer", Removal::File)).expect("remove");
    drop(opened);
    wait_for_all_events(&fixture);
    assert!(!of_file.is_notified() && !of_directory.is_notified());
    // Both are still watched.
    local(&fixture, "echo >>f && echo >d/new");
    assert!(of_file.wait() && of_directory.wait());
}

#[test]
fn dropping_a_watch_does_not_end_others() {
    let Some(fixture) = fixture() else { return };
    prepare(&fixture);
    let file = lookup(&fixture, "f");
    let (reader, _watch) = watch(&fixture, &file, Interest::Changes);
    let (writer, other) = watch(&fixture, &file, Interest::Uses);
    drop(other);
    local(&fixture, "cat f");
    wait_for_all_events(&fixture);
    assert!(!reader.is_notified() && !writer.is_notified());
    local(&fixture, "echo >>f");
    assert!(reader.wait());
    assert!(!writer.is_notified());
}

#[test]
fn watched_files_of_an_index_are_kept_open_and_bounded() {
    let bounded = |config| Config { always_use_index: true, max_open_files: Some(16), ..config };
    let Some(fixture) = place_with(bounded) else { return };
    let files: Vec<_> = (0..9).map(|number| fixture.file(&me(), &format!("{number}"), 0o600)).collect();
    let mut watched: Vec<_> =
        files[..8].iter().map(|file| watch(&fixture, file, Interest::Changes)).collect();
    // A second watch of one object needs no mark.
    watched.push(watch(&fixture, &files[0], Interest::Uses));
    assert_eq!(try_watch(&fixture, &files[8], Interest::Changes).err(), Some(Error::Later));
    watched.remove(1);
    let (recorder, _watch) = watch(&fixture, &files[8], Interest::Changes);
    local(&fixture, "echo >>8");
    assert!(recorder.wait());
}

/// In a user namespace of its own, where the limits of the system's user are those of this process.
#[test]
fn a_reached_watch_limit_is_an_error() {
    if std::env::var_os(ONE_MARK).is_none() {
        return again_with_one_mark("a_reached_watch_limit_is_an_error");
    }
    let Some(fixture) = fixture() else { return };
    prepare(&fixture);
    let (file, other) = (lookup(&fixture, "f"), lookup(&fixture, "d"));
    let first = watch(&fixture, &file, Interest::Changes);
    assert_eq!(try_watch(&fixture, &other, Interest::Changes).err(), Some(Error::Later));
    drop(first);
    let (recorder, _watch) = watch(&fixture, &other, Interest::Changes);
    local(&fixture, "rm d/old");
    assert!(recorder.wait());
}

fn again_with_one_mark(test: &str) {
    let script = "echo 1 >/proc/sys/user/max_fanotify_marks && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", script, "-"])
        .arg(std::env::current_exe().expect("own path"))
        .args(["--exact", test, "--nocapture"])
        .env(ONE_MARK, "1")
        .output();
    let Ok(output) = output else { return println!("skipped: no unshare(1)") };
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !text.contains("running 1 test") {
        return println!("skipped: no user namespace with limits of its own: {errors}");
    }
    assert!(output.status.success(), "{text}\n{errors}");
}

#[test]
fn without_privileges() {
    common::again_without_privileges(&[]);
}
