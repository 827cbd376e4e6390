//! The table of client records, by client ID, by owner string and by age.
//!
//! Records are added and removed seldom, so one lock over the whole table is enough. A record names its client's sessions.
//! The client's state is in the shards, and is released after the table's lock.

mod audit;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::client::{Client, ClientKind};
use super::host::{self, HostKey, Hosts};
use super::lease::Lease;
use super::transitions::{Row, step};
use super::v40_client::Confirmation;
use super::wire::{ClientId, CreateSessionOk, SessionId, Status};

/// Number of records that one sweep examines.
const SWEEP: usize = 256;

/// Whether a record is confirmed. Expiry is not a phase: it follows from the [`Lease`], and an expired client that returns in
/// time continues as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordPhase {
    Unconfirmed,
    Confirmed,
    Removed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordEvent {
    /// The first CREATE_SESSION succeeded, or SETCLIENTID_CONFIRM.
    Confirm,
    /// Another incarnation was confirmed, or another client took the owner string.
    Replace,
    /// DESTROY_CLIENTID.
    Destroy,
    /// The lease ended.
    Expire,
    /// The administrator removed the client.
    Evict,
    /// The table is full, and the client holds nothing.
    MakeRoom,
}

impl RecordEvent {
    /// Returns the reason why a record was removed, for the log.
    fn reason(self) -> &'static str {
        match self {
            Self::Confirm => "confirmed",
            Self::Replace => "replaced by a new client of this name",
            Self::Destroy => "DESTROY_CLIENTID",
            Self::Expire => "lease expired",
            Self::Evict => "evicted",
            Self::MakeRoom => "without state, and the client table is full",
        }
    }
}

const TRANSITIONS: &[Row<RecordPhase, RecordEvent>] = &[
    (RecordPhase::Unconfirmed, RecordEvent::Confirm, RecordPhase::Confirmed),
    (RecordPhase::Unconfirmed, RecordEvent::Replace, RecordPhase::Removed),
    (RecordPhase::Unconfirmed, RecordEvent::Destroy, RecordPhase::Removed),
    (RecordPhase::Unconfirmed, RecordEvent::Expire, RecordPhase::Removed),
    (RecordPhase::Confirmed, RecordEvent::Replace, RecordPhase::Removed),
    (RecordPhase::Confirmed, RecordEvent::Destroy, RecordPhase::Removed),
    (RecordPhase::Confirmed, RecordEvent::Expire, RecordPhase::Removed),
    (RecordPhase::Unconfirmed, RecordEvent::Evict, RecordPhase::Removed),
    (RecordPhase::Confirmed, RecordEvent::Evict, RecordPhase::Removed),
    (RecordPhase::Unconfirmed, RecordEvent::MakeRoom, RecordPhase::Removed),
    (RecordPhase::Confirmed, RecordEvent::MakeRoom, RecordPhase::Removed),
];

/// `eir_sequenceid` of a new record.
pub(crate) const FIRST_SEQUENCE: u32 = 1;

/// The reply cache of one slot that each client ID has for CREATE_SESSION (RFC 8881 §18.36.4).
#[derive(Debug)]
pub(crate) struct CreateSessionSlot {
    sequence: u32,
    result: Result<CreateSessionOk, Status>,
}

impl CreateSessionSlot {
    /// Creates the slot: "it initializes the client ID slot to be equal to eir_sequenceid - 1 (accounting for underflow), and records a
    /// contrived CREATE_SESSION result with a "cached" result of NFS4ERR_SEQ_MISORDERED."
    fn new() -> Self {
        Self { sequence: FIRST_SEQUENCE.wrapping_sub(1), result: Err(Status::SEQ_MISORDERED) }
    }

    /// Returns the sequence ID that the client should use next.
    pub(crate) fn next(&self) -> u32 {
        self.sequence.wrapping_add(1)
    }

    /// Phase 2 of CREATE_SESSION (§18.36.4): returns the answer to a request that must not run.
    ///
    /// "If csa_sequenceid is equal to the sequence ID in the client ID's slot, then this is a replay of the previous
    /// CREATE_SESSION request, and the server returns the cached result." A request that failed made nothing, so it runs
    /// again: a repetition fails as before, and a corrected request under the same number succeeds, as with Linux's server.
    pub(crate) fn check(&self, sequence: u32) -> Option<Result<CreateSessionOk, Status>> {
        let is_repetition = sequence == self.sequence;
        let may_retry = matches!(self.result, Err(status) if status != Status::SEQ_MISORDERED);
        match (is_repetition, may_retry) {
            (true, false) => Some(self.result.clone()),
            (true, true) => None,
            (false, _) if sequence == self.next() => None,
            (false, _) => Some(Err(Status::SEQ_MISORDERED)),
        }
    }

    /// Caches the result of a request.
    pub(crate) fn set(&mut self, sequence: u32, result: Result<CreateSessionOk, Status>) {
        *self = Self { sequence, result };
    }
}

