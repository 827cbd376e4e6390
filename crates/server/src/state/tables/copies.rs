//! The table of background copies (RFC 7862 §4.4, §4.8).
//!
//! A copy belongs to its client, not to a session, and ends with the client's record. It is over when the client has answered
//! CB_OFFLOAD or has cancelled it. Then, and after a restart, its stateid is BAD_STATEID.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use protocol::nfs4::types::Handle;
use vfs::{Credentials, Peer, Stability};

use super::callback::{Callback, ReferringRequest};
use super::client::Client;
use super::file_key::FileKey;
use super::transitions::{Row, step};
use super::wire::{Stateid, Status, Verifier};
use crate::ExportId;
use crate::remote_read::{Reading, Span};

/// The state of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyPhase {
    /// Between two steps, or before the first.
    Resting,
    /// A step is under way.
    Stepping,
    /// The last step is under way.
    Stopping,
    /// It is complete or has failed, and the client has not acknowledged that.
    Over,
    /// The client has acknowledged or cancelled it, or its record is removed.
    Gone,
}

/// An event of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyEvent {
    /// A step begins.
    Begin,
    /// A step ends, and others follow.
    Rest,
    /// The last step ends.
    End,
    /// OFFLOAD_CANCEL, the answer to CB_OFFLOAD, or the end of the client's record.
    Forget,
}

use CopyEvent as Event;
use CopyPhase as Phase;

const TRANSITIONS: &[Row<Phase, Event>] = &[
    (Phase::Resting, Event::Begin, Phase::Stepping),
    (Phase::Resting, Event::Forget, Phase::Gone),
    (Phase::Stepping, Event::Rest, Phase::Resting),
    (Phase::Stepping, Event::End, Phase::Over),
    (Phase::Stepping, Event::Forget, Phase::Stopping),
    (Phase::Stopping, Event::Rest, Phase::Gone),
    (Phase::Stopping, Event::End, Phase::Gone),
    (Phase::Over, Event::Forget, Phase::Gone),
];

/// The source of a copy.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// A file of this server, in the destination's export.
    Here { file: FileKey, handle: vfs::Handle, stateid: Stateid },
    /// A file of another server.
    There(Arc<Reading>),
}

impl Origin {
    /// Discards data that were read ahead.
    fn rest(&self) {
        if let Self::There(reading) = self {
            reading.forget();
        }
    }
}

/// The arguments of a copy.
#[derive(Debug, Clone)]
pub(crate) struct CopyTask {
    /// A number of the requesting user, as in [`OpenRequest::opener`](crate::state::OpenRequest::opener).
    pub(crate) caller: u64,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) peer: Peer,
    pub(crate) export: ExportId,
    pub(crate) source: Origin,
    pub(crate) destination: FileKey,
    pub(crate) destination_stateid: Stateid,
    /// The destination as the client knows it.
    pub(crate) handle: Handle,
    /// All bytes to copy.
    pub(crate) span: Span,
    /// The write verifier from before the first byte was written.
    pub(crate) verifier: Verifier,
}

/// The progress of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Bytes from the start of the range.
    pub(crate) count: u64,
    /// The lowest stability of these bytes.
    pub(crate) stability: Stability,
}

/// A background copy.
#[derive(Debug)]
pub struct Offload {
    pub(crate) number: u32,
    pub(crate) client: Arc<Client>,
    /// The COPY.
    pub(crate) asked_by: Option<ReferringRequest>,
    pub(crate) task: CopyTask,
    pub(crate) progress: Mutex<Progress>,
    /// Number of times that its client answered CB_OFFLOAD with DELAY.
    pub(crate) put_off: AtomicU32,
}

#[derive(Debug)]
pub(crate) struct Progress {
    phase: CopyPhase,
    pub(crate) copied: Copied,
    /// The result, once it has ended.
    pub(crate) status: Option<Status>,
    /// Since when reads from its source have failed.
    stuck_since: Option<Duration>,
    /// Tasks that wait for the end of the last step, or for the request to stop.
    wakers: Vec<Waker>,
}

/// Counts of events of background copies since the start.
#[derive(Debug, Default)]
pub struct OffloadCounts {
    /// Started.
    pub begun: AtomicU64,
    /// Ended with an error.
    pub failed: AtomicU64,
    /// Cancelled by the client.
    pub cancelled: AtomicU64,
    /// Bytes copied.
    pub bytes: AtomicU64,
}

