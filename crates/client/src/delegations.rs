//! Delegations of files (RFC 8881 §10.4): a table by file handle, without requests.
//!
//! While a delegation is held, no other client changes the file. Opens that it covers, by callers whose access the server has
//! checked under it, are *local*: they have no state at the server. An open that the server knows is not closed at its last
//! use but *parked*, and used again by the next open of the same caller and mode. Attributes and data that were read under a
//! delegation are valid as long as it is held. Under one for writing, written data may stay in the cache after a close.
//!
//! A delegation ends in three ways: it is returned (because of a recall, a bound, its age, or an own change of the file's
//! name), it is lost (the server has revoked it), or it is not reclaimed after a restart of the server. From the recall on it
//! covers nothing new.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use protocol::nfs4::ops::open::SpaceLimit;
use protocol::nfs4::types::{Handle, Stateid, Status};

use crate::background::Signal;
use crate::config::Caller;
use crate::locks::LockKind;
use crate::opens::{OpenFile, OpenMode};

#[cfg(test)]
mod tests;

/// Maximum number of delegations, as in Linux's client. When there are more, the least recently used ones are returned.
pub const DELEGATIONS_MAX: usize = 5_000;
/// The time without use after which a delegation is returned.
pub const IDLE_MAX: Duration = Duration::from_secs(300);
/// The time between two searches for idle delegations.
const IDLE_SEARCH: Duration = Duration::from_secs(60);
/// Part of all delegations that is returned when there are too many: a sixteenth.
const SURPLUS_PART: usize = 16;
/// Maximum number of recalls that are remembered for delegations whose OPEN has no reply yet.
const EARLY_RECALLS_MAX: usize = 64;
/// Callers that are remembered for one delegation; with more, the first one is forgotten.
const CALLERS_MAX: usize = 8;

/// The type of a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Other clients may read the file (`OPEN_DELEGATE_READ`).
    Read,
    /// No other client uses the file (`OPEN_DELEGATE_WRITE`).
    Write,
}

impl Kind {
    /// Returns whether an open of this mode can be local.
    const fn covers(self, mode: OpenMode) -> bool {
        matches!(self, Self::Write) || !mode.write
    }

    /// Returns whether no other client can have a lock that conflicts with one of `kind` (§10.4.2): an exclusive lock needs an
    /// open for writing.
    pub(crate) fn excludes(self, kind: LockKind) -> bool {
        self == Self::Write || kind == LockKind::Shared
    }
}

/// Numbers of delegations so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DelegationCounts {
    /// Delegations that are held.
    pub held: usize,
    /// Delegations that the server has granted.
    pub granted: u64,
    /// Delegations that the server has recalled.
    pub recalled: u64,
    /// Delegations that were returned, for any reason.
    pub returned: u64,
    /// Delegations that the server has revoked, or did not let the client reclaim.
    pub lost: u64,
    /// Opens without a request to the server.
    pub local_opens: u64,
}

/// A delegation in the reply to an OPEN.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) handle: Handle,
    pub(crate) kind: Kind,
    pub(crate) stateid: Stateid,
    /// The user and the mode of the OPEN.
    pub(crate) caller: Caller,
    pub(crate) mode: OpenMode,
    /// Whether the server keeps the file while it is open although its last name is removed.
    pub(crate) preserves_unlinked: bool,
    /// The written data that may stay in the cache after a close; `None` for a delegation for reading.
    pub(crate) limit: Option<SpaceLimit>,
    /// The file's change attribute at the grant.
    pub(crate) change: Option<u64>,
}

/// A delegation in a reply, without the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) kind: Kind,
    pub(crate) stateid: Stateid,
    /// Whether the server recalls it already.
    pub(crate) is_recalled: bool,
    /// As [`Grant::limit`].
    pub(crate) limit: Option<SpaceLimit>,
}

/// A delegation that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// The number of the delegation, which no other has.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// When the reply with the delegation had arrived: requests sent later are executed under it.
    pub(crate) granted_at: Duration,
    /// The written data that may stay in the cache after a close; `None` for a delegation for reading.
    pub(crate) limit: Option<SpaceLimit>,
}

impl Held {
    /// Returns whether a file of `size` bytes, of which `unwritten` are only in the cache, may be closed without writing them
    /// back (RFC 8881 §18.16.1).
    pub(crate) fn allows_unwritten(&self, size: u64, unwritten: u64) -> bool {
        match self.limit {
            None => false,
            Some(SpaceLimit::Size(limit)) => size <= limit,
            Some(SpaceLimit::Blocks(limit)) => {
                unwritten <= u64::from(limit.blocks) * u64::from(limit.bytes_per_block)
            }
        }
    }
}

