//! Calls to lock managers and status monitors of clients, for the driver.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::state::State;
use crate::state::tables::host_calls::{CallKind, Grant, PendingCall};
use crate::state::tables::nlm_hosts::HostPath;
use crate::state::tables::shard::{Deferred, waiting_host};

/// Time after its start for which the server notifies a host (SM_NOTIFY).
const NOTIFY_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// A host's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostAnswer {
    /// It accepted the call; a GRANTED is confirmed.
    Taken,
    /// It no longer needs the lock.
    Refused,
    /// It cannot answer yet.
    Later,
    /// It did not answer; `was_sent` if it may have received the call.
    None { was_sent: bool },
}

impl State {
    /// Queues the calls that notify the hosts of the previous server.
    pub(crate) fn notify_hosts(&self) {
        for (name, path) in self.recovery.hosts_to_notify() {
            self.host_calls.push(CallKind::Notify(path, name), false);
        }
        self.work_signal.notify();
    }

    /// Queues the result of an asynchronous call: version, procedure and encoded arguments.
    pub(crate) fn send_nlm_result(&self, path: HostPath, procedure: (u32, u32), arguments: Bytes) {
        self.host_calls.push(CallKind::Result(path, procedure, arguments), false);
        self.work_signal.notify();
    }

    /// Queues the GRANTED of a lock that was granted to a waiting host. One that replaced another lock of the owner `is_final`: it is
    /// not released if the host cannot be reached.
    pub(crate) fn send_grant(&self, grant: Arc<Grant>, is_final: bool) {
        self.host_calls.push(CallKind::Granted(grant), is_final);
        self.work_signal.notify();
    }

    /// Takes the next call to make.
    pub(crate) fn next_host_call(&self) -> Option<PendingCall> {
        // A later server must not use the same state number again.
        self.recovery.is_monitor_state_stable().then(|| self.host_calls.next()).flatten()
    }

    /// Returns the transaction number of a call. Only a peer that sees the call can answer it.
    pub(crate) fn host_call_xid(&self, call: &PendingCall) -> u32 {
        self.ids.keyed(!call.id) as u32
    }

    /// Handles the outcome of a call.
    pub(crate) fn host_called(&self, now: Duration, call: &PendingCall, answer: HostAnswer) {
        match (&call.kind, answer) {
            (CallKind::Granted(grant), HostAnswer::Refused) => {
                self.take_back(grant, None, || self.host_calls.succeed(call));
            }
            (CallKind::Granted(grant), HostAnswer::None { was_sent }) => {
                self.grant_unanswered(now, call, grant, was_sent);
            }
            // Clients need not answer the results of messages, and repeat a message whose result is lost.
            (CallKind::Result(..), _) => drop(self.host_calls.succeed(call)),
            (CallKind::Notify(_, name), HostAnswer::Taken | HostAnswer::Refused) => {
                self.host_calls.succeed(call);
                self.recovery.host_notified(name);
            }
            (CallKind::Notify(_, name), _) if now > NOTIFY_KEPT => {
                self.host_calls.succeed(call);
                self.recovery.host_notified(name);
            }
            (CallKind::Granted(_), HostAnswer::Taken) => drop(self.host_calls.succeed(call)),
            (_, HostAnswer::Later | HostAnswer::None { .. }) => {
                self.host_calls.fail(call, true, now);
            }
        }
        self.work_signal.notify();
    }

    /// A GRANTED that the host may have received is repeated until the host answers: it may rely on the lock. One that certainly
    /// did not reach it is released, so that the lock passes to the next waiter; the host keeps waiting.
    fn grant_unanswered(&self, now: Duration, call: &PendingCall, grant: &Arc<Grant>, was_sent: bool) {
        if was_sent || call.was_sent {
            self.host_calls.fail(call, true, now);
            return;
        }
        let (is_wanted, retry_at) = self.host_calls.fail(call, false, now);
        if !is_wanted {
            return;
        }
        grant.host.set_unreachable(retry_at);
        let is_it = |other: &CallKind| matches!(other, CallKind::Granted(other) if Arc::ptr_eq(other, grant));
        self.take_back(grant, Some(now), || self.host_calls.withdraw(grant.path.address, is_it));
    }

    /// Frees a lock that the host did not accept, if `is_wanted` says that its GRANTED was not answered otherwise. Adds the host to the
    /// waiters again if it waits since `waits_since`. The file's shard is locked throughout: a LOCK of the host that comes at the same
    /// time either withdraws the GRANTED, and keeps the lock, or does not find the lock.
    fn take_back(&self, grant: &Arc<Grant>, waits_since: Option<Duration>, is_wanted: impl FnOnce() -> bool) {
        let mut deferred = Deferred::new();
        let mut shard = self.shards[self.shard_of(grant.file)].lock();
        if is_wanted() {
            let (owner, range) = ((grant.file, &grant.name), (grant.range, true));
            let _ = self.nlm_unlock_in(&mut shard, &grant.host, owner, range, &mut deferred);
            if let Some(since) = waits_since {
                shard.join_queue(grant.file, waiting_host(Arc::clone(grant), since), &self.gauges);
                deferred.unlock(grant.file);
            }
        }
        self.unlock_shard(shard, deferred);
    }

    /// Returns the number of calls that wait or are being made.
    pub(crate) fn host_calls(&self) -> usize {
        self.host_calls.len()
    }

    /// Repeats calls whose pause is over.
    pub(crate) fn maintain_host_calls(&self, now: Duration) {
        if self.host_calls.retry(now) {
            self.work_signal.notify();
        }
    }
}
