//! A client's engine and a server in one thread and virtual time. Calls are answered by the server of this workspace, or by a
//! function that the test passes, which can return wrong replies.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::config::{Caller, Config};
use client::engine::{Action, Clock, ConnectError, ConnectionId, Engine};
use client::error::OpError;
use futures_util::FutureExt;
use futures_util::task::{ArcWake, noop_waker_ref, waker};
use rpc::auth::{AuthSys, GroupList};
use rpc::message::{CallHeader, encode_success};
use server::{
    Connection, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey, Now, Server, Settings,
    Squash, Versions,
};
use vfs::{MemFs, MemOptions, Timestamp};
use xdr::{Encode, Opaque, Reader, Writer};

/// A call of the client.
pub(crate) struct Call {
    pub(crate) port: u16,
    pub(crate) header: CallHeader,
    /// The record as a whole.
    pub(crate) record: Bytes,
    arguments: Reader,
}

impl Call {
    /// Returns whether it calls this procedure.
    pub(crate) fn is(&self, program: u32, procedure: u32) -> bool {
        (self.header.program, self.header.procedure) == (program, procedure)
    }

    pub(crate) fn arguments<T: xdr::Decode>(&self) -> T {
        let mut reader = self.arguments.clone();
        let arguments = T::decode(&mut reader).expect("valid arguments");
        reader.finish().expect("no bytes after the arguments");
        arguments
    }

    /// Returns the reply with these results.
    pub(crate) fn reply(&self, results: &impl Encode) -> Answer {
        let mut reply = Writer::new();
        encode_success(&mut reply, self.header.xid);
        results.encode(&mut reply);
        Answer::Reply(reply.into_bytes())
    }

    /// Returns a reply of an accepted call with this status (RFC 5531 §9) and these words after it.
    pub(crate) fn not_executed(&self, status: u32, more: &[u32]) -> Answer {
        let words = [&[self.header.xid, 1, 0, 0, 0, status][..], more].concat();
        Answer::Reply(words.iter().flat_map(|word| word.to_be_bytes()).collect())
    }
}

/// The outcome of a call.
pub(crate) enum Answer {
    Reply(Bytes),
    /// The connection breaks before the reply.
    Break,
    /// There is no reply.
    Silence,
    /// The server of this workspace serves it.
    Serve,
    /// The server serves another record instead.
    ServeOther(Bytes),
    /// The server serves it, and the connection breaks before the reply.
    ServeAndBreak,
}

#[derive(Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// What happens to a datagram and to its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    Once,
    LoseCall,
    LoseReply,
    /// The call arrives twice, the second time after this time.
    CallAgain(Duration),
    /// The call arrives late.
    CallLate(Duration),
    /// The reply arrives late, and twice.
    ReplyLate(Duration),
}

/// A datagram on its way.
enum Datagram {
    Call { id: ConnectionId, port: u16, record: Bytes },
    Reply { id: ConnectionId, record: Bytes },
}

type Handler = Box<dyn FnMut(&Call) -> Answer>;
type Network = Box<dyn FnMut() -> Delivery>;

