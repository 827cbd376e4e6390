use core::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use protocol::nfs3::*;
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, encode_call};
use vfs::Backend;
use vfs::fault::Method;
use xdr::{Encode, Opaque, Writer};

use super::{Killed, Machine, at};
use crate::testing::KEY;
use crate::{Connection, ConnectionId, Disposition, ExportId, Server, Transport};

/// One change: its call, and the reply to the same change the second time.
struct Case {
    what: &'static str,
    procedure: Proc,
    arguments: Vec<u8>,
    method: Method,
    again: NfsStat,
}

fn case(
    what: &'static str,
    procedure: Proc,
    arguments: &impl Encode,
    method: Method,
    again: NfsStat,
) -> Case {
    Case { what, procedure, arguments: xdr::to_bytes(arguments).to_vec(), method, again }
}

struct Raw<'a>(&'a [u8]);
impl Encode for Raw<'_> {
    fn encode(&self, writer: &mut Writer) {
        writer.raw(self.0);
    }
}

fn record(xid: u32, uid: u32, procedure: Proc, arguments: &[u8]) -> Bytes {
    let credential = OpaqueAuth::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"client"),
        uid,
        gid: uid,
        gids: GroupList::default(),
    });
    let header = CallHeader { credential, ..CallHeader::new(xid, PROGRAM, VERSION, procedure.0) };
    let mut call = Writer::new();
    encode_call(&mut call, &header, &Raw(arguments));
    call.into_bytes()
}

/// Sends a record from a client; returns the whole reply.
fn send(server: &Server, seconds: u64, client: u8, record: Bytes) -> Bytes {
    // Another port for each call, below 1024.
    let peer = SocketAddr::from(([10, 0, 0, client], 700 + (seconds % 300) as u16));
    let local = SocketAddr::from(([10, 0, 1, 1], 2049));
    let connection = Arc::new(Connection::new(ConnectionId(seconds), peer, local, Transport::Tcp, false));
    let mut reply = Writer::new();
    let done = server.handle(&connection, at(seconds), record, &mut reply).now_or_never();
    assert_eq!(done.expect("memory answers at once").disposition, Disposition::Reply);
    reply.into_bytes()
}

/// Returns the status after an accepted reply's header.
fn status(reply: &Bytes) -> NfsStat {
    NfsStat(u32::from_be_bytes(reply[24..28].try_into().unwrap()))
}

fn ask(server: &Server, seconds: u64, xid: u32, procedure: Proc, arguments: &[u8]) -> NfsStat {
    status(&send(server, seconds, 1, record(xid, 0, procedure, arguments)))
}

fn root(machine: &Machine) -> FileHandle {
    FileHandle::new(&KEY.seal(ExportId(1), &machine.files.root())).unwrap()
}

fn name(machine: &Machine, text: &'static str) -> DirOpArgs {
    DirOpArgs { dir: root(machine), name: Filename::from_static(text.as_bytes()) }
}

fn mkdir(machine: &Machine, text: &'static str) -> Vec<u8> {
    let attributes = Sattr { mode: Some(0o755), ..Sattr::default() };
    xdr::to_bytes(&MkdirArgs { where_: name(machine, text), attributes }).to_vec()
}

/// Files `old` and `other`, a directory `dir`; the handle and change time of `old`.
fn prepare(machine: &Machine, server: &Server) -> (FileHandle, NfsTime) {
    let how = || CreateHow::Guarded(Sattr { mode: Some(0o644), ..Sattr::default() });
    let create = |text| xdr::to_bytes(&CreateArgs { where_: name(machine, text), how: how() }).to_vec();
    let made = send(server, 101, 1, record(1, 0, Proc::CREATE, &create("old")));
    assert_eq!(ask(server, 101, 2, Proc::CREATE, &create("other")), NfsStat::OK);
    assert_eq!(ask(server, 101, 3, Proc::MKDIR, &mkdir(machine, "dir")), NfsStat::OK);
    let made: CreateResult = rpc::message::parse_reply(made).unwrap();
    let made = made.into_result().unwrap();
    (made.obj.unwrap(), made.obj_attributes.unwrap().ctime)
}

