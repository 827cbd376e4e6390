//! Some clients and a server in one thread and virtual time. The server can be restarted, and a client's network can be cut.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::config::{Caches, Caller, Config, Version};
use client::engine::{AcceptedId, Action, Clock, ConnectError, ConnectionId, Engine, RetryPolicy};
use client::fs::FileSystem;
use futures_util::task::noop_waker_ref;
use protocol::nfs4::compound::{CompoundArgs, Op};
use protocol::nfs4::types::{OpNum, SessionId, Stateid};
use rpc::auth::{AuthSys, GroupList};
use rpc::message::{CallHeader, MessageType, peek};
use server::{
    Connect, Connection, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey, HostAnswer,
    HostCall, Now, Server, Settings, Squash, Versions, Work,
};
use vfs::{Backend, MemFs, MemOptions, Timestamp};
use xdr::{Decode, Opaque, Reader, Writer};

use crate::log::Log;

/// The server's lease time.
pub(crate) const LEASE: Duration = Duration::from_secs(90);

/// The treatment of a compound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Serve,
    /// It is executed, and the connection breaks before the reply. A datagram's reply is lost alone.
    LoseReply,
    /// It is held until [`Peer::release`].
    Hold,
}

#[derive(Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn time_of_day(&self) -> Option<client::attributes::Timestamp> {
        let Timestamp { seconds, nanoseconds } = now_of(self.now()).wall;
        Some(client::attributes::Timestamp { seconds, nanoseconds })
    }
}

type Task<T = ()> = Pin<Box<dyn Future<Output = T>>>;
type Judge = Box<dyn FnMut(&[OpNum]) -> Fate>;
/// Judges a call of another program than NFSv4, with its procedure.
type CallJudge = Box<dyn FnMut((u32, u32)) -> Fate>;

/// A server with its clients.
pub(crate) struct World {
    clock: Arc<ManualClock>,
    backend: Arc<dyn Backend>,
    log: Arc<Log>,
    server: RefCell<Arc<Server>>,
    instance: Cell<u64>,
    peers: RefCell<Vec<Rc<Peer>>>,
    /// Background tasks of clients and of the server.
    tasks: RefCell<Vec<Task>>,
    connections: Cell<u64>,
    maintained: Cell<Duration>,
    holds_copies: Cell<bool>,
    delegations_max: usize,
}

/// A client with its connections.
pub(crate) struct Peer {
    pub(crate) engine: Arc<Engine>,
    number: usize,
    paths: RefCell<Vec<Path>>,
    is_cut: Cell<bool>,
    /// Compounds that reached the server.
    pub(crate) compounds: RefCell<Vec<Vec<OpNum>>>,
    /// The stateids of their SETATTRs.
    pub(crate) setattr_stateids: RefCell<Vec<Stateid>>,
    /// The session of the last SEQUENCE.
    pub(crate) session: Cell<SessionId>,
    judge: RefCell<Judge>,
    /// Calls of other programs that reached the server, with their procedures.
    pub(crate) calls: RefCell<Vec<(u32, u32)>>,
    call_judge: RefCell<CallJudge>,
    /// Calls of the server's lock manager and status monitor that reached the client, with their procedures.
    pub(crate) host_calls: RefCell<Vec<(u32, u32)>>,
    client: RefCell<Option<Client>>,
    held: RefCell<Vec<(ConnectionId, Bytes)>>,
    /// The connections on which requests were sent.
    used: RefCell<HashSet<ConnectionId>>,
    drops_callbacks: Cell<bool>,
    refuses_callbacks: Cell<bool>,
    /// Connections that the server has made to the client.
    accepted: RefCell<Vec<Accepted>>,
}

/// A connection that the server has made to a client of version 4.0.
struct Accepted {
    id: AcceptedId,
    server: Arc<Connection>,
    answers: Vec<Task<Option<Bytes>>>,
}

/// A connection that is up.
struct Path {
    id: ConnectionId,
    server: Arc<Connection>,
    calls: Vec<Task<Option<Bytes>>>,
}

