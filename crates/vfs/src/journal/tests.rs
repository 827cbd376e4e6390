mod crashes;

use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::{Bytes, BytesMut};

use super::changes::WRITE_BYTES_MAX;
use super::files::KNOWN_MAX;
use super::*;
use crate::{
    Authority, Context, Create, CreateMode, Credentials, Handle, MemFs, MemOptions, ReadRequest,
    SetAttributes, SetTime, Stability, Timestamp, Written,
};

const BOOT: [u8; 16] = [1; 16];

/// A device in memory, and a journal on it.
struct Fixture {
    bytes: Vec<u8>,
    journal: Journaled<MemFs>,
}

fn context(uid: u32) -> Context {
    let credentials = Credentials { uid, gid: uid, groups: Arc::from([]) };
    Context::new(Arc::new(credentials), Timestamp { seconds: 100, nanoseconds: 7 })
}

fn volatile() -> MemFs {
    MemFs::new(&MemOptions { is_volatile: true, root_mode: 0o777, ..MemOptions::default() })
}

impl Fixture {
    fn new() -> Self {
        Self::with_log(LOG_BYTES_MIN)
    }

    fn with_log(bytes: u64) -> Self {
        let inner = volatile();
        let log = Log::create(inner.identity(), ([5; 16], BOOT), bytes, Arc::default());
        let mut fixture =
            Self { bytes: vec![0; bytes as usize], journal: Journaled::new(inner, Arc::new(log)) };
        fixture.write_log();
        fixture
    }

    /// Makes what was appended durable. Returns the number of writes.
    fn write_log(&mut self) -> usize {
        let mut writes = 0;
        while let Poll::Ready(Some(write)) = self.journal.log().poll_write(&mut task()) {
            for (at, piece) in write.pieces {
                self.bytes[at as usize..at as usize + piece.len()].copy_from_slice(&piece);
            }
            self.journal.log().written(true);
            writes += 1;
        }
        writes
    }

    /// Runs an operation, with a prompt device.
    fn run<T>(&mut self, act: impl AsyncFnOnce(&Journaled<MemFs>) -> T) -> T {
        let Self { bytes, journal } = self;
        let mut running = pin!(act(journal));
        loop {
            if let Poll::Ready(value) = running.as_mut().poll(&mut task()) {
                return value;
            }
            let Poll::Ready(Some(write)) = journal.log().poll_write(&mut task()) else {
                panic!("it waits for nothing")
            };
            for (at, piece) in write.pieces {
                bytes[at as usize..at as usize + piece.len()].copy_from_slice(&piece);
            }
            journal.log().written(true);
        }
    }

    fn file(&mut self) -> Handle {
        self.file_called("file")
    }

    fn file_called(&mut self, name: &str) -> Handle {
        let what = Create::File(CreateMode::Guarded);
        let set = SetAttributes { mode: Some(0o666), ..SetAttributes::default() };
        self.run(async |journal| {
            journal.create(&context(0), &journal.root(), name.as_bytes(), &what, &set).await.unwrap().handle
        })
    }

    fn write(&mut self, file: Handle, offset: u64, data: &[u8], stability: Stability) -> Written {
        let data = Bytes::copy_from_slice(data);
        self.run(async |journal| {
            journal.write(&context(7), &file, offset, &data, stability, Authority::Caller).await.unwrap()
        })
    }

    fn set(&mut self, file: Handle, set: SetAttributes) {
        self.run(async |journal| {
            journal.setattr(&context(0), &file, &set, None, Authority::Caller).await.unwrap()
        });
    }

    /// Crashes the machine. Returns the file system after the log was repeated, and the number of repeated records.
    fn crash(self) -> (MemFs, usize) {
        let files = self.journal.into_inner();
        files.crash([9; 8]);
        let Scan::Log(found) = scan(&self.bytes) else { panic!("a log") };
        assert!(!found.is_damaged);
        let root = Credentials::root();
        let repeated = {
            let mut replay = pin!(replay(&files, &found.records, &root, Timestamp::default(), None));
            let Poll::Ready(repeated) = replay.as_mut().poll(&mut task()) else {
                panic!("memory does not wait")
            };
            repeated.unwrap()
        };
        (files, repeated)
    }

    fn counts(&self) -> &JournalCounts {
        self.journal.log().counts()
    }
}

fn task() -> TaskContext<'static> {
    TaskContext::from_waker(Waker::noop())
}