fn cases(machine: &Machine, old: FileHandle, ctime: NfsTime) -> Vec<Case> {
    let at = |text| name(machine, text);
    let sattr = Sattr { mode: Some(0o640), ..Sattr::default() };
    let create = |how| CreateArgs { where_: at("new"), how };
    let symlink = SymlinkArgs {
        where_: at("new"),
        symlink_attributes: Sattr::default(),
        symlink_data: NfsPath::from_static(b"target"),
    };
    let device = DeviceData { dev_attributes: sattr, spec: SpecData { major: 8, minor: 1 } };
    let mknod = |what| MknodArgs { where_: at("new"), what };
    let rename = |to| RenameArgs { from: at("old"), to: at(to) };
    let setattr = SetattrArgs { object: old, new_attributes: sattr, guard: Some(ctime) };
    let (new, gone) = (NfsStat::EXIST, NfsStat::NOENT);
    let creation = Method::Create;
    vec![
        case("guarded", Proc::CREATE, &create(CreateHow::Guarded(sattr)), creation, new),
        case("unchecked", Proc::CREATE, &create(CreateHow::Unchecked(sattr)), creation, NfsStat::OK),
        case("exclusive", Proc::CREATE, &create(CreateHow::Exclusive(*b"verifier")), creation, NfsStat::OK),
        case("mkdir", Proc::MKDIR, &MkdirArgs { where_: at("new"), attributes: sattr }, creation, new),
        case("symlink", Proc::SYMLINK, &symlink, creation, new),
        case("mkfifo", Proc::MKNOD, &mknod(MknodData::Fifo(sattr)), creation, new),
        case("mknod", Proc::MKNOD, &mknod(MknodData::BlockDevice(device)), creation, new),
        case("remove", Proc::REMOVE, &RemoveArgs { object: at("old") }, Method::Remove, gone),
        case("rmdir", Proc::RMDIR, &RemoveArgs { object: at("dir") }, Method::Remove, gone),
        case("rename", Proc::RENAME, &rename("new"), Method::Rename, gone),
        case("rename over", Proc::RENAME, &rename("other"), Method::Rename, gone),
        case("link", Proc::LINK, &LinkArgs { file: old, link: at("new") }, Method::Link, new),
        case("guarded setattr", Proc::SETATTR, &setattr, Method::Setattr, NfsStat::NOT_SYNC),
    ]
}

#[test]
fn every_change_is_made_once_wherever_the_server_is_killed() {
    let numbers = 0..13;
    for (number, killed) in numbers.flat_map(|number| Killed::ALL.map(|killed| (number, killed))) {
        let mut machine = Machine::new();
        let first = machine.start(100);
        let (old, ctime) = prepare(&machine, &first);
        let cases = cases(&machine, old, ctime);
        assert_eq!(cases.len(), 13);
        let Case { what, procedure, ref arguments, method, again } = cases[number];
        let before = machine.records();
        machine.arm(killed, method);
        let reply = send(&first, 110, 1, record(77, 0, procedure, arguments));
        machine.kill(killed, before);
        drop(first);

        let second = machine.start(120);
        if killed != Killed::BeforeExecution {
            assert_eq!(status(&reply), NfsStat::OK, "{what}");
            let other = ask(&second, 130, 78, procedure, arguments);
            assert_eq!(other, again, "{what}, {killed:?}: another call, not a repetition");
        }
        let repeated = send(&second, 131, 1, record(77, 0, procedure, arguments));
        assert_eq!(status(&repeated), NfsStat::OK, "{what}, {killed:?}");
        if killed == Killed::AfterReply {
            assert_eq!(repeated, reply, "{what}: byte for byte");
        }
        let twice = send(&second, 132, 1, record(77, 0, procedure, arguments));
        assert_eq!(twice, repeated, "{what}, {killed:?}: by the reply cache");
        let other = ask(&second, 133, 79, procedure, arguments);
        assert_eq!(other, again, "{what}, {killed:?}: once more, but not a repetition");
    }
}

/// Kills a server after an unanswered MKDIR; returns the call's arguments.
fn made_unanswered() -> (Machine, Vec<u8>) {
    let mut machine = Machine::new();
    let first = machine.start(100);
    let arguments = mkdir(&machine, "new");
    ask(&first, 110, 77, Proc::MKDIR, &arguments);
    machine.kill(Killed::AfterExecution, 0);
    (machine, arguments)
}

