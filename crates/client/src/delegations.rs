//! Delegations of files and directories (RFC 8881 §10.4, §10.9): a table by handle, without requests.
//!
//! While a delegation is held, no other client changes the file. Opens that it covers, by callers whose access the server has
//! checked under it, are *local*: they have no state at the server. An open that the server knows is not closed at its last
//! use but *parked*, and used again by the next open of the same caller and mode. Attributes and data that were read under a
//! delegation are valid as long as it is held. Under one for writing, written data may stay in the cache after a close.
//!
//! While one of a directory is held, no other client changes its entries or its attributes. Names, absent names, listings and
//! attributes of the directory are valid as long. It cannot be reclaimed after a restart of the server.
//!
//! A delegation ends in three ways: it is returned (because of a recall, a bound, its age, or an own change of the file's
//! name), it is lost (the server has revoked it), or it is not reclaimed after a restart of the server. From the recall on it
//! covers nothing new.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use protocol::nfs4::types::{Component, Handle, Stateid, Status};

use crate::background::Signal;
use crate::config::Caller;
use crate::opens::{OpenFile, OpenMode};

mod cache;
mod recovery;
mod table;
#[cfg(test)]
mod tests;
mod times;
mod types;

pub(crate) use cache::{CacheWork, Cached, ChangeEnd, DelegatedCache, Verdict};
pub use table::IDLE_MAX;
use table::{Entry, Phase, Table};
pub(crate) use times::EndedTimes;
use times::KeptTimes;
pub use types::DelegationCounts;
pub(crate) use types::{Closing, Ending, Grant, Granted, Held, Kind, LocalOpen, Location};

/// Maximum number of delegations, as in Linux's client. When there are more, the least recently used ones are returned.
pub const DELEGATIONS_MAX: usize = 5_000;
/// The time between two searches for idle delegations.
const IDLE_SEARCH: Duration = Duration::from_secs(60);
/// Part of all delegations that is returned when there are too many: a sixteenth.
const SURPLUS_PART: usize = 16;
/// Maximum number of recalls that are remembered for delegations whose OPEN has no reply yet.
const EARLY_RECALLS_MAX: usize = 64;

/// All delegations of a client.
#[derive(Debug, Default)]
pub(crate) struct Delegations {
    table: Mutex<Table>,
    /// Raised when a delegation is to be returned, or a search for idle ones is due at another time.
    signal: Signal,
    /// Times of files that this client keeps, one for each delegation that allows it. Locked after the table.
    times: Mutex<HashMap<Handle, KeptTimes>>,
    caches: Mutex<Vec<Weak<dyn DelegatedCache>>>,
    /// Begins and ends of changes behind the caches.
    bypasses: AtomicU64,
}

/// Counts a request in flight that may get a delegation.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    delegations: &'a Delegations,
    /// Number of restarts of the server before the request.
    pub(crate) restarts: u64,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut table = self.delegations.table.lock();
        table.openings -= 1;
        if table.openings == 0 {
            table.early.clear();
        }
    }
}

