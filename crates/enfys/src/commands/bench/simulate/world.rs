//! Clients, a server and their connections in one thread and virtual time. Only what was woken is polled, so that the cost of an event
//! does not depend on the number of clients.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use client::engine::{Action, ConnectionId as EngineConnection, Engine, Record};
use fastrand::Rng;
use server::{
    Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey, Now,
    Server, Settings, Squash, Transport, Versions,
};
use vfs::{MemFs, MemOptions, Timestamp};
use xdr::Writer;

use super::link::{Behavior, Direction};

/// Virtual time after which a run counts as stuck: a day.
const END_OF_TIME: Duration = Duration::from_secs(86_400);
/// Interval of the server's `maintain`.
const MAINTENANCE: Duration = Duration::from_secs(1);
/// The wall clock's time at the start, in seconds since 1970.
const START_SECONDS: i64 = 1_700_000_000;

/// What a client does.
pub(super) type Program = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// Virtual time.
#[derive(Debug, Default)]
pub(super) struct Clock(Mutex<Duration>);

impl Clock {
    /// Returns the time since the start.
    pub(super) fn time(&self) -> Duration {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, time: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }
}

impl client::engine::Clock for Clock {
    fn now(&self) -> Duration {
        self.time()
    }
}

/// Something that can be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Program(usize),
    Transport(usize),
    Call(u64),
}

/// What was woken, in the order of the wake-ups.
type Ready = Arc<Mutex<VecDeque<Token>>>;

struct Woken {
    token: Token,
    is_queued: AtomicBool,
    ready: Ready,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.token);
        }
    }
}

enum Event {
    /// A client has requested a connection.
    Connected {
        host: usize,
        connection: EngineConnection,
    },
    ToServer {
        link: usize,
        record: Bytes,
    },
    ToClient {
        link: usize,
        record: Bytes,
    },
    /// The server learns that a client has closed a connection.
    Closed {
        link: usize,
    },
    Timer {
        host: usize,
    },
    Maintain,
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

struct Host {
    engine: Arc<Engine>,
    program: Option<Program>,
    behavior: Behavior,
    program_woken: Arc<Woken>,
    transport_woken: Arc<Woken>,
    links: BTreeMap<usize, (EngineConnection, usize)>,
    timer: Option<Duration>,
}

struct Link {
    host: usize,
    connection: EngineConnection,
    at_server: Arc<Connection>,
    is_open: bool,
    to_server: Direction,
    to_client: Direction,
}

type RunningCall = Pin<Box<dyn Future<Output = (Option<Bytes>, bool)>>>;

struct Call {
    link: usize,
    future: RunningCall,
    woken: Arc<Woken>,
}

pub(super) struct World {
    clock: Arc<Clock>,
    rng: Rng,
    server: Arc<Server>,
    hosts: Vec<Host>,
    links: Vec<Link>,
    calls: BTreeMap<u64, Call>,
    next_call: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    ready: Ready,
    running: usize,
    records: u64,
}

impl World {
    /// Creates a server of a file system in memory.
    pub(super) fn new(clock: Arc<Clock>, seed: u64) -> Self {
        let export = Export {
            id: ExportId(1),
            path: "/export".into(),
            backend: Arc::new(MemFs::new(&MemOptions::default())),
            options: ExportOptions { squash: Squash::None, ..ExportOptions::default() },
            fsid: (7, 0),
            counts: Arc::default(),
        };
        let mut settings = Settings::new(HandleKey([5; 16]), 1, [6; 16], b"simulation".to_vec());
        settings.versions = Versions::IMPLEMENTED;
        let exports = ExportTable::new(vec![export]).expect("one export is consistent");
        let mut world = Self {
            clock,
            rng: Rng::with_seed(seed),
            server: Arc::new(Server::new(settings, exports)),
            hosts: Vec::new(),
            links: Vec::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            ready: Ready::default(),
            running: 0,
            records: 0,
        };
        world.schedule(MAINTENANCE, Event::Maintain);
        world
    }

