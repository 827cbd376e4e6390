//! Connections: their numbers, their transport protocols, and the hosts at their other ends.

use core::net::{IpAddr, Ipv6Addr};

/// Number of a connection, never used twice while the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// The transport protocol that carries the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP, record-marked.
    Tcp,
    /// UDP: a datagram is a record; replies are at most a datagram long.
    Udp,
}

/// Returns one address for all addresses that a host can choose from, for limits: IPv4 addresses unchanged, also if they are mapped into
/// IPv6, and the first 64 bits of IPv6 addresses. Link-local addresses stay unchanged: all hosts of a link have the same first bits.
#[must_use]
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if address.is_unicast_link_local() => IpAddr::V6(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}