/// Opens and their ends.
impl Delegations {
    /// Notes that a request is sent that may get a delegation. A recall may overtake its reply.
    pub(crate) fn opening(&self) -> Opening<'_> {
        let mut table = self.table.lock();
        table.openings += 1;
        Opening { delegations: self, restarts: table.restarts }
    }

    /// Takes a delegation from a reply. Returns its number; `None` if it must be returned at once, because the file has another
    /// one, or the server has restarted.
    pub(crate) fn granted(&self, grant: Grant, now: Duration) -> Option<u64> {
        let Grant { handle, location, kind, stateid, caller, mode, .. } = grant;
        let Grant { preserves_unlinked, limit, change, modified, .. } = grant;
        let mut table = self.table.lock();
        if grant.restarts.is_some_and(|restarts| restarts != table.restarts) {
            return None;
        }
        if let Some(entry) = table.entries.get_mut(&handle) {
            // A file and a directory have different handles; a server that lies may say otherwise.
            let is_other = (entry.held.kind == Kind::Directory) != (kind == Kind::Directory);
            if entry.stateid.other != stateid.other || is_other {
                return None;
            }
            // The server has changed its kind (RFC 8881 §18.16.3). Replies may arrive in another order.
            if stateid.seqid > entry.stateid.seqid {
                (entry.stateid, entry.change) = (stateid, change);
                (entry.held.kind, entry.held.limit) = (kind, limit);
                if let Some(modified) = modified {
                    self.times.lock().entry(handle).or_insert(KeptTimes::new(modified));
                }
            }
            return Some(entry.held.id);
        }
        table.last_id += 1;
        let held = Held { id: table.last_id, kind, granted_at: now, limit };
        let entry = Entry {
            held,
            location,
            phase: Phase::Held,
            stateid,
            change,
            verdict: Verdict::Write,
            used_at: now,
            preserves_unlinked,
            permitted: vec![(caller.clone(), mode)],
            opener: caller,
            local: Vec::new(),
            parked: Vec::new(),
            has_ended: false,
            reclaims: false,
            is_revoked: false,
        };
        table.entries.insert(handle, entry);
        if let Some(modified) = modified {
            self.times.lock().insert(handle, KeptTimes::new(modified));
        }
        let counts = table.counts_of(kind);
        (counts.granted, counts.held) = (counts.granted + 1, counts.held + 1);
        let early = table.early.iter().position(|other| *other == stateid.other);
        if let Some(at) = early {
            table.early.remove(at);
            table.recall(&handle);
        }
        if table.entries.len() > DELEGATIONS_MAX {
            table.return_oldest(DELEGATIONS_MAX / SURPLUS_PART, |_| true);
        }
        let is_first = table.search_at.is_none();
        table.search_at.get_or_insert(now.saturating_add(IDLE_SEARCH));
        let is_changed = is_first || !table.queue.is_empty();
        drop(table);
        if is_changed {
            self.signal.raise();
        }
        Some(held.id)
    }

    /// Returns the delegation of a file if it is held, and notes its use.
    pub(crate) fn held(&self, handle: &Handle, now: Duration) -> Option<Held> {
        let mut table = self.table.lock();
        let entry = table.held(handle)?;
        entry.used_at = now;
        Some(entry.held)
    }

    /// Runs `action` if the file has a delegation of a kind that `is_enough`, which is not recalled before its end.
    pub(crate) fn under<T>(
        &self,
        handle: &Handle,
        now: Duration,
        is_enough: impl Fn(Kind) -> bool,
        action: impl FnOnce() -> T,
    ) -> Option<T> {
        let mut table = self.table.lock();
        let entry = table.held(handle).filter(|entry| is_enough(entry.held.kind))?;
        entry.used_at = now;
        Some(action())
    }

    /// Opens a file under its delegation, with the server's open if one is parked, or else with `new`, which gets the
    /// delegation's stateid. `None` if the delegation does not cover the open, or the server must check the permission.
    pub(crate) fn open(
        &self,
        handle: &Handle,
        caller: &Caller,
        mode: OpenMode,
        now: Duration,
        new: impl FnOnce(Stateid) -> Arc<OpenFile>,
    ) -> Option<LocalOpen> {
        let mut table = self.table.lock();
        let entry = table.held(handle)?;
        if !entry.held.kind.covers(mode) || !entry.permits(caller, mode) {
            return None;
        }
        entry.used_at = now;
        let is_same = |file: &Arc<OpenFile>| file.mode == mode && file.caller == *caller;
        let file = match entry.parked.iter().position(is_same) {
            Some(at) => entry.parked.swap_remove(at),
            None => {
                let file = new(entry.stateid);
                entry.local.push(Arc::clone(&file));
                file
            }
        };
        let preserves_unlinked = entry.preserves_unlinked;
        table.counts.local_opens += 1;
        Some(LocalOpen { file, preserves_unlinked })
    }

    /// Notes that the server has let a caller open a file.
    pub(crate) fn permit(&self, handle: &Handle, caller: &Caller, mode: OpenMode) {
        if let Some(entry) = self.table.lock().held(handle) {
            entry.permit(caller, mode);
        }
    }

    /// Returns the directory and the name of a file with a delegation, where opens need them.
    pub(crate) fn location(&self, handle: &Handle) -> Option<Location> {
        self.table.lock().entries.get(handle)?.location.clone()
    }

    /// Notes that a name was changed.
    pub(crate) fn renamed(&self, from: (&Handle, &Component), to: (&Handle, &Component)) {
        for entry in self.table.lock().entries.values_mut() {
            if entry.location.as_ref().is_some_and(|(directory, name)| (directory, name) == from) {
                entry.location = Some((*to.0, to.1.clone()));
            }
        }
    }

    /// Forgets who may open a file: its mode, owner or access control list has changed.
    pub(crate) fn forget_permissions(&self, handle: &Handle) {
        if let Some(entry) = self.table.lock().entries.get_mut(handle) {
            entry.permitted.clear();
        }
    }

    /// Ends the use of an open file. Call it with the file's turn.
    pub(crate) fn close(&self, file: &Arc<OpenFile>, now: Duration) -> Closing {
        let mut table = self.table.lock();
        if file.is_local() {
            if let Some(entry) = table.entries.get_mut(&file.handle) {
                entry.local.retain(|other| !Arc::ptr_eq(other, file));
                entry.used_at = now;
            }
            return Closing::Local;
        }
        // In 4.0 a parked open would keep its owner from the next file, and the first OPEN of an owner gets no delegation: it must be
        // confirmed (RFC 7530 §16.16.5).
        if file.has_seqids() {
            return Closing::AtServer;
        }
        // One that is being returned takes the CLOSE with it.
        let takes =
            |entry: &&mut Entry| matches!(entry.phase, Phase::Held | Phase::Returning) && !entry.has_ended;
        let Some(entry) = table.entries.get_mut(&file.handle).filter(takes) else { return Closing::AtServer };
        let is_same = |other: &Arc<OpenFile>| other.mode == file.mode && other.caller == file.caller;
        if file.stateid().is_err() || entry.parked.iter().any(is_same) {
            return Closing::AtServer;
        }
        entry.used_at = now;
        entry.parked.push(Arc::clone(file));
        Closing::Parked
    }

    /// Returns the numbers of delegations of files.
    pub(crate) fn counts(&self) -> DelegationCounts {
        self.table.lock().counts
    }

    /// Returns the numbers of delegations of directories.
    pub(crate) fn directory_counts(&self) -> DelegationCounts {
        self.table.lock().directory_counts
    }

    /// Returns whether there are none, also none that are being returned.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.lock().entries.is_empty()
    }

    /// Returns whether there is a delegation of this directory, which may be under way back to the server.
    pub(crate) fn is_directory(&self, handle: &Handle) -> bool {
        self.table.lock().entries.get(handle).is_some_and(|entry| entry.held.kind == Kind::Directory)
    }
}

