//! Which connections belong to which sessions (RFC 8881 §2.10.3.1, §18.34).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bitflags::bitflags;
use parking_lot::Mutex;

use super::session::Session;
use super::transitions::{Row, step};
use super::wire::{DirFromClient, DirFromServer, SequenceStatus, SessionId, Status};
use crate::state::State;
use crate::state::callbacks::callback::Sent;
use crate::{ConnectionId, Outbox};

/// Connections remembered a session. A client that opens more may use them: with SP4_NONE nothing hangs on it but
/// DESTROY_SESSION and callbacks, which take one of those that are remembered.
const MAX_CONNECTIONS_A_SESSION: usize = 256;
/// Sessions remembered a connection.
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
    fn answer(self) -> DirFromServer {
        match (self.contains(Self::FORE), self.contains(Self::BACK)) {
            (true, true) => DirFromServer::BOTH,
            (false, true) => DirFromServer::BACK,
            _ => DirFromServer::FORE,
        }
    }
}

/// A session's connections.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    connections: Vec<(ConnectionId, Channels)>,
    /// What takes callbacks, of each connection that carries the back channel.
    backs: Vec<(ConnectionId, Arc<Outbox>)>,
    phase: Phase,
}

/// Which ways there are between a session and its client.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No connection, and no back channel so far.
    #[default]
    Apart,
    /// Connections, and no back channel so far.
    Fore,
    /// A connection carries the back channel.
    Both,
    /// Connections, none of which carries the back channel any more.
    Mute,
    /// No connection any more, though one carried the back channel.
    Lost,
    /// Destroyed: nothing joins it any more.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The first connection, for the fore channel alone.
    Join,
    /// The first connection that carries the back channel.
    JoinBack,
    /// The last connection that carried it is gone, or carries it no more, and others are left.
    LoseBack,
    /// The last connection is gone.
    LoseLast,
    /// DESTROY_SESSION, or the client's record goes.
    Destroy,
}

/// RFC 8881 §2.10.3.1: connections come and go, and neither their loss nor the back channel's ends a session; §18.37: destroying does.
const TRANSITIONS: &[Row<Phase, Event>] = &[
    (Phase::Apart, Event::Join, Phase::Fore),
    (Phase::Apart, Event::JoinBack, Phase::Both),
    (Phase::Fore, Event::JoinBack, Phase::Both),
    (Phase::Fore, Event::LoseLast, Phase::Apart),
    (Phase::Both, Event::LoseBack, Phase::Mute),
    (Phase::Both, Event::LoseLast, Phase::Lost),
    (Phase::Mute, Event::JoinBack, Phase::Both),
    (Phase::Mute, Event::LoseLast, Phase::Lost),
    (Phase::Lost, Event::Join, Phase::Mute),
    (Phase::Lost, Event::JoinBack, Phase::Both),
    (Phase::Apart, Event::Destroy, Phase::Closed),
    (Phase::Fore, Event::Destroy, Phase::Closed),
    (Phase::Both, Event::Destroy, Phase::Closed),
    (Phase::Mute, Event::Destroy, Phase::Closed),
    (Phase::Lost, Event::Destroy, Phase::Closed),
];

impl Bound {
    fn turn(&mut self, event: Event) {
        self.phase = step(TRANSITIONS, self.phase, event).expect("a session moves as its table says");
    }

    /// Connections have gone, or carry the back channel no more; there were so many of each.
    fn lost(&mut self, (connections, backs): (usize, usize)) {
        if connections > 0 && self.connections.is_empty() {
            self.turn(Event::LoseLast);
        } else if backs > 0 && self.backs.is_empty() {
            self.turn(Event::LoseBack);
        }
    }

    fn counts(&self) -> (usize, usize) {
        (self.connections.len(), self.backs.len())
    }

    fn channels(&self, connection: ConnectionId) -> Option<Channels> {
        self.connections.iter().find(|(id, _)| *id == connection).map(|(_, channels)| *channels)
    }

    /// Connections associated.
    pub(crate) fn count(&self) -> usize {
        self.connections.len()
    }

    /// The connection for callbacks: the one that was bound last.
    pub(crate) fn back(&self) -> Option<&(ConnectionId, Arc<Outbox>)> {
        self.backs.last()
    }
}

