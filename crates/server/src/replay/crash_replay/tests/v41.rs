use protocol::nfs4::compound::{CompoundArgs, Op, OpResult};
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::link::LinkArgs;
use protocol::nfs4::ops::open::{CreateHow, CreateVerifierAttributes, OpenHow, ShareAccess};
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::ops::xattr::{RemoveXattrArgs, SetXattrOption};
use protocol::nfs4::types::Status;
use vfs::Backend;
use vfs::fault::{Fault, Gate, Method, Rule};
use xdr::Opaque;

use super::{Killed, Machine};
use crate::programs::nfs4::xattr_tests::{get, key, set};
use crate::testing::{Lab, at, lookup, mode, name, open_args};

/// One change: its first and its second request, and the reply to the same change when it was made before.
pub(super) struct Case {
    pub(super) what: &'static str,
    pub(super) ops: fn(u8) -> Vec<Op>,
    pub(super) method: Method,
    pub(super) again: Status,
}

pub(super) fn create(object_type: CreateType) -> Vec<Op> {
    at(&["export"], vec![Op::Create(CreateArgs { object_type, name: name("new"), attributes: mode(0o640) })])
}

/// Returns OPEN for writing, with a mode without permissions.
fn open(how: CreateHow) -> Vec<Op> {
    at(&["export"], vec![Op::Open(open_args("new", b"owner", ShareAccess::WRITE, OpenHow::Create(how)))])
}

fn at_two(ops: Vec<Op>) -> Vec<Op> {
    at(&["export"], [vec![Op::SaveFh], ops].concat())
}

pub(super) const CASES: &[Case] = &[
    Case {
        what: "directory",
        ops: |_| create(CreateType::DIRECTORY),
        method: Method::Create,
        again: Status::EXIST,
    },
    Case {
        what: "symlink",
        ops: |_| create(CreateType::Link(Opaque::from_static(b"target"))),
        method: Method::Create,
        again: Status::EXIST,
    },
    Case { what: "fifo", ops: |_| create(CreateType::FIFO), method: Method::Create, again: Status::EXIST },
    Case {
        what: "guarded",
        ops: |_| open(CreateHow::Guarded(mode(0o444))),
        method: Method::Create,
        again: Status::EXIST,
    },
    Case {
        what: "unchecked",
        ops: |_| open(CreateHow::Unchecked(mode(0o444))),
        method: Method::Create,
        // The mode decides, because the file is not the caller's new one.
        again: Status::ACCESS,
    },
    Case {
        // Linux chooses another verifier when it repeats the call in another session.
        what: "exclusive",
        ops: |time| {
            let attributes = mode(0o444);
            open(CreateHow::Exclusive41(CreateVerifierAttributes { verifier: [time; 8], attributes }))
        },
        method: Method::Create,
        again: Status::EXIST,
    },
    Case {
        what: "remove",
        ops: |_| at(&["export"], vec![Op::Remove(RemoveArgs { target: name("old") })]),
        method: Method::Remove,
        again: Status::NOENT,
    },
    Case {
        what: "remove a directory",
        ops: |_| at(&["export"], vec![Op::Remove(RemoveArgs { target: name("dir") })]),
        method: Method::Remove,
        again: Status::NOENT,
    },
    Case {
        what: "rename",
        ops: |_| at_two(vec![Op::Rename(RenameArgs { old_name: name("old"), new_name: name("new") })]),
        method: Method::Rename,
        again: Status::NOENT,
    },
    Case {
        what: "link",
        ops: |_| {
            let back = vec![Op::SaveFh, Op::PutRootFh, lookup("export")];
            let link = Op::Link(LinkArgs { new_name: name("new") });
            at(&["export", "old"], [back, vec![link]].concat())
        },
        method: Method::Link,
        again: Status::EXIST,
    },
    Case {
        what: "create an attribute",
        ops: |_| at(&["export", "old"], vec![set(SetXattrOption::CREATE, "new", &b"value"[..])]),
        method: Method::SetXattr,
        again: Status::EXIST,
    },
    Case {
        what: "remove an attribute",
        ops: |_| at(&["export", "old"], vec![Op::RemoveXattr(RemoveXattrArgs { name: key("kept") })]),
        method: Method::RemoveXattr,
        again: Status::NOXATTR,
    },
];

