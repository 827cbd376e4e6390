//! Every workload on a local directory, small.

use std::path::Path;
use std::sync::Arc;

use super::Any;
use crate::plan::{PlanOptions, Run, WORKLOADS};
use crate::result::{Outcome, RunResult};
use crate::runner::{Access, Place, measure, prepare};

fn run_of(workload: &str, directory: &Path, set: &[&str], threads: u32) -> Run {
    let options = PlanOptions {
        workload: workload.to_owned(),
        targets: vec![directory.display().to_string()],
        set: set.iter().map(|set| (*set).to_owned()).collect(),
        threads: vec![threads],
        clients: vec![2],
        rounds: Some(1),
        duration: Some("1s".to_owned()),
        warm_up: Some("0".to_owned()),
        ..PlanOptions::default()
    };
    options.plan().unwrap().runs().remove(0)
}

fn place(directory: &Path) -> Place {
    let place = Place::new(Access::Directory(directory.to_owned()), "test", Arc::default());
    Place { export: Some(directory.to_owned()), ..place }
}

/// Runs a workload with two clients of two threads, and returns its result.
#[track_caller]
fn run(workload: &str, set: &[&str]) -> RunResult {
    let directory = tempfile::tempdir().unwrap();
    let (run, place) = (run_of(workload, directory.path(), set, 2), place(directory.path()));
    prepare(&run, &place).unwrap();
    let result = measure(&run, &place).expect("not interrupted");
    assert_eq!(result.outcome, Outcome::Complete, "{workload}");
    assert_eq!(result.faults(), 0, "{workload}");
    assert_eq!(result.clients.len(), 2, "{workload}");
    let by_second: u64 = result.clients.iter().flat_map(|client| &client.operations).sum();
    let counted: u64 = result.operations.values().map(|operation| operation.count).sum();
    assert_eq!(by_second, counted, "{workload}: the series has every operation once");
    result
}

fn counts(result: &RunResult) -> Vec<(&str, u64)> {
    result.operations.iter().map(|(name, operation)| (name.as_str(), operation.count)).collect()
}

#[test]
fn every_workload_of_the_catalogue_can_run() {
    let catalogue: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
    let mut names = Any::NAMES.to_vec();
    names.sort_unstable();
    let mut sorted = catalogue.clone();
    sorted.sort_unstable();
    assert_eq!(names, sorted);
}

#[test]
fn workloads_with_a_time_work_until_it_is_over() {
    for (workload, set, ops) in [
        ("random-read", &["file-size=1MiB", "io-size=4KiB"][..], &["read"][..]),
        ("sequential-read", &["file-size=1MiB", "io-size=64KiB"], &["read"]),
        ("random-write", &["file-size=256KiB", "io-size=4KiB"], &["write"]),
        ("sequential-write", &["file-size=256KiB", "io-size=64KiB", "o-sync=false"], &["write"]),
        ("small-files", &["files=20"], &["read-file"]),
        ("list", &["files=100"], &["list"]),
        (
            "fileserver",
            &["files=50", "mean-size=4KiB"],
            &["append", "close", "create", "delete", "open", "read-file", "stat", "write-file"],
        ),
        ("webserver", &["files=20"], &["append", "close", "open", "read-file"]),
        ("varmail", &["files=20"], &["append", "close", "create", "delete", "fsync", "open", "read-file"]),
        (
            "request-mix",
            &["rate=2000", "files=60"],
            &["chmod", "create", "list", "read", "readlink", "remove", "stat", "statfs", "write"],
        ),
    ] {
        let result = run(workload, set);
        let seen: Vec<&str> = result.operations.keys().map(String::as_str).collect();
        assert_eq!(seen, ops, "{workload}");
        assert!((0.9..1.2).contains(&result.seconds), "{workload}: {} s", result.seconds);
    }
}

