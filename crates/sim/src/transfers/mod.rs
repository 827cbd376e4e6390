//! Copies from one server to another, with kills of both, a silent source, lost and duplicate records, broken connections,
//! cancellations, and expired leases.
//!
//! The bytes that are reported as copied equal the source's. A cancelled copy writes nothing after the reply. A copy from a silent
//! source ends within its time limit. In the end no copy, READ or client of the source is left.

mod client;
mod link;

use core::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::compound::{CompoundResult, OpResult};
use protocol::nfs4::types::Status;
use rpc::message::parse_reply;
use server::{
    Connection, ConnectionId, CopyStep, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey,
    Now, Server, Settings, Squash, Transport, Work,
};
use vfs::{
    Authority, Backend, Create, CreateMode, Credentials, MemFs, MemOptions, SetAttributes, Stability,
    Timestamp,
};
use xdr::Writer;

use crate::backend::content;
use crate::copies::at_once;
use crate::rng::Rng;
use crate::scenario::Report;
use client::Client;
use link::Link;

/// Clients.
const CLIENTS: usize = 2;
/// Events while copies are started.
const EVENTS: u32 = 300;
/// Maximum number of events after that until all copies have ended.
const EVENTS_MAX: u32 = 20_000;
const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(90);
/// Maximum bytes of a READ of the source: a copy takes many.
const READ_BYTES: u32 = 16 << 10;
/// Length of the source, which has a hole.
const LENGTH: usize = 600_001;
const HOLE: core::ops::Range<usize> = 150_000..350_000;
/// Maximum time of a copy from a silent source: a minute from the first failed READ, and two more READs of 10 seconds with a pause and
/// a second of this clock each.
const MUTE_MAX: Duration = Duration::from_secs(60 + 2 * (10 + 1 + 1));

/// Addresses of the source and the destination.
const SOURCE: ([u8; 4], u16) = ([10, 0, 2, 1], 2049);
const DESTINATION: ([u8; 4], u16) = ([10, 0, 1, 1], 2049);

/// A server and its files.
struct Side {
    server: Arc<Server>,
    files: Arc<MemFs>,
    instance: u64,
}

/// A copy in the background.
enum Copy {
    Next(CopyStep),
    Stepping(Pin<Box<dyn Future<Output = ()>>>),
}

/// Both servers, the destination's driver, and the link between.
struct World {
    source: Side,
    destination: Side,
    link: Link,
    copies: Vec<Copy>,
    now: Duration,
    rng: Rng,
    is_mute: bool,
    /// Content of the source.
    expected: Vec<u8>,
    connections: u64,
    messages: u64,
}

/// Runs the scenario.
///
/// # Errors
/// Returns the failure.
pub(crate) fn run(seed: u64) -> Result<Report, String> {
    let mut world = World::new(seed);
    let mut clients =
        (0..CLIENTS).map(|index| Client::new(index, &mut world)).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..EVENTS {
        handle_event(&mut world, &mut clients, true)?;
        world.audit()?;
    }
    world.is_mute = world.rng.chance(30);
    let (begun, mut left) = (world.now, EVENTS_MAX);
    while clients.iter().any(Client::waits) || world.destination.server.counts().copies > 0 {
        handle_event(&mut world, &mut clients, false)?;
        world.audit()?;
        left = left.checked_sub(1).ok_or_else(|| {
            let waits: Vec<_> = clients.iter().map(Client::describe).collect();
            format!(
                "copies are left whose end is not reported: {} running, {waits:?}, {:?}",
                world.copies.len(),
                world.destination.server.counts()
            )
        })?;
        let is_driven = !world.copies.is_empty() || clients.iter().any(Client::asks);
        if world.is_mute && is_driven && world.now > begun + MUTE_MAX {
            return Err(format!(
                "a copy continues though its source has been silent for {:?}",
                world.now - begun
            ));
        }
    }
    for client in &mut clients {
        client.check(&world)?;
    }
    world.end(&mut clients)?;
    let checks = clients.iter().map(Client::whole).sum();
    Ok(Report { time: world.now, messages: world.messages, checks })
}

