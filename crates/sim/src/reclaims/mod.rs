//! Reclaims of locks after kills of the server with torn logs, and after orderly stops, with clients that fall silent for longer than a
//! lease, and grace periods that end with and without them.
//!
//! A client that reclaims a lock was its last holder: no other client has had it since (RFC 8881 §8.4.3), or has changed the file, even
//! in a request that the crash interrupted. A client that was present all the time reclaims all of its locks, and the server waits
//! for it even if it holds nothing. After an orderly stop the server waits only for clients that held state, or could still reclaim it.

mod client;
mod disk;
mod history;

use core::net::SocketAddr;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::compound::CompoundResult;
use rpc::message::parse_reply;
use server::{
    Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey, Now,
    Server, Settings, Squash, Transport,
};
use vfs::{Backend, MemFs, MemOptions, Timestamp};
use xdr::Writer;

use crate::rng::Rng;
use crate::scenario::Report;
use client::Client;
use disk::Disk;
use history::History;

/// Minor versions of the clients.
const CLIENTS: [u32; 4] = [1, 0, 2, 0];
/// Files, with one lock each.
const FILES: u64 = 4;
/// Events of a run.
const STEPS: u32 = 300;
/// Number of times that a stopping server polls its calls: each waits for the disk a few times.
const STOP_ROUNDS: u32 = 8;

type RunningCall = Pin<Box<dyn Future<Output = Option<Bytes>>>>;

struct World {
    exports: Vec<Export>,
    disk: Arc<Disk>,
    server: Arc<Server>,
    starts: u64,
    started: Duration,
    now: Duration,
    rng: Rng,
    /// Decides which calls have the server's thread exclusively; separate from other random numbers.
    threads: Rng,
    clients: Vec<Client>,
    connections: u64,
    /// Pending calls of each client.
    running_calls: Vec<Option<RunningCall>>,
    history: History,
    messages: u64,
}

/// # Errors
/// Returns the failure.
pub(crate) fn run(seed: u64) -> Result<Report, String> {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step()?;
    }
    let History { taken, reclaimed, .. } = world.history;
    Ok(Report { time: world.now, messages: world.messages, checks: taken + reclaimed })
}

impl World {
    fn new(seed: u64) -> Self {
        let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
        let backend: Arc<dyn Backend> = Arc::new(MemFs::new(&MemOptions::default()));
        let history = History::new(FILES, Arc::clone(&backend));
        let exports = vec![Export {
            id: ExportId(1),
            path: "/export".into(),
            backend,
            options,
            fsid: (7, 0),
            counts: Arc::default(),
        }];
        let disk = Arc::new(Disk::default());
        let server = start(&exports, &disk, 1, Duration::ZERO);
        Self {
            server,
            exports,
            disk,
            starts: 1,
            started: Duration::ZERO,
            now: Duration::ZERO,
            rng: Rng::new(seed),
            threads: Rng::new(seed.rotate_left(32)),
            clients: CLIENTS.iter().enumerate().map(|(index, minor)| Client::new(index, *minor)).collect(),
            connections: 0,
            running_calls: CLIENTS.iter().map(|_| None).collect(),
            history,
            messages: 0,
        }
    }

    fn lease(&self) -> Duration {
        self.server.settings().lease
    }

    fn step(&mut self) -> Result<(), String> {
        // Mostly short, sometimes longer than a lease.
        let millis = if self.rng.chance(3) { self.rng.below(120_000) } else { self.rng.below(500) };
        self.now += Duration::from_millis(millis);
        if self.now > self.started + self.lease() / 2 {
            self.clients.iter_mut().for_each(Client::is_late);
        }
        self.server.maintain(moment(self.now));
        match self.rng.below(100) {
            0..3 => self.kill(),
            3..6 => {
                let (client, away) = (self.rng.below(CLIENTS.len() as u64), self.rng.below(200));
                self.clients[client as usize].leave(self.now + Duration::from_secs(away));
            }
            6..50 => self.disk.sync(),
            50..52 => self.stop()?,
            _ => {}
        }
        for index in 0..self.clients.len() {
            if self.rng.chance(50)
                && let Some(call) = self.clients[index].next_call(self.now, FILES, &mut self.rng)
            {
                self.ask(index, call);
            }
        }
        self.poll()?;
        self.server.audit()
    }

    /// Crashes the machine and starts the next server.
    fn kill(&mut self) {
        self.start_next(false);
    }