#[test]
fn creation_makes_each_file_once() {
    let result = run("create", &["files=25", "size=4KiB"]);
    assert_eq!(counts(&result), [("create", 50)]);
    assert_eq!(result.operations["create"].bytes, 50 * 4096);
}

#[test]
fn each_file_is_locked_several_times_by_each_client() {
    let result = run("locked-reads", &["files=5", "repeats=3"]);
    assert_eq!(counts(&result), [("close", 30), ("lock", 30), ("open", 30), ("read", 30), ("unlock", 30)]);
}

#[test]
fn streams_are_written_whole_with_three_throughputs() {
    let result = run("stream-write", &["file-size=100000", "io-size=8KiB"]);
    // 12 calls of 8 KiB and one of 1,696 bytes, for each of four threads.
    assert_eq!(counts(&result), [("close", 4), ("fsync", 4), ("write", 52)]);
    assert_eq!(result.operations["write"].bytes, 400_000);
    assert_eq!(result.samples["write_us"].len(), 52);
    let rate = |name: &str| result.samples[name][0];
    assert!(rate("until_write_mb_per_s") >= rate("until_fsync_mb_per_s"));
    assert!(rate("until_fsync_mb_per_s") >= rate("until_close_mb_per_s"));
}

/// The counts that the tests print, for each of four threads.
#[test]
fn basic_performs_the_counts_of_its_tests() {
    let result = run("basic", &[]);
    let count = |name: &str| result.operations[name].count / 4;
    assert_eq!((count("mkdir"), count("rmdir")), (62, 62));
    assert_eq!(count("create"), 155 + 10 + 200 + 10);
    assert_eq!(count("chmod"), 1000);
    assert_eq!(count("stat"), 250 + 1000 + 200);
    assert_eq!((count("write-file"), count("read-file"), count("list")), (10, 10, 200));
    assert_eq!((count("rename"), count("link"), count("symlink"), count("readlink")), (100, 100, 200, 200));
    assert_eq!(count("statfs"), 1500);
}

#[test]
fn trees_are_unpacked_found_and_removed_whole() {
    let result = run("source-tree", &["files=30", "mean-size=1KiB", "directory-width=5"]);
    // 6 directories in 2: 8, and the root.
    assert_eq!(
        counts(&result),
        [("list", 36), ("mkdir", 32), ("remove", 120), ("rmdir", 32), ("unpack-file", 120)]
    );
    let found = run("find", &["files=30", "directory-width=5"]);
    assert_eq!(counts(&found), [("list", 36)]);
}

#[test]
fn bonnie_has_a_rate_and_cpu_for_each_phase() {
    let result = run("bonnie", &["file-size=64KiB", "seeks=20", "files=10"]);
    assert_eq!(
        counts(&result),
        [
            ("block-read", 32),
            ("block-write", 32),
            ("create", 80),
            ("delete", 80),
            ("fsync", 8),
            ("rewrite", 32),
            ("seek", 80),
            ("stat", 80)
        ]
    );
    assert_eq!(result.samples.len(), 20, "ten phases with rate and CPU");
    assert!(result.samples.values().all(|samples| samples.len() == 4));
}

