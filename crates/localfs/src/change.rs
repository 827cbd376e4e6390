//! Derives the change attribute from ctime, so that it changes with every change of content or attributes.
//!
//! RFC 8881 §5.8.1.4: the change attribute must differ whenever the file's data, directory contents, or attributes
//! differ. The kernel's own counter cannot be read from user space, and ctime alone is too coarse: if it advances
//! once a tick (1 to 10 ms) two changes within a tick look like one.
//!
//! **Multigrain timestamps** (ext4, XFS, btrfs and tmpfs since Linux 6.13): a ctime that was read is never reused for a
//! later change. The server reads it before every answer, so ctime in nanoseconds *is* a change attribute, across
//! restarts, and for changes by local processes too. [`probe`] tests for it.
//!
//! tmpfs is an exception (as of Linux 6.18): when a name is linked, removed or renamed there, the directory gets the
//! ctime of the *file*, which the directory may have already. After such a change through this server the directory's
//! ctime is advanced (`Volume::advance_ctime`). A local process's change shows once the tick is over: from then on
//! the change attribute is [`SETTLED_DIRECTORY_NS`] above the ctime.
//!
//! **Ticks** otherwise. A ctime older than the current tick is *settled*: every later change gets another one. A
//! ctime within the current tick is *fresh*: more changes may follow that it cannot show (git calls such an index
//! entry racily clean). The change attribute for a ctime C is
//! - fresh: C plus a part that grows with time within the tick, the same for all readers, one higher after each
//!   change through this server;
//! - settled: C plus [`Ticks::settled_offset`], which is above every fresh number and below the next tick's ctime.
//!
//! So a client that saw a fresh number sees another one when the tick is over, whether or not a local process changed
//! the file in the meantime. A local change in the tick of the last read shows at most one tick late, and a client
//! reads data again that may have changed unseen. Only `recent` remembers anything, and only for a tick. Forgetting it
//! makes numbers grow faster, never repeat, so that it is bounded and a restart is harmless.

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::time::ClockId;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use vfs::{Attributes, FileKind, Timestamp};

/// Longest tick of a Linux kernel (HZ=100), in nanoseconds.
const LONGEST_TICK_NS: u64 = 10_000_000;
/// Shortest tick of a Linux kernel (HZ=1000), in nanoseconds.
const SHORTEST_TICK_NS: u64 = 1_000_000;
/// The offset of a settled change attribute of a directory from its ctime, if directories share ctimes with files.
/// In nanoseconds, and less than the time between two changes.
const SETTLED_DIRECTORY_NS: u64 = 50;
/// Changes that the probe makes.
const PROBE_ROUNDS: u32 = 32;
/// Shards of the memory of the current tick.
const RECENT_SHARDS: usize = 16;
/// Objects remembered per shard; above that the shard is cleared.
const MAX_RECENT: usize = 1024;

/// Device and inode number.
type Key = (u64, u64);

/// The behavior of this file system's ctime.
#[derive(Debug)]
pub(crate) enum ChangeClock {
    /// A ctime that was read is never reused, except for directories if `shared`.
    Multigrain {
        /// Whether directories may share a ctime with a file.
        shared: bool,
    },
    /// ctime advances by ticks.
    Ticks(Box<Ticks>),
}

/// The change attributes that were answered in the current tick.
#[derive(Debug)]
pub(crate) struct Ticks {
    /// Steps of ctime on disk, in nanoseconds.
    granularity_ns: u64,
    recent: [Mutex<HashMap<Key, Recent>>; RECENT_SHARDS],
}

#[derive(Debug, Clone, Copy)]
struct Recent {
    changed_ns: u64,
    number: u64,
}

/// The time just before attributes are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CoarseTime {
    /// The kernel's coarse clock, from which ctime is taken, in nanoseconds.
    coarse_ns: u64,
}

