//! What is told of directories that may be given the ctime that they have already: tmpfs', when a name in them is linked, removed or
//! renamed.
//!
//! Such a change leaves nothing to be seen of it but that it was made, and that only this server knows. So it counts a step, and
//! what is told of the ctime C, as the time of change and as the change attribute, is C and as many nanoseconds as there were
//! steps at it. The steps are remembered for as long as there is room. Where they are not, which after a restart is everywhere,
//! C and more than there can have been is told: whoever was told anything of C before asks again, in vain, but never trusts
//! what was changed since. A later ctime is above all that, but for one that the next tick gives within 100 ns; so whoever makes
//! a change compares what is told of it with what was told before, and has the kernel move ctime on where it does not show.
//!
//! Local processes' changes count no steps. So the change attribute moves on once more when C is settled: whatever happens from then
//! on has a later ctime.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use quick_cache::DefaultHashBuilder;
use vfs::{Attributes, Timestamp};

use super::{Key, MAX_RECENT, Moment, RECENT_SHARDS, Told, nanoseconds, timestamp};

/// Steps that can be told of one ctime, in nanoseconds; it takes longer than that to make as many changes.
const MAX_STEPS: u64 = 49;
/// What is told of a ctime of which nothing is remembered: more than steps can be.
const FORGOTTEN: u64 = MAX_STEPS + 1;
/// The change attribute of a settled ctime.
const SETTLED: u64 = 2 * FORGOTTEN;

/// Steps of directories.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    shards: [Mutex<Shard>; RECENT_SHARDS],
}

/// Of all volumes: two of them may have a directory in common.
static OF_ALL: LazyLock<Arc<Shared>> = LazyLock::new(Arc::default);

#[derive(Debug, Default)]
struct Shard {
    steps: HashMap<Key, Steps, DefaultHashBuilder>,
    /// The latest ctime of which something was forgotten.
    forgotten_ns: u64,
}

#[derive(Debug)]
struct Steps {
    changed_ns: u64,
    taken: u64,
}

impl Shared {
    /// The one of this process.
    pub(crate) fn of_all() -> Arc<Self> {
        Arc::clone(&OF_ALL)
    }

    /// What is told of a directory with this ctime, seen after `moment`; `own` where a change through this server came just before.
    /// That one is told apart from all before, unless there is no room for another step: then what was told before is told again.
    pub(crate) fn told(&self, moment: Moment, key: Key, changed: Timestamp, own: bool) -> Told {
        let changed_ns = nanoseconds(changed);
        let is_fresh = changed_ns >= moment.coarse_ns;
        let steps = self.shards[key.1 as usize % RECENT_SHARDS].lock().steps(moment, key, changed_ns, own);
        let told_ns = changed_ns.saturating_add(steps.unwrap_or(if is_fresh { 0 } else { FORGOTTEN }));
        let number = if is_fresh { told_ns } else { changed_ns.saturating_add(SETTLED) };
        Told { changed: timestamp(told_ns), number }
    }

    /// Whether the change attribute among these is that of a settled ctime.
    pub(crate) fn is_final(attributes: &Attributes) -> bool {
        attributes.change >= nanoseconds(attributes.changed).saturating_add(SETTLED - FORGOTTEN)
    }
}

impl Shard {
    /// Steps at this ctime; `None` where none is known.
    fn steps(&mut self, moment: Moment, key: Key, changed_ns: u64, own: bool) -> Option<u64> {
        match self.steps.get_mut(&key) {
            Some(steps) if steps.changed_ns == changed_ns => {
                steps.taken = (steps.taken + u64::from(own)).min(MAX_STEPS);
                return Some(steps.taken);
            }
            // Who was slow to ask learns that it has gone by.
            Some(steps) if steps.changed_ns > changed_ns => return Some(FORGOTTEN),
            Some(steps) if own => {
                *steps = Steps { changed_ns, taken: 1 };
                return Some(1);
            }
            _ => {}
        }
        if own && self.has_room(moment) {
            self.steps.insert(key, Steps { changed_ns, taken: 1 });
            return Some(1);
        }
        (changed_ns <= self.forgotten_ns).then_some(FORGOTTEN)
    }

    /// Makes room for another directory, if need be and as far as none is forgotten that can take another step.
    fn has_room(&mut self, moment: Moment) -> bool {
        if self.steps.len() < MAX_RECENT {
            return true;
        }
        let forgotten_ns = &mut self.forgotten_ns;
        self.steps.retain(|_, steps| {
            let is_fresh = steps.changed_ns >= moment.coarse_ns;
            if !is_fresh {
                *forgotten_ns = (*forgotten_ns).max(steps.changed_ns);
            }
            is_fresh
        });
        self.steps.len() < MAX_RECENT
    }
}

#[cfg(test)]
mod tests {
    use vfs::FileKind;

    use super::super::ChangeClock;
    use super::super::tests::attributes;
    use super::*;

    const KEY: Key = (1, 2);
    /// A ctime, and moments in its tick and behind it.
    const CTIME_NS: u64 = 5_000_000_000;
    const FRESH: Moment = Moment { coarse_ns: CTIME_NS };
    const SETTLED: Moment = Moment { coarse_ns: CTIME_NS + 1 };

    impl Shared {
        fn look(&self, moment: Moment, ctime_ns: u64) -> Told {
            self.told(moment, KEY, timestamp(ctime_ns), false)
        }

        fn change(&self, ctime_ns: u64) -> Told {
            self.told(FRESH, KEY, timestamp(ctime_ns), true)
        }
    }

