//! Compounds over a file system that fails, is slow, or reads and writes too little.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use protocol::nfs4::attributes::{Attributes, number as n};
use protocol::nfs4::callback::CbOpResult;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::*;
use protocol::nfs4::types::{Bitmap, HasStatus, Outcome, StableHow, Stateid, Status};
use vfs::around::{Around, Call, Wrapped};
use vfs::fault::{Fault, Faulty, Gate, Method, Rule};
use vfs::{Error, MemFs, MemOptions, Op as BackendOp};
use xdr::{Opaque, Writer};

use crate::testing::{
    Lab, PendingCall, at, compound, create, export, faulty, getattr, lab_of, lab_with, lookup, mode, name,
    open, putfh, size,
};
use crate::{Export, ExportOptions};

fn faulty_lab() -> (Lab, Arc<Faulty<MemFs>>) {
    faulty_lab_where(|_| {})
}

fn faulty_lab_where(change: impl FnOnce(&mut ExportOptions)) -> (Lab, Arc<Faulty<MemFs>>) {
    let (mut export, backend) = faulty();
    change(&mut export.options);
    let mut lab = lab_of(vec![export]);
    lab.file(&["export", "file"], b"hello");
    (lab, backend)
}

fn write(data: &'static [u8]) -> Op {
    let stateid = Stateid::ANONYMOUS;
    let data = Opaque::from_static(data);
    Op::Write(write::WriteArgs { stateid, offset: 0, stable: StableHow::Unstable, data })
}

const COMMIT: Op = Op::Commit(commit::CommitArgs { offset: 0, count: 0 });

/// Returns every operation that uses the backend, on a directory or a file.
fn operations() -> Vec<(Method, &'static [&'static str], Op)> {
    let (directory, file): (&[&str], &[&str]) = (&["export"], &["export", "file"]);
    let attributes = Bitmap::of(&[n::SIZE]);
    let (cookie_verifier, maxcount) = ([0; 8], 1000);
    let list = readdir::ReadDirArgs { cookie: 0, cookie_verifier, dircount: 0, maxcount, attributes };
    let fifo = create::CreateType::FIFO;
    let emptying = open::OpenHow::Create(open::CreateHow::Unchecked(size(0)));
    let emptied = crate::testing::open_args("file", b"owner", open::ShareAccess::BOTH, emptying);
    vec![
        (Method::Access, file, Op::Access(access::AccessArgs { access: access::AccessMask::READ })),
        (Method::Commit, file, COMMIT),
        (
            Method::Create,
            directory,
            Op::Create(create::CreateArgs { object_type: fifo, name: name("f"), attributes: mode(0) }),
        ),
        (Method::Create, directory, create("new", b"owner")),
        (Method::Open, directory, create("new", b"owner")),
        (Method::Setattr, directory, Op::Open(emptied)),
        (Method::Statfs, directory, getattr(&[n::SPACE_FREE])),
        (Method::Lookup, directory, open("file", b"owner", open::ShareAccess::READ)),
        (Method::Open, directory, open("file", b"owner", open::ShareAccess::READ)),
        (Method::Read, file, Op::Read(read::ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 9 })),
        (Method::Readdir, directory, Op::ReadDir(list)),
        (Method::Remove, directory, Op::Remove(remove::RemoveArgs { target: name("file") })),
        (
            Method::Setattr,
            file,
            Op::SetAttr(setattr::SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: mode(0o600) }),
        ),
        (Method::Write, file, write(b"x")),
    ]
}

#[test]
fn backend_errors_become_wire_statuses() {
    for (error, status) in [
        (Error::Later, Status::DELAY),
        (Error::NoSpace, Status::NOSPC),
        (Error::Quota, Status::DQUOT),
        (Error::Io, Status::IO),
        (Error::Stale, Status::STALE),
    ] {
        for (method, path, op) in operations() {
            let (mut lab, backend) = faulty_lab();
            let object = lab.handle(path);
            backend.add(Rule::on(method, Fault::Fail(error)));
            assert_eq!(lab.status(vec![putfh(object), op]), status, "{method:?}");
            assert_eq!(lab.server.shared.state.counts().opens, 0);
        }
    }
}

