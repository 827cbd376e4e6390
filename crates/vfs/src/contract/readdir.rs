use std::collections::{BTreeMap, BTreeSet};

use super::subject::{Caller, Listed, Subject};
use crate::{Create, Handle, ReadDir, Removal, Verifier};

const START: (u64, Verifier) = (0, [0; 8]);

/// Lists a whole directory, `limit` entries at a time, calling `between` with each page.
fn all_pages(
    caller: &Caller<'_>,
    directory: &Handle,
    limit: usize,
    mut between: impl FnMut(&[Listed]),
) -> Vec<Listed> {
    let (mut all, mut place) = (Vec::new(), START);
    loop {
        let page = caller.page(directory, place, limit).unwrap();
        between(&page.entries);
        if let Some(last) = page.entries.last() {
            place = (last.cookie, page.verifier);
        }
        let stuck = page.entries.is_empty();
        all.extend(page.entries);
        if page.eof {
            return all;
        }
        assert!(!stuck, "a continued listing returns entries");
    }
}

fn sorted_names(entries: &[Listed]) -> Vec<&[u8]> {
    let mut names: Vec<_> = entries.iter().map(|entry| &entry.name[..]).collect();
    names.sort_unstable();
    names
}

pub(super) fn lists_every_entry_once(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (_, directory, _) = (me.file(&top, "f"), me.directory(&top, "d"), me.symlink(&top, "l", "x"));
    me.make(&top, "p", &Create::Fifo, 0o600).unwrap();
    let _ = me.file(&directory, "inside");
    let listing = me.page(&top, START, usize::MAX).unwrap();
    assert!(listing.eof);
    // The protocols add `.` and `..`.
    assert_eq!(sorted_names(&listing.entries), [b"d", b"f", b"l", b"p"]);
    assert!(listing.entries.iter().all(|entry| entry.cookie >= 3), "0, 1 and 2 belong to the protocols");
    let cookies: BTreeSet<_> = listing.entries.iter().map(|entry| entry.cookie).collect();
    assert_eq!(cookies.len(), 4, "cookies differ");
}

pub(super) fn an_empty_directory_is_at_its_end(t: &Subject) {
    let listing = t.me().page(&t.top(), START, usize::MAX).unwrap();
    assert!(listing.entries.is_empty() && listing.eof);
}

pub(super) fn an_entry_that_stopped_the_listing_is_listed_again(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let _ = (me.file(&top, "a"), me.file(&top, "b"));
    let none = me.page(&top, START, 0).unwrap();
    assert!(none.entries.is_empty() && !none.eof);
    let one = me.page(&top, START, 1).unwrap();
    assert!(!one.eof, "one more is to come");
    let rest = me.page(&top, (one.entries[0].cookie, one.verifier), 1).unwrap();
    assert!(rest.eof, "nothing stopped this one");
    assert_eq!(sorted_names(&[one.entries, rest.entries].concat()), [b"a", b"b"]);
}

pub(super) fn continues_from_every_cookie(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    for number in 0..40 {
        let _ = me.file(&top, format!("name-{number}"));
    }
    let whole = me.page(&top, START, usize::MAX).unwrap();
    assert_eq!(whole.entries.len(), 40);
    for (at, entry) in whole.entries.iter().enumerate() {
        let rest = me.page(&top, (entry.cookie, whole.verifier), usize::MAX).unwrap();
        let names = |entries: &[Listed]| entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&rest.entries), names(&whole.entries[at + 1..]), "after entry {at}");
        assert!(rest.eof);
    }
}

pub(super) fn plus_returns_handles_and_attributes(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let made = BTreeMap::from([
        (b"f".to_vec(), me.file(&top, "f")),
        (b"d".to_vec(), me.directory(&top, "d")),
        (b"l".to_vec(), me.symlink(&top, "l", "x")),
    ]);
    let request = ReadDir { cookie: 0, verifier: [0; 8], plus: true };
    let listing = me.page_with(&top, request, usize::MAX).unwrap();
    assert_eq!(listing.entries.len(), 3);
    for entry in listing.entries {
        let (handle, attributes) = entry.object.expect("existing entries have attributes");
        assert_eq!(handle, made[&entry.name]);
        assert_eq!(attributes, me.getattr(&handle).unwrap());
        assert_eq!(entry.fileid, attributes.fileid);
    }
    let plain = me.page(&top, START, usize::MAX).unwrap();
    assert!(plain.entries.iter().all(|entry| entry.object.is_none()), "not asked for");
}

