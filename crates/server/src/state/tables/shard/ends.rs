//! How opens, locks and delegations end: by their clients, by others, or with the client's record.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::super::client::Client;
use super::super::gauges::{Gauges, adjust};
use super::super::phase;
use super::super::stateid::Revocation;
use super::super::transitions::{Row, step};
use super::super::wire::ClientId;
use super::{Dropped, Entry, Kind, Shard};
use crate::state::tables::file_key::FileKey;

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
pub(crate) enum Event {
    /// CLOSE, or FREE_STATEID of a lock stateid without locks.
    Close,
    /// CLOSE of the open that a lost lock stateid is under.
    CloseOpen,
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

const TRANSITIONS: &[Row<Phase, Event>] = &[
    (Phase::Held, Event::Close, Phase::Freed),
    (Phase::Held, Event::Conflict, Phase::Revoked(Revocation::Expired)),
    (Phase::Held, Event::Take, Phase::Revoked(Revocation::Administrator)),
    (Phase::Held, Event::Unreturned, Phase::Revoked(Revocation::Unreturned)),
    (Phase::Held, Event::Leave, Phase::Freed),
    (Phase::Revoked(Revocation::Expired), Event::Acknowledge, Phase::Freed),
    (Phase::Revoked(Revocation::Administrator), Event::Acknowledge, Phase::Freed),
    (Phase::Revoked(Revocation::Expired), Event::CloseOpen, Phase::Freed),
    (Phase::Revoked(Revocation::Administrator), Event::CloseOpen, Phase::Freed),
    (Phase::Revoked(Revocation::Expired), Event::Leave, Phase::Freed),
    (Phase::Revoked(Revocation::Administrator), Event::Leave, Phase::Freed),
    (Phase::Revoked(Revocation::Unreturned), Event::Acknowledge, Phase::Freed),
    (Phase::Revoked(Revocation::Unreturned), Event::Leave, Phase::Freed),
];

impl Shard {
    /// Ends what an entry is in effect for, and frees or keeps its stateid as the table says. An open takes its lock
    /// stateids along: §8.4.3, "it must revoke all locks associated with a given stateid".
    pub(crate) fn end(&mut self, index: u32, event: Event, gauges: &Gauges, dropped: &mut Dropped) {
        let locks = match &self.entry(index).kind {
            Kind::Open(open) => open.locks.len(),
            Kind::Lock(_) | Kind::Delegation(_) => 0,
        };
        // From the last to the first: what goes has its place taken by one that was looked at.
        for at in (0..locks).rev() {
            let lock = self.open_at(index).locks[at];
            match self.entry(lock).phase {
                Phase::Revoked(_) => self.end_lost_lock(lock, event, gauges, dropped),
                Phase::Held | Phase::Freed => self.end_one(lock, event, gauges, dropped),
            }
        }
        self.end_one(index, event, gauges, dropped);
    }

    /// What the end of an open means to a lock stateid under it that was lost before. §8.2.4: "If the locks are lost due to
    /// revocation, … the stateid remains a valid designation of that revoked state until the client frees it by using FREE_STATEID.
    /// Stateids associated with byte-range locks are an exception. They remain valid … so long as the open file with which they are
    /// associated remains open". So CLOSE lets them go, as it does in Linux's server: the client can do nothing more by them, and the
    /// SEQUENCE before the CLOSE told it of the loss. Linux's client frees no stateid of a lock whose loss its program met first.
    fn end_lost_lock(&mut self, lock: u32, event: Event, gauges: &Gauges, dropped: &mut Dropped) {
        let is_told = self.entry(lock).client.sessionless().is_none();
        match event {
            Event::Close if is_told => self.end_one(lock, Event::CloseOpen, gauges, dropped),
            // Version 4.0 is told by the end of its record, for which what it lost has to be known.
            Event::Close => self.leave_open(lock),
            Event::Acknowledge | Event::Leave => self.end_one(lock, event, gauges, dropped),
            Event::CloseOpen | Event::Conflict | Event::Unreturned | Event::Take => {}
        }
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
                let (modes, at_file) = (open.modes, open.at_file);
                dropped.pins.extend(open.pin.take());
                self.opens.remove(&self.cells, index);
                self.leave_queue_of_open(file, index, gauges, dropped);
                self.take_from_file(file, at_file);
                self.forget_unused(file);
                gauges.open_left(&self.entry(index).client);
                adjust(&gauges.denying, -i64::from(modes.deny() != 0));
            }
            Kind::Lock(lock) => {
                let (open, number, owner) = (lock.open, lock.owner_number, Arc::clone(&lock.owner));
                self.locks.remove(&(open, number));
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
                let lookout = delegation.lookout.take();
                adjust(&gauges.lookouts, -i64::from(lookout.is_some()));
                dropped.lookouts.extend(lookout);
                gauges.delegation_left(&entry.client, kind);
                self.delegations.remove(&(file, client));
                self.leave_delegated(file, at_file);
            }
        }
    }

    /// Takes away all that is held of files that `is_gone` names.
    pub(crate) fn take_files(
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

    /// Lets go all that a client has here.
    pub(crate) fn release_client(&mut self, client: ClientId, gauges: &Gauges, dropped: &mut Dropped) {
        // Each end shortens the list, an open's by its locks too.
        while let Some(index) = self.clients.get(&client).and_then(|list| list.last().copied()) {
            self.end(index, Event::Leave, gauges, dropped);
        }
    }

    fn free(&mut self, index: u32, gauges: &Gauges, is_left: bool) {
        self.leave_open(index);
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
}

/// Counts what a client has lost in the given way and not acknowledged.
fn adjust_lost(entry: &Entry, why: Revocation, by: i32) {
    adjust_holding(&entry.client, Some(why), by);
    if matches!(entry.kind, Kind::Delegation(_)) {
        let counter = &entry.client.holdings.lost_delegations;
        counter.fetch_add(by.cast_unsigned(), Relaxed);
    }
}

/// Counts what a client holds, or has lost in the given way.
pub(super) fn adjust_holding(client: &Client, lost: Option<Revocation>, by: i32) {
    let holdings = &client.holdings;
    let counter = match lost {
        None => &holdings.state,
        Some(Revocation::Expired) => &holdings.revoked,
        Some(Revocation::Administrator) => &holdings.admin_revoked,
        Some(Revocation::Unreturned) => &holdings.unreturned,
    };
    counter.fetch_add(by.cast_unsigned(), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::super::super::transitions::check_table;
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
        let by_close = lost.map(|phase| step(TRANSITIONS, phase, Event::CloseOpen));
        assert_eq!(
            by_close,
            [Some(Phase::Freed), Some(Phase::Freed), None],
            "no delegation is under an open"
        );
        assert_eq!(step(TRANSITIONS, Phase::Held, Event::CloseOpen), None, "what is held is not lost");
        assert_eq!(
            step(TRANSITIONS, Phase::Held, Event::Acknowledge),
            None,
            "FREE_STATEID frees nothing held"
        );
    }
}
