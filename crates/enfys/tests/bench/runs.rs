//! Runs of plans and workloads: counts of operations and requests, and error messages.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{ENFYS, bench, printed};

/// Runs a workload on a server in memory with one version; returns the result of its only run.
#[track_caller]
pub(crate) fn run(workload: &str, version: &str, set: &[&str]) -> Value {
    run_with(workload, version, set, &[])
}

/// As [`run`], with further options of the command.
#[track_caller]
pub(crate) fn run_with(workload: &str, version: &str, set: &[&str], more: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let results = dir.path().join("results");
    let mut arguments =
        vec!["run", workload, "--target", "local:enfys-memory", "--nfs", version, "--rounds", "1"];
    for parameter in set {
        arguments.extend(["--set", parameter]);
    }
    let threads: &[&str] = if more.contains(&"--threads") { &[] } else { &["--threads", "2"] };
    arguments.extend(threads.iter().chain(more));
    arguments.extend(["--duration", "1s", "--warm-up", "0", "--results"]);
    arguments.push(results.to_str().expect("a plain path"));
    printed(&bench(&arguments));
    let mut all = read_results(&results);
    assert_eq!(all.len(), 1);
    let result = all.remove(0);
    assert_eq!(result["outcome"], "complete", "{workload} {version}");
    result
}

pub(crate) fn read_results(directory: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(directory).expect("results");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read(entry.expect("an entry").path()).expect("a result");
        serde_json::from_slice(&text).expect("JSON")
    };
    entries.map(read).collect()
}

/// Returns the number of requests of one operation of the protocol.
pub(crate) fn requests(result: &Value, operation: &str) -> u64 {
    result["requests"][operation]["requests"].as_u64().unwrap_or(0)
}

/// Returns the number of requests of all operations.
fn all_requests(result: &Value) -> u64 {
    let operations = result["requests"].as_object().expect("operations");
    operations.values().filter_map(|one| one["requests"].as_u64()).sum()
}

pub(crate) fn count(result: &Value, operation: &str) -> u64 {
    result["operations"][operation]["count"].as_u64().unwrap_or(0)
}

#[test]
fn creation_is_one_request_that_creates_for_each_file() {
    for version in VERSIONS {
        let result = run("create", version, &["files=40", "size=4KiB"]);
        assert_eq!(count(&result, "create"), 40, "{version}");
        assert_eq!(requests(&result, "WRITE"), 40, "{version}");
        let (v3, v4) = if version == "3" { (40, 0) } else { (0, 40) };
        assert_eq!(requests(&result, "CREATE"), v3, "{version}");
        assert_eq!((requests(&result, "OPEN"), requests(&result, "CLOSE")), (v4, v4), "{version}");
        let sent = result["requests"]["WRITE"]["bytes_sent"].as_u64().unwrap_or(0);
        assert!(sent > 40 * 4096 && sent < 40 * (4096 + 400), "{version}: payload and headers: {sent}");
    }
}

#[test]
fn basic_sends_what_its_tests_do() {
    for version in VERSIONS {
        let result = run("basic", version, &[]);
        // Two threads do each test.
        let of_thread = |operation| requests(&result, operation) / 2;
        // A chmod each; and in version 3 the truncation of a file that is written ten times.
        assert!((1000..=1009).contains(&of_thread("SETATTR")), "{version}: {}", of_thread("SETATTR"));
        assert_eq!((of_thread("RENAME"), of_thread("LINK")), (100, 100), "{version}");
        let made = if version == "3" { ["MKDIR", "SYMLINK"] } else { ["CREATE", "CREATE"] };
        let expected = if version == "3" { [62, 200] } else { [262, 262] };
        assert_eq!(made.map(of_thread), expected, "{version}: directories and symbolic links");
        // 155, 10, 1, 200, 100 and 10, and 200 files; version 4 removes directories by the same operation.
        let removed = 155 + 10 + 1 + 200 + 100 + 10 + 200 + if version == "3" { 0 } else { 62 };
        assert_eq!(of_thread("REMOVE"), removed, "{version}");
        assert_eq!(count(&result, "read-file"), 20, "{version}");
    }
}

