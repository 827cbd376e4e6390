//! The event loop: a server that is killed and restarted, client processes that are killed and restarted, and connections that break.

use core::net::SocketAddr;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use client::engine::{Action, ConnectError, ConnectionId as EngineConnection, Engine};
use server::{
    Connect, Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey,
    HostAnswer, HostCall, Server, Settings, Squash, Transport, Versions, Work,
};
use vfs::{MemFs, MemOptions};
use xdr::Writer;

use super::altered::{ALTERED, Alteration};
use super::host::{Host, Programs, Wish};
use super::link::{ClientEnd, Delivery, Direction, Link, LinkFaults, hearing_time};
use crate::backend::{Clock, SlowFs, Slowness};
use crate::cluster::moment;
use crate::logs::Logs;
use crate::rng::Rng;

/// Virtual time after which a run counts as stuck.
const END_OF_TIME: Duration = Duration::from_secs(4 * 3600);
/// Interval of the server's `maintain`.
const MAINTENANCE: Duration = Duration::from_secs(1);
/// Maximum time until the next server starts after a kill.
const DOWN_MAX_MS: u64 = 20_000;
/// Time until a client process is started again. All records of its predecessor have arrived by then.
const CLIENT_DOWN: Duration = Duration::from_secs(20);

/// State that the server keeps over a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// Clients, sessions and replies, even over power failures.
    All,
    /// Clients and replies, over kills.
    Replies,
    /// Clients.
    Clients,
}

