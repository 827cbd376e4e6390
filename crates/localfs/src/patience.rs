//! Whether the thread that runs an operation may wait for the disk.
//!
//! A connection's thread serves many others, and must not wait. Linux cannot be asked to make a name or to write
//! without waiting (`RWF_NOWAIT` writes are refused by ext4, and by XFS and btrfs whenever the file's times change,
//! which is always since we look at them). So an operation runs in place as long as all that it needs is known to be
//! in memory; where it meets something that is not, it gives up *before it has had any effect*, and runs once more,
//! from the start and as a whole, on the blocking pool, where it may wait.
//!
//! Like its identity ([`crate::identity`]), this belongs to the thread and to one synchronous stretch of code, never
//! over an await: threads may wait except within [`InPlace`]. The rejected alternative is an argument of
//! every function down to the system call, and an error of its own beside [`vfs::Error`] in all of them.

use std::cell::Cell;

use rustix::time::ClockId;
use vfs::{Error, Result};

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

#[derive(Debug, Clone, Copy)]
struct State {
    patience: Patience,
    /// The clock of ticks, for whoever needs it within one operation; 0 where it was not read.
    now_ns: u64,
}

const FREE: State = State { patience: Patience::Unlimited, now_ns: 0 };

thread_local! {
    static STATE: Cell<State> = const { Cell::new(FREE) };
}

/// A stretch of code in which this thread does not wait. It may again when this is dropped, by a panic too.
#[derive(Debug)]
#[must_use = "the thread may wait again when this is dropped"]
pub(crate) struct InPlace(());

impl InPlace {
    /// Begins it; `now_ns` is the clock of ticks, or 0.
    #[inline]
    pub(crate) fn begin(now_ns: u64) -> Self {
        STATE.set(State { patience: Patience::None, now_ns });
        Self(())
    }

    /// Ends it; false where the operation would have waited: then it has done nothing, and its result means nothing.
    #[inline]
    pub(crate) fn end(self) -> bool {
        STATE.get().patience != Patience::Exceeded
    }
}

impl Drop for InPlace {
    #[inline]
    fn drop(&mut self) {
        STATE.set(FREE);
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
/// Whatever it is, nobody is told: the operation runs again.
pub(crate) fn wait() -> Result<()> {
    if may_wait() {
        return Ok(());
    }
    STATE.set(State { patience: Patience::Exceeded, ..STATE.get() });
    Err(Error::Later)
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
