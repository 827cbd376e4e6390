//! One connection: its queue, its reconnection, and the repetition of its datagrams.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::round_trips::RoundTrips;
use super::traffic::Label;
use super::{Record, wake};

/// The pause before the second attempt to connect; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Number of repetitions of a datagram without which a server that has never answered counts as unreachable, if the policy has no
/// number.
const FIRST_REPETITIONS: u32 = 4;
/// The longest pause between attempts to connect.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A connection of an [`Engine`](super::Engine).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) usize);

impl ConnectionId {
    /// Returns its number, counted from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// An action of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Connect to a port of the server, and report the outcome.
    Connect {
        /// The connection to be made.
        connection: ConnectionId,
        /// The server's port.
        port: u16,
    },
    /// Close the connection, or stop connecting. No report follows.
    Disconnect {
        /// The connection.
        connection: ConnectionId,
    },
    /// Accept connections of the server, and report the address by [`Engine::handle_listening`](super::Engine::handle_listening). A
    /// later action may find that this is done already.
    Listen {
        /// The port; `None`: any.
        port: Option<u16>,
    },
}

/// The reason for a failed connection, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectError {
    /// The reason, for instance "127.0.0.1:2049: Connection refused".
    pub reason: Arc<str>,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// The timeouts of a client for its server (nfs(5): `timeo`, `retrans`, `soft`, `hard`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Time without a reply to a call after which the connection is closed and made again.
    pub timeout: Duration,
    /// Number of successive timeouts or refused connections until calls fail; `None`: forever
    /// (`hard`).
    pub retries: Option<u32>,
    /// Whether the first connection must succeed at once. A later one is governed by `retries`.
    pub fails_fast: bool,
}

impl RetryPolicy {
    /// Returns the time after which a call fails whose server only answers that it must be repeated later (DELAY, JUKEBOX);
    /// `None`: never.
    #[must_use]
    pub fn delay_limit(&self) -> Option<Duration> {
        self.retries.map(|retries| self.timeout.saturating_mul(retries.saturating_add(1)))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { timeout: Duration::from_mins(1), retries: None, fails_fast: true }
    }
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// Not connected, and not needed.
    Idle,
    /// The transport connects.
    Connecting,
    /// Connected.
    Up,
    /// Connects again at this time.
    Waiting { until: Duration },
    /// Ended.
    Closed,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) port: u16,
    policy: RetryPolicy,
    pub(super) link: Link,
    /// Calls to send.
    pub(super) queue: VecDeque<u32>,
    /// Calls without a reply, with the time when each was sent over this stream.
    pub(super) in_flight: BTreeMap<u32, Duration>,
    /// Replies to callbacks; they end with their connection.
    pub(super) replies: VecDeque<Record>,
    pub(super) sender: Option<Waker>,
    /// Number of times that it was connected.
    pub(super) made: u64,
    /// When bytes last arrived.
    pub(super) received_at: Duration,
    /// When it was lost last.
    pub(super) lost_at: Option<Duration>,
    /// Failures since the last reply.
    failures: u32,
    /// Calls without a reply over datagrams; `None` for a stream.
    pub(super) datagrams: Option<RoundTrips>,
    /// Whether a reply has arrived.
    has_answered: bool,
}

impl Connection {
    pub(super) fn new(port: u16, policy: RetryPolicy, datagrams: Option<RoundTrips>) -> Self {
        Self {
            port,
            policy,
            link: Link::Idle,
            queue: VecDeque::new(),
            in_flight: BTreeMap::new(),
            replies: VecDeque::new(),
            sender: None,
            made: 0,
            received_at: Duration::ZERO,
            lost_at: None,
            failures: 0,
            datagrams,
            has_answered: false,
        }
    }

