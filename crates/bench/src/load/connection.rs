//! The closed loop of one connection: every reply allows the next request.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use hdrhistogram::Histogram;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::replies::{Reply, Splitter};
use super::workload::{Outcome, Workload, Xids};
use crate::error::LoadError;

/// Size of the receive buffer: holds every reply to a full batch of small requests, and stays in the core's cache.
const INBOX_BYTES: usize = 256 << 10;
/// Maximum number of slices in one write: requests with a payload have two each.
const SLICES_MAX: usize = 64;
/// Sent requests are dropped from the outbox when they have grown to this many bytes.
const OUTBOX_SLACK_BYTES: usize = 64 << 10;
/// Maximum latency that is distinguished, in nanoseconds: a minute.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// The phases of a measurement, which determine the counting of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before the window: caches fill, nothing is counted.
    WarmUp,
    /// Inside the window.
    Measure,
    /// After it: outstanding operations end, no new one starts.
    Drain,
}

/// State that all connections of a run share; they live on one thread.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The current phase, which the runner sets.
    pub(crate) phase: Cell<Phase>,
    /// Operations finished in this phase.
    pub(crate) finished: Cell<u64>,
    /// Their latencies in nanoseconds.
    pub(crate) latency_ns: RefCell<Histogram<u64>>,
}

impl Tally {
    /// Returns empty counts.
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("bounds are valid");
        Self { phase: Cell::new(Phase::WarmUp), finished: Cell::new(0), latency_ns: RefCell::new(histogram) }
    }
}

/// The current operation of a slot.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The xid awaited, if any.
    xid: Option<u32>,
    /// When the operation's (first) request was made.
    started: Instant,
}

/// One connection with its slots.
pub(crate) struct Connection {
    stream: TcpStream,
    workload: Box<dyn Workload>,
    tally: Rc<Tally>,
    xids: Rc<Xids>,
    slots: Vec<Slot>,
    /// Slots that await a reply.
    outstanding: usize,
    /// Request heads, from the oldest that is not sent whole.
    outbox: Vec<u8>,
    /// Length of a request head, if requests have a payload.
    head_bytes: usize,
    /// Bytes sent of the stream that heads and payloads make, counted from the start of the outbox.
    sent: usize,
    inbox: Box<[u8]>,
    /// Bytes at the start of the inbox that wait for the rest of a record mark.
    kept: usize,
    splitter: Splitter,
}

impl Connection {
    /// Creates a connection of `depth` slots over `stream`, on which nothing is outstanding.
    pub(crate) fn new(
        stream: TcpStream,
        workload: Box<dyn Workload>,
        depth: usize,
        tally: Rc<Tally>,
        xids: Rc<Xids>,
    ) -> Self {
        let idle = Slot { xid: None, started: Instant::now() };
        let splitter = Splitter::keeping(workload.reply_head_bytes());
        Self {
            stream,
            workload,
            tally,
            xids,
            slots: vec![idle; depth],
            outstanding: 0,
            outbox: Vec::new(),
            head_bytes: 0,
            sent: 0,
            inbox: vec![0; INBOX_BYTES].into_boxed_slice(),
            kept: 0,
            splitter,
        }
    }

    /// Runs until the phase is [`Phase::Drain`] and nothing is outstanding, then returns the connection.
    ///
    /// # Errors
    /// A broken connection, or a wrong reply.
    pub(crate) async fn run(mut self) -> Result<TcpStream, LoadError> {
        let now = Instant::now();
        for slot in 0..self.slots.len() {
            self.start(slot, now);
        }
        poll_fn(|context| self.poll(context)).await?;
        Ok(self.stream)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), LoadError>> {
        let broken = |error| LoadError::Connection("measured connection".into(), error);
        loop {
            // Replies must be read even if not all requests could be sent, otherwise both sides would wait for each other.
            if let Poll::Ready(Err(error)) = self.poll_flush(context) {
                return Poll::Ready(Err(broken(error)));
            }
            if self.outstanding == 0 {
                return Poll::Ready(Ok(()));
            }
            let filled = ready!(self.poll_fill(context)).map_err(broken)?;
            self.take_replies(filled)
                .map_err(|why| LoadError::WrongReply(format!("measured request: {why}")))?;
        }
    }

    /// Creates the slot's next request.
    fn request(&mut self, slot: usize) {
        let xid = self.xids.take(slot);
        self.slots[slot].xid = Some(xid);
        self.outstanding += 1;
        let before = self.outbox.len();
        self.workload.request(slot, xid, &mut self.outbox);
        self.head_bytes = self.outbox.len() - before;
    }