impl ChangeClock {
    /// Returns whether directories may get a ctime that they had before, after it was read.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Multigrain { shared: true })
    }

    /// Creates a clock for ctimes that advance by ticks of the kernel and are stored in steps of `granularity_ns`.
    pub(crate) fn ticks(granularity_ns: u64) -> Self {
        Self::Ticks(Box::new(Ticks { granularity_ns, recent: std::array::from_fn(|_| Mutex::default()) }))
    }

    /// Reads the time; to be called before the attributes are read.
    pub(crate) fn coarse_time(&self) -> CoarseTime {
        match self {
            Self::Multigrain { shared: false } => CoarseTime { coarse_ns: 0 },
            _ => CoarseTime { coarse_ns: present_ns() },
        }
    }

    /// Returns the change attribute of an object with this ctime, which was read after `moment`. With `own`, a
    /// change through this server came just before. The object is given by its key and whether it is a directory.
    pub(crate) fn change_attribute(
        &self,
        moment: CoarseTime,
        (key, is_directory): (Key, bool),
        changed: Timestamp,
        own: bool,
    ) -> u64 {
        let changed_ns = nanoseconds(changed);
        match self {
            Self::Multigrain { shared: true } if is_directory && changed_ns < moment.coarse_ns => {
                changed_ns.saturating_add(SETTLED_DIRECTORY_NS)
            }
            Self::Multigrain { .. } => changed_ns,
            Self::Ticks(ticks) if ticks.is_settled(moment, changed_ns) => {
                ticks.settled(key, changed_ns, moment)
            }
            Self::Ticks(ticks) => ticks.fresh(key, changed_ns, own, clock_ns(ClockId::Realtime)),
        }
    }

    /// Returns whether changes within one tick have one ctime.
    pub(crate) fn is_coarse(&self) -> bool {
        matches!(self, Self::Ticks(_))
    }

    /// Returns whether a change attribute is constant until the next change.
    pub(crate) fn is_steady(&self) -> bool {
        matches!(self, Self::Multigrain { shared: false })
    }

    /// Notes a change through this server after which the attributes were not read: the next read gives a later
    /// number.
    pub(crate) fn was_changed(&self, key: Key) {
        if let Self::Ticks(ticks) = self
            && let Some(entry) = ticks.recent(key).get_mut(&key)
        {
            entry.changed_ns = 0;
        }
    }

    /// Returns whether this change attribute is constant until the next change, so that no part of it grows with time.
    pub(crate) fn is_final(&self, attributes: &Attributes) -> bool {
        let settled_part = match self {
            Self::Multigrain { shared: true } if attributes.kind == FileKind::Directory => {
                SETTLED_DIRECTORY_NS
            }
            Self::Multigrain { .. } => 0,
            Self::Ticks(ticks) => ticks.settled_offset(),
        };
        attributes.change == nanoseconds(attributes.changed).saturating_add(settled_part)
    }

    /// Returns whether any later change shows in ctime.
    pub(crate) fn is_settled(&self, moment: CoarseTime, changed: Timestamp) -> bool {
        match self {
            Self::Multigrain { .. } => true,
            Self::Ticks(ticks) => ticks.is_settled(moment, nanoseconds(changed)),
        }
    }
}

impl Ticks {
    /// `moment` was read *before* the ctime: if it is past that ctime already, later changes get a later one.
    fn is_settled(&self, moment: CoarseTime, changed_ns: u64) -> bool {
        changed_ns < moment.coarse_ns - moment.coarse_ns % self.granularity_ns
    }

    /// Returns half of the least distance of two different ctimes.
    fn settled_offset(&self) -> u64 {
        self.granularity_ns.max(SHORTEST_TICK_NS) / 2
    }

    /// Since Linux 6.13 two ctimes may be closer together than a tick, because the kernel advances the coarse clock to
    /// each multigrain time. So the number of a ctime that has just settled is remembered, and the next number is
    /// above it.
    fn settled(&self, key: Key, changed_ns: u64, moment: CoarseTime) -> u64 {
        let number = changed_ns.saturating_add(self.settled_offset());
        if moment.coarse_ns - changed_ns < 2 * self.settled_offset() + LONGEST_TICK_NS {
            let mut recent = self.recent(key);
            recent.insert(key, Recent { changed_ns, number });
        }
        number
    }

    /// Returns the shard that remembers `key`, with room for it.
    fn recent(&self, key: Key) -> MutexGuard<'_, HashMap<Key, Recent>> {
        let mut recent = self.recent[(key.1 as usize) % RECENT_SHARDS].lock();
        if recent.len() >= MAX_RECENT {
            recent.clear();
        }
        recent
    }

    fn fresh(&self, key: Key, changed_ns: u64, own: bool, now_ns: u64) -> u64 {
        let highest = self.settled_offset() - 1;
        let longest = 2 * self.granularity_ns.max(LONGEST_TICK_NS);
        let elapsed = now_ns.saturating_sub(changed_ns).min(longest);
        let by_time = changed_ns
            .saturating_add((u128::from(elapsed) * u128::from(highest) / u128::from(longest)) as u64);
        let mut recent = self.recent(key);
        let entry = recent.entry(key).or_insert(Recent { changed_ns, number: by_time });
        if entry.changed_ns != changed_ns {
            *entry = Recent { changed_ns, number: by_time.max(entry.number + 1) };
        } else if own {
            entry.number = by_time.max(entry.number + 1).min(changed_ns.saturating_add(highest));
        }
        entry.number
    }
}

