//! Barriers that callers of fsync, close and truncate wait for.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::range_map::RangeSet;

/// Completes when everything that it covers is on stable storage, or failed and was dropped. The caller then asks for errors
/// with `WriteBehind::take_error`.
#[derive(Debug, Clone)]
#[must_use = "data are not stable before the ticket is done"]
pub struct SyncTicket(Arc<Mutex<Done>>);

#[derive(Debug, Default)]
struct Done {
    done: bool,
    wakers: Vec<Waker>,
}

impl SyncTicket {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    /// Returns true if the ticket is done.
    pub fn is_done(&self) -> bool {
        self.0.lock().done
    }

    pub(super) fn finish(&self) {
        let wakers = {
            let mut done = self.0.lock();
            done.done = true;
            std::mem::take(&mut done.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Future for SyncTicket {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut done = self.0.lock();
        if done.done {
            return Poll::Ready(());
        }
        if !done.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            done.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// The file's side of a ticket.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) id: u64,
    ticket: SyncTicket,
    /// Covered bytes that the server has not acknowledged.
    unacknowledged: RangeSet,
    /// Covered bytes that are not stable.
    unstable: RangeSet,
    /// Whether the ticket waits until acknowledged bytes are stable.
    needs_stable: bool,
}

impl Pending {
    pub(super) fn new(id: u64, ticket: SyncTicket) -> Self {
        let (unacknowledged, unstable) = (RangeSet::default(), RangeSet::default());
        Self { id, ticket, unacknowledged, unstable, needs_stable: true }
    }

    /// As [`Self::new`], for a ticket that is done when everything is acknowledged.
    pub(super) fn until_acknowledged(id: u64, ticket: SyncTicket) -> Self {
        Self { needs_stable: false, ..Self::new(id, ticket) }
    }

    pub(super) fn needs_stable(&self) -> bool {
        self.needs_stable
    }

    /// Covers `range` too.
    pub(super) fn cover(&mut self, range: &Range<u64>, acknowledged: bool) {
        self.unstable.add(range);
        if !acknowledged {
            self.unacknowledged.add(range);
        }
    }

    /// Notes that the server has acknowledged `range`. Returns true if the ticket is done.
    pub(super) fn acknowledged(&mut self, range: &Range<u64>) -> bool {
        self.unacknowledged.subtract(range);
        self.finish_if_done()
    }

    /// Returns true if the ticket is done.
    pub(super) fn stable(&mut self, range: &Range<u64>) -> bool {
        self.unstable.subtract(range);
        self.unacknowledged.subtract(range);
        self.finish_if_done()
    }

    /// Notes that the server lost `range`.
    pub(super) fn lost(&mut self, range: &Range<u64>) {
        let parts: Vec<_> = self.unstable.parts(range).collect();
        parts.iter().for_each(|(part, ())| self.unacknowledged.add(part));
    }

    pub(super) fn covers(&self, range: &Range<u64>) -> bool {
        self.unstable.overlapping(range).next().is_some()
    }

    /// Returns true if only a COMMIT is missing.
    pub(super) fn needs_commit(&self) -> bool {
        self.needs_stable && self.unacknowledged.is_empty()
    }

    pub(super) fn finish_if_done(&self) -> bool {
        let left = if self.needs_stable { &self.unstable } else { &self.unacknowledged };
        if left.is_empty() {
            self.ticket.finish();
        }
        left.is_empty()
    }
}
