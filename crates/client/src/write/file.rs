//! The writes of one file: the next requests, and the effects of replies.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::errors::ErrorLog;
use super::pace::RewritePace;
use super::page_state::{Event, PageState};
use super::request::{Next, RequestError, RequestId, Verifier, Written};
use super::settings::Settings;
use super::state_map::{Mark, StateMap};
use super::ticket::{Pending, SyncTicket};
use crate::errno::Errno;
use crate::results::Stability;

/// WRITEs that do not reach the end of dirty data end at a multiple of this.
const PAGE: u64 = 4096;

/// The outcome of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// On stable storage.
    Stable,
    /// Acknowledged; waits for a COMMIT.
    Uncommitted,
    /// Write it again.
    Lost,
    /// Failed; the program gets the error.
    Dropped,
}

pub(super) type Effects = Vec<(Range<u64>, Effect)>;

/// A WRITE under way.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) id: RequestId,
    pub(super) range: Range<u64>,
    /// Tickets with smaller numbers existed before it was sent.
    pub(super) tickets_before: u64,
}

/// A wait for WRITEs that were under way when it began: those that end beyond `size`, up to the newest one.
#[derive(Debug)]
struct Barrier {
    size: u64,
    newest: Option<RequestId>,
    ticket: SyncTicket,
}

#[derive(Debug)]
pub(super) struct FileWrites {
    states: StateMap,
    /// WRITEs under way, disjoint: start to end and request.
    in_flight: BTreeMap<u64, (u64, RequestId)>,
    commit: Option<RequestId>,
    verifier: Option<Verifier>,
    /// The position at which sending continues, so that all data are sent.
    cursor: u64,
    dirty_since: Option<Duration>,
    tickets: Vec<Pending>,
    /// Set if the program overwrote data that a ticket waits for.
    overwritten: bool,
    barriers: Vec<Barrier>,
    /// The newest WRITE whose data were discarded: its failure is known.
    discarded: Option<RequestId>,
    pub(super) errors: ErrorLog,
    pub(super) opens: u32,
    /// Truncations under way: nothing is sent.
    pub(super) holds: u32,
    pub(super) commit_wanted: bool,
    pub(super) flush_wanted: bool,
    pub(super) queued: bool,
    pub(super) queued_urgent: bool,
}