/// A client record.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) client: Arc<Client>,
    /// Counts records in the order of creation.
    number: u64,
    phase: RecordPhase,
    pub(crate) create: CreateSessionSlot,
    pub(crate) sessions: Vec<SessionId>,
    /// State of version 4.0 only.
    pub(crate) confirmation: Option<Confirmation>,
}

impl Record {
    pub(crate) fn phase(&self) -> RecordPhase {
        self.phase
    }

    /// Returns whether DESTROY_CLIENTID must fail.
    pub(crate) fn is_in_use(&self, now: Duration, lease: Duration) -> bool {
        (self.client.has_state() || !self.sessions.is_empty()) && !self.client.is_expired(now, lease)
    }

    /// Returns whether another principal may not take the owner string. `may_reclaim`: the record's client may still reclaim.
    pub(crate) fn blocks_collision(&self, now: Duration, lease: Duration, may_reclaim: bool) -> bool {
        self.is_in_use(now, lease) || (may_reclaim && !self.client.is_expired(now, lease))
    }

    /// Returns whether the record should be removed. `limit_reached`: its resources are needed, so courtesy ends.
    pub(crate) fn is_over(&self, now: Duration, lease: Duration, limit_reached: bool) -> bool {
        let begun = match self.phase {
            RecordPhase::Unconfirmed => Lease::Unconfirmed,
            RecordPhase::Confirmed => Lease::Running,
            RecordPhase::Removed => Lease::Over,
        };
        begun.after(self.client.idle(now), lease, self.client.has_state(), limit_reached) == Lease::Over
    }
}

/// An owner's records: at most one confirmed and one unconfirmed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct OwnerRecords {
    pub(crate) confirmed: Option<ClientId>,
    pub(crate) unconfirmed: Option<ClientId>,
}

/// All client records.
#[derive(Debug, Default)]
pub(crate) struct ClientTable {
    /// By number, that is, in the order of creation.
    records: BTreeMap<u64, Record>,
    numbers: HashMap<ClientId, u64>,
    /// By [`ClientKind`]: owner strings of 4.0 and of later versions are separate name spaces.
    owners: [HashMap<Bytes, OwnerRecords>; 2],
    /// Records by client address.
    pub(crate) hosts: Hosts,
    /// The last record's number.
    last_number: u64,
    /// Number of the last record that the last sweep looked at.
    swept: u64,
}

impl ClientTable {
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns an owner's records.
    pub(crate) fn owned(&self, kind: ClientKind, owner: &[u8]) -> OwnerRecords {
        self.owners[kind as usize].get(owner).copied().unwrap_or_default()
    }

    pub(crate) fn record(&self, id: ClientId) -> Option<&Record> {
        self.records.get(self.numbers.get(&id)?)
    }

    pub(crate) fn record_mut(&mut self, id: ClientId) -> Option<&mut Record> {
        self.records.get_mut(self.numbers.get(&id)?)
    }

    /// Adds an unconfirmed record.
    pub(crate) fn insert(&mut self, client: Arc<Client>, confirmation: Option<Confirmation>) {
        let (id, kind) = (client.id(), ClientKind::of(&client));
        self.owners[kind as usize].entry(client.owner().clone()).or_default().unconfirmed = Some(id);
        self.last_number += 1;
        let number = self.last_number;
        self.hosts.add(client.host(), number);
        self.numbers.insert(id, number);
        let (phase, create, sessions) = (RecordPhase::Unconfirmed, CreateSessionSlot::new(), Vec::new());
        self.records.insert(number, Record { client, number, phase, create, sessions, confirmation });
    }

    /// Removes an owner's unconfirmed record, which a new one replaces.
    pub(crate) fn replace_unconfirmed(&mut self, owned: OwnerRecords) -> Option<Record> {
        owned.unconfirmed.and_then(|id| self.remove(id, RecordEvent::Replace))
    }

    /// Removes a record. The caller releases the client's state after the table's lock.
    pub(crate) fn remove(&mut self, id: ClientId, event: RecordEvent) -> Option<Record> {
        let mut record = self.records.remove(&self.numbers.remove(&id)?)?;
        record.phase = step(TRANSITIONS, record.phase, event).expect("the table allows each removal");
        record.client.mark_removed(event.reason());
        self.hosts.remove(record.client.host(), record.number);
        let owners = &mut self.owners[ClientKind::of(&record.client) as usize];
        if let Some(owned) = owners.get_mut(record.client.owner()) {
            owned.confirmed = owned.confirmed.filter(|other| *other != id);
            owned.unconfirmed = owned.unconfirmed.filter(|other| *other != id);
            if owned.confirmed.is_none() && owned.unconfirmed.is_none() {
                owners.remove(record.client.owner());
            }
        }
        Some(record)
    }

