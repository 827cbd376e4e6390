//! Delegation state that all shards share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;

use super::super::stateid::EntryId;
use super::active_changes::ActiveChanges;
use super::backoff::RecentRecalls;
use super::external_changes::ExternalChanges;
use crate::work_signal::WorkSignal;

/// Counts of events of delegations since the start.
#[derive(Debug, Default)]
pub struct DelegationCounts {
    /// Granted for reading.
    pub granted_read: AtomicU64,
    /// Granted for writing.
    pub granted_write: AtomicU64,
    /// Granted of directories.
    pub granted_directory: AtomicU64,
    /// Changes of directories sent to holders (CB_NOTIFY).
    pub notices: AtomicU64,
    /// Recalled because of a conflict.
    pub recalls: AtomicU64,
    /// Recalled because of a change by a local process; included in `recalls`.
    pub local_changes: AtomicU64,
    /// Returned after a recall.
    pub returned: AtomicU64,
    /// Microseconds from conflict to return, summed over `returned`.
    pub return_micros: AtomicU64,
    /// Microseconds from conflict to return of the slowest one.
    pub slowest_micros: AtomicU64,
    /// Revoked because they were not returned.
    pub revoked: AtomicU64,
    /// Holders of write delegations asked for attributes (CB_GETATTR).
    pub inquiries: AtomicU64,
    /// Operations that waited for a delegation, or for its holder's answer.
    pub waits: AtomicU64,
    /// Operations whose wait took too long.
    pub overdue: AtomicU64,
}

/// Delegation state that all shards share.
#[derive(Debug)]
pub(crate) struct SharedDelegations {
    pub(crate) active_changes: ActiveChanges,
    pub(crate) recent_recalls: RecentRecalls,
    /// Recalled delegations in the order of their recalls, with the time. One that is not returned within a lease time is
    /// revoked.
    pub(crate) recalled: Mutex<VecDeque<(Duration, EntryId)>>,
    /// Delegations whose recall did not reach the client and must be sent again.
    pub(crate) unsent: Mutex<Vec<EntryId>>,
    /// Operations that wait, in all shards.
    pub(crate) waiting: AtomicU64,
    /// Maximum number of delegations of all clients.
    pub(crate) max: usize,
    pub(crate) external_changes: Arc<ExternalChanges>,
    pub(crate) counts: DelegationCounts,
}

impl SharedDelegations {
    pub(crate) fn new(max: usize, work_signal: Arc<WorkSignal>) -> Self {
        Self {
            active_changes: ActiveChanges::default(),
            recent_recalls: RecentRecalls::default(),
            recalled: Mutex::default(),
            unsent: Mutex::default(),
            waiting: AtomicU64::new(0),
            max,
            external_changes: Arc::new(ExternalChanges::new(work_signal)),
            counts: DelegationCounts::default(),
        }
    }

    /// Returns whether delegations are granted at all.
    pub(crate) fn grants_any(&self) -> bool {
        self.max > 0
    }
}
