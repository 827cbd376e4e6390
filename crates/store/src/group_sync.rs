//! Group commit: all callers that wait while one sync runs share the next one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use vfs::{Error, Op};

use crate::wait_queue::WaitQueue;

/// Syncs on a separate thread, for all waiting callers.
#[derive(Debug)]
pub(crate) struct GroupSync {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Changes made so far.
    made: AtomicU64,
    queue: Mutex<Queue>,
    /// Notified when a caller waits, or the thread must end.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// Changes up to this number are on stable storage.
    synced: u64,
    /// A sync failed. It is unknown which pages the kernel dropped, so all later changes fail.
    has_failed: bool,
    waiting: WaitQueue,
    ends: bool,
}

impl Queue {
    /// Returns whether a change is stable or failed; `None` if neither is known yet.
    fn outcome(&self, change: u64) -> Option<vfs::Result<()>> {
        match (self.synced >= change, self.has_failed) {
            (true, _) => Some(Ok(())),
            (false, true) => Some(Err(Error::Io)),
            (false, false) => None,
        }
    }
}

impl GroupSync {
    /// Starts the thread, which calls `sync` when a caller waits.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(sync: impl FnMut() -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("reply log".into()).spawn(move || of_thread.run(sync))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Counts one change that was made.
    pub(crate) fn count_change(&self) {
        self.shared.made.fetch_add(1, Ordering::Release);
    }

    /// Waits until all changes made before this call are on stable storage.
    ///
    /// # Errors
    /// [`Error::Io`] after a failed sync.
    pub(crate) fn wait(&self) -> Op<'_, ()> {
        let shared = &self.shared;
        let change = shared.made.load(Ordering::Acquire);
        if let Some(outcome) = shared.queue.lock().outcome(change) {
            return outcome.into();
        }
        let mut ticket = None;
        Op::pending(std::future::poll_fn(move |context| {
            let mut queue = shared.queue.lock();
            if let Some(outcome) = queue.outcome(change) {
                return Poll::Ready(outcome);
            }
            queue.waiting.register(&mut ticket, change, context.waker());
            shared.wake.notify_one();
            Poll::Pending
        }))
    }
}

impl Shared {
    fn run(&self, mut sync: impl FnMut() -> io::Result<()>) {
        loop {
            let mut queue = self.queue.lock();
            while queue.waiting.is_empty() && !queue.ends {
                self.wake.wait(&mut queue);
            }
            if queue.ends {
                return;
            }
            drop(queue);
            let made = self.made.load(Ordering::Acquire);
            let result = sync();
            let mut queue = self.queue.lock();
            match result {
                Ok(()) => queue.synced = made,
                Err(_) => queue.has_failed = true,
            }
            let (synced, has_failed) = (queue.synced, queue.has_failed);
            let woken = queue.waiting.take(|change| has_failed || change <= synced);
            drop(queue);
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for GroupSync {
    fn drop(&mut self) {
        self.shared.queue.lock().ends = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn block<T>(operation: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(operation)
    }

    #[test]
    fn all_who_wait_during_a_sync_share_the_next() {
        let (begun, begins) = mpsc::channel();
        let (finish, finishes) = mpsc::channel::<()>();
        let sync = GroupSync::start(move || {
            begun.send(()).unwrap();
            finishes.recv().map_err(io::Error::other)
        });
        let sync = Arc::new(sync.unwrap());
        assert_eq!(sync.wait().now(), Ok(()), "nothing was changed");
        let wait = || {
            sync.count_change();
            let sync = Arc::clone(&sync);
            std::thread::spawn(move || block(sync.wait()))
        };
        let first = wait();
        begins.recv().unwrap();
        // The sync that runs may have missed these.
        let others: Vec<_> = (0..8).map(|_| wait()).collect();
        let is_waiting = |count| sync.shared.queue.lock().waiting.len() == count;
        while !is_waiting(9) {
            std::thread::yield_now();
        }
        finish.send(()).unwrap();
        assert_eq!(first.join().unwrap(), Ok(()));
        begins.recv().unwrap();
        assert!(is_waiting(8), "the first sync covered the first alone");
        finish.send(()).unwrap();
        others.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), Ok(())));
        assert!(begins.try_recv().is_err(), "two syncs for nine");
    }

    #[test]
    fn a_failed_sync_fails_all_later_changes() {
        let sync = GroupSync::start(|| Err(io::Error::other("a bad disk"))).unwrap();
        for _ in 0..2 {
            sync.count_change();
            assert_eq!(block(sync.wait()), Err(Error::Io));
        }
    }
}
