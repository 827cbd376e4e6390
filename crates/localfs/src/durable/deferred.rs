//! Changes that become durable together with others of their request.

use std::sync::Arc;

use vfs::{Peer, Thread};

use crate::object::Object;
use crate::sync_state::{ChangeId, Extent};

/// A change that a request waits for at its end.
#[derive(Debug)]
pub(crate) enum Deferred {
    /// A change of an object, and how much of it must be durable.
    Change { object: Arc<Object>, change: ChangeId, extent: Extent },
    /// Records of the index of handles.
    Index,
}

/// The thread and the peer that need a sync.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// The permitted uses of the calling thread.
    pub(super) thread: Thread,
    pub(super) peer: Peer,
}
