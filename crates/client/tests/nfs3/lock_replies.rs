//! The lock manager of version 3: where it is, its statuses, wrong replies, and forged calls of a server.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::attributes::SetAttributes;
use client::errno::Errno;
use client::error::OpError;
use client::locks::LockKind::{Exclusive, Shared};
use client::locks::{LockOwner, LockRange, Locked};
use client::results::{Creation, FileHandle, OpenMode, OpenState};
use protocol::nlm::{self, Lock, LockArgs, NetObj, Proc, Res, Stats, TestArgs};
use protocol::nsm::{self, StateChange};
use protocol::portmap;
use rpc::message::{AcceptStatus, CallHeader, RpcError, encode_call, parse_reply};
use xdr::{Encode, Opaque, Writer};

use crate::link::{Answer, Call, Link, root};

const ONE: LockOwner = LockOwner::Process(1);
const RANGE: LockRange = LockRange::WHOLE;

/// Encoded arguments.
struct Raw<'a>(&'a [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, writer: &mut Writer) {
        writer.raw(self.0);
    }
}

/// Returns a client, and a file.
fn client(link: &Link) -> (Client, FileHandle) {
    let client = link.client();
    let (caller, set) = (root(), SetAttributes::with_mode(0o644));
    let opened = link.run(async {
        let top = client.mount(&caller, &[b"export"]).await?.handle;
        client.open(&caller, top, b"file", OpenMode::BOTH, Creation::IfMissing, &set).await
    });
    (client, opened.unwrap().object.handle)
}

fn is_lock(call: &Call) -> bool {
    call.is(nlm::PROGRAM, Proc::LOCK.0)
}

fn lock(link: &Link, (client, file): &(Client, FileHandle)) -> Result<Locked, OpError> {
    link.run(client.lock(&root(), *file, &OpenState::default(), ONE, RANGE, Exclusive, false))
}

fn status(call: &Call, stat: Stats) -> Answer {
    call.reply(&Res { cookie: call.arguments::<LockArgs>().cookie, stat })
}

#[test]
fn statuses_have_the_errors_of_fcntl() {
    let link = Link::new();
    let client = client(&link);
    let stat = Rc::new(Cell::new(Stats::GRANTED));
    let answered = Rc::clone(&stat);
    link.answer(move |call| if is_lock(call) { status(call, answered.get()) } else { Answer::Serve });
    for (answer, errno) in [
        (Stats::DENIED, Errno::EAGAIN),
        (Stats::DENIED_NOLOCKS, Errno::ENOLCK),
        (Stats::DEADLCK, Errno::EDEADLK),
        (Stats::ROFS, Errno::EROFS),
        (Stats::STALE_FH, Errno::ESTALE),
        (Stats::FBIG, Errno::EFBIG),
        (Stats::FAILED, Errno::ENOLCK),
        // Nobody asked to wait.
        (Stats::BLOCKED, Errno::EPROTO),
        (Stats(77), Errno::EPROTO),
    ] {
        stat.set(answer);
        assert_eq!(lock(&link, &client).unwrap_err().errno(), errno, "{answer:?}");
    }
    stat.set(Stats::GRANTED);
    assert_eq!(lock(&link, &client), Ok(Locked::AtServer(None)));
}

#[test]
fn a_reply_with_another_cookie_and_one_that_cannot_be_decoded_grant_nothing() {
    let link = Link::new();
    let client = client(&link);
    link.answer(|call| match is_lock(call) {
        true => call.reply(&Res { cookie: NetObj::from_static(b"another"), stat: Stats::GRANTED }),
        false => Answer::Serve,
    });
    assert_eq!(lock(&link, &client), Err(OpError::BadReply("the cookie of another call")));
    link.answer(|call| if is_lock(call) { call.reply(&7_u32) } else { Answer::Serve });
    assert_eq!(lock(&link, &client).unwrap_err().errno(), Errno::EPROTO);
    // Nothing is held: nothing is unlocked at the end.
    link.run(client.0.close()).unwrap();
    assert_eq!(link.count(nlm::PROGRAM, Proc::UNLOCK.0), 0);
}