#[test]
fn pending_backend_gives_same_replies() {
    // Waits before the backend's operation or after it: operations before it are not repeated.
    type Hold = fn(Gate) -> Fault;
    let holds: [Option<Hold>; 3] = [None, Some(Fault::Hold), Some(Fault::HoldAfter)];
    for (method, path, op) in operations() {
        let answers = holds.map(|hold| {
            let (mut lab, backend) = faulty_lab();
            let object = lab.handle(path);
            let calls = || (backend.calls(method), backend.calls(Method::Create));
            let (gate, asked) = (Gate::new(), calls());
            if let Some(hold) = hold {
                backend.add(Rule::on(method, hold(gate.clone())));
            }
            let mut flight = lab.start(1, vec![putfh(object), op.clone(), getattr(&[n::SIZE])]);
            let answer = flight.poll();
            assert_eq!(answer.is_none(), hold.is_some(), "{method:?}");
            gate.open();
            let answer = answer.or_else(|| flight.poll()).expect("an answer");
            (answer, calls().0 - asked.0, calls().1 - asked.1)
        });
        assert_eq!(answers[0].0.status, Status::OK, "{method:?}");
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{method:?}: {answers:?}");
    }
}

#[test]
fn failed_commit_changes_verifier() {
    let (mut lab, backend) = faulty_lab();
    let file = lab.handle(&["export", "file"]);
    let verifier = |lab: &mut Lab| match lab.last(vec![putfh(file), write(b"x")]) {
        OpResult::Write(result) => result.into_result().unwrap().verifier,
        other => panic!("{other:?}"),
    };
    let before = verifier(&mut lab);
    assert_eq!(verifier(&mut lab), before);
    backend.add(Rule::on(Method::Commit, Fault::Fail(Error::Io)).times(1));
    assert_eq!(lab.status(vec![putfh(file), COMMIT]), Status::IO);
    assert_ne!(verifier(&mut lab), before, "unstable data may be lost, and the client must know");
}

#[test]
fn versions_share_verifier_after_failed_commit() {
    use protocol::nfs3::{CommitArgs, CommitResult, FileHandle, PROGRAM, Proc};
    let (mut lab, backend) = faulty_lab();
    let file = lab.handle(&["export", "file"]);
    let both = |lab: &mut Lab| {
        let args = CommitArgs { file: FileHandle::new(&file).unwrap(), offset: 0, count: 0 };
        let reply = lab.ask((PROGRAM, 3, Proc::COMMIT.0), &xdr::to_bytes(&args)).unwrap();
        let by_3 = xdr::from_bytes::<CommitResult>(reply).unwrap().into_result().unwrap().verf;
        let OpResult::Commit(by_4) = lab.last(vec![putfh(file), COMMIT]) else { panic!() };
        [by_3, by_4.into_result().unwrap().verifier]
    };
    let [before, by_4] = both(&mut lab);
    assert_eq!(by_4, before);
    // Reported to version 4, and known to version 3.
    backend.add(Rule::on(Method::Commit, Fault::Fail(Error::Io)).times(1));
    assert_eq!(lab.status(vec![putfh(file), COMMIT]), Status::IO);
    let [after, by_4] = both(&mut lab);
    assert_eq!(by_4, after);
    assert_ne!(after, before);
}

#[test]
fn short_reads_and_writes_report_their_length() {
    let (mut lab, backend) = faulty_lab();
    let file = lab.handle(&["export", "file"]);
    backend.add(Rule::on(Method::Write, Fault::Short(3)));
    backend.add(Rule::on(Method::Read, Fault::Short(2)));
    let OpResult::Write(written) = lab.last(vec![putfh(file), write(b"HELLO")]) else { panic!() };
    assert_eq!(written.into_result().unwrap().count, 3);
    let read = Op::Read(read::ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count: 100 });
    let OpResult::Read(read) = lab.last(vec![putfh(file), read]) else { panic!() };
    let read = read.into_result().unwrap();
    assert_eq!((&read.data[..], read.eof), (&b"HE"[..], false));
}

