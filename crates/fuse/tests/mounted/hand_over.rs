//! A mount that is passed from one process to another.
//!
//! The other process is this test program: it runs only `the_other_process`, whose task is in the environment.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fuse::mount::{MountError, Options, mount, unmount};
use fuse::*;
use rustix::process::Signal;

use super::support::{Place, await_that, can_mount, config, kill, output, perl};

/// Environment of the other process: `answer` if it answers READs of `slow` and lock waits, `keep` if it does not, `report` if it reports
/// such READs.
const TASK: &str = "ENFYS_FUSE_TEST_TASK";
/// Reads some bytes and prints the outcome.
const READER: &str = r#"open(my $f, "<", $ARGV[0]) or die; print defined sysread($f, my $d, 9) ? "read" : "error " . ($! + 0)"#;
const TIMEOUT: Duration = Duration::from_secs(1);
const FILES: u64 = 4;
const FILE_BYTES: u64 = 1 << 20;

/// A file system without state, so that any process can serve it: files `0` to `3` whose bytes follow from their offset, and `slow`.
struct Pattern {
    /// Whether READs of `slow` and waits for locks are answered.
    answers: bool,
    kept_reads: Mutex<Vec<Reply<Data>>>,
    kept_locks: Mutex<Vec<Reply<()>>>,
    /// The socket to which kept READs are reported.
    report: Option<UnixStream>,
}

const FIRST: u64 = 100;
const SLOW: u64 = FIRST + FILES;

fn byte(node: u64, place: u64) -> u8 {
    (node.wrapping_mul(31) ^ place ^ (place >> 8)) as u8
}

impl Pattern {
    fn new(answers: bool) -> Self {
        Self { answers, kept_reads: Mutex::default(), kept_locks: Mutex::default(), report: None }
    }

    fn attributes(node: u64) -> Option<Attributes> {
        let mode = match node {
            1 => 0o040_755,
            FIRST..=SLOW => 0o100_666,
            _ => return None,
        };
        let size = if node == 1 { 0 } else { FILE_BYTES };
        Some(Attributes { inode: node, mode, size, links: 1, block_size: 4096, ..Attributes::default() })
    }
}

impl Filesystem for Pattern {
    fn lookup(&self, _: Caller, request: Lookup, reply: Reply<Entry>) {
        let number = match std::str::from_utf8(&request.name) {
            Ok("slow") => Some(FILES),
            Ok(name) => name.parse().ok().filter(|number| *number < FILES),
            Err(_) => None,
        };
        let node = number.map(|number| FIRST + number);
        let entry = node.and_then(|node| {
            let attributes = Self::attributes(node)?;
            // No cache: every use of a name is a request.
            let (entry_timeout, attribute_timeout) = (Duration::ZERO, Duration::ZERO);
            Some(Entry { node: NodeId(node), generation: 0, attributes, entry_timeout, attribute_timeout })
        });
        let _ = reply.send(entry.ok_or(Errno::NOENT));
    }

    fn getattr(&self, _: Caller, request: Getattr, reply: Reply<GrantedAttributes>) {
        let attributes = Self::attributes(request.node.0).ok_or(Errno::STALE);
        let _ = reply.send(attributes.map(|attributes| GrantedAttributes { attributes, timeout: TIMEOUT }));
    }

    fn open(&self, _: Caller, _: Open, reply: Reply<Opened>) {
        let _ = reply.ok(Opened { handle: FileHandle(7), flags: OpenFlags::DIRECT_IO });
    }

    fn read(&self, _: Caller, request: Read, reply: Reply<Data>) {
        if request.node.0 == SLOW && !self.answers {
            self.kept_reads.lock().expect("no panic").push(reply);
            if let Some(mut report) = self.report.as_ref() {
                report.write_all(b"r").expect("a process that waits for it");
            }
            return;
        }
        let end = (request.offset + u64::from(request.size)).min(FILE_BYTES);
        let bytes: Vec<u8> = (request.offset..end).map(|place| byte(request.node.0, place)).collect();
        let _ = reply.ok(bytes.into());
    }

    fn write(&self, _: Caller, request: Write, reply: Reply<Copied>) {
        let _ = reply.ok(Copied(request.data.len() as u64));
    }

    fn release(&self, _: Caller, _: Release, reply: Reply<()>) {
        let _ = reply.ok(());
    }

    fn setlkw(&self, _: Caller, _: Lock, reply: Reply<()>) {
        if self.answers {
            let _ = reply.ok(());
        } else {
            self.kept_locks.lock().expect("no panic").push(reply);
        }
    }
}

/// Starts another process, which waits for a mount on its standard input.
fn other_process(task: &str) -> (Child, UnixStream) {
    let (own, passed) = UnixStream::pair().expect("a pair of sockets");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "hand_over::the_other_process", "--nocapture"]).env(TASK, task);
    command.stdin(Stdio::from(OwnedFd::from(passed))).stdout(Stdio::null());
    let child = command.spawn().expect("this program");
    // Before the mount stops: exec closes inherited files, which waits for writes of this process to the mount.
    await_message(&own, *b"h");
    (child, own)
}

