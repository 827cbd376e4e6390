//! The memory budget of a process, shared by all caches, requests and users.
//!
//! Every byte that a client keeps is reserved first and held as a [`Permit`], data and metadata alike. The order in which
//! memory is reclaimed: clean pages, idle read-ahead, metadata, then COMMITs and WRITEs ([`Limiter::demand`]). Writers are
//! slowed gradually ([`Limiter::write_delay`]) and wait only at the end ([`User::reserve`]).
//!
//! The limiter does no I/O, reads no clock and evicts nothing itself. Its lock is held for a few instructions.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

#[cfg(test)]
mod tests;

/// The smallest budget, in bytes: some large requests in both directions.
pub const BUDGET_MIN: u64 = 16 << 20;
/// Bytes that a user may hold although others have filled the ordinary part of the budget.
pub const USER_MINIMUM: u64 = 256 << 10;
/// The longest pause that a writer is asked to make before one write.
pub const WRITE_DELAY_MAX: Duration = Duration::from_millis(200);

/// Time between two samples of the rate at which written data become stable.
const SAMPLE_PERIOD: Duration = Duration::from_millis(100);
/// Rate that is assumed before the first sample, in bytes a second.
const INITIAL_RATE: u64 = 64 << 20;

/// The use of reserved memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Written by the program, not yet stable and not yet acknowledged by the server.
    Dirty,
    /// Acknowledged by the server as UNSTABLE; only a COMMIT frees it.
    Uncommitted,
    /// Cached file data that the server has too.
    Clean,
    /// Data, or space for data, that programs have not requested yet.
    ReadAhead,
    /// Attributes, names, directory listings and the caches' own structures.
    Metadata,
    /// Requests and replies under way.
    Requests,
}

/// The number of kinds.
pub const KINDS: usize = 6;

impl Kind {
    /// Every kind.
    pub const ALL: [Self; KINDS] =
        [Self::Dirty, Self::Uncommitted, Self::Clean, Self::ReadAhead, Self::Metadata, Self::Requests];

    /// Returns true for data that must reach stable storage before they can be freed.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Dirty | Self::Uncommitted)
    }
}

/// The sizes of a budget, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Everything together.
    pub total: u64,
    /// Part that dirty and uncommitted data never use.
    pub for_reads: u64,
    /// Part that only users below their minimum may use.
    pub for_minimums: u64,
    /// Minimum of each user.
    pub user_minimum: u64,
}

impl Budget {
    /// Divides `total` bytes (at least [`BUDGET_MIN`]): a quarter for reads, an eighth for minimums.
    pub fn new(total: u64) -> Self {
        let total = total.max(BUDGET_MIN);
        Self { total, for_reads: total / 4, for_minimums: total / 8, user_minimum: USER_MINIMUM }
    }

    /// Returns the maximum memory that dirty and uncommitted data may use.
    fn write_limit(&self) -> u64 {
        self.total - self.for_reads
    }

    /// Returns the limit above which writers with more than their minimum wait.
    fn ordinary_write_limit(&self) -> u64 {
        self.write_limit() - self.for_minimums
    }

    /// Returns the limit above which users with more than their minimum wait.
    fn ordinary_limit(&self) -> u64 {
        self.total - self.for_minimums
    }

    /// Returns the limit above which reclaim starts, so that reservations usually find room.
    fn reclaim_above(&self) -> u64 {
        self.ordinary_limit() - self.total / 16
    }

    /// Returns the limit above which COMMITs start.
    fn commit_above(&self) -> u64 {
        self.ordinary_write_limit() / 2
    }

    /// Returns the limit above which writers are slowed.
    fn slow_above(&self) -> u64 {
        self.ordinary_write_limit() / 4 * 3
    }
}

/// Bytes in use for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage([u64; KINDS]);

impl Usage {
    /// Returns the bytes of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    /// Returns the bytes of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the bytes that wait for stable storage.
    pub fn writes(&self) -> u64 {
        self.of(Kind::Dirty) + self.of(Kind::Uncommitted)
    }
}

