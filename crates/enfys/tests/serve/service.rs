//! Under a service manager: passed sockets, notifications, and the units in contrib.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::client::Client;
use crate::server::{ENFYS, Server, TestDir, refusal};

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
fn a_passed_socket_replaces_listen() {
    let dir = TestDir::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // A client that connected before the server started.
    let mut early = Client::connect(address);
    let server = Server::spawn(&dir, activated(listener, &[]));
    assert_eq!(server.address, address);
    early.mount("/export").unwrap();
    Client::connect(address).mount("/export").unwrap();
    server.stop();
}

#[test]
fn a_passed_socket_of_another_type_is_refused() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let output = activated(socket, &[]).output().unwrap();
    let output = refusal(&output);
    assert!(output.starts_with("socket 0 of the service manager is not a listening TCP socket"), "{output}");
}

/// Waits for the next notification; returns its lines.
fn next(socket: &UnixDatagram) -> Vec<String> {
    let mut message = [0; 4096];
    let length = socket.recv(&mut message).expect("a message");
    let text = String::from_utf8(message[..length].to_vec()).expect("text");
    text.lines().map(String::from).collect()
}

#[test]
fn the_service_manager_is_notified_of_start_reload_and_stop() {
    let dir = TestDir::new();
    let path = dir.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = Command::new(ENFYS);
    command.args(["serve", "--memory", "--listen", "127.0.0.1:0"]).env("NOTIFY_SOCKET", &path);
    let mut server = Server::spawn(&dir, command);
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

/// Returns the options of the unit, with all values of repeated ones.
fn options() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut options = BTreeMap::<_, Vec<_>>::new();
    for (name, value) in UNIT.lines().filter(|line| !line.starts_with('#')).filter_map(|l| l.split_once('='))
    {
        options.entry(name).or_default().push(value);
    }
    options
}

// systemd.exec(5), systemd.resource-control(5): options that restrict files, users, devices or the network.
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
        assert!(!options.contains_key(hiding), "{hiding} hides something from exports or callers");
    }
    // `strict` would make every export read-only; `full` only those below /usr, /boot, /efi and /etc.
    assert_eq!(options["ProtectSystem"], ["full"]);
    // Exports below /tmp and /var/tmp need an option, which the unit names.
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
fn the_unit_explains_each_remaining_exposure() {
    const LIMIT: f64 = 4.0;
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/enfys.service");
    let analyze = |arguments: &[&str]| Command::new("systemd-analyze").args(arguments).arg(unit).output();
    let output = match analyze(&["--no-pager", "security", "--offline=true"]) {
        Ok(output) if output.status.success() => output,
        other => return println!("skipped: no systemd-analyze that judges a file: {other:?}"),
    };
    let output = String::from_utf8_lossy(&output.stdout);
    let overall =
        output.lines().find_map(|line| line.split("Overall exposure level for enfys.service: ").nth(1));
    let level: f64 = overall.and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("a level");
    assert!(level <= LIMIT, "{output}");
    for point in output.lines().filter_map(|line| line.strip_prefix("✗ ")) {
        let name = point.split('=').next().expect("an option");
        assert!(UNIT.contains(name), "the unit gives no reason for: {point}");
    }
}
