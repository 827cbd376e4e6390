use super::*;
use crate::cache::limiter::{Budget, Limiter};

const DIRECTORY: FileId = FileId(1);
const VERIFIER: [u8; 8] = [1; 8];

fn epoch(epoch: u64) -> Epoch {
    Epoch::for_test(epoch)
}

fn cache() -> DirectoryCache {
    DirectoryCache::new(Limiter::new(Budget::new(0)).user(), 1 << 20, true)
}

/// Returns a page whose cookies are `cookies`.
fn page(cookies: std::ops::RangeInclusive<u64>, end: bool) -> Page {
    let entry = |cookie: u64| DirectoryEntry {
        name: Bytes::from(format!("file-{cookie}")),
        cookie,
        fileid: cookie,
        kind: None,
        file: None,
    };
    let next_cookie = *cookies.end();
    Page { entries: cookies.map(entry).collect(), next_cookie, end }
}

/// Reads a directory of two pages. Returns the requests.
fn read(cache: &mut DirectoryCache, now: Epoch) -> Vec<Method> {
    let mut methods = Vec::new();
    for (cookie, answer) in [(0, page(1..=3, false)), (3, page(4..=5, true))] {
        if cache.page(DIRECTORY, now, cookie).is_none() {
            let started = cache.start(DIRECTORY, now, cookie);
            methods.push(started.method());
            cache.insert(started, VERIFIER, answer).unwrap();
        }
    }
    methods
}

#[test]
fn readdirplus_on_first_reading_and_after_a_change() {
    let mut cache = cache();
    use Method::{Readdir, ReaddirPlus};
    assert_eq!(read(&mut cache, epoch(1)), [ReaddirPlus, ReaddirPlus]);
    assert_eq!(read(&mut cache, epoch(1)), []);
    // Memory was short: the attributes of the entries are probably still there.
    cache.pages.reclaim(u64::MAX);
    assert_eq!(read(&mut cache, epoch(1)), [Readdir, Readdir]);
    assert_eq!(read(&mut cache, epoch(2)), [ReaddirPlus, ReaddirPlus]);
    // This client created a file, and knows its attributes.
    cache.invalidate(DIRECTORY);
    assert_eq!(read(&mut cache, epoch(2)), [Readdir, Readdir]);
}

#[test]
fn nordirplus_never_uses_readdirplus() {
    let mut cache = DirectoryCache::new(Limiter::new(Budget::new(0)).user(), 1 << 20, false);
    assert_eq!(read(&mut cache, epoch(1)), [Method::Readdir; 2]);
}

#[test]
fn page_of_a_request_from_before_a_change_is_not_cached() {
    let mut cache = cache();
    let started = cache.start(DIRECTORY, epoch(1), FIRST_COOKIE);
    cache.invalidate(DIRECTORY);
    cache.insert(started, VERIFIER, page(1..=3, true)).unwrap();
    assert!(cache.page(DIRECTORY, epoch(1), FIRST_COOKIE).is_none());
}

#[test]
fn another_verifier_makes_all_pages_invalid() {
    let mut cache = cache();
    read(&mut cache, epoch(1));
    let started = cache.start(DIRECTORY, epoch(1), 5);
    cache.insert(started, [2; 8], page(6..=7, true)).unwrap();
    assert!(cache.page(DIRECTORY, epoch(1), FIRST_COOKIE).is_none());
    assert!(cache.page(DIRECTORY, epoch(1), 5).is_none());
}

fn empty(next_cookie: u64, end: bool) -> Page {
    Page { entries: [].into(), next_cookie, end }
}

#[test]
fn cookies_that_lead_back_are_refused() {
    let mut cache = cache();
    let mut insert = |cookie, page| {
        let started = cache.start(DIRECTORY, epoch(1), cookie);
        cache.insert(started, VERIFIER, page)
    };
    assert_eq!(insert(2, page(1..=3, false)), Err(BadPage::CookieLoop));
    assert_eq!(insert(0, empty(0, false)), Err(BadPage::NoProgress));
    assert_eq!(insert(0, empty(0, true)), Ok(()));
    let last_cookie_is_zero = [page(1..=1, true).entries, page(0..=0, true).entries].concat();
    assert_eq!(insert(0, Page { entries: last_cookie_is_zero.into(), next_cookie: 0, end: true }), Ok(()));
    // A page with `.` and `..` alone.
    assert_eq!(insert(0, empty(2, false)), Ok(()));
}

#[test]
fn loop_guard_ends_every_circle() {
    for (lead, circle) in [(0, 1), (3, 1), (5, 7), (100, 1000)] {
        let mut guard = LoopGuard::default();
        let cookies = (0..lead).chain((0..).map(|step| lead + step % circle));
        let steps = cookies.map_while(|cookie| guard.visit(cookie).ok()).count() as u64;
        assert!(steps <= 4 * (lead + circle) + 2, "{lead} {circle}: {steps}");
    }
    let mut guard = LoopGuard::default();
    assert!((0..100_000).all(|cookie| guard.visit(cookie).is_ok()));
}

#[test]
fn huge_listing_leaves_other_listings_alone() {
    let limiter = Limiter::new(Budget::new(0));
    let mut cache = DirectoryCache::new(limiter.user(), 1 << 20, true);
    read(&mut cache, epoch(1));
    let huge = FileId(2);
    for start in (0..1_000_000).step_by(1000) {
        let started = cache.start(huge, epoch(1), start);
        cache.insert(started, VERIFIER, page(start + 1..=start + 1000, false)).unwrap();
        assert_eq!(limiter.used().total(), cache.bytes());
        assert!(cache.bytes() <= (1 << 20) / 2);
    }
    assert_eq!(read(&mut cache, epoch(1)), []);
}