/// All copies, by number.
#[derive(Debug, Default)]
pub(crate) struct Offloads {
    pub(crate) inner: Mutex<OffloadQueues>,
    /// CB_OFFLOADs that their clients answered with DELAY; at most one for each copy.
    pub(crate) again: Mutex<Vec<(u32, Callback)>>,
    pub(crate) counts: OffloadCounts,
}

/// Copies, and those that the driver takes next.
#[derive(Debug, Default)]
pub(crate) struct OffloadQueues {
    pub(crate) copies: HashMap<u32, Arc<Offload>>,
    /// Copies that wait for their next step; at most one entry for each.
    pub(crate) wanted: VecDeque<Arc<Offload>>,
    /// Copies that could not continue, and when to try again; at most one entry for each.
    pub(crate) paused: Vec<(Duration, Arc<Offload>)>,
    pub(crate) last: u32,
}

impl Offload {
    pub(crate) fn new(
        number: u32,
        client: Arc<Client>,
        task: CopyTask,
        copied: Copied,
        asked_by: Option<ReferringRequest>,
    ) -> Self {
        let progress = Progress {
            phase: CopyPhase::Resting,
            copied,
            status: None,
            stuck_since: None,
            wakers: Vec::new(),
        };
        let (progress, put_off) = (Mutex::new(progress), AtomicU32::new(0));
        Self { number, client, asked_by, task, progress, put_off }
    }

    pub(crate) fn task(&self) -> &CopyTask {
        &self.task
    }

    /// Returns whether it reads from another server.
    #[must_use]
    pub fn is_from_elsewhere(&self) -> bool {
        matches!(self.task.source, Origin::There(_))
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Waits until no step is under way and none will begin, after OFFLOAD_CANCEL.
    pub(crate) async fn stopped(&self) {
        poll_fn(|context| self.poll_phase(context, |phase| phase != Phase::Stopping)).await;
    }

    /// Is ready when the step under way must stop.
    pub(crate) fn poll_stopping(&self, context: &Context<'_>) -> Poll<()> {
        self.poll_phase(context, |phase| phase == Phase::Stopping)
    }

    fn poll_phase(&self, context: &Context<'_>, is_it: impl Fn(CopyPhase) -> bool) -> Poll<()> {
        let mut progress = self.progress.lock();
        if is_it(progress.phase) {
            return Poll::Ready(());
        }
        progress.wakers.retain(|waker| !waker.will_wake(context.waker()));
        progress.wakers.push(context.waker().clone());
        Poll::Pending
    }

    /// Notes that a read from its source failed, and returns for how long they have.
    pub(crate) fn stuck_for(&self, now: Duration) -> Duration {
        let since = *self.progress.lock().stuck_since.get_or_insert(now);
        now.saturating_sub(since)
    }

    /// Notes that a read from its source succeeded.
    pub(crate) fn unstuck(&self) {
        self.progress.lock().stuck_since = None;
    }

    /// Applies an event and returns the next state; `None` if the event is illegal.
    pub(crate) fn advance(&self, event: CopyEvent, change: impl FnOnce(&mut Progress)) -> Option<CopyPhase> {
        let mut progress = self.progress.lock();
        let next = step(TRANSITIONS, progress.phase, event)?;
        progress.phase = next;
        change(&mut progress);
        let wakers = std::mem::take(&mut progress.wakers);
        drop(progress);
        wakers.into_iter().for_each(Waker::wake);
        if matches!(next, Phase::Over | Phase::Gone) {
            self.task.source.rest();
        }
        Some(next)
    }

    /// Discards data that were read ahead: the copy cannot continue now.
    pub(crate) fn pause(&self) {
        self.task.source.rest();
    }
}

impl OffloadQueues {
    /// Removes a copy. Its last step may still be under way.
    pub(crate) fn forget(&mut self, offload: &Arc<Offload>) {
        if self.copies.remove(&offload.number).is_some() {
            offload.client.holdings.copies.fetch_sub(1, Relaxed);
        }
        self.wanted.retain(|wanted| !Arc::ptr_eq(wanted, offload));
        self.paused.retain(|(_, paused)| !Arc::ptr_eq(paused, offload));
        offload.advance(Event::Forget, |_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tables::transitions::check_table;

    #[test]
    fn the_transition_table_is_consistent() {
        let phases = [Phase::Resting, Phase::Stepping, Phase::Stopping, Phase::Over, Phase::Gone];
        check_table(TRANSITIONS, Phase::Resting, &phases);
        for event in [Event::Begin, Event::Rest, Event::End, Event::Forget] {
            assert_eq!(step(TRANSITIONS, Phase::Gone, event), None, "it has ended");
        }
        assert_eq!(step(TRANSITIONS, Phase::Stopping, Event::Begin), None);
    }
}