pub(crate) struct Link {
    pub(crate) engine: Arc<Engine>,
    clock: Arc<ManualClock>,
    server: Server,
    server_connection: Arc<Connection>,
    /// Connections that are up, with their ports.
    connected: RefCell<Vec<Option<(ConnectionId, u16)>>>,
    listening: RefCell<HashSet<u16>>,
    handler: RefCell<Handler>,
    network: RefCell<Network>,
    /// Datagrams on their way, with the time of their arrival.
    datagrams: RefCell<Vec<(Duration, Datagram)>>,
    /// The connection of datagrams at the server.
    server_datagrams: Arc<Connection>,
    /// The longest record over datagrams, in bytes.
    pub(crate) longest_datagram: Cell<usize>,
    /// Programs and procedures that were called, in their order.
    pub(crate) calls: RefCell<Vec<(u32, u32)>>,
    pub(crate) longest_queue: Cell<usize>,
    /// The large parts of sent records.
    pub(crate) shared: RefCell<Vec<Bytes>>,
    /// Background tasks of clients.
    background: RefCell<Vec<Pin<Box<dyn Future<Output = ()>>>>>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl ArcWake for Woken {
    fn wake_by_ref(woken: &Arc<Self>) {
        woken.0.store(true, Ordering::Relaxed);
    }
}

fn new_server(change: impl FnOnce(&mut Settings)) -> Server {
    let mut settings = Settings::new(HandleKey([5; 16]), 1, [3; 16], b"server".to_vec());
    settings.versions = Versions::IMPLEMENTED;
    settings.udp = true;
    change(&mut settings);
    let backend = Arc::new(MemFs::new(&MemOptions::default()));
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    let (id, path) = (ExportId(1), "/export".into());
    let export = Export { id, path, backend, options, fsid: (1, 0), counts: Arc::default() };
    Server::new(settings, ExportTable::new(vec![export]).unwrap())
}

impl Link {
    /// Creates a link to a server that listens at the NFS port alone.
    pub(crate) fn new() -> Rc<Self> {
        Self::with_settings(|_| {})
    }

    pub(crate) fn with_settings(change: impl FnOnce(&mut Settings)) -> Rc<Self> {
        let clock = Arc::new(ManualClock::default());
        clock.0.store(1_000_000_000, Ordering::Relaxed);
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let id = server::ConnectionId(1);
        let server_datagrams = Connection::new(
            server::ConnectionId(2),
            address(700),
            address(2049),
            server::Transport::Udp,
            false,
        );
        let server_connection =
            Connection::new(id, address(700), address(2049), server::Transport::Tcp, false);
        Rc::new(Self {
            engine: Arc::new(Engine::new(clock.clone(), 1)),
            clock,
            server: new_server(change),
            server_connection: Arc::new(server_connection),
            connected: RefCell::default(),
            listening: RefCell::new(HashSet::from([2049])),
            handler: RefCell::new(Box::new(|_| Answer::Serve)),
            network: RefCell::new(Box::new(|| Delivery::Once)),
            datagrams: RefCell::default(),
            server_datagrams: Arc::new(server_datagrams),
            longest_datagram: Cell::default(),
            calls: RefCell::default(),
            longest_queue: Cell::default(),
            shared: RefCell::default(),
            background: RefCell::default(),
        })
    }

    pub(crate) fn listen(&self, ports: &[u16]) {
        *self.listening.borrow_mut() = ports.iter().copied().collect();
    }

    /// Sets the function that answers calls from now on.
    pub(crate) fn answer(&self, handler: impl FnMut(&Call) -> Answer + 'static) {
        *self.handler.borrow_mut() = Box::new(handler);
    }

