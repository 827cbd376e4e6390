//! Trees are compared with listings, and events are replayed on a list of paths, which must then be that of the server.

use std::collections::BTreeSet;

use super::*;
use crate::attributes::{FsId, Timestamp};

fn attributes(kind: FileKind, size: u64) -> Attributes {
    let time = Timestamp { seconds: 1, nanoseconds: 0 };
    Attributes {
        kind,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size,
        used: size,
        device: (0, 0),
        fsid: FsId::default(),
        fileid: 0,
        atime: time,
        mtime: time,
        ctime: time,
        change: Some(1),
    }
}

/// An object with a number. Those from 100 on are directories.
fn object(number: u8) -> Object {
    let kind = if number >= 100 { FileKind::Directory } else { FileKind::Regular };
    Object { handle: FileHandle::new(&[number]).unwrap(), attributes: attributes(kind, u64::from(number)) }
}

/// Directories with their entries, by number.
type Listing<'a> = &'a [(u8, &'static [(&'static str, u8)])];

/// Lists all directories of the round as a server with these directories would.
fn read(tree: &mut Tree, mut round: Round, server: Listing<'_>) -> Vec<Event> {
    while let Some(directory) = round.queue.pop() {
        match server.iter().find(|(number, _)| *directory == [*number]) {
            Some((_, entries)) => {
                let entries: Vec<_> =
                    entries.iter().map(|(name, number)| (name.as_bytes(), object(*number))).collect();
                tree.compare(directory, &entries, &mut round);
            }
            // It is gone: its own directory tells.
            None => {
                if let Some((above, _)) = tree.directories[&directory].parent.clone() {
                    round.list(above);
                }
            }
        }
    }
    tree.finish(round)
}

fn paths(server: Listing<'_>) -> BTreeSet<String> {
    fn add(server: Listing<'_>, directory: u8, path: &str, all: &mut BTreeSet<String>) {
        let Some((_, entries)) = server.iter().find(|(number, _)| *number == directory) else { return };
        for (name, number) in *entries {
            let path = if path.is_empty() { (*name).to_owned() } else { format!("{path}/{name}") };
            add(server, *number, &path, all);
            all.insert(path);
        }
    }
    let mut all = BTreeSet::new();
    add(server, 100, "", &mut all);
    all
}

fn text(path: &[u8]) -> String {
    String::from_utf8(path.to_vec()).unwrap()
}

/// Applies an event. A renamed directory takes everything below it along.
fn replay(all: &mut BTreeSet<String>, event: &Event) {
    let path = text(&event.path);
    match &event.change {
        Change::Created => assert!(all.insert(path.clone()), "{path} exists"),
        Change::Removed => {
            assert!(all.remove(&path), "{path} is missing");
            assert!(!all.iter().any(|other| other.starts_with(&format!("{path}/"))), "{path} is not empty");
        }
        Change::Renamed(from) => {
            let from = text(from);
            let below = format!("{from}/");
            let moved: Vec<String> =
                all.iter().filter(|other| **other == from || other.starts_with(&below)).cloned().collect();
            assert!(!moved.is_empty(), "{from} is missing");
            for old in moved {
                all.remove(&old);
                assert!(all.insert(format!("{path}{}", &old[from.len()..])));
            }
        }
        Change::Content | Change::Attributes => assert!(all.contains(&path)),
    }
}

const BEFORE: Listing<'static> = &[
    (100, &[("a", 1), ("b", 2), ("d", 101), ("e", 102)]),
    (101, &[("x", 3), ("sub", 103)]),
    (102, &[("y", 4)]),
    (103, &[("deep", 5)]),
];

fn known(server: Listing<'_>) -> Tree {
    let mut tree = Tree::new(object(100).handle, usize::MAX);
    let mut round = Round::default();
    round.list(tree.root);
    read(&mut tree, round, server);
    tree
}

fn kinds(events: &[Event]) -> Vec<String> {
    let shown = |event: &Event| match &event.change {
        Change::Created => format!("+{}", text(&event.path)),
        Change::Removed => format!("-{}", text(&event.path)),
        Change::Renamed(from) => format!("{}>{}", text(from), text(&event.path)),
        Change::Content | Change::Attributes => format!("~{}", text(&event.path)),
    };
    events.iter().map(shown).collect()
}

