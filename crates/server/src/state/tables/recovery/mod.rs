//! Records of clients for the next server, so that they reclaim after a restart only the state that they held (RFC 8881
//! §8.4.2 to §8.4.3, RFC 7530 §9.6).
//!
//! Requirements:
//! - A client that held state when the server ended, and lost none of it, can reclaim it: after a kill and after a power failure.
//! - Revoked state is never reclaimed. A client that was away while a grace period ended does not reclaim either (the
//!   edge conditions of §8.4.3): others may have held conflicting state since.
//! - The server does not wait for clients that have held nothing for long, or after an orderly stop for clients without state.
//! - State is not logged, only the client, once. The only requests that wait for the log are RECLAIM_COMPLETE, and the first OPEN
//!   of a client of version 4.0 or of one that has held nothing for long.
//!
//! **Records.** A client of version 4.1 gets a record at RECLAIM_COMPLETE, because it may hold state from then on; §8.4.2.1 lets
//! the period last for "all clients that are known to possibly have had locks". So the mount waits for the disk, and the first
//! OPEN does not. A client of version 4.0 gets its record with its first open or delegation. The record is removed with the
//! client, or when the client has held nothing for a lease; the next open writes it again. An orderly stop removes the records
//! of all clients without state ([`stop`]). After any other end, all recorded clients may reclaim.
//!
//! A record has the client's incarnation and principal, and the files on which it has lost state ([`record`]): after one revoked
//! delegation the client can still reclaim everything else. A client of version 4.1 that was recorded before the restart keeps
//! its record by RECLAIM_COMPLETE. When the grace period ends, all other records of the previous server are removed.
//!
//! **Replies wait, state does not.** Records are changed ([`StateLog::set`]) together with the state, under its locks. Two
//! facts must be stable before any client can see them:
//! - a client holds state: replies to that client wait ([`Recovery::pending_change`] with its client);
//! - state was revoked, or a client lost the right to reclaim: all replies of every version wait, because any of them may show
//!   the consequences. This is rare: an expired lease, a delegation that was not returned, an administrator, the end of a
//!   grace period. Changes of files wait too, before they are made, because they would survive a crash
//!   ([`wait_durable`](crate::files::durable::wait_durable)).
//!
//! **A full log.** If the log has no room for more records, a client without one gets nothing that it could reclaim: OPEN is
//! answered with DELAY, and no delegation is granted. RECLAIM_COMPLETE succeeds without a record.
//!
//! **Version 4.0** has no RECLAIM_COMPLETE. Its clients count as done with reclaims when they read or write by reclaimed state,
//! or request new state [`ASKS`] times in a row: clients hold back their programs until all is reclaimed (Linux drains its
//! slots, FreeBSD takes a lock). So others need not wait for the end of the period. If the period ends first, a client keeps its
//! record if its last request was not a reclaim.

mod grace;
mod hosts;
mod reclaimers;
mod record;
mod stop;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::SeqCst, fence,
};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use vfs::{Op, Thread, Timestamp};

use super::client::Client;
use super::file_key::FileKey;
use super::wire::ClientId;
use crate::StateLog;
use crate::state::state_log::key;
pub(crate) use grace::EndOfGrace;
use hosts::HostRecords;
pub use reclaimers::Reclaimers;
pub(crate) use record::Recorded;
use record::{ClientRecord, Name};

/// Requests for new state in a row after which a client of version 4.0 counts as done with reclaims. More than one, because a
/// simple client's threads may request new state while another thread reclaims.
const ASKS: u8 = 3;

/// The records of clients, and the grace period.
#[derive(Debug)]
pub(crate) struct Recovery {
    log: Option<Arc<dyn StateLog>>,
    /// Whether the grace period runs; changed under the lock of [`Self::clients`].
    in_grace: AtomicBool,
    /// §8.4.2.1: "a grace period at least as long as the lease period for the previous server instantiation".
    grace_ends: Duration,
    /// Bound on the extension of the period while clients still reclaim.
    grace_extension: Duration,
    /// Time of the last reclaim in nanoseconds; zero before the first.
    latest_reclaim: AtomicU64,
    /// The change that must be stable before any reply; zero if there is none.
    barrier: AtomicU64,
    clients: Mutex<Clients>,
}

