//! Records of NLM hosts: the hosts to notify after a restart (`SM_NOTIFY`), and those that may reclaim.
//!
//! A host gets its record with its first monitored lock, and its reply waits until that is stable. Within the grace period a
//! recorded host may reclaim; NLM has no message that reports the end of reclaims, so the period lasts its full time. A host that
//! reclaimed nothing by then loses that right, but is still notified by later servers.

use core::net::{IpAddr, Ipv6Addr};
use std::collections::HashMap;

use bytes::Bytes;
use xdr::{Decode, Encode};

use super::super::nlm_hosts::{HostName, HostPath};
use super::Recovery;
use crate::state::state_log::key;
use crate::{StateLog, Transport};

/// Maximum number of records of all hosts.
const RECORDS_MAX: usize = 16_384;
/// Bytes of an address in a key. IPv4 addresses are mapped into IPv6.
const ADDRESS_BYTES: usize = 16;

/// The durable record of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
struct HostRecord {
    /// Whether it may no longer reclaim.
    is_lost: bool,
    /// Whether it called over UDP.
    is_udp: bool,
    /// The address of the server that it called.
    local: [u8; ADDRESS_BYTES],
}

#[derive(Debug)]
struct HostEntry {
    record: HostRecord,
    /// Whether the host holds, or held, something of this server.
    is_present: bool,
    /// Whether the host knows of the restart, or does not need to.
    is_notified: bool,
    /// The change that wrote the record.
    change: u64,
}

/// The records of all NLM hosts.
#[derive(Debug, Default)]
pub(super) struct HostRecords {
    by_name: HashMap<HostName, HostEntry>,
    /// The state number of this server's status monitor: odd, and greater after each restart.
    state: i32,
    /// The change that wrote it.
    state_change: u64,
}

impl HostRecords {
    /// Reads the records of the previous server, and writes the new state number.
    pub(super) fn read(entries: &[(Bytes, Bytes)], first_state: i32, log: Option<&dyn StateLog>) -> Self {
        let state = entries.iter().find(|(key, _)| **key == [key::MONITOR_STATE]);
        let state = state.and_then(|(_, value)| xdr::from_bytes::<i32>(value.clone()).ok());
        // XNFS: the number is odd while the host is up. It stays positive, because some monitors take it as unsigned.
        let state = state.map_or(first_state, |last| last.wrapping_add(2)) & i32::MAX | 1;
        let by_name = entries.iter().filter_map(|(key, value)| {
            let record = xdr::from_bytes::<HostRecord>(value.clone()).ok()?;
            Some((parse(key)?, HostEntry { record, is_present: false, is_notified: false, change: 0 }))
        });
        let by_name = by_name.take(RECORDS_MAX).collect();
        let state_change = log.map_or(0, |log| log.set(&[key::MONITOR_STATE], Some(&xdr::to_bytes(&state))));
        Self { by_name, state, state_change }
    }

    /// Returns the number of hosts that may reclaim.
    pub(super) fn awaited(&self) -> usize {
        self.by_name.values().filter(|entry| entry.may_reclaim()).count()
    }

    /// Revokes the right to reclaim of hosts that have reclaimed nothing. Returns the last change, or zero.
    pub(super) fn end_grace(&mut self, log: Option<&dyn StateLog>) -> u64 {
        let Some(log) = log else { return 0 };
        let mut last = 0;
        for (name, entry) in self.by_name.iter_mut().filter(|(_, entry)| entry.may_reclaim()) {
            entry.record.is_lost = true;
            last = log.set(&key_of(name), Some(&xdr::to_bytes(&entry.record)));
        }
        last
    }
}

impl HostEntry {
    /// Returns whether the host was recorded by the previous server, and has not reclaimed anything yet.
    fn may_reclaim(&self) -> bool {
        !self.is_present && !self.record.is_lost
    }
}

impl Recovery {
    /// Returns the state number of this server's status monitor.
    pub(crate) fn monitor_state(&self) -> i32 {
        self.clients.lock().hosts.state
    }

    /// Returns the hosts that the previous server recorded, with their addresses, if there is a log.
    pub(crate) fn hosts_to_notify(&self) -> Vec<(HostName, HostPath)> {
        let clients = self.clients.lock();
        let path = |name: &HostName, record: &HostRecord| HostPath {
            address: name.address,
            local: IpAddr::V6(Ipv6Addr::from(record.local)).to_canonical(),
            transport: if record.is_udp { Transport::Udp } else { Transport::Tcp },
        };
        let waiting =
            clients.hosts.by_name.iter().filter(|(_, entry)| !entry.is_present && !entry.is_notified);
        waiting.map(|(name, entry)| (name.clone(), path(name, &entry.record))).collect()
    }

    /// Returns whether the state number is stable, so that no later server reuses it.
    pub(crate) fn is_monitor_state_stable(&self) -> bool {
        let change = self.clients.lock().hosts.state_change;
        self.log.as_ref().is_none_or(|log| log.stable() >= change)
    }

