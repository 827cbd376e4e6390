//! Whether the current thread may block while it runs an operation.
//!
//! A connection's thread serves many requests and must not block. Linux cannot create a name or write without
//! blocking: ext4 refuses `RWF_NOWAIT` writes, and so do XFS and btrfs whenever the file's times change, which is
//! always because the server reads them. So an operation runs in place as long as all its data are known to be in
//! memory. Otherwise it gives up *before it has any effect*, and runs again, from the start and as a whole, on the
//! [pool](crate::pool), where it may block. It also gives up, on the pool too, when it needs a lock that is held for
//! longer than [`ObjectLock`] spins, or when it is about to take long on a thread that is for short work.
//!
//! Like the identity ([`crate::identity`]), this state belongs to the thread and to one synchronous section of code,
//! never across an await. Threads may block except within [`InPlace`]. Rejected: an argument of every function down
//! to the system call, and an error type of its own in addition to [`vfs::Error`] in all of them.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rustix::time::ClockId;
use vfs::{Error, Result};

use crate::lock::{Lockable, ObjectLock};

/// An operation in place that takes this many nanoseconds counts as having blocked: two ticks of the coarse clock at
/// 250 Hz. Waiting for a rotating disk, or for permission to dirty memory, takes longer.
pub(crate) const STALL_NS: u64 = 8_000_000;
/// Data that were read count as cached for 2^36 ns, about a minute.
const MINUTE_SHIFT: u32 = 36;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocking {
    Allowed,
    Forbidden,
    /// Forbidden, and the operation would have blocked.
    Attempted,
}

/// The kind of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadKind {
    /// Not a thread of the pool that runs a request.
    Elsewhere,
    /// A thread of the pool for short requests.
    Work,
    /// A thread of the pool for long requests.
    Long,
}

#[derive(Debug, Clone, Copy)]
struct State {
    blocking: Blocking,
    thread: ThreadKind,
    /// Whether this thread may block on locks.
    waits_for_locks: bool,
    /// The address of the lock that resumed the request, until the request has taken it; otherwise 0.
    resumed_by: usize,
    /// Whether the operation would take long.
    is_long: bool,
    /// The coarse clock, read once for an operation; 0 if it was not read.
    now_ns: u64,
}

const FREE: State = State {
    blocking: Blocking::Allowed,
    thread: ThreadKind::Elsewhere,
    waits_for_locks: false,
    resumed_by: 0,
    is_long: false,
    now_ns: 0,
};

thread_local! {
    static STATE: Cell<State> = const { Cell::new(FREE) };
    /// The object whose lock the request has to wait for.
    static BLOCKED: RefCell<Option<Arc<dyn Lockable>>> = const { RefCell::new(None) };
}

/// The reason why a request gave up before it had any effect.
#[derive(Debug)]
pub(crate) enum WouldBlock {
    /// It has to wait for the disk.
    Disk,
    /// It takes long by itself.
    Long,
    /// The lock of this object is held.
    Lock(Arc<dyn Lockable>),
}

fn cause() -> Option<WouldBlock> {
    let state = STATE.get();
    if state.blocking != Blocking::Attempted {
        return None;
    }
    Some(match BLOCKED.take() {
        Some(object) => WouldBlock::Lock(object),
        None if state.is_long => WouldBlock::Long,
        None => WouldBlock::Disk,
    })
}

/// A section of code in which this thread must not block. The thread may block again when this is dropped, also by a
/// panic.
#[derive(Debug)]
#[must_use = "the thread may block again when this is dropped"]
pub(crate) struct InPlace(());

impl InPlace {
    /// Begins the section; `now_ns` is the coarse clock, or 0.
    #[inline]
    pub(crate) fn begin(now_ns: u64) -> Self {
        STATE.set(State { blocking: Blocking::Forbidden, now_ns, ..FREE });
        Self(())
    }

    /// Ends the section. Returns false if the operation would have blocked: then it had no effect, and its result
    /// is invalid.
    #[inline]
    pub(crate) fn end(self) -> bool {
        STATE.get().blocking != Blocking::Attempted
    }

    /// Ends the section. Returns the reason if the operation gave up: then it had no effect, and its result is
    /// invalid.
    #[inline]
    pub(crate) fn end_with(self) -> Option<WouldBlock> {
        cause()
    }
}

impl Drop for InPlace {
    #[inline]
    fn drop(&mut self) {
        STATE.set(FREE);
    }
}

/// A section of code in which this thread of the pool runs a request.
#[derive(Debug)]
#[must_use = "the thread is free again when this is dropped"]
pub(crate) struct OnPool(());

impl OnPool {
    /// Begins the section on a thread for long or for short requests, which may block on locks or not. `resumed_by`
    /// is the lock that resumed the request, if any.
    pub(crate) fn begin(is_long: bool, waits_for_locks: bool, resumed_by: Option<&ObjectLock>) -> Self {
        let thread = if is_long { ThreadKind::Long } else { ThreadKind::Work };
        let resumed_by = resumed_by.map_or(0, |lock| std::ptr::from_ref(lock).addr());
        STATE.set(State { thread, waits_for_locks, resumed_by, ..FREE });
        Self(())
    }

