//! Counters of the traffic of an engine's calls, by operation.

use std::collections::BTreeMap;
use std::time::Duration;

/// The purpose of a call, by which its traffic is counted.
///
/// A compound of version 4 is counted as its main operation: the last one that does more than pass handles and
/// attributes. The kernel's client counts compounds in the same way (mountstats(8)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Label {
    /// The RPC program; 0 if the call has no label.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure, or the main operation of a compound.
    pub number: u32,
}

/// Counters of the calls with one label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Calls that were sent, each once.
    pub requests: u64,
    /// Retransmissions.
    pub retransmissions: u64,
    /// Calls that were sent and ended without a reply.
    pub failures: u64,
    /// Replies whose status is an error, as far as their callers have reported it ([`Engine::note_error`](super::Engine::note_error)).
    pub errors: u64,
    /// Bytes of all records sent, without record marks.
    pub bytes_sent: u64,
    /// Bytes of all replies, without record marks.
    pub bytes_received: u64,
    /// Sum of the times from the start of a call until it was first sent. Waiting for a slot is before that.
    pub queue_time: Duration,
    /// Sum of the times from the first sending to the reply.
    pub round_trip_time: Duration,
    /// Sum of the times from the start of a call that was sent until its end, with or without a reply.
    pub execute_time: Duration,
}

/// All counters of an engine.
#[derive(Debug, Clone, Default)]
pub(super) struct TrafficTable {
    labels: BTreeMap<Label, Traffic>,
}

/// When a call began and was first sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTimes {
    pub(super) started_at: Duration,
    pub(super) sent_at: Option<Duration>,
}

impl TrafficTable {
    pub(super) fn sent(&mut self, label: Label, times: &mut CallTimes, now: Duration, bytes: usize) {
        let traffic = self.labels.entry(label).or_default();
        traffic.bytes_sent += bytes as u64;
        if times.sent_at.is_some() {
            traffic.retransmissions += 1;
            return;
        }
        times.sent_at = Some(now);
        traffic.requests += 1;
        traffic.queue_time += now.saturating_sub(times.started_at);
    }

    pub(super) fn received(&mut self, label: Label, times: CallTimes, now: Duration, bytes: usize) {
        let traffic = self.labels.entry(label).or_default();
        traffic.bytes_received += bytes as u64;
        traffic.round_trip_time += now.saturating_sub(times.sent_at.unwrap_or(now));
        traffic.execute_time += now.saturating_sub(times.started_at);
    }

    pub(super) fn failed(&mut self, label: Label, times: CallTimes, now: Duration) {
        if times.sent_at.is_some() {
            let traffic = self.labels.entry(label).or_default();
            traffic.failures += 1;
            traffic.execute_time += now.saturating_sub(times.started_at);
        }
    }

    pub(super) fn error(&mut self, label: Label) {
        self.labels.entry(label).or_default().errors += 1;
    }

    pub(super) fn all(&self) -> BTreeMap<Label, Traffic> {
        self.labels.clone()
    }
}
