//! Calls over connections, without sockets or clocks: records in, records out.
//!
//! An [`Engine`] has the connections of one client to one server. Callers start a call with [`Engine::call`] and await it. The
//! transport carries records and tells the time. There are four kinds of method:
//!
//! - Getters change nothing.
//! - Commands ([`Engine::open_connection`], [`Engine::call`], [`Engine::shut_down`]) perform a caller's request.
//! - `handle_*` methods take outside events: a connection was made or lost, a record arrived, a deadline passed.
//! - `poll_*` methods return the transport's next action: [`Engine::poll_action`] connects and disconnects,
//!   [`Engine::poll_record`] has the next record of a connection, [`Engine::deadline`] the time for
//!   [`Engine::handle_timeout`]. They register the waker that they are polled with. A new deadline wakes the task that polls
//!   for actions, which asks for the deadline again.
//!
//! A connection carries a stream of records, or datagrams of one record each ([`Engine::open_datagrams`]). A call survives its
//! stream: it is sent again, with its transaction ID, over the next one. A call whose datagram or reply may be lost is sent again after
//! a [timeout](round_trips). The server recognizes the repetition by the transaction ID (NFS 2, 3 and 4.0: its reply cache) or by slot and sequence ID (4.1 and later).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rpc::message::{MessageType, peek};

mod accepted;
mod connection;
mod error;
mod round_trips;
mod timer;
mod traffic;
mod waits;

use accepted::Accepting;
pub use accepted::{ACCEPTED_CALLS_MAX, ACCEPTED_MAX, AcceptedId, CallbackPath};
pub use connection::{Action, ConnectError, ConnectionId, RetryPolicy};
use connection::{Connection, Link};
pub use error::CallError;
use round_trips::RoundTrips;
pub use timer::Sleep;
use traffic::{CallTimes, TrafficTable};

use crate::attributes::Timestamp;
pub use traffic::{Label, Traffic};
pub use waits::Waits;

/// Maximum number of connections of one client.
pub const CONNECTIONS_MAX: usize = 64;
/// Maximum number of calls without a reply. Slots and version 3's bound keep far below it.
pub const CALLS_MAX: usize = 16 << 10;
/// Maximum number of callbacks that wait for the client. A server has at most its slots in flight.
pub const CALLBACKS_MAX: usize = 1024;

/// Tells the time. The engine reads it when callers call; the transport passes no times.
pub trait Clock: Send + Sync {
    /// Returns the time since any fixed start. It never goes backwards.
    fn now(&self) -> Duration;

    /// Returns the time of day, for times of files; `None` if it is unknown: then the server alone gives files their times.
    fn time_of_day(&self) -> Option<Timestamp> {
        None
    }
}

/// The first port that any user of a machine may use.
const PRIVILEGED_PORTS_END: u16 = 1024;

/// A record as a list of consecutive parts, without record mark. Large payloads are parts of their own and are not copied.
pub type Record = Vec<Bytes>;

/// Frees the resources of a call, for instance its slot, as soon as the call has ended, even if its caller does not poll or has
/// dropped the call. Runs once, while the engine is locked: it must not call the engine.
pub trait Completion: Send {
    /// Handles the end of the call; `None` if it was never sent.
    fn complete(self: Box<Self>, outcome: Option<&Result<Bytes, CallError>>);
}

/// Calls of one client to one server. See the [module's documentation](self).
pub struct Engine {
    state: Mutex<State>,
    /// Locked last.
    waits: Mutex<Waits>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    connections: Vec<Connection>,
    calls: HashMap<u32, Call>,
    next_xid: u32,
    actions: VecDeque<Action>,
    action_waker: Option<Waker>,
    /// Calls of the server, with their connections.
    callbacks: VecDeque<(CallbackPath, Bytes)>,
    callback_waker: Option<Waker>,
    accepting: Accepting,
    /// Wakers of sleeping tasks by time and a number.
    sleepers: BTreeMap<(Duration, u64), Waker>,
    next_sleeper: u64,
    is_shut_down: bool,
    /// Whether a connection was made from a port above 1023.
    has_unprivileged_port: bool,
    /// Records of calls sent so far, repetitions included.
    sent: u64,
    traffic: TrafficTable,
}