pub(super) enum Event {
    ToServer {
        link: usize,
        record: Bytes,
    },
    ToClient {
        link: usize,
        record: Bytes,
    },
    /// The server connects to a client of version 4.0.
    ConnectBack {
        request: Connect,
        start: u64,
    },
    /// The server calls a client's lock manager or status monitor.
    CallHost {
        call: HostCall,
        start: u64,
    },
    /// The server has the outcome of such a call.
    HostAnswers {
        call: HostCall,
        answer: HostAnswer,
        start: u64,
    },
    /// A client has requested a connection.
    Connect {
        host: usize,
        boot: u64,
        connection: EngineConnection,
    },
    /// An end learns that the connection is closed.
    ClientHears {
        link: usize,
    },
    ServerHears {
        link: usize,
    },
    Timer {
        host: usize,
        boot: u64,
    },
    Maintain,
    /// A future in the server waits for this moment.
    Alarm,
    Kill {
        is_power_failure: bool,
    },
    StartServer,
    KillClient {
        host: usize,
    },
    StartClient {
        host: usize,
    },
    /// The network is reliable afterwards.
    EndFaults,
    /// Nothing passes between a host and the server.
    Silence {
        host: usize,
        lasts: Duration,
    },
    EndSilence {
        host: usize,
    },
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

type RunningCall = Pin<Box<dyn Future<Output = (Option<Bytes>, bool)>>>;

/// Makes the engine and the programs of a client process: its number, its boot, its random numbers.
pub(super) type Launch = Box<dyn Fn(usize, u64, &Arc<Clock>, Rng) -> (Arc<Engine>, Programs)>;

pub(super) struct World {
    pub(super) backend: Arc<SlowFs>,
    /// The server, while one runs.
    pub(super) server: Option<Arc<Server>>,
    /// Messages sent.
    pub(super) messages: u64,
    clock: Arc<Clock>,
    logs: Arc<Logs>,
    memory: Memory,
    /// The server's lease time, if it is not the default.
    pub(super) lease: Option<Duration>,
    starts: u64,
    pub(super) rng: Rng,
    /// Decides which calls have the server's thread exclusively.
    threads: Rng,
    pub(super) faults: LinkFaults,
    /// Alterations of messages to clients that are left, the next one last.
    alterations: Vec<Alteration>,
    launch: Launch,
    /// Answers a call to a host's lock manager or status monitor.
    pub(super) on_host_call: Box<dyn Fn(usize, Bytes) -> Option<Bytes>>,
    /// Learns when a host begins or ends to be silent.
    pub(super) on_silence: Box<dyn Fn(usize)>,
    pub(super) silent: Vec<bool>,
    pub(super) hosts: Vec<Option<Host>>,
    boots: Vec<u64>,
    pub(super) links: Vec<Link>,
    running_calls: Vec<(usize, RunningCall)>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
}

impl World {
    /// Creates a server and `hosts` client processes.
    pub(super) fn new(mut rng: Rng, hosts: usize, memory: Memory, launch: Launch) -> Self {
        let clock = Arc::new(Clock::default());
        let slowness = Slowness::new(Arc::clone(&clock), rng.next_u64());
        let options = MemOptions { is_volatile: true, ..MemOptions::default() };
        let files = {
            let clock = Arc::clone(&clock);
            MemFs::new(&options).with_clock(move || moment(clock.now()).wall)
        };
        let backend = Arc::new(SlowFs::of(files, slowness));
        let logs = Arc::new(Logs::new(Arc::clone(&clock), rng.next_u64()));
        let mut world = Self {
            backend,
            server: None,
            messages: 0,
            clock,
            logs,
            memory,
            lease: None,
            starts: 0,
            threads: Rng::new(rng.next_u64()),
            rng,
            faults: LinkFaults::MANY,
            alterations: Vec::new(),
            launch,
            on_host_call: Box::new(|_, _| None),
            on_silence: Box::new(|_| {}),
            silent: vec![false; hosts],
            hosts: (0..hosts).map(|_| None).collect(),
            boots: vec![0; hosts],
            links: Vec::new(),
            running_calls: Vec::new(),
            queue: BinaryHeap::new(),
            scheduled: 0,
        };
        world.schedule(Duration::ZERO, Event::StartServer);
        world.schedule(MAINTENANCE, Event::Maintain);
        for host in 0..hosts {
            world.schedule(Duration::ZERO, Event::StartClient { host });
        }
        world
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Schedules kills of the server, power failures and kills of clients in the first `within`, after which the network is reliable.
    pub(super) fn plan_faults(
        &mut self,
        kills: u64,
        power_failures: u64,
        client_kills: u64,
        within: Duration,
    ) {
        for index in 0..kills + power_failures {
            let at = self.moment_within(within);
            self.schedule(at, Event::Kill { is_power_failure: index >= kills });
        }
        for _ in 0..client_kills {
            let (at, host) = (self.moment_within(within), self.rng.below(self.hosts.len() as u64) as usize);
            self.schedule(at, Event::KillClient { host });
        }
        self.schedule(within, Event::EndFaults);
    }

    /// Makes the network reliable.
    pub(super) fn end_faults(&mut self) {
        self.faults = LinkFaults::NONE;
    }

    /// Alters messages to clients.
    pub(super) fn alter_messages(&mut self, alterations: impl DoubleEndedIterator<Item = Alteration>) {
        self.alterations = alterations.rev().collect();
    }

    pub(super) fn moment_within(&mut self, within: Duration) -> Duration {
        Duration::from_micros(self.rng.below(within.as_micros() as u64))
    }

    /// Runs until all programs of all clients have ended.
    ///
    /// # Errors
    /// Errors that a program or the server's audit found, or that the run does not end.
    pub(super) fn run(&mut self) -> Result<(), String> {
        while !self.is_over() {
            let Some(Reverse(Scheduled { at: (time, _), event })) = self.queue.pop() else {
                return Err("no event remains".into());
            };
            if time > END_OF_TIME {
                return Err("the run does not end".into());
            }
            self.clock.set(time.max(self.clock.now()));
            self.handle_event(event);
            self.settle()?;
            if let Some(server) = &self.server {
                server.audit()?;
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.server.is_some() && self.hosts.iter().all(|host| host.as_ref().is_some_and(Host::is_done))
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::ToServer { link, record } => self.serve(link, record),
            Event::ToClient { link, record } => self.deliver(link, record),
            Event::Connect { host, boot, connection } => self.connect(host, boot, connection),
            Event::ConnectBack { request, start } => self.connect_back(request, start),
            Event::CallHost { call, start } => self.call_host(call, start),
            Event::HostAnswers { call, answer, start } => {
                if let Some(server) = self.server.as_ref().filter(|_| start == self.starts) {
                    server.handle_host_answer(&call, answer, moment(self.clock.now()));
                }
            }
            Event::ClientHears { link } => self.client_hears(link),
            Event::ServerHears { link } => self.server_hears(link),
            Event::Timer { host, boot } => {
                if let Some(host) = self.host(host, boot) {
                    host.timer = None;
                    host.engine.handle_timeout();
                    host.wake_transport();
                }
            }
            Event::Maintain => {
                if let Some(server) = &self.server {
                    server.maintain(moment(self.now()));
                }
                self.schedule(self.now() + MAINTENANCE, Event::Maintain);
            }
            Event::Alarm => {}
            Event::Kill { is_power_failure } => self.kill(is_power_failure),
            Event::StartServer => self.start_server(),
            Event::KillClient { host } => self.kill_client(host),
            Event::StartClient { host } => self.start_client(host),
            Event::EndFaults => self.end_faults(),
            Event::Silence { host, lasts } => self.begin_silence(host, lasts),
            Event::EndSilence { host } => self.end_silence(host),
        }
    }

    /// Runs server and clients until all wait.
    fn settle(&mut self) -> Result<(), String> {
        self.poll_running_calls();
        self.start_work();
        self.send_callbacks();
        for index in 0..self.hosts.len() {
            while let Some(host) = &mut self.hosts[index] {
                let has_run = host.run()?;
                let wishes = host.wishes();
                if wishes.is_empty() && !has_run {
                    break;
                }
                let boot = host.boot;
                wishes.into_iter().for_each(|wish| self.grant((index, boot), wish));
            }
            self.set_timer(index);
        }
        Ok(())
    }

    /// Schedules a host's next timer, unless an earlier one is scheduled.
    fn set_timer(&mut self, index: usize) {
        let Some(host) = &mut self.hosts[index] else { return };
        let Some(deadline) = host.engine.deadline().filter(|_| !host.is_done()) else { return };
        if host.timer.is_none_or(|timer| deadline < timer) {
            host.timer = Some(deadline);
            let boot = host.boot;
            self.schedule(deadline, Event::Timer { host: index, boot });
        }
    }

    fn grant(&mut self, (host, boot): (usize, u64), wish: Wish) {
        match wish {
            Wish::Act(Action::Connect { connection, .. }) => {
                let at = self.now() + Duration::from_micros(200 + self.rng.below(20_000));
                self.schedule(at, Event::Connect { host, boot, connection });
            }
            Wish::Act(Action::Listen { .. }) => {
                let address = callback_address(host, boot);
                if let Some(host) = self.host(host, boot) {
                    host.engine.handle_listening(Some(address));
                }
            }
            Wish::Act(Action::Disconnect { connection }) => {
                let link = self.host(host, boot).and_then(|host| host.take_link(connection));
                if let Some(link) = link {
                    self.close_at_client(link);
                }
            }
            Wish::Send(link, record) => {
                self.send(link, Direction::ToServer, Bytes::from(record.concat()));
            }
            Wish::Close(link) => self.close_at_client(link),
        }
    }

    /// Returns a client process, if it is still in this boot.
    fn host(&mut self, index: usize, boot: u64) -> Option<&mut Host> {
        self.hosts[index].as_mut().filter(|host| host.boot == boot)
    }

    pub(super) fn schedule(&mut self, time: Duration, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse(Scheduled { at: (time, self.scheduled), event }));
    }
}

/// Connections.
impl World {
    fn connect(&mut self, host: usize, boot: u64, connection: EngineConnection) {
        let is_refused = self.server.is_none() || self.silent[host];
        let (starts, number) = (self.starts, self.links.len());
        let Some(process) = self.host(host, boot) else { return };
        if is_refused {
            let reason = "Connection refused".into();
            process.engine.handle_connect_failed(connection, ConnectError { reason });
            return;
        }
        let id = ConnectionId(number as u64 + 1);
        // A new port each time, below 1024.
        let peer = client_address(host, 600 + (number % 400) as u16);
        let local = SocketAddr::from(([10, 0, 1, 1], 2049));
        let at_server = Arc::new(Connection::new(id, peer, local, Transport::Tcp, false));
        process.set_link(connection, number);
        process.engine.handle_connected(connection);
        process.wake_transport();
        self.links.push(Link::new((host, boot), ClientEnd::Made(connection), at_server, starts));
    }