pub(super) fn file_ids_match_attributes(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let made = [("f", me.file(&top, "f")), ("d", me.directory(&top, "d")), ("l", me.symlink(&top, "l", "x"))];
    for entry in me.page(&top, START, usize::MAX).unwrap().entries {
        let (_, handle) = made.iter().find(|(name, _)| name.as_bytes() == entry.name).expect("only those");
        assert_eq!(entry.fileid, me.getattr(handle).unwrap().fileid);
    }
}

pub(super) fn thousands_of_entries(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let names: BTreeSet<Vec<u8>> =
        (0..3_000).map(|number| format!("entry number {number}").into_bytes()).collect();
    for name in &names {
        let _ = me.file(&top, name);
    }
    for limit in [1, 17, 999, 5_000] {
        let entries = all_pages(&me, &top, limit, |_| ());
        assert_eq!(entries.len(), 3_000, "{limit} at a time");
        assert!(entries.into_iter().all(|entry| names.contains(&entry.name)));
    }
}

// RFC 1813 §3.3.16 leaves to the server what a cookie means while the directory changes. Programs lose files if
// entries that stay are skipped or repeated.
pub(super) fn entries_that_stay_are_listed_exactly_once(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let staying: Vec<Vec<u8>> = (0..400).map(|number| format!("stay-{number}").into_bytes()).collect();
    for (number, name) in staying.iter().enumerate() {
        let _ = (me.file(&top, name), me.file(&top, format!("go-{number}")));
    }
    for limit in [1, 3, 10, 64] {
        let mut round = 0;
        let entries = all_pages(&me, &top, limit, |_| {
            // Between any two pages some entries are removed, some created and one renamed. This ends at some point,
            // because a listing may otherwise run as long as the directory grows.
            round += 1;
            if round > 600 {
                return;
            }
            let _ = me.remove(&top, format!("go-{}", round * 7 % 400), Removal::File);
            let _ = me.make(&top, format!("come-{limit}-{round}"), &Create::Fifo, 0o600);
            let _ =
                me.rename((&top, format!("go-{}", round * 3 % 400)), (&top, format!("gone-{limit}-{round}")));
        });
        for name in &staying {
            let met = entries.iter().filter(|entry| entry.name == *name).count();
            assert_eq!(met, 1, "{} with {limit} at a time", String::from_utf8_lossy(name));
        }
        for number in 0..400 {
            let _ = me.make(&top, format!("go-{number}"), &Create::Fifo, 0o600);
        }
    }
}

pub(super) fn a_removed_entrys_cookie_still_marks_a_place(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    for number in 0..20 {
        let _ = me.file(&top, format!("name-{number}"));
    }
    let first = me.page(&top, START, 10).unwrap();
    let last = first.entries.last().unwrap();
    me.remove(&top, &last.name, Removal::File).unwrap();
    let rest = me.page(&top, (last.cookie, first.verifier), usize::MAX).unwrap();
    assert_eq!((rest.entries.len(), rest.eof), (10, true));
    let seen: BTreeSet<_> = first.entries.iter().chain(&rest.entries).map(|entry| &entry.name).collect();
    assert_eq!(seen.len(), 20);
}

pub(super) fn removing_while_listing_empties_the_directory(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    for number in 0..500 {
        let _ = me.file(&top, format!("a rather long name {number}"));
    }
    all_pages(&me, &top, 23, |page| {
        for entry in page {
            me.remove(&top, &entry.name, Removal::Any).unwrap();
        }
    });
    assert!(me.names(&top).is_empty());
}
