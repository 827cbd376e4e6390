//! The server of a URL.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

use super::error::UrlError;

/// Maximum number of bytes of a host name (RFC 1035 §2.3.4).
const NAME_MAX: usize = 255;
/// Maximum number of bytes of a scope; Linux's interface names have at most 15.
const SCOPE_MAX: usize = 64;

/// A server: a name, which a caller resolves, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A host name.
    Name(String),
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, and for a link-local one the name or number of the interface.
    V6(Ipv6Addr, Option<String>),
}

impl FromStr for Host {
    type Err = UrlError;

    /// Parses a host without a port; an IPv6 address may be in brackets.
    fn from_str(text: &str) -> Result<Self, UrlError> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = bare {
            return ipv6(address).ok_or_else(|| {
                UrlError::new(format!(
                    "expected an IPv6 address in brackets, as in [fe80::1%25eth0], found `{text}`"
                ))
            });
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::V4(address));
        }
        if let Some(host) = ipv6(text) {
            return Ok(host);
        }
        name(text)
    }
}

/// Parses an IPv6 address with an optional scope, after `%` or `%25`.
fn ipv6(text: &str) -> Option<Host> {
    let Some((address, scope)) = text.split_once('%') else {
        return Some(Host::V6(text.parse().ok()?, None));
    };
    let scope = scope.strip_prefix("25").filter(|rest| !rest.is_empty()).unwrap_or(scope);
    let is_scope_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_scope = !scope.is_empty() && scope.len() <= SCOPE_MAX && scope.bytes().all(is_scope_byte);
    is_scope.then_some(Host::V6(address.parse().ok()?, Some(scope.to_owned())))
}

fn name(text: &str) -> Result<Host, UrlError> {
    if text.is_empty() {
        return Err(UrlError::new("no server: write nfs://HOST/PATH"));
    }
    if text.contains('@') {
        return Err(UrlError::new(format!(
            "no user belongs before the server in `{text}`: give uid= and gid="
        )));
    }
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    // Digits and dots alone are a mistyped address.
    let is_name = text.len() <= NAME_MAX
        && text.bytes().all(is_name_byte)
        && text.bytes().any(|byte| byte.is_ascii_alphabetic());
    if is_name {
        return Ok(Host::Name(text.to_owned()));
    }
    Err(UrlError::new(format!(
        "`{text}` is neither a host name nor an address; IPv6 addresses must be in brackets"
    )))
}

/// Splits `HOST[:PORT]`.
pub(super) fn split_port(authority: &str) -> Result<(Host, Option<u16>), UrlError> {
    // Colons inside brackets belong to the address.
    let after_address = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let Some(colon) = authority[after_address..].find(':').map(|at| after_address + at) else {
        return Ok((authority.parse()?, None));
    };
    let (host, port) = (&authority[..colon], &authority[colon + 1..]);
    if port.contains(':') {
        return Err(UrlError::new(format!("an IPv6 address must be in brackets: nfs://[{authority}]/…")));
    }
    let number = port.parse().ok().filter(|number| *number > 0);
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    match number {
        Some(number) if is_number => Ok((host.parse()?, Some(number))),
        _ => Err(UrlError::new(format!("expected a port from 1 to 65535 after `{host}:`, found `{port}`"))),
    }
}

impl fmt::Display for Host {
    /// Prints the form of URLs, with brackets and an encoded `%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::V4(address) => address.fmt(f),
            Self::V6(address, None) => write!(f, "[{address}]"),
            Self::V6(address, Some(scope)) => write!(f, "[{address}%25{scope}]"),
        }
    }
}
