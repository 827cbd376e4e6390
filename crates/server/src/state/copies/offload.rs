//! Copies that go on after their COPY was answered (RFC 7862 §4.4, §4.8).
//!
//! Criteria. Nothing runs here by itself: the driver takes each copy ([`State::next_offload`]), makes a step, and puts it
//! back ([`State::resume_offload`]); this knows what the client may ask of it meanwhile. A copy belongs to
//! its client and goes with it, not with a session. It is over when its client has heard so (CB_OFFLOAD was answered), or has
//! cancelled it; then, and after a restart, its stateid is BAD_STATEID. Copies are bounded by client and in all; what has no
//! room is copied before it is answered.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use protocol::nfs4::callback::CbOp;
use protocol::nfs4::callback::offload::{CbOffloadArgs, OffloadInfo};
use protocol::nfs4::types::{Handle, WriteResponse};
use vfs::{Credentials, Peer, Stability};
use xdr::List;

use crate::ExportId;
use crate::remote_read::{Reading, Span};
use crate::state::tables::callback::{Callback, CallbackPurpose, ReferringRequest};
use crate::state::tables::client::Client;
use crate::state::tables::stateid::other_of;
use crate::state::tables::transitions::{Row, step};
use crate::state::tables::wire::{ClientId, Stateid, Status, Verifier, stable_how};
use crate::state::{FileKey, Running, State};

/// Copies of all clients at most, those among them that are over and not acknowledged.
const COPIES_MAX: usize = 64;
/// Copies of one client at most: others find room, and what it wants beyond that is copied before the answer.
const COPIES_A_CLIENT: u32 = 8;
/// How often a client may put off hearing of a copy's end, each time for a second.
const PUT_OFF_MAX: u32 = 100;
/// Pause before a copy is tried again that could not go on. [`State::expire`] ends it, so that it is up to a second longer.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// In the place of an index into the shards, where none reaches: the stateid is a copy's.
const COPY_INDEX: u32 = u32::MAX;
/// §4.8: "A copy offload stateid's seqid MUST NOT be zero." It never changes.
const SEQID: u32 = 1;

/// Where a copy stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between two steps, or before the first.
    Resting,
    /// A step is under way.
    Stepping,
    /// As [`Phase::Stepping`], and it will be the last.
    Stopping,
    /// All is done, or has failed; the client has not acknowledged it.
    Over,
    /// Nobody wants to know of it any more.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Begin,
    Rest,
    End,
    /// OFFLOAD_CANCEL, the client is gone, or it has answered CB_OFFLOAD.
    Forget,
}

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

/// Where a copy reads.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// A file of this server, in the destination's export.
    Here { file: FileKey, handle: vfs::Handle, stateid: Stateid },
    /// A file of another server.
    There(Arc<Reading>),
}

impl Origin {
    /// Nothing more is needed of it soon.
    fn rest(&self) {
        if let Self::There(reading) = self {
            reading.forget();
        }
    }
}

/// What is to be copied, for whom, and on whose word.
#[derive(Debug, Clone)]
pub(crate) struct CopyTask {
    /// Who asked, as [`OpenRequest::opener`](crate::state::OpenRequest::opener) tells users apart.
    pub(crate) caller: u64,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) peer: Peer,
    pub(crate) export: ExportId,
    pub(crate) source: Origin,
    pub(crate) destination: FileKey,
    pub(crate) destination_stateid: Stateid,
    /// The destination as the client knows it.
    pub(crate) handle: Handle,
    /// The whole of it.
    pub(crate) span: Span,
    /// From before the first byte was written.
    pub(crate) verifier: Verifier,
}

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Bytes, from the start of the range on.
    pub(crate) count: u64,
    /// How far the least of them have travelled.
    pub(crate) stability: Stability,
}

/// A copy that goes on in the background.
#[derive(Debug)]
pub struct Offload {
    number: u32,
    client: Arc<Client>,
    asked_by: Option<ReferringRequest>,
    pub(crate) task: CopyTask,
    progress: Mutex<Progress>,
    /// How often its client has asked to hear of its end later.
    put_off: AtomicU32,
}

#[derive(Debug)]
struct Progress {
    phase: Phase,
    copied: Copied,
    /// How it ended.
    status: Option<Status>,
    /// Since when its source has given nothing.
    stuck_since: Option<Duration>,
    /// Who waits for the end of the last step, or for the word to stop.
    wakers: Vec<Waker>,
}

