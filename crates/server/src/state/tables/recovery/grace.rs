//! The grace period after a restart (RFC 8881 §8.4.2.1).
//!
//! It begins if any client may have held state before, and ends when the last of them has finished its reclaims, or when its
//! time is over: one lease, and up to another lease while reclaims keep coming. A client learns of the restart only by the
//! reply to its next request, which may be a renewal at the very end of the first lease.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::MutexGuard;
use tracing::info;

use super::super::client::{Client, ClientKind, nanos};
use super::super::principal::Principal;
use super::reclaimers::NAMES_MAX;
use super::record::{ClientRecord, Name};
use super::{ASKS, Clients, Reclaimers, RecordEntry, RecordState, Recovery, V40Request};

/// Time between two reclaims for which the period is extended.
const PAUSE: Duration = Duration::from_secs(2);

/// The reason why a grace period ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndOfGrace {
    /// Its time is over.
    Timeout,
    /// The administrator ended it.
    Administrator,
}

impl Recovery {
    /// Logs whether a grace period begins, and for which clients.
    pub(crate) fn log_start(&self, now: Duration) {
        let (waiting_for, hosts) = {
            let clients = self.clients.lock();
            (clients.reclaimers(NAMES_MAX), clients.hosts_awaited)
        };
        if waiting_for.count + hosts == 0 {
            return info!("no grace period: no client may reclaim anything");
        }
        let seconds = self.grace_ends().saturating_sub(now).as_secs();
        info!(
            clients = waiting_for.count,
            names = %waiting_for,
            hosts,
            seconds,
            "grace period began: new opens and locks wait until these clients have reclaimed their state"
        );
    }

    /// Notes the time of a reclaim.
    pub(crate) fn reclaims(&self, now: Duration) {
        self.latest_reclaim.fetch_max(nanos(now), Relaxed);
    }

    /// Returns when the period ends by itself. §8.4.2.1: "Some additional time in order to allow a client to establish a new client ID and
    /// session and to effect lock reclaims may be added to the lease time."
    fn grace_ends(&self) -> Duration {
        match self.latest_reclaim.load(Relaxed) {
            0 => self.grace_ends,
            latest => {
                let awaited = Duration::from_nanos(latest) + PAUSE;
                awaited.clamp(self.grace_ends, self.grace_ends + self.grace_extension)
            }
        }
    }

    /// Returns whether the period runs.
    pub(crate) fn in_grace(&self, now: Duration) -> bool {
        if !self.in_grace.load(Acquire) {
            return false;
        }
        if now >= self.grace_ends() {
            self.end_grace(EndOfGrace::Timeout);
            return false;
        }
        true
    }

    /// Returns the maximum remaining time of the period, and the clients it waits for, with at most `most` names; `None` outside of it.
    pub(crate) fn grace_left(&self, now: Duration, most: usize) -> Option<(Duration, Reclaimers)> {
        let waiting_for = self.in_grace(now).then(|| self.clients.lock().reclaimers(most))?;
        Some((self.grace_ends().saturating_sub(now), waiting_for))
    }

    /// Ends the period for all clients. Returns the number of clients it waited for.
    ///
    /// §8.4.3, the second edge condition: "the indication that the client had not completed its reclaims at the time at which
    /// the grace period ended means that the server must reject a reclaim from client A" after the next restart.
    pub(crate) fn end_grace(&self, why: EndOfGrace) -> usize {
        let mut clients = self.clients.lock();
        if !self.in_grace.load(Acquire) {
            return 0;
        }
        let awaited = clients.awaited;
        let (mut last, mut lost) = (0, Vec::new());
        clients.entry.retain(|name, entry| match entry.state {
            RecordState::Present(_) => true,
            RecordState::Awaited { spoke: Some(id), .. } => {
                entry.state = RecordState::Present(id);
                true
            }
            RecordState::Awaited { spoke: None, .. } => {
                last = self.write(name, None);
                lost.push(name.owner().clone());
                false
            }
        });
        clients.awaited = 0;
        let hosts = std::mem::take(&mut clients.hosts_awaited);
        last = last.max(clients.hosts.end_grace(self.log.as_deref()));
        self.push();
        self.require_durable(last);
        self.in_grace.store(false, Release);
        let clients_at_start = clients.awaited_at_start;
        drop(clients);
        let lost = Reclaimers::new(lost.iter(), NAMES_MAX);
        let event = match why {
            EndOfGrace::Timeout => "grace period ended: its time is over",
            EndOfGrace::Administrator => "grace period ended by the administrator",
        };
        info!(clients = clients_at_start, hosts, lost = lost.count, names_of_lost = %lost, "{event}");
        awaited
    }

    /// Removes the records of clients that may still reclaim and whose names match, so that they no longer can. Returns the name;
    /// `None` without such a client.
    pub(crate) fn evict_reclaimer(&self, now: Duration, matches: impl Fn(&[u8]) -> bool) -> Option<Bytes> {
        if !self.in_grace(now) {
            return None;
        }
        let mut clients = self.clients.lock();
        let is_meant = |(name, entry): &(&Name, &RecordEntry)| entry.is_awaited() && matches(name.owner());
        let names: Vec<_> = clients.entry.iter().filter(is_meant).map(|(name, _)| name.clone()).collect();
        let owner = names.first()?.owner().clone();
        for name in &names {
            clients.remove(name);
            self.require_durable(self.write(name, None));
        }
        self.end_if_nobody_is_awaited(clients);
        Some(owner)
    }