/// Runs the workload `database` with two clients of two threads, and checks its result and the directory that it leaves.
fn run_database(set: &[&str], check: impl Fn(&RunResult, &Path)) {
    let directory = tempfile::tempdir().unwrap();
    let (run, place) = (run_of("database", directory.path(), set, 2), place(directory.path()));
    prepare(&run, &place).unwrap();
    let result = measure(&run, &place).expect("not interrupted");
    assert_eq!(result.outcome, Outcome::Complete, "{set:?}");
    assert_eq!((counts(&result).len(), result.faults()), (1, 0), "{set:?}");
    let transactions = &result.operations["transaction"];
    assert!(transactions.count > 4, "{set:?}: {}", transactions.count);
    assert_eq!(transactions.latency.count(), transactions.count);
    let base = std::fs::read_dir(directory.path().join("enfys-bench")).unwrap().next().unwrap().unwrap();
    check(&result, &base.path());
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn transactions_of_the_model_leave_whole_databases_and_no_journal() {
    run_database(&["rows=3", "table-rows=20"], |result, base| {
        assert_eq!(names(base), ["database-1-1", "database-1-2", "database-2-1", "database-2-2"]);
        let transactions = &result.operations["transaction"];
        assert_eq!(transactions.bytes, transactions.count * 3 * 3000);
        // The change counters, less what a database has before: each transaction counts one, the last ones too.
        let counter = |name: &String| {
            let content = std::fs::read(base.join(name)).unwrap();
            assert_eq!(content.len(), 22 * 4096);
            u64::from_be_bytes(content[24..32].try_into().unwrap())
                .wrapping_sub(u64::from_be_bytes(crate::layout::pattern_word(24)))
        };
        let committed: u64 = names(base).iter().map(counter).sum();
        assert!((transactions.count..=transactions.count + 4).contains(&committed), "{committed}");
    });
}

/// Four connections of two clients: locks of bytes let one write at a time, so that no count is lost.
#[test]
fn connections_to_one_database_exclude_each_other() {
    run_database(&["table-rows=20", "shared=true"], |result, base| {
        assert_eq!(names(base), ["database"]);
        let content = std::fs::read(base.join("database")).unwrap();
        let committed = u64::from_be_bytes(content[24..32].try_into().unwrap())
            .wrapping_sub(u64::from_be_bytes(crate::layout::pattern_word(24)));
        let counted = result.operations["transaction"].count;
        assert!((counted..=counted + 4).contains(&committed), "{committed} of {counted}");
    });
}

#[test]
fn sqlite_itself_changes_rows_in_each_journal_mode() {
    for (journal, shared) in [
        ("delete", "false"),
        ("delete", "true"),
        ("truncate", "false"),
        ("persist", "false"),
        ("wal", "true"),
    ] {
        let (journal_set, shared_set) = (format!("journal={journal}"), format!("shared={shared}"));
        let set = ["engine=sqlite3", "rows=3", "table-rows=50", &journal_set, &shared_set];
        run_database(&set, |result, base| {
            let transactions = &result.operations["transaction"];
            assert_eq!(transactions.bytes, transactions.count * 3 * 3000);
            assert_eq!(result.samples["exchange_us"].len(), 4 * 100);
            let is_database = |name: &&String| name.ends_with(|end: char| end == 'e' || end.is_ascii_digit());
            for name in names(base).iter().filter(is_database) {
                let ask = |statement| {
                    let said =
                        std::process::Command::new("sqlite3").arg(base.join(name)).arg(statement).output();
                    String::from_utf8(said.unwrap().stdout).unwrap()
                };
                assert_eq!(ask("PRAGMA integrity_check; SELECT count(*) FROM data;"), "ok\n50\n", "{set:?}");
                let kept = if journal == "wal" { "wal\n" } else { "delete\n" };
                assert_eq!(ask("PRAGMA journal_mode;"), kept, "{set:?}");
            }
        });
    }
}

#[test]
fn errors_of_sqlite_end_the_run_with_its_message() {
    let directory = tempfile::tempdir().unwrap();
    let set = ["engine=sqlite3", "table-rows=50"];
    let (run, place) = (run_of("database", directory.path(), &set, 1), place(directory.path()));
    prepare(&run, &place).unwrap();
    let base = std::fs::read_dir(directory.path().join("enfys-bench")).unwrap().next().unwrap().unwrap();
    std::fs::write(base.path().join("database-2-1"), [7; 8192]).unwrap();
    let result = measure(&run, &place).expect("not interrupted");
    let Outcome::Failed(why) = &result.outcome else { panic!("complete") };
    assert!(why.contains("database-2-1: ") && why.contains("file is not a database"), "{why}");
    assert_eq!(result.throughput(), None);
}

#[test]
fn a_failed_run_keeps_its_counts_and_has_no_rate() {
    let directory = tempfile::tempdir().unwrap();
    let (run, place) = (run_of("small-files", directory.path(), &["files=50"], 1), place(directory.path()));
    prepare(&run, &place).unwrap();
    // A file is missing: the threads choose it at random, after others.
    let base = directory.path().join("enfys-bench");
    let set = std::fs::read_dir(base).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(set.join("file-0000007")).unwrap();
    let result = measure(&run, &place).expect("not interrupted");
    let Outcome::Failed(why) = &result.outcome else { panic!("complete") };
    assert!(why.contains("file-0000007: No such file"), "{why}");
    assert!(result.operations["read-file"].errors > 0);
    assert_eq!(result.throughput(), None);
}

#[test]
fn a_short_read_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    let (run, place) = (run_of("small-files", directory.path(), &["files=2"], 1), place(directory.path()));
    prepare(&run, &place).unwrap();
    let set =
        std::fs::read_dir(directory.path().join("enfys-bench")).unwrap().next().unwrap().unwrap().path();
    for name in ["file-0000000", "file-0000001"] {
        std::fs::File::options().write(true).open(set.join(name)).unwrap().set_len(4095).unwrap();
    }
    let result = measure(&run, &place).expect("not interrupted");
    let read = &result.operations["read-file"];
    assert!(read.short > 0);
    assert_eq!((read.count, read.bytes, read.latency.count()), (0, 0, 0));
    assert!(
        matches!(&result.outcome, Outcome::Failed(why) if why.contains("no operation")),
        "{:?}",
        result.outcome
    );
}

