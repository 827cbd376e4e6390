//! What there is, for people who look: clients, their sessions and what they hold.
//!
//! Criteria. Looking costs those who work little: the table's lock is held for [`BATCH`] records at a time, sessions and slots
//! are read outside of it, and what changes meanwhile is seen before or after its change, never twice. The list is as long
//! as who asks wants it at most. Nothing that opens a door is told: no verifiers, no session IDs (with them anybody on the
//! network could end the session), no stateids.

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;

use super::State;
use crate::state::tables::client::Client;
use crate::state::tables::client_table::{Record, RecordPhase};
use crate::state::tables::persist::PersistenceSnapshot;
use crate::state::tables::principal::Principal;
use crate::state::tables::recovery::{Reclaimers, RecordsSnapshot};
use crate::state::tables::session::Session;
use crate::state::tables::slot::SlotUse;
use crate::state::tables::wire::{ClientId, SessionId};

/// Records looked at under the table's lock at a time.
const BATCH: usize = 256;

/// How a client stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientStatus {
    /// It has said who it is, and nothing else yet.
    Unconfirmed,
    /// Its lease is good.
    Active,
    /// Its lease has expired; what it holds is kept until somebody else wants it (RFC 8881 §8.4.3).
    Courtesy,
}

/// Whether the server can call a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackPath {
    /// No connection carries callbacks.
    None,
    /// One does, and has not answered yet.
    Untried,
    /// The client has answered.
    Up,
}

/// A client at some moment.
#[derive(Debug, Clone)]
pub struct ClientSnapshot {
    /// `clientid4`.
    pub id: ClientId,
    /// `co_ownerid`, as the client made it.
    pub owner: Bytes,
    /// Who made the record.
    pub principal: Principal,
    /// Where it was when it last said who it is.
    pub address: Option<SocketAddr>,
    /// The minor version that it spoke then.
    pub minor: Option<u32>,
    /// How it stands.
    pub status: ClientStatus,
    /// Until its lease expires; zero where it has.
    pub lease_left: Duration,
    /// Whether it may still reclaim what it held before the server's restart.
    pub is_reclaiming: bool,
    /// Whether it can be called.
    pub callbacks: CallbackPath,
    /// COMPOUNDs in progress.
    pub active: u32,
    /// Opens in effect.
    pub opens: u32,
    /// Byte ranges locked.
    pub locks: u32,
    /// Delegations.
    pub delegations: u32,
    /// What was taken from it, and it has not acknowledged.
    pub revoked: u32,
    /// Its sessions.
    pub sessions: Vec<SessionSnapshot>,
}

/// A session at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSnapshot {
    /// Connections that belong to it, as far as they are remembered.
    pub connections: usize,
    /// Whether it outlives the server.
    pub is_persistent: bool,
    /// Its fore channel.
    pub slots: SlotUse,
}

/// A grace period that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraceSnapshot {
    /// Until it ends by itself, at the latest.
    pub left: Duration,
    /// Clients that may have held state before the restart and have not completed their reclaims.
    pub waiting_for: Reclaimers,
}

impl State {
    /// Clients that `wanted` takes, in the order in which they came, `most` at most; and how many were left out.
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
            // A client of version 4.0 has no back channel: it is connected to when there is something to call it for.
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

    /// The grace period, where one runs, with `most` names of clients at most.
    #[must_use]
    pub fn snapshot_grace(&self, now: Duration, most: usize) -> Option<GraceSnapshot> {
        let (left, waiting_for) = self.recovery.grace_left(now, most)?;
        Some(GraceSnapshot { left, waiting_for })
    }
}

impl State {
    /// How the records of clients stand; none where they do not outlive the server.
    #[must_use]
    pub fn snapshot_records(&self) -> Option<RecordsSnapshot> {
        self.recovery.snapshot()
    }

    /// How persistent sessions stand; none where no session is made persistent.
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
