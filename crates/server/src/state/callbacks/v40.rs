//! Callbacks to version 4.0 clients (RFC 7530 §10.2.1, §16.33.4), over a connection that the server makes. A CB_NULL probes it
//! before anything is delegated.
//!
//! No task waits: the transport takes requests for connections ([`State::next_connect`]) and reports the outcome
//! ([`State::connect_done`]). The server connects only to the address from which the client's own request came; otherwise
//! SETCLIENTID could make it connect anywhere. Unanswered callbacks are sent again over the next connection, since CB_RECALL can
//! be repeated. A failed path is retried at an interval, as long as the client has a delegation or a callback waits. A client
//! has at most one request for a connection at a time, so [`V40Connections`] is bounded by the number of clients.
//!
//! [`V40Connections`]: crate::state::tables::v40_path::V40Connections

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::MutexGuard;
use protocol::nfs4::callback::{self, CbCompoundArgs, CbCompoundResult};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, encode_call, parse_reply};
use tracing::debug;
use xdr::{List, Opaque, Writer};

use super::replies::AnsweredCallback;
use crate::ConnectionId;
use crate::state::root::State;
use crate::state::tables::callback::{Callback, Outbox, Sent};
use crate::state::tables::client::Client;
use crate::state::tables::v40_client::CallbackClient;
use crate::state::tables::v40_path::{ConnectRequest, PathState, V40CallbackPath};

/// Maximum number of unanswered callbacks of one client.
const SENT_MAX: usize = 64;

impl State {
    /// Takes the next connection to make.
    pub fn next_connect(&self) -> Option<ConnectRequest> {
        self.v40_connections.next_request()
    }

    /// Takes the outcome of a request: the connection, or `None` if it failed. Closes a connection that is no longer wanted.
    pub fn connect_done(&self, request: &ConnectRequest, made: Option<(ConnectionId, &Arc<Outbox>)>) {
        let client = self.client_with_id(request.client);
        let v40 = client.as_ref().and_then(|client| Some((client, client.v40()?)));
        let hang_up = || made.iter().for_each(|(_, outbox)| outbox.hang_up());
        let Some((client, v40)) = v40 else { return hang_up() };
        let mut path = v40.path.lock();
        let is_stale = std::mem::take(&mut path.is_stale);
        if client.is_removed() || is_stale || !matches!(path.state, PathState::Connecting) {
            hang_up();
            if matches!(path.state, PathState::Connecting) {
                path.state = PathState::Down;
            }
            drop(path);
            self.connect_v40(client);
            return;
        }
        let Some((connection, outbox)) = made else {
            path.state = PathState::Down;
            drop(path);
            client.set_reachable(false);
            return;
        };
        outbox.open();
        path.state = PathState::Up(connection, Arc::clone(outbox));
        path.probe_sent_at = Some(self.latest_time());
        self.v40_connections.add(connection, client.id());
        let target = v40.callback.lock().clone();
        outbox.call(Sent::V40Probe(client.id()), |xid| {
            let mut record = Writer::new();
            encode_call(&mut record, &header(&target, xid, callback::PROC_NULL), &());
            record.into_bytes()
        });
        drop(path);
        self.send_waiting_v40(client);
    }

    /// Requests a connection to the client's callback address, if that is the address of the client. Does nothing for a
    /// removed client.
    fn connect_v40(&self, client: &Arc<Client>) {
        let Some(v40) = client.v40().filter(|_| self.delegations.grants_any()) else {
            return;
        };
        let target = v40.callback.lock().clone();
        let from = target.from.map(|address| address.to_canonical());
        let address = target.address().filter(|address| Some(address.ip().to_canonical()) == from);
        let Some(address) = address else { return };
        let mut path = v40.path.lock();
        if !matches!(path.state, PathState::Down) || client.is_removed() {
            return;
        }
        path.state = PathState::Connecting;
        path.requested_at = self.latest_time();
        self.v40_connections.request(address, client.id());
        self.work_signal.notify();
    }

    /// Connects again, after the client has changed its callback address.
    pub(crate) fn reconnect_v40(&self, client: &Arc<Client>) {
        self.disconnect_v40(client);
        self.connect_v40(client);
    }

    /// Notes that a connection is closed, if it was made to a client.
    pub(crate) fn v40_connection_closed(&self, connection: ConnectionId) {
        let client = self.v40_connections.remove(connection).and_then(|id| self.client_with_id(id));
        if let Some(client) = client {
            self.v40_connection_failed(&client, connection);
        }
    }