#[test]
fn undoes_open_after_failed_truncation() {
    let (mut lab, backend) = faulty_lab();
    backend.add(Rule::on(Method::Setattr, Fault::Fail(Error::NoSpace)).times(1));
    let how = open::OpenHow::Create(open::CreateHow::Unchecked(size(0)));
    let args = crate::testing::open_args("file", b"owner", open::ShareAccess::BOTH, how);
    assert_eq!(lab.status_at(&["export"], Op::Open(args.clone())), Status::NOSPC);
    assert_eq!(lab.server.shared.state.counts().opens, 0);
    assert_eq!(lab.status_at(&["export"], Op::Open(args)), Status::OK);
}

#[test]
fn getattr_after_grant_shows_current_attributes() {
    let want = open::ShareAccess::empty().with_want(open::DelegationWant::WRITE_DELEG);
    let wish = delegation::WantDelegationArgs { want, claim: delegation::DelegationClaim::Fh };
    let opening = || vec![lookup("export"), open("file", b"o", open::ShareAccess::BOTH)];
    let wishing = || vec![lookup("export"), lookup("file"), Op::WantDelegation(wish)];
    for (is_open, ops) in [(true, opening()), (false, wishing())] {
        // Concurrent changes prevent a delegation of a watched file (`delegations::local_changes`).
        let (lab, backend) = faulty_lab_where(|options| options.recall_local_changes = false);
        let (mut holder, mut other) = (lab.reachable(b"holder", 11), lab.reachable(b"other", 12));
        let file = other.handle(&["export", "file"]);
        // Free space is requested last.
        let gate = Gate::new();
        backend.add(Rule::on(Method::Statfs, Fault::Hold(gate.clone())).times(1));
        let ops = [vec![Op::PutRootFh], ops, vec![getattr(&[n::SIZE, n::CHANGE])]].concat();
        let mut flight = holder.start(1, ops);
        assert!(flight.poll().is_none());
        let longer = setattr::SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: size(9) };
        assert_eq!(other.status(vec![putfh(file), Op::SetAttr(longer)]), Status::OK);
        gate.open();
        let results = flight.poll().expect("an answer").results;
        let given = match &results[results.len() - 2] {
            OpResult::WantDelegation(given) => given.as_result().unwrap(),
            opened => &crate::testing::open_result(opened).delegation,
        };
        assert!(matches!(given, open::OpenDelegation::Write(_)), "{is_open}: {given:?}");
        let seen = crate::testing::attributes_in(results.last().unwrap());
        assert_eq!(seen.size, Some(9), "{is_open}");
        // RFC 8881 §10.4.3: the change attribute of the grant means that the holder has changed nothing.
        let mut asking = other.start(1, vec![putfh(file), getattr(&[n::SIZE, n::CHANGE])]);
        assert!(asking.poll().is_none());
        let question = holder.calls().pop().expect("CB_GETATTR");
        let held = Attributes { change: seen.change, size: seen.size, ..Attributes::default() };
        let answer = CbOpResult::GetAttr(Outcome::Ok(held.to_file_attributes()));
        holder.answer(question.results(answer));
        let reported = asking.poll().expect("an answer").results;
        assert_eq!(crate::testing::attributes_in(reported.last().unwrap()), seen, "{is_open}");
    }
}

/// Returns an OPEN that creates "new" and is delayed before it opens it, and another client that has opened the file meanwhile.
fn created_and_found() -> (Lab, Lab, PendingCall, Gate, open::OpenOk) {
    let (mut lab, backend) = faulty_lab();
    let mut other = lab.reachable(b"other", 12);
    let gate = Gate::new();
    backend.add(Rule::on(Method::Open, Fault::Hold(gate.clone())).times(1));
    let mut creation = lab.start(1, at(&["export"], vec![create("new", b"owner")]));
    assert!(creation.poll().is_none());
    let opening = open("new", b"other", open::ShareAccess::BOTH);
    let results = other.ok(at(&["export"], vec![opening]));
    let opened = crate::testing::open_result(results.last().unwrap()).clone();
    (lab, other, creation, gate, opened)
}

