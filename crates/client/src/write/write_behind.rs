//! Write-behind: accepts the data that programs write, and decides which requests to send and when.
//!
//! [`WriteBehind`] owns the page cache of one server. Kinds of methods:
//!
//! - Commands of the program: [`write`](WriteBehind::write), [`sync`](WriteBehind::sync),
//!   [`start_truncate`](WriteBehind::start_truncate), [`open`](WriteBehind::open), [`close`](WriteBehind::close).
//! - [`poll_action`](WriteBehind::poll_action) returns the next request, each once. Call it while the server has room for
//!   requests; there is no limit on their number here. Send it after the lock around this structure is released. When it
//!   returns `None`, call it again after any other method, and at [`poll_timeout`](WriteBehind::poll_timeout).
//! - [`handle_written`](WriteBehind::handle_written) and [`handle_committed`](WriteBehind::handle_committed) take the ends of
//!   requests.
//! - [`give_up`](WriteBehind::give_up) releases as much memory as the limiter demands.
//!
//! **What is sent**: full requests as soon as there are any; the rest when a caller waits for it (fsync, close), after
//! `dirty_age`, or when memory is short. Files take turns; awaited files go first. Bytes of which a WRITE is
//! under way are not sent again before it ends, but the program may overwrite them at any time.
//!
//! No call waits here, because none depends on replies. Only the memory limiter slows writers down.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::demand_queue::DemandQueue;
use super::errors::OpenFile;
use super::file::{Effect, Effects, FileWrites, Sent};
use super::pace::RewritePace;
use super::page_state::PageState;
use super::request::{Next, RequestError, RequestId, Verifier, WriteAction, Written};
use super::settings::Settings;
use super::ticket::SyncTicket;
use crate::cache::FileId;
use crate::cache::limiter::{Demand, Kind, Permit};
use crate::cache::pages::PageCache;
use crate::errno::Errno;
use crate::results::Stability;

#[cfg(test)]
mod tests;

/// Files without descriptions whose error has not been reported. The oldest numbers are forgotten beyond this.
pub const UNSEEN_ERRORS_MAX: usize = 1024;

/// The written data of many files of one server.
#[derive(Debug)]
pub struct WriteBehind {
    settings: Settings,
    pages: PageCache,
    files: HashMap<FileId, FileWrites>,
    /// Files with dirty data, and files with uncommitted data.
    dirty: DemandQueue,
    uncommitted: DemandQueue,
    requests: HashMap<RequestId, Request>,
    urgent: VecDeque<FileId>,
    normal: VecDeque<FileId>,
    /// When the dirty data of files have waited long enough.
    aging: BTreeSet<(Duration, FileId)>,
    pace: RewritePace,
    /// Files with lost data that are not stable again.
    rewriting: BTreeSet<FileId>,
    /// Files whose rewriting waits, and until when.
    paced: BTreeSet<FileId>,
    paced_until: Duration,
    /// Files without descriptions whose error has not been reported.
    unseen_errors: BTreeSet<FileId>,
    last_request: u64,
    last_ticket: u64,
}

#[derive(Debug)]
struct Request {
    file: FileId,
    /// `None` for a COMMIT.
    write: Option<Sent>,
    /// Memory that was replaced in the cache while the request uses it.
    held: Vec<Permit>,
}

impl WriteBehind {
    /// Creates the state without files.
    pub fn new(settings: Settings) -> Self {
        debug_assert!(settings.wsize > 0 && settings.wsize.is_multiple_of(4096));
        Self {
            settings,
            pages: PageCache::default(),
            files: HashMap::new(),
            dirty: DemandQueue::default(),
            uncommitted: DemandQueue::default(),
            requests: HashMap::new(),
            urgent: VecDeque::new(),
            normal: VecDeque::new(),
            aging: BTreeSet::new(),
            pace: RewritePace::new(settings.rewrite_rate, settings.wsize),
            rewriting: BTreeSet::new(),
            paced: BTreeSet::new(),
            paced_until: Duration::ZERO,
            unseen_errors: BTreeSet::new(),
            last_request: 0,
            last_ticket: 0,
        }
    }

    /// Returns the page cache.
    pub fn pages(&self) -> &PageCache {
        &self.pages
    }

