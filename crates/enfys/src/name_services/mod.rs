//! The system's name services: groups of local users, names of hosts, users of Kerberos principals.

pub mod getent;
pub mod hosts;
pub mod id_names;
#[cfg(feature = "krb5")]
pub mod principals;
mod users;

use std::net::IpAddr;
use std::sync::Arc;

use net::{Clock, NameServices, PeerPolicy};
use rustix::process::{getegid, geteuid, getgroups};
use server::{Suppressed, Throttle};
use tracing::warn;

/// Returns the policy for local peers. A server that cannot act as each caller acts with its own user's rights. So it serves
/// only its own user and root, unless `local_users` is set.
pub fn policy(local_users: bool) -> Arc<PeerPolicy> {
    let own = geteuid();
    let only = (!own.is_root() && !local_users).then(|| own.as_raw());
    Arc::new(PeerPolicy::new(Arc::new(SystemNames::default()), only))
}

/// Logs failed lookups, at most once a second: while a name service is down, every connection causes one.
#[derive(Debug)]
struct LookupLog {
    throttle: Throttle,
    clock: Clock,
}

impl Default for LookupLog {
    fn default() -> Self {
        Self { throttle: Throttle::default(), clock: Clock::start() }
    }
}

impl LookupLog {
    /// Calls `log` with the number of suppressed lines, unless there was a line in the same second.
    fn failed(&self, log: impl FnOnce(Suppressed)) {
        if let Some(suppressed) = self.throttle.admit(self.clock.now()) {
            log(suppressed);
        }
    }
}

/// The name services of nsswitch.conf(5).
#[derive(Debug, Default)]
struct SystemNames {
    log: LookupLog,
}

impl NameServices for SystemNames {
    fn groups(&self, uid: u32) -> Vec<u32> {
        let mut groups = users::groups_of(uid, &self.log).unwrap_or_else(|why| {
            self.log.failed(|suppressed| {
                warn!(uid, suppressed, error = why, "cannot look up the groups of a local user")
            });
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
