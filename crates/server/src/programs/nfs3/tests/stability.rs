//! READ, WRITE and COMMIT: the data, the committed level in the reply, and the data after a crash.

use super::*;

#[test]
fn writes_reads_and_reports_the_end() {
    let pair = pair();
    let file = pair.file(b"file");
    let written = pair.write(file, 0, b"hello, world", StableHow::FileSync).into_result().unwrap();
    assert_eq!((written.count, written.committed), (12, StableHow::FileSync));
    let wcc = written.file_wcc;
    assert_eq!((wcc.before.unwrap().size, wcc.after.unwrap().size), (0, 12));
    let read = pair.read(file, 7, 100).into_result().unwrap();
    assert_eq!((&*read.data, read.count, read.eof), (&b"world"[..], 5, true));
    let read = pair.read(file, 0, 5).into_result().unwrap();
    assert_eq!((&*read.data, read.eof), (&b"hello"[..], false));
    assert_eq!(read.file_attributes.unwrap().size, 12);
    let behind = pair.read(file, 100, 5).into_result().unwrap();
    assert_eq!((behind.count, behind.eof), (0, true));
}

#[test]
fn commit_returns_the_verifier_of_writes() {
    let pair = pair();
    let file = pair.file(b"file");
    let written = pair.write(file, 0, b"data", StableHow::Unstable).into_result().unwrap();
    let args = CommitArgs { file, offset: 0, count: 0 };
    let committed = pair.call::<CommitResult>(Proc::COMMIT, &args).into_result().unwrap();
    assert_eq!(committed.verf, written.verf);
    let other = pair_with(ExportOptions::default(), &MemOptions { instance: 2, ..MemOptions::default() }, 0);
    let stale = other.call::<CommitResult>(Proc::COMMIT, &args);
    assert_eq!(stale.status(), NfsStat::STALE, "another instance of memory has none of the files");
}

#[test]
fn a_write_with_different_counts_or_an_overflow_is_refused() {
    let pair = pair();
    let file = pair.file(b"file");
    let args = WriteArgs {
        file,
        offset: 0,
        count: 5,
        stable: StableHow::Unstable,
        data: Opaque::from_static(b"four"),
    };
    assert_eq!(pair.call::<WriteResult>(Proc::WRITE, &args).status(), NfsStat::INVAL);
    let args = WriteArgs { offset: u64::MAX - 1, count: 4, ..args };
    assert_eq!(pair.call::<WriteResult>(Proc::WRITE, &args).status(), NfsStat::FBIG);
}

#[test]
fn a_late_copy_of_a_write_gets_the_cached_reply() {
    let pair = pair();
    let file = pair.file(b"file");
    let first = WriteArgs {
        file,
        offset: 0,
        count: 3,
        stable: StableHow::DataSync,
        data: Opaque::from_static(b"old"),
    };
    let send = |xid, args: &WriteArgs| -> WriteResult {
        parse_reply(pair.raw(xid, PROGRAM, VERSION, Proc::WRITE.0, args).unwrap()).unwrap()
    };
    let reported = send(9_000, &first).into_result().unwrap();
    pair.write(file, 0, b"newer", StableHow::Unstable);
    let again = send(9_000, &first).into_result().unwrap();
    assert_eq!(
        (again.count, again.committed, again.verf),
        (reported.count, reported.committed, reported.verf)
    );
    assert_eq!(
        (again.file_wcc.before, again.file_wcc.after.unwrap().size),
        (None, 5),
        "attributes as of now"
    );
    assert_eq!(&*pair.read(file, 0, 9).into_result().unwrap().data, b"newer");
    let failing = WriteArgs { count: 2, ..first };
    for _ in 0..2 {
        assert_eq!(send(9_001, &failing).status(), NfsStat::INVAL);
    }
    assert_eq!(pair.server.metrics().replayed.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[test]
fn stable_writes_survive_a_crash() {
    let levels = [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync];
    let level = |how| levels.iter().position(|level| *level == how);
    for asked in levels {
        let memory = Arc::new(MemFs::new(&MemOptions { is_volatile: true, ..MemOptions::default() }));
        let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
        let pair = pair_over(memory.clone(), options, 0);
        let file = pair.file(b"file");
        let write = || pair.write(file, 0, b"data", asked).into_result().unwrap();
        let content = || pair.read(file, 0, 10).into_result().unwrap().data.to_vec();
        // RFC 1813 §3.3.7: for FILE_SYNC "the server must commit the data written plus all file system metadata", for
        // DATA_SYNC "all of the data"; `committed` is never less than what was requested.
        let written = write();
        assert!(level(written.committed) >= level(asked), "{asked:?}: {:?}", written.committed);
        memory.crash([9; 8]);
        assert_eq!(content() == b"data", written.committed != StableHow::Unstable, "{asked:?}");
        // Unstable data were written under another verifier, so the client sends them again.
        assert_ne!(write().verf, written.verf);
        assert_eq!(pair.status(Proc::COMMIT, &CommitArgs { file, offset: 0, count: 0 }), NfsStat::OK);
        memory.crash([10; 8]);
        assert_eq!(content(), b"data", "{asked:?}, and committed");
    }
}