/// How short memory is. Later levels include the measures of earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// There is room.
    None,
    /// Clean pages, read-ahead or metadata must go.
    Reclaim,
    /// Dirty data must be sent and uncommitted data committed.
    Commit,
    /// Writers are slowed.
    Slow,
    /// A user waits, or the next large reservation will.
    Wait,
}

/// The bytes that the caches must release, in the order of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Clean pages.
    pub clean: u64,
    /// Read-ahead that no program waits for.
    pub read_ahead: u64,
    /// Attributes, names and listings.
    pub metadata: u64,
    /// Send COMMITs: nothing else frees uncommitted data.
    pub commit: bool,
    /// Send dirty data now.
    pub flush: bool,
}

/// Why a reservation was not granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room now, or others wait already.
    Full,
    /// The reservation can never be granted. Ask for less at a time.
    TooLarge,
}

/// The memory budget. Clones share it.
#[derive(Clone, Debug)]
pub struct Limiter(Arc<Shared>);

struct Shared {
    budget: Budget,
    state: Mutex<State>,
    /// Holders of releasable memory.
    holders: Mutex<Vec<Weak<dyn Holder>>>,
}

/// A holder of releasable memory.
pub trait Holder: Send + Sync {
    /// Called when memory is short: [`Limiter::demand`] says how much to release. Must not wait, and must not reserve memory.
    fn memory_is_short(&self);
}

/// A user of memory: an open file, or a client for its metadata. Clones are the same user.
#[derive(Clone, Debug)]
pub struct User(Arc<UserState>);

#[derive(Debug)]
struct UserState {
    shared: Arc<Shared>,
    /// Changes only under the lock of `shared.state`.
    used: AtomicU64,
}

/// Reserved memory, released on drop.
#[derive(Debug)]
pub struct Permit {
    user: User,
    kind: Kind,
    bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    used: Usage,
    waiting: HashMap<u64, Waiting>,
    /// Waiters in order of arrival, indexed by [`Queue`]. Ids of cancelled waiters are skipped.
    queues: [VecDeque<u64>; 4],
    next_id: u64,
    waiting_bytes: u64,
    waiting_write_bytes: u64,
    drain: Drain,
}

#[derive(Debug)]
struct Waiting {
    user: User,
    kind: Kind,
    bytes: u64,
    granted: bool,
    waker: Option<Waker>,
}

/// Waiters that must not overtake each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    /// Writers below their minimum.
    MinimumWrite,
    /// Others below their minimum.
    MinimumRead,
    /// Writers.
    Write,
    /// Others.
    Read,
}

impl Queue {
    const ALL: [Self; 4] = [Self::MinimumWrite, Self::MinimumRead, Self::Write, Self::Read];

    fn of(kind: Kind, minimum: bool) -> Self {
        match (kind.is_write(), minimum) {
            (true, true) => Self::MinimumWrite,
            (false, true) => Self::MinimumRead,
            (true, false) => Self::Write,
            (false, false) => Self::Read,
        }
    }

    fn is_minimum(self) -> bool {
        matches!(self, Self::MinimumWrite | Self::MinimumRead)
    }

    /// Queues whose waiters go before a newcomer of this one.
    fn ahead(self) -> &'static [Self] {
        match self {
            Self::MinimumWrite => &[Self::MinimumWrite],
            Self::MinimumRead => &[Self::MinimumRead],
            Self::Write => &[Self::MinimumWrite, Self::Write],
            Self::Read => &[Self::MinimumRead, Self::Read],
        }
    }
}

/// Measures how fast written data become stable.
#[derive(Debug, Default)]
struct Drain {
    /// Total number of bytes that left the write kinds.
    drained: u64,
    sample: Option<(Duration, u64)>,
    /// Bytes a second.
    rate: Option<u64>,
}

impl Limiter {
    /// Creates a limiter without users.
    pub fn new(budget: Budget) -> Self {
        debug_assert!(budget.for_reads + budget.for_minimums < budget.total);
        Self(Arc::new(Shared { budget, state: Mutex::default(), holders: Mutex::default() }))
    }

    /// Adds a holder to ask when memory is short, as long as it exists.
    pub fn add_holder(&self, holder: &Arc<impl Holder + 'static>) {
        let holder: Weak<dyn Holder> = Arc::<_>::downgrade(holder) as _;
        let mut holders = self.0.holders.lock();
        holders.retain(|holder| holder.strong_count() > 0);
        holders.push(holder);
    }

