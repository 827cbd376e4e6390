//! Signals of programs whose request is not answered.

use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

use fuse::Data;
use rustix::process::Signal;

use super::memory::MemoryFs;
use super::support::{Mounted, await_that, can_mount, kill, output, perl};

/// Reads a byte, and counts signals.
const READER: &str = r#"
    my $n = 0;
    $SIG{CHLD} = $SIG{ALRM} = $SIG{WINCH} = sub { $n++ };
    open(my $f, "<", $ARGV[0]) or die;
    my $got = sysread($f, my $data, 4);
    print defined $got ? "read $got signals $n" : "error " . ($! + 0);
"#;

/// Time in which a wrong EINTR would occur: several checks of signals.
const LONGER_THAN_A_LOOK: Duration = Duration::from_millis(400);

/// Returns a mount with a file whose READs are not answered.
fn with_unread_file() -> (MemoryFs, Mounted) {
    let files = MemoryFs::new();
    let mounted = Mounted::new(files.clone());
    // Made without an open file, since closing it waits.
    let path = mounted.path("stall");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::RegularFile, 0o644.into(), 0)
        .expect("a file");
    (files, mounted)
}

#[test]
fn a_killed_reader_ends() {
    if !can_mount() {
        return;
    }
    let (files, mounted) = with_unread_file();
    let reader = perl(READER, &mounted.path("stall"));
    await_that("the read is pending", || files.state().stalled_reads.len() == 1);
    kill(&reader, Signal::KILL);
    assert_eq!(output(reader).0.signal(), Some(9));
    let reply = files.state().stalled_reads.pop().expect("the read").1;
    assert!(!reply.is_wanted());
    assert_eq!(reply.ok(Data::default()), Err(fuse::NotDelivered::Withdrawn));
    mounted.end();
}

#[test]
fn sigterm_ends_a_reader_that_does_not_handle_it() {
    if !can_mount() {
        return;
    }
    let (files, mounted) = with_unread_file();
    let reader = perl(READER, &mounted.path("stall"));
    await_that("the read is pending", || files.state().stalled_reads.len() == 1);
    kill(&reader, Signal::TERM);
    assert_eq!(output(reader).0.signal(), Some(15));
    mounted.end();
}

/// The kernel sends INTERRUPT for SIGCHLD and nothing for SIGKILL.
#[test]
fn a_reader_that_got_sigchld_before_can_be_killed() {
    if !can_mount() {
        return;
    }
    let (files, mounted) = with_unread_file();
    let reader = perl(READER, &mounted.path("stall"));
    await_that("the read is pending", || files.state().stalled_reads.len() == 1);
    kill(&reader, Signal::CHILD);
    await_that("the read is interrupted", || mounted.serving().interrupted() == 1);
    thread::sleep(LONGER_THAN_A_LOOK);
    assert_eq!(mounted.serving().interrupted(), 1);
    kill(&reader, Signal::KILL);
    assert_eq!(output(reader).0.signal(), Some(9));
    mounted.end();
}

#[test]
fn other_signals_do_not_end_a_read() {
    if !can_mount() {
        return;
    }
    for signal in [Signal::ALARM, Signal::WINCH, Signal::CHILD] {
        let (files, mounted) = with_unread_file();
        let reader = perl(READER, &mounted.path("stall"));
        await_that("the read is pending", || files.state().stalled_reads.len() == 1);
        kill(&reader, signal);
        await_that("the read is interrupted", || mounted.serving().interrupted() == 1);
        thread::sleep(LONGER_THAN_A_LOOK);
        let (_, reply) = files.state().stalled_reads.pop().expect("the read");
        assert!(reply.is_wanted());
        reply.ok(b"data".to_vec().into()).expect("a program that waits");
        let (status, text) = output(reader);
        assert_eq!((status.code(), &text[..]), (Some(0), "read 4 signals 1"), "{signal:?}");
        mounted.end();
    }
}

#[test]
fn a_killed_program_does_not_wait_for_its_close() {
    if !can_mount() {
        return;
    }
    let files = MemoryFs::new();
    let mounted = Mounted::new(files.clone());
    let writer =
        perl(r#"open(my $f, ">", $ARGV[0]); syswrite($f, "x"); close($f);"#, &mounted.path("stall-flush"));
    await_that("the close is pending", || files.state().stalled_flushes.len() == 1);
    kill(&writer, Signal::KILL);
    assert_eq!(output(writer).0.signal(), Some(9));
    mounted.end();
}

#[test]
fn any_signal_ends_a_lock_wait() {
    if !can_mount() {
        return;
    }
    let files = MemoryFs::new();
    let mounted = Mounted::new(files.clone());
    let path = mounted.path("lock");
    let holder = std::fs::File::create(&path).expect("a file");
    holder.lock().expect("a free lock");
    let waiter = perl(
        r#"$SIG{ALRM} = sub {}; open(my $f, "<", $ARGV[0]) or die; print flock($f, 2) ? "locked" : "error " . ($! + 0);"#,
        &path,
    );
    await_that("the wait for the lock is pending", || files.state().waiting.len() == 1);
    kill(&waiter, Signal::ALARM);
    // EINTR
    assert_eq!(output(waiter).1, "error 4");
    await_that("the wait is abandoned", || files.state().waiting.is_empty());
    drop(holder);
    mounted.end();
}