    /// Makes a connection for callbacks, if the client process still runs.
    fn connect_back(&mut self, request: Connect, start: u64) {
        let Some(server) = self.server.clone().filter(|_| start == self.starts) else { return };
        let (address, number, starts) = (request.address(), self.links.len(), self.starts);
        let mut hosts = self.hosts.iter_mut().enumerate();
        let accepted = hosts.find_map(|(index, host)| {
            let host = host.as_mut().filter(|host| callback_address(index, host.boot) == address)?;
            let id = host.engine.handle_accepted()?;
            host.set_accepted(id, number);
            host.wake_transport();
            Some((index, host.boot, id))
        });
        let Some((index, boot, id)) = accepted else { return server.handle_connect_failed(request) };
        let local = SocketAddr::from(([10, 0, 1, 1], 700));
        let made = ConnectionId(number as u64 + 1);
        let at_server = Arc::new(Connection::new(made, address, local, Transport::Tcp, false));
        server.handle_connected(request, &at_server);
        self.links.push(Link::new((index, boot), ClientEnd::Accepted(id), at_server, starts));
    }

    /// Schedules the connections that the server requests.
    fn start_work(&mut self) {
        let context = Context::from_waker(Waker::noop());
        let Some(server) = self.server.clone() else { return };
        while let Poll::Ready(work) = server.poll_work(&context) {
            let (now, start) = (self.now(), self.starts);
            let mut soon = || now + Duration::from_micros(200 + self.rng.below(20_000));
            match work {
                Work::Connect(request) => {
                    let at = soon();
                    self.schedule(at, Event::ConnectBack { request, start });
                }
                Work::CallHost(call) => {
                    let at = soon();
                    self.schedule(at, Event::CallHost { call, start });
                }
                Work::Read(_) | Work::StepCopy(_) | Work::ExternalChange(_) => {}
            }
        }
    }

