//! A backend that takes its time, and writes down what it was made to do.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use vfs::{
    Access, Attributes, Authority, Backend, Change, Context, Create, Created, Entry, Found, FsStat, Handle,
    Linked, MemFs, MemOptions, Op, OpenAccess, Opened, Properties, Read, ReadDir, ReadDirEnd, ReadRequest,
    Removal, Renamed, SetAttributes, SetXattr, Stability, Timestamp, Verifier, Written,
};

use crate::rng::Rng;

/// Virtual time, and when somebody wants to be looked at again.
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
    /// What time it is.
    pub fn now(&self) -> Duration {
        self.state.lock().now
    }

    /// Makes it `now`.
    pub fn set(&self, now: Duration) {
        self.state.lock().now = now;
    }

    /// When waiters asked to be woken since this was last asked.
    pub fn take_alarms(&self) -> Vec<Duration> {
        std::mem::take(&mut self.state.lock().alarms)
    }
}

/// Ready from a moment of virtual time on.
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

/// [`MemFs`] whose changes take random time, each counted by what it did to which name.
#[derive(Debug)]
pub struct SlowFs {
    inner: MemFs,
    clock: Arc<Clock>,
    rng: Mutex<Rng>,
    executed: Mutex<BTreeMap<String, u32>>,
    done: Arc<Mutex<BTreeMap<String, u32>>>,
}

/// Percent of changes that are not answered at once.
const SLOW_PERCENT: u64 = 50;

/// How long the slowest change takes.
const SLOWEST: Duration = Duration::from_secs(3);

impl SlowFs {
    /// An empty file system.
    pub fn new(options: &MemOptions, clock: Arc<Clock>, seed: u64) -> Self {
        Self {
            inner: MemFs::new(options),
            clock,
            rng: Mutex::new(Rng::new(seed)),
            executed: Mutex::default(),
            done: Arc::default(),
        }
    }

    /// How often each change was made, failed attempts left out.
    pub fn done(&self) -> BTreeMap<String, u32> {
        self.done.lock().clone()
    }

    /// How often each change was tried.
    pub fn executed(&self) -> BTreeMap<String, u32> {
        self.executed.lock().clone()
    }

    /// Writes `what` down, then does it, now or later; or now, and says so later, as a disk does that is synced.
    fn change<'a, T: Send + 'a>(
        &'a self,
        what: String,
        act: impl FnOnce() -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        *self.executed.lock().entry(what.clone()).or_insert(0) += 1;
        let done = Arc::clone(&self.done);
        let act = move || {
            let acted = act();
            Op::pending(async move {
                let acted = acted.await;
                if acted.is_ok() {
                    *done.lock().entry(what).or_insert(0) += 1;
                }
                acted
            })
        };
        let mut rng = self.rng.lock();
        if !rng.chance(SLOW_PERCENT) {
            return act();
        }
        let is_done_first = rng.chance(50);
        let delay = Duration::from_micros(rng.below(SLOWEST.as_micros() as u64));
        let until = Until { clock: Arc::clone(&self.clock), moment: self.clock.now() + delay, is_set: false };
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

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl Backend for SlowFs {
    fn root(&self) -> Handle {
        self.inner.root()
    }
    fn properties(&self) -> Properties {
        self.inner.properties()
    }
    fn identity(&self) -> [u8; 16] {
        self.inner.identity()
    }
    fn write_verifier(&self) -> Verifier {
        self.inner.write_verifier()
    }
    fn getattr<'a>(&'a self, context: &'a Context, file: &'a Handle) -> Op<'a, Attributes> {
        self.inner.getattr(context, file)
    }
    fn setattr<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        set: &'a SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Op<'a, Change> {
        let what = format!("setattr {file:?} mode {:?}", set.mode);
        self.change(what, move || self.inner.setattr(context, file, set, guard, authority))
    }
    fn lookup<'a>(&'a self, context: &'a Context, directory: &'a Handle, name: &'a [u8]) -> Op<'a, Found> {
        self.inner.lookup(context, directory, name)
    }
    fn parent<'a>(&'a self, context: &'a Context, directory: &'a Handle) -> Op<'a, Found> {
        self.inner.parent(context, directory)
    }
    fn access<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        want: Access,
    ) -> Op<'a, (Access, Attributes)> {
        self.inner.access(context, file, want)
    }
    fn readlink<'a>(&'a self, context: &'a Context, link: &'a Handle) -> Op<'a, (Bytes, Attributes)> {
        self.inner.readlink(context, link)
    }
    fn read<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        request: ReadRequest,
        into: &'a mut BytesMut,
    ) -> Op<'a, Read> {
        self.inner.read(context, file, request, into)
    }
    fn write<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        data: &'a Bytes,
        stability: Stability,
        authority: Authority,
    ) -> Op<'a, Written> {
        let what = format!("write {file:?} at {offset}");
        self.change(what, move || self.inner.write(context, file, offset, data, stability, authority))
    }
    fn commit<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        count: u64,
    ) -> Op<'a, Change> {
        self.inner.commit(context, file, offset, count)
    }
    fn create<'a>(
        &'a self,
        context: &'a Context,
        directory: &'a Handle,
        name: &'a [u8],
        what: &'a Create,
        set: &'a SetAttributes,
    ) -> Op<'a, Created> {
        let note = format!("create {}", text(name));
        self.change(note, move || self.inner.create(context, directory, name, what, set))
    }
    fn remove<'a>(
        &'a self,
        context: &'a Context,
        directory: &'a Handle,
        name: &'a [u8],
        removal: Removal,
    ) -> Op<'a, Change> {
        let what = format!("remove {}", text(name));
        self.change(what, move || self.inner.remove(context, directory, name, removal))
    }
    fn rename<'a>(
        &'a self,
        context: &'a Context,
        from: (&'a Handle, &'a [u8]),
        to: (&'a Handle, &'a [u8]),
    ) -> Op<'a, Renamed> {
        let what = format!("rename {} to {}", text(from.1), text(to.1));
        self.change(what, move || self.inner.rename(context, from, to))
    }
    fn link<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        directory: &'a Handle,
        name: &'a [u8],
    ) -> Op<'a, Linked> {
        let what = format!("link {}", text(name));
        self.change(what, move || self.inner.link(context, file, directory, name))
    }
    fn readdir<'a>(
        &'a self,
        context: &'a Context,
        directory: &'a Handle,
        request: ReadDir,
        visit: &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send),
    ) -> Op<'a, ReadDirEnd> {
        self.inner.readdir(context, directory, request, visit)
    }
    fn open<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened> {
        self.inner.open(context, file, access, authority)
    }
    fn statfs<'a>(&'a self, context: &'a Context, file: &'a Handle) -> Op<'a, (FsStat, Attributes)> {
        self.inner.statfs(context, file)
    }
    fn set_xattr<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        name: &'a [u8],
        value: &'a Bytes,
        how: SetXattr,
    ) -> Op<'a, Change> {
        let what = format!("set attribute {}", text(name));
        self.change(what, move || self.inner.set_xattr(context, file, name, value, how))
    }
    fn remove_xattr<'a>(&'a self, context: &'a Context, file: &'a Handle, name: &'a [u8]) -> Op<'a, Change> {
        let what = format!("remove attribute {}", text(name));
        self.change(what, move || self.inner.remove_xattr(context, file, name))
    }
}