impl World {
    pub(crate) fn new() -> Rc<Self> {
        Self::with(Arc::new(MemFs::new(&MemOptions::default())))
    }

    /// Creates a world whose server has this back end.
    pub(crate) fn with(backend: Arc<dyn Backend>) -> Rc<Self> {
        Self::start(backend, Settings::new(HandleKey([5; 16]), 1, [3; 16], Vec::new()).max_delegations)
    }

    /// Creates a world whose server delegates at most this many files.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn with_few_delegations(max: usize) -> Rc<Self> {
        Self::start(Arc::new(MemFs::new(&MemOptions::default())), max)
    }

    fn start(backend: Arc<dyn Backend>, delegations_max: usize) -> Rc<Self> {
        let clock = Arc::new(ManualClock::default());
        clock.0.store(1_000_000_000, Ordering::Relaxed);
        let log = Arc::new(Log::default());
        let server = start(&backend, &log, 1, delegations_max, now_of(clock.now()));
        Rc::new(Self {
            clock,
            backend,
            log,
            server: RefCell::new(server),
            instance: Cell::new(1),
            peers: RefCell::default(),
            tasks: RefCell::default(),
            connections: Cell::default(),
            maintained: Cell::default(),
            holds_copies: Cell::new(false),
            delegations_max,
        })
    }

    pub(crate) fn server(&self) -> Arc<Server> {
        Arc::clone(&self.server.borrow())
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Connects another client.
    pub(crate) fn client(self: &Rc<Self>, version: Version) -> (Client, Rc<Peer>) {
        self.connect(version, RetryPolicy::default(), crate::DELEGATIONS)
    }

    fn connect(
        self: &Rc<Self>,
        version: Version,
        retry: RetryPolicy,
        delegations: bool,
    ) -> (Client, Rc<Peer>) {
        self.connect_with(version, |config| {
            config.retry = retry;
            config.caches.delegations = delegations;
            config.callbacks.accepts = delegations;
        })
    }

    fn connect_with(
        self: &Rc<Self>,
        version: Version,
        change: impl FnOnce(&mut Config),
    ) -> (Client, Rc<Peer>) {
        let number = self.peers.borrow().len();
        let engine = Arc::new(Engine::new(self.clock.clone(), 1));
        let peer = Rc::new(Peer {
            engine: Arc::clone(&engine),
            number,
            paths: RefCell::default(),
            is_cut: Cell::new(false),
            compounds: RefCell::default(),
            setattr_stateids: RefCell::default(),
            session: Cell::default(),
            judge: RefCell::new(Box::new(|_| Fate::Serve)),
            calls: RefCell::default(),
            call_judge: RefCell::new(Box::new(|_| Fate::Serve)),
            host_calls: RefCell::default(),
            client: RefCell::default(),
            held: RefCell::default(),
            used: RefCell::default(),
            drops_callbacks: Cell::new(false),
            refuses_callbacks: Cell::new(false),
            accepted: RefCell::default(),
        });
        self.peers.borrow_mut().push(Rc::clone(&peer));
        let mut config = config(number, version);
        change(&mut config);
        let client = self.run(Client::connect(engine, config)).unwrap();
        *peer.client.borrow_mut() = Some(client.clone());
        let keeper = client.clone();
        self.tasks.borrow_mut().push(Box::pin(async move { keeper.run().await }));
        (client, peer)
    }

    /// Connects another client, and mounts the export.
    pub(crate) fn mounted(self: &Rc<Self>, version: Version) -> (FileSystem, Rc<Peer>) {
        self.mount(self.client(version))
    }

    /// Connects another client that uses no delegations, and mounts the export.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn mounted_undelegated(self: &Rc<Self>, version: Version) -> (FileSystem, Rc<Peer>) {
        self.mount(self.connect(version, RetryPolicy::default(), false))
    }

    /// Connects another client with a changed configuration, and mounts the export.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn mounted_with(
        self: &Rc<Self>,
        version: Version,
        change: impl FnOnce(&mut Config),
    ) -> (FileSystem, Rc<Peer>) {
        self.mount(self.connect_with(version, change))
    }

    /// Connects another client that fails calls after `retries`, and mounts the export.
    pub(crate) fn mounted_soft(self: &Rc<Self>, version: Version, retries: u32) -> (FileSystem, Rc<Peer>) {
        let retry = RetryPolicy { retries: Some(retries), ..RetryPolicy::default() };
        self.mount(self.connect(version, retry, crate::DELEGATIONS))
    }

    fn mount(&self, (client, peer): (Client, Rc<Peer>)) -> (FileSystem, Rc<Peer>) {
        let (fs, _) = self.run(FileSystem::mount(client, root(), b"/export")).unwrap();
        (fs, peer)
    }

    /// Runs a future to its end.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        match self.drive(Duration::MAX, |context| future.as_mut().poll(context)) {
            Some(output) => output,
            None => panic!("the future does not end"),
        }
    }

    /// Advances the time. Returns the output of the future if it completes.
    pub(crate) fn run_for<F: Future>(&self, time: Duration, future: Pin<&mut F>) -> Option<F::Output> {
        let mut future = future;
        self.drive(self.now() + time, |context| future.as_mut().poll(context))
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, time: Duration) {
        let never = pin!(std::future::pending::<()>());
        assert_eq!(self.run_for(time, never), None);
    }

    fn drive<T>(&self, until: Duration, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
        let mut context = Context::from_waker(noop_waker_ref());
        let mut idle_rounds = 0;
        for _ in 0..1_000_000 {
            if let Poll::Ready(output) = poll(&mut context) {
                return Some(output);
            }
            let polled = self.poll_tasks(&mut context);
            // Twice: a task that the first record woke may send another.
            if polled | self.exchange() || self.exchange() {
                idle_rounds = 0;
                continue;
            }
            // A task may have woken one that was polled before it, and that another one.
            idle_rounds += 1;
            if idle_rounds < 4 {
                continue;
            }
            if self.now() >= until {
                return None;
            }
            self.advance(until);
        }
        panic!("it does not end");
    }

    fn poll_tasks(&self, context: &mut Context<'_>) -> bool {
        let mut tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        let count = tasks.len();
        tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
        let has_ended = tasks.len() < count;
        self.tasks.borrow_mut().extend(tasks);
        has_ended
    }

    /// Advances the time to the next deadline; the server has one each second.
    fn advance(&self, until: Duration) {
        let peers = self.peers.borrow().clone();
        let deadlines = peers.iter().filter_map(|peer| peer.engine.deadline());
        let maintenance = self.maintained.get() + Duration::from_secs(1);
        let next = deadlines.chain([maintenance, until]).min().unwrap_or(until).max(self.now());
        self.clock.0.store(next.as_nanos() as u64, Ordering::Relaxed);
        if next >= maintenance {
            self.maintained.set(next);
            while self.server().maintain(self.time()) {}
        }
        for peer in peers {
            peer.engine.handle_timeout();
        }
    }

    /// Withdraws the export and gives it back, which revokes all opens, locks and delegations.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn revoke_all(&self) {
        self.server().replace_exports(ExportTable::new(Vec::new()).unwrap());
        self.server().replace_exports(exports(&self.backend));
    }

    /// Runs a future; every request of a peer waits until no further one can be sent. Returns the number of such round trips.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn count_round_trips<T>(
        &self,
        peers: &[Rc<Peer>],
        future: impl Future<Output = T>,
    ) -> (T, usize) {
        let (mut future, mut round_trips) = (pin!(future), 0);
        loop {
            for peer in peers {
                peer.judge(|_| Fate::Hold);
                peer.judge_calls(|_| Fate::Hold);
            }
            let output = self.run_for(Duration::ZERO, future.as_mut());
            peers.iter().for_each(|peer| peer.release(self));
            if let Some(output) = output {
                return (output, round_trips);
            }
            round_trips += 1;
        }
    }

    fn time(&self) -> Now {
        now_of(self.now())
    }

    /// Carries all waiting records; returns whether there were any.
    fn exchange(&self) -> bool {
        let mut has_done = self.start_work();
        let peers = self.peers.borrow().clone();
        for peer in &peers {
            has_done |= self.act(peer);
            has_done |= self.carry(peer);
            has_done |= self.carry_back(peer);
        }
        has_done
    }

    /// Stops background copies of the server, or lets them continue.
    pub(crate) fn hold_copies(&self, holds: bool) {
        self.holds_copies.set(holds);
    }

    fn start_work(&self) -> bool {
        if self.holds_copies.get() {
            return false;
        }
        let (context, server, mut has_done) = (Context::from_waker(noop_waker_ref()), self.server(), false);
        while let Poll::Ready(work) = server.poll_work(&context) {
            has_done = true;
            match work {
                Work::StepCopy(step) => {
                    let (server, now) = (Arc::clone(&server), self.time());
                    self.tasks.borrow_mut().push(Box::pin(async move { server.step_copy(step, now).await }));
                }
                Work::ExternalChange(change) => server.handle_external_change(&change, self.time()),
                Work::CallHost(call) => {
                    let answer = self.call_host(&call);
                    server.handle_host_answer(&call, answer, self.time());
                }
                Work::Connect(connect) => self.connect_back(&server, connect),
                Work::Read(_) => {}
            }
        }
        has_done
    }

    /// Carries a call of the server's lock manager or status monitor to its client.
    fn call_host(&self, call: &HostCall) -> HostAnswer {
        let peers = self.peers.borrow();
        let peer = peers.iter().find(|peer| call.path().address == peer.address());
        let Some(peer) = peer.filter(|peer| !peer.is_cut.get() && !peer.drops_callbacks.get()) else {
            return HostAnswer::Unreachable;
        };
        let header = CallHeader::parse(&mut Reader::new(call.record().clone())).expect("a call");
        peer.host_calls.borrow_mut().push((header.program, header.procedure));
        let client = peer.client.borrow().clone();
        match client.and_then(|client| client.answer_host_call(call.record().clone())) {
            Some(reply) => HostAnswer::Reply(reply),
            None => HostAnswer::Unanswered,
        }
    }

    /// Makes a connection for callbacks to a client of version 4.0.
    fn connect_back(&self, server: &Server, connect: Connect) {
        let peers = self.peers.borrow();
        let address = connect.address();
        let peer = peers.iter().find(|peer| peer.callback_address() == address);
        let Some(peer) = peer.filter(|peer| !peer.is_cut.get() && !peer.refuses_callbacks.get()) else {
            return server.handle_connect_failed(connect);
        };
        let Some(id) = peer.engine.handle_accepted() else {
            return server.handle_connect_failed(connect);
        };
        let number = self.connections.get() + 1;
        self.connections.set(number);
        let local = SocketAddr::from(([10, 0, 1, 1], 700));
        let server_id = server::ConnectionId(number);
        let made = Arc::new(Connection::new(server_id, address, local, server::Transport::Tcp, false));
        server.handle_connected(connect, &made);
        peer.accepted.borrow_mut().push(Accepted { id, server: made, answers: Vec::new() });
    }

    /// Carries callbacks of version 4.0 and their replies.
    fn carry_back(&self, peer: &Peer) -> bool {
        let (mut context, mut has_done) = (Context::from_waker(noop_waker_ref()), false);
        let mut accepted = std::mem::take(&mut *peer.accepted.borrow_mut());
        accepted.retain_mut(|path| {
            let mut is_open = true;
            while let Poll::Ready(call) = path.server.outbox.poll_record(&context) {
                has_done = true;
                is_open &= peer.drops_callbacks.get() || peer.engine.handle_accepted_call(path.id, call);
            }
            while let Poll::Ready(reply) = peer.engine.poll_accepted_reply(path.id, &mut context) {
                has_done = true;
                match reply {
                    Some(reply) => path.answers.push(self.serve(&path.server, reply)),
                    None => {
                        is_open = false;
                        break;
                    }
                }
            }
            path.answers.retain_mut(|answer| answer.as_mut().poll(&mut context).is_pending());
            if !is_open || path.server.outbox.is_hung_up() {
                path.close(self, peer);
                has_done = true;
                return false;
            }
            true
        });
        peer.accepted.borrow_mut().extend(accepted);
        has_done
    }

    fn act(&self, peer: &Peer) -> bool {
        let (mut context, mut has_done) = (Context::from_waker(noop_waker_ref()), false);
        while let Poll::Ready(Some(action)) = peer.engine.poll_action(&mut context) {
            has_done = true;
            match action {
                Action::Connect { connection, .. } if peer.is_cut.get() => {
                    let reason = "no route to the server".into();
                    peer.engine.handle_connect_failed(connection, ConnectError { reason });
                }
                Action::Connect { connection, .. } => {
                    peer.paths.borrow_mut().push(self.path(peer, connection));
                    peer.engine.handle_connected(connection);
                }
                Action::Listen { .. } => {
                    let address = (!peer.refuses_callbacks.get()).then(|| peer.callback_address());
                    peer.engine.handle_listening(address);
                }
                Action::Disconnect { connection } => {
                    peer.paths.borrow_mut().retain(|path| path.id != connection);
                }
            }
        }
        has_done
    }

    fn path(&self, peer: &Peer, id: ConnectionId) -> Path {
        let number = self.connections.get() + 1;
        self.connections.set(number);
        let address = SocketAddr::new(peer.address(), 600 + (number % 400) as u16);
        let local = SocketAddr::from(([10, 0, 1, 1], 2049));
        let server_id = server::ConnectionId(number);
        let transport = match peer.engine.has_datagrams(id) {
            true => server::Transport::Udp,
            false => server::Transport::Tcp,
        };
        let server = Connection::new(server_id, address, local, transport, false);
        Path { id, server: Arc::new(server), calls: Vec::new() }
    }

    fn carry(&self, peer: &Peer) -> bool {
        let (mut context, mut has_done) = (Context::from_waker(noop_waker_ref()), false);
        let mut lost = Vec::new();
        let mut paths = std::mem::take(&mut *peer.paths.borrow_mut());
        for path in &mut paths {
            while let Poll::Ready(Some(record)) = peer.engine.poll_record(path.id, &mut context) {
                has_done = true;
                let record = Bytes::from(record.concat());
                peer.used.borrow_mut().insert(path.id);
                if peer.is_cut.get() {
                    // A datagram, as there are no connections.
                    continue;
                }
                match peer.judged(&record) {
                    Fate::Serve => path.calls.push(self.serve(&path.server, record)),
                    Fate::Hold => peer.held.borrow_mut().push((path.id, record)),
                    Fate::LoseReply => {
                        let mut call = self.serve(&path.server, record);
                        assert!(call.as_mut().poll(&mut context).is_ready(), "it is executed at once");
                        if !peer.engine.has_datagrams(path.id) {
                            lost.push(path.id);
                        }
                    }
                }
            }
            path.calls.retain_mut(|call| match call.as_mut().poll(&mut context) {
                Poll::Pending => true,
                Poll::Ready(reply) => {
                    has_done = true;
                    let is_kept = reply.is_none_or(|reply| peer.engine.handle_record(path.id, reply));
                    if !is_kept {
                        lost.push(path.id);
                    }
                    false
                }
            });
            while let Poll::Ready(call) = path.server.outbox.poll_record(&context) {
                has_done = true;
                assert!(peer.drops_callbacks.get() || peer.engine.handle_record(path.id, call));
            }
        }
        *peer.paths.borrow_mut() = paths;
        for id in lost {
            peer.disconnect(self, id);
        }
        has_done
    }

    fn serve(&self, connection: &Arc<Connection>, record: Bytes) -> Task<Option<Bytes>> {
        let (server, connection, now) = (self.server(), Arc::clone(connection), self.time());
        Box::pin(async move {
            let mut reply = Writer::new();
            let outcome = server.handle(&connection, now, record, &mut reply).await;
            (outcome.disposition == Disposition::Reply).then(|| reply.into_bytes())
        })
    }

    /// Kills the server and starts the next one over the same files.
    pub(crate) fn restart(&self) {
        self.tasks.borrow_mut().truncate(self.peers.borrow().len());
        self.instance.set(self.instance.get() + 1);
        *self.server.borrow_mut() =
            start(&self.backend, &self.log, self.instance.get(), self.delegations_max, self.time());
        for peer in self.peers.borrow().iter() {
            peer.break_connections(self);
        }
    }
}

