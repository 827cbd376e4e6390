use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt};
use rpc::record::{self, RecordDecoder};
use server::{Connection, Disposition, Outbox, Outcome, Server, Suppressed, Throttle};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tracing::{debug, info, warn};
use xdr::Writer;

use crate::budget::{Budget, Charge};
use crate::busy_poll::BusyPoll;
use crate::end::{End, Stall};
use crate::output::Output;
use crate::slot::Slot;
use crate::{Call, Clock, Limits, Observe, PeerPolicy, pool};

/// Bytes of one read, unless a longer record is awaited. Its requests are answered by one write before more is read: the client
/// processes replies while the server processes requests, and neither sleeps.
const READ_AT_ONCE: usize = pool::RECEIVE_BUFFER;

/// Bytes that a connection reads before the other connections of its core have their turn.
const BYTES_A_TURN: usize = READ_AT_ONCE;

/// Maximum length of a record that is not counted against the memory limit: metadata requests are shorter, and proceed when memory
/// is short.
const SHORT_RECORD: usize = 4 << 10;

/// Maximum time for one record, in stall timeouts, however steadily its bytes arrive.
const STALLS_PER_RECORD: u32 = 5;

/// The time that a connection waits before it checks again for memory for its record.
const BUDGET_PAUSE: Duration = Duration::from_millis(20);

/// State that all connections share.
pub(crate) struct Shared {
    pub(crate) server: Arc<Server>,
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) budget: Arc<Budget>,
    /// Limits log lines that peers can cause.
    pub(crate) throttle: Throttle,
    pub(crate) observer: Option<Arc<dyn Observe>>,
    /// Decides which users local peers may claim; without it they are treated like other machines.
    pub(crate) peers: Option<Arc<PeerPolicy>>,
}

impl Shared {
    /// Logs a peer's error, unless there are too many. `log` gets the number of lines that were suppressed.
    pub(crate) fn throttled(&self, log: impl FnOnce(Suppressed)) {
        if let Some(suppressed) = self.throttle.admit(self.clock.now()) {
            log(suppressed);
        }
    }
}

/// Lets a core stop a connection of its own thread.
#[derive(Debug, Default)]
pub(crate) struct Control {
    is_stopping: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Control {
    /// Makes the connection answer the calls that it has read, and close.
    pub(crate) fn stop(&self) {
        self.is_stopping.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Returns whether [`Self::stop`] was called; otherwise it will wake `context`.
    fn is_stopping(&self, context: &Context<'_>) -> bool {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        self.is_stopping.get()
    }
}

/// Counts and logs the end of a connection.
fn log_end(shared: &Shared, connection: &Connection, end: End) {
    let (peer, metrics) = (connection.peer, shared.server.metrics());
    match end {
        End::Closed => debug!(%peer, "connection closed"),
        End::Protocol(why) => {
            metrics.malformed.fetch_add(1, Relaxed);
            shared.throttled(|suppressed| warn!(%peer, suppressed, "connection closed: {why}"));
        }
        End::Stalled(stall) => {
            metrics.stalled_connections.fetch_add(1, Relaxed);
            shared.throttled(|suppressed| warn!(%peer, suppressed, "connection closed: {stall}"));
        }
        End::Unreachable(error) => {
            metrics.unreachable_connections.fetch_add(1, Relaxed);
            shared.throttled(
                |suppressed| info!(%peer, suppressed, "connection lost: the peer is unreachable: {error}"),
            );
        }
        End::Io(error) => debug!(%peer, "connection lost: {error}"),
    }
}

/// An answered call, with its reply as a whole record, or an empty one.
struct Answered {
    reply: Writer,
    must_close: bool,
}

impl Answered {
    /// Queues the reply; returns whether the connection must be closed.
    fn queue(self, output: &mut Output) -> bool {
        let Self { mut reply, must_close } = self;
        output.push(&mut reply);
        pool::give_reply_buffer(reply);
        must_close
    }
}

/// Tells the server when dropped that a connection is closed, even after a panic.
struct CloseGuard<'c> {
    server: &'c Server,
    connection: &'c Connection,
}

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        self.connection.outbox.close();
        self.server.connection_closed(self.connection.id);
    }
}