/// A call from its start until its caller has taken the reply.
struct Call {
    record: Record,
    label: Label,
    times: CallTimes,
    connection: ConnectionId,
    /// Number of times that it was sent.
    transmissions: u32,
    outcome: Option<Result<Bytes, CallError>>,
    waker: Option<Waker>,
    completion: Option<Box<dyn Completion>>,
    /// Whether the caller has dropped its future.
    is_abandoned: bool,
}

/// Commands.
impl Engine {
    /// Creates an engine without connections. `first_xid` should be random: a server may remember those of an earlier process.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, first_xid: u32) -> Self {
        let state = Mutex::new(State { next_xid: first_xid, ..State::default() });
        Self { state, waits: Mutex::default(), clock }
    }

    /// Opens a connection to a port of the server. The transport connects at once, and again after each loss while calls
    /// wait for it. A connection that was closed gives its place, and its ID, to a new one.
    ///
    /// # Errors
    /// [`CallError::Busy`] above [`CONNECTIONS_MAX`]; [`CallError::Closed`] after [`Self::shut_down`].
    pub fn open_connection(&self, port: u16, policy: RetryPolicy) -> Result<ConnectionId, CallError> {
        self.open(Connection::new(port, policy, None))
    }

    /// Opens a connection that carries datagrams. The timeout of the policy is that of a call before round trips were measured; the
    /// retries are repetitions of a call.
    ///
    /// # Errors
    /// As [`Self::open_connection`].
    pub fn open_datagrams(&self, port: u16, policy: RetryPolicy) -> Result<ConnectionId, CallError> {
        self.open(Connection::new(port, policy, Some(RoundTrips::new(policy.timeout))))
    }

    fn open(&self, connection: Connection) -> Result<ConnectionId, CallError> {
        let mut state = self.state.lock();
        if state.is_shut_down {
            return Err(CallError::Closed);
        }
        let id = match state.free_place() {
            Some(id) => {
                state.connections[id.0] = connection;
                id
            }
            None if state.connections.len() >= CONNECTIONS_MAX => return Err(CallError::Busy),
            None => {
                state.connections.push(connection);
                ConnectionId(state.connections.len() - 1)
            }
        };
        state.connect(id);
        Ok(id)
    }

    /// Closes a connection for good. Its calls fail with [`CallError::Closed`]. The ID must not be used any longer.
    pub fn close_connection(&self, id: ConnectionId) {
        let mut state = self.state.lock();
        state.disconnect(id);
        state.connections[id.0].link = Link::Closed;
        state.fail_calls(Some(id), &CallError::Closed, self.now());
    }

    /// Counts an error status in the reply to a call with this label: only callers decode results.
    pub fn note_error(&self, label: Label) {
        self.state.lock().traffic.error(label);
    }

    /// Counts a request that has waited since `began` for a slot, or for one of the calls in flight, and has it now.
    pub(crate) fn note_wait(&self, began: Duration) {
        let time = self.now().saturating_sub(began);
        self.waits.lock().add(time);
    }

    /// Starts a call and returns a future with the record of its reply. `encode` gets the transaction ID and returns the call.
    pub fn call(
        self: &Arc<Self>,
        connection: ConnectionId,
        encode: impl FnOnce(u32) -> Record,
    ) -> PendingCall {
        self.start_call(connection, Label::default(), None, encode)
    }

    /// As [`Self::call`]; `completion` runs when the call has ended.
    pub fn call_with(
        self: &Arc<Self>,
        connection: ConnectionId,
        completion: Box<dyn Completion>,
        encode: impl FnOnce(u32) -> Record,
    ) -> PendingCall {
        self.start_call(connection, Label::default(), Some(completion), encode)
    }

    /// As [`Self::call_with`]; the call's traffic is counted under `label`.
    pub fn call_labelled(
        self: &Arc<Self>,
        connection: ConnectionId,
        label: Label,
        completion: Box<dyn Completion>,
        encode: impl FnOnce(u32) -> Record,
    ) -> PendingCall {
        self.start_call(connection, label, Some(completion), encode)
    }

    fn start_call(
        self: &Arc<Self>,
        connection: ConnectionId,
        label: Label,
        completion: Option<Box<dyn Completion>>,
        encode: impl FnOnce(u32) -> Record,
    ) -> PendingCall {
        let times = CallTimes { started_at: self.now(), sent_at: None };
        let mut state = self.state.lock();
        let xid = state.next_xid;
        state.next_xid = xid.wrapping_add(1);
        let refusal = if state.is_shut_down || matches!(state.connections[connection.0].link, Link::Closed) {
            Some(CallError::Closed)
        } else if state.calls.len() >= CALLS_MAX {
            Some(CallError::Busy)
        } else {
            None
        };
        let record = encode(xid);
        let (outcome, waker) = (None, None);
        let (transmissions, is_abandoned) = (0, false);
        let call = Call {
            record,
            label,
            times,
            connection,
            transmissions,
            outcome,
            waker,
            completion,
            is_abandoned,
        };
        state.calls.insert(xid, call);
        match refusal {
            Some(error) => finish_call(&mut state.calls, xid, Err(error)),
            None => state.enqueue(connection, xid),
        }
        PendingCall { engine: Arc::clone(self), xid, transmissions: 0 }
    }

    /// Ends all connections and calls. [`Self::poll_action`] then returns `None`.
    pub fn shut_down(&self) {
        let mut state = self.state.lock();
        state.is_shut_down = true;
        for index in 0..state.connections.len() {
            state.disconnect(ConnectionId(index));
            state.connections[index].link = Link::Closed;
        }
        state.fail_calls(None, &CallError::Closed, self.now());
        for (_, waker) in std::mem::take(&mut state.sleepers) {
            waker.wake();
        }
        wake(&mut state.action_waker);
        wake(&mut state.callback_waker);
        state.accepting.end();
    }

    /// Sends a record that is not a call, for instance the reply to a callback, if the connection is up.
    pub fn send_reply(&self, connection: ConnectionId, record: Record) {
        self.state.lock().connections[connection.0].enqueue_reply(record);
    }

    /// Waits until `time`, or until the engine is shut down.
    pub fn sleep_until(self: &Arc<Self>, time: Duration) -> Sleep {
        Sleep::new(Arc::clone(self), time)
    }

    /// Waits for `duration`.
    pub fn sleep(self: &Arc<Self>, duration: Duration) -> Sleep {
        self.sleep_until(self.now() + duration)
    }

    /// Returns the next call of the server (a callback) and its connection; `None` after the end.
    pub fn poll_callback(&self, context: &mut Context<'_>) -> Poll<Option<(CallbackPath, Bytes)>> {
        let mut state = self.state.lock();
        match state.callbacks.pop_front() {
            Some(callback) => Poll::Ready(Some(callback)),
            None if state.is_shut_down => Poll::Ready(None),
            None => {
                state.callback_waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Getters.
impl Engine {
    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Returns the time of day, if it is known.
    #[must_use]
    pub fn time_of_day(&self) -> Option<Timestamp> {
        self.clock.time_of_day()
    }

    /// Returns the number of calls that wait for a connection or a reply.
    #[must_use]
    pub fn calls_in_flight(&self) -> usize {
        self.state.lock().calls.values().filter(|call| call.outcome.is_none()).count()
    }

    /// Returns the number of calls sent so far, repetitions included.
    #[must_use]
    pub fn requests_sent(&self) -> u64 {
        self.state.lock().sent
    }

    /// Returns the traffic of calls so far, by operation.
    #[must_use]
    pub fn traffic(&self) -> BTreeMap<Label, Traffic> {
        self.state.lock().traffic.all()
    }

    /// Returns how long requests have waited for slots so far, or for calls in flight.
    #[must_use]
    pub fn waits(&self) -> Waits {
        *self.waits.lock()
    }

    /// Returns whether the engine was shut down.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.state.lock().is_shut_down
    }

    /// Returns when bytes last arrived over the connection ([`Self::handle_bytes`]); zero before the first.
    #[must_use]
    pub fn received_at(&self, connection: ConnectionId) -> Duration {
        self.state.lock().connections[connection.0].received_at
    }

    /// Returns when the connection was lost last; `None` if it never was.
    #[must_use]
    pub fn lost_at(&self, connection: ConnectionId) -> Option<Duration> {
        self.state.lock().connections[connection.0].lost_at
    }

    /// Returns whether the connection carries datagrams.
    #[must_use]
    pub fn has_datagrams(&self, connection: ConnectionId) -> bool {
        self.state.lock().connections[connection.0].datagrams.is_some()
    }

    /// Returns whether the connection was closed for good.
    #[must_use]
    pub fn is_closed(&self, connection: ConnectionId) -> bool {
        self.state.lock().connections[connection.0].link == Link::Closed
    }

    /// Returns how often this connection has been made. A change tells a caller that the connection is another one.
    #[must_use]
    pub fn connection_count(&self, connection: ConnectionId) -> u64 {
        self.state.lock().connections[connection.0].made
    }
}

/// For the transport.
impl Engine {
    /// Returns the transport's next action; `None` after the end.
    pub fn poll_action(&self, context: &mut Context<'_>) -> Poll<Option<Action>> {
        let mut state = self.state.lock();
        match state.actions.pop_front() {
            Some(action) => Poll::Ready(Some(action)),
            None if state.is_shut_down => Poll::Ready(None),
            None => {
                state.action_waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns the next record to send on a connection; `None` if the connection is to be closed.
    pub fn poll_record(&self, id: ConnectionId, context: &mut Context<'_>) -> Poll<Option<Record>> {
        let now = self.now();
        let mut state = self.state.lock();
        let State { connections, calls, sent, traffic, action_waker, .. } = &mut *state;
        let connection = &mut connections[id.0];
        if !matches!(connection.link, Link::Up) {
            return Poll::Ready(None);
        }
        if let Some(reply) = connection.replies.pop_front() {
            return Poll::Ready(Some(reply));
        }
        while connection.has_room()
            && let Some(xid) = connection.queue.pop_front()
        {
            // A call that has ended meanwhile is not sent.
            let Some(call) = calls.get_mut(&xid).filter(|call| call.outcome.is_none()) else { continue };
            call.transmissions += 1;
            *sent += 1;
            let record = call.record.clone();
            let bytes = record.iter().map(Bytes::len).sum();
            traffic.sent(call.label, &mut call.times, now, bytes);
            if connection.call_sent(xid, call.label, call.transmissions, now) {
                wake(action_waker);
            }
            return Poll::Ready(Some(record));
        }
        connection.sender = Some(context.waker().clone());
        Poll::Pending
    }

    /// Notes the local port of a connection.
    pub fn note_local_port(&self, port: u16) {
        self.state.lock().has_unprivileged_port |= port >= PRIVILEGED_PORTS_END;
    }

    /// Returns whether a connection was made from a port above 1023, which servers may refuse.
    pub(crate) fn has_unprivileged_port(&self) -> bool {
        self.state.lock().has_unprivileged_port
    }

    /// Handles a new connection.
    pub fn handle_connected(&self, id: ConnectionId) {
        self.state.lock().connections[id.0].handle_connected();
    }

    /// Handles a failed attempt to connect.
    pub fn handle_connect_failed(&self, id: ConnectionId, error: ConnectError) {
        let now = self.now();
        let mut state = self.state.lock();
        let gives_up = state.connections[id.0].handle_failure(now);
        wake(&mut state.action_waker);
        if gives_up {
            state.fail_calls(Some(id), &CallError::Unreachable(error), now);
        }
    }

    /// Handles the loss of a connection. Calls without a reply are sent again over the next one, unless connections end without
    /// a reply more often than the policy allows.
    pub fn handle_disconnected(&self, id: ConnectionId) {
        let mut state = self.state.lock();
        if state.connections[id.0].gives_up_when_silent() {
            let reason = "the server closes each connection without a reply".into();
            state.fail_calls(Some(id), &CallError::Unreachable(ConnectError { reason }), self.now());
        }
        state.reconnect(id, self.now());
    }

    /// Handles an ICMP error: no program has the server's port, or the server cannot be reached. It may be forged or temporary: calls
    /// fail only before the first reply, and if the first connection must succeed at once.
    pub fn handle_refused(&self, id: ConnectionId, error: ConnectError) {
        let now = self.now();
        let mut state = self.state.lock();
        if state.connections[id.0].fails_at_first() {
            state.fail_calls(Some(id), &CallError::Unreachable(error), now);
        }
    }

    /// Handles the arrival of any bytes.
    pub fn handle_bytes(&self, id: ConnectionId) {
        let now = self.now();
        self.state.lock().connections[id.0].received_at = now;
    }

    /// Handles a received record, without its mark. Returns false if the connection must be closed, because the record is
    /// neither a reply nor a call.
    pub fn handle_record(&self, id: ConnectionId, record: Bytes) -> bool {
        let now = self.now();
        let mut state = self.state.lock();
        let state = &mut *state;
        let connection = &mut state.connections[id.0];
        match peek(&record) {
            Ok((xid, MessageType::REPLY)) => {
                connection.handle_reply(xid);
                // A second reply, or one to a call that has failed, is ignored.
                let call = state.calls.get(&xid).filter(|call| call.connection == id);
                if let Some(call) = call.filter(|call| call.outcome.is_none()) {
                    let sent_at = call.times.sent_at.unwrap_or(now);
                    connection.handle_answer(xid, call.label, (call.transmissions, sent_at), now);
                    state.traffic.received(call.label, call.times, now, record.len());
                    finish_call(&mut state.calls, xid, Ok(record));
                }
                true
            }
            Ok((_, MessageType::CALL)) if state.callbacks.len() < CALLBACKS_MAX => {
                state.callbacks.push_back((CallbackPath::Own(id), record));
                wake(&mut state.callback_waker);
                true
            }
            _ => false,
        }
    }

    /// Returns when to call [`Self::handle_timeout`]; `None` if nothing is waited for.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        let state = self.state.lock();
        let connections = state.connections.iter().filter_map(Connection::deadline);
        connections.chain(state.sleepers.keys().next().map(|(time, _)| *time)).min()
    }

    /// Handles the passing of time: wakes sleepers, connects again, closes streams without replies, repeats datagrams.
    pub fn handle_timeout(&self) {
        let now = self.now();
        let mut state = self.state.lock();
        while let Some(entry) = state.sleepers.first_entry()
            && entry.key().0 <= now
        {
            entry.remove().wake();
        }
        for index in 0..state.connections.len() {
            let id = ConnectionId(index);
            let connection = &mut state.connections[index];
            if connection.deadline().is_none_or(|deadline| now < deadline) {
                continue;
            }
            match connection.link {
                Link::Up if connection.datagrams.is_some() => state.repeat_late(id, now),
                Link::Up if connection.gives_up_when_silent() => {
                    state.fail_calls(Some(id), &CallError::TimedOut, now);
                    state.reconnect(id, now);
                }
                Link::Up => state.reconnect(id, now),
                _ => state.connect(id),
            }
        }
    }
}

impl State {
    /// Returns the place of a closed connection that the transport has left.
    fn free_place(&self) -> Option<ConnectionId> {
        let is_left = |id| !self.actions.contains(&Action::Disconnect { connection: id });
        let closed = self.connections.iter().enumerate();
        let mut closed = closed.filter(|(_, connection)| connection.link == Link::Closed);
        closed.find_map(|(index, _)| Some(ConnectionId(index)).filter(|id| is_left(*id)))
    }

    fn push_action(&mut self, action: Action) {
        self.actions.push_back(action);
        wake(&mut self.action_waker);
    }

    fn connect(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id.0];
        connection.link = Link::Connecting;
        let port = connection.port;
        self.push_action(Action::Connect { connection: id, port });
    }

    /// Adds a call to its connection's queue, and connects if need be.
    fn enqueue(&mut self, id: ConnectionId, xid: u32) {
        let connection = &mut self.connections[id.0];
        connection.queue.push_back(xid);
        match connection.link {
            Link::Up => wake(&mut connection.sender),
            Link::Idle => self.connect(id),
            Link::Connecting | Link::Waiting { .. } | Link::Closed => {}
        }
    }

    /// Tells the transport to end a connection.
    fn disconnect(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id.0];
        if matches!(connection.link, Link::Up | Link::Connecting) {
            wake(&mut connection.sender);
            self.push_action(Action::Disconnect { connection: id });
        }
    }

    /// Ends a connection, and connects again if calls need it. Calls without a reply return to the queue, oldest first.
    fn reconnect(&mut self, id: ConnectionId, now: Duration) {
        if matches!(self.connections[id.0].link, Link::Closed | Link::Idle | Link::Waiting { .. }) {
            return;
        }
        self.disconnect(id);
        let connection = &mut self.connections[id.0];
        connection.requeue();
        connection.handle_loss(now);
        wake(&mut self.action_waker);
    }

    /// Sends the datagrams again whose reply is late, and fails calls that were repeated as often as the policy allows.
    fn repeat_late(&mut self, id: ConnectionId, now: Duration) {
        let Self { connections, calls, traffic, .. } = self;
        let connection = &mut connections[id.0];
        let repetitions = |xid: u32| calls.get(&xid).map_or(0, |call| call.transmissions.saturating_sub(1));
        let (failed, reason) = connection.handle_late(now, repetitions);
        let error = reason.map_or(CallError::TimedOut, CallError::Unreachable);
        for xid in failed {
            if let Some(call) = calls.get(&xid) {
                traffic.failed(call.label, call.times, now);
            }
            finish_call(calls, xid, Err(error.clone()));
        }
    }

    /// Fails the calls of a connection, or all.
    fn fail_calls(&mut self, connection: Option<ConnectionId>, error: &CallError, now: Duration) {
        let is_meant = |call: &Call| {
            call.outcome.is_none() && connection.is_none_or(|connection| call.connection == connection)
        };
        let failed: Vec<u32> =
            self.calls.iter().filter(|(_, call)| is_meant(call)).map(|(xid, _)| *xid).collect();
        for xid in failed {
            if let Some(call) = self.calls.get(&xid) {
                self.traffic.failed(call.label, call.times, now);
            }
            finish_call(&mut self.calls, xid, Err(error.clone()));
        }
        for (index, link) in self.connections.iter_mut().enumerate() {
            if connection.is_none_or(|connection| connection.0 == index) {
                link.clear();
            }
        }
    }
}

/// Ends a call: frees its resources, and wakes its caller.
fn finish_call(calls: &mut HashMap<u32, Call>, xid: u32, outcome: Result<Bytes, CallError>) {
    let Some(call) = calls.get_mut(&xid).filter(|call| call.outcome.is_none()) else { return };
    if let Some(completion) = call.completion.take() {
        completion.complete((call.transmissions > 0).then_some(&outcome));
    }
    if call.is_abandoned {
        calls.remove(&xid);
        return;
    }
    call.outcome = Some(outcome);
    // The record is not sent again.
    call.record = Record::new();
    wake(&mut call.waker);
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// A call without a reply yet. Dropping it does not cancel the sent request: its [`Completion`] waits for the reply.
pub struct PendingCall {
    engine: Arc<Engine>,
    xid: u32,
    /// Number of times that the call had been sent when its outcome was taken.
    transmissions: u32,
}

impl PendingCall {
    /// Returns the number of times that the call has been sent. After more than one the server may have executed it before.
    #[must_use]
    pub fn transmissions(&self) -> u32 {
        self.engine.state.lock().calls.get(&self.xid).map_or(self.transmissions, |call| call.transmissions)
    }
}

impl Future for PendingCall {
    type Output = Result<Bytes, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut state = this.engine.state.lock();
        let Some(call) = state.calls.get_mut(&this.xid) else { return Poll::Ready(Err(CallError::Closed)) };
        if call.outcome.is_none() {
            call.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let call = state.calls.remove(&this.xid);
        drop(state);
        this.transmissions = call.as_ref().map_or(0, |call| call.transmissions);
        Poll::Ready(call.and_then(|call| call.outcome).unwrap_or(Err(CallError::Closed)))
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let mut state = self.engine.state.lock();
        let Some(call) = state.calls.get_mut(&self.xid) else { return };
        if call.outcome.is_none() && call.transmissions > 0 && call.completion.is_some() {
            call.waker = None;
            call.is_abandoned = true;
            return;
        }
        let Some(call) = state.calls.remove(&self.xid) else { return };
        let connection = &mut state.connections[call.connection.0];
        connection.forget(self.xid);
        if let Some(completion) = call.completion {
            // It has run already if the outcome was present.
            completion.complete(None);
        }
    }
}

#[cfg(test)]
mod tests;