#[derive(Debug, Default)]
struct Clients {
    entry: HashMap<Name, RecordEntry>,
    /// Number of these that may still reclaim.
    awaited: usize,
    /// Their number at the start.
    awaited_at_start: usize,
    /// NLM hosts.
    hosts: HostRecords,
    /// NLM hosts that may reclaim until the period is over.
    hosts_awaited: usize,
}

#[derive(Debug)]
struct RecordEntry {
    record: ClientRecord,
    state: RecordState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordState {
    /// Of the previous server; the client may still reclaim.
    Awaited {
        /// Version 4.0: requests for new state since the last reclaim.
        asked: u8,
        /// Version 4.0: the client ID, if there was another request since the last reclaim.
        spoke: Option<ClientId>,
    },
    /// The record of this client.
    Present(ClientId),
}

const AWAITED: RecordState = RecordState::Awaited { asked: 0, spoke: None };

/// A request of a version 4.0 client that may still reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum V40Request {
    /// A reclaim.
    Reclaims,
    /// A request for a new open or lock.
    Asks,
    /// A lease renewal.
    Renews,
    /// A READ, WRITE or other I/O by reclaimed state.
    Uses,
}

/// The state log and its content at the start of a server.
#[derive(Debug, Default)]
pub struct Records {
    /// The log. Without one, no client reclaims after this server.
    pub log: Option<Arc<dyn StateLog>>,
    /// All keys and values.
    pub entries: Vec<(Bytes, Bytes)>,
    /// Time of day at which they were read.
    pub read_at: Timestamp,
}

/// The condition of the log of client records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordsSnapshot {
    /// Whether changes reach stable storage.
    pub is_written: bool,
    /// Whether there is room for new clients. If not, their opens are answered with DELAY.
    pub has_room: bool,
}

impl Recovery {
    pub(crate) fn new(records: Records, lease: Duration, now: Duration) -> Self {
        let Records { log, entries, read_at } = records;
        let mut clients = Clients::default();
        // The time of day is the number of a server without a log, or of the first one.
        clients.hosts = HostRecords::read(&entries, read_at.seconds as i32, log.as_deref());
        clients.hosts_awaited = clients.hosts.awaited();
        let (mut previous_lease, mut useless) = (None, Vec::new());
        for (key, value) in entries {
            if *key == [key::LEASE] {
                previous_lease = xdr::from_bytes::<u64>(value).ok().map(Duration::from_millis);
                continue;
            }
            let Some(name) = Name::parse(&key) else { continue };
            match xdr::from_bytes::<ClientRecord>(value) {
                Ok(record) if record.may_reclaim_any() => {
                    clients.entry.insert(name, RecordEntry { record, state: AWAITED });
                }
                // The server does not wait for a client that may reclaim nothing.
                _ => useless.push(name),
            }
        }
        clients.awaited = clients.entry.len();
        clients.awaited_at_start = clients.awaited;
        if let Some(log) = &log {
            for name in useless {
                log.set(&name.key(), None);
            }
            if previous_lease != Some(lease) {
                let millis = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
                log.set(&[key::LEASE], Some(&xdr::to_bytes(&millis)));
            }
            log.push();
        }
        let longer_lease = lease.max(previous_lease.unwrap_or_default());
        Self {
            log,
            in_grace: AtomicBool::new(clients.awaited + clients.hosts_awaited > 0),
            grace_ends: now + longer_lease,
            grace_extension: longer_lease,
            latest_reclaim: AtomicU64::new(0),
            barrier: AtomicU64::new(0),
            clients: Mutex::new(clients),
        }
    }

