//! A server with few file descriptors: one client cannot exhaust them for others.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::client::{Client, Client4};
use crate::server::{ENFYS, Server, TestDir, with};
use crate::status::{ask, status};

/// The server's limit of descriptors.
const FEW: usize = 512;

/// Exports whose caches together could hold more files than there are descriptors.
const EXPORTS: usize = 5;

/// Starts a server with [`FEW`] descriptors.
fn started(dir: &TestDir, exports: &[&Path]) -> Server {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {FEW}; exec \"$@\""), "sh", ENFYS]);
    command.args(with(dir, exports));
    Server::spawn(dir, command)
}

/// Creates files that every user may change; returns their names.
fn files(directory: &Path, count: usize) -> Vec<String> {
    let names: Vec<_> = (0..count).map(|number| format!("file{number}")).collect();
    for name in &names {
        std::fs::write(directory.join(name), name).expect("write");
        std::fs::set_permissions(directory.join(name), crate::server::mode(0o666)).expect("mode");
    }
    names
}

fn descriptors_of(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("the server runs").count()
}

/// Asserts that a new client works, and that `enfys status` and `evict` do.
#[track_caller]
fn assert_others_are_served(dir: &TestDir, server: &Server, path: &str, evicted: Option<&str>) {
    for number in 0..4 {
        let mut newcomer = Client::connect(server.address);
        let root = newcomer.mount(path).expect("mounted");
        let file = newcomer.create(root, &format!("new{number}")).expect("created");
        assert_eq!(newcomer.read(file).expect("read"), b"");
    }
    assert_eq!(status(dir)["totals"]["clients"], usize::from(evicted.is_some()));
    if let Some(name) = evicted {
        let answer = ask(dir, &["evict", name]);
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    }
    assert!(!server.log().contains("cannot accept"), "{}", server.log());
    assert!(descriptors_of(server) < FEW, "{}", descriptors_of(server));
}

#[test]
fn five_exports_leave_descriptors_for_new_connections() {
    let dir = TestDir::new();
    let mut names = Vec::new();
    let exports: Vec<PathBuf> = (0..EXPORTS)
        .map(|number| {
            let directory = dir.directory(&format!("export{number}"));
            names = files(&directory, 150);
            format!("{}:/export{number}", directory.display()).into()
        })
        .collect();
    let server = started(&dir, &exports.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    let mut client = Client::connect(server.address);
    for number in 0..EXPORTS {
        let root = client.mount(&format!("/export{number}")).expect("mounted");
        for name in &names {
            let file = client.lookup(root, name).expect("found");
            assert_eq!(client.read(file).expect("read"), name.as_bytes());
        }
    }
    assert_others_are_served(&dir, &server, "/export0", None);
    server.stop();
}

#[test]
fn opens_of_one_client_leave_descriptors_for_others() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let names = files(&export, 600);
    let server = started(&dir, &[&export]);
    let mut greedy = Client4::connect(server.address);
    greedy.open_all("export", &names[..225]).expect("as many as the attack had");
    assert_others_are_served(&dir, &server, "/export", Some("test client"));
    let mut greedy = Client4::connect(server.address);
    greedy.open_all("export", &names).expect("more than the server may have descriptors");
    assert_eq!(status(&dir)["totals"]["opens"], names.len());
    // Open files can be read and removed.
    let mut other = Client::connect(server.address);
    let root = other.mount("/export").expect("mounted");
    for name in &names {
        let file = other.lookup(root, name).expect("found");
        assert_eq!(other.read(file).expect("read"), name.as_bytes());
    }
    server.stop();
}

#[test]
fn one_address_leaves_connections_to_others() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let server = started(&dir, &[&export]);
    let mut held = Vec::new();
    // The server closes connections over its limits.
    for _ in 0..FEW {
        held.push(std::net::TcpStream::connect(server.address).expect("the server listens"));
    }
    let mut other = Client::connect_from(server.address, [127, 0, 0, 2]);
    let root = other.mount("/export").expect("mounted");
    other.create(root, "new").expect("created");
    assert_eq!(status(&dir)["totals"]["clients"], 0);
    assert!(descriptors_of(&server) < FEW);
    server.stop();
}
