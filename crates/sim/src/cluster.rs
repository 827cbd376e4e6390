//! An event loop for clients with concurrent requests and callbacks, a server that may be killed, and a faulty network.

use core::net::SocketAddr;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use rpc::message::{MessageType, peek};
use server::{
    Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey, Now,
    Server, Settings, Squash, StateLog, Transport, Work,
};
use vfs::{Backend, Timestamp};
use xdr::Writer;

use crate::backend::Clock;
use crate::logs::Logs;
use crate::network::Faults;
use crate::rng::Rng;

/// Virtual time after which a run counts as stuck.
const END_OF_TIME: Duration = Duration::from_secs(3 * 3600);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A client of a cluster.
pub(crate) trait Actor: Sized {
    /// State that all clients share.
    type Shared;

    /// Handles the end of a second; returns messages to send.
    fn tick(&mut self, now: Duration, shared: &mut Self::Shared, rng: &mut Rng) -> Vec<Bytes>;

    /// Handles a message; returns messages to send.
    ///
    /// # Errors
    /// Returns the error in it.
    fn receive(
        &mut self,
        bytes: Bytes,
        now: Duration,
        shared: &mut Self::Shared,
        rng: &mut Rng,
    ) -> Result<Vec<Bytes>, String>;

    /// Handles a new connection.
    fn reconnected(&mut self);

    /// Handles a kill of the server, which was restarted.
    fn server_killed(_: &mut Self::Shared, _: Duration) {}

    /// Checks an action of the server, before any client knows of it.
    ///
    /// # Errors
    /// Returns the error in it.
    fn on_server_action(
        _: &mut Self::Shared,
        _: &Server,
        _: Duration,
        _: ServerAction<'_>,
    ) -> Result<(), String> {
        Ok(())
    }

    /// Checks invariants that must always hold.
    ///
    /// # Errors
    /// Returns the broken invariant.
    fn watch(actors: &[Self], shared: &mut Self::Shared, progress: Option<Progress>) -> Result<(), String>;
}

/// A call that the server has just polled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// The calling client.
    pub(crate) author: usize,
    /// The number of the call.
    pub(crate) call: u64,
    /// Whether it was answered.
    pub(crate) is_over: bool,
}

/// An action of the server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ServerAction<'a> {
    /// It ran `maintain`.
    Maintain,
    /// It answered a call.
    Answer { call: &'a Bytes, reply: &'a Bytes },
    /// It sent a callback to this client.
    Call { client: usize, call: &'a Bytes },
    /// It finished everything that follows from one event.
    Step,
}

type Answer = Pin<Box<dyn Future<Output = (ConnectionId, Option<Bytes>)>>>;

/// A call that the server executes.
struct RunningCall {
    author: usize,
    /// The number of the call.
    number: u64,
    call: Bytes,
    answer: Answer,
}

enum Event {
    /// A message reaches the server.
    Arrive(Arc<Connection>, Bytes),
    /// A message reaches a client.
    Deliver(usize, ConnectionId, Bytes),
    /// A second has passed.
    Tick,
    /// A future in the server waits for this moment.
    Alarm,
    /// The server is killed and restarted.
    Kill,
}

/// Clients, server and network.
pub(crate) struct Cluster<A: Actor> {
    pub(crate) server: Arc<Server>,
    pub(crate) actors: Vec<A>,
    pub(crate) shared: A::Shared,
    /// Messages sent, for the report.
    pub(crate) messages: u64,
    backend: Arc<dyn Backend>,
    clock: Arc<Clock>,
    /// The server's durable log.
    log: Option<Arc<Logs>>,
    rng: Rng,
    /// Decides which calls have the server's thread exclusively; separate from other random numbers.
    threads: Rng,
    faults: Faults,
    /// Servers started.
    starts: u64,
    connections: Vec<Arc<Connection>>,
    owners: HashMap<ConnectionId, usize>,
    next_connection: u64,
    /// The first connection of the current server.
    first_alive: ConnectionId,
    queue: BTreeMap<(Duration, u64), Event>,
    scheduled: u64,
    /// Calls that the server executes.
    running_calls: Vec<RunningCall>,
    calls: u64,
}

