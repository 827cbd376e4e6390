//! The log without its device: what is appended, what is to be written, what is stable, and what is free again.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::format::{FRAME_BYTES_MAX, Found, Header, Place, encode_frame, frame_blocks, place_in_ring};
use super::record::Record;
use crate::{Committer, Committing, Error, NotDurable, Peer, Result, Thread};

/// Counts of the journals of a server.
#[derive(Debug, Default)]
pub struct JournalCounts {
    /// Writes of a log that were made durable, each with one sync.
    pub syncs: AtomicU64,
    /// Changes that were answered when they were in a log.
    pub changes: AtomicU64,
    /// Changes that could not be put into the log, and were made durable in the file system instead.
    pub bypasses: AtomicU64,
    /// Checkpoints: the file system was synced as far as a log had changes for it.
    pub checkpoints: AtomicU64,
    /// Objects that checkpoints synced.
    pub checkpointed_objects: AtomicU64,
    /// Journals that failed, and take no more changes.
    pub failures: AtomicU64,
}

impl JournalCounts {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The log of a file system's changes.
///
/// The owner of the device asks for [writes](Self::poll_write), makes each of them durable, and [tells](Self::written) the outcome. There
/// is one write at a time; everything that is appended meanwhile goes into the next.
#[derive(Debug)]
pub struct Log {
    state: Mutex<State>,
    counts: Arc<JournalCounts>,
}

/// Bytes to write to the log's file, at their places. They are durable together.
#[derive(Debug)]
pub struct LogWrite {
    /// Place and content of each piece.
    pub pieces: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug)]
struct State {
    /// The newest header.
    header: Header,
    /// Whether it is still to be written.
    is_header_due: bool,
    /// The header that is being written.
    writing: Option<Header>,
    /// The header on the device: frames from its tail on are needed.
    durable: Header,
    /// The next frame.
    end: Place,
    /// Its records.
    gathering: Vec<u8>,
    /// Blocks and bytes that are reserved for records.
    reserved: u64,
    reserved_bytes: usize,
    /// Number of each frame since the tail, and its end.
    frames: VecDeque<Place>,
    /// Frames below this number are stable.
    stable: u64,
    is_writing: bool,
    /// Whether the log takes nothing more.
    has_failed: bool,
    /// Whether its device failed.
    is_broken: bool,
    is_closed: bool,
    driver: Option<Waker>,
    waiting: Waiters,
}

/// Tasks that wait for any progress of the log.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    wakers: Vec<(u64, Waker)>,
    last_ticket: u64,
}

impl Waiters {
    /// Registers the task, which has the ticket from its first call.
    pub(super) fn register(&mut self, ticket: &mut Option<u64>, waker: &Waker) {
        let last = &mut self.last_ticket;
        let ticket = *ticket.get_or_insert_with(|| {
            *last += 1;
            *last
        });
        match self.wakers.iter_mut().find(|(other, _)| *other == ticket) {
            Some((_, old)) => old.clone_from(waker),
            None => self.wakers.push((ticket, waker.clone())),
        }
    }

    /// Takes all tasks, to wake them without a lock.
    pub(super) fn take(&mut self) -> Vec<(u64, Waker)> {
        std::mem::take(&mut self.wakers)
    }
}

pub(super) fn wake(wakers: Vec<(u64, Waker)>) {
    wakers.into_iter().for_each(|(_, waker)| waker.wake());
}

/// Room for a record.
#[derive(Debug)]
pub(super) struct Reservation<'l> {
    log: &'l Log,
    blocks: u64,
    bytes: usize,
}

impl Reservation<'_> {
    /// Appends the record, which must not be longer than the reservation. Returns the number of its frame.
    pub(super) fn append(self, record: &Record) -> u64 {
        let mut state = self.log.state.lock();
        record.encode(&mut state.gathering);
        let number = state.end.number;
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
        number
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut state = self.log.state.lock();
        state.reserved -= self.blocks;
        state.reserved_bytes -= self.bytes;
    }
}

