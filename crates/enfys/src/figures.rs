//! The values of a server that both `enfys status` and the metrics show. Each is described once: its name in the status, its
//! name and kind as a metric, its meaning, and its source.

use serde::{Deserialize, Serialize};
use server::{Counts, DelegationTotals};

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from the server's start.
    Counter,
    /// The current value.
    Gauge,
}

/// One value as a metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// The name, with `_total` for a counter.
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    pub value: u64,
}

/// Defines a struct of values: its fields are the keys in the status, and [`Metric`]s are made of them.
macro_rules! figures {
    (
        $(#[$documentation:meta])*
        struct $Figures:ident from $source:ident: $Source:ty {
            $($field:ident = $value:expr, $kind:ident $name:literal $help:literal;)+
        }
    ) => {
        $(#[$documentation])*
        #[derive(Debug, Serialize, Deserialize)]
        pub struct $Figures {
            $(#[doc = $help] pub $field: u64,)+
        }

        impl $Figures {
            /// Returns the values as metrics.
            pub fn metrics(&self) -> impl Iterator<Item = Metric> {
                [$(Metric { name: $name, kind: Kind::$kind, help: $help, value: self.$field }),+].into_iter()
            }
        }

        impl From<$Source> for $Figures {
            fn from($source: $Source) -> Self {
                Self { $($field: $value),+ }
            }
        }
    };
}

figures! {
    /// Sums over all clients.
    struct Totals from source: (&Counts, u64) {
        clients = source.0.clients,
            Gauge "enfys_clients" "NFSv4 clients with a record at the server.";
        sessions = source.0.sessions,
            Gauge "enfys_sessions" "NFSv4.1 sessions that clients have.";
        persistent_sessions = source.0.persistent_sessions,
            Gauge "enfys_persistent_sessions" "NFSv4.1 sessions whose replies outlive a restart of the server.";
        dead_sessions = source.0.dead_sessions,
            Gauge "enfys_dead_sessions" "Persistent sessions of earlier server instances, kept to answer retransmissions.";
        slots = source.0.slots,
            Gauge "enfys_slots" "NFSv4.1 slots granted to all sessions.";
        slots_in_use = source.0.slots_in_use,
            Gauge "enfys_slots_in_use" "NFSv4.1 slots with a request in progress.";
        slots_full = source.0.slots_full,
            Counter "enfys_slots_full_total" "NFSv4.1 requests that used the last slot that their client may use.";
        slots_deferred = source.0.slots_deferred,
            Counter "enfys_slots_deferred_total" "NFSv4.1 requests answered with DELAY because memory for slots was short.";
        slot_memory_bytes = source.0.slot_cache_bytes,
            Gauge "enfys_slot_cache_bytes" "Memory charged for replies kept in NFSv4.1 slots.";
        opens = source.0.opens,
            Gauge "enfys_opens" "NFSv4 opens held by clients.";
        locks = source.0.locks,
            Gauge "enfys_locks" "Byte-range locks held by clients.";
        locks_waiting = source.0.locks_waiting,
            Gauge "enfys_locks_waiting" "Denied lock requests whose clients wait for the lock.";
        locks_notified = source.0.locks_notified,
            Counter "enfys_lock_notifications_total" "CB_NOTIFY_LOCK callbacks, which tell a client that a lock it waits for may be free.";
        delegations = source.0.delegations,
            Gauge "enfys_delegations" "Delegations held by clients.";
        copies = source.0.copies,
            Gauge "enfys_copies" "Background copies that run, or that ended and whose client has not taken the result.";
        lost = source.0.revoked,
            Gauge "enfys_revoked_states" "Opens and locks that were revoked and whose client has not acknowledged it.";
        replayed = source.1,
            Counter "enfys_replayed_calls_total" "Retransmitted calls answered from a reply cache.";
    }
}

figures! {
    /// Delegations and their recalls since the start.
    struct DelegationFigures from totals: &DelegationTotals {
        recalled = totals.recalls,
            Counter "enfys_delegation_recalls_total" "Delegations that the server recalled because of a conflicting access.";
        returned = totals.returned,
            Counter "enfys_delegation_recalls_answered_total" "Delegations that clients returned after a recall.";
        revoked = totals.revoked,
            Counter "enfys_delegations_revoked_total" "Delegations revoked because the client did not return them in time.";
        operations_waited = totals.waits,
            Counter "enfys_delegation_waits_total" "Operations that waited for a delegation to be returned or for a CB_GETATTR answer.";
        operations_put_off = totals.overdue,
            Counter "enfys_delegation_waits_overdue_total" "Operations that waited for a delegation without success and were answered with DELAY or JUKEBOX.";
    }
}
