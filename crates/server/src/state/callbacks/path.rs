//! The callback path of a version 4.0 client: a connection that the server makes to where SETCLIENTID said (RFC 7530 §10.2.1,
//! §16.33.4), tried with CB_NULL before anything is delegated.
//!
//! Criteria. Nobody waits here: the transport takes the wishes for connections ([`State::next_connect`]) and says what became of
//! them ([`State::connect_done`]). A client has one path, and one address: the one that its own request came from, or whoever may
//! send SETCLIENTID could have this server connect to anybody. What was sent and not answered is sent again over the next
//! connection: CB_RECALL can be repeated. A path that fails is tried again while the client has a delegation or something
//! waits for it, not more often than [`REDIAL`]. Whatever a client says meanwhile, it has one wish at any time: the next is
//! made when the outcome of the last is known, so that [`Paths`] holds no more of them than there are clients.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use core::net::SocketAddr;
use parking_lot::{Mutex, MutexGuard};
use protocol::nfs4::callback::{self, CbCompoundArgs, CbCompoundResult};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, encode_call, parse_reply};
use tracing::debug;
use xdr::{List, Opaque, Writer};

use super::callback::{Callback, Sent};
use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::v40_client::CallbackClient;
use crate::{ConnectionId, Outbox};

/// Callbacks of one client under way at once.
const FLYING_MAX: usize = 64;
/// How long a client may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Between two attempts to connect.
const REDIAL: Duration = Duration::from_secs(5);

/// A connection that the transport should make.
#[derive(Debug)]
pub struct ConnectRequest {
    /// Where to.
    pub address: SocketAddr,
    client: Weak<Client>,
}

/// Wishes for connections, and whose those are that were made.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// At most one a client.
    wanted: Mutex<VecDeque<ConnectRequest>>,
    made: Mutex<HashMap<ConnectionId, Weak<Client>>>,
}

/// Where a client's path stands.
#[derive(Debug, Default)]
enum Stage {
    /// None, since then.
    #[default]
    Down,
    /// The transport has been asked for a connection.
    Dialing,
    Up(ConnectionId, Arc<Outbox>),
}

/// A client's path.
#[derive(Debug, Default)]
pub(crate) struct Path {
    stage: Stage,
    /// The connection that was asked for is not the one that is wanted now.
    is_stale: bool,
    /// When it was asked for last.
    asked: Duration,
    /// What was sent and not answered, with the time, by number.
    flying: HashMap<u64, (Duration, Callback)>,
    /// A trial that is not answered.
    trial: Option<Duration>,
    next: u64,
}

impl Path {
    /// Whether something has been under way for too long.
    fn is_silent(&self, now: Duration) -> bool {
        let sent = self.flying.values().map(|(sent, _)| *sent).chain(self.trial);
        matches!(self.stage, Stage::Up(..)) && sent.into_iter().any(|sent| sent + PATIENCE <= now)
    }

    /// Whether it goes over this connection.
    fn is_over(&self, connection: ConnectionId) -> bool {
        matches!(self.stage, Stage::Up(up, _) if up == connection)
    }
}

impl State {
    /// Takes the next connection that is wanted.
    pub fn next_connect(&self) -> Option<ConnectRequest> {
        self.paths.wanted.lock().pop_front()
    }

    /// What became of a wish: the connection that was made, or none. One that nobody wants any more is hung up.
    pub fn connect_done(&self, request: &ConnectRequest, made: Option<(ConnectionId, &Arc<Outbox>)>) {
        let client = request.client.upgrade();
        let sessionless = client.as_ref().and_then(|client| Some((client, client.sessionless()?)));
        let hang_up = || made.iter().for_each(|(_, outbox)| outbox.hang_up());
        let Some((client, sessionless)) = sessionless else { return hang_up() };
        let mut path = sessionless.path.lock();
        let is_stale = std::mem::take(&mut path.is_stale);
        if client.is_gone() || is_stale || !matches!(path.stage, Stage::Dialing) {
            hang_up();
            if matches!(path.stage, Stage::Dialing) {
                path.stage = Stage::Down;
            }
            drop(path);
            // Does nothing for one that is gone.
            self.want_path(client);
            return;
        }
        let Some((connection, outbox)) = made else {
            path.stage = Stage::Down;
            drop(path);
            client.set_reachable(false);
            return;
        };
        outbox.open();
        path.stage = Stage::Up(connection, Arc::clone(outbox));
        path.trial = Some(self.tick());
        self.paths.made.lock().insert(connection, Weak::clone(&request.client));
        let callback = sessionless.callback.lock().clone();
        outbox.call(Sent::over_path(client, None), |xid| {
            let mut record = Writer::new();
            encode_call(&mut record, &header(&callback, xid, callback::PROC_NULL), &());
            record.into_bytes()
        });
        drop(path);
        self.pump_path(client);
    }

    /// Asks for a connection to where the client says, if that is where it is.
    pub(crate) fn want_path(&self, client: &Arc<Client>) {
        let Some(sessionless) = client.sessionless().filter(|_| self.delegations.grants_any()) else {
            return;
        };
        let callback = sessionless.callback.lock().clone();
        let from = callback.from.map(|address| address.to_canonical());
        let address = callback.address().filter(|address| Some(address.ip().to_canonical()) == from);
        let Some(address) = address else { return };
        let mut path = sessionless.path.lock();
        if !matches!(path.stage, Stage::Down) || client.is_gone() {
            return;
        }
        path.stage = Stage::Dialing;
        path.asked = self.tick();
        self.paths.wanted.lock().push_back(ConnectRequest { address, client: Arc::downgrade(client) });
        self.work_signal.notify();
    }

