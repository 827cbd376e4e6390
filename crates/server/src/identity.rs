//! Callers, as an RPC credential authenticates or only names them, and their credentials on an export.

use std::sync::Arc;

use bytes::Bytes;
use rpc::gss::Service;
use vfs::Credentials;

use crate::{ExportOptions, Flavor, Squash};

/// The principal that made a context of RPCSEC_GSS.
#[derive(Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// Its name for display and for the mapping to users, `user@REALM`.
    pub name: String,
    /// Its exported name, which includes the mechanism (RFC 2743 §3.2). It identifies the principal. At most
    /// [`Self::EXPORTED_MAX`] bytes.
    pub exported: Bytes,
    /// A number that no other caller has.
    pub number: u64,
    /// The local user that it maps to, if any.
    pub credentials: Option<Arc<Credentials>>,
}

impl Authenticated {
    /// The greatest length of an exported name in bytes. It is compared instead of a credential.
    pub const EXPORTED_MAX: usize = rpc::auth::MAX_AUTH_BODY;
}

/// The caller by its RPC credential, before squashing.
#[derive(Debug, Clone)]
pub enum Identity {
    /// AUTH_NONE.
    Anonymous,
    /// AUTH_SYS: claimed by the client (RFC 5531 Appendix A).
    System(Arc<Credentials>),
    /// RPCSEC_GSS: authenticated, with the protection of the call.
    Gss(Arc<Authenticated>, Service),
}

impl Identity {
    /// Returns its flavor.
    #[must_use]
    pub fn flavor(&self) -> Flavor {
        match self {
            Self::Anonymous => Flavor::None,
            Self::System(_) => Flavor::Sys,
            Self::Gss(_, service) => Flavor::Kerberos(*service),
        }
    }

    /// Returns a number for the caller, so that another user's request on the same slot is not a retransmission. It is the uid of an AUTH_SYS
    /// user. A principal's number is never a uid, and is the same in every process with one state directory.
    #[must_use]
    pub fn number(&self) -> u64 {
        match self {
            Self::Anonymous => u64::MAX,
            Self::System(credentials) => u64::from(credentials.uid),
            Self::Gss(authenticated, _) => authenticated.number,
        }
    }

    /// Returns its credentials before squashing, if it maps to a user.
    #[must_use]
    pub fn credentials(&self) -> Option<&Arc<Credentials>> {
        match self {
            Self::Anonymous => None,
            Self::System(credentials) => Some(credentials),
            Self::Gss(authenticated, _) => authenticated.credentials.as_ref(),
        }
    }

    /// Returns its credentials on an export (RFC 1813 §4.4: servers commonly map the superuser to an anonymous user).
    #[must_use]
    pub fn on(&self, export: &ExportOptions) -> Arc<Credentials> {
        let anonymous = || Arc::clone(&export.anonymous);
        let Some(credentials) = self.credentials() else { return anonymous() };
        match export.squash {
            Squash::None => Arc::clone(credentials),
            Squash::All => anonymous(),
            Squash::Root if credentials.uid == 0 => anonymous(),
            // Linux's server also removes group 0 from callers that are not root. Otherwise a member of root's
            // group on a client would be a member here.
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

#[cfg(test)]
mod tests {
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
    fn a_principal_is_squashed_like_its_user() {
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
}
