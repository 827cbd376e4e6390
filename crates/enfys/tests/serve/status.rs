//! `enfys status`, `evict`, `recall` and `grace end`.

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Output;

use protocol::nfs4::types::Status;
use protocol::nlm::{self, LockArgs, NetObj, Res, Stats};
use serde_json::Value;

use crate::client::{Client, Client4, lock_of};
use crate::server::{Server, TestDir, refusal, run, with};

/// Runs a command for the server of a test directory.
pub fn ask(dir: &TestDir, words: &[&str]) -> Output {
    let state = dir.path("state").display().to_string();
    run(&[words, &["--state-dir", &state]].concat())
}

#[track_caller]
pub fn stdout_of(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

pub fn status(dir: &TestDir) -> Value {
    let answer: Value = serde_json::from_str(&stdout_of(&ask(dir, &["status", "--json"]))).expect("JSON");
    assert_eq!(answer["version"], 1);
    answer["status"].clone()
}

/// Starts a server of a directory with a file.
fn started(dir: &TestDir) -> Server {
    let export = dir.directory("export");
    let server = Server::start(dir, &with(dir, &[&export]));
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    client.create(root, "file").unwrap();
    server
}

#[test]
fn clients_are_shown_and_evicted() {
    let dir = TestDir::new();
    let server = started(&dir);
    let empty = status(&dir);
    assert_eq!((&empty["clients"], &empty["grace"]), (&Value::Array(vec![]), &Value::Null));
    let mut client = Client4::connect(server.address);
    client.open("export", "file").unwrap();

    let shown = status(&dir);
    assert_eq!(shown["totals"]["opens"], 1);
    assert_eq!(shown["totals"]["slots_in_use"], 0);
    let only = &shown["clients"][0];
    assert_eq!(shown["clients"].as_array().map(Vec::len), Some(1));
    for (key, expected) in
        [("name", "test client"), ("state", "active"), ("protocol", "4.1"), ("principal", "uid:1000")]
    {
        assert_eq!(only[key], expected, "{only:#}");
    }
    for (key, expected) in [("opens", 1), ("locks", 0), ("delegations", 0), ("active", 0), ("lost", 0)] {
        assert_eq!(only[key], expected, "{only:#}");
    }
    let left = only["lease_left_seconds"].as_f64().unwrap();
    assert!(left > 0.0 && left <= shown["lease_seconds"].as_f64().unwrap());
    assert!(only["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(only["sessions"][0]["slots"], 8, "as many as requested");
    assert_eq!(only["sessions"][0]["slot_reply_max_bytes"], 4096);
    let table = stdout_of(&ask(&dir, &["status"]));
    let (id, address) = (only["id"].as_str().unwrap(), only["address"].as_str().unwrap());
    let row = table.lines().position(|line| line.starts_with(id)).expect("a row");
    assert!(table.lines().nth(row).unwrap().contains(" 4.1 "), "{table}");
    assert_eq!(table.lines().nth(row + 1), Some(&*format!("  {address}  test client")), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");

    let answer = ask(&dir, &["evict", "nobody"]);
    assert_eq!(refusal(&answer), "nobody: no client has this id, address or name");
    let second = Client4::named(server.address, "second client");
    let answer = refusal(&ask(&dir, &["evict", "127.0.0.1"]));
    let first = format!(
        "127.0.0.1: several clients have this address or name; give the id of one: {id} (test client), 0x"
    );
    assert!(answer.starts_with(&first) && answer.ends_with(" (second client)"), "{answer}");
    drop(second);
    stdout_of(&ask(&dir, &["evict", "second client"]));
    let reported = stdout_of(&ask(&dir, &["evict", only["id"].as_str().unwrap()]));
    assert!(reported.contains("(test client): it lost 1 session, 1 open, 0 locks"), "{reported}");
    assert_eq!(client.run(vec![]).unwrap_err(), Status::BADSESSION);
    let after = status(&dir);
    assert_eq!((&after["totals"]["opens"], &after["totals"]["clients"]), (&0.into(), &0.into()));
    server.await_log(0, "evicted");
    // It can connect again.
    Client4::connect(server.address).open("export", "file").unwrap();
    server.stop();
}

#[test]
fn clients_that_lock_by_nlm_are_shown_and_lose_their_locks() {
    let dir = TestDir::new();
    let server = started(&dir);
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    let file = client.lookup(root, "file").unwrap();
    let lock = |name: &'static str| LockArgs::<u64> {
        cookie: NetObj::default(),
        block: false,
        exclusive: true,
        alock: lock_of(name, file),
        reclaim: false,
        state: 1,
    };
    let program = (nlm::PROGRAM, nlm::VERSION);
    let mut try_lock = |name| client.call::<Res>(program, nlm::Proc::LOCK.0, &lock(name)).stat;
    assert_eq!([try_lock("first host"), try_lock("second host")], [Stats::GRANTED, Stats::DENIED]);

    let shown = status(&dir)["hosts"].as_array().expect("hosts").clone();
    let first = shown.iter().find(|host| host["name"] == "first host").expect("it has a lock");
    assert_eq!(first["address"], "127.0.0.1", "{first:#}");
    assert_eq!((&first["locks"], &first["locks_waiting"]), (&1.into(), &0.into()), "{first:#}");
    let table = stdout_of(&ask(&dir, &["status"]));
    let rows: Vec<_> = table.lines().skip_while(|line| !line.starts_with("HOST ")).collect();
    let row = rows.iter().position(|row| row.starts_with(first["id"].as_str().unwrap())).expect("a row");
    assert_eq!(rows[row + 1], "  127.0.0.1  first host", "{table}");

    let said = stdout_of(&ask(&dir, &["evict", "first host"]));
    assert!(said.ends_with("(first host): it lost 1 lock\n"), "{said}");
    assert_eq!(try_lock("second host"), Stats::GRANTED);
    server.stop();
}

#[test]
fn recall_and_grace_end_answer() {
    let dir = TestDir::new();
    let server = started(&dir);
    assert_eq!(stdout_of(&ask(&dir, &["recall", "/export/file"])), "no client has a delegation of it\n");
    let missing = refusal(&ask(&dir, &["recall", "/export/missing"]));
    assert!(missing.starts_with("/export/missing: missing: "), "{missing}");
    let elsewhere = refusal(&ask(&dir, &["recall", "/exports/file"]));
    assert!(elsewhere.contains("no export holds it"), "{elsewhere}");
    assert_eq!(stdout_of(&ask(&dir, &["grace", "end"])), "there is no grace period\n");
    server.stop();
}

/// Returns the error of a command with `--json`: one object on standard output, and no other output.
#[track_caller]
fn json_error(output: &Output, code: i32) -> String {
    assert_eq!((output.status.code(), &*output.stderr), (Some(code), &b""[..]));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer.as_object().map(serde_json::Map::len), Some(1), "{answer}");
    answer["error"].as_str().expect("a text").to_owned()
}

#[test]
fn errors_are_json_with_json() {
    let dir = TestDir::new();
    let server = started(&dir);
    let unknown = json_error(&ask(&dir, &["evict", "--json", "nobody"]), 1);
    assert_eq!(unknown, "nobody: no client has this id, address or name");
    assert!(json_error(&ask(&dir, &["recall", "--json", "/x"]), 1).contains("no export holds it"));
    let ended: Value =
        serde_json::from_str(&stdout_of(&ask(&dir, &["grace", "end", "--json"]))).expect("JSON");
    assert!(ended["grace-ended"].is_null() && ended["version"] == 1, "{ended}");
    server.stop();
    for words in [&["status", "--json"][..], &["grace", "end", "--json"]] {
        assert!(json_error(&ask(&dir, words), 1).contains("no server answers at"));
    }
    let file = dir.file("enfys.toml", "portmap = 1\n").display().to_string();
    let wrong = json_error(&run(&["check-config", "--json", &file]), 1);
    assert_eq!(wrong, format!("{file}:1: `portmap`: expected true or false, found integer `1`"));
    let usage = |words: &[&str]| json_error(&run(words), 2);
    assert_eq!(usage(&["status", "--json", "--wacth"]), "unexpected argument '--wacth' found");
    assert_eq!(usage(&["evict", "--json"]), "the following required arguments were not provided: <CLIENT>");
    for (value, expected) in [("0", "expected at least 1"), ("x", "expected a whole number of seconds")] {
        assert_eq!(
            usage(&["status", "--json", "--watch", value]),
            format!("invalid value '{value}' for '--watch <SECONDS>': {expected}")
        );
    }
}

#[test]
fn the_control_socket_is_private_and_removed_with_the_server() {
    let dir = TestDir::new();
    let server = started(&dir);
    let socket = dir.path("state").join("control.sock");
    assert_eq!(std::fs::symlink_metadata(&socket).unwrap().mode() & 0o777, 0o600);
    // A killed server leaves its socket, and the next one replaces it.
    server.kill();
    let why = refusal(&ask(&dir, &["status"]));
    let socket_text = socket.display().to_string();
    assert!(
        why.contains(&socket_text) && why.contains("the socket is left from a server that has ended"),
        "{why}"
    );
    let server = Server::start(&dir, &with(&dir, &[&dir.path("export")]));
    status(&dir);
    server.stop();
    assert!(!socket.exists());
    let why = refusal(&ask(&dir, &["status"]));
    assert!(why.contains(&socket_text) && why.contains("no such socket"), "{why}");
}

#[test]
fn another_control_socket_is_selected_by_path_and_configuration() {
    let dir = TestDir::new();
    let socket = dir.path("elsewhere.sock");
    let socket_text = socket.display().to_string();
    let arguments = ["serve", "--memory", "--listen", "127.0.0.1:0", "--control", &socket_text];
    let server = Server::start(&dir, &arguments);
    stdout_of(&run(&["status", "--control", &socket_text]));
    let text = format!("[control]\nsocket = \"{socket_text}\"\n[[export]]\nmemory = true\n");
    let config = dir.file("enfys.toml", &text);
    stdout_of(&run(&["status".as_ref(), "--config".as_ref(), config.as_path()]));
    // Two servers cannot share a socket.
    let why = refusal(&run(&arguments));
    assert!(why.contains(&socket_text) && why.contains("another server uses it"), "{why}");
    stdout_of(&run(&["status", "--control", &socket_text]));
    server.stop();
}

/// Sends these bytes to the socket; returns the response.
fn exchange(socket: &Path, bytes: &[u8]) -> String {
    use std::io::{Read, Write};
    let mut stream = UnixStream::connect(socket).expect("it listens");
    // A request that is too long is not read to its end.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn an_invalid_request_is_refused_without_effect() {
    let dir = TestDir::new();
    let socket = dir.path("s");
    let socket_text = socket.display().to_string();
    let arguments = ["serve", "--memory", "--listen", "127.0.0.1:0", "--control", &socket_text];
    let server = Server::start(&dir, &arguments);
    let other = exchange(&socket, b"{\"version\":2,\"command\":\"future\",\"with\":[1]}\n");
    assert!(other.contains("speaks version 1 of the control protocol, not 2"), "{other}");
    for wrong in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"{\"version\":1,\"command\":\"format\"}\n", b"\n", b"", b"\xff\n"]
    {
        let answer = exchange(&socket, wrong);
        assert!(answer.contains("not understood"), "{answer}");
    }
    exchange(&socket, &vec![b'['; 1 << 20]);
    // Silent connections block others for a limited time only.
    let silent: Vec<_> = (0..20).map(|_| UnixStream::connect(&socket).expect("it listens")).collect();
    drop(silent);
    stdout_of(&run(&["status", "--control", &socket_text]));
    server.stop();
}