fn content(files: &MemFs, file: &Handle) -> Vec<u8> {
    let request = ReadRequest { offset: 0, count: 8 << 20, may_splice: false, authority: Authority::Opened };
    let mut into = BytesMut::new();
    files.read(&context(0), file, request, &mut into).now().unwrap();
    into.to_vec()
}

#[test]
fn a_stable_write_is_answered_from_the_log_and_survives_a_crash() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    let written = fixture.write(file, 0, b"logged", Stability::FileSync);
    assert_eq!((written.count, written.stability), (6, Stability::FileSync));
    let modified = written.change.after.modified;
    let (files, repeated) = fixture.crash();
    assert_eq!((content(&files, &file), repeated), (b"logged".to_vec(), 1));
    assert_eq!(files.getattr(&context(0), &file).now().unwrap().modified, modified);
}

#[test]
fn without_the_log_the_write_would_be_lost() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    fixture.write(file, 0, b"logged", Stability::FileSync);
    let files = fixture.journal.into_inner();
    files.crash([9; 8]);
    assert_eq!(content(&files, &file), b"");
}

#[test]
fn a_write_waits_for_its_record() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    let data = Bytes::from_static(b"x");
    let journal = &fixture.journal;
    let mut write = journal.write(&context(0), &file, 0, &data, Stability::DataSync, Authority::Caller);
    for _ in 0..3 {
        assert!(Pin::new(&mut write).poll(&mut task()).is_pending());
    }
    let Poll::Ready(Some(_)) = journal.log().poll_write(&mut task()) else { panic!("a frame") };
    assert!(Pin::new(&mut write).poll(&mut task()).is_pending(), "it is not durable yet");
    assert!(journal.log().poll_write(&mut task()).is_pending(), "one write at a time");
    journal.log().written(true);
    assert!(matches!(Pin::new(&mut write).poll(&mut task()), Poll::Ready(Ok(_))));
}

#[test]
fn writes_that_wait_share_a_sync() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    let before = fixture.counts().syncs.load(Relaxed);
    fixture.run(async |journal| {
        let (context, data) = (context(0), Bytes::from_static(b"12345678"));
        let mut writes: Vec<_> = (0..20)
            .map(|number| {
                journal.write(&context, &file, number * 8, &data, Stability::FileSync, Authority::Caller)
            })
            .collect();
        std::future::poll_fn(|task| {
            writes.retain_mut(|write| Pin::new(write).poll(task).is_pending());
            if writes.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    });
    assert_eq!(fixture.counts().syncs.load(Relaxed) - before, 1);
    assert_eq!(fixture.counts().changes.load(Relaxed), 20);
}

#[test]
fn a_commit_of_few_bytes_is_logged() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    assert_eq!(fixture.write(file, 5, b"unstable", Stability::Unstable).stability, Stability::Unstable);
    assert_eq!(fixture.counts().changes.load(Relaxed), 0);
    fixture.run(async |journal| journal.commit(&context(0), &file, 0, 0).await.unwrap());
    assert_eq!((fixture.counts().changes.load(Relaxed), fixture.counts().bypasses.load(Relaxed)), (1, 0));
    let (files, _) = fixture.crash();
    assert_eq!(content(&files, &file), b"\0\0\0\0\0unstable");
}

#[test]
fn a_commit_waits_for_the_record_of_another() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    fixture.write(file, 0, b"unstable", Stability::Unstable);
    let (journal, context) = (&fixture.journal, context(0));
    let mut commits = [journal.commit(&context, &file, 0, 0), journal.commit(&context, &file, 0, 0)];
    let mut are_ready = || commits.each_mut().map(|commit| Pin::new(commit).poll(&mut task()).is_ready());
    assert_eq!(are_ready(), [false, false]);
    let Poll::Ready(Some(_)) = journal.log().poll_write(&mut task()) else { panic!("a frame") };
    assert_eq!(are_ready(), [false, false], "its frame is not durable");
    journal.log().written(true);
    assert_eq!(are_ready(), [true, true]);
}

#[test]
fn a_commit_of_many_bytes_goes_to_the_file_system_and_older_records_do_not_replace_them() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    fixture.write(file, 0, b"older", Stability::FileSync);
    let many = vec![b'n'; 1 << 20];
    fixture.write(file, 0, &many, Stability::Unstable);
    fixture.run(async |journal| journal.commit(&context(0), &file, 0, 0).await.unwrap());
    assert_eq!(fixture.counts().checkpoints.load(Relaxed), 1);
    let (files, repeated) = fixture.crash();
    assert_eq!(repeated, 0);
    assert!(content(&files, &file) == many);
}

