//! Log lines about clients and starts.

use std::net::TcpListener;

use crate::client::{Client, Client4};
use crate::libnfs;
use crate::server::{Server, TestDir, refusal, run, with};
use crate::status::{ask, status, stdout_of};

/// Starts a server of a directory with a file.
fn started(dir: &TestDir) -> Server {
    let export = dir.directory("export");
    let server = Server::start(dir, &with(dir, &[&export]));
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    client.create(root, "file").unwrap();
    server
}

/// Returns the log lines with all of these parts.
fn lines(server: &Server, parts: &[&str]) -> Vec<String> {
    let log = server.log();
    let wanted = log.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
    wanted.map(str::to_owned).collect()
}

#[test]
fn clients_are_logged_when_confirmed_using_an_export_and_leaving() {
    const NAME: &str = "Linux NFSv4.2 host";
    let dir = TestDir::new();
    let server = started(&dir);
    assert_eq!(lines(&server, &["mounted path=\"/export\" version=3 peer=127.0.0.1:"]).len(), 1);
    assert!(!server.log().contains("suppressed"), "no line was: {}", server.log());
    let mut client = Client4::in_minor(server.address, NAME, 2);
    client.open("export", "file").unwrap();
    client.open("export", "file").unwrap();
    let named = format!("name=\"{NAME}\" version=4.2 ");
    assert_eq!(lines(&server, &["client confirmed ", &named, " peer=127.0.0.1:"]).len(), 1);
    assert_eq!(
        lines(&server, &["export in use ", &named, "export=\"/export\""]).len(),
        1,
        "{}",
        server.log()
    );
    // Another client, over another connection.
    let mut again = Client4::in_minor(server.address, "other", 1);
    again.open("export", "file").unwrap();
    assert_eq!(lines(&server, &["export in use ", "name=\"other\" version=4.1 "]).len(), 1);

    let id = status(&dir)["clients"][0]["id"].as_str().unwrap().to_owned();
    stdout_of(&ask(&dir, &["evict", &id]));
    let left = lines(&server, &["client left ", &named, "reason=\"evicted\"", &format!("client={id}")]);
    assert_eq!(left.len(), 1, "{}", server.log());
    server.stop();
}

#[test]
fn clients_of_version_4_0_are_logged_too() {
    if !libnfs::is_installed() {
        return;
    }
    let dir = TestDir::new();
    let server = started(&dir);
    libnfs::succeeds("nfs-cat", &[&libnfs::url(&server, "/file", 4)]);
    let shown = status(&dir)["clients"][0].clone();
    assert_eq!(shown["protocol"], "4.0");
    let named = format!("name=\"{}\" version=4.0 ", shown["name"].as_str().unwrap());
    for event in ["client confirmed ", "export in use "] {
        assert_eq!(lines(&server, &[event, &named]).len(), 1, "{event}: {}", server.log());
    }
    stdout_of(&ask(&dir, &["evict", shown["id"].as_str().unwrap()]));
    assert_eq!(lines(&server, &["client left ", &named]).len(), 1, "{}", server.log());
    server.stop();
}

#[test]
fn names_of_clients_cannot_forge_log_lines() {
    let dir = TestDir::new();
    let server = started(&dir);
    let name = "x\" peer=1.2.3.4\n2026-01-01T00:00:00Z  WARN forged\r\x1b[31m";
    Client4::named(server.address, name).complete();
    assert!(Client::connect(server.address).mount("/no\nWARN forged\x1b").is_err());
    let log = server.log();
    assert!(
        log.contains(
            r#"name="x\" peer=1.2.3.4\n2026-01-01T00:00:00Z  WARN forged\r\u{1b}[31m" version=4.1 "#
        ),
        "{log}"
    );
    assert!(log.contains(r#"mount refused path="/no\nWARN forged\u{1b}" version=3"#), "{log}");
    assert!(log.lines().all(|line| line.starts_with("20") && !line.contains('\u{1b}')), "{log}");
    server.stop();
}

#[test]
fn a_start_after_a_failed_one_reports_no_missing_log() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let state = dir.path("state");
    let arguments = [
        "serve".as_ref(),
        "--listen".as_ref(),
        address.as_ref(),
        "--state-dir".as_ref(),
        state.as_os_str(),
        export.as_os_str(),
    ];
    assert!(refusal(&run(&arguments)).contains("the port is in use"));
    let server = Server::start(&dir, &with(&dir, &[&export]));
    assert!(!server.log().contains("state.log"), "{}", server.log());
    server.stop();
    // A lost log is reported.
    std::fs::remove_file(state.join("state.log")).unwrap();
    let server = Server::start(&dir, &with(&dir, &[&export]));
    server.await_log(0, "state.log: missing: clients of the previous server cannot reclaim");
    server.stop();
}
