//! A shard: some files with all their opens and locks, and the stateids that name these.
//!
//! Everything that one operation on a file touches is here under one lock. Entries live in a slab; files, clients and
//! owners name them by index, and each entry knows its places in the lists that name it, so that it leaves them in
//! constant time. How they find their way in and are found is here; how they leave is in [`ends`], and the lists are in
//! [`lists`].

mod audit;
mod by_owner;
mod ends;
mod lists;

use std::collections::HashSet;
use std::sync::Arc;

use smallvec::SmallVec;
use vfs::Pin;

use super::client::Client;
use super::file::{File, Numbered, keyed, numbered};
use super::file_key::FileKey;
use super::gauges::{Gauges, adjust, weight};
use super::recovery::Recovery;
use super::share::Modes;
use super::stateid::{Flaw, Generations, Place, Revocation, check_seqid};
use super::waiter::Waiter;
use super::wire::{ClientId, Stateid};
use crate::state::delegations::delegation::{DELEGATION_WEIGHT, Delegation};
use crate::state::delegations::local_change::Lookout;
use crate::state::locks::lock_queue::LockQueue;
use by_owner::ByOwner;
pub(crate) use by_owner::OpenKey;
pub(crate) use ends::Event;
use ends::{Phase, adjust_holding};
pub(crate) use lists::List;

/// An open, the locks of one lock-owner under one open, or a delegation.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) client: Arc<Client>,
    pub(crate) file: FileKey,
    pub(crate) seqid: u32,
    phase: Phase,
    pub(crate) kind: Kind,
    /// Its place in the client's list.
    at_client: u32,
}

impl Entry {
    /// What it counts for.
    fn weight(&self) -> i32 {
        let owner = match &self.kind {
            Kind::Open(open) => &open.owner,
            Kind::Lock(lock) => &lock.owner,
            Kind::Delegation(_) => return DELEGATION_WEIGHT as i32,
        };
        weight(owner) as i32
    }
}

#[derive(Debug)]
pub(crate) enum Kind {
    Open(Open),
    Lock(Lock),
    Delegation(Box<Delegation>),
}

#[derive(Debug)]
pub(crate) struct Open {
    /// The open-owner's bytes.
    pub(crate) owner: Arc<[u8]>,
    /// Who opened it last, as a number.
    pub(crate) opener: u64,
    pub(crate) modes: Modes,
    /// `None` once the open is revoked.
    pub(crate) pin: Option<Arc<dyn Pin>>,
    /// Lock stateids under it, those that are lost and not acknowledged among them.
    locks: List,
    /// Its place in the file's list.
    at_file: u32,
}

/// What an open is made of.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) opener: u64,
    pub(crate) modes: Modes,
    pub(crate) pin: Arc<dyn Pin>,
}

#[derive(Debug)]
pub(crate) struct Lock {
    /// The open under which it was made.
    pub(crate) open: u32,
    /// The lock-owner's bytes.
    pub(crate) owner: Arc<[u8]>,
    /// Its number in the file.
    pub(crate) owner_number: u32,
    /// Its place in the open's list; `None` where it is lost, and outlives the open.
    at_open: Option<u32>,
}

#[derive(Debug)]
struct Cell {
    generation: u64,
    entry: Option<Entry>,
    /// The last entry went with its client's record.
    is_left: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shard {
    number: usize,
    seed: u64,
    recovery: Arc<Recovery>,
    generations: Generations,
    cells: Vec<Cell>,
    free: Vec<u32>,
    pub(crate) files: Numbered<FileKey, File>,
    opens: ByOwner,
    /// Lock stateids by their open and their owner's number.
    locks: Numbered<(u32, u32), u32>,
    clients: Numbered<ClientId, List>,
    delegations: Numbered<(FileKey, ClientId), u32>,
    /// Operations that wait until a delegation of the file is back.
    pub(crate) waiting: Numbered<FileKey, Vec<Arc<Waiter>>>,
    /// Those who wait for locks.
    pub(crate) lock_queues: Numbered<FileKey, LockQueue>,
}

/// What has to wait until the shard's lock is given back ([`State::give_back`](crate::state::State)).
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// Closing a file takes a system call.
    pub(crate) pins: SmallVec<[Arc<dyn Pin>; 1]>,
    /// So does the end of a watch.
    pub(crate) lookouts: Vec<Lookout>,
    /// Files in which somebody waits for a lock that may be free now.
    pub(crate) unlocked: Vec<FileKey>,
}

