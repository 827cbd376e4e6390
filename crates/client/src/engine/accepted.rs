//! Connections that the server makes to this client, for the callbacks of version 4.0 (RFC 7530 §16.33.4).
//!
//! The transport listens on request ([`Action::Listen`](super::Action::Listen)), accepts connections of the server's addresses only, and
//! gives each a number by [`Engine::handle_accepted`]. Calls arrive by [`Engine::handle_accepted_call`]; they are taken by
//! [`Engine::poll_callback`] like those over the client's own connections. [`Engine::poll_accepted_reply`] returns the replies.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use rpc::message::{MessageType, peek};

use super::{Action, CALLBACKS_MAX, ConnectionId, Engine, State, wake};

/// Maximum number of connections of the server at a time. A further one takes the place of another.
pub const ACCEPTED_MAX: usize = 16;
/// Maximum number of calls of one connection whose replies have not been sent. With more it is closed.
pub const ACCEPTED_CALLS_MAX: usize = CALLBACKS_MAX / ACCEPTED_MAX;

/// A connection that the server has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AcceptedId(u64);

/// The connection of a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackPath {
    /// One that this client has made.
    Own(ConnectionId),
    /// One that the server has made.
    Accepted(AcceptedId),
}

/// The server's connections, and the address at which the transport accepts them.
#[derive(Debug, Default)]
pub(super) struct Accepting {
    address: Option<SocketAddr>,
    /// Whether the transport was asked for an address.
    is_asked: bool,
    waker: Option<Waker>,
    accepted: BTreeMap<AcceptedId, Accepted>,
    last: u64,
}

#[derive(Debug, Default)]
struct Accepted {
    /// Whether a call over it had what only the server knows.
    is_proven: bool,
    /// Calls whose replies have not been sent.
    calls: usize,
    replies: VecDeque<Bytes>,
    sender: Option<Waker>,
}

impl Accepting {
    /// Closes all connections.
    pub(super) fn end(&mut self) {
        self.address = None;
        wake(&mut self.waker);
        for accepted in std::mem::take(&mut self.accepted).into_values() {
            accepted.close();
        }
    }

    fn remove(&mut self, id: AcceptedId) {
        if let Some(accepted) = self.accepted.remove(&id) {
            accepted.close();
        }
    }

    /// Makes room for a connection. The oldest one leaves, of those that have proved nothing if there are any: other programs of the
    /// server's machine can make connections, too.
    fn make_room(&mut self) {
        if self.accepted.len() < ACCEPTED_MAX {
            return;
        }
        let unproven = self.accepted.iter().find(|(_, accepted)| !accepted.is_proven);
        if let Some(id) = unproven.or(self.accepted.iter().next()).map(|(id, _)| *id) {
            self.remove(id);
        }
    }
}

impl Accepted {
    fn close(mut self) {
        wake(&mut self.sender);
    }
}

/// For the client.
impl Engine {
    /// Asks the transport to accept connections of the server at a port, or at any. Returns this machine's address for them, as the
    /// server sees it on the connection that was made last; `None` if the transport does not listen.
    pub(crate) async fn listen(&self, port: Option<u16>) -> Option<SocketAddr> {
        {
            let mut state = self.state.lock();
            state.accepting.is_asked = true;
            state.push_action(Action::Listen { port });
        }
        poll_fn(|context| {
            let mut state = self.state.lock();
            if !state.accepting.is_asked || state.is_shut_down {
                return Poll::Ready(state.accepting.address);
            }
            state.accepting.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Returns whether the transport accepts connections of the server.
    pub(crate) fn is_listening(&self) -> bool {
        self.state.lock().accepting.address.is_some()
    }

    /// Answers a callback. `None` if no reply is possible: a connection of the server is closed then. `is_proven` tells whether the call
    /// had what only the server knows.
    pub(crate) fn answer(&self, path: CallbackPath, reply: Option<Bytes>, is_proven: bool) {
        let id = match path {
            CallbackPath::Own(connection) => {
                if let Some(reply) = reply {
                    self.send_reply(connection, vec![reply]);
                }
                return;
            }
            CallbackPath::Accepted(id) => id,
        };
        let accepting = &mut self.state.lock().accepting;
        let Some(reply) = reply else { return accepting.remove(id) };
        if let Some(accepted) = accepting.accepted.get_mut(&id) {
            accepted.is_proven |= is_proven;
            accepted.replies.push_back(reply);
            wake(&mut accepted.sender);
        }
    }
}

/// For the transport.
impl Engine {
    /// Tells the outcome of [`Action::Listen`]: the address, or `None` if the transport cannot listen.
    pub fn handle_listening(&self, address: Option<SocketAddr>) {
        let accepting = &mut self.state.lock().accepting;
        (accepting.address, accepting.is_asked) = (address, false);
        wake(&mut accepting.waker);
    }

    /// Handles a connection from one of the server's addresses. `None` if it must be closed.
    pub fn handle_accepted(&self) -> Option<AcceptedId> {
        let mut state = self.state.lock();
        if state.is_shut_down || state.accepting.address.is_none() {
            return None;
        }
        let accepting = &mut state.accepting;
        accepting.make_room();
        accepting.last += 1;
        let id = AcceptedId(accepting.last);
        accepting.accepted.insert(id, Accepted::default());
        Some(id)
    }

    /// Handles a record of such a connection, without its mark. Returns false if the connection must be closed.
    #[must_use]
    pub fn handle_accepted_call(&self, id: AcceptedId, record: Bytes) -> bool {
        let mut state = self.state.lock();
        let State { accepting, callbacks, callback_waker, .. } = &mut *state;
        let Some(accepted) = accepting.accepted.get_mut(&id) else { return false };
        let is_call = matches!(peek(&record), Ok((_, MessageType::CALL)));
        if !is_call || accepted.calls >= ACCEPTED_CALLS_MAX || callbacks.len() >= CALLBACKS_MAX {
            return false;
        }
        accepted.calls += 1;
        callbacks.push_back((CallbackPath::Accepted(id), record));
        wake(callback_waker);
        true
    }

    /// Returns the next reply to send on such a connection; `None` if the connection is to be closed.
    pub fn poll_accepted_reply(&self, id: AcceptedId, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.state.lock();
        let Some(accepted) = state.accepting.accepted.get_mut(&id) else { return Poll::Ready(None) };
        match accepted.replies.pop_front() {
            Some(reply) => {
                accepted.calls -= 1;
                Poll::Ready(Some(reply))
            }
            None => {
                accepted.sender = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Handles the end of such a connection.
    pub fn handle_accepted_closed(&self, id: AcceptedId) {
        self.state.lock().accepting.remove(id);
    }
}