impl Log {
    /// Creates a new log in a file of `file_bytes` bytes, all zero. `key` must be random.
    ///
    /// # Panics
    /// If the file is too short for a log.
    #[must_use]
    pub fn create(
        identity: [u8; 16],
        (key, boot): ([u8; 16], [u8; 16]),
        file_bytes: u64,
        counts: Arc<JournalCounts>,
    ) -> Self {
        let header = Header::new(identity, key, boot, file_bytes);
        Self::with(header, header, counts)
    }

    /// Continues a log whose records are all on stable storage in the file system.
    #[must_use]
    pub fn resume(found: &Found, boot: [u8; 16], counts: Arc<JournalCounts>) -> Self {
        Self::with(Header { boot, tail: found.end, ..found.header }, found.header, counts)
    }

    /// `durable` is on the device, or the file has no header.
    fn with(header: Header, durable: Header, counts: Arc<JournalCounts>) -> Self {
        let end = header.tail;
        let state = State {
            header: Header { generation: durable.generation + 1, ..header },
            is_header_due: true,
            writing: None,
            durable,
            end,
            gathering: Vec::new(),
            reserved: 0,
            reserved_bytes: 0,
            frames: VecDeque::new(),
            stable: end.number,
            is_writing: false,
            has_failed: false,
            is_broken: false,
            is_closed: false,
            driver: None,
            waiting: Waiters::default(),
        };
        Self { state: Mutex::new(state), counts }
    }

    pub(super) fn counts(&self) -> &JournalCounts {
        &self.counts
    }

    /// Returns the random number of the log.
    #[must_use]
    pub fn key(&self) -> [u8; 16] {
        self.state.lock().header.key
    }

