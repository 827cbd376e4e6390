//! The table of a shard: entries, and the maps that find them.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::client::Client;
use super::super::file_key::FileKey;
use super::super::gauges::{Gauges, adjust};
use super::super::hashing::{Numbered, keyed, numbered};
use super::super::locks::{LockOwner, LockQueue, LockSet, OwnerName};
use super::super::recovery::Recovery;
use super::super::stateid::{EntryId, Generations, Revocation, StateidError, check_seqid};
use super::super::waiter::DelegationWaiter;
use super::super::wire::{ClientId, Stateid};
use super::by_owner::{OpenKey, OpensByOwner};
use super::deferred::Deferred;
use super::delegation::Delegation;
use super::entry::{Cell, Entry, EntryKind, LockEntry, NewOpen, OpenEntry};
use super::entry_list::EntryList;
use super::file::File;
use super::lock_notify::LockNotify;
use super::phase::EntryPhase;
use super::share::Modes;

/// See the module [`shard`](super).
#[derive(Debug)]
pub(crate) struct Shard {
    number: usize,
    pub(super) seed: u64,
    pub(super) recovery: Arc<Recovery>,
    generations: Generations,
    pub(super) cells: Vec<Cell>,
    pub(super) free: Vec<u32>,
    pub(crate) files: Numbered<FileKey, File>,
    pub(super) opens: OpensByOwner,
    /// Lock stateids by their open and their owner's number.
    pub(super) locks: Numbered<(u32, LockOwner), u32>,
    /// The locks of NLM hosts by their owner's number in the file.
    pub(super) nlm_locks: Numbered<(FileKey, LockOwner), u32>,
    pub(super) clients: Numbered<ClientId, EntryList>,
    pub(super) delegations: Numbered<(FileKey, ClientId), u32>,
    /// Operations that wait for delegations of a file.
    pub(crate) waiting: Numbered<FileKey, Vec<Arc<DelegationWaiter>>>,
    /// Owners that wait for locks of a file.
    pub(crate) lock_queues: Numbered<FileKey, LockQueue<LockNotify>>,
}

impl Shard {
    /// Returns an empty shard. `recovery` records revoked state.
    pub(crate) fn new(number: usize, seed: u64, generations: Generations, recovery: Arc<Recovery>) -> Self {
        Self {
            number,
            seed,
            recovery,
            generations,
            cells: Vec::new(),
            free: Vec::new(),
            files: numbered(seed),
            opens: OpensByOwner::new(keyed(seed)),
            locks: numbered(seed),
            nlm_locks: numbered(seed),
            clients: numbered(seed),
            delegations: numbered(seed),
            waiting: numbered(seed),
            lock_queues: numbered(seed),
        }
    }

    /// Returns the entry at an index of this shard.
    pub(crate) fn entry(&self, index: u32) -> &Entry {
        self.cells[index as usize].entry.as_ref().expect("lists contain entries in use")
    }

    pub(crate) fn entry_mut(&mut self, index: u32) -> &mut Entry {
        self.cells[index as usize].entry.as_mut().expect("lists contain entries in use")
    }

    pub(crate) fn open_at(&self, index: u32) -> &OpenEntry {
        match &self.entry(index).kind {
            EntryKind::Open(open) => open,
            _ => unreachable!("the index is that of an open"),
        }
    }

    pub(super) fn open_at_mut(&mut self, index: u32) -> &mut OpenEntry {
        match &mut self.entry_mut(index).kind {
            EntryKind::Open(open) => open,
            _ => unreachable!("the index is that of an open"),
        }
    }

    pub(crate) fn lock_at(&self, index: u32) -> &LockEntry {
        match &self.entry(index).kind {
            EntryKind::Lock(lock) => lock,
            _ => unreachable!("the index is that of a lock stateid"),
        }
    }

    /// Returns the owner of a lock set: of a lock stateid, or of an NLM host.
    pub(crate) fn lock_name(&self, index: u32) -> &OwnerName {
        match &self.entry(index).kind {
            EntryKind::NlmLock(lock) => &lock.name,
            _ => &self.lock_at(index).name,
        }
    }

    pub(crate) fn delegation_at(&self, index: u32) -> &Delegation {
        match &self.entry(index).kind {
            EntryKind::Delegation(delegation) => delegation,
            _ => unreachable!("the index is that of a delegation"),
        }
    }

    pub(crate) fn delegation_at_mut(&mut self, index: u32) -> &mut Delegation {
        match &mut self.entry_mut(index).kind {
            EntryKind::Delegation(delegation) => delegation,
            _ => unreachable!("the index is that of a delegation"),
        }
    }

    pub(crate) fn file_mut(&mut self, key: FileKey) -> &mut File {
        self.files.get_mut(&key).expect("a file is listed while it has entries")
    }

    fn entry_of(&self, entry_id: EntryId) -> Option<&Entry> {
        let cell =
            self.cells.get(entry_id.index as usize).filter(|cell| cell.generation == entry_id.generation);
        cell.and_then(|cell| cell.entry.as_ref())
    }

