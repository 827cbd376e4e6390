//! Work of a client for which no caller waits: write-behind and read-ahead. [`Client::run`](crate::Client::run) polls it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

/// A future that runs in the background.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Notifies one task that there may be work. Several calls before the task runs count once.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    waker: AtomicWaker,
    is_raised: AtomicBool,
}

impl Signal {
    pub(crate) fn raise(&self) {
        self.is_raised.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Completes if the signal was raised since the last completion.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        if self.is_raised.swap(false, Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// The background work of a client.
pub(crate) struct Background {
    /// `None` once the client has ended.
    new: Mutex<Option<Vec<Work>>>,
    signal: Signal,
    awaited: Arc<Awaited>,
}

/// Counts work that the client's end waits for.
#[derive(Default)]
struct Awaited {
    count: AtomicUsize,
    waker: AtomicWaker,
}

/// One piece of such work.
struct Counted(Arc<Awaited>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.waker.wake();
    }
}

impl Default for Background {
    fn default() -> Self {
        Self { new: Mutex::new(Some(Vec::new())), signal: Signal::default(), awaited: Arc::default() }
    }
}

impl Background {
    /// Adds work. It is dropped unfinished when the client ends.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let Some(()) = self.new.lock().as_mut().map(|new| new.push(Box::pin(work))) else { return };
        self.signal.raise();
    }

    /// Adds work that [`Self::awaited_ended`] waits for.
    pub(crate) fn spawn_awaited(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.awaited.count.fetch_add(1, Ordering::AcqRel);
        let counted = Counted(Arc::clone(&self.awaited));
        self.spawn(async move {
            work.await;
            drop(counted);
        });
    }

    /// Waits until the work of [`Self::spawn_awaited`] has ended.
    pub(crate) async fn awaited_ended(&self) {
        poll_fn(|context| {
            self.awaited.waker.register(context.waker());
            match self.awaited.count.load(Ordering::Acquire) {
                0 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
    }

    /// Runs the work until `until` ends.
    pub(crate) async fn run(&self, until: impl Future<Output = ()>) {
        let mut until = std::pin::pin!(until);
        let mut running = FuturesUnordered::new();
        poll_fn(|context| {
            while self.signal.poll(context).is_ready() {
                let new = self.new.lock().as_mut().map(std::mem::take);
                running.extend(new.into_iter().flatten());
            }
            while let Poll::Ready(Some(())) = running.poll_next_unpin(context) {}
            until.as_mut().poll(context)
        })
        .await;
        // Dropped after the lock is released: work may add work when it is dropped.
        let rest = self.new.lock().take();
        drop(rest);
    }
}