/// The sessions of each connection, to be found when it closes.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<HashMap<ConnectionId, Vec<SessionId>>>);

#[cfg(test)]
impl Connections {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Session {
    /// Associates a connection with the fore channel, as every SEQUENCE does. §18.34.3: "When SP4_NONE protection is used,
    /// simply sending a COMPOUND request with a SEQUENCE operation is sufficient to associate the connection".
    pub(crate) fn touch(&self, connection: ConnectionId, connections: &Connections) {
        let mark = connection.0.wrapping_add(1);
        if self.last_connection.load(Relaxed) != mark {
            if self.bound.read().channels(connection).is_none() {
                self.join(connection, Channels::FORE, None, connections);
            }
            self.last_connection.store(mark, Relaxed);
        }
    }

    /// Adds channels to a connection; false where there is no room to remember it.
    pub(crate) fn join(
        &self,
        connection: ConnectionId,
        channels: Channels,
        outbox: Option<&Arc<Outbox>>,
        connections: &Connections,
    ) -> bool {
        let mut bound = self.bound.write();
        if bound.phase == Phase::Closed {
            return false;
        }
        let before = bound.counts();
        match bound.connections.iter().position(|(id, _)| *id == connection) {
            Some(at) => bound.connections[at].1 |= channels,
            None if bound.connections.len() >= MAX_CONNECTIONS_A_SESSION => return false,
            None => {
                let mut sessions = connections.0.lock();
                let sessions = sessions.entry(connection).or_default();
                if sessions.len() >= MAX_SESSIONS_A_CONNECTION {
                    return false;
                }
                sessions.push(self.id);
                bound.connections.push((connection, channels));
            }
        }
        if let Some(outbox) = outbox.filter(|_| channels.contains(Channels::BACK)) {
            // A request that is executed after its connection has closed makes no way back.
            if !bound.backs.iter().any(|(id, _)| *id == connection) && outbox.open() {
                bound.backs.push((connection, Arc::clone(outbox)));
                self.client.set_wants_callbacks();
                self.client.holdings.back_connections.fetch_add(1, Relaxed);
            }
        }
        if before.1 == 0 && !bound.backs.is_empty() {
            bound.turn(Event::JoinBack);
        } else if before.0 == 0 {
            bound.turn(Event::Join);
        }
        true
    }

    /// Takes a connection away.
    fn part(&self, connection: ConnectionId) {
        let mut bound = self.bound.write();
        let before = bound.counts();
        bound.connections.retain(|(id, _)| *id != connection);
        if let Some(index) = bound.backs.iter().position(|(id, _)| *id == connection) {
            bound.backs.remove(index);
            self.forget_back();
        }
        bound.lost(before);
        self.last_connection.store(0, Relaxed);
    }

    /// Takes all connections away: the session is destroyed.
    pub(crate) fn close(&self, connections: &Connections) {
        let mut bound = self.bound.write();
        bound.turn(Event::Destroy);
        let mut map = connections.0.lock();
        for _ in bound.backs.drain(..) {
            self.forget_back();
        }
        for (connection, _) in bound.connections.drain(..) {
            if let Some(sessions) = map.get_mut(&connection) {
                sessions.retain(|id| *id != self.id);
                if sessions.is_empty() {
                    map.remove(&connection);
                }
            }
        }
    }

    /// Leaves a connection to the fore channel; calls that `is_ours` are not awaited any more.
    pub(crate) fn unbind_back(&self, connection: ConnectionId, is_ours: impl Fn(&Sent) -> bool) {
        let mut bound = self.bound.write();
        if let Some(entry) = bound.connections.iter_mut().find(|(id, _)| *id == connection) {
            entry.1.remove(Channels::BACK);
        }
        if let Some(index) = bound.backs.iter().position(|(id, _)| *id == connection) {
            let before = bound.counts();
            let (_, outbox) = bound.backs.remove(index);
            outbox.forget(is_ours);
            self.forget_back();
            bound.lost(before);
        }
    }

    fn forget_back(&self) {
        self.client.holdings.back_connections.fetch_sub(1, Relaxed);
    }

    /// Whether the connection is one of the session's.
    pub(crate) fn is_bound(&self, connection: ConnectionId) -> bool {
        self.bound.read().channels(connection).is_some()
    }

