//! The destination as the source's client: the work that `net` does over a socket, over a connection that loses and repeats records.

use core::net::{IpAddr, SocketAddr};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use client::config::Caller;
use client::engine::{self, Action, Engine};
use client::{Read, ReadData, ReadError, Reader, read_with_retries};
use futures_util::{FutureExt, stream};
use rpc::auth::{AuthSys, GroupList};
use server::{Connection, ConnectionId, Fetch, FetchError, Fetched, Now, Server, Transport};
use xdr::Opaque;

use super::SOURCE;
use crate::rng::Rng;

/// Of a thousand records: how many are lost, how many arrive twice, and how many break the connection. A copy takes some eighty.
const LOST: u64 = 3;
const TWICE: u64 = 3;
const BREAKING: u64 = 3;

/// A READ and its outcome.
pub(super) type Done = (Fetch, Result<Fetched, FetchError>);

/// The outcome of a READ, with the maximum bytes that one READ returns.
type Outcome = Result<(ReadData, u32), ReadError>;

/// A READ that the destination wants.
struct PendingRead {
    fetch: Fetch,
    reading: Pin<Box<dyn Future<Output = Outcome>>>,
}

/// A connection, and the records on their way.
struct Open {
    engine: Arc<Engine>,
    at_client: engine::ConnectionId,
    at_source: Arc<Connection>,
    calls: VecDeque<Bytes>,
    replies: VecDeque<Bytes>,
    /// READs that the reader has not taken yet, with the numbers of their attempts.
    requests: Rc<RefCell<VecDeque<(u32, Read)>>>,
    /// The session, from its start to its end.
    reading: Pin<Box<dyn Future<Output = Result<(), ReadError>>>>,
}

/// The time of engines, in nanoseconds.
#[derive(Default)]
struct Clock(AtomicU64);

impl engine::Clock for Clock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Attempts under way, and their outcomes.
type Attempts = Rc<RefCell<BTreeMap<u32, Option<Outcome>>>>;

/// What READs share.
#[derive(Default)]
struct State {
    open: Option<Open>,
    attempts: Attempts,
    last_attempt: u32,
    /// Connections made.
    made: u64,
    clock: Arc<Clock>,
}

/// One attempt; it is abandoned when dropped.
struct Attempt {
    state: Rc<RefCell<State>>,
    number: u32,
}

/// The destination as the source's client.
#[derive(Default)]
pub(super) struct Link {
    state: Rc<RefCell<State>>,
    reads: Vec<PendingRead>,
    outcomes: Vec<Done>,
}

impl Link {
    pub(super) fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.state.borrow().open.is_none()
    }

    /// Begins a READ that the destination wants.
    pub(super) fn read(&mut self, fetch: Fetch, now: Now) {
        let file = &fetch.file;
        let (local, state) = (file.local, Rc::clone(&self.state));
        let read = Read {
            handle: file.handle,
            stateid: file.stateid,
            offset: fetch.offset,
            count: fetch.count,
            wants_size: fetch.wants_size,
        };
        let reading = Box::pin(async move {
            let attempt = async |_, deadline| {
                let attempt = Attempt::start(&state, local, read);
                poll_fn(|_| attempt.poll(deadline)).await
            };
            read_with_retries(1, || state.borrow().now(), attempt).await
        });
        self.reads.push(PendingRead { fetch, reading });
        self.poll_reads(now);
    }

    /// Sends all requests that can be sent, and completes READs.
    pub(super) fn step(&mut self, source: &Server, now: Now) {
        self.poll_reads(now);
        let ended = self.state.borrow_mut().send();
        if let Some(error) = ended {
            self.close(source, error);
        }
        self.poll_reads(now);
    }

    fn poll_reads(&mut self, now: Now) {
        self.state.borrow().set_time(now);
        let mut context = Context::from_waker(Waker::noop());
        for mut read in std::mem::take(&mut self.reads) {
            if read.fetch.poll_unwanted(&context).is_ready() {
                continue;
            }
            match read.reading.as_mut().poll(&mut context) {
                Poll::Pending => self.reads.push(read),
                Poll::Ready(outcome) => {
                    let outcome = outcome.map_err(error_of).map(|(data, granted)| {
                        let ReadData { content, is_end, size } = data;
                        Fetched { content, is_end, granted, size, at: now }
                    });
                    self.outcomes.push((read.fetch, outcome));
                }
            }
        }
    }

    /// Takes the outcomes of READs, for the destination.
    pub(super) fn take_outcomes(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.outcomes)
    }

    /// Closes the connection. READs that were not begun fail with `error`.
    pub(super) fn close(&mut self, source: &Server, error: ReadError) {
        let Some(mut open) = self.state.borrow_mut().open.take() else { return };
        open.engine.handle_disconnected(open.at_client);
        open.engine.shut_down();
        // Calls in flight have failed, and with them the READs.
        let _ = open.reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let state = self.state.borrow();
        for (number, _) in open.requests.borrow_mut().drain(..) {
            finish(&state.attempts, number, Err(error));
        }
        source.connection_closed(open.at_source.id);
    }

    /// Drops everything: the destination is killed.
    pub(super) fn forget(&mut self, source: &Server) {
        self.reads.clear();
        self.outcomes.clear();
        self.close(source, ReadError::SessionLost);
    }

    /// Delivers one record, or loses it. A mute source, which does not answer, receives nothing.
    pub(super) fn carry(&mut self, source: &Server, is_mute: bool, now: Now, rng: &mut Rng) {
        let is_call = rng.chance(50);
        let mut state = self.state.borrow_mut();
        state.set_time(now);
        let Some(open) = &mut state.open else { return };
        let way = if is_call { &mut open.calls } else { &mut open.replies };
        let Some(record) = way.pop_front() else { return };
        let fate = rng.below(1000);
        let mut error = (fate < BREAKING).then_some(ReadError::SessionLost);
        if error.is_none() {
            if (BREAKING..BREAKING + LOST).contains(&fate) || is_mute {
                return;
            }
            if (BREAKING + LOST..BREAKING + LOST + TWICE).contains(&fate) {
                way.push_front(record.clone());
            }
            if is_call {
                open.replies.extend(super::deliver(source, &open.at_source, now, record));
            } else {
                open.engine.handle_bytes(open.at_client);
                let is_sound = open.engine.handle_record(open.at_client, record);
                error = (!is_sound).then_some(ReadError::Unresponsive);
            }
        }
        drop(state);
        if let Some(error) = error {
            self.close(source, error);
        }
    }
}