/// Exports where changes wait for the log, and where they do not.
const MACHINES: [fn() -> Machine; 3] = [Machine::new, Machine::unstable, Machine::undeferred];

/// The client uses version 4.2, which has all of these operations.
pub(super) fn compound(ops: Vec<Op>) -> CompoundArgs {
    CompoundArgs { minor_version: 2, ..crate::testing::compound(ops) }
}

/// Returns a client, and a directory that any user may change, with a file `old` and a directory `dir`.
fn client(machine: &mut Machine) -> Lab {
    let lab = Lab::without_session(machine.start(100), 1);
    prepare(lab)
}

/// Creates these objects through `lab`.
pub(super) fn prepare(mut lab: Lab) -> Lab {
    lab.seconds = 101;
    lab.connect(b"client");
    let all = protocol::nfs4::ops::setattr::SetAttrArgs {
        stateid: protocol::nfs4::types::Stateid::ANONYMOUS,
        attributes: mode(0o777),
    };
    lab.ok(at(&["export"], vec![Op::SetAttr(all)]));
    lab.uid = 1000;
    lab.connect(b"of the user");
    lab.file(&["export", "old"], b"");
    lab.minor = 2;
    lab.ok(at(&["export", "old"], vec![set(SetXattrOption::EITHER, "kept", &b"value"[..])]));
    let directory =
        CreateArgs { object_type: CreateType::DIRECTORY, name: name("dir"), attributes: mode(0o755) };
    lab.ok(at(&["export"], vec![Op::Create(directory)]));
    lab
}

/// Connects the client to the next process over another connection; it does not know of the restart.
fn reconnect(lab: &mut Lab, machine: &mut Machine, seconds: u64) {
    let mut other = Lab::without_session(machine.start(seconds), seconds);
    (other.uid, other.session, other.sequence) = (lab.uid, lab.session, lab.sequence);
    (other.seconds, other.minor) = (seconds + 10, lab.minor);
    *lab = other;
}

pub(super) fn status(reply: &[u8]) -> Status {
    Status(u32::from_be_bytes(reply[..4].try_into().unwrap()))
}

#[test]
fn every_change_is_made_once_wherever_the_server_is_killed() {
    let kills = CASES.iter().flat_map(|case| Killed::ALL.map(|killed| (case, killed)));
    for ((case, killed), new) in kills.flat_map(|kill| MACHINES.map(|new| (kill, new))) {
        let mut machine = new();
        let what = format!("{}, {killed:?}, {}", case.what, machine.files.is_stable());
        let mut lab = client(&mut machine);
        lab.seconds = 110;
        let before = machine.records();
        machine.arm(killed, case.method);
        let ops = [vec![lab.next(false)], (case.ops)(1)].concat();
        let call = xdr::to_bytes(&compound(ops));
        let reply = lab.raw(&call).unwrap();
        machine.kill(killed, before);

        reconnect(&mut lab, &mut machine, 120);
        if killed == Killed::AfterReply {
            assert_eq!(status(&reply), Status::OK, "{what}");
            assert_eq!(lab.raw(&call).unwrap(), reply, "{what}: byte for byte");
            lab.connect(b"of the user");
            assert_eq!(lab.status((case.ops)(2)), case.again, "{what}");
            continue;
        }
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION, "{what}");
        lab.connect(b"of the user");
        if killed != Killed::BeforeExecution {
            assert_eq!(status(&reply), Status::OK, "{what}");
            let mut other = Lab::without_session(std::sync::Arc::clone(&lab.server), 99);
            (other.uid, other.seconds, other.minor) = (1001, lab.seconds, lab.minor);
            other.connect(b"another");
            let reported = other.status((case.ops)(3));
            let refused = [case.again, Status::ACCESS];
            assert!(refused.contains(&reported), "{what}: another user's is {reported:?}");
        }
        assert_eq!(lab.status((case.ops)(2)), Status::OK, "{what}");
        assert_eq!(lab.status((case.ops)(3)), case.again, "{what}: once more, but not a repetition");
    }
}