#[test]
fn a_server_without_a_lock_manager_has_no_locks() {
    let link = Link::new();
    let client = client(&link);
    link.answer(|call| match call.header.program {
        nlm::PROGRAM => call.not_executed(1, &[]),
        _ => Answer::Serve,
    });
    let error = lock(&link, &client).unwrap_err();
    assert_eq!(error.errno(), Errno::ENOLCK);
    assert!(error.to_string().contains("nlmport="), "{error}");
}

#[test]
fn the_port_mapper_tells_the_port_of_the_lock_manager_and_again_when_it_moves() {
    let link = Link::new();
    let client = client(&link);
    let port = Rc::new(Cell::new(4045));
    let mapped = Rc::clone(&port);
    link.listen(&[2049, 111, 4045]);
    link.answer(move |call| match call.port {
        111 => match call.arguments::<portmap::Mapping>().program {
            nlm::PROGRAM => call.reply(&u32::from(mapped.get())),
            _ => call.reply(&0_u32),
        },
        port if call.header.program == nlm::PROGRAM && port != mapped.get() => call.not_executed(1, &[]),
        _ => Answer::Serve,
    });
    lock(&link, &client).unwrap();
    port.set(4046);
    link.listen(&[2049, 111, 4046]);
    // The connection to the earlier port breaks.
    let is_broken = Cell::new(false);
    let mapped = Rc::clone(&port);
    link.answer(move |call| match call.port {
        111 if call.arguments::<portmap::Mapping>().program == nlm::PROGRAM => {
            call.reply(&u32::from(mapped.get()))
        }
        111 => call.reply(&0_u32),
        4045 if !is_broken.replace(true) => Answer::Break,
        _ => Answer::Serve,
    });
    lock(&link, &client).unwrap();
    assert_eq!(link.count(portmap::PROGRAM, portmap::Proc::GETPORT.0), 4, "NLM and NSM, each twice");
}

/// A client that waits for a lock that the server never grants, and what it sent.
struct Waiting {
    link: Rc<Link>,
    client: Client,
    asked: Rc<RefCell<Vec<LockArgs>>>,
    /// The server's answer to LOCK.
    stat: Rc<Cell<Stats>>,
}

/// A LOCK in progress.
type Locking = Pin<Box<dyn Future<Output = Result<Locked, OpError>>>>;

impl Waiting {
    fn new() -> (Self, Locking) {
        let link = Link::new();
        let (client, file) = client(&link);
        let asked = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&asked);
        let stat = Rc::new(Cell::new(Stats::BLOCKED));
        let answered = Rc::clone(&stat);
        link.answer(move |call| match is_lock(call) {
            true => {
                log.borrow_mut().push(call.arguments());
                status(call, answered.get())
            }
            false => Answer::Serve,
        });
        let waiter = client.clone();
        let lock = async move {
            waiter.lock(&root(), file, &OpenState::default(), ONE, RANGE, Exclusive, true).await
        };
        (Self { link, client, asked, stat }, Box::pin(lock))
    }

    fn call(&self, (program, version, procedure): (u32, u32, u32), arguments: &impl Encode) -> Bytes {
        let mut record = Writer::new();
        encode_call(&mut record, &CallHeader::new(9, program, version, procedure), arguments);
        self.client.answer_host_call(record.into_bytes()).expect("an answer")
    }

    fn granted(&self, change: impl FnOnce(&mut Lock)) -> Stats {
        let LockArgs { cookie, exclusive, mut alock, .. } = self.asked.borrow()[0].clone();
        change(&mut alock);
        let arguments = TestArgs { cookie: cookie.clone(), exclusive, alock };
        let reply = self.call((nlm::PROGRAM, nlm::VERSION, Proc::GRANTED.0), &arguments);
        let reply = parse_reply::<Res>(reply).unwrap();
        assert_eq!(reply.cookie, cookie);
        reply.stat
    }

    /// Polls the waiting task once for each message that is exchanged now, without the time passing.
    fn settle(&self, waiting: &mut Pin<Box<dyn Future<Output = Result<Locked, OpError>>>>) {
        let mut rounds = 0;
        self.link.run(poll_fn(|context| {
            rounds += 1;
            assert!(waiting.as_mut().poll(context).is_pending(), "nobody has the lock");
            context.waker().wake_by_ref();
            if rounds > 20 { Poll::Ready(()) } else { Poll::Pending }
        }));
    }
}

