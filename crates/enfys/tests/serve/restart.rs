//! What clients of version 4 find after the server was killed.

use std::time::Instant;

use protocol::nfs4::types::Status;

use crate::client::{Client, Client4};
use crate::server::{Place, Server, with};
use crate::status::{ask, status};

const CLIENTS: usize = 1000;
/// Of each client; in one compound.
const OPENS: usize = 100;

#[test]
fn a_thousand_clients_of_a_hundred_opens_are_known_and_reclaim() {
    let place = Place::new();
    let export = place.directory("export");
    let arguments = with(&place, &[&export]);
    let server = Server::start(&place, &arguments);
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
    assert_eq!(status(&place)["totals"]["opens"], CLIENTS * OPENS);
    server.kill();

    let killed = Instant::now();
    let server = Server::start(&place, &arguments);
    let mut maker = Client::connect(server.address);
    maker.getattr(root).unwrap();
    println!("the first request is served {:?} behind the start", killed.elapsed());
    assert_eq!(status(&place)["grace"]["clients_waited_for"], CLIENTS);

    let mut stranger = Client4::connect(server.address);
    assert_eq!(stranger.open("export", "file"), Err(Status::GRACE));
    let mut client = Client4::named(server.address, &name(7));
    let file = file.expect("a handle");
    assert_eq!(client.reclaim(file, OPENS), Ok(()));
    client.complete();
    let shown = status(&place);
    assert_eq!(
        (&shown["totals"]["opens"], &shown["grace"]["clients_waited_for"]),
        (&OPENS.into(), &(CLIENTS - 1).into())
    );
    assert!(ask(&place, &["grace", "end"]).status.success());
    stranger.open("export", "file").unwrap();
    server.kill();

    // Who was away when the period ended is not waited for again.
    let server = Server::start(&place, &arguments);
    assert_eq!(status(&place)["grace"]["clients_waited_for"], 2);
    let mut late = Client4::named(server.address, &name(8));
    assert_eq!(late.reclaim(file, 1), Err(Status::NO_GRACE));
    server.stop();
}

/// Times that the thread which writes the log of state has gone to sleep.
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
fn the_records_of_clients_that_come_one_by_one_wait_for_no_other_thread() {
    const CLIENTS: u64 = 512;
    // Where syncs are short, whatever disk the test runs on.
    let place = Place::in_memory();
    let arguments = with(&place, &[&place.directory("export")]);
    let server = Server::start(&place, &arguments);
    let first = Client4::connect(server.address);
    let before = sleeps_of_log(&server);
    (0..CLIENTS).fold(first, |client, number| client.followed_by(&format!("client {number}")));
    let sleeps = sleeps_of_log(&server) - before;
    println!("{sleeps} sleeps for {CLIENTS} clients");
    // It serves the first 32 clients, and as many behind each sync that the machine holds up.
    assert!(sleeps < CLIENTS / 2, "{sleeps} for {CLIENTS} clients");
    server.kill();
    let _server = Server::start(&place, &arguments);
    assert_eq!(status(&place)["grace"]["clients_waited_for"], CLIENTS + 1, "each has its record");
}
