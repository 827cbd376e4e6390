//! Persistent sessions.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::ops::session::CreateSessionFlags;
use protocol::nfs4::types::{Component, Status};
use serde_json::{Value, json};

use crate::client::Client4;
use crate::server::{Server, TestDir, with};
use crate::status::{ask, status};

/// Writes a configuration; returns the arguments of a server with it.
fn arguments(dir: &TestDir) -> Vec<String> {
    let export = dir.directory("export");
    let config = dir.file("enfys.toml", "persistent-sessions = true\n");
    with(dir, &[&export, Path::new("--config"), &config])
}

fn connect(server: &Server) -> Client4 {
    Client4::persistent(server.address)
}

fn is_persistent(client: &Client4) -> bool {
    client.granted.contains(CreateSessionFlags::PERSIST)
}

fn name(text: &'static str) -> Component {
    Component::from_static(text.as_bytes())
}

fn at_export(op: Op) -> Vec<Op> {
    vec![Op::PutRootFh, Op::Lookup(LookupArgs { name: name("export") }), Op::SaveFh, op]
}

fn mkdir() -> Vec<Op> {
    let object_type = CreateType::DIRECTORY;
    at_export(Op::Create(CreateArgs { object_type, name: name("a"), attributes: FileAttributes::default() }))
}

fn rename() -> Vec<Op> {
    at_export(Op::Rename(RenameArgs { old_name: name("a"), new_name: name("b") }))
}

fn remove() -> Vec<Op> {
    at_export(Op::Remove(RemoveArgs { target: name("b") }))
}

fn reply_log(dir: &TestDir) -> PathBuf {
    dir.path("state").join("replies.log")
}

fn state_log(dir: &TestDir) -> PathBuf {
    dir.path("state").join("state.log")
}

/// Changes the boot ID in the reply log, as a reboot would.
fn reboot(dir: &TestDir) {
    let file = std::fs::File::options().write(true).open(reply_log(dir)).unwrap();
    file.write_all_at(&[0x55; 16], 8).unwrap();
}

#[test]
fn a_change_repeated_in_its_session_after_a_crash_is_replayed() {
    let dir = TestDir::new();
    let arguments = arguments(&dir);
    let mut server = Server::start(&dir, &arguments);
    let mut client = connect(&server);
    let is_there = |name: &str| dir.path("export").join(name).exists();
    for (number, (ops, again)) in
        [(mkdir(), Status::EXIST), (rename(), Status::NOENT), (remove(), Status::NOENT)]
            .into_iter()
            .enumerate()
    {
        assert!(is_persistent(&client));
        let first = client.run(ops.clone()).unwrap();
        let there = (is_there("a"), is_there("b"));
        server.kill();
        if number > 0 {
            reboot(&dir);
        }
        server = Server::start(&dir, &arguments);
        client = client.again(server.address);
        assert_eq!(client.run(ops.clone()).unwrap(), first, "{number}");
        assert_eq!((is_there("a"), is_there("b")), there, "{number}");
        // A new request in a dead session is not executed.
        assert_eq!(client.run(ops.clone()).unwrap_err(), Status::DEADSESSION, "{number}");
        client = connect(&server);
        assert_eq!(client.run(ops).unwrap_err(), again, "{number}: asked again");
    }
    server.stop();
}

#[test]
fn sessions_are_dead_after_an_orderly_stop() {
    let dir = TestDir::new();
    let arguments = arguments(&dir);
    let server = Server::start(&dir, &arguments);
    let mut client = connect(&server);
    let first = client.run(mkdir()).unwrap();
    server.stop();
    let server = Server::start(&dir, &arguments);
    assert_eq!(client.again(server.address).run(mkdir()).unwrap(), first);
    server.stop();
}

#[test]
fn sessions_are_not_persistent_by_default() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let server = Server::start(&dir, &with(&dir, &[&export]));
    assert!(!is_persistent(&connect(&server)));
    assert_eq!(status(&dir)["persistence"], Value::Null);
    server.stop();
}

