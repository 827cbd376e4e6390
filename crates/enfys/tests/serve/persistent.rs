//! Sessions that outlive the server.

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
use crate::server::{Place, Server, with};
use crate::status::{ask, status};

/// A configuration beside the command line, and its arguments.
fn arguments(place: &Place) -> Vec<String> {
    let export = place.directory("export");
    let config = place.file("enfys.toml", "persistent-sessions = true\n");
    with(place, &[&export, Path::new("--config"), &config])
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

fn log_of_calls(place: &Place) -> PathBuf {
    place.path("state").join("replies.log")
}

fn state_log(place: &Place) -> PathBuf {
    place.path("state").join("state.log")
}

/// Has what lies in the state directory be of before the machine's start.
fn reboot(place: &Place) {
    let file = std::fs::File::options().write(true).open(log_of_calls(place)).unwrap();
    file.write_all_at(&[0x55; 16], 8).unwrap();
}

#[test]
fn a_change_that_is_repeated_in_its_session_over_a_crash_is_answered_and_not_made_again() {
    let place = Place::new();
    let arguments = arguments(&place);
    let mut server = Server::start(&place, &arguments);
    let mut client = connect(&server);
    let is_there = |name: &str| place.path("export").join(name).exists();
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
            reboot(&place);
        }
        server = Server::start(&place, &arguments);
        client = client.again(server.address);
        assert_eq!(client.run(ops.clone()).unwrap(), first, "{number}");
        assert_eq!((is_there("a"), is_there("b")), there, "{number}");
        // Another one is not executed in a session that is dead.
        assert_eq!(client.run(ops.clone()).unwrap_err(), Status::DEADSESSION, "{number}");
        client = connect(&server);
        assert_eq!(client.run(ops).unwrap_err(), again, "{number}: asked anew");
    }
    server.stop();
}

#[test]
fn an_end_in_order_leaves_sessions_dead_too() {
    let place = Place::new();
    let arguments = arguments(&place);
    let server = Server::start(&place, &arguments);
    let mut client = connect(&server);
    let first = client.run(mkdir()).unwrap();
    server.stop();
    let server = Server::start(&place, &arguments);
    assert_eq!(client.again(server.address).run(mkdir()).unwrap(), first);
    server.stop();
}

#[test]
fn no_session_is_persistent_unless_the_configuration_says_so() {
    let place = Place::new();
    let export = place.directory("export");
    let server = Server::start(&place, &with(&place, &[&export]));
    assert!(!is_persistent(&connect(&server)));
    assert_eq!(status(&place)["persistence"], Value::Null);
    server.stop();
}

#[test]
fn people_see_what_is_persistent() {
    let place = Place::new();
    let arguments = arguments(&place);
    let server = Server::start(&place, &arguments);
    let client = connect(&server);
    let shown = status(&place);
    let session = &shown["clients"][0]["sessions"][0];
    assert_eq!(session["persistent"], true);
    let places = session["slots"].as_u64().unwrap() + 1;
    assert_eq!(shown["persistence"], json!({ "written": true, "places": 16_384, "places_taken": places }));
    let counts = |shown: &Value| {
        ["persistent_sessions", "dead_sessions"].map(|of| shown["totals"][of].as_u64().unwrap())
    };
    assert_eq!(counts(&shown), [1, 0]);
    let table = String::from_utf8(ask(&place, &["status"]).stdout).unwrap();
    assert!(table.contains(&format!(
        "\npersist   1 session, 0 of earlier servers; {places} of 16384 places in use\n"
    )));
    server.kill();
    let server = Server::start(&place, &arguments);
    assert_eq!(counts(&status(&place)), [0, 1]);
    drop(client);
    server.stop();
}

#[test]
fn damage_costs_the_sessions_one_line_and_nothing_else() {
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
    for (number, (damage, said)) in cases.into_iter().enumerate() {
        let place = Place::new();
        let arguments = arguments(&place);
        let server = Server::start(&place, &arguments);
        let mut client = connect(&server);
        client.run(mkdir()).unwrap();
        server.kill();
        let sound = std::fs::read(state_log(&place)).unwrap();
        // Behind the records are the zeros that are kept for more.
        let end = sound.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        assert!(end < sound.len(), "no room ahead");
        match damage(&sound, end) {
            Some(bytes) => std::fs::write(state_log(&place), bytes).unwrap(),
            None => std::fs::remove_file(state_log(&place)).unwrap(),
        }
        let server = Server::start(&place, &arguments);
        let told = client.again(server.address).run(mkdir()).unwrap_err();
        // A torn tail alone was never answered for: the session is known, and that it did not execute this.
        let expected = if number == 3 { Status::DEADSESSION } else { Status::BADSESSION };
        assert_eq!(told, expected, "{number}");
        let log = server.log();
        let lines: Vec<_> =
            log.lines().filter(|line| line.contains("WARN") && line.contains("state.log")).collect();
        assert!(matches!(lines[..], [line] if line.contains(said)), "{said}: {log}");
        assert!(is_persistent(&connect(&server)), "{number}: it goes on");
        server.stop();
    }
}

#[test]
fn where_the_logs_cannot_be_written_sessions_are_ordinary_ones() {
    for path in [log_of_calls, state_log] {
        let place = Place::new();
        let arguments = arguments(&place);
        Server::start(&place, &arguments).stop();
        std::fs::remove_file(path(&place)).unwrap();
        std::fs::create_dir(path(&place)).unwrap();
        std::fs::write(path(&place).join("in the way"), b"").unwrap();
        let server = Server::start(&place, &arguments);
        let told = format!("{}: Is a directory", path(&place).display());
        server.await_log(0, &told);
        let mut client = connect(&server);
        assert!(!is_persistent(&client), "{}", path(&place).display());
        client.run(mkdir()).unwrap();
        server.stop();
    }
}