/// Serves one call.
// Calls borrow shared data: each counted reference would cost two locked instructions a call.
async fn call(shared: &Shared, connection: &Arc<Connection>, now: server::Now, record: Bytes) -> Answered {
    let began = shared.observer.is_some().then(|| (Instant::now(), record.len()));
    let mut reply = pool::take_reply_buffer();
    let start = record::start_record(&mut reply);
    let outcome = shared.server.handle(connection, now, record, &mut reply).await;
    match outcome.disposition {
        Disposition::Reply => record::finish_record(&mut reply, start),
        Disposition::Drop | Disposition::Close => reply.clear(),
    }
    if let (Some(observer), Some((began, received))) = (&shared.observer, began) {
        let (took, sent) = (began.elapsed(), reply.length());
        let Outcome { operation, is_error, .. } = outcome;
        observer.observe(Call { operation, took, is_error, received, sent });
    }
    Answered { reply, must_close: outcome.disposition == Disposition::Close }
}

/// Serves one TCP connection until it ends, then runs its pending calls to their end: they are not left half done, and an NFSv4.1
/// client that repeats one over another connection gets its reply.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    mut stream: TcpStream,
    connection: Arc<Connection>,
    control: Rc<Control>,
) {
    let mut waiting = FuturesUnordered::new();
    let close_guard = CloseGuard { server: &shared.server, connection: &connection };
    let exchange = Exchange {
        shared: &shared,
        stream: &mut stream,
        control: &control,
        connection: &connection,
        waiting: &mut waiting,
        start: |now, record| call(&shared, &connection, now, record),
        decoder: RecordDecoder::new(shared.server.settings().max_record as usize),
        buffer: BytesMut::new(),
        output: Output::default(),
        spare_slot: None,
        is_closing: false,
        arrival: RecordArrival::default(),
        turn: ReadTurn::default(),
        busy_poll: BusyPoll::new(shared.limits.busy_poll),
    };
    let end = exchange.run().await;
    // Counted before the peer can see that it is closed.
    log_end(&shared, &connection, end);
    drop(stream);
    // Before the pending calls: they may wait for a callback reply over this connection.
    drop(close_guard);
    while let Some(Answered { reply, .. }) = waiting.next().await {
        pool::give_reply_buffer(reply);
    }
}

/// Takes calls, gives each to `start`, and sends the replies.
struct Exchange<'c, F, S> {
    shared: &'c Shared,
    stream: &'c mut TcpStream,
    control: &'c Control,
    connection: &'c Connection,
    waiting: &'c mut FuturesUnordered<Slot<F>>,
    start: S,
    decoder: RecordDecoder,
    buffer: BytesMut,
    output: Output,
    spare_slot: Option<Slot<F>>,
    is_closing: bool,
    arrival: RecordArrival,
    turn: ReadTurn,
    busy_poll: BusyPoll,
}

