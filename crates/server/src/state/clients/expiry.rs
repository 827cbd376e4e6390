//! The end of leases, and the removal of client records with the clients' state.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::state::root::State;
use crate::state::tables::client::{Client, nanos};
use crate::state::tables::client_table::{ClientTable, Record, RecordEvent};
use crate::state::tables::host::Host;
use crate::state::tables::wire::{ClientId, Status};

/// Result of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Client records removed.
    pub clients: usize,
    /// Whether there are records that this sweep has not looked at: call again soon.
    pub more: bool,
}

impl State {
    /// Looks at a bounded number of client records. Unconfirmed records are removed a lease after their creation, expired
    /// clients without state at once; those with state stay for a day, or until their resources are needed.
    pub fn expire(&self, now: Duration) -> Swept {
        self.latest_time.fetch_max(nanos(now), Relaxed);
        // Ends and logs a grace period whose time is over, even if no request asks for it.
        self.recovery.in_grace(now);
        self.maintain_callbacks(now);
        self.recall_slots(now);
        self.sweep_delegations(now);
        self.sweep_offloads(now);
        self.sweep_lock_queues(now);
        self.sweep_nlm_hosts(now);
        self.maintain_host_calls(now);
        self.release_idle_slots(now);
        self.persistence.iter().for_each(|persistence| persistence.maintain(now));
        let (removed, v40_clients, idle, more) = {
            let mut table = self.clients.lock();
            let start = table.swept();
            let (removed, more) = table.remove_expired(now, self.lease, false, |_, _| true);
            // A client that holds nothing for a lease loses its recovery record.
            let idle = table.batch_behind(start, |record| record.client.is_long_empty(now, self.lease));
            let v40_clients = table.batch_behind(start, |record| record.confirmation.is_some());
            (removed, v40_clients, idle, more)
        };
        let clients = removed.len();
        self.release_records(removed);
        idle.iter().for_each(|client| self.recovery.forget_idle(client));
        for client in v40_clients {
            self.sweep_owners(now, &client);
            self.maintain_v40_path(now, &client);
        }
        self.recovery.push();
        Swept { clients, more }
    }

    /// Removes expired clients, because some resource is used up. One sweep, so that the cost is bounded.
    pub fn remove_expired(&self, now: Duration) {
        let removed = self.clients.lock().remove_expired(now, self.lease, true, |_, _| true).0;
        self.release_records(removed);
    }

    /// Removes expired clients of this address, and of addresses that hold more, because opens, locks or other state reached their
    /// limit.
    pub(crate) fn remove_expired_for(&self, now: Duration, host: &Host) {
        let held = host.charged.load(Relaxed);
        let holds_more = |_: &ClientTable, client: &Client| {
            client.host().key() == host.key() || client.host().charged.load(Relaxed) > held
        };
        let removed = self.clients.lock().remove_expired(now, self.lease, true, holds_more).0;
        self.release_records(removed);
    }

    /// Releases the state of removed clients. That may take long, so the table must not be locked.
    pub(crate) fn release_records(&self, records: impl IntoIterator<Item = Record>) {
        for record in records {
            self.log_removal(&record.client);
            self.recovery.forget(&record.client);
            self.release_owners(&record.client);
            self.disconnect_v40(&record.client);
            self.release_offloads(record.client.id());
            self.release_copy_notifies(record.client.id());
            for id in &record.sessions {
                self.remove_session(id);
            }
            self.release_state(record.client.id());
        }
    }

    /// DESTROY_CLIENTID (RFC 8881 §18.50). `sequenced` is the client of the compound's SEQUENCE, if it has one.
    ///
    /// # Errors
    /// STALE_CLIENTID; CLIENTID_BUSY "If there are sessions (both idle and non-idle), opens, locks, delegations, layouts, and/or
    /// wants … associated with the unexpired lease of the client ID", and if the compound runs on a session of it.
    pub fn destroy_client(
        &self,
        now: Duration,
        id: ClientId,
        sequenced: Option<&Client>,
    ) -> Result<(), Status> {
        let mut table = self.clients.lock();
        let record = table.record(id).filter(|record| record.confirmation.is_none());
        let record = record.ok_or(Status::STALE_CLIENTID)?;
        if sequenced.is_some_and(|client| client.id() == id) || record.is_in_use(now, self.lease) {
            return Err(Status::CLIENTID_BUSY);
        }
        let record = table.remove(id, RecordEvent::Destroy);
        drop(table);
        self.release_records(record);
        Ok(())
    }
}
