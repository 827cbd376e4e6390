//! Whether the thread that runs an operation may wait for the disk.
//!
//! A connection's thread serves many others, and must not wait. Linux cannot be asked to make a name or to write
//! without waiting (`RWF_NOWAIT` writes are refused by ext4, and by XFS and btrfs whenever the file's times change,
//! which is always since we look at them). So an operation runs in place as long as all that it needs is known to be
//! in memory; where it meets something that is not, it gives up *before it has had any effect*, and runs once more,
//! from the start and as a whole, on the [pool](crate::pool), where it may wait. In the same way it gives up, there too, where
//! it needs a lock that is held for longer than a moment, or is about to do what takes long on a thread that is not for that.
//!
//! Like its identity ([`crate::identity`]), this belongs to the thread and to one synchronous stretch of code, never
//! over an await: threads may wait except within [`InPlace`]. The rejected alternative is an argument of
//! every function down to the system call, and an error of its own beside [`vfs::Error`] in all of them.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rustix::time::ClockId;
use vfs::{Error, Result};

use crate::lock::{Lockable, ObjectLock};

/// Nanoseconds of an operation in place from which on it counts as having waited: two ticks of the coarse clock at 250
/// a second. Who waits for a disk that turns, or for its turn to dirty memory, waits longer.
pub(crate) const STALL_NS: u64 = 8_000_000;
/// Nanoseconds for which what was read is taken to stay in memory, as a shift: about a minute.
const ERA_SHIFT: u32 = 36;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Unlimited,
    None,
    /// None, and it would have taken some.
    Exceeded,
}

/// What kind of thread this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// None of the pool's that runs a request.
    Elsewhere,
    /// For requests that do not take long.
    Work,
    /// For those that do.
    Long,
}

#[derive(Debug, Clone, Copy)]
struct State {
    patience: Patience,
    place: Place,
    /// Whether it waits for locks with the thread.
    waits_for_locks: bool,
    /// The address of the object whose lock the request was resumed for, until it has taken that; 0 where there is none.
    resumed_by: usize,
    /// Whether it would take long.
    is_long: bool,
    /// The clock of ticks, for whoever needs it within one operation; 0 where it was not read.
    now_ns: u64,
}

const FREE: State = State {
    patience: Patience::Unlimited,
    place: Place::Elsewhere,
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

/// Why a request gave up before it had any effect.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// It has to wait for the disk.
    Disk,
    /// It takes long by itself.
    Long,
    /// The lock of this object is held.
    Lock(Arc<dyn Lockable>),
}

fn obstacle() -> Option<Obstacle> {
    let state = STATE.get();
    if state.patience != Patience::Exceeded {
        return None;
    }
    Some(match BLOCKED.take() {
        Some(object) => Obstacle::Lock(object),
        None if state.is_long => Obstacle::Long,
        None => Obstacle::Disk,
    })
}

/// A stretch of code in which this thread does not wait. It may again when this is dropped, by a panic too.
#[derive(Debug)]
#[must_use = "the thread may wait again when this is dropped"]
pub(crate) struct InPlace(());

impl InPlace {
    /// Begins it; `now_ns` is the clock of ticks, or 0.
    #[inline]
    pub(crate) fn begin(now_ns: u64) -> Self {
        STATE.set(State { patience: Patience::None, now_ns, ..FREE });
        Self(())
    }

    /// Ends it; false where the operation would have waited: then it has done nothing, and its result means nothing.
    #[inline]
    pub(crate) fn end(self) -> bool {
        STATE.get().patience != Patience::Exceeded
    }

    /// Ends it; tells why the operation gave up, if it did. Then it has done nothing, and its result means nothing.
    #[inline]
    pub(crate) fn end_with(self) -> Option<Obstacle> {
        obstacle()
    }
}

impl Drop for InPlace {
    #[inline]
    fn drop(&mut self) {
        STATE.set(FREE);
    }
}

/// A stretch of code in which this thread, one of the pool, runs a request.
#[derive(Debug)]
#[must_use = "the thread is free again when this is dropped"]
pub(crate) struct OnPool(());

impl OnPool {
    /// Begins it, on a thread for what takes long or on another, which waits for locks or does not. The lock of an object may
    /// have resumed the request.
    pub(crate) fn begin(is_long: bool, waits_for_locks: bool, resumed_by: Option<&ObjectLock>) -> Self {
        let place = if is_long { Place::Long } else { Place::Work };
        let resumed_by = resumed_by.map_or(0, |lock| std::ptr::from_ref(lock).addr());
        STATE.set(State { place, waits_for_locks, resumed_by, ..FREE });
        Self(())
    }

