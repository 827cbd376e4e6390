//! A state directory inside the export, as with `enfys serve ~`.

use protocol::mount::MountStat;
use protocol::nfs3::NfsStat;
use protocol::nfs4::types::Status;

use crate::client::{Client, Client4};
use crate::server::{Place, Server};

#[test]
fn a_home_directory_is_served_without_the_state_directory_in_it() {
    let place = Place::new();
    let home = place.directory("home");
    let state = home.join(".enfys");
    let arguments = [
        "serve".as_ref(),
        home.as_path(),
        "--listen".as_ref(),
        "127.0.0.1:0".as_ref(),
        "--state-dir".as_ref(),
        &state,
    ];
    let server = Server::start(&place, &arguments);
    assert!(state.join("state.log").exists(), "it is in use");
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "file").unwrap();
    assert_eq!(client.lookup(root, ".enfys").unwrap_err(), NfsStat::NOENT);
    assert_eq!(client.create(root, ".enfys").unwrap_err(), NfsStat::EXIST);
    assert_eq!(client.mount("/export/.enfys").unwrap_err(), MountStat::NOENT);
    // Another name of a file in it.
    std::fs::hard_link(state.join("state.log"), home.join("log")).unwrap();
    assert_eq!(client.lookup(root, "log").unwrap_err(), NfsStat::NOENT);
    let mut client4 = Client4::connect(server.address);
    client4.open("export", "file").unwrap();
    assert_eq!(client4.open("export", ".enfys").unwrap_err(), Status::NOENT);
    assert_eq!(client4.open("export", "log").unwrap_err(), Status::NOENT);
    server.kill();
    let server = Server::start(&place, &arguments);
    let mut client = Client::connect(server.address);
    client.getattr(file).unwrap();
    assert_eq!(client.lookup(root, ".enfys").unwrap_err(), NfsStat::NOENT);
    server.stop();
}