    /// Returns whether a host may reclaim: the previous server recorded it.
    pub(crate) fn host_may_reclaim(&self, name: &HostName) -> bool {
        let clients = self.clients.lock();
        // A host that has reclaimed something may reclaim more.
        clients.hosts.by_name.get(name).is_some_and(|entry| !entry.record.is_lost)
    }

    /// Returns whether a host may get a lock that needs a record.
    pub(crate) fn has_room_for_host(&self, name: &HostName) -> bool {
        let count = {
            let hosts = &self.clients.lock().hosts.by_name;
            if hosts.contains_key(name) { 0 } else { hosts.len() + 1 }
        };
        count == 0 || (count <= RECORDS_MAX && self.has_room())
    }

    /// Records a host that holds something. Returns the change to wait for before the reply, if there is one.
    pub(crate) fn note_host(&self, name: &HostName, path: HostPath) -> Option<u64> {
        let log = self.log.as_ref()?;
        let mut clients = self.clients.lock();
        let hosts = &mut clients.hosts.by_name;
        let record = HostRecord {
            is_lost: false,
            is_udp: path.transport == Transport::Udp,
            local: match path.local {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            },
        };
        let known = hosts.get(name).filter(|entry| entry.record == record).map(|entry| entry.change);
        let change = known.unwrap_or_else(|| log.set(&key_of(name), Some(&xdr::to_bytes(&record))));
        // A host that holds something of this server knows of the restart, or does not need to.
        let is_notified = hosts.get(name).is_some_and(|entry| entry.is_notified);
        hosts.insert(name.clone(), HostEntry { record, is_present: true, is_notified, change });
        (log.stable() < change).then_some(change)
    }

    /// Removes the record of a host that holds nothing. In the grace period a host that has not reclaimed keeps it.
    pub(crate) fn forget_host(&self, name: &HostName) {
        let mut clients = self.clients.lock();
        if clients.hosts.by_name.get(name).is_some_and(|entry| entry.is_present) {
            clients.hosts.by_name.remove(name);
            self.log.iter().for_each(|log| _ = log.set(&key_of(name), None));
        }
    }

    /// Notes that a host restarted: it reclaims nothing.
    pub(crate) fn host_restarted(&self, name: &HostName) {
        let mut clients = self.clients.lock();
        if clients.hosts.by_name.remove(name).is_some() {
            self.log.iter().for_each(|log| _ = log.set(&key_of(name), None));
        }
    }

    /// Returns the recorded hosts of an address.
    pub(crate) fn recorded_hosts_at(&self, address: IpAddr) -> Vec<HostName> {
        let clients = self.clients.lock();
        clients.hosts.by_name.keys().filter(|name| name.address == address.to_canonical()).cloned().collect()
    }

    /// Notes that a host knows of the restart, or that it is no longer notified.
    pub(crate) fn host_notified(&self, name: &HostName) {
        if let Some(entry) = self.clients.lock().hosts.by_name.get_mut(name) {
            entry.is_notified = true;
        }
    }

    /// Removes the records of notified hosts that can reclaim nothing and hold nothing.
    pub(crate) fn sweep_hosts(&self) {
        let mut clients = self.clients.lock();
        let log = self.log.as_deref();
        clients.hosts.by_name.retain(|name, entry| {
            let is_over = !entry.is_present && entry.record.is_lost && entry.is_notified;
            if is_over && let Some(log) = log {
                log.set(&key_of(name), None);
            }
            !is_over
        });
    }
}

fn key_of(host: &HostName) -> Vec<u8> {
    let address = match host.address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    [&[key::HOST], &address.octets()[..], &host.name].concat()
}

fn parse(key: &Bytes) -> Option<HostName> {
    let (head, rest) = key.split_first()?;
    let (address, name) = rest.split_first_chunk::<ADDRESS_BYTES>()?;
    let address = IpAddr::V6(Ipv6Addr::from(*address)).to_canonical();
    (*head == key::HOST).then(|| HostName { address, name: Bytes::copy_from_slice(name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_host() {
        for address in ["192.0.2.1", "2001:db8::1"] {
            let host = HostName::new(address.parse().unwrap(), b"client");
            assert_eq!(parse(&key_of(&host).into()), Some(host));
        }
        assert_eq!(parse(&Bytes::from_static(b"c")), None);
    }

    #[test]
    fn the_state_number_is_odd_and_grows_with_each_server() {
        let first = HostRecords::read(&[], 1000, None).state;
        assert_eq!(first, 1001);
        let entries = [(Bytes::from_static(&[key::MONITOR_STATE]), xdr::to_bytes(&first))];
        assert_eq!(HostRecords::read(&entries, 5, None).state, 1003);
        let last = [(Bytes::from_static(&[key::MONITOR_STATE]), xdr::to_bytes(&i32::MAX))];
        assert_eq!(HostRecords::read(&last, 5, None).state, 1, "it stays positive");
    }
}
