//! The measured time of a run, which all its threads share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::barrier::Barrier;
use crate::result::Compared;

/// One in so many parts of the time may be spent with comparing whole reads, by all threads of the process together: then they do not
/// change what is measured.
const COMPARING_PART: u128 = 100;

/// The condition that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// After a time.
    Time,
    /// At the end of the work.
    Work,
}

/// The measured time, and whether the run continues.
pub struct Window {
    ends: Ends,
    warm_up: Duration,
    duration: Duration,
    started: OnceLock<Instant>,
    /// All threads and clients are ready.
    arrived: Barrier,
    /// All clients have read their counters.
    released: Barrier,
    failure: Mutex<Option<String>>,
    has_failed: AtomicBool,
    interrupted: Arc<AtomicBool>,
    comparing: Comparing,
    /// The time, if it is not the system's.
    clock: Option<VirtualClock>,
}

/// Comparisons of data that were read, by all threads.
#[derive(Default)]
struct Comparing {
    began: OnceLock<Instant>,
    spent_ns: AtomicU64,
    reads: AtomicU64,
    whole: AtomicU64,
}

/// Returns the time of a simulation.
pub type VirtualClock = Arc<dyn Fn() -> Instant + Send + Sync>;

impl Window {
    /// Creates the window of a run with this many threads and clients that wait for each other at its start. A run that ends with its work
    /// has no warm-up.
    #[must_use]
    pub fn new(
        ends: Ends,
        times: (Duration, Duration),
        meeting: usize,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        let (warm_up, duration) = times;
        let warm_up = if ends == Ends::Work { Duration::ZERO } else { warm_up };
        Self {
            ends,
            warm_up,
            duration,
            started: OnceLock::new(),
            arrived: Barrier::new(meeting),
            released: Barrier::new(meeting),
            failure: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            interrupted,
            comparing: Comparing::default(),
            clock: None,
        }
    }

    /// Makes the window use another clock.
    #[must_use]
    pub fn with_clock(self, clock: VirtualClock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.as_ref().map_or_else(Instant::now, |clock| clock())
    }

    /// Waits for all threads and clients; `before` runs when all are ready, and none has started.
    pub async fn meet(&self, before: impl FnOnce()) {
        self.arrived.wait().await;
        before();
        self.released.wait().await;
        self.started.get_or_init(|| self.now());
    }

    /// Waits like a client until all are ready, and lets them begin when `gate` returns: with its error they end at once. It is
    /// not asked if the run has failed before.
    pub async fn hold(&self, gate: impl FnOnce() -> Result<(), String>) {
        self.arrived.wait().await;
        if self.failure().is_none()
            && let Err(why) = gate()
        {
            self.fail(why);
        }
        self.released.wait().await;
    }

    /// Ends the run for all, with the first reason.
    pub fn fail(&self, why: String) {
        let mut failure = self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        failure.get_or_insert(why);
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Returns the reason for a failure of the run.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Returns whether the run was interrupted from outside.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns whether threads must end.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        let is_past = self.end().is_some_and(|end| now >= end);
        is_past || self.has_failed.load(Ordering::Relaxed) || self.is_interrupted()
    }

    /// Compares data that were read: all of them by `whole`, or their beginning by `start`, if whole comparisons have had their part of
    /// the time.
    pub fn compare<E>(
        &self,
        whole: impl FnOnce() -> Result<(), E>,
        start: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let Comparing { began, spent_ns, reads, whole: count } = &self.comparing;
        reads.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let passed = now - *began.get_or_init(|| now);
        let spent = u128::from(spent_ns.load(Ordering::Relaxed));
        if spent * COMPARING_PART > passed.as_nanos() {
            return start();
        }
        let compared = whole();
        spent_ns.fetch_add(u64::try_from(now.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        count.fetch_add(1, Ordering::Relaxed);
        compared
    }

    /// Returns how many reads were compared; `None` if there were none.
    #[must_use]
    pub fn compared(&self) -> Option<Compared> {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Comparing { reads, whole, .. } = &self.comparing;
        let compared = Compared { reads: of(reads), whole: of(whole) };
        (compared.reads > 0).then_some(compared)
    }

    /// Returns the start of the measured time; `None` before the start.
    #[must_use]
    pub fn begin(&self) -> Option<Instant> {
        self.started.get().map(|started| *started + self.warm_up)
    }

    /// Returns the end of the measured time; `None` if it depends on the work.
    #[must_use]
    pub fn end(&self) -> Option<Instant> {
        let begin = self.begin()?;
        (self.ends == Ends::Time).then(|| begin + self.duration)
    }

    /// Returns the second of the measured time at `now`; `None` outside of it.
    #[must_use]
    pub fn second(&self, now: Instant) -> Option<usize> {
        let passed = now.checked_duration_since(self.begin()?)?;
        let is_inside = self.ends == Ends::Work || passed < self.duration;
        is_inside.then_some(passed.as_secs() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(ends: Ends) -> Window {
        let times = (Duration::from_secs(2), Duration::from_secs(3));
        Window::new(ends, times, 1, Arc::default())
    }

    async fn started(ends: Ends) -> (Window, Instant) {
        let window = window(ends);
        window.meet(|| {}).await;
        let start = *window.started.get().unwrap();
        (window, start)
    }

    #[tokio::test]
    async fn only_operations_that_end_in_the_measured_time_count() {
        let (window, start) = started(Ends::Time).await;
        let second = |milliseconds| window.second(start + Duration::from_millis(milliseconds));
        assert_eq!([second(1999), second(2000), second(4999), second(5000)], [None, Some(0), Some(2), None]);
        assert!(!window.is_over(start + Duration::from_millis(4999)));
        assert!(window.is_over(start + Duration::from_secs(5)));
    }

    #[tokio::test]
    async fn work_has_neither_warm_up_nor_end() {
        let (window, start) = started(Ends::Work).await;
        assert_eq!(window.second(start), Some(0));
        assert_eq!(window.second(start + Duration::from_secs(100)), Some(100));
        assert!(!window.is_over(start + Duration::from_secs(100)));
    }

    #[test]
    fn whole_comparisons_have_a_part_of_the_time() {
        let window = window(Ends::Time);
        assert_eq!(window.compared(), None);
        let slow = || {
            std::thread::sleep(Duration::from_millis(20));
            Err("whole")
        };
        assert_eq!(window.compare(slow, || Ok(())), Err("whole"), "the first one");
        // 20 ms are the part of 2 s.
        assert_eq!(window.compare(|| Ok(()), || Err("start")), Err("start"));
        assert_eq!(window.compared(), Some(Compared { reads: 2, whole: 1 }));
    }

    #[tokio::test]
    async fn the_first_failure_ends_the_run() {
        let (window, start) = started(Ends::Work).await;
        window.fail("no space".to_owned());
        window.fail("connection lost".to_owned());
        assert!(window.is_over(start));
        assert_eq!(window.failure().as_deref(), Some("no space"));
    }
}
