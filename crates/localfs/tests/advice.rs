//! The effect of IO_ADVISE on the page cache.

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

use common::{Fixture, is_in_memory, me};
use rustix::fs::{Advice as Hint, fadvise};
use vfs::{Advice, Backend};

const PAGE: usize = 4096;
const PAGES: usize = 256;
/// The range of the advice, in the middle of the file.
const RANGE: std::ops::Range<usize> = 64..72;
/// Checks of the cache after which read-ahead counts as failed: it works asynchronously.
const LOOKS: usize = 10_000;

/// Returns the cached pages of the file.
fn cached(file: &File) -> Vec<bool> {
    let length = PAGE * PAGES;
    let mut pages = vec![0; PAGES];
    // SAFETY: a new mapping, at an address of the kernel's choice, that nothing reads or writes and that is removed
    // at the end; mincore(2) writes one byte for each of its pages.
    unsafe {
        let (fd, shared) = (file.as_raw_fd(), libc::MAP_SHARED);
        let mapping = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, shared, fd, 0);
        assert_ne!(mapping, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let done = libc::mincore(mapping, length, pages.as_mut_ptr());
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        assert_eq!(libc::munmap(mapping, length), 0);
    }
    pages.into_iter().map(|page| page & 1 == 1).collect()
}

#[test]
fn advice_reads_ahead_and_drops_cached_pages() {
    let fixture = Fixture::new();
    if is_in_memory(&fixture.config.directory) {
        println!("skipped: this file system is in memory");
        return;
    }
    // SAFETY: it returns a number.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    assert_eq!(page_bytes, PAGE as libc::c_long, "the page size of this test");
    let file = fixture.file(&me(), "a", 0o600);
    std::fs::write(fixture.path("a"), vec![9; PAGE * PAGES]).expect("write");
    let local = File::open(fixture.path("a")).expect("open");
    local.sync_all().expect("sync");
    fadvise(&local, 0, None, Hint::DontNeed).expect("fadvise");
    assert_eq!(cached(&local), [false; PAGES], "cold");

    let (offset, count) = ((RANGE.start * PAGE) as u64, (RANGE.len() * PAGE) as u64);
    let advise = |advice| {
        let context = me();
        fixture.wait(fixture.fs().advise(&context, &file, offset, count, advice)).expect("advise")
    };
    assert!(advise(Advice::WillNeed));
    let is_there = || cached(&local)[RANGE].iter().all(|page| *page);
    let arrives = (0..LOOKS).any(|_| {
        is_there() || {
            std::thread::sleep(Duration::from_millis(1));
            false
        }
    });
    assert!(arrives, "read ahead");
    let pages = cached(&local);
    assert!(!pages[0] && !pages[PAGES - 1], "and no distant page");

    assert!(advise(Advice::DontNeed));
    assert!(!cached(&local)[RANGE].iter().any(|page| *page), "gone");
}