#[test]
fn a_forged_granted_costs_a_request_and_grants_nothing() {
    let (waiting, mut task) = Waiting::new();
    waiting.settle(&mut task);
    assert_eq!(waiting.asked.borrow().len(), 1);
    let others: [fn(&mut Lock); 5] = [
        |lock| lock.svid += 1,
        |lock| lock.oh = NetObj::from_static(b"another"),
        |lock| lock.fh = NetObj::from_static(b"another"),
        |lock| lock.l_offset = 1,
        |lock| lock.l_len = 1,
    ];
    for change in others {
        assert_eq!(waiting.granted(change), Stats::DENIED);
    }
    waiting.settle(&mut task);
    assert_eq!(waiting.asked.borrow().len(), 1, "nothing that it waits for");
    assert_eq!(waiting.granted(|_| {}), Stats::GRANTED);
    waiting.settle(&mut task);
    assert_eq!(waiting.asked.borrow().len(), 2, "it asks, and the server says no");
    drop(task);
    assert_eq!(waiting.granted(|_| {}), Stats::DENIED, "it waits no longer");
}

#[test]
fn a_granted_that_arrives_after_the_lock_is_accepted_while_the_lock_is_held() {
    let (waiting, mut task) = Waiting::new();
    waiting.settle(&mut task);
    waiting.stat.set(Stats::GRANTED);
    assert_eq!(waiting.granted(|_| {}), Stats::GRANTED);
    let locked = waiting.link.run(task).unwrap();
    assert_eq!(waiting.granted(|_| {}), Stats::GRANTED, "a server would take the lock back otherwise");
    assert_eq!(waiting.granted(|lock| lock.svid += 1), Stats::DENIED);
    assert_eq!(locked, client::locks::Locked::AtServer(None));
}

/// A server whose lock manager sends GRANTED_MSG alone, and answers the results or does not.
fn grants_by_messages(answers_results: bool) {
    let link = Link::new();
    let (client, file) = client(&link);
    let (asked, results) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(Vec::new())));
    let (log, received) = (Rc::clone(&asked), Rc::clone(&results));
    link.answer(move |call| match (call.header.program, Proc(call.header.procedure)) {
        (nlm::PROGRAM, Proc::LOCK) => {
            log.borrow_mut().push(call.arguments::<LockArgs>());
            // It is free when the client asks again.
            let is_first = log.borrow().len() == 1;
            status(call, if is_first { Stats::BLOCKED } else { Stats::GRANTED })
        }
        (nlm::PROGRAM, Proc::GRANTED_RES) => {
            received.borrow_mut().push(call.arguments::<Res>());
            if answers_results { call.reply(&()) } else { Answer::Silence }
        }
        _ => Answer::Serve,
    });
    let granted = |svid: i32| {
        let LockArgs { exclusive, alock, .. } = asked.borrow()[0].clone();
        let cookie = NetObj::new(format!("for {svid}").into_bytes()).unwrap();
        let args = TestArgs { cookie, exclusive, alock: Lock { svid, ..alock } };
        let mut record = Writer::new();
        let header = CallHeader::new(9, nlm::PROGRAM, nlm::VERSION, Proc::GRANTED_MSG.0);
        encode_call(&mut record, &header, &args);
        // The message itself has no results.
        parse_reply::<()>(client.answer_host_call(record.into_bytes()).expect("a reply")).unwrap();
    };
    let mut lock = Box::pin({
        let waiter = client.clone();
        async move { waiter.lock(&root(), file, &OpenState::default(), ONE, RANGE, Exclusive, true).await }
    });
    while asked.borrow().is_empty() {
        let polled = link.run(poll_fn(|context| Poll::Ready(lock.as_mut().poll(context).is_pending())));
        assert!(polled, "nobody has the lock");
        link.exchange();
    }
    let svid = asked.borrow()[0].alock.svid;
    granted(svid + 1);
    granted(svid);
    assert_eq!(link.run(lock), Ok(Locked::AtServer(None)));
    assert_eq!(asked.borrow().len(), 2, "it asks again, and no polling comes first");
    // Longer than the timeout of a call.
    link.run(link.engine.sleep(Duration::from_secs(150)));
    let expected = [(svid + 1, Stats::DENIED), (svid, Stats::GRANTED)].map(|(svid, stat)| {
        let cookie = NetObj::new(format!("for {svid}").into_bytes()).unwrap();
        Res { cookie, stat }
    });
    let mut results = results.borrow().clone();
    results.sort_by_key(|result| result.stat == Stats::GRANTED);
    assert_eq!(results, expected);
    assert_eq!(asked.borrow().len(), 2, "the lock is not doubtful");
}