/// 1994, Table 1 and Figure 4: with transfers of 8 KB and caches.
#[test]
fn basic_sends_the_same_changes_in_versions_2_and_3_and_version_3_asks_less() {
    let of_version = |version| {
        run_with("basic", version, &[], &["--threads", "1", "--options", "caches=on&rsize=8192&wsize=8192"])
    };
    let (v2, v3) = (of_version("2"), of_version("3"));
    // Files of tests 1, 4, 5, 6, 7; names removed are those, and the second ones of test 7 and the links of test 8.
    let files = 155 + 10 + 1 + 200 + 10;
    let changes = [
        ("CREATE", files),
        ("MKDIR", 62),
        ("RMDIR", 62),
        ("REMOVE", files + 100 + 200),
        // Chmods, and the truncation of a file that is written ten times.
        ("SETATTR", 1000 + 9),
        ("RENAME", 100),
        ("LINK", 100),
        ("SYMLINK", 200),
        ("READLINK", 200),
        ("WRITE", 10 * (1 << 20) / 8192),
        ("READDIR", 200),
    ];
    for (operation, count) in changes {
        assert_eq!([&v2, &v3].map(|result| requests(result, operation)), [count; 2], "{operation}");
    }
    assert_eq!((requests(&v2, "STATFS"), requests(&v3, "FSSTAT")), (1500, 1500));
    // RFC 1094 has no COMMIT: each WRITE is stable. In version 3 each of the ten files is stable with one.
    assert_eq!((requests(&v2, "COMMIT"), requests(&v3, "COMMIT")), (0, 10));
    for operation in ["GETATTR", "LOOKUP"] {
        let [of_v2, of_v3] = [&v2, &v3].map(|result| requests(result, operation));
        assert!(of_v3 < of_v2, "{operation}: replies of version 3 have attributes: {of_v3}, {of_v2}");
    }
    let [of_v2, of_v3] = [&v2, &v3].map(all_requests);
    assert!(of_v3 < of_v2, "{of_v3} requests in version 3, {of_v2} in version 2");
}

/// 1994, Table 2: with replies of 8 KB and caches.
#[test]
fn a_search_without_readdirplus_asks_for_each_file() {
    // 600 files in 6 directories of 100: 7 directories with the root, 606 entries.
    let find = |version, options: &str| {
        let options = format!("caches=on&rsize=8192{options}");
        let more = ["--threads", "1", "--options", &options];
        run_with("find", version, &["files=600", "directory-width=100"], &more)
    };
    let counts = |result: &Value| ["READDIR", "READDIRPLUS", "LOOKUP"].map(|name| requests(result, name));
    // Names of 12 bytes: an entry of version 2 has 28 bytes, one of version 3 36 (RFC 1094 §2.2.17, RFC 1813 §3.3.16).
    assert_eq!(counts(&find("2", "")), [7, 0, 606]);
    assert_eq!(counts(&find("3", "&nordirplus")), [7, 0, 606]);
    // With attributes and a handle of 16 to 64 bytes it has 148 to 196 bytes: a directory has two or three replies.
    let [readdir, plus, lookup] = counts(&find("3", ""));
    assert_eq!((readdir, lookup), (0, 6), "only directories are looked up");
    assert!((1 + 6 * 2..=1 + 6 * 3).contains(&plus), "{plus}");
}

#[test]
fn a_limit_of_requests_in_flight_makes_others_wait() {
    for (version, one, many) in [
        ("3", "v3_calls=1", "v3_calls=64"),
        ("4.0", "v3_calls=1", "v3_calls=64"),
        ("4.1", "slots=1", "slots=64"),
    ] {
        let waits = |options| {
            let more = ["--threads", "16", "--options", options];
            let result = run_with("create", version, &["files=64"], &more);
            assert_eq!(count(&result, "create"), 64, "{version} {options}");
            assert_eq!(result["run"]["case"]["options"], options);
            result["slot_waits"].as_u64().expect("a count")
        };
        assert!(waits(one) > 0, "{version}: 16 threads share one");
        assert_eq!(waits(many), 0, "{version}: each of 16 threads has one");
    }
}

