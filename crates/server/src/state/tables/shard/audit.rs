//! Checks that the lists of a shard agree, and that no state in effect conflicts with other state.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::audit::{Sum, Sums, same};
use super::super::client::Client;
use super::super::file_key::FileKey;
use super::super::wire::ClientId;
use super::by_owner::OpenKey;
use super::entry::{Entry, EntryKind};
use super::entry_list::EntryList;
use super::file::File;
use super::lock_notify::{LockNotify, Notice};
use super::phase::EntryPhase;
use super::table::Shard;
use crate::state::tables::locks::{LockQueue, LockSet};

impl Shard {
    /// Checks the shard and adds the state of `clients` here to `sums`.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(crate) fn audit(
        &self,
        clients: &HashMap<ClientId, Arc<Client>>,
        sums: &mut Sums,
    ) -> Result<(), String> {
        let mut held = [0; 5];
        let mut used = 0;
        for (index, cell) in (0..).zip(&self.cells) {
            let Some(entry) = &cell.entry else { continue };
            used += 1;
            let id = entry.client.id();
            if !clients.contains_key(&id) {
                return Err(format!("client {id:#x} is removed, and holds {entry:?}"));
            }
            self.audit_entry(index, entry).map_err(|why| format!("{entry:?}: {why}"))?;
            count(entry, sums.entry(id).or_default(), &mut held);
        }
        same("free cells", self.free.len(), self.cells.len() - used)?;
        let nlm_shares = self.files.values().map(|file| file.nlm_shares.len()).sum();
        let maps =
            [self.opens.len(), self.locks.len(), self.delegations.len(), self.nlm_locks.len(), nlm_shares];
        same("opens, lock stateids, delegations, locks and shares of NLM hosts in the maps", maps, held)?;
        let nlm_locks: u32 = self.files.values().map(|file| file.nlm_locks).sum();
        same("locks of NLM hosts counted", nlm_locks as usize, held[3])?;
        same("entries in the lists of clients", self.clients.values().map(EntryList::len).sum(), used)?;
        let of_files = self.files.values().map(|file| file.opens.len() + file.delegations.len());
        same("entries in the lists of files", of_files.sum(), held[0] + held[2])?;
        for (key, file) in &self.files {
            self.audit_file(*key, file, sums).map_err(|why| format!("{key:?}: {why}"))?;
        }
        for (key, queue) in &self.lock_queues {
            self.audit_queue(*key, queue, sums).map_err(|why| format!("{key:?}: {why}"))?;
        }
        Ok(())
    }

    fn entry_at(&self, index: u32) -> Option<&Entry> {
        self.cells.get(index as usize)?.entry.as_ref()
    }

    /// Checks that the lists that must contain an entry do.
    fn audit_entry(&self, index: u32, entry: &Entry) -> Result<(), String> {
        let of_client =
            self.clients.get(&entry.client.id()).and_then(|list| list.get(entry.at_client as usize));
        same("its position at its client", of_client, Some(&index))?;
        let is_held = entry.phase == EntryPhase::Held;
        let file = self.files.get(&entry.file);
        let (by_key, at_position) = match &entry.kind {
            EntryKind::Open(open) => {
                same("whether it has its file open", open.pin.is_some(), is_held)?;
                let key = OpenKey { file: entry.file, client: entry.client.id(), owner: &open.owner };
                let at_position = file.and_then(|file| file.opens.iter().nth(open.at_file as usize));
                (self.find_open(key), at_position)
            }
            EntryKind::Lock(lock) => {
                let open = self.entry_at(lock.open).map(|open| &open.kind);
                let of_open = lock.at_open.and_then(|at| match open {
                    Some(EntryKind::Open(open)) => open.locks.get(at as usize),
                    _ => None,
                });
                // A revoked one too: it ends with its open, except for version 4.0.
                if entry.client.v40().is_none() {
                    same("the lock stateid at its position", of_open, Some(&index))?;
                }
                (self.locks.get(&(lock.open, lock.owner)).copied(), of_open)
            }
            EntryKind::Delegation(delegation) => {
                let key = (entry.file, entry.client.id());
                let at_position = file.and_then(|file| file.delegations.get(delegation.at_file as usize));
                (self.delegations.get(&key).copied(), at_position)
            }
            EntryKind::NlmLock(lock) => {
                let found = self.find_nlm_lock(entry.file, &lock.name);
                same("the host of a lock's owner", lock.name.client, entry.client.id())?;
                same("whether an NLM owner has locks", self.holds_ranges(index), true)?;
                let by_number = self.nlm_locks.get(&(entry.file, lock.owner));
                (found, by_number)
            }
            EntryKind::NlmShare(_) => {
                let listed = file.and_then(|file| file.nlm_shares.iter().find(|share| **share == index));
                (listed.copied(), listed)
            }
        };
        match (is_held, entry.phase) {
            (true, _) => {
                same("the entry found by its key", by_key, Some(index))?;
                same("the entry found at its position", at_position, Some(&index))
            }
            (false, EntryPhase::Freed) => Err("its stateid is freed".into()),
            (false, _) if by_key == Some(index) => Err("it is revoked, and found by its key".into()),
            (false, _) => Ok(()),
        }
    }

    /// Checks that no held state of a file conflicts with other state.
    fn audit_file(&self, key: FileKey, file: &File, sums: &mut Sums) -> Result<(), String> {
        same("whether the file is unused", file.is_unused(), false)?;
        self.audit_shares(file)?;
        self.audit_delegations(file)?;
        file.ranges.audit()?;
        for held in file.ranges.iter() {
            let LockSet(index) = held.set;
            let entry = self.entry_at(index).ok_or_else(|| format!("{held:?} has no lock stateid"))?;
            let owner = match &entry.kind {
                EntryKind::Lock(lock) => Some(lock.owner),
                EntryKind::NlmLock(lock) => Some(lock.owner),
                _ => None,
            };
            let found = (entry.file, entry.phase, owner);
            same("a range's lock stateid", found, (key, EntryPhase::Held, Some(held.owner)))?;
            let sum = sums.entry(entry.client.id()).or_default();
            (sum.ranges, sum.charged) = (sum.ranges + 1, sum.charged + 1);
        }
        Ok(())
    }

    /// RFC 8881 §9.7: no open has access that another denies.
    fn audit_shares(&self, file: &File) -> Result<(), String> {
        let bits = |index: &u32| self.open_at(*index).modes.bits();
        for index in &file.nlm_shares {
            let share = self.nlm_share_at(*index);
            let mut opens = file.opens.iter().map(bits);
            let of_hosts = file.nlm_shares.iter().filter(|other| *other != index);
            let mut shares = of_hosts.map(|other| self.nlm_share_at(*other).bits);
            if opens.any(|open| share.excludes(open)) || shares.any(|other| share.excludes(other)) {
                return Err(format!("{:?} excludes another", self.entry(*index)));
            }
        }
        for (at, one) in file.opens.iter().enumerate() {
            for other in file.opens.iter().skip(at + 1) {
                let ((access, deny), (others, denied)) = (bits(one), bits(other));
                if access & denied != 0 || deny & others != 0 {
                    return Err(format!("{:?} excludes {:?}", self.entry(*one), self.entry(*other)));
                }
            }
        }
        Ok(())
    }

    /// RFC 8881 §10.4: during a write delegation no other client uses the file; during a read delegation none writes it.
    fn audit_delegations(&self, file: &File) -> Result<(), String> {
        for index in &file.delegations {
            let (entry, kind) = (self.entry(*index), self.delegation_at(*index).kind);
            let is_others = |other: &&u32| self.entry(**other).client.id() != entry.client.id();
            if kind.is_directory() {
                continue;
            }
            let breaks = |open: &&u32| kind.is_write() || self.open_at(**open).modes.writes();
            let mut opens = file.opens.iter().filter(is_others).filter(breaks);
            let mut delegations = file.delegations.iter().filter(is_others).filter(|_| kind.is_write());
            if let Some(other) = opens.next().or_else(|| delegations.next()) {
                return Err(format!("{entry:?} excludes {:?}", self.entry(*other)));
            }
        }
        Ok(())
    }

    /// Checks that each waiter for a lock has an open that allows the lock.
    fn audit_queue(
        &self,
        key: FileKey,
        queue: &LockQueue<LockNotify>,
        sums: &mut Sums,
    ) -> Result<(), String> {
        queue.audit(|waiter| {
            let id = waiter.notify.client.id();
            if let Notice::Grant(grant) = &waiter.notify.how {
                sums.entry(id).or_default().lock_waiters += 1;
                return same("the file of an NLM host's wait", grant.file, key);
            }
            let open = waiter
                .notify
                .open()
                .and_then(|open| self.entry_at(open))
                .filter(|entry| entry.client.id() == id);
            let open = open.filter(|entry| entry.phase == EntryPhase::Held && entry.file == key);
            match open.map(|entry| &entry.kind) {
                Some(EntryKind::Open(open)) if open.modes.may_lock(waiter.kind) => {}
                Some(EntryKind::Open(open)) => {
                    return Err(format!("{waiter:?} waits under an open of {:?}", open.modes));
                }
                _ => return Err(format!("{waiter:?} waits without an open")),
            }
            sums.entry(id).or_default().lock_waiters += 1;
            Ok(())
        })
    }
}

/// Adds an entry to the sums of its client and of its kind.
fn count(entry: &Entry, sum: &mut Sum, held: &mut [usize; 5]) {
    sum.charged += u64::from(entry.weight().cast_unsigned());
    let is_held = entry.phase == EntryPhase::Held;
    sum.state += u64::from(is_held);
    sum.revoked += u64::from(!is_held);
    let kind = match &entry.kind {
        EntryKind::Open(open) => {
            sum.opens += u64::from(is_held);
            sum.denying += u64::from(is_held && open.modes.deny() != 0);
            0
        }
        EntryKind::Lock(_) => 1,
        EntryKind::Delegation(delegation) => {
            sum.lost_delegations += u64::from(!is_held);
            sum.delegations += u64::from(is_held);
            sum.write_delegations += u64::from(is_held && delegation.kind.is_write());
            sum.directory_delegations += u64::from(is_held && delegation.kind.is_directory());
            sum.watched_delegations += u64::from(delegation.watch.is_some());
            2
        }
        EntryKind::NlmLock(_) => 3,
        EntryKind::NlmShare(share) => {
            sum.denying += u64::from(share.bits.1 != 0);
            4
        }
    };
    held[kind] += usize::from(is_held);
}
