//! Looking for the next request for a moment before the thread goes to sleep.
//!
//! Whoever asks for one thing after the other waits, with each, for this thread to wake up and to find its way back into caches that
//! others used meanwhile: for longer than most answers take. So where requests come one by one, each soon behind the reply to the
//! last, the core asks again and again whether there is another, for about as long as it takes to fall asleep and to wake up: that
//! costs no more than sleeping would. Between two looks all else that the core has to do is done, and who has a core's attention
//! to share does not get it.
//!
//! The same for what the server itself asks of a client: somebody waits for the answer to a recall, and for what the client gives
//! back behind it. These do not count as another's requests: whoever is waiting has brought them about.

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

/// What a call of the server's brings about: its answer, and the request by which the client gives back what was recalled.
const PROMPTED: u32 = 2;

thread_local! {
    /// Reads of this core's connections that brought something, unless a call of the server's had prompted it.
    static ARRIVALS: Cell<u64> = const { Cell::new(0) };
}

/// What is known of how soon a connection's requests follow its replies, and its answers the server's calls.
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
    /// Of those: how soon behind the reply.
    next: Habit,
    /// The core's arrivals by this connection's last.
    arrivals: u64,
    /// Records that the last call of the server's may still bring about.
    prompted: u32,
    /// Since when one of them has been awaited, with nothing else to do for this connection.
    asked: Option<Instant>,
    /// How soon they come.
    answers: Habit,
}

/// How often in a row something came soon.
#[derive(Debug)]
struct Habit {
    soon: u32,
    /// How many of them it takes.
    wanted: u32,
    /// Those that were looked for and came, since the last that did not.
    found: u32,
}

impl Habit {
    fn new() -> Self {
        Self { soon: 0, wanted: IN_A_ROW, found: 0 }
    }

    /// Whether the next is looked for.
    fn is_formed(&self) -> bool {
        self.soon >= self.wanted
    }

    /// It came, and soon.
    fn confirm(&mut self) {
        if self.is_formed() {
            self.found = self.found.saturating_add(1);
            self.wanted = (self.wanted / 2).max(IN_A_ROW);
        }
        self.soon = self.soon.saturating_add(1);
    }

    /// It came late, or it is not known what to expect.
    fn forget(&mut self) {
        (self.soon, self.found) = (0, 0);
    }

    /// It was looked for and did not come: the thread sleeps, and however long it takes to be seen by it says nothing.
    fn looked_in_vain(&mut self) {
        if std::mem::take(&mut self.found) < FORGIVES_ONE {
            self.soon = 0;
            self.wanted = (self.wanted * 4).min(IN_A_ROW_AT_MOST);
        }
    }
}

