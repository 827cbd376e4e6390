//! Reports and comparisons of result files.

use std::path::Path;

use serde_json::{Value, json};

use crate::{bench, printed};

/// Returns a result file as another program would write it, from the description of the format.
pub(crate) fn result(target: &str, round: u32, operations: u64) -> Value {
    json!({
        "format": "enfys-bench-run",
        "format_version": 1,
        "plan": "example",
        "run": {
            "id": format!("random-read-{target}-{round}"),
            "round": round,
            "case": {
                "workload": "random-read",
                "parameters": { "io-size": "4KiB", "file-size": "20GiB" },
                "target": { "name": target, "server": "local:enfys", "kind": { "local": { "server": "enfys" } }, "cold": null },
                "version": "4.1",
                "delay": "10ms",
                "threads": 16,
                "clients": 1,
            },
            "seed": 1,
            "duration": "10s",
            "warm_up": "0",
            "caches": "warm",
        },
        "enfys_version": "0.1.0",
        "server_version": null,
        "started_unix_ms": 1_790_000_000_000_u64 + u64::from(round),
        "machine": { "kernel": "6.1", "processor": "none", "cores": 2, "file_system": "ext4" },
        "options": {},
        "outcome": "complete",
        "seconds": 10.0,
        "clients": [{ "name": "1", "skew_us": 0, "operations": [operations], "bytes": [operations * 4096] }],
        "operations": {
            "read": {
                "effect": "read",
                "count": operations,
                "bytes": operations * 4096,
                "errors": 0,
                "short": 0,
                "latency": [[100_000, operations]],
            },
        },
        "requests": {},
        "samples": {},
        "client_busy": null,
        "server_cpu_seconds": null,
    })
}

/// Writes six rounds into a directory.
fn write_rounds(directory: &Path, target: &str, operations: u64) {
    std::fs::create_dir_all(directory).expect("a directory");
    for round in 1..=6 {
        let text = result(target, round, operations + u64::from(round % 3)).to_string();
        std::fs::write(directory.join(format!("{target}-{round}.json")), text).expect("a file");
    }
}

#[test]
fn report_has_every_format() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let results = dir.path().join("results");
    write_rounds(&results, "enfys", 1000);
    let page = dir.path().join("report.html");
    let run = |more: &[&str]| {
        let mut arguments = vec!["report".to_owned(), results.display().to_string()];
        arguments.extend(more.iter().map(|word| (*word).to_owned()));
        printed(&bench(&arguments))
    };
    let table = run(&["--html", page.to_str().expect("a plain path")]);
    assert!(table.contains("operations/s") && table.contains("delay 10ms, threads 16"), "{table}");
    assert!(std::fs::read_to_string(&page).expect("the page").contains("<svg"));
    let list: Value = serde_json::from_str(&run(&["--json"])).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(6));
    assert_eq!(run(&["--csv"]).lines().count(), 7);
    let fio: Value = serde_json::from_str(&run(&["--format", "fio-json"])).expect("JSON");
    assert_eq!(fio["jobs"].as_array().map(Vec::len), Some(6));
}

#[test]
fn comparison_fails_only_on_request() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    write_rounds(&dir.path().join("before"), "enfys", 1000);
    write_rounds(&dir.path().join("slower"), "enfys", 900);
    let run = |after: &str, more: &[&str]| {
        let mut arguments = vec!["compare".to_owned(), path("before"), path(after)];
        arguments.extend(more.iter().map(|word| (*word).to_owned()));
        bench(&arguments)
    };
    assert!(printed(&run("slower", &[])).contains("-10.0 %"));
    assert!(printed(&run("before", &["--fail-if-slower", "0%"])).contains('~'));
    assert!(run("slower", &["--fail-if-slower", "20%"]).status.success());
    let failed = run("slower", &["--fail-if-slower", "5%"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("slower by at least 5 %"));
}

#[test]
fn files_that_are_not_results_are_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("other.json");
    let mut newer = result("enfys", 1, 1000);
    newer["format_version"] = json!(2);
    for (text, why) in
        [("{}".to_owned(), "not a result of `enfys bench`"), (newer.to_string(), "format version 2")]
    {
        std::fs::write(&file, text).expect("a file");
        let output = bench(&["report".as_ref(), file.as_os_str()]);
        assert_eq!(output.status.code(), Some(1));
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(complained.contains("other.json: ") && complained.contains(why), "{complained}");
    }
}