    /// Returns the page cache for reads, fetches and invalidation. Do not write to it or remove from it.
    pub fn pages_mut(&mut self) -> &mut PageCache {
        &mut self.pages
    }

    /// Returns the bytes of a file that are not stable.
    pub fn unstable_bytes(&self, file: FileId) -> u64 {
        let bytes = |file: &FileWrites| PageState::ALL.iter().map(|state| file.states().bytes(*state)).sum();
        self.files.get(&file).map_or(0, bytes)
    }

    /// Returns whether the server has not acknowledged some data of a file: its attributes will change when it does.
    pub fn has_unacknowledged(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(FileWrites::has_unacknowledged)
    }

    /// Returns where the unstable data of a file end: its size is at least that, even if the server's attributes show less.
    pub fn unstable_end(&self, file: FileId) -> Option<u64> {
        self.files.get(&file)?.states().end()
    }

    /// Accepts the program's `data` at `offset`; their end is below 2⁶³. `permit` is of [`Kind::Dirty`] and holds
    /// [`charge`](crate::cache::pages::charge) of their length. `stability` is that of O_SYNC and O_DSYNC; the caller then
    /// waits for a [`sync`](Self::sync) of the range.
    pub fn write(
        &mut self,
        file: FileId,
        offset: u64,
        data: Bytes,
        permit: Permit,
        stability: Stability,
        now: Duration,
    ) {
        if data.is_empty() {
            return;
        }
        let range = offset..offset + data.len() as u64;
        let replaced = self.pages.write(file, offset, data, permit);
        self.hold(file, &range, replaced);
        let settings = self.settings;
        let writes = self.files.entry(file).or_insert_with(|| FileWrites::new(&settings));
        if writes.write(&range, stability, now) {
            self.aging.insert((now.saturating_add(settings.dirty_age), file));
        }
        self.changed(file);
    }

    /// Returns a ticket that is done when everything is stable that was written to `range` before this call (`0..u64::MAX`
    /// for fsync and close), or failed.
    pub fn sync(&mut self, file: FileId, range: Range<u64>) -> SyncTicket {
        self.last_ticket += 1;
        let id = self.last_ticket;
        match self.files.get_mut(&file) {
            Some(writes) => {
                let ticket = writes.sync(&range, id);
                self.changed(file);
                ticket
            }
            None => {
                let ticket = SyncTicket::new();
                ticket.finish();
                ticket
            }
        }
    }

    /// Returns a ticket that is done when the server has acknowledged everything that was written before this call, stable or not,
    /// or it failed. `None` if it has.
    pub fn flush(&mut self, file: FileId) -> Option<SyncTicket> {
        let id = self.last_ticket + 1;
        let ticket = self.files.get_mut(&file)?.flush(id)?;
        self.last_ticket = id;
        self.changed(file);
        Some(ticket)
    }

    /// Returns a ticket that is done when no WRITE of the file is under way; `None` if none is.
    pub fn requests_ended(&mut self, file: FileId) -> Option<SyncTicket> {
        self.files.get_mut(&file).map(FileWrites::requests_ended)
    }

    /// Requests a COMMIT of the file's acknowledged data, for which no caller waits.
    pub fn commit(&mut self, file: FileId) {
        if let Some(writes) = self.files.get_mut(&file) {
            writes.commit_wanted = true;
            self.changed(file);
        }
    }

    /// Notes that the program sets the size. Cached data beyond it are gone, and nothing of the file is sent until
    /// [`end_truncate`](Self::end_truncate). Send the SETATTR when the ticket is done: a late WRITE would make the file longer
    /// again.
    pub fn start_truncate(&mut self, file: FileId, size: u64) -> SyncTicket {
        let beyond = size..u64::MAX;
        let removed = self.pages.remove(file, beyond.clone());
        self.hold(file, &beyond, removed);
        let settings = self.settings;
        let writes = self.files.entry(file).or_insert_with(|| FileWrites::new(&settings));
        let ticket = writes.truncate(size);
        self.changed(file);
        ticket
    }

    /// Notes that the SETATTR of a truncation ended, successfully or not.
    pub fn end_truncate(&mut self, file: FileId) {
        if let Some(writes) = self.files.get_mut(&file) {
            writes.holds = writes.holds.saturating_sub(1);
            self.changed(file);
        }
    }

