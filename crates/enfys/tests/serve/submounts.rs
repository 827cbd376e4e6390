//! Other file systems that are mounted inside of an export.

use std::path::{Path, PathBuf};

use protocol::mount::MountStat;
use protocol::nfs3::NfsStat;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::types::{Component, Status};

use crate::client::{Client, Client4};
use crate::reload::Mounted;
use crate::server::{Place, Server};

/// A directory `data` to export, and `data/disk` in it to mount something on.
fn directories(place: &Place) -> (PathBuf, PathBuf) {
    (place.directory("data"), place.directory("data/disk"))
}

/// A server with a configuration.
fn start(place: &Place, exports: &str) -> Server {
    let state = place.path("state");
    let text = format!("listen = ['127.0.0.1:0']\nstate-dir = '{}'\n{exports}", state.display());
    let config = place.file("enfys.toml", &text);
    Server::start(place, &[Path::new("serve"), Path::new("--config"), &config])
}

fn lookup(name: &'static str) -> Op {
    Op::Lookup(LookupArgs { name: Component::from_static(name.as_bytes()) })
}

#[test]
fn what_is_mounted_inside_is_hidden_and_the_log_says_so_once() {
    let place = Place::new();
    let (data, disk) = directories(&place);
    let Some(_mounted) = Mounted::on(&disk) else { return };
    std::fs::write(disk.join("inside"), b"another file system's").unwrap();
    let data_export = format!("[[export]]\npath = '{}'\nsubmounts = 'hide'\n", data.display());
    // What the log advises.
    let disk_export = format!("[[export]]\npath = '{}'\npseudo = '/disk'\n", disk.display());
    let server = start(&place, &format!("{data_export}{disk_export}"));
    let mut client = Client::connect(server.address);
    let mut client4 = Client4::connect(server.address);
    let root = client.mount("/export").unwrap();
    for _ in 0..2 {
        assert_eq!(client.lookup(root, "disk").unwrap_err(), NfsStat::ACCES);
        assert_eq!(client.mount("/export/disk").unwrap_err(), MountStat::ACCES);
        let into = vec![Op::PutRootFh, lookup("export"), lookup("disk")];
        assert_eq!(client4.run(into).unwrap_err(), Status::ACCESS);
    }
    let log = server.log();
    let said: Vec<_> = log.lines().filter(|line| line.contains("is mounted inside an export")).collect();
    assert_eq!(said.len(), 1, "{log}");
    let names_it = said[0].contains(disk.to_str().unwrap()) && said[0].contains("[[export]] of its own");
    assert!(names_it, "{log}");
    let own = client.mount("/disk").unwrap();
    client.lookup(own, "inside").unwrap();
    assert_ne!(client.getattr(own).unwrap().fsid, client.getattr(root).unwrap().fsid);
    server.stop();
}