    /// `sr_status_flags`, the client's and those of this session.
    pub(crate) fn status_flags(&self) -> SequenceStatus {
        let mut flags = self.client.status_flags();
        // With every path down this session's is down too; without a callback that waits, a session without a path beside
        // others that have one is no news (§18.46.3).
        // §2.10.6.2: a callback that must be repeated here and cannot makes it news.
        if flags.contains(SequenceStatus::CB_PATH_DOWN) || self.is_cut.load(Relaxed) {
            let down = matches!(self.bound.read().phase, Phase::Mute | Phase::Lost);
            flags.set(SequenceStatus::CB_PATH_DOWN_SESSION, down);
        }
        flags.set(SequenceStatus::BACKCHANNEL_FAULT, self.has_fault.load(Relaxed));
        flags
    }
}

impl State {
    /// BIND_CONN_TO_SESSION (RFC 8881 §18.34).
    ///
    /// # Errors
    /// BADSESSION; DEADSESSION for a session of before; INVAL for an unknown direction, and where the connection is associated and "the client is demanding
    /// changes to the set of channels the connection is associated with"; DELAY where a session has too many connections.
    pub fn bind_connection(
        &self,
        connection: ConnectionId,
        outbox: Option<&Arc<Outbox>>,
        session: &SessionId,
        direction: DirFromClient,
    ) -> Result<DirFromServer, Status> {
        let session = self.sessions.get(session).ok_or_else(|| self.without_session(session))?;
        let both = Channels::FORE | Channels::BACK;
        let (wanted, forbidden) = match direction {
            DirFromClient::FORE => (Channels::FORE, Channels::BACK),
            DirFromClient::BACK => (Channels::BACK, Channels::FORE),
            // A connection that SEQUENCE has put on the fore channel may be asked for both without "demanding" a change:
            // Linux's client repairs its back channel so, and Linux's server lets it.
            DirFromClient::FORE_OR_BOTH => (both, Channels::empty()),
            DirFromClient::BACK_OR_BOTH => (both, Channels::empty()),
            _ => return Err(Status::INVAL),
        };
        if let Some(present) = session.bound.read().channels(connection) {
            let only = |channel| present == channel;
            let demands = match direction {
                DirFromClient::FORE_OR_BOTH => only(Channels::BACK),
                DirFromClient::BACK_OR_BOTH => only(Channels::FORE),
                _ => present.intersects(forbidden),
            };
            if demands {
                return Err(Status::INVAL);
            }
        }
        if session.join(connection, wanted, outbox, &self.connections) {
            if wanted.contains(Channels::BACK) {
                self.try_path(&session);
            }
            Ok(wanted.answer())
        } else {
            Err(Status::DELAY)
        }
    }

    /// Forgets a connection that closed.
    pub fn connection_closed(&self, connection: ConnectionId) {
        self.path_closed(connection);
        let sessions = self.connections.0.lock().remove(&connection);
        for id in sessions.into_iter().flatten() {
            if let Some(session) = self.sessions.get(&id) {
                session.part(connection);
                self.path_lost(&session, connection);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::transitions::check_table;
    use super::*;

    #[test]
    fn the_table_of_phases_is_sound() {
        let open = [Phase::Apart, Phase::Fore, Phase::Both, Phase::Mute, Phase::Lost];
        check_table(TRANSITIONS, Phase::Apart, &open);
        let events = [Event::Join, Event::JoinBack, Event::LoseBack, Event::LoseLast, Event::Destroy];
        for event in events {
            assert_eq!(step(TRANSITIONS, Phase::Closed, event), None, "§18.37: its ID is BADSESSION");
        }
        for phase in open {
            assert_eq!(
                step(TRANSITIONS, phase, Event::Destroy),
                Some(Phase::Closed),
                "it can always be destroyed"
            );
            let may_join = matches!(phase, Phase::Apart | Phase::Lost);
            assert_eq!(step(TRANSITIONS, phase, Event::Join).is_some(), may_join, "the first connection");
            assert_eq!(step(TRANSITIONS, phase, Event::JoinBack).is_some(), phase != Phase::Both);
            assert_eq!(step(TRANSITIONS, phase, Event::LoseLast).is_some(), !may_join, "there has to be one");
        }
    }
}
