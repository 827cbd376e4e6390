//! Who calls: RPC credentials, squashed as the export says, remembered per connection.

use std::sync::Arc;

use bytes::Bytes;
use rpc::auth::{AuthStatus, CredentialCache, OpaqueAuth, authenticate};
use rpc::gss::Service;
use vfs::Credentials;

use crate::peer::{ClaimError, PeerOwner};
use crate::{ExportOptions, Flavor, Squash};

/// Who a context of RPCSEC_GSS was made by, proven.
#[derive(Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The principal's name for people and for the mapping to users, `user@REALM`.
    pub name: String,
    /// Its exported name, which says the mechanism too (RFC 2743 §3.2): what principals are told apart by. At most
    /// [`Self::EXPORTED_MAX`] bytes.
    pub exported: Bytes,
    /// A number for it while this server runs, that no other caller has.
    pub number: u64,
    /// The user that it is here; none where it is nobody known.
    pub credentials: Option<Arc<Credentials>>,
}

impl Authenticated {
    /// The greatest length in bytes of an exported name: it stands for the caller where a credential would.
    pub const EXPORTED_MAX: usize = rpc::auth::MAX_AUTH_BODY;
}

/// Who an RPC credential says that the caller is, before squashing.
#[derive(Debug, Clone)]
pub enum Identity {
    /// AUTH_NONE: nobody in particular.
    Anonymous,
    /// AUTH_SYS: the client's word (RFC 5531 Appendix A).
    System(Arc<Credentials>),
    /// RPCSEC_GSS: proven, and how the call is protected.
    Gss(Arc<Authenticated>, Service),
}

impl Identity {
    /// The flavor that it came by.
    #[must_use]
    pub fn flavor(&self) -> Flavor {
        match self {
            Self::Anonymous => Flavor::None,
            Self::System(_) => Flavor::Sys,
            Self::Gss(_, service) => Flavor::Kerberos(*service),
        }
    }

    /// The user that it is before squashing, where it is one.
    #[must_use]
    pub fn credentials(&self) -> Option<&Arc<Credentials>> {
        match self {
            Self::Anonymous => None,
            Self::System(credentials) => Some(credentials),
            Self::Gss(authenticated, _) => authenticated.credentials.as_ref(),
        }
    }

    /// Who the caller is on an export (RFC 1813 §4.4: servers commonly map the superuser to an anonymous user).
    #[must_use]
    pub fn on(&self, export: &ExportOptions) -> Arc<Credentials> {
        let anonymous = || Arc::clone(&export.anonymous);
        let Some(credentials) = self.credentials() else { return anonymous() };
        match export.squash {
            Squash::None => Arc::clone(credentials),
            Squash::All => anonymous(),
            Squash::Root if credentials.uid == 0 => anonymous(),
            // Linux's server also takes group 0 from callers that are not root, or a member of root's group on a
            // client would be one here.
            Squash::Root if credentials.is_in_group(0) => Arc::new(Credentials {
                uid: credentials.uid,
                gid: if credentials.gid == 0 { export.anonymous.gid } else { credentials.gid },
                groups: credentials
                    .groups
                    .iter()
                    .map(|group| if *group == 0 { export.anonymous.gid } else { *group })
                    .collect(),
            }),
            Squash::Root => Arc::clone(credentials),
        }
    }
}

/// Why a credential is nobody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialError {
    /// It cannot be read, or is of a flavor that is not known; see [`authenticate`].
    Invalid(AuthStatus),
    /// The peer may not claim that.
    Claim(ClaimError),
}

impl CredentialError {
    /// The status to reject the call with.
    #[must_use]
    pub fn status(self) -> AuthStatus {
        match self {
            Self::Invalid(status) => status,
            // RFC 5531 §9: AUTH_TOOWEAK, "rejected for security reasons".
            Self::Claim(_) => AuthStatus::TOOWEAK,
        }
    }
}

/// Credentials of a connection's last calls, by their bytes: a client sends the same ones with nearly every call, and
/// parsing them again would cost two allocations a request.
#[derive(Debug, Default)]
pub struct CallerCache {
    entries: Vec<CredentialCache<Identity>>,
    next: usize,
}

impl CallerCache {
    /// Identities remembered a connection; a client multiplexes its users over one.
    const CAPACITY: usize = 8;

    /// Who sends this credential over a connection to `owner`. What was allowed once is allowed: an owner does not change.
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

    fn system(uid: u32, gid: u32, groups: &[u32]) -> Identity {
        Identity::System(Arc::new(Credentials { uid, gid, groups: Arc::from(groups) }))
    }

    fn on(identity: &Identity, squash: Squash) -> (u32, u32, Vec<u32>) {
        let credentials = identity.on(&ExportOptions { squash, ..ExportOptions::default() });
        (credentials.uid, credentials.gid, credentials.groups.to_vec())
    }

    #[test]
    fn squashes_root_all_or_nobody() {
        let root = system(0, 0, &[0, 5]);
        assert_eq!(on(&root, Squash::None), (0, 0, vec![0, 5]));
        assert_eq!(on(&root, Squash::Root), (65_534, 65_534, vec![]));
        let user = system(1000, 0, &[7, 0]);
        assert_eq!(on(&user, Squash::Root), (1000, 65_534, vec![7, 65_534]));
        assert_eq!(on(&user, Squash::All), (65_534, 65_534, vec![]));
        assert_eq!(on(&Identity::Anonymous, Squash::None), (65_534, 65_534, vec![]));
    }

    #[test]
    fn a_principal_is_squashed_like_the_user_that_it_is() {
        let gss = |credentials: Option<Credentials>| {
            let credentials = credentials.map(Arc::new);
            let authenticated =
                Authenticated { name: "a@R".into(), exported: Bytes::new(), number: 1, credentials };
            Identity::Gss(Arc::new(authenticated), Service::Integrity)
        };
        let user = gss(Some(Credentials { uid: 1000, gid: 100, groups: Arc::from([7, 0]) }));
        assert_eq!(on(&user, Squash::Root), (1000, 100, vec![7, 65_534]));
        assert_eq!(on(&user, Squash::All), (65_534, 65_534, vec![]));
        assert_eq!(on(&gss(None), Squash::None), (65_534, 65_534, vec![]));
        assert_eq!(user.flavor(), Flavor::Kerberos(Service::Integrity));
    }

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
    fn remembers_a_bounded_number_of_callers() {
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
    fn forgets_no_refusal_and_remembers_none() {
        let mut cache = CallerCache::default();
        let short = OpaqueAuth { flavor: AuthFlavor::SHORT, body: Opaque::from_static(b"????") };
        assert_eq!(
            cache.identify(&short, &PeerOwner::Remote).unwrap_err().status(),
            AuthStatus::REJECTEDCRED
        );
        assert!(cache.entries.is_empty());
    }
}
