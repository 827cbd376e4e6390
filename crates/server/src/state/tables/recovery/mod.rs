//! What the next server must know of clients, so that they reclaim after a restart what they held, and nothing else (RFC 8881
//! §8.4.2 to §8.4.3, RFC 7530 §9.6).
//!
//! Criteria, before the mechanism:
//! - Who held state when the server ended, and lost none of it, reclaims it: after a kill and after a power failure.
//! - What was taken from a client is never reclaimed by it, nor anything by a client that was away while a grace period ended
//!   (the edge conditions of §8.4.3): others may have had it since.
//! - A client that has held nothing for long makes nobody wait, and behind an orderly stop neither does one that holds nothing then.
//! - What a client holds is not written down; a client is, once, and no request waits for that but its RECLAIM_COMPLETE, or
//!   its first OPEN where it has held nothing for long, or is of version 4.0.
//!
//! **Records.** A client of version 4.1 has a record from its RECLAIM_COMPLETE on, because from there on it may hold state:
//! §8.4.2.1 lets the period last for "all clients that are known to possibly have had locks". So a mount, which takes many
//! requests, waits for the disk, and not the first program that opens a file. One of version 4.0 has its record from its first
//! open or delegation on. The record goes with the client, or when that has held nothing for a lease, and comes again with
//! the next open. An orderly stop removes the records of all clients that hold nothing when the last call has been answered
//! ([`stop`]); after any other end, all who may have held something may reclaim.
//!
//! A record says which incarnation may hold state, whose it is, and of which files it has lost something ([`record`]); files
//! are told apart so that one delegation that was revoked does not cost all else. A client of version 4.1 whose record is from
//! before the restart has it anew with RECLAIM_COMPLETE; when the grace period ends, all others lose theirs.
//!
//! **Answers wait, state does not.** Records are written ([`StateLog::set`]) where the state changes, under its locks. What
//! must not be seen before it is stable:
//! - that a client holds something: the answers to that client ([`Recovery::pending_change`] with its client);
//! - that something was taken from a client, or that it may not reclaim any more: all answers, of every version, because
//!   anyone may have got what was taken. That is seldom: a lease that was over, a delegation that did not come back, an
//!   administrator, the end of a grace period. Changes of files wait as well, before they are made: they would be there after
//!   a crash, answered or not ([`wait_durable`](crate::files::durable::wait_durable)).
//!
//! **No room.** Where the log has no room for more records, a client without one gets nothing that it could reclaim: OPEN is answered
//! DELAY, and nothing is delegated. RECLAIM_COMPLETE is answered without a record, as for a client that has held nothing for long.
//!
//! **Version 4.0** has no RECLAIM_COMPLETE. A client of it has done with reclaims when it reads or writes by what it has
//! reclaimed, or asks for new state [`ASKS`] times in a row: clients hold their programs up until they have reclaimed all
//! (Linux drains its slots, FreeBSD takes a lock), so that nobody else need wait for the period's end. Where the period ends
//! before, a client that has said anything but reclaims since its last one keeps its record.

mod grace;
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
pub use reclaimers::Reclaimers;
pub(crate) use record::Recorded;
use record::{ClientRecord, Name};

/// How often in a row a client of version 4.0 asks for new state before it is taken to reclaim nothing more. More than once,
/// because threads of a client that knows no better may ask while another one reclaims.
const ASKS: u8 = 3;

/// The records of clients, and the grace period.
#[derive(Debug)]
pub(crate) struct Recovery {
    log: Option<Arc<dyn StateLog>>,
    /// Whether the grace period runs; changed under the lock of [`Self::clients`].
    in_grace: AtomicBool,
    /// §8.4.2.1: "a grace period at least as long as the lease period for the previous server instantiation".
    grace_ends: Duration,
    /// How much later it ends at most, where clients still reclaim.
    grace_extension: Duration,
    /// When one has last; in nanoseconds, zero where none has.
    latest_reclaim: AtomicU64,
    /// The change that has to be stable before anything is answered; zero where there is none.
    barrier: AtomicU64,
    clients: Mutex<Clients>,
}

#[derive(Debug, Default)]
struct Clients {
    entry: HashMap<Name, RecordEntry>,
    /// How many of these are from before the start.
    awaited: usize,
    /// How many there were at the start.
    awaited_at_start: usize,
}

