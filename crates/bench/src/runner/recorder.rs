//! Records the operations of one client's threads during a run.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::window::Window;
use crate::result::{Effect, Latency, OperationResult};
use crate::targets::Fault;

/// Maximum seconds of a series: a day.
const SERIES_SECONDS_MAX: usize = 86_400;
/// Maximum number of samples with one name.
const SAMPLES_MAX: usize = 1 << 20;

/// An operation that a workload counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Its name in results.
    pub name: &'static str,
    /// Its effect on data.
    pub effect: Effect,
}

impl Op {
    /// Returns an operation that reads data.
    #[must_use]
    pub const fn read(name: &'static str) -> Self {
        Self { name, effect: Effect::Read }
    }

    /// Returns an operation that writes data.
    #[must_use]
    pub const fn write(name: &'static str) -> Self {
        Self { name, effect: Effect::Write }
    }

    /// Returns an operation on names and attributes.
    #[must_use]
    pub const fn metadata(name: &'static str) -> Self {
        Self { name, effect: Effect::Metadata }
    }
}

/// The records of one client.
#[derive(Debug, Default)]
pub struct Record {
    /// By operation.
    pub operations: BTreeMap<&'static str, OperationResult>,
    /// Operations of each second of the measured time.
    pub operations_by_second: Vec<u64>,
    /// Bytes of each second.
    pub bytes_by_second: Vec<u64>,
    /// Samples of the workload.
    pub samples: BTreeMap<&'static str, Vec<f64>>,
    /// When the first thread began.
    pub began: Option<Instant>,
}

/// Waits for a time of a simulation.
pub type Sleeper = Rc<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Times operations. Clones record into the same place.
#[derive(Clone)]
pub struct Meter {
    window: Arc<Window>,
    record: Rc<RefCell<Record>>,
    progress: Rc<Progress>,
    sleeper: Option<Sleeper>,
}

/// What has ended.
#[derive(Default)]
struct Progress {
    /// Operations that have ended, measured or not, and intended waits.
    ended: Cell<u64>,
    /// When the last operation ended, until a thread has looked whether the run is over.
    last: Cell<Option<Instant>>,
}

impl Meter {
    /// Creates a meter for the threads of one client.
    #[must_use]
    pub fn new(window: Arc<Window>) -> Self {
        Self { window, record: Rc::default(), progress: Rc::default(), sleeper: None }
    }

    /// Makes the meter wait in a simulation.
    #[must_use]
    pub fn with_sleeper(self, sleeper: Sleeper) -> Self {
        Self { sleeper: Some(sleeper), ..self }
    }

    /// Waits for a time.
    pub async fn sleep(&self, time: Duration) {
        match &self.sleeper {
            Some(sleeper) => sleeper(time).await,
            None => tokio::time::sleep(time).await,
        }
    }

    /// Returns whether this is a simulation, whose results must not depend on this machine.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.sleeper.is_some()
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.window.now()
    }

    /// Returns the time since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: Instant) -> Duration {
        self.now() - earlier
    }

    /// Returns whether threads must end: the time is over, the run was interrupted, or another thread has failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        // The clock was read when an operation ended.
        let now = self.progress.last.take().unwrap_or_else(|| self.now());
        self.window.is_over(now)
    }

    /// Does an operation that moves no data, and counts it.
    ///
    /// # Errors
    /// Those of the operation, which is counted as an error then.
    pub async fn time<T>(&self, op: Op, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        self.time_since(op, self.now(), work).await
    }

    /// As [`Self::time`]; the operation should have begun at `began`.
    ///
    /// # Errors
    /// As [`Self::time`].
    pub async fn time_since<T>(
        &self,
        op: Op,
        began: Instant,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let done = work.await;
        self.count(op, began, 0, done.as_ref().map(|_| 0).map_err(|_| ()));
        yield_sometimes().await;
        done
    }

    /// Does an operation that moves `asked` bytes, and counts it. It returns how many it moved; with fewer than `asked` it is
    /// short, and not counted as work.
    ///
    /// # Errors
    /// Those of the operation, which is counted as an error then.
    pub async fn transfer(
        &self,
        op: Op,
        asked: u64,
        work: impl Future<Output = Result<u64, Fault>>,
    ) -> Result<u64, Fault> {
        self.transfer_since(op, self.now(), asked, work).await
    }

    /// As [`Self::transfer`]; the operation should have begun at `began`.
    ///
    /// # Errors
    /// As [`Self::transfer`].
    pub async fn transfer_since(
        &self,
        op: Op,
        began: Instant,
        asked: u64,
        work: impl Future<Output = Result<u64, Fault>>,
    ) -> Result<u64, Fault> {
        let done = work.await;
        self.count(op, began, asked, done.as_ref().map(|moved| *moved).map_err(|_| ()));
        yield_sometimes().await;
        done
    }

    /// Compares data that were read: all of them by `whole`, or their beginning by `start` if whole comparisons have taken too much of
    /// the time. Call it outside of the timed part.
    ///
    /// # Errors
    /// Those of `whole` and `start`.
    pub fn compare(
        &self,
        whole: impl FnOnce() -> Result<(), Fault>,
        start: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.window.compare(whole, start)
    }

    /// Adds a sample under a name that ends with its unit.
    pub fn sample(&self, name: &'static str, value: f64) {
        let mut record = self.record.borrow_mut();
        let samples = record.samples.entry(name).or_default();
        if samples.len() < SAMPLES_MAX {
            samples.push(value);
        }
    }

    /// Counts an operation that ended now, if that is in the measured time.
    fn count(&self, op: Op, began: Instant, asked: u64, moved: Result<u64, ()>) {
        let ended = self.now();
        self.progress.ended.set(self.progress.ended.get() + 1);
        self.progress.last.set(Some(ended));
        let Some(second) = self.window.second(ended) else { return };
        let mut record = self.record.borrow_mut();
        let result = record.operations.entry(op.name).or_insert_with(|| OperationResult {
            effect: op.effect,
            count: 0,
            bytes: 0,
            errors: 0,
            short: 0,
            latency: Latency::default(),
        });
        let Ok(moved) = moved else {
            result.errors += 1;
            return;
        };
        if moved < asked {
            result.short += 1;
            return;
        }
        result.count += 1;
        result.bytes += moved;
        result.latency.record(ended - began, 1);
        let second = second.min(SERIES_SECONDS_MAX - 1);
        let Record { operations_by_second, bytes_by_second, .. } = &mut *record;
        if operations_by_second.len() <= second {
            operations_by_second.resize(second + 1, 0);
            bytes_by_second.resize(second + 1, 0);
        }
        operations_by_second[second] += 1;
        bytes_by_second[second] += moved;
    }

    /// Tells that a thread waits by intention, so that the run does not count as silent.
    pub fn is_waiting(&self) {
        self.progress.ended.set(self.progress.ended.get() + 1);
    }

    /// Returns the number of operations that have ended so far, measured or not.
    pub(super) fn ended_operations(&self) -> u64 {
        self.progress.ended.get()
    }

    pub(super) fn begin(&self) {
        let mut record = self.record.borrow_mut();
        record.began = record.began.or(Some(self.now()));
    }

    pub(super) fn window(&self) -> &Arc<Window> {
        &self.window
    }

    /// Takes the records.
    #[must_use]
    pub fn take(&self) -> Record {
        self.record.take()
    }
}

/// Lets other tasks of this thread run from time to time: operations on cached data never wait.
async fn yield_sometimes() {
    tokio::task::coop::consume_budget().await;
}