#[test]
fn events_lead_from_one_tree_to_the_other() {
    let cases: [(Listing<'_>, &[&str]); 7] = [
        // A file is replaced by another, and one by a new one.
        (
            &[(100, &[("b", 1), ("a", 9), ("d", 101), ("e", 102)]), BEFORE[1], BEFORE[2], BEFORE[3]],
            &["-b", "a>b", "+a"],
        ),
        // Two files change places.
        (
            &[(100, &[("a", 2), ("b", 1), ("d", 101), ("e", 102)]), BEFORE[1], BEFORE[2], BEFORE[3]],
            &["b>a", "a>b"],
        ),
        // A directory moves into another, with everything below it.
        (
            &[
                (100, &[("a", 1), ("b", 2), ("e", 102)]),
                (101, &[("x", 3), ("sub", 103)]),
                (102, &[("y", 4), ("z", 101)]),
                BEFORE[3],
            ],
            &["d>e/z"],
        ),
        // A directory is removed with everything below it.
        (&[(100, &[("a", 1), ("b", 2), ("e", 102)]), BEFORE[2]], &["-d/x", "-d/sub/deep", "-d/sub", "-d"]),
        // A file is saved from a directory that is removed.
        (
            &[(100, &[("a", 1), ("b", 2), ("saved", 5), ("e", 102)]), BEFORE[2]],
            &["d/sub/deep>saved", "-d/x", "-d/sub", "-d"],
        ),
        // A directory is renamed, and a file in it.
        (
            &[
                (100, &[("a", 1), ("b", 2), ("f", 101), ("e", 102)]),
                (101, &[("w", 3), ("sub", 103)]),
                BEFORE[2],
                BEFORE[3],
            ],
            &["d>f", "f/x>f/w"],
        ),
        // New directories are read.
        (
            &[
                (100, &[("a", 1), ("b", 2), ("d", 101), ("e", 102), ("n", 110)]),
                BEFORE[1],
                BEFORE[2],
                BEFORE[3],
                (110, &[("m", 111)]),
                (111, &[("k", 7)]),
            ],
            &["+n", "+n/m", "+n/m/k"],
        ),
    ];
    for (after, expected) in cases {
        let mut tree = known(BEFORE);
        assert_eq!(tree.entries, paths(BEFORE).len());
        let mut round = Round::default();
        tree.directories.keys().for_each(|directory| round.list(*directory));
        let events = read(&mut tree, round, after);
        assert_eq!(kinds(&events), expected);
        // Two that change places are no sequence of renames.
        if expected != ["b>a", "a>b"] {
            let mut all = paths(BEFORE);
            events.iter().for_each(|event| replay(&mut all, event));
            assert_eq!(all, paths(after));
        }
        assert_eq!(tree.entries, paths(after).len(), "{expected:?}");
        let mut round = Round::default();
        tree.directories.keys().for_each(|directory| round.list(*directory));
        assert_eq!(kinds(&read(&mut tree, round, after)), Vec::<String>::new(), "{expected:?}");
    }
}

#[test]
fn notifications_are_events_of_their_own_and_a_later_listing_repeats_none() {
    let mut tree = known(BEFORE);
    let root = tree.root;
    let mut round = Round::default();
    // A name for an instant; an editor's way to write `a`; a known entry that a listing had already.
    tree.added(root, b"t", &mut round);
    tree.removed(root, b"t", &mut round);
    tree.added(root, b"tmp", &mut round);
    tree.renamed(root, b"tmp", b"a", &mut round);
    tree.looked_up(root, b"a", &object(8), &mut round);
    tree.added(root, b"b", &mut round);
    tree.looked_up(root, b"b", &object(2), &mut round);
    let events = tree.finish(round);
    assert_eq!(kinds(&events), ["+t", "-t", "+tmp", "-a", "tmp>a"]);
    let after: Listing<'_> =
        &[(100, &[("a", 8), ("b", 2), ("d", 101), ("e", 102)]), BEFORE[1], BEFORE[2], BEFORE[3]];
    let mut round = Round::default();
    round.list(root);
    assert_eq!(kinds(&read(&mut tree, round, after)), Vec::<String>::new());
}

#[test]
fn content_attributes_and_times_are_told_apart() {
    let seen = |change: fn(&mut Attributes)| {
        let mut attributes = attributes(FileKind::Regular, 7);
        change(&mut attributes);
        Seen::of(&attributes)
    };
    let before = seen(|_| {});
    assert_eq!(before.changed(&seen(|new| new.size = 8), false), Some(Change::Content));
    assert_eq!(before.changed(&seen(|new| new.mtime.seconds = 2), true), Some(Change::Content));
    assert_eq!(before.changed(&seen(|new| new.change = Some(2)), false), Some(Change::Content));
    assert_eq!(before.changed(&seen(|new| new.mode = 0o600), true), Some(Change::Attributes));
    assert_eq!(before.changed(&seen(|new| new.ctime.seconds = 2), false), Some(Change::Attributes));
    assert_eq!(before.changed(&seen(|new| new.ctime.seconds = 2), true), None, "a rename");
    assert_eq!(before.changed(&seen(|new| new.atime.seconds = 2), false), None);
}
