//! The owner of the socket at the other end of a connection, and the callers that it may claim to be.
//!
//! An AUTH_SYS credential is a claim of the peer (RFC 5531 §14: it "can be easily faked"). For a peer on another machine only its source
//! port shows whether that machine's superuser vouches for the claim. For a peer on this machine the kernel knows the owner of the socket,
//! which may claim to be only that user.

use std::fmt;
use std::sync::Arc;

use crate::identity::Identity;

/// Only a machine's superuser may send from ports below this one.
pub const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// The owner of the socket at the other end of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PeerOwner {
    /// Another machine. May claim any user from a port below 1024, or from any port if the export is `insecure`.
    #[default]
    Remote,
    /// This machine's superuser. May claim any user, as a kernel client must.
    Superuser,
    /// An ordinary user of this machine. May claim itself, with its own groups, or AUTH_NONE.
    User(Arc<LocalUser>),
    /// An ordinary user of this machine that this server does not serve. May claim no user.
    NotServed(u32),
    /// A peer on this machine whose owner is unknown to the kernel. May claim no user.
    Unknown,
    /// The peer of a callback connection that this server made. May claim no user: it sends no calls.
    Callback,
}

/// An ordinary user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalUser {
    /// User id, never 0.
    pub uid: u32,
    /// Group ids of the account, primary and supplementary.
    pub groups: Vec<u32>,
}

/// Why a peer may not claim to be a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimError {
    /// The socket belongs to another user.
    OtherUser {
        /// The owner of the socket.
        owner: u32,
        /// The user that the call claims.
        claimed: u32,
    },
    /// The user is not in the group.
    OtherGroup {
        /// The owner of the socket.
        owner: u32,
        /// The group that the account is not in.
        group: u32,
    },
    /// The user has no account here, so that its groups are unknown.
    NoAccount {
        /// The owner of the socket.
        owner: u32,
    },
    /// The server serves its own user and root only.
    NotServed {
        /// The owner of the socket.
        owner: u32,
    },
    /// The kernel does not know the owner of the socket.
    Unknown,
    /// Calls came over a connection that the server made for callbacks.
    Callback,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherUser { owner, claimed } => {
                write!(f, "a local process of uid {owner} may not claim uid {claimed} by AUTH_SYS")
            }
            Self::OtherGroup { owner, group } => {
                write!(
                    f,
                    "a local process of uid {owner} may not claim gid {group}: the account is not in that group"
                )
            }
            Self::NoAccount { owner } => write!(
                f,
                "uid {owner} has no account on this machine, so that its groups cannot be checked: give it one, or have root's processes call"
            ),
            Self::NotServed { owner } => write!(
                f,
                "uid {owner} is not served: an unprivileged server serves its own user and root only, \
                 unless --local-users (local-users = true) is given"
            ),
            Self::Unknown => f.write_str("the owner of this local socket is not known"),
            Self::Callback => f.write_str("no calls are taken over a connection for callbacks"),
        }
    }
}

impl PeerOwner {
    /// Checks that the peer may claim to be `identity`. Callers that Kerberos has authenticated are not claims of the peer.
    ///
    /// # Errors
    /// Why it may not. The call is rejected as AUTH_TOOWEAK.
    pub fn check(&self, identity: &Identity) -> Result<(), ClaimError> {
        let claimed = match identity {
            Identity::Gss(..) => return Ok(()),
            Identity::System(credentials) => Some(credentials),
            Identity::Anonymous => None,
        };
        match self {
            Self::Remote | Self::Superuser => Ok(()),
            Self::User(user) => claimed.map_or(Ok(()), |claimed| user.check(claimed)),
            Self::NotServed(owner) => Err(ClaimError::NotServed { owner: *owner }),
            Self::Unknown => Err(ClaimError::Unknown),
            Self::Callback => Err(ClaimError::Callback),
        }
    }
}

impl LocalUser {
    fn check(&self, claimed: &vfs::Credentials) -> Result<(), ClaimError> {
        let owner = self.uid;
        if claimed.uid != owner {
            return Err(ClaimError::OtherUser { owner, claimed: claimed.uid });
        }
        let groups = std::iter::once(&claimed.gid).chain(claimed.groups.iter());
        match groups.into_iter().find(|group| !self.groups.contains(group)) {
            Some(_) if self.groups.is_empty() => Err(ClaimError::NoAccount { owner }),
            Some(group) => Err(ClaimError::OtherGroup { owner, group: *group }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod claims;
#[cfg(test)]
mod tests;