impl<F: Future<Output = Answered>, S: Fn(server::Now, Bytes) -> F> Exchange<'_, F, S> {
    /// Runs until the connection ends.
    async fn run(mut self) -> End {
        loop {
            if let Err(end) = self.step().await {
                return end;
            }
        }
    }

    /// Starts the calls that have arrived, sends replies, and waits for the next event.
    async fn step(&mut self) -> Result<(), End> {
        let is_drained = self.start_calls().await?;
        self.output.flush(self.stream, self.shared.limits.stall_timeout).await?;
        self.turn.yield_if_long().await;
        if self.is_closing && self.waiting.is_empty() {
            return Err(End::Closed);
        }
        if !is_drained && self.may_read() {
            // Only the length of the output stopped the loop. The buffer holds complete records, and no event would wake this
            // task for them.
            return Ok(());
        }
        self.wait().await
    }

    fn may_read(&self) -> bool {
        self.waiting.len() < self.shared.limits.max_waiting_calls && !self.is_closing
    }

    /// Starts calls until a bound is reached, or the buffer holds no complete record: then it returns `true`.
    async fn start_calls(&mut self) -> Result<bool, End> {
        let mut now = None;
        while self.may_read() && !self.output.is_high() {
            match self.decoder.decode(&mut self.buffer) {
                Ok(Some(record)) => {
                    // One reading of the clock serves all records of a read.
                    let now = *now.get_or_insert_with(|| self.shared.clock.now());
                    self.start_call(now, record).await;
                }
                Ok(None) => return Ok(true),
                Err(error) => {
                    // Earlier replies still leave.
                    self.output.flush(self.stream, self.shared.limits.stall_timeout).await?;
                    return Err(error.into());
                }
            }
        }
        Ok(false)
    }

    /// Polls a call once. Its reply is queued, or the call waits with others.
    async fn start_call(&mut self, now: server::Now, record: Bytes) {
        let mut slot = self.spare_slot.take().unwrap_or_else(Slot::new);
        let length = record.len();
        let is_alone = self.busy_poll.request_received() && self.waiting.is_empty();
        self.connection.is_alone.store(is_alone, Relaxed);
        self.arrival = RecordArrival::default();
        slot.fill(|| (self.start)(now, record));
        match poll_fn(|context| Poll::Ready(Pin::new(&mut slot).poll(context))).await {
            Poll::Ready(answered) => {
                self.spare_slot = Some(slot);
                self.is_closing |= answered.queue(&mut self.output);
            }
            Poll::Pending => {
                slot.hold(self.shared.budget.charge(length));
                self.waiting.push(slot);
            }
        }
    }

    /// Waits for data, a reply, a callback, or the shutdown.
    async fn wait(&mut self) -> Result<(), End> {
        let (is_in_record, may_read) = (!self.decoder.is_between_records(&self.buffer), self.may_read());
        if self.waiting.is_empty() && !is_in_record {
            self.become_idle();
        }
        let has_memory = !is_in_record || {
            let max_record = self.shared.server.settings().max_record as usize;
            let length = expected_length(&self.decoder, &self.buffer, max_record);
            self.arrival.charge(&self.shared.budget, length)
        };
        let wanted = (may_read && has_memory).then(|| self.decoder.bytes_wanted());
        let has_calls = !self.waiting.is_empty();
        let sources = (self.control, &*self.connection.outbox, &mut self.busy_poll);
        let event = next_event(self.stream, &mut self.buffer, self.waiting, wanted, sources, self.is_closing);
        let stall_timeout = self.shared.limits.stall_timeout;
        let waited = if is_in_record && may_read {
            self.arrival.wait(event, stall_timeout, has_memory, has_calls).await
        } else {
            Waited::Event(event.await)
        };
        match waited {
            Waited::Event(event) => self.handle_event(event?, is_in_record).await,
            Waited::LookAgain => Ok(()),
            Waited::Stalled => {
                let received = self.decoder.bytes_assembled() + self.buffer.len();
                Err(End::Stalled(Stall::Sending { received, missing: self.decoder.bytes_wanted() }))
            }
        }
    }

    /// Releases memory: the wait may be long, and an idle connection should hold almost none.
    fn become_idle(&mut self) {
        pool::give_receive_buffer(std::mem::take(&mut self.buffer));
        self.output.release();
        self.spare_slot = None;
        self.busy_poll.became_idle(Instant::now);
    }

    async fn handle_event(&mut self, event: Event, is_in_record: bool) -> Result<(), End> {
        match event {
            Event::Received(0) if is_in_record => {
                return Err(End::Protocol("the stream ends within a record".into()));
            }
            Event::Received(0) | Event::Shutdown => self.is_closing = true,
            Event::Received(bytes) => self.turn.bytes += bytes,
            Event::Answered(answered) => {
                self.is_closing |= answered.queue(&mut self.output);
                self.is_closing |= queue_answered(self.waiting, &mut self.output).await;
            }
            Event::Calling(call) => {
                self.busy_poll.callback_sent();
                queue_call(&call, &mut self.output);
            }
        }
        Ok(())
    }
}

/// Queues the replies of all calls that are ready now, so that calls that waited for the same sync leave in one write. Returns
/// whether the connection must be closed.
async fn queue_answered<F: Future<Output = Answered>>(
    waiting: &mut FuturesUnordered<Slot<F>>,
    output: &mut Output,
) -> bool {
    let mut must_close = false;
    poll_fn(|context| {
        while !output.is_high()
            && let Poll::Ready(Some(answered)) = waiting.poll_next_unpin(context)
        {
            must_close |= answered.queue(output);
        }
        Poll::Ready(())
    })
    .await;
    must_close
}

