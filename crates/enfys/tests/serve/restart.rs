//! NFSv4 clients after a crash or an orderly stop of the server.

use std::time::Instant;

use protocol::nfs4::types::Status;

use serde_json::Value;

use crate::client::{Client, Client4};
use crate::libnfs;
use crate::metrics::scrape;
use crate::server::{Server, TestDir, with};
use crate::status::{ask, status, stdout_of};

const CLIENTS: usize = 1000;
/// Opens of each client, in one compound.
const OPENS: usize = 100;

#[test]
fn a_thousand_clients_with_a_hundred_opens_each_can_reclaim() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let arguments = with(&dir, &[&export]);
    let server = Server::start(&dir, &arguments);
    let mut maker = Client::connect(server.address);
    let root = maker.mount("/export").unwrap();
    maker.create(root, "file").unwrap();
    let name = |number: usize| format!("client {number}");
    let mut file = None;
    for number in 0..CLIENTS {
        let mut client = Client4::named(server.address, &name(number));
        client.complete();
        file = Some(client.open_often("export", "file", OPENS).unwrap());
    }
    assert_eq!(status(&dir)["totals"]["opens"], CLIENTS * OPENS);
    server.kill();

    let killed = Instant::now();
    let server = Server::start(&dir, &arguments);
    let mut maker = Client::connect(server.address);
    maker.getattr(root).unwrap();
    println!("the first request is served {:?} after the start", killed.elapsed());
    assert_eq!(status(&dir)["grace"]["clients_waited_for"], CLIENTS);

    let mut stranger = Client4::connect(server.address);
    assert_eq!(stranger.open("export", "file"), Err(Status::GRACE));
    let mut client = Client4::named(server.address, &name(7));
    let file = file.expect("a handle");
    assert_eq!(client.reclaim(file, OPENS), Ok(()));
    client.complete();
    let shown = status(&dir);
    assert_eq!(
        (&shown["totals"]["opens"], &shown["grace"]["clients_waited_for"]),
        (&OPENS.into(), &(CLIENTS - 1).into())
    );
    assert!(ask(&dir, &["grace", "end"]).status.success());
    stranger.open("export", "file").unwrap();
    server.kill();

    // The server does not wait again for clients that did not return in the last grace period.
    let server = Server::start(&dir, &arguments);
    assert_eq!(status(&dir)["grace"]["clients_waited_for"], 2);
    let mut late = Client4::named(server.address, &name(8));
    assert_eq!(late.reclaim(file, 1), Err(Status::NO_GRACE));
    server.stop();
}

/// Returns the number of sleeps of the state log's thread.
fn sleeps_of_log(server: &Server) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("the server runs");
    let read =
        |task: &std::path::Path, file: &str| std::fs::read_to_string(task.join(file)).expect("a thread");
    let mut threads = tasks.map(|task| task.expect("a thread").path());
    let log = threads.find(|task| read(task, "comm").trim() == "state log").expect("its thread");
    let status = read(&log, "status");
    let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    sleeps.expect("the field is there").trim().parse().expect("a number")
}

#[test]
fn records_of_clients_that_arrive_one_by_one_are_written_without_another_thread() {
    const CLIENTS: u64 = 512;
    // In memory, syncs are short.
    let dir = TestDir::in_memory();
    let arguments = with(&dir, &[&dir.directory("export")]);
    let server = Server::start(&dir, &arguments);
    let first = Client4::connect(server.address);
    let before = sleeps_of_log(&server);
    (0..CLIENTS).fold(first, |client, number| client.followed_by(&format!("client {number}")));
    let sleeps = sleeps_of_log(&server) - before;
    println!("{sleeps} sleeps for {CLIENTS} clients");
    // The thread writes for the first 32 clients, and for as many after each slow sync.
    assert!(sleeps < CLIENTS / 2, "{sleeps} for {CLIENTS} clients");
    server.kill();
    let _server = Server::start(&dir, &arguments);
    assert_eq!(status(&dir)["grace"]["clients_waited_for"], CLIENTS + 1, "each has its record");
}

/// Starts a server with a file `file`, and metrics.
fn with_metrics(dir: &TestDir) -> (Server, Vec<String>) {
    let metrics = ["--metrics".as_ref(), "127.0.0.1:0".as_ref()];
    let arguments = with(dir, &[&[dir.directory("export").as_path()], &metrics[..]].concat());
    let server = Server::start(dir, &arguments);
    let mut maker = Client::connect(server.address);
    let root = maker.mount("/export").unwrap();
    maker.create(root, "file").unwrap();
    (server, arguments)
}