/// Handles one event of one client or of all.
fn handle_event(world: &mut World, clients: &mut [Client], is_wild: bool) -> Result<(), String> {
    let chosen = world.rng.below(clients.len() as u64) as usize;
    match world.rng.below(40) {
        0..=1 if is_wild => clients[chosen].copy(world)?,
        2 => clients[chosen].ask_status(world)?,
        3 if is_wild && world.rng.chance(30) => clients[chosen].cancel(world)?,
        4 if is_wild && world.rng.chance(6) => {
            world.restart_source();
            clients.iter_mut().try_for_each(|client| client.handle_source_restart(world))?;
        }
        5 if is_wild && world.rng.chance(5) => {
            world.restart_destination();
            clients.iter_mut().try_for_each(|client| client.handle_destination_restart(world))?;
        }
        6 if is_wild && world.rng.chance(6) => world.is_mute = !world.is_mute,
        // All leases expire.
        7 if is_wild && world.rng.chance(5) => {
            world.pass(LEASE + SECOND);
            clients.iter_mut().try_for_each(|client| client.renew(world))?;
        }
        8..=9 => {
            world.pass(SECOND);
            clients[chosen].renew(world)?;
        }
        10..=13 => clients[chosen].receive(world, is_wild)?,
        14..=37 => world.carry(),
        _ => {}
    }
    world.drive();
    clients.iter_mut().try_for_each(|client| client.poll(world))
}

impl World {
    /// Audits both servers.
    fn audit(&self) -> Result<(), String> {
        [&self.source, &self.destination].into_iter().try_for_each(|side| side.server.audit())
    }

    fn new(seed: u64) -> Self {
        let side = |start: fn(&Arc<MemFs>, u64) -> Arc<Server>| {
            let files = Arc::new(MemFs::new(&MemOptions::default()));
            Side { server: start(&files, 1), files, instance: 1 }
        };
        let mut world = Self {
            source: side(source),
            destination: side(destination),
            link: Link::default(),
            copies: Vec::new(),
            now: Duration::ZERO,
            rng: Rng::new(seed),
            is_mute: false,
            expected: expected(),
            connections: 0,
            messages: 0,
        };
        make_source(&world.source.files, &world.expected);
        world.pass(SECOND);
        world
    }

    /// Kills the source, and starts the next one over the same files.
    fn restart_source(&mut self) {
        self.source.instance += 1;
        self.source.server = source(&self.source.files, self.source.instance);
        self.link.close(&self.source.server, ::client::ReadError::SessionLost);
    }

    fn restart_destination(&mut self) {
        self.destination.instance += 1;
        self.copies.clear();
        self.link.forget(&self.source.server);
        self.destination.server = destination(&self.destination.files, self.destination.instance);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.source.server.maintain(self.time());
        self.destination.server.maintain(self.time());
    }

    fn time(&self) -> Now {
        let seconds = 1_700_000_000 + self.now.as_secs().cast_signed();
        Now { monotonic: self.now, wall: Timestamp { seconds, nanoseconds: self.now.subsec_nanos() } }
    }

    /// Delivers a record between the servers.
    fn carry(&mut self) {
        self.messages += 1;
        let now = self.time();
        self.link.carry(&self.source.server, self.is_mute, now, &mut self.rng);
    }