/// What a cache has of a file under a delegation for writing, for CB_GETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cached {
    /// The size that programs see.
    pub(crate) size: u64,
    /// Whether there are data that the server does not have.
    pub(crate) is_modified: bool,
}

/// A future of a cache's work.
pub(crate) type CacheWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A cache of data under delegations: a mount.
pub(crate) trait DelegatedCache: Send + Sync {
    /// Writes a file's data back, and waits until they are stable or have failed. The delegation is being returned, or lost.
    fn write_back(self: Arc<Self>, handle: Handle) -> CacheWork;

    /// Closes opens of a file that programs have closed, after [`Self::write_back`].
    fn close_unused(self: Arc<Self>, handle: Handle) -> CacheWork;

    /// Decides about a file's data after its delegation was revoked: if another client may have changed the file, they are
    /// dropped, and the file's users get EIO (RFC 8881 §10.5).
    fn check_revoked(self: Arc<Self>, handle: Handle) -> Pin<Box<dyn Future<Output = Verdict> + Send>>;

    /// Waits until no WRITE of a file is under way, after [`Verdict::Discard`].
    fn writes_ended(self: Arc<Self>, handle: Handle) -> CacheWork;

    /// Returns what the cache has of a file; `None` if nothing.
    fn cached(&self, handle: &Handle) -> Option<Cached>;
}

/// Whether data that were written under a delegation may be written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No other client can have changed the file.
    Write,
    /// It is not decided yet: the delegation was revoked.
    Awaited,
    /// Other clients may have changed the file.
    Discard,
}

/// An open without a request.
#[derive(Debug)]
pub(crate) struct LocalOpen {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) preserves_unlinked: bool,
}

/// How an open file is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// The server does not know the open.
    Local,
    /// The open stays at the server for the next one, at most until the delegation ends.
    Parked,
    /// By CLOSE.
    AtServer,
}

/// The state that is given back with a delegation.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The delegation; `None` if it is lost.
    pub(crate) stateid: Option<Stateid>,
    pub(crate) caller: Caller,
    pub(crate) parked: Vec<Arc<OpenFile>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    /// The server has restarted.
    Reclaiming,
    /// It is being returned.
    Returning,
    /// The server does not have it any longer; its local opens must be opened, and its parked ones closed.
    Lost,
}

#[derive(Debug)]
struct Entry {
    held: Held,
    phase: Phase,
    stateid: Stateid,
    /// The file's change attribute at the grant.
    change: Option<u64>,
    verdict: Verdict,
    used_at: Duration,
    preserves_unlinked: bool,
    /// Opens whose permission the server has checked. The first one's caller returns the delegation.
    permitted: Vec<(Caller, OpenMode)>,
    opener: Caller,
    /// Opens in use that the server does not know.
    local: Vec<Arc<OpenFile>>,
    /// Opens of the server that are not in use.
    parked: Vec<Arc<OpenFile>>,
    /// Whether the requests of its end were begun, so that no open can be parked.
    has_ended: bool,
    /// Whether it is reclaimed after a restart of the server although it is being returned: other clients must not read the file
    /// before its data are written back.
    reclaims: bool,
}

impl Entry {
    fn is_reclaiming(&self) -> bool {
        self.phase == Phase::Reclaiming || self.reclaims
    }
}

impl Entry {
    fn permits(&self, caller: &Caller, mode: OpenMode) -> bool {
        let has = |part: fn(OpenMode) -> bool| {
            !part(mode) || self.permitted.iter().any(|(known, modes)| known == caller && part(*modes))
        };
        has(|mode| mode.read) && has(|mode| mode.write)
    }

    fn permit(&mut self, caller: &Caller, mode: OpenMode) {
        if self.permits(caller, mode) {
            return;
        }
        if self.permitted.len() == CALLERS_MAX {
            self.permitted.remove(0);
        }
        self.permitted.push((caller.clone(), mode));
    }

    fn is_idle(&self, now: Duration) -> bool {
        self.phase == Phase::Held && self.local.is_empty() && now >= self.used_at.saturating_add(IDLE_MAX)
    }
}

/// All delegations of a client.
#[derive(Debug, Default)]
pub(crate) struct Delegations {
    table: Mutex<Table>,
    /// Raised when a delegation is to be returned, or a search for idle ones is due at another time.
    signal: Signal,
    caches: Mutex<Vec<Weak<dyn DelegatedCache>>>,
}

