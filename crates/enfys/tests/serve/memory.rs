//! Memory of an idle server.

use protocol::nfs3::{NfsStat, StableHow};

use crate::client::Client;
use crate::server::{Server, TestDir, with};

/// Maximum number of resident bytes of an idle server.
pub const AT_REST: u64 = 20_000_000;

/// Returns a field of /proc/PID/status in bytes.
pub fn status(pid: u32, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field is there");
    let kilobytes = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().expect("a number") * 1024
}

/// Idle connections, and most bytes of each: 5,000 of them, as in `cargo xtask peers idle`, fit into 100 MB together with an idle
/// server.
const IDLE: u64 = 500;
const IDLE_BYTES: u64 = (100_000_000 - AT_REST) / 5_000;

#[test]
fn idle_connections_take_little_memory() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let server = Server::start(&dir, &with(&dir, &[export.as_path()]));
    let connect = || {
        let mut client = Client::connect(server.address);
        client.mount("/export").unwrap();
        client
    };
    let first = connect();
    let before = status(server.pid(), "VmRSS");
    let others: Vec<_> = (1..IDLE).map(|_| connect()).collect();
    let grown = status(server.pid(), "VmRSS").saturating_sub(before);
    println!("{} bytes a connection", grown / IDLE);
    assert!(grown < IDLE * IDLE_BYTES, "{grown} bytes for {IDLE} connections");
    drop((first, others));
    server.stop();
}

#[test]
fn a_file_system_in_memory_has_the_given_size_and_logs_once_that_it_is_full() {
    let dir = TestDir::new();
    let server = Server::start(&dir, &["serve", "--memory=64KiB", "--listen", "127.0.0.1:0"]);
    assert!(
        server.startup_message.starts_with("serving memory (64 KiB) as /export: "),
        "{}",
        server.startup_message
    );
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "file").unwrap();
    let mut write = |page: u64| client.write_at(file, page * 4096, &[1; 4096], StableHow::FileSync);
    let written = (0..100).find(|page| write(*page).is_err()).expect("it becomes full");
    assert!((8..16).contains(&written), "{written} pages in 64 KiB");
    for page in 100..103 {
        assert_eq!(write(page).unwrap_err(), NfsStat::NOSPC);
    }
    server.await_log(0, "file system in memory is full");
    let log = server.log();
    assert_eq!(log.matches("file system in memory is full").count(), 1, "{log}");
    assert!(log.contains("64 KiB"), "{log}");
    server.stop();
}

#[test]
fn an_idle_server_takes_little_memory() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    for what in ["--memory".as_ref(), export.as_path()] {
        // As on a larger machine: no core may cost much.
        let arguments = with(&dir, &[what, "--cores".as_ref(), "16".as_ref()]);
        let server = Server::start(&dir, &arguments);
        let mut client = Client::connect(server.address);
        client.mount("/export").unwrap();
        drop(client);
        let resident = status(server.pid(), "VmRSS");
        println!("{resident} bytes resident, {} of them anonymous", status(server.pid(), "RssAnon"));
        assert!(resident < AT_REST, "{resident} bytes");
        server.stop();
    }
}