impl Accepted {
    fn close(&self, world: &World, peer: &Peer) {
        self.server.outbox.close();
        world.server().connection_closed(self.server.id);
        peer.engine.handle_accepted_closed(self.id);
    }
}

impl Peer {
    fn judged(&self, record: &Bytes) -> Fate {
        if !matches!(peek(record), Ok((_, MessageType::CALL))) {
            return Fate::Serve;
        }
        let mut reader = Reader::new(record.clone());
        let header = CallHeader::parse(&mut reader).expect("a call");
        if header.program != protocol::nfs4::PROGRAM || header.version != protocol::nfs4::VERSION {
            let call = (header.program, header.procedure);
            self.calls.borrow_mut().push(call);
            return (self.call_judge.borrow_mut())(call);
        }
        if header.procedure == 0 {
            return Fate::Serve;
        }
        let compound = CompoundArgs::decode(&mut reader).expect("a compound");
        let ops: Vec<OpNum> = compound.ops.iter().map(Op::opnum).collect();
        let fate = (self.judge.borrow_mut())(&ops);
        let stateids = compound.ops.iter().filter_map(|op| match op {
            Op::SetAttr(args) => Some(args.stateid),
            _ => None,
        });
        self.setattr_stateids.borrow_mut().extend(stateids);
        if let Some(Op::Sequence(args)) = compound.ops.first() {
            self.session.set(args.session_id);
        }
        self.compounds.borrow_mut().push(ops);
        fate
    }

