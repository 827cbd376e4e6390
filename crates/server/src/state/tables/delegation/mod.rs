//! State of delegations other than the table that lists them (RFC 8881 §10.4).

pub(crate) mod active_changes;
pub(crate) mod backoff;
pub(crate) mod conflict;
pub(crate) mod entry_change;
pub(crate) mod external_changes;
pub(crate) mod getattr;
pub(crate) mod kind;
pub(crate) mod phase;
pub(crate) mod shared;
pub(crate) mod times;
