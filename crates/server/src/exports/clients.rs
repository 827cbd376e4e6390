//! Client patterns of exports, as in exports(5), and the host names of addresses.

use core::net::IpAddr;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use glob::Pattern;
use parking_lot::RwLock;

use crate::Network;

/// A pattern of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientPattern {
    /// One host by name, with its addresses when the configuration was read.
    Host(String, Vec<IpAddr>),
    /// A network, or one address.
    Network(Network),
    /// All hosts whose name matches: `*.example.org`, `node[0-9]`. As in exports(5), `*` and `?` match dots too.
    Wildcard(Pattern),
    /// The hosts of a netgroup, as the name services listed them when the configuration was read; a triple without a host
    /// is any host (innetgr(3)).
    Netgroup(String, Vec<Option<String>>),
    /// Every client.
    Everyone,
}

/// How narrow a pattern is; the first has precedence.
///
/// exports(5): "If a client matches more than one of the specifications above, then the first match from the above list order takes
/// precedence - regardless of the order they appear on the export line."
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Host,
    Network,
    Wildcard,
    Netgroup,
    Everyone,
}

impl Rank {
    pub(super) const ALL: [Self; 5] =
        [Self::Host, Self::Network, Self::Wildcard, Self::Netgroup, Self::Everyone];
}

impl ClientPattern {
    pub(super) fn rank(&self) -> Rank {
        match self {
            Self::Host(..) => Rank::Host,
            Self::Network(network) if network.is_one_address() => Rank::Host,
            Self::Network(_) => Rank::Network,
            Self::Wildcard(_) => Rank::Wildcard,
            Self::Netgroup(..) => Rank::Netgroup,
            Self::Everyone => Rank::Everyone,
        }
    }

    /// Returns whether a client matches; `names` holds the names of its address.
    pub(super) fn matches(&self, address: IpAddr, names: &HostNames) -> bool {
        match self {
            Self::Host(_, addresses) => addresses.contains(&address.to_canonical()),
            Self::Network(network) => network.contains(address),
            Self::Wildcard(pattern) => names.has(address, |name| pattern.matches(name)),
            Self::Netgroup(_, hosts) => {
                hosts.contains(&None)
                    || names.has(address, |name| {
                        hosts.iter().flatten().any(|host| host.eq_ignore_ascii_case(name))
                    })
            }
            Self::Everyone => true,
        }
    }

    /// Returns the prefix length of a network; 0 for other patterns.
    pub(super) fn bits(&self) -> u8 {
        if let Self::Network(network) = self { network.prefix_bits } else { 0 }
    }

    /// Returns whether it depends on the client's names.
    pub(super) fn needs_names(&self) -> bool {
        matches!(self, Self::Wildcard(_) | Self::Netgroup(..))
    }
}

impl From<Network> for ClientPattern {
    fn from(network: Network) -> Self {
        Self::Network(network)
    }
}

/// As the configuration writes it.
impl fmt::Display for ClientPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name, _) => f.write_str(name),
            Self::Network(network) => write!(f, "{network}"),
            Self::Wildcard(pattern) => f.write_str(pattern.as_str()),
            Self::Netgroup(name, _) => write!(f, "@{name}"),
            Self::Everyone => f.write_str("*"),
        }
    }
}

/// Host names of clients' addresses, from the driver: [`crate::Server::learn_host`].
#[derive(Debug, Default)]
pub(crate) struct HostNames(RwLock<HashMap<IpAddr, Arc<[String]>>>);

impl HostNames {
    /// Maximum number of addresses with names.
    const HOSTS_MAX: usize = 65_536;

    /// Stores the names of an address. If there is no room, it forgets hosts without names, and all hosts if that does not help: their next
    /// connection brings them back.
    pub(crate) fn learn(&self, address: IpAddr, names: Vec<String>) {
        let (mut hosts, address) = (self.0.write(), address.to_canonical());
        if hosts.len() >= Self::HOSTS_MAX && !hosts.contains_key(&address) {
            hosts.retain(|_, names| !names.is_empty());
            if hosts.len() >= Self::HOSTS_MAX {
                hosts.clear();
            }
        }
        let plain = |name: String| name.trim_end_matches('.').to_ascii_lowercase();
        hosts.insert(address, names.into_iter().map(plain).collect());
    }

    /// Returns whether an address was looked up, even if it has no names.
    pub(crate) fn knows(&self, address: IpAddr) -> bool {
        self.0.read().contains_key(&address.to_canonical())
    }

    fn has(&self, address: IpAddr, is_meant: impl Fn(&str) -> bool) -> bool {
        let hosts = self.0.read();
        hosts.get(&address.to_canonical()).is_some_and(|names| names.iter().any(|name| is_meant(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn patterns_match_addresses_and_names() {
        let names = HostNames::default();
        names.learn(address("10.0.0.7"), vec!["Node7.Lab.example.org.".into(), "n7".into()]);
        let matches = |pattern: &ClientPattern, at: &str| pattern.matches(address(at), &names);
        let wildcard = |text: &str| ClientPattern::Wildcard(Pattern::new(text).unwrap());
        for text in ["*.example.org", "node[0-9].lab.*", "n?", "*"] {
            assert!(matches(&wildcard(text), "10.0.0.7"), "{text}");
            assert!(matches(&wildcard(text), "::ffff:10.0.0.7"), "{text}");
            assert!(!matches(&wildcard(text), "10.0.0.8"), "nothing is known of that one: {text}");
        }
        assert!(!matches(&wildcard("*.example.com"), "10.0.0.7"));
        let group = |hosts: &[Option<&str>]| {
            ClientPattern::Netgroup("lab".into(), hosts.iter().map(|host| host.map(String::from)).collect())
        };
        assert!(matches(&group(&[Some("other"), Some("node7.lab.EXAMPLE.org")]), "10.0.0.7"));
        assert!(!matches(&group(&[Some("other")]), "10.0.0.7"));
        assert!(!matches(&group(&[]), "10.0.0.7"));
        assert!(matches(&group(&[None]), "10.0.0.8"), "a triple without a host is any host");
        let host = ClientPattern::Host("node7".into(), vec![address("10.0.0.7"), address("fd00::7")]);
        assert!(matches(&host, "10.0.0.7") && matches(&host, "fd00::7") && matches(&host, "::ffff:10.0.0.7"));
        assert!(!matches(&host, "10.0.0.8"));
        assert!(matches(&ClientPattern::Everyone, "10.0.0.8"));
    }

    #[test]
    fn a_bounded_number_of_hosts_is_remembered() {
        let names = HostNames::default();
        for number in 0..=HostNames::HOSTS_MAX as u32 {
            names.learn(IpAddr::from(number.to_be_bytes()), vec!["host".into()]);
        }
        assert!(names.0.read().len() <= HostNames::HOSTS_MAX);
    }
}
