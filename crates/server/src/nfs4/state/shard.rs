//! A shard: some files with all their opens and locks, and the stateids that name these.
//!
//! Everything that one operation on a file touches is here under one lock. Entries live in a slab; files, clients and
//! owners name them by index, and each entry knows its places in the lists that name it, so that it leaves them in
//! constant time.

mod audit;

use std::sync::Arc;

use vfs::Pin;

use super::client::Client;
use super::delegation::{DELEGATION_WEIGHT, Delegation, DelegationKind};
use super::file::{File, Map, Numbered, map, numbered};
use super::gauges::{Gauges, adjust, weight};
use super::lock_queue::LockQueue;
use super::phase;
use super::recovery::Recovery;
use super::share::Modes;
use super::stateid::{Flaw, Place, Revocation, check_seqid};
use super::transitions::{Row, step};
use super::waiter::Waiter;
use super::wire::{ClientId, Stateid};

/// Names a file among all exports, whichever handle it was reached by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The export's `fsid`.
    pub fsid: (u64, u64),
    /// Inode number. It does not come back while the file is open: the open's pin keeps it.
    pub fileid: u64,
}

/// Where an open or a lock stateid stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// In effect.
    Held,
    /// Lost; the stateid is known until the client has acknowledged the loss.
    Revoked(Revocation),
    /// The stateid is unknown.
    Freed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// CLOSE, or FREE_STATEID of a lock stateid without locks.
    Close,
    /// Another client's request conflicts, and the lease has expired.
    Conflict,
    /// A recalled delegation did not come back in time.
    Unreturned,
    /// The administrator takes it.
    Take,
    /// FREE_STATEID of what is lost.
    Acknowledge,
    /// The client's record goes.
    Leave,
}

pub(super) const TRANSITIONS: &[Row<Phase, Event>] = &[
    (Phase::Held, Event::Close, Phase::Freed),
    (Phase::Held, Event::Conflict, Phase::Revoked(Revocation::Expired)),
    (Phase::Held, Event::Take, Phase::Revoked(Revocation::Administrator)),
    (Phase::Held, Event::Unreturned, Phase::Revoked(Revocation::Unreturned)),
    (Phase::Held, Event::Leave, Phase::Freed),
    (Phase::Revoked(Revocation::Expired), Event::Acknowledge, Phase::Freed),
    (Phase::Revoked(Revocation::Administrator), Event::Acknowledge, Phase::Freed),
    (Phase::Revoked(Revocation::Expired), Event::Leave, Phase::Freed),
    (Phase::Revoked(Revocation::Administrator), Event::Leave, Phase::Freed),
    (Phase::Revoked(Revocation::Unreturned), Event::Acknowledge, Phase::Freed),
    (Phase::Revoked(Revocation::Unreturned), Event::Leave, Phase::Freed),
];

/// An open, the locks of one lock-owner under one open, or a delegation.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) client: Arc<Client>,
    pub(super) file: FileKey,
    pub(super) seqid: u32,
    phase: Phase,
    pub(super) kind: Kind,
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
pub(super) enum Kind {
    Open(Open),
    Lock(Lock),
    Delegation(Box<Delegation>),
}

#[derive(Debug)]
pub(super) struct Open {
    /// The open-owner's bytes.
    pub(super) owner: Arc<[u8]>,
    /// Who opened it last, as a number.
    pub(super) opener: u64,
    pub(super) modes: Modes,
    /// `None` once the open is revoked.
    pub(super) pin: Option<Arc<dyn Pin>>,
    /// Lock stateids under it.
    locks: Vec<u32>,
    /// Its place in the file's list.
    at_file: u32,
}

/// What an open is made of.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) owner: Arc<[u8]>,
    pub(super) opener: u64,
    pub(super) modes: Modes,
    pub(super) pin: Arc<dyn Pin>,
}

#[derive(Debug)]
pub(super) struct Lock {
    /// The open under which it was made.
    pub(super) open: u32,
    /// The lock-owner's bytes.
    pub(super) owner: Arc<[u8]>,
    /// Its number in the file.
    pub(super) owner_number: u32,
    /// Its place in the open's list.
    at_open: u32,
}