#[test]
fn delayed_create_keeps_data_written_by_others() {
    let (mut lab, mut other, mut creation, gate, opened) = created_and_found();
    let open::OpenDelegation::Write(held) = opened.delegation else { panic!("{:?}", opened.delegation) };
    let file = other.handle(&["export", "new"]);
    let data = Opaque::from_static(b"HELLO");
    let stable = StableHow::FileSync;
    let write = Op::Write(write::WriteArgs { stateid: held.stateid, offset: 0, stable, data });
    assert_eq!(other.status(vec![putfh(file), write]), Status::OK);
    gate.open();
    assert!(creation.poll().is_none(), "it waits for the delegation");
    lab.pass(10);
    assert_eq!(creation.poll().map(|result| result.status), Some(Status::DELAY));
    other.seconds = lab.seconds;
    assert_eq!(other.attributes(&["export", "new"], &[n::SIZE]).size, Some(5));
}

#[test]
fn delayed_create_keeps_file_delegated_to_others() {
    // The holder has not flushed its data.
    let (mut lab, mut other, mut creation, gate, opened) = created_and_found();
    assert!(matches!(opened.delegation, open::OpenDelegation::Write(_)));
    gate.open();
    assert!(creation.poll().is_none(), "it waits for the delegation");
    lab.pass(10);
    assert_eq!(creation.poll().map(|result| result.status), Some(Status::DELAY));
    other.seconds = lab.seconds;
    assert_eq!(other.status(at(&["export"], vec![lookup("new")])), Status::OK);
}

#[test]
fn delayed_create_leaves_no_file() {
    let (mut lab, backend) = faulty_lab();
    // Again, after the server has made room.
    backend.add(Rule::on(Method::Open, Fault::Fail(Error::Later)).times(2));
    let creation = || at(&["export"], vec![create("new", b"owner")]);
    assert_eq!(lab.status(creation()), Status::DELAY);
    assert_eq!(lab.status(at(&["export"], vec![lookup("new")])), Status::NOENT);
    assert_eq!(lab.status(creation()), Status::OK);
}

/// Runs something else while an operation of one kind is executed, once.
struct Meanwhile {
    method: Method,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meanwhile").field("method", &self.method).finish_non_exhaustive()
    }
}

impl Around for Meanwhile {
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'_>,
        run: impl FnOnce(Option<u32>) -> BackendOp<'a, T> + Send + 'a,
    ) -> BackendOp<'a, T> {
        let done = run(None);
        let act = if call.method == self.method { self.act.lock().take() } else { None };
        if let Some(act) = act {
            act();
        }
        done
    }
}

#[test]
fn undoes_create_when_open_limit_is_reached() {
    for method in [Method::Create, Method::Open] {
        let around = Meanwhile { method, act: Mutex::default() };
        let backend = Arc::new(Wrapped::of(MemFs::new(&MemOptions::default()), around));
        let exported = Export { backend: backend.clone(), ..export(1, "/export") };
        let mut lab = lab_with(vec![exported], |settings| settings.max_state = 2);
        lab.ok(at(&["export"], vec![create("a", b"owner")]));
        let mut other = lab.other(b"other");
        let taking = move || {
            other.ok(at(&["export"], vec![open("a", b"other", open::ShareAccess::READ)]));
        };
        *backend.around().act.lock() = Some(Box::new(taking));
        assert_eq!(lab.status_at(&["export"], create("new", b"owner")), Status::DELAY, "{method:?}");
        assert!(backend.around().act.lock().is_none());
        assert_eq!(lab.status_at(&["export"], lookup("new")), Status::NOENT, "{method:?}");
    }
}

