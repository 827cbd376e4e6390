//! The bench beside fio and Bonnie++. Rates are those of a small measurement on a busy machine: nothing is asserted about them.

use crate::{bench, printed};

#[test]
fn a_small_comparison_has_a_line_for_each_measure_and_decides_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().to_str().expect("a plain path");
    let small = ["--warm", "--rounds", "1", "--duration", "1s", "--file-size", "1MiB", "--files", "1024"];
    let output = bench(&[&["honesty", path][..], &small].concat());
    // One round decides nothing, so that the status is 0.
    let said = printed(&output);
    for measure in [
        "sequential write, fsync",
        "sequential read",
        "random read, 4 KiB",
        "random write, 4 KiB, O_SYNC",
        "create",
        "stat",
        "delete",
        "CPU time of a cached read of 4 KiB with 64 threads",
        "the harness takes",
        "8 undecided: 1 round(s)",
    ] {
        assert!(said.contains(measure), "{measure}: {said}");
    }
    assert!(String::from_utf8_lossy(&output.stderr).contains("[1/1] sequential read: fio"));
    assert_eq!(dir.path().read_dir().expect("a directory").count(), 0, "nothing is left");
}

#[test]
fn parts_and_json_are_as_requested() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().to_str().expect("a plain path");
    let small = ["--only", "cpu", "--json", "--rounds", "1", "--duration", "1s", "--file-size", "1MiB"];
    let said = printed(&bench(&[&["honesty", path][..], &small].concat()));
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&report["data"], &report["names"]), (&serde_json::json!([]), &serde_json::json!([])));
    assert_eq!(report["cpu"]["ours_total_ns"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_cannot_be_measured_is_said() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let missing = dir.path().join("missing");
    let said = |path: &std::path::Path, more: &[&str]| {
        let output = bench(&[&["honesty", path.to_str().expect("a plain path")][..], more].concat());
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&missing, &[]).contains("missing: not a directory"));
    assert!(said(&file, &[]).contains("file: not a directory"));
    assert!(said(dir.path(), &["--file-size", "4KiB"]).contains("--file-size: a multiple of 1 MiB"));
    assert!(said(dir.path(), &["--files", "1000"]).contains("--files: a multiple of 1024"));
}
