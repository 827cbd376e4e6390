//! Looking for the next request for a moment before the thread goes to sleep.
//!
//! Whoever asks for one thing after the other waits, with each, for this thread to wake up and to find its way back into caches that
//! others used meanwhile: for longer than most answers take. So where requests come one by one, each soon behind the reply to the
//! last, the core asks again and again whether there is another, for about as long as it takes to fall asleep and to wake up: that
//! costs no more than sleeping would. Between two looks all else that the core has to do is done, and who has a core's attention
//! to share does not get it.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// So many requests in a row have to come alone and soon before the next is looked for.
const IN_A_ROW: u32 = 4;

/// Where looking was in vain again and again, so many.
const IN_A_ROW_AT_MOST: u32 = 4096;

/// Requests in a row that were looked for and came, for which one look in vain is forgiven: somewhere there is always something that
/// takes longer once in a while.
const FORGIVES_ONE: u32 = 32;

/// Of whom is asleep, what comes within so many times the limit counts as soon: it takes that long to be seen.
const ASLEEP: u32 = 2;

thread_local! {
    /// Reads of this core's connections that brought something.
    static ARRIVALS: Cell<u64> = const { Cell::new(0) };
}

/// What is known of how soon a connection's requests follow its replies.
#[derive(Debug)]
pub(crate) struct Eager {
    /// How long to look; zero for never.
    limit: Duration,
    /// Requests since all was answered.
    requests: u32,
    /// When the last reply left, if it was one to a request that came alone; until something comes, or was looked for in vain.
    replied: Option<Instant>,
    /// Requests in a row that came alone.
    alone: u32,
    /// Those of them that came soon, too.
    soon: u32,
    /// How many of them it takes.
    wanted: u32,
    /// Requests that were looked for and came, since the last that did not.
    found: u32,
    /// The core's arrivals by this connection's last.
    arrivals: u64,
}

