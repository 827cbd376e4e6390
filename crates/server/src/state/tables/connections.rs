//! The bindings of connections to sessions (RFC 8881 §2.10.3.1, §18.34).

use std::collections::HashMap;
use std::sync::Arc;

use bitflags::bitflags;
use parking_lot::Mutex;

use super::callback::{Outbox, Sent};
use super::transitions::{Row, step};
use super::wire::{DirFromServer, SessionId};
use crate::ConnectionId;

/// Connections remembered per session. A client that opens more may use them: with SP4_NONE, only DESTROY_SESSION and
/// callbacks need a remembered connection.
const MAX_CONNECTIONS_A_SESSION: usize = 256;
/// Sessions remembered per connection.
const MAX_SESSIONS_A_CONNECTION: usize = 256;

bitflags! {
    /// Channels that a connection carries.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Channels: u8 {
        const FORE = 1;
        const BACK = 2;
    }
}

impl Channels {
    /// `bctsr_dir`.
    pub(crate) fn answer(self) -> DirFromServer {
        match (self.contains(Self::FORE), self.contains(Self::BACK)) {
            (true, true) => DirFromServer::BOTH,
            (false, true) => DirFromServer::BACK,
            _ => DirFromServer::FORE,
        }
    }
}

/// The connections of one session.
#[derive(Debug, Default)]
pub(crate) struct BoundConnections {
    connections: Vec<(ConnectionId, Channels)>,
    /// The connections that carry the back channel, with their queues for calls, in the order of binding.
    backs: Vec<(ConnectionId, Arc<Outbox>)>,
    phase: BindingPhase,
}

/// The channels of a session that have a connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum BindingPhase {
    /// No connection; there never was a back channel.
    #[default]
    Unbound,
    /// Connections, but there never was a back channel.
    ForeOnly,
    /// Some connection carries the back channel.
    Both,
    /// Connections, but none of them carries the back channel any more.
    BackLost,
    /// No connection; there was a back channel.
    AllLost,
    /// The session is destroyed; no connection can be bound.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BindingEvent {
    /// The first connection, for the fore channel only.
    BindFirst,
    /// The first connection that carries the back channel.
    BindBack,
    /// The last back channel connection is lost, and others remain.
    LoseBack,
    /// The last connection is lost.
    LoseLast,
    /// DESTROY_SESSION, or the client's record is removed.
    Destroy,
}

/// RFC 8881 §2.10.3.1: the loss of connections or of the back channel does not end a session. §18.37: DESTROY_SESSION does.
const TRANSITIONS: &[Row<BindingPhase, BindingEvent>] = &[
    (BindingPhase::Unbound, BindingEvent::BindFirst, BindingPhase::ForeOnly),
    (BindingPhase::Unbound, BindingEvent::BindBack, BindingPhase::Both),
    (BindingPhase::ForeOnly, BindingEvent::BindBack, BindingPhase::Both),
    (BindingPhase::ForeOnly, BindingEvent::LoseLast, BindingPhase::Unbound),
    (BindingPhase::Both, BindingEvent::LoseBack, BindingPhase::BackLost),
    (BindingPhase::Both, BindingEvent::LoseLast, BindingPhase::AllLost),
    (BindingPhase::BackLost, BindingEvent::BindBack, BindingPhase::Both),
    (BindingPhase::BackLost, BindingEvent::LoseLast, BindingPhase::AllLost),
    (BindingPhase::AllLost, BindingEvent::BindFirst, BindingPhase::BackLost),
    (BindingPhase::AllLost, BindingEvent::BindBack, BindingPhase::Both),
    (BindingPhase::Unbound, BindingEvent::Destroy, BindingPhase::Closed),
    (BindingPhase::ForeOnly, BindingEvent::Destroy, BindingPhase::Closed),
    (BindingPhase::Both, BindingEvent::Destroy, BindingPhase::Closed),
    (BindingPhase::BackLost, BindingEvent::Destroy, BindingPhase::Closed),
    (BindingPhase::AllLost, BindingEvent::Destroy, BindingPhase::Closed),
];

/// The outcome of [`BoundConnections::bind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    /// The session is closed, or has too many connections, or the connection too many sessions.
    Refused,
    Bound,
    /// Bound, and a new connection of the back channel.
    BoundBack,
}

impl BoundConnections {
    /// Binds a connection of the session `id`, or adds channels to a bound one.
    pub(crate) fn bind(
        &mut self,
        id: SessionId,
        connection: ConnectionId,
        channels: Channels,
        outbox: Option<&Arc<Outbox>>,
        connections: &Connections,
    ) -> Binding {
        if self.phase == BindingPhase::Closed {
            return Binding::Refused;
        }
        let before = self.counts();
        match self.connections.iter().position(|(id, _)| *id == connection) {
            Some(at) => self.connections[at].1 |= channels,
            None if self.connections.len() >= MAX_CONNECTIONS_A_SESSION => return Binding::Refused,
            None if !connections.add(connection, id) => return Binding::Refused,
            None => self.connections.push((connection, channels)),
        }
        let mut binding = Binding::Bound;
        if let Some(outbox) = outbox.filter(|_| channels.contains(Channels::BACK)) {
            // A request may run after its connection has closed; such a connection carries no callbacks.
            if !self.backs.iter().any(|(id, _)| *id == connection) && outbox.open() {
                self.backs.push((connection, Arc::clone(outbox)));
                binding = Binding::BoundBack;
            }
        }
        if before.1 == 0 && !self.backs.is_empty() {
            self.step(BindingEvent::BindBack);
        } else if before.0 == 0 {
            self.step(BindingEvent::BindFirst);
        }
        binding
    }