    fn start(&mut self, slot: usize, now: Instant) {
        self.slots[slot].started = now;
        self.request(slot);
    }

    /// Sends as much as the socket accepts.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let payload = self.workload.payload();
        let unit = self.head_bytes + payload.len();
        let total = match payload.len() {
            0 => self.outbox.len(),
            length => self.outbox.len() + self.outbox.len() / self.head_bytes * length,
        };
        while self.sent < total {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = if payload.is_empty() {
                slices[0] = IoSlice::new(&self.outbox[self.sent..]);
                1
            } else {
                gather(&self.outbox, self.head_bytes, payload, self.sent, &mut slices)
            };
            let stream = Pin::new(&mut self.stream);
            match ready!(stream.poll_write_vectored(context, &slices[..count]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => self.sent += bytes,
            }
            let done = if payload.is_empty() { self.sent } else { self.sent / unit * self.head_bytes };
            if done > OUTBOX_SLACK_BYTES {
                self.outbox.drain(..done);
                self.sent = if payload.is_empty() { 0 } else { self.sent % unit };
                return self.poll_flush(context);
            }
        }
        self.outbox.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads the available bytes, after the bytes kept, and returns the number of bytes in the inbox.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(&mut self.inbox[self.kept..]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        match buffer.filled().len() {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            bytes => Poll::Ready(Ok(self.kept + bytes)),
        }
    }

    /// Checks every complete reply in the first `filled` bytes of the inbox, and creates the next requests.
    ///
    /// One clock reading is used for the whole batch: that time is the end of these operations
    /// and the beginning of those that take their slots.
    fn take_replies(&mut self, filled: usize) -> Result<(), String> {
        let now = Instant::now();
        let inbox = std::mem::take(&mut self.inbox);
        // The replacement is empty and unused.
        let mut splitter = std::mem::replace(&mut self.splitter, Splitter::keeping(0));
        let used = splitter.split(&inbox[..filled], |reply| self.take_reply(&reply, now));
        self.splitter = splitter;
        self.inbox = inbox;
        let used = used?;
        self.inbox.copy_within(used..filled, 0);
        self.kept = filled - used;
        Ok(())
    }

    fn take_reply(&mut self, reply: &Reply<'_>, now: Instant) -> Result<(), String> {
        let xid = reply.xid()?;
        let slot = Xids::slot_of(xid);
        if self.slots.get(slot).and_then(|slot| slot.xid) != Some(xid) {
            return Err(format!("xid {xid:#x} is not outstanding"));
        }
        self.slots[slot].xid = None;
        self.outstanding -= 1;
        match self.workload.reply(slot, reply)? {
            Outcome::Continues => self.request(slot),
            Outcome::Finished => {
                let phase = self.tally.phase.get();
                self.tally.finished.set(self.tally.finished.get() + 1);
                if phase == Phase::Measure {
                    let latency = (now - self.slots[slot].started).as_nanos() as u64;
                    self.tally.latency_ns.borrow_mut().saturating_record(latency);
                }
                if phase != Phase::Drain {
                    self.start(slot, now);
                }
            }
        }
        Ok(())
    }
}

/// Fills `slices` with the rest after byte `sent` of the stream head, payload, head, payload, …; returns their number.
fn gather<'b>(
    heads: &'b [u8],
    head_bytes: usize,
    payload: &'b [u8],
    sent: usize,
    slices: &mut [IoSlice<'b>],
) -> usize {
    let unit = head_bytes + payload.len();
    let mut skip = sent % unit;
    let mut count = 0;
    for head in heads[sent / unit * head_bytes..].chunks_exact(head_bytes) {
        for piece in [head, payload] {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            if count == slices.len() {
                return count;
            }
            slices[count] = IoSlice::new(&piece[skip..]);
            skip = 0;
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gather_continues_at_the_end_of_the_last_write() {
        let heads = b"AABBCC";
        let whole = b"AAxyzBBxyzCCxyz";
        for sent in 0..whole.len() {
            for pieces in 1..=6 {
                let mut slices = vec![IoSlice::new(&[]); pieces];
                let count = gather(heads, 2, b"xyz", sent, &mut slices);
                let bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                assert!(!bytes.is_empty());
                assert!(whole[sent..].starts_with(&bytes), "sent {sent}");
                if pieces == 6 {
                    assert_eq!(bytes, &whole[sent..]);
                }
            }
        }
    }
}
