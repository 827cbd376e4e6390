use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use vfs::{Op, Watch};

use super::*;
use crate::config::Config;
use crate::name::Name;
use crate::volume::Volume;

#[derive(Debug, Default)]
struct Counter(AtomicUsize);

impl ChangeListener for Counter {
    fn notify(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counter {
    fn is_notified(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// Opens a volume with files `0`, `1` and so on.
fn opened(directory: &std::path::Path, files: usize) -> Arc<Volume> {
    let top = directory.join("export");
    std::fs::create_dir(&top).expect("directory");
    for file in 0..files {
        std::fs::write(top.join(file.to_string()), b"data").expect("write");
    }
    let state_directory = Some(directory.join("state"));
    let config = Config { state_directory, max_open_files: Some(16), ..Config::new(top) };
    crate::probe::open(&config).expect("volume")
}

/// As [`opened`]; `None` if nothing can be watched.
fn volume(directory: &std::path::Path, files: usize) -> Option<Arc<Volume>> {
    let volume = opened(directory, files);
    if let Err(why) = volume.watches() {
        println!("skipped: {why}");
        return None;
    }
    Some(volume)
}

fn handle(volume: &Arc<Volume>, file: usize) -> Handle {
    let name = Name::new(file.to_string().as_bytes()).expect("a name");
    volume.find(&volume.root, &name).expect("object").handle
}

fn watch(volume: &Arc<Volume>, file: usize) -> (Arc<Counter>, Box<dyn Watch>) {
    let counter = Arc::new(Counter::default());
    let listener: Arc<dyn ChangeListener> = Arc::clone(&counter) as Arc<dyn ChangeListener>;
    let watch = match volume.watch(vfs::Peer::default(), &handle(volume, file), Interest::Changes, &listener)
    {
        Op::Ready(Some(watch)) => watch,
        _ => panic!("it was found just now"),
    };
    (counter, watch.expect("watched").expect("it can be watched"))
}

/// Returns the number of marks from the kernel.
fn marks(volume: &Volume) -> usize {
    use std::os::fd::AsRawFd;
    let watches = volume.watches().expect("it can be watched");
    let path = format!("/proc/self/fdinfo/{}", watches.0.group.as_raw_fd());
    let info = std::fs::read_to_string(path).expect("fdinfo");
    info.lines().filter(|line| line.starts_with("fanotify ino:")).count()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_mark_is_removed_with_its_last_watch_although_the_object_is_closed() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let Some(volume) = volume(directory.path(), 1) else { return };
    assert_eq!(marks(&volume), 0, "the probe at the start");
    let (counter, first) = watch(&volume, 0);
    let second = watch(&volume, 0);
    assert_eq!(marks(&volume), 1);
    let watched = handle(&volume, 0);
    // As when the cache evicts it.
    volume.objects.remove(&watched);
    let file = directory.path().join("export/0");
    let status = Command::new("sh").args(["-c", "echo >>\"$0\""]).arg(&file).status();
    assert!(status.expect("a shell").success());
    until("the change is reported", || counter.is_notified());
    drop(first);
    assert_eq!(marks(&volume), 1);
    drop(second);
    assert_eq!(marks(&volume), 0);
}

#[test]
fn an_overflow_notifies_all_watchers() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let Some(volume) = volume(directory.path(), 20) else { return };
    let watches = volume.watches().expect("it can be watched");
    // An overflow as Linux reports it: without process, and with an invalid handle.
    let mut overflow = vec![44, 0, 0, 0, libc::FANOTIFY_METADATA_VERSION, 0, 24, 0];
    overflow.extend(libc::FAN_Q_OVERFLOW.to_ne_bytes());
    overflow.extend((-1_i32).to_ne_bytes());
    overflow.extend(0_u32.to_ne_bytes());
    overflow.extend([libc::FAN_EVENT_INFO_TYPE_FID, 0, 20, 0]);
    overflow.extend([0; 12]);
    overflow.extend(255_i32.to_ne_bytes());
    for read in [&overflow[..], &overflow[..30]] {
        let all: Vec<_> = (0..20).map(|file| watch(&volume, file)).collect();
        watches.0.report(read);
        assert!(all.iter().all(|(counter, _)| counter.is_notified()), "{} bytes", read.len());
    }
}

#[test]
fn an_unwatched_volume_has_no_group_or_thread() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let volume = opened(directory.path(), 1);
    let _ = handle(&volume, 0);
    assert!(volume.watches.opened.get().is_none());
}

#[test]
fn the_thread_ends_with_the_volume() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let Some(volume) = volume(directory.path(), 1) else { return };
    let shared = Arc::downgrade(&volume.watches().expect("it can be watched").0);
    drop(watch(&volume, 0));
    drop(volume);
    until("the thread ends", || shared.strong_count() == 0);
}