    /// Asks all holders to release memory.
    pub fn ask_holders(&self) {
        let holders = self.0.holders.lock().clone();
        holders.iter().filter_map(Weak::upgrade).for_each(|holder| holder.memory_is_short());
    }

    /// Registers a user. It costs nothing until it reserves memory.
    pub fn user(&self) -> User {
        User(Arc::new(UserState { shared: self.0.clone(), used: AtomicU64::new(0) }))
    }

    /// Returns the sizes.
    pub fn budget(&self) -> Budget {
        self.0.budget
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> Usage {
        self.0.state.lock().used
    }

    /// Returns the pressure of memory.
    pub fn pressure(&self) -> Pressure {
        let (budget, state) = (&self.0.budget, self.0.state.lock());
        let writes = state.used.writes();
        if state.waiting_bytes > 0 || writes >= budget.ordinary_write_limit() {
            Pressure::Wait
        } else if writes >= budget.slow_above() {
            Pressure::Slow
        } else if writes >= budget.commit_above() {
            Pressure::Commit
        } else if state.used.total() > budget.reclaim_above() {
            Pressure::Reclaim
        } else {
            Pressure::None
        }
    }

    /// Returns the number of bytes to release now. Call it when [`pressure`](Self::pressure) is not `None`, release that much,
    /// and call it again after data became clean.
    pub fn demand(&self) -> Demand {
        let (budget, state) = (&self.0.budget, self.0.state.lock());
        let used = &state.used;
        let mut short = (used.total() + state.waiting_bytes).saturating_sub(budget.reclaim_above());
        let mut take = |kind| {
            let bytes = short.min(used.of(kind));
            short -= bytes;
            bytes
        };
        let (clean, read_ahead, metadata) = (take(Kind::Clean), take(Kind::ReadAhead), take(Kind::Metadata));
        let writes = used.writes() + state.waiting_write_bytes;
        let stabilize = short > 0 || writes >= budget.commit_above();
        Demand {
            clean,
            read_ahead,
            metadata,
            commit: stabilize && used.of(Kind::Uncommitted) > 0,
            flush: stabilize && used.of(Kind::Dirty) > 0,
        }
    }

    /// Returns the time that a writer should pause before it writes `bytes` more.
    ///
    /// The pause is zero up to three quarters of the memory that writers may use. Above, it grows without a step: with x from 0
    /// (three quarters) to 1 (full), it is x/(1-x) of the time in which the server makes `bytes` stable, at most
    /// [`WRITE_DELAY_MAX`]. The speed of one writer therefore converges to that of the server's storage.
    pub fn write_delay(&self, now: Duration, bytes: u64) -> Duration {
        let (budget, mut state) = (&self.0.budget, self.0.state.lock());
        let writes = state.used.writes();
        let (from, to) = (budget.slow_above(), budget.ordinary_write_limit());
        let rate = state.drain.rate(now, writes > from / 2);
        let Some(above) = writes.checked_sub(from).filter(|above| *above > 0) else { return Duration::ZERO };
        let left = to.saturating_sub(writes);
        if left == 0 || rate == 0 {
            return WRITE_DELAY_MAX;
        }
        let seconds = bytes as f64 / rate as f64 * (above as f64 / left as f64);
        Duration::try_from_secs_f64(seconds).map_or(WRITE_DELAY_MAX, |delay| delay.min(WRITE_DELAY_MAX))
    }
}

impl User {
    /// Reserves memory if there is room and no other user waits before this one.
    pub fn try_reserve(&self, kind: Kind, bytes: u64) -> Result<Permit, Refused> {
        let shared = &self.0.shared;
        if bytes > shared.largest(kind) {
            return Err(Refused::TooLarge);
        }
        let mut state = shared.state.lock();
        let queue = Queue::of(kind, shared.is_minimum(self, bytes));
        if !queue.ahead().iter().all(|queue| state.is_empty(*queue))
            || !shared.fits(&state, self, kind, bytes)
        {
            return Err(Refused::Full);
        }
        state.add(self, kind, bytes);
        Ok(Permit { user: self.clone(), kind, bytes })
    }