impl Eager {
    /// Looks for `limit` at most.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, requests: 0, replied: None, alone: 0, soon: 0, wanted: IN_A_ROW, found: 0, arrivals: 0 }
    }

    /// A request has come. Whether it came alone, as those before it did, and nobody else has asked this core meanwhile: then, as
    /// far as is known, the core serves only whoever waits for this one.
    pub(crate) fn begins(&mut self) -> bool {
        self.requests = self.requests.saturating_add(1);
        self.requests == 1 && self.alone >= IN_A_ROW
    }

    /// All that has come is answered, and no part of a request is there.
    pub(crate) fn rests(&mut self, now: impl FnOnce() -> Instant) {
        let came_alone = std::mem::take(&mut self.requests) == 1;
        self.replied = (came_alone && !self.limit.is_zero()).then(now);
        if !came_alone {
            (self.alone, self.soon) = (0, 0);
        }
    }

    /// Something has come.
    pub(crate) fn received(&mut self, now: impl FnOnce() -> Instant) {
        let came_alone = self.is_alone();
        self.arrivals = ARRIVALS.get() + 1;
        ARRIVALS.set(self.arrivals);
        self.alone = if came_alone { self.alone.saturating_add(1) } else { 0 };
        let Some(replied) = self.replied.take() else { return };
        let (was_looking, gap) = (self.soon >= self.wanted, now().saturating_duration_since(replied));
        if !came_alone || gap >= self.limit * ASLEEP {
            (self.soon, self.found) = (0, 0);
            return;
        }
        self.soon = self.soon.saturating_add(1);
        if was_looking {
            self.found = self.found.saturating_add(1);
            self.wanted = (self.wanted / 2).max(IN_A_ROW);
        }
    }

    /// Whether to look once more before sleeping.
    pub(crate) fn looks_on(&mut self, now: impl FnOnce() -> Instant) -> bool {
        // What waits for an answer, or for the rest of itself, does so asleep.
        let Some(replied) = self.replied.filter(|_| self.soon >= self.wanted) else { return false };
        if !self.is_alone() {
            (self.soon, self.found) = (0, 0);
            return false;
        }
        let looks_on = now().saturating_duration_since(replied) < self.limit;
        if !looks_on {
            self.looked_in_vain();
        }
        looks_on
    }

    /// Nothing came: the thread sleeps, and however long it takes to be seen by it says nothing.
    fn looked_in_vain(&mut self) {
        self.replied = None;
        if std::mem::take(&mut self.found) < FORGIVES_ONE {
            self.soon = 0;
            self.wanted = (self.wanted * 4).min(IN_A_ROW_AT_MOST);
        }
    }

    /// Whether nothing came for other connections of this core since the last request of this one.
    fn is_alone(&self) -> bool {
        self.arrivals == ARRIVALS.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(30);

    /// A connection and its clock.
    struct Case {
        eager: Eager,
        now: Instant,
    }

    impl Case {
        fn new() -> Self {
            Self { eager: Eager::new(LIMIT), now: Instant::now() }
        }

        /// Requests that came together are answered.
        fn replies(&mut self, requests: u32) {
            (0..requests).for_each(|_| _ = self.eager.begins());
            self.eager.rests(|| self.now);
        }

        /// Looks on until something comes after `gap`; tells whether it still looked then.
        fn waits(&mut self, gap: Duration) -> bool {
            let replied = self.now;
            while self.eager.looks_on(|| self.now) && self.now < replied + gap {
                self.now += Duration::from_micros(1);
            }
            let is_awake = self.eager.looks_on(|| self.now);
            self.now = replied + gap;
            self.eager.received(|| self.now);
            is_awake
        }

        /// Requests one at a time, each so long behind the last reply; how many found the core awake.
        fn one_by_one(&mut self, requests: usize, gap: Duration) -> usize {
            let one = || {
                self.replies(1);
                self.waits(gap)
            };
            std::iter::repeat_with(one).take(requests).filter(|is_awake| *is_awake).count()
        }
    }

    #[test]
    fn who_asks_soon_and_one_by_one_finds_the_core_awake() {
        let mut case = Case::new();
        assert_eq!(case.one_by_one(100, LIMIT / 2), 100 - IN_A_ROW as usize);
    }

    #[test]
    fn who_takes_long_is_not_waited_for() {
        let mut case = Case::new();
        assert_eq!(case.one_by_one(100, LIMIT * ASLEEP), 0);
        assert_eq!(case.eager.wanted, IN_A_ROW, "nor was it tried");
    }

    #[test]
    fn looking_in_vain_becomes_rare() {
        let mut case = Case::new();
        let mut tries = 0;
        for _ in 0..20_000 {
            case.replies(1);
            tries += u32::from(case.eager.looks_on(|| case.now));
            assert!(!case.waits(LIMIT + LIMIT / 2));
        }
        // After 4, 16, 64, 256 and 1024 requests more, and each 4096 from then on.
        assert_eq!(tries, 5 + (20_000 - 4 - 16 - 64 - 256 - 1024 - 5) / 4097);
        assert!(case.one_by_one(5000, LIMIT / 2) > 0, "one day it pays");
        assert_eq!(case.one_by_one(100, LIMIT / 2), 100, "and then it goes on");
        assert_eq!(case.eager.wanted, IN_A_ROW);
    }

    #[test]
    fn one_look_in_vain_of_many_is_forgiven() {
        let mut case = Case::new();
        case.one_by_one(IN_A_ROW as usize, LIMIT / 2);
        for _ in 0..3 {
            assert_eq!(case.one_by_one(FORGIVES_ONE as usize, LIMIT / 2), FORGIVES_ONE as usize);
            assert_eq!(case.one_by_one(1, LIMIT * 100), 0);
        }
        assert_eq!(case.one_by_one(FORGIVES_ONE as usize - 1, LIMIT / 2), FORGIVES_ONE as usize - 1);
        assert_eq!(case.one_by_one(1, LIMIT * 100), 0);
        assert_eq!(case.one_by_one(4 * IN_A_ROW as usize, LIMIT / 2), 0, "one too many");
        assert_eq!(case.one_by_one(1, LIMIT / 2), 1);
    }

    #[test]
    fn bursts_are_not_waited_for() {
        let mut case = Case::new();
        case.one_by_one(10, LIMIT / 2);
        case.replies(2);
        assert!(!case.waits(LIMIT / 2));
        assert_eq!(case.one_by_one(IN_A_ROW as usize, LIMIT / 2), 0, "they begin anew");
    }

    #[test]
    fn nothing_is_looked_for_while_an_answer_or_a_part_of_a_request_is_awaited() {
        let mut case = Case::new();
        case.one_by_one(10, LIMIT / 2);
        case.eager.begins();
        assert!(!case.eager.looks_on(|| case.now), "it is not answered");
        case.eager.received(|| case.now + LIMIT * ASLEEP);
        assert!(!case.eager.looks_on(|| case.now), "a part of the next has come");
        case.eager.rests(|| case.now);
        assert!(case.waits(LIMIT / 2), "it came alone, however long it took");
    }

    #[test]
    fn who_shares_a_core_with_another_is_not_waited_for() {
        let (mut one, mut other) = (Case::new(), Case::new());
        one.one_by_one(10, LIMIT / 2);
        one.replies(1);
        assert!(one.eager.looks_on(|| one.now));
        other.replies(1);
        other.waits(LIMIT / 2);
        assert!(!one.eager.looks_on(|| one.now), "the other one has come");
        for _ in 0..100 {
            for case in [&mut one, &mut other] {
                assert_eq!(case.one_by_one(1, LIMIT / 2), 0);
            }
        }
        assert!(one.one_by_one(100, LIMIT / 2) > 0, "the other one has gone");
    }

    #[test]
    fn who_asks_one_by_one_has_the_core_until_others_ask() {
        let (mut one, mut other) = (Case::new(), Case::new());
        let has_core = |case: &mut Case| {
            let is_alone = case.eager.begins();
            case.eager.rests(|| case.now);
            case.waits(LIMIT * 100);
            is_alone
        };
        let begun: Vec<_> = (0..=IN_A_ROW).map(|_| has_core(&mut one)).collect();
        assert_eq!(begun, [false, false, false, false, true]);
        assert!(one.eager.begins());
        assert!(!one.eager.begins(), "two at a time");
        one.eager.rests(|| one.now);
        assert!(!has_core(&mut one), "it begins anew");
        for _ in 0..10 {
            assert!(!has_core(&mut one) & !has_core(&mut other), "they share it");
        }
        let begun: Vec<_> = (0..=IN_A_ROW + 1).map(|_| has_core(&mut other)).collect();
        assert_eq!(begun, [false, false, false, false, true, true], "the other has gone");
    }

    #[test]
    fn nobody_is_waited_for_where_that_is_turned_off() {
        let mut case = Case { eager: Eager::new(Duration::ZERO), now: Instant::now() };
        assert_eq!(case.one_by_one(100, Duration::ZERO), 0);
    }
}
