//! Crashes of the machine during a replay and during a checkpoint, and a log that is repeated again.
//!
//! A crash loses what was not synced. The kernel may have written back any of the files before, in the state that they had then.

use std::future::pending;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::around::{Around, Call, Wrapped};
use crate::{Attributes, Op};

/// Stops the file system for good after some operations.
#[derive(Debug)]
struct Stop {
    left: AtomicUsize,
}

impl Around for Stop {
    fn around<'a, T: Send + 'a>(
        &'a self,
        _: Call<'_>,
        run: impl FnOnce(Option<u32>) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        match self.left.load(Relaxed) {
            0 => Op::pending(pending()),
            left => {
                self.left.store(left - 1, Relaxed);
                run(None)
            }
        }
    }
}

/// Every set of the two files, as bits.
const SETS: u32 = 1 << 2;

/// Returns a journal with changes of two files. Each replaces what another one did.
fn changed() -> (Fixture, [Handle; 2]) {
    let mut fixture = Fixture::new();
    let files = ["one", "two"].map(|name| fixture.file_called(name));
    let [one, two] = files;
    let time = |seconds| Some(SetTime::To(Timestamp { seconds, nanoseconds: 1 }));
    fixture.write(one, 0, b"0123456789", Stability::FileSync);
    fixture.write(two, 0, &[b't'; 9000], Stability::FileSync);
    fixture.set(one, SetAttributes { size: Some(4), ..SetAttributes::default() });
    fixture.write(one, 8, b"89", Stability::FileSync);
    fixture.set(two, SetAttributes { mode: Some(0o4777), uid: Some(12), ..SetAttributes::default() });
    fixture.write(two, 4090, b"over two pages", Stability::Unstable);
    fixture.run(async |journal| journal.commit(&context(0), &two, 0, 0).await.unwrap());
    fixture.write(one, 2, b"again", Stability::FileSync);
    fixture.set(two, SetAttributes { size: Some(5000), ..SetAttributes::default() });
    // By a user: it clears the set-ID bit.
    fixture.write(two, 4999, b"end", Stability::FileSync);
    fixture.set(one, SetAttributes { modified: time(3), accessed: time(4), ..SetAttributes::default() });
    (fixture, files)
}

/// Content and attributes of both files.
type State = [(Vec<u8>, Attributes); 2];

#[track_caller]
fn assert_same(found: &State, wanted: &State, case: &str) {
    for ((found, attributes), wanted) in found.iter().zip(wanted) {
        assert_eq!(*attributes, wanted.1, "{case}");
        let differs = found.iter().zip(&wanted.0).position(|(one, other)| one != other);
        assert_eq!((found.len(), differs), (wanted.0.len(), None), "{case}");
    }
}

/// What the log has to restore. Change times and change attributes are those of the repetition, and reading the content here sets
/// the access time.
fn state(files: &MemFs, of: &[Handle; 2]) -> State {
    of.each_ref().map(|file| {
        let attributes = files.getattr(&context(0), file).now().unwrap();
        let no_time = Timestamp::default();
        (content(files, file), Attributes { changed: no_time, accessed: no_time, change: 0, ..attributes })
    })
}

/// Crashes the machine after the kernel has written back the files of this set.
fn crash_after_write_back(files: &MemFs, of: &[Handle; 2], set: u32) {
    for (number, file) in of.iter().enumerate() {
        if set & (1 << number) != 0 {
            files.commit(&context(0), file, 0, 0).now().unwrap();
        }
    }
    files.crash([9; 8]);
}

/// Repeats the log on a file system. Returns whether it came to the end.
fn repeat(files: &impl Backend, bytes: &[u8]) -> bool {
    let Scan::Log(found) = scan(bytes) else { panic!("a log") };
    assert!(!found.is_damaged);
    let root = Credentials::root();
    let mut repeated = pin!(replay(files, &found.records, &root, Timestamp::default(), None));
    match repeated.as_mut().poll(&mut task()) {
        Poll::Ready(result) => {
            result.unwrap();
            true
        }
        Poll::Pending => false,
    }
}

#[test]
fn a_crash_at_any_operation_of_a_replay_and_another_replay_change_nothing() {
    let mut operations = 0;
    for (first, second) in (0..SETS).flat_map(|first| (0..SETS).map(move |second| (first, second))) {
        for stop in 0.. {
            let (fixture, of) = changed();
            let Fixture { bytes, journal } = fixture;
            let files = journal.into_inner();
            let wanted = state(&files, &of);
            crash_after_write_back(&files, &of, first);
            let stopping = Wrapped::of(files, Stop { left: AtomicUsize::new(stop) });
            let is_done = repeat(&stopping, &bytes);
            let files = stopping.inner();
            if is_done {
                assert_same(&state(files, &of), &wanted, "the first replay");
            }
            crash_after_write_back(files, &of, second);
            assert!(repeat(files, &bytes), "memory does not wait");
            let case = format!(
                "stopped at {stop}, written back: {first:b} before the first crash, {second:b} later"
            );
            assert_same(&state(files, &of), &wanted, &case);
            operations = stop;
            if is_done {
                break;
            }
        }
    }
    assert!(operations >= 12, "a replay of {operations} operations");
}

/// What is done of a checkpoint when the machine crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It waits for the frame of a change that came before.
    Began,
    /// The files are synced, and so many sectors of the new header are on the device.
    Header(usize),
    /// The new header is on the device.
    Ended,
}

#[test]
fn a_crash_at_any_step_of_a_checkpoint_keeps_what_was_answered() {
    const SECTOR: usize = 512;
    let headers = (0..=BLOCK_BYTES / SECTOR).map(Progress::Header);
    for progress in [Progress::Began, Progress::Ended].into_iter().chain(headers) {
        for set in 0..SETS {
            let (Fixture { mut bytes, journal }, of) = changed();
            let wanted = state(journal.inner(), &of);
            let mut checkpoint = Box::pin(journal.checkpoint());
            let late = Bytes::from_static(b"late");
            let write = |file: &Handle, at| {
                journal.write(&context(7), file, at, &late, Stability::FileSync, Authority::Caller)
            };
            if progress == Progress::Began {
                // Not answered: its frame is never written. The log has an earlier size of the file, which cuts it off again.
                let mut write = write(&of[0], 100);
                assert!(Pin::new(&mut write).poll(&mut task()).is_pending());
            }
            assert!(checkpoint.as_mut().poll(&mut task()).is_pending());
            let Poll::Ready(Some(header)) = journal.log().poll_write(&mut task()) else { panic!("a write") };
            let sectors = match progress {
                Progress::Began => 0,
                Progress::Header(sectors) => sectors,
                Progress::Ended => BLOCK_BYTES / SECTOR,
            };
            for (at, piece) in &header.pieces {
                let length = piece.len().min(sectors * SECTOR);
                bytes[*at as usize..*at as usize + length].copy_from_slice(&piece[..length]);
            }
            if progress == Progress::Ended {
                journal.log().written(true);
                let Poll::Ready(done) = checkpoint.as_mut().poll(&mut task()) else { panic!("an end") };
                done.unwrap();
                assert!(!journal.has_changes());
            }
            drop(checkpoint);
            let files = journal.into_inner();
            crash_after_write_back(&files, &of, set);
            assert!(repeat(&files, &bytes), "memory does not wait");
            let found = state(&files, &of);
            assert_same(&found, &wanted, &format!("{progress:?}, written back: {set:b}"));
        }
    }
}