#[test]
fn a_claim_outlives_a_second_kill() {
    let (mut machine, arguments) = made_unanswered();
    let second = machine.start(120);
    assert_eq!(ask(&second, 130, 77, Proc::MKDIR, &arguments), NfsStat::OK);
    // Killed before the outcome was logged.
    machine.kill(Killed::AfterExecution, 1);
    let third = machine.start(140);
    assert_eq!(ask(&third, 150, 77, Proc::MKDIR, &arguments), NfsStat::OK);
    let fourth = machine.start(160);
    assert_eq!(ask(&fourth, 170, 77, Proc::MKDIR, &arguments), NfsStat::OK, "from the log");
    assert_eq!(ask(&fourth, 171, 78, Proc::MKDIR, &arguments), NfsStat::EXIST);
}

#[test]
fn does_not_claim_objects_made_by_others() {
    // In each case, MKDIR of client 1 began at 110 and was not executed, because the name exists before or after.
    type Story = fn(&mut Machine) -> Arc<Server>;
    let stories: [(&str, Story); 4] = [
        ("it was there before", |machine| {
            let first = machine.start(100);
            let arguments = mkdir(machine, "lock");
            send(&first, 105, 2, record(5, 0, Proc::MKDIR, &arguments));
            send(&first, 110, 1, record(77, 0, Proc::MKDIR, &arguments));
            machine.kill(Killed::AfterExecution, 3);
            machine.start(120)
        }),
        ("another client made it meanwhile and got that reply", |machine| {
            let first = machine.start(100);
            let arguments = mkdir(machine, "lock");
            machine.arm(Killed::BeforeExecution, Method::Create);
            send(&first, 110, 1, record(77, 0, Proc::MKDIR, &arguments));
            machine.kill(Killed::BeforeExecution, 0);
            let made = send(&first, 111, 2, record(5, 0, Proc::MKDIR, &arguments));
            assert_eq!(status(&made), NfsStat::OK);
            machine.start(120)
        }),
        ("another client makes it before the call comes again", |machine| {
            let first = machine.start(100);
            let arguments = mkdir(machine, "lock");
            machine.arm(Killed::BeforeExecution, Method::Create);
            send(&first, 110, 1, record(77, 0, Proc::MKDIR, &arguments));
            machine.kill(Killed::BeforeExecution, 0);
            let second = machine.start(120);
            let made = send(&second, 125, 2, record(5, 0, Proc::MKDIR, &arguments));
            assert_eq!(status(&made), NfsStat::OK);
            second
        }),
        ("another client puts there what was made meanwhile", |machine| {
            let first = machine.start(100);
            let arguments = mkdir(machine, "lock");
            machine.arm(Killed::BeforeExecution, Method::Create);
            send(&first, 110, 1, record(77, 0, Proc::MKDIR, &arguments));
            machine.kill(Killed::BeforeExecution, 0);
            send(&first, 111, 2, record(5, 0, Proc::MKDIR, &mkdir(machine, "else")));
            let second = machine.start(120);
            let rename = RenameArgs { from: name(machine, "else"), to: name(machine, "lock") };
            let moved = send(&second, 125, 2, record(6, 0, Proc::RENAME, &xdr::to_bytes(&rename)));
            assert_eq!(status(&moved), NfsStat::OK);
            second
        }),
    ];
    for (what, story) in stories {
        let mut machine = Machine::new();
        let second = story(&mut machine);
        let arguments = mkdir(&machine, "lock");
        assert_eq!(ask(&second, 130, 77, Proc::MKDIR, &arguments), NfsStat::EXIST, "{what}");
    }
}

#[test]
fn one_of_two_concurrent_creators_claims_the_object() {
    for order in [[1, 2], [2, 1]] {
        let mut machine = Machine::new();
        let first = machine.start(100);
        let arguments = mkdir(&machine, "lock");
        send(&first, 110, 1, record(77, 0, Proc::MKDIR, &arguments));
        machine.kill(Killed::AfterExecution, 0);
        send(&first, 110, 2, record(77, 0, Proc::MKDIR, &arguments));
        machine.kill(Killed::AfterExecution, 1);
        let second = machine.start(120);
        let reported =
            order.map(|client| status(&send(&second, 130, client, record(77, 0, Proc::MKDIR, &arguments))));
        assert_eq!(reported, [NfsStat::OK, NfsStat::EXIST]);
    }
}