/// What has happened to copies in the background since the start.
#[derive(Debug, Default)]
pub struct OffloadCounts {
    /// Begun.
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
    inner: Mutex<Inner>,
    /// CB_OFFLOADs that their clients put off; at most one a copy.
    again: Mutex<Vec<(u32, Callback)>>,
    counts: OffloadCounts,
}

#[derive(Debug, Default)]
struct Inner {
    copies: HashMap<u32, Arc<Offload>>,
    /// What nobody drives yet; at most one entry a copy.
    wanted: VecDeque<Arc<Offload>>,
    /// What could not go on, and when to try again; at most one entry a copy.
    paused: Vec<(Duration, Arc<Offload>)>,
    last: u32,
}

impl Offload {
    pub(crate) fn task(&self) -> &CopyTask {
        &self.task
    }

    /// Whether it waits for another server most of the time.
    #[must_use]
    pub fn is_from_elsewhere(&self) -> bool {
        matches!(self.task.source, Origin::There(_))
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Returns when no step is under way, and none will be: to be awaited behind [`State::cancel_offload`].
    pub(crate) async fn stopped(&self) {
        poll_fn(|context| self.poll_phase(context, |phase| phase != Phase::Stopping)).await;
    }

    /// Ready when the step that is under way is to stop.
    pub(crate) fn poll_stopping(&self, context: &Context<'_>) -> Poll<()> {
        self.poll_phase(context, |phase| phase == Phase::Stopping)
    }

    fn poll_phase(&self, context: &Context<'_>, is_it: impl Fn(Phase) -> bool) -> Poll<()> {
        let mut progress = self.progress.lock();
        if is_it(progress.phase) {
            return Poll::Ready(());
        }
        progress.wakers.retain(|waker| !waker.will_wake(context.waker()));
        progress.wakers.push(context.waker().clone());
        Poll::Pending
    }

    /// For how long its source has given nothing, if it gives nothing now either.
    pub(crate) fn stuck_for(&self, now: Duration) -> Duration {
        let since = *self.progress.lock().stuck_since.get_or_insert(now);
        now.saturating_sub(since)
    }

    /// Its source has given something.
    pub(crate) fn unstuck(&self) {
        self.progress.lock().stuck_since = None;
    }

    /// Goes on in the table: the phase that follows; none where it has no such row.
    fn turn(&self, event: Event, change: impl FnOnce(&mut Progress)) -> Option<Phase> {
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

    /// What was read ahead is given up: the copy cannot go on at once, and others can.
    pub(crate) fn pause(&self) {
        self.task.source.rest();
    }
}

/// A step of a copy that is under way. Where it is dropped without a word, the copy stands where it stood before.
#[derive(Debug)]
pub(crate) struct Step<'s> {
    state: &'s State,
    offload: &'s Arc<Offload>,
    copied: Copied,
    is_told: bool,
}

impl Step<'_> {
    /// What was copied before it.
    pub(crate) fn copied(&self) -> Copied {
        self.copied
    }

    /// So much is copied now, and more is to be; whether it goes on.
    pub(crate) fn rest(mut self, copied: Copied) -> bool {
        self.is_told = true;
        self.state.count_bytes(self.copied, copied);
        let rested = self.offload.turn(Event::Rest, |progress| progress.copied = copied);
        rested == Some(Phase::Resting)
    }

    /// The copy is over, and its client is told.
    pub(crate) fn end(mut self, copied: Copied, status: Status) {
        self.is_told = true;
        self.state.count_bytes(self.copied, copied);
        self.state.end_offload(self.offload, copied, status);
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            self.offload.turn(Event::Rest, |_| {});
        }
    }
}

