//! The event loop for scripted clients, in the order of virtual time.

use core::net::{Ipv4Addr, SocketAddr};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::callback::PROC_NULL;
use rpc::message::{CallHeader, encode_success};
use server::{
    Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey, Now,
    Server, Settings, Squash, Transport, Work,
};
use vfs::{MemFs, MemOptions, Timestamp};
use xdr::{Reader, Writer};

use crate::backend::{Clock, SlowFs, Slowness};
use crate::client::Client;
use crate::logs::Logs;
use crate::network::Faults;
use crate::rng::Rng;

/// Virtual time after which a run counts as stuck.
const END_OF_TIME: Duration = Duration::from_secs(24 * 3600);

/// Retransmission interval of clients.
pub const RETRANSMIT: Duration = Duration::from_secs(1);

/// Maximum time until the server learns that a client has abandoned a connection. It serves its calls until then.
const UNHEARD: Duration = Duration::from_secs(6);

/// Interval of `maintain` while a call waits.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// Maximum time that a call may wait for other clients.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Time after a call within which its connection may be cut.
const CUT_WITHIN: Duration = Duration::from_secs(3);

/// A running call: its reply, and whether its connection is closed then.
type RunningCall = Pin<Box<dyn Future<Output = (Option<Bytes>, bool)>>>;

#[derive(Debug)]
enum Event {
    /// A call reaches the server.
    Call { connection: Arc<Connection>, bytes: Bytes },
    /// A reply reaches a client.
    Reply { client: usize, connection: ConnectionId, bytes: Bytes },
    /// A retransmission timer of a client.
    Timer { client: usize, call: u64 },
    /// A connection breaks, and both ends know.
    Cut { client: usize, connection: ConnectionId },
    /// The server learns that a client has abandoned a connection.
    Closed { connection: Arc<Connection> },
    /// A future in the server waits for this moment.
    Alarm,
    /// The server is killed and restarted.
    Kill,
    /// The same, and records that were not durable are lost.
    PowerFailure,
}

struct Scheduled {
    at: (Duration, u64),
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

/// What the logs survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Kills of the server; sessions are not persistent, and nothing is reclaimed.
    Kills,
    /// Power failures too; sessions may be persistent.
    PowerFailures,
}

/// Counts cuts of connections on which a client waited for a reply.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Cuts {
    /// While the server executed a call of the connection.
    pub running: usize,
    /// In the middle of a reply.
    pub replies: usize,
}

/// A client and its connection.
struct Endpoint {
    client: Box<dyn Client>,
    connection: Arc<Connection>,
    /// Number of the current call; timers of earlier calls are void.
    call: u64,
    /// The current call.
    outstanding: Option<Bytes>,
}

/// A server, its clients and the network.
pub struct World {
    /// The file system of the server.
    pub backend: Arc<SlowFs>,
    /// The server.
    pub server: Arc<Server>,
    clock: Arc<Clock>,
    logs: Arc<Logs>,
    /// The failures that the logs survive.
    lasting: Durability,
    /// Servers started.
    starts: u64,
    /// The first connection of the current server.
    first_alive: ConnectionId,
    rng: Rng,
    /// Decides which calls have the server's thread exclusively; separate from other random numbers.
    threads: Rng,
    faults: Faults,
    endpoints: Vec<Endpoint>,
    owners: HashMap<ConnectionId, usize>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    next_connection: u64,
    /// Callback connections to clients of version 4.0.
    callback_connections: Vec<Arc<Connection>>,
    /// Calls that the server executes, with their connections.
    running_calls: Vec<(ConnectionId, RunningCall)>,
    /// Connections that the current server knows are closed.
    closed: HashSet<ConnectionId>,
    /// Cuts so far.
    pub cuts: Cuts,
    /// Messages sent, for the report.
    pub messages: u64,
}

