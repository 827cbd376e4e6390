//! Servers that become full or end during a run, and results that cannot be saved.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::agents::Server;
use crate::runs::{count, processor_ticks, read_results};
use crate::{ENFYS, bench};

/// Checks that a result has no rates, and returns why the run has failed.
#[track_caller]
fn failure(result: &Value) -> String {
    result["outcome"]["failed"].as_str().expect("a failed run").to_owned()
}

#[test]
fn a_full_disk_ends_the_run_with_what_it_had() {
    for version in ["3", "4.2"] {
        let (server, dir) = (Server::start_with("--memory=16MiB"), tempfile::tempdir().expect("a directory"));
        let results = dir.path().to_str().expect("a plain path");
        let arguments =
            ["run", "create", "--target", &server.url, "--nfs", version, "--rounds", "1", "--threads", "2"];
        let set = ["--set", "files=1000", "--set", "size=1MiB", "--results", results];
        let output = bench(&[&arguments[..], &set].concat());
        assert_eq!(output.status.code(), Some(1), "{version}");
        let result = &read_results(dir.path())[0];
        let why = failure(result);
        assert!(why.contains("No space left on device"), "{version}: {why}");
        let created = count(result, "create");
        assert!((1..16).contains(&created), "{version}: {created} files of 1 MiB in less than 16 MiB");
        assert!(result["operations"]["create"]["errors"].as_u64() >= Some(1), "{version}");
        let table = bench(&["report", results]);
        let said = String::from_utf8_lossy(&table.stdout).into_owned();
        assert!(said.contains("(NOSPC). It is not included."), "{version}: {said}");
    }
}

#[test]
fn a_server_elsewhere_that_ends_is_noticed_and_what_was_done_is_kept() {
    let (mut server, dir) = (Server::start_with("--memory"), tempfile::tempdir().expect("a directory"));
    let mut run = Command::new(ENFYS)
        .args(["bench", "run", "small-files", "--target", &server.url, "--nfs", "4.1", "--rounds", "1"])
        .args(["--set", "files=10", "--duration", "600s", "--warm-up", "0", "--results"])
        .arg(dir.path())
        .stderr(Stdio::null())
        .spawn()
        .expect("the bench starts");
    // The run is in its measured time when the server's processor time grows: it has nothing else to do for long.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while processor_ticks(server.child.id()) < 20 && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.child.kill().expect("the server runs");
    assert_eq!(run.wait().expect("a child").code(), Some(1));
    let result = &read_results(dir.path())[0];
    let why = failure(result);
    // Which of these it is depends on what was in flight.
    let expected = ["Connection refused", "timed out", "closes each connection without a reply"];
    assert!(expected.iter().any(|expected| why.contains(expected)), "{why}");
    assert!(count(result, "read-file") > 0, "what was done is kept");
}

#[test]
fn results_that_cannot_be_saved_are_an_error() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let results = dir.path().join("file");
    std::fs::write(&results, "").expect("a file");
    let target = dir.path().join("data");
    std::fs::create_dir(&target).expect("a directory");
    let [target, results] = [&target, &results].map(|path| path.to_str().expect("a plain path"));
    let arguments =
        ["run", "create", "--target", target, "--rounds", "1", "--set", "files=2", "--results", results];
    let output = bench(&arguments);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("Not a directory") && said.contains(results), "{said}");
}