    /// Removes a connection. Returns whether it carried the back channel.
    pub(crate) fn unbind(&mut self, connection: ConnectionId) -> bool {
        let before = self.counts();
        self.connections.retain(|(id, _)| *id != connection);
        let back = self.backs.iter().position(|(id, _)| *id == connection);
        let had_back = back.map(|index| self.backs.remove(index)).is_some();
        self.note_loss(before);
        had_back
    }

    /// Restricts a connection to the fore channel, and forgets the calls on it that `is_ours` accepts. Returns whether it carried
    /// the back channel.
    pub(crate) fn unbind_back(&mut self, connection: ConnectionId, is_ours: impl Fn(&Sent) -> bool) -> bool {
        if let Some(entry) = self.connections.iter_mut().find(|(id, _)| *id == connection) {
            entry.1.remove(Channels::BACK);
        }
        let Some(index) = self.backs.iter().position(|(id, _)| *id == connection) else { return false };
        let before = self.counts();
        let (_, outbox) = self.backs.remove(index);
        outbox.forget(is_ours);
        self.note_loss(before);
        true
    }

    /// Removes all connections: the session `id` is destroyed. Returns the number of those that carried the back channel.
    pub(crate) fn close(&mut self, id: &SessionId, connections: &Connections) -> usize {
        self.step(BindingEvent::Destroy);
        connections.remove_session(id, self.connections.drain(..).map(|(connection, _)| connection));
        self.backs.drain(..).count()
    }

    fn step(&mut self, event: BindingEvent) {
        self.phase = step(TRANSITIONS, self.phase, event).expect("the table has each change of connections");
    }

    /// Steps after a loss of connections; `before` are the counts before it.
    fn note_loss(&mut self, before: (usize, usize)) {
        let (connections, backs) = before;
        if connections > 0 && self.connections.is_empty() {
            self.step(BindingEvent::LoseLast);
        } else if backs > 0 && self.backs.is_empty() {
            self.step(BindingEvent::LoseBack);
        }
    }

    fn counts(&self) -> (usize, usize) {
        (self.connections.len(), self.backs.len())
    }

    /// Returns the channels of a bound connection.
    pub(crate) fn channels(&self, connection: ConnectionId) -> Option<Channels> {
        self.connections.iter().find(|(id, _)| *id == connection).map(|(_, channels)| *channels)
    }

    /// Returns the number of bound connections.
    pub(crate) fn count(&self) -> usize {
        self.connections.len()
    }

    /// Returns the connection for callbacks: the last that was bound to the back channel.
    pub(crate) fn back(&self) -> Option<&(ConnectionId, Arc<Outbox>)> {
        self.backs.last()
    }

    /// Returns whether the session had a back channel and has none now.
    pub(crate) fn has_lost_back(&self) -> bool {
        matches!(self.phase, BindingPhase::BackLost | BindingPhase::AllLost)
    }
}

/// The sessions of each connection. Finds the sessions of a connection that closes.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<HashMap<ConnectionId, Vec<SessionId>>>);

impl Connections {
    /// Adds a session to a connection; false if the connection has too many.
    fn add(&self, connection: ConnectionId, id: SessionId) -> bool {
        let mut connections = self.0.lock();
        let sessions = connections.entry(connection).or_default();
        let has_room = sessions.len() < MAX_SESSIONS_A_CONNECTION;
        if has_room {
            sessions.push(id);
        }
        has_room
    }

    /// Forgets a connection. Returns its sessions.
    pub(crate) fn remove(&self, connection: ConnectionId) -> Option<Vec<SessionId>> {
        self.0.lock().remove(&connection)
    }

    fn remove_session(&self, id: &SessionId, of: impl Iterator<Item = ConnectionId>) {
        let mut connections = self.0.lock();
        for connection in of {
            if let Some(sessions) = connections.get_mut(&connection) {
                sessions.retain(|other| other != id);
                if sessions.is_empty() {
                    connections.remove(&connection);
                }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::transitions::check_table;
    use super::*;

    #[test]
    fn connection_transitions_are_consistent() {
        let open = [
            BindingPhase::Unbound,
            BindingPhase::ForeOnly,
            BindingPhase::Both,
            BindingPhase::BackLost,
            BindingPhase::AllLost,
        ];
        check_table(TRANSITIONS, BindingPhase::Unbound, &open);
        let events = [
            BindingEvent::BindFirst,
            BindingEvent::BindBack,
            BindingEvent::LoseBack,
            BindingEvent::LoseLast,
            BindingEvent::Destroy,
        ];
        for event in events {
            assert_eq!(step(TRANSITIONS, BindingPhase::Closed, event), None, "§18.37: its ID is BADSESSION");
        }
        for phase in open {
            assert_eq!(
                step(TRANSITIONS, phase, BindingEvent::Destroy),
                Some(BindingPhase::Closed),
                "it can always be destroyed"
            );
            let is_empty = matches!(phase, BindingPhase::Unbound | BindingPhase::AllLost);
            assert_eq!(step(TRANSITIONS, phase, BindingEvent::BindFirst).is_some(), is_empty);
            assert_eq!(
                step(TRANSITIONS, phase, BindingEvent::BindBack).is_some(),
                phase != BindingPhase::Both
            );
            assert_eq!(step(TRANSITIONS, phase, BindingEvent::LoseLast).is_some(), !is_empty);
        }
    }
}
