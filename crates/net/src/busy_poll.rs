//! Polls for the next request for a short time before the thread sleeps.
//!
//! A client that sends one request at a time waits, with each, for this thread to wake up, which takes longer than most answers. So
//! while single requests arrive one by one, each promptly after the reply to the last, the core polls for the next for about as long
//! as sleeping and waking up take. Between two polls all other tasks and sockets of the core are served. A core that serves
//! several clients does not poll.
//!
//! The same holds for callbacks: another client waits for the reply to a recall, and for the DELEGRETURN after it. These records do
//! not count as requests of another client, since the waiting client has caused them.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Prompt single requests in a row before the next is polled for.
const PROMPT_MIN: u32 = 4;

/// The same after repeated misses.
const PROMPT_MAX: u32 = 4096;

/// Hits in a row that cancel one miss: a request is late occasionally.
const HITS_PER_MISS: u32 = 32;

/// While asleep, arrivals within this many times the limit count as prompt: waking up takes as long.
const WAKEUP_FACTOR: u32 = 2;

/// Records that a callback causes: its reply, and the request that returns the delegation.
const RECORDS_PER_CALLBACK: u32 = 2;

thread_local! {
    /// Reads of this core's connections that brought data, except those that a callback caused.
    static ARRIVALS: Cell<u64> = const { Cell::new(0) };
}

/// Decides when a connection's core polls before it sleeps.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    /// Duration of polling; zero for never.
    limit: Duration,
    /// Requests since the connection was last idle.
    requests: u32,
    /// When the reply to a single request left; until data arrive, or polling for them has failed.
    replied: Option<Instant>,
    /// Single requests in a row, without arrivals for other connections between.
    single_requests: u32,
    /// Promptness of the next request after a reply.
    next_request: ArrivalPredictor,
    /// [`ARRIVALS`] at this connection's last.
    arrivals: u64,
    /// Records that the last callback may still cause.
    caused_records: u32,
    /// When the wait for one of them began while the connection was idle.
    called: Option<Instant>,
    /// Promptness of these records.
    next_answer: ArrivalPredictor,
}

/// Predicts from past arrivals whether the next is prompt.
#[derive(Debug)]
struct ArrivalPredictor {
    /// Prompt arrivals in a row.
    prompt: u32,
    /// Those that are required before polling; grows with misses.
    required: u32,
    /// Arrivals that were polled for, since the last miss.
    hits: u32,
}

impl ArrivalPredictor {
    fn new() -> Self {
        Self { prompt: 0, required: PROMPT_MIN, hits: 0 }
    }

    /// Returns whether the next arrival is worth polling for.
    fn expects_prompt(&self) -> bool {
        self.prompt >= self.required
    }

    /// Notes a prompt arrival.
    fn was_prompt(&mut self) {
        if self.expects_prompt() {
            self.hits = self.hits.saturating_add(1);
            self.required = (self.required / 2).max(PROMPT_MIN);
        }
        self.prompt = self.prompt.saturating_add(1);
    }

    /// Starts over: an arrival was late, or the next one is unpredictable.
    fn reset(&mut self) {
        (self.prompt, self.hits) = (0, 0);
    }

    /// Notes that polling has missed: the thread sleeps, so that the arrival's own delay is not measured.
    fn missed(&mut self) {
        if std::mem::take(&mut self.hits) < HITS_PER_MISS {
            self.prompt = 0;
            self.required = (self.required * 4).min(PROMPT_MAX);
        }
    }
}