#[test]
fn files_in_a_cache_are_read_once() {
    for version in ["3", "4.1"] {
        let reads = |options| {
            let result = run_with("small-files", version, &["files=5"], &["--options", options]);
            assert_eq!(result["options"]["caches"], options.rsplit('=').next().expect("a value"));
            let data = &result["client_counters"]["data_bytes"];
            let bytes = ["hits", "misses"].map(|of| data[of].as_u64().expect("a count"));
            let counted = count(&result, "read-file");
            if options == "caches=on" {
                // Each file has 4 KiB; each of two threads may have read one after the measured time.
                let read = bytes.iter().sum::<u64>() >> 12;
                assert!((counted..=counted + 2).contains(&read), "{version}: {bytes:?}, {counted} files");
                // Both threads may need a file at the same time.
                assert!(bytes[1] <= 10 << 12, "{version}: {bytes:?}");
            } else {
                assert_eq!(bytes, [0, 0], "{version}: there is no cache to use");
            }
            let peak = result["server_peak_bytes"].as_u64().expect("of a local server");
            assert!(peak > 1 << 20 && result["server_cpu_seconds"].as_f64() > Some(0.0), "{version}: {peak}");
            (requests(&result, "READ"), counted)
        };
        let (uncached, files) = reads("caches=off");
        assert!(uncached >= files && files > 5, "{version}: {uncached} READs of {files} files");
        let (cached, files) = reads("caches=on");
        assert!(cached <= 5 && files > 5, "{version}: {cached} READs of {files} files");
    }
}

#[test]
fn the_servers_counters_agree_with_the_clients() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (version, delay) in [("3", "0"), ("4.0", "0"), ("4.1", "0"), ("4.2", "2ms")] {
        let (results, lines) = (dir.path().join(version), dir.path().join(format!("{version}.jsonl")));
        let words = ["run", "create", "--target", "local:enfys", "--nfs", version, "--delay", delay];
        let more = ["--rounds", "1", "--set", "files=30", "--set", "size=4KiB", "--threads", "3"];
        let paths = ["--results".as_ref(), results.as_os_str(), "--metrics".as_ref(), lines.as_os_str()];
        let arguments = words.iter().chain(&more).map(AsRef::as_ref).chain(paths);
        let output = bench(&arguments.collect::<Vec<&std::ffi::OsStr>>());
        let result = read_results(&results).remove(0);
        if result["outcome"]["failed"].as_str().is_some_and(|why| why.contains("cannot make a")) {
            println!("skipped: {}", result["outcome"]);
            continue;
        }
        printed(&output);
        let line = std::fs::read_to_string(&lines).expect("counters");
        let counters: Value = serde_json::from_str(&line).expect("JSON");
        let counters = &counters["counters"];
        let program = if version == "3" { "nfs3" } else { "nfs4" };
        let label = |name: &str| {
            let growth = counters["growth"].as_object().expect("counters");
            let found = growth.iter().find(|(series, _)| {
                series.starts_with("enfys_operations_total{")
                    && [format!("\"{program}\""), format!("\"{name}\"")]
                        .iter()
                        .all(|label| series.contains(label))
            });
            found.and_then(|(_, value)| value.as_f64())
        };
        assert_eq!(label("WRITE"), Some(30.0), "{version}: {line}");
        assert_eq!(counters["client"], counters["server"], "{version}");
        assert!(counters["client"]["call_bytes"].as_u64() > Some(30 * 4096), "{version}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("differ"), "{version}");
    }
}

/// The versions that this client has.
const VERSIONS: [&str; 4] = ["3", "4.0", "4.1", "4.2"];

