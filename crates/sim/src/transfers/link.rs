//! The destination as the source's client: the work that `net` does over a socket, over a connection that loses and repeats records.

use core::net::{IpAddr, SocketAddr};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use client::{Identity, Read, ReadData, ReadError, Reader, read_with_retries};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
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

/// The outcome of a READ, with the bytes that one READ returns at most.
type Outcome = Result<(ReadData, u32), ReadError>;

/// A READ that the destination wants.
struct PendingRead {
    fetch: Fetch,
    reading: Pin<Box<dyn Future<Output = Outcome>>>,
}

/// A connection, and the records on their way.
struct Open {
    reader: Reader<u32>,
    connection: Arc<Connection>,
    calls: VecDeque<Bytes>,
    replies: VecDeque<Bytes>,
}

/// State that READs share.
#[derive(Default)]
struct State {
    open: Option<Open>,
    /// Attempts under way, and their outcomes.
    attempts: BTreeMap<u32, Option<Outcome>>,
    last_attempt: u32,
    /// Connections made.
    made: u64,
    now: Duration,
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
            read_with_retries(1, || state.borrow().now, attempt).await
        });
        self.reads.push(PendingRead { fetch, reading });
        self.poll_reads(now);
    }

    /// Sends all requests that can be sent, and completes READs.
    pub(super) fn step(&mut self, source: &Server, now: Now) {
        self.poll_reads(now);
        let error = self.state.borrow_mut().send();
        if let Some(error) = error {
            self.close(source, error);
        }
        self.poll_reads(now);
    }

    fn poll_reads(&mut self, now: Now) {
        self.state.borrow_mut().now = now.monotonic;
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

    /// Closes the connection.
    pub(super) fn close(&mut self, source: &Server, error: ReadError) {
        let mut state = self.state.borrow_mut();
        if let Some(open) = &mut state.open {
            open.reader.fail_all(error);
            source.connection_closed(open.connection.id);
        }
        state.take_answers();
        state.open = None;
    }

    /// Drops everything: the destination is killed.
    pub(super) fn forget(&mut self, source: &Server) {
        self.reads.clear();
        self.outcomes.clear();
        self.close(source, ReadError::SessionLost);
    }

    /// Delivers one record, or loses it. A source that is mute receives nothing.
    pub(super) fn carry(&mut self, source: &Server, is_mute: bool, now: Now, rng: &mut Rng) {
        let is_call = rng.chance(50);
        let mut state = self.state.borrow_mut();
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
                open.replies.extend(super::deliver(source, &open.connection, now, record));
            } else {
                error = open.reader.handle_record(now.monotonic, record).err();
            }
        }
        state.take_answers();
        drop(state);
        if let Some(error) = error {
            self.close(source, error);
        }
    }
}

impl State {
    /// Sends the records that can be sent; returns why the connection is to be closed, if it is.
    fn send(&mut self) -> Option<ReadError> {
        let Self { open: Some(open), attempts, now, .. } = self else { return None };
        open.reader.drop_waiting(|number| !attempts.contains_key(number));
        while let Some(record) = open.reader.poll_record(*now) {
            open.calls.push_back(record);
        }
        let timeout = open.reader.handle_timeout(*now);
        let is_closed = open.reader.is_closed();
        self.take_answers();
        timeout.err().or(is_closed.then_some(ReadError::SessionLost))
    }

    fn take_answers(&mut self) {
        let Self { open: Some(open), attempts, .. } = self else { return };
        let granted = open.reader.max_read();
        while let Some((number, answer)) = open.reader.poll_answer() {
            if let Some(outcome) = attempts.get_mut(&number) {
                *outcome = Some(answer.map(|data| (data, granted)));
            }
        }
    }
}

impl Attempt {
    fn start(shared: &Rc<RefCell<State>>, local: IpAddr, read: Read) -> Self {
        let mut guard = shared.borrow_mut();
        let State { open, attempts, last_attempt, made, now } = &mut *guard;
        *last_attempt += 1;
        attempts.insert(*last_attempt, None);
        let open = open.get_or_insert_with(|| {
            *made += 1;
            // Numbers that no client's connections have.
            let id = ConnectionId((1 << 40) + *made);
            let peer = SocketAddr::new(local, 600 + (*made % 400) as u16);
            Open {
                reader: Reader::new(identity(*made), 1, *now),
                connection: Arc::new(Connection::new(id, peer, SOURCE.into(), Transport::Tcp, false)),
                calls: VecDeque::new(),
                replies: VecDeque::new(),
            }
        });
        open.reader.read(read, credential(), *last_attempt);
        Self { state: Rc::clone(shared), number: *last_attempt }
    }

    fn poll(&self, deadline: Duration) -> Poll<Outcome> {
        let mut state = self.state.borrow_mut();
        let outcome = state.attempts.get_mut(&self.number).and_then(Option::take);
        match outcome {
            Some(outcome) => Poll::Ready(outcome),
            None if state.now >= deadline => Poll::Ready(Err(ReadError::Unresponsive)),
            None => Poll::Pending,
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.state.borrow_mut().attempts.remove(&self.number);
    }
}

fn error_of(error: ReadError) -> FetchError {
    match error {
        ReadError::Refused(status) => FetchError::Refused(status),
        ReadError::Unsupported => FetchError::Unsupported,
        ReadError::Unresponsive | ReadError::SessionLost => FetchError::Unreachable,
    }
}

fn identity(made: u64) -> Identity {
    let owner = Opaque::from_static(b"destination");
    Identity { owner, verifier: made.to_be_bytes(), credential: credential() }
}

fn credential() -> OpaqueAuth {
    OpaqueAuth::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"destination"),
        uid: 0,
        gid: 0,
        gids: GroupList::default(),
    })
}
