//! A state directory inside an export, as with `enfys serve ~`.

use protocol::mount::MountStat;
use protocol::nfs3::NfsStat;
use protocol::nfs4::types::Status;

use crate::client::{Client, Client4};
use crate::server::{Server, TestDir};

#[test]
fn a_state_directory_inside_an_export_is_hidden() {
    let dir = TestDir::new();
    let home = dir.directory("home");
    let state = home.join(".enfys");
    let arguments = [
        "serve".as_ref(),
        home.as_path(),
        "--listen".as_ref(),
        "127.0.0.1:0".as_ref(),
        "--state-dir".as_ref(),
        &state,
    ];
    let server = Server::start(&dir, &arguments);
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "file").unwrap();
    assert_eq!(client.lookup(root, ".enfys").unwrap_err(), NfsStat::NOENT);
    assert_eq!(client.create(root, ".enfys").unwrap_err(), NfsStat::EXIST);
    assert_eq!(client.mount("/export/.enfys").unwrap_err(), MountStat::NOENT);
    let mut client4 = Client4::connect(server.address);
    client4.open("export", "file").unwrap();
    // A hard link to a file in it, which is there since the server has answered a client of version 4.
    std::fs::hard_link(state.join("state.log"), home.join("log")).unwrap();
    assert_eq!(client.lookup(root, "log").unwrap_err(), NfsStat::NOENT);
    assert_eq!(client4.open("export", ".enfys").unwrap_err(), Status::NOENT);
    assert_eq!(client4.open("export", "log").unwrap_err(), Status::NOENT);
    server.kill();
    let server = Server::start(&dir, &arguments);
    let mut client = Client::connect(server.address);
    client.getattr(file).unwrap();
    assert_eq!(client.lookup(root, ".enfys").unwrap_err(), NfsStat::NOENT);
    server.stop();
}
