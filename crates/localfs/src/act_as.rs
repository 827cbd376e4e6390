//! As whom this thread acts.

use vfs::{Context, Result};

use crate::identity;
use crate::volume::{Actor, Volume};

impl Volume {
    /// Prepares this thread for calls on an object whose attributes have been checked already.
    pub(crate) fn act_as(&self, context: &Context) -> Result<()> {
        match self.actor {
            Actor::Callers => identity::become_caller(&context.credentials),
            Actor::Itself { .. } => Ok(()),
        }
    }

    /// Prepares this thread for writing through a descriptor: quotas, reserved space and the clearing of set-user-id
    /// are checked by the user alone.
    pub(crate) fn act_as_writer(&self, context: &Context) -> Result<()> {
        match self.actor {
            Actor::Callers => identity::become_user(context.credentials.uid),
            Actor::Itself { .. } => Ok(()),
        }
    }

    /// Prepares this thread for what only the server may do.
    pub(crate) fn act_as_server(&self) {
        if matches!(self.actor, Actor::Callers) {
            identity::become_server();
        }
    }

    /// Whether the caller is somebody whom the kernel does not judge: another than the server that can only be itself.
    pub(crate) fn is_foreign(&self, context: &Context) -> bool {
        matches!(self.actor, Actor::Itself { uid, .. } if context.credentials.uid != uid)
    }
}