#[test]
fn a_pending_change_is_logged_like_others() {
    for (case, hold) in CASES
        .iter()
        .flat_map(|case| [Fault::Hold, Fault::HoldAfter].map(|hold: fn(Gate) -> Fault| (case, hold)))
    {
        let mut machine = Machine::unstable();
        let mut lab = client(&mut machine);
        lab.seconds = 110;
        let (before, asked) = (machine.records(), machine.files.calls(case.method));
        let gate = Gate::new();
        machine.files.add(Rule::on(case.method, hold(gate.clone())).times(1));
        let mut change = lab.start(1, (case.ops)(1));
        assert!(change.poll().is_none(), "{}", case.what);
        assert_eq!(machine.records() - before, 1, "{}: begun", case.what);
        gate.open();
        assert_eq!(change.poll().map(|result| result.status), Some(Status::OK), "{}", case.what);
        assert_eq!(machine.records() - before, 3, "{}: ended and finished too", case.what);
        assert_eq!(machine.files.calls(case.method) - asked, 1, "{}", case.what);
    }
}

/// A program of the client gets the result of another's unanswered creation. The file then has no verifier that gives it to the other one
/// too.
#[test]
fn one_of_two_exclusive_creators_gets_the_file() {
    let exclusive = |verifier: u8| {
        let attributes = mode(0o444);
        open(CreateHow::Exclusive41(CreateVerifierAttributes { verifier: [verifier; 8], attributes }))
    };
    for new in MACHINES {
        let mut machine = new();
        let mut lab = client(&mut machine);
        lab.seconds = 110;
        let before = machine.records();
        let call = xdr::to_bytes(&compound([vec![lab.next(false)], exclusive(1)].concat()));
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::OK);
        machine.kill(Killed::AfterExecution, before);
        reconnect(&mut lab, &mut machine, 120);
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
        lab.connect(b"of the user");
        assert_eq!(lab.status(exclusive(2)), Status::OK);
        assert_eq!(lab.status(exclusive(1)), Status::EXIST);
    }
}

#[test]
fn a_claim_outlives_further_kills() {
    for (case, new) in CASES.iter().flat_map(|case| MACHINES.map(|new| (case, new))) {
        let mut machine = new();
        let mut lab = client(&mut machine);
        lab.seconds = 110;
        let before = machine.records();
        let call = xdr::to_bytes(&compound([vec![lab.next(false)], (case.ops)(1)].concat()));
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::OK);
        machine.kill(Killed::AfterExecution, before);
        reconnect(&mut lab, &mut machine, 120);
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
        // Killed before the client repeats the call in its next session, and once more just after it did.
        reconnect(&mut lab, &mut machine, 140);
        lab.connect(b"of the user");
        let before = machine.records();
        let call = xdr::to_bytes(&compound([vec![lab.next(false)], (case.ops)(2)].concat()));
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::OK, "{}", case.what);
        machine.notes.0.lock().truncate(before + 1);
        reconnect(&mut lab, &mut machine, 160);
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION, "{}", case.what);
        lab.connect(b"of the user");
        assert_eq!(lab.status((case.ops)(3)), Status::OK, "{}", case.what);
        assert_eq!(lab.status((case.ops)(4)), case.again, "{}", case.what);
        reconnect(&mut lab, &mut machine, 180);
        lab.connect(b"of the user");
        assert_eq!(lab.status((case.ops)(5)), case.again, "{}", case.what);
    }
}

