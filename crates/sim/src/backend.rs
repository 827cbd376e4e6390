//! A slow backend that records the changes it makes.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use vfs::around::{Around, Call, Method, Subject, Wrapped};
use vfs::{
    Authority, Backend, Committer, Committing, Context, Credentials, GroupCommit, MemFs, Op, Peer,
    ReadRequest, Thread, Timestamp,
};

use crate::rng::Rng;

/// Virtual time, and the moments for which futures wait.
#[derive(Debug, Default)]
pub struct Clock {
    state: Mutex<ClockState>,
}

#[derive(Debug, Default)]
struct ClockState {
    now: Duration,
    alarms: Vec<Duration>,
}

impl Clock {
    /// Returns the time.
    pub fn now(&self) -> Duration {
        self.state.lock().now
    }

    /// Sets the time.
    pub fn set(&self, now: Duration) {
        self.state.lock().now = now;
    }

    /// Returns a future that is ready at `moment`.
    pub fn until(this: &Arc<Self>, moment: Duration) -> impl Future<Output = ()> + Send + use<> {
        Until { clock: Arc::clone(this), moment, is_set: false }
    }

    /// Returns the moments that futures have waited for since the last call.
    pub fn take_alarms(&self) -> Vec<Duration> {
        std::mem::take(&mut self.state.lock().alarms)
    }
}

impl client::engine::Clock for Clock {
    fn now(&self) -> Duration {
        Self::now(self)
    }

    fn time_of_day(&self) -> Option<client::attributes::Timestamp> {
        let Timestamp { seconds, nanoseconds } = crate::cluster::moment(Self::now(self)).wall;
        Some(client::attributes::Timestamp { seconds, nanoseconds })
    }
}

/// A future that is ready at a moment of virtual time.
struct Until {
    clock: Arc<Clock>,
    moment: Duration,
    is_set: bool,
}

impl Future for Until {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<()> {
        let clock = Arc::clone(&self.clock);
        let mut state = clock.state.lock();
        if state.now >= self.moment {
            return Poll::Ready(());
        }
        if !self.is_set {
            self.is_set = true;
            state.alarms.push(self.moment);
        }
        Poll::Pending
    }
}

/// [`MemFs`] whose changes take random time.
pub type SlowFs = Wrapped<MemFs, Slowness>;

/// Delays changes, and counts the attempts and successes of each.
#[derive(Debug)]
pub struct Slowness {
    clock: Arc<Clock>,
    rng: Mutex<Rng>,
    executed: Mutex<BTreeMap<String, u32>>,
    done: Arc<Mutex<BTreeMap<String, u32>>>,
    syncs: Arc<Syncs>,
}

/// Group commits that take random time.
#[derive(Debug)]
struct Syncs {
    clock: Arc<Clock>,
    rng: Mutex<Rng>,
}

/// Percent of changes that are deferred, where the caller allows it.
const DEFERRED_PERCENT: u64 = 50;

impl Committer for Syncs {
    type Change = ();

    fn commit(self: Arc<Self>, _: Vec<(u32, ())>, _: Thread, _: Peer) -> Committing {
        let done = Op::pending(std::future::ready(Ok(())));
        let synced = SLOW.take(&self.clock, &self.rng, || done);
        Box::pin(async move {
            // It cannot fail.
            let _ = synced.await;
            Ok(())
        })
    }
}

/// The delays of changes.
const SLOW: Slow = Slow { percent: 50, slowest: Duration::from_secs(3) };

/// Random delays of operations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slow {
    /// Percent of operations that are delayed.
    pub(crate) percent: u64,
    /// Maximum delay.
    pub(crate) slowest: Duration,
}

impl Slow {
    /// Runs `act` now or later; or now with a late answer, like a disk that is synced.
    pub(crate) fn take<'a, T: Send + 'a>(
        self,
        clock: &Arc<Clock>,
        rng: &Mutex<Rng>,
        act: impl FnOnce() -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        let mut rng = rng.lock();
        if !rng.chance(self.percent) {
            return act();
        }
        let is_done_first = rng.chance(50);
        let delay = Duration::from_micros(rng.below(self.slowest.as_micros() as u64));
        let until = Clock::until(clock, clock.now() + delay);
        Op::pending(async move {
            if is_done_first {
                let acted = act().await;
                until.await;
                return acted;
            }
            until.await;
            act().await
        })
    }
}