    /// Sets the function that decides what happens to datagrams from now on.
    pub(crate) fn network(&self, network: impl FnMut() -> Delivery + 'static) {
        *self.network.borrow_mut() = Box::new(network);
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Runs a future to its end.
    pub(crate) fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let woken = Arc::new(Woken::default());
        let waker = waker(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        for _ in 0..100_000 {
            woken.0.store(false, Ordering::Relaxed);
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            self.background.borrow_mut().retain_mut(|work| work.as_mut().poll(&mut context).is_pending());
            if !self.exchange() && !woken.0.load(Ordering::Relaxed) {
                let arrivals = self.datagrams.borrow().iter().map(|(arrival, _)| *arrival).min();
                let until = self.engine.deadline().into_iter().chain(arrivals).min();
                let until = until.expect("the future waits for something").max(self.now());
                self.clock.0.store(until.as_nanos() as u64, Ordering::Relaxed);
                self.engine.handle_timeout();
            }
        }
        panic!("the future does not end");
    }

    /// Does the engine's next action; returns whether there was one.
    pub(crate) fn exchange(&self) -> bool {
        let mut context = Context::from_waker(noop_waker_ref());
        let mut has_done = false;
        while let Poll::Ready(Some(action)) = self.engine.poll_action(&mut context) {
            has_done = true;
            self.act(action);
        }
        let count = self.connected.borrow().len();
        for index in 0..count {
            let Some((id, port)) = self.connected.borrow()[index] else { continue };
            let mut records = Vec::new();
            while let Poll::Ready(Some(record)) = self.engine.poll_record(id, &mut context) {
                self.shared.borrow_mut().extend(record.iter().filter(|part| part.len() >= 4096).cloned());
                records.push(Bytes::from(record.concat()));
            }
            has_done |= !records.is_empty();
            self.longest_queue.set(self.longest_queue.get().max(records.len()));
            for record in records {
                if self.engine.has_datagrams(id) {
                    self.send(id, port, record);
                } else if !self.serve(id, port, record) {
                    self.connected.borrow_mut()[index] = None;
                    self.engine.handle_disconnected(id);
                    break;
                }
            }
        }
        has_done | self.deliver()
    }

    /// Sends a call as a datagram.
    fn send(&self, id: ConnectionId, port: u16, record: Bytes) {
        self.longest_datagram.set(self.longest_datagram.get().max(record.len()));
        let delivery = (self.network.borrow_mut())();
        let arrivals = match delivery {
            Delivery::LoseCall => vec![],
            Delivery::CallAgain(later) => vec![Duration::ZERO, later],
            Delivery::CallLate(later) => vec![later],
            Delivery::Once | Delivery::LoseReply | Delivery::ReplyLate(_) => vec![Duration::ZERO],
        };
        for arrival in arrivals {
            let call = Datagram::Call { id, port, record: record.clone() };
            match delivery {
                Delivery::LoseReply => _ = self.answered(port, record.clone()),
                Delivery::ReplyLate(later) => {
                    let Some(reply) = self.answered(port, record.clone()) else { continue };
                    for _ in 0..2 {
                        let reply = Datagram::Reply { id, record: reply.clone() };
                        self.datagrams.borrow_mut().push((self.now() + later, reply));
                    }
                }
                _ => self.datagrams.borrow_mut().push((self.now() + arrival, call)),
            }
        }
    }

    /// Delivers the datagrams that have arrived; returns whether there was one.
    fn deliver(&self) -> bool {
        let now = self.now();
        let (arrived, left): (Vec<_>, Vec<_>) =
            self.datagrams.take().into_iter().partition(|(arrival, _)| *arrival <= now);
        *self.datagrams.borrow_mut() = left;
        let has_any = !arrived.is_empty();
        for (_, datagram) in arrived {
            let (id, reply) = match datagram {
                Datagram::Call { id, port, record } => (id, self.answered(port, record)),
                Datagram::Reply { id, record } => (id, Some(record)),
            };
            if let Some(reply) = reply {
                assert!(self.engine.handle_record(id, reply));
            }
        }
        has_any
    }

    /// Returns the reply to a call in a datagram.
    fn answered(&self, port: u16, record: Bytes) -> Option<Bytes> {
        match self.answer_to(port, record) {
            (Answer::Reply(reply), _) => Some(reply),
            (Answer::Serve, call) => self.executed_by(&self.server_datagrams, call.record),
            (Answer::ServeOther(record), _) => self.executed_by(&self.server_datagrams, record),
            (Answer::Break | Answer::Silence | Answer::ServeAndBreak, _) => None,
        }
    }

    fn answer_to(&self, port: u16, record: Bytes) -> (Answer, Call) {
        let mut arguments = Reader::new(record.clone());
        let header = CallHeader::parse(&mut arguments).expect("a call");
        self.calls.borrow_mut().push((header.program, header.procedure));
        let call = Call { port, header, record, arguments };
        let answer = (self.handler.borrow_mut())(&call);
        (answer, call)
    }

    fn act(&self, action: Action) {
        let (connection, port) = match action {
            Action::Connect { connection, port } => (connection, Some(port)),
            Action::Disconnect { connection } => (connection, None),
            Action::Listen { .. } => panic!("only version 4.0 listens"),
        };
        let accepted = port.filter(|port| self.listening.borrow().contains(port));
        {
            let mut connected = self.connected.borrow_mut();
            let length = connected.len().max(connection.index() + 1);
            connected.resize(length, None);
            connected[connection.index()] = accepted.map(|port| (connection, port));
        }
        match port {
            Some(_) if accepted.is_some() => self.engine.handle_connected(connection),
            Some(port) => {
                let reason = format!("port {port}: Connection refused").into();
                self.engine.handle_connect_failed(connection, ConnectError { reason });
            }
            None => {}
        }
    }

    /// Serves a record; returns whether the connection lasts.
    fn serve(&self, id: ConnectionId, port: u16, record: Bytes) -> bool {
        let (answer, call) = self.answer_to(port, record);
        match answer {
            Answer::Reply(reply) => self.engine.handle_record(id, reply),
            Answer::Break => false,
            Answer::Silence => true,
            Answer::Serve => self.handle_reply(id, self.executed(call.record)),
            Answer::ServeOther(record) => self.handle_reply(id, self.executed(record)),
            Answer::ServeAndBreak => {
                self.executed(call.record);
                false
            }
        }
    }

    fn handle_reply(&self, id: ConnectionId, reply: Option<Bytes>) -> bool {
        reply.is_some_and(|reply| self.engine.handle_record(id, reply))
    }

    /// Returns the server's reply; `None` if it closes the connection.
    pub(crate) fn executed(&self, record: Bytes) -> Option<Bytes> {
        self.executed_by(&self.server_connection, record)
    }

    fn executed_by(&self, connection: &Arc<Connection>, record: Bytes) -> Option<Bytes> {
        // Each call takes a microsecond, so that times show changes.
        let nanoseconds = self.calls.borrow().len() as u32 * 1000 % 1_000_000_000;
        let wall = Timestamp { seconds: 1_000_000, nanoseconds };
        let now = Now { monotonic: self.clock.now(), wall };
        let mut reply = Writer::new();
        let done = self.server.handle(connection, now, record, &mut reply).now_or_never();
        match done.expect("MemFs never waits").disposition {
            Disposition::Reply => Some(reply.into_bytes()),
            Disposition::Drop | Disposition::Close => None,
        }
    }

    /// Connects a client with this configuration.
    pub(crate) fn connect(&self, config: Config) -> Result<Client, OpError> {
        let client = self.run(Client::connect(Arc::clone(&self.engine), config))?;
        let running = client.clone();
        self.background.borrow_mut().push(Box::pin(async move { running.run().await }));
        Ok(client)
    }

    /// Connects a client of the version that is tested.
    pub(crate) fn client(&self) -> Client {
        self.connect(config()).unwrap()
    }

    /// Returns the connections that are up.
    pub(crate) fn connection_ids(&self) -> Vec<ConnectionId> {
        self.connected.borrow().iter().flatten().map(|(id, _)| *id).collect()
    }

    /// Returns the number of calls of a procedure.
    pub(crate) fn count(&self, program: u32, procedure: u32) -> usize {
        self.calls.borrow().iter().filter(|call| **call == (program, procedure)).count()
    }
}

pub(crate) fn root() -> Caller {
    user(0)
}

pub(crate) fn user(id: u32) -> Caller {
    let machine_name = Opaque::from_static(b"test");
    Caller::sys(&AuthSys { stamp: 0, machine_name, uid: id, gid: id, gids: GroupList::default() })
}

/// Returns a configuration at the usual port, with MOUNT at the same port.
pub(crate) fn config() -> Config {
    let usual = Config::new("server", b"test", [1; 8], root());
    Config { mount_port: Some(2049), version: Some(crate::VERSION), slots: 16, ..usual }
}