impl std::fmt::Debug for dyn DelegatedCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DelegatedCache")
    }
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Handle, Entry>,
    /// Files whose delegations are to be returned.
    queue: VecDeque<Handle>,
    /// Recalls of delegations that are not known yet.
    early: VecDeque<[u8; 12]>,
    /// OPENs in flight that may get a delegation.
    openings: usize,
    /// When idle delegations are searched; `None` without delegations.
    search_at: Option<Duration>,
    last_id: u64,
    counts: DelegationCounts,
    /// Tasks that wait for the end of delegations.
    waiting: Vec<Waker>,
}

/// Counts an OPEN in flight that may get a delegation.
#[derive(Debug)]
pub(crate) struct Opening<'a>(&'a Delegations);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut table = self.0.table.lock();
        table.openings -= 1;
        if table.openings == 0 {
            table.early.clear();
        }
    }
}

impl Table {
    /// Returns the delegation of a file if it is held.
    fn held(&mut self, handle: &Handle) -> Option<&mut Entry> {
        self.entries.get_mut(handle).filter(|entry| entry.phase == Phase::Held)
    }

    /// Begins the return of a delegation. Returns false if it is not held.
    fn begin_return(&mut self, handle: &Handle) -> bool {
        let Some(entry) = self.held(handle) else { return false };
        entry.phase = Phase::Returning;
        self.queue.push_back(*handle);
        true
    }

    /// Begins the return of the delegations of `kinds` that were not used for the longest time. Those with local opens come
    /// last.
    fn return_oldest(&mut self, count: usize, kinds: impl Fn(Kind) -> bool) {
        let candidates =
            self.entries.iter().filter(|(_, entry)| entry.phase == Phase::Held && kinds(entry.held.kind));
        let mut candidates: Vec<_> = candidates
            .map(|(handle, entry)| (!entry.local.is_empty(), entry.used_at, entry.held.id, *handle))
            .collect();
        candidates.sort_unstable_by_key(|(is_used, used_at, id, _)| (*is_used, *used_at, *id));
        for (_, _, _, handle) in candidates.into_iter().take(count) {
            self.begin_return(&handle);
        }
    }

    /// Notes that the server does not have a delegation any longer, and whether other clients may have changed the file since.
    fn lose(&mut self, handle: &Handle, may_be_changed: bool) {
        let Some(entry) = self.entries.get_mut(handle) else { return };
        if may_be_changed && entry.held.kind == Kind::Write {
            entry.verdict = Verdict::Awaited;
            self.waiting.drain(..).for_each(Waker::wake);
        }
        self.counts.lost += 1;
        entry.reclaims = false;
        // A return that is under way ends it.
        if entry.phase != Phase::Returning {
            self.queue.push_back(*handle);
        }
        entry.phase = Phase::Lost;
    }

    /// Forgets a delegation.
    fn remove(&mut self, handle: &Handle) -> Option<Entry> {
        let entry = self.entries.remove(handle)?;
        self.wake();
        Some(entry)
    }

    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    fn wait(&mut self, context: &Context<'_>) {
        if !self.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            self.waiting.push(context.waker().clone());
        }
    }
}

