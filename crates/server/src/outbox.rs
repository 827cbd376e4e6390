//! Calls that the server makes over a client's connection (RFC 8881 §2.10.3.1), and the replies that it waits for.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;

/// Calls on one connection that may wait to be sent or answered. Sessions have lower bounds of their own.
const CALLS_MAX: usize = 1024;

/// Records that leave over a connection besides replies. The core puts them in, the transport takes them out between replies.
/// `C` is the core's record of a call until its reply comes.
#[derive(Debug)]
pub struct Outbox<C> {
    /// Whether it was ever used. The transport does not poll it before.
    is_used: AtomicBool,
    /// The connection is to be closed.
    is_hung_up: AtomicBool,
    inner: Mutex<Inner<C>>,
}

#[derive(Debug)]
struct Inner<C> {
    records: VecDeque<Bytes>,
    /// Calls without a reply yet, by transaction number.
    calls: HashMap<u32, C>,
    next_xid: u32,
    waker: Option<Waker>,
    is_closed: bool,
}

impl<C> Default for Outbox<C> {
    fn default() -> Self {
        Self { is_used: AtomicBool::new(false), is_hung_up: AtomicBool::new(false), inner: Mutex::default() }
    }
}

impl<C> Default for Inner<C> {
    fn default() -> Self {
        let (records, calls) = (VecDeque::new(), HashMap::new());
        Self { records, calls, next_xid: 0, waker: None, is_closed: false }
    }
}

impl<C> Outbox<C> {
    /// Returns the next record to send, without a record mark. Wakes the task that polled last when there is one.
    pub fn poll_record(&self, context: &Context<'_>) -> Poll<Bytes> {
        if !self.is_used.load(Relaxed) {
            return Poll::Pending;
        }
        let mut inner = self.inner.lock();
        match inner.records.pop_front() {
            Some(record) => Poll::Ready(record),
            None => {
                if !inner.waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
                    inner.waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    /// Opens the outbox: from now on the transport polls it with the connection. Returns false if the connection is closed already.
    pub(crate) fn open(&self) -> bool {
        self.is_used.store(true, Relaxed);
        !self.inner.lock().is_closed
    }

    /// Returns whether a record may be a reply to the server.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// Sends the call that `encode` returns for its transaction number. Returns false if the connection is closed or too many calls wait.
    pub(crate) fn call(&self, sent: C, encode: impl FnOnce(u32) -> Bytes) -> bool {
        let mut inner = self.inner.lock();
        if inner.is_closed || inner.calls.len() >= CALLS_MAX {
            return false;
        }
        inner.next_xid = inner.next_xid.wrapping_add(1);
        let xid = inner.next_xid;
        // A number repeats after 2^32 calls.
        inner.calls.insert(xid, sent);
        inner.records.push_back(encode(xid));
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Returns the call that a reply of this number answers, once.
    pub(crate) fn take(&self, xid: u32) -> Option<C> {
        self.inner.lock().calls.remove(&xid)
    }

    /// Closes the outbox with the connection: drops all records and calls.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        *inner = Inner { is_closed: true, next_xid: inner.next_xid, ..Inner::default() };
    }

    /// Asks the transport to close the connection after sending its replies.
    pub(crate) fn hang_up(&self) {
        self.is_hung_up.store(true, Relaxed);
        let waker = self.inner.lock().waker.take();
        self.close();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns whether the connection is to be closed. A task that polled [`Self::poll_record`] is woken when that changes.
    pub fn is_hung_up(&self) -> bool {
        self.is_hung_up.load(Relaxed)
    }

    /// Returns whether a matching call waits for its reply.
    pub(crate) fn awaits(&self, is_meant: impl Fn(&C) -> bool) -> bool {
        self.inner.lock().calls.values().any(is_meant)
    }

    /// Forgets the calls of a session that has left this connection.
    pub(crate) fn forget(&self, is_over: impl Fn(&C) -> bool) {
        self.inner.lock().calls.retain(|_, sent| !is_over(sent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_leave_in_order_and_each_reply_is_taken_once() {
        let outbox = Outbox::<()>::default();
        let context = Context::from_waker(Waker::noop());
        assert!(outbox.open());
        let mut numbers = Vec::new();
        for _ in 0..2 {
            assert!(outbox.call((), |xid| {
                numbers.push(xid);
                Bytes::copy_from_slice(&xid.to_be_bytes())
            }));
        }
        for number in &numbers {
            let Poll::Ready(record) = outbox.poll_record(&context) else { panic!("a record waits") };
            assert_eq!(record[..], number.to_be_bytes());
        }
        assert!(outbox.poll_record(&context).is_pending());
        assert!(outbox.take(numbers[0]).is_some());
        assert!(outbox.take(numbers[0]).is_none(), "answered before");
        outbox.close();
        assert!(outbox.take(numbers[1]).is_none(), "a lost call is not answered");
        assert!(!outbox.call((), |_| Bytes::new()));
        assert!(!outbox.open(), "nothing leaves it any more");
    }

    #[test]
    fn bounds_calls_without_a_reply() {
        let outbox = Outbox::<()>::default();
        let taken = (0..2 * CALLS_MAX).filter(|_| outbox.call((), |_| Bytes::new())).count();
        assert_eq!(taken, CALLS_MAX);
    }
}