    /// Ends the section. Returns the reason if the request gave up, and whether the lock that resumed it has not
    /// been taken yet.
    pub(crate) fn end(self) -> (Option<WouldBlock>, bool) {
        (cause(), STATE.get().resumed_by != 0)
    }
}

impl Drop for OnPool {
    fn drop(&mut self) {
        STATE.set(FREE);
        // Left by a request that panicked.
        BLOCKED.take();
    }
}

/// Returns whether this thread may block.
pub(crate) fn may_block() -> bool {
    STATE.get().blocking == Blocking::Allowed
}

/// Fails unless this thread may block; to be called for data that are not known to be in memory.
///
/// # Errors
/// The error is never answered: the operation runs again.
pub(crate) fn require_blocking() -> Result<()> {
    if may_block() {
        return Ok(());
    }
    STATE.set(State { blocking: Blocking::Attempted, ..STATE.get() });
    Err(Error::Later)
}

/// Fails on a thread that is not for long requests; to be called before work that takes long.
///
/// # Errors
/// See [`require_blocking`].
pub(crate) fn require_long_lane() -> Result<()> {
    let state = STATE.get();
    let is_right = match state.thread {
        ThreadKind::Elsewhere => state.blocking == Blocking::Allowed,
        ThreadKind::Work => false,
        ThreadKind::Long => true,
    };
    if is_right {
        return Ok(());
    }
    STATE.set(State { blocking: Blocking::Attempted, is_long: true, ..state });
    Err(Error::Later)
}

/// Fails until the lock of this object is free.
///
/// # Errors
/// See [`require_blocking`].
pub(crate) fn block_on_lock<T>(object: Arc<dyn Lockable>) -> Result<T> {
    let state = STATE.get();
    debug_assert!(
        state.thread != ThreadKind::Elsewhere || state.blocking != Blocking::Allowed,
        "locked by an operation that cannot run again"
    );
    STATE.set(State { blocking: Blocking::Attempted, ..state });
    BLOCKED.set(Some(object));
    Err(Error::Later)
}

/// Returns whether this thread may block on locks.
pub(crate) fn waits_for_locks() -> bool {
    STATE.get().waits_for_locks
}

/// Notes that the request has taken this lock.
pub(crate) fn lock_taken(lock: &ObjectLock) {
    let state = STATE.get();
    if state.resumed_by == std::ptr::from_ref(lock).addr() {
        STATE.set(State { resumed_by: 0, ..state });
    }
}

/// Returns whether the operation has given up, so that its error is invalid.
pub(crate) fn would_block() -> bool {
    STATE.get().blocking == Blocking::Attempted
}

/// Lets the operation block from now on, because it is about to have effects and must finish.
pub(crate) fn allow_blocking() {
    STATE.set(State { blocking: Blocking::Allowed, ..STATE.get() });
}

/// Returns the coarse clock in nanoseconds, read once for a section in place.
pub(crate) fn now_ns() -> u64 {
    let state = STATE.get();
    if state.now_ns != 0 {
        return state.now_ns;
    }
    let now_ns = coarse_now_ns();
    // Outside of a section nothing would reset it.
    if state.blocking != Blocking::Allowed {
        STATE.set(State { now_ns, ..state });
    }
    now_ns
}

/// Reads the coarse clock, in nanoseconds.
pub(crate) fn coarse_now_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the number of the current minute (2^36 ns); never 0 or 1. Data that were in memory in this minute or the
/// last count as cached.
pub(crate) fn minute() -> u32 {
    (now_ns() >> MINUTE_SHIFT) as u32 + 2
}

/// Returns whether data that were seen in `minute` count as cached.
pub(crate) fn is_recent(minute: u32, now: u32) -> bool {
    now.wrapping_sub(minute) <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_would_block_has_no_effect() {
        let section = InPlace::begin(0);
        assert!(require_blocking().is_err() && would_block());
        assert!(!section.end());
        assert!(may_block() && require_blocking().is_ok(), "it may not block in place");
        assert!(InPlace::begin(0).end(), "and only during the section");
    }

    #[test]
    fn an_operation_with_effects_is_finished() {
        let section = InPlace::begin(0);
        allow_blocking();
        assert!(require_blocking().is_ok() && section.end());
    }

    #[test]
    fn after_a_panic_in_place_the_thread_may_block() {
        let panicked = std::panic::catch_unwind(|| {
            let _stretch = InPlace::begin(0);
            panic!("on purpose");
        });
        assert!(panicked.is_err() && may_block());
    }

    #[test]
    fn data_count_as_cached_for_one_to_two_minutes() {
        let now = minute();
        assert!(is_recent(now, now) && is_recent(now - 1, now));
        assert!(!is_recent(now - 2, now) && !is_recent(0, now));
    }
}
