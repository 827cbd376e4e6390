//! The end of opens, locks and delegations: by their clients, by others, or with the client's record.

use std::sync::atomic::Ordering::Relaxed;

use super::super::delegation::phase::DelegationEvent;
use super::super::file_key::FileKey;
use super::super::gauges::{Gauges, adjust};
use super::super::locks::LockSet;
use super::super::stateid::Revocation;
use super::super::wire::ClientId;
use super::deferred::Deferred;
use super::entry::{Entry, EntryKind};
use super::phase::{EntryEvent, EntryPhase};
use super::table::{Shard, adjust_holding};

impl Shard {
    /// Ends an entry: releases its state, and frees or keeps its stateid as the transition table says. The lock stateids
    /// under an open end with it. §8.4.3: "it must revoke all locks associated with a given stateid".
    pub(crate) fn end(&mut self, index: u32, event: EntryEvent, gauges: &Gauges, deferred: &mut Deferred) {
        let locks = match &self.entry(index).kind {
            EntryKind::Open(open) => open.locks.len(),
            _ => 0,
        };
        // From the last to the first: a lock that leaves the list is replaced by one that was visited.
        for at in (0..locks).rev() {
            let lock = self.open_at(index).locks[at];
            match self.entry(lock).phase {
                EntryPhase::Revoked(_) => self.end_revoked_lock(lock, event, gauges, deferred),
                EntryPhase::Held | EntryPhase::Freed => self.end_one(lock, event, gauges, deferred),
            }
        }
        self.end_one(index, event, gauges, deferred);
    }

    /// Applies the end of an open to a lock stateid under it that was revoked before. §8.2.4: "If the locks are lost due to
    /// revocation, … the stateid remains a valid designation of that revoked state until the client frees it by using
    /// FREE_STATEID. Stateids associated with byte-range locks are an exception. They remain valid … so long as the open file
    /// with which they are associated remains open". So CLOSE frees them, as in Linux's server: the client can use them no more,
    /// and the SEQUENCE before the CLOSE reported the loss. Linux's client does not free the stateid of a lock whose loss its
    /// program noticed first.
    fn end_revoked_lock(&mut self, lock: u32, event: EntryEvent, gauges: &Gauges, deferred: &mut Deferred) {
        let has_sessions = self.entry(lock).client.v40().is_none();
        match event {
            EntryEvent::Close if has_sessions => self.end_one(lock, EntryEvent::CloseOpen, gauges, deferred),
            // A client of version 4.0 learns of the loss when its record ends. Until then the loss must be known.
            EntryEvent::Close => self.leave_open(lock),
            EntryEvent::Acknowledge | EntryEvent::ClientRemoved => {
                self.end_one(lock, event, gauges, deferred);
            }
            EntryEvent::CloseOpen
            | EntryEvent::Conflict
            | EntryEvent::Unreturned
            | EntryEvent::AdminRevoke => {}
        }
    }

    fn end_one(&mut self, index: u32, event: EntryEvent, gauges: &Gauges, deferred: &mut Deferred) {
        let entry = self.entry_mut(index);
        let before = entry.phase;
        let after = before.after(event).expect("a legal transition of an entry");
        entry.phase = after;
        if let EntryKind::Delegation(delegation) = &mut entry.kind {
            delegation.advance(delegation_event(event));
        }
        match before {
            EntryPhase::Held => {
                adjust_holding(&entry.client, None, -1);
                self.release(index, gauges, deferred);
            }
            EntryPhase::Revoked(why) => {
                adjust_lost(entry, why, -1);
                adjust(&gauges.revoked, -1);
            }
            EntryPhase::Freed => {}
        }
        match after {
            EntryPhase::Revoked(why) => {
                let entry = self.entry(index);
                adjust_lost(entry, why, 1);
                adjust(&gauges.revoked, 1);
                self.recovery.note_loss(&entry.client, entry.file);
            }
            _ => self.free(index, gauges, event == EntryEvent::ClientRemoved),
        }
    }