impl Dropped {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Locks of a file may be free. Many end together: mostly it is the file of the last one.
    pub(crate) fn unlock(&mut self, file: FileKey) {
        if self.unlocked.last() != Some(&file) {
            self.unlocked.push(file);
        }
    }
}

impl Shard {
    /// `recovery` hears of what is taken away.
    pub(crate) fn new(number: usize, seed: u64, generations: Generations, recovery: Arc<Recovery>) -> Self {
        Self {
            number,
            seed,
            recovery,
            generations,
            cells: Vec::new(),
            free: Vec::new(),
            files: numbered(seed),
            opens: ByOwner::new(keyed(seed)),
            locks: numbered(seed),
            clients: numbered(seed),
            delegations: numbered(seed),
            waiting: numbered(seed),
            lock_queues: numbered(seed),
        }
    }

    /// The entry at an index that this shard has given out.
    pub(crate) fn entry(&self, index: u32) -> &Entry {
        self.cells[index as usize].entry.as_ref().expect("lists name living entries")
    }

    pub(crate) fn entry_mut(&mut self, index: u32) -> &mut Entry {
        self.cells[index as usize].entry.as_mut().expect("lists name living entries")
    }

    pub(crate) fn open_at(&self, index: u32) -> &Open {
        match &self.entry(index).kind {
            Kind::Open(open) => open,
            Kind::Lock(_) | Kind::Delegation(_) => unreachable!("the index names an open"),
        }
    }

    fn open_at_mut(&mut self, index: u32) -> &mut Open {
        match &mut self.entry_mut(index).kind {
            Kind::Open(open) => open,
            Kind::Lock(_) | Kind::Delegation(_) => unreachable!("the index names an open"),
        }
    }

    /// The entry that a stateid names, checked in the order of §8.2.4: table entry and generation, file, client, revocation.
    /// The kind and the seqid come after.
    pub(crate) fn find(&self, place: Place, client: &Client, file: Option<FileKey>) -> Result<u32, Flaw> {
        let cell = self.cells.get(place.index as usize).filter(|cell| cell.generation == place.generation);
        let entry = cell.and_then(|cell| cell.entry.as_ref()).ok_or(Flaw::Unknown)?;
        if file.is_some_and(|file| file != entry.file) {
            return Err(Flaw::OtherFile);
        }
        if entry.client.id() != client.id() {
            return Err(Flaw::OtherClient);
        }
        match entry.phase {
            Phase::Held => Ok(place.index),
            Phase::Revoked(why) => Err(Flaw::Revoked(why)),
            Phase::Freed => Err(Flaw::Unknown),
        }
    }

    /// [`Self::find`], and the seqid.
    pub(crate) fn find_present(
        &self,
        place: Place,
        client: &Client,
        file: Option<FileKey>,
        seqid: u32,
        slots: u32,
        is_kind: impl FnOnce(&Kind) -> bool,
    ) -> Result<u32, Flaw> {
        let index = self.find(place, client, file)?;
        let entry = self.entry(index);
        if !is_kind(&entry.kind) {
            return Err(Flaw::OtherKind);
        }
        check_seqid(seqid, entry.seqid, slots, client.sessionless().is_some())?;
        Ok(index)
    }

    /// The stateid of an entry as it is now.
    pub(crate) fn stateid(&self, index: u32, boot: u16) -> Stateid {
        let other = self.place(index).other(boot);
        Stateid { seqid: self.entry(index).seqid, other }
    }

    /// Where an entry is.
    pub(crate) fn place(&self, index: u32) -> Place {
        Place { shard: self.number, index, generation: self.cells[index as usize].generation }
    }

    /// Whether a place still has the delegation that it had, in effect.
    pub(crate) fn is_delegation(&self, place: Place) -> bool {
        let cell = self.cells.get(place.index as usize).filter(|cell| cell.generation == place.generation);
        let entry = cell.and_then(|cell| cell.entry.as_ref());
        entry.is_some_and(|entry| entry.phase == Phase::Held && matches!(entry.kind, Kind::Delegation(_)))
    }