    /// Returns the change that must be stable before any reply, or before a reply to `client`; `None` if all are.
    pub(crate) fn pending_change(&self, client: Option<&Client>) -> Option<u64> {
        let barrier = self.barrier.load(Acquire);
        let of_client = client.and_then(Client::record_change).unwrap_or(0);
        let wanted = barrier.max(of_client);
        (wanted > 0 && wanted > self.log.as_ref()?.stable()).then_some(wanted)
    }

    /// Waits until a change is stable. `thread` has the permitted uses of the calling thread.
    pub(crate) fn wait_durable(&self, number: u64, thread: Thread) -> Op<'_, ()> {
        self.log.as_ref().map_or_else(|| Op::ok(()), |log| log.reached(number, thread))
    }

    /// Writes all changes, including those for which no caller waits.
    pub(crate) fn push(&self) {
        self.log.iter().for_each(|log| log.push());
    }

    /// Returns whether a client may get an open or a delegation: it has its record, or there is room for one.
    pub(crate) fn has_room_for(&self, client: &Client) -> bool {
        client.record_change().is_some() || client.is_reclaiming() || self.has_room()
    }

    /// Returns whether there is room for more records.
    pub(crate) fn has_room(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.has_room())
    }

    /// Returns the condition of the log; `None` without a log.
    pub(crate) fn snapshot(&self) -> Option<RecordsSnapshot> {
        let log = self.log.as_ref()?;
        Some(RecordsSnapshot { is_written: log.is_written(), has_room: log.has_room() })
    }

    /// Records a client that got, or from now on may get, an open or a delegation. Its replies wait until the record is stable.
    pub(crate) fn note_holder(&self, client: &Client) {
        client.note_not_idle();
        // The counterpart in [`Self::forget_idle`] has the opposite order.
        fence(SeqCst);
        if client.record_change().is_none() && !client.is_reclaiming() && self.log.is_some() {
            self.note(client);
        }
    }

    /// Writes a client's record.
    fn note(&self, client: &Client) {
        let mut clients = self.clients.lock();
        // [`Self::forget`] searches under the same lock.
        if client.record_change().is_some() || client.is_removed() {
            return;
        }
        let Some(mut record) = ClientRecord::of(client) else { return };
        // It may have lost state while it had no record. The files are not known here.
        if client.revoked() > 0 {
            record.lose_all();
        }
        let name = Name::of(client);
        // Another client of this name may still reclaim. After the grace period there is no such record.
        if clients.entry.get(&name).is_some_and(RecordEntry::is_awaited) {
            return;
        }
        // The reply to the client waits for this change and has it written.
        let number = self.set(&name, Some(&record));
        clients.insert(name, RecordEntry { record, state: RecordState::Present(client.id()) });
        client.set_record_change(Some(number));
    }

    /// Removes a client's record, together with the client. Called after the client was [marked](Client::mark_removed) and
    /// before its state is released.
    pub(crate) fn forget(&self, client: &Client) {
        let mut clients = self.clients.lock();
        let name = Name::of(client);
        let Some(entry) = clients.entry.get(&name).filter(|entry| entry.is_of(client)) else { return };
        // A client that may still reclaim counts as a holder of the state that it has not reclaimed.
        let may_hold = client.has_state() || entry.is_awaited();
        clients.remove(&name);
        let number = self.write(&name, None);
        if may_hold {
            self.require_durable(number);
        }
        self.end_if_nobody_is_awaited(clients);
    }

    /// Notes that state of a client on a file is revoked.
    pub(crate) fn note_loss(&self, client: &Client, file: FileKey) {
        if self.log.is_none() {
            return;
        }
        let mut clients = self.clients.lock();
        let name = Name::of(client);
        let entry = clients.entry.get_mut(&name).filter(|entry| entry.is_of(client));
        // The record must not grow if the log is full.
        let lose = |entry: &mut RecordEntry| match self.has_room() {
            true => entry.record.lose(file),
            false => entry.record.lose_all(),
        };
        if let Some(entry) = entry
            && lose(entry)
        {
            self.require_durable(self.write(&name, Some(&entry.record)));
        }
    }

    /// Notes that a client acknowledged its losses on a file. §8.4.3: "both booleans in persistent storage can be reset".
    pub(crate) fn acknowledged(&self, client: &Client, file: FileKey) {
        let mut clients = self.clients.lock();
        let name = Name::of(client);
        if let Some(entry) = clients.entry.get_mut(&name)
            && entry.state == RecordState::Present(client.id())
            && entry.record.acknowledge_file(file, client.revoked() == 0)
        {
            self.write(&name, Some(&entry.record));
        }
    }

    /// Removes the record of a client that has held nothing for long, so that the server does not wait for it after a restart.
    pub(crate) fn forget_idle(&self, client: &Client) {
        let mut clients = self.clients.lock();
        let name = Name::of(client);
        let is_present = |entry: &RecordEntry| entry.state == RecordState::Present(client.id());
        if !clients.entry.get(&name).is_some_and(is_present) {
            return;
        }
        let number = client.record_change();
        client.set_record_change(None);
        // A client that gets state from now on sees that it has no record; one that got state before is seen below.
        fence(SeqCst);
        if client.has_state() || client.revoked() > 0 {
            client.set_record_change(number);
            return;
        }
        clients.remove(&name);
        self.write(&name, None);
    }

    /// Returns whether a reclaiming client may have held state on this file and not lost it.
    pub(crate) fn may_reclaim(&self, client: &Client, file: FileKey) -> bool {
        let clients = self.clients.lock();
        let entry = clients.entry.get(&Name::of(client)).filter(|entry| entry.is_of(client));
        entry.is_some_and(|entry| entry.record.may_reclaim(file))
    }

    /// Sets or removes a client's record and has it written soon. Returns the change's number, or zero without a log.
    fn write(&self, name: &Name, record: Option<&ClientRecord>) -> u64 {
        let number = self.set(name, record);
        self.push();
        number
    }

    /// As [`Self::write`], but the next wait for the change causes the writing.
    fn set(&self, name: &Name, record: Option<&ClientRecord>) -> u64 {
        let Some(log) = &self.log else { return 0 };
        let value = record.map(xdr::to_bytes);
        log.set(&name.key(), value.as_deref())
    }

    /// Makes all replies wait until a change is stable.
    fn require_durable(&self, number: u64) {
        self.barrier.fetch_max(number, AcqRel);
    }
}

