//! Operations in place and on the pool.

mod common;

use common::{Fixture, me};
use vfs::{Authority, Backend, Error, Removal, SetAttributes, Stability};

#[test]
fn a_large_read_of_cached_data_is_a_range_and_a_small_one_a_copy() {
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "a", 0o600);
    let data = vec![5; 300_000];
    fixture.write(&me(), &file, &data, Stability::Unstable).expect("write");
    let read = |count| {
        let mut into = bytes::BytesMut::new();
        let request = vfs::ReadRequest { offset: 0, count, may_splice: true, authority: Authority::Caller };
        fixture.wait(fixture.fs().read(&me(), &file, request, &mut into)).expect("read")
    };
    let large = read(256 * 1024);
    let vfs::Payload::Range(range) = large.payload else {
        assert!(!common::is_ordinary(&fixture.config.directory), "not a range");
        println!("skipped: this file system does not tell what is cached");
        return;
    };
    assert_eq!((range.offset, range.length, large.eof), (0, 256 * 1024, false));
    let mut bytes = vec![0; 1000];
    range.source.read_at(0, &mut bytes);
    assert_eq!(bytes, vec![5; 1000]);
    assert!(matches!(read(4096).payload, vfs::Payload::Appended));
}

/// Each page is freed, on any file system, and the same thread serves others.
#[test]
fn a_large_file_is_truncated_on_the_pool() {
    const LARGE: usize = 65 << 20;
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "a", 0o600);
    let cut = |length: usize| {
        std::fs::write(fixture.path("a"), vec![1; length]).expect("write");
        let (context, set) = (me(), SetAttributes { size: Some(0), ..SetAttributes::default() });
        let op = fixture.fs().setattr(&context, &file, &set, None, Authority::Caller);
        let was_pending = matches!(op, vfs::Op::Pending(_));
        assert_eq!(fixture.wait(op).expect("cut").after.size, 0);
        was_pending
    };
    assert!(cut(LARGE));
    // Elsewhere it may have to wait for the disk as well.
    assert!(!cut(4096) || !common::is_in_memory(&fixture.path("")));
}

#[test]
fn a_large_file_in_memory_is_truncated_on_the_pool() {
    common::again_mounted(&["-t", "tmpfs", "none"], &["a_large_file_is_truncated_on_the_pool"]);
}

/// The kernel visits each page there, while others wait for the same thread.
#[test]
fn holes_of_a_large_sparse_file_in_memory_are_searched_on_the_pool() {
    common::again_mounted(&["-t", "tmpfs", "none"], &["the_end_of_a_dense_file"]);
}

#[test]
fn the_end_of_a_dense_file_in_memory_is_known() {
    const LARGE: u64 = 32 << 20;
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "a", 0o600);
    let hole = || {
        let context = me();
        let op = fixture.fs().seek(&context, &file, 0, vfs::Seek::Hole, Authority::Caller);
        let was_pending = matches!(op, vfs::Op::Pending(_));
        (fixture.wait(op).expect("found"), was_pending)
    };
    std::fs::write(fixture.path("a"), vec![1; LARGE as usize]).expect("write");
    let (end, was_pending) = hole();
    assert_eq!(end, Some(LARGE));
    assert!(!was_pending || !common::is_in_memory(&fixture.path("")));
    let local = std::fs::OpenOptions::new().write(true).open(fixture.path("a")).expect("open");
    local.set_len(2 * LARGE).expect("longer");
    assert_eq!(hole(), (Some(LARGE), true), "a file with a hole is searched");
}

#[test]
fn an_uncached_read_waits_on_the_pool() {
    let fixture = Fixture::new();
    let file = fixture.file(&me(), "a", 0o600);
    fixture.write(&me(), &file, &vec![9; 200_000], Stability::Unstable).expect("write");
    let local = std::fs::File::open(fixture.path("a")).expect("open");
    local.sync_all().expect("sync");
    rustix::fs::fadvise(&local, 0, None, rustix::fs::Advice::DontNeed).expect("fadvise");
    let mut into = bytes::BytesMut::from(&b"header"[..]);
    let request =
        vfs::ReadRequest { offset: 0, count: 150_000, may_splice: true, authority: Authority::Caller };
    let context = me();
    let op = fixture.fs().read(&context, &file, request, &mut into);
    let was_pending = matches!(op, vfs::Op::Pending(_));
    let read = fixture.wait(op).expect("read");
    let (header, inline) = into.split_at(b"header".len());
    match read.payload {
        vfs::Payload::Bytes(bytes) => assert!(bytes == vec![9; 150_000] && inline.is_empty()),
        // In a temporary directory in memory nothing is ever cold, and elsewhere the kernel may keep pages.
        _ => assert!(!was_pending && (inline.is_empty() || inline == vec![9; 150_000])),
    }
    assert_eq!(header, b"header", "the attempt leaves no state");
    assert_eq!((read.count, read.eof), (150_000, false));
}

/// Runs the tests above in a process of an ordinary user without any capability.
#[test]
fn without_privileges() {
    common::again_without_privileges(&[]);
}

#[test]
fn the_space_of_a_large_file_is_freed_after_the_answer() {
    let fixture = Fixture::new();
    let root = fixture.fs().root();
    let file = fixture.file(&me(), "large", 0o600);
    let length = 100 << 20;
    if fixture.wait(fixture.fs().allocate(&me(), &file, 0, length, Authority::Caller)).is_err() {
        println!("skipped: no room for a large file here");
        return;
    }
    let used = || {
        let (space, _) = fixture.wait(fixture.fs().statfs(&me(), &root)).expect("statfs");
        space.total_bytes - space.free_bytes
    };
    let before = used();
    fixture.wait(fixture.fs().remove(&me(), &root, b"large", Removal::File)).expect("remove");
    assert_eq!(fixture.getattr(&file).err(), Some(Error::Stale));
    // The machine has other users: the return of half of the space is enough.
    let is_freed = (0..1200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        used() + length / 2 < before
    });
    assert!(is_freed, "{} bytes in use, {before} before", used());
}
