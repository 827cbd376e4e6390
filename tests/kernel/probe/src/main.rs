//! `kernel-probe`: operations on a mount that common programs lack, or do not control exactly.
//!
//! Every command checks its own results and reports errors on standard error.

mod append;
mod changes;
mod contest;
mod exclusive;
mod listing;
mod locked_reads;
mod locked_writes;
mod locks;
mod manifest;
mod mapping;
mod open_files;
mod progress;
mod ranges;
mod reads;
mod sys;
mod times;
mod tree;
mod uncommitted;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The result of a command: nothing, or an error.
pub(crate) type Checked = Result<(), String>;

/// A command: its name, its arguments for the usage message, their number, and its function.
type Command = (&'static str, &'static str, usize, fn(&[OsString]) -> Checked);

const COMMANDS: &[Command] = &[
    ("tree", "DIR FILES: create the same tree of many kinds of files on every run", 2, |a| {
        tree::make(Path::new(&a[0]), number(&a[1])?)
    }),
    ("manifest", "DIR: print every entry with its metadata and a checksum", 1, |a| {
        manifest::print(Path::new(&a[0]))
    }),
    ("open-files", "DIR: rename and remove files while they are open", 1, |a| {
        open_files::check(Path::new(&a[0]))
    }),
    ("exclusive", "DIR SAME_DIR NAMES: race for O_EXCL", 3, |a| {
        exclusive::check(Path::new(&a[0]), Path::new(&a[1]), number(&a[2])?)
    }),
    ("append", "FILE RECORDS: write with O_APPEND from several descriptors at once", 2, |a| {
        append::check(Path::new(&a[0]), number(&a[1])?)
    }),
    ("populate", "DIR FILES: create the files that `listing` expects", 2, |a| {
        listing::populate(Path::new(&a[0]), number(&a[1])?)
    }),
    ("listing", "DIR SAME_DIR FILES ROUNDS: list DIR while SAME_DIR changes", 4, |a| {
        listing::check(Path::new(&a[0]), Path::new(&a[1]), number(&a[2])?, number(&a[3])?)
    }),
    ("mapping", "FILE: share a mapping, and mix it with reads and writes", 1, |a| {
        mapping::check(Path::new(&a[0]))
    }),
    ("times", "DIR: set times to the nanosecond", 1, |a| times::check(Path::new(&a[0]))),
    ("locks", "FILE SAME_FILE: byte-range locks of two processes", 2, |a| {
        locks::check(Path::new(&a[0]), Path::new(&a[1]))
    }),
    ("flocks", "FILE SAME_FILE: whole-file locks of two processes", 2, |a| {
        locks::check_flock(Path::new(&a[0]), Path::new(&a[1]))
    }),
    ("populate-reads", "DIR FILES: create the files that `locked-reads` reads", 2, |a| {
        locked_reads::populate(Path::new(&a[0]), number(&a[1])?)
    }),
    ("locked-reads", "DIR FILES ROUNDS: open, lock, read, unlock and close each file", 3, |a| {
        locked_reads::check(Path::new(&a[0]), number(&a[1])?, number(&a[2])?)
    }),
    ("locked-writes", "FILE STOP: write under a lock until the file STOP exists", 2, |a| {
        locked_writes::check(Path::new(&a[0]), Path::new(&a[1]))
    }),
    ("changes", "NEW_DIR PROGRESS STOP: change names until the file STOP exists", 3, |a| {
        changes::make(Path::new(&a[0]), Path::new(&a[1]), Path::new(&a[2]))
    }),
    ("contest", "NEW_DIR PROGRESS STOP: contend for names until the file STOP exists", 3, |a| {
        contest::hold(Path::new(&a[0]), Path::new(&a[1]), Path::new(&a[2]))
    }),
    ("reads", "FILE READERS: read it concurrently without the cache", 2, |a| {
        reads::at_once(Path::new(&a[0]), number(&a[1])?)
    }),
    ("holes", "FILE: punch holes, find them, reserve space", 1, |a| ranges::check_holes(Path::new(&a[0]))),
    ("copy-range", "FILE NEW_FILE: have the kernel copy", 2, |a| {
        ranges::check_copy(Path::new(&a[0]), Path::new(&a[1]))
    }),
    ("copy-over", "FILE OTHER: have the kernel copy over the other file's content", 2, |a| {
        ranges::copy_over(Path::new(&a[0]), Path::new(&a[1]))
    }),
    (
        "uncommitted",
        "FILE NEW_FILE SENT GO: copy it, make SENT before it is committed, set its times when GO exists",
        4,
        |a| uncommitted::write(Path::new(&a[0]), Path::new(&a[1]), Path::new(&a[2]), Path::new(&a[3])),
    ),
    ("hold", "FILE: lock by the commands on standard input", 1, |a| locks::hold(Path::new(&a[0]))),
];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let wanted = arguments.first().and_then(|name| COMMANDS.iter().find(|command| name == command.0));
    let Some((name, usage, count, run)) = wanted else {
        for (name, usage, ..) in COMMANDS {
            eprintln!("kernel-probe {name} {usage}");
        }
        return ExitCode::from(2);
    };
    if arguments.len() - 1 != *count {
        eprintln!("usage: kernel-probe {name} {usage}");
        return ExitCode::from(2);
    }
    match run(&arguments[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{name}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &OsString) -> Result<usize, String> {
    text.to_str().and_then(|text| text.parse().ok()).ok_or(format!("not a number: {text:?}"))
}

/// Returns an error of a system call on a path.
pub(crate) fn told<E: std::fmt::Display>(what: impl std::fmt::Debug) -> impl FnOnce(E) -> String {
    move |error| format!("{what:?}: {error}")
}

/// Fails unless both are equal.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, actual: T) -> Checked {
    if expected == actual { Ok(()) } else { Err(format!("{what}: expected {expected:?}, is {actual:?}")) }
}