#[test]
fn a_granted_as_a_message_is_answered_by_a_call() {
    grants_by_messages(true);
}

#[test]
fn a_lock_manager_need_not_reply_to_the_result_of_a_message() {
    grants_by_messages(false);
}

#[test]
fn forged_notifications_make_locks_doubtful_at_most_once_a_second_and_lose_none() {
    let link = Link::new();
    let (client, file) = client(&link);
    lock(&link, &(client.clone(), file)).unwrap();
    let notify = |state| {
        let mut record = Writer::new();
        let change = StateChange { mon_name: Opaque::from_static(b"server"), state };
        encode_call(
            &mut record,
            &CallHeader::new(9, nsm::PROGRAM, nsm::VERSION, nsm::Proc::NOTIFY.0),
            &change,
        );
        client.answer_host_call(record.into_bytes()).expect("an answer")
    };
    let asked = link.count(nlm::PROGRAM, Proc::LOCK.0);
    for state in 0..1000 {
        parse_reply::<()>(notify(state)).unwrap();
        link.run(link.engine.sleep(Duration::from_millis(10)));
    }
    // 10 s: a reclaim, which the server refuses, and a LOCK, which it grants.
    let requests = link.count(nlm::PROGRAM, Proc::LOCK.0) - asked;
    assert!((2..=22).contains(&requests), "{requests}");
    let caller = root();
    let test = client.test_lock(&caller, file, LockOwner::Process(2), RANGE, Shared);
    assert!(link.run(test).unwrap().is_some(), "the server has the lock");
    link.run(client.close()).unwrap();
    assert_eq!(link.count(nlm::PROGRAM, Proc::UNLOCK.0), 1, "and so does the client");
}

#[test]
fn other_calls_of_a_server_get_the_errors_of_rpc() {
    let (waiting, _) = Waiting::new();
    let refused = |program, arguments: &Bytes| match parse_reply::<()>(waiting.call(program, &Raw(arguments)))
    {
        Err(RpcError::NotExecuted(status)) => status,
        other => panic!("{other:?}"),
    };
    let none = Bytes::new();
    assert_eq!(refused((100_003, 3, 0), &none), AcceptStatus::ProgramUnavailable);
    assert!(matches!(refused((nlm::PROGRAM, 3, 5), &none), AcceptStatus::ProgramMismatch(_)));
    assert_eq!(refused((nlm::PROGRAM, 4, Proc::LOCK.0), &none), AcceptStatus::ProcedureUnavailable);
    assert_eq!(
        refused((nsm::PROGRAM, 1, nsm::Proc::SIMU_CRASH.0), &none),
        AcceptStatus::ProcedureUnavailable
    );
    for program in [(nlm::PROGRAM, 4, Proc::GRANTED.0), (nsm::PROGRAM, 1, nsm::Proc::NOTIFY.0)] {
        for length in 0..40 {
            let garbage = Bytes::from(vec![0xff; length]);
            assert_eq!(refused(program, &garbage), AcceptStatus::GarbageArguments);
        }
    }
    let mut record = Writer::new();
    encode_call(&mut record, &CallHeader::new(9, nlm::PROGRAM, 4, 0), &());
    let record = record.into_bytes();
    for length in 0..record.len() {
        assert_eq!(waiting.client.answer_host_call(record.slice(..length)), None);
    }
    let waits = pin!(waiting.client.host_calls_wanted());
    assert!(futures_util::FutureExt::now_or_never(waits).is_none(), "no lock yet");
}