impl Slowness {
    /// Creates delays on a clock, drawn from `seed`.
    pub fn new(clock: Arc<Clock>, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let syncs = Arc::new(Syncs { clock: Arc::clone(&clock), rng: Mutex::new(Rng::new(rng.next_u64())) });
        Self { clock, rng: Mutex::new(rng), executed: Mutex::default(), done: Arc::default(), syncs }
    }

    /// Returns the number of successes of each change.
    pub fn done(&self) -> BTreeMap<String, u32> {
        self.done.lock().clone()
    }

    /// Returns the number of attempts of each change.
    pub fn executed(&self) -> BTreeMap<String, u32> {
        self.executed.lock().clone()
    }

    /// Records `what`, then makes the change with a delay as in [`Slowness`], and defers it to `group` in some cases.
    fn change<'a, T: Send + 'a>(
        &'a self,
        what: String,
        group: Option<Arc<GroupCommit>>,
        run: impl FnOnce(Option<u32>) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        *self.executed.lock().entry(what.clone()).or_insert(0) += 1;
        let (done, syncs) = (Arc::clone(&self.done), Arc::clone(&self.syncs));
        let act = move || {
            let acted = run(None);
            Op::pending(async move {
                let acted = acted.await;
                if acted.is_ok() {
                    *done.lock().entry(what).or_insert(0) += 1;
                    if let Some(group) = group.filter(|_| syncs.rng.lock().chance(DEFERRED_PERCENT)) {
                        group.defer(&syncs, ());
                    }
                }
                acted
            })
        };
        SLOW.take(&self.clock, &self.rng, act)
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Returns the name of a change in scripts.
fn change_of(call: &Call<'_>) -> Option<String> {
    let verb = match call.method {
        Method::Setattr => "setattr",
        Method::Write => "write",
        Method::Create => "create",
        Method::Remove => "remove",
        Method::Rename => "rename",
        Method::Link => "link",
        Method::Allocate => "allocate",
        Method::Deallocate => "deallocate",
        Method::WriteHole => "write hole",
        Method::CloneRange => "clone",
        Method::CopyRange => "copy",
        Method::SetAcl => "set ACL",
        Method::SetXattr => "set attribute",
        Method::RemoveXattr => "remove attribute",
        _ => return None,
    };
    Some(match call.subject {
        Subject::Whole => verb.to_owned(),
        Subject::Name(name) => format!("{verb} {}", text(name)),
        Subject::Names(from, to) => format!("{verb} {} to {}", text(from), text(to)),
        Subject::Attributes(file, set) => format!("{verb} {file:?} mode {:?}", set.mode),
        Subject::Bytes(file, offset) => format!("{verb} {file:?} at {offset}"),
    })
}

impl Around for Slowness {
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'_>,
        run: impl FnOnce(Option<u32>) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        match change_of(&call) {
            Some(what) => self.change(what, call.context.and_then(|context| context.group.clone()), run),
            None => run(None),
        }
    }

    /// Returns true: every answered change is durable.
    fn is_stable(&self, _: bool) -> bool {
        true
    }
}

/// Returns the first `count` bytes of a file of the root directory, if it exists. The backend must answer at once.
pub(crate) fn content(files: &dyn Backend, name: &str, count: u32) -> Option<Vec<u8>> {
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    let context = &Context::new(Arc::new(Credentials::root()), now);
    let found = files.lookup(context, &files.root(), name.as_bytes()).now().ok()?;
    let request = ReadRequest { offset: 0, count, may_splice: false, authority: Authority::Opened };
    let mut content = BytesMut::new();
    files.read(context, &found.handle, request, &mut content).now().expect("it is a file");
    Some(content.to_vec())
}