    /// Adds the clients that hold something here which outlives a restart of the server. RFC 8881 §10.9.4: "no provision is made for
    /// reclaiming directory delegations in the event of client or server restart".
    pub(crate) fn add_holders(&self, holders: &mut HashSet<ClientId>) {
        let entries = self.cells.iter().filter_map(|cell| cell.entry.as_ref());
        let held = entries.filter(|entry| entry.phase == Phase::Held).filter(|entry| match &entry.kind {
            Kind::Open(_) | Kind::Lock(_) => true,
            Kind::Delegation(delegation) => !delegation.kind.is_directory(),
        });
        holders.extend(held.map(|entry| entry.client.id()));
    }

    /// The owner's open of a file.
    pub(crate) fn find_open(&self, key: OpenKey<'_>) -> Option<u32> {
        self.opens.get(&self.cells, key)
    }

    /// Adds an open; its share reservation must not conflict.
    pub(crate) fn add_open(
        &mut self,
        client: &Arc<Client>,
        file: FileKey,
        opened: Opened,
        gauges: &Gauges,
    ) -> u32 {
        let Opened { owner, opener, modes, pin } = opened;
        let open = Open { owner, opener, modes, pin: Some(pin), locks: List::new(), at_file: 0 };
        let index = self.add(client, file, Kind::Open(open), gauges);
        self.enter_file(file, index, &modes);
        self.opens.insert(&self.cells, index);
        gauges.open_came(client);
        adjust(&gauges.denying, i64::from(modes.deny() != 0));
        index
    }

    /// Adds a delegation; nothing may conflict with it.
    pub(crate) fn add_delegation(
        &mut self,
        client: &Arc<Client>,
        file: FileKey,
        delegation: Delegation,
        gauges: &Gauges,
    ) -> u32 {
        let seed = self.seed ^ file.fileid;
        let record = self.files.entry(file).or_insert_with(|| File::new(seed));
        let (kind, at_file) = (delegation.kind, record.delegations.len() as u32);
        adjust(&gauges.lookouts, i64::from(delegation.lookout.is_some()));
        let mut delegation = Box::new(delegation);
        delegation.at_file = at_file;
        let index = self.add(client, file, Kind::Delegation(delegation), gauges);
        self.file_mut(file).delegations.push(index);
        self.delegations.insert((file, client.id()), index);
        gauges.delegation_came(client, kind);
        index
    }

    /// The client's delegation of a file.
    pub(crate) fn find_delegation(&self, file: FileKey, client: ClientId) -> Option<u32> {
        self.delegations.get(&(file, client)).copied()
    }

    pub(crate) fn delegation_at(&self, index: u32) -> &Delegation {
        match &self.entry(index).kind {
            Kind::Delegation(delegation) => delegation,
            Kind::Open(_) | Kind::Lock(_) => unreachable!("the index names a delegation"),
        }
    }

    pub(crate) fn delegation_at_mut(&mut self, index: u32) -> &mut Delegation {
        match &mut self.entry_mut(index).kind {
            Kind::Delegation(delegation) => delegation,
            Kind::Open(_) | Kind::Lock(_) => unreachable!("the index names a delegation"),
        }
    }

    /// Changes an open's share reservation.
    pub(crate) fn set_modes(&mut self, index: u32, modes: Modes, gauges: &Gauges, dropped: &mut Dropped) {
        let file = self.entry(index).file;
        let open = self.open_at_mut(index);
        let old = std::mem::replace(&mut open.modes, modes);
        if old.bits() != modes.bits() {
            let at_file = open.at_file;
            self.take_from_file(file, at_file);
            self.enter_file(file, index, &modes);
            self.leave_queue_of_modes(file, (index, modes), gauges, dropped);
        }
        adjust(&gauges.denying, i64::from(modes.deny() != 0) - i64::from(old.deny() != 0));
    }

