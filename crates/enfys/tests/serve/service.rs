//! Under a service manager: sockets passed at the start, and what is said back.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::client::Client;
use crate::server::{ENFYS, Place, Server, refusal};

/// Becomes the server with its standard input as the one passed socket, as sd_listen_fds(3) describes it.
const PASS_STDIN: &str = r#"LISTEN_FDS=1 LISTEN_PID=$$ exec "$@" 3<&0 </dev/null"#;

fn activated(socket: impl Into<OwnedFd>, more: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", PASS_STDIN, "sh", ENFYS, "serve", "--memory"])
        .args(more)
        .stdin(Stdio::from(socket.into()));
    command
}

#[test]
fn a_passed_socket_is_served_in_place_of_a_bound_one() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Somebody who connected before the server was there.
    let mut early = Client::connect(address);
    let server = Server::spawn(&place, activated(listener, &[]));
    assert_eq!(server.address, address);
    early.mount("/export").unwrap();
    Client::connect(address).mount("/export").unwrap();
    server.stop();
}

#[test]
fn a_passed_socket_that_is_no_stream_is_named() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let output = activated(socket, &[]).output().unwrap();
    let said = refusal(&output);
    assert!(said.starts_with("socket 0 passed by the service manager is no listening TCP socket"), "{said}");
}

/// The next message, in lines.
fn next(socket: &UnixDatagram) -> Vec<String> {
    let mut message = [0; 4096];
    let length = socket.recv(&mut message).expect("a message");
    let text = String::from_utf8(message[..length].to_vec()).expect("text");
    text.lines().map(String::from).collect()
}

#[test]
fn the_service_manager_is_told_of_readiness_reloads_and_the_end() {
    let place = Place::new();
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = Command::new(ENFYS);
    command.args(["serve", "--memory", "--listen", "127.0.0.1:0"]).env("NOTIFY_SOCKET", &path);
    let mut server = Server::spawn(&place, command);
    assert_eq!(next(&socket), ["READY=1"]);
    server.signal(Signal::HUP);
    let reloading = next(&socket);
    assert_eq!(reloading[0], "RELOADING=1");
    let moment = reloading[1].strip_prefix("MONOTONIC_USEC=").expect("when");
    assert!(moment.parse::<u64>().unwrap() > 0);
    assert_eq!(next(&socket), ["READY=1"]);
    server.signal(Signal::TERM);
    assert_eq!(next(&socket), ["STOPPING=1"]);
    assert!(server.wait().success());
}
