//! Operations on delegations (RFC 8881 §10.4).
//!
//! A delegation guarantees that no other client's operation uses the file before the delegation is recalled. So it is
//! [granted](grant) only if nothing conflicts with it, and to a client that has answered a callback. Every operation that would
//! violate it first [recalls](recall) the delegations that conflict, and waits until they are returned. No delegation of
//! the file may be granted from then until the operation's end:
//! [`ActiveChanges`](super::tables::delegation::active_changes::ActiveChanges) counts such operations by a hash of the file, so
//! that an operation costs a server without delegations two additions.
//!
//! A recalled delegation that is not returned within the lease time is revoked, and nothing else of its client (§10.4.5). A
//! recalled file is shared, so it is not delegated again for a while, and for longer each time
//! ([`RecentRecalls`](super::tables::delegation::backoff::RecentRecalls)).

pub(crate) mod cb_getattr;
pub(crate) mod directory;
pub(crate) mod external_changes;
pub(crate) mod grant;
pub(crate) mod recall;
pub(crate) mod times;