#[derive(Debug)]
struct Cell {
    generation: u32,
    entry: Option<Entry>,
    /// The last entry went with its client's record.
    is_left: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shard {
    number: usize,
    seed: u64,
    recovery: Arc<Recovery>,
    cells: Vec<Cell>,
    free: Vec<u32>,
    pub(super) files: Numbered<FileKey, File>,
    opens: Map<(FileKey, ClientId, Arc<[u8]>), u32>,
    /// Lock stateids by their open and their owner's number.
    locks: Numbered<(u32, u32), u32>,
    clients: Numbered<ClientId, Vec<u32>>,
    delegations: Numbered<(FileKey, ClientId), u32>,
    /// Operations that wait until a delegation of the file is back.
    pub(super) waiting: Numbered<FileKey, Vec<Arc<Waiter>>>,
    /// Those who wait for locks.
    pub(super) lock_queues: Numbered<FileKey, LockQueue>,
}

/// What has to wait until the shard's lock is given back ([`State::give_back`](super::State)).
#[derive(Debug, Default)]
pub(super) struct Dropped {
    /// Closing a file takes a system call.
    pub(super) pins: Vec<Arc<dyn Pin>>,
    /// Files in which somebody waits for a lock that may be free now.
    pub(super) unlocked: Vec<FileKey>,
}

impl Dropped {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Locks of a file may be free. Many end together: mostly it is the file of the last one.
    pub(super) fn unlock(&mut self, file: FileKey) {
        if self.unlocked.last() != Some(&file) {
            self.unlocked.push(file);
        }
    }
}

impl Shard {
    /// `recovery` hears of what is taken away.
    pub(super) fn new(number: usize, seed: u64, recovery: Arc<Recovery>) -> Self {
        Self {
            number,
            seed,
            recovery,
            cells: Vec::new(),
            free: Vec::new(),
            files: numbered(seed),
            opens: map(seed),
            locks: numbered(seed),
            clients: numbered(seed),
            delegations: numbered(seed),
            waiting: numbered(seed),
            lock_queues: numbered(seed),
        }
    }

    /// The entry at an index that this shard has given out.
    pub(super) fn entry(&self, index: u32) -> &Entry {
        self.cells[index as usize].entry.as_ref().expect("lists name living entries")
    }

    pub(super) fn entry_mut(&mut self, index: u32) -> &mut Entry {
        self.cells[index as usize].entry.as_mut().expect("lists name living entries")
    }

