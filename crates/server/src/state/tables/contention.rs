//! Which files must not be delegated now: those that are being changed, and those that were recalled lately. And for how long what
//! went wrong is left alone ([`HoldOff`]), a file or something else.
//!
//! Both are told apart by a hash. That two files share a group of [`Busy`] costs one of them a chance for as long as an operation
//! takes; a place in [`Contended`] is kept for minutes, and says whose it is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

/// How long a file is not delegated after its first recall; twice as long after each that follows soon.
const HOLD_OFF: Duration = Duration::from_secs(15);
/// Recalls that lengthen it: 15 s doubled six times are 16 minutes.
const HOLD_OFF_LEVELS: u8 = 6;
/// Files that can be known as recalled lately; of two that share a place the later is.
const CONTENDED_FILES: usize = 4096;
/// Groups of files told apart among those that are being changed.
const BUSY_GROUPS: usize = 1024;

/// How many operations that would break a delegation are under way, and how many have ended, by groups of files.
#[derive(Debug)]
pub(crate) struct Busy {
    groups: Box<[AtomicU64]>,
    /// Operations on files that they know by a name alone: they stand against every grant.
    unnamed: AtomicU64,
    /// Whether anything was to be delegated since the start.
    is_wished: AtomicBool,
}

impl Default for Busy {
    fn default() -> Self {
        let groups = (0..BUSY_GROUPS).map(|_| AtomicU64::new(0)).collect();
        Self { groups, unnamed: AtomicU64::new(0), is_wished: AtomicBool::new(false) }
    }
}

impl Busy {
    /// An operation begins that would break a delegation of a file with this hash.
    pub(crate) fn enter(&self, hash: u64) -> Changing<'_> {
        Changing::begin(self.group(hash))
    }

    /// An operation begins that knows its file by a name alone; `None` where it has to find out which file that is, as
    /// delegations are wished for: operations that did not would follow each other without a gap.
    pub(crate) fn enter_unnamed(&self) -> Option<Changing<'_>> {
        if self.is_wished.load(SeqCst) {
            return None;
        }
        let changing = Changing::begin(&self.unnamed);
        // Behind the count: either this sees the wish, or the wish sees the count.
        (!self.is_wished.load(SeqCst)).then_some(changing)
    }

    /// Something with this hash is to be delegated as it is found by a look behind this.
    pub(crate) fn look(&self, hash: u64) -> Looked {
        // Mostly it was said long ago: the line is only read.
        if !self.is_wished.load(SeqCst) {
            self.is_wished.store(true, SeqCst);
        }
        Looked { group: ended(self.group(hash)), unnamed: ended(&self.unnamed) }
    }

    /// Whether any such operation is under way.
    pub(crate) fn is_entered(&self, hash: u64) -> bool {
        under_way(self.group(hash)) > 0 || under_way(&self.unnamed) > 0
    }

    /// Whether any such operation has ended since: it may have come behind the look.
    pub(crate) fn has_moved_on(&self, hash: u64, since: Looked) -> bool {
        ended(self.group(hash)) != since.group || ended(&self.unnamed) != since.unnamed
    }

    fn group(&self, hash: u64) -> &AtomicU64 {
        &self.groups[hash as usize % BUSY_GROUPS]
    }
}

/// How many operations of a group are under way: the lower half of its number.
fn under_way(group: &AtomicU64) -> u32 {
    group.load(SeqCst) as u32
}

/// How many have ended, modulo 2³²: the upper half.
fn ended(group: &AtomicU64) -> u32 {
    (group.load(SeqCst) >> 32) as u32
}

/// From before the look at what is to be delegated: operations that had ended by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Looked {
    group: u32,
    unnamed: u32,
}

/// An operation that would break a delegation of its file; none is granted until it is dropped, nor by a look from before that.
#[derive(Debug)]
#[must_use = "it protects the operation for as long as it lives"]
pub struct Changing<'s>(&'s AtomicU64);

impl<'s> Changing<'s> {
    fn begin(group: &'s AtomicU64) -> Self {
        group.fetch_add(1, SeqCst);
        Self(group)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // One less under way, one more that has ended.
        self.0.fetch_add((1 << 32) - 1, SeqCst);
    }
}

/// What went wrong lately, and is left alone for a while: for longer where it goes wrong again soon. A packed [`Mark`].
#[derive(Debug, Default)]
pub(crate) struct HoldOff(AtomicU64);

impl HoldOff {
    /// It goes wrong, for what has this tag (24 bits) among all that share the place. What is left alone already stays so as
    /// long as it would have: all that goes wrong together counts once.
    pub(crate) fn begin(&self, tag: u32, now: Duration) {
        if self.is_on(tag, now) {
            return;
        }
        let now = now.as_secs() as u32;
        let last = self.last(tag);
        // Long after the last time it starts again.
        let is_soon = |mark: &Mark| now < mark.until.saturating_add(hold_off(mark.level));
        let level = last.filter(is_soon).map_or(0, |mark| (mark.level + 1).min(HOLD_OFF_LEVELS));
        let mark = Mark { until: now.saturating_add(hold_off(level)), level, tag };
        self.0.store(mark.pack(), Relaxed);
    }

