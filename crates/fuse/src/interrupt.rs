//! Interrupted requests, and the thread that watches them. The crate's documentation states the rule.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::abi::opcode;
use crate::channel::Channel;
use crate::signals::{SignalState, is_exiting, signal_state};

/// Time between two checks of the signals of waiting threads.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Most INTERRUPTs that wait for their requests to be registered; a request is registered within microseconds.
const EARLY_MAX: usize = 1024;
/// The time that an INTERRUPT waits for its request. Most of those that come early interrupt a request that was just answered.
const EARLY_AGE_MAX: Duration = Duration::from_secs(10);

/// A request whose thread is watched. There are at most as many as pending requests, which the kernel bounds.
#[derive(Debug)]
pub(crate) struct Watched {
    channel: Arc<Channel>,
    unique: u64,
    tid: u32,
    reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The kernel sent an INTERRUPT.
    Interrupted,
    /// FLUSH. A process that exits waits for it without any signal (before Linux 6.3).
    Flush,
}

/// The interrupted requests of a session.
#[derive(Debug)]
pub(crate) struct Interrupts {
    channels: Vec<Arc<Channel>>,
    /// INTERRUPTs whose request was not found: another worker may have read it and not registered it yet.
    early: Mutex<VecDeque<(u64, Instant)>>,
    early_count: AtomicUsize,
    /// To the thread that runs [`watch`]; `None` ends it.
    watch: Sender<Option<Watched>>,
}

impl Interrupts {
    /// Returns them, and what [`watch`] receives.
    pub(crate) fn new(channels: Vec<Arc<Channel>>) -> (Self, Receiver<Option<Watched>>) {
        let (watch, watched) = mpsc::channel();
        (Self { channels, early: Mutex::default(), early_count: AtomicUsize::new(0), watch }, watched)
    }

    /// Handles an INTERRUPT of the request `unique`.
    pub(crate) fn interrupt(&self, unique: u64) {
        if self.try_interrupt(unique) {
            return;
        }
        {
            let mut early = self.early.lock();
            forget_old(&mut early);
            if early.len() == EARLY_MAX {
                early.pop_front();
            }
            early.push_back((unique, Instant::now()));
            self.early_count.store(early.len(), Ordering::SeqCst);
        }
        // Its worker may have checked the list before, and registered the request after.
        self.try_interrupt(unique);
    }

    /// Applies an INTERRUPT that came before its request was registered. Called after the registration.
    pub(crate) fn registered(&self, channel: &Arc<Channel>, unique: u64) {
        if self.early_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut early = self.early.lock();
        forget_old(&mut early);
        let before = early.len();
        early.retain(|(other, _)| *other != unique);
        let was_early = early.len() < before;
        self.early_count.store(early.len(), Ordering::SeqCst);
        drop(early);
        if was_early {
            self.apply(channel, unique);
        }
    }

    /// Watches a FLUSH that is not answered at once.
    pub(crate) fn watch_flush(&self, channel: &Arc<Channel>, unique: u64, tid: u32) {
        // Thread 0 is the kernel's own, for which no program waits.
        if tid != 0 {
            self.add(Watched { channel: Arc::clone(channel), unique, tid, reason: Reason::Flush });
        }
    }

    fn try_interrupt(&self, unique: u64) -> bool {
        let channel = self.channels.iter().find(|channel| channel.is_pending(unique));
        if let Some(channel) = channel {
            self.apply(channel, unique);
        }
        channel.is_some()
    }

    fn apply(&self, channel: &Arc<Channel>, unique: u64) {
        match channel.mark_interrupted(unique) {
            // Any signal ends a wait for a lock; the kernel restarts it after handlers with SA_RESTART.
            Some((opcode::SETLKW, _)) => channel.withdraw(unique, Errno::INTR),
            Some((_, tid)) => {
                self.add(Watched { channel: Arc::clone(channel), unique, tid, reason: Reason::Interrupted });
            }
            // It was answered.
            None => {}
        }
    }

    fn add(&self, request: Watched) {
        // Without the thread, the session is stopped.
        let _ = self.watch.send(Some(request));
    }

    /// Ends [`watch`].
    pub(crate) fn stop(&self) {
        let _ = self.watch.send(None);
    }
}

/// Checks the thread of each request when it arrives, then every [`LOOK_INTERVAL`], until [`Interrupts::stop`].
pub(crate) fn watch(requests: &Receiver<Option<Watched>>) {
    let mut watched: Vec<Watched> = Vec::new();
    let mut looked = Instant::now();
    loop {
        let is_idle = watched.is_empty();
        let wait = if is_idle { Duration::MAX } else { LOOK_INTERVAL.saturating_sub(looked.elapsed()) };
        match requests.recv_timeout(wait) {
            Ok(Some(request)) if look(&request) => {
                if is_idle {
                    looked = Instant::now();
                }
                watched.push(request);
            }
            Ok(Some(_)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
        }
        if looked.elapsed() >= LOOK_INTERVAL {
            watched.retain(look);
            looked = Instant::now();
        }
    }
}

fn forget_old(early: &mut VecDeque<(u64, Instant)>) {
    while early.front().is_some_and(|(_, since)| since.elapsed() > EARLY_AGE_MAX) {
        early.pop_front();
    }
}

/// Answers a request if its thread must not wait, and returns whether to check again.
fn look(request: &Watched) -> bool {
    if !request.channel.is_pending(request.unique) {
        return false;
    }
    let must_end = match request.reason {
        Reason::Flush => is_exiting(request.tid),
        // A thread whose signals cannot be seen gets EINTR: otherwise it could never be killed.
        Reason::Interrupted => signal_state(request.tid) != SignalState::NotFatal || is_exiting(request.tid),
    };
    if must_end {
        request.channel.withdraw(request.unique, Errno::INTR);
    }
    !must_end
}