    #[test]
    fn changes_of_our_own_that_ctime_does_not_show_are_told_apart() {
        let shared = Shared::default();
        let mut last = shared.look(FRESH, CTIME_NS);
        assert_eq!(last, Told { changed: timestamp(CTIME_NS), number: CTIME_NS });
        for _ in 0..MAX_STEPS {
            let told = shared.change(CTIME_NS);
            assert!(told.number > last.number && told.changed > last.changed);
            assert_eq!(shared.look(FRESH, CTIME_NS), told, "looking changes nothing");
            last = told;
        }
        assert_eq!(shared.change(CTIME_NS), last, "no more than so many: it has to be moved on");
        let moved_on = shared.change(CTIME_NS + FORGOTTEN + 1);
        assert!(moved_on.number > last.number && moved_on.changed > last.changed);
        let other = shared.told(FRESH, (1, 3), timestamp(CTIME_NS), false);
        assert_eq!(other.number, CTIME_NS, "each directory takes its own steps");
    }

    #[test]
    fn the_time_of_change_stands_when_it_has_settled_and_the_change_attribute_moves_on_once() {
        let shared = Shared::default();
        let (of_none, of_one) = (shared.look(FRESH, CTIME_NS), shared.change(CTIME_NS));
        let settled = shared.look(SETTLED, CTIME_NS);
        assert_eq!(settled.changed, of_one.changed, "clients of version 3 need not look again");
        assert!(settled.number > of_one.number, "a local change in that tick may not have shown");
        assert_eq!(shared.look(SETTLED, CTIME_NS), settled);
        // Where a local process was the last, its change may not be the only one of that ctime.
        let by_others = Shared::default().look(SETTLED, CTIME_NS);
        assert!(by_others.changed > of_none.changed && by_others.number > of_none.number);
    }

    #[test]
    fn whatever_is_forgotten_is_told_as_something_else() {
        let (before, restarted) = (Shared::default(), Shared::default());
        let mut told = vec![before.look(FRESH, CTIME_NS)];
        told.extend((0..MAX_STEPS).map(|_| before.change(CTIME_NS)));
        let after = restarted.look(SETTLED, CTIME_NS);
        assert!(told.iter().all(|told| told.changed < after.changed && told.number < after.number));
    }

    #[test]
    fn who_was_slow_to_ask_is_not_told_what_has_gone_by() {
        let shared = Shared::default();
        let told: Vec<_> = (0..MAX_STEPS).map(|_| shared.change(CTIME_NS)).collect();
        shared.change(CTIME_NS + 1_000);
        let late = shared.look(FRESH, CTIME_NS);
        assert!(told.iter().all(|told| told.changed < late.changed && told.number < late.number));
        assert!(late.number < shared.look(FRESH, CTIME_NS + 1_000).number);
    }

    #[test]
    fn the_memory_of_steps_is_bounded_and_forgets_nothing_of_this_tick() {
        let shared = Shared::default();
        let key = |number: usize| (1, (number * RECENT_SHARDS) as u64);
        let change = |number, moment, ctime_ns| shared.told(moment, key(number), timestamp(ctime_ns), true);
        for number in 0..MAX_RECENT {
            assert_eq!(change(number, FRESH, CTIME_NS).number, CTIME_NS + 1);
        }
        // Nobody has room for another step of this tick: it has to be moved on.
        assert_eq!(change(MAX_RECENT, FRESH, CTIME_NS).number, CTIME_NS);
        assert_eq!(change(0, FRESH, CTIME_NS).number, CTIME_NS + 2);
        // In the next tick there is, and who comes late from the last one is told nothing that was told before.
        let next = Moment { coarse_ns: CTIME_NS + 4_000_000 };
        assert_eq!(change(MAX_RECENT, next, next.coarse_ns).number, next.coarse_ns + 1);
        let late = shared.told(FRESH, key(0), timestamp(CTIME_NS), false);
        assert_eq!(late.changed, timestamp(CTIME_NS + FORGOTTEN));
        assert!(shared.shards.iter().all(|shard| shard.lock().steps.len() <= MAX_RECENT));
    }

    #[test]
    fn volumes_count_the_steps_of_a_directory_that_they_have_in_common() {
        let (one, other) = (ChangeClock::multigrain(true), ChangeClock::multigrain(true));
        // Of no device that there is: other tests have volumes as well.
        let directory = ((u64::MAX, 2), true);
        let told = |clock: &ChangeClock, own| clock.told(FRESH, directory, timestamp(CTIME_NS), own);
        let (first, second) = (told(&one, true), told(&other, true));
        assert!(second.number > first.number);
        assert_eq!(told(&one, false), second);
    }

    #[test]
    fn files_have_their_own_ctime() {
        let clock = ChangeClock::Multigrain { shared: Some(Arc::default()) };
        let told = |moment, is_directory| clock.told(moment, (KEY, is_directory), timestamp(CTIME_NS), true);
        assert_eq!(told(FRESH, false), told(SETTLED, false));
        assert_ne!(told(FRESH, true), told(SETTLED, true));
        let is_final = |told: Told| {
            let attributes = attributes(FileKind::Directory, told.changed);
            clock.is_final(&Attributes { change: told.number, ..attributes })
        };
        for _ in 0..=MAX_STEPS {
            assert!(!is_final(told(FRESH, true)));
        }
        let forgotten = Shared::default().look(SETTLED, CTIME_NS);
        assert!(is_final(told(SETTLED, true)) && is_final(forgotten));
    }
}
