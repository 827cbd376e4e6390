//! Addresses to listen on, as written in options.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// The forms of an address.
pub const FORMS: &str =
    "PORT, ADDRESS:PORT or HOST:PORT, as in 2049, 0.0.0.0:2049, [::]:2049 or localhost:2049";

/// An address to listen on. A host name is resolved at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: Host,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Ip(IpAddr),
    Name(String),
}

impl Address {
    /// Returns a port of 127.0.0.1.
    pub const fn local(port: u16) -> Self {
        Self { host: Host::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)), port }
    }

    /// Returns the socket addresses; a host name may have several. May query name services.
    ///
    /// # Errors
    /// One line that names the host.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        match &self.host {
            Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, self.port)]),
            Host::Name(name) => {
                let found = (name.as_str(), self.port).to_socket_addrs();
                let found = found.map_err(|error| format!("{self}: no address of `{name}`: {error}"))?;
                // A name service may list an address once for each socket type.
                let mut addresses: Vec<SocketAddr> = Vec::new();
                found.for_each(|address| {
                    if !addresses.contains(&address) {
                        addresses.push(address);
                    }
                });
                Ok(addresses)
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected {FORMS}, found `{text}`");
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self { host: Host::Ip(address.ip()), port: address.port() });
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self::local(text.parse().map_err(|_| wrong())?));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        // Digits and dots alone are a mistyped address.
        let is_name = host.bytes().all(is_name_byte) && host.bytes().any(|byte| byte.is_ascii_alphabetic());
        match port.parse() {
            Ok(port) if is_name => Ok(Self { host: Host::Name(host.to_owned()), port }),
            _ => Err(wrong()),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Address;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(FORMS)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Address, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, port: i64) -> Result<Address, E> {
                port.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_addresses_and_hosts_are_parsed() {
        let shown = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        for (text, expected) in [
            ("2049", "127.0.0.1:2049"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0:2049", "0.0.0.0:2049"),
            ("[::1]:2049", "[::1]:2049"),
            ("localhost:2049", "localhost:2049"),
            ("nfs-1.example.org:2049", "nfs-1.example.org:2049"),
        ] {
            assert_eq!(shown(text), Ok(expected.to_owned()));
        }
    }

    #[test]
    fn errors_name_the_expected_forms() {
        for wrong in [
            "",
            "65536",
            "localhost",
            "127.0.0.1",
            ":2049",
            "10.0.0:2049",
            "::1:2049",
            "h:x",
            "h:70000",
            "a b:1",
        ] {
            let error = wrong.parse::<Address>().unwrap_err();
            assert_eq!(error, format!("expected {FORMS}, found `{wrong}`"));
        }
    }

    #[test]
    fn a_host_name_is_resolved() {
        let address: Address = "localhost:2049".parse().unwrap();
        let found = address.resolve().unwrap();
        assert!(found.iter().all(|found| found.ip().is_loopback() && found.port() == 2049), "{found:?}");
        assert!(!found.is_empty());
        let unknown: Address = "no-such-host.invalid:2049".parse().unwrap();
        assert!(unknown.resolve().unwrap_err().starts_with("no-such-host.invalid:2049: no address of"));
    }
}