    /// Returns whether a write failed, or the file system did.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state.lock().has_failed
    }

    /// Reserves room for a record of this many bytes. `None` if the log is full or failed.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Reservation<'_>> {
        let mut state = self.state.lock();
        let blocks = frame_blocks(bytes);
        // All reserved records may come into one frame.
        let is_too_long = state.gathering.len() + state.reserved_bytes + bytes > FRAME_BYTES_MAX;
        if state.has_failed || state.is_closed || is_too_long || state.used() + blocks > state.header.blocks {
            return None;
        }
        state.reserved += blocks;
        state.reserved_bytes += bytes;
        Some(Reservation { log: self, blocks, bytes })
    }

    /// Returns whether more than half of the log is used.
    pub(super) fn is_half_full(&self) -> bool {
        let state = self.state.lock();
        state.used() > state.header.blocks / 2
    }

    /// Returns the number of the frame that the last appended record is in, or a lower one without records.
    pub(super) fn last(&self) -> u64 {
        let state = self.state.lock();
        state.end.number - u64::from(state.gathering.is_empty())
    }

    /// Returns the number of the last frame that takes no more records.
    pub(super) fn last_closed(&self) -> u64 {
        self.state.lock().end.number - 1
    }

    /// Returns the next write, when there is one; `None` at the end. The caller makes it durable and calls
    /// [`Self::written`] before it asks again.
    pub fn poll_write(&self, context: &mut Context<'_>) -> Poll<Option<LogWrite>> {
        let mut state = self.state.lock();
        let has_work = !state.is_broken && (state.is_header_due || !state.gathering.is_empty());
        if has_work && !state.is_writing {
            state.is_writing = true;
            return Poll::Ready(Some(state.next_write()));
        }
        if state.is_closed && !has_work {
            return Poll::Ready(None);
        }
        state.driver = Some(context.waker().clone());
        Poll::Pending
    }

    /// Notes that the last write is durable, or that it failed: then the log takes nothing more.
    pub fn written(&self, is_durable: bool) {
        let mut state = self.state.lock();
        state.is_writing = false;
        if is_durable {
            JournalCounts::count(&self.counts.syncs);
            state.stable = state.end.number;
            if let Some(header) = state.writing.take() {
                state.durable = header;
                while state.frames.front().is_some_and(|frame| frame.number < header.tail.number) {
                    state.frames.pop_front();
                }
            }
        } else {
            state.is_broken = true;
            self.note_failure(&mut state);
        }
        let waiting = state.waiting.take();
        drop(state);
        wake(waiting);
    }

    /// Waits until `is_reached` is true of the state.
    async fn until(&self, is_reached: impl Fn(&State) -> bool) -> Result<()> {
        let mut ticket = None;
        poll_fn(|context| {
            let mut state = self.state.lock();
            if is_reached(&state) {
                return Poll::Ready(Ok(()));
            }
            if state.is_broken {
                return Poll::Ready(Err(Error::Io));
            }
            state.waiting.register(&mut ticket, context.waker());
            Poll::Pending
        })
        .await
    }

    /// Waits until the records of a frame are on stable storage.
    pub(super) async fn wait(&self, number: u64) -> Result<()> {
        self.until(|state| state.stable > number).await
    }

    /// Waits until the header on the device is this log's own.
    ///
    /// # Errors
    /// [`Error::Io`]: it cannot be written.
    pub async fn ready(&self) -> Result<()> {
        self.until(|state| state.durable.generation == state.header.generation).await
    }

    /// Frees the frames up to this number, whose changes are on stable storage in the file system. After that, a crash does
    /// not repeat them.
    pub(super) async fn free(&self, number: u64) -> Result<()> {
        self.wait(number).await?;
        let driver = {
            let mut state = self.state.lock();
            let Some(freed) = state.frames.iter().rfind(|frame| frame.number <= number).copied() else {
                return Ok(());
            };
            let tail = Place { at: freed.at, number: freed.number + 1 };
            let header = Header { tail, ..state.header };
            state.replace_header(header);
            state.driver.take()
        };
        driver.into_iter().for_each(Waker::wake);
        self.until(|state| state.durable.tail.number > number).await
    }

    /// Notes that the file system failed to make changes durable: the log takes nothing more, and the next start repeats what it
    /// has, even if the machine runs on.
    pub(super) fn fail(&self) {
        let mut state = self.state.lock();
        if state.has_failed {
            return;
        }
        self.note_failure(&mut state);
        let header = Header { boot: [0; 16], ..state.header };
        state.replace_header(header);
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }

    fn note_failure(&self, state: &mut State) {
        if !std::mem::replace(&mut state.has_failed, true) {
            JournalCounts::count(&self.counts.failures);
        }
    }

    /// Lets [`Self::poll_write`] end.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// Returns the number of blocks of the ring that are not free.
    fn used(&self) -> u64 {
        let gathering = if self.gathering.is_empty() { 0 } else { frame_blocks(self.gathering.len()) };
        self.end.at - self.durable.tail.at + gathering + self.reserved
    }

    /// Sets the next header. Each header on the device replaces the one before the last.
    fn replace_header(&mut self, header: Header) {
        let generation = self.header.generation + u64::from(!self.is_header_due);
        self.header = Header { generation, ..header };
        self.is_header_due = true;
    }

    fn next_write(&mut self) -> LogWrite {
        let mut pieces = Vec::new();
        if std::mem::take(&mut self.is_header_due) {
            pieces.push(self.header.encode());
            self.writing = Some(self.header);
        }
        if !self.gathering.is_empty() {
            let records = std::mem::take(&mut self.gathering);
            let frame = encode_frame(&self.durable, self.end.number, &records);
            let end = self.end.at + frame_blocks(records.len());
            pieces.extend(place_in_ring(&self.header, self.end.at, frame));
            self.frames.push_back(Place { at: end, number: self.end.number });
            self.end = Place { at: end, number: self.end.number + 1 };
        }
        LogWrite { pieces }
    }
}

impl Committer for Log {
    /// The number of a frame.
    type Change = u64;

    fn commit(self: Arc<Self>, changes: Vec<(u32, u64)>, _: Thread, _: Peer) -> Committing {
        Box::pin(async move {
            for (operation, number) in changes {
                self.wait(number).await.map_err(|error| NotDurable { operation, error })?;
            }
            Ok(())
        })
    }
}
