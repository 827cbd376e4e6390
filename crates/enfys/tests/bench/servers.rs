//! Runs on servers that others wrote, which the bench starts. They are skipped where a server is not installed.

use crate::runs::{count, read_results, requests};
use crate::{bench, printed};

/// Returns whether a target can start here; otherwise prints why the test is skipped.
fn can_start(target: &str) -> bool {
    let setup = printed(&bench(&["setup"]));
    let missing: Vec<&str> =
        setup.lines().filter(|line| line.starts_with("missing") && line.contains(target)).collect();
    let is_root = rustix::process::geteuid().is_root();
    if missing.is_empty() && is_root {
        return true;
    }
    println!("skipped: {target}: root {is_root}, {missing:?}");
    false
}

/// Creates 20 files with each version, and checks what was counted.
#[track_caller]
fn creates(target: &str, versions: &[&str], more: &[&str]) {
    if !can_start(target) {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let results = dir.path().join("results");
    let mut arguments = vec!["run", "create", "--target", target, "--rounds", "1", "--threads", "2"];
    let versions_text = versions.join(",");
    arguments.extend(["--nfs", &versions_text, "--set", "files=20", "--set", "size=4KiB"]);
    arguments.extend(more);
    arguments.extend(["--results", results.to_str().expect("a plain path")]);
    let output = bench(&arguments);
    let all = read_results(&results);
    if all
        .iter()
        .any(|result| result["outcome"]["failed"].as_str().is_some_and(|why| why.contains("cannot make a")))
    {
        println!("skipped: no link: {all:?}");
        return;
    }
    printed(&output);
    assert_eq!(all.len(), versions.len());
    for result in &all {
        let version = &result["run"]["case"]["version"];
        assert_eq!((&result["outcome"], count(result, "create")), (&"complete".into(), 20), "{version}");
        assert_eq!(requests(result, "WRITE"), 20, "{version}");
        let created = if version == "3" { "CREATE" } else { "OPEN" };
        assert_eq!(requests(result, created), 20, "{version}");
        let name = target.strip_prefix("local:").unwrap_or_default();
        let server = result["server_version"].as_str().unwrap_or_default();
        assert!(server.strip_prefix(name).is_some_and(|rest| rest.contains('.')), "its version: {server}");
        assert!(result["server_cpu_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{version}");
    }
}

#[test]
fn ganesha_is_started_and_measured() {
    creates("local:ganesha", &["3", "4.0", "4.1", "4.2"], &[]);
}

#[test]
fn ganesha_starts_cold_and_at_the_end_of_a_link() {
    creates("local:ganesha", &["4.1"], &["--cold", "restart"]);
    creates("local:ganesha", &["3"], &["--delay", "2ms"]);
}

#[test]
fn the_kernels_server_is_started_and_measured() {
    creates("local:knfsd", &["3", "4.0", "4.2"], &[]);
}

#[test]
fn setup_says_what_each_server_needs() {
    let setup = printed(&bench(&["setup"]));
    for (program, target) in [("ganesha.nfsd", "local:ganesha"), ("linux.uml", "local:knfsd")] {
        let line = setup.lines().find(|line| line.contains(program)).expect("a line");
        assert!(line.contains(target), "{line}");
        assert!(line.starts_with("found") || line.contains("apt-get install"), "{line}");
    }
}
