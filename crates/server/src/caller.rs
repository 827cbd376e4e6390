//! Who calls: RPC credentials, squashed as the export says, remembered per connection.

use std::sync::Arc;

use bytes::Bytes;
use vfs::Credentials;

use crate::{ExportOptions, Squash};

/// Who an RPC credential says that the caller is, before squashing.
#[derive(Debug, Clone)]
pub enum Identity {
    /// AUTH_NONE: nobody in particular.
    Anonymous,
    /// AUTH_SYS: the client's word (RFC 5531 Appendix A).
    System(Arc<Credentials>),
}

impl Identity {
    /// Who the caller is on an export (RFC 1813 §4.4: servers commonly map the superuser to an anonymous user).
    #[must_use]
    pub fn on(&self, export: &ExportOptions) -> Arc<Credentials> {
        let anonymous = || {
            let ids = export.anonymous;
            Arc::new(Credentials { uid: ids.uid, gid: ids.gid, groups: Arc::from([]) })
        };
        match self {
            Self::Anonymous => anonymous(),
            Self::System(credentials) => match export.squash {
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
            },
        }
    }
}

/// Credentials of a connection's last calls, by their bytes: a client sends the same ones with nearly every call, and
/// parsing them again would cost two allocations a request.
#[derive(Debug, Default)]
pub struct CallerCache {
    entries: Vec<(Bytes, Identity)>,
    next: usize,
}

impl CallerCache {
    /// Identities remembered a connection; a client multiplexes its users over one.
    const CAPACITY: usize = 8;

    /// The identity for the credential `body`, made by `parse` where it is new.
    ///
    /// # Errors
    /// What `parse` returns; nothing is remembered then.
    pub fn identity<E>(
        &mut self,
        body: &[u8],
        parse: impl FnOnce() -> Result<Identity, E>,
    ) -> Result<Identity, E> {
        if let Some((_, identity)) = self.entries.iter().find(|(known, _)| known == body) {
            return Ok(identity.clone());
        }
        let identity = parse()?;
        // A copy: a slice of the receive buffer would keep the whole buffer.
        let entry = (Bytes::copy_from_slice(body), identity.clone());
        if self.entries.len() < Self::CAPACITY {
            self.entries.push(entry);
        } else {
            self.entries[self.next] = entry;
            self.next = (self.next + 1) % Self::CAPACITY;
        }
        Ok(identity)
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
    fn remembers_a_bounded_number_of_identities() {
        let mut cache = CallerCache::default();
        for round in 0..2 {
            for user in 0..20u8 {
                let parsed = cache.identity::<()>(&[user], || Ok(system(u32::from(user), 1, &[])));
                assert!(
                    matches!(parsed, Ok(Identity::System(c)) if c.uid == u32::from(user)),
                    "round {round}"
                );
            }
        }
        assert_eq!(cache.entries.len(), CallerCache::CAPACITY);
        let known = cache.identity::<()>(&[19], || Err(()));
        assert!(known.is_ok(), "a known credential is not parsed again");
        assert!(cache.identity(&[99], || Err("bad")).is_err());
    }
}
