//! Tests of `enfys bench paper` from its runs to its page: counts, no times.

use std::path::Path;

use serde_json::Value;

use super::runs::{count, read_results, requests};
use super::{bench, printed};

/// Repeats a figure with its small sizes, and returns the page and the messages.
#[track_caller]
fn repeat(figure: &str, directory: &Path) -> (String, String) {
    let results = directory.join("results");
    let [results, scratch] = [&results, directory].map(|path| path.to_str().expect("a plain path"));
    let output = bench(&["paper", figure, "--quick", "--results", results, "--scratch", scratch]);
    (printed(&output), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns the row of a figure on a page.
#[track_caller]
fn row<'p>(page: &'p str, figure: &str) -> &'p str {
    let start = format!("| `{figure}` |");
    page.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{figure}: {page}"))
}

/// Returns the complete run of a version at a target.
#[track_caller]
fn run<'r>(results: &'r [Value], target: &str, version: &str) -> &'r Value {
    let is_it = |run: &&Value| {
        run["run"]["case"]["target"]["name"] == target && run["run"]["case"]["version"] == version
    };
    let run = results.iter().find(is_it).unwrap_or_else(|| panic!("no run of {version} at {target}"));
    assert_eq!(run["outcome"], "complete", "{version} at {target}");
    run
}

/// Two clients read 50 files ten times each.
#[test]
fn locked_reads_are_counted_judged_and_not_repeated() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (page, _) = repeat("2015:table1", dir.path());
    let results = read_results(&dir.path().join("results/2015-table1"));
    assert_eq!(results.len(), 4);
    for (target, version) in [("plain", "3"), ("plain", "4.0"), ("plain", "4.1"), ("delegated", "4.1")] {
        let run = run(&results, target, version);
        for operation in ["open", "lock", "read", "unlock", "close"] {
            assert_eq!(count(run, operation), 1000, "{operation} of {version} at {target}");
        }
    }
    let plain = run(&results, "plain", "4.1");
    let sent = ["OPEN", "LOCK", "LOCKU", "CLOSE"].map(|operation| requests(plain, operation));
    assert_eq!(sent, [1000; 4], "without delegations each call is a request");
    let delegated = run(&results, "delegated", "4.1");
    let sent = ["OPEN", "LOCK", "READ"].map(|operation| requests(delegated, operation));
    assert!(
        sent[0] <= 100 && sent[1] == 0 && sent[2] <= 100,
        "one OPEN and READ for each file of a client: {sent:?}"
    );
    assert!(!row(&page, "2015:table1").contains("not measured"), "{page}");
    assert!(!row(&page, "2015:table1").contains("runs failed"), "{page}");

    let (again, messages) = repeat("2015:table1", dir.path());
    assert_eq!(again, page);
    assert!(!messages.contains("[1/"), "all results were there: {messages}");
}

#[test]
fn a_model_has_a_verdict_without_runs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (page, _) = repeat("2015:fig3", dir.path());
    let row = row(&page, "2015:fig3");
    assert!(row.contains("**confirmed**") && row.contains("69.4 %"), "{row}");
    assert!(!dir.path().join("results").exists(), "nothing was measured");
}

/// The local disk has no version, and its directory is gone after the last run.
#[test]
fn a_local_disk_is_measured_beside_the_server() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (page, _) = repeat("2002:fig1", dir.path());
    let results = read_results(&dir.path().join("results/2002-fig1"));
    let calls: Vec<u64> = results.iter().map(|run| count(run, "write")).collect();
    assert_eq!(calls, [3200, 3200], "25 MiB by 8 KiB on both");
    let local = results.iter().find(|run| run["run"]["case"]["version"].is_null()).expect("the local disk");
    assert_eq!(local["outcome"], "complete");
    assert!(!row(&page, "2002:fig1").contains("not measured"), "{page}");
    assert!(!dir.path().join("enfys-paper-local").exists());
}
