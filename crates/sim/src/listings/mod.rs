//! Cached listings of a directory that clients and local processes change meanwhile.
//!
//! A listing must equal the directory at some moment between the request's arrival and the reply, however slow reads, watches and changes
//! are. Access times that reading changes, which no watch reports, may be a second old.

mod reply;

use core::net::SocketAddr;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use server::{
    Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey, Now,
    Server, Settings, Squash, Transport,
};
use vfs::around::{Around, Call, Method, Wrapped};
use vfs::{
    Authority, Backend, Context, Create, CreateMode, Credentials, Handle, MemFs, MemOptions, Op, ReadDir,
    ReadRequest, Removal, SetAttributes, Stability,
};
use xdr::Writer;

use crate::backend::{Clock, Slow};
use crate::cluster::{SECOND, moment};
use crate::copies::at_once;
use crate::rng::Rng;
use crate::scenario::Report;
use reply::{ActualEntry, Entries, ListingKind};

/// Events of a run.
const EVENTS: u32 = 1_500;
/// Maximum number of concurrent calls.
const FLIGHTS_MAX: usize = 6;
/// Maximum number of names in the directory.
const NAMES: u64 = 6;
/// Maximum age of access times.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Percent of slow reads, watches and changes, and their maximum delay.
const SLOW: Slow = Slow { percent: 20, slowest: Duration::from_millis(1_500) };
const KEY: HandleKey = HandleKey([5; 16]);

/// Delays operations.
#[derive(Debug)]
struct Delays {
    clock: Arc<Clock>,
    rng: Mutex<Rng>,
}

impl Around for Delays {
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'_>,
        run: impl FnOnce(Option<u32>) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        match call.method {
            Method::Lookup | Method::Getattr => run(None),
            _ => SLOW.take(&self.clock, &self.rng, move || run(None)),
        }
    }
}

/// The directory's content since a moment.
struct State {
    since: Duration,
    entries: Entries<ActualEntry>,
}

/// A call that the server executes.
struct RunningCall {
    /// The listing that it requests; none for a change.
    kind: Option<ListingKind>,
    began: Duration,
    /// Index of the directory's content at the request.
    first: usize,
    answer: Pin<Box<dyn Future<Output = Option<Bytes>>>>,
}

struct World {
    server: Arc<Server>,
    connection: Arc<Connection>,
    files: Arc<Wrapped<MemFs, Delays>>,
    directory: Handle,
    clock: Arc<Clock>,
    rng: Rng,
    running_calls: Vec<RunningCall>,
    history: Vec<State>,
    calls: u32,
}