    /// Runs all work that needs no further record.
    fn drive(&mut self) {
        self.take_work();
        let now = self.time();
        for copy in std::mem::take(&mut self.copies) {
            let mut running = match copy {
                Copy::Next(step) => {
                    let server = Arc::clone(&self.destination.server);
                    Box::pin(async move { server.step_copy(step, now).await })
                }
                Copy::Stepping(running) => running,
            };
            if running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                self.copies.push(Copy::Stepping(running));
            }
        }
        self.take_work();
    }

    /// Takes the destination's work, and runs the link.
    fn take_work(&mut self) {
        let now = self.time();
        let context = Context::from_waker(Waker::noop());
        while let Poll::Ready(work) = self.destination.server.poll_work(&context) {
            match work {
                Work::StepCopy(step) => self.copies.push(Copy::Next(step)),
                Work::Read(fetch) => self.link.read(fetch, now),
                Work::Connect(_) | Work::CallHost(_) | Work::ExternalChange(_) => {
                    unreachable!("nothing is delegated")
                }
            }
        }
        self.link.step(&self.source.server, now);
        for (fetch, outcome) in self.link.take_outcomes() {
            self.destination.server.handle_read(fetch, outcome);
        }
    }

    /// Lets leases expire, and checks that nothing is left.
    fn end(&mut self, clients: &mut [Client]) -> Result<(), String> {
        self.is_mute = false;
        for _ in 0..3 * LEASE.as_secs() {
            self.pass(SECOND);
            for _ in 0..10 {
                self.carry();
                self.drive();
            }
            clients.iter_mut().try_for_each(|client| client.renew(self))?;
        }
        let asked = self.destination.server.fetch_count();
        if asked > 0 || !self.link.is_idle() || !self.copies.is_empty() {
            return Err(format!("{asked} READs are left, or a connection to the source is"));
        }
        let counts = self.source.server.counts();
        if counts.clients > CLIENTS as u64 || counts.sessions > CLIENTS as u64 {
            return Err(format!("the destination is still a client of the source: {counts:?}"));
        }
        Ok(())
    }

    fn connect(&mut self, client: usize, local: SocketAddr) -> Arc<Connection> {
        self.connections += 1;
        let peer = SocketAddr::from(([10, 0, 0, client as u8], 600 + (self.connections % 400) as u16));
        Arc::new(Connection::new(ConnectionId(self.connections), peer, local, Transport::Tcp, false))
    }

    /// Returns the content of a file of the destination.
    fn content(&self, name: &str) -> Vec<u8> {
        content(&*self.destination.files, name, 2 * LENGTH as u32).unwrap_or_default()
    }
}

fn root() -> vfs::Context {
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    vfs::Context::new(Arc::new(Credentials::root()), now)
}

/// Returns the source's content: adjacent bytes differ, except in the hole.
fn expected() -> Vec<u8> {
    let byte = |at| if HOLE.contains(&at) { 0 } else { (at % 251) as u8 | 1 };
    (0..LENGTH).map(byte).collect()
}

fn make_source(files: &MemFs, content: &[u8]) {
    let (context, content) = (root(), Bytes::copy_from_slice(content));
    let (what, set) = (Create::File(CreateMode::Guarded), SetAttributes::default());
    let made = files.create(&context, &files.root(), b"source", &what, &set).now().expect("it is made");
    for range in [0..HOLE.start, HOLE.end..LENGTH] {
        let (offset, data) = (range.start as u64, content.slice(range));
        let (stability, authority) = (Stability::FileSync, Authority::Opened);
        let write = files.write(&context, &made.handle, offset, &data, stability, authority);
        write.now().expect("it is written");
    }
}

/// Delivers a message to a server; returns the reply, if there is one.
fn deliver(server: &Server, connection: &Arc<Connection>, now: Now, message: Bytes) -> Option<Bytes> {
    let mut reply = Writer::new();
    let outcome = at_once(server.handle(connection, now, message, &mut reply));
    (outcome.disposition == Disposition::Reply).then(|| reply.into_bytes())
}

/// Returns the results and the status of a compound.
fn parse(reply: Option<Bytes>) -> Result<(Vec<OpResult>, Status), String> {
    let result: CompoundResult = parse_reply(reply.ok_or("no answer")?).map_err(|error| error.to_string())?;
    Ok((result.results.into_vec(), result.status))
}

fn source(files: &Arc<MemFs>, instance: u64) -> Arc<Server> {
    start(files, instance, |settings| {
        settings.handle_key = HandleKey([4; 16]);
        settings.copy_source = true;
        settings.max_io = READ_BYTES;
    })
}

fn destination(files: &Arc<MemFs>, instance: u64) -> Arc<Server> {
    start(files, instance, |settings| {
        settings.copy_from = vec!["10.0.2.0/24".parse().expect("a network")];
    })
}

fn start(files: &Arc<MemFs>, instance: u64, change: impl FnOnce(&mut Settings)) -> Arc<Server> {
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    let backend = Arc::clone(files);
    let export = Export {
        id: ExportId(1),
        path: "/export".into(),
        backend,
        options,
        fsid: (7, 0),
        counts: Arc::default(),
    };
    let mut settings = Settings::new(HandleKey([5; 16]), instance, [6; 16], b"sim".to_vec());
    settings.max_delegations = 0;
    settings.lease = LEASE;
    change(&mut settings);
    Arc::new(Server::new(settings, ExportTable::new(vec![export]).expect("one export is consistent")))
}