/// A removal that the process before was killed in, and a newer object of its name.
struct Removal {
    machine: Machine,
    what: &'static str,
    procedure: Proc,
    arguments: Vec<u8>,
    /// The second process.
    second: Arc<Server>,
    /// Of a call that creates the name.
    mkdir: Vec<u8>,
    /// The answer that the removal gets when it is repeated.
    expected: NfsStat,
}

/// REMOVE, RMDIR and both RENAMEs, with a call that creates the old name again; and whether another client removed it.
fn removals() -> impl Iterator<Item = Removal> {
    let numbers = [7, 8, 9, 10].into_iter().flat_map(|number| [(number, false), (number, true)]);
    numbers.map(|(number, is_lost)| {
        let mut machine = Machine::new();
        let first = machine.start(100);
        let (old, ctime) = prepare(&machine, &first);
        let Case { what, procedure, arguments, method, .. } = cases(&machine, old, ctime).swap_remove(number);
        let before = machine.records();
        let killed = if is_lost { Killed::BeforeExecution } else { Killed::AfterExecution };
        machine.arm(killed, method);
        send(&first, 110, 1, record(77, 0, procedure, &arguments));
        machine.kill(killed, before);

        let second = machine.start(120);
        let text = if procedure == Proc::RMDIR { "dir" } else { "old" };
        let removal = if procedure == Proc::RMDIR { Proc::RMDIR } else { Proc::REMOVE };
        let remove = xdr::to_bytes(&RemoveArgs { object: name(&machine, text) });
        if is_lost {
            let removed = send(&second, 124, 2, record(5, 0, removal, &remove));
            assert_eq!(status(&removed), NfsStat::OK, "{what}");
        }
        let mkdir = mkdir(&machine, text);
        let made = send(&second, 125, 2, record(6, 0, Proc::MKDIR, &mkdir));
        assert_eq!(status(&made), NfsStat::OK, "{what}");
        let expected = if is_lost { NfsStat::NOENT } else { NfsStat::OK };
        Removal { machine, what, procedure, arguments, second, mkdir, expected }
    })
}

#[test]
fn a_repeated_remove_spares_a_newer_object() {
    for removal in removals() {
        let Removal { mut machine, what, procedure, arguments, second, mkdir, expected } = removal;
        assert_eq!(ask(&second, 130, 77, procedure, &arguments), expected, "{what}");
        assert_eq!(ask(&second, 131, 78, Proc::MKDIR, &mkdir), NfsStat::EXIST, "{what}: it is still there");
        // The next process neither removes it nor counts it as removed.
        let third = machine.start(140);
        assert_eq!(ask(&third, 150, 77, procedure, &arguments), expected, "{what}: from the log");
        assert_eq!(ask(&third, 151, 79, Proc::MKDIR, &mkdir), NfsStat::EXIST, "{what}");
        let text = if procedure == Proc::RMDIR { "dir" } else { "old" };
        let remove = xdr::to_bytes(&RemoveArgs { object: name(&machine, text) });
        assert_eq!(
            ask(&third, 152, 80, Proc::RMDIR, &remove),
            NfsStat::OK,
            "{what}: asked again, it is executed"
        );
    }
}

/// The second process is killed before it has logged the reply to the repeated call, which comes again.
#[test]
fn a_removal_repeated_twice_spares_a_newer_object() {
    for removal in removals() {
        let Removal { mut machine, what, procedure, arguments, second, mkdir, expected } = removal;
        assert_eq!(ask(&second, 130, 77, procedure, &arguments), expected, "{what}");
        assert!(machine.notes.0.lock().pop().is_some(), "the reply");

        let third = machine.start(140);
        assert_eq!(ask(&third, 150, 77, procedure, &arguments), expected, "{what}");
        assert_eq!(ask(&third, 151, 78, Proc::MKDIR, &mkdir), NfsStat::EXIST, "{what}: it is still there");
    }
}

