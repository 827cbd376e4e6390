//! Snapshots of clients, their sessions and state, and of NLM hosts, for administrators.
//!
//! A snapshot hardly delays requests: the table is locked for [`BATCH`] records at a time, and sessions and slots are read
//! outside of that lock. A concurrent change is seen before or after it happened, never twice. The caller bounds the list. A
//! snapshot contains no secrets: no verifiers, no stateids, no session IDs, with which any host on the network could destroy the
//! session.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;

use super::State;
use crate::state::tables::client::Client;
use crate::state::tables::client_table::{Record, RecordPhase};
use crate::state::tables::nlm_hosts::NlmHost;
use crate::state::tables::persist::PersistenceSnapshot;
use crate::state::tables::principal::Principal;
use crate::state::tables::recovery::{Reclaimers, RecordsSnapshot};
use crate::state::tables::session::Session;
use crate::state::tables::slot::SlotUse;
use crate::state::tables::wire::{ClientId, SessionId};

/// Records read under the table's lock at a time.
const BATCH: usize = 256;

/// The status of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientStatus {
    /// The client has not confirmed its client ID.
    Unconfirmed,
    /// Its lease has not expired.
    Active,
    /// Its lease has expired; its state is kept until another client needs it (RFC 8881 §8.4.3).
    Courtesy,
}

/// Whether callbacks reach a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackPath {
    /// No connection carries callbacks.
    None,
    /// A connection carries callbacks, and none was answered yet.
    Untried,
    /// The client answered a callback.
    Up,
}

/// Snapshot of a client.
#[derive(Debug, Clone)]
pub struct ClientSnapshot {
    /// `clientid4`.
    pub id: ClientId,
    /// `co_ownerid`.
    pub owner: Bytes,
    /// The principal that created the record.
    pub principal: Principal,
    /// Its address at the last identification.
    pub address: Option<SocketAddr>,
    /// Its minor version at the last identification.
    pub minor: Option<u32>,
    /// Its status.
    pub status: ClientStatus,
    /// Time until its lease expires; zero if it has.
    pub lease_left: Duration,
    /// Whether it may still reclaim state from before the server's restart.
    pub is_reclaiming: bool,
    /// Whether callbacks reach it.
    pub callbacks: CallbackPath,
    /// COMPOUNDs in progress.
    pub active: u32,
    /// Opens in effect.
    pub opens: u32,
    /// Byte ranges locked.
    pub locks: u32,
    /// Delegations.
    pub delegations: u32,
    /// Revoked stateids that it has not acknowledged.
    pub revoked: u32,
    /// Its sessions.
    pub sessions: Vec<SessionSnapshot>,
}

/// Snapshot of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSnapshot {
    /// Connections associated with it, as far as they are remembered.
    pub connections: usize,
    /// Whether it survives a restart of the server.
    pub is_persistent: bool,
    /// Its fore channel.
    pub slots: SlotUse,
}

/// Snapshot of an NLM host: a client of version 2 or 3 that locks files.
#[derive(Debug, Clone)]
pub struct HostSnapshot {
    /// Its number among the client IDs.
    pub id: ClientId,
    /// `caller_name`.
    pub name: Bytes,
    /// The address of its calls.
    pub address: IpAddr,
    /// Whether a GRANTED may reach it.
    pub is_reachable: bool,
    /// Byte ranges locked.
    pub locks: u32,
    /// LOCKs that wait for another lock.
    pub waiting: u32,
}

/// A grace period in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraceSnapshot {
    /// Time until it ends by itself, at the latest.
    pub left: Duration,
    /// Clients that may have held state before the restart and have not completed their reclaims.
    pub waiting_for: Reclaimers,
}

