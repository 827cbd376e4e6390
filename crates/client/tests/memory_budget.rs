//! 1,000 sequential readers, a `find` over 1,000,000 files and 64 writers share a small budget.
//!
//! Accounted memory stays within the budget at every step, allocated memory within 1.25 × budget + 64 MiB, and every
//! process finishes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use client::attributes::{Attributes, FileKind, FsId, Timestamp};
use client::cache::FileId;
use client::cache::directory::{DirectoryEntry, FIRST_COOKIE, Page};
use client::cache::limiter::{Budget, Kind, Limiter, Permit, Pressure, Reserve, User};
use client::cache::metadata::{Metadata, Options};
use client::cache::pages::{FetchId, Piece, charge};
use client::cache::read_ahead::{Cached, ReadAhead};
use client::results::Stability;
use client::write::{Settings, SyncTicket, WriteAction, WriteBehind, Written};

const BUDGET: u64 = 64 << 20;
const READERS: u64 = 1000;
const WRITERS: u64 = 64;
const READ_SIZE: u64 = 128 << 10;
const READ_BYTES: u64 = 1 << 20;
const WRITE_SIZE: u64 = 64 << 10;
const WRITE_BYTES: u64 = 4 << 20;
const FILES: u64 = 1_000_000;
const FILES_IN_DIRECTORY: u64 = 1000;
/// Requests that the server answers while every process takes a step.
const REPLIES_PER_STEP: usize = 200;

/// Counts the bytes that are allocated.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting has no effect on memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `dealloc`'s contract, and `pointer` is from `System.alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A READ under way.
struct Fetch {
    file: FileId,
    range: Range<u64>,
    id: FetchId,
    permit: Permit,
}

struct Client {
    limiter: Limiter,
    metadata: Metadata,
    writes: WriteBehind,
    fetches: VecDeque<Fetch>,
    /// Data that were handed to a reader that waited; the cache may evict them at once.
    delivered: HashMap<FileId, Range<u64>>,
    requests: VecDeque<WriteAction>,
    now: Duration,
}

struct Reader {
    file: FileId,
    user: User,
    ahead: ReadAhead,
    offset: u64,
    waits: Option<Reserve>,
}

struct Writer {
    file: FileId,
    user: User,
    offset: u64,
    pause_until: Duration,
    waits: Option<Reserve>,
    ticket: Option<SyncTicket>,
}

fn poll(reserve: &mut Option<Reserve>) -> Option<Permit> {
    let waiting = reserve.as_mut()?;
    match Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(permit) => {
            *reserve = None;
            Some(permit.expect("the reservation fits the budget"))
        }
        Poll::Pending => None,
    }
}

impl Client {
    fn new() -> Self {
        let limiter = Limiter::new(Budget::new(BUDGET));
        let metadata = Metadata::new(&limiter, Options::default());
        let writes = WriteBehind::new(Settings { wsize: 256 << 10, ..Settings::default() });
        let (fetches, delivered, requests) = Default::default();
        Self { limiter, metadata, writes, fetches, delivered, requests, now: Duration::ZERO }
    }

    fn serve(&mut self) {
        for _ in 0..REPLIES_PER_STEP {
            let Some(fetch) = self.fetches.pop_front() else { break };
            let data = Bytes::from(vec![1; (fetch.range.end - fetch.range.start) as usize]);
            self.delivered.insert(fetch.file, fetch.range.clone());
            self.writes.pages_mut().end_fetch(fetch.file, fetch.id, fetch.range.start, data, fetch.permit);
        }
        while let Some(action) = self.writes.poll_action(self.now) {
            self.requests.push_back(action);
        }
        for _ in 0..REPLIES_PER_STEP / 20 {
            match self.requests.pop_front() {
                Some(WriteAction::Write { data, stability, id, .. }) => {
                    let count = data.iter().map(Bytes::len).sum::<usize>() as u32;
                    self.writes.handle_written(id, Ok(Written { count, stability, verifier: [1; 8] }));
                }
                Some(WriteAction::Commit { id, .. }) => self.writes.handle_committed(id, Ok([1; 8])),
                None => break,
            }
        }
    }

    fn check(&mut self) {
        if self.limiter.pressure() > Pressure::None {
            let demand = self.limiter.demand();
            self.writes.give_up(demand);
            self.metadata.give_up(demand.metadata);
        }
        assert!(self.limiter.used().total() <= BUDGET, "{:?}", self.limiter.used());
        let allocated = ALLOCATED.load(Ordering::Relaxed) as u64;
        assert!(allocated <= BUDGET / 4 * 5 + (64 << 20), "{} MiB are allocated", allocated >> 20);
    }
}

impl Reader {
    fn step(&mut self, client: &mut Client) {
        if self.offset >= READ_BYTES {
            return;
        }
        let range = self.offset..self.offset + READ_SIZE;
        if client.delivered.remove(&self.file).is_some_and(|delivered| delivered == range) {
            self.offset = range.end;
            return;
        }
        let pieces = client.writes.pages_mut().read(self.file, range.clone());
        let hole = pieces.iter().find_map(|piece| match piece {
            Piece::Hole(hole) => Some(hole.clone()),
            _ => None,
        });
        let coming = pieces.iter().any(|piece| matches!(piece, Piece::Coming { .. }));
        if let Some(hole) = hole {
            let len = (hole.end - hole.start) as usize;
            self.waits.get_or_insert_with(|| self.user.reserve(Kind::Clean, charge(len)));
            if let Some(permit) = poll(&mut self.waits) {
                self.fetch(client, hole, permit);
                self.read_ahead(client, range, Cached::No);
            }
        } else if !coming {
            self.read_ahead(client, range.clone(), Cached::Yes);
            self.offset = range.end;
        }
    }