/// Returns the nanoseconds since the epoch, 0 for earlier times.
pub(crate) fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.seconds).map_or(0, |seconds| {
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::from(time.nanoseconds))
    })
}

/// Returns the time `ns` nanoseconds after the epoch.
#[cfg(test)]
pub(crate) fn timestamp(ns: u64) -> Timestamp {
    Timestamp { seconds: (ns / 1_000_000_000) as i64, nanoseconds: (ns % 1_000_000_000) as u32 }
}

/// Reads the clock that file systems take times from, in nanoseconds since the epoch. It advances by ticks.
pub(crate) fn present_ns() -> u64 {
    clock_ns(ClockId::RealtimeCoarse)
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    nanoseconds(Timestamp { seconds: now.tv_sec, nanoseconds: now.tv_nsec as u32 })
}

/// Tests how ctime behaves by changing a nameless file in `directory`, and how finely it is stored, in nanoseconds.
/// Without such a file, ticks are assumed, and the directory's own times show the steps.
pub(crate) fn probe(directory: BorrowedFd<'_>, is_in_memory: bool) -> (ChangeClock, u32) {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(directory, c".", flags, Mode::RUSR | Mode::WUSR) else {
        let whole_seconds = rustix::fs::fstat(directory)
            .is_ok_and(|stat| stat.st_ctime_nsec == 0 && stat.st_mtime_nsec == 0 && stat.st_atime_nsec == 0);
        let granularity = if whole_seconds { 1_000_000_000 } else { 1 };
        return (ChangeClock::ticks(u64::from(granularity)), granularity);
    };
    let started_ns = clock_ns(ClockId::Monotonic);
    let mut previous = None;
    let (mut repeated, mut whole_seconds) = (false, true);
    for round in 0..PROBE_ROUNDS {
        // Another mode each round, so that each round is a change.
        let mode = Mode::from_raw_mode(0o600 | (round & 1) << 3);
        let Ok(status) = rustix::fs::fchmod(&file, mode)
            .and_then(|()| rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS))
        else {
            return (ChangeClock::ticks(1), 1);
        };
        let ctime = (status.stx_ctime.tv_sec, status.stx_ctime.tv_nsec);
        repeated |= previous == Some(ctime);
        whole_seconds &= ctime.1 == 0;
        previous = Some(ctime);
    }
    // If each round takes a tick or more, ticks differ too, and the test proves nothing.
    let too_slow = clock_ns(ClockId::Monotonic) - started_ns > u64::from(PROBE_ROUNDS) * SHORTEST_TICK_NS / 4;
    match (repeated || too_slow, whole_seconds) {
        (false, _) => (ChangeClock::Multigrain { shared: is_in_memory }, 1),
        (true, true) => (ChangeClock::ticks(1_000_000_000), 1_000_000_000),
        (true, false) => (ChangeClock::ticks(1), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (u64, u64) = (1, 2);
    const SECOND: u64 = 1_000_000_000;

    fn ticks(clock: &ChangeClock) -> &Ticks {
        match clock {
            ChangeClock::Ticks(ticks) => ticks,
            ChangeClock::Multigrain { .. } => panic!("made of ticks"),
        }
    }

    fn attributes(kind: FileKind, changed: Timestamp) -> Attributes {
        let zero = Timestamp::default();
        Attributes {
            kind,
            mode: 0,
            links: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: vfs::Device::default(),
            fsid: 0,
            fileid: 0,
            accessed: zero,
            modified: zero,
            changed,
            created: None,
            change: 0,
        }
    }

    #[test]
    fn a_settled_ctime_gives_one_number_across_restarts() {
        let ctime = timestamp(5 * SECOND);
        let later = CoarseTime { coarse_ns: 5 * SECOND + 1 };
        let (one, other) = (ChangeClock::ticks(1), ChangeClock::ticks(1));
        let number = |clock: &ChangeClock, own| clock.change_attribute(later, (KEY, false), ctime, own);
        assert_eq!(number(&one, false), number(&other, true));
    }

    #[test]
    fn a_change_through_us_within_one_tick_shows() {
        let clock = ChangeClock::ticks(1);
        let first = ticks(&clock).fresh(KEY, 5 * SECOND, true, 5 * SECOND);
        let looked = ticks(&clock).fresh(KEY, 5 * SECOND, false, 5 * SECOND + 3_000_000);
        let second = ticks(&clock).fresh(KEY, 5 * SECOND, true, 5 * SECOND);
        assert_eq!(first, looked, "reading changes nothing");
        assert!(second > first);
    }

    #[test]
    fn an_unread_change_shows_at_the_next_read() {
        let clock = ChangeClock::ticks(1);
        let first = ticks(&clock).fresh(KEY, 5 * SECOND, true, 5 * SECOND + 1000);
        clock.was_changed(KEY);
        assert!(ticks(&clock).fresh(KEY, 5 * SECOND, false, 5 * SECOND + 2000) > first);
    }

    #[test]
    fn a_number_is_final_when_it_has_settled() {
        let (fresh, settled) = (CoarseTime { coarse_ns: 5 * SECOND }, CoarseTime { coarse_ns: 6 * SECOND });
        let clocks = [
            (ChangeClock::ticks(1), [false, false]),
            (ChangeClock::Multigrain { shared: true }, [true, false]),
            (ChangeClock::Multigrain { shared: false }, [true, true]),
        ];
        for (clock, is_final_at_once) in clocks {
            for (kind, at_once) in [FileKind::Regular, FileKind::Directory].into_iter().zip(is_final_at_once)
            {
                let is_final = |moment| {
                    let key = (KEY, kind == FileKind::Directory);
                    let changed = timestamp(5 * SECOND);
                    let change = clock.change_attribute(moment, key, changed, false);
                    clock.is_final(&Attributes { change, ..attributes(kind, changed) })
                };
                assert_eq!(is_final(fresh), at_once, "{clock:?}, {kind:?}");
                assert!(is_final(settled), "{clock:?}, {kind:?}");
            }
        }
    }

    #[test]
    fn a_fresh_number_differs_from_the_settled_one_and_the_next_ticks() {
        let clock = ChangeClock::ticks(1);
        let mut highest = 0;
        for step in 0..200_000 {
            highest = ticks(&clock).fresh(KEY, 5 * SECOND, true, 5 * SECOND + 60 * step);
        }
        let settled = clock.change_attribute(
            CoarseTime { coarse_ns: 6 * SECOND },
            (KEY, false),
            timestamp(5 * SECOND),
            false,
        );
        assert!(highest < settled, "a local change after the last read must show once the tick is over");
        let next =
            ticks(&clock).fresh(KEY, 5 * SECOND + SHORTEST_TICK_NS, false, 5 * SECOND + SHORTEST_TICK_NS);
        assert!(settled < next);
    }

    #[test]
    fn a_ctime_soon_after_one_that_has_settled_is_above_it() {
        let clock = ChangeClock::ticks(1);
        let moment = CoarseTime { coarse_ns: 5 * SECOND + 10 };
        let settled = clock.change_attribute(moment, (KEY, false), timestamp(5 * SECOND), false);
        let next = ticks(&clock).fresh(KEY, 5 * SECOND + 20, true, 5 * SECOND + 30);
        assert!(next > settled);
        let moment = CoarseTime { coarse_ns: 5 * SECOND + 4_000_000 };
        assert!(clock.change_attribute(moment, (KEY, false), timestamp(5 * SECOND + 20), false) > next);
    }

    #[test]
    fn forgetting_within_a_tick_never_repeats_a_number() {
        let before = ChangeClock::ticks(1);
        let seen = ticks(&before).fresh(KEY, 5 * SECOND, true, 5 * SECOND + 1_000_000);
        let restarted = ChangeClock::ticks(1);
        let again = ticks(&restarted).fresh(KEY, 5 * SECOND, false, 5 * SECOND + 1_100_000);
        assert!(again > seen);
    }

    #[test]
    fn the_memory_of_a_tick_is_bounded() {
        let clock = ChangeClock::ticks(1);
        for inode in 0..10 * (MAX_RECENT * RECENT_SHARDS) as u64 {
            ticks(&clock).fresh((1, inode), 5 * SECOND, true, 5 * SECOND);
        }
        assert!(ticks(&clock).recent.iter().all(|shard| shard.lock().len() <= MAX_RECENT));
    }

    #[test]
    fn a_directory_that_may_share_its_ctime_gets_another_number_when_the_tick_is_over() {
        let clock = ChangeClock::Multigrain { shared: true };
        let (fresh, settled) = (CoarseTime { coarse_ns: 5 * SECOND }, CoarseTime { coarse_ns: 6 * SECOND });
        let number = |moment, is_directory| {
            clock.change_attribute(moment, (KEY, is_directory), timestamp(5 * SECOND), false)
        };
        assert!(number(fresh, true) < number(settled, true));
        assert_eq!(number(fresh, false), number(settled, false), "files have their own ctime");
    }

    #[test]
    fn whole_seconds_settle_only_when_the_second_is_over() {
        let clock = ChangeClock::ticks(SECOND);
        let within = CoarseTime { coarse_ns: 5 * SECOND + 900_000_000 };
        assert!(!clock.is_settled(within, timestamp(5 * SECOND)));
        assert!(clock.is_settled(CoarseTime { coarse_ns: 6 * SECOND }, timestamp(5 * SECOND)));
    }
}
