//! RPC credentials: parsed, checked against the peer's permitted claims, and remembered per connection.

use std::sync::Arc;

use rpc::auth::{AuthStatus, CredentialCache, OpaqueAuth, authenticate};
use vfs::Credentials;

use crate::identity::Identity;
use crate::peer::{ClaimError, PeerOwner};

/// The reason why a credential is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialError {
    /// It cannot be decoded, or its flavor is unknown; see [`authenticate`].
    Invalid(AuthStatus),
    /// The peer may not claim this identity.
    Claim(ClaimError),
}

impl CredentialError {
    /// Returns the status to reject the call with.
    #[must_use]
    pub fn status(self) -> AuthStatus {
        match self {
            Self::Invalid(status) => status,
            // RFC 5531 §9: AUTH_TOOWEAK, "rejected for security reasons".
            Self::Claim(_) => AuthStatus::TOOWEAK,
        }
    }
}

/// A cache of a connection's credentials, by their bytes. A client sends the same ones with nearly every call, and parsing them costs two
/// allocations.
#[derive(Debug, Default)]
pub struct CallerCache {
    entries: Vec<CredentialCache<Identity>>,
    next: usize,
}

impl CallerCache {
    /// Identities cached per connection; a client multiplexes its users over one.
    const CAPACITY: usize = 8;

    /// Returns the identity of this credential on a connection to `owner`. Allowed claims are cached too: an owner does not change.
    ///
    /// # Errors
    /// See [`CredentialError`].
    pub fn identify(
        &mut self,
        credential: &OpaqueAuth,
        owner: &PeerOwner,
    ) -> Result<Identity, CredentialError> {
        if let Some(identity) = self.entries.iter().find_map(|entry| entry.get(credential)) {
            return Ok(identity.clone());
        }
        let identity = match authenticate(credential).map_err(CredentialError::Invalid)? {
            rpc::auth::Identity::None => Identity::Anonymous,
            rpc::auth::Identity::Sys(sys) => Identity::System(Arc::new(Credentials {
                uid: sys.uid,
                gid: sys.gid,
                groups: sys.gids.iter().copied().collect(),
            })),
        };
        owner.check(&identity).map_err(CredentialError::Claim)?;
        if self.entries.len() < Self::CAPACITY {
            self.entries.push(CredentialCache::default());
        }
        self.entries[self.next].insert(credential, identity.clone());
        self.next = (self.next + 1) % Self::CAPACITY;
        Ok(identity)
    }
}

#[cfg(test)]
mod tests {
    use rpc::auth::{AuthFlavor, AuthSys, GroupList};
    use xdr::Opaque;

    use super::*;

    fn credential(uid: u32) -> OpaqueAuth {
        OpaqueAuth::sys(&AuthSys {
            stamp: 0,
            machine_name: Opaque::from_static(b"client"),
            uid,
            gid: 100,
            gids: GroupList::default(),
        })
    }

    #[test]
    fn caches_a_bounded_number_of_callers() {
        let mut cache = CallerCache::default();
        for round in 0..2 {
            for uid in 0..20 {
                let Ok(Identity::System(caller)) = cache.identify(&credential(uid), &PeerOwner::Remote)
                else {
                    panic!("round {round}")
                };
                assert_eq!((caller.uid, caller.gid), (uid, 100));
            }
        }
        assert_eq!(cache.entries.len(), CallerCache::CAPACITY);
    }

    #[test]
    fn does_not_cache_refused_credentials() {
        let mut cache = CallerCache::default();
        let short = OpaqueAuth { flavor: AuthFlavor::SHORT, body: Opaque::from_static(b"????") };
        assert_eq!(
            cache.identify(&short, &PeerOwner::Remote).unwrap_err().status(),
            AuthStatus::REJECTEDCRED
        );
        assert!(cache.entries.is_empty());
    }
}