    /// Returns the number of records that were sent.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Adds a client machine with its link and its program.
    pub(super) fn add(&mut self, behavior: &Behavior, program: impl FnOnce(Arc<Engine>) -> Program) {
        let number = self.hosts.len();
        let engine = Arc::new(Engine::new(Arc::clone(&self.clock) as Arc<_>, self.rng.u32(..)));
        let program = program(Arc::clone(&engine));
        let host = Host {
            engine,
            program: Some(program),
            behavior: behavior.clone(),
            program_woken: self.woken(Token::Program(number)),
            transport_woken: self.woken(Token::Transport(number)),
            links: BTreeMap::new(),
            timer: None,
        };
        Arc::clone(&host.program_woken).wake();
        Arc::clone(&host.transport_woken).wake();
        self.hosts.push(host);
        self.running += 1;
    }

    fn woken(&self, token: Token) -> Arc<Woken> {
        Arc::new(Woken { token, is_queued: AtomicBool::new(false), ready: Arc::clone(&self.ready) })
    }

    /// Runs until all programs have ended.
    ///
    /// # Errors
    /// The error of a program, or that the run does not end.
    pub(super) fn run(&mut self) -> Result<(), String> {
        loop {
            self.poll_ready()?;
            if self.running == 0 {
                return Ok(());
            }
            let Some(Reverse(Scheduled { at: (time, _), event })) = self.queue.pop() else {
                return Err("nothing happens any more".to_owned());
            };
            if time > END_OF_TIME {
                return Err("the run does not end within a day of virtual time".to_owned());
            }
            self.clock.set(time.max(self.clock.time()));
            self.handle(event);
        }
    }

    fn poll_ready(&mut self) -> Result<(), String> {
        loop {
            let token = self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match token {
                None => return Ok(()),
                Some(Token::Program(host)) => self.poll_program(host)?,
                Some(Token::Transport(host)) => self.poll_transport(host),
                Some(Token::Call(call)) => self.poll_call(call),
            }
        }
    }