impl<A: Actor> Cluster<A> {
    /// Creates a server that exports `backend` as `/export`, and clients with a faulty network.
    pub(crate) fn new(
        (backend, clock): (Arc<dyn Backend>, Arc<Clock>),
        actors: Vec<A>,
        shared: A::Shared,
        rng: Rng,
    ) -> Self {
        let count = actors.len();
        let mut cluster = Self {
            server: Arc::new(start(&backend, 1)),
            actors,
            shared,
            messages: 0,
            backend,
            clock,
            log: None,
            threads: Rng::new(!rng.clone().next_u64()),
            rng,
            faults: Faults::MANY,
            starts: 1,
            connections: Vec::new(),
            owners: HashMap::new(),
            next_connection: 1,
            first_alive: ConnectionId(0),
            queue: BTreeMap::new(),
            scheduled: 0,
            running_calls: Vec::new(),
            calls: 0,
        };
        cluster.connections = (0..count).map(|index| cluster.connect(index)).collect();
        cluster.schedule(SECOND, Event::Tick);
        cluster
    }

    /// Gives the server a durable log, so that clients can reclaim after a restart.
    pub(crate) fn with_log(mut self, log: Arc<Logs>) -> Self {
        self.log = Some(log);
        self.server = self.next_server();
        self
    }

    /// Ends the faults of the network.
    pub(crate) fn stop_faults(&mut self) {
        self.faults = Faults::NONE;
    }