#[test]
fn a_large_write_replaces_logged_ones() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    fixture.write(file, 0, b"older", Stability::FileSync);
    let many = vec![b'n'; WRITE_BYTES_MAX + 1];
    fixture.write(file, 0, &many, Stability::FileSync);
    assert_eq!(fixture.counts().bypasses.load(Relaxed), 1);
    let (files, _) = fixture.crash();
    assert!(content(&files, &file) == many);
}

#[test]
fn attributes_are_repeated_in_their_order() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    let time = |seconds| Some(SetTime::To(Timestamp { seconds, nanoseconds: 1 }));
    fixture.write(file, 0, b"0123456789", Stability::FileSync);
    fixture.set(file, SetAttributes { size: Some(4), ..SetAttributes::default() });
    fixture.write(file, 8, b"89", Stability::FileSync);
    fixture.set(file, SetAttributes { mode: Some(0o4711), uid: Some(12), ..SetAttributes::default() });
    fixture.set(file, SetAttributes { modified: time(3), accessed: time(4), ..SetAttributes::default() });
    let files = fixture.journal.inner();
    let wanted = files.getattr(&context(0), &file).now().unwrap();
    assert_eq!((wanted.mode, wanted.uid, wanted.size), (0o4711, 12, 10));
    let (files, repeated) = fixture.crash();
    let found = files.getattr(&context(0), &file).now().unwrap();
    assert_eq!((content(&files, &file), repeated), (b"0123\0\0\0\089".to_vec(), 5));
    assert_eq!(
        (found.mode, found.uid, found.modified, found.accessed),
        (wanted.mode, 12, wanted.modified, wanted.accessed)
    );
}

#[test]
fn a_write_by_a_user_clears_set_id_bits_when_it_is_repeated_too() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    fixture.set(file, SetAttributes { mode: Some(0o4777), ..SetAttributes::default() });
    fixture.write(file, 0, b"x", Stability::FileSync);
    let (files, _) = fixture.crash();
    assert_eq!(files.getattr(&context(0), &file).now().unwrap().mode, 0o777);
}

#[test]
fn a_checkpoint_frees_the_log() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    let data = vec![b'd'; 64 << 10];
    // Several times the log's size.
    for number in 0..64 {
        fixture.write(file, number * 100, &data, Stability::FileSync);
        if number % 4 == 3 {
            fixture.run(async |journal| journal.checkpoint().await.unwrap());
            assert!(!fixture.journal.has_changes());
        }
    }
    assert_eq!(fixture.counts().bypasses.load(Relaxed), 0);
    assert_eq!(fixture.counts().checkpointed_objects.load(Relaxed), 16);
    fixture.write(file, 0, b"last", Stability::FileSync);
    let (files, repeated) = fixture.crash();
    assert_eq!((repeated, &content(&files, &file)[..4]), (1, &b"last"[..]));
    assert_eq!(content(&files, &file).len(), 63 * 100 + (64 << 10));
}

#[test]
fn a_full_log_falls_back_to_the_file_system() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    let data = vec![b'd'; 64 << 10];
    for number in 0..40_u64 {
        fixture.write(file, number * data.len() as u64, &data, Stability::FileSync);
    }
    // The change that finds the log full of changes of its file makes a checkpoint, which frees it for the next ones.
    assert!(fixture.counts().bypasses.load(Relaxed) >= 2);
    assert!(fixture.counts().checkpoints.load(Relaxed) >= 2);
    let (files, _) = fixture.crash();
    assert_eq!(content(&files, &file).len(), 40 * data.len());
}