impl State {
    /// Lets a copy go on in the background from `copied` on; its stateid, or none where it cannot: the client cannot be called,
    /// is gone, or has too many.
    pub(crate) fn begin_offload(
        &self,
        client: &Arc<Client>,
        task: CopyTask,
        copied: Copied,
        asked_by: Option<&Running>,
    ) -> Option<Stateid> {
        let held = &client.holdings.copies;
        let mut inner = self.offloads.inner.lock();
        // Under the lock: what comes behind `release_offloads` would stay for ever.
        if client.is_removed() || !client.is_reachable() {
            return None;
        }
        if inner.copies.len() >= COPIES_MAX || held.load(Relaxed) >= COPIES_A_CLIENT {
            return None;
        }
        let number = inner.last.wrapping_add(1);
        inner.last = number;
        let asked_by = asked_by.map(Running::as_referring);
        let progress = Mutex::new(Progress {
            phase: Phase::Resting,
            copied,
            status: None,
            stuck_since: None,
            wakers: Vec::new(),
        });
        let offload = Arc::new(Offload {
            number,
            client: Arc::clone(client),
            asked_by,
            task,
            progress,
            put_off: AtomicU32::new(0),
        });
        // Four thousand million copies later a number comes round: the one of that name is gone.
        inner.copies.insert(number, Arc::clone(&offload));
        inner.wanted.push_back(offload);
        held.fetch_add(1, Relaxed);
        drop(inner);
        self.offloads.counts.begun.fetch_add(1, Relaxed);
        self.work_signal.notify();
        Some(self.copy_stateid(number))
    }

    /// Takes the next copy to make a step of; without `may_be_local`, only one from another server.
    pub(crate) fn next_offload(&self, may_be_local: bool) -> Option<Arc<Offload>> {
        let mut inner = self.offloads.inner.lock();
        let mut wanted = inner.wanted.iter();
        let place = wanted.position(|offload| may_be_local || offload.is_from_elsewhere())?;
        inner.wanted.remove(place)
    }

    /// Puts a copy back behind those that wait for their turn.
    pub(crate) fn resume_offload(&self, offload: Arc<Offload>) {
        self.offloads.inner.lock().wanted.push_back(offload);
        self.work_signal.notify();
    }

    /// Puts a copy back that cannot go on now: it is queued again after [`RETRY_PAUSE`].
    pub(crate) fn retry_offload(&self, offload: Arc<Offload>, now: Duration) {
        self.offloads.inner.lock().paused.push((now + RETRY_PAUSE, offload));
    }

    /// Begins a step; none where the copy is over.
    pub(crate) fn begin_step<'s>(&'s self, offload: &'s Arc<Offload>) -> Option<Step<'s>> {
        let mut copied = None;
        offload.turn(Event::Begin, |progress| copied = Some(progress.copied))?;
        copied.map(|copied| Step { state: self, offload, copied, is_told: false })
    }

    fn end_offload(&self, offload: &Arc<Offload>, copied: Copied, status: Status) {
        let next = offload.turn(Event::End, |progress| {
            (progress.copied, progress.status) = (copied, Some(status));
        });
        if next != Some(Phase::Over) {
            return;
        }
        if status != Status::OK {
            self.offloads.counts.failed.fetch_add(1, Relaxed);
        }
        let info = if status == Status::OK {
            OffloadInfo::Ok(WriteResponse {
                // §16.1.3: "The coa_resok4.wr_callback_id MUST NOT be set."
                callback_id: List::default(),
                count: copied.count,
                committed: stable_how(copied.stability),
                verifier: offload.task.verifier,
            })
        } else {
            OffloadInfo::Error(status, copied.count)
        };
        let stateid = self.copy_stateid(offload.number);
        let args = CbOffloadArgs { handle: offload.task.handle, stateid, info };
        let purpose = CallbackPurpose::Offload(offload.number);
        // §16.1.3 names the "race between the reply to the original transaction on the forechannel and the CB_OFFLOAD
        // callback".
        let callback = Callback::new(CbOp::Offload(args), purpose, offload.asked_by.clone());
        self.call(&offload.client, callback);
    }

    /// OFFLOAD_STATUS: bytes copied, and how it ended, where it has.
    ///
    /// # Errors
    /// BAD_STATEID.
    pub(crate) fn offload_status(
        &self,
        client: &Client,
        caller: u64,
        file: FileKey,
        stateid: &Stateid,
    ) -> Result<(u64, Option<Status>), Status> {
        let inner = self.offloads.inner.lock();
        let offload = self.find_offload(&inner, client, caller, file, stateid)?;
        let progress = offload.progress.lock();
        Ok((progress.copied.count, progress.status))
    }

    /// OFFLOAD_CANCEL: no step begins any more; [`Offload::stopped`] waits for the one that may be under way.
    ///
    /// # Errors
    /// BAD_STATEID.
    pub(crate) fn cancel_offload(
        &self,
        client: &Client,
        caller: u64,
        file: FileKey,
        stateid: &Stateid,
    ) -> Result<Arc<Offload>, Status> {
        let mut inner = self.offloads.inner.lock();
        let offload = Arc::clone(self.find_offload(&inner, client, caller, file, stateid)?);
        inner.forget(&offload);
        self.offloads.counts.cancelled.fetch_add(1, Relaxed);
        Ok(offload)
    }