impl BusyPoll {
    /// Polls for at most `limit`.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            requests: 0,
            replied: None,
            single_requests: 0,
            next_request: ArrivalPredictor::new(),
            arrivals: 0,
            caused_records: 0,
            called: None,
            next_answer: ArrivalPredictor::new(),
        }
    }

    /// Notes a request. Returns whether the core serves only this client, as far as is known: requests have come one by one, and none
    /// for other connections of the core meanwhile.
    pub(crate) fn request_received(&mut self) -> bool {
        self.caused_records = self.caused_records.saturating_sub(1);
        self.requests = self.requests.saturating_add(1);
        self.requests == 1 && self.single_requests >= PROMPT_MIN
    }

    /// Notes a callback to this client, for which another client waits.
    pub(crate) fn callback_sent(&mut self) {
        self.caused_records = if self.limit.is_zero() { 0 } else { RECORDS_PER_CALLBACK };
    }

    /// Notes that all requests are answered, and no part of another has arrived.
    pub(crate) fn became_idle(&mut self, now: impl FnOnce() -> Instant) {
        let was_single = std::mem::take(&mut self.requests) == 1;
        let is_called = self.caused_records > 0;
        let now = (!self.limit.is_zero() && (was_single || is_called)).then(now);
        self.replied = now.filter(|_| was_single);
        self.called = now.filter(|_| is_called);
        if !was_single {
            self.single_requests = 0;
            self.next_request.prompt = 0;
        }
    }

    /// Notes that data have arrived.
    pub(crate) fn data_received(&mut self, now: impl FnOnce() -> Instant) {
        let is_alone = self.is_alone();
        self.single_requests = if is_alone { self.single_requests.saturating_add(1) } else { 0 };
        let (replied, called) = (self.replied.take(), self.called.take());
        let gap = replied.or(called).map(|since| now().saturating_duration_since(since));
        let is_prompt = gap.is_some_and(|gap| gap < self.limit * WAKEUP_FACTOR);
        if called.is_some() {
            if is_prompt {
                self.next_answer.was_prompt();
            } else {
                self.next_answer.reset();
                // The callback did not cause this record.
                self.caused_records = 0;
            }
        }
        if replied.is_some() {
            if is_alone && is_prompt { self.next_request.was_prompt() } else { self.next_request.reset() }
        }
        self.arrivals = ARRIVALS.get() + u64::from(self.caused_records == 0);
        ARRIVALS.set(self.arrivals);
    }

    /// Returns whether to poll once more before sleeping.
    pub(crate) fn should_poll(&mut self, now: impl FnOnce() -> Instant) -> bool {
        if let Some(called) = self.called.filter(|_| self.next_answer.expects_prompt()) {
            let should_poll = now().saturating_duration_since(called) < self.limit;
            if !should_poll {
                (self.called, self.caused_records) = (None, 0);
                self.next_answer.missed();
            }
            return should_poll;
        }
        // A connection that waits for an answer, or for the rest of a record, sleeps.
        let Some(replied) = self.replied.filter(|_| self.next_request.expects_prompt()) else { return false };
        if !self.is_alone() {
            self.next_request.reset();
            return false;
        }
        let should_poll = now().saturating_duration_since(replied) < self.limit;
        if !should_poll {
            self.replied = None;
            self.next_request.missed();
        }
        should_poll
    }

    /// Returns whether no data arrived for other connections of this core since this one's last.
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
        busy_poll: BusyPoll,
        now: Instant,
    }

    impl Case {
        fn new() -> Self {
            Self { busy_poll: BusyPoll::new(LIMIT), now: Instant::now() }
        }

        /// Requests that came together are answered.
        fn reply_to(&mut self, requests: u32) {
            (0..requests).for_each(|_| _ = self.busy_poll.request_received());
            self.busy_poll.became_idle(|| self.now);
        }

        /// Polls until data arrive after `gap`; returns whether it still polled then.
        fn wait(&mut self, gap: Duration) -> bool {
            let replied = self.now;
            while self.busy_poll.should_poll(|| self.now) && self.now < replied + gap {
                self.now += Duration::from_micros(1);
            }
            let is_awake = self.busy_poll.should_poll(|| self.now);
            self.now = replied + gap;
            self.busy_poll.data_received(|| self.now);
            is_awake
        }

        /// Sends requests one at a time, each this long after the last reply; returns how many found the core awake.
        fn one_by_one(&mut self, requests: usize, gap: Duration) -> usize {
            let one = || {
                self.reply_to(1);
                self.wait(gap)
            };
            std::iter::repeat_with(one).take(requests).filter(|is_awake| *is_awake).count()
        }
    }

    #[test]
    fn prompt_single_requests_find_the_core_awake() {
        let mut case = Case::new();
        assert_eq!(case.one_by_one(100, LIMIT / 2), 100 - PROMPT_MIN as usize);
    }

    #[test]
    fn late_requests_are_not_polled_for() {
        let mut case = Case::new();
        assert_eq!(case.one_by_one(100, LIMIT * WAKEUP_FACTOR), 0);
        assert_eq!(case.busy_poll.next_request.required, PROMPT_MIN, "it never polled");
    }

    #[test]
    fn misses_become_rare() {
        let mut case = Case::new();
        let mut tries = 0;
        for _ in 0..20_000 {
            case.reply_to(1);
            tries += u32::from(case.busy_poll.should_poll(|| case.now));
            assert!(!case.wait(LIMIT + LIMIT / 2));
        }
        // After 4, 16, 64, 256 and 1024 requests more, and each 4096 from then on.
        assert_eq!(tries, 5 + (20_000 - 4 - 16 - 64 - 256 - 1024 - 5) / 4097);
        assert!(case.one_by_one(5000, LIMIT / 2) > 0, "it tries again occasionally");
        assert_eq!(case.one_by_one(100, LIMIT / 2), 100, "and stays awake then");
        assert_eq!(case.busy_poll.next_request.required, PROMPT_MIN);
    }

    #[test]
    fn one_miss_after_many_hits_changes_nothing() {
        let mut case = Case::new();
        case.one_by_one(PROMPT_MIN as usize, LIMIT / 2);
        for _ in 0..3 {
            assert_eq!(case.one_by_one(HITS_PER_MISS as usize, LIMIT / 2), HITS_PER_MISS as usize);
            assert_eq!(case.one_by_one(1, LIMIT * 100), 0);
        }
        assert_eq!(case.one_by_one(HITS_PER_MISS as usize - 1, LIMIT / 2), HITS_PER_MISS as usize - 1);
        assert_eq!(case.one_by_one(1, LIMIT * 100), 0);
        assert_eq!(case.one_by_one(4 * PROMPT_MIN as usize, LIMIT / 2), 0, "one too many");
        assert_eq!(case.one_by_one(1, LIMIT / 2), 1);
    }

    #[test]
    fn bursts_are_not_polled_for() {
        let mut case = Case::new();
        case.one_by_one(10, LIMIT / 2);
        case.reply_to(2);
        assert!(!case.wait(LIMIT / 2));
        assert_eq!(case.one_by_one(PROMPT_MIN as usize, LIMIT / 2), 0, "they start over");
    }

    #[test]
    fn pending_answers_and_partial_requests_stop_polling() {
        let mut case = Case::new();
        case.one_by_one(10, LIMIT / 2);
        case.busy_poll.request_received();
        assert!(!case.busy_poll.should_poll(|| case.now), "it is not answered");
        case.busy_poll.data_received(|| case.now + LIMIT * WAKEUP_FACTOR);
        assert!(!case.busy_poll.should_poll(|| case.now), "a part of the next has arrived");
        case.busy_poll.became_idle(|| case.now);
        assert!(case.wait(LIMIT / 2), "it came alone, after any time");
    }

    #[test]
    fn a_shared_core_does_not_poll() {
        let (mut one, mut other) = (Case::new(), Case::new());
        one.one_by_one(10, LIMIT / 2);
        one.reply_to(1);
        assert!(one.busy_poll.should_poll(|| one.now));
        other.reply_to(1);
        other.wait(LIMIT / 2);
        assert!(!one.busy_poll.should_poll(|| one.now), "a request of the other connection has arrived");
        for _ in 0..100 {
            for case in [&mut one, &mut other] {
                assert_eq!(case.one_by_one(1, LIMIT / 2), 0);
            }
        }
        assert!(one.one_by_one(100, LIMIT / 2) > 0, "the other connection is idle");
    }

    #[test]
    fn a_client_has_the_core_until_others_send() {
        let (mut one, mut other) = (Case::new(), Case::new());
        let has_core = |case: &mut Case| {
            let is_alone = case.busy_poll.request_received();
            case.busy_poll.became_idle(|| case.now);
            case.wait(LIMIT * 100);
            is_alone
        };
        let begun: Vec<_> = (0..=PROMPT_MIN).map(|_| has_core(&mut one)).collect();
        assert_eq!(begun, [false, false, false, false, true]);
        assert!(one.busy_poll.request_received());
        assert!(!one.busy_poll.request_received(), "two at a time");
        one.busy_poll.became_idle(|| one.now);
        assert!(!has_core(&mut one), "it starts over");
        for _ in 0..10 {
            assert!(!has_core(&mut one) & !has_core(&mut other), "they share it");
        }
        let begun: Vec<_> = (0..=PROMPT_MIN + 1).map(|_| has_core(&mut other)).collect();
        assert_eq!(begun, [false, false, false, false, true, true], "the other connection is idle");
    }

    impl Case {
        /// Sends a callback; its reply arrives after `answer`, and the DELEGRETURN after `back`. Returns whether the core was awake for
        /// each.
        fn recall(&mut self, answer: Duration, back: Duration) -> [bool; 2] {
            self.busy_poll.callback_sent();
            self.busy_poll.became_idle(|| self.now);
            let is_awake = self.wait(answer);
            self.reply_to(1);
            [is_awake, self.wait(back)]
        }
    }

    #[test]
    fn prompt_callback_replies_find_the_core_awake() {
        let mut case = Case::new();
        let (soon, late) = (LIMIT / 2, LIMIT * 100);
        let awake: Vec<_> = (0..4).map(|_| case.recall(soon, soon)).collect();
        assert_eq!(awake, [[false; 2], [false; 2], [true; 2], [true; 2]]);
        // Requests of others do not matter to the client that waits for this.
        let mut other = Case::new();
        case.busy_poll.callback_sent();
        case.busy_poll.became_idle(|| case.now);
        other.one_by_one(1, soon);
        assert!(case.busy_poll.should_poll(|| case.now));
        let mut slow = Case::new();
        assert!((0..100).all(|_| slow.recall(late, soon) == [false; 2]), "not in a row");
        assert!((0..100).all(|_| slow.recall(soon, late) == [false; 2]), "nor so");
    }

    #[test]
    fn misses_of_callback_replies_become_rare() {
        let mut case = Case::new();
        let mut tries = 0;
        for _ in 0..20_000 {
            case.busy_poll.callback_sent();
            case.busy_poll.became_idle(|| case.now);
            tries += u32::from(case.busy_poll.should_poll(|| case.now));
            assert!(!case.wait(LIMIT + LIMIT / 2));
            // Both came in one piece: nothing else is awaited.
            case.reply_to(2);
            assert!(!case.busy_poll.should_poll(|| case.now));
        }
        assert_eq!(tries, 5 + (20_000 - 4 - 16 - 64 - 256 - 1024 - 5) / 4097);
    }

    #[test]
    fn a_client_that_waits_for_a_recall_counts_as_alone() {
        let (mut opener, mut holder, mut other) = (Case::new(), Case::new(), Case::new());
        let mut open = |holder_asks: bool, other_asks: bool| {
            let is_alone = opener.busy_poll.request_received();
            holder.recall(LIMIT / 2, LIMIT / 2);
            // After the DELEGRETURN it is an ordinary client.
            for (asks, case) in [(holder_asks, &mut holder), (other_asks, &mut other)] {
                case.one_by_one(usize::from(asks), LIMIT / 2);
            }
            opener.busy_poll.became_idle(|| opener.now);
            (is_alone, opener.wait(LIMIT / 2))
        };
        for (holder_asks, other_asks) in [(true, false), (false, true)] {
            let opens: Vec<_> = (0..=PROMPT_MIN + 1).map(|_| open(false, false)).collect();
            assert_eq!(opens[PROMPT_MIN as usize..], [(true, true); 2]);
            assert_eq!(open(holder_asks, other_asks), (true, false), "another client has sent");
            assert_eq!(open(false, false), (false, false), "it starts over");
        }
    }

    #[test]
    fn a_late_record_after_a_callback_is_an_ordinary_request() {
        let (mut one, mut called) = (Case::new(), Case::new());
        // Whether the core polled for the DELEGRETURN, or does not predict it yet.
        for formed in [false, true] {
            if formed {
                (0..PROMPT_MIN).for_each(|_| _ = called.recall(LIMIT / 2, LIMIT / 2));
            }
            one.one_by_one(2 * PROMPT_MIN as usize, LIMIT / 2);
            called.busy_poll.callback_sent();
            called.busy_poll.became_idle(|| called.now);
            one.reply_to(1);
            assert!(one.busy_poll.should_poll(|| one.now));
            assert_eq!(called.busy_poll.should_poll(|| called.now), formed);
            called.wait(LIMIT * 100);
            assert!(!one.busy_poll.should_poll(|| one.now), "another client has sent");
        }
    }

    #[test]
    fn a_limit_of_zero_never_polls() {
        let mut case = Case { busy_poll: BusyPoll::new(Duration::ZERO), now: Instant::now() };
        assert_eq!(case.one_by_one(100, Duration::ZERO), 0);
        assert!((0..100).all(|_| case.recall(Duration::ZERO, Duration::ZERO) == [false; 2]));
    }
}
