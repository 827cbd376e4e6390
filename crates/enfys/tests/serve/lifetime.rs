//! Starts, stops and crashes, and the data that survive them.

use std::ffi::OsStr;
use std::process::Command;

use protocol::nfs3::{NfsStat, StableHow};
use rustix::process::Signal;

use crate::client::{Client, Client4};
use crate::server::{ENFYS, Server, TestDir, with};

#[test]
fn mount_commands_have_the_real_ports() {
    let dir = TestDir::new();
    let server = Server::start(&dir, &["serve", "--memory", "--listen", "127.0.0.1:0"]);
    let port = server.address.port();
    assert_ne!(port, 0);
    let expected = format!(
        "serving memory (1 GiB) as /export: read-write, root squashed, for any client that reaches it\n\
         \x20 mount -t nfs -o vers=4.1,port={port} 127.0.0.1:/export /mnt\n\
         \x20 mount -t nfs -o vers=3,tcp,port={port},mountport={port},mountproto=tcp,nolock 127.0.0.1:/export /mnt\n\
         \x20 'nfs://127.0.0.1/export?version=3&nfsport={port}&mountport={port}'\n"
    );
    assert_eq!(server.startup_message, expected);
    server.stop();
}

/// Returns a running server and its client.
fn start(dir: &TestDir, arguments: &[impl AsRef<OsStr>]) -> (Server, Client) {
    let server = Server::start(dir, arguments);
    let client = Client::connect(server.address);
    (server, client)
}

/// Starts, stops, kills and restarts a server, with a prefix to its command line.
fn check_files_and_handles(before: &[&str]) {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let start = || {
        let words: Vec<String> = before.iter().map(ToString::to_string).chain([ENFYS.to_owned()]).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(with(&dir, &[&export]));
        let server = Server::spawn(&dir, command);
        // Otherwise, the test without privileges would be meaningless.
        assert!(before.is_empty() || server.log().contains("handles=\"index\""), "{}", server.log());
        let client = Client::connect(server.address);
        (server, client)
    };
    let (server, mut client) = start();
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "file").unwrap();
    client.write(file, b"lasting", StableHow::FileSync).unwrap();
    server.stop();
    assert_eq!(std::fs::read(export.join("file")).unwrap(), b"lasting");

    let (server, mut client) = start();
    assert_eq!(client.read(file).unwrap(), b"lasting");
    std::fs::rename(export.join("file"), export.join("renamed")).unwrap();
    assert_eq!(client.read(file).unwrap(), b"lasting");
    server.kill();

    let (server, mut client) = start();
    assert_eq!(client.lookup(root, "renamed").unwrap(), file);
    assert_eq!(client.read(file).unwrap(), b"lasting");
    std::fs::remove_file(export.join("renamed")).unwrap();
    assert_eq!(client.read(file).unwrap_err(), NfsStat::STALE);
    server.stop();
}

#[test]
fn files_and_handles_survive_a_restart_and_a_crash() {
    check_files_and_handles(&[]);
}

#[test]
fn files_and_handles_survive_without_privileges() {
    // A namespace without root, in which the caller has uid 1000.
    let unshare = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"];
    let can = Command::new(unshare[0]).args(&unshare[1..]).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: no user namespaces, so that rights cannot be dropped");
        return;
    }
    check_files_and_handles(&unshare);
}

#[test]
fn a_change_repeated_after_a_crash_is_made_once() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let arguments = with(&dir, &[&export]);
    let (server, mut client) = start(&dir, &arguments);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "file").unwrap();
    server.kill();
    let (server, again) = start(&dir, &arguments);
    let mut again = again.repeats(&client);
    assert_eq!(again.create(root, "file").unwrap(), file);
    assert_eq!(again.create(root, "file").unwrap_err(), NfsStat::EXIST, "another call");
    server.kill();

    // An unreadable log counts as missing.
    std::fs::write(dir.path("state").join("replies.log"), b"something else").unwrap();
    let (server, again) = start(&dir, &arguments);
    let mut again = again.repeats(&client);
    assert_eq!(again.create(root, "file").unwrap_err(), NfsStat::EXIST);
    let reported = server.log();
    let lines: Vec<_> = reported.lines().filter(|line| line.contains("replies.log")).collect();
    assert!(
        lines.len() == 1 && lines[0].ends_with("not a reply log, or damaged: started empty"),
        "{lines:?}"
    );
    let last = again.create(root, "last").unwrap();
    server.kill();
    std::fs::remove_file(dir.path("state").join("replies.log")).unwrap();
    std::fs::create_dir(dir.path("state").join("replies.log")).unwrap();
    let server = Server::start(&dir, &arguments);
    assert!(server.log().contains("no reply log, calls that are repeated after a crash may fail"));
    assert_eq!(Client::connect(server.address).lookup(root, "last").unwrap(), last);
    server.stop();
}