    /// Drops the data of a file that is gone, or whose handle names another file. Reports `error` to its descriptions if there
    /// were unstable ones.
    pub fn discard(&mut self, file: FileId, error: Errno) {
        let removed = self.pages.remove(file, 0..u64::MAX);
        self.hold(file, &(0..u64::MAX), removed);
        if let Some(writes) = self.files.get_mut(&file) {
            if !writes.states().is_clean() {
                writes.errors.record(error);
            }
            writes.discard(0);
            self.changed(file);
        }
    }

    /// Notes that data written without the cache are lost: each description of the file gets `error`.
    pub fn note_error(&mut self, file: FileId, error: Errno) {
        let settings = self.settings;
        let writes = self.files.entry(file).or_insert_with(|| FileWrites::new(&settings));
        writes.errors.record(error);
        self.changed(file);
    }

    /// Notes that the program opens the file.
    pub fn open(&mut self, file: FileId) -> OpenFile {
        let settings = self.settings;
        let writes = self.files.entry(file).or_insert_with(|| FileWrites::new(&settings));
        writes.opens += 1;
        writes.errors.open(file)
    }

    /// Returns an error of earlier writes that has not been reported to this description yet. Ask at write, and after the ticket of an
    /// fsync is done.
    pub fn take_error(&mut self, open: &mut OpenFile) -> Result<(), Errno> {
        self.files.get_mut(&open.file).map_or(Ok(()), |writes| writes.errors.take(open))
    }

    /// Notes that the program closes the file. Wait for a [`sync`](Self::sync) of the whole file first.
    pub fn close(&mut self, mut open: OpenFile) -> Result<(), Errno> {
        let result = self.take_error(&mut open);
        if let Some(writes) = self.files.get_mut(&open.file) {
            writes.opens = writes.opens.saturating_sub(1);
            self.changed(open.file);
        }
        result
    }

    /// Releases as many pages as the memory limiter demands: evicts, and makes the files with most unstable data send and commit them.
    /// A caller that has to wait for memory calls this, and then polls for actions.
    pub fn give_up(&mut self, demand: Demand) {
        self.pages.evict(Kind::Clean, demand.clean);
        self.pages.evict(Kind::ReadAhead, demand.read_ahead);
        while let Some(file) = self.uncommitted.next().filter(|_| demand.commit) {
            let Some(writes) = self.files.get_mut(&file) else { break };
            writes.commit_wanted = true;
            self.changed(file);
        }
        while let Some(file) = self.dirty.next().filter(|_| demand.flush) {
            let Some(writes) = self.files.get_mut(&file) else { break };
            writes.flush_wanted = true;
            self.changed(file);
        }
    }

    /// Returns the next request to send, if there is one.
    pub fn poll_action(&mut self, now: Duration) -> Option<WriteAction> {
        self.enqueue_due(now);
        loop {
            let urgent = self.urgent.pop_front();
            let file = urgent.or_else(|| self.normal.pop_front())?;
            let Some(writes) = self.files.get_mut(&file) else { continue };
            match urgent {
                Some(_) => writes.queued_urgent = false,
                None => writes.queued = false,
            }
            match writes.next(&self.settings, &mut self.pace, now) {
                Ok(None) => {}
                Ok(Some(next)) => return Some(self.start(file, next)),
                Err(until) => {
                    self.paced.insert(file);
                    self.paced_until = until;
                }
            }
        }
    }

