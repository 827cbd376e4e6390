//! Traces: recorded from a run, shown, and replayed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::runs::{count, read_results};
use crate::{bench, printed};

/// Records a run of two clients with two threads on a server in memory; returns the trace.
#[track_caller]
fn record(directory: &Path, workload: &str, version: &str, set: &[&str]) -> PathBuf {
    let (trace, results) = (directory.join("x.trace"), directory.join("recorded"));
    let mut arguments = vec!["run", workload, "--target", "local:enfys-memory", "--nfs", version];
    arguments.extend([
        "--rounds",
        "1",
        "--clients",
        "2",
        "--threads",
        "2",
        "--duration",
        "1s",
        "--warm-up",
        "0",
    ]);
    for parameter in set {
        arguments.extend(["--set", parameter]);
    }
    arguments.extend(["--record", text(&trace), "--results", text(&results)]);
    printed(&bench(&arguments));
    trace
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Replays a trace as fast as it goes; returns the result.
#[track_caller]
fn replay(directory: &Path, trace: &Path, target: &str) -> Value {
    let results = directory.join("replayed");
    let mut arguments =
        vec!["trace", "replay", text(trace), "--target", target, "--rounds", "1", "--no-think"];
    if target.starts_with("local:") {
        arguments.extend(["--nfs", "4.1"]);
    }
    arguments.extend(["--results", text(&results)]);
    let output = bench(&arguments);
    let mut all = read_results(&results);
    assert_eq!(all.len(), 1, "{}", String::from_utf8_lossy(&output.stderr));
    fs::remove_dir_all(&results).expect("results");
    all.remove(0)
}

/// Returns the operations of a trace that succeeded, by kind, and their bytes.
fn operations(trace: &Path) -> BTreeMap<String, (u64, u64)> {
    let lines = fs::read_to_string(trace).expect("a trace");
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
        let Some(op) = line["op"].as_str() else { continue };
        if line["error"].is_null() {
            let (count, bytes) = counts.entry(op.to_owned()).or_default();
            *count += 1;
            *bytes += if ["read", "write"].contains(&op) { line["result"].as_u64().unwrap_or(0) } else { 0 };
        }
    }
    counts
}

fn counted(result: &Value) -> BTreeMap<String, (u64, u64)> {
    let operations = result["operations"].as_object().expect("operations").iter();
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap_or(0);
    operations.map(|(name, of)| (name.clone(), (number(of, "count"), number(of, "bytes")))).collect()
}

#[test]
fn a_replay_does_what_was_recorded() {
    for (workload, version, set) in [
        ("varmail", "4.1", &["files=20"][..]),
        ("basic", "3", &[]),
        ("source-tree", "4.0", &["files=30", "mean-size=1KiB", "directory-width=5"]),
        ("list", "4.2", &["files=60"]),
    ] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let trace = record(directory.path(), workload, version, set);
        let recorded = operations(&trace);
        for target in ["local:enfys-memory", text(directory.path())] {
            let result = replay(directory.path(), &trace, target);
            assert_eq!(result["outcome"], "complete", "{workload} on {target}");
            let mut counted = counted(&result);
            assert!(
                result["operations"]
                    .as_object()
                    .expect("operations")
                    .values()
                    .all(|of| of["errors"] == 0 && of["short"] == 0),
                "{workload} on {target}: {}",
                result["operations"]
            );
            counted.remove("fails-as-recorded");
            assert_eq!(counted, recorded, "{workload} on {target}");
        }
    }
}

#[test]
fn a_trace_is_replayed_in_virtual_time_with_its_think_times() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = record(directory.path(), "create", "3", &["files=20", "size=4KiB"]);
    // As if an operation had begun each second.
    let lines = fs::read_to_string(&trace).expect("a trace");
    let mut number = 0;
    let slow = lines.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        if line["op"].is_string() {
            line["at_us"] = (number * 1_000_000).into();
            line["took_us"] = 0.into();
            number += 1;
        }
        format!("{line}\n")
    });
    let slow: String = slow.collect();
    fs::write(&trace, slow).expect("a trace");
    let simulate = |more: &[&str]| {
        let set = format!("trace={}", text(&trace));
        let arguments = [
            "simulate",
            "replay",
            "--json",
            "--nfs",
            "4.1",
            "--delay",
            "10ms",
            "--set",
            &set,
            "--clients",
            "2",
            "--threads",
            "2",
        ];
        let results: Value =
            serde_json::from_str(&printed(&bench(&[&arguments, more].concat()))).expect("JSON");
        let result = results[0].clone();
        assert_eq!(result["outcome"], "complete", "{result}");
        assert_eq!(counted(&result), operations(&trace));
        result["seconds"].as_f64().expect("seconds")
    };
    let (with, without) = (simulate(&[]), simulate(&["--set", "think=false"]));
    assert_eq!(with, simulate(&[]), "the same seed has the same time");
    // The operations of the four streams are mixed: one of them lasts almost as long as all.
    assert!(with > f64::from(number) / 2.0 && with < f64::from(number) + 10.0, "{with} s for {number}");
    assert!(without < 10.0, "{without} s");
}