/// Passes a mount to it and waits until the other process serves it.
fn hand_over_to(socket: &UnixStream, serving: Serving) {
    let hand_over = serving.stop().expect("workers that stop").hand_over().expect("descriptors");
    hand_over.send(socket).expect("a process that receives");
    await_message(socket, *b"k");
}

/// Waits for a message of the other process: `h` when it runs, `k` when it serves, `r` when it keeps a READ.
fn await_message(mut socket: &UnixStream, expected: [u8; 1]) {
    let mut message = [0];
    socket.read_exact(&mut message).expect("a running process");
    assert_eq!(message, expected);
}

/// Serves a mount received over standard input until it is unmounted, or until the other end of the socket requests its return by a byte.
#[test]
fn the_other_process() {
    let Ok(task) = std::env::var(TASK) else {
        let (own, other) = UnixStream::pair().expect("a pair of sockets");
        drop(own);
        assert!(HandOver::receive(&other).is_err(), "no mount arrives over a closed socket");
        return;
    };
    let input = std::io::stdin().as_fd().try_clone_to_owned().expect("standard input");
    let mut socket = UnixStream::from(input);
    socket.write_all(b"h").expect("a process that waits for it");
    let hand_over = HandOver::receive(&socket).expect("a mount");
    let session = Session::resume(hand_over).expect("a valid mount");
    let report = (task == "report").then(|| socket.try_clone().expect("a descriptor"));
    let serving =
        session.serve(Arc::new(Pattern { report, ..Pattern::new(task == "answer") })).expect("threads");
    socket.write_all(b"k").expect("a process that waits for it");
    let mut byte = [0];
    if socket.read(&mut byte).is_ok_and(|length| length == 1) {
        serving
            .stop()
            .expect("workers that stop")
            .hand_over()
            .expect("descriptors")
            .send(&socket)
            .expect("a receiver");
    } else {
        serving.wait().expect("no error of the device");
    }
}