#[test]
fn after_an_orderly_restart_the_server_does_not_wait_for_clients_without_state() {
    let dir = TestDir::new();
    let (server, arguments) = with_metrics(&dir);
    let _idle = Client4::connect(server.address);
    // A v4.0 client that opens, reads and closes a file, and exits.
    let has_ended = libnfs::is_installed();
    if has_ended {
        libnfs::succeeds("nfs-cat", &[&libnfs::url(&server, "/file", 4)]);
        assert_eq!(status(&dir)["totals"]["clients"], 2);
    }
    server.stop();

    let from = std::fs::read_to_string(dir.path("log")).unwrap().len();
    let mut server = Server::start(&dir, &arguments);
    assert_eq!(status(&dir)["grace"], Value::Null);
    server.await_log(from, "no grace period");
    // A returning client and a new one: neither gets GRACE.
    for name in ["test client", "new client"] {
        let mut client = Client4::named(server.address, name);
        client.complete();
        assert_eq!(client.open("export", "file"), Ok(()), "{name}");
    }
    if has_ended {
        libnfs::succeeds("nfs-cat", &[&libnfs::url(&server, "/file", 4)]);
    }
    let metrics = scrape(server.metrics_address());
    assert_eq!(metrics["enfys_grace_active"], 0.0);
    assert_eq!(metrics["enfys_operation_errors_total{program=\"nfs4\",operation=\"OPEN\"}"], 0.0);
    server.stop();
}

#[test]
fn after_an_orderly_restart_the_grace_period_waits_for_holders_of_state_only() {
    const HOLDER: &str = "Linux NFSv4.2 \"host\"\n";
    let dir = TestDir::new();
    let (server, arguments) = with_metrics(&dir);
    Client4::named(server.address, "idle").complete();
    let mut holder = Client4::named(server.address, HOLDER);
    holder.complete();
    let file = holder.open_often("export", "file", 1).unwrap();
    server.stop();

    let from = std::fs::read_to_string(dir.path("log")).unwrap().len();
    let mut server = Server::start(&dir, &arguments);
    server.await_log(from, r#"clients=1 names=["Linux NFSv4.2 \"host\"\n"]"#);
    let grace = &status(&dir)["grace"];
    assert_eq!(
        (&grace["clients_waited_for"], &grace["names"][0]),
        (&1.into(), &r#"Linux NFSv4.2 \"host\"\n"#.into())
    );
    let text = stdout_of(&ask(&dir, &["status"]));
    let shown = "grace     waiting for 1 client to reclaim\n          \"Linux NFSv4.2 \\\"host\\\"\\n\"\n";
    assert!(text.contains(shown), "{text}");
    let metrics = server.metrics_address();
    let scraped = scrape(metrics);
    assert_eq!((scraped["enfys_grace_active"], scraped["enfys_grace_clients_waited_for"]), (1.0, 1.0));
    assert!(scraped["enfys_grace_left_seconds"] > 0.0);
    let named = r#"enfys_grace_client_waited_for{client="Linux NFSv4.2 \\\"host\\\"\\n"}"#;
    assert_eq!(scraped.get(named), Some(&1.0), "{scraped:#?}");

    let mut idle = Client4::named(server.address, "idle");
    idle.complete();
    assert_eq!(idle.open("export", "file"), Err(Status::GRACE));
    let mut holder = Client4::named(server.address, HOLDER);
    assert_eq!(holder.reclaim(file, 1), Ok(()));
    holder.complete();
    server.await_log(from, "grace period ended");
    assert_eq!(idle.open("export", "file"), Ok(()));
    let scraped = scrape(metrics);
    assert_eq!((scraped["enfys_grace_active"], scraped["enfys_grace_clients_waited_for"]), (0.0, 0.0));
    assert_eq!(scraped.get(named), None);
    server.stop();
}

#[test]
fn a_client_that_the_grace_period_waits_for_is_evicted_by_its_shown_name() {
    let dir = TestDir::new();
    let (server, arguments) = with_metrics(&dir);
    let mut holder = Client4::named(server.address, "holder \"of\" a file");
    holder.complete();
    let file = holder.open_often("export", "file", 1).unwrap();
    server.kill();

    let server = Server::start(&dir, &arguments);
    let shown = status(&dir)["grace"]["names"][0].as_str().unwrap().to_owned();
    assert!(!ask(&dir, &["evict", "holder"]).status.success(), "another name");
    assert_eq!(
        stdout_of(&ask(&dir, &["evict", &shown])),
        format!("evicted {shown}: it can no longer reclaim\n")
    );
    // It was the last one.
    assert_eq!(status(&dir)["grace"], Value::Null);
    let mut other = Client4::named(server.address, "other");
    other.complete();
    assert_eq!(other.open("export", "file"), Ok(()));
    let mut holder = Client4::named(server.address, "holder \"of\" a file");
    assert_eq!(holder.reclaim(file, 1), Err(Status::NO_GRACE));
    server.stop();
}