#[test]
fn a_checkpoint_does_not_free_records_that_come_after_its_beginning() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    let write = |journal: &Journaled<MemFs>, offset: u64| {
        let data = Bytes::from_static(b"x");
        let mut write =
            journal.write(&context(0), &file, offset, &data, Stability::FileSync, Authority::Caller);
        assert!(Pin::new(&mut write).poll(&mut task()).is_pending());
    };
    {
        let journal = &fixture.journal;
        write(journal, 0);
        let mut checkpoint = pin!(journal.checkpoint());
        assert!(checkpoint.as_mut().poll(&mut task()).is_pending());
        write(journal, 1);
        let mut is_ended = false;
        loop {
            is_ended = is_ended || checkpoint.as_mut().poll(&mut task()).is_ready();
            let Poll::Ready(Some(frame)) = journal.log().poll_write(&mut task()) else { break };
            for (at, piece) in frame.pieces {
                fixture.bytes[at as usize..at as usize + piece.len()].copy_from_slice(&piece);
            }
            journal.log().written(true);
            if !is_ended {
                write(journal, 2);
            }
        }
        assert!(is_ended);
    }
    let (files, _) = fixture.crash();
    assert_eq!(content(&files, &file), b"xxx");
}

#[test]
fn a_dropped_checkpoint_is_finished_by_the_next() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    fixture.write(file, 0, b"data", Stability::FileSync);
    {
        let mut checkpoint = pin!(fixture.journal.checkpoint());
        assert!(checkpoint.as_mut().poll(&mut task()).is_pending(), "it waits for the header");
    }
    fixture.run(async |journal| journal.checkpoint().await.unwrap());
    assert!(!fixture.journal.has_changes());
}

#[test]
fn a_failed_device_takes_nothing_more_and_protects_what_it_has() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    fixture.write(file, 0, b"logged", Stability::FileSync);
    let write = |journal: &Journaled<MemFs>, file: &Handle| {
        let mut write = journal.write(
            &context(0),
            file,
            0,
            &Bytes::from_static(b"new"),
            Stability::FileSync,
            Authority::Caller,
        );
        if let Poll::Ready(result) = Pin::new(&mut write).poll(&mut task()) {
            return result.map(|_| ());
        }
        let Poll::Ready(Some(_)) = journal.log().poll_write(&mut task()) else { panic!("a frame") };
        journal.log().written(false);
        match Pin::new(&mut write).poll(&mut task()) {
            Poll::Ready(result) => result.map(|_| ()),
            Poll::Pending => panic!("the log has failed"),
        }
    };
    assert_eq!(write(&fixture.journal, &file), Err(Error::Io), "its record is not durable");
    assert_eq!(
        write(&fixture.journal, &file),
        Err(Error::Io),
        "the next start would repeat older changes after it"
    );
    let what = Create::File(CreateMode::Guarded);
    let (root, set) = (fixture.journal.root(), SetAttributes::default());
    let other = fixture.journal.create(&context(0), &root, b"other", &what, &set).now().unwrap().handle;
    assert_eq!(write(&fixture.journal, &other), Ok(()), "other files do not need the log");
    assert_eq!(fixture.counts().failures.load(Relaxed), 1);
}

#[test]
fn every_torn_write_keeps_what_was_answered_before() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    fixture.write(file, 0, b"answered", Stability::FileSync);
    let before = fixture.bytes.clone();
    fixture.write(file, 0, &vec![b'n'; 3 * BLOCK_BYTES], Stability::FileSync);
    let after = &fixture.bytes;
    let first = (0..after.len()).find(|at| before[*at] != after[*at]).unwrap();
    let last = (0..after.len()).rfind(|at| before[*at] != after[*at]).unwrap();
    for end in (first..=last).step_by(512) {
        let torn = [&after[..end], &before[end..]].concat();
        let Scan::Log(found) = scan(&torn) else { panic!("a log") };
        assert_eq!((found.records.len(), found.is_damaged), (1, false), "up to {end}");
        let torn = [&before[..end], &after[end..]].concat();
        let Scan::Log(found) = scan(&torn) else { panic!("a log") };
        let is_whole = end == first;
        assert_eq!((found.records.len(), found.is_damaged), (1 + usize::from(is_whole), false), "from {end}");
    }
}

#[test]
fn damage_before_the_end_is_noticed() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    (0..4).for_each(|_| _ = fixture.write(file, 0, b"data", Stability::FileSync));
    let frames = 2 * BLOCK_BYTES;
    fixture.bytes[frames + BLOCK_BYTES + 40] ^= 1;
    let Scan::Log(found) = scan(&fixture.bytes) else { panic!("a log") };
    assert_eq!((found.records.len(), found.is_damaged), (1, true));
    fixture.bytes[..frames].fill(b'x');
    assert!(matches!(scan(&fixture.bytes), Scan::Unknown(_)));
    fixture.bytes[..frames].fill(0);
    assert!(matches!(scan(&fixture.bytes), Scan::Empty));
    assert!(matches!(scan(b""), Scan::Empty));
}