#[test]
fn reuses_attributes_within_compound() {
    let (mut lab, backend) = faulty_lab();
    let (directory, file) = (lab.handle(&["export"]), lab.handle(&["export", "file"]));
    let mut asked = |ops: Vec<Op>, method| {
        let before = backend.calls(method);
        lab.ok(ops);
        backend.calls(method) - before
    };
    let all = || getattr(&[n::TYPE, n::SIZE, n::CHANGE, n::FILEID, n::MOUNTED_ON_FILEID]);
    assert_eq!(asked(vec![putfh(file), all()], Method::Getattr), 1);
    assert_eq!(asked(vec![putfh(file), all()], Method::Statfs), 0);
    // GETATTR returns the attributes that LOOKUP, WRITE, ACCESS and OPEN saw.
    assert_eq!(asked(vec![putfh(directory), lookup("file"), Op::GetFh, all()], Method::Getattr), 0);
    assert_eq!(asked(vec![putfh(file), write(b"x"), all()], Method::Getattr), 0);
    let access = Op::Access(access::AccessArgs { access: access::AccessMask::READ });
    assert_eq!(asked(vec![putfh(file), access.clone(), all()], Method::Getattr), 0);
    let opened = open("file", b"owner", open::ShareAccess::READ);
    let ops = vec![putfh(directory), opened, Op::GetFh, access, all()];
    assert_eq!(asked(ops, Method::Getattr), 0);
    // But not over an operation that may have changed it.
    let ops = vec![putfh(file), all(), COMMIT, all()];
    assert_eq!(asked(ops, Method::Getattr), 2);
}

/// Polls a call once.
fn poll<F: Future>(call: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    call.poll(&mut Context::from_waker(Waker::noop()))
}

fn statuses(result: &CompoundResult) -> Vec<Status> {
    result.results.iter().map(HasStatus::status).collect()
}

#[test]
fn retransmission_during_execution_gets_delay() {
    let (mut lab, backend) = faulty_lab();
    let file = lab.handle(&["export", "file"]);
    let gate = Gate::new();
    backend.add(Rule::on(Method::Write, Fault::Hold(gate.clone())));
    let args = xdr::to_bytes(&compound(vec![lab.next(true), putfh(file), write(b"once")]));
    let (record, now) = (lab.record(&args), lab.now());
    let (server, connection) = (lab.server.clone(), lab.connection.clone());
    let mut reply = Writer::new();
    let before = backend.calls(Method::Write);
    {
        let mut call = pin!(server.handle(&connection, now, record, &mut reply));
        assert!(poll(call.as_mut()).is_pending());
        // RFC 8881 §2.10.6.2 and §18.46: SEQUENCE says DELAY while the request is being executed.
        let again: CompoundResult = xdr::from_bytes(lab.raw(&args).unwrap()).unwrap();
        assert_eq!(statuses(&again), [Status::DELAY]);
        gate.open();
        assert!(poll(call.as_mut()).is_ready());
    }
    let first = crate::testing::results(reply).unwrap();
    assert_eq!(lab.raw(&args).unwrap(), first);
    assert_eq!(backend.calls(Method::Write) - before, 1);
}

#[test]
fn renews_lease_at_end_of_long_call() {
    let (mut lab, backend) = faulty_lab();
    let mut denying =
        crate::testing::open_args("file", b"o", open::ShareAccess::BOTH, open::OpenHow::NoCreate);
    denying.share_deny = open::ShareDeny::BOTH;
    lab.ok(at(&["export"], vec![Op::Open(denying)]));
    let gate = Gate::new();
    backend.add(Rule::on(Method::Access, Fault::Hold(gate.clone())));
    let access = Op::Access(access::AccessArgs { access: access::AccessMask::READ });
    let args = xdr::to_bytes(&compound([vec![lab.next(true)], at(&["export"], vec![access])].concat()));
    let (record, now) = (lab.record(&args), lab.now());
    let (server, connection) = (lab.server.clone(), lab.connection.clone());
    let mut reply = Writer::new();
    let mut call = pin!(server.handle(&connection, now, record, &mut reply));
    assert!(poll(call.as_mut()).is_pending());
    // Longer than the lease.
    lab.seconds += 100;
    gate.open();
    assert!(poll(call.as_mut()).is_ready());
    let mut other = lab.other(b"other");
    let opening = || open("file", b"o", open::ShareAccess::READ);
    assert_eq!(other.status_at(&["export"], opening()), Status::SHARE_DENIED);
    other.seconds += 100;
    assert_eq!(other.status_at(&["export"], opening()), Status::OK, "and not forever");
}