    /// The client has answered CB_OFFLOAD. §4.8: the stateid is valid until "the client replies to a CB_OFFLOAD operation". With DELAY,
    /// which §16.1 has for it, it asks to hear of that later, perhaps because it has not seen the answer to its COPY.
    pub(crate) fn offload_answered(&self, number: u32, callback: Callback, status: Status) {
        let mut inner = self.offloads.inner.lock();
        let Some(offload) = inner.copies.get(&number).map(Arc::clone) else { return };
        if status == Status::DELAY && offload.put_off.fetch_add(1, Relaxed) < PUT_OFF_MAX {
            self.offloads.again.lock().push((number, callback));
        } else {
            inner.forget(&offload);
        }
    }

    /// Resumes copies whose pause is over, and tells of ends whose clients have put that off.
    pub(crate) fn tend_offloads(&self, now: Duration) {
        let is_due = |(until, _): &mut (Duration, Arc<Offload>)| *until <= now;
        let due: Vec<_> = self.offloads.inner.lock().paused.extract_if(.., is_due).collect();
        due.into_iter().for_each(|(_, offload)| self.resume_offload(offload));
        let again = std::mem::take(&mut *self.offloads.again.lock());
        for (number, callback) in again {
            let client = self.offloads.inner.lock().copies.get(&number).map(|it| Arc::clone(&it.client));
            if let Some(client) = client {
                self.call(&client, callback);
            }
        }
    }

    /// Stops the copies of a client whose record is gone.
    pub(crate) fn release_offloads(&self, client: ClientId) {
        let mut inner = self.offloads.inner.lock();
        let its: Vec<_> = inner.copies.values().filter(|copy| copy.client.id() == client).cloned().collect();
        its.iter().for_each(|offload| inner.forget(offload));
    }

    /// What has happened to copies in the background.
    #[must_use]
    pub fn offload_counts(&self) -> &OffloadCounts {
        &self.offloads.counts
    }

    /// Copies that go on, and those that are over and not acknowledged.
    pub(crate) fn count_offloads(&self) -> u64 {
        self.offloads.inner.lock().copies.len() as u64
    }

    /// §4.1.2: an "OFFLOAD_CANCEL MUST NOT interfere with a copy of the same file initiated by another user".
    fn find_offload<'i>(
        &self,
        inner: &'i Inner,
        client: &Client,
        caller: u64,
        file: FileKey,
        stateid: &Stateid,
    ) -> Result<&'i Arc<Offload>, Status> {
        let number = stateid.other.last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let is_meant = |copy: &&Arc<Offload>| {
            let task = &copy.task;
            let is_of = copy.client.id() == client.id() && task.caller == caller;
            is_of && task.destination == file && self.copy_stateid(number) == *stateid
        };
        inner.copies.get(&number).filter(is_meant).ok_or(Status::BAD_STATEID)
    }

    fn copy_stateid(&self, number: u32) -> Stateid {
        Stateid { seqid: SEQID, other: other_of(self.ids.boot(), COPY_INDEX, u64::from(number)) }
    }

    fn count_bytes(&self, before: Copied, after: Copied) {
        self.offloads.counts.bytes.fetch_add(after.count - before.count, Relaxed);
    }
}

impl Inner {
    fn forget(&mut self, offload: &Arc<Offload>) {
        if self.copies.remove(&offload.number).is_some() {
            offload.client.holdings.copies.fetch_sub(1, Relaxed);
        }
        self.wanted.retain(|wanted| !Arc::ptr_eq(wanted, offload));
        self.paused.retain(|(_, paused)| !Arc::ptr_eq(paused, offload));
        offload.turn(Event::Forget, |_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tables::transitions::check_table;

    #[test]
    fn the_table_of_phases_is_sound() {
        let phases = [Phase::Resting, Phase::Stepping, Phase::Stopping, Phase::Over, Phase::Gone];
        check_table(TRANSITIONS, Phase::Resting, &phases);
        for event in [Event::Begin, Event::Rest, Event::End, Event::Forget] {
            assert_eq!(step(TRANSITIONS, Phase::Gone, event), None, "gone is gone");
        }
        assert_eq!(step(TRANSITIONS, Phase::Stopping, Event::Begin), None);
    }
}