#[test]
fn handles_are_stale_without_the_state_directory() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let arguments = with(&dir, &[&export]);
    let (server, mut client) = start(&dir, &arguments);
    let root = client.mount("/export").unwrap();
    client.getattr(root).unwrap();
    server.stop();
    std::fs::remove_dir_all(dir.path("state")).unwrap();
    let (server, mut client) = start(&dir, &arguments);
    assert_eq!(client.getattr(root).unwrap_err(), NfsStat::BADHANDLE);
    client.mount("/export").unwrap();
    server.stop();
}

#[test]
fn the_write_verifier_changes_where_data_may_be_lost() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let arguments = with(&dir, &[&export]);
    let (server, mut client) = start(&dir, &arguments);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "file").unwrap();
    let first = client.write(file, b"unstable", StableHow::Unstable).unwrap();
    // An orderly stop flushes everything: clients need not send data again.
    server.stop();
    let (server, mut client) = start(&dir, &arguments);
    assert_eq!(client.commit(file).unwrap(), first);
    assert_eq!(client.write(file, b"unstable", StableHow::Unstable).unwrap(), first);
    server.kill();
    let (server, mut client) = start(&dir, &arguments);
    let second = client.commit(file).unwrap();
    assert_ne!(second, first);
    // The verifier of an orderly stop is not used after a later crash.
    server.kill();
    let (server, mut client) = start(&dir, &arguments);
    let third = client.commit(file).unwrap();
    assert!(third != first && third != second);
    server.stop();
}

#[test]
fn memory_is_lost_with_the_server() {
    let dir = TestDir::new();
    let arguments = with(&dir, &["--memory".as_ref()]);
    let (server, mut client) = start(&dir, &arguments);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "file").unwrap();
    server.stop();
    let (server, mut client) = start(&dir, &arguments);
    assert_eq!(client.getattr(file).unwrap_err(), NfsStat::STALE);
    let root = client.mount("/export").unwrap();
    assert_eq!(client.lookup(root, "file").unwrap_err(), NfsStat::NOENT);
    server.stop();
}

#[test]
fn root_is_squashed_by_default() {
    if !crate::server::is_root() {
        return;
    }
    let dir = TestDir::new();
    for (options, uid, expected) in [
        (&[][..], 0, 65_534),
        (&[], 1000, 1000),
        (&["--squash", "none"], 0, 0),
        (&["--squash", "all"], 1000, 65_534),
    ] {
        let arguments = [&["serve", "--memory", "--listen", "127.0.0.1:0"], options].concat();
        let (server, mut client) = start(&dir, &arguments);
        client.uid = uid;
        let root = client.mount("/export").unwrap();
        let file = client.create(root, "file").unwrap();
        assert_eq!(client.getattr(file).unwrap().uid, expected, "{options:?}");
        server.stop();
    }
}

#[test]
fn a_read_only_export_refuses_changes() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let (server, mut client) = start(&dir, &with(&dir, &[&export, "--read-only".as_ref()]));
    let root = client.mount("/export").unwrap();
    assert_eq!(client.create(root, "file").unwrap_err(), NfsStat::ROFS);
    server.stop();
}

#[test]
fn an_interrupt_stops_in_order_and_a_second_signal_at_once() {
    let dir = TestDir::new();
    let mut server = Server::start(&dir, &["serve", "--memory", "--listen", "127.0.0.1:0"]);
    server.signal(Signal::INT);
    assert!(server.wait().success());

    // A client that reads no replies delays the stop.
    let mut server = Server::start(&dir, &["serve", "--memory", "--listen", "127.0.0.1:0"]);
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "file").unwrap();
    client.write(file, &[7; 1 << 20], StableHow::FileSync).unwrap();
    let _clogged = client.clog(file);
    let from = server.log().len();
    server.signal(Signal::TERM);
    server.await_log(from, "stopping");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(1), "{}", server.log());
    assert!(server.log()[from..].contains("second signal: stopping at once"));
}

#[test]
fn mounts_and_sessions_are_logged_without_secrets() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let (server, mut client) = start(&dir, &with(&dir, &[&export, "--log".as_ref(), "trace".as_ref()]));
    let root = client.mount("/export").unwrap();
    client.mount("/other\n").unwrap_err();
    Client4::connect(server.address);
    for expected in [
        "connection accepted",
        "mounted path=\"/export\" version=3",
        "mount refused path=\"/other\\n\" version=3",
        "client confirmed name=\"test client\" version=4.1",
        "session created",
    ] {
        server.await_log(0, expected);
    }
    let key = std::fs::read(dir.path("state/handle.key")).unwrap();
    let log = server.log();
    for secret in [&key[..], &root[..]] {
        let hexadecimal: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!log.contains(&hexadecimal) && !log.contains(&format!("{secret:?}")), "{log}");
    }
    server.stop();
}
