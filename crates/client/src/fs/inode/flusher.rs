//! Sends written-behind data, and releases memory. One task for each mount; [`Client::run`](crate::Client::run) polls it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;

use super::open::Description;
use super::{Mount, Shared};
use crate::background::{Signal, Work};
use crate::cache::FileId;
use crate::cache::limiter::Holder;
use crate::engine::{CallError, Engine};
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::Stability;
use crate::write::{RequestError, RequestId, SyncTicket, WriteAction, Written};

/// Maximum number of WRITEs and COMMITs of a mount in the client's queue. Memory bounds write-behind; this only
/// leaves room in the queue for reads.
const REQUESTS_MAX: usize = 64;

/// The interface between a mount and its flusher.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    signal: Signal,
    has_ended: AtomicBool,
    /// Tasks that wait for data to become stable; woken when the flusher ends.
    waiting: Mutex<Vec<Waker>>,
}

impl Flusher {
    /// Signals that there may be requests to send.
    pub(super) fn raise(&self) {
        self.signal.raise();
    }

    /// Waits for a ticket, which the flusher completes.
    ///
    /// # Errors
    /// [`CallError::Closed`] if the client has ended.
    pub(super) async fn wait(&self, mut ticket: SyncTicket) -> Result<(), OpError> {
        self.raise();
        poll_fn(|context| {
            if Pin::new(&mut ticket).poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut waiting = self.waiting.lock();
            if self.has_ended.load(Ordering::Acquire) {
                return Poll::Ready(Err(OpError::Call(CallError::Closed)));
            }
            waiting.retain(|waker| !waker.will_wake(context.waker()));
            waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Holder for Flusher {
    fn memory_is_short(&self) {
        self.raise();
    }
}

/// Ends the waits of others when the flusher is dropped for any reason.
struct EndGuard(Arc<Flusher>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut *self.0.waiting.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Starts the flusher of a mount. It ends when the mount is no longer used, or the client ends.
pub(super) fn start(shared: &Arc<Shared>) {
    shared.limiter.add_holder(&shared.flusher);
    let guard = EndGuard(Arc::clone(&shared.flusher));
    let (engine, weak) = (Arc::clone(shared.client.engine()), Arc::downgrade(shared));
    shared.client.background().spawn(run(weak, guard, engine));
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.flusher.raise();
    }
}

async fn run(shared: Weak<Shared>, guard: EndGuard, engine: Arc<Engine>) {
    let mut running = FuturesUnordered::new();
    loop {
        let Some(strong) = shared.upgrade() else { return };
        if engine.is_shut_down() {
            return;
        }
        let (new, timeout) = next(&strong, running.len());
        drop(strong);
        running.extend(new);
        let mut sleep = timeout.map(|timeout| engine.sleep_until(timeout));
        poll_fn(|context| {
            let signal = guard.0.signal.poll(context).is_ready();
            let ended = matches!(running.poll_next_unpin(context), Poll::Ready(Some(())));
            let slept = sleep.as_mut().is_some_and(|sleep| Pin::new(sleep).poll(context).is_ready());
            if signal || ended || slept { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Releases memory if it is short, and returns the requests to send now, and the latest time of the next call.
fn next(shared: &Arc<Shared>, running: usize) -> (Vec<Work>, Option<Duration>) {
    let now = shared.client.engine().now();
    let mut actions = Vec::new();
    let timeout = {
        let mut state = shared.state.lock();
        state.give_up(&shared.limiter);
        loop {
            if running + actions.len() >= REQUESTS_MAX {
                // Wait for the end of a request.
                break None;
            }
            match state.writes.poll_action(now) {
                Some(action) => actions.push(action),
                None => break state.writes.poll_timeout(),
            }
        }
    };
    let mount = Mount { shared: Arc::clone(shared) };
    (actions.into_iter().map(|action| Box::pin(mount.clone().execute(action)) as Work).collect(), timeout)
}

impl Mount {
    async fn execute(self, action: WriteAction) {
        let file = match action {
            WriteAction::Write { file, offset, data, stability, id } => {
                if let Err(error) = self.write_out(file, offset, data, stability, id).await {
                    self.shared.state.lock().writes.handle_written(id, Err(error));
                }
                file
            }
            WriteAction::Commit { file, offset, count, id } => {
                let ended = self.commit(file, offset, count).await;
                let ended = ended.map_err(|error| RequestError::Failed(error.errno()));
                self.shared.state.lock().writes.handle_committed(id, ended);
                file
            }
        };
        let node = self.shared.state.lock().table.by_id(file);
        if let Some(node) = node {
            self.inode_of(node).written_back();
        }
    }

    /// Sends a WRITE and records its end, unless it fails.
    async fn write_out(
        &self,
        file: FileId,
        offset: u64,
        data: Vec<Bytes>,
        stability: Stability,
        id: RequestId,
    ) -> Result<(), RequestError> {
        let writer = self.writer(file).map_err(|error| RequestError::Failed(error.errno()))?;
        // A server may take less than a page; the rest is sent then.
        let data = cut(data, self.info().write_max as usize);
        let mut change = writer.inode.start_change();
        let (handle, open) = (writer.inode.handle(), &writer.state);
        let written = self.client().write_parts(&writer.caller, handle, open, offset, &data, stability).await;
        let mut state = self.shared.state.lock();
        match written {
            Ok(reply) => {
                change.end_in(&mut state, Some(reply.file));
                let written =
                    Written { count: reply.count, stability: reply.stability, verifier: reply.verifier };
                state.writes.handle_written(id, Ok(written));
                Ok(())
            }
            Err(error) => {
                let is_refused = matches!(error, OpError::Status(_));
                change.end_in(&mut state, if is_refused { None } else { Some(Default::default()) });
                drop(state);
                // It was closed meanwhile: the data are written for the next one.
                let is_replaced = self.writer(file).is_ok_and(|now| !Arc::ptr_eq(&now, &writer));
                Err(if is_replaced { RequestError::Retry } else { RequestError::Failed(error.errno()) })
            }
        }
    }

    async fn commit(&self, file: FileId, offset: u64, count: u32) -> Result<[u8; 8], OpError> {
        let writer = self.writer(file)?;
        let started = self.start();
        let reply = self.client().commit(&writer.caller, writer.inode.handle(), offset, count).await?;
        if let Some(attributes) = reply.file.after {
            writer.inode.learn(started, attributes);
        }
        Ok(reply.verifier)
    }

    /// Returns the description for which WRITEs of a file are made.
    fn writer(&self, file: FileId) -> Result<Arc<Description>, OpError> {
        let node = self.shared.state.lock().table.by_id(file);
        let writer = node.and_then(|node| node.opens.lock().writer.clone());
        writer.ok_or(OpError::Invalid(Errno::EIO, "data of a file that is not open for writing"))
    }
}

/// Returns the first `max` bytes of the data.
fn cut(mut data: Vec<Bytes>, max: usize) -> Vec<Bytes> {
    let mut left = max;
    data.retain_mut(|part| {
        part.truncate(left);
        left -= part.len();
        !part.is_empty()
    });
    data
}

/// Polls a future again after waking all holders of memory.
pub(super) fn poll_reserve<T>(
    shared: &Shared,
    reserve: Pin<&mut impl Future<Output = T>>,
    context: &mut Context<'_>,
) -> Poll<T> {
    let polled = reserve.poll(context);
    if polled.is_pending() {
        shared.limiter.ask_holders();
    }
    polled
}