#[test]
fn a_lost_header_is_noticed() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    fixture.write(file, 0, b"data", Stability::FileSync);
    fixture.run(async |journal| journal.checkpoint().await.unwrap());
    fixture.write(file, 0, b"data", Stability::FileSync);
    // The first header has an odd generation, the checkpoint's an even one.
    fixture.bytes[..BLOCK_BYTES].fill(0);
    let Scan::Log(found) = scan(&fixture.bytes) else { panic!("a log") };
    assert!(found.is_damaged);
}

#[test]
fn a_log_goes_on_after_accepted_damage() {
    let mut fixture = Fixture::new();
    let file = fixture.file();
    (0..4).for_each(|_| _ = fixture.write(file, 0, b"data", Stability::FileSync));
    fixture.bytes[3 * BLOCK_BYTES + 40] ^= 1;
    let Scan::Log(found) = scan(&fixture.bytes) else { panic!("a log") };
    assert!(found.is_damaged);
    let Fixture { bytes, journal } = fixture;
    let log = Log::resume(&found, BOOT, Arc::default());
    let mut fixture = Fixture { bytes, journal: Journaled::new(journal.into_inner(), Arc::new(log)) };
    fixture.write_log();
    fixture.write(file, 0, b"new", Stability::FileSync);
    let Scan::Log(found) = scan(&fixture.bytes) else { panic!("a log") };
    assert_eq!(
        (found.records.len(), found.is_damaged),
        (1, false),
        "older frames are not taken for later ones"
    );
}

#[test]
fn writes_in_progress_together_fit_one_frame() {
    let mut fixture = Fixture::with_log(16 << 20);
    let files: Vec<_> = (0..48).map(|number| fixture.file_called(&format!("file-{number}"))).collect();
    let data = Bytes::from(vec![b'd'; WRITE_BYTES_MAX]);
    {
        // Each has its room before the first has its record.
        let log = fixture.journal.log();
        let reserved: Vec<_> =
            files.iter().map_while(|_| log.reserve(Record::bytes_max(data.len()))).collect();
        assert!((24..32).contains(&reserved.len()), "{}", reserved.len());
        for (file, reservation) in files.iter().zip(reserved) {
            let action = Action::Write { offset: 0, data: data.clone() };
            reservation.append(&Record {
                file: *file,
                caller: (0, 0),
                modified: Timestamp::default(),
                action,
            });
        }
    }
    fixture.write_log();
    let Scan::Log(found) = scan(&fixture.bytes) else { panic!("a log") };
    assert!((24..32).contains(&found.records.len()), "{}", found.records.len());
}

#[test]
fn many_files_with_unstable_data_block_no_change_that_waits_for_a_checkpoint() {
    let mut fixture = Fixture::new();
    let files: Vec<_> =
        (0..KNOWN_MAX / 2 + 1).map(|number| fixture.file_called(&format!("file-{number}"))).collect();
    fixture.write(files[0], 0, b"logged", Stability::FileSync);
    for file in &files {
        fixture.write(*file, 10, b"unstable", Stability::Unstable);
    }
    // Not logged, of a file with changes in the log and with unstable data.
    fixture.write(files[0], 0, &vec![b'n'; WRITE_BYTES_MAX + 1], Stability::FileSync);
    assert!(fixture.journal.needs_checkpoint());
    fixture.run(async |journal| journal.checkpoint().await.unwrap());
    assert!(!fixture.journal.needs_checkpoint(), "their data are stable, and they are forgotten");
    let (after, _) = fixture.crash();
    assert_eq!(content(&after, &files[7])[10..], *b"unstable");
}

#[test]
fn bytes_that_look_like_frames_are_skipped_without_reading_them() {
    let mut fixture = Fixture::with_log(LOG_BYTES_MAX / 64);
    let file = fixture.file();
    fixture.write(file, 0, b"data", Stability::FileSync);
    // As a client could write them: a number, and the greatest length.
    for block in fixture.bytes.chunks_exact_mut(BLOCK_BYTES).skip(8) {
        block[..8].copy_from_slice(&99_u64.to_le_bytes());
        block[16..24].copy_from_slice(&(4_u64 << 20).to_le_bytes());
    }
    let Scan::Log(found) = scan(&fixture.bytes) else { panic!("a log") };
    assert_eq!((found.records.len(), found.is_damaged), (1, false));
}
