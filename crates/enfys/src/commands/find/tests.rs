//! Expressions over constructed entries.

use super::*;
use crate::commands::attributes::{Attributes, FileKind, OfTest, Timestamp, nanoseconds};
use crate::commands::lookup::Lookup;

struct Names;

impl Lookup for Names {
    fn user(&self, name: &str) -> Option<u32> {
        (name == "alice").then_some(1000)
    }

    fn group(&self, name: &str) -> Option<u32> {
        (name == "staff").then_some(50)
    }
}

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 500_000_000 };

fn expression(text: &str) -> Expression {
    let words: Vec<Vec<u8>> = text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect();
    parse(&words, &Names).unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn refused(text: &str) -> String {
    let words: Vec<Vec<u8>> = text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect();
    parse(&words, &Names).err().unwrap_or_else(|| panic!("{text} is accepted"))
}

/// Returns the actions of the expression on an entry; `failing` actions fail.
fn actions(text: &str, path: &str, attributes: &Attributes, failing: &[Action]) -> Vec<Action> {
    let expression = expression(text);
    let name = path.rsplit('/').next().unwrap_or(path).as_bytes();
    let entry =
        Entry { path: path.as_bytes(), name, attributes, is_empty_directory: path.ends_with("empty") };
    let context = Context { now: NOW, references: vec![ago(100.0); expression.references.len()] };
    let mut evaluation = expression.start();
    let mut done = Vec::new();
    while let Some(action) = evaluation.next(&entry, &context) {
        done.push(action);
        if failing.contains(&action) {
            evaluation.failed();
        }
    }
    done
}

/// Returns a time this many seconds before now.
fn ago(seconds: f64) -> Timestamp {
    let time = nanoseconds(NOW) - (seconds * 1e9) as i128;
    Timestamp {
        seconds: time.div_euclid(1_000_000_000) as i64,
        nanoseconds: time.rem_euclid(1_000_000_000) as u32,
    }
}

fn file() -> Attributes {
    Attributes { mtime: NOW, atime: NOW, ctime: NOW, ..Attributes::of_test(FileKind::Regular) }
}

#[track_caller]
fn check(text: &str, attributes: &Attributes, is_printed: bool) {
    let done = actions(text, "/export/dir/a.txt", attributes, &[]);
    assert_eq!(done == [Action::Print], is_printed, "{text}: {done:?}");
}

#[test]
fn names_and_paths_match_patterns() {
    for (text, matches) in [
        ("", true),
        ("-name *.txt", true),
        ("-name a", false),
        ("-name dir/*", false),
        ("-iname *.TXT", true),
        ("-path */dir/*", true),
        ("-path /export*", true),
        ("-wholename dir", false),
        ("-ipath *DIR*", true),
    ] {
        check(text, &file(), matches);
    }
}

/// The table of operators in find(1), by precedence.
#[test]
fn operators_have_their_precedence() {
    for (text, matches) in [
        ("-true -o -false", true),
        ("-false -a -true", false),
        ("-false -true -o -true", true),
        ("-true -o -true -false", true),
        ("-false -o -true -false", false),
        ("! -false", true),
        ("! ! -false", false),
        ("! -true -o -true", true),
        ("! ( -true -o -true )", false),
        ("-not ( -false -or -false ) -and -true", true),
        ("( -true , -false )", false),
        ("-false , -true", true),
        ("-true -o -false -o -false", true),
    ] {
        check(text, &file(), matches);
    }
}

#[test]
fn actions_run_where_they_are_evaluated() {
    let done = |text: &str| actions(text, "/a", &file(), &[]);
    assert_eq!(done("-print0"), [Action::Print0]);
    assert_eq!(done("-name b -print -o -name a -print0"), [Action::Print0]);
    assert_eq!(done("-name a -o -print"), []);
    assert_eq!(done("-print -print0"), [Action::Print, Action::Print0]);
    assert_eq!(done("-name a -prune -o -print"), [Action::Prune]);
    assert_eq!(done("-name a -prune"), [Action::Prune, Action::Print], "pruning is not an action of its own");
    assert_eq!(done("! -print"), [Action::Print]);
    assert_eq!(actions("-delete -print", "/a", &file(), &[Action::Delete]), [Action::Delete]);
    assert_eq!(
        actions("-delete -o -print", "/a", &file(), &[Action::Delete]),
        [Action::Delete, Action::Print]
    );
}

#[test]
fn sizes_are_rounded_up_to_units() {
    let of = |size: u64| Attributes { size, ..file() };
    for (text, size, matches) in [
        ("-size 1", 1, true),
        ("-size 1", 512, true),
        ("-size 1", 513, false),
        ("-size 0", 0, true),
        ("-size -1M", 1, false),
        ("-size -1M", 0, true),
        ("-size 1k", 1024, true),
        ("-size +1k", 1025, true),
        ("-size +1k", 1024, false),
        ("-size 7c", 7, true),
        ("-size -7c", 7, false),
        ("-size 4w", 7, true),
        ("-size +1G", (1 << 30) + 1, true),
    ] {
        check(text, &of(size), matches);
    }
}

#[test]
fn days_are_rounded_down_and_minutes_up() {
    const DAY: f64 = 86_400.0;
    let of = |age: f64| Attributes { mtime: ago(age), ..file() };
    for (text, age, matches) in [
        ("-mtime 0", 0.0, true),
        ("-mtime 0", DAY - 1.0, true),
        ("-mtime 0", DAY + 1.0, false),
        ("-mtime 1", DAY + 1.0, true),
        ("-mtime +1", 2.0 * DAY - 1.0, false),
        ("-mtime +1", 2.0 * DAY + 1.0, true),
        ("-mtime -1", DAY - 1.0, true),
        ("-mtime -1", DAY + 2.0, false),
        ("-mtime -0.5", DAY / 2.0 - 1.0, true),
        ("-mmin 1", 59.0, true),
        ("-mmin 1", 61.0, false),
        ("-mmin 2", 61.0, true),
        ("-mmin +5", 301.0, true),
        ("-mmin +5", 299.0, false),
        ("-mmin -5", 299.0, true),
        ("-mmin -5", -30.0, true),
    ] {
        check(text, &of(age), matches);
    }
    check("-atime +3", &Attributes { atime: ago(5.0 * DAY), ..file() }, true);
    check("-cmin -1", &Attributes { ctime: ago(5.0 * DAY), ..file() }, false);
}

#[test]
fn newer_compares_with_the_reference() {
    assert_eq!(expression("-newer /a -o -newer /b").references, [b"/a".to_vec(), b"/b".to_vec()]);
    check("-newer /reference", &Attributes { mtime: ago(99.0), ..file() }, true);
    check("-newer /reference", &Attributes { mtime: ago(100.0), ..file() }, false);
}

#[test]
fn permissions_are_compared_in_three_ways() {
    let of = |mode: u32| Attributes { mode, ..file() };
    for (text, mode, matches) in [
        ("-perm 644", 0o644, true),
        ("-perm 644", 0o4644, false),
        ("-perm -644", 0o4755, true),
        ("-perm -u+w,g+w", 0o640, false),
        ("-perm -u+w,g+w", 0o660, true),
        ("-perm /222", 0o444, false),
        ("-perm /222", 0o420, true),
        ("-perm /u+w,o+w", 0o402, true),
        ("-perm /000", 0o000, true),
        ("-perm u=rw,go=r", 0o644, true),
    ] {
        check(text, &of(mode), matches);
    }
}

#[test]
fn owners_have_names_or_numbers() {
    let attributes = Attributes { uid: 1000, gid: 50, nlink: 2, fileid: 77, ..file() };
    for (text, matches) in [
        ("-user alice", true),
        ("-user 1000", true),
        ("-user 7", false),
        ("-group staff", true),
        ("-uid +999", true),
        ("-gid -50", false),
        ("-links 2", true),
        ("-inum 77", true),
    ] {
        check(text, &attributes, matches);
    }
}

#[test]
fn kinds_and_emptiness() {
    let of = Attributes::of_test;
    check("-type f", &of(FileKind::Regular), true);
    check("-type d,l", &of(FileKind::Symlink), true);
    check("-type d", &of(FileKind::Fifo), false);
    check("-empty", &of(FileKind::Regular), true);
    check("-empty", &Attributes { size: 1, ..of(FileKind::Regular) }, false);
    check("-empty", &of(FileKind::Symlink), false);
    let directory = of(FileKind::Directory);
    assert_eq!(actions("-empty", "/empty", &directory, &[]), [Action::Print]);
    assert_eq!(actions("-empty", "/full", &directory, &[]), []);
    assert!(expression("-empty").needs_emptiness && !expression("-type d").needs_emptiness);
}

#[test]
fn options_are_those_of_the_whole_search() {
    let found = expression("-name a -o ( -maxdepth 3 -mindepth 1 )");
    assert_eq!((found.min_depth, found.max_depth, found.is_depth_first), (1, 3, false));
    assert!(expression("-name a -delete").is_depth_first, "entries are removed before their directory");
    assert!(expression("-depth").is_depth_first);
    assert_eq!(expression("").max_depth, usize::MAX);
}

#[test]
fn errors_name_the_mistake() {
    for (text, said) in [
        ("-nam x", "unknown predicate `-nam`: did you mean `-name`?"),
        ("-xyzzy", "unknown predicate `-xyzzy`"),
        ("-name", "`-name` needs an argument"),
        ("-name a )", "`)` without `(`"),
        ("( -name a", "`(` without `)`"),
        ("( )", "need an expression between them"),
        ("-name a -o", "an expression is expected after `-o`"),
        ("!", "an expression is expected after `!`"),
        ("-name a -a", "an expression is expected after `-a`"),
        ("-name a b", "paths come before the expression"),
        ("-size 1x", "`-size` expects a size, as in 10k"),
        ("-size ++1", "`-size` expects a size"),
        ("-type q", "`-type` expects letters"),
        ("-mtime x", "`-mtime` expects a number"),
        ("-perm 9", "`-perm` expects a mode"),
        ("-user nobody-here", "`-user` expects a user that exists"),
        ("-maxdepth -1", "`-maxdepth` expects a whole number of levels"),
    ] {
        let error = refused(text);
        assert!(error.contains(said), "{text}: {error}");
    }
    assert!(refused(&"! ".repeat(NESTING_MAX + 1)).contains("inside each other"));
}