/// Queues a callback.
fn queue_call(call: &[u8], output: &mut Output) {
    let mut record = pool::take_reply_buffer();
    let start = record::start_record(&mut record);
    record.raw(call);
    record::finish_record(&mut record, start);
    output.push(&mut record);
    pool::give_reply_buffer(record);
}

/// Counts the bytes that a connection has read since the others of its core had their turn: a fast client always has more to read.
#[derive(Debug, Default)]
struct ReadTurn {
    bytes: usize,
}

impl ReadTurn {
    /// Yields to the others after [`BYTES_A_TURN`]. Call it after the replies were sent.
    async fn yield_if_long(&mut self) {
        if self.bytes >= BYTES_A_TURN {
            self.bytes = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Returns the number of bytes that the arriving record may take. For a record in fragments that is the maximum, since its length is
/// unknown until the last fragment.
fn expected_length(decoder: &RecordDecoder, buffer: &BytesMut, max_record: usize) -> usize {
    let known = decoder.bytes_assembled() + buffer.len() + decoder.bytes_wanted();
    if decoder.is_in_fragments() && known > SHORT_RECORD { max_record.max(known) } else { known }
}

/// A record that is arriving.
#[derive(Debug, Default)]
struct RecordArrival {
    /// Its memory, if it is long.
    charge: Option<Charge>,
    /// Time spent waiting for the peer, without the time in which the server did not read.
    waited: Duration,
}

/// The outcome of waiting while a record arrives.
#[derive(Debug)]
enum Waited<E> {
    /// The awaited event.
    Event(E),
    /// No event, but memory and calls are to be checked again.
    LookAgain,
    /// The peer sent nothing for the stall timeout while none of its calls was pending, or its record took
    /// [`STALLS_PER_RECORD`] times as long.
    Stalled,
}

impl RecordArrival {
    /// Charges the budget for a long record, once. Returns whether the record may be read.
    fn charge(&mut self, budget: &Arc<Budget>, bytes: usize) -> bool {
        if bytes > SHORT_RECORD && self.charge.is_none() && !budget.is_used_up() {
            self.charge = Some(budget.charge(bytes));
        }
        bytes <= SHORT_RECORD || self.charge.is_some()
    }

    /// Waits for `event` while the record arrives. Without memory for the record the peer cannot stall.
    async fn wait<E>(
        &mut self,
        event: impl Future<Output = E>,
        stall_timeout: Duration,
        has_memory: bool,
        has_calls: bool,
    ) -> Waited<E> {
        let began = tokio::time::Instant::now();
        let left = (stall_timeout * STALLS_PER_RECORD).saturating_sub(self.waited);
        let limit = left.min(if has_memory { stall_timeout } else { BUDGET_PAUSE });
        let event = tokio::time::timeout_at(began + limit, event).await;
        self.waited += began.elapsed();
        match event {
            Ok(event) => Waited::Event(event),
            Err(_) if !has_memory => {
                // Other requests hold all memory.
                *self = Self::default();
                Waited::LookAgain
            }
            Err(_) if has_calls && self.waited < stall_timeout * STALLS_PER_RECORD => Waited::LookAgain,
            Err(_) => Waited::Stalled,
        }
    }
}

/// The event that woke a connection.
enum Event {
    /// This number of bytes arrived; 0 at the end of the stream.
    Received(usize),
    /// A pending call was answered.
    Answered(Answered),
    /// The server calls the client.
    Calling(Bytes),
    /// The server is shutting down.
    Shutdown,
}

/// Waits for the next event. Reads only if `wanted` gives the number of bytes that the next record misses.
async fn next_event<F>(
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
    waiting: &mut FuturesUnordered<Slot<F>>,
    wanted: Option<usize>,
    (control, outbox, busy_poll): (&Control, &Outbox, &mut BusyPoll),
    is_closing: bool,
) -> io::Result<Event>
where
    F: Future<Output = Answered>,
{
    let mut event = poll_fn(|context| {
        if !waiting.is_empty()
            && let Poll::Ready(Some(answered)) = Pin::new(&mut *waiting).poll_next(context)
        {
            return Poll::Ready(Ok(Event::Answered(answered)));
        }
        if let Poll::Ready(call) = outbox.poll_record(context) {
            return Poll::Ready(Ok(Event::Calling(call)));
        }
        if !is_closing && (outbox.is_hung_up() || control.is_stopping(context)) {
            return Poll::Ready(Ok(Event::Shutdown));
        }
        let Some(wanted) = wanted else { return Poll::Pending };
        // Take memory only when there are data for it.
        ready!(stream.poll_read_ready(context))?;
        if buffer.capacity() == 0 {
            *buffer = pool::take_receive_buffer();
        }
        // Read a long record to its end and no further: no part of the next record must be moved then.
        buffer.reserve(if wanted > READ_AT_ONCE { wanted } else { READ_AT_ONCE });
        pin!(stream.read_buf(buffer)).poll(context).map_ok(Event::Received)
    });
    let event = loop {
        if !busy_poll.should_poll(Instant::now) {
            break event.await;
        }
        if let Poll::Ready(event) = poll_fn(|context| Poll::Ready(event.poll_unpin(context))).await {
            break event;
        }
        // Other tasks of this core run, and the runtime checks the sockets.
        tokio::task::yield_now().await;
    };
    if let Ok(Event::Received(1..)) = event {
        busy_poll.data_received(Instant::now);
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answering = Pin<Box<dyn Future<Output = Answered>>>;

    /// Returns a call whose reply has this number of bytes.
    fn call_of(bytes: usize, must_close: bool) -> Answering {
        let mut reply = pool::take_reply_buffer();
        reply.raw(&vec![0; bytes]);
        Box::pin(std::future::ready(Answered { reply, must_close }))
    }

    fn queue(calls: impl IntoIterator<Item = Answering>) -> (usize, bool, Output) {
        let mut waiting = FuturesUnordered::new();
        for call in calls {
            let mut slot = Slot::new();
            slot.fill(|| call);
            waiting.push(slot);
        }
        let mut output = Output::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        let must_close = runtime.block_on(queue_answered(&mut waiting, &mut output));
        (waiting.len(), must_close, output)
    }

    #[test]
    fn a_connection_with_more_to_read_yields() {
        let mut turn = ReadTurn::default();
        let mut gives_way_after = |bytes| {
            turn.bytes += bytes;
            turn.yield_if_long().now_or_never().is_none()
        };
        assert!(!gives_way_after(BYTES_A_TURN / 2));
        assert!(gives_way_after(BYTES_A_TURN / 2));
        assert!(!gives_way_after(BYTES_A_TURN - 1));
        assert!(gives_way_after(BYTES_A_TURN));
    }

    #[test]
    fn time_in_which_the_server_does_not_read_is_not_held_against_a_record() {
        let stall_timeout = Duration::from_millis(300);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("runtime");
        runtime.block_on(async {
            let mut arrival = RecordArrival::default();
            let first = arrival.wait(std::future::ready(()), stall_timeout, true, true).await;
            assert!(matches!(first, Waited::Event(())));
            // The server sends replies for a while.
            std::thread::sleep(stall_timeout * STALLS_PER_RECORD);
            let next = arrival.wait(std::future::pending::<()>(), stall_timeout, true, true).await;
            assert!(matches!(next, Waited::LookAgain), "{next:?}");
            let last = arrival.wait(std::future::pending::<()>(), stall_timeout, true, false).await;
            assert!(matches!(last, Waited::Stalled), "{last:?}");
        });
    }

    #[test]
    fn replies_that_are_ready_together_leave_in_one_write() {
        let calls =
            (0..64).map(|_| call_of(100, false)).chain([Box::pin(std::future::pending()) as Answering]);
        let (waiting, must_close, output) = queue(calls);
        assert_eq!((waiting, must_close, output.length()), (1, false, 6400));
    }

    #[test]
    fn a_reply_that_closes_the_connection_follows_the_others() {
        let (waiting, must_close, output) = queue([true, false].map(|must_close| call_of(4, must_close)));
        assert_eq!((waiting, must_close, output.length()), (0, true, 8));
    }

    #[test]
    fn gathered_replies_are_bounded() {
        let calls = 40;
        let (waiting, _, output) = queue((0..calls).map(|_| call_of(12 << 10, false)));
        assert!(output.is_high() && waiting > 0 && output.length() < (256 + 12) << 10, "{waiting} wait");
    }
}
