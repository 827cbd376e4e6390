//! The lock of an object. A change holds it from reading the attributes before it until reading those after it.
//!
//! # Holders
//! Only a running thread holds a lock. A request releases its locks before it waits for a sync or for a thread of the
//! pool. So a lock is free again when one system call, or one step of a long operation, has ended. This does not depend on what a client
//! sends, or how slowly it reads its replies.
//!
//! # Waiters
//! Requests wait in a queue of the lock, without a thread. Releasing the lock resumes the first of them. If the pool
//! cannot start that request at once, because its client has its share of the threads, the next one is resumed as
//! well. A cancelled request is dropped when it is resumed.
//!
//! The lock is not handed over: a resumed request takes it when it runs. If a request held the lock while it waits
//! for a thread, one client would wait for another client's share. So a request in place may come first; a resumed
//! request that finds the lock held again waits at the front.
//!
//! # Order
//! RENAME and LINK take two locks, in the order of the objects' addresses. A request that finds the second lock held
//! releases the first before it waits, so that two requests cannot wait for each other. After `blocking::MAX_TRIES`
//! attempts it blocks on a thread of the pool ([`ObjectLock::wait`]), with the first lock held. The order prevents a
//! deadlock among such threads, and no other request holds a lock while it waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The lock is held.
const HELD: u8 = 1;
/// The holder runs on a thread that may block.
const LONG: u8 = 2;
/// There are requests in the queue.
const AWAITED: u8 = 4;

/// The time that a thread spins for a lock whose holder runs in place: longer than any operation in place takes.
const SPIN_TIME: Duration = Duration::from_micros(100);
/// Attempts before the thread yields between them.
const SPINS: u32 = 100;

/// A request in the queue of a lock.
pub(crate) trait Waiter: Send {
    /// Returns whether no caller waits for its answer any longer.
    fn is_cancelled(&self) -> bool;

    /// Tries the request again. Returns true if that happens at once.
    fn resume(self: Box<Self>) -> bool;
}

/// An object with a lock.
pub(crate) trait Lockable: std::fmt::Debug + Send + Sync {
    fn object_lock(&self) -> &ObjectLock;
}

/// The end of the queue at which a request is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// For a request that has waited for this lock before.
    Front,
    Back,
}

/// A lock with a queue of requests.
#[derive(Default)]
pub(crate) struct ObjectLock {
    state: AtomicU8,
    queue: Mutex<VecDeque<Box<dyn Waiter>>>,
}

impl std::fmt::Debug for ObjectLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectLock").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this is dropped"]
pub(crate) struct Guard<'a>(&'a ObjectLock);

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        let before = self.0.state.fetch_and(!(HELD | LONG), Ordering::Release);
        if before & AWAITED != 0 {
            self.0.resume_next();
        }
    }
}

impl ObjectLock {
    /// Takes the lock if it is free. With `is_long` the thread may block.
    #[inline]
    pub(crate) fn try_lock(&self, is_long: bool) -> Option<Guard<'_>> {
        let held = if is_long { HELD | LONG } else { HELD };
        let take = |state: u8| (state & HELD == 0).then_some(state | held);
        match self.state.compare_exchange(0, held, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Guard(self)),
            Err(_) => self
                .state
                .fetch_update(Ordering::Acquire, Ordering::Relaxed, take)
                .is_ok()
                .then(|| Guard(self)),
        }
    }

    /// Takes the lock if it is free or becomes free while this thread spins.
    #[inline]
    pub(crate) fn lock_or_spin(&self, is_long: bool) -> Option<Guard<'_>> {
        self.try_lock(is_long).or_else(|| self.spin_for_lock(is_long))
    }

    #[cold]
    fn spin_for_lock(&self, is_long: bool) -> Option<Guard<'_>> {
        let began = Instant::now();
        for tries in 0_u32.. {
            if self.state.load(Ordering::Relaxed) & LONG != 0 || began.elapsed() > SPIN_TIME {
                break;
            }
            if tries < SPINS {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
            if let Some(guard) = self.try_lock(is_long) {
                return Some(guard);
            }
        }
        None
    }

    /// Puts a request into the queue. Returns it if the lock is free.
    pub(crate) fn enqueue<W: Waiter + 'static>(&self, waiter: Box<W>, end: End) -> Option<Box<W>> {
        let mut queue = self.queue.lock();
        // From now on a thread that releases the lock examines the queue, and waits for the queue's mutex.
        let before = self.state.fetch_or(AWAITED, Ordering::AcqRel);
        if before & HELD == 0 {
            self.clear_if_empty(&queue);
            return Some(waiter);
        }
        match end {
            End::Front => queue.push_front(waiter),
            End::Back => queue.push_back(waiter),
        }
        None
    }

    /// Resumes the first request of the queue, and more until one starts at once. Does nothing while the lock is
    /// held: its holder will do it. To be called whenever a resumed request ends without having taken the lock.
    #[cold]
    pub(crate) fn resume_next(&self) {
        while let Some(waiter) = self.next() {
            if !waiter.is_cancelled() && waiter.resume() {
                return;
            }
        }
    }

    fn next(&self) -> Option<Box<dyn Waiter>> {
        let mut queue = self.queue.lock();
        if self.state.load(Ordering::Acquire) & HELD != 0 {
            return None;
        }
        let next = queue.pop_front();
        self.clear_if_empty(&queue);
        next
    }

    fn clear_if_empty(&self, queue: &VecDeque<Box<dyn Waiter>>) {
        if queue.is_empty() {
            self.state.fetch_and(!AWAITED, Ordering::Relaxed);
        }
    }

    /// Returns the number of requests in the queue.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.queue.lock().len()
    }

    /// Blocks this thread until it has the lock. For threads of the pool that hold only locks of lower addresses.
    pub(crate) fn wait(&self) -> Guard<'_> {
        loop {
            if let Some(guard) = self.lock_or_spin(true) {
                return guard;
            }
            let is_resumed = Arc::new(AtomicBool::new(false));
            let waiter = ThreadWaiter { thread: std::thread::current(), is_resumed: Arc::clone(&is_resumed) };
            if self.enqueue(Box::new(waiter), End::Front).is_none() {
                while !is_resumed.load(Ordering::Acquire) {
                    std::thread::park();
                }
            }
        }
    }
}