/// Damages all files below a directory: the last byte of each 4 KiB, and of each file.
fn damage(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            damage(&path);
        } else if entry.file_type().unwrap().is_file() {
            let mut data = std::fs::read(&path).unwrap();
            let last = data.len().wrapping_sub(1);
            let damaged = |place: usize| place % 4096 == 4095 || place == last;
            data.iter_mut().enumerate().filter(|(place, _)| damaged(*place)).for_each(|(_, byte)| *byte ^= 1);
            std::fs::write(&path, data).unwrap();
        }
    }
}

#[test]
fn one_wrong_byte_of_a_read_fails_the_run() {
    for (workload, set) in [
        ("random-read", &["file-size=64KiB", "io-size=4KiB"][..]),
        ("sequential-read", &["file-size=64KiB", "io-size=16KiB"]),
        ("small-files", &["files=5"]),
        ("locked-reads", &["files=5"]),
        ("fileserver", &["files=50", "mean-size=4KiB"]),
        ("webserver", &["files=20"]),
        ("varmail", &["files=20"]),
        ("request-mix", &["rate=2000", "files=60"]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (run, place) = (run_of(workload, directory.path(), set, 1), place(directory.path()));
        prepare(&run, &place).unwrap();
        damage(directory.path());
        let result = measure(&run, &place).expect("not interrupted");
        let Outcome::Failed(why) = &result.outcome else { panic!("{workload}: complete") };
        assert!(why.contains("wrong data at offset "), "{workload}: {why}");
    }
}

#[test]
fn basic_compares_what_it_has_written() {
    let directory = tempfile::tempdir().unwrap();
    let (run, place) = (run_of("basic", directory.path(), &[], 1), place(directory.path()));
    prepare(&run, &place).unwrap();
    // The file accepts all data and returns zeros.
    let of_run = std::fs::read_dir(directory.path().join("enfys-bench")).unwrap().next().unwrap().unwrap();
    std::os::unix::fs::symlink("/dev/zero", of_run.path().join("thread-1-1/bigfile")).unwrap();
    let result = measure(&run, &place).expect("not interrupted");
    assert!(
        matches!(&result.outcome, Outcome::Failed(why) if why.contains("wrong data at offset 0")),
        "{:?}",
        result.outcome
    );
}
