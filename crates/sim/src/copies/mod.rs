//! Background copies over faulty back channels, with kills of the server, restarts of clients, and cancellations.
//!
//! Requests are always answered; callbacks may be lost with their connection. The end of a copy is reported once, when it is complete.
//! A cancelled copy writes nothing after the reply. A restarted server does not know earlier copies. In the end no state is left.

mod client;

use core::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::types::Status;
use rpc::message::parse_reply;
use server::{
    Connection, ConnectionId, CopyStep, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey,
    Now, Server, Settings, Squash, Transport, Work,
};
use vfs::{MemFs, MemOptions, Timestamp};
use xdr::Writer;

use crate::rng::Rng;
use crate::scenario::Report;
use client::Client;

/// Clients.
const CLIENTS: usize = 2;
/// Events while copies are started.
const EVENTS: u32 = 40;
/// Maximum number of events after that until all copies have ended.
const EVENTS_MAX: u32 = 2_000;
const SECOND: Duration = Duration::from_secs(1);

/// The server, its driver, and the network.
struct World {
    server: Arc<Server>,
    files: Arc<MemFs>,
    instance: u64,
    now: Duration,
    rng: Rng,
    /// The next step of each copy.
    steps: Vec<CopyStep>,
    connections: u64,
    messages: u64,
}

/// Runs the scenario.
///
/// # Errors
/// Returns the failure.
pub(crate) fn run(seed: u64) -> Result<Report, String> {
    let mut world = World::new(seed);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|index| Client::new(index, &mut world)).collect();
    clients[0].make_source(&mut world)?;
    for _ in 0..EVENTS {
        handle_event(&mut world, &mut clients, true)?;
        world.server.audit()?;
    }
    let mut left = EVENTS_MAX;
    while clients.iter().any(Client::waits) || world.server.counts().copies > 0 {
        handle_event(&mut world, &mut clients, false)?;
        world.server.audit()?;
        left = left.checked_sub(1).ok_or("the ends of some copies are not reported")?;
    }
    for client in &mut clients {
        client.check(&mut world)?;
    }
    let checks = clients.iter().map(Client::asked).sum();
    Ok(Report { time: world.now, messages: world.messages, checks })
}

/// Handles one event of one client.
fn handle_event(world: &mut World, clients: &mut [Client], is_wild: bool) -> Result<(), String> {
    let chosen = world.rng.below(clients.len() as u64) as usize;
    let client = &mut clients[chosen];
    match world.rng.below(20) {
        0..=2 if is_wild => client.copy(world),
        3..=4 => client.ask_status(world),
        5 if is_wild => client.cancel(world),
        6 if is_wild && world.rng.chance(30) => {
            world.restart();
            clients.iter_mut().try_for_each(|client| client.handle_restart(world))
        }
        7 if is_wild && world.rng.chance(30) => client.start_over(world),
        8..=9 => {
            world.pass(SECOND);
            client.renew(world)
        }
        10..=13 => client.receive(world, is_wild),
        _ => {
            world.drive();
            Ok(())
        }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let files = Arc::new(MemFs::new(&MemOptions::default()));
        let mut world = Self {
            server: server(&files, 1),
            files,
            instance: 1,
            now: Duration::ZERO,
            rng: Rng::new(seed),
            steps: Vec::new(),
            connections: 0,
            messages: 0,
        };
        world.pass(SECOND);
        world
    }

    /// Kills the server, and starts the next one over the same files.
    fn restart(&mut self) {
        self.instance += 1;
        self.server = server(&self.files, self.instance);
        self.steps.clear();
        self.pass(SECOND);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.server.maintain(self.time());
    }

    fn time(&self) -> Now {
        let seconds = 1_700_000_000 + self.now.as_secs().cast_signed();
        Now { monotonic: self.now, wall: Timestamp { seconds, nanoseconds: self.now.subsec_nanos() } }
    }

    /// Runs a step of a random copy.
    fn drive(&mut self) {
        let context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Work::StepCopy(step)) = self.server.poll_work(&context) {
            self.steps.push(step);
        }
        if self.steps.is_empty() {
            return;
        }
        let chosen = self.rng.below(self.steps.len() as u64) as usize;
        let step = self.steps.swap_remove(chosen);
        at_once(self.server.step_copy(step, self.time()));
    }

    fn connect(&mut self, client: usize) -> Arc<Connection> {
        self.connections += 1;
        let peer = SocketAddr::from(([10, 0, 0, client as u8], 600 + (self.connections % 400) as u16));
        let local = SocketAddr::from(([10, 0, 1, 1], 2049));
        Arc::new(Connection::new(ConnectionId(self.connections), peer, local, Transport::Tcp, false))
    }

    /// Delivers a message to the server; returns the reply, if there is one.
    fn deliver(&mut self, connection: &Arc<Connection>, message: Bytes) -> Option<Bytes> {
        self.messages += 1;
        let mut reply = Writer::new();
        let outcome = at_once(self.server.handle(connection, self.time(), message, &mut reply));
        (outcome.disposition == Disposition::Reply).then(|| reply.into_bytes())
    }

    /// Returns the results and the status of a compound.
    fn ask(&mut self, connection: &Arc<Connection>, call: Bytes) -> Result<(Vec<OpResult>, Status), String> {
        let reply = self.deliver(connection, call).ok_or("no answer")?;
        let result: CompoundResult = parse_reply(reply).map_err(|error| error.to_string())?;
        Ok((result.results.into_vec(), result.status))
    }

    /// Returns the result of a single operation.
    fn ask_alone(&mut self, connection: &Arc<Connection>, op: Op) -> Result<OpResult, String> {
        let (results, _) = self.ask(connection, crate::client::compound(1, 2, vec![op]))?;
        results.into_iter().next().ok_or_else(|| "no result".into())
    }
}

/// Polls a future of a file system in memory, which is ready at once.
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a file system in memory answers at once without delegations"),
    }
}

fn server(files: &Arc<MemFs>, instance: u64) -> Arc<Server> {
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
    Arc::new(Server::new(settings, ExportTable::new(vec![export]).expect("one export is consistent")))
}
