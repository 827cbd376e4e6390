//! Everything that happens, in the order of virtual time.

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

/// Virtual time after which a run that has not ended is a failure: everything is retransmitted until it is answered, so
/// that something must be stuck.
const END_OF_TIME: Duration = Duration::from_secs(24 * 3600);

/// How long a client waits before it sends a call again.
pub const RETRANSMIT: Duration = Duration::from_secs(1);

/// How long the server believes in a connection that its client has given up: it serves what comes over it until then.
const UNHEARD: Duration = Duration::from_secs(6);

/// How often the server looks after itself while a call waits.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// How long a call may wait for what its sender's peers do not do.
const PATIENCE: Duration = Duration::from_secs(300);

/// Time within which a connection is cut while a call runs.
const CUT_WITHIN: Duration = Duration::from_secs(3);

/// What is sent for a call, and whether its connection is closed then.
type RunningCall = Pin<Box<dyn Future<Output = (Option<Bytes>, bool)>>>;

#[derive(Debug)]
enum Event {
    /// A call reaches the server.
    Call { connection: Arc<Connection>, bytes: Bytes },
    /// A reply reaches a client.
    Reply { client: usize, connection: ConnectionId, bytes: Bytes },
    /// A client looks at its clock.
    Timer { client: usize, call: u64 },
    /// A connection breaks, and both sides hear of it.
    Cut { client: usize, connection: ConnectionId },
    /// The server hears of a connection that its client has given up.
    Closed { connection: Arc<Connection> },
    /// Somebody in the server waits for this moment.
    Alarm,
    /// The server is killed, and another one takes its place.
    Kill,
    /// The same, and what its logs had not on stable storage is lost.
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

/// What the logs of a world outlive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The server: sessions are ordinary ones, and nobody reclaims.
    Kills,
    /// The machine too: sessions may be persistent.
    PowerFailures,
}

/// Connections that were cut so far, where the client waited for an answer over them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Cuts {
    /// While the server was at a call that had come over them.
    pub running: usize,
    /// In the middle of a reply.
    pub replies: usize,
}

/// A client and how it reaches the server.
struct Endpoint {
    client: Box<dyn Client>,
    connection: Arc<Connection>,
    /// Number of the present call; retransmission timers of earlier ones are void.
    call: u64,
    /// The present call's bytes.
    outstanding: Option<Bytes>,
}

/// A server, its clients, and the network between.
pub struct World {
    /// The file system behind the server.
    pub backend: Arc<SlowFs>,
    /// The server.
    pub server: Arc<Server>,
    clock: Arc<Clock>,
    logs: Arc<Logs>,
    /// What the logs outlive.
    lasting: Durability,
    /// Servers started.
    starts: u64,
    /// The first connection that the present server knows.
    first_alive: ConnectionId,
    rng: Rng,
    /// Which calls have the server's thread to themselves; apart from what else is drawn.
    threads: Rng,
    faults: Faults,
    endpoints: Vec<Endpoint>,
    owners: HashMap<ConnectionId, usize>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    next_connection: u64,
    /// Connections that the server asked for, to call clients of version 4.0.
    callback_connections: Vec<Arc<Connection>>,
    /// What the server has begun, and over which connection it came.
    running_calls: Vec<(ConnectionId, RunningCall)>,
    /// Connections that the present server was told are gone.
    closed: HashSet<ConnectionId>,
    /// What was cut.
    pub cuts: Cuts,
    /// Messages sent, for the report.
    pub messages: u64,
}