#[test]
fn a_trace_is_shown_in_numbers() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = record(directory.path(), "create", "4.1", &["files=20", "size=4KiB"]);
    let said = printed(&bench(&["trace", "show", text(&trace)]));
    assert!(said.contains("120 operations of 2 client(s) in 4 stream(s)"), "open, write and close: {said}");
    assert!(
        said.lines().any(|line| line.split_whitespace().take(4).eq(["write", "40", "0", "163840"])),
        "{said}"
    );
}

#[test]
fn a_truncated_trace_is_replayed_as_far_as_it_goes_and_has_no_rate() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = record(directory.path(), "create", "4.1", &["files=20", "size=4KiB"]);
    let whole = fs::read_to_string(&trace).expect("a trace");
    let kept: Vec<&str> = whole.lines().take(1 + 60).collect();
    fs::write(&trace, format!("{}\n{{\"at_us\":", kept.join("\n"))).expect("a trace");
    let shown = bench(&["trace", "show", text(&trace)]);
    let said = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(shown.status.code(), Some(1));
    assert!(said.contains("60 operations of") && said.contains("damaged: operation 61: "), "{said}");
    let result = replay(directory.path(), &trace, "local:enfys-memory");
    let why = result["outcome"]["failed"].as_str().unwrap_or_default();
    assert!(why.contains("operation 61: the trace is truncated") && why.contains("60 operations"), "{why}");
    let done: u64 = ["open", "write", "close"].map(|name| count(&result, name)).iter().sum();
    assert_eq!(done, 60, "it keeps what it did");
}

#[test]
fn a_trace_needs_one_run_in_this_process() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("x.trace");
    for (more, why) in [
        (&["--rounds", "2"][..], "a trace has one run, and these are 4: use --rounds 1"),
        (&["--rounds", "1", "--nfs", "3", "--delay", "10ms"], "at the end of a link cannot be recorded"),
        (&["--rounds", "1", "--agents", "host"], "cannot be used with"),
    ] {
        let mut arguments = vec!["run", "create", "--target", "local:enfys-memory", "--record", text(&trace)];
        let results = directory.path().join("results");
        arguments.extend(more);
        arguments.extend(["--results", text(&results)]);
        let output = bench(&arguments);
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(why), "{said}");
    }
    let missing = bench(&["trace", "replay", "none.trace", "--target", "local:enfys-memory"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("none.trace: No such file"));
}

