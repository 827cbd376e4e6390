//! Under a service manager: sockets passed at the start, and what is said back.

use std::collections::BTreeMap;
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
    assert!(said.starts_with("socket 0 of the service manager is not a listening TCP socket"), "{said}");
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

const UNIT: &str = include_str!("../../../../contrib/enfys.service");

/// The options of the unit; one that is given several times has all values.
fn options() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut options = BTreeMap::<_, Vec<_>>::new();
    for (name, value) in UNIT.lines().filter(|line| !line.starts_with('#')).filter_map(|l| l.split_once('='))
    {
        options.entry(name).or_default().push(value);
    }
    options
}

// systemd.exec(5), systemd.resource-control(5): what takes files, users, devices or the network from a service.
#[test]
fn the_unit_neither_hides_exports_nor_makes_them_read_only() {
    let options = options();
    for hiding in [
        "BindPaths",
        "BindReadOnlyPaths",
        "DeviceAllow",
        "DevicePolicy",
        "DynamicUser",
        "ExecPaths",
        "IPAddressDeny",
        "InaccessiblePaths",
        "MountImages",
        "NoExecPaths",
        "PrivateDevices",
        "PrivateNetwork",
        "PrivateUsers",
        "ProtectHome",
        "ReadOnlyPaths",
        "RestrictFileSystems",
        "RestrictSUIDSGID",
        "RootDirectory",
        "RootImage",
        "TemporaryFileSystem",
        "User",
    ] {
        assert!(!options.contains_key(hiding), "{hiding} takes something from exports or from callers");
    }
    // `strict` would make every export read-only; `full` does so below /usr, /boot, /efi and /etc alone.
    assert_eq!(options["ProtectSystem"], ["full"]);
    // Exports below /tmp and /var/tmp have to be asked for, and the unit says how.
    assert_eq!(options["PrivateTmp"], ["true"]);
    assert!(UNIT.contains("set PrivateTmp=false") && UNIT.contains("name it in ReadWritePaths="));
    assert_eq!(options["ProtectHostname"], ["true"]);
    let families: Vec<_> = options["RestrictAddressFamilies"][0].split(' ').collect();
    assert_eq!(families, ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"]);
    let calls: Vec<_> = options["SystemCallFilter"].iter().flat_map(|value| value.split(' ')).collect();
    for needed in ["@system-service", "open_by_handle_at", "fanotify_init", "fanotify_mark", "seccomp"] {
        assert!(calls.contains(&needed), "{needed}");
    }
}

#[test]
fn the_unit_is_exposed_little_and_gives_a_reason_for_each_remaining_point() {
    const LIMIT: f64 = 4.0;
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/enfys.service");
    let analyze = |arguments: &[&str]| Command::new("systemd-analyze").args(arguments).arg(unit).output();
    let output = match analyze(&["--no-pager", "security", "--offline=true"]) {
        Ok(output) if output.status.success() => output,
        other => return println!("skipped: no systemd-analyze that judges a file: {other:?}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let overall =
        said.lines().find_map(|line| line.split("Overall exposure level for enfys.service: ").nth(1));
    let level: f64 = overall.and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("a level");
    assert!(level <= LIMIT, "{said}");
    for point in said.lines().filter_map(|line| line.strip_prefix("✗ ")) {
        let name = point.split('=').next().expect("an option");
        assert!(UNIT.contains(name), "the unit gives no reason for: {point}");
    }
}