    /// Sends a record, or breaks the connection.
    fn send(&mut self, number: usize, direction: Direction, record: Bytes) {
        let now = self.now();
        let link = &mut self.links[number];
        let is_open = match direction {
            Direction::ToServer => link.is_open_at_client,
            Direction::ToClient => link.is_open_at_server,
        };
        if !is_open {
            return;
        }
        self.messages += 1;
        if self.silent[link.host] {
            link.stall();
        }
        let fate = link.send(direction, now, self.faults, &mut self.rng);
        let event = match direction {
            Direction::ToServer => Event::ToServer { link: number, record },
            Direction::ToClient => Event::ToClient { link: number, record },
        };
        match fate {
            Delivery::Vanishes => {}
            Delivery::Lost => self.break_link(number, now),
            Delivery::Arrives(at) => self.schedule(at, event),
            Delivery::ArrivesLast(at) => {
                self.schedule(at, event);
                self.break_link(number, at);
            }
        }
    }

    /// Breaks a connection at a time; each end learns of it later.
    pub(super) fn break_link(&mut self, link: usize, at: Duration) {
        let (client, server) = (hearing_time(&mut self.rng), hearing_time(&mut self.rng));
        self.schedule(at + client, Event::ClientHears { link });
        self.schedule(at + server, Event::ServerHears { link });
    }

    /// Handles a connection that the client has closed. Earlier records still arrive.
    fn close_at_client(&mut self, link: usize) {
        self.links[link].is_open_at_client = false;
        let at = self.now() + hearing_time(&mut self.rng);
        self.schedule(at, Event::ServerHears { link });
    }

    fn client_hears(&mut self, number: usize) {
        let link = &mut self.links[number];
        if !std::mem::replace(&mut link.is_open_at_client, false) {
            return;
        }
        let (host, boot, at_client) = (link.host, link.boot, link.at_client);
        if let Some(host) = self.host(host, boot) {
            host.lose_link(at_client, number);
        }
    }

    fn server_hears(&mut self, number: usize) {
        let link = &mut self.links[number];
        if !std::mem::replace(&mut link.is_open_at_server, false) || link.server_start != self.starts {
            return;
        }
        link.at_server.outbox.close();
        if let Some(server) = &self.server {
            server.connection_closed(link.at_server.id);
        }
    }

    /// Delivers a message to a client, or what an alteration makes of it.
    fn deliver(&mut self, number: usize, record: Bytes) {
        let is_altered = self.links[number].host == ALTERED;
        let records = match self.alterations.last_mut().filter(|_| is_altered) {
            Some(next) if next.skipped > 0 => {
                next.skipped -= 1;
                vec![record]
            }
            Some(_) => self.alterations.pop().map(|next| next.apply(&record)).unwrap_or_default(),
            None => vec![record],
        };
        records.into_iter().for_each(|record| self.deliver_unaltered(number, record));
    }

    fn deliver_unaltered(&mut self, number: usize, record: Bytes) {
        let link = &self.links[number];
        let (host, boot, at_client) = (link.host, link.boot, link.at_client);
        if !link.is_open_at_client {
            return;
        }
        if let Some(host) = self.host(host, boot)
            && !host.deliver(at_client, number, record)
        {
            host.lose_link(at_client, number);
            self.close_at_client(number);
        }
    }
}

/// Returns an address of a host.
pub(super) fn client_address(host: usize, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8], port))
}

/// Returns where a client process accepts connections of the server.
fn callback_address(host: usize, boot: u64) -> SocketAddr {
    client_address(host, 50_000 + (boot % 1000) as u16)
}