    /// Sets the treatment of compounds from now on.
    pub(crate) fn judge(&self, judge: impl FnMut(&[OpNum]) -> Fate + 'static) {
        *self.judge.borrow_mut() = Box::new(judge);
    }

    /// Sets the treatment of calls of other programs from now on.
    pub(crate) fn judge_calls(&self, judge: impl FnMut((u32, u32)) -> Fate + 'static) {
        *self.call_judge.borrow_mut() = Box::new(judge);
    }

    fn address(&self) -> IpAddr {
        [10, 0, 0, self.number as u8 + 1].into()
    }

    /// Sets whether the server's callbacks are lost.
    pub(crate) fn drop_callbacks(&self, drops: bool) {
        self.drops_callbacks.set(drops);
    }

    /// Gives the client a call of the server over its first connection.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn call_back(&self, record: Bytes) {
        let first = self.paths.borrow()[0].id;
        assert!(self.engine.handle_record(first, record));
    }

    /// Returns the number of connections on which requests were sent, since [`Self::forget_connections`].
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn connections_used(&self) -> usize {
        self.used.borrow().len()
    }

    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn forget_connections(&self) {
        self.used.borrow_mut().clear();
    }

    /// Passes the held and all later compounds to the server.
    pub(crate) fn release(&self, world: &World) {
        self.judge(|_| Fate::Serve);
        self.judge_calls(|_| Fate::Serve);
        for (id, record) in std::mem::take(&mut *self.held.borrow_mut()) {
            if let Some(path) = self.paths.borrow_mut().iter_mut().find(|path| path.id == id) {
                path.calls.push(world.serve(&path.server, record));
            }
        }
    }

    /// Disconnects the client, or lets it reconnect.
    pub(crate) fn cut(&self, world: &World, is_cut: bool) {
        self.is_cut.set(is_cut);
        if is_cut {
            self.break_connections(world);
        }
    }

    fn break_connections(&self, world: &World) {
        let ids: Vec<_> = self.paths.borrow().iter().map(|path| path.id).collect();
        let (sockets, connections): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|id| self.engine.has_datagrams(*id));
        for id in connections {
            self.disconnect(world, id);
        }
        // The client's sockets remain, and only calls in progress are lost.
        self.paths.borrow_mut().retain(|path| !sockets.contains(&path.id));
        let replaced: Vec<_> = sockets.into_iter().map(|id| world.path(self, id)).collect();
        self.paths.borrow_mut().extend(replaced);
        self.hang_up(world);
    }

    /// Breaks the connections that the server has made.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn hang_up(&self, world: &World) {
        for path in self.accepted.take() {
            path.close(world, self);
        }
    }

    /// Returns where the client accepts callbacks in version 4.0.
    fn callback_address(&self) -> SocketAddr {
        SocketAddr::new(self.address(), 50_000)
    }

    /// Sets whether the server cannot connect to the client.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn refuse_callbacks(&self, refuses: bool) {
        self.refuses_callbacks.set(refuses);
    }

    fn disconnect(&self, world: &World, id: ConnectionId) {
        let mut paths = self.paths.borrow_mut();
        let Some(at) = paths.iter().position(|path| path.id == id) else { return };
        let path = paths.remove(at);
        drop(paths);
        path.server.outbox.close();
        world.server().connection_closed(path.server.id);
        self.engine.handle_disconnected(id);
    }

    /// Returns the number of calls of a procedure of another program.
    #[allow(dead_code, reason = "version 4 has no other programs")]
    pub(crate) fn calls_of(&self, program: u32, procedure: u32) -> usize {
        self.calls.borrow().iter().filter(|call| **call == (program, procedure)).count()
    }

    /// Returns the number of calls of a procedure of another program that the server made to the client.
    #[allow(dead_code, reason = "version 4 has no other programs")]
    pub(crate) fn host_calls_of(&self, program: u32, procedure: u32) -> usize {
        self.host_calls.borrow().iter().filter(|call| **call == (program, procedure)).count()
    }

    /// Returns the number of compounds with this operation.
    pub(crate) fn count(&self, op: OpNum) -> usize {
        self.compounds.borrow().iter().filter(|ops| ops.contains(&op)).count()
    }
}

