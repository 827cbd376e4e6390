//! How the destination reaches the source: what `net` does over a socket, over a connection that loses and repeats records.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use client::{Identity, Read, ReadData, ReadError, ReadRetry, Reader};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use server::{Connection, ConnectionId, Fetch, FetchError, Fetched, Now, Server, Transport};
use xdr::Opaque;

use super::SOURCE;
use crate::rng::Rng;

/// Of a thousand records: how many never come, how many come twice, and how many break the connection. A copy takes some eighty.
const LOST: u64 = 3;
const TWICE: u64 = 3;
const BREAKING: u64 = 3;

/// A READ and what became of it.
pub(super) type Done = (Fetch, Result<Fetched, FetchError>);

/// A READ that the destination wants.
struct Wanted {
    fetch: Fetch,
    retry: ReadRetry,
}

/// A connection, and what is on its way there.
struct Open {
    reader: Reader<u32>,
    connection: Arc<Connection>,
    calls: VecDeque<Bytes>,
    replies: VecDeque<Bytes>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Link {
    open: Option<Open>,
    reads: BTreeMap<u32, Wanted>,
    outcomes: Vec<Done>,
    last_read: u32,
    /// Connections made.
    made: u64,
}

impl Link {
    pub(super) fn is_idle(&self) -> bool {
        self.reads.is_empty() && self.open.is_none()
    }

    /// Begins a READ that the destination wants.
    pub(super) fn read(&mut self, fetch: Fetch, now: Now) {
        self.last_read += 1;
        let retry = ReadRetry::new(1, now.monotonic);
        self.reads.insert(self.last_read, Wanted { fetch, retry });
        self.ask(self.last_read, now);
    }

    /// Lets everything go on that can.
    pub(super) fn go_on(&mut self, source: &Server, now: Now) {
        let context = Context::from_waker(Waker::noop());
        self.reads.retain(|_, wanted| wanted.fetch.poll_unwanted(&context).is_pending());
        let late = self.reads.extract_if(.., |_, wanted| wanted.retry.deadline() <= now.monotonic);
        let late = late.map(|(_, wanted)| (wanted.fetch, Err(FetchError::Unreachable)));
        self.outcomes.extend(late);
        let Some(open) = &mut self.open else { return };
        open.reader.drop_waiting(|tag| !self.reads.contains_key(tag));
        while let Some(record) = open.reader.poll_record(now.monotonic) {
            open.calls.push_back(record);
        }
        match open.reader.handle_timeout(now.monotonic) {
            Err(error) => self.close(source, error, now),
            Ok(()) if open.reader.is_closed() => self.close(source, ReadError::SessionLost, now),
            Ok(()) => self.hear(now),
        }
    }

    fn ask(&mut self, tag: u32, now: Now) {
        let Some(Wanted { fetch, retry }) = self.reads.get_mut(&tag) else { return };
        if let Err(error) = retry.next_address(now.monotonic) {
            let fetch = self.reads.remove(&tag).map(|wanted| wanted.fetch);
            return self.outcomes.extend(fetch.map(|fetch| (fetch, Err(error_of(error)))));
        }
        let file = &fetch.file;
        let open = self.open.get_or_insert_with(|| {
            self.made += 1;
            // Numbers that no client's connections have.
            let id = ConnectionId((1 << 40) + self.made);
            let peer = SocketAddr::new(file.local, 600 + (self.made % 400) as u16);
            Open {
                reader: Reader::new(identity(self.made), 1, now.monotonic),
                connection: Arc::new(Connection::new(id, peer, SOURCE.into(), Transport::Tcp, false)),
                calls: VecDeque::new(),
                replies: VecDeque::new(),
            }
        });
        let read = Read {
            handle: file.handle,
            stateid: file.stateid,
            offset: fetch.offset,
            count: fetch.count,
            wants_size: fetch.wants_size,
        };
        open.reader.read(read, credential(), tag);
    }

    /// Takes what became of READs, for the destination.
    pub(super) fn take_outcomes(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.outcomes)
    }

    /// Passes on what was answered.
    fn hear(&mut self, now: Now) {
        let mut again = Vec::new();
        if let Some(open) = &mut self.open {
            let granted = open.reader.max_read();
            while let Some((tag, answer)) = open.reader.poll_answer() {
                settle((&mut self.reads, &mut self.outcomes), (tag, answer), granted, now, &mut again);
            }
        }
        again.into_iter().for_each(|tag| self.ask(tag, now));
    }

    /// The connection is no more.
    pub(super) fn close(&mut self, source: &Server, error: ReadError, now: Now) {
        let Some(mut open) = self.open.take() else { return };
        source.connection_closed(open.connection.id);
        open.reader.fail_all(error);
        let (granted, mut again) = (open.reader.max_read(), Vec::new());
        while let Some((tag, answer)) = open.reader.poll_answer() {
            settle((&mut self.reads, &mut self.outcomes), (tag, answer), granted, now, &mut again);
        }
        again.into_iter().for_each(|tag| self.ask(tag, now));
    }

    /// The destination is killed.
    pub(super) fn forget(&mut self, source: &Server) {
        self.reads.clear();
        self.outcomes.clear();
        if let Some(open) = self.open.take() {
            source.connection_closed(open.connection.id);
        }
    }

    /// One record arrives, or does not. A source that is mute hears nothing.
    pub(super) fn carry(&mut self, source: &Server, is_mute: bool, now: Now, rng: &mut Rng) {
        let is_call = rng.chance(50);
        let Some(open) = &mut self.open else { return };
        let way = if is_call { &mut open.calls } else { &mut open.replies };
        let Some(record) = way.pop_front() else { return };
        let fate = rng.below(1000);
        if fate < BREAKING {
            return self.close(source, ReadError::SessionLost, now);
        }
        if (BREAKING..BREAKING + LOST).contains(&fate) || is_mute {
            return;
        }
        if (BREAKING + LOST..BREAKING + LOST + TWICE).contains(&fate) {
            way.push_front(record.clone());
        }
        if is_call {
            open.replies.extend(super::deliver(source, &open.connection, now, record));
        } else if let Err(error) = open.reader.handle_record(now.monotonic, record) {
            self.close(source, error, now);
        } else {
            self.hear(now);
        }
    }
}

/// What becomes of a READ; one that was lost may be asked again.
fn settle(
    (reads, outcomes): (&mut BTreeMap<u32, Wanted>, &mut Vec<Done>),
    (tag, answer): (u32, Result<ReadData, ReadError>),
    granted: u32,
    now: Now,
    again: &mut Vec<u32>,
) {
    let Some(wanted) = reads.get_mut(&tag) else { return };
    let answer = match answer {
        Ok(ReadData { content, is_end, size }) => Ok(Fetched { content, is_end, granted, size, at: now }),
        Err(error) => match wanted.retry.failed(error) {
            Ok(()) => return again.push(tag),
            Err(error) => Err(error_of(error)),
        },
    };
    if let Some(wanted) = reads.remove(&tag) {
        outcomes.push((wanted.fetch, answer));
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
