//! What the log says of clients and of starts.

use std::net::TcpListener;

use crate::client::{Client, Client4};
use crate::libnfs;
use crate::server::{Place, Server, refusal, run, with};
use crate::status::{ask, said, status};

/// A server of one directory with a file in it.
fn started(place: &Place) -> Server {
    let export = place.directory("export");
    let server = Server::start(place, &with(place, &[&export]));
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    client.create(root, "file").unwrap();
    server
}

/// Lines that have all of these.
fn lines(server: &Server, parts: &[&str]) -> Vec<String> {
    let log = server.log();
    let wanted = log.lines().filter(|line| parts.iter().all(|part| line.contains(part)));
    wanted.map(str::to_owned).collect()
}

#[test]
fn clients_are_logged_by_name_and_version_when_they_come_use_an_export_and_leave() {
    const NAME: &str = "Linux NFSv4.2 host";
    let place = Place::new();
    let server = started(&place);
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
    // Over another connection, by another session: the same client.
    let mut again = Client4::in_minor(server.address, "other", 1);
    again.open("export", "file").unwrap();
    assert_eq!(lines(&server, &["export in use ", "name=\"other\" version=4.1 "]).len(), 1);

    let id = status(&place)["clients"][0]["id"].as_str().unwrap().to_owned();
    said(&ask(&place, &["evict", &id]));
    let left = lines(&server, &["client left ", &named, "reason=\"evicted\"", &format!("client={id}")]);
    assert_eq!(left.len(), 1, "{}", server.log());
    server.stop();
}

#[test]
fn clients_of_version_4_0_are_logged_too() {
    if !libnfs::is_installed() {
        return;
    }
    let place = Place::new();
    let server = started(&place);
    libnfs::succeeds("nfs-cat", &[&libnfs::url(&server, "/file", 4)]);
    let shown = status(&place)["clients"][0].clone();
    assert_eq!(shown["protocol"], "4.0");
    let named = format!("name=\"{}\" version=4.0 ", shown["name"].as_str().unwrap());
    for event in ["client confirmed ", "export in use "] {
        assert_eq!(lines(&server, &[event, &named]).len(), 1, "{event}: {}", server.log());
    }
    said(&ask(&place, &["evict", shown["id"].as_str().unwrap()]));
    assert_eq!(lines(&server, &["client left ", &named]).len(), 1, "{}", server.log());
    server.stop();
}

#[test]
fn no_name_of_a_client_writes_a_line_of_its_own() {
    let place = Place::new();
    let server = started(&place);
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
fn the_first_start_after_one_that_failed_misses_nothing() {
    let place = Place::new();
    let export = place.directory("export");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let state = place.path("state");
    let arguments = [
        "serve".as_ref(),
        "--listen".as_ref(),
        address.as_ref(),
        "--state-dir".as_ref(),
        state.as_os_str(),
        export.as_os_str(),
    ];
    assert!(refusal(&run(&arguments)).contains("the port is in use"));
    let server = Server::start(&place, &with(&place, &[&export]));
    assert!(!server.log().contains("state.log"), "{}", server.log());
    server.stop();
    // One that is lost is missed.
    std::fs::remove_file(state.join("state.log")).unwrap();
    let server = Server::start(&place, &with(&place, &[&export]));
    server.await_log(0, "state.log: missing: clients of the previous server cannot reclaim");
    server.stop();
}