/// Caches.
impl Delegations {
    /// Adds a cache. With several, none uses delegations: it would not learn of changes by the others, which are not other
    /// clients for the server.
    pub(crate) fn add_cache(&self, cache: Weak<dyn DelegatedCache>) {
        let count = {
            let mut caches = self.caches.lock();
            caches.retain(|cache| cache.strong_count() > 0);
            caches.push(cache);
            caches.len()
        };
        if count > 1 {
            self.give_back_all();
        }
    }

    /// Returns the cache that uses delegations, if there is one.
    pub(crate) fn has_cache(&self) -> bool {
        self.caches.lock().iter().filter(|cache| cache.strong_count() > 0).count() == 1
    }

    /// Returns all caches. Do not keep them.
    pub(crate) fn caches(&self) -> Vec<Arc<dyn DelegatedCache>> {
        self.caches.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the change attribute of a file at the grant of its delegation for writing, which may be under way back to the
    /// server. The outer value is `None` if there is no such delegation.
    pub(crate) fn granted_change(&self, handle: &Handle) -> Option<Option<u64>> {
        let table = self.table.lock();
        let entry = table.entries.get(handle)?;
        (entry.held.kind == Kind::Write && entry.phase != Phase::Lost).then_some(entry.change)
    }

    /// Completes when it is known whether data that were written to a file before may be sent.
    ///
    /// # Errors
    /// DELEG_REVOKED if they may not.
    pub(crate) fn poll_may_write(&self, handle: &Handle, context: &Context<'_>) -> Poll<Result<(), Status>> {
        let mut table = self.table.lock();
        match table.entries.get(handle).map_or(Verdict::Write, |entry| entry.verdict) {
            Verdict::Write => Poll::Ready(Ok(())),
            Verdict::Discard => Poll::Ready(Err(Status::DELEG_REVOKED)),
            Verdict::Awaited => {
                table.wait(context);
                Poll::Pending
            }
        }
    }

    /// Completes when the delegation of a file was revoked, and no verdict is known.
    pub(crate) fn poll_revoked(&self, handle: &Handle, context: &Context<'_>) -> Poll<()> {
        let mut table = self.table.lock();
        match table.entries.get(handle).map_or(Verdict::Write, |entry| entry.verdict) {
            Verdict::Awaited => Poll::Ready(()),
            Verdict::Write | Verdict::Discard => {
                table.wait(context);
                Poll::Pending
            }
        }
    }

    /// Sets the verdict about the data of a file whose delegation is lost.
    pub(crate) fn decide(&self, handle: &Handle, verdict: Verdict) {
        let mut table = self.table.lock();
        if let Some(entry) = table.entries.get_mut(handle) {
            entry.verdict = verdict;
        }
        table.wake();
    }
}

/// Returns.
impl Delegations {
    /// Returns whether this delegation is held.
    pub(crate) fn is_held(&self, handle: &Handle, stateid: &Stateid) -> bool {
        let table = self.table.lock();
        table.entries.get(handle).is_some_and(|entry| entry.stateid.other == stateid.other)
    }