    /// Returns whether this name belongs to another principal's client that may still reclaim. A client that took the name now would
    /// lose it when the other one returns.
    pub(crate) fn is_name_reserved(
        &self,
        now: Duration,
        kind: ClientKind,
        owner: &[u8],
        principal: &Principal,
    ) -> bool {
        if !self.in_grace(now) {
            return false;
        }
        let name = Name::new(kind, Bytes::copy_from_slice(owner));
        let clients = self.clients.lock();
        clients.entry.get(&name).is_some_and(|entry| entry.is_awaited() && !entry.record.is_by(principal))
    }

    /// Called when a client is confirmed. Returns whether it held state before the restart and may reclaim it.
    pub(crate) fn begin_reclaim(&self, now: Duration, client: &Client) -> bool {
        if !self.in_grace(now) {
            return false;
        }
        let mut clients = self.clients.lock();
        let name = Name::of(client);
        let Some(own) = ClientRecord::of(client) else { return false };
        let Some(entry) = clients.entry.get(&name).filter(|entry| entry.is_awaited()) else { return false };
        if entry.record.same_incarnation(&own) {
            self.reclaims(now);
            return true;
        }
        // The client restarted too and has nothing to reclaim (§8.4.2: "the client will send a global RECLAIM_COMPLETE … after
        // the client restarts with no lock state"). A client of another principal only has the same name.
        if entry.record.same_principal(&own) {
            clients.remove(&name);
            self.require_durable(self.write(&name, None));
            self.end_if_nobody_is_awaited(clients);
        }
        false
    }

    /// Notes that a client has finished its reclaims. §18.51.4: "it is able to use the fact that all such clients have done a
    /// RECLAIM_COMPLETE to terminate the grace period".
    pub(crate) fn complete_reclaim(&self, client: &Client, was_reclaiming: bool) {
        // A version 4.0 client never reports that it has finished. If it holds nothing it gets no record, and cannot reclaim the rest
        // after the next restart. For later versions §18.51.3 says of state that was not reclaimed: "The client MUST NOT attempt
        // to reclaim them, either during the current server instance or in any subsequent server instance".
        let may_hold = client.v40().is_none() || client.has_state();
        if was_reclaiming {
            let mut clients = self.clients.lock();
            let name = Name::of(client);
            let own = ClientRecord::of(client);
            let entry = clients.entry.get_mut(&name).filter(|entry| entry.is_awaited());
            if let (Some(entry), Some(own)) = (entry, own)
                && entry.record.same_incarnation(&own)
            {
                if may_hold {
                    entry.state = RecordState::Present(client.id());
                    // The client knows its losses before the restart, but not those since.
                    let number = match client.revoked() == 0 && entry.record.acknowledge() {
                        true => self.write(&name, Some(&entry.record)),
                        // It was stable before this server started.
                        false => 0,
                    };
                    client.set_record_change(Some(number));
                    clients.awaited -= 1;
                } else {
                    clients.remove(&name);
                    // Others may get state that it has not reclaimed.
                    self.require_durable(self.write(&name, None));
                }
                self.end_if_nobody_is_awaited(clients);
            }
        }
        // The client may be new, or the period ended while it was reclaiming, which removed its record. If the log is full, a
        // client without state gets its record with its first open.
        if may_hold && (client.has_state() || self.has_room_for(client)) {
            self.note_holder(client);
        }
    }

    /// Notes a request of a version 4.0 client that may still reclaim. Returns whether it has finished its reclaims.
    pub(crate) fn note_v40_request(&self, now: Duration, client: &Client, says: V40Request) -> bool {
        if !self.in_grace(now) {
            return says != V40Request::Reclaims;
        }
        let mut clients = self.clients.lock();
        let entry = clients.entry.get_mut(&Name::of(client)).filter(|entry| entry.is_of(client));
        let Some(RecordState::Awaited { asked, spoke }) = entry.map(|entry| &mut entry.state) else {
            return false;
        };
        // Requests before the first reclaim prove nothing.
        *spoke = (says != V40Request::Reclaims && client.has_state()).then(|| client.id());
        *asked = match says {
            V40Request::Reclaims => 0,
            V40Request::Asks => asked.saturating_add(1),
            V40Request::Renews => *asked,
            V40Request::Uses => ASKS,
        };
        *asked >= ASKS
    }

    /// Ends the period if it waits for no client any more.
    pub(super) fn end_if_nobody_is_awaited(&self, clients: MutexGuard<'_, Clients>) {
        let clients_at_start = clients.awaited_at_start;
        let ends = clients.awaited + clients.hosts_awaited == 0 && self.in_grace.swap(false, AcqRel);
        drop(clients);
        if ends {
            info!(clients = clients_at_start, lost = 0, "grace period ended: all clients have finished");
        }
    }
}