#[test]
fn persistent_sessions_are_shown() {
    let dir = TestDir::new();
    let arguments = arguments(&dir);
    let server = Server::start(&dir, &arguments);
    let client = connect(&server);
    let shown = status(&dir);
    let session = &shown["clients"][0]["sessions"][0];
    assert_eq!(session["persistent"], true);
    let places = session["slots"].as_u64().unwrap() + 1;
    assert_eq!(shown["persistence"], json!({ "written": true, "places": 16_384, "places_taken": places }));
    let counts = |shown: &Value| {
        ["persistent_sessions", "dead_sessions"].map(|of| shown["totals"][of].as_u64().unwrap())
    };
    assert_eq!(counts(&shown), [1, 0]);
    let table = String::from_utf8(ask(&dir, &["status"]).stdout).unwrap();
    assert!(table.contains(&format!(
        "\npersist   1 session, 0 of earlier servers; {places} of 16384 places in use\n"
    )));
    server.kill();
    let server = Server::start(&dir, &arguments);
    assert_eq!(counts(&status(&dir)), [0, 1]);
    drop(client);
    server.stop();
}

#[test]
fn damage_loses_the_sessions_and_is_logged_once() {
    let flipped = |bytes: &[u8], end: usize| {
        let mut bytes = bytes.to_vec();
        bytes[end - 20] ^= 1;
        Some(bytes)
    };
    let torn = |bytes: &[u8], end: usize| Some(bytes[..end - 7].to_vec());
    let other_version = |bytes: &[u8], _: usize| Some([&bytes[..7], b"\x7f", &bytes[8..]].concat());
    type Damage<'a> = &'a dyn Fn(&[u8], usize) -> Option<Vec<u8>>;
    let cases: [(Damage<'_>, &str); 5] = [
        (&flipped, "damaged in 1 places: "),
        (&|_, _| Some(Vec::new()), "empty: "),
        (&other_version, "of another version: "),
        (&torn, "torn: ignored its last "),
        (&|_, _| None, "missing: "),
    ];
    for (number, (damage, output)) in cases.into_iter().enumerate() {
        let dir = TestDir::new();
        let arguments = arguments(&dir);
        let server = Server::start(&dir, &arguments);
        let mut client = connect(&server);
        client.run(mkdir()).unwrap();
        server.kill();
        let sound = std::fs::read(state_log(&dir)).unwrap();
        // After the records are zeros for future ones.
        let end = sound.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        assert!(end < sound.len(), "no room ahead");
        match damage(&sound, end) {
            Some(bytes) => std::fs::write(state_log(&dir), bytes).unwrap(),
            None => std::fs::remove_file(state_log(&dir)).unwrap(),
        }
        let server = Server::start(&dir, &arguments);
        let reported = client.again(server.address).run(mkdir()).unwrap_err();
        // A torn tail was never acknowledged: the session is known, and so is that it did not execute this.
        let expected = if number == 3 { Status::DEADSESSION } else { Status::BADSESSION };
        assert_eq!(reported, expected, "{number}");
        let log = server.log();
        let lines: Vec<_> =
            log.lines().filter(|line| line.contains("WARN") && line.contains("state.log")).collect();
        assert!(matches!(lines[..], [line] if line.contains(output)), "{output}: {log}");
        assert!(is_persistent(&connect(&server)), "{number}: it continues");
        server.stop();
    }
}

#[test]
fn sessions_are_not_persistent_if_the_logs_cannot_be_written() {
    for path in [reply_log, state_log] {
        let dir = TestDir::new();
        let arguments = arguments(&dir);
        Server::start(&dir, &arguments).stop();
        std::fs::remove_file(path(&dir)).unwrap();
        std::fs::create_dir(path(&dir)).unwrap();
        std::fs::write(path(&dir).join("in the way"), b"").unwrap();
        let server = Server::start(&dir, &arguments);
        let reported = format!("{}: Is a directory", path(&dir).display());
        server.await_log(0, &reported);
        let mut client = connect(&server);
        assert!(!is_persistent(&client), "{}", path(&dir).display());
        client.run(mkdir()).unwrap();
        server.stop();
    }
}