    /// Stops the server in order, which answers its calls as far as connections last; then restarts the machine.
    ///
    /// # Errors
    /// Returns a client without state that the next server waits for.
    fn stop(&mut self) -> Result<(), String> {
        for running in &mut self.running_calls {
            if self.rng.chance(20) {
                *running = None;
            }
        }
        for _ in 0..STOP_ROUNDS {
            self.disk.sync();
            self.poll()?;
        }
        let holders = self.holders();
        let (server, now) = (Arc::clone(&self.server), moment(self.now));
        let mut prepared = std::pin::pin!(server.prepare_restart(now));
        let mut context = Context::from_waker(Waker::noop());
        while prepared.as_mut().poll(&mut context).is_pending() {
            self.disk.sync();
        }
        self.start_next(true);
        let waiting_for = self.server.snapshot_grace(now, usize::MAX).map(|grace| grace.waiting_for.names);
        match waiting_for.iter().flatten().find(|name| !holders.contains(*name)) {
            None => Ok(()),
            Some(name) => {
                Err(format!("{name:?} held nothing at an orderly stop, but the server waits for it"))
            }
        }
    }

    /// Returns the clients that hold opens or locks, or may still reclaim.
    fn holders(&self) -> Vec<Bytes> {
        let snapshot = self.server.snapshot(moment(self.now), usize::MAX);
        let waiting_for = snapshot.grace.map(|grace| grace.waiting_for.names).unwrap_or_default();
        let holding = snapshot.clients.into_iter().filter(|client| client.opens + client.locks > 0);
        holding.map(|client| client.owner).chain(waiting_for).collect()
    }

    fn start_next(&mut self, in_order: bool) {
        self.disk.crash(&mut self.rng);
        let lease = self.lease();
        self.clients.iter_mut().for_each(|client| client.lose_server(self.now, lease, in_order));
        self.running_calls.iter_mut().for_each(|running| *running = None);
        self.starts += 1;
        self.started = self.now;
        self.server = start(&self.exports, &self.disk, self.starts, self.now);
    }

    fn ask(&mut self, index: usize, call: Bytes) {
        self.messages += 1;
        self.connections += 1;
        let (peer, local) = ([10, 0, 0, index as u8], SocketAddr::from(([10, 0, 1, 1], 2049)));
        let id = ConnectionId(self.connections);
        let connection =
            Arc::new(Connection::new(id, SocketAddr::from((peer, 700)), local, Transport::Tcp, false));
        connection.is_alone.store(self.threads.chance(50), Relaxed);
        let (server, now) = (Arc::clone(&self.server), moment(self.now));
        self.running_calls[index] = Some(Box::pin(async move {
            let mut reply = Writer::new();
            let outcome = server.handle(&connection, now, call, &mut reply).await;
            (outcome.disposition == Disposition::Reply).then(|| reply.into_bytes())
        }));
    }

    /// Polls all calls, and delivers replies to clients.
    fn poll(&mut self) -> Result<(), String> {
        self.history.is_awaiting = self.clients.iter().any(Client::is_awaited);
        let mut context = Context::from_waker(Waker::noop());
        for (client, running) in self.clients.iter_mut().zip(&mut self.running_calls) {
            let polled = running.as_mut().map(|running| running.as_mut().poll(&mut context));
            let Some(Poll::Ready(reply)) = polled else { continue };
            *running = None;
            let result: CompoundResult =
                parse_reply(reply.ok_or("no answer")?).map_err(|error| error.to_string())?;
            client.receive(&result, self.now, &mut self.history)?;
        }
        Ok(())
    }
}

fn file_name(file: u64) -> String {
    format!("file-{file}")
}

fn start(exports: &[Export], disk: &Arc<Disk>, number: u64, now: Duration) -> Arc<Server> {
    let settings = Settings::new(HandleKey([5; 16]), number, [number as u8; 16], b"sim".to_vec());
    let exports = ExportTable::new(exports.to_vec()).expect("one export is consistent");
    let server = Server::new(settings, exports).with_state_log(disk.clone(), disk.entries(), moment(now));
    Arc::new(server)
}

fn moment(monotonic: Duration) -> Now {
    let seconds = 1_700_000_000 + monotonic.as_secs().cast_signed();
    Now { monotonic, wall: Timestamp { seconds, nanoseconds: monotonic.subsec_nanos() } }
}
