//! Calls to lock managers and status monitors of clients: GRANTED, results of asynchronous calls, and SM_NOTIFY.
//!
//! One call at a time to each address, so that an address that does not answer occupies one of the driver's permits. A call that fails
//! is repeated after a pause that doubles.
//!
//! A GRANTED to an address that has not failed goes first, and always finds a permit that other calls do not use: most hosts that are
//! notified after a restart, or called again, may not be there any more.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use vfs::{LocalLocks, Pin};

use super::file_key::FileKey;
use super::locks::{LockKind, LockRange, OwnerName};
use super::nlm_hosts::{HostName, HostPath, NlmHost};

/// Maximum number of waiting calls of one address. Results of asynchronous calls beyond that are dropped: their clients repeat
/// the calls.
const CALLS_PER_ADDRESS_MAX: usize = 256;
/// Maximum number of addresses with waiting results. GRANTED and SM_NOTIFY are bounded by the tables of waiters and hosts.
const ADDRESSES_MAX: usize = 4096;
/// Maximum number of calls under way, but for GRANTED to addresses that have not failed. The driver makes more: `HOST_CALLS_MAX`.
const OTHERS_MAX: usize = 192;
/// The pause after the first failure.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A lock that was granted to a waiting host, which must be called.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) host: Arc<NlmHost>,
    pub(crate) file: FileKey,
    pub(crate) name: OwnerName,
    pub(crate) range: LockRange,
    pub(crate) kind: LockKind,
    pub(crate) pin: Arc<dyn Pin>,
    /// The file's locks against local processes.
    pub(crate) local: Option<Arc<dyn LocalLocks>>,
    pub(crate) path: HostPath,
    /// The version of NLM, and the encoded arguments of GRANTED.
    pub(crate) version: u32,
    pub(crate) arguments: Bytes,
}

impl Grant {
    /// Returns whether it is for this owner of this file.
    pub(crate) fn is_of(&self, file: FileKey, name: &OwnerName) -> bool {
        self.file == file && self.name == *name
    }
}

/// A call to a client's lock manager or status monitor.
#[derive(Debug, Clone)]
pub(crate) enum CallKind {
    /// A lock was granted.
    Granted(Arc<Grant>),
    /// The result of an asynchronous call: version, procedure and encoded arguments.
    Result(HostPath, (u32, u32), Bytes),
    /// The server has restarted.
    Notify(HostPath, HostName),
}

impl CallKind {
    pub(crate) fn path(&self) -> HostPath {
        match self {
            Self::Granted(grant) => grant.path,
            Self::Result(path, ..) | Self::Notify(path, _) => *path,
        }
    }
}

/// A call for the driver.
#[derive(Debug, Clone)]
pub(crate) struct PendingCall {
    pub(crate) id: u64,
    pub(crate) kind: CallKind,
    /// Whether the host may have received it before.
    pub(crate) was_sent: bool,
}

#[derive(Debug, Default)]
struct Queue {
    calls: VecDeque<PendingCall>,
    in_flight: Option<u64>,
    /// Whether the call under way counts among the others.
    is_other: bool,
    is_ready: bool,
    failures: u32,
    retry_at: Duration,
}

#[derive(Debug, Default)]
struct Queues {
    by_address: BTreeMap<IpAddr, Queue>,
    /// Addresses that may be called now; each once, in one of the two. Those that have not failed, with a GRANTED.
    first: VecDeque<IpAddr>,
    others: VecDeque<IpAddr>,
    /// Number of calls under way to `others`.
    others_in_flight: usize,
    last_id: u64,
}

/// All calls.
#[derive(Debug, Default)]
pub(crate) struct HostCalls(Mutex<Queues>);

impl HostCalls {
    /// Adds a call. `was_sent` counts it as one that the host may have received.
    pub(crate) fn push(&self, kind: CallKind, was_sent: bool) {
        let mut queues = self.0.lock();
        let address = kind.path().address;
        if matches!(kind, CallKind::Result(..)) {
            let waiting = queues.by_address.get(&address).map_or(0, |queue| queue.calls.len());
            if waiting >= CALLS_PER_ADDRESS_MAX || queues.by_address.len() >= ADDRESSES_MAX {
                return;
            }
        }
        queues.last_id += 1;
        let call = PendingCall { id: queues.last_id, kind, was_sent };
        queues.by_address.entry(address).or_default().calls.push_back(call);
        queues.make_ready(address);
    }