    /// Finds the entry that a stateid names. The checks follow §8.2.4: entry and generation, file, client, revocation. Kind and
    /// seqid come after.
    pub(crate) fn find(
        &self,
        entry_id: EntryId,
        client: &Client,
        file: Option<FileKey>,
    ) -> Result<u32, StateidError> {
        let entry = self.entry_of(entry_id).ok_or(StateidError::Unknown)?;
        if file.is_some_and(|file| file != entry.file) {
            return Err(StateidError::OtherFile);
        }
        if entry.client.id() != client.id() {
            return Err(StateidError::OtherClient);
        }
        match entry.phase {
            EntryPhase::Held => Ok(entry_id.index),
            EntryPhase::Revoked(why) => Err(StateidError::Revoked(why)),
            EntryPhase::Freed => Err(StateidError::Unknown),
        }
    }

    /// As [`Self::find`], and checks kind and seqid.
    pub(crate) fn find_present(
        &self,
        entry_id: EntryId,
        client: &Client,
        file: Option<FileKey>,
        seqid: u32,
        slots: u32,
        is_kind: impl FnOnce(&EntryKind) -> bool,
    ) -> Result<u32, StateidError> {
        let index = self.find(entry_id, client, file)?;
        let entry = self.entry(index);
        if !is_kind(&entry.kind) {
            return Err(StateidError::OtherKind);
        }
        check_seqid(seqid, entry.seqid, slots, client.v40().is_some())?;
        Ok(index)
    }

    /// Returns the entry that a stateid names, of any client and in any phase.
    ///
    /// # Errors
    /// [`StateidError::Revoked`] if it was removed with its client's record, as far as that is still known; [`StateidError::Unknown`].
    pub(crate) fn named(&self, entry_id: EntryId) -> Result<&Entry, StateidError> {
        let cell =
            self.cells.get(entry_id.index as usize).filter(|cell| cell.generation == entry_id.generation);
        let cell = cell.ok_or(StateidError::Unknown)?;
        let error = if cell.is_client_removed {
            StateidError::Revoked(Revocation::Expired)
        } else {
            StateidError::Unknown
        };
        cell.entry.as_ref().ok_or(error)
    }

    /// Returns the current stateid of an entry.
    pub(crate) fn stateid(&self, index: u32, boot: u16) -> Stateid {
        let other = self.entry_id(index).other(boot);
        Stateid { seqid: self.entry(index).seqid, other }
    }

    /// Returns the place of an entry, which its stateid contains.
    pub(crate) fn entry_id(&self, index: u32) -> EntryId {
        EntryId { shard: self.number, index, generation: self.cells[index as usize].generation }
    }

    /// Returns whether a place still has the same delegation, in effect.
    pub(crate) fn is_delegation(&self, entry_id: EntryId) -> bool {
        let is_held =
            |entry: &Entry| entry.phase == EntryPhase::Held && matches!(entry.kind, EntryKind::Delegation(_));
        self.entry_of(entry_id).is_some_and(is_held)
    }

    /// Adds the clients that hold state here that they may reclaim after a restart of the server. RFC 8881 §10.9.4: "no
    /// provision is made for reclaiming directory delegations in the event of client or server restart".
    pub(crate) fn add_holders(&self, holders: &mut HashSet<ClientId>) {
        let entries = self.cells.iter().filter_map(|cell| cell.entry.as_ref());
        let held =
            entries.filter(|entry| entry.phase == EntryPhase::Held).filter(|entry| match &entry.kind {
                EntryKind::Open(_) | EntryKind::Lock(_) => true,
                EntryKind::Delegation(delegation) => !delegation.kind.is_directory(),
                // NLM hosts have records of their own.
                EntryKind::NlmLock(_) | EntryKind::NlmShare(_) => false,
            });
        holders.extend(held.map(|entry| entry.client.id()));
    }

    /// Returns an owner's open of a file.
    pub(crate) fn find_open(&self, key: OpenKey<'_>) -> Option<u32> {
        self.opens.get(&self.cells, key)
    }

    /// Adds an open, whose share reservation must not conflict.
    pub(crate) fn add_open(
        &mut self,
        client: &Arc<Client>,
        file: FileKey,
        new: NewOpen,
        gauges: &Gauges,
    ) -> u32 {
        let NewOpen { owner, opener, modes, pin } = new;
        let open = OpenEntry { owner, opener, modes, pin: Some(pin), locks: EntryList::new(), at_file: 0 };
        let index = self.add(client, file, EntryKind::Open(open), gauges);
        self.enter_file(file, index, &modes);
        self.opens.insert(&self.cells, index);
        gauges.open_came(client);
        adjust(&gauges.denying, i64::from(modes.deny() != 0));
        index
    }

    /// Changes the share reservation of an open.
    pub(crate) fn set_modes(&mut self, index: u32, modes: Modes, gauges: &Gauges, deferred: &mut Deferred) {
        let file = self.entry(index).file;
        let open = self.open_at_mut(index);
        let old = std::mem::replace(&mut open.modes, modes);
        if old.bits() != modes.bits() {
            let at_file = open.at_file;
            self.take_from_file(file, at_file);
            self.enter_file(file, index, &modes);
            self.leave_queue_of_modes(file, (index, modes), gauges, deferred);
        }
        adjust(&gauges.denying, i64::from(modes.deny() != 0) - i64::from(old.deny() != 0));
    }