    /// Makes a record the owner's confirmed one. Returns the record that it replaces.
    pub(crate) fn confirm(&mut self, id: ClientId) -> Option<Record> {
        let record = self.record_mut(id)?;
        if record.phase == RecordPhase::Confirmed {
            return None;
        }
        record.phase = step(TRANSITIONS, record.phase, RecordEvent::Confirm)
            .expect("records in the table are unconfirmed or confirmed");
        let (owner, kind) = (record.client.owner().clone(), ClientKind::of(&record.client));
        let (host, number) = (Arc::clone(record.client.host()), record.number);
        self.hosts.confirm(&host, number);
        let old = self.owned(kind, &owner).confirmed.and_then(|old| self.remove(old, RecordEvent::Replace));
        self.owners[kind as usize].insert(owner, OwnerRecords { confirmed: Some(id), unconfirmed: None });
        old
    }

    /// Returns records with their numbers in the order of creation, starting after `number`.
    pub(crate) fn behind(&self, number: u64) -> impl Iterator<Item = (u64, &Record)> {
        self.records.range((Excluded(number), Unbounded)).map(|(number, record)| (*number, record))
    }

    /// Returns the number of the record at which the last sweep ended.
    pub(crate) fn swept(&self) -> u64 {
        self.swept
    }

    /// Returns the clients among the `SWEEP` records after `number` that `filter` accepts.
    pub(crate) fn batch_behind(&self, number: u64, filter: impl Fn(&Record) -> bool) -> Vec<Arc<Client>> {
        let batch = self.behind(number).take(SWEEP).filter(|(_, record)| filter(record));
        batch.map(|(_, record)| Arc::clone(&record.client)).collect()
    }

    /// Removes records that are over, among the next `SWEEP` ones, if `may_remove` accepts their client. Returns them, and
    /// whether there are records that this sweep has not looked at.
    pub(crate) fn remove_expired(
        &mut self,
        now: Duration,
        lease: Duration,
        limit_reached: bool,
        may_remove: impl Fn(&Self, &Client) -> bool,
    ) -> (Vec<Record>, bool) {
        let (batch, more) = self.next_batch();
        let is_over =
            |record: &Record| record.is_over(now, lease, limit_reached) && may_remove(self, &record.client);
        let over = batch.into_iter().filter(|id| self.record(*id).is_some_and(is_over));
        let over: Vec<ClientId> = over.collect();
        (over.into_iter().filter_map(|id| self.remove(id, RecordEvent::Expire)).collect(), more)
    }

    /// Returns whether there is room for one more record of an address. At the limit, removes records for it into `removed`.
    pub(crate) fn has_room(
        &mut self,
        max_clients: usize,
        now: Duration,
        lease: Duration,
        host: HostKey,
        removed: &mut Vec<Record>,
    ) -> bool {
        if self.len() >= max_clients {
            removed.extend(self.make_room(now, lease, host));
        }
        host::has_room(max_clients, self.len(), self.hosts.count(host), 1)
    }

    /// Makes room for a record. A flood of EXCHANGE_ID or SETCLIENTID replaces its own records. Otherwise a client without state, of an address
    /// with more records, is removed; otherwise clients whose lease has expired.
    fn make_room(&mut self, now: Duration, lease: Duration, host: HostKey) -> Vec<Record> {
        if let Some(id) = self.replaceable(host) {
            return self.remove(id, RecordEvent::MakeRoom).into_iter().collect();
        }
        let count = self.hosts.count(host);
        let has_more = |table: &Self, client: &Client| {
            let other = client.host().key();
            other == host || table.hosts.count(other) > count
        };
        self.remove_expired(now, lease, true, has_more).0
    }

    /// Returns the client whose record makes room for a new one of an address.
    fn replaceable(&mut self, by: HostKey) -> Option<ClientId> {
        let may_go = |number| self.records.get(&number).is_some_and(|record| record.client.is_replaceable());
        let number = self.hosts.replaceable(by, may_go)?;
        self.records.get(&number).map(|record| record.client.id())
    }

    /// Returns the next `SWEEP` records after those of the last sweep.
    fn next_batch(&mut self) -> (Vec<ClientId>, bool) {
        let behind = self.records.range((Excluded(self.swept), Unbounded)).take(SWEEP);
        let batch: Vec<(u64, ClientId)> =
            behind.map(|(number, record)| (*number, record.client.id())).collect();
        let more = batch.len() == SWEEP;
        self.swept = if more { batch[SWEEP - 1].0 } else { 0 };
        (batch.into_iter().map(|(_, id)| id).collect(), more)
    }
}

#[cfg(test)]
mod tests {
    use super::super::transitions::check_table;
    use super::*;

    #[test]
    fn record_transitions_are_sound() {
        use RecordPhase::{Confirmed, Removed, Unconfirmed};
        check_table(TRANSITIONS, Unconfirmed, &[Unconfirmed, Confirmed, Removed]);
        for event in [
            RecordEvent::Confirm,
            RecordEvent::Replace,
            RecordEvent::Destroy,
            RecordEvent::Expire,
            RecordEvent::Evict,
            RecordEvent::MakeRoom,
        ] {
            assert_eq!(step(TRANSITIONS, Removed, event), None, "removed is final");
        }
        assert_eq!(step(TRANSITIONS, Confirmed, RecordEvent::Confirm), None);
    }
}