#[test]
fn a_finished_plan_is_not_run_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let target = dir.path().join("data");
    std::fs::create_dir(&target).expect("a directory");
    let plan = dir.path().join("plan.toml");
    let text = format!(
        "rounds = 2\nduration = '1s'\nwarm-up = '0'\n[[target]]\nname = 'disk'\nserver = '{}'\n\
         [[workload]]\nname = 'create'\nset = {{ files = 10 }}\n",
        target.display()
    );
    std::fs::write(&plan, text).expect("a plan");
    let results = dir.path().join("results");
    let run = || {
        let output = bench(&["run".as_ref(), plan.as_os_str(), "--results".as_ref(), results.as_os_str()]);
        printed(&output);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(run().contains("2 run(s) complete, 0 from before, 0 failed"));
    assert!(run().contains("0 run(s) complete, 2 from before, 0 failed"));
    std::fs::remove_file(results.read_dir().expect("results").next().expect("one").expect("an entry").path())
        .expect("removal");
    assert!(run().contains("1 run(s) complete, 1 from before, 0 failed"));
    assert_eq!(target.read_dir().expect("a directory").count(), 0, "no files are left");
    let table = printed(&bench(&["report".as_ref(), results.as_os_str()]));
    assert!(table.contains("operations/s") && table.contains("disk"), "{table}");
}

#[test]
fn a_plan_with_errors_does_not_start() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let plan = dir.path().join("plan.toml");
    let text =
        "rounds = 0\n[[target]]\nname = 'a'\nserver = 'local:enfis'\n[[workload]]\nname = 'random-reed'\n";
    std::fs::write(&plan, text).expect("a plan");
    let output = bench(&["run".as_ref(), plan.as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    for part in
        ["plan.toml:1: ", "plan.toml:4: no local server `enfis`", "plan.toml:6: no workload `random-reed`"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// Runs `create` against an address, and returns its messages and the results.
fn run_remote(url: &str, results: &Path) -> (Output, Vec<Value>) {
    let output = bench(&[
        "run",
        "create",
        "--target",
        url,
        "--nfs",
        "3",
        "--rounds",
        "1",
        "--set",
        "files=10",
        "--set",
        "size=4KiB",
        "--results",
        results.to_str().expect("a plain path"),
    ]);
    let results = read_results(results);
    (output, results)
}

#[test]
fn an_unreachable_server_is_a_failed_run_without_rates() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // Nothing listens on the port of a closed listener.
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number").port();
    let url = format!("nfs://127.0.0.1/export?nfsport={port}&mountport={port}");
    let (output, results) = run_remote(&url, &dir.path().join("results"));
    assert_eq!(output.status.code(), Some(1));
    let why = results[0]["outcome"]["failed"].as_str().expect("a reason");
    assert!(why.contains("Connection refused"), "{why}");
    assert_eq!(results[0]["operations"], serde_json::json!({}));
}

#[test]
fn a_read_only_export_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut server = Command::new(ENFYS)
        .args([
            "serve",
            "--memory",
            "--read-only",
            "--listen",
            "127.0.0.1:0",
            "--log",
            "error",
            "--state-dir",
        ])
        .arg(dir.path().join("state"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut message = String::new();
    let mut output = std::io::BufReader::new(server.stdout.take().expect("a pipe"));
    while !message.contains("nfsport=") {
        assert_ne!(std::io::BufRead::read_line(&mut output, &mut message).expect("text"), 0, "{message}");
    }
    let port: u16 = message
        .split("nfsport=")
        .nth(1)
        .and_then(|rest| rest.split('&').next())
        .expect("a port")
        .parse()
        .expect("it");
    let url = format!("nfs://127.0.0.1/export?nfsport={port}&mountport={port}");
    let (run, results) = run_remote(&url, &dir.path().join("results"));
    server.kill().expect("the server runs");
    server.wait().expect("a child");
    assert_eq!(run.status.code(), Some(1));
    let why = results[0]["outcome"]["failed"].as_str().expect("a reason");
    assert!(why.contains("Read-only file system"), "{why}");
}

#[test]
fn a_server_that_dies_leaves_the_results_so_far() {
    for version in ["3", "4.1"] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let results = dir.path().join("results");
        let mut run = Command::new(ENFYS)
            .args(["bench", "run", "small-files", "--target", "local:enfys-memory", "--rounds", "1"])
            .args([
                "--nfs",
                version,
                "--set",
                "files=10",
                "--duration",
                "300s",
                "--warm-up",
                "0",
                "--results",
            ])
            .arg(&results)
            .stderr(Stdio::null())
            .spawn()
            .expect("the bench starts");
        let server = child_of(run.id());
        // The run is in its measured time when its processor time grows: it has nothing else to do for long.
        let deadline = Instant::now() + Duration::from_secs(60);
        while processor_ticks(server) < 20 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(server as i32).expect("a process"),
            rustix::process::Signal::KILL,
        )
        .expect("the server runs");
        assert_eq!(run.wait().expect("a child").code(), Some(1), "{version}");
        let result = &read_results(&results)[0];
        let why = result["outcome"]["failed"].as_str().expect("a reason");
        assert!(why.contains("the server enfys-memory ended: signal: 9"), "{version}: {why}");
        assert!(count(result, "read-file") > 0, "{version}: what was done is kept");
    }
}

/// Returns the only child of a process, once it has one.
fn child_of(pid: u32) -> u32 {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        if let Some(child) = children.split_whitespace().next() {
            return child.parse().expect("a number");
        }
        assert!(Instant::now() < deadline, "no child");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the processor time of a process, in ticks of 10 ms (proc(5), `utime` and `stime`).
pub(crate) fn processor_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    fields.get(11..13).map_or(0, |times| times.iter().filter_map(|time| time.parse::<u64>().ok()).sum())
}

#[test]
fn a_delay_is_carried_by_a_packet_link() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let results = dir.path().join("results");
    let output = bench(&[
        "run",
        "create",
        "--target",
        "local:enfys",
        "--nfs",
        "4.1",
        "--delay",
        "4ms",
        "--rounds",
        "1",
        "--set",
        "files=10",
        "--results",
        results.to_str().expect("a plain path"),
    ]);
    let result = read_results(&results).remove(0);
    if result["outcome"]["failed"].as_str().is_some_and(|why| why.contains("cannot make a")) {
        println!("skipped: {}", result["outcome"]);
        return;
    }
    printed(&output);
    assert_eq!(result["outcome"], "complete");
    assert_eq!(count(&result, "create"), 10);
    assert_eq!(result["options"]["link"], "packet link, round trip 4ms");
    let round_trip = result["requests"]["OPEN"]["round_trip_us"].as_u64().expect("a sum") / 10;
    assert!(round_trip >= 4000, "at least the delay: {round_trip} µs");
}

