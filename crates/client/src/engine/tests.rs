//! Calls over connections that come and go, in virtual time.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::task::noop_waker_ref;
use rpc::message::{CallHeader, encode_call, encode_success};
use xdr::Writer;

use super::*;

/// A clock that a test moves.
#[derive(Default)]
struct ManualClock(AtomicU64);

impl ManualClock {
    fn advance(&self, milliseconds: u64) {
        self.0.fetch_add(milliseconds, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

struct Test {
    engine: Arc<Engine>,
    clock: Arc<ManualClock>,
    connection: ConnectionId,
}

impl Test {
    fn new(policy: RetryPolicy) -> Self {
        let clock = Arc::new(ManualClock::default());
        clock.advance(1000);
        let engine = Arc::new(Engine::new(clock.clone(), 1));
        let connection = engine.open_connection(2049, policy).unwrap();
        Self { engine, clock, connection }
    }

    fn connected() -> Self {
        let test = Self::new(RetryPolicy::default());
        assert!(matches!(test.action(), Some(Action::Connect { port: 2049, .. })));
        test.engine.handle_connected(test.connection);
        test
    }

    fn call(&self) -> PendingCall {
        self.engine.call(self.connection, null)
    }

    fn call_with(&self, completion: impl Completion + 'static) -> PendingCall {
        self.engine.call_with(self.connection, Box::new(completion), null)
    }

    fn action(&self) -> Option<Action> {
        match self.engine.poll_action(&mut Context::from_waker(noop_waker_ref())) {
            Poll::Ready(action) => action,
            Poll::Pending => None,
        }
    }

    /// Returns the transaction IDs of all records that can be sent.
    fn sent(&self) -> Vec<u32> {
        let mut context = Context::from_waker(noop_waker_ref());
        let next = || match self.engine.poll_record(self.connection, &mut context) {
            Poll::Ready(Some(record)) => Some(peek(&record[0]).unwrap().0),
            _ => None,
        };
        std::iter::from_fn(next).collect()
    }

    fn reply(&self, xid: u32) {
        let mut writer = Writer::new();
        encode_success(&mut writer, xid);
        assert!(self.engine.handle_record(self.connection, writer.into_bytes()));
    }

    /// Moves the clock to the earliest deadline.
    fn pass_deadline(&self) {
        let until = self.engine.deadline().expect("a deadline");
        self.clock.0.store(until.as_millis() as u64, Ordering::Relaxed);
        self.engine.handle_timeout();
    }
}

fn null(xid: u32) -> Record {
    let mut writer = Writer::new();
    encode_call(&mut writer, &CallHeader::new(xid, 100_003, 3, 0), &());
    vec![writer.into_bytes()]
}

fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(noop_waker_ref())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn passes_replies_to_their_callers_in_any_order() {
    let test = Test::connected();
    let (mut first, mut second) = (test.call(), test.call());
    assert_eq!(test.sent(), [1, 2]);
    test.reply(2);
    assert!(poll(&mut first).is_none());
    assert!(matches!(poll(&mut second), Some(Ok(_))));
    test.reply(1);
    assert!(matches!(poll(&mut first), Some(Ok(_))));
    assert_eq!(test.engine.calls_in_flight(), 0);
}

#[test]
fn sends_calls_again_over_a_new_connection_in_their_order() {
    let test = Test::connected();
    let mut calls = [test.call(), test.call(), test.call()];
    assert_eq!(test.sent(), [1, 2, 3]);
    test.reply(2);
    test.engine.handle_disconnected(test.connection);
    let fourth = test.call();
    assert!(matches!(test.action(), Some(Action::Disconnect { .. })));
    test.pass_deadline();
    assert!(matches!(test.action(), Some(Action::Connect { .. })));
    test.engine.handle_connected(test.connection);
    assert_eq!(test.sent(), [1, 3, 4], "call 2 was answered");
    assert_eq!((calls[0].transmissions(), fourth.transmissions()), (2, 1));
    test.reply(1);
    assert!(matches!(poll(&mut calls[0]), Some(Ok(_))));
    assert_eq!(calls[0].transmissions(), 2, "it is known after the reply too");
}

#[test]
fn a_new_connection_replaces_a_closed_one_that_the_transport_has_left() {
    let test = Test::connected();
    test.engine.close_connection(test.connection);
    let second = test.engine.open_connection(111, RetryPolicy::default()).unwrap();
    assert_ne!(second, test.connection, "the transport may still serve it");
    assert_eq!(test.action(), Some(Action::Disconnect { connection: test.connection }));
    let third = test.engine.open_connection(20048, RetryPolicy::default()).unwrap();
    assert_eq!(third, test.connection);
    assert_eq!(test.action(), Some(Action::Connect { connection: second, port: 111 }));
    assert_eq!(test.action(), Some(Action::Connect { connection: third, port: 20048 }));
    test.engine.handle_connected(third);
    let mut call = test.call();
    assert_eq!(test.sent(), [1]);
    test.reply(1);
    assert!(matches!(poll(&mut call), Some(Ok(_))));
}

#[test]
fn replaces_a_silent_connection() {
    let test = Test::connected();
    let mut call = test.call();
    assert_eq!(test.sent(), [1]);
    test.pass_deadline();
    assert!(matches!(test.action(), Some(Action::Disconnect { .. })));
    test.pass_deadline();
    assert!(matches!(test.action(), Some(Action::Connect { .. })));
    test.engine.handle_connected(test.connection);
    assert_eq!(test.sent(), [1]);
    test.reply(1);
    assert!(matches!(poll(&mut call), Some(Ok(_))));
}

#[test]
fn soft_calls_fail_after_their_retries() {
    let test = Test::new(RetryPolicy { timeout: Duration::from_secs(1), retries: Some(2), fails_fast: true });
    test.engine.handle_connected(test.connection);
    let mut call = test.call();
    let mut silences = 0;
    while poll(&mut call).is_none() {
        assert_eq!(test.sent(), [1]);
        test.pass_deadline();
        silences += 1;
        if test.engine.deadline().is_some() {
            test.pass_deadline();
            test.engine.handle_connected(test.connection);
        }
    }
    assert_eq!(silences, 3, "once, and two retries");
}

#[test]
fn soft_calls_fail_when_connections_end_without_a_reply() {
    let test = Test::new(RetryPolicy { retries: Some(2), ..RetryPolicy::default() });
    test.engine.handle_connected(test.connection);
    let mut call = test.call();
    for _ in 0..2 {
        assert_eq!(test.sent(), [1]);
        test.engine.handle_disconnected(test.connection);
        assert!(poll(&mut call).is_none());
        test.pass_deadline();
        test.engine.handle_connected(test.connection);
    }
    test.engine.handle_disconnected(test.connection);
    assert!(matches!(poll(&mut call), Some(Err(CallError::Unreachable(_)))));
    assert!(test.engine.deadline().is_none(), "nothing needs the connection");
}

#[test]
fn the_first_connection_must_succeed_at_once() {
    let test = Test::new(RetryPolicy::default());
    let mut call = test.call();
    let refused = ConnectError { reason: "refused".into() };
    test.engine.handle_connect_failed(test.connection, refused.clone());
    assert_eq!(poll(&mut call), Some(Err(CallError::Unreachable(refused))));
}

#[test]
fn later_connections_are_retried_without_end_with_growing_pauses() {
    let test = Test::connected();
    let mut call = test.call();
    assert_eq!(test.sent(), [1]);
    test.engine.handle_disconnected(test.connection);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let before = test.engine.now();
        test.pass_deadline();
        pauses.push((test.engine.now() - before).as_millis());
        test.engine.handle_connect_failed(test.connection, ConnectError { reason: "refused".into() });
    }
    assert!(pauses.is_sorted() && pauses[0] == 0 && pauses[11] == 5000, "{pauses:?}");
    assert!(poll(&mut call).is_none());
}

#[test]
fn the_reply_to_a_dropped_call_releases_its_permit() {
    struct Freed(Arc<Mutex<Vec<bool>>>);
    impl Completion for Freed {
        fn complete(self: Box<Self>, outcome: Option<&Result<Bytes, CallError>>) {
            self.0.lock().push(outcome.is_some());
        }
    }
    let (test, freed) = (Test::connected(), Arc::new(Mutex::new(Vec::new())));
    let call = test.call_with(Freed(freed.clone()));
    assert_eq!(test.sent(), [1]);
    drop(call);
    assert!(freed.lock().is_empty(), "the server may still execute it");
    test.reply(1);
    assert_eq!(*freed.lock(), [true]);
    drop(test.call_with(Freed(freed.clone())));
    assert_eq!(*freed.lock(), [true, false], "a call that was never sent has no reply");
    assert!(test.sent().is_empty());
}

#[test]
fn the_reply_releases_a_calls_permit_without_a_poll() {
    struct Freed(Arc<Mutex<u32>>);
    impl Completion for Freed {
        fn complete(self: Box<Self>, outcome: Option<&Result<Bytes, CallError>>) {
            assert!(matches!(outcome, Some(Ok(_))));
            *self.0.lock() += 1;
        }
    }
    let (test, freed) = (Test::connected(), Arc::new(Mutex::new(0)));
    let mut call = test.call_with(Freed(freed.clone()));
    assert_eq!(test.sent(), [1]);
    test.reply(1);
    assert_eq!(*freed.lock(), 1);
    assert!(matches!(poll(&mut call), Some(Ok(_))));
    assert_eq!(*freed.lock(), 1);
}

#[test]
fn a_call_without_a_reply_ends_the_connection_although_others_are_answered() {
    let test = Test::connected();
    let (lost, mut others) = (test.call(), Vec::new());
    for second in 1..60 {
        test.clock.advance(1000);
        others.push(test.call());
        let sent = test.sent();
        test.reply(*sent.last().unwrap());
        assert!(test.engine.deadline().unwrap() > test.engine.now(), "{second}");
    }
    test.pass_deadline();
    assert!(matches!(test.action(), Some(Action::Disconnect { .. })));
    drop(lost);
}

#[test]
fn a_record_that_is_neither_reply_nor_call_ends_the_connection() {
    let test = Test::connected();
    assert!(!test.engine.handle_record(test.connection, Bytes::from_static(b"short")));
    assert!(!test.engine.handle_record(test.connection, Bytes::from_static(&[0, 0, 0, 1, 0, 0, 0, 9])));
    test.reply(77);
}

#[test]
fn sleepers_wake_at_their_time() {
    let test = Test::connected();
    let (mut short, mut long) =
        (test.engine.sleep(Duration::from_millis(5)), test.engine.sleep(Duration::from_millis(9)));
    assert!(poll(&mut short).is_none() && poll(&mut long).is_none());
    test.pass_deadline();
    assert!(poll(&mut short).is_some() && poll(&mut long).is_none());
    drop(long);
    assert!(test.engine.deadline().is_none());
}

#[test]
fn shutting_down_ends_calls_sleepers_and_polls() {
    let test = Test::connected();
    let mut call = test.call();
    let mut sleep = test.engine.sleep(Duration::from_secs(9));
    assert!(poll(&mut sleep).is_none());
    test.engine.shut_down();
    assert_eq!(poll(&mut call), Some(Err(CallError::Closed)));
    assert!(poll(&mut sleep).is_some());
    assert!(matches!(test.action(), Some(Action::Disconnect { .. })));
    assert_eq!(poll(&mut test.call()), Some(Err(CallError::Closed)));
}

#[test]
fn traffic_counts_requests_once_and_bytes_each_time() {
    let test = Test::connected();
    let label = Label { program: 100_003, version: 3, number: 0 };
    struct Nothing;
    impl Completion for Nothing {
        fn complete(self: Box<Self>, _: Option<&Result<Bytes, CallError>>) {}
    }
    let mut call = test.engine.call_labelled(test.connection, label, Box::new(Nothing), null);
    test.clock.advance(5);
    assert_eq!(test.sent(), [1]);
    test.engine.handle_disconnected(test.connection);
    assert!(matches!(test.action(), Some(Action::Disconnect { .. })));
    test.pass_deadline();
    assert!(matches!(test.action(), Some(Action::Connect { .. })));
    test.engine.handle_connected(test.connection);
    assert_eq!(test.sent(), [1], "again over the next connection");
    test.clock.advance(7);
    test.reply(1);
    test.reply(1);
    assert!(matches!(poll(&mut call), Some(Ok(_))));
    test.engine.note_error(label);
    // RFC 5531 §9: a call without credentials has 10 words, an accepted reply without results 6.
    let expected = Traffic {
        requests: 1,
        retransmissions: 1,
        failures: 0,
        errors: 1,
        bytes_sent: 80,
        bytes_received: 24,
        queue_time: Duration::from_millis(5),
        round_trip_time: Duration::from_millis(7),
        execute_time: Duration::from_millis(12),
    };
    assert_eq!(test.engine.traffic(), BTreeMap::from([(label, expected)]));
}

mod accepted;

#[test]
fn waits_have_their_sum_and_deviation() {
    let test = Test::connected();
    for milliseconds in [1000, 3000] {
        let began = test.engine.now();
        test.clock.advance(milliseconds);
        test.engine.note_wait(began);
    }
    // 1 s and 3 s: the squares are 1 and 9.
    let expected = Waits { count: 2, time: Duration::from_secs(4), squares: 10.0 };
    assert_eq!(test.engine.waits(), expected);
}