/// A lock file that one client removes and the next one creates, neither of which is answered; the last acknowledged change of the
/// name is an older creation.
#[test]
fn a_repeated_remove_spares_an_object_whose_verifier_names_its_creator() {
    let mut machine = Machine::new();
    let first = machine.start(100);
    let create = |verifier: u8| {
        let how = CreateHow::Exclusive([verifier; 8]);
        xdr::to_bytes(&CreateArgs { where_: name(&machine, "lock"), how })
    };
    let (older, newer, other) = (create(1), create(2), create(3));
    let remove = xdr::to_bytes(&RemoveArgs { object: name(&machine, "lock") });
    assert_eq!(status(&send(&first, 110, 3, record(70, 0, Proc::CREATE, &older))), NfsStat::OK);
    let before = machine.records();
    send(&first, 111, 1, record(77, 0, Proc::REMOVE, &remove));
    machine.kill(Killed::AfterExecution, before);
    send(&first, 112, 2, record(77, 0, Proc::CREATE, &newer));
    machine.kill(Killed::AfterExecution, before + 1);

    let second = machine.start(120);
    let created = send(&second, 130, 2, record(77, 0, Proc::CREATE, &newer));
    assert_eq!(status(&created), NfsStat::OK);
    assert_eq!(ask(&second, 131, 77, Proc::REMOVE, &remove), NfsStat::OK);
    let present = send(&second, 132, 3, record(71, 0, Proc::CREATE, &other));
    assert_eq!(status(&present), NfsStat::EXIST, "the second client has the lock");
}

/// A directory as a lock: one client removes it, the next one makes it, and neither is answered. It is newer than the removal's call.
#[test]
fn a_repeated_remove_spares_an_object_that_is_newer_than_its_call() {
    for killed in [Killed::AfterExecution, Killed::BeforeExecution] {
        let mut machine = Machine::new();
        let first = machine.start(100);
        let make = mkdir(&machine, "lock");
        let remove = xdr::to_bytes(&RemoveArgs { object: name(&machine, "lock") });
        assert_eq!(status(&send(&first, 110, 3, record(70, 0, Proc::MKDIR, &make))), NfsStat::OK);
        let before = machine.records();
        machine.arm(killed, Method::Remove);
        send(&first, 111, 1, record(77, 0, Proc::RMDIR, &remove));
        machine.kill(killed, before);
        let made = status(&send(&first, 112, 2, record(77, 0, Proc::MKDIR, &make)));
        let is_made = killed == Killed::AfterExecution;
        assert_eq!(made, if is_made { NfsStat::OK } else { NfsStat::EXIST });
        machine.kill(Killed::AfterExecution, before + 1);

        let second = machine.start(120);
        assert_eq!(ask(&second, 131, 77, Proc::RMDIR, &remove), NfsStat::OK);
        let present = status(&send(&second, 132, 3, record(71, 0, Proc::MKDIR, &make)));
        assert_eq!(present, if is_made { NfsStat::EXIST } else { NfsStat::OK }, "{killed:?}");
    }
}

/// The clock was set back after the object was made, so the object seems newer than the call.
#[test]
fn a_repeated_remove_removes_an_object_of_the_future() {
    let mut machine = Machine::new();
    let first = machine.start(100);
    let make = mkdir(&machine, "lock");
    let remove = xdr::to_bytes(&RemoveArgs { object: name(&machine, "lock") });
    assert_eq!(status(&send(&first, 500, 3, record(70, 0, Proc::MKDIR, &make))), NfsStat::OK);
    let before = machine.records();
    machine.arm(Killed::BeforeExecution, Method::Remove);
    send(&first, 111, 1, record(77, 0, Proc::RMDIR, &remove));
    machine.kill(Killed::BeforeExecution, before);

    let second = machine.start(120);
    assert_eq!(ask(&second, 131, 77, Proc::RMDIR, &remove), NfsStat::OK);
    assert_eq!(status(&send(&second, 132, 3, record(71, 0, Proc::MKDIR, &make))), NfsStat::OK, "it is gone");
}

