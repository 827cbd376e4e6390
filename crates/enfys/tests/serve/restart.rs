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
