//! Clients that are given delegations, keep what they read and write to themselves, and are called back over a bad network.
//!
//! Every file, or directory, is a register of one number. Whatever a program on a client reads must be a value that could be there: no
//! read may return what was overwritten, and acknowledged, before the read began. A delegation that is granted beside a
//! conflicting open, a change that does not wait for a recall, a write that is lost with a delegation: each breaks that.
//!
//! Some clients keep the times of what they may write. What others are told about when a file was changed never goes back, and
//! the time that is handed in is the file's.

mod client;
mod directories;
mod history;
mod times;

use core::net::SocketAddr;
use std::collections::BTreeMap;
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
    Server, Settings, Squash, Transport,
};
use vfs::{Backend, Context as Caller, Create, Credentials, MemFs, MemOptions, SetAttributes, Timestamp};
use xdr::Writer;

use crate::copies::at_once;
use crate::network::Faults;
use crate::rng::Rng;
use crate::scenario::Report;
use client::Client;
use history::History;

/// Clients that behave.
const CLIENTS: usize = 3;
/// Files that they share.
const FILES: u64 = 3;
/// What each client's program does, in reads and writes.
const OPERATIONS: u32 = 40;
/// Virtual time after which a run is stuck.
const END_OF_TIME: Duration = Duration::from_secs(3 * 3600);
const SECOND: Duration = Duration::from_secs(1);

type Flight = Pin<Box<dyn Future<Output = (ConnectionId, Option<Bytes>)>>>;

enum Event {
    /// A message reaches the server.
    Arrive(Arc<Connection>, Bytes),
    /// A message reaches a client.
    Deliver(usize, ConnectionId, Bytes),
    /// A second is over.
    Tick,
}

struct World {
    server: Arc<Server>,
    now: Duration,
    rng: Rng,
    faults: Faults,
    clients: Vec<Client>,
    connections: Vec<Arc<Connection>>,
    next_connection: u64,
    queue: BTreeMap<(Duration, u64), Event>,
    scheduled: u64,
    flights: Vec<Flight>,
    history: History,
    messages: u64,
}

/// What clients share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Files,
    /// Directories, each of a name that a file would have.
    Directories,
}

/// Some clients share files; one of them, where `with_mute`, takes delegations and is never heard of again.
///
/// # Errors
/// What went wrong.
pub(crate) fn run(seed: u64, subject: Subject, with_mute: bool) -> Result<Report, String> {
    let mut world = World::new(seed, subject, with_mute);
    world.schedule(SECOND, Event::Tick);
    while !world.is_over() {
        let Some(((time, _), event)) = world.queue.pop_first() else { return Err("nothing happens".into()) };
        if time > END_OF_TIME {
            return Err("the run does not end".into());
        }
        world.now = time;
        world.happen(event)?;
        world.poll();
        world.look_around()?;
    }
    world.judge(with_mute)?;
    let changes = world.history.writes();
    Ok(Report { time: world.now, messages: world.messages, changes })
}

impl World {
    fn new(seed: u64, subject: Subject, with_mute: bool) -> Self {
        let mut rng = Rng::new(seed);
        let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
        let backend = MemFs::new(&MemOptions::default());
        if subject == Subject::Directories {
            make_directories(&backend);
        }
        let export = Export {
            id: ExportId(1),
            path: "/export".into(),
            backend: Arc::new(backend),
            options,
            fsid: (7, 0),
        };
        let settings = Settings::new(HandleKey([5; 16]), 1, [6; 16], b"sim".to_vec());
        let exports = ExportTable::new(vec![export]).expect("one export is consistent");
        let mut clients: Vec<Client> =
            (0..CLIENTS).map(|index| Client::new(index, subject, OPERATIONS, false, &mut rng)).collect();
        if with_mute {
            clients.push(Client::new(CLIENTS, subject, FILES as u32, true, &mut rng));
        }
        let mut world = Self {
            server: Arc::new(Server::new(settings, exports)),
            now: Duration::ZERO,
            rng,
            faults: Faults::MANY,
            connections: Vec::new(),
            next_connection: 1,
            queue: BTreeMap::new(),
            scheduled: 0,
            flights: Vec::new(),
            history: History::new(FILES as usize),
            messages: 0,
            clients: Vec::new(),
        };
        world.connections = (0..clients.len()).map(|index| world.connect(index)).collect();
        world.clients = clients;
        world
    }

    /// Everybody is done, and whoever was silent has been silent for long enough to lose what it had.
    fn is_over(&self) -> bool {
        let counts = self.server.counts();
        self.clients.iter().all(Client::is_done) && counts.delegations == 0 && counts.opens == 0
    }