    /// Reserves memory, and waits in order of arrival if there is no room. Dropping the future releases its place.
    ///
    /// A waiting caller makes the caches release as much as [`Limiter::demand`] says.
    ///
    /// A user waits for one reservation at a time, and holds no [`Kind::Requests`] meanwhile: its other memory can
    /// be released by others. Completes with [`Refused::TooLarge`] if the reservation can never be granted.
    pub fn reserve(&self, kind: Kind, bytes: u64) -> Reserve {
        Reserve { user: self.clone(), kind, bytes, id: None }
    }

    /// Returns the bytes that this user holds.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Returns the limiter.
    pub fn limiter(&self) -> Limiter {
        Limiter(self.0.shared.clone())
    }
}

/// The future of [`User::reserve`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Reserve {
    user: User,
    kind: Kind,
    bytes: u64,
    /// Set while the limiter knows this waiter.
    id: Option<u64>,
}

impl Future for Reserve {
    type Output = Result<Permit, Refused>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(id) = self.id else {
            let (kind, bytes) = (self.kind, self.bytes);
            match self.user.try_reserve(kind, bytes) {
                Err(Refused::Full) => {}
                result => return Poll::Ready(result),
            }
            // Memory may have been released since `try_reserve`; then `enqueue` grants it.
            let (id, wakers) = self.user.0.shared.enqueue(&self.user, kind, bytes, context.waker());
            self.id = Some(id);
            wake(wakers);
            return Poll::Pending;
        };
        let mut state = self.user.0.shared.state.lock();
        let waiting = state.waiting.get_mut(&id).expect("a waiter stays until it is removed here or on drop");
        if !waiting.granted {
            waiting.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        state.waiting.remove(&id);
        drop(state);
        self.id = None;
        Poll::Ready(Ok(Permit { user: self.user.clone(), kind: self.kind, bytes: self.bytes }))
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        self.user.0.shared.change(|state| {
            let waiting =
                state.waiting.remove(&id).expect("a waiter stays until it is removed here or by poll");
            if waiting.granted {
                state.subtract(&self.user, self.kind, self.bytes);
            } else {
                state.no_longer_waits(self.kind, self.bytes);
            }
        });
    }
}

impl Permit {
    /// Returns the bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the use of the memory.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Splits `bytes`, at most all of the permit's, off into another permit.
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { user: self.user.clone(), kind: self.kind, bytes }
    }

    /// Adds the memory of `other`, which then belongs to this permit's user and kind.
    pub fn merge(&mut self, mut other: Self) {
        if !Arc::ptr_eq(&self.user.0, &other.user.0) {
            self.user.0.shared.change(|state| {
                state.subtract(&other.user, other.kind, other.bytes);
                state.add(&self.user, self.kind, other.bytes);
            });
        } else {
            other.convert(self.kind);
        }
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Uses the memory for something else. This never waits: the sum stays the same.
    pub fn convert(&mut self, kind: Kind) {
        if kind == self.kind {
            return;
        }
        self.user.0.shared.change(|state| state.release(&self.user, self.kind, self.bytes, Some(kind)));
        self.kind = kind;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.user.0.shared.change(|state| state.release(&self.user, self.kind, self.bytes, None));
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("budget", &self.budget)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Returns the largest reservation that can succeed when nothing else is held.
    fn largest(&self, kind: Kind) -> u64 {
        if kind.is_write() { self.budget.ordinary_write_limit() } else { self.budget.ordinary_limit() }
    }

    fn is_minimum(&self, user: &User, bytes: u64) -> bool {
        user.used() + bytes <= self.budget.user_minimum
    }

    fn fits(&self, state: &State, user: &User, kind: Kind, bytes: u64) -> bool {
        let kept = if self.is_minimum(user, bytes) { 0 } else { self.budget.for_minimums };
        let total = state.used.total() + bytes <= self.budget.total - kept;
        total && (!kind.is_write() || state.used.writes() + bytes <= self.budget.write_limit() - kept)
    }

    fn enqueue(&self, user: &User, kind: Kind, bytes: u64, waker: &Waker) -> (u64, Vec<Waker>) {
        let mut state = self.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        let waiting = Waiting { user: user.clone(), kind, bytes, granted: false, waker: Some(waker.clone()) };
        state.waiting.insert(id, waiting);
        state.waits(kind, bytes);
        let queue = Queue::of(kind, self.is_minimum(user, bytes));
        state.queues[queue as usize].push_back(id);
        (id, self.grant(&mut state))
    }

    /// Changes the state, grants reservations that have room now, and wakes their owners without the lock.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        let wakers = if state.waiting_bytes > 0 { self.grant(&mut state) } else { Vec::new() };
        drop(state);
        wake(wakers);
    }

    fn grant(&self, state: &mut MutexGuard<'_, State>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for queue in Queue::ALL {
            while let Some(id) = state.first(queue) {
                let (user, kind, bytes) = {
                    let waiting = &state.waiting[&id];
                    (waiting.user.clone(), waiting.kind, waiting.bytes)
                };
                let now = Queue::of(kind, self.is_minimum(&user, bytes));
                if queue.is_minimum() && now != queue {
                    // It received other memory meanwhile, and must not block others below their minimum.
                    state.queues[queue as usize].pop_front();
                    state.queues[now as usize].push_back(id);
                    continue;
                }
                if !self.fits(state, &user, kind, bytes) {
                    break;
                }
                state.queues[queue as usize].pop_front();
                state.no_longer_waits(kind, bytes);
                state.add(&user, kind, bytes);
                let waiting = state.waiting.get_mut(&id).expect("the first of a queue waits");
                waiting.granted = true;
                wakers.extend(waiting.waker.take());
            }
        }
        wakers
    }
}

