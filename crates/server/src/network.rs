use core::net::IpAddr;
use std::fmt;

/// Addresses that share a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    pub(crate) prefix_bits: u8,
}

impl Network {
    /// Returns whether `address` is in it; an IPv4 address mapped into IPv6 counts as the IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.prefix_bits);
                network.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.prefix_bits);
                network.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }

    /// Returns the address with the bits after the prefix cleared.
    fn base(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_bits)).unwrap_or(0);
                IpAddr::from((address.to_bits() & mask).to_be_bytes())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_bits)).unwrap_or(0);
                IpAddr::from((address.to_bits() & mask).to_be_bytes())
            }
        }
    }

    /// Returns whether it is a single address.
    pub(crate) fn is_one_address(&self) -> bool {
        self.prefix_bits == if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// Returns an address of the network, and the number of bits that all its addresses share.
    pub(crate) fn parts(&self) -> (IpAddr, u8) {
        (self.address, self.prefix_bits)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl std::str::FromStr for Network {
    type Err = String;

    /// Parses an address, or `ADDRESS/PREFIX-LENGTH` without bits after the prefix: such bits could mean a network or a
    /// single address.
    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("expected an IP address or ADDRESS/PREFIX-LENGTH, found `{text}`"))?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => width,
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|bits| *bits <= width)
                .ok_or_else(|| format!("`{prefix}` is not a prefix length of at most {width}"))?,
        };
        let network = Self { address, prefix_bits };
        let base = network.base();
        if base == address {
            Ok(network)
        } else {
            Err(format!(
                "`{text}` has bits behind the prefix: did you mean `{base}/{prefix_bits}`, or `{address}` alone?"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn networks_contain_their_addresses() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(network("10.1.0.0/16").contains(address("10.1.255.3")));
        assert!(!network("10.1.0.0/16").contains(address("10.2.0.0")));
        assert!(network("10.1.2.3").contains(address("10.1.2.3")));
        assert!(network("0.0.0.0/0").contains(address("203.0.113.9")));
        assert!(network("10.1.0.0/16").contains(address("::ffff:10.1.0.1")));
        assert!(network("fd00::/8").contains(address("fd12::1")));
        assert!(network("::/0").contains(address("fe80::1")));
        assert!(!network("::/0").contains(address("10.0.0.1")));
        for wrong in ["10.0.0.0/33", "::/129", "host", "10.0.0.0/x", ""] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_network_has_no_bits_behind_its_prefix() {
        let error = |text: &str| text.parse::<Network>().unwrap_err();
        for (text, meant) in [
            ("10.0.0.5/8", "`10.0.0.0/8`, or `10.0.0.5` alone?"),
            ("10.0.0.1/0", "`0.0.0.0/0`, or `10.0.0.1` alone?"),
            ("192.0.2.129/25", "`192.0.2.128/25`, or `192.0.2.129` alone?"),
            ("fd00::1/8", "`fd00::/8`, or `fd00::1` alone?"),
            ("::1/0", "`::/0`, or `::1` alone?"),
        ] {
            assert_eq!(error(text), format!("`{text}` has bits behind the prefix: did you mean {meant}"));
        }
        for right in ["10.0.0.5/32", "::1/128", "0.0.0.0/0", "::/0", "192.0.2.128/25"] {
            assert_eq!(network(right).to_string(), right);
        }
    }
}
