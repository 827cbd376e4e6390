//! Scripted faults.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use bytes::{Bytes, BytesMut};
use vfs::fault::{Fault, Faulty, Gate, Method, Rule};
use vfs::{
    Authority, Backend, Context, Create, CreateMode, Credentials, Error, Handle, MemFs, MemOptions, Op,
    Payload, ReadRequest, SetAttributes, Stability, Timestamp, Written,
};

fn context() -> Context {
    Context::new(Arc::new(Credentials::root()), Timestamp { seconds: 1, nanoseconds: 0 })
}

/// Returns a faulty file system with one file.
fn files() -> (Faulty<MemFs>, Handle) {
    let files = Faulty::new(MemFs::new(&MemOptions::default()));
    let (what, set) = (Create::File(CreateMode::Guarded), SetAttributes::default());
    let file = files.inner().create(&context(), &files.root(), b"f", &what, &set).now().unwrap().handle;
    (files, file)
}

/// Polls once.
fn poll<T>(op: &mut Op<'_, T>) -> Poll<vfs::Result<T>> {
    pin!(op).poll(&mut std::task::Context::from_waker(Waker::noop()))
}

fn write(files: &Faulty<MemFs>, file: &Handle, data: &'static [u8]) -> vfs::Result<Written> {
    let (context, data) = (context(), Bytes::from_static(data));
    let mut op = files.write(&context, file, 0, &data, Stability::Unstable, Authority::Caller);
    match poll(&mut op) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("nothing holds this write"),
    }
}

fn content(files: &Faulty<MemFs>, file: &Handle, count: u32) -> Vec<u8> {
    let request = ReadRequest { offset: 0, count, may_splice: false, authority: Authority::Caller };
    let mut into = BytesMut::new();
    let context = context();
    let read = files.read(&context, file, request, &mut into).now().unwrap();
    let data = match read.payload {
        Payload::Appended => into.freeze(),
        Payload::Bytes(data) => data,
        Payload::Range(range) => panic!("nobody asked for {range:?}"),
    };
    assert_eq!(read.count as usize, data.len());
    data.to_vec()
}

#[test]
fn a_rule_skips_fails_and_ends() {
    let (files, file) = files();
    files.add(Rule::on(Method::Getattr, Fault::Fail(Error::Later)).after(1).times(2));
    let context = context();
    let answers: Vec<_> = (0..4).map(|_| files.getattr(&context, &file).now().err()).collect();
    assert_eq!(answers, [None, Some(Error::Later), Some(Error::Later), None]);
    assert_eq!(files.calls(Method::Getattr), 4);
    assert!(files.statfs(&context, &file).now().is_ok(), "others are left alone");
}

#[test]
fn the_first_matching_rule_decides_and_heal_removes_all() {
    let (files, file) = files();
    files.add(Rule::on(Method::Write, Fault::Fail(Error::NoSpace)).times(1));
    files.add(Rule::on_any(Fault::Fail(Error::Io)));
    assert_eq!(write(&files, &file, b"x").unwrap_err(), Error::NoSpace);
    assert_eq!(write(&files, &file, b"x").unwrap_err(), Error::Io);
    assert_eq!(files.sync().now(), Err(Error::Io));
    files.heal();
    assert_eq!(write(&files, &file, b"x").unwrap().count, 1);
}

#[test]
fn a_failure_after_the_operation_leaves_it_done() {
    let (files, file) = files();
    files.add(Rule::on(Method::Write, Fault::FailAfter(Error::Io)).times(1));
    assert_eq!(write(&files, &file, b"done").unwrap_err(), Error::Io);
    assert_eq!(content(&files, &file, 10), b"done");
}

#[test]
fn reads_and_writes_are_cut_short() {
    let (files, file) = files();
    files.add(Rule::on(Method::Write, Fault::Short(3)).times(1));
    assert_eq!(write(&files, &file, b"abcdef").unwrap().count, 3);
    assert_eq!(content(&files, &file, 10), b"abc");
    files.add(Rule::on(Method::Read, Fault::Short(2)).times(1));
    assert_eq!(content(&files, &file, 10), b"ab");
}

#[test]
fn a_failed_commit_changes_the_write_verifier_and_nothing_else_does() {
    let (files, file) = files();
    let verifier = files.write_verifier();
    let context = context();
    files.add(Rule::on(Method::Write, Fault::Fail(Error::NoSpace)).times(1));
    write(&files, &file, b"x").unwrap_err();
    files.commit(&context, &file, 0, 0).now().unwrap();
    assert_eq!(files.write_verifier(), verifier);
    files.add(Rule::on(Method::Commit, Fault::Fail(Error::Io)).times(1));
    assert_eq!(files.commit(&context, &file, 0, 0).now(), Err(Error::Io));
    assert_ne!(files.write_verifier(), verifier);
}

struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_gate_holds_until_it_opens_and_then_wakes() {
    let (files, file) = files();
    let (gate, context) = (Gate::new(), context());
    files.add(Rule::on(Method::Write, Fault::Hold(gate.clone())).times(1));
    let data = Bytes::from_static(b"held");
    let mut op = files.write(&context, &file, 0, &data, Stability::FileSync, Authority::Caller);
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    let waker = Waker::from(woken.clone());
    let mut poll_waking = || pin!(&mut op).poll(&mut std::task::Context::from_waker(&waker));
    assert!(poll_waking().is_pending());
    assert!(poll_waking().is_pending());
    assert_eq!((gate.waiting(), woken.0.load(Ordering::Relaxed)), (1, 0));
    assert_eq!(files.inner().getattr(&context, &file).now().unwrap().size, 0, "nothing is done yet");
    gate.open();
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(poll_waking().is_ready());
    drop(op);
    assert_eq!((gate.waiting(), content(&files, &file, 10)), (0, b"held".to_vec()));
}

#[test]
fn an_operation_cancelled_at_a_gate_is_never_done() {
    let (files, file) = files();
    let (gate, context) = (Gate::new(), context());
    files.add(Rule::on(Method::Getattr, Fault::Hold(gate.clone())));
    let mut op = files.getattr(&context, &file);
    assert!(poll(&mut op).is_pending());
    drop(op);
    gate.open();
    assert_eq!((gate.waiting(), files.calls(Method::Getattr)), (0, 1));
    assert!(poll(&mut files.getattr(&context, &file)).is_ready(), "an open gate lets pass");
}