    /// Whether what has this tag is left alone.
    pub(crate) fn is_on(&self, tag: u32, now: Duration) -> bool {
        self.last(tag).is_some_and(|mark| now.as_secs() < u64::from(mark.until))
    }

    fn last(&self, tag: u32) -> Option<Mark> {
        let mark = Mark::unpack(self.0.load(Relaxed));
        (mark.until > 0 && mark.tag == tag).then_some(mark)
    }
}

/// Files that were recalled lately.
#[derive(Debug)]
pub(crate) struct Contended(Box<[HoldOff]>);

impl Default for Contended {
    fn default() -> Self {
        Self((0..CONTENDED_FILES).map(|_| HoldOff::default()).collect())
    }
}

impl Contended {
    /// A file with this hash is recalled.
    pub(crate) fn mark(&self, hash: u64, now: Duration) {
        self.place(hash).begin(Mark::tag(hash), now);
    }

    /// Whether such a file is left alone.
    pub(crate) fn is_marked(&self, hash: u64, now: Duration) -> bool {
        self.place(hash).is_on(Mark::tag(hash), now)
    }

    fn place(&self, hash: u64) -> &HoldOff {
        &self.0[hash as usize % CONTENDED_FILES]
    }
}

fn hold_off(level: u8) -> u32 {
    (HOLD_OFF.as_secs() as u32) << level
}

/// What is known of something that went wrong: of a file that was recalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// Seconds of the server's clock until when it is left alone; zero: there is none.
    until: u32,
    /// How often it was left alone before.
    level: u8,
    /// 24 bits of the file's hash that do not name the place: other files that have it are not taken for this one.
    tag: u32,
}

impl Mark {
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
    fn a_change_is_seen_until_it_is_over() {
        let busy = Busy::default();
        let (first, second) = (busy.enter(7), busy.enter(7));
        drop(first);
        assert!(busy.is_entered(7) && !busy.is_entered(8));
        drop(second);
        assert!(!busy.is_entered(7));
    }

    #[test]
    fn a_change_behind_a_look_is_seen_when_it_is_over() {
        let busy = Busy::default();
        let looked = busy.look(7);
        drop(busy.enter(8));
        assert!(!busy.has_moved_on(7, looked));
        let changing = busy.enter(7);
        assert!(busy.is_entered(7));
        drop(changing);
        assert!(!busy.is_entered(7) && busy.has_moved_on(7, looked));
        assert!(!busy.has_moved_on(7, busy.look(7)));
    }

    #[test]
    fn changes_are_counted_beyond_all_bounds() {
        let busy = Busy::default();
        busy.group(7).store(u64::from(u32::MAX) << 32, SeqCst);
        let looked = busy.look(7);
        drop(busy.enter(7));
        assert!(!busy.is_entered(7) && busy.has_moved_on(7, looked));
    }

    #[test]
    fn names_need_not_be_looked_up_until_something_is_to_be_delegated() {
        let busy = Busy::default();
        let unnamed = busy.enter_unnamed().expect("nothing was ever delegated");
        let looked = busy.look(7);
        assert!(busy.is_entered(7) && busy.is_entered(8), "it may be any file");
        assert!(busy.enter_unnamed().is_none());
        drop(unnamed);
        assert!(!busy.is_entered(7) && busy.has_moved_on(7, looked));
    }

    #[test]
    fn recalls_that_follow_each_other_keep_a_file_back_for_longer() {
        let (contended, second) = (Contended::default(), Duration::from_secs);
        let mut now = second(100);
        // 15 s, then twice as long each time, to 16 minutes.
        for pause in [15, 30, 60, 120, 240, 480, 960, 960] {
            contended.mark(5, now);
            assert!(contended.is_marked(5, now + second(pause - 1)) && !contended.is_marked(6, now));
            now += second(pause);
            assert!(!contended.is_marked(5, now));
        }
        // After as long again without one it begins anew.
        now += second(961);
        contended.mark(5, now);
        assert!(!contended.is_marked(5, now + second(15)));
    }

    #[test]
    fn what_goes_wrong_together_counts_once() {
        let (hold_off, now) = (HoldOff::default(), Duration::from_secs(100));
        for _ in 0..8 {
            hold_off.begin(0, now);
        }
        assert!(hold_off.is_on(0, now + Duration::from_secs(14)));
        assert!(!hold_off.is_on(0, now + Duration::from_secs(15)));
    }

    #[test]
    fn a_file_that_shares_the_place_of_a_recalled_one_is_not_taken_for_it() {
        let (contended, now) = (Contended::default(), Duration::from_secs(100));
        let (recalled, other) = (5, 5 | 1 << 40);
        contended.mark(recalled, now);
        assert!(contended.is_marked(recalled, now) && !contended.is_marked(other, now));
        // The later takes the place, with nothing of what the earlier went through.
        contended.mark(other, now);
        assert!(
            contended.is_marked(other, now + Duration::from_secs(14)) && !contended.is_marked(recalled, now)
        );
        assert!(!contended.is_marked(other, now + Duration::from_secs(15)));
    }

    #[test]
    fn a_mark_is_packed_and_unpacked_as_it_is() {
        let mark = Mark { until: u32::MAX - 1, level: HOLD_OFF_LEVELS, tag: Mark::tag(u64::MAX) };
        assert_eq!(Mark::unpack(mark.pack()), mark);
    }
}
