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
}

impl Pending {
    pub(super) fn new(id: u64, ticket: SyncTicket) -> Self {
        Self { id, ticket, unacknowledged: RangeSet::default(), unstable: RangeSet::default() }
    }

    /// Covers `range` too.
    pub(super) fn cover(&mut self, range: &Range<u64>, acknowledged: bool) {
        self.unstable.add(range);
        if !acknowledged {
            self.unacknowledged.add(range);
        }
    }

    pub(super) fn acknowledged(&mut self, range: &Range<u64>) {
        self.unacknowledged.subtract(range);
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
        self.unacknowledged.is_empty()
    }

    pub(super) fn finish_if_done(&self) -> bool {
        if self.unstable.is_empty() {
            self.ticket.finish();
        }
        self.unstable.is_empty()
    }
}