    /// A connection does not carry callbacks. Does nothing if the client's path uses another one by now.
    fn v40_connection_failed(&self, client: &Client, connection: ConnectionId) {
        let Some(v40) = client.v40() else { return };
        let path = v40.path.lock();
        if path.uses(connection) {
            self.take_down(client, path);
        }
    }

    /// Ends a client's path. Its unanswered callbacks wait for the next one.
    pub(crate) fn disconnect_v40(&self, client: &Client) {
        if let Some(v40) = client.v40() {
            self.take_down(client, v40.path.lock());
        }
    }

    fn take_down(&self, client: &Client, mut path: MutexGuard<'_, V40CallbackPath>) {
        match std::mem::take(&mut path.state) {
            PathState::Down => {}
            // The transport still reports the outcome. For a removed client no attempt is needed.
            PathState::Connecting => {
                (path.state, path.is_stale) = (PathState::Connecting, true);
                if client.is_removed() {
                    self.v40_connections.withdraw(client.id());
                }
            }
            // The transport reports when it is closed.
            PathState::Up(_, outbox) => outbox.hang_up(),
        }
        path.probe_sent_at = None;
        let left = path.sent.drain().map(|(_, (_, callback))| callback);
        let left: Vec<Callback> = left.collect();
        drop(path);
        client.set_reachable(false);
        client.calls.lock().put_back(left);
    }

    /// Sends the callbacks that wait for a client of version 4.0.
    pub(super) fn send_waiting_v40(&self, client: &Arc<Client>) {
        let Some(v40) = client.v40() else { return };
        let mut path = v40.path.lock();
        let target = v40.callback.lock().clone();
        let V40CallbackPath { state: PathState::Up(_, outbox), sent, last_number, .. } = &mut *path else {
            return;
        };
        while sent.len() < SENT_MAX {
            let Some(callback) = client.calls.lock().take_next() else { return };
            *last_number += 1;
            let call = Sent::V40Callback(client.id(), *last_number);
            let is_sent = outbox.call(call, |xid| record(&target, xid, &callback));
            if !is_sent {
                client.calls.lock().put_back(vec![callback]);
                return;
            }
            sent.insert(*last_number, (self.latest_time(), callback));
        }
    }

    /// Handles the reply to a callback with this number.
    pub(super) fn v40_callback_replied(
        &self,
        connection: ConnectionId,
        client: &Client,
        number: u64,
        reply: Bytes,
    ) -> Option<AnsweredCallback> {
        let sent = client.v40()?.path.lock().sent.remove(&number);
        match (sent, parse_reply::<CbCompoundResult>(reply)) {
            (Some((_, callback)), Ok(reply)) => {
                let result = reply.results.into_vec().into_iter().next();
                Some(AnsweredCallback { callback, status: reply.status, result })
            }
            (Some((_, callback)), Err(_)) => {
                client.calls.lock().put_back(vec![callback]);
                self.v40_connection_failed(client, connection);
                None
            }
            (None, _) => None,
        }
    }

    /// Handles the reply to a probe.
    pub(super) fn v40_probe_replied(&self, connection: ConnectionId, client: &Client, reply: Bytes) {
        let Some(v40) = client.v40() else { return };
        let mut path = v40.path.lock();
        if !path.uses(connection) {
            return;
        }
        path.probe_sent_at = None;
        match parse_reply::<()>(reply) {
            Ok(()) => client.set_reachable(true),
            Err(error) => {
                debug!(client = client.id(), %error, "client accepts no callbacks");
                self.take_down(client, path);
            }
        }
    }

    /// Ends a client's path if an answer is overdue, and retries a failed one.
    pub(crate) fn maintain_v40_path(&self, now: Duration, client: &Arc<Client>) {
        let Some(v40) = client.v40() else { return };
        let path = v40.path.lock();
        let (is_silent, may_connect) = (path.is_silent(now), path.may_connect(now));
        drop(path);
        if is_silent {
            self.disconnect_v40(client);
        }
        let is_needed = client.holds_delegations() || client.calls.lock().has_waiting();
        if may_connect && is_needed {
            self.connect_v40(client);
        }
    }
}

/// Returns the header of a callback. Linux's client rejects AUTH_NONE for CB_COMPOUND; like Linux's server, this server calls as
/// the superuser.
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

/// Encodes a CB_COMPOUND of version 4.0.
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