/// The server.
impl World {
    fn serve(&mut self, number: usize, record: Bytes) {
        let link = &self.links[number];
        let Some(server) = self.server.clone().filter(|_| link.server_start == self.starts) else { return };
        if !link.is_open_at_server {
            return;
        }
        let (connection, now) = (Arc::clone(&link.at_server), moment(self.clock.now()));
        connection.is_alone.store(self.threads.chance(50), Relaxed);
        self.running_calls.push((
            number,
            Box::pin(async move {
                let mut reply = Writer::new();
                let outcome = server.handle(&connection, now, record, &mut reply).await;
                let is_answered = outcome.disposition == Disposition::Reply;
                (is_answered.then(|| reply.into_bytes()), outcome.disposition == Disposition::Close)
            }),
        ));
    }

    fn poll_running_calls(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let mut answers = Vec::new();
        self.running_calls.retain_mut(|(link, running)| match running.as_mut().poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready((reply, must_close)) => {
                answers.push((*link, reply, must_close));
                false
            }
        });
        for moment in self.clock.take_alarms() {
            self.schedule(moment, Event::Alarm);
        }
        for (link, reply, must_close) in answers {
            if must_close {
                let at = self.now();
                self.break_link(link, at);
            } else if let Some(reply) = reply {
                self.send(link, Direction::ToClient, reply);
            }
        }
    }

    fn send_callbacks(&mut self) {
        let context = Context::from_waker(Waker::noop());
        for number in 0..self.links.len() {
            let link = &self.links[number];
            if link.server_start != self.starts || !link.is_open_at_server {
                continue;
            }
            let connection = Arc::clone(&link.at_server);
            while let Poll::Ready(call) = connection.outbox.poll_record(&context) {
                self.send(number, Direction::ToClient, call);
            }
            if connection.outbox.is_hung_up() {
                self.server_hears(number);
                let at = self.now() + hearing_time(&mut self.rng);
                self.schedule(at, Event::ClientHears { link: number });
            }
        }
    }

    /// Kills the server in the middle of its calls. A power failure also loses data that are not durable.
    fn kill(&mut self, is_power_failure: bool) {
        if self.server.take().is_none() {
            return;
        }
        self.running_calls.clear();
        let now = self.now();
        for number in 0..self.links.len() {
            let link = &mut self.links[number];
            if std::mem::replace(&mut link.is_open_at_server, false) && link.is_open_at_client {
                let at = now + hearing_time(&mut self.rng);
                self.schedule(at, Event::ClientHears { link: number });
            }
        }
        if is_power_failure {
            self.logs.lose();
            self.backend.inner().crash((self.starts + 1).to_be_bytes());
        }
        let down = Duration::from_millis(self.rng.below(DOWN_MAX_MS));
        self.schedule(now + down, Event::StartServer);
    }

    fn start_server(&mut self) {
        self.starts += 1;
        let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
        let export = Export {
            id: ExportId(1),
            path: "/export".into(),
            backend: self.backend.clone(),
            options,
            fsid: (7, 0),
            counts: Arc::default(),
        };
        let seed = [5 + self.starts as u8; 16];
        let mut settings = Settings::new(HandleKey([5; 16]), self.starts, seed, b"sim".to_vec());
        settings.lease = self.lease.unwrap_or(settings.lease);
        settings.versions = Versions::IMPLEMENTED;
        let exports = ExportTable::new(vec![export]).expect("one export is consistent");
        let (logs, now) = (&self.logs, moment(self.now()));
        let server = Server::new(settings, exports).with_state_log(logs.clone(), logs.entries(), now);
        self.server = Some(Arc::new(match self.memory {
            Memory::All => server.with_stable_log(logs.clone(), logs.records(), now),
            Memory::Replies => server.with_reply_log(logs.clone(), logs.records(), now),
            Memory::Clients => server,
        }));
    }
}

/// Client processes.
impl World {
    fn start_client(&mut self, host: usize) {
        self.boots[host] += 1;
        let rng = Rng::new(self.rng.next_u64());
        let (engine, programs) = (self.launch)(host, self.boots[host], &self.clock, rng);
        self.hosts[host] = Some(Host::new(self.boots[host], engine, programs));
    }

    /// Kills a client process, unless its programs have ended.
    fn kill_client(&mut self, index: usize) {
        let Some(host) = self.hosts[index].take_if(|host| !host.is_done()) else { return };
        let boot = host.boot;
        drop(host);
        for number in 0..self.links.len() {
            let link = &self.links[number];
            if (link.host, link.boot) == (index, boot) && link.is_open_at_client {
                self.close_at_client(number);
            }
        }
        self.schedule(self.now() + CLIENT_DOWN, Event::StartClient { host: index });
    }
}
