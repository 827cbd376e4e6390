//! Whose requests come over a connection of version 4.0.
//!
//! Most operations of that version do not say which client they are from (RFC 7530 has no SEQUENCE), and a server that does
//! not know would ask the holder of a write delegation about its own GETATTR, and recall it for its own REMOVE. A client has
//! its connections for itself, though. So each connection remembers who named itself there, by a client ID or a stateid, and
//! what does not say is taken for that client's. Where two did, nobody's word counts for the other: it stays unknown.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::state::Client;

/// The clients of version 4.0 that named themselves on a connection.
#[derive(Debug, Default)]
pub(crate) struct Tenant(Mutex<Known>);

#[derive(Debug, Default)]
enum Known {
    #[default]
    Nobody,
    One(Weak<Client>),
    Several,
}

impl Tenant {
    /// A request here was this client's.
    pub(crate) fn note(&self, client: &Arc<Client>) {
        let mut known = self.0.lock();
        match &*known {
            Known::One(one) if std::ptr::eq(one.as_ptr(), Arc::as_ptr(client)) => {}
            Known::Several => {}
            // A client that restarted has another record, and keeps the connection where it only began anew.
            Known::One(one) if one.upgrade().is_some_and(|one| !one.is_gone()) => *known = Known::Several,
            Known::One(_) | Known::Nobody => *known = Known::One(Arc::downgrade(client)),
        }
    }

    /// Whose requests come here, as far as that is known.
    pub(crate) fn get(&self) -> Option<Arc<Client>> {
        match &*self.0.lock() {
            Known::One(one) => one.upgrade(),
            Known::Nobody | Known::Several => None,
        }
    }
}