    /// The client has said anew where callbacks go.
    pub(crate) fn renew_path(&self, client: &Arc<Client>) {
        self.path_down(client);
        self.want_path(client);
    }

    /// A connection of ours is gone, if it was one.
    pub(crate) fn path_closed(&self, connection: ConnectionId) {
        let client = self.paths.made.lock().remove(&connection);
        if let Some(client) = client.and_then(|client| client.upgrade()) {
            self.path_failed(&client, connection);
        }
    }

    /// A connection carries nothing (any more). The client's path may be another by now, which that says nothing of.
    fn path_failed(&self, client: &Client, connection: ConnectionId) {
        let Some(sessionless) = client.sessionless() else { return };
        let path = sessionless.path.lock();
        if path.is_over(connection) {
            self.take_down(client, path);
        }
    }

    /// The path is none any more; what it carried waits for the next.
    pub(crate) fn path_down(&self, client: &Client) {
        if let Some(sessionless) = client.sessionless() {
            self.take_down(client, sessionless.path.lock());
        }
    }

    fn take_down(&self, client: &Client, mut path: MutexGuard<'_, Path>) {
        match std::mem::take(&mut path.stage) {
            Stage::Down => {}
            // Its outcome is still to come; nobody need try where the client is gone.
            Stage::Dialing => {
                (path.stage, path.is_stale) = (Stage::Dialing, true);
                if client.is_gone() {
                    let is_other = |request: &ConnectRequest| !std::ptr::eq(request.client.as_ptr(), client);
                    self.paths.wanted.lock().retain(is_other);
                }
            }
            // The transport tells when it is gone.
            Stage::Up(_, outbox) => outbox.hang_up(),
        }
        path.trial = None;
        let left = path.flying.drain().map(|(_, (_, callback))| callback);
        let left: Vec<Callback> = left.collect();
        drop(path);
        client.set_reachable(false);
        client.calls.lock().put_back(left);
    }

    /// Sends what waits for a client of version 4.0.
    pub(crate) fn pump_path(&self, client: &Arc<Client>) {
        let Some(sessionless) = client.sessionless() else { return };
        let mut path = sessionless.path.lock();
        let to = sessionless.callback.lock().clone();
        let Path { stage: Stage::Up(_, outbox), flying, next, .. } = &mut *path else { return };
        while flying.len() < FLYING_MAX {
            let Some(callback) = client.calls.lock().take_next() else { return };
            *next += 1;
            let sent = Sent::over_path(client, Some(*next));
            let is_sent = outbox.call(sent, |xid| record(&to, xid, &callback));
            if !is_sent {
                client.calls.lock().put_back(vec![callback]);
                return;
            }
            flying.insert(*next, (self.tick(), callback));
        }
    }

    /// A client answered over a connection that was made for its callbacks; `number` is that of the callback, none for a trial.
    pub(crate) fn path_answered(
        &self,
        connection: ConnectionId,
        client: &Arc<Client>,
        number: Option<u64>,
        reply: Bytes,
    ) {
        let Some(sessionless) = client.sessionless() else { return };
        let Some(number) = number else { return self.path_tried(connection, client, reply) };
        let answered = sessionless.path.lock().flying.remove(&number);
        match (answered, parse_reply::<CbCompoundResult>(reply)) {
            (Some((_, callback)), Ok(result)) => {
                let first = result.results.into_vec().into_iter().next();
                self.called(callback, result.status, first);
            }
            (Some((_, callback)), Err(_)) => {
                client.calls.lock().put_back(vec![callback]);
                self.path_failed(client, connection);
            }
            (None, _) => {}
        }
        self.pump_path(client);
    }

    /// A client answered a trial.
    fn path_tried(&self, connection: ConnectionId, client: &Client, reply: Bytes) {
        let Some(sessionless) = client.sessionless() else { return };
        let mut path = sessionless.path.lock();
        if !path.is_over(connection) {
            return;
        }
        path.trial = None;
        match parse_reply::<()>(reply) {
            Ok(()) => client.set_reachable(true),
            Err(error) => {
                debug!(client = client.id(), "no callbacks: {error}");
                self.take_down(client, path);
            }
        }
    }

    /// Looks after the path of a client: what is not answered, and what has to be tried again.
    pub(crate) fn tend_path(&self, now: Duration, client: &Arc<Client>) {
        let Some(sessionless) = client.sessionless() else { return };
        let path = sessionless.path.lock();
        let is_silent = path.is_silent(now);
        let may_dial = matches!(path.stage, Stage::Down) && path.asked + REDIAL <= now;
        drop(path);
        if is_silent {
            self.path_down(client);
        }
        let is_needed = client.holds_delegations() || client.calls.lock().has_waiting();
        if may_dial && is_needed {
            self.want_path(client);
        }
    }
}

/// Linux's client takes CB_COMPOUND from a caller with AUTH_NONE for an intruder's; as Linux's server, we are the superuser.
fn header(to: &CallbackClient, xid: u32, procedure: u32) -> CallHeader {
    let credential = OpaqueAuth::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"enfys"),
        uid: 0,
        gid: 0,
        gids: GroupList::default(),
    });
    CallHeader { credential, ..CallHeader::new(xid, to.program, callback::VERSION, procedure) }
}

/// A CB_COMPOUND of version 4.0.
fn record(to: &CallbackClient, xid: u32, callback: &Callback) -> Bytes {
    let args = CbCompoundArgs {
        tag: Opaque::default(),
        minor_version: 0,
        callback_ident: to.ident,
        ops: List::new(vec![callback.operation().clone()]).unwrap_or_default(),
    };
    let mut record = Writer::new();
    encode_call(&mut record, &header(to, xid, callback::PROC_COMPOUND), &args);
    record.into_bytes()
}
