//! The log of calls on stable storage ([`server::StableLog`]): for persistent sessions.
//!
//! It is the [log of calls](crate::reply_log), synced by a thread of its own when somebody waits for that; all who come while one
//! sync runs share the next. In its header it says that it is kept so: then it is read after a start of the machine too.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use tracing::error;
use vfs::{Error, Op};

use crate::files::error_text;
use crate::reply_log::{Durability, Recovered, ReplyFile};
use crate::wait_queue::Waiters;

/// The log in use.
#[derive(Debug)]
pub struct StableFile {
    log: ReplyFile,
    sync: GroupSync,
}

impl StableFile {
    /// Opens the log, or makes it. What was found in it is on stable storage afterwards.
    ///
    /// # Errors
    /// One line that names the file, where it cannot be had, there is no space for it, or it cannot be synced.
    pub fn open(path: &Path) -> Result<(Self, Recovered), String> {
        let (log, file, recovered) = ReplyFile::open_as(path, Durability::Machine)?;
        let said = |error: &io::Error| format!("{}: {}", path.display(), error_text(error));
        let directory = path.parent().unwrap_or(Path::new("/"));
        let synced =
            file.sync_all().and_then(|()| std::fs::File::open(directory)).and_then(|it| it.sync_all());
        synced.map_err(|error| said(&error))?;
        let name = path.display().to_string();
        let sync = GroupSync::start(move || {
            file.sync_data().inspect_err(|error| error!("{name}: {}", error_text(error)))
        });
        Ok((Self { log, sync: sync.map_err(|error| said(&error))? }, recovered))
    }
}

impl server::ReplyLog for StableFile {
    fn append(&self, parts: &[&[u8]]) {
        self.log.append(parts);
        self.sync.made();
    }
}

impl server::StableLog for StableFile {
    fn sync(&self) -> Op<'_, ()> {
        self.sync.done()
    }
}

/// Syncs for all who wait.
#[derive(Debug)]
struct GroupSync {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Changes made.
    made: AtomicU64,
    queue: Mutex<Queue>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// Changes up to here are on stable storage.
    synced: u64,
    /// A sync failed: what the kernel had dropped by then, nobody can tell.
    has_failed: bool,
    /// Who waits for which change.
    waiting: Waiters,
    ends: bool,
}

impl Queue {
    /// How it stands with a change; none where it is to be waited for.
    fn outcome(&self, change: u64) -> Option<vfs::Result<()>> {
        match (self.synced >= change, self.has_failed) {
            (true, _) => Some(Ok(())),
            (false, true) => Some(Err(Error::Io)),
            (false, false) => None,
        }
    }
}

impl GroupSync {
    fn start(sync: impl FnMut() -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("call log".into()).spawn(move || of_thread.run(sync))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// A change was made.
    fn made(&self) {
        self.shared.made.fetch_add(1, Ordering::Release);
    }

    /// Ready when all changes made by now are on stable storage, or never will be.
    fn done(&self) -> Op<'_, ()> {
        let shared = &self.shared;
        let change = shared.made.load(Ordering::Acquire);
        if let Some(outcome) = shared.queue.lock().outcome(change) {
            return outcome.into();
        }
        let mut place = None;
        Op::pending(std::future::poll_fn(move |context| {
            let mut queue = shared.queue.lock();
            if let Some(outcome) = queue.outcome(change) {
                return Poll::Ready(outcome);
            }
            queue.waiting.wait(&mut place, change, context.waker());
            shared.came.notify_one();
            Poll::Pending
        }))
    }
}

impl Shared {
    fn run(&self, mut sync: impl FnMut() -> io::Result<()>) {
        loop {
            let mut queue = self.queue.lock();
            while queue.waiting.count() == 0 && !queue.ends {
                self.came.wait(&mut queue);
            }
            if queue.ends {
                return;
            }
            drop(queue);
            let made = self.made.load(Ordering::Acquire);
            let synced = sync();
            let mut queue = self.queue.lock();
            match synced {
                Ok(()) => queue.synced = made,
                Err(_) => queue.has_failed = true,
            }
            // After a failure nothing more will be reached.
            let (synced, has_failed) = (queue.synced, queue.has_failed);
            let woken = queue.waiting.take(|wanted| has_failed || wanted <= synced);
            drop(queue);
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for GroupSync {
    fn drop(&mut self) {
        self.shared.queue.lock().ends = true;
        self.shared.came.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use server::{ReplyLog, StableLog};

    use super::*;
    use crate::reply_log::path_in;

    fn block<T>(operation: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(operation)
    }

    #[test]
    fn all_who_come_during_a_sync_share_the_next() {
        let (begun, begins) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let sync = GroupSync::start(move || {
            begun.send(()).unwrap();
            gone.recv().map_err(io::Error::other)
        });
        let sync = Arc::new(sync.unwrap());
        assert_eq!(sync.done().now(), Ok(()), "nothing was changed");
        let wait = || {
            sync.made();
            let sync = Arc::clone(&sync);
            std::thread::spawn(move || block(sync.done()))
        };
        let first = wait();
        begins.recv().unwrap();
        // While it runs: it may have missed these.
        let others: Vec<_> = (0..8).map(|_| wait()).collect();
        let is_waiting = |count| sync.shared.queue.lock().waiting.count() == count;
        while !is_waiting(9) {
            std::thread::yield_now();
        }
        go.send(()).unwrap();
        assert_eq!(first.join().unwrap(), Ok(()));
        begins.recv().unwrap();
        assert!(is_waiting(8), "the first sync covered the first alone");
        go.send(()).unwrap();
        others.into_iter().for_each(|other| assert_eq!(other.join().unwrap(), Ok(())));
        assert!(begins.try_recv().is_err(), "two syncs for nine");
    }

    #[test]
    fn a_sync_that_failed_fails_for_all_that_comes() {
        let sync = GroupSync::start(|| Err(io::Error::other("a bad disk"))).unwrap();
        for _ in 0..2 {
            sync.made();
            assert_eq!(block(sync.done()), Err(Error::Io));
        }
    }

    /// Another start of the machine.
    fn reboot(path: &Path) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&[7; 16], 8).unwrap();
    }

    #[test]
    fn it_is_read_after_a_start_of_the_machine_and_only_if_it_was_kept_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path());
        let stable = |record: &[u8]| {
            let (log, recovered) = StableFile::open(&path).unwrap();
            log.append(&[record]);
            block(log.sync()).unwrap();
            recovered
        };
        let plain = |record: &[u8]| {
            let (log, recovered) = ReplyFile::open(&path).unwrap();
            log.append(&[record]);
            recovered
        };
        stable(b"one");
        reboot(&path);
        assert_eq!(stable(b"two").records, [b"one"]);
        // In the same start of the machine either reads what the other wrote.
        assert_eq!(plain(b"three").records, [b"one", b"two"]);
        assert_eq!(stable(b"four").records.len(), 3);
        // A log that was not synced is not read by who would have synced it.
        plain(b"five");
        reboot(&path);
        let recovered = stable(b"six");
        assert!(recovered.records.is_empty() && recovered.outlived.is_some());
        // What was synced is good for who does not sync, from the first start on.
        reboot(&path);
        assert_eq!(plain(b"seven").records, [b"six"]);
        reboot(&path);
        assert!(plain(b"eight").records.is_empty());
    }
}