impl World {
    /// Creates a server that exports a file system in memory as `/export`.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::lasting(seed, faults, Durability::Kills)
    }

    /// The same, with logs of this durability.
    #[must_use]
    pub fn lasting(seed: u64, faults: Faults, lasting: Durability) -> Self {
        let mut rng = Rng::new(seed);
        let clock = Arc::new(Clock::default());
        let slowness = Slowness::new(Arc::clone(&clock), rng.next_u64());
        let backend = Arc::new(SlowFs::of(MemFs::new(&MemOptions::default()), slowness));
        let logs = Arc::new(Logs::new(Arc::clone(&clock), !seed));
        let server = start(&backend, &logs, lasting, 1, moment(&clock));
        Self {
            backend,
            server,
            clock,
            logs,
            lasting,
            starts: 1,
            first_alive: ConnectionId(0),
            rng,
            threads: Rng::new(seed.rotate_left(32)),
            faults,
            endpoints: Vec::new(),
            owners: HashMap::new(),
            queue: BinaryHeap::new(),
            scheduled: 0,
            next_connection: 1,
            callback_connections: Vec::new(),
            running_calls: Vec::new(),
            closed: HashSet::new(),
            cuts: Cuts::default(),
            messages: 0,
        }
    }

    /// Adds a client, which starts at once.
    pub fn add(&mut self, client: Box<dyn Client>) {
        let index = self.endpoints.len();
        let connection = self.connect(index);
        self.endpoints.push(Endpoint { client, connection, call: 0, outstanding: None });
        self.proceed(index);
    }

    /// Schedules kills of the server, at random moments of the first `within`.
    pub fn plan_kills(&mut self, count: u32, within: Duration) {
        for _ in 0..count {
            let at = Duration::from_micros(self.rng.below(within.as_micros() as u64));
            self.schedule(at, Event::Kill);
        }
    }

    /// Schedules power failures in the same way.
    pub fn plan_power_failures(&mut self, count: u32, within: Duration) {
        for _ in 0..count {
            let at = Duration::from_micros(self.rng.below(within.as_micros() as u64));
            self.schedule(at, Event::PowerFailure);
        }
    }

    /// Kills the server in the middle of its calls, and starts the next one over the same files and logs.
    fn kill(&mut self) {
        self.running_calls.clear();
        self.callback_connections.clear();
        self.closed.clear();
        self.starts += 1;
        self.first_alive = ConnectionId(self.next_connection);
        self.server = start(&self.backend, &self.logs, self.lasting, self.starts, moment(&self.clock));
    }

    /// Returns virtual time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Sends a call over a connection without faults, and returns the reply, if there is one.
    pub fn ask(&mut self, bytes: Bytes) -> Option<Bytes> {
        let connection = self.connection();
        self.ask_over(connection, bytes, Vec::new)
    }

    /// Creates a connection without faults.
    pub fn connection(&mut self) -> Arc<Connection> {
        let connection = self.connect(usize::from(u8::MAX));
        self.owners.remove(&connection.id);
        connection
    }

    /// Sends a call over this connection. While it runs, `replies` returns messages of clients and their connections, such as replies to
    /// callbacks for which the call waits.
    pub fn ask_over(
        &mut self,
        connection: Arc<Connection>,
        bytes: Bytes,
        mut replies: impl FnMut() -> Vec<(Arc<Connection>, Bytes)>,
    ) -> Option<Bytes> {
        self.serve(connection, bytes);
        let mut context = TaskContext::from_waker(Waker::noop());
        let (_, mut running) = self.running_calls.pop()?;
        let mut left = WAIT_MAX;
        loop {
            if let Poll::Ready((reply, _)) = running.as_mut().poll(&mut context) {
                return reply;
            }
            let messages = replies();
            if messages.is_empty() {
                match self.clock.take_alarms().into_iter().min() {
                    Some(next) => self.clock.set(next),
                    None => left = self.maintain(left)?,
                }
            }
            for (connection, bytes) in messages {
                self.ask_over(connection, bytes, Vec::new);
            }
        }
    }

    /// Runs `maintain` while a call waits; returns the rest of the time that it may wait.
    fn maintain(&mut self, left: Duration) -> Option<Duration> {
        let left = left.checked_sub(MAINTENANCE)?;
        self.wait(MAINTENANCE);
        while self.server.maintain(moment(&self.clock)) {}
        Some(left)
    }

    /// Advances the time without events.
    pub fn wait(&mut self, time: Duration) {
        self.clock.set(self.clock.now() + time);
    }

    /// Runs until all clients are done and no event is left.
    ///
    /// # Errors
    /// Returns an error that a client found, or that the run does not end.
    pub fn run(&mut self) -> Result<(), String> {
        while let Some(Reverse(Scheduled { at: (time, _), event })) = self.queue.pop() {
            if time > END_OF_TIME {
                return Err("the run does not end".into());
            }
            self.clock.set(time.max(self.clock.now()));
            self.handle_event(event)?;
            self.poll_running_calls();
            self.carry_callbacks()?;
            self.server.audit()?;
        }
        match self.endpoints.iter().position(|endpoint| !endpoint.client.is_done()) {
            None => Ok(()),
            Some(index) => Err(format!("client {index} waits for nothing")),
        }
    }

    fn handle_event(&mut self, event: Event) -> Result<(), String> {
        match event {
            // Messages to a killed server are lost.
            Event::Call { connection, bytes } if self.is_current(connection.id) => {
                self.plan_cut(connection.id);
                self.serve(connection, bytes);
            }
            Event::Call { .. } | Event::Alarm => {}
            Event::Cut { client, connection } => {
                let endpoint = &self.endpoints[client];
                if endpoint.connection.id == connection && endpoint.outstanding.is_some() {
                    let is_running = self.running_calls.iter().any(|(id, _)| *id == connection);
                    self.cuts.running += usize::from(is_running);
                    self.cut(client);
                }
            }
            Event::Closed { connection } => self.close_connection(&connection),
            Event::Kill => self.kill(),
            Event::PowerFailure => {
                self.logs.lose();
                self.kill();
            }
            Event::Reply { client, connection, bytes } => {
                // Messages over a broken connection are lost.
                if self.endpoints[client].connection.id == connection
                    && self.endpoints[client].outstanding.is_some()
                {
                    let (done, now) = (self.endpoints[client].client.receive(bytes)?, self.now());
                    match done {
                        Received::NotMine => {}
                        Received::Answered => {
                            self.endpoints[client].outstanding = None;
                            self.proceed(client);
                        }
                        // The server returned DELAY or JUKEBOX.
                        Received::Later => {
                            let call = self.endpoints[client].call;
                            self.schedule(now + RETRANSMIT, Event::Timer { client, call });
                        }
                    }
                }
            }
            Event::Timer { client, call } => {
                let endpoint = &mut self.endpoints[client];
                if endpoint.call == call
                    && let Some(bytes) = endpoint.outstanding.clone()
                {
                    let bytes = endpoint.client.retransmit(bytes, &mut self.rng);
                    endpoint.outstanding = Some(bytes);
                    self.send(client);
                }
            }
        }
        Ok(())
    }

    /// Starts a call in the server.
    fn serve(&mut self, connection: Arc<Connection>, bytes: Bytes) {
        let server = Arc::clone(&self.server);
        let now = moment(&self.clock);
        let id = connection.id;
        connection.is_alone.store(self.threads.chance(50), Relaxed);
        let running = async move {
            let mut reply = Writer::new();
            let outcome = server.handle(&connection, now, bytes, &mut reply).await;
            let answered = outcome.disposition == Disposition::Reply;
            (answered.then(|| reply.into_bytes()), outcome.disposition == Disposition::Close)
        };
        self.running_calls.push((id, Box::pin(running)));
    }

    /// Polls all calls of the server.
    fn poll_running_calls(&mut self) {
        let mut context = TaskContext::from_waker(Waker::noop());
        let mut answers = Vec::new();
        self.running_calls.retain_mut(|(connection, running)| match running.as_mut().poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready((reply, must_close)) => {
                answers.push((*connection, reply, must_close));
                false
            }
        });
        for moment in self.clock.take_alarms() {
            self.schedule(moment, Event::Alarm);
        }
        for (connection, reply, must_close) in answers {
            // Replies over an abandoned connection are lost.
            let Some(client) = self.owners.get(&connection).copied() else { continue };
            if must_close {
                self.cut(client);
            } else if let Some(bytes) = reply {
                self.reply(client, connection, &bytes);
            }
        }
    }

    /// Makes the callback connections that the server asks for, without faults, and answers CB_NULL there.
    ///
    /// # Errors
    /// Returns any other callback: clients do not conflict.
    fn carry_callbacks(&mut self) -> Result<(), String> {
        let mut context = TaskContext::from_waker(Waker::noop());
        while let Poll::Ready(Work::Connect(connect)) = self.server.poll_work(&context) {
            let id = ConnectionId(self.next_connection);
            self.next_connection += 1;
            let local = SocketAddr::from(([10, 0, 1, 1], 1000));
            let made = Arc::new(Connection::new(id, connect.address(), local, Transport::Tcp, false));
            self.server.handle_connected(connect, &made);
            self.callback_connections.push(made);
        }
        for path in self.callback_connections.clone() {
            while let Poll::Ready(call) = path.outbox.poll_record(&context) {
                let header =
                    CallHeader::parse(&mut Reader::new(call)).map_err(|error| format!("{error:?}"))?;
                if header.procedure != PROC_NULL {
                    return Err(format!("a client of version 4.0 is called: {header:?}"));
                }
                let (mut answer, mut nothing) = (Writer::new(), Writer::new());
                encode_success(&mut answer, header.xid);
                let (server, now) = (Arc::clone(&self.server), moment(&self.clock));
                let mut handled = pin!(server.handle(&path, now, answer.into_bytes(), &mut nothing));
                if handled.as_mut().poll(&mut context).is_pending() {
                    return Err("the server waits within a callback reply".into());
                }
            }
        }
        Ok(())
    }

    /// Sends a reply, which may be cut in the middle.
    fn reply(&mut self, client: usize, connection: ConnectionId, bytes: &Bytes) {
        self.messages += 1;
        if self.is_cut() {
            // A client ignores the first half of a record.
            self.cuts.replies += usize::from(self.endpoints[client].outstanding.is_some());
            return self.cut(client);
        }
        for delay in self.faults.arrivals(&mut self.rng) {
            let event = Event::Reply { client, connection, bytes: bytes.clone() };
            self.schedule(self.now() + delay, event);
        }
    }

    /// Decides whether a message is cut. Networks without cuts draw no random number.
    fn is_cut(&mut self) -> bool {
        self.faults.cut > 0 && self.rng.chance(self.faults.cut)
    }

    /// Schedules a cut of the connection, or not.
    fn plan_cut(&mut self, connection: ConnectionId) {
        if let (Some(client), true) = (self.owners.get(&connection).copied(), self.is_cut()) {
            let delay = Duration::from_micros(self.rng.below(CUT_WITHIN.as_micros() as u64));
            self.schedule(self.now() + delay, Event::Cut { client, connection });
        }
    }

    /// Breaks a client's connection; both ends know at once. The server completes its calls, as behind sockets.
    fn cut(&mut self, client: usize) {
        let old = self.reconnect(client);
        self.close_connection(&old);
    }

    /// Gives a client a new connection; returns the old one.
    fn reconnect(&mut self, client: usize) -> Arc<Connection> {
        let new = self.connect(client);
        let endpoint = &mut self.endpoints[client];
        let old = std::mem::replace(&mut endpoint.connection, new);
        endpoint.client.reconnected();
        self.owners.remove(&old.id);
        old
    }

    /// Tells the server that a connection is closed, if it is one of the current server.
    fn close_connection(&mut self, connection: &Connection) {
        if self.is_current(connection.id) {
            self.closed.insert(connection.id);
            connection.outbox.close();
            self.server.connection_closed(connection.id);
        }
    }

    /// Returns whether a connection is open at the current server.
    fn is_current(&self, connection: ConnectionId) -> bool {
        connection >= self.first_alive && !self.closed.contains(&connection)
    }

    /// Sends a client's next call.
    fn proceed(&mut self, client: usize) {
        let now = self.now();
        let endpoint = &mut self.endpoints[client];
        endpoint.call += 1;
        if let Some(bytes) = endpoint.client.next_call(now) {
            endpoint.outstanding = Some(bytes);
            self.send(client);
        }
    }

    /// Sends a client's current call, for the first time or again.
    fn send(&mut self, client: usize) {
        let is_dead = self.endpoints[client].connection.id < self.first_alive;
        if self.rng.chance(self.faults.breaking) || is_dead {
            let connection = self.reconnect(client);
            let delay = Duration::from_micros(self.rng.below(UNHEARD.as_micros() as u64));
            self.schedule(self.now() + delay, Event::Closed { connection });
        }
        let endpoint = &self.endpoints[client];
        let (call, connection) = (endpoint.call, Arc::clone(&endpoint.connection));
        let Some(bytes) = endpoint.outstanding.clone() else { return };
        self.messages += 1;
        for delay in self.faults.arrivals(&mut self.rng) {
            let event = Event::Call { connection: Arc::clone(&connection), bytes: bytes.clone() };
            self.schedule(self.now() + delay, event);
        }
        self.schedule(self.now() + RETRANSMIT, Event::Timer { client, call });
    }

    fn connect(&mut self, client: usize) -> Arc<Connection> {
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        // A new port each time.
        let peer = SocketAddr::from((address(client), 600 + (id.0 % 400) as u16));
        let local = SocketAddr::from(([10, 0, 1, 1], 2049));
        self.owners.insert(id, client);
        Arc::new(Connection::new(id, peer, local, Transport::Tcp, false))
    }

    fn schedule(&mut self, time: Duration, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled { at: (time, self.scheduled), event }));
    }
}

