//! BIND_CONN_TO_SESSION and BACKCHANNEL_CTL (RFC 8881 §18.34, §18.33), and connections that close.

use std::sync::Arc;
use std::time::Duration;

use super::sequence::SlotRequest;
use crate::ConnectionId;
use crate::state::Outbox;
use crate::state::root::State;
use crate::state::tables::connections::Channels;
use crate::state::tables::slot::whole_seconds;
use crate::state::tables::wire::{DirFromClient, DirFromServer, SecParmsList, SessionId, Status};

impl State {
    /// BIND_CONN_TO_SESSION (RFC 8881 §18.34).
    ///
    /// # Errors
    /// BADSESSION; DEADSESSION for a session of an earlier server; INVAL for an unknown direction, and if the connection is
    /// associated and "the client is demanding changes to the set of channels the connection is associated with"; DELAY if a
    /// session has too many connections.
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
            // Linux's client repairs its back channel this way, and Linux's server allows it.
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
        if session.bind(connection, wanted, outbox, &self.connections) {
            if wanted.contains(Channels::BACK) {
                self.probe_back_channel(&session);
            }
            Ok(wanted.answer())
        } else {
            Err(Status::DELAY)
        }
    }

    /// Forgets a connection that closed.
    pub fn connection_closed(&self, connection: ConnectionId) {
        self.v40_connection_closed(connection);
        let sessions = self.connections.remove(connection);
        for id in sessions.into_iter().flatten() {
            if let Some(session) = self.sessions.get(&id) {
                session.unbind(connection);
                self.back_channel_lost(&session, connection);
            }
        }
    }

    /// BACKCHANNEL_CTL (RFC 8881 §18.33): the program and the security of this session's callbacks from now on. If none could be
    /// sent with the earlier parameters, the path is tried.
    pub fn control_back_channel(&self, running: &SlotRequest, program: u32, security: &SecParmsList) {
        let mut back = running.session.back.lock();
        let was_usable = back.is_usable();
        back.control(program, security);
        let is_usable = back.is_usable();
        drop(back);
        if is_usable && !was_usable {
            self.probe_back_channel(&running.session);
        }
    }

    /// Frees idle slot memory of a part of the sessions.
    pub(crate) fn release_idle_slots(&self, now: Duration) {
        let now_s = whole_seconds(now);
        self.sessions.some(now.as_secs()).iter().for_each(|session| session.slots.tend(now_s));
    }
}