/// Reads, writes and stats files until `stop` is set, and counts the operations.
fn use_mount(path: &Path, number: u64, is_done: &AtomicBool, count: &AtomicU64) {
    let path = path.join(number.to_string());
    let mut place = 0;
    while !is_done.load(Ordering::SeqCst) {
        let file = File::options().read(true).write(true).open(&path).expect("open, never ENOTCONN");
        let mut bytes = [0; 5000];
        file.read_exact_at(&mut bytes, place).expect("read");
        assert!((place..).zip(bytes).all(|(place, found)| found == byte(FIRST + number, place)));
        file.write_all_at(&bytes, place).expect("write");
        assert_eq!(file.metadata().expect("attributes").len(), FILE_BYTES);
        place = (place + 4999) % (FILE_BYTES - 5000);
        count.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_mount_under_load_is_passed_through_other_processes() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let session = Session::new(place.mount(), &config()).expect("a session");
    let first = session.serve(Arc::new(Pattern::new(false))).expect("threads");
    let (is_done, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let serving = thread::scope(|scope| {
        for number in 0..FILES {
            let (path, is_done, count) = (&place.path, &is_done, &count);
            scope.spawn(move || use_mount(path, number, is_done, count));
        }
        let progress = || {
            let before = count.load(Ordering::SeqCst);
            await_that("programs continue", || count.load(Ordering::SeqCst) > before + 20);
        };
        let mut serving = first;
        for _ in 0..3 {
            progress();
            let (mut child, mut socket) = other_process("answer");
            hand_over_to(&socket, serving);
            progress();
            socket.write_all(b"b").expect("a process that serves");
            let back = HandOver::receive(&socket).expect("the mount is returned");
            serving = Session::resume(back)
                .expect("a valid mount")
                .serve(Arc::new(Pattern::new(false)))
                .expect("threads");
            assert!(child.wait().expect("a child").success());
        }
        progress();
        is_done.store(true, Ordering::SeqCst);
        serving
    });
    // Until it runs its program, a child that another test starts has copies of this process's open files.
    let is_busy = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ResourceBusy;
    let mut unmounted = unmount(&place.path, false);
    for _ in 0..100 {
        if unmounted.as_ref().is_err_and(is_busy) {
            std::thread::sleep(Duration::from_millis(10));
            unmounted = unmount(&place.path, false);
        }
    }
    unmounted.expect("an unused mount");
    serving.wait().expect("no error of the device");
}

#[test]
fn requests_without_a_reply_are_answered_by_the_other_process() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let session = Session::new(place.mount(), &config()).expect("a session");
    let files = Arc::new(Pattern::new(false));
    let serving = session.serve(Arc::clone(&files)).expect("threads");
    let reader =
        perl(r#"open(my $f, "<", $ARGV[0]) or die; print sysread($f, my $d, 9)"#, &place.path.join("slow"));
    let locker = perl(r#"open(my $f, "<", $ARGV[0]) or die; print flock($f, 2)"#, &place.path.join("0"));
    await_that("both wait", || serving.pending() == 2);
    let (mut child, socket) = other_process("answer");
    hand_over_to(&socket, serving);
    assert_eq!(output(reader).1, "9");
    assert_eq!(output(locker).1, "1");
    // Too late.
    let reply = files.kept_reads.lock().expect("no panic").pop().expect("the read");
    assert_eq!(reply.ok(Data::default()), Err(NotDelivered::Withdrawn));
    unmount(&place.path, false).expect("an unused mount");
    drop(socket);
    assert!(child.wait().expect("a child").success());
}

#[test]
fn a_stopped_process_that_keeps_the_mount_answers_earlier_requests() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let session = Session::new(place.mount(), &config()).expect("a session");
    let files = Arc::new(Pattern::new(false));
    let serving = session.serve(Arc::clone(&files)).expect("threads");
    let reader = perl(READER, &place.path.join("slow"));
    let locker = perl(r#"open(my $f, "<", $ARGV[0]) or die; print flock($f, 2)"#, &place.path.join("0"));
    await_that("both wait", || serving.pending() == 2);
    let stopped = serving.stop().expect("workers that stop");
    assert_eq!((stopped.pending(), stopped.unfinished()), (2, 1), "a wait for a lock can take forever");
    let serving = stopped.resume().serve(Arc::clone(&files)).expect("threads");
    assert_eq!(std::fs::read(place.path.join("1")).expect("a file").len() as u64, FILE_BYTES);
    let reply = files.kept_reads.lock().expect("no panic").pop().expect("the read");
    assert_eq!(reply.ok(Data::from(vec![0; 9])), Ok(()));
    assert_eq!(output(reader).1, "read");
    let reply = files.kept_locks.lock().expect("no panic").pop().expect("the lock");
    assert_eq!(reply.ok(()), Ok(()));
    assert_eq!(output(locker).1, "1");
    unmount(&place.path, false).expect("an unused mount");
    serving.wait().expect("no error of the device");
}

/// INTERRUPT reached the first process, and is not sent again.
#[test]
fn an_interrupted_request_remains_interrupted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let session = Session::new(place.mount(), &config()).expect("a session");
    let serving = session.serve(Arc::new(Pattern::new(false))).expect("threads");
    let program = r#"$SIG{CHLD} = sub {}; open(my $f, "<", $ARGV[0]) or die; sysread($f, my $d, 9)"#;
    let reader = perl(program, &place.path.join("slow"));
    await_that("it waits", || serving.pending() == 1);
    kill(&reader, Signal::CHILD);
    await_that("it is interrupted", || serving.interrupted() == 1);
    let (mut child, socket) = other_process("keep");
    hand_over_to(&socket, serving);
    kill(&reader, Signal::KILL);
    assert_eq!(output(reader).0.signal(), Some(9));
    unmount(&place.path, false).expect("an unused mount");
    drop(socket);
    assert!(child.wait().expect("a child").success());
}

#[test]
fn a_killed_process_leaves_a_mount_that_can_be_unmounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let serving = Session::new(place.mount(), &config())
        .expect("a session")
        .serve(Arc::new(Pattern::new(false)))
        .expect("threads");
    let (mut child, socket) = other_process("report");
    hand_over_to(&socket, serving);
    let reader = perl(READER, &place.path.join("slow"));
    await_message(&socket, *b"r");
    kill(&child, Signal::KILL);
    child.wait().expect("a child");
    // ECONNABORTED
    assert_eq!(output(reader).1, "error 103");
    let error = mount(&place.path, &Options::default()).expect_err("a dead mount");
    assert!(matches!(error, MountError::Dead(_)), "{error}");
    unmount(&place.path, false).expect("a dead mount");
    drop(place.mount());
}

#[test]
fn a_crashed_process_is_succeeded_by_kept_descriptors() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let serving = Session::new(place.mount(), &config())
        .expect("a session")
        .serve(Arc::new(Pattern::new(false)))
        .expect("threads");
    let state = serving.state().clone();
    let kept = serving.duplicate_devices().expect("descriptors");
    let (mut child, socket) = other_process("report");
    hand_over_to(&socket, serving);
    let reader = perl(READER, &place.path.join("slow"));
    await_message(&socket, *b"r");
    kill(&child, Signal::KILL);
    child.wait().expect("a child");
    let resends = state.capabilities.contains(Capabilities::HAS_RESEND);
    let serving =
        Session::recover(kept, state).expect("a mount").serve(Arc::new(Pattern::new(true))).expect("threads");
    assert_eq!(output(reader).1, if resends { "read" } else { "error 103" });
    assert_eq!(std::fs::read(place.path.join("1")).expect("a file").len() as u64, FILE_BYTES);
    unmount(&place.path, false).expect("an unused mount");
    serving.wait().expect("no error of the device");
}
