//! Delegations that the server has revoked or forgotten.

use std::collections::{HashMap, HashSet};

use protocol::nfs4::types::{Handle, Stateid};

use super::Delegations;
use super::table::Phase;
use super::types::{Granted, Kind};
use crate::config::Caller;

/// Losses and reclaims.
impl Delegations {
    /// Returns all files with their delegations' stateids.
    pub(crate) fn stateids(&self) -> Vec<(Handle, Stateid)> {
        let table = self.table.lock();
        let live = table.entries.iter().filter(|(_, entry)| entry.phase != Phase::Lost);
        live.map(|(handle, entry)| (*handle, entry.stateid)).collect()
    }

    /// Returns all files whose delegations are held, with stateid and the caller that has got it.
    pub(crate) fn held_by(&self) -> Vec<(Handle, Stateid, Caller)> {
        let table = self.table.lock();
        let live = table.entries.iter().filter(|(_, entry)| entry.phase == Phase::Held);
        live.map(|(handle, entry)| (*handle, entry.stateid, entry.opener.clone())).collect()
    }

    /// Notes that the server has revoked a delegation. Returns whether it was this one.
    pub(crate) fn revoked(&self, handle: &Handle, stateid: &Stateid) -> bool {
        let mut table = self.table.lock();
        let Some(entry) = table.entries.get_mut(handle) else { return false };
        if entry.stateid.other != stateid.other || entry.phase == Phase::Lost {
            return false;
        }
        entry.is_revoked = true;
        table.lose(handle, true);
        self.end_lost(handle);
        drop(table);
        self.signal.raise();
        true
    }

    /// Returns whether the server has revoked the delegation of a file.
    pub(crate) fn is_revoked(&self, handle: &Handle) -> bool {
        self.table.lock().entries.get(handle).is_some_and(|entry| entry.is_revoked)
    }

    /// Begins to reclaim after a restart of the server. Returns the files whose delegations are reclaimed. Those whose return was
    /// sent, and those of directories (§10.9.5), are not: they are lost.
    pub(crate) fn begin_reclaim(&self) -> HashMap<Handle, Kind> {
        let mut table = self.table.lock();
        table.restarts += 1;
        let mut claims = HashMap::new();
        let mut lost = Vec::new();
        for (handle, entry) in &mut table.entries {
            match entry.phase {
                Phase::Held if entry.held.kind == Kind::Directory => lost.push(*handle),
                Phase::Held | Phase::Reclaiming => {
                    entry.phase = Phase::Reclaiming;
                    claims.insert(*handle, entry.held.kind);
                }
                Phase::Returning if entry.held.kind == Kind::Write && !entry.has_ended => {
                    entry.reclaims = true;
                    claims.insert(*handle, entry.held.kind);
                }
                // Its return is under way.
                Phase::Returning => {
                    entry.phase = Phase::Lost;
                    self.end_lost(handle);
                }
                Phase::Lost => {}
            }
        }
        if !lost.is_empty() {
            lost.iter().for_each(|handle| table.lose(handle, true));
            drop(table);
            self.signal.raise();
        }
        claims
    }

    /// Takes a reclaimed delegation, which the server may recall at once, and the file's change attribute. Returns false if none
    /// of this file is being reclaimed.
    pub(crate) fn reclaimed(&self, handle: &Handle, granted: &Granted, change: Option<u64>) -> bool {
        let Granted { kind, stateid, is_recalled, limit, keeps_times } = *granted;
        let mut table = self.table.lock();
        let Some(entry) = table.entries.get_mut(handle) else { return false };
        // One whose return has begun meanwhile is returned by its former stateid.
        if !entry.is_reclaiming() || entry.has_ended || entry.held.kind != kind {
            return false;
        }
        (entry.stateid, entry.change, entry.held.limit) = (stateid, change, limit);
        if !keeps_times && let Some(times) = self.times.lock().get_mut(handle) {
            times.end();
        }
        if !std::mem::take(&mut entry.reclaims) {
            entry.phase = Phase::Held;
        }
        entry.local.retain(|file| file.is_local());
        for file in &entry.local {
            file.delegated(stateid);
        }
        if is_recalled {
            table.recall(handle);
            drop(table);
            self.signal.raise();
        }
        true
    }

    /// Returns the files whose delegations are still to be reclaimed.
    pub(crate) fn not_reclaimed(&self) -> HashMap<Handle, Kind> {
        let table = self.table.lock();
        let left = table.entries.iter().filter(|(_, entry)| entry.is_reclaiming());
        left.map(|(handle, entry)| (*handle, entry.held.kind)).collect()
    }

    /// Notes that no more delegations will be reclaimed: the rest is lost. Other clients cannot have changed the files of
    /// `reopened`, of which an open was reclaimed.
    pub(crate) fn end_reclaim(&self, reopened: &HashSet<Handle>) {
        let mut table = self.table.lock();
        let lost = table.entries.iter().filter(|(_, entry)| entry.is_reclaiming());
        let lost: Vec<_> = lost.map(|(handle, _)| *handle).collect();
        for handle in &lost {
            table.lose(handle, !reopened.contains(handle));
            self.end_lost(handle);
        }
        drop(table);
        self.signal.raise();
    }

    /// Keeps no times of further changes of a file whose delegation is lost.
    fn end_lost(&self, handle: &Handle) {
        if let Some(times) = self.times.lock().get_mut(handle) {
            times.end();
        }
    }
}
