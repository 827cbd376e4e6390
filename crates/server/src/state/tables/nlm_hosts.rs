//! NLM hosts: clients of versions 2 and 3 that lock files.
//!
//! A host is an address and the name that its calls give. A name is no proof: another machine can use the same one. A
//! host that holds nothing, waits for nothing and is not in use leaves the table; its next LOCK creates it again.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::client::{Client, nanos};
use crate::Transport;

/// Maximum number of hosts.
pub(crate) const HOSTS_MAX: usize = 4096;
/// Maximum number of hosts of one address: machines behind one NAT.
pub(crate) const HOSTS_PER_ADDRESS_MAX: usize = 64;

/// The identity of an NLM host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName {
    /// The address of its calls.
    pub address: IpAddr,
    /// `caller_name`.
    pub name: Bytes,
}

impl HostName {
    /// Returns the name of a caller.
    #[must_use]
    pub fn new(address: IpAddr, name: &[u8]) -> Self {
        Self { address: address.to_canonical(), name: Bytes::copy_from_slice(name) }
    }

    /// Returns whether a status monitor that calls its host `name` may mean this one. Case does not matter, nor does a domain
    /// that only one of them has: lock managers use the node name, and status monitors often a full name.
    pub(crate) fn may_be_called(&self, name: &[u8]) -> bool {
        let node =
            |name: &[u8]| name.split(|byte| *byte == b'.').next().unwrap_or_default().to_ascii_lowercase();
        let is_short = |name: &[u8]| !name.contains(&b'.');
        self.name.eq_ignore_ascii_case(name)
            || (node(&self.name) == node(name) && (is_short(&self.name) || is_short(name)))
    }
}

/// The addresses and transport of a host's calls, for calls back to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPath {
    /// The host's address.
    pub address: IpAddr,
    /// This server's address, from which the host expects calls.
    pub local: IpAddr,
    /// The transport of its calls.
    pub transport: Transport,
}

/// An NLM host.
#[derive(Debug)]
pub struct NlmHost {
    name: HostName,
    /// Represents the host in the tables of locks and in the limits. It never expires.
    pub(crate) client: Arc<Client>,
    path: Mutex<HostPath>,
    /// The time until which it counts as unreachable, in monotonic nanoseconds.
    unreachable_until: AtomicU64,
    /// The state number of its status monitor in its last LOCK.
    state: Mutex<Option<i32>>,
}

impl NlmHost {
    pub(crate) fn new(name: HostName, path: HostPath, client: Arc<Client>, now: Duration) -> Self {
        // A COMPOUND that never ends: the lease never expires.
        client.begin(now);
        Self {
            name,
            client,
            path: Mutex::new(path),
            unreachable_until: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// Returns its number in [`OwnerName`](super::locks::OwnerName).
    pub(crate) fn id(&self) -> u64 {
        self.client.id()
    }

    pub(crate) fn path(&self) -> HostPath {
        *self.path.lock()
    }

    /// Notes the addresses and transport of its last call.
    pub(crate) fn set_path(&self, path: HostPath) {
        *self.path.lock() = path;
    }

    /// Returns whether a GRANTED may reach it.
    pub(crate) fn is_reachable(&self, now: Duration) -> bool {
        nanos(now) >= self.unreachable_until.load(Relaxed)
    }

    pub(crate) fn set_unreachable(&self, until: Duration) {
        self.unreachable_until.store(nanos(until), Relaxed);
    }

    /// Notes that it is reachable: it has called.
    pub(crate) fn set_reachable(&self) {
        self.unreachable_until.store(0, Relaxed);
    }

    /// Notes the state number of its status monitor.
    pub(crate) fn set_state(&self, state: i32) {
        *self.state.lock() = Some(state);
    }

    /// Returns whether it took its locks in this state of its status monitor: a notification of that state is late.
    pub(crate) fn is_of_state(&self, state: i32) -> bool {
        *self.state.lock() == Some(state)
    }
}

/// All hosts.
#[derive(Debug, Default)]
pub(crate) struct NlmHosts(Mutex<BTreeMap<HostName, Arc<NlmHost>>>);

impl NlmHosts {
    /// Returns a host.
    pub(crate) fn get(&self, name: &HostName) -> Option<Arc<NlmHost>> {
        self.0.lock().get(name).cloned()
    }

    /// Returns a host; creates it if there is none. `None` if there are too many. `make` gets the hosts of the same address.
    pub(crate) fn get_or_insert(
        &self,
        name: &HostName,
        make: impl FnOnce(Option<&NlmHost>) -> Option<NlmHost>,
    ) -> Option<Arc<NlmHost>> {
        let mut hosts = self.0.lock();
        if let Some(host) = hosts.get(name) {
            return Some(Arc::clone(host));
        }
        let mut at_address = hosts.values().filter(|host| host.name.address == name.address);
        let neighbor = at_address.next().cloned();
        let is_crowded = neighbor.is_some() && at_address.count() + 1 >= HOSTS_PER_ADDRESS_MAX;
        if is_crowded || hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, host| !is_unused(host));
        }
        let neighbors = hosts.keys().filter(|other| other.address == name.address).count();
        if hosts.len() >= HOSTS_MAX || neighbors >= HOSTS_PER_ADDRESS_MAX {
            return None;
        }
        let host = Arc::new(make(neighbor.as_deref())?);
        hosts.insert(name.clone(), Arc::clone(&host));
        Some(host)
    }

    /// Returns the hosts of an address.
    pub(crate) fn at(&self, address: IpAddr) -> Vec<Arc<NlmHost>> {
        let hosts = self.0.lock();
        hosts.values().filter(|host| host.name.address == address.to_canonical()).cloned().collect()
    }

    /// Removes and returns the hosts that hold nothing.
    pub(crate) fn take_unused(&self) -> Vec<HostName> {
        let mut hosts = self.0.lock();
        let unused: Vec<_> =
            hosts.iter().filter(|(_, host)| is_unused(host)).map(|(name, _)| name.clone()).collect();
        unused.iter().for_each(|name| drop(hosts.remove(name)));
        unused
    }

    /// Returns all hosts.
    pub(crate) fn all(&self) -> Vec<Arc<NlmHost>> {
        self.0.lock().values().cloned().collect()
    }
}

/// Returns whether a host holds nothing and waits for nothing. Calls, waiters and grants keep their host.
fn is_unused(host: &Arc<NlmHost>) -> bool {
    Arc::strong_count(host) == 1 && !host.client.has_state()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &'static str) -> HostName {
        HostName::new(IpAddr::from([192, 0, 2, 1]), name.as_bytes())
    }

    #[test]
    fn a_status_monitor_may_use_the_full_name_of_its_host() {
        assert!(host("alpha").may_be_called(b"alpha.example.com"));
        assert!(host("Alpha.example.com").may_be_called(b"alpha"));
        assert!(host("alpha").may_be_called(b"ALPHA"));
        assert!(!host("alpha.example.com").may_be_called(b"alpha.example.org"));
        assert!(!host("alpha").may_be_called(b"alph"));
        assert!(!host("alpha").may_be_called(b""));
    }
}