    /// Returns when [`poll_action`](Self::poll_action) may return a request without another event.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let aged = self.aging.first().map(|(at, _)| *at);
        let paced = (!self.paced.is_empty()).then_some(self.paced_until);
        aged.into_iter().chain(paced).min()
    }

    /// Handles the end of a WRITE.
    pub fn handle_written(&mut self, id: RequestId, result: Result<Written, RequestError>) {
        let Some(Request { write: Some(_), .. }) = self.requests.get(&id) else { return };
        let Some(Request { file, write: Some(sent), held }) = self.requests.remove(&id) else { return };
        let effects = self.files.get_mut(&file).map(|writes| writes.end_write(&sent, result));
        self.apply(file, effects.unwrap_or_default());
        drop(held);
    }

    /// Handles the end of a COMMIT.
    pub fn handle_committed(&mut self, id: RequestId, result: Result<Verifier, RequestError>) {
        let Some(&Request { file, write: None, .. }) = self.requests.get(&id) else { return };
        self.requests.remove(&id);
        let effects = self.files.get_mut(&file).map(|writes| writes.end_commit(id, result));
        self.apply(file, effects.unwrap_or_default());
    }

    /// Returns the requests under way.
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    fn start(&mut self, file: FileId, next: Next) -> WriteAction {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        let writes = self.files.get_mut(&file).expect("the file had something to send");
        let (action, write) = match next {
            Next::Write { range, stability } => {
                writes.start_write(&range, stability, id);
                let data = self.pages.slices(file, range.clone());
                let offset = range.start;
                debug_assert_eq!(
                    data.iter().map(|data| data.len() as u64).sum::<u64>(),
                    range.end - range.start
                );
                let sent = Sent { id, range, tickets_before: self.last_ticket + 1 };
                (WriteAction::Write { file, offset, data, stability, id }, Some(sent))
            }
            Next::Commit { range } => {
                writes.start_commit(&range, id);
                // Zero reaches to the end of the file (RFC 1813 §3.3.21).
                let count = u32::try_from(range.end - range.start).unwrap_or(0);
                (WriteAction::Commit { file, offset: range.start, count, id }, None)
            }
        };
        self.requests.insert(id, Request { file, write, held: Vec::new() });
        self.changed(file);
        action
    }

    /// Keeps memory accounted that requests under way still use, until they end.
    fn hold(&mut self, file: FileId, range: &Range<u64>, replaced: Vec<Permit>) {
        if replaced.is_empty() {
            return;
        }
        let Some(id) = self.files.get(&file).and_then(|writes| writes.in_flight(range)) else { return };
        if let Some(request) = self.requests.get_mut(&id) {
            request.held.extend(replaced);
        }
    }

    fn apply(&mut self, file: FileId, effects: Effects) {
        for (range, effect) in effects {
            match effect {
                Effect::Stable => self.pages.convert(file, range, Kind::Clean),
                Effect::Uncommitted => self.pages.convert(file, range, Kind::Uncommitted),
                Effect::Lost => self.pages.convert(file, range, Kind::Dirty),
                Effect::Dropped => drop(self.pages.remove(file, range)),
            }
        }
        self.changed(file);
    }

    /// Puts a file into the queue if it may have something to send, and forgets it if it is idle.
    fn changed(&mut self, file: FileId) {
        let Some(writes) = self.files.get_mut(&file) else { return };
        if writes.is_rewriting() {
            self.rewriting.insert(file);
        } else if self.rewriting.remove(&file) && self.rewriting.is_empty() {
            self.pace.end();
        }
        let states = writes.states();
        let writing = states.bytes(PageState::Writing) + states.bytes(PageState::WritingStable);
        self.dirty.note(file, states.bytes(PageState::Dirty), writing, writes.flush_wanted);
        let (written, committing) = (states.bytes(PageState::Written), states.bytes(PageState::Committing));
        self.uncommitted.note(file, written, committing, writes.commit_wanted);
        if states.is_clean() {
            match (writes.is_idle(), writes.errors.has_unseen()) {
                (true, true) => self.remember_error(file),
                (true, false) => drop(self.files.remove(&file)),
                (false, _) => {}
            }
            return;
        }
        if writes.is_urgent() && !writes.queued_urgent {
            writes.queued_urgent = true;
            self.urgent.push_back(file);
        } else if !writes.is_urgent() && !writes.queued {
            writes.queued = true;
            self.normal.push_back(file);
        }
    }

    fn remember_error(&mut self, file: FileId) {
        self.unseen_errors.insert(file);
        if self.unseen_errors.len() <= UNSEEN_ERRORS_MAX {
            return;
        }
        let Some(oldest) = self.unseen_errors.pop_first() else { return };
        if self.files.get(&oldest).is_some_and(FileWrites::is_idle) {
            self.files.remove(&oldest);
        }
    }

    fn enqueue_due(&mut self, now: Duration) {
        while let Some((_, file)) = self.aging.first().copied().filter(|(at, _)| *at <= now) {
            self.aging.pop_first();
            self.changed(file);
        }
        if now >= self.paced_until {
            std::mem::take(&mut self.paced).into_iter().for_each(|file| self.changed(file));
        }
    }
}