    /// Adds a delegation, which nothing must conflict with.
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
        adjust(&gauges.watched_delegations, i64::from(delegation.watch.is_some()));
        let mut delegation = Box::new(delegation);
        delegation.at_file = at_file;
        let index = self.add(client, file, EntryKind::Delegation(delegation), gauges);
        self.file_mut(file).delegations.push(index);
        self.delegations.insert((file, client.id()), index);
        gauges.delegation_came(client, kind);
        index
    }

    /// Returns a client's delegation of a file.
    pub(crate) fn find_delegation(&self, file: FileKey, client: ClientId) -> Option<u32> {
        self.delegations.get(&(file, client)).copied()
    }

    /// Returns the lock stateid of a lock-owner under an open; creates it if there is none.
    pub(crate) fn lock_entry(
        &mut self,
        open: u32,
        name: &OwnerName,
        client: &Arc<Client>,
        gauges: &Gauges,
    ) -> u32 {
        let file = self.entry(open).file;
        let owners = &mut self.files.get_mut(&file).expect("an open's file is listed").lock_owners;
        let known = owners.find(name).and_then(|owner| self.locks.get(&(open, owner)));
        if let Some(index) = known {
            return *index;
        }
        let owner = owners.add_set(name.clone());
        let at_open = self.open_at(open).locks.len() as u32;
        let lock = LockEntry { open, name: name.clone(), owner, at_open: Some(at_open) };
        let index = self.add(client, file, EntryKind::Lock(lock), gauges);
        // The LOCK that creates it advances this to 1.
        self.entry_mut(index).seqid = 0;
        self.open_at_mut(open).locks.push(index);
        self.locks.insert((open, owner), index);
        index
    }

    /// Returns whether a lock stateid has locked ranges.
    pub(crate) fn holds_ranges(&self, index: u32) -> bool {
        let entry = self.entry(index);
        match (&entry.kind, self.files.get(&entry.file)) {
            (EntryKind::Lock(lock), Some(file)) => file.ranges.has_set(lock.owner, LockSet(index)),
            (EntryKind::NlmLock(lock), Some(file)) => file.ranges.has_set(lock.owner, LockSet(index)),
            _ => false,
        }
    }

    pub(super) fn add(
        &mut self,
        client: &Arc<Client>,
        file: FileKey,
        kind: EntryKind,
        gauges: &Gauges,
    ) -> u32 {
        let list = self.clients.entry(client.id()).or_default();
        let (client, at_client) = (Arc::clone(client), list.len() as u32);
        let entry = Entry { client, file, seqid: 1, phase: EntryPhase::Held, kind, at_client };
        adjust_holding(&entry.client, None, 1);
        gauges.charge(&entry.client, entry.weight());
        let generation = self.generations.next();
        let index = match self.free.pop() {
            Some(index) => {
                let cell = &mut self.cells[index as usize];
                cell.generation = generation;
                cell.entry = Some(entry);
                index
            }
            None => {
                self.cells.push(Cell { generation, entry: Some(entry), is_client_removed: false });
                (self.cells.len() - 1) as u32
            }
        };
        list.push(index);
        index
    }

    /// Returns whether lock stateids under an open are revoked and not acknowledged.
    pub(crate) fn has_revoked_locks(&self, open: u32) -> bool {
        let mut locks = self.open_at(open).locks.iter();
        locks.any(|lock| matches!(self.entry(*lock).phase, EntryPhase::Revoked(_)))
    }

    /// Notes that a client has acknowledged a loss in a file. Once it has acknowledged all losses there, it may reclaim the rest.
    pub(crate) fn acknowledged(&self, client: &Client, file: FileKey) {
        let mut entries =
            self.clients.get(&client.id()).into_iter().flatten().map(|index| self.entry(*index));
        let is_revoked = |entry: &Entry| entry.file == file && matches!(entry.phase, EntryPhase::Revoked(_));
        if !entries.any(is_revoked) {
            self.recovery.acknowledged(client, file);
        }
    }

    /// Returns whether the shard holds nothing.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.opens.len() == 0
            && self.locks.is_empty()
            && self.nlm_locks.is_empty()
            && self.delegations.is_empty()
            && self.waiting.is_empty()
            && self.lock_queues.is_empty()
            && self.clients.is_empty()
            && self.free.len() == self.cells.len()
    }
}

/// Counts a client's state, or state that it lost in the given way.
pub(super) fn adjust_holding(client: &Client, lost: Option<Revocation>, by: i32) {
    use std::sync::atomic::Ordering::Relaxed;

    let holdings = &client.holdings;
    let counter = match lost {
        None => &holdings.state,
        Some(Revocation::Expired) => &holdings.revoked,
        Some(Revocation::Administrator) => &holdings.admin_revoked,
        Some(Revocation::Unreturned) => &holdings.unreturned,
    };
    counter.fetch_add(by.cast_unsigned(), Relaxed);
}
