//! The system's name services: groups of local users, names of hosts, users of Kerberos principals.

pub mod getent;
pub mod hosts;
pub mod id_names;
#[cfg(feature = "krb5")]
pub mod principals;
mod users;

use std::net::IpAddr;
use std::sync::Arc;

use net::{NameServices, PeerPolicy};
use rustix::process::{getegid, geteuid, getgroups};
use tracing::warn;

/// Returns the policy for local peers. A server that cannot act as each caller acts with its own user's rights. So it serves
/// only its own user and root, unless `local_users` is set.
pub fn policy(local_users: bool) -> Arc<PeerPolicy> {
    let own = geteuid();
    let only = (!own.is_root() && !local_users).then(|| own.as_raw());
    Arc::new(PeerPolicy::new(Arc::new(SystemNames), only))
}

/// The name services of nsswitch.conf(5).
struct SystemNames;

impl NameServices for SystemNames {
    fn groups(&self, uid: u32) -> Vec<u32> {
        let mut groups = users::groups_of(uid).unwrap_or_else(|why| {
            warn!(uid, error = why, "cannot look up the groups of a local user");
            Vec::new()
        });
        if uid == geteuid().as_raw() {
            // In a container, the user may have no account, or one in fewer groups than the process.
            groups.push(getegid().as_raw());
            groups.extend(getgroups().unwrap_or_default().iter().map(|group| group.as_raw()));
        }
        groups
    }

    fn host_names(&self, address: IpAddr) -> Option<Vec<String>> {
        hosts::names_of(address)
    }
}