    /// The lock stateid of a lock-owner under an open, made where there is none yet.
    pub(crate) fn lock_entry(
        &mut self,
        open: u32,
        owner: &Arc<[u8]>,
        client: &Arc<Client>,
        gauges: &Gauges,
    ) -> u32 {
        let file = self.entry(open).file;
        let owner = Arc::clone(owner);
        let owner_number = self.file_mut(file).owner_number(client.id(), &owner);
        if let Some(index) = self.locks.get(&(open, owner_number)) {
            return *index;
        }
        self.file_mut(file).count_owner(client.id(), &owner, 1);
        let at_open = self.open_at(open).locks.len() as u32;
        let lock = Lock { open, owner, owner_number, at_open: Some(at_open) };
        let index = self.add(client, file, Kind::Lock(lock), gauges);
        // Its first seqid is 1, given by the LOCK that makes it.
        self.entry_mut(index).seqid = 0;
        self.open_at_mut(open).locks.push(index);
        self.locks.insert((open, owner_number), index);
        index
    }

    /// The entry of a stateid that is known, whoever asks and whatever became of it.
    ///
    /// # Errors
    /// Whether it went with its client, as far as that is still known.
    pub(crate) fn named(&self, place: Place) -> Result<&Entry, Flaw> {
        let cell = self.cells.get(place.index as usize).filter(|cell| cell.generation == place.generation);
        let cell = cell.ok_or(Flaw::Unknown)?;
        let flaw = if cell.is_left { Flaw::Revoked(Revocation::Expired) } else { Flaw::Unknown };
        cell.entry.as_ref().ok_or(flaw)
    }

    /// Whether ranges are locked under a lock stateid.
    pub(crate) fn holds_ranges(&self, index: u32) -> bool {
        let entry = self.entry(index);
        match (&entry.kind, self.files.get(&entry.file)) {
            (Kind::Lock(lock), Some(file)) => file.ranges.holds(lock.owner_number, index),
            _ => false,
        }
    }

    /// The number of a lock-owner in a file, where it has locks there.
    pub(crate) fn lock_owner(&self, file: FileKey, client: ClientId, owner: Arc<[u8]>) -> Option<u32> {
        self.files.get(&file)?.known_owner(client, owner)
    }

    fn add(&mut self, client: &Arc<Client>, file: FileKey, kind: Kind, gauges: &Gauges) -> u32 {
        let list = self.clients.entry(client.id()).or_default();
        let entry = Entry {
            client: Arc::clone(client),
            file,
            seqid: 1,
            phase: Phase::Held,
            kind,
            at_client: list.len() as u32,
        };
        adjust_holding(client, None, 1);
        gauges.charge(client, entry.weight());
        let generation = self.generations.next();
        let index = match self.free.pop() {
            Some(index) => {
                let cell = &mut self.cells[index as usize];
                cell.generation = generation;
                cell.entry = Some(entry);
                index
            }
            None => {
                self.cells.push(Cell { generation, entry: Some(entry), is_left: false });
                (self.cells.len() - 1) as u32
            }
        };
        list.push(index);
        index
    }

    /// Whether lock stateids under an open are lost and not acknowledged.
    pub(crate) fn has_lost_locks(&self, open: u32) -> bool {
        let mut locks = self.open_at(open).locks.iter();
        locks.any(|lock| matches!(self.entry(*lock).phase, Phase::Revoked(_)))
    }

    /// A client knows of something that it lost of a file; once that is all of it, it may reclaim the rest.
    pub(crate) fn acknowledged(&self, client: &Client, file: FileKey) {
        if !self.has_lost(client.id(), file) {
            self.recovery.acknowledged(client, file);
        }
    }

    /// Whether a client has lost something of a file and not acknowledged that.
    fn has_lost(&self, client: ClientId, file: FileKey) -> bool {
        let mut entries = self.clients.get(&client).into_iter().flatten().map(|index| self.entry(*index));
        entries.any(|entry| entry.file == file && matches!(entry.phase, Phase::Revoked(_)))
    }

    /// Whether nothing is left.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.opens.len() == 0
            && self.locks.is_empty()
            && self.delegations.is_empty()
            && self.waiting.is_empty()
            && self.lock_queues.is_empty()
            && self.clients.is_empty()
            && self.free.len() == self.cells.len()
    }

    pub(crate) fn file_mut(&mut self, key: FileKey) -> &mut File {
        self.files.get_mut(&key).expect("an entry's file is there while the entry is held")
    }
}