impl State {
    /// Returns the clients that `wanted` accepts in the order of their creation, at most `most`; and the number of omitted ones.
    pub fn snapshot_clients(
        &self,
        now: Duration,
        most: usize,
        wanted: impl Fn(&Client) -> bool,
    ) -> (Vec<ClientSnapshot>, u64) {
        let (mut found, mut omitted, mut last) = (Vec::new(), 0, 0);
        loop {
            let batch: Vec<_> = self.clients.lock().behind(last).take(BATCH).map(outline).collect();
            let Some((number, ..)) = batch.last() else { return (found, omitted) };
            last = *number;
            for (_, client, phase, sessions) in batch.into_iter().filter(|(_, client, ..)| wanted(client)) {
                if found.len() < most {
                    found.push(self.snapshot_client(now, &client, phase, &sessions));
                } else {
                    omitted += 1;
                }
            }
        }
    }

    fn snapshot_client(
        &self,
        now: Duration,
        client: &Client,
        phase: RecordPhase,
        sessions: &[SessionId],
    ) -> ClientSnapshot {
        let (idle, holdings, seen) = (client.idle(now), &client.holdings, client.seen());
        let sessions = sessions.iter().filter_map(|id| self.sessions.get(id));
        ClientSnapshot {
            id: client.id(),
            owner: client.owner().clone(),
            principal: client.principal().clone(),
            address: seen.map(|(address, _)| address),
            minor: seen.map(|(_, minor)| minor),
            status: match phase {
                RecordPhase::Unconfirmed => ClientStatus::Unconfirmed,
                _ if idle >= self.lease => ClientStatus::Courtesy,
                _ => ClientStatus::Active,
            },
            lease_left: self.lease.saturating_sub(idle),
            is_reclaiming: client.is_reclaiming(),
            // A client of version 4.0 has no back channel; the server connects when it has a callback to send.
            callbacks: match client.has_back_connection() {
                _ if client.is_reachable() => CallbackPath::Up,
                true => CallbackPath::Untried,
                false => CallbackPath::None,
            },
            active: client.active(),
            opens: holdings.opens.load(Relaxed),
            locks: holdings.locks.load(Relaxed),
            delegations: holdings.delegations.load(Relaxed),
            revoked: client.revoked(),
            sessions: sessions.map(|session| snapshot_session(&session)).collect(),
        }
    }

    /// Returns the NLM hosts, sorted by their addresses and names. Their number is bounded.
    #[must_use]
    pub fn snapshot_hosts(&self, now: Duration) -> Vec<HostSnapshot> {
        let snapshot = |host: Arc<NlmHost>| {
            let (name, holdings) = (host.name(), &host.client.holdings);
            HostSnapshot {
                id: host.id(),
                name: name.name.clone(),
                address: name.address,
                is_reachable: host.is_reachable(now),
                locks: holdings.locks.load(Relaxed),
                waiting: holdings.lock_waiters.load(Relaxed),
            }
        };
        self.nlm_hosts.all().into_iter().map(snapshot).collect()
    }

    /// Returns the grace period in progress, with at most `most` names of clients.
    #[must_use]
    pub fn snapshot_grace(&self, now: Duration, most: usize) -> Option<GraceSnapshot> {
        let (left, waiting_for) = self.recovery.grace_left(now, most)?;
        Some(GraceSnapshot { left, waiting_for })
    }
}

impl State {
    /// Returns the condition of the log of client records; `None` if there is no log.
    #[must_use]
    pub fn snapshot_records(&self) -> Option<RecordsSnapshot> {
        self.recovery.snapshot()
    }

    /// Returns the condition of persistent sessions; `None` if the server makes none.
    #[must_use]
    pub fn snapshot_persistence(&self) -> Option<PersistenceSnapshot> {
        self.persistence.as_ref()?.snapshot()
    }
}

fn outline((number, record): (u64, &Record)) -> (u64, Arc<Client>, RecordPhase, Vec<SessionId>) {
    (number, Arc::clone(&record.client), record.phase(), record.sessions.clone())
}

fn snapshot_session(session: &Session) -> SessionSnapshot {
    let connections = session.bound.read().count();
    SessionSnapshot { connections, is_persistent: session.is_persistent, slots: session.slots.usage() }
}
