//! Universal addresses (RFC 5665 §5.2.3) and their network identifiers (§5.1).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::fmt;
use std::str::FromStr;

/// The maximum length in bytes: an IPv6 address that ends in an IPv4 address (45), and two octets with dots (8).
pub const MAX_UNIVERSAL_ADDRESS: usize = 53;

/// An IP address and a port in the text form of RFC 5665 §5.2.3.3 and §5.2.3.4: the address, then each octet of the port in
/// decimal after a dot.
///
/// ```
/// let address: rpc::address::UniversalAddress = "192.0.2.7.203.81".parse().unwrap();
/// assert_eq!(address.0.port(), 52049);
/// assert_eq!(address.to_string(), "192.0.2.7.203.81");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniversalAddress(pub SocketAddr);

impl fmt::Display for UniversalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [high, low] = self.0.port().to_be_bytes();
        write!(f, "{}.{high}.{low}", self.0.ip())
    }
}

/// The text is not a universal address of TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidUniversalAddress;

impl fmt::Display for InvalidUniversalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a universal address (h1.h2.h3.h4.p1.p2 or x1:…:x8.p1.p2)")
    }
}

impl std::error::Error for InvalidUniversalAddress {}

impl FromStr for UniversalAddress {
    type Err = InvalidUniversalAddress;

    fn from_str(text: &str) -> Result<Self, InvalidUniversalAddress> {
        let parse = || {
            let mut parts = text.rsplitn(3, '.');
            let (low, high, host) = (parts.next()?, parts.next()?, parts.next()?);
            let port = u16::from_be_bytes([octet(high)?, octet(low)?]);
            Some(Self(SocketAddr::new(host.parse::<IpAddr>().ok()?, port)))
        };
        parse().ok_or(InvalidUniversalAddress)
    }
}

impl UniversalAddress {
    /// Parses the bytes of an XDR string.
    ///
    /// # Errors
    /// [`InvalidUniversalAddress`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidUniversalAddress> {
        std::str::from_utf8(bytes).map_err(|_| InvalidUniversalAddress)?.parse()
    }
}

/// Parses an octet of decimal digits only; `u8::from_str` also accepts a sign.
fn octet(text: &str) -> Option<u8> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A transport with a network identifier (RFC 5665 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NetId {
    /// TCP over IPv4.
    Tcp,
    /// UDP over IPv4.
    Udp,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv6.
    Udp6,
}

impl NetId {
    /// All transports.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Udp, Self::Tcp6, Self::Udp6];

    /// Returns the identifier on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Tcp6 => "tcp6",
            Self::Udp6 => "udp6",
        }
    }

    /// Returns the transport with this identifier; `None` for those that are not supported (`rdma`, `ticlts`, …).
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|id| id.as_str().as_bytes() == bytes)
    }

    /// Returns TCP for the family of `address`.
    #[must_use]
    pub const fn tcp(address: &SocketAddr) -> Self {
        if address.is_ipv4() { Self::Tcp } else { Self::Tcp6 }
    }

    /// Returns UDP for the family of `address`.
    #[must_use]
    pub const fn udp(address: &SocketAddr) -> Self {
        if address.is_ipv4() { Self::Udp } else { Self::Udp6 }
    }

    /// Returns whether this is TCP over IPv4 or IPv6.
    #[must_use]
    pub const fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Tcp6)
    }

    /// Returns whether this runs over IPv6.
    #[must_use]
    pub const fn is_ipv6(self) -> bool {
        matches!(self, Self::Tcp6 | Self::Udp6)
    }

    /// Returns the wildcard address of the transport's family with `port`, which a service on all addresses registers.
    #[must_use]
    pub const fn any(self, port: u16) -> UniversalAddress {
        let ip = match self.is_ipv6() {
            true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        UniversalAddress(SocketAddr::new(ip, port))
    }
}

impl fmt::Display for NetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