impl World {
    /// A world of one server that exports a file system in memory as `/export`.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::lasting(seed, faults, Durability::Kills)
    }

    /// The same, with logs that outlive as much.
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

    /// Adds a client, which begins at once.
    pub fn add(&mut self, client: Box<dyn Client>) {
        let index = self.endpoints.len();
        let connection = self.connect(index);
        self.endpoints.push(Endpoint { client, connection, call: 0, outstanding: None });
        self.proceed(index);
    }

    /// Has the server be killed so many times, at moments drawn at random from the first `within`.
    pub fn plan_kills(&mut self, count: u32, within: Duration) {
        for _ in 0..count {
            let at = Duration::from_micros(self.rng.below(within.as_micros() as u64));
            self.schedule(at, Event::Kill);
        }
    }

    /// The same, of power failures.
    pub fn plan_power_failures(&mut self, count: u32, within: Duration) {
        for _ in 0..count {
            let at = Duration::from_micros(self.rng.below(within.as_micros() as u64));
            self.schedule(at, Event::PowerFailure);
        }
    }

    /// Ends the server in the middle of whatever it does; files and the log of calls are as they are.
    fn kill(&mut self) {
        self.running_calls.clear();
        self.callback_connections.clear();
        self.closed.clear();
        self.starts += 1;
        self.first_alive = ConnectionId(self.next_connection);
        self.server = start(&self.backend, &self.logs, self.lasting, self.starts, moment(&self.clock));
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Asks the server over a connection that nothing happens to, and waits for the answer; `None` where it gives none.
    pub fn ask(&mut self, bytes: Bytes) -> Option<Bytes> {
        let connection = self.connection();
        self.ask_over(connection, bytes, Vec::new)
    }

    /// A connection that nothing happens to.
    pub fn connection(&mut self) -> Arc<Connection> {
        let connection = self.connect(usize::from(u8::MAX));
        self.owners.remove(&connection.id);
        connection
    }

    /// Asks the server over this connection. While it is at it, `hear` says what clients say by themselves, and over what: answers to
    /// its calls, for which it may wait.
    pub fn ask_over(
        &mut self,
        connection: Arc<Connection>,
        bytes: Bytes,
        mut hear: impl FnMut() -> Vec<(Arc<Connection>, Bytes)>,
    ) -> Option<Bytes> {
        self.serve(connection, bytes);
        let mut context = TaskContext::from_waker(Waker::noop());
        let (_, mut running) = self.running_calls.pop()?;
        let mut patience = PATIENCE;
        loop {
            if let Poll::Ready((reply, _)) = running.as_mut().poll(&mut context) {
                return reply;
            }
            let said = hear();
            if said.is_empty() {
                match self.clock.take_alarms().into_iter().min() {
                    Some(next) => self.clock.set(next),
                    None => patience = self.maintain(patience)?,
                }
            }
            for (connection, bytes) in said {
                self.ask_over(connection, bytes, Vec::new);
            }
        }
    }

    /// The server looks after itself, as it does all the time, while something waits for what may never come; what is left of the time that it
    /// may wait.
    fn maintain(&mut self, patience: Duration) -> Option<Duration> {
        let left = patience.checked_sub(MAINTENANCE)?;
        self.wait(MAINTENANCE);
        while self.server.maintain(moment(&self.clock)) {}
        Some(left)
    }

    /// Lets time pass in which nobody does anything.
    pub fn wait(&mut self, time: Duration) {
        self.clock.set(self.clock.now() + time);
    }

    /// Runs until all clients are done and nothing is under way.
    ///
    /// # Errors
    /// What a client found wrong, or that the run does not end.
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
            // What was on its way to a server that is gone never arrives.
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
                // What comes over a broken connection never comes.
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
                        // The server said: later.
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

    /// Hands a call to the server.
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

    /// Lets everything under way in the server go on as far as it can.
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
            // What is said over a connection that its client has given up is lost.
            let Some(client) = self.owners.get(&connection).copied() else { continue };
            if must_close {
                self.cut(client);
            } else if let Some(bytes) = reply {
                self.reply(client, connection, &bytes);
            }
        }
    }

    /// Makes the connections that the server asks for, and answers its trials there. Nothing happens to these.
    ///
    /// # Errors
    /// Where it calls for more: nobody wants what another has.
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
                let mut heard = pin!(server.handle(&path, now, answer.into_bytes(), &mut nothing));
                if heard.as_mut().poll(&mut context).is_pending() {
                    return Err("the server waits before it hears an answer".into());
                }
            }
        }
        Ok(())
    }

    /// Sends a reply, which may be cut off in the middle.
    fn reply(&mut self, client: usize, connection: ConnectionId, bytes: &Bytes) {
        self.messages += 1;
        if self.is_cut() {
            // The first half of a record is nothing to a client.
            self.cuts.replies += usize::from(self.endpoints[client].outstanding.is_some());
            return self.cut(client);
        }
        for delay in self.faults.arrivals(&mut self.rng) {
            let event = Event::Reply { client, connection, bytes: bytes.clone() };
            self.schedule(self.now() + delay, event);
        }
    }

    /// Whether what is under way is cut. Networks without cuts draw no number for it.
    fn is_cut(&mut self) -> bool {
        self.faults.cut > 0 && self.rng.chance(self.faults.cut)
    }

    /// Has the connection break soon, or not.
    fn plan_cut(&mut self, connection: ConnectionId) {
        if let (Some(client), true) = (self.owners.get(&connection).copied(), self.is_cut()) {
            let delay = Duration::from_micros(self.rng.below(CUT_WITHIN.as_micros() as u64));
            self.schedule(self.now() + delay, Event::Cut { client, connection });
        }
    }

    /// Breaks a client's connection, of which both sides hear at once. What the server has begun it brings to its end, as
    /// it does behind sockets.
    fn cut(&mut self, client: usize) {
        let old = self.reconnect(client);
        self.close_connection(&old);
    }

    /// Gives a client another connection; returns the one before.
    fn reconnect(&mut self, client: usize) -> Arc<Connection> {
        let new = self.connect(client);
        let endpoint = &mut self.endpoints[client];
        let old = std::mem::replace(&mut endpoint.connection, new);
        endpoint.client.reconnected();
        self.owners.remove(&old.id);
        old
    }

    /// The server hears that a connection is gone, unless that was known to another server.
    fn close_connection(&mut self, connection: &Connection) {
        if self.is_current(connection.id) {
            self.closed.insert(connection.id);
            connection.outbox.close();
            self.server.connection_closed(connection.id);
        }
    }

    /// Whether what comes over a connection reaches the present server.
    fn is_current(&self, connection: ConnectionId) -> bool {
        connection >= self.first_alive && !self.closed.contains(&connection)
    }

    /// Lets a client say the next thing it has to say.
    fn proceed(&mut self, client: usize) {
        let now = self.now();
        let endpoint = &mut self.endpoints[client];
        endpoint.call += 1;
        if let Some(bytes) = endpoint.client.next_call(now) {
            endpoint.outstanding = Some(bytes);
            self.send(client);
        }
    }

    /// Sends a client's present call, for the first time or again.
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
        // Another port each time.
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

/// Where the `client`th client is.
pub(crate) fn address(client: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, client as u8)
}

/// The server that is started as the `number`th.
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

/// Virtual time, as the server is told it.
fn moment(clock: &Clock) -> Now {
    let monotonic = clock.now();
    let wall = Timestamp {
        seconds: 1_700_000_000 + monotonic.as_secs().cast_signed(),
        nanoseconds: monotonic.subsec_nanos(),
    };
    Now { monotonic, wall }
}

/// What a client made of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// An answer to something long answered.
    NotMine,
    /// The answer to the present call.
    Answered,
    /// The server asks to be asked again.
    Later,
}