    fn read_ahead(&mut self, client: &mut Client, range: Range<u64>, cached: Cached) {
        let mut fetch = self.ahead.read(range, cached, READ_BYTES).fetch;
        while !fetch.is_empty() {
            let part = fetch.start..fetch.end.min(fetch.start + READ_SIZE);
            let Ok(permit) = self.user.try_reserve(Kind::ReadAhead, charge((part.end - part.start) as usize))
            else {
                self.ahead.refused(fetch.start);
                break;
            };
            fetch.start = part.end;
            self.fetch(client, part, permit);
        }
    }

    fn fetch(&mut self, client: &mut Client, range: Range<u64>, permit: Permit) {
        if let Some(id) = client.writes.pages_mut().start_fetch(self.file, range.clone()) {
            client.fetches.push_back(Fetch { file: self.file, range, id, permit });
        }
    }
}

impl Writer {
    fn step(&mut self, client: &mut Client) {
        if self.offset >= WRITE_BYTES {
            self.ticket.get_or_insert_with(|| client.writes.sync(self.file, 0..u64::MAX));
            return;
        }
        if client.now < self.pause_until {
            return;
        }
        let bytes = charge(WRITE_SIZE as usize);
        self.waits.get_or_insert_with(|| self.user.reserve(Kind::Dirty, bytes));
        let Some(permit) = poll(&mut self.waits) else { return };
        let data = Bytes::from(vec![2; WRITE_SIZE as usize]);
        client.writes.write(self.file, self.offset, data, permit, Stability::Unstable, client.now);
        self.offset += WRITE_SIZE;
        self.pause_until = client.now + client.limiter.write_delay(client.now, WRITE_SIZE);
    }

    fn is_done(&self) -> bool {
        self.ticket.as_ref().is_some_and(SyncTicket::is_done)
    }
}

fn attributes(kind: FileKind, fileid: u64) -> Attributes {
    Attributes {
        kind,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        device: (0, 0),
        fsid: FsId::default(),
        fileid,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        change: Some(1),
    }
}

/// Simulates one READDIRPLUS of `find`: names, handles and attributes of a whole directory.
fn list_directory(client: &mut Client, directory: u64) {
    let now = client.now;
    let directory_id = FileId((1 << 40) + directory);
    let metadata = &mut client.metadata;
    let started = metadata.attributes.start(now);
    let _ = metadata.attributes.update(
        directory_id,
        started,
        attributes(FileKind::Directory, directory_id.0),
        now,
    );
    let Some(epoch) = metadata.attributes.epoch(directory_id) else { return };
    let (reading, looking) =
        (metadata.directories.start(directory_id, epoch, FIRST_COOKIE), metadata.names.start(epoch));
    let entry = |index: u64| DirectoryEntry {
        name: Bytes::from(format!("file-{index:06}")),
        cookie: index + 1,
        fileid: index,
        kind: Some(FileKind::Regular),
        file: Some(FileId((1 << 41) + directory * FILES_IN_DIRECTORY + index)),
    };
    let entries = (0..FILES_IN_DIRECTORY).map(entry).collect();
    let page = Page { entries, next_cookie: FILES_IN_DIRECTORY, end: true };
    for entry in page.entries.iter() {
        let Some(file) = entry.file else { continue };
        metadata.names.looked_up(looking, directory_id, &entry.name, Some(file));
        let _ = metadata.attributes.update(file, started, attributes(FileKind::Regular, file.0), now);
    }
    metadata.directories.insert(reading, [0; 8], page).expect("cookies do not loop");
}

#[test]
fn readers_writers_and_find_stay_within_the_budget() {
    let mut client = Client::new();
    let reader = |file| Reader {
        file: FileId(file),
        user: client.limiter.user(),
        ahead: ReadAhead::default(),
        offset: 0,
        waits: None,
    };
    let mut readers: Vec<Reader> = (0..READERS).map(reader).collect();
    let writer = |file| Writer {
        file: FileId(READERS + file),
        user: client.limiter.user(),
        offset: 0,
        pause_until: Duration::ZERO,
        waits: None,
        ticket: None,
    };
    let mut writers: Vec<Writer> = (0..WRITERS).map(writer).collect();
    let mut directories = 0..FILES / FILES_IN_DIRECTORY;
    let mut highest = Pressure::None;
    for step in 0.. {
        assert!(step < 100_000, "a process makes no progress");
        client.now += Duration::from_millis(1);
        for reader in &mut readers {
            reader.step(&mut client);
        }
        for writer in &mut writers {
            writer.step(&mut client);
        }
        let listed = directories.next().map(|directory| list_directory(&mut client, directory));
        highest = highest.max(client.limiter.pressure());
        client.check();
        client.serve();
        client.check();
        let read = readers.iter().all(|reader| reader.offset >= READ_BYTES);
        if listed.is_none() && read && writers.iter().all(Writer::is_done) {
            break;
        }
    }
    assert_eq!(highest, Pressure::Wait, "the budget was never short");
    // Everything can be released.
    drop((readers, writers));
    client.metadata.give_up(u64::MAX);
    client.writes.pages_mut().evict(Kind::Clean, u64::MAX);
    client.writes.pages_mut().evict(Kind::ReadAhead, u64::MAX);
    assert_eq!(client.limiter.used().total(), 0);
}
