//! Sets the identity with which this thread acts.

use vfs::{Context, Result};

use crate::identity;
use crate::volume::{Actor, Volume};

impl Volume {
    /// Prepares this thread for calls on an object whose permissions have been checked.
    pub(crate) fn act_as(&self, context: &Context) -> Result<()> {
        match self.actor {
            Actor::Callers => identity::become_caller(&context.credentials),
            Actor::Itself { .. } => Ok(()),
        }
    }

    /// Prepares this thread for writing through a descriptor: quotas, reserved space and the clearing of set-user-ID
    /// depend only on the user.
    pub(crate) fn act_as_writer(&self, context: &Context) -> Result<()> {
        match self.actor {
            Actor::Callers => identity::become_user(context.credentials.uid),
            Actor::Itself { .. } => Ok(()),
        }
    }

    /// Prepares this thread for calls that only the server may make.
    pub(crate) fn act_as_server(&self) {
        if matches!(self.actor, Actor::Callers) {
            identity::become_server();
        }
    }

    /// Returns whether the kernel does not check this caller's permissions: the caller is another user than the server, which
    /// can act only as itself.
    pub(crate) fn is_foreign(&self, context: &Context) -> bool {
        matches!(self.actor, Actor::Itself { uid, .. } if context.credentials.uid != uid)
    }
}