impl State {
    fn set_time(&self, now: Now) {
        self.clock.0.store(now.monotonic.as_nanos() as u64, Ordering::Relaxed);
    }

    fn now(&self) -> Duration {
        engine::Clock::now(&*self.clock)
    }

    /// Sends the records that can be sent; returns why the connection is to be closed, if it is.
    fn send(&mut self) -> Option<ReadError> {
        let now = self.now();
        let Open { engine, at_client, calls, reading, .. } = self.open.as_mut()?;
        let mut context = Context::from_waker(Waker::noop());
        if engine.deadline().is_some_and(|deadline| deadline <= now) {
            engine.handle_timeout();
        }
        let ended = reading.as_mut().poll(&mut context);
        while let Poll::Ready(Some(record)) = engine.poll_record(*at_client, &mut context) {
            calls.push_back(record.concat().into());
        }
        let mut is_given_up = false;
        while let Poll::Ready(Some(action)) = engine.poll_action(&mut context) {
            is_given_up |= matches!(action, Action::Disconnect { .. });
        }
        match ended {
            Poll::Ready(ended) => Some(ended.err().unwrap_or(ReadError::SessionLost)),
            Poll::Pending => is_given_up.then_some(ReadError::SessionLost),
        }
    }

    /// Opens a connection to the source, from the destination's address.
    fn connect(&mut self, local: IpAddr) -> Open {
        self.made += 1;
        let made = self.made;
        let engine = Arc::new(Engine::new(Arc::clone(&self.clock) as Arc<dyn engine::Clock>, 1));
        let at_client = engine.open_connection(SOURCE.1, Reader::policy()).expect("the first one");
        engine.handle_connected(at_client);
        // Numbers that no client's connections have.
        let (id, peer) = (ConnectionId((1 << 40) + made), SocketAddr::new(local, 600 + (made % 400) as u16));
        let requests: Rc<RefCell<VecDeque<(u32, Read)>>> = Rc::default();
        let reading = {
            let (engine, attempts, requests) =
                (Arc::clone(&engine), Rc::clone(&self.attempts), Rc::clone(&requests));
            async move {
                let verifier = made.to_be_bytes();
                let reader = Reader::open(engine, at_client, b"destination", verifier, user()).await?;
                let requests = stream::poll_fn(move |_| match requests.borrow_mut().pop_front() {
                    Some(request) => Poll::Ready(Some(request)),
                    None => Poll::Pending,
                });
                let answer = async |reader: &Reader, (number, read): (u32, Read)| {
                    let outcome = reader.read(&user(), &read).await;
                    finish(&attempts, number, outcome.map(|data| (data, reader.max_read())));
                };
                reader.serve(requests, answer).await
            }
        };
        Open {
            engine,
            at_client,
            at_source: Arc::new(Connection::new(id, peer, SOURCE.into(), Transport::Tcp, false)),
            calls: VecDeque::new(),
            replies: VecDeque::new(),
            requests,
            // It may be polled once more after its end.
            reading: Box::pin(reading.fuse()),
        }
    }
}

/// Ends an attempt, unless it was abandoned.
fn finish(attempts: &Attempts, number: u32, outcome: Outcome) {
    if let Some(attempt) = attempts.borrow_mut().get_mut(&number) {
        *attempt = Some(outcome);
    }
}

impl Attempt {
    fn start(shared: &Rc<RefCell<State>>, local: IpAddr, read: Read) -> Self {
        let mut state = shared.borrow_mut();
        state.last_attempt += 1;
        let number = state.last_attempt;
        state.attempts.borrow_mut().insert(number, None);
        let open = match state.open.take() {
            Some(open) => open,
            None => state.connect(local),
        };
        open.requests.borrow_mut().push_back((number, read));
        state.open = Some(open);
        Self { state: Rc::clone(shared), number }
    }

    fn poll(&self, deadline: Duration) -> Poll<Outcome> {
        let state = self.state.borrow();
        let outcome = state.attempts.borrow_mut().get_mut(&self.number).and_then(Option::take);
        match outcome {
            Some(outcome) => Poll::Ready(outcome),
            None if state.now() >= deadline => Poll::Ready(Err(ReadError::Unresponsive)),
            None => Poll::Pending,
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.state.borrow().attempts.borrow_mut().remove(&self.number);
    }
}

fn error_of(error: ReadError) -> FetchError {
    match error {
        ReadError::Refused(status) => FetchError::Refused(status),
        ReadError::Unsupported => FetchError::Unsupported,
        ReadError::Unresponsive | ReadError::SessionLost => FetchError::Unreachable,
    }
}

fn user() -> Caller {
    Caller::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"destination"),
        uid: 0,
        gid: 0,
        gids: GroupList::default(),
    })
}
