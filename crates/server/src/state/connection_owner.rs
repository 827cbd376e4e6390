//! Whose requests come over a connection of version 4.0.
//!
//! Most operations of that version do not say which client they are from (RFC 7530 has no SEQUENCE), and a server that does
//! not know would ask the holder of a write delegation about its own GETATTR, and recall it for its own REMOVE. A client has
//! its connections for itself, though. So each connection remembers who named itself there, by SETCLIENTID, a client ID or a
//! stateid, and what does not say is taken for that client's. Where two did, nobody's word counts for the other: it stays
//! unknown.
//!
//! Rejected: to know nobody but within a compound that names its client. Linux's GETATTR, SETATTR and REMOVE name none, so that
//! each holder would be called back for its own. What is left is somebody who shares a client's connection and never says who
//! he is; whoever wants to hold anything says so first of all.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::state::Client;

/// The clients of version 4.0 that named themselves on a connection.
#[derive(Debug, Default)]
pub(crate) struct V40ConnectionOwner(Mutex<Known>);

#[derive(Debug, Default)]
enum Known {
    #[default]
    Nobody,
    /// By its `id` string, which stays the same when it restarts, and its record, once there is one.
    One {
        id: Bytes,
        client: Weak<Client>,
    },
    Several,
}

impl Known {
    /// A client that has no record yet.
    fn to_come(id: &[u8]) -> Self {
        Self::One { id: Bytes::copy_from_slice(id), client: Weak::new() }
    }
}

impl V40ConnectionOwner {
    /// A client with this `id` string will have a record.
    pub(crate) fn announce(&self, id: &[u8]) {
        let mut known = self.0.lock();
        match &*known {
            Known::Nobody => *known = Known::to_come(id),
            // Whoever comes next must find this one here.
            Known::One { client, .. } if has_left(client) => *known = Known::to_come(id),
            Known::One { id: one, .. } if **one != *id => *known = Known::Several,
            Known::One { .. } | Known::Several => {}
        }
    }

    /// A request here was this client's.
    pub(crate) fn note(&self, client: &Arc<Client>) {
        let mut known = self.0.lock();
        match &*known {
            Known::One { client: one, .. } if std::ptr::eq(one.as_ptr(), Arc::as_ptr(client)) => {}
            Known::Several => {}
            // A client that restarted has another record, and keeps the connection where it only began anew.
            Known::One { id, client: one } if id != client.owner() && !has_left(one) => {
                *known = Known::Several
            }
            Known::One { .. } | Known::Nobody => {
                *known = Known::One { id: client.owner().clone(), client: Arc::downgrade(client) };
            }
        }
    }

    /// Whose requests come here, as far as that is known.
    pub(crate) fn get(&self) -> Option<Arc<Client>> {
        match &*self.0.lock() {
            Known::One { client, .. } => client.upgrade(),
            Known::Nobody | Known::Several => None,
        }
    }
}

/// Whether there was a record, and it is gone; one that is still to come has not left.
fn has_left(client: &Weak<Client>) -> bool {
    !client.ptr_eq(&Weak::new()) && client.upgrade().is_none_or(|client| client.is_removed())
}