    /// Returns whether another call may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.datagrams.as_ref().is_none_or(RoundTrips::has_room)
    }

    pub(super) fn enqueue_reply(&mut self, record: Record) {
        if matches!(self.link, Link::Up) {
            self.replies.push_back(record);
            wake(&mut self.sender);
        }
    }

    /// Notes a call that was sent, for the `transmissions`th time; returns whether the deadline changes.
    pub(super) fn call_sent(&mut self, xid: u32, label: Label, transmissions: u32, now: Duration) -> bool {
        if let Some(datagrams) = &mut self.datagrams {
            let before = datagrams.deadline();
            datagrams.sent(xid, label, transmissions, now);
            return datagrams.deadline() != before;
        }
        let is_first = self.in_flight.is_empty();
        self.in_flight.insert(xid, now);
        is_first
    }

    pub(super) fn handle_connected(&mut self) {
        if matches!(self.link, Link::Connecting) {
            self.link = Link::Up;
            self.made += 1;
        }
    }

    /// Handles a failed attempt to connect; returns whether its calls must fail.
    pub(super) fn handle_failure(&mut self, now: Duration) -> bool {
        if !matches!(self.link, Link::Connecting) {
            return false;
        }
        self.failures += 1;
        let is_first = self.policy.fails_fast && self.made == 0;
        let gives_up = is_first || self.policy.retries.is_some_and(|retries| self.failures > retries);
        self.link = if gives_up { Link::Idle } else { Link::Waiting { until: now + self.pause() } };
        gives_up
    }

    /// Handles a lost connection; calls have returned to the queue.
    pub(super) fn handle_loss(&mut self, now: Duration) {
        self.lost_at = Some(now);
        self.sender = None;
        self.replies.clear();
        if self.queue.is_empty() {
            // The server has closed an idle connection.
            self.link = Link::Idle;
            return;
        }
        // The first attempt follows at once. A server that accepts and closes at once is contacted at growing intervals.
        let until = if self.failures == 0 { now } else { now + self.pause() };
        self.failures += 1;
        self.link = Link::Waiting { until };
    }

    /// Returns whether another timeout without a reply fails the calls.
    pub(super) fn gives_up_when_silent(&self) -> bool {
        self.policy.retries.is_some_and(|retries| self.failures >= retries)
    }

    /// Handles a reply. An unexpected one has no information about the server.
    pub(super) fn handle_reply(&mut self, xid: u32) {
        if self.in_flight.remove(&xid).is_some() {
            self.failures = 0;
        }
    }

    /// Handles the reply to a call that was sent this often, first at this time.
    pub(super) fn handle_answer(&mut self, xid: u32, label: Label, sent: (u32, Duration), now: Duration) {
        self.has_answered = true;
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.replied(xid, label, sent, now);
            // The window may have room.
            wake(&mut self.sender);
        }
    }

    /// Returns the calls over datagrams that fail now, with a reason if the server has never answered. Others that are late return to
    /// the front of the queue.
    pub(super) fn handle_late(
        &mut self,
        now: Duration,
        repetitions: impl Fn(u32) -> u32,
    ) -> (Vec<u32>, Option<ConnectError>) {
        let (limit, reason) = match self.policy.retries {
            None if self.fails_at_first() => {
                let reason = "the server does not answer".into();
                (Some(FIRST_REPETITIONS), Some(ConnectError { reason }))
            }
            limit => (limit, None),
        };
        let late = self.datagrams.as_mut().map(|datagrams| datagrams.take_late(now, &repetitions));
        let is_failed = |xid: &u32| limit.is_some_and(|limit| repetitions(*xid) >= limit);
        let (failed, again): (Vec<u32>, Vec<u32>) = late.unwrap_or_default().into_iter().partition(is_failed);
        again.into_iter().rev().for_each(|xid| self.queue.push_front(xid));
        wake(&mut self.sender);
        (failed, reason)
    }

    /// Returns whether a call fails without further attempts, because the server has never answered.
    pub(super) fn fails_at_first(&self) -> bool {
        self.policy.fails_fast && !self.has_answered
    }

    /// Forgets all calls.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.in_flight.clear();
        self.datagrams.as_mut().map(RoundTrips::take_all);
    }

    /// Forgets a call for which no task waits.
    pub(super) fn forget(&mut self, xid: u32) {
        self.in_flight.remove(&xid);
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.forget(xid);
            wake(&mut self.sender);
        }
        self.queue.retain(|queued| *queued != xid);
    }

    /// Returns the calls without a reply to the front of the queue, oldest first.
    pub(super) fn requeue(&mut self) {
        let sent = match &mut self.datagrams {
            Some(datagrams) => datagrams.take_all(),
            None => std::mem::take(&mut self.in_flight).into_keys().collect(),
        };
        sent.into_iter().rev().for_each(|xid| self.queue.push_front(xid));
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.link {
            Link::Up if self.datagrams.is_some() => self.datagrams.as_ref()?.deadline(),
            // The lowest transaction ID is the oldest call.
            Link::Up => self.in_flight.values().next().map(|sent_at| *sent_at + self.policy.timeout),
            Link::Waiting { until } => Some(until),
            _ => None,
        }
    }

    fn pause(&self) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(6)).min(PAUSE_MAX)
    }
}
