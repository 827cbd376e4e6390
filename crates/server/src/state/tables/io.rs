//! I/O on files, with the permissions of opens and delegations.

use vfs::Authority;

use super::wire::Stateid;

/// The effect of I/O on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    /// READ.
    Read,
    /// WRITE, SETATTR of the size, ALLOCATE, …
    Write,
}

impl IoKind {
    /// Returns the bit of `share_access` that allows it, which is also the bit of `share_deny` that forbids it.
    pub(crate) fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
        }
    }
}

/// A permission for I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoPermit {
    /// [`Authority::Opened`] if an open grants the access; [`Authority::Caller`] if the caller needs permission itself.
    pub authority: Authority,
    /// The user whose open grants the access, as in [`OpenRequest::opener`](crate::state::OpenRequest::opener).
    pub opener: Option<u64>,
    /// The stateid with its present seqid, for the compound's current stateid; special stateids unchanged.
    pub stateid: Stateid,
}

impl IoPermit {
    /// Returns the permission of one user. The users of a client can see each other's stateids, and an open grants
    /// the permission of its opener only.
    #[must_use]
    pub fn for_caller(self, caller: u64) -> Self {
        match self.opener {
            Some(opener) if opener != caller => Self { authority: Authority::Caller, ..self },
            _ => self,
        }
    }
}
