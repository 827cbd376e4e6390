//! Pauses after failures: a recalled file is not delegated again for a while.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The first pause; each that follows soon is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
/// Maximum number of doublings of the pause: 15 s doubled six times are 16 minutes.
const LEVELS_MAX: u8 = 6;
/// Recently recalled files that are remembered. Of two files in one place, the later one is.
const RECENT_RECALLS_MAX: usize = 4096;

/// A pause after a failure, longer for each failure that follows soon. Holds a packed [`Pause`].
#[derive(Debug, Default)]
pub(crate) struct Backoff(AtomicU64);

impl Backoff {
    /// Begins a pause for the subject with this tag (24 bits) among those that share the backoff. During a pause it does
    /// nothing: failures at the same time count once.
    pub(crate) fn begin(&self, tag: u32, now: Duration) {
        if self.is_active(tag, now) {
            return;
        }
        let now = now.as_secs() as u32;
        let last = self.last(tag);
        // Long after the last pause the first level applies again.
        let is_soon = |pause: &Pause| now < pause.until.saturating_add(seconds(pause.level));
        let level = last.filter(is_soon).map_or(0, |pause| (pause.level + 1).min(LEVELS_MAX));
        let pause = Pause { until: now.saturating_add(seconds(level)), level, tag };
        self.0.store(pause.pack(), Relaxed);
    }

    /// Returns whether the subject with this tag pauses.
    pub(crate) fn is_active(&self, tag: u32, now: Duration) -> bool {
        self.last(tag).is_some_and(|pause| now.as_secs() < u64::from(pause.until))
    }

    fn last(&self, tag: u32) -> Option<Pause> {
        let pause = Pause::unpack(self.0.load(Relaxed));
        (pause.until > 0 && pause.tag == tag).then_some(pause)
    }
}

/// Files that were recalled recently.
#[derive(Debug)]
pub(crate) struct RecentRecalls(Box<[Backoff]>);

impl Default for RecentRecalls {
    fn default() -> Self {
        Self((0..RECENT_RECALLS_MAX).map(|_| Backoff::default()).collect())
    }
}

impl RecentRecalls {
    /// Notes the recall of a file with this hash.
    pub(crate) fn add(&self, hash: u64, now: Duration) {
        self.backoff(hash).begin(Pause::tag(hash), now);
    }

    /// Returns whether such a file must not be delegated.
    pub(crate) fn contains(&self, hash: u64, now: Duration) -> bool {
        self.backoff(hash).is_active(Pause::tag(hash), now)
    }

    fn backoff(&self, hash: u64) -> &Backoff {
        &self.0[hash as usize % RECENT_RECALLS_MAX]
    }
}

/// Returns the length of a pause.
fn seconds(level: u8) -> u32 {
    (FIRST_PAUSE.as_secs() as u32) << level
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    /// Its end in seconds of the server's clock; zero if there is no pause.
    until: u32,
    /// Number of doublings of the pause.
    level: u8,
    /// 24 bits of the file's hash that do not choose the place: other files in the same place differ in them.
    tag: u32,
}

impl Pause {
    fn tag(hash: u64) -> u32 {
        (hash >> 40) as u32
    }

    fn pack(self) -> u64 {
        u64::from(self.until) << 32 | u64::from(self.level) << 24 | u64::from(self.tag)
    }

    fn unpack(packed: u64) -> Self {
        Self { until: (packed >> 32) as u32, level: (packed >> 24) as u8, tag: packed as u32 & 0xff_ffff }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recalls_that_follow_each_other_double_the_pause() {
        let (recalls, second) = (RecentRecalls::default(), Duration::from_secs);
        let mut now = second(100);
        for pause in [15, 30, 60, 120, 240, 480, 960, 960] {
            recalls.add(5, now);
            assert!(recalls.contains(5, now + second(pause - 1)) && !recalls.contains(6, now));
            now += second(pause);
            assert!(!recalls.contains(5, now));
        }
        // After a time as long as the pause it starts again.
        now += second(961);
        recalls.add(5, now);
        assert!(!recalls.contains(5, now + second(15)));
    }

    #[test]
    fn failures_during_a_pause_count_once() {
        let (backoff, now) = (Backoff::default(), Duration::from_secs(100));
        for _ in 0..8 {
            backoff.begin(0, now);
        }
        assert!(backoff.is_active(0, now + Duration::from_secs(14)));
        assert!(!backoff.is_active(0, now + Duration::from_secs(15)));
    }

    #[test]
    fn files_of_one_entry_are_distinguished() {
        let (recalls, now) = (RecentRecalls::default(), Duration::from_secs(100));
        let (recalled, other) = (5, 5 | 1 << 40);
        recalls.add(recalled, now);
        assert!(recalls.contains(recalled, now) && !recalls.contains(other, now));
        // The later one replaces the earlier one and begins at the first level.
        recalls.add(other, now);
        assert!(recalls.contains(other, now + Duration::from_secs(14)) && !recalls.contains(recalled, now));
        assert!(!recalls.contains(other, now + Duration::from_secs(15)));
    }

    #[test]
    fn a_pause_survives_packing() {
        let pause = Pause { until: u32::MAX - 1, level: LEVELS_MAX, tag: Pause::tag(u64::MAX) };
        assert_eq!(Pause::unpack(pause.pack()), pause);
    }
}
