//! What the name services of this machine say of peers: the groups of its users, and the names of hosts.

use std::net::IpAddr;
use std::sync::Arc;

use net::{NameServices, PeerPolicy};
use rustix::process::{getegid, geteuid, getgroups};
use tracing::warn;

use crate::plan::Plan;
use crate::{hosts, users};

/// The policy that the plan asks for. A server that cannot act as each caller serves its own user and root, unless told to
/// serve others: all that it does, it does by its own user's rights.
pub fn policy(plan: &Plan) -> Arc<PeerPolicy> {
    let own = geteuid();
    let only = (!own.is_root() && !plan.local_users).then(|| own.as_raw());
    if plan.local_users && only.is_none() && !own.is_root() {
        warn!(
            "--local-users without root: files that others create belong to uid {}, so that they can often not write them",
            own.as_raw()
        );
    }
    Arc::new(PeerPolicy::new(Arc::new(SystemNames), only))
}

/// All that nsswitch.conf(5) names.
struct SystemNames;

impl NameServices for SystemNames {
    fn groups(&self, uid: u32) -> Vec<u32> {
        let mut groups = users::groups_of(uid).unwrap_or_else(|why| {
            warn!(uid, "the groups of a local user cannot be found out: {why}");
            Vec::new()
        });
        if uid == geteuid().as_raw() {
            // In a container there may be no account, or one in fewer groups than the process.
            groups.push(getegid().as_raw());
            groups.extend(getgroups().unwrap_or_default().iter().map(|group| group.as_raw()));
        }
        groups
    }

    fn host_names(&self, address: IpAddr) -> Option<Vec<String>> {
        hosts::names_of(address)
    }
}