/// Returns the address of a client.
pub(crate) fn address(client: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, client as u8)
}

/// Starts server number `number`.
fn start(backend: &Arc<SlowFs>, logs: &Arc<Logs>, lasting: Durability, number: u64, now: Now) -> Arc<Server> {
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    let export = Export {
        id: ExportId(1),
        path: "/export".into(),
        backend: backend.clone(),
        options,
        fsid: (7, 0),
        counts: Arc::default(),
    };
    let exports = ExportTable::new(vec![export]).expect("one export is consistent");
    let settings = Settings::new(HandleKey([5; 16]), number, [5 + number as u8; 16], b"sim".to_vec());
    let (server, records) = (Server::new(settings, exports), logs.records());
    Arc::new(match lasting {
        Durability::Kills => server.with_reply_log(logs.clone(), records, now),
        Durability::PowerFailures => {
            let server = server.with_state_log(logs.clone(), logs.entries(), now);
            server.with_stable_log(logs.clone(), records, now)
        }
    })
}

/// Returns virtual time as the server's time.
fn moment(clock: &Clock) -> Now {
    let monotonic = clock.now();
    let wall = Timestamp {
        seconds: 1_700_000_000 + monotonic.as_secs().cast_signed(),
        nanoseconds: monotonic.subsec_nanos(),
    };
    Now { monotonic, wall }
}

/// How a client handled a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// It answers an earlier call.
    NotMine,
    /// It answers the current call.
    Answered,
    /// The server asks for a later retry.
    Later,
}
