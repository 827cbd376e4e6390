//! Checkpoints: changes in the log become durable in the back end, and the log is free again.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll, Waker};

use parking_lot::Mutex;

use super::Journaled;
use super::files::LOGGED_MAX;
use super::log::{JournalCounts, Waiters, wake};
use crate::{Backend, Committing, Context, Credentials, Error, Peer, Result, Thread, Timestamp};

/// One checkpoint at a time.
#[derive(Default)]
pub(super) struct Checkpoints {
    state: Mutex<State>,
    /// The syncs of the running checkpoint. They stay here if its task is dropped, and the next one finishes them.
    syncs: Mutex<Option<Syncs>>,
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoints").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The syncs of a checkpoint.
struct Syncs {
    /// The last frame whose changes they make durable.
    number: u64,
    outcome: Committing,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    /// Checkpoints that began, and the last one that ended well.
    begun: u64,
    ended: u64,
    waiting: Waiters,
    /// The task that runs checkpoints when they are due.
    driver: Option<Waker>,
}

/// A running checkpoint. Dropping it lets another task run the next one.
struct Running<'c> {
    checkpoints: &'c Checkpoints,
    number: u64,
    is_done: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.checkpoints.state.lock();
        state.is_running = false;
        if self.is_done {
            state.ended = self.number;
        }
        let waiting = state.waiting.take();
        drop(state);
        wake(waiting);
    }
}

impl Checkpoints {
    /// Waits until no checkpoint runs, and begins one; `None` if one that began after this call has ended.
    async fn begin(&self) -> Option<Running<'_>> {
        let wanted = self.state.lock().begun + 1;
        let mut ticket = None;
        poll_fn(|context| {
            let mut state = self.state.lock();
            if state.ended >= wanted {
                return Poll::Ready(None);
            }
            if state.is_running {
                state.waiting.register(&mut ticket, context.waker());
                return Poll::Pending;
            }
            state.is_running = true;
            state.begun += 1;
            Poll::Ready(Some(Running { checkpoints: self, number: state.begun, is_done: false }))
        })
        .await
    }

    /// Wakes the task that runs checkpoints.
    pub(super) fn want(&self) {
        let driver = self.state.lock().driver.take();
        driver.into_iter().for_each(Waker::wake);
    }
}

impl<B: Backend> Journaled<B> {
    /// Makes all changes that are in the log now durable in the back end, and frees their part of the log. Syncs files with
    /// unstable data too if there are very many.
    ///
    /// # Errors
    /// [`Error::Io`] or the error of a sync: the journal has failed.
    pub async fn checkpoint(&self) -> Result<()> {
        self.empty_log().await?;
        self.sync_files_if_many().await
    }

    /// The part of a checkpoint that a change may wait for: it waits for no [`Order`](super::Order).
    pub(super) async fn empty_log(&self) -> Result<()> {
        if self.log.has_failed() {
            return Err(Error::Io);
        }
        let Some(mut running) = self.checkpoints.begin().await else { return Ok(()) };
        // A task before may have left syncs.
        while self.has_syncs() {
            self.finish_syncs().await?;
        }
        // A frame that still takes records cannot be freed.
        self.log.wait(self.log.last()).await?;
        self.begin_syncs();
        let objects = self.finish_syncs().await?;
        running.is_done = true;
        let counts = self.log.counts();
        if objects > 0 {
            JournalCounts::count(&counts.checkpoints);
        }
        counts.checkpointed_objects.fetch_add(objects as u64, Ordering::Relaxed);
        Ok(())
    }

    fn has_syncs(&self) -> bool {
        self.checkpoints.syncs.lock().is_some()
    }

    /// Takes the changes of all records in closed frames.
    fn begin_syncs(&self) {
        let mut pending = self.pending.lock();
        let (number, group) = (self.log.last_closed(), std::mem::take(&mut *pending));
        let outcome = Box::pin(async move { group.commit(Thread::Shared, Peer::default()).await });
        *self.checkpoints.syncs.lock() = Some(Syncs { number, outcome });
    }

    /// Waits for the syncs, and frees the log. Returns the number of objects that have no changes in the log any more.
    async fn finish_syncs(&self) -> Result<usize> {
        let syncs = &self.checkpoints.syncs;
        let outcome = poll_fn(|context| match &mut *syncs.lock() {
            Some(running) => {
                running.outcome.as_mut().poll(context).map(|outcome| outcome.map(|()| running.number))
            }
            None => Poll::Ready(Ok(0)),
        });
        let outcome = outcome.await;
        *syncs.lock() = None;
        match outcome {
            Ok(number) => {
                self.log.free(number).await?;
                Ok(self.files.freed(number))
            }
            Err(failed) => {
                self.log.fail();
                Err(failed.error)
            }
        }
    }

    /// Syncs files with unstable data if there are so many that new ones could not be known.
    async fn sync_files_if_many(&self) -> Result<()> {
        for file in self.files.many_unstable_files() {
            let order = self.files.lock(&file).await;
            if order.is_logged() {
                continue;
            }
            let (_, version) = order.unstable();
            let context = Context::new(Credentials::root().into(), Timestamp::default());
            // The next COMMIT reports an error.
            if matches!(self.inner.commit(&context, &file, 0, 0).await, Ok(_) | Err(Error::Stale)) {
                self.files.clear_unstable(&file, version);
            }
        }
        Ok(())
    }

    /// Returns ready when a checkpoint should not wait any longer: the log is half full, or has changes of many objects.
    pub fn poll_due(&self, context: &mut TaskContext<'_>) -> Poll<()> {
        if self.is_due() {
            return Poll::Ready(());
        }
        self.checkpoints.state.lock().driver = Some(context.waker().clone());
        // A change may have come in between.
        if self.is_due() { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(super) fn is_due(&self) -> bool {
        !self.log.has_failed() && (self.log.is_half_full() || self.files.logged() > LOGGED_MAX / 2)
    }

    /// Returns whether the log has changes that a checkpoint would free.
    pub fn has_changes(&self) -> bool {
        self.files.logged() > 0
    }

    /// Returns whether a checkpoint would do anything.
    pub fn needs_checkpoint(&self) -> bool {
        self.has_changes() || self.files.has_many_files()
    }
}