#[test]
fn workloads_and_figures_are_listed() {
    assert!(printed(&bench(&["list"])).contains("\ncreate "));
    assert!(printed(&bench(&["list", "create"])).contains("files  10000  files of each client"));
    let figures = printed(&bench(&["paper", "--list", "--quick"]));
    let planned = |name: &str| {
        let line = figures.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    let (minutes, _) = planned("all")
        .split_once(':')
        .map(|(minutes, seconds)| (minutes.to_owned(), seconds.to_owned()))
        .unwrap();
    assert!(minutes.parse::<u32>().unwrap() < 5, "{figures}");
    assert!(planned("2015:fig8").starts_with("0:"), "{figures}");
    assert_eq!(planned("2015:fig9"), "with", "the runs of 2015:fig8: {figures}");
}

#[test]
fn opens_of_files_that_others_have_delegated_recall_each_of_them() {
    let clients = ["--threads", "1", "--clients", "3"];
    let run = |options| {
        let more = [&clients[..], &["--options", options]].concat();
        run_with("recall", "4.1", &["files=30", "holders=2"], &more)
    };
    let plain = run("caches=on&nodelegations");
    assert_eq!((count(&plain, "open"), requests(&plain, "DELEGRETURN")), (30, 0));
    let counters = |result: &Value, of: &str| result["client_counters"]["delegations"][of].clone();
    assert_eq!(["recalled", "returned"].map(|of| counters(&plain, of)), [0, 0]);
    let delegated = run("caches=on&delegations");
    assert_eq!((count(&delegated, "open"), requests(&delegated, "DELEGRETURN")), (30, 2 * 30));
    assert_eq!(["recalled", "returned"].map(|of| counters(&delegated, of)), [2 * 30, 2 * 30]);
}

#[test]
fn recalls_need_a_client_that_opens() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let results = dir.path().to_str().expect("a plain path");
    let output = bench(&[
        "run",
        "recall",
        "--target",
        "local:enfys-memory",
        "--nfs",
        "4.1",
        "--rounds",
        "1",
        "--results",
        results,
    ]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("1 client(s) with 1 holder(s): who opens the files?"), "{said}");
}