    /// Ends it; tells why the request gave up, if it did, and whether a lock that resumed it is still to be taken.
    pub(crate) fn end(self) -> (Option<Obstacle>, bool) {
        (obstacle(), STATE.get().resumed_by != 0)
    }
}

impl Drop for OnPool {
    fn drop(&mut self) {
        STATE.set(FREE);
        // Of a request that panicked.
        BLOCKED.take();
    }
}

/// Whether this thread may wait for the disk.
pub(crate) fn may_wait() -> bool {
    STATE.get().patience == Patience::Unlimited
}

/// Whether this is a stretch in place, and known to be one: its clock has been read.
pub(crate) fn is_in_place() -> bool {
    STATE.get().now_ns != 0
}

/// Gives up unless this thread may wait; for what is not known to be in memory.
///
/// # Errors
/// The operation runs again: nobody is told of this one.
pub(crate) fn wait() -> Result<()> {
    if may_wait() {
        return Ok(());
    }
    STATE.set(State { patience: Patience::Exceeded, ..STATE.get() });
    Err(Error::Later)
}

/// Gives up, before what takes long by itself, on a thread that is not for that.
///
/// # Errors
/// See [`wait`].
pub(crate) fn take_long() -> Result<()> {
    let state = STATE.get();
    let is_right = match state.place {
        Place::Elsewhere => state.patience == Patience::Unlimited,
        Place::Work => false,
        Place::Long => true,
    };
    if is_right {
        return Ok(());
    }
    STATE.set(State { patience: Patience::Exceeded, is_long: true, ..state });
    Err(Error::Later)
}

/// Gives up until the lock of this object is free.
///
/// # Errors
/// See [`wait`].
pub(crate) fn wait_for_lock<T>(object: Arc<dyn Lockable>) -> Result<T> {
    let state = STATE.get();
    debug_assert!(
        state.place != Place::Elsewhere || state.patience != Patience::Unlimited,
        "a lock was asked for by what cannot be run again"
    );
    STATE.set(State { patience: Patience::Exceeded, ..state });
    BLOCKED.set(Some(object));
    Err(Error::Later)
}

/// Whether this thread waits for locks.
pub(crate) fn waits_for_locks() -> bool {
    STATE.get().waits_for_locks
}

/// The request has taken the lock of this object.
pub(crate) fn has_locked(lock: &ObjectLock) {
    let state = STATE.get();
    if state.resumed_by == std::ptr::from_ref(lock).addr() {
        STATE.set(State { resumed_by: 0, ..state });
    }
}

/// Whether the operation has given up: what went wrong means nothing.
pub(crate) fn is_exceeded() -> bool {
    STATE.get().patience == Patience::Exceeded
}

/// From here on the operation has effects: it goes on to its end, whatever that takes.
pub(crate) fn must_finish() {
    STATE.set(State { patience: Patience::Unlimited, ..STATE.get() });
}

/// The clock of ticks, in nanoseconds; read once for all of a stretch in place.
pub(crate) fn now_ns() -> u64 {
    let state = STATE.get();
    if state.now_ns != 0 {
        return state.now_ns;
    }
    let now_ns = ticks_ns();
    // Elsewhere nobody would forget it.
    if state.patience != Patience::Unlimited {
        STATE.set(State { now_ns, ..state });
    }
    now_ns
}

/// The clock of ticks, read now.
pub(crate) fn ticks_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Number of the present minute or so; never 0 or 1. What was in memory in this one or the last is taken to be so still.
pub(crate) fn era() -> u32 {
    (now_ns() >> ERA_SHIFT) as u32 + 2
}

/// Whether what was seen in `era` is taken to be in memory still.
pub(crate) fn is_recent(era: u32, now: u32) -> bool {
    now.wrapping_sub(era) <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_would_wait_did_not_happen() {
        let stretch = InPlace::begin(0);
        assert!(wait().is_err() && is_exceeded());
        assert!(!stretch.end());
        assert!(may_wait() && wait().is_ok(), "only in place");
        assert!(InPlace::begin(0).end(), "and not for ever");
    }

    #[test]
    fn one_that_has_had_effects_is_finished() {
        let stretch = InPlace::begin(0);
        must_finish();
        assert!(wait().is_ok() && stretch.end());
    }

    #[test]
    fn a_panic_in_place_leaves_a_thread_that_may_wait() {
        let panicked = std::panic::catch_unwind(|| {
            let _stretch = InPlace::begin(0);
            panic!("on purpose");
        });
        assert!(panicked.is_err() && may_wait());
    }

    #[test]
    fn what_was_in_memory_is_so_for_a_minute_or_two_and_never_from_the_start() {
        let now = era();
        assert!(is_recent(now, now) && is_recent(now - 1, now));
        assert!(!is_recent(now - 2, now) && !is_recent(0, now));
    }
}