    /// Notes the begin or the end of changes behind the caches.
    pub(crate) fn note_bypass(&self) {
        self.bypasses.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns how often such changes have begun or ended. A delegation of a directory that was requested before one of them is not used.
    pub(crate) fn bypasses(&self) -> u64 {
        self.bypasses.load(Ordering::SeqCst)
    }

    /// Handles CB_RECALL. Returns false if there is no such delegation.
    pub(crate) fn recall(&self, handle: &Handle, stateid: &Stateid) -> bool {
        let mut table = self.table.lock();
        let known = table.entries.get(handle).map(|entry| entry.stateid.other == stateid.other);
        match known {
            Some(true) => table.recall(handle),
            // Its grant may be on its way (§2.10.6.3).
            _ if table.openings > 0 => {
                if table.early.len() == EARLY_RECALLS_MAX {
                    table.early.pop_front();
                }
                table.early.push_back(stateid.other);
            }
            _ => return false,
        }
        drop(table);
        self.signal.raise();
        true
    }

    /// Handles CB_RECALL_ANY: returns all but `keep` delegations of `kinds`.
    pub(crate) fn recall_any(&self, keep: usize, kinds: impl Fn(Kind) -> bool) {
        let mut table = self.table.lock();
        let is_kept = |entry: &&Entry| entry.phase == Phase::Held && kinds(entry.held.kind);
        let held = table.entries.values().filter(is_kept).count();
        let queued = table.queue.len();
        table.return_oldest(held.saturating_sub(keep), kinds);
        let recalled: Vec<_> = table.queue.iter().skip(queued).copied().collect();
        for handle in recalled {
            if let Some(kind) = table.entries.get(&handle).map(|entry| entry.held.kind) {
                table.counts_of(kind).recalled += 1;
            }
        }
        drop(table);
        self.signal.raise();
    }

    /// Begins the return of a file's delegation. Returns whether there is one that has not ended.
    pub(crate) fn give_back(&self, handle: &Handle) -> bool {
        let mut table = self.table.lock();
        let is_new = table.begin_return(handle);
        let exists = table.entries.contains_key(handle);
        drop(table);
        if is_new {
            self.signal.raise();
        }
        exists
    }

    /// Begins the return of a file's delegation for reading. Returns whether there is one that has not ended.
    pub(crate) fn give_back_read(&self, handle: &Handle) -> bool {
        let is_read = |entry: &Entry| entry.held.kind == Kind::Read;
        let has_read = self.table.lock().entries.get(handle).is_some_and(is_read);
        has_read && self.give_back(handle)
    }

    /// Begins the return of all delegations.
    pub(crate) fn give_back_all(&self) {
        let mut table = self.table.lock();
        table.return_oldest(usize::MAX, |_| true);
        drop(table);
        self.signal.raise();
    }

    /// Completes when the delegation of a file has ended, or all of them.
    pub(crate) fn poll_ended(&self, handle: Option<&Handle>, context: &Context<'_>) -> Poll<()> {
        let mut table = self.table.lock();
        let has_ended = match handle {
            Some(handle) => !table.entries.contains_key(handle),
            None => table.entries.is_empty(),
        };
        if has_ended {
            return Poll::Ready(());
        }
        table.wait(context);
        Poll::Pending
    }

    /// Returns the next file whose delegation is to be returned, idle ones among them, and the latest time of the next call.
    pub(crate) fn next_return(&self, now: Duration) -> (Option<Handle>, Option<Duration>) {
        let mut table = self.table.lock();
        if table.search_at.is_some_and(|at| at <= now) {
            let idle = table.entries.iter().filter(|(_, entry)| entry.is_idle(now));
            let idle: Vec<_> = idle.map(|(handle, _)| *handle).collect();
            for handle in &idle {
                table.begin_return(handle);
            }
            let has_any = !table.entries.is_empty();
            table.search_at = has_any.then(|| now.saturating_add(IDLE_SEARCH));
        }
        (table.queue.pop_front(), table.search_at)
    }

    /// Waits for a change that [`Self::next_return`] shows.
    pub(crate) fn poll_signal(&self, context: &mut Context<'_>) -> Poll<()> {
        self.signal.poll(context)
    }

    /// Takes a local open of a delegation that is being returned: the server must know it before.
    pub(crate) fn next_local(&self, handle: &Handle) -> Option<Arc<OpenFile>> {
        self.table.lock().entries.get_mut(handle)?.local.pop()
    }

    /// Returns the state that ends with a delegation. The parked opens are the caller's then.
    pub(crate) fn ending(&self, handle: &Handle) -> Option<Ending> {
        let mut table = self.table.lock();
        let entry = table.entries.get_mut(handle)?;
        let stateid = (entry.phase != Phase::Lost).then_some(entry.stateid);
        entry.has_ended = true;
        Some(Ending { stateid, caller: entry.opener.clone(), parked: std::mem::take(&mut entry.parked) })
    }

    /// Returns the stateid of a file's delegation for writing, if it is held and the server has let the caller open the file for
    /// writing.
    pub(crate) fn stateid_to_write(&self, handle: &Handle, caller: &Caller) -> Option<Stateid> {
        let mut table = self.table.lock();
        let entry = table.held(handle)?;
        let covers = entry.held.kind.covers(OpenMode::WRITE) && entry.permits(caller, OpenMode::WRITE);
        covers.then_some(entry.stateid)
    }

    /// Returns the stateid of a file's delegation for writing with which data are written: also while it is being returned.
    pub(crate) fn stateid_of_writes(&self, handle: &Handle, caller: &Caller) -> Option<Stateid> {
        let table = self.table.lock();
        let entry = table.entries.get(handle)?;
        let is_valid =
            matches!(entry.phase, Phase::Held | Phase::Returning) && !entry.has_ended && !entry.reclaims;
        let covers = entry.held.kind.covers(OpenMode::WRITE) && entry.permits(caller, OpenMode::WRITE);
        (is_valid && covers).then_some(entry.stateid)
    }

    /// Returns the stateid of a file's delegation, unless it is lost.
    pub(crate) fn stateid(&self, handle: &Handle) -> Option<Stateid> {
        let table = self.table.lock();
        table.entries.get(handle).filter(|entry| entry.phase != Phase::Lost).map(|entry| entry.stateid)
    }

    /// Forgets a delegation that was returned or lost.
    pub(crate) fn ended(&self, handle: &Handle) {
        let mut table = self.table.lock();
        self.times.lock().remove(handle);
        if let Some(entry) = table.remove(handle).filter(|entry| entry.phase == Phase::Returning) {
            table.counts_of(entry.held.kind).returned += 1;
        }
    }
}
