//! Background copies: COPY, OFFLOAD_STATUS, OFFLOAD_CANCEL and CB_OFFLOAD (RFC 7862 §4.4, §4.8).
//!
//! The driver takes each copy ([`State::next_offload`]), executes a step, and returns it ([`State::resume_offload`]).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use protocol::nfs4::callback::CbOp;
use protocol::nfs4::callback::offload::{CbOffloadArgs, OffloadInfo};
use protocol::nfs4::types::WriteResponse;
use xdr::List;

use crate::state::State;
use crate::state::sessions::sequence::SlotRequest;
use crate::state::tables::callback::{Callback, CallbackPurpose};
use crate::state::tables::client::Client;
use crate::state::tables::copies::{
    Copied, CopyEvent, CopyPhase, CopyTask, Offload, OffloadCounts, OffloadQueues,
};
use crate::state::tables::file_key::FileKey;
use crate::state::tables::stateid::other_of;
use crate::state::tables::wire::{ClientId, Stateid, Status, stable_how};

/// Maximum number of copies of all clients, including those that have ended and are not acknowledged.
const COPIES_MAX: usize = 64;
/// Maximum number of copies of one client, so that others can copy too. Beyond it, COPY copies before it is answered.
const COPIES_PER_CLIENT_MAX: u32 = 8;
/// Number of times that a client may answer CB_OFFLOAD with DELAY; each postpones it by a second.
const DELAYS_MAX: u32 = 100;
/// The pause before a copy that could not continue is retried. [`State::expire`] ends it, so it may be a second longer.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Marks the stateid of a copy, in place of an index into the shards, which is never as large.
const COPY_INDEX: u32 = u32::MAX;
/// §4.8: "A copy offload stateid's seqid MUST NOT be zero." It never changes.
const SEQID: u32 = 1;

/// A step of a copy. If it is dropped without a result, the copy's progress is unchanged.
#[derive(Debug)]
pub(crate) struct Step<'s> {
    state: &'s State,
    offload: &'s Arc<Offload>,
    copied: Copied,
    is_ended: bool,
}

impl Step<'_> {
    /// Returns the bytes copied before it.
    pub(crate) fn copied(&self) -> Copied {
        self.copied
    }

    /// Ends the step with more to copy. Returns whether the copy continues.
    pub(crate) fn rest(mut self, copied: Copied) -> bool {
        self.is_ended = true;
        self.state.count_bytes(self.copied, copied);
        let rested = self.offload.advance(CopyEvent::Rest, |progress| progress.copied = copied);
        rested == Some(CopyPhase::Resting)
    }

    /// Ends the copy, and sends CB_OFFLOAD.
    pub(crate) fn end(mut self, copied: Copied, status: Status) {
        self.is_ended = true;
        self.state.count_bytes(self.copied, copied);
        self.state.end_offload(self.offload, copied, status);
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            self.offload.advance(CopyEvent::Rest, |_| {});
        }
    }
}

impl State {
    /// Begins a background copy after the first `copied` bytes, and returns its stateid. Returns `None` if the client cannot be called, its record
    /// is removed, or there are too many copies.
    pub(crate) fn begin_offload(
        &self,
        client: &Arc<Client>,
        task: CopyTask,
        copied: Copied,
        asked_by: Option<&SlotRequest>,
    ) -> Option<Stateid> {
        let held = &client.holdings.copies;
        let mut inner = self.offloads.inner.lock();
        // Under the lock: a copy added after `release_offloads` would remain without end.
        if client.is_removed() || !client.is_reachable() {
            return None;
        }
        if inner.copies.len() >= COPIES_MAX || held.load(Relaxed) >= COPIES_PER_CLIENT_MAX {
            return None;
        }
        let number = inner.last.wrapping_add(1);
        inner.last = number;
        let asked_by = asked_by.map(SlotRequest::as_referring);
        let offload = Arc::new(Offload::new(number, Arc::clone(client), task, copied, asked_by));
        // A number is reused after 2^32 copies; its earlier copy has ended by then.
        inner.copies.insert(number, Arc::clone(&offload));
        inner.wanted.push_back(offload);
        held.fetch_add(1, Relaxed);
        drop(inner);
        self.offloads.counts.begun.fetch_add(1, Relaxed);
        self.work_signal.notify();
        Some(self.copy_stateid(number))
    }