impl State {
    fn add(&mut self, user: &User, kind: Kind, bytes: u64) {
        self.used.0[kind as usize] += bytes;
        user.0.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn subtract(&mut self, user: &User, kind: Kind, bytes: u64) {
        debug_assert!(self.used.of(kind) >= bytes, "{kind:?} is released twice");
        debug_assert!(user.used() >= bytes, "memory of another user is released");
        self.used.0[kind as usize] -= bytes;
        user.0.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Moves memory from `kind` to `to`, or frees it.
    fn release(&mut self, user: &User, kind: Kind, bytes: u64, to: Option<Kind>) {
        self.subtract(user, kind, bytes);
        if kind.is_write() && !to.is_some_and(Kind::is_write) {
            self.drain.drained += bytes;
        }
        if let Some(to) = to {
            self.add(user, to, bytes);
        }
    }

    fn waits(&mut self, kind: Kind, bytes: u64) {
        self.waiting_bytes += bytes;
        if kind.is_write() {
            self.waiting_write_bytes += bytes;
        }
    }

    fn no_longer_waits(&mut self, kind: Kind, bytes: u64) {
        self.waiting_bytes -= bytes;
        if kind.is_write() {
            self.waiting_write_bytes -= bytes;
        }
    }

    /// Returns the first waiter of a queue, and forgets cancelled ones before it.
    fn first(&mut self, queue: Queue) -> Option<u64> {
        let (queue, waiting) = (&mut self.queues[queue as usize], &self.waiting);
        while let Some(id) = queue.front() {
            if waiting.contains_key(id) {
                return Some(*id);
            }
            queue.pop_front();
        }
        None
    }

    fn is_empty(&mut self, queue: Queue) -> bool {
        self.first(queue).is_none()
    }
}

impl Drain {
    /// Returns the rate in bytes a second, and samples it while `busy`: an idle server does not show its speed.
    fn rate(&mut self, now: Duration, busy: bool) -> u64 {
        if !busy {
            self.sample = None;
        } else {
            let (since, drained) = *self.sample.get_or_insert((now, self.drained));
            let elapsed = now.saturating_sub(since);
            if elapsed >= SAMPLE_PERIOD {
                let measured = ((self.drained - drained) as f64 / elapsed.as_secs_f64()) as u64;
                self.rate = Some(self.rate.map_or(measured, |rate| (rate * 3 + measured) / 4));
                self.sample = Some((now, self.drained));
            }
        }
        self.rate.unwrap_or(INITIAL_RATE)
    }
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