/// The client repeats a REMOVE that the first process began, and the second process executes it. In the third process, another REMOVE
/// of the name is a new one.
#[test]
fn a_claim_ends_with_its_execution_over_further_kills() {
    for new in MACHINES {
        let mut machine = new();
        let mut lab = client(&mut machine);
        lab.seconds = 110;
        let remove = || at(&["export"], vec![Op::Remove(RemoveArgs { target: name("dir") })]);
        let directory =
            || CreateArgs { object_type: CreateType::DIRECTORY, name: name("dir"), attributes: mode(0o755) };
        let before = machine.records();
        machine.arm(Killed::BeforeExecution, Method::Remove);
        let call = xdr::to_bytes(&compound([vec![lab.next(false)], remove()].concat()));
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::IO);
        machine.kill(Killed::BeforeExecution, before);
        reconnect(&mut lab, &mut machine, 120);
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
        lab.connect(b"of the user");
        assert_eq!(lab.status(remove()), Status::OK);
        reconnect(&mut lab, &mut machine, 140);
        lab.connect(b"of the user");
        assert_eq!(lab.status(at(&["export"], vec![Op::Create(directory())])), Status::OK);
        assert_eq!(lab.status(remove()), Status::OK, "its own object");
    }
}

#[test]
fn claims_only_calls_repeated_in_the_old_session() {
    for case in CASES {
        let mut machine = Machine::new();
        let mut lab = client(&mut machine);
        lab.seconds = 110;
        let before = machine.records();
        assert_eq!(lab.status((case.ops)(1)), Status::OK);
        machine.kill(Killed::AfterExecution, before);
        reconnect(&mut lab, &mut machine, 120);
        lab.connect(b"of the user");
        assert_eq!(lab.status((case.ops)(2)), case.again, "{}", case.what);
    }
}

/// The client repeats a change in its old session, restarts before it does in its next one, and makes an equal change.
#[test]
fn a_restarted_client_claims_nothing() {
    for case in CASES {
        let mut machine = Machine::new();
        let mut lab = client(&mut machine);
        lab.seconds = 110;
        let before = machine.records();
        let call = xdr::to_bytes(&compound([vec![lab.next(false)], (case.ops)(1)].concat()));
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::OK);
        machine.kill(Killed::AfterExecution, before);
        reconnect(&mut lab, &mut machine, 120);
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
        lab.verifier = 2;
        lab.connect(b"of the user");
        assert_eq!(lab.status((case.ops)(2)), case.again, "{}", case.what);
    }
}

/// Another client has removed the name since and created it again; then it removed its own, and the restarted client made one.
#[test]
fn a_restarted_client_removes_its_own_object() {
    let mut machine = Machine::new();
    let mut lab = client(&mut machine);
    lab.seconds = 110;
    let remove = || at(&["export"], vec![Op::Remove(RemoveArgs { target: name("old") })]);
    let create = || at(&["export"], vec![open_new("old")]);
    let before = machine.records();
    machine.arm(Killed::BeforeExecution, Method::Remove);
    let call = xdr::to_bytes(&compound([vec![lab.next(false)], remove()].concat()));
    assert_eq!(status(&lab.raw(&call).unwrap()), Status::IO);
    machine.kill(Killed::BeforeExecution, before);
    reconnect(&mut lab, &mut machine, 120);
    assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
    let mut other = lab.other(b"another");
    for ops in [remove(), create(), remove()] {
        assert_eq!(other.status(ops), Status::OK);
    }
    lab.verifier = 2;
    lab.connect(b"of the user");
    assert_eq!(lab.status(create()), Status::OK);
    assert_eq!(lab.status(remove()), Status::OK);
}

#[test]
fn another_request_in_the_same_slot_is_no_retransmission() {
    let mut machine = Machine::new();
    let mut lab = client(&mut machine);
    lab.seconds = 110;
    let before = machine.records();
    let ops = || create(CreateType::DIRECTORY);
    assert_eq!(lab.status(ops()), Status::OK);
    machine.kill(Killed::AfterReply, before);
    reconnect(&mut lab, &mut machine, 120);
    lab.sequence -= 1;
    let other = [vec![lab.next(false)], create(CreateType::FIFO)].concat();
    assert_eq!(lab.send(&compound(other)).status, Status::BADSESSION);
    lab.sequence -= 1;
    lab.uid = 1001;
    let same = [vec![lab.next(false)], ops()].concat();
    assert_eq!(lab.send(&compound(same)).status, Status::BADSESSION);
}