#[derive(Debug)]
struct RecordEntry {
    record: ClientRecord,
    state: RecordState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordState {
    /// From before the start, and it may still reclaim.
    Awaited {
        /// Of version 4.0: how often it asked for new state since its last reclaim.
        asked: u8,
        /// Of version 4.0: under which ID it has said anything but a reclaim since its last one.
        spoke: Option<ClientId>,
    },
    /// The record is of this client.
    Present(ClientId),
}

const AWAITED: RecordState = RecordState::Awaited { asked: 0, spoke: None };

/// What a client of version 4.0 says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum V40Request {
    /// It reclaims.
    Reclaims,
    /// It asks for an open or a lock.
    Asks,
    /// It renews its lease.
    Renews,
    /// It reads or writes by what it has reclaimed.
    Uses,
}

/// What a server begins with: where it writes, what is written there, and when that was read.
#[derive(Debug, Default)]
pub struct Records {
    /// Where; nobody reclaims anything after this server where there is none.
    pub log: Option<Arc<dyn StateLog>>,
    /// All keys with their values.
    pub entries: Vec<(Bytes, Bytes)>,
    /// By the time of day.
    pub read_at: Timestamp,
}

/// How the log stands that clients reclaim by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordsSnapshot {
    /// Whether changes reach stable storage.
    pub is_written: bool,
    /// Whether there is room for new clients: where there is none, their opens are answered DELAY.
    pub has_room: bool,
}

