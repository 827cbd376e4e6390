//! Work that the server requests from its driver, and its limits.

use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;

use crate::Fetch;
use crate::programs::nlm::callback;
use crate::state::{ConnectRequest, ExternalChange, HostPath, Offload, PendingCall};
use crate::work_signal::WorkSignal;

/// Connections to clients that the driver makes at once.
const CONNECTS_MAX: usize = 64;
/// Calls to lock managers and status monitors of clients that the driver makes at once, each to another address. Most of them may be to
/// addresses that do not answer.
const HOST_CALLS_MAX: usize = 256;
/// Copies within this server that make a step at once. Each step takes a thread of the backend. Copies from other servers mostly
/// wait for them and do not count.
const COPY_STEPS_MAX: usize = 8;
/// Kinds of [`Work`].
pub(crate) const KINDS: usize = 5;

/// Work that the server requests from its driver.
#[derive(Debug)]
pub enum Work {
    /// Connect to a client's callback address. Ends with [`Server::handle_connected`] or [`Server::handle_connect_failed`].
    Connect(Connect),
    /// Read from another server, as its client. Ends with [`Server::handle_read`], or with [`Fetch::poll_unwanted`].
    Read(Fetch),
    /// Run a step of a background copy: [`Server::step_copy`].
    StepCopy(CopyStep),
    /// Call the lock manager or the status monitor of a client. Ends with [`Server::handle_host_answer`].
    CallHost(HostCall),
    /// Report a change that a local process made to a delegated object: [`Server::handle_external_change`].
    ExternalChange(ExternalChange),
}

/// A request to connect to a client of version 4.0.
#[derive(Debug)]
pub struct Connect {
    pub(crate) request: ConnectRequest,
    pub(crate) _permit: Permit,
}

impl Connect {
    /// Returns the address to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.request.address
    }
}

/// A call to the lock manager or the status monitor of a client.
#[derive(Debug)]
pub struct HostCall {
    pub(crate) call: PendingCall,
    pub(crate) record: Bytes,
    pub(crate) _permit: Permit,
}

/// The outcome of a [`HostCall`].
#[derive(Debug, Clone)]
pub enum HostAnswer {
    /// A reply: the whole RPC message.
    Reply(Bytes),
    /// The host may have received the call, and did not answer.
    Unanswered,
    /// The host has not received the call: its port is not known, or it did not take a connection.
    Unreachable,
}

impl HostCall {
    /// Returns the address to call, the address to call from, and the transport.
    #[must_use]
    pub fn path(&self) -> HostPath {
        self.call.kind.path()
    }

    /// Returns the program and the version to request from the port mapper of the host.
    #[must_use]
    pub fn program(&self) -> (u32, u32) {
        callback::program(&self.call)
    }

    /// Returns the RPC message. A reply has the same first four bytes.
    #[must_use]
    pub fn record(&self) -> &Bytes {
        &self.record
    }

    /// Returns whether the host answers. Otherwise the call ends when it is sent, with [`HostAnswer::Unanswered`].
    #[must_use]
    pub fn is_answered(&self) -> bool {
        callback::is_answered(&self.call)
    }
}

/// The next step of a background copy.
#[derive(Debug)]
pub struct CopyStep {
    pub(crate) copy: Arc<Offload>,
    /// Absent for copies from other servers.
    pub(crate) _permit: Option<Permit>,
}

/// The server's state about its driver.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) signal: Arc<WorkSignal>,
    pub(crate) connects: Arc<Limit>,
    pub(crate) copy_steps: Arc<Limit>,
    pub(crate) host_calls: Arc<Limit>,
    /// Polls so far: each begins with another kind of work.
    pub(crate) polls: AtomicUsize,
}

impl Default for Driver {
    fn default() -> Self {
        let signal = Arc::new(WorkSignal::default());
        let limit = |max| Arc::new(Limit { max, taken: AtomicUsize::new(0), signal: Arc::clone(&signal) });
        Self {
            connects: limit(CONNECTS_MAX),
            copy_steps: limit(COPY_STEPS_MAX),
            host_calls: limit(HOST_CALLS_MAX),
            polls: AtomicUsize::new(0),
            signal,
        }
    }
}

/// Bounds how much work of one kind the driver has at once.
#[derive(Debug)]
pub(crate) struct Limit {
    max: usize,
    taken: AtomicUsize,
    /// Notified when a permit is returned.
    signal: Arc<WorkSignal>,
}

/// One unit of a [`Limit`], returned when dropped.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Limit>);

impl Limit {
    pub(crate) fn has_room(&self) -> bool {
        self.taken.load(Relaxed) < self.max
    }

    pub(crate) fn take(self: &Arc<Self>) -> Permit {
        self.taken.fetch_add(1, Relaxed);
        Permit(Arc::clone(self))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Relaxed);
        self.0.signal.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_returns_permits_and_notifies() {
        use std::task::{Wake, Waker};

        #[derive(Default)]
        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Relaxed);
            }
        }

        let driver = Driver::default();
        let permits: Vec<_> = (0..COPY_STEPS_MAX).map(|_| driver.copy_steps.take()).collect();
        assert!(!driver.copy_steps.has_room());
        let count = Arc::new(Count::default());
        driver.signal.register(&Waker::from(Arc::clone(&count)));
        drop(permits);
        assert_eq!(count.0.load(Relaxed), 1, "once until the driver polls again");
        assert!(driver.copy_steps.has_room());
    }
}