#[test]
fn a_retransmission_may_have_another_highest_slot() {
    let mut machine = Machine::new();
    let mut lab = client(&mut machine);
    lab.seconds = 110;
    let mut ops = [vec![lab.next(true)], create(CreateType::DIRECTORY)].concat();
    let reply = lab.raw(&xdr::to_bytes(&compound(ops.clone()))).unwrap();
    let Op::Sequence(sequence) = &mut ops[0] else { panic!() };
    sequence.highest_slot_id = 5;
    assert_eq!(lab.raw(&xdr::to_bytes(&compound(ops.clone()))).unwrap(), reply, "by the slot");
    reconnect(&mut lab, &mut machine, 120);
    assert_eq!(lab.raw(&xdr::to_bytes(&compound(ops))).unwrap(), reply, "by the log");
}

#[test]
fn a_file_with_content_is_not_claimed() {
    let mut machine = Machine::new();
    let mut lab = client(&mut machine);
    lab.seconds = 110;
    let before = machine.records();
    let ops = [vec![lab.next(false)], open(CreateHow::Guarded(mode(0o666)))].concat();
    let call = xdr::to_bytes(&compound(ops));
    lab.raw(&call).unwrap();
    machine.kill(Killed::AfterExecution, before);
    // Another client finds the file and writes to it in the same second.
    let mut other = lab.other(b"another");
    let write = protocol::nfs4::ops::write::WriteArgs {
        stateid: protocol::nfs4::types::Stateid::ANONYMOUS,
        offset: 0,
        stable: protocol::nfs4::types::StableHow::FileSync,
        data: Opaque::from_static(b"data"),
    };
    let written = other.last(at(&["export", "new"], vec![Op::Write(write)]));
    assert!(matches!(written, OpResult::Write(_)));
    reconnect(&mut lab, &mut machine, 120);
    assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
    lab.connect(b"of the user");
    assert_eq!(lab.status(open(CreateHow::Guarded(mode(0o666)))), Status::EXIST);
}

#[test]
fn an_attribute_with_another_value_is_not_claimed() {
    let mut machine = Machine::new();
    let mut lab = client(&mut machine);
    lab.seconds = 110;
    let make = |value: &'static [u8]| at(&["export", "old"], vec![set(SetXattrOption::CREATE, "new", value)]);
    let before = machine.records();
    let call = xdr::to_bytes(&compound([vec![lab.next(false)], make(b"value")].concat()));
    lab.raw(&call).unwrap();
    machine.kill(Killed::AfterExecution, before);
    lab.ok(at(&["export", "old"], vec![set(SetXattrOption::REPLACE, "new", &b"another"[..])]));
    reconnect(&mut lab, &mut machine, 120);
    assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
    lab.connect(b"of the user");
    assert_eq!(lab.status(make(b"value")), Status::EXIST);
}

/// SETXATTR that does not demand a new attribute is not logged, so its attribute is not claimed for another call.
#[test]
fn a_repeated_removal_spares_a_newer_attribute() {
    let made = (SetXattrOption::CREATE, Ok(b"another".to_vec()));
    for (option, left) in [made, (SetXattrOption::EITHER, Err(Status::NOXATTR))] {
        let mut machine = Machine::new();
        let mut lab = client(&mut machine);
        lab.seconds = 110;
        let remove = || at(&["export", "old"], vec![Op::RemoveXattr(RemoveXattrArgs { name: key("kept") })]);
        let before = machine.records();
        let call = xdr::to_bytes(&compound([vec![lab.next(false)], remove()].concat()));
        machine.arm(Killed::AfterExecution, Method::RemoveXattr);
        lab.raw(&call).unwrap();
        machine.kill(Killed::AfterExecution, before);

        reconnect(&mut lab, &mut machine, 120);
        let mut other = lab.other(b"another");
        other.minor = 2;
        other.ok(at(&["export", "old"], vec![set(option, "kept", &b"another"[..])]));
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
        lab.connect(b"of the user");
        assert_eq!(lab.status(remove()), Status::OK, "it was removed, then or now");
        let file = lab.handle(&["export", "old"]);
        assert_eq!(get(&mut lab, file, "kept"), left, "{option:?}");
    }
}

