//! What the administrator does to clients and to the grace period.

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use vfs::Timestamp;

use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::client_table::RecordEvent;
use crate::state::tables::recovery::EndOfGrace;
use crate::state::tables::wire::{ClientId, SessionId};
use crate::{Now, client_log};

/// What a client lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evicted {
    /// Sessions.
    pub sessions: usize,
    /// Opens.
    pub opens: u32,
    /// Byte ranges locked.
    pub locks: u32,
    /// Delegations.
    pub delegations: u32,
    /// Opens, locks and delegations that it had lost before and not acknowledged.
    pub revoked: u32,
}

impl State {
    /// Remembers where a client is, for those who look; returns its record.
    pub fn note_client_address(
        &self,
        client: ClientId,
        address: SocketAddr,
        minor: u32,
    ) -> Option<Arc<Client>> {
        let client = self.clients.lock().record(client).map(|record| Arc::clone(&record.client))?;
        client.seen_at(address, minor);
        Some(client)
    }

    /// Logs that a client is gone, where the log says that it came; so many a second at most.
    pub(crate) fn log_removal(&self, client: &Client) {
        let Some(reason) = client.removal_to_log() else { return };
        // One clock for all who let clients go: some of them do not know the time.
        let now = Now { monotonic: self.tick(), wall: Timestamp::default() };
        if let Some(suppressed) = self.removal_log_throttle.admit(now) {
            client_log::left((client.owner(), client.id()), client.seen(), reason, suppressed);
        }
    }

    /// [`Self::note_client_address`] of a session's client.
    pub fn note_session_address(&self, session: &SessionId, address: SocketAddr, minor: u32) {
        if let Some(session) = self.sessions.get(session) {
            session.client.seen_at(address, minor);
        }
    }

    /// Takes away a client's record, and with it sessions, opens, locks and delegations, whether or not its lease has expired;
    /// `None` where there is no such client. It reclaims nothing of that in a grace period that runs.
    ///
    /// To the client it is what an expired lease is (RFC 8881 §8.3, §8.4.2.4): its next request is answered with BADSESSION or
    /// STALE_CLIENTID, and it may make itself known anew. What it has in progress ends; nothing is added to what it holds.
    pub fn evict(&self, id: ClientId) -> Option<Evicted> {
        let record = self.clients.lock().remove(id, RecordEvent::Evict)?;
        let evicted = Evicted { sessions: record.sessions.len(), ..held(&record.client) };
        self.release_records([record]);
        Some(evicted)
    }

    /// Removes a client that the grace period waits for, by its name, so that it can no longer reclaim. Returns the name; `None` without
    /// such a client.
    pub fn evict_reclaimer(&self, now: Duration, matches: impl Fn(&[u8]) -> bool) -> Option<Bytes> {
        self.recovery.evict_reclaimer(now, matches)
    }

    /// Ends the grace period: what was not reclaimed until now is lost. Returns how many clients it waited for; `None` where
    /// none runs.
    pub fn end_grace(&self, now: Duration) -> Option<usize> {
        self.recovery.in_grace(now).then(|| self.recovery.end_grace(EndOfGrace::Administrator))
    }
}

fn held(client: &Client) -> Evicted {
    let holdings = &client.holdings;
    Evicted {
        sessions: 0,
        opens: holdings.opens.load(Relaxed),
        locks: holdings.locks.load(Relaxed),
        delegations: holdings.delegations.load(Relaxed),
        revoked: client.revoked(),
    }
}