/// A link as a lock, whose file is older than the removal. Its own repetition fails, because another client had linked
/// the name before.
#[test]
fn a_repeated_remove_spares_a_link_that_is_newer_than_its_call() {
    for killed in [Killed::AfterExecution, Killed::BeforeExecution] {
        let mut machine = Machine::new();
        let first = machine.start(100);
        let (file, _) = prepare(&machine, &first);
        let link = xdr::to_bytes(&LinkArgs { file, link: name(&machine, "lock") });
        let rename = RenameArgs { from: name(&machine, "other"), to: name(&machine, "lock") };
        let remove = xdr::to_bytes(&RemoveArgs { object: name(&machine, "lock") });
        assert_eq!(
            status(&send(&first, 110, 3, record(70, 0, Proc::RENAME, &xdr::to_bytes(&rename)))),
            NfsStat::OK
        );
        let before = machine.records();
        machine.arm(killed, Method::Remove);
        send(&first, 111, 1, record(77, 0, Proc::REMOVE, &remove));
        machine.kill(killed, before);
        let linked = status(&send(&first, 112, 2, record(77, 0, Proc::LINK, &link)));
        let is_linked = killed == Killed::AfterExecution;
        assert_eq!(linked, if is_linked { NfsStat::OK } else { NfsStat::EXIST });
        machine.kill(Killed::AfterExecution, before + 1);

        let second = machine.start(120);
        send(&second, 130, 2, record(77, 0, Proc::LINK, &link));
        assert_eq!(ask(&second, 131, 77, Proc::REMOVE, &remove), NfsStat::OK);
        let present = status(&send(&second, 132, 3, record(71, 0, Proc::LINK, &link)));
        assert_eq!(present, if is_linked { NfsStat::EXIST } else { NfsStat::OK }, "{killed:?}");
    }
}

#[test]
fn another_user_or_client_claims_nothing() {
    let (mut machine, arguments) = made_unanswered();
    let second = machine.start(120);
    for (client, uid) in [(2, 0), (1, 5)] {
        let reported = send(&second, 130, client, record(77, uid, Proc::MKDIR, &arguments));
        assert_eq!(status(&reported), NfsStat::EXIST, "client {client}, user {uid}");
    }
    assert_eq!(ask(&second, 131, 77, Proc::MKDIR, &arguments), NfsStat::OK);
}

#[test]
fn claims_end_after_ten_minutes() {
    let (mut machine, arguments) = made_unanswered();
    for (started, asked) in [(120, 710), (710, 711)] {
        let second = machine.start(started);
        assert_eq!(ask(&second, asked, 77, Proc::MKDIR, &arguments), NfsStat::EXIST);
        machine.notes.0.lock().truncate(1);
    }
    let second = machine.start(120);
    second.maintain(at(720));
    // The clock was set back meanwhile.
    assert_eq!(ask(&second, 130, 77, Proc::MKDIR, &arguments), NfsStat::EXIST);
}

#[test]
fn a_claim_is_logged_before_it_is_answered() {
    let (mut machine, arguments) = made_unanswered();
    let second = machine.start(120);
    assert_eq!(machine.files.calls(Method::SyncInherited), 0);
    machine.files.add(vfs::fault::Rule::on(Method::SyncInherited, vfs::fault::Fault::Fail(vfs::Error::Io)));
    assert_eq!(ask(&second, 130, 77, Proc::MKDIR, &arguments), NfsStat::IO);
    assert_eq!(machine.files.calls(Method::SyncInherited), 1);
}

#[test]
fn idempotent_calls_are_not_logged() {
    let mut machine = Machine::new();
    let server = machine.start(100);
    let (old, _) = prepare(&machine, &server);
    let before = machine.records();
    let write = WriteArgs {
        file: old,
        offset: 0,
        count: 4,
        stable: StableHow::FileSync,
        data: Opaque::from_static(b"data"),
    };
    assert_eq!(ask(&server, 110, 50, Proc::WRITE, &xdr::to_bytes(&write)), NfsStat::OK);
    let read = ReadArgs { file: old, offset: 0, count: 4 };
    assert_eq!(ask(&server, 110, 51, Proc::READ, &xdr::to_bytes(&read)), NfsStat::OK);
    let new_attributes = Sattr { mode: Some(0o600), ..Sattr::default() };
    let setattr = SetattrArgs { object: old, new_attributes, guard: None };
    assert_eq!(ask(&server, 110, 52, Proc::SETATTR, &xdr::to_bytes(&setattr)), NfsStat::OK);
    // Refused before anything could be executed.
    let dots = DirOpArgs { dir: root(&machine), name: Filename::from_static(b"..") };
    let rmdir = xdr::to_bytes(&RemoveArgs { object: dots });
    assert_eq!(ask(&server, 110, 53, Proc::RMDIR, &rmdir), NfsStat::EXIST);
    assert_eq!(machine.records(), before);
}