#[test]
fn ends_are_logged_when_the_changes_of_the_compound_are_durable() {
    use crate::replay::crash_replay::record::Record;
    let mut machine = Machine::new();
    let server = machine.start(0);
    let mut lab = Lab::without_session(server, 1);
    lab.connect(b"client");
    for file in ["old", "new"] {
        lab.file(&["export", file], b"");
    }
    let remove = |text| Op::Remove(RemoveArgs { target: name(text) });
    let logged = |lab: &mut Lab, ops: Vec<Op>| -> Vec<&'static str> {
        let before = machine.records();
        lab.run(at(&["export"], ops));
        let records = machine.notes.0.lock()[before..].to_vec();
        let what = |record| match Record::parse(record) {
            Some(Record::Started { .. }) => "started",
            Some(Record::Ended { changed: true, .. }) => "changed",
            Some(Record::Ended { changed: false, .. }) => "not changed",
            Some(Record::Replied { .. }) => "replied",
            _ => "another",
        };
        records.into_iter().map(what).collect()
    };
    let together = logged(&mut lab, vec![remove("old"), remove("new"), remove("missing")]);
    let expected = ["started", "started", "started", "not changed", "changed", "changed", "replied"];
    assert_eq!(together, expected);
    lab.file(&["export", "old"], b"");
    lab.file(&["export", "new"], b"");
    machine.files.commits().fail_next(Method::Remove, vfs::Error::Io);
    let failed = logged(&mut lab, vec![remove("old"), remove("new")]);
    assert_eq!(failed, ["started", "started", "not changed", "not changed", "replied"]);
}

/// Another client's creation of the name that a repeated removal had removed is in progress: the removal waits for it and spares the
/// object. The same the other way round.
#[test]
fn a_repeated_removal_waits_for_a_creation_of_the_name() {
    for creates_first in [true, false] {
        let mut machine = Machine::new();
        let mut lab = client(&mut machine);
        lab.seconds = 110;
        let remove = || at(&["export"], vec![Op::Remove(RemoveArgs { target: name("old") })]);
        let create = || at(&["export"], vec![open_new("old")]);
        let before = machine.records();
        let call = xdr::to_bytes(&compound([vec![lab.next(false)], remove()].concat()));
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::OK);
        machine.kill(Killed::AfterExecution, before);
        reconnect(&mut lab, &mut machine, 120);
        let mut other = lab.other(b"another");
        assert_eq!(status(&lab.raw(&call).unwrap()), Status::BADSESSION);
        lab.connect(b"of the user");
        let (gate, method) = (Gate::new(), if creates_first { Method::Create } else { Method::Remove });
        machine.files.add(Rule::on(method, Fault::HoldAfter(gate.clone())).times(1));
        let (mut first, mut second) = match creates_first {
            true => (other.start(1, create()), lab.start(1, remove())),
            false => (lab.start(1, remove()), other.start(1, create())),
        };
        assert!(first.poll().is_none() && second.poll().is_none(), "{creates_first}");
        assert!(second.is_woken_by(|| {
            gate.open();
            assert_eq!(first.poll().map(|result| result.status), Some(Status::OK), "{creates_first}");
        }));
        assert_eq!(second.poll().map(|result| result.status), Some(Status::OK), "{creates_first}");
        assert_eq!(lab.status(at(&["export"], vec![lookup("old")])), Status::OK, "the new file is there");
    }
}

/// OPEN that creates a file or fails.
fn open_new(file: &'static str) -> Op {
    let how = OpenHow::Create(CreateHow::Guarded(mode(0o644)));
    Op::Open(open_args(file, b"owner", ShareAccess::WRITE, how))
}
