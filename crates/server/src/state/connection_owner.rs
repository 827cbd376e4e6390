//! The client of a connection of version 4.0.
//!
//! Most operations of version 4.0 do not name their client (RFC 7530 has no SEQUENCE). A server that does not know the client
//! would ask the holder of a write delegation about its own GETATTR, and recall the delegation for its own REMOVE. Clients do
//! not share connections. So each connection remembers the client that identified itself there by SETCLIENTID, a client ID or a
//! stateid, and attributes other requests to it. If two clients did, requests that name no client stay unattributed.
//!
//! Rejected: attribution within one compound only. Linux's GETATTR, SETATTR and REMOVE name no client, so each holder would be
//! called back for its own requests. The remaining wrong case is a client that shares another's connection and never identifies
//! itself; it cannot hold any state.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::state::Client;

/// The version 4.0 client that identified itself on a connection.
#[derive(Debug, Default)]
pub(crate) struct V40ConnectionOwner(Mutex<Known>);

#[derive(Debug, Default)]
enum Known {
    #[default]
    Nobody,
    /// Its `id` string, which survives a restart of the client, and its record, once it has one.
    One {
        id: Bytes,
        client: Weak<Client>,
    },
    Several,
}

impl Known {
    /// Returns the entry of a client that has no record yet.
    fn to_come(id: &[u8]) -> Self {
        Self::One { id: Bytes::copy_from_slice(id), client: Weak::new() }
    }
}

impl V40ConnectionOwner {
    /// Notes that a client with this `id` string is about to get a record.
    pub(crate) fn announce(&self, id: &[u8]) {
        let mut known = self.0.lock();
        match &*known {
            Known::Nobody => *known = Known::to_come(id),
            // The next client must find this one here.
            Known::One { client, .. } if has_left(client) => *known = Known::to_come(id),
            Known::One { id: one, .. } if **one != *id => *known = Known::Several,
            Known::One { .. } | Known::Several => {}
        }
    }

    /// Notes a request of this client.
    pub(crate) fn note(&self, client: &Arc<Client>) {
        let mut known = self.0.lock();
        match &*known {
            Known::One { client: one, .. } if std::ptr::eq(one.as_ptr(), Arc::as_ptr(client)) => {}
            Known::Several => {}
            // A restarted client has a new record under the same `id`, and keeps the connection.
            Known::One { id, client: one } if id != client.owner() && !has_left(one) => {
                *known = Known::Several
            }
            Known::One { .. } | Known::Nobody => {
                *known = Known::One { id: client.owner().clone(), client: Arc::downgrade(client) };
            }
        }
    }

    /// Returns the connection's client, if known.
    pub(crate) fn get(&self) -> Option<Arc<Client>> {
        match &*self.0.lock() {
            Known::One { client, .. } => client.upgrade(),
            Known::Nobody | Known::Several => None,
        }
    }
}

/// Returns whether the client had a record that was removed.
fn has_left(client: &Weak<Client>) -> bool {
    !client.ptr_eq(&Weak::new()) && client.upgrade().is_none_or(|client| client.is_removed())
}