#[test]
fn never_repeats_an_interrupted_call() {
    let (mut lab, backend) = faulty_lab();
    let file = lab.handle(&["export", "file"]);
    backend.add(Rule::on(Method::Write, Fault::Hold(Gate::new())));
    let args = xdr::to_bytes(&compound(vec![lab.next(true), putfh(file), write(b"once")]));
    let (record, now) = (lab.record(&args), lab.now());
    let (server, connection) = (lab.server.clone(), lab.connection.clone());
    let mut reply = Writer::new();
    {
        let mut call = pin!(server.handle(&connection, now, record, &mut reply));
        assert!(poll(call.as_mut()).is_pending());
    }
    backend.heal();
    let before = backend.calls(Method::Write);
    let again: CompoundResult = xdr::from_bytes(lab.raw(&args).unwrap()).unwrap();
    assert_eq!(statuses(&again), [Status::OK, Status::RETRY_UNCACHED_REP]);
    assert_eq!(backend.calls(Method::Write), before);
    // The slot can be used again.
    assert_eq!(lab.status(at(&["export"], vec![])), Status::OK);
}

#[test]
fn calls_slow_backend_once_per_operation() {
    let anonymous = |count| Op::Read(read::ReadArgs { stateid: Stateid::ANONYMOUS, offset: 0, count });
    let open = || open("file", b"owner", open::ShareAccess::READ);
    for (method, path, op) in [
        (Method::Getattr, &["export", "file"][..], getattr(&[n::SIZE, n::CHANGE])),
        // A short call that is tried in place, and a longer one.
        (Method::Read, &["export", "file"], anonymous(9)),
        (Method::Read, &["export", "file"], anonymous(1 << 20)),
        (Method::Lookup, &["export"], open()),
        (Method::Open, &["export"], open()),
    ] {
        let (mut lab, backend) = faulty_lab();
        let object = lab.handle(path);
        let asked_for = [Method::Getattr, Method::Read, Method::Lookup, Method::Open];
        let mut answered = Vec::new();
        for is_slow in [false, true] {
            let gate = Gate::new();
            if is_slow {
                backend.add(Rule::on(method, Fault::HoldAfter(gate.clone())));
            }
            let before = asked_for.map(|method| backend.calls(method));
            let mut flight = lab.start(1 + u32::from(is_slow), vec![putfh(object), op.clone()]);
            let early = flight.poll();
            assert_eq!(early.is_none(), is_slow, "{method:?}");
            gate.open();
            let result = early.or_else(|| flight.poll()).expect("an answer");
            assert_eq!(result.status, Status::OK, "{method:?}");
            let calls: Vec<_> = asked_for
                .iter()
                .zip(before)
                .map(|(method, before)| backend.calls(*method) - before)
                .collect();
            answered.push((calls, result.results.into_vec().pop()));
        }
        let (slow, quick) = (answered.pop().unwrap(), answered.pop().unwrap());
        assert_eq!(slow.0, quick.0, "{method:?}: {asked_for:?}");
        if !matches!(op, Op::Open(_)) {
            assert_eq!(slow.1, quick.1);
        }
    }
}

#[test]
fn late_backend_error_is_the_result() {
    for (method, path, op) in operations() {
        // An OPEN that creates does not use the removed file.
        let creates = matches!(&op, Op::Open(args) if matches!(args.how, open::OpenHow::Create(_)));
        if creates || !matches!(method, Method::Read | Method::Lookup | Method::Open) {
            continue;
        }
        let (mut lab, backend) = faulty_lab();
        let object = lab.handle(path);
        let gate = Gate::new();
        backend.add(Rule::on(method, Fault::Hold(gate.clone())).times(1));
        let before = backend.calls(method);
        let mut flight = lab.start(1, vec![putfh(object), op]);
        assert!(flight.poll().is_none());
        // The file is removed during the wait.
        lab.ok(at(&["export"], vec![Op::Remove(remove::RemoveArgs { target: name("file") })]));
        let looked = backend.calls(method);
        gate.open();
        let status = flight.poll().expect("an answer").status;
        let gone = if method == Method::Lookup { Status::NOENT } else { Status::STALE };
        assert_eq!(status, gone, "{method:?}");
        assert_eq!((looked - before).min(1), 1);
        assert_eq!(backend.calls(method), looked, "{method:?}: asked once");
    }
}