    /// Takes the next call.
    pub(crate) fn next(&self) -> Option<PendingCall> {
        let mut queues = self.0.lock();
        while let Some((address, is_other)) = queues.next_address() {
            let Some(queue) = queues.by_address.get_mut(&address) else { continue };
            queue.is_ready = false;
            if let Some(call) = queue.calls.front().cloned() {
                queue.in_flight = Some(call.id);
                queue.is_other = is_other;
                queues.others_in_flight += usize::from(is_other);
                return Some(call);
            }
            queues.by_address.remove(&address);
        }
        None
    }

    /// Ends a call. Returns whether it was still wanted.
    pub(crate) fn succeed(&self, call: &PendingCall) -> bool {
        let mut queues = self.0.lock();
        let address = call.kind.path().address;
        queues.end_call(address);
        let Some(queue) = queues.by_address.get_mut(&address) else { return false };
        queue.failures = 0;
        let before = queue.calls.len();
        queue.calls.retain(|other| other.id != call.id);
        let was_wanted = queue.calls.len() < before;
        queues.make_ready(address);
        was_wanted
    }

    /// Repeats a call later, after the others of its address; results are not repeated. Returns whether it is still wanted, and
    /// when the address is called again.
    pub(crate) fn fail(&self, call: &PendingCall, was_sent: bool, now: Duration) -> (bool, Duration) {
        let mut queues = self.0.lock();
        let address = call.kind.path().address;
        queues.end_call(address);
        let Some(queue) = queues.by_address.get_mut(&address) else { return (false, now) };
        let pause = (PAUSE_MIN * 2u32.saturating_pow(queue.failures)).min(PAUSE_MAX);
        queue.failures = queue.failures.saturating_add(1).min(16);
        queue.retry_at = now + pause;
        let at = queue.calls.iter().position(|other| other.id == call.id);
        let mut found = at.and_then(|at| queue.calls.remove(at));
        let is_wanted = found.is_some();
        if let Some(found) = found.take().filter(|found| !matches!(found.kind, CallKind::Result(..))) {
            queue.calls.push_back(PendingCall { was_sent: found.was_sent || was_sent, ..found });
        }
        let retry_at = queue.retry_at;
        if queue.calls.is_empty() {
            queues.by_address.remove(&address);
        }
        (is_wanted, retry_at)
    }

    /// Removes calls. Returns whether there were any.
    pub(crate) fn withdraw(&self, address: IpAddr, is_over: impl Fn(&CallKind) -> bool) -> bool {
        let mut queues = self.0.lock();
        let Some(queue) = queues.by_address.get_mut(&address) else { return false };
        let before = queue.calls.len();
        queue.calls.retain(|call| !is_over(&call.kind));
        let is_less = queue.calls.len() < before;
        if queue.calls.is_empty() && queue.in_flight.is_none() && !queue.is_ready {
            queues.by_address.remove(&address);
        }
        is_less
    }

    /// Makes the addresses ready whose pause is over. Returns whether any is ready.
    pub(crate) fn retry(&self, now: Duration) -> bool {
        let mut queues = self.0.lock();
        let is_due = |queue: &Queue| queue.failures > 0 && queue.retry_at <= now && !queue.calls.is_empty();
        let due: Vec<IpAddr> = queues
            .by_address
            .iter()
            .filter(|(_, queue)| is_due(queue))
            .map(|(address, _)| *address)
            .collect();
        for address in due {
            queues.by_address.get_mut(&address).into_iter().for_each(|queue| queue.retry_at = Duration::MAX);
            queues.set_ready(address);
        }
        !queues.first.is_empty() || !queues.others.is_empty()
    }

    /// Returns the number of calls that wait or are being made.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().by_address.values().map(|queue| queue.calls.len()).sum()
    }
}

impl Queues {
    /// Queues a call to an address, unless it is in a pause.
    fn make_ready(&mut self, address: IpAddr) {
        match self.by_address.get(&address) {
            Some(queue) if queue.calls.is_empty() => drop(self.by_address.remove(&address)),
            Some(queue) if queue.failures == 0 => self.set_ready(address),
            _ => {}
        }
    }