    pub(super) fn open_at(&self, index: u32) -> &Open {
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
    pub(super) fn find(&self, place: Place, client: &Client, file: Option<FileKey>) -> Result<u32, Flaw> {
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
    pub(super) fn find_present(
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
    pub(super) fn stateid(&self, index: u32, boot: u32) -> Stateid {
        let other = self.place(index).other(boot);
        Stateid { seqid: self.entry(index).seqid, other }
    }

    /// Where an entry is.
    pub(super) fn place(&self, index: u32) -> Place {
        Place { shard: self.number, index, generation: self.cells[index as usize].generation }
    }

    /// Whether a place still has the delegation that it had, in effect.
    pub(super) fn is_delegation(&self, place: Place) -> bool {
        let cell = self.cells.get(place.index as usize).filter(|cell| cell.generation == place.generation);
        let entry = cell.and_then(|cell| cell.entry.as_ref());
        entry.is_some_and(|entry| entry.phase == Phase::Held && matches!(entry.kind, Kind::Delegation(_)))
    }

    /// The owner's open of a file.
    pub(super) fn find_open(&self, key: &(FileKey, ClientId, Arc<[u8]>)) -> Option<u32> {
        self.opens.get(key).copied()
    }

    /// Adds an open; its share reservation must not conflict.
    pub(super) fn add_open(
        &mut self,
        client: &Arc<Client>,
        file: FileKey,
        opened: Opened,
        gauges: &Gauges,
    ) -> u32 {
        let Opened { owner, opener, modes, pin } = opened;
        let key = (file, client.id(), Arc::clone(&owner));
        let open = Open { owner, opener, modes, pin: Some(pin), locks: Vec::new(), at_file: 0 };
        let index = self.add(client, file, Kind::Open(open), gauges);
        self.enter_file(file, index, &modes);
        self.opens.insert(key, index);
        gauges.open_came(client);
        adjust(&gauges.denying, i64::from(modes.deny() != 0));
        index
    }

    /// Adds a delegation; nothing may conflict with it.
    pub(super) fn add_delegation(
        &mut self,
        client: &Arc<Client>,
        file: FileKey,
        delegation: Delegation,
        gauges: &Gauges,
    ) -> u32 {
        let seed = self.seed ^ file.fileid;
        let record = self.files.entry(file).or_insert_with(|| File::new(seed));
        let (kind, at_file) = (delegation.kind, record.delegations.len() as u32);
        let mut delegation = Box::new(delegation);
        delegation.at_file = at_file;
        let index = self.add(client, file, Kind::Delegation(delegation), gauges);
        self.file_mut(file).delegations.push(index);
        self.delegations.insert((file, client.id()), index);
        gauges.delegation_came(client, kind);
        index
    }

    /// The client's delegation of a file.
    pub(super) fn find_delegation(&self, file: FileKey, client: ClientId) -> Option<u32> {
        self.delegations.get(&(file, client)).copied()
    }

    pub(super) fn delegation_at(&self, index: u32) -> &Delegation {
        match &self.entry(index).kind {
            Kind::Delegation(delegation) => delegation,
            Kind::Open(_) | Kind::Lock(_) => unreachable!("the index names a delegation"),
        }
    }

    pub(super) fn delegation_at_mut(&mut self, index: u32) -> &mut Delegation {
        match &mut self.entry_mut(index).kind {
            Kind::Delegation(delegation) => delegation,
            Kind::Open(_) | Kind::Lock(_) => unreachable!("the index names a delegation"),
        }
    }

    /// Changes an open's share reservation.
    pub(super) fn set_modes(&mut self, index: u32, modes: Modes, gauges: &Gauges) {
        let file = self.entry(index).file;
        let open = self.open_at_mut(index);
        let old = std::mem::replace(&mut open.modes, modes);
        if old.bits() != modes.bits() {
            let at_file = open.at_file;
            self.take_from_file(file, at_file);
            self.enter_file(file, index, &modes);
        }
        adjust(&gauges.denying, i64::from(modes.deny() != 0) - i64::from(old.deny() != 0));
    }

    /// The lock stateid of a lock-owner under an open, made where there is none yet.
    pub(super) fn lock_entry(
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
        let lock = Lock { open, owner, owner_number, at_open };
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
    pub(super) fn named(&self, place: Place) -> Result<&Entry, Flaw> {
        let cell = self.cells.get(place.index as usize).filter(|cell| cell.generation == place.generation);
        let cell = cell.ok_or(Flaw::Unknown)?;
        let flaw = if cell.is_left { Flaw::Revoked(Revocation::Expired) } else { Flaw::Unknown };
        cell.entry.as_ref().ok_or(flaw)
    }

    /// Whether ranges are locked under a lock stateid.
    pub(super) fn holds_ranges(&self, index: u32) -> bool {
        let entry = self.entry(index);
        match (&entry.kind, self.files.get(&entry.file)) {
            (Kind::Lock(lock), Some(file)) => file.ranges.holds(lock.owner_number, index),
            _ => false,
        }
    }

    /// The number of a lock-owner in a file, where it has locks there.
    pub(super) fn lock_owner(&self, file: FileKey, client: ClientId, owner: Arc<[u8]>) -> Option<u32> {
        self.files.get(&file)?.known_owner(client, owner)
    }

    /// Ends what an entry is in effect for, and frees or keeps its stateid as the table says. An open takes its lock
    /// stateids along: §8.4.3, "it must revoke all locks associated with a given stateid".
    pub(super) fn end(&mut self, index: u32, event: Event, gauges: &Gauges, dropped: &mut Dropped) {
        while let Kind::Open(open) = &self.entry(index).kind
            && let Some(lock) = open.locks.last().copied()
        {
            self.end_one(lock, event, gauges, dropped);
        }
        self.end_one(index, event, gauges, dropped);
    }

    fn end_one(&mut self, index: u32, event: Event, gauges: &Gauges, dropped: &mut Dropped) {
        let entry = self.entry_mut(index);
        let before = entry.phase;
        entry.phase = step(TRANSITIONS, before, event).expect("state ends as its table says");
        if let Kind::Delegation(delegation) = &mut entry.kind {
            delegation.turn(phase::Event::of_end(event));
        }
        let after = entry.phase;
        match before {
            Phase::Held => {
                adjust_holding(&entry.client, None, -1);
                self.release(index, gauges, dropped);
            }
            Phase::Revoked(why) => {
                adjust_lost(entry, why, -1);
                adjust(&gauges.revoked, -1);
            }
            Phase::Freed => {}
        }
        match after {
            Phase::Revoked(why) => {
                let entry = self.entry(index);
                adjust_lost(entry, why, 1);
                adjust(&gauges.revoked, 1);
                self.recovery.takes_away(&entry.client, entry.file);
            }
            _ => self.free(index, gauges, event == Event::Leave),
        }
    }

    /// Takes an entry out of its file: share reservation, ranges, pin.
    fn release(&mut self, index: u32, gauges: &Gauges, dropped: &mut Dropped) {
        let entry = self.entry_mut(index);
        let (file, client) = (entry.file, entry.client.id());
        match &mut entry.kind {
            Kind::Open(open) => {
                let (modes, at_file, owner) = (open.modes, open.at_file, Arc::clone(&open.owner));
                dropped.pins.extend(open.pin.take());
                self.opens.remove(&(file, client, owner));
                self.leave_queue_of_open(file, index, gauges, dropped);
                self.take_from_file(file, at_file);
                self.forget_unused(file);
                gauges.open_left(&self.entry(index).client);
                adjust(&gauges.denying, -i64::from(modes.deny() != 0));
            }
            Kind::Lock(lock) => {
                let (open, number, owner) = (lock.open, lock.owner_number, Arc::clone(&lock.owner));
                let at_open = lock.at_open;
                self.locks.remove(&(open, number));
                self.leave_open(open, at_open);
                let (key, file) = (file, self.file_mut(file));
                let before = file.ranges.count();
                file.ranges.unlock_holder(number, index);
                let after = file.ranges.count();
                file.count_owner(client, &owner, -1);
                gauges.locks_changed(&self.entry(index).client, before, after);
                self.leave_queue_of_lock(key, (open, &owner), gauges, dropped);
            }
            Kind::Delegation(delegation) => {
                let (kind, at_file) = (delegation.kind, delegation.at_file);
                delegation.notices.end(gauges.notices_of(&entry.client));
                gauges.delegation_left(&entry.client, kind);
                self.delegations.remove(&(file, client));
                self.leave_delegated(file, at_file);
            }
        }
    }

    /// Takes a lock stateid out of its open's list.
    fn leave_open(&mut self, open: u32, at: u32) {
        let locks = &mut self.open_at_mut(open).locks;
        locks.swap_remove(at as usize);
        if let Some(moved) = locks.get(at as usize).copied()
            && let Kind::Lock(lock) = &mut self.entry_mut(moved).kind
        {
            lock.at_open = at;
        }
    }

    /// Puts an open into its file's list; the file comes with its first open.
    fn enter_file(&mut self, key: FileKey, index: u32, modes: &Modes) {
        let Self { files, cells, seed, .. } = self;
        let file = files.entry(key).or_insert_with(|| File::new(*seed ^ key.fileid));
        let at_file = file.opens.insert(modes.bits(), index, |moved, place| put_at(cells, moved, place));
        put_at(cells, index, at_file);
    }

    /// Takes an open out of its file's list.
    fn take_from_file(&mut self, key: FileKey, at: u32) {
        let Self { files, cells, .. } = self;
        let file = files.get_mut(&key).expect("an entry's file is there while the entry is held");
        file.opens.remove(at, |moved, place| put_at(cells, moved, place));
    }

    /// Takes a delegation out of its file's list, and lets those go on that waited for the last of them.
    fn leave_delegated(&mut self, key: FileKey, at: u32) {
        let file = self.file_mut(key);
        file.delegations.swap_remove(at as usize);
        if let Some(moved) = file.delegations.get(at as usize).copied() {
            self.delegation_at_mut(moved).at_file = at;
        }
        // Each that is woken looks through what is left, under this lock. Nobody can go on while two are left: one at most is the
        // operation's own client's, and who waits for one for writing waits for a single one. That they look again at powers of
        // two is for holders whose lease ended meanwhile. Of a directory any number may stay: holders who are told of changes.
        let first = self.file_mut(key).delegations.first().copied();
        let left = self.file_mut(key).delegations.len();
        let is_directory =
            first.is_some_and(|one| matches!(self.delegation_at(one).kind, DelegationKind::Directory(_)));
        self.forget_unused(key);
        if left == 0 || left.is_power_of_two() || is_directory {
            self.wake_waiting(key);
        }
    }

    /// Lets those look again that wait for a file's delegations.
    pub(super) fn wake_waiting(&mut self, key: FileKey) {
        // A waker only schedules: nothing of the server runs under the shard's lock.
        for waiter in self.waiting.remove(&key).into_iter().flatten() {
            waiter.wake();
        }
    }

    fn forget_unused(&mut self, key: FileKey) {
        let is_unused = |file: &File| file.opens.is_empty() && file.delegations.is_empty();
        if self.files.get(&key).is_some_and(is_unused) {
            self.files.remove(&key);
        }
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
        let index = match self.free.pop() {
            Some(index) => {
                let cell = &mut self.cells[index as usize];
                // Never zero, as a fresh cell starts with one.
                cell.generation = cell.generation.checked_add(1).unwrap_or(1);
                cell.entry = Some(entry);
                index
            }
            None => {
                self.cells.push(Cell { generation: 1, entry: Some(entry), is_left: false });
                (self.cells.len() - 1) as u32
            }
        };
        list.push(index);
        index
    }

    fn free(&mut self, index: u32, gauges: &Gauges, is_left: bool) {
        self.cells[index as usize].is_left = is_left;
        let Some(entry) = self.cells[index as usize].entry.take() else { return };
        self.free.push(index);
        gauges.charge(&entry.client, -entry.weight());
        let id = entry.client.id();
        let Some(list) = self.clients.get_mut(&id) else { return };
        list.swap_remove(entry.at_client as usize);
        match list.get(entry.at_client as usize).copied() {
            Some(moved) => self.entry_mut(moved).at_client = entry.at_client,
            None if list.is_empty() => {
                self.clients.remove(&id);
            }
            None => {}
        }
    }

    /// Lets go all that a client has here.
    pub(super) fn release_client(&mut self, client: ClientId, gauges: &Gauges, dropped: &mut Dropped) {
        // Each end shortens the list, an open's by its locks too.
        while let Some(index) = self.clients.get(&client).and_then(|list| list.last().copied()) {
            self.end(index, Event::Leave, gauges, dropped);
        }
    }

    /// Whether a client has lost something of a file and not acknowledged that.
    pub(super) fn has_lost(&self, client: ClientId, file: FileKey) -> bool {
        let mut entries = self.clients.get(&client).into_iter().flatten().map(|index| self.entry(*index));
        entries.any(|entry| entry.file == file && matches!(entry.phase, Phase::Revoked(_)))
    }

    /// Takes away all that is held of files that `is_gone` names.
    pub(super) fn take_files(
        &mut self,
        is_gone: impl Fn(FileKey) -> bool,
        gauges: &Gauges,
        dropped: &mut Dropped,
    ) {
        let gone = self.files.iter().filter(|(file, _)| is_gone(**file));
        let held = gone.flat_map(|(_, file)| file.opens.iter().chain(&file.delegations).copied());
        for index in held.collect::<Vec<u32>>() {
            self.end(index, Event::Take, gauges, dropped);
        }
    }

    /// Whether nothing is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.opens.is_empty()
            && self.locks.is_empty()
            && self.delegations.is_empty()
            && self.waiting.is_empty()
            && self.lock_queues.is_empty()
            && self.clients.is_empty()
            && self.free.len() == self.cells.len()
    }

    pub(super) fn file_mut(&mut self, key: FileKey) -> &mut File {
        self.files.get_mut(&key).expect("an entry's file is there while the entry is held")
    }
}

/// An open has another place in its file's list now.
fn put_at(cells: &mut [Cell], index: u32, place: u32) {
    if let Some(Entry { kind: Kind::Open(open), .. }) = &mut cells[index as usize].entry {
        open.at_file = place;
    }
}

/// Counts what a client has lost in the given way and not acknowledged.
fn adjust_lost(entry: &Entry, why: Revocation, by: i32) {
    adjust_holding(&entry.client, Some(why), by);
    if matches!(entry.kind, Kind::Delegation(_)) {
        let counter = &entry.client.holdings.lost_delegations;
        counter.fetch_add(by.cast_unsigned(), std::sync::atomic::Ordering::Relaxed);
    }
}

/// Counts what a client holds, or has lost in the given way.
fn adjust_holding(client: &Client, lost: Option<Revocation>, by: i32) {
    let holdings = &client.holdings;
    let counter = match lost {
        None => &holdings.state,
        Some(Revocation::Expired) => &holdings.revoked,
        Some(Revocation::Administrator) => &holdings.admin_revoked,
        Some(Revocation::Unreturned) => &holdings.unreturned,
    };
    counter.fetch_add(by.cast_unsigned(), std::sync::atomic::Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::super::transitions::check_table;
    use super::*;

    #[test]
    fn the_table_of_phases_is_sound() {
        let lost =
            [Revocation::Expired, Revocation::Administrator, Revocation::Unreturned].map(Phase::Revoked);
        check_table(TRANSITIONS, Phase::Held, &[Phase::Held, lost[0], lost[1], lost[2], Phase::Freed]);
        for phase in lost {
            assert_eq!(
                step(TRANSITIONS, phase, Event::Close),
                None,
                "a lost open is acknowledged, not closed"
            );
            assert_eq!(step(TRANSITIONS, phase, Event::Acknowledge), Some(Phase::Freed));
        }
        assert_eq!(
            step(TRANSITIONS, Phase::Held, Event::Acknowledge),
            None,
            "FREE_STATEID frees nothing held"
        );
    }
}