impl FileWrites {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            states: StateMap::new(settings.wsize),
            in_flight: BTreeMap::new(),
            commit: None,
            verifier: None,
            cursor: 0,
            dirty_since: None,
            tickets: Vec::new(),
            overwritten: false,
            barriers: Vec::new(),
            discarded: None,
            errors: ErrorLog::default(),
            opens: 0,
            holds: 0,
            commit_wanted: false,
            flush_wanted: false,
            queued: false,
            queued_urgent: false,
        }
    }

    pub(super) fn states(&self) -> &StateMap {
        &self.states
    }

    /// Returns true if a caller waits for this file.
    pub(super) fn is_urgent(&self) -> bool {
        !self.tickets.is_empty() || self.commit_wanted || self.flush_wanted
    }

    /// Returns true if lost data are not stable again.
    pub(super) fn is_rewriting(&self) -> bool {
        self.states.bytes(PageState::Rewrite) + self.states.bytes(PageState::Rewriting) > 0
    }

    /// Returns true if nothing must be remembered, except an error.
    pub(super) fn is_idle(&self) -> bool {
        self.states.is_clean()
            && self.in_flight.is_empty()
            && self.commit.is_none()
            && self.tickets.is_empty()
            && self.barriers.is_empty()
            && self.opens == 0
            && self.holds == 0
    }

    /// Notes that the program wrote `range`. Returns true if nothing was dirty before.
    pub(super) fn write(&mut self, range: &Range<u64>, stability: Stability, now: Duration) -> bool {
        self.overwritten |= self.tickets.iter().any(|ticket| ticket.covers(range));
        self.states.write(range, stability);
        let first = self.dirty_since.is_none();
        self.dirty_since.get_or_insert(now);
        first
    }

    /// Returns the newest WRITE under way that overlaps `range`.
    pub(super) fn in_flight(&self, range: &Range<u64>) -> Option<RequestId> {
        let ends_after = |(_, (end, id)): (&u64, &(u64, RequestId))| (*end > range.start).then_some(*id);
        self.in_flight.range(..range.end).rev().map_while(ends_after).max()
    }

    /// Returns a ticket for everything in `range` that is not stable.
    pub(super) fn sync(&mut self, range: &Range<u64>, id: u64) -> SyncTicket {
        let ticket = SyncTicket::new();
        let mut pending = Pending::new(id, ticket.clone());
        for (part, mark) in self.states.parts(range) {
            pending.cover(&part, matches!(mark.state, PageState::Written | PageState::Committing));
        }
        if !pending.finish_if_done() {
            self.tickets.push(pending);
        }
        ticket
    }

    /// Returns whether the server has not acknowledged some data.
    pub(super) fn has_unacknowledged(&self) -> bool {
        let bytes: u64 = PageState::ALL.iter().map(|state| self.states.bytes(*state)).sum();
        bytes > self.states.bytes(PageState::Written) + self.states.bytes(PageState::Committing)
    }

    /// Returns a ticket for everything that the server has not acknowledged; `None` if there is nothing.
    pub(super) fn flush(&mut self, id: u64) -> Option<SyncTicket> {
        let ticket = SyncTicket::new();
        let mut pending = Pending::until_acknowledged(id, ticket.clone());
        for (part, mark) in self.states.parts(&(0..u64::MAX)) {
            if !matches!(mark.state, PageState::Written | PageState::Committing) {
                pending.cover(&part, false);
            }
        }
        if pending.finish_if_done() {
            return None;
        }
        self.tickets.push(pending);
        Some(ticket)
    }

    /// Drops everything after `size`, and sends nothing until the server has truncated the file. The ticket is done when no WRITE
    /// beyond `size` is under way.
    pub(super) fn truncate(&mut self, size: u64) -> SyncTicket {
        self.holds += 1;
        self.discard(size);
        let ticket = SyncTicket::new();
        self.add_barrier(size, ticket.clone());
        ticket
    }

    /// Drops everything after `size`. Requests under way have no effect on the states any more.
    pub(super) fn discard(&mut self, size: u64) {
        let discarded = self.states.apply(&(size..u64::MAX), Event::Discard, |_| true, |_| {});
        self.stable(&discarded, u64::MAX);
        if size == 0 {
            self.discarded = self.in_flight.values().map(|(_, id)| *id).max().or(self.discarded);
        }
        self.note_clean();
    }

    /// Returns a ticket that is done when the WRITEs have ended that are under way now.
    pub(super) fn requests_ended(&mut self) -> SyncTicket {
        let ticket = SyncTicket::new();
        self.add_barrier(0, ticket.clone());
        ticket
    }

    fn add_barrier(&mut self, size: u64, ticket: SyncTicket) {
        let newest = self.in_flight.values().map(|(_, id)| *id).max();
        self.barriers.push(Barrier { size, newest, ticket });
        self.finish_barriers();
    }

    /// Returns the request to send now. `Err` is the time until which rewriting waits.
    pub(super) fn next(
        &mut self,
        settings: &Settings,
        pace: &mut RewritePace,
        now: Duration,
    ) -> Result<Option<Next>, Duration> {
        if self.holds > 0 {
            return Ok(None);
        }
        let mut wait = None;
        if let Some(range) = self.pick(PageState::Rewrite, false, settings.wsize) {
            match pace.take(now, range.end - range.start) {
                Ok(()) => return Ok(Some(Next::Write { range, stability: Stability::FileSync })),
                Err(until) => wait = Some(until),
            }
        }
        let aged = self.dirty_since.is_some_and(|since| now >= since.saturating_add(settings.dirty_age));
        let flush = aged || !self.tickets.is_empty() || self.flush_wanted;
        if let Some(range) = self.pick(PageState::Dirty, !flush, settings.wsize) {
            let stability = self.stability(&range, settings.stability);
            return Ok(Some(Next::Write { range, stability }));
        }
        if self.wants_commit()
            && let Some(range) = self.states.hull(PageState::Written)
        {
            return Ok(Some(Next::Commit { range }));
        }
        wait.map_or(Ok(None), Err)
    }

    /// Notes that a WRITE of `range`, which [`next`](Self::next) returned, is sent.
    pub(super) fn start_write(&mut self, range: &Range<u64>, stability: Stability, id: RequestId) {
        let stable = stability != Stability::Unstable;
        let event = if stable { Event::SendStable } else { Event::SendUnstable };
        self.states.apply(range, event, |_| true, |mark| mark.request = Some(id));
        self.in_flight.insert(range.start, (range.end, id));
        self.cursor = range.end;
        self.note_clean();
    }

    /// Notes that a COMMIT of `range`, which [`next`](Self::next) returned, is sent.
    pub(super) fn start_commit(&mut self, range: &Range<u64>, id: RequestId) {
        let written = |mark: &Mark| mark.state == PageState::Written;
        self.states.apply(range, Event::SendCommit, written, |mark| mark.request = Some(id));
        self.commit = Some(id);
        self.commit_wanted = false;
    }

    pub(super) fn end_write(&mut self, sent: &Sent, result: Result<Written, RequestError>) -> Effects {
        self.in_flight.remove(&sent.range.start);
        let result = match result {
            // RFC 1813 §3.3.7 allows fewer bytes, but with a server that writes none, writing would never end.
            Ok(Written { count: 0, .. }) => Err(RequestError::Failed(Errno::EIO)),
            result => result,
        };
        let effects = match result {
            Ok(written) => self.written(sent, written),
            Err(RequestError::Retry) => {
                self.not_written(&sent.range, sent.id);
                Vec::new()
            }
            Err(RequestError::Failed(error)) => self.failed(sent, error),
        };
        self.finish_barriers();
        self.note_clean();
        effects
    }

    pub(super) fn end_commit(&mut self, id: RequestId, result: Result<Verifier, RequestError>) -> Effects {
        self.commit = None;
        let everything = 0..u64::MAX;
        let end = |mark: &mut Mark| mark.request = None;
        match result {
            Ok(verifier) => {
                let matches = |mark: &Mark| mark.request == Some(id) && mark.verifier == verifier;
                let stable = self.states.apply(&everything, Event::Committed, matches, end);
                self.stable(&stable, u64::MAX);
                let lost =
                    self.states.apply(&everything, Event::Lost, |mark| mark.request == Some(id), forget);
                let mut effects = self.lost(lost);
                effects.extend(self.see(verifier));
                effects.extend(stable.into_iter().map(|range| (range, Effect::Stable)));
                effects
            }
            Err(RequestError::Retry) => {
                self.commit_wanted = true;
                self.states.apply(&everything, Event::NotCommitted, |mark| mark.request == Some(id), end);
                Vec::new()
            }
            // It is unknown which data are stable. Synchronous WRITEs resolve this, and report errors for the right bytes.
            Err(RequestError::Failed(_)) => {
                let lost =
                    self.states.apply(&everything, Event::Lost, |mark| mark.request == Some(id), forget);
                self.lost(lost)
            }
        }
    }

    fn written(&mut self, sent: &Sent, written: Written) -> Effects {
        let end = sent.range.end.min(sent.range.start + u64::from(written.count));
        let done = sent.range.start..end;
        let own = |mark: &Mark| mark.request == Some(sent.id);
        let mut effects = if written.stability == Stability::Unstable {
            let acknowledged = self.states.apply(&done, Event::RepliedUnstable, own, |mark| {
                (mark.request, mark.verifier) = (None, written.verifier);
            });
            for range in &acknowledged {
                self.tickets.retain_mut(|ticket| !ticket.acknowledged(range));
            }
            // Also if the program has overwritten data since: the server has the earlier data.
            self.tickets.retain_mut(|ticket| {
                ticket.needs_stable() || ticket.id >= sent.tickets_before || !ticket.acknowledged(&done)
            });
            self.overwritten &= !self.tickets.is_empty();
            acknowledged.into_iter().map(|range| (range, Effect::Uncommitted)).collect()
        } else {
            let stable = self.states.apply(&done, Event::RepliedStable, own, |mark| mark.request = None);
            self.stable(&stable, u64::MAX);
            // Also if the program has written again since: the earlier data are stable.
            self.stable(std::slice::from_ref(&done), sent.tickets_before);
            stable.into_iter().map(|range| (range, Effect::Stable)).collect::<Effects>()
        };
        self.not_written(&(end..sent.range.end), sent.id);
        if written.stability == Stability::Unstable {
            effects.extend(self.see(written.verifier));
        }
        effects
    }

    fn not_written(&mut self, range: &Range<u64>, id: RequestId) {
        let own = |mark: &Mark| mark.request == Some(id);
        if !self.states.apply(range, Event::NotWritten, own, |mark| mark.request = None).is_empty() {
            // The rest of a request is sent at once, even if it is small.
            self.flush_wanted = true;
            self.dirty_since.get_or_insert(Duration::ZERO);
        }
    }

    fn failed(&mut self, sent: &Sent, error: Errno) -> Effects {
        if self.discarded.is_none_or(|discarded| sent.id > discarded) {
            self.errors.record(error);
        }
        let own = |mark: &Mark| mark.request == Some(sent.id);
        let dropped = self.states.apply(&sent.range, Event::Failed, own, |mark| mark.request = None);
        self.stable(&dropped, u64::MAX);
        self.stable(std::slice::from_ref(&sent.range), sent.tickets_before);
        dropped.into_iter().map(|range| (range, Effect::Dropped)).collect()
    }

    /// Notes a reply's verifier: data that were acknowledged under another one may be lost.
    fn see(&mut self, verifier: Verifier) -> Effects {
        if self.verifier.replace(verifier).is_none_or(|known| known == verifier) {
            return Vec::new();
        }
        let old = |mark: &Mark| mark.state == PageState::Written && mark.verifier != verifier;
        let lost = self.states.apply(&(0..u64::MAX), Event::Lost, old, forget);
        self.lost(lost)
    }

    fn lost(&mut self, ranges: Vec<Range<u64>>) -> Effects {
        for range in &ranges {
            self.tickets.iter_mut().for_each(|ticket| ticket.lost(range));
        }
        ranges.into_iter().map(|range| (range, Effect::Lost)).collect()
    }

    /// Notes that `ranges` are stable, for tickets with numbers below `before`.
    fn stable(&mut self, ranges: &[Range<u64>], before: u64) {
        for range in ranges {
            self.tickets.retain_mut(|ticket| ticket.id >= before || !ticket.stable(range));
        }
        self.overwritten &= !self.tickets.is_empty();
    }

    fn finish_barriers(&mut self) {
        let in_flight = &self.in_flight;
        self.barriers.retain(|Barrier { size, newest, ticket }| {
            let waits = in_flight.values().any(|(end, id)| end > size && Some(*id) <= *newest);
            if !waits {
                ticket.finish();
            }
            waits
        });
    }

    fn note_clean(&mut self) {
        if self.states.bytes(PageState::Dirty) == 0 {
            self.dirty_since = None;
            self.flush_wanted = false;
        }
    }

    fn wants_commit(&self) -> bool {
        self.commit.is_none() && (self.commit_wanted || self.tickets.iter().any(Pending::needs_commit))
    }

    /// Returns adjacent bytes in `state`, at most `wsize`, of which no WRITE is under way. Two WRITEs of the same bytes
    /// could be executed in either order. With `full`, only ranges that fill a request.
    fn pick(&self, state: PageState, full: bool, wsize: u64) -> Option<Range<u64>> {
        self.states.candidates(state, full, self.cursor).find_map(|range| {
            let start = self.not_in_flight(&range)?;
            let limit = self.in_flight.range(start..).next().map_or(u64::MAX, |(start, _)| *start);
            let end = self.run_end(state, start, range.end, limit.min(start.saturating_add(wsize)));
            (!full || end - start > wsize - PAGE.min(wsize)).then_some(start..end)
        })
    }

    /// Returns the first byte of `range` that is not being written.
    fn not_in_flight(&self, range: &Range<u64>) -> Option<u64> {
        let mut at = range.start;
        while let Some((_, (end, _))) =
            self.in_flight.range(..=at).next_back().filter(|(_, (end, _))| *end > at)
        {
            at = *end;
        }
        (at < range.end).then_some(at)
    }

    /// Returns the end of the bytes in `state` that begin at `start`, at most `limit`.
    fn run_end(&self, state: PageState, start: u64, end: u64, limit: u64) -> u64 {
        let mut end = end;
        while end < limit
            && let Some((next, mark)) = self.states.starting_at(end)
            && mark.state == state
        {
            end = next.end;
        }
        if end <= limit {
            return end;
        }
        // The next WRITE begins with a page.
        let aligned = limit / PAGE * PAGE;
        if aligned > start { aligned } else { limit }
    }

    fn stability(&self, range: &Range<u64>, least: Stability) -> Stability {
        let asked =
            self.states.parts(range).map(|(_, mark)| mark.stability).max().unwrap_or(least).max(least);
        let pending =
            [PageState::Written, PageState::Committing].iter().any(|state| self.states.bytes(*state) > 0);
        let last = self.in_flight.is_empty()
            && !pending
            && self.states.bytes(PageState::Dirty) == range.end - range.start;
        // One request instead of two if a caller waits for the last data. And if the program keeps overwriting data that
        // a caller waits for, a COMMIT would find it dirty again each time.
        if !self.tickets.is_empty() && (last || self.overwritten) { Stability::FileSync } else { asked }
    }
}

fn forget(mark: &mut Mark) {
    (mark.request, mark.verifier) = (None, Verifier::default());
}
