//! Files that are copied from one server to another, while the source is killed or mute, records between the two are lost or come
//! twice, connections break, clients cancel or sleep over their lease, and the destination is killed.
//!
//! Whatever happens, so many bytes of the destination as are told are those of the source; what was cancelled is left
//! alone from the answer on; a copy whose source has fallen mute ends within the time that it is given; and when everybody has
//! heard, nothing is left: no copy, no READ that somebody waits for, no client of the source but those that are there.

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
/// Things that happen while copies are begun.
const EVENTS: u32 = 300;
/// Things that may happen behind that until everybody has heard the end of everything.
const EVENTS_MAX: u32 = 20_000;
const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(90);
/// Bytes that a READ of the source returns at most: many make a copy.
const READ_BYTES: u32 = 16 << 10;
/// Bytes of the source, with a hole within.
const LENGTH: usize = 600_001;
const HOLE: core::ops::Range<usize> = 150_000..350_000;
/// How long a copy may go on when its source is mute: a minute from the READ on that was the first to get nothing, and as long as two
/// more READs take: 10 seconds each, a pause, and a second of this clock.
const MUTE_MAX: Duration = Duration::from_secs(60 + 2 * (10 + 1 + 1));

/// Where clients and the destination reach the source, and clients the destination.
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

/// Both servers, the driver of the destination, and the link between.
struct World {
    source: Side,
    destination: Side,
    link: Link,
    copies: Vec<Copy>,
    now: Duration,
    rng: Rng,
    is_mute: bool,
    /// What the source holds.
    expected: Vec<u8>,
    connections: u64,
    messages: u64,
}

/// Runs it.
///
/// # Errors
/// What went wrong.
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
                "copies are left that nobody hears the end of: {} driven, {waits:?}, {:?}",
                world.copies.len(),
                world.destination.server.counts()
            )
        })?;
        let is_driven = !world.copies.is_empty() || clients.iter().any(Client::asks);
        if world.is_mute && is_driven && world.now > begun + MUTE_MAX {
            return Err(format!(
                "a copy goes on though its source has been mute for {:?}",
                world.now - begun
            ));
        }
    }
    for client in &mut clients {
        client.judge(&world)?;
    }
    world.end(&mut clients)?;
    let checks = clients.iter().map(Client::whole).sum();
    Ok(Report { time: world.now, messages: world.messages, checks })
}

/// One thing, to one client or to all.
fn handle_event(world: &mut World, clients: &mut [Client], is_wild: bool) -> Result<(), String> {
    let chosen = world.rng.below(clients.len() as u64) as usize;
    match world.rng.below(40) {
        0..=1 if is_wild => clients[chosen].copy(world)?,
        2 => clients[chosen].ask_status(world)?,
        3 if is_wild && world.rng.chance(30) => clients[chosen].cancel(world)?,
        4 if is_wild && world.rng.chance(6) => {
            world.restart_source();
            clients.iter_mut().try_for_each(|client| client.meet_another_source(world))?;
        }
        5 if is_wild && world.rng.chance(5) => {
            world.restart_destination();
            clients.iter_mut().try_for_each(|client| client.meet_another_destination(world))?;
        }
        6 if is_wild && world.rng.chance(6) => world.is_mute = !world.is_mute,
        // Nobody renews anything.
        7 if is_wild && world.rng.chance(5) => {
            world.pass(LEASE + SECOND);
            clients.iter_mut().try_for_each(|client| client.renew(world))?;
        }
        8..=9 => {
            world.pass(SECOND);
            clients[chosen].renew(world)?;
        }
        10..=13 => clients[chosen].hear(world, is_wild)?,
        14..=37 => world.carry(),
        _ => {}
    }
    world.drive();
    clients.iter_mut().try_for_each(|client| client.poll(world))
}

impl World {
    /// Looks through the tables of both servers.
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

    /// The source is killed, and the next one started over the same files.
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

    /// A record goes its way between the servers.
    fn carry(&mut self) {
        self.messages += 1;
        let now = self.time();
        self.link.carry(&self.source.server, self.is_mute, now, &mut self.rng);
    }

    /// Everything goes on that can without another record.
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

    /// Takes the work that the destination asks for, and lets the link go on.
    fn take_work(&mut self) {
        let now = self.time();
        let context = Context::from_waker(Waker::noop());
        while let Poll::Ready(work) = self.destination.server.poll_work(&context) {
            match work {
                Work::StepCopy(step) => self.copies.push(Copy::Next(step)),
                Work::Read(fetch) => self.link.read(fetch, now),
                Work::Connect(_) | Work::ExternalChange(_) => unreachable!("nothing is delegated"),
            }
        }
        self.link.go_on(&self.source.server, now);
        for (fetch, outcome) in self.link.take_outcomes() {
            self.destination.server.handle_read(fetch, outcome);
        }
    }

    /// Everything is over: what is left goes with the leases.
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

    /// What is in a file of the destination.
    fn content(&self, name: &str) -> Vec<u8> {
        content(&*self.destination.files, name, 2 * LENGTH as u32).unwrap_or_default()
    }
}

fn root() -> vfs::Context {
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    vfs::Context::new(Arc::new(Credentials::root()), now)
}

/// What the source holds: no byte is like those around it, but in the hole.
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

/// A message reaches a server; its answer, where it has one.
fn deliver(server: &Server, connection: &Arc<Connection>, now: Now, message: Bytes) -> Option<Bytes> {
    let mut reply = Writer::new();
    let outcome = at_once(server.handle(connection, now, message, &mut reply));
    (outcome.disposition == Disposition::Reply).then(|| reply.into_bytes())
}

/// The results of a compound; the last status too.
fn parse(reply: Option<Bytes>) -> Result<(Vec<OpResult>, Status), String> {
    let result: CompoundResult = parse_reply(reply.ok_or("no answer")?).map_err(|error| error.to_string())?;
    Ok((result.results.into_vec(), result.status))
}

/// The outcome of what memory answers at once.
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