    fn poll_program(&mut self, number: usize) -> Result<(), String> {
        let host = &mut self.hosts[number];
        host.program_woken.is_queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&host.program_woken));
        let Some(program) = &mut host.program else { return Ok(()) };
        if let Poll::Ready(outcome) = program.as_mut().poll(&mut Context::from_waker(&waker)) {
            host.program = None;
            self.running -= 1;
            outcome?;
        }
        self.set_timer(number);
        Ok(())
    }

    fn poll_transport(&mut self, number: usize) {
        let host = &self.hosts[number];
        host.transport_woken.is_queued.store(false, Ordering::Relaxed);
        let engine = Arc::clone(&host.engine);
        let waker = Waker::from(Arc::clone(&host.transport_woken));
        let mut context = Context::from_waker(&waker);
        while let Poll::Ready(Some(action)) = engine.poll_action(&mut context) {
            self.act(number, action);
        }
        let links: Vec<_> = self.hosts[number].links.values().copied().collect();
        for (connection, link) in links {
            while let Poll::Ready(Some(record)) = engine.poll_record(connection, &mut context) {
                self.send_to_server(link, record);
            }
        }
        self.set_timer(number);
    }

    fn act(&mut self, host: usize, action: Action) {
        let now = self.clock.time();
        match action {
            Action::Connect { connection, .. } => {
                // SYN and its answer.
                let behavior = self.hosts[host].behavior.clone();
                let answered = Direction::default().send(&behavior, 1, now, &mut self.rng);
                let at = Direction::default().send(&behavior, 1, answered, &mut self.rng);
                self.schedule(at, Event::Connected { host, connection });
            }
            Action::Disconnect { connection } => {
                let Some((_, link)) = self.hosts[host].links.remove(&connection.index()) else { return };
                self.links[link].is_open = false;
                let at = now + self.hosts[host].behavior.delay / 2;
                self.schedule(at, Event::Closed { link });
            }
            // Without caches there are no callbacks of version 4.0.
            Action::Listen { .. } => self.hosts[host].engine.handle_listening(None),
        }
    }

    fn set_timer(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        let Some(deadline) = host.engine.deadline().filter(|_| host.program.is_some()) else { return };
        if host.timer.is_none_or(|timer| deadline < timer) {
            host.timer = Some(deadline);
            self.schedule(deadline, Event::Timer { host: number });
        }
    }

    fn schedule(&mut self, time: Duration, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled { at: (time, self.scheduled), event }));
    }

    fn moment(&self) -> Now {
        let monotonic = self.clock.time();
        let seconds = START_SECONDS + monotonic.as_secs().cast_signed();
        Now { monotonic, wall: Timestamp { seconds, nanoseconds: monotonic.subsec_nanos() } }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connected { host, connection } => self.connected(host, connection),
            Event::ToServer { link, record } => self.serve(link, record),
            Event::ToClient { link, record } => {
                let Link { host, connection, is_open, .. } = self.links[link];
                if is_open {
                    // The server's records are well-formed.
                    let _ = self.hosts[host].engine.handle_record(connection, record);
                }
            }
            Event::Closed { link } => {
                let connection = &self.links[link].at_server;
                connection.outbox.close();
                self.server.connection_closed(connection.id);
            }
            Event::Timer { host } => {
                self.hosts[host].timer = None;
                self.hosts[host].engine.handle_timeout();
                self.set_timer(host);
            }
            Event::Maintain => {
                self.server.maintain(self.moment());
                self.schedule(self.clock.time() + MAINTENANCE, Event::Maintain);
            }
        }
    }

    fn connected(&mut self, host: usize, connection: EngineConnection) {
        let number = self.links.len();
        let [_, high, middle, low] = (host as u32).to_be_bytes();
        // A new port each time, below 1024.
        let peer = SocketAddr::from(([10, high, middle, low], 600 + (number % 400) as u16));
        let local = SocketAddr::from(([11, 0, 0, 1], protocol::nfs3::PORT));
        let id = ConnectionId(number as u64 + 1);
        let at_server = Arc::new(Connection::new(id, peer, local, Transport::Tcp, false));
        let (to_server, to_client) = (Direction::default(), Direction::default());
        self.links.push(Link { host, connection, at_server, is_open: true, to_server, to_client });
        let host = &mut self.hosts[host];
        host.links.insert(connection.index(), (connection, number));
        host.engine.handle_connected(connection);
        Arc::clone(&host.transport_woken).wake();
    }

    fn send_to_server(&mut self, number: usize, record: Record) {
        self.records += 1;
        let (record, now) = (Bytes::from(record.concat()), self.clock.time());
        let link = &mut self.links[number];
        let behavior = &self.hosts[link.host].behavior;
        let at = link.to_server.send(behavior, record.len(), now, &mut self.rng);
        self.schedule(at, Event::ToServer { link: number, record });
    }

    fn send_to_client(&mut self, number: usize, record: Bytes) {
        self.records += 1;
        let now = self.clock.time();
        let link = &mut self.links[number];
        let behavior = &self.hosts[link.host].behavior;
        let at = link.to_client.send(behavior, record.len(), now, &mut self.rng);
        self.schedule(at, Event::ToClient { link: number, record });
    }

    fn serve(&mut self, link: usize, record: Bytes) {
        if !self.links[link].is_open {
            return;
        }
        let (server, connection) = (Arc::clone(&self.server), Arc::clone(&self.links[link].at_server));
        let now = self.moment();
        let future = Box::pin(async move {
            let mut reply = Writer::new();
            let outcome = server.handle(&connection, now, record, &mut reply).await;
            let is_answered = outcome.disposition == Disposition::Reply;
            (is_answered.then(|| reply.into_bytes()), outcome.disposition == Disposition::Close)
        });
        let call = self.next_call;
        self.next_call += 1;
        let woken = self.woken(Token::Call(call));
        self.calls.insert(call, Call { link, future, woken });
        self.poll_call(call);
    }

    fn poll_call(&mut self, number: u64) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        call.woken.is_queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&call.woken));
        let Poll::Ready((reply, must_close)) = call.future.as_mut().poll(&mut Context::from_waker(&waker))
        else {
            return;
        };
        let link = call.link;
        self.calls.remove(&number);
        if let Some(reply) = reply {
            self.send_to_client(link, reply);
        }
        let connection = Arc::clone(&self.links[link].at_server);
        while let Poll::Ready(call) = connection.outbox.poll_record(&Context::from_waker(Waker::noop())) {
            self.send_to_client(link, call);
        }
        if must_close && self.links[link].is_open {
            let Link { host, connection, .. } = self.links[link];
            self.links[link].is_open = false;
            self.hosts[host].links.remove(&connection.index());
            self.hosts[host].engine.handle_disconnected(connection);
            Arc::clone(&self.hosts[host].transport_woken).wake();
            self.server.connection_closed(self.links[link].at_server.id);
        }
    }
}