    /// Schedules kills of the server, at random moments of the first `within`.
    pub(crate) fn plan_kills(&mut self, count: u64, within: Duration) {
        for _ in 0..count {
            let at = Duration::from_micros(self.rng.below(within.as_micros() as u64));
            self.schedule(at, Event::Kill);
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Runs until `is_over`.
    ///
    /// # Errors
    /// Returns the failure, or that the run does not end.
    pub(crate) fn run_until(&mut self, is_over: impl Fn(&Self) -> bool) -> Result<(), String> {
        self.run_beside(is_over, |_, _| Ok(()))
    }

    /// As [`Self::run_until`]; also calls `outsider` with the time after each event.
    ///
    /// # Errors
    /// As [`Self::run_until`].
    pub(crate) fn run_beside(
        &mut self,
        is_over: impl Fn(&Self) -> bool,
        mut outsider: impl FnMut(Duration, &mut A::Shared) -> Result<(), String>,
    ) -> Result<(), String> {
        while !is_over(self) {
            let Some(((time, _), event)) = self.queue.pop_first() else {
                return Err("no event remains".into());
            };
            if time > END_OF_TIME {
                return Err("the run does not end".into());
            }
            self.clock.set(time);
            self.handle_event(event)?;
            outsider(time, &mut self.shared)?;
            A::watch(&self.actors, &mut self.shared, None)?;
            self.poll()?;
            self.server.audit()?;
        }
        Ok(())
    }

    fn handle_event(&mut self, event: Event) -> Result<(), String> {
        let now = self.now();
        match event {
            // Messages to a killed server are lost.
            Event::Arrive(connection, bytes) if connection.id >= self.first_alive => {
                self.serve(connection, bytes);
            }
            // Messages over a broken connection are lost.
            Event::Deliver(client, connection, bytes)
                if self.connections[client].id == connection && connection >= self.first_alive =>
            {
                let messages = self.actors[client].receive(bytes, now, &mut self.shared, &mut self.rng)?;
                messages.into_iter().for_each(|message| self.send(client, message));
            }
            Event::Arrive(..) | Event::Deliver(..) | Event::Alarm => {}
            Event::Tick => {
                self.server.maintain(moment(now));
                A::on_server_action(&mut self.shared, &self.server, now, ServerAction::Maintain)?;
                for client in 0..self.actors.len() {
                    let messages = self.actors[client].tick(now, &mut self.shared, &mut self.rng);
                    messages.into_iter().for_each(|message| self.send(client, message));
                }
                self.schedule(now + SECOND, Event::Tick);
            }
            Event::Kill => self.kill(),
        }
        Ok(())
    }

    /// Kills the server in the middle of its calls, and starts the next one.
    fn kill(&mut self) {
        self.running_calls.clear();
        self.starts += 1;
        self.first_alive = ConnectionId(self.next_connection);
        self.server = self.next_server();
        A::server_killed(&mut self.shared, self.clock.now());
    }

    fn next_server(&self) -> Arc<Server> {
        let server = start(&self.backend, self.starts);
        Arc::new(match &self.log {
            Some(log) => {
                server.with_state_log(Arc::clone(log) as Arc<dyn StateLog>, log.entries(), moment(self.now()))
            }
            None => server,
        })
    }

    /// Sends a client's message; sometimes its connection breaks instead.
    fn send(&mut self, client: usize, message: Bytes) {
        let is_dead = self.connections[client].id < self.first_alive;
        if self.rng.chance(self.faults.breaking) || is_dead {
            let new = self.connect(client);
            let old = std::mem::replace(&mut self.connections[client], new);
            old.outbox.close();
            if !is_dead {
                self.server.connection_closed(old.id);
            }
            self.actors[client].reconnected();
            // A reply belongs to the connection of its call.
            if matches!(peek(&message), Ok((_, MessageType::REPLY))) {
                return;
            }
        }
        let connection = Arc::clone(&self.connections[client]);
        self.messages += 1;
        for delay in self.faults.arrivals(&mut self.rng) {
            self.schedule(self.now() + delay, Event::Arrive(Arc::clone(&connection), message.clone()));
        }
    }

    fn serve(&mut self, connection: Arc<Connection>, bytes: Bytes) {
        let owner = self.owners[&connection.id];
        let (server, now) = (Arc::clone(&self.server), moment(self.now()));
        connection.is_alone.store(self.threads.chance(50), Relaxed);
        let call = bytes.clone();
        let answer = async move {
            let mut reply = Writer::new();
            let outcome = server.handle(&connection, now, bytes, &mut reply).await;
            (connection.id, (outcome.disposition == Disposition::Reply).then(|| reply.into_bytes()))
        };
        self.calls += 1;
        self.running_calls.push(RunningCall {
            author: owner,
            number: self.calls,
            call,
            answer: Box::pin(answer),
        });
    }

    /// Polls all calls of the server, and sends its replies and callbacks.
    fn poll(&mut self) -> Result<(), String> {
        let mut context = Context::from_waker(Waker::noop());
        let (mut out, mut index) = (Vec::new(), 0);
        let now = self.now();
        while let Some(running) = self.running_calls.get_mut(index) {
            let mut progress = Progress { author: running.author, call: running.number, is_over: false };
            match running.answer.as_mut().poll(&mut context) {
                Poll::Pending => index += 1,
                Poll::Ready((connection, reply)) => {
                    progress.is_over = true;
                    let call = self.running_calls.remove(index).call;
                    if let Some(reply) = reply {
                        let action = ServerAction::Answer { call: &call, reply: &reply };
                        A::on_server_action(&mut self.shared, &self.server, now, action)?;
                        out.push((connection, reply));
                    }
                }
            }
            A::watch(&self.actors, &mut self.shared, Some(progress))?;
        }
        while let Poll::Ready(work) = self.server.poll_work(&context) {
            if let Work::ExternalChange(change) = work {
                self.server.handle_external_change(&change, moment(self.now()));
            }
        }
        for moment in self.clock.take_alarms() {
            self.schedule(moment, Event::Alarm);
        }
        for connection in &self.connections {
            while let Poll::Ready(call) = connection.outbox.poll_record(&context) {
                let action = ServerAction::Call { client: self.owners[&connection.id], call: &call };
                A::on_server_action(&mut self.shared, &self.server, now, action)?;
                out.push((connection.id, call));
            }
        }
        A::on_server_action(&mut self.shared, &self.server, now, ServerAction::Step)?;
        for (id, bytes) in out {
            let client = self.owners[&id];
            self.messages += 1;
            for delay in self.faults.arrivals(&mut self.rng) {
                self.schedule(self.now() + delay, Event::Deliver(client, id, bytes.clone()));
            }
        }
        Ok(())
    }

    fn connect(&mut self, client: usize) -> Arc<Connection> {
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        self.owners.insert(id, client);
        let peer = SocketAddr::from(([10, 0, 0, client as u8], 600 + (id.0 % 400) as u16));
        let local = SocketAddr::from(([10, 0, 1, 1], 2049));
        Arc::new(Connection::new(id, peer, local, Transport::Tcp, false))
    }

    fn schedule(&mut self, time: Duration, event: Event) {
        self.scheduled += 1;
        self.queue.insert((time, self.scheduled), event);
    }
}

/// Starts server number `number`.
fn start(backend: &Arc<dyn Backend>, number: u64) -> Server {
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    let backend = Arc::clone(backend);
    let export = Export {
        id: ExportId(1),
        path: "/export".into(),
        backend,
        options,
        fsid: (7, 0),
        counts: Arc::default(),
    };
    let settings = Settings::new(HandleKey([5; 16]), number, [5 + number as u8; 16], b"sim".to_vec());
    let exports = ExportTable::new(vec![export]).expect("one export is consistent");
    Server::new(settings, exports)
}

/// Returns virtual time as the server's time.
pub(crate) fn moment(monotonic: Duration) -> Now {
    let seconds = 1_700_000_000 + monotonic.as_secs().cast_signed();
    Now { monotonic, wall: Timestamp { seconds, nanoseconds: monotonic.subsec_nanos() } }
}