fn start(
    backend: &Arc<dyn Backend>,
    log: &Arc<Log>,
    instance: u64,
    delegations_max: usize,
    now: Now,
) -> Arc<Server> {
    let mut settings = Settings::new(HandleKey([5; 16]), instance, [3; 16], b"server".to_vec());
    settings.lease = LEASE;
    settings.versions = Versions::IMPLEMENTED;
    settings.udp = true;
    settings.max_delegations = delegations_max;
    let server = Server::new(settings, exports(backend));
    let log_of_server: Arc<dyn server::StateLog> = Arc::clone(log) as _;
    Arc::new(server.with_state_log(log_of_server, log.entries(), now))
}

/// Returns the export of these files.
fn exports(backend: &Arc<dyn Backend>) -> ExportTable {
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    let (id, path, backend) = (ExportId(1), "/export".into(), Arc::clone(backend));
    let export = Export { id, path, backend, options, fsid: (1, 0), counts: Arc::default() };
    ExportTable::new(vec![export]).unwrap()
}

fn now_of(monotonic: Duration) -> Now {
    let seconds = 1_000_000 + monotonic.as_secs().cast_signed();
    Now { monotonic, wall: Timestamp { seconds, nanoseconds: monotonic.subsec_nanos() } }
}

pub(crate) fn root() -> Caller {
    user(0)
}

pub(crate) fn user(id: u32) -> Caller {
    let machine_name = Opaque::from_static(b"test");
    Caller::sys(&AuthSys { stamp: 0, machine_name, uid: id, gid: id, gids: GroupList::default() })
}

fn config(number: usize, version: Version) -> Config {
    let owner = format!("client {number}");
    Config {
        mount_port: Some(2049),
        nlm_port: Some(2049),
        version: Some(version),
        host_name: Bytes::from(format!("client-{number}")),
        slots: 16,
        caches: if crate::CACHES { Caches::default() } else { Caches::none() },
        ..Config::new("server", owner.as_bytes(), [1; 8], root())
    }
}