/// Opens and their ends.
impl Delegations {
    /// Notes that an OPEN is sent that may get a delegation. A recall may overtake its reply.
    pub(crate) fn opening(&self) -> Opening<'_> {
        self.table.lock().openings += 1;
        Opening(self)
    }

    /// Takes a delegation from the reply to an OPEN. Returns its number; `None` if it must be returned at once, because the
    /// file has another one.
    pub(crate) fn granted(&self, grant: Grant, now: Duration) -> Option<u64> {
        let Grant { handle, kind, stateid, caller, mode, preserves_unlinked, limit, change } = grant;
        let mut table = self.table.lock();
        if let Some(entry) = table.entries.get_mut(&handle) {
            if entry.stateid.other != stateid.other {
                return None;
            }
            // The server may have changed its kind (RFC 8881 §18.16.3).
            (entry.stateid, entry.change) = (stateid, change);
            (entry.held.kind, entry.held.limit) = (kind, limit);
            return Some(entry.held.id);
        }
        table.last_id += 1;
        let held = Held { id: table.last_id, kind, granted_at: now, limit };
        let entry = Entry {
            held,
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
        };
        table.entries.insert(handle, entry);
        table.counts.granted += 1;
        let early = table.early.iter().position(|other| *other == stateid.other);
        if let Some(at) = early {
            table.early.remove(at);
            table.counts.recalled += 1;
            table.begin_return(&handle);
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

    /// Returns the numbers of delegations.
    pub(crate) fn counts(&self) -> DelegationCounts {
        let table = self.table.lock();
        DelegationCounts { held: table.entries.len(), ..table.counts }
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
    /// Handles CB_RECALL. Returns false if there is no such delegation.
    pub(crate) fn recall(&self, handle: &Handle, stateid: &Stateid) -> bool {
        let mut table = self.table.lock();
        let known = table.entries.get(handle).map(|entry| entry.stateid.other == stateid.other);
        match known {
            Some(true) => {
                if table.begin_return(handle) {
                    table.counts.recalled += 1;
                }
            }
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
        table.counts.recalled += (table.queue.len() - queued) as u64;
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

    /// Returns the stateid of a file's delegation, unless it is lost.
    pub(crate) fn stateid(&self, handle: &Handle) -> Option<Stateid> {
        let table = self.table.lock();
        table.entries.get(handle).filter(|entry| entry.phase != Phase::Lost).map(|entry| entry.stateid)
    }

    /// Forgets a delegation that was returned or lost.
    pub(crate) fn ended(&self, handle: &Handle) {
        let mut table = self.table.lock();
        if table.remove(handle).is_some_and(|entry| entry.phase == Phase::Returning) {
            table.counts.returned += 1;
        }
    }
}

/// Losses and reclaims.
impl Delegations {
    /// Returns all files with their delegations' stateids.
    pub(crate) fn stateids(&self) -> Vec<(Handle, Stateid)> {
        let table = self.table.lock();
        let live = table.entries.iter().filter(|(_, entry)| entry.phase != Phase::Lost);
        live.map(|(handle, entry)| (*handle, entry.stateid)).collect()
    }

    /// Notes that the server has revoked a delegation. Returns whether it was this one.
    pub(crate) fn revoked(&self, handle: &Handle, stateid: &Stateid) -> bool {
        let mut table = self.table.lock();
        let Some(entry) = table.entries.get_mut(handle) else { return false };
        if entry.stateid.other != stateid.other || entry.phase == Phase::Lost {
            return false;
        }
        table.lose(handle, true);
        drop(table);
        self.signal.raise();
        true
    }

    /// Begins to reclaim after a restart of the server. Returns the files whose delegations are reclaimed. Those whose return was
    /// sent are not: they are lost.
    pub(crate) fn begin_reclaim(&self) -> HashMap<Handle, Kind> {
        let mut table = self.table.lock();
        let mut claims = HashMap::new();
        for (handle, entry) in &mut table.entries {
            match entry.phase {
                Phase::Held | Phase::Reclaiming => {
                    entry.phase = Phase::Reclaiming;
                    claims.insert(*handle, entry.held.kind);
                }
                Phase::Returning if entry.held.kind == Kind::Write && !entry.has_ended => {
                    entry.reclaims = true;
                    claims.insert(*handle, entry.held.kind);
                }
                // Its return is under way.
                Phase::Returning => entry.phase = Phase::Lost,
                Phase::Lost => {}
            }
        }
        claims
    }

    /// Takes a reclaimed delegation, which the server may recall at once, and the file's change attribute. Returns false if none
    /// of this file is being reclaimed.
    pub(crate) fn reclaimed(&self, handle: &Handle, granted: &Granted, change: Option<u64>) -> bool {
        let Granted { kind, stateid, is_recalled, limit } = *granted;
        let mut table = self.table.lock();
        let Some(entry) = table.entries.get_mut(handle) else { return false };
        // One whose return has begun meanwhile is returned by its former stateid.
        if !entry.is_reclaiming() || entry.has_ended || entry.held.kind != kind {
            return false;
        }
        (entry.stateid, entry.change, entry.held.limit) = (stateid, change, limit);
        if !std::mem::take(&mut entry.reclaims) {
            entry.phase = Phase::Held;
        }
        entry.local.retain(|file| file.is_local());
        for file in &entry.local {
            file.delegated(stateid);
        }
        if is_recalled {
            table.counts.recalled += 1;
            table.begin_return(handle);
            drop(table);
            self.signal.raise();
        }
        true
    }

    /// Notes that no more delegations will be reclaimed: the rest is lost. Other clients cannot have changed the files of
    /// `reopened`, of which an open was reclaimed.
    pub(crate) fn end_reclaim(&self, reopened: &HashSet<Handle>) {
        let mut table = self.table.lock();
        let lost = table.entries.iter().filter(|(_, entry)| entry.is_reclaiming());
        let lost: Vec<_> = lost.map(|(handle, _)| *handle).collect();
        for handle in &lost {
            table.lose(handle, !reopened.contains(handle));
        }
        drop(table);
        self.signal.raise();
    }
}