impl Recovery {
    pub(crate) fn new(records: Records, lease: Duration, now: Duration) -> Self {
        let Records { log, entries, .. } = records;
        let mut clients = Clients::default();
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
                // Whoever may reclaim nothing is not waited for.
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
            in_grace: AtomicBool::new(clients.awaited > 0),
            grace_ends: now + longer_lease,
            grace_extension: longer_lease,
            latest_reclaim: AtomicU64::new(0),
            barrier: AtomicU64::new(0),
            clients: Mutex::new(clients),
        }
    }

    /// The change that must be stable before anything is answered, or anything to `client`; `None` where all is.
    pub(crate) fn pending_change(&self, client: Option<&Client>) -> Option<u64> {
        let barrier = self.barrier.load(Acquire);
        let of_client = client.and_then(Client::record_change).unwrap_or(0);
        let wanted = barrier.max(of_client);
        (wanted > 0 && wanted > self.log.as_ref()?.stable()).then_some(wanted)
    }

    /// Ready when a change is stable; `thread` is what the calling thread may be used for.
    pub(crate) fn wait_durable(&self, number: u64, thread: Thread) -> Op<'_, ()> {
        self.log.as_ref().map_or_else(|| Op::ok(()), |log| log.reached(number, thread))
    }

    /// Has all that was changed written, be it that nobody waits for it.
    pub(crate) fn push(&self) {
        self.log.iter().for_each(|log| log.push());
    }

    /// Whether a client may get an open or a delegation: it has its record, or there is room for one.
    pub(crate) fn has_room_for(&self, client: &Client) -> bool {
        client.record_change().is_some() || client.is_reclaiming() || self.has_room()
    }

    /// Whether there is room for more records.
    pub(crate) fn has_room(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.has_room())
    }

    /// How things stand; none where there is no log.
    pub(crate) fn snapshot(&self) -> Option<RecordsSnapshot> {
        let log = self.log.as_ref()?;
        Some(RecordsSnapshot { is_written: log.is_written(), has_room: log.has_room() })
    }

    /// A client has got an open or a delegation, or may from now on: it hears of that when its record is stable.
    pub(crate) fn note_holder(&self, client: &Client) {
        client.note_not_idle();
        // [`Self::forget_idle`] looks in the other order.
        fence(SeqCst);
        if client.record_change().is_none() && !client.is_reclaiming() && self.log.is_some() {
            self.note(client);
        }
    }

    /// Writes a client's record.
    fn note(&self, client: &Client) {
        let mut clients = self.clients.lock();
        // Under the lock by which [`Self::forget`] looks for it.
        if client.record_change().is_some() || client.is_removed() {
            return;
        }
        let Some(mut record) = ClientRecord::of(client) else { return };
        // It may have lost something while it had no record: of which files is not known here.
        if client.revoked() > 0 {
            record.lose_all();
        }
        let name = Name::of(client);
        // Somebody else of that name may still come for what is his. When the period is over there is no such record.
        if clients.entry.get(&name).is_some_and(RecordEntry::is_awaited) {
            return;
        }
        // Its answer waits for that, and has it written then.
        let number = self.set(&name, Some(&record));
        clients.insert(name, RecordEntry { record, state: RecordState::Present(client.id()) });
        client.set_record_change(Some(number));
    }

    /// A client goes, with all that it holds; to be called when it is [marked](Client::mark_removed), and before anybody else may
    /// have what it held.
    pub(crate) fn forget(&self, client: &Client) {
        let mut clients = self.clients.lock();
        let name = Name::of(client);
        let Some(entry) = clients.entry.get(&name).filter(|entry| entry.is_of(client)) else { return };
        // Who is awaited holds what it has not reclaimed yet.
        let may_hold = client.has_state() || entry.is_awaited();
        clients.remove(&name);
        let number = self.write(&name, None);
        if may_hold {
            self.require_durable(number);
        }
        self.end_if_nobody_is_awaited(clients);
    }

    /// Something that a client holds of a file is taken away.
    pub(crate) fn note_loss(&self, client: &Client, file: FileKey) {
        if self.log.is_none() {
            return;
        }
        let mut clients = self.clients.lock();
        let name = Name::of(client);
        let entry = clients.entry.get_mut(&name).filter(|entry| entry.is_of(client));
        // Without a list of files the record does not grow.
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

    /// A client has acknowledged all that it lost of a file: §8.4.3, "both booleans in persistent storage can be reset".
    pub(crate) fn acknowledged(&self, client: &Client, file: FileKey) {
        let mut clients = self.clients.lock();
        let name = Name::of(client);
        if let Some(entry) = clients.entry.get_mut(&name)
            && entry.state == RecordState::Present(client.id())
            && entry.record.find(file, client.revoked() == 0)
        {
            self.write(&name, Some(&entry.record));
        }
    }

    /// A client that has had nothing for long has no record either: nobody shall wait for it after a restart.
    pub(crate) fn forget_idle(&self, client: &Client) {
        let mut clients = self.clients.lock();
        let name = Name::of(client);
        let is_present = |entry: &RecordEntry| entry.state == RecordState::Present(client.id());
        if !clients.entry.get(&name).is_some_and(is_present) {
            return;
        }
        let number = client.record_change();
        client.set_record_change(None);
        // Whoever gets something from here on finds that it has no record, and whoever got it before is seen here.
        fence(SeqCst);
        if client.has_state() || client.revoked() > 0 {
            client.set_record_change(number);
            return;
        }
        clients.remove(&name);
        self.write(&name, None);
    }

    /// Whether a client that reclaims may have held something of a file, and still.
    pub(crate) fn may_reclaim(&self, client: &Client, file: FileKey) -> bool {
        let clients = self.clients.lock();
        let entry = clients.entry.get(&Name::of(client)).filter(|entry| entry.is_of(client));
        entry.is_some_and(|entry| entry.record.may_reclaim(file))
    }

    /// Sets or takes away a client's record, which is written soon; the change's number, zero where nothing is.
    fn write(&self, name: &Name, record: Option<&ClientRecord>) -> u64 {
        let number = self.set(name, record);
        self.push();
        number
    }

    /// The same, to be written when somebody waits for it.
    fn set(&self, name: &Name, record: Option<&ClientRecord>) -> u64 {
        let Some(log) = &self.log else { return 0 };
        let value = record.map(xdr::to_bytes);
        log.set(&name.key(), value.as_deref())
    }

    /// Nothing is answered before a change is stable.
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

    /// Those that may still reclaim what they held before the start.
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

    /// Whether it is the record of this client: made by it, or of its incarnation before the restart.
    fn is_of(&self, client: &Client) -> bool {
        match self.state {
            RecordState::Present(id) => id == client.id(),
            RecordState::Awaited { .. } => {
                let is_same = |own: ClientRecord| self.record.same_incarnation(&own);
                // Between its last reclaim and [`Self::complete_reclaim`] it is the same client still.
                let is_back = client.is_reclaiming() || client.has_completed();
                is_back && ClientRecord::of(client).is_some_and(is_same)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