/// A thread that waits for a lock.
struct ThreadWaiter {
    thread: Thread,
    is_resumed: Arc<AtomicBool>,
}

impl Waiter for ThreadWaiter {
    fn is_cancelled(&self) -> bool {
        false
    }

    fn resume(self: Box<Self>) -> bool {
        self.is_resumed.store(true, Ordering::Release);
        self.thread.unpark();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The resumed requests, in order.
    type Log = Arc<Mutex<Vec<u32>>>;

    struct Request {
        number: u32,
        is_cancelled: bool,
        starts: bool,
        log: Log,
    }

    impl Waiter for Request {
        fn is_cancelled(&self) -> bool {
            self.is_cancelled
        }

        fn resume(self: Box<Self>) -> bool {
            self.log.lock().push(self.number);
            self.starts
        }
    }

    #[derive(Default)]
    struct Case {
        lock: ObjectLock,
        log: Log,
    }

    impl Case {
        fn enqueue(&self, number: u32, end: End) {
            self.enqueue_as(number, end, |_| ());
        }

        fn enqueue_as(&self, number: u32, end: End, change: impl FnOnce(&mut Request)) {
            let log = Arc::clone(&self.log);
            let mut request = Request { number, is_cancelled: false, starts: true, log };
            change(&mut request);
            assert!(self.lock.enqueue(Box::new(request), end).is_none(), "it is held");
        }

        /// Takes the lock as a resumed request does and releases it. Returns the requests that this resumed.
        fn pass(&self) -> Vec<u32> {
            drop(self.lock.try_lock(true).expect("free"));
            std::mem::take(&mut *self.log.lock())
        }
    }

    #[test]
    fn requests_get_the_lock_in_order_of_arrival() {
        let case = Case::default();
        let held = case.lock.try_lock(true).expect("free");
        assert!(case.lock.try_lock(false).is_none());
        (1..=3).for_each(|number| case.enqueue(number, End::Back));
        case.enqueue(0, End::Front);
        drop(held);
        assert_eq!(*case.log.lock(), [0], "one at a time");
        case.log.lock().clear();
        assert_eq!([case.pass(), case.pass(), case.pass(), case.pass()], [vec![1], vec![2], vec![3], vec![]]);
        assert_eq!(case.lock.state.load(Ordering::Relaxed), 0, "and no request waits");
    }

    #[test]
    fn a_cancelled_request_leaves_the_lock_to_the_next() {
        let case = Case::default();
        let held = case.lock.try_lock(true).expect("free");
        case.enqueue_as(1, End::Back, |request| request.is_cancelled = true);
        case.enqueue(2, End::Back);
        drop(held);
        assert_eq!(*case.log.lock(), [2]);
    }

    #[test]
    fn a_request_that_has_no_thread_yet_lets_the_next_one_go_first() {
        let case = Case::default();
        let held = case.lock.try_lock(true).expect("free");
        case.enqueue_as(1, End::Back, |request| request.starts = false);
        (2..=3).for_each(|number| case.enqueue(number, End::Back));
        drop(held);
        assert_eq!(*case.log.lock(), [1, 2]);
    }

    #[test]
    fn a_resumed_request_that_ends_without_the_lock_resumes_the_next() {
        let case = Case::default();
        let held = case.lock.try_lock(true).expect("free");
        (1..=2).for_each(|number| case.enqueue(number, End::Back));
        drop(held);
        case.lock.resume_next();
        assert_eq!(*case.log.lock(), [1, 2]);
        case.lock.resume_next();
        assert_eq!(case.log.lock().len(), 2, "the queue is empty");
    }

    #[test]
    fn no_request_is_resumed_while_the_lock_is_held_again() {
        let case = Case::default();
        let held = case.lock.try_lock(true).expect("free");
        (1..=2).for_each(|number| case.enqueue(number, End::Back));
        drop(held);
        let in_between = case.lock.try_lock(false).expect("a request in place may come first");
        case.lock.resume_next();
        assert_eq!(*case.log.lock(), [1]);
        case.enqueue(1, End::Front);
        drop(in_between);
        assert_eq!(*case.log.lock(), [1, 1], "at the front");
    }

    #[test]
    fn a_request_does_not_wait_for_a_lock_that_is_free() {
        let case = Case::default();
        let request = Request { number: 1, is_cancelled: false, starts: true, log: Arc::default() };
        assert!(case.lock.enqueue(Box::new(request), End::Back).is_some());
        assert_eq!(case.lock.state.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_exclude_one_another_and_all_proceed() {
        const THREADS: usize = 8;
        const ROUNDS: usize = 2_000;
        let lock = ObjectLock::default();
        let (inside, rounds) = (AtomicBool::new(false), AtomicU8::new(0));
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (lock, inside, rounds) = (&lock, &inside, &rounds);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let is_long = number % 2 == 0;
                        let _guard = lock.lock_or_spin(is_long).unwrap_or_else(|| lock.wait());
                        assert!(!inside.swap(true, Ordering::Relaxed), "one at a time");
                        inside.store(false, Ordering::Relaxed);
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(usize::from(rounds.into_inner()), THREADS);
        assert_eq!(lock.state.into_inner(), 0);
    }
}