impl Clients {
    fn insert(&mut self, name: Name, entry: RecordEntry) {
        if let Some(old) = self.entry.insert(name, entry) {
            self.awaited -= usize::from(old.is_awaited());
        }
    }

    /// Returns the clients that may still reclaim.
    fn reclaimers(&self, most: usize) -> Reclaimers {
        let awaited = self.entry.iter().filter(|(_, entry)| entry.is_awaited());
        Reclaimers::new(awaited.map(|(name, _)| name.owner()), most)
    }

    fn remove(&mut self, name: &Name) {
        if let Some(old) = self.entry.remove(name) {
            self.awaited -= usize::from(old.is_awaited());
        }
    }
}

impl RecordEntry {
    fn is_awaited(&self) -> bool {
        matches!(self.state, RecordState::Awaited { .. })
    }

    /// Returns whether this is the record of `client`, or of its incarnation before the restart.
    fn is_of(&self, client: &Client) -> bool {
        match self.state {
            RecordState::Present(id) => id == client.id(),
            RecordState::Awaited { .. } => {
                let is_same = |own: ClientRecord| self.record.same_incarnation(&own);
                // Between its last reclaim and [`Self::complete_reclaim`] neither flag may be missed.
                let is_back = client.is_reclaiming() || client.has_completed();
                is_back && ClientRecord::of(client).is_some_and(is_same)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