/// A server in memory that accepts relayed calls; returns its process and port.
fn serve() -> (std::process::Child, u16) {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    let mut child = Command::new(crate::ENFYS)
        .args([
            "serve",
            "--memory",
            "--squash",
            "none",
            "--insecure",
            "--versions",
            "3,4",
            "--listen",
            "127.0.0.1:0",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains(",port=")).expect("the server starts");
    let port = line.split(",port=").nth(1).expect("a port");
    let port =
        port.split(|byte: char| !byte.is_ascii_digit()).next().expect("digits").parse().expect("a port");
    std::thread::spawn(move || lines.count());
    (child, port)
}

#[test]
fn a_capture_is_imported_as_what_the_clients_did() {
    // By version: operations of 40 files that are created, written and read, as a capture shows them.
    for (version, mountport) in [("3", true), ("4.0", false), ("4.1", false), ("4.2", false)] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (mut server, port) = serve();
        let (capture, address) = capture::Capture::start(([127, 0, 0, 1], port).into());
        let mount = if mountport { format!("?mountport={}", address.port()) } else { String::new() };
        let url = format!("nfs://{address}/export{mount}");
        let results = directory.path().join("results");
        let output = bench(&[
            "run",
            "create",
            "--target",
            &url,
            "--nfs",
            version,
            "--rounds",
            "1",
            "--threads",
            "2",
            "--set",
            "files=40",
            "--set",
            "size=4KiB",
            "--results",
            text(&results),
        ]);
        printed(&output);
        let (pcap, trace) = (directory.path().join("x.pcap"), directory.path().join("x.trace"));
        fs::write(&pcap, capture.bytes()).expect("a capture");
        let _ = server.kill();
        let _ = server.wait();
        let said = printed(&bench(&["trace", "import", text(&pcap), text(&trace)]));
        assert!(said.contains("client 0: 10.0.0.1") && !said.contains("gaps"), "{version}: {said}");
        assert!(!said.contains("could not be decoded"), "{version}: {said}");
        let operations = operations(&trace);
        assert_eq!(operations["write"], (40, 40 * 4096), "{version}: {operations:?}");
        assert_eq!(operations["open"].0, 40, "{version}: each file is created by one request");
        assert_eq!(operations["remove"].0, 40, "{version}: the bench removes its files");
        let closes = operations.get("close").map_or(0, |close| close.0);
        assert_eq!(closes, if version == "3" { 0 } else { 40 }, "{version}");
        let result = replay(directory.path(), &trace, "local:enfys-memory");
        assert_eq!(result["outcome"], "complete", "{version}");
        let all = result["operations"].as_object().expect("operations");
        assert!(all.values().all(|of| of["errors"] == 0 && of["short"] == 0), "{version}: {all:?}");
        assert_eq!(count(&result, "write"), 40, "{version}");
        assert_eq!(count(&result, "open"), 40, "{version}");
        assert_eq!(count(&result, "remove"), 40, "{version}");
    }
}

/// Records the bytes of TCP connections to a server as a packet capture, in segments as a network has them.
mod capture {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Instant;

    /// Bytes of a segment on Ethernet.
    const SEGMENT: usize = 1448;

    #[derive(Clone)]
    pub(super) struct Capture {
        began: Instant,
        file: Arc<Mutex<Vec<u8>>>,
    }

    impl Capture {
        /// Relays connections to a server; returns the address for clients.
        pub(super) fn start(server: SocketAddr) -> (Self, SocketAddr) {
            let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101].map(u32::to_le_bytes);
            let capture =
                Self { began: Instant::now(), file: Arc::new(Mutex::new(words.as_flattened().to_vec())) };
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            let own = capture.clone();
            thread::spawn(move || {
                for client in listener.incoming().map_while(Result::ok) {
                    let port = client.peer_addr().expect("a peer").port();
                    let server = TcpStream::connect(server).expect("the server");
                    let pairs =
                        [(client.try_clone(), server.try_clone(), true), (Ok(server), Ok(client), false)];
                    for (from, to, is_call) in pairs {
                        let (own, from, to) = (own.clone(), from.expect("a socket"), to.expect("a socket"));
                        thread::spawn(move || own.relay(from, to, port, is_call));
                    }
                }
            });
            (capture, address)
        }

        fn relay(&self, mut from: TcpStream, mut to: TcpStream, port: u16, is_call: bool) {
            let (mut sequence, mut buffer) = (0, vec![0; 1 << 16]);
            self.packet(port, is_call, sequence, true, &[]);
            sequence += 1;
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                for segment in buffer[..length].chunks(SEGMENT) {
                    self.packet(port, is_call, sequence, false, segment);
                    sequence = sequence.wrapping_add(segment.len() as u32);
                }
                if to.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Write);
        }

        fn packet(&self, port: u16, is_call: bool, sequence: u32, is_syn: bool, payload: &[u8]) {
            let mut file = self.file.lock().expect("no panic");
            let now = self.began.elapsed();
            let length = 40 + payload.len() as u32;
            for word in [now.as_secs() as u32, now.subsec_micros(), length, length] {
                file.extend(word.to_le_bytes());
            }
            let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
            let (from, to) = if is_call { (client, server) } else { (server, client) };
            let ports = if is_call { [port, 2049] } else { [2049, port] };
            file.extend([0x45, 0]);
            file.extend((length as u16).to_be_bytes());
            file.extend([0, 0, 0, 0, 64, 6, 0, 0]);
            file.extend(from.iter().chain(&to));
            file.extend(ports.map(u16::to_be_bytes).as_flattened());
            file.extend(sequence.to_be_bytes());
            file.extend([0, 0, 0, 0, 0x50, if is_syn { 2 } else { 0x10 }, 0xff, 0xff, 0, 0, 0, 0]);
            file.extend(payload);
        }

        pub(super) fn bytes(&self) -> Vec<u8> {
            self.file.lock().expect("no panic").clone()
        }
    }
}