impl Eager {
    /// Looks for `limit` at most.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            requests: 0,
            replied: None,
            alone: 0,
            next: Habit::new(),
            arrivals: 0,
            prompted: 0,
            asked: None,
            answers: Habit::new(),
        }
    }

    /// A request has come. Whether it came alone, as those before it did, and nobody else has asked this core meanwhile: then, as
    /// far as is known, the core serves only whoever waits for this one.
    pub(crate) fn begins(&mut self) -> bool {
        self.prompted = self.prompted.saturating_sub(1);
        self.requests = self.requests.saturating_add(1);
        self.requests == 1 && self.alone >= IN_A_ROW
    }

    /// The server calls this client, for somebody who waits.
    pub(crate) fn calls(&mut self) {
        self.prompted = if self.limit.is_zero() { 0 } else { PROMPTED };
    }

    /// All that has come is answered, and no part of a request is there.
    pub(crate) fn rests(&mut self, now: impl FnOnce() -> Instant) {
        let came_alone = std::mem::take(&mut self.requests) == 1;
        let is_prompted = self.prompted > 0;
        let now = (!self.limit.is_zero() && (came_alone || is_prompted)).then(now);
        self.replied = now.filter(|_| came_alone);
        self.asked = now.filter(|_| is_prompted);
        if !came_alone {
            self.alone = 0;
            self.next.soon = 0;
        }
    }

    /// Something has come.
    pub(crate) fn received(&mut self, now: impl FnOnce() -> Instant) {
        let came_alone = self.is_alone();
        self.alone = if came_alone { self.alone.saturating_add(1) } else { 0 };
        let (replied, asked) = (self.replied.take(), self.asked.take());
        let gap = replied.or(asked).map(|since| now().saturating_duration_since(since));
        let is_soon = gap.is_some_and(|gap| gap < self.limit * ASLEEP);
        if asked.is_some() {
            if is_soon {
                self.answers.confirm();
            } else {
                self.answers.forget();
                // The call has not brought this about, or does no longer.
                self.prompted = 0;
            }
        }
        if replied.is_some() {
            if came_alone && is_soon { self.next.confirm() } else { self.next.forget() }
        }
        self.arrivals = ARRIVALS.get() + u64::from(self.prompted == 0);
        ARRIVALS.set(self.arrivals);
    }

    /// Whether to look once more before sleeping.
    pub(crate) fn looks_on(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if let Some(asked) = self.asked.filter(|_| self.answers.is_formed()) {
            let looks_on = now().saturating_duration_since(asked) < self.limit;
            if !looks_on {
                (self.asked, self.prompted) = (None, 0);
                self.answers.looked_in_vain();
            }
            return looks_on;
        }
        // What waits for an answer, or for the rest of itself, does so asleep.
        let Some(replied) = self.replied.filter(|_| self.next.is_formed()) else { return false };
        if !self.is_alone() {
            self.next.forget();
            return false;
        }
        let looks_on = now().saturating_duration_since(replied) < self.limit;
        if !looks_on {
            self.replied = None;
            self.next.looked_in_vain();
        }
        looks_on
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
        assert_eq!(case.eager.next.wanted, IN_A_ROW, "nor was it tried");
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
        assert_eq!(case.eager.next.wanted, IN_A_ROW);
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

    impl Case {
        /// The server calls; the answer comes so long behind, and what is given back so long behind that. How often the core
        /// was awake for them.
        fn recall(&mut self, answer: Duration, back: Duration) -> [bool; 2] {
            self.eager.calls();
            self.eager.rests(|| self.now);
            let is_awake = self.waits(answer);
            self.replies(1);
            [is_awake, self.waits(back)]
        }
    }

    #[test]
    fn answers_that_come_soon_find_the_core_awake() {
        let mut case = Case::new();
        let (soon, late) = (LIMIT / 2, LIMIT * 100);
        let awake: Vec<_> = (0..4).map(|_| case.recall(soon, soon)).collect();
        assert_eq!(awake, [[false; 2], [false; 2], [true; 2], [true; 2]]);
        // Others' requests make no difference to somebody who waits for this.
        let mut other = Case::new();
        case.eager.calls();
        case.eager.rests(|| case.now);
        other.one_by_one(1, soon);
        assert!(case.eager.looks_on(|| case.now));
        let mut slow = Case::new();
        assert!((0..100).all(|_| slow.recall(late, soon) == [false; 2]), "not in a row");
        assert!((0..100).all(|_| slow.recall(soon, late) == [false; 2]), "nor so");
    }

    #[test]
    fn looking_for_answers_in_vain_becomes_rare() {
        let mut case = Case::new();
        let mut tries = 0;
        for _ in 0..20_000 {
            case.eager.calls();
            case.eager.rests(|| case.now);
            tries += u32::from(case.eager.looks_on(|| case.now));
            assert!(!case.waits(LIMIT + LIMIT / 2));
            // Both came in one piece: nothing else is awaited.
            case.replies(2);
            assert!(!case.eager.looks_on(|| case.now));
        }
        assert_eq!(tries, 5 + (20_000 - 4 - 16 - 64 - 256 - 1024 - 5) / 4097);
    }

    #[test]
    fn who_waits_for_a_recall_is_alone_all_the_same() {
        let (mut opener, mut holder, mut other) = (Case::new(), Case::new(), Case::new());
        let mut open = |holder_asks: bool, other_asks: bool| {
            let is_alone = opener.eager.begins();
            holder.recall(LIMIT / 2, LIMIT / 2);
            // Behind what it gives back it is a client like any.
            for (asks, case) in [(holder_asks, &mut holder), (other_asks, &mut other)] {
                case.one_by_one(usize::from(asks), LIMIT / 2);
            }
            opener.eager.rests(|| opener.now);
            (is_alone, opener.waits(LIMIT / 2))
        };
        for (holder_asks, other_asks) in [(true, false), (false, true)] {
            let opens: Vec<_> = (0..=IN_A_ROW + 1).map(|_| open(false, false)).collect();
            assert_eq!(opens[IN_A_ROW as usize..], [(true, true); 2]);
            assert_eq!(open(holder_asks, other_asks), (true, false), "somebody else has come");
            assert_eq!(open(false, false), (false, false), "it begins anew");
        }
    }

    #[test]
    fn what_comes_long_behind_a_call_is_a_request_like_any() {
        let (mut one, mut called) = (Case::new(), Case::new());
        // Whether the core looked for what comes then, or is not used to it yet.
        for formed in [false, true] {
            if formed {
                (0..IN_A_ROW).for_each(|_| _ = called.recall(LIMIT / 2, LIMIT / 2));
            }
            one.one_by_one(2 * IN_A_ROW as usize, LIMIT / 2);
            called.eager.calls();
            called.eager.rests(|| called.now);
            one.replies(1);
            assert!(one.eager.looks_on(|| one.now));
            assert_eq!(called.eager.looks_on(|| called.now), formed);
            called.waits(LIMIT * 100);
            assert!(!one.eager.looks_on(|| one.now), "somebody else has come");
        }
    }

    #[test]
    fn nobody_is_waited_for_where_that_is_turned_off() {
        let mut case = Case { eager: Eager::new(Duration::ZERO), now: Instant::now() };
        assert_eq!(case.one_by_one(100, Duration::ZERO), 0);
        assert!((0..100).all(|_| case.recall(Duration::ZERO, Duration::ZERO) == [false; 2]));
    }
}