    fn set_ready(&mut self, address: IpAddr) {
        let Some(queue) = self.by_address.get_mut(&address).filter(|queue| queue.in_flight.is_none()) else {
            return;
        };
        let is_granted = |call: &PendingCall| matches!(call.kind, CallKind::Granted(_));
        let is_first = queue.failures == 0 && queue.calls.iter().any(is_granted);
        match (is_first, std::mem::replace(&mut queue.is_ready, true)) {
            (true, false) => self.first.push_back(address),
            (false, false) => self.others.push_back(address),
            // With another call so far.
            (true, true) if !self.first.contains(&address) => {
                self.others.retain(|other| *other != address);
                self.first.push_back(address);
            }
            (_, true) => {}
        }
    }

    /// Takes the next address to call, and whether it is one of the others.
    fn next_address(&mut self) -> Option<(IpAddr, bool)> {
        if let Some(address) = self.first.pop_front() {
            return Some((address, false));
        }
        let has_room = self.others_in_flight < OTHERS_MAX;
        has_room.then(|| self.others.pop_front()).flatten().map(|address| (address, true))
    }

    /// Notes that the call to an address has ended.
    fn end_call(&mut self, address: IpAddr) {
        let Some(queue) = self.by_address.get_mut(&address) else { return };
        if queue.in_flight.take().is_some() && std::mem::take(&mut queue.is_other) {
            self.others_in_flight -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transport;

    fn result(last: u8) -> CallKind {
        let path = HostPath {
            address: IpAddr::from([192, 0, 2, last]),
            local: IpAddr::from([192, 0, 2, 254]),
            transport: Transport::Udp,
        };
        CallKind::Notify(path, HostName::new(path.address, b"host"))
    }

    fn address(call: &PendingCall) -> IpAddr {
        call.kind.path().address
    }

    #[test]
    fn an_address_that_does_not_answer_is_called_once_at_a_time_and_delays_no_other() {
        let calls = HostCalls::default();
        for last in [1, 1, 2] {
            calls.push(result(last), false);
        }
        let (first, second) = (calls.next().unwrap(), calls.next().unwrap());
        assert_ne!(address(&first), address(&second));
        assert!(calls.next().is_none(), "one call is under way to each");
        let (is_wanted, retry_at) = calls.fail(&first, false, Duration::ZERO);
        assert!(is_wanted);
        assert!(calls.next().is_none(), "it is in its pause");
        assert!(calls.succeed(&second));
        assert!(calls.retry(retry_at));
        let again = calls.next().unwrap();
        assert_ne!(again.id, first.id, "the next call of the address is tried first");
        let (_, later) = calls.fail(&again, false, retry_at);
        assert!(later - retry_at > retry_at, "the pause doubles");
    }

    #[test]
    fn calls_that_are_not_first_are_bounded_and_each_that_ends_makes_room() {
        let calls = HostCalls::default();
        let count = OTHERS_MAX + 50;
        for number in 0..count {
            let address = IpAddr::from([198, 51, (number >> 8) as u8, number as u8]);
            let path = HostPath { address, ..result(1).path() };
            calls.push(CallKind::Notify(path, HostName::new(address, b"host")), false);
        }
        let mut under_way: VecDeque<_> = std::iter::from_fn(|| calls.next()).collect();
        assert_eq!(under_way.len(), OTHERS_MAX);
        for left in (0..50).rev() {
            let ended = under_way.pop_front().unwrap();
            if left % 2 == 0 {
                assert!(calls.succeed(&ended));
            } else {
                assert!(calls.withdraw(address(&ended), |_| true));
                assert!(!calls.fail(&ended, true, Duration::ZERO).0);
            }
            under_way.push_back(calls.next().expect("room for another"));
            assert!(calls.next().is_none());
        }
        for ended in under_way {
            assert!(calls.succeed(&ended));
        }
        assert_eq!((calls.len(), calls.0.lock().others_in_flight), (0, 0));
    }

    #[test]
    fn a_withdrawn_call_is_no_longer_wanted_when_its_outcome_comes() {
        let calls = HostCalls::default();
        calls.push(result(1), false);
        let call = calls.next().unwrap();
        assert!(calls.withdraw(address(&call), |_| true));
        assert!(!calls.succeed(&call));
        assert_eq!(calls.len(), 0);
        calls.push(result(1), false);
        assert!(calls.next().is_some());
    }

    #[test]
    fn results_for_one_address_are_bounded() {
        let calls = HostCalls::default();
        let path = result(1).path();
        for _ in 0..2 * CALLS_PER_ADDRESS_MAX {
            calls.push(CallKind::Result(path, (4, 12), Bytes::new()), false);
        }
        assert_eq!(calls.len(), CALLS_PER_ADDRESS_MAX);
    }
}