    /// What must hold at the end, beside what was checked on the way.
    fn judge(&self, with_mute: bool) -> Result<(), String> {
        let revoked = self.server.delegation_counts().revoked.load(Relaxed);
        if !with_mute && revoked > 0 {
            return Err(format!("{revoked} delegations were revoked though every client returns them"));
        }
        let counts = self.server.delegation_counts();
        let granted = [&counts.granted_read, &counts.granted_write, &counts.granted_directory];
        if granted.iter().all(|counter| counter.load(Relaxed) == 0) {
            return Err("nothing was delegated".into());
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Arrive(connection, bytes) => self.serve(connection, bytes),
            Event::Deliver(client, connection, bytes) => {
                // What comes over a broken connection never comes.
                if self.connections[client].id == connection {
                    let said =
                        self.clients[client].receive(bytes, self.now, &mut self.history, &mut self.rng)?;
                    said.into_iter().for_each(|message| self.send(client, message));
                }
            }
            Event::Tick => {
                let now = Now { monotonic: self.now, wall: wall(self.now) };
                self.server.maintain(now);
                for client in 0..self.clients.len() {
                    let said = self.clients[client].tick(self.now, &mut self.history, &mut self.rng);
                    said.into_iter().for_each(|message| self.send(client, message));
                }
                self.schedule(self.now + SECOND, Event::Tick);
            }
        }
        Ok(())
    }

    /// A client says something; now and then its connection breaks instead.
    fn send(&mut self, client: usize, message: Bytes) {
        if self.rng.chance(self.faults.breaking) {
            let new = self.connect(client);
            let old = std::mem::replace(&mut self.connections[client], new);
            old.outbox.close();
            self.server.connection_closed(old.id);
            self.clients[client].reconnected();
            // An answer belongs to the connection that the call came over.
            if matches!(peek(&message), Ok((_, MessageType::REPLY))) {
                return;
            }
        }
        let connection = Arc::clone(&self.connections[client]);
        self.messages += 1;
        for delay in self.faults.arrivals(&mut self.rng) {
            self.schedule(self.now + delay, Event::Arrive(Arc::clone(&connection), message.clone()));
        }
    }

    fn serve(&mut self, connection: Arc<Connection>, bytes: Bytes) {
        let server = Arc::clone(&self.server);
        let now = Now { monotonic: self.now, wall: wall(self.now) };
        self.flights.push(Box::pin(async move {
            let mut reply = Writer::new();
            let outcome = server.handle(&connection, now, bytes, &mut reply).await;
            (connection.id, (outcome.disposition == Disposition::Reply).then(|| reply.into_bytes()))
        }));
    }

    /// Lets everything under way in the server go on, and takes out what it has to say.
    fn poll(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let mut out = Vec::new();
        self.flights.retain_mut(|flight| match flight.as_mut().poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready((connection, reply)) => {
                out.extend(reply.map(|reply| (connection, reply)));
                false
            }
        });
        for connection in &self.connections {
            while let Poll::Ready(call) = connection.outbox.poll_record(&context) {
                out.push((connection.id, call));
            }
        }
        for (id, bytes) in out {
            let Some(client) = self.connections.iter().position(|connection| connection.id == id) else {
                continue;
            };
            self.messages += 1;
            for delay in self.faults.arrivals(&mut self.rng) {
                self.schedule(self.now + delay, Event::Deliver(client, id, bytes.clone()));
            }
        }
    }

    /// What must hold at every moment: a file delegated for writing is delegated to one client alone.
    fn look_around(&self) -> Result<(), String> {
        if let Some(wrong) = self.clients.iter().find_map(|client| client.wrong.clone()) {
            return Err(wrong);
        }
        for file in 0..FILES {
            let held: Vec<bool> = self.clients.iter().filter_map(|client| client.holds(file)).collect();
            if held.len() > 1 && held.contains(&true) {
                return Err(format!("file {file} is delegated for writing and to {} clients", held.len()));
            }
        }
        Ok(())
    }

    fn connect(&mut self, client: usize) -> Arc<Connection> {
        let id = ConnectionId(self.next_connection);
        self.next_connection += 1;
        let peer = SocketAddr::from(([10, 0, 0, client as u8], 600 + (id.0 % 400) as u16));
        let local = SocketAddr::from(([10, 0, 1, 1], 2049));
        Arc::new(Connection::new(id, peer, local, Transport::Tcp, false))
    }

    fn schedule(&mut self, time: Duration, event: Event) {
        self.scheduled += 1;
        self.queue.insert((time, self.scheduled), event);
    }
}

/// The directories, where there are to be any.
fn make_directories(backend: &MemFs) {
    let caller = Caller { credentials: Arc::new(Credentials::root()), now: wall(Duration::ZERO) };
    for file in 0..FILES {
        let name = client::name(file);
        let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
        let root = backend.root();
        let made = at_once(backend.create(&caller, &root, name.as_bytes(), &Create::Directory, &set));
        made.expect("nothing is there yet");
    }
}

fn wall(monotonic: Duration) -> Timestamp {
    let seconds = 1_700_000_000 + monotonic.as_secs().cast_signed();
    Timestamp { seconds, nanoseconds: monotonic.subsec_nanos() }
}