/// Runs the scenario.
///
/// # Errors
/// A listing that was never correct.
pub(crate) fn run(seed: u64) -> Result<Report, String> {
    let mut world = World::new(seed);
    for _ in 0..EVENTS {
        world.handle_event()?;
    }
    while !world.running_calls.is_empty() {
        world.pass(SECOND)?;
    }
    let checks = world.server.metrics().cached_listings_used.load(Relaxed) as usize;
    Ok(Report { time: world.clock.now(), messages: u64::from(world.calls), checks })
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let clock = Arc::new(Clock::default());
        let delays = Delays { clock: Arc::clone(&clock), rng: Mutex::new(Rng::new(rng.next_u64())) };
        let files = Arc::new(Wrapped::of(MemFs::new(&MemOptions::default()), delays));
        let disk = files.inner();
        let made = at_once(disk.create(
            &context(SECOND),
            &disk.root(),
            b"d",
            &Create::Directory,
            &SetAttributes { mode: Some(0o777), ..SetAttributes::default() },
        ));
        let directory = made.expect("there is room").handle;
        let peer = SocketAddr::from(([10, 0, 0, 1], 700));
        let local = SocketAddr::from(([10, 0, 1, 1], 2049));
        let connection = Connection::new(ConnectionId(1), peer, local, Transport::Tcp, false);
        let mut world = Self {
            server: server(Arc::clone(&files) as Arc<dyn Backend>),
            connection: Arc::new(connection),
            files,
            directory,
            clock,
            rng,
            running_calls: Vec::new(),
            history: Vec::new(),
            calls: 0,
        };
        world.clock.set(SECOND);
        world.remember();
        world
    }

    /// Handles one event.
    fn handle_event(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..=49 if self.running_calls.len() < FLIGHTS_MAX => {
                let kind = ListingKind::any(&mut self.rng);
                self.begin(Some(kind));
            }
            50..=51 if self.running_calls.len() < FLIGHTS_MAX => self.begin(None),
            52..=53 => self.change(),
            54..=59 => self.read(),
            60..=84 => {
                let pause = Duration::from_millis(self.rng.below(200));
                return self.pass(pause);
            }
            _ => {}
        }
        self.remember();
        self.poll()
    }

    fn pass(&mut self, time: Duration) -> Result<(), String> {
        let (before, now) = (self.clock.now(), self.clock.now() + time);
        self.clock.set(now);
        self.clock.take_alarms();
        if before.as_secs() != now.as_secs() {
            self.server.maintain(self.now());
        }
        self.poll()
    }

    fn now(&self) -> Now {
        moment(self.clock.now())
    }

    /// Starts a listing or a change of a client.
    fn begin(&mut self, kind: Option<ListingKind>) {
        self.calls += 1;
        let call = match kind {
            Some(kind) => kind.call(self.calls, &self.directory),
            None => {
                let entry = self.any_entry();
                reply::change(self.calls, &self.directory, entry, &mut self.rng)
            }
        };
        let (server, connection, now) = (Arc::clone(&self.server), Arc::clone(&self.connection), self.now());
        let answer = Box::pin(async move {
            let mut reply = Writer::new();
            let outcome = server.handle(&connection, now, call, &mut reply).await;
            (outcome.disposition == Disposition::Reply).then(|| reply.into_bytes())
        });
        let (began, first) = (self.clock.now(), self.history.len() - 1);
        self.running_calls.push(RunningCall { kind, began, first, answer });
    }

    /// Polls all calls.
    fn poll(&mut self) -> Result<(), String> {
        let mut context = TaskContext::from_waker(Waker::noop());
        let mut index = 0;
        while index < self.running_calls.len() {
            match self.running_calls[index].answer.as_mut().poll(&mut context) {
                Poll::Pending => {
                    index += 1;
                    self.remember();
                }
                Poll::Ready(reply) => {
                    self.remember();
                    let running = self.running_calls.remove(index);
                    self.check(&running, reply.ok_or("no answer")?)?;
                }
            }
        }
        Ok(())
    }

    /// Records the directory's content if it has changed.
    fn remember(&mut self) {
        let mut entries = Entries::new();
        let request = ReadDir { cookie: 0, verifier: [0; 8], plus: true };
        let mut visit = |entry: vfs::Entry<'_>| {
            let (handle, attributes) = entry.object.expect("a file system in memory lists everything");
            entries.insert(entry.name.to_vec(), ActualEntry { handle, attributes });
            ControlFlow::Continue(())
        };
        let context = context(self.clock.now());
        let listed = at_once(self.files.inner().readdir(&context, &self.directory, request, &mut visit));
        listed.expect("it is there");
        if self.history.last().is_none_or(|last| last.entries != entries) {
            self.history.push(State { since: self.clock.now(), entries });
        }
    }

    /// Checks a listing against the history.
    fn check(&self, running: &RunningCall, reply: Bytes) -> Result<(), String> {
        let Some(kind) = running.kind else { return Ok(()) };
        let listed = kind.entries(reply)?;
        let since = |moment| self.history.partition_point(|shown| shown.since <= moment).saturating_sub(1);
        let oldest = running.began.checked_sub(MAX_AGE).map_or(0, since);
        for (from, with_access) in [(running.first, false), (oldest, true)] {
            let could_be = |shown: &State| reply::shows(&listed, &shown.entries, with_access);
            if !self.history[from.min(running.first)..].iter().any(could_be) {
                let (began, now) = (running.began, self.clock.now());
                return Err(format!(
                    "{kind:?} between {began:?} and {now:?} returned entries that never existed: {listed:?}"
                ));
            }
        }
        Ok(())
    }

    /// Returns an entry, if it exists.
    fn any_entry(&mut self) -> Option<Handle> {
        let entries = &self.history.last().expect("the history has a first entry").entries;
        let at = self.rng.below(NAMES) as usize;
        entries.values().nth(at).map(|is| is.handle)
    }

    /// Lets a local process change something.
    fn change(&mut self) {
        let (context, entry) = (context(self.clock.now()), self.any_entry());
        let (disk, name) = (self.files.inner(), reply::name(&mut self.rng));
        // The name may not exist.
        match (self.rng.below(4), entry) {
            (0, Some(file)) => {
                let set =
                    SetAttributes { mode: Some(self.rng.below(512) as u32), ..SetAttributes::default() };
                _ = at_once(disk.setattr(&context, &file, &set, None, Authority::Opened));
            }
            (1, Some(file)) => {
                let (offset, data) = (self.rng.below(100), Bytes::from_static(b"local"));
                _ = at_once(disk.write(
                    &context,
                    &file,
                    offset,
                    &data,
                    Stability::Unstable,
                    Authority::Opened,
                ));
            }
            (2, _) => _ = at_once(disk.remove(&context, &self.directory, &name, Removal::Any)),
            _ => {
                let (what, set) = (Create::File(CreateMode::Unchecked), SetAttributes::default());
                _ = at_once(disk.create(&context, &self.directory, &name, &what, &set));
            }
        }
    }

    /// Lets a local process read, which changes an access time.
    fn read(&mut self) {
        let Some(file) = self.any_entry() else { return };
        let context = context(self.clock.now());
        let request = ReadRequest { offset: 0, count: 8, authority: Authority::Opened, may_splice: false };
        _ = at_once(self.files.inner().read(&context, &file, request, &mut BytesMut::new()));
    }
}

fn context(now: Duration) -> Context {
    Context::new(Arc::new(Credentials::root()), moment(now).wall)
}

fn server(backend: Arc<dyn Backend>) -> Arc<Server> {
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    let export = Export {
        id: ExportId(1),
        path: "/export".into(),
        backend,
        options,
        fsid: (7, 0),
        counts: Arc::default(),
    };
    let mut settings = Settings::new(KEY, 1, [6; 16], b"sim".to_vec());
    settings.max_delegations = 0;
    Arc::new(Server::new(settings, ExportTable::new(vec![export]).expect("one export is consistent")))
}