    /// Removes an entry's state of its file: share reservation, ranges, pin.
    fn release(&mut self, index: u32, gauges: &Gauges, deferred: &mut Deferred) {
        let entry = self.entry_mut(index);
        let (file, client) = (entry.file, entry.client.id());
        match &mut entry.kind {
            EntryKind::Open(open) => {
                let (modes, at_file) = (open.modes, open.at_file);
                deferred.pins.extend(open.pin.take());
                self.opens.remove(&self.cells, index);
                self.leave_queue_of_open(file, index, gauges, deferred);
                self.take_from_file(file, at_file);
                self.forget_unused(file);
                gauges.open_left(&self.entry(index).client);
                adjust(&gauges.denying, -i64::from(modes.deny() != 0));
            }
            EntryKind::Lock(lock) => {
                let (open, owner, name) = (lock.open, lock.owner, lock.name.clone());
                self.locks.remove(&(open, owner));
                let record = self.file_mut(file);
                let before = record.ranges.count();
                record.ranges.unlock_set(owner, LockSet(index));
                let after = record.ranges.count();
                record.lock_owners.remove_set(&name);
                gauges.locks_changed(&self.entry(index).client, before, after);
                self.leave_queue_of_lock(file, (open, &name), gauges, deferred);
            }
            EntryKind::Delegation(delegation) => {
                let (kind, at_file) = (delegation.kind, delegation.at_file);
                delegation.notices.end(gauges.notices_of(&entry.client));
                let watch = delegation.watch.take();
                adjust(&gauges.watched_delegations, -i64::from(watch.is_some()));
                deferred.watches.extend(watch);
                gauges.delegation_left(&entry.client, kind);
                self.delegations.remove(&(file, client));
                self.leave_delegated(file, at_file);
            }
            EntryKind::NlmLock(lock) => {
                let (owner, name) = (lock.owner, lock.name.clone());
                self.nlm_locks.remove(&(file, owner));
                let record = self.file_mut(file);
                let before = record.ranges.count();
                record.ranges.unlock_set(owner, LockSet(index));
                let after = record.ranges.count();
                record.lock_owners.remove_set(&name);
                record.nlm_locks -= 1;
                self.forget_unused(file);
                gauges.locks_changed(&self.entry(index).client, before, after);
                self.unlocked(file, deferred);
            }
            EntryKind::NlmShare(share) => {
                adjust(&gauges.denying, -i64::from(share.bits.1 != 0));
                self.leave_nlm_shares(file, index);
            }
        }
    }

    /// Revokes all state on the files for which `is_revoked` is true.
    pub(crate) fn revoke_files(
        &mut self,
        is_revoked: impl Fn(FileKey) -> bool,
        gauges: &Gauges,
        deferred: &mut Deferred,
    ) {
        let files = self.files.iter().filter(|(file, _)| is_revoked(**file));
        let held = files.flat_map(|(_, file)| file.opens.iter().chain(&file.delegations).copied());
        for index in held.collect::<Vec<u32>>() {
            self.end(index, EntryEvent::AdminRevoke, gauges, deferred);
        }
        // An NLM host cannot be notified of a loss: its locks are as if they had never existed.
        let of_hosts = self.cells.iter().zip(0..).filter_map(|(cell, index)| {
            let entry = cell.entry.as_ref()?;
            let is_nlm = matches!(entry.kind, EntryKind::NlmLock(_) | EntryKind::NlmShare(_));
            (is_nlm && is_revoked(entry.file)).then_some(index)
        });
        for index in of_hosts.collect::<Vec<u32>>() {
            self.end(index, EntryEvent::Close, gauges, deferred);
        }
    }

    /// Ends all entries of a client.
    pub(crate) fn release_client(&mut self, client: ClientId, gauges: &Gauges, deferred: &mut Deferred) {
        // Each end shortens the list; that of an open also by its locks.
        while let Some(index) = self.clients.get(&client).and_then(|list| list.last().copied()) {
            self.end(index, EntryEvent::ClientRemoved, gauges, deferred);
        }
    }

    fn free(&mut self, index: u32, gauges: &Gauges, is_client_removed: bool) {
        self.leave_open(index);
        self.cells[index as usize].is_client_removed = is_client_removed;
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
}

/// Returns the effect of an entry's end on a delegation.
fn delegation_event(event: EntryEvent) -> DelegationEvent {
    match event {
        // No delegation belongs to an open.
        EntryEvent::Close | EntryEvent::CloseOpen => DelegationEvent::Return,
        EntryEvent::Conflict | EntryEvent::Unreturned | EntryEvent::AdminRevoke => DelegationEvent::Timeout,
        EntryEvent::Acknowledge => DelegationEvent::Acknowledge,
        EntryEvent::ClientRemoved => DelegationEvent::ClientRemoved,
    }
}

/// Counts state that a client has lost in the given way and not acknowledged.
fn adjust_lost(entry: &Entry, why: Revocation, by: i32) {
    adjust_holding(&entry.client, Some(why), by);
    if matches!(entry.kind, EntryKind::Delegation(_)) {
        let counter = &entry.client.holdings.lost_delegations;
        counter.fetch_add(by.cast_unsigned(), Relaxed);
    }
}
