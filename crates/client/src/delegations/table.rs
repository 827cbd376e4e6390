//! The table of delegations.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use protocol::nfs4::types::{Handle, Stateid};

use super::cache::Verdict;
use super::types::{DelegationCounts, Held, Kind, Location};
use crate::config::Caller;
use crate::opens::{OpenFile, OpenMode};

/// The time without use after which a delegation is returned.
pub const IDLE_MAX: Duration = Duration::from_secs(300);
/// Callers that are remembered for one delegation; with more, the first one is forgotten.
const CALLERS_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Held,
    /// The server has restarted.
    Reclaiming,
    /// It is being returned.
    Returning,
    /// The server does not have it any longer; its local opens must be opened, and its parked ones closed.
    Lost,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) held: Held,
    /// The file's directory and name, where opens need them.
    pub(super) location: Option<Location>,
    pub(super) phase: Phase,
    pub(super) stateid: Stateid,
    /// The file's change attribute at the grant.
    pub(super) change: Option<u64>,
    pub(super) verdict: Verdict,
    pub(super) used_at: Duration,
    pub(super) preserves_unlinked: bool,
    /// Opens whose permission the server has checked.
    pub(super) permitted: Vec<(Caller, OpenMode)>,
    /// The caller that returns the delegation.
    pub(super) opener: Caller,
    /// Opens in use that the server does not know.
    pub(super) local: Vec<Arc<OpenFile>>,
    /// Opens of the server that are not in use.
    pub(super) parked: Vec<Arc<OpenFile>>,
    /// Whether the requests of its end were begun, so that no open can be parked.
    pub(super) has_ended: bool,
    /// Whether it is reclaimed after a restart of the server although it is being returned: other clients must not read the file
    /// before its data are written back.
    pub(super) reclaims: bool,
    /// Whether the server has revoked it. Otherwise one that is lost was not reclaimed after a restart of the server.
    pub(super) is_revoked: bool,
}

impl Entry {
    pub(super) fn is_reclaiming(&self) -> bool {
        self.phase == Phase::Reclaiming || self.reclaims
    }

    pub(super) fn permits(&self, caller: &Caller, mode: OpenMode) -> bool {
        let has = |part: fn(OpenMode) -> bool| {
            !part(mode) || self.permitted.iter().any(|(known, modes)| known == caller && part(*modes))
        };
        has(|mode| mode.read) && has(|mode| mode.write)
    }

    pub(super) fn permit(&mut self, caller: &Caller, mode: OpenMode) {
        if self.permits(caller, mode) {
            return;
        }
        if self.permitted.len() == CALLERS_MAX {
            self.permitted.remove(0);
        }
        self.permitted.push((caller.clone(), mode));
    }

    pub(super) fn is_idle(&self, now: Duration) -> bool {
        self.phase == Phase::Held && self.local.is_empty() && now >= self.used_at.saturating_add(IDLE_MAX)
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: HashMap<Handle, Entry>,
    /// Files whose delegations are to be returned.
    pub(super) queue: VecDeque<Handle>,
    /// Recalls of delegations that are not known yet.
    pub(super) early: VecDeque<[u8; 12]>,
    /// OPENs in flight that may get a delegation.
    pub(super) openings: usize,
    /// When idle delegations are searched; `None` without delegations.
    pub(super) search_at: Option<Duration>,
    pub(super) last_id: u64,
    /// Number of restarts of the server that this client has noticed.
    pub(super) restarts: u64,
    /// Delegations of files.
    pub(super) counts: DelegationCounts,
    /// Delegations of directories.
    pub(super) directory_counts: DelegationCounts,
    /// Tasks that wait for the end of delegations.
    pub(super) waiting: Vec<Waker>,
}

impl Table {
    /// Returns the counters of a kind.
    pub(super) fn counts_of(&mut self, kind: Kind) -> &mut DelegationCounts {
        match kind {
            Kind::Read | Kind::Write => &mut self.counts,
            Kind::Directory => &mut self.directory_counts,
        }
    }

    /// Begins the return of a delegation that the server recalls, if it is held.
    pub(super) fn recall(&mut self, handle: &Handle) {
        if self.begin_return(handle)
            && let Some(kind) = self.entries.get(handle).map(|entry| entry.held.kind)
        {
            self.counts_of(kind).recalled += 1;
        }
    }

    /// Returns the delegation of a file if it is held.
    pub(super) fn held(&mut self, handle: &Handle) -> Option<&mut Entry> {
        self.entries.get_mut(handle).filter(|entry| entry.phase == Phase::Held)
    }

    /// Begins the return of a delegation. Returns false if it is not held.
    pub(super) fn begin_return(&mut self, handle: &Handle) -> bool {
        let Some(entry) = self.held(handle) else { return false };
        entry.phase = Phase::Returning;
        self.queue.push_back(*handle);
        true
    }

    /// Begins the return of the delegations of `kinds` that were not used for the longest time. Those with local opens come
    /// last.
    pub(super) fn return_oldest(&mut self, count: usize, kinds: impl Fn(Kind) -> bool) {
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
    pub(super) fn lose(&mut self, handle: &Handle, may_be_changed: bool) {
        let Some(entry) = self.entries.get_mut(handle) else { return };
        if may_be_changed && entry.held.kind == Kind::Write {
            entry.verdict = Verdict::Awaited;
            wake(&mut self.waiting);
        }
        entry.reclaims = false;
        // A return that is under way ends it.
        if entry.phase != Phase::Returning {
            self.queue.push_back(*handle);
        }
        entry.phase = Phase::Lost;
        let kind = entry.held.kind;
        self.counts_of(kind).lost += 1;
    }

    /// Forgets a delegation.
    pub(super) fn remove(&mut self, handle: &Handle) -> Option<Entry> {
        let entry = self.entries.remove(handle)?;
        self.counts_of(entry.held.kind).held -= 1;
        self.wake();
        Some(entry)
    }

    /// Wakes the tasks that wait for the end of delegations, or for a verdict.
    pub(super) fn wake(&mut self) {
        wake(&mut self.waiting);
    }

    pub(super) fn wait(&mut self, context: &Context<'_>) {
        if !self.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            self.waiting.push(context.waker().clone());
        }
    }
}

fn wake(waiting: &mut Vec<Waker>) {
    waiting.drain(..).for_each(Waker::wake);
}
