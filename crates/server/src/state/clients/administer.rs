//! Administration of clients and of the grace period.

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

/// The state that an evicted client lost.
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
    /// Opens, locks and delegations that were revoked before and not acknowledged.
    pub revoked: u32,
}

impl State {
    /// Notes a client's address for snapshots and log lines. Returns its record.
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

    /// Logs the removal of a client whose confirmation was logged, at a bounded rate.
    pub(crate) fn log_removal(&self, client: &Client) {
        let Some(reason) = client.removal_to_log() else { return };
        // Some callers do not know the time, so all use the last known one.
        let now = Now { monotonic: self.latest_time(), wall: Timestamp::default() };
        if let Some(suppressed) = self.removal_log_throttle.admit(now) {
            client_log::left((client.owner(), client.id()), client.seen(), reason, suppressed);
        }
    }

    /// As [`Self::note_client_address`], for a session's client.
    pub fn note_session_address(&self, session: &SessionId, address: SocketAddr, minor: u32) {
        if let Some(session) = self.sessions.get(session) {
            session.client.seen_at(address, minor);
        }
    }

    /// Removes a client with its sessions, opens, locks and delegations, whether or not its lease has expired; `None` if there
    /// is no such client. The client cannot reclaim them in a grace period in progress.
    ///
    /// The client sees an expired lease (RFC 8881 §8.3, §8.4.2.4): its next request is answered with BADSESSION or
    /// STALE_CLIENTID, and it may create a new client ID. Requests in progress end; the client gets no more state.
    pub fn evict(&self, id: ClientId) -> Option<Evicted> {
        let record = self.clients.lock().remove(id, RecordEvent::Evict)?;
        let evicted = Evicted { sessions: record.sessions.len(), ..held(&record.client) };
        self.release_records([record]);
        Some(evicted)
    }

    /// Frees all locks and shares of an NLM host, and ends its waits; `None` if there is no such host. It cannot reclaim them in a grace
    /// period. NLM has no message by which the host learns this.
    pub fn evict_host(&self, id: ClientId) -> Option<Evicted> {
        let host = self.nlm_hosts.all().into_iter().find(|host| host.id() == id)?;
        let evicted = held(&host.client);
        self.free_nlm_host(&host);
        self.recovery.host_restarted(host.name());
        Some(evicted)
    }

    /// Removes a client that the grace period waits for, by its name, so that it can no longer reclaim. Returns the name; `None` without
    /// such a client.
    pub fn evict_reclaimer(&self, now: Duration, matches: impl Fn(&[u8]) -> bool) -> Option<Bytes> {
        self.recovery.evict_reclaimer(now, matches)
    }

    /// Ends the grace period: state that was not reclaimed is lost. Returns how many clients it waited for; `None` outside of a
    /// grace period.
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