    /// Takes the next copy for a step; without `may_be_local`, only one from another server.
    pub(crate) fn next_offload(&self, may_be_local: bool) -> Option<Arc<Offload>> {
        let mut inner = self.offloads.inner.lock();
        let mut wanted = inner.wanted.iter();
        let place = wanted.position(|offload| may_be_local || offload.is_from_elsewhere())?;
        inner.wanted.remove(place)
    }

    /// Queues a copy for its next step.
    pub(crate) fn resume_offload(&self, offload: Arc<Offload>) {
        self.offloads.inner.lock().wanted.push_back(offload);
        self.work_signal.notify();
    }

    /// Queues a copy that cannot continue now, after [`RETRY_PAUSE`].
    pub(crate) fn retry_offload(&self, offload: Arc<Offload>, now: Duration) {
        self.offloads.inner.lock().paused.push((now + RETRY_PAUSE, offload));
    }

    /// Begins a step; returns `None` if the copy has ended.
    pub(crate) fn begin_step<'s>(&'s self, offload: &'s Arc<Offload>) -> Option<Step<'s>> {
        let mut copied = None;
        offload.advance(CopyEvent::Begin, |progress| copied = Some(progress.copied))?;
        copied.map(|copied| Step { state: self, offload, copied, is_ended: false })
    }

    fn end_offload(&self, offload: &Arc<Offload>, copied: Copied, status: Status) {
        let next = offload.advance(CopyEvent::End, |progress| {
            (progress.copied, progress.status) = (copied, Some(status));
        });
        if next != Some(CopyPhase::Over) {
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
        let callback = Callback::new(CbOp::Offload(args), purpose, offload.asked_by);
        self.call(&offload.client, callback);
    }

    /// OFFLOAD_STATUS: returns the bytes copied, and the result if it has ended.
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

    /// OFFLOAD_CANCEL: no further step begins; [`Offload::stopped`] waits for one that is under way.
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

    /// Handles the reply to CB_OFFLOAD. §4.8: the stateid is valid until "the client replies to a CB_OFFLOAD operation". By DELAY
    /// (§16.1) the client requests the callback later, perhaps because it has not seen the reply to its COPY.
    pub(crate) fn offload_answered(&self, number: u32, callback: Callback, status: Status) {
        let mut inner = self.offloads.inner.lock();
        let Some(offload) = inner.copies.get(&number).map(Arc::clone) else { return };
        if status == Status::DELAY && offload.put_off.fetch_add(1, Relaxed) < DELAYS_MAX {
            self.offloads.again.lock().push((number, callback));
        } else {
            inner.forget(&offload);
        }
    }

    /// Queues copies whose pause is over, and repeats CB_OFFLOADs that were answered with DELAY.
    pub(crate) fn sweep_offloads(&self, now: Duration) {
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

    /// Ends the copies of a client whose record is removed.
    pub(crate) fn release_offloads(&self, client: ClientId) {
        let mut inner = self.offloads.inner.lock();
        let its: Vec<_> = inner.copies.values().filter(|copy| copy.client.id() == client).cloned().collect();
        its.iter().for_each(|offload| inner.forget(offload));
    }

    /// Returns the counts of background copies.
    #[must_use]
    pub fn offload_counts(&self) -> &OffloadCounts {
        &self.offloads.counts
    }

    /// Returns the number of copies, including those that have ended and are not acknowledged.
    pub(crate) fn count_offloads(&self) -> u64 {
        self.offloads.inner.lock().copies.len() as u64
    }

    /// §4.1.2: an "OFFLOAD_CANCEL MUST NOT interfere with a copy of the same file initiated by another user".
    fn find_offload<'i>(
        &self,
        inner: &'i OffloadQueues,
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
