//! Names of clients: hosts, wildcards and netgroups of a configuration, and the names that an address has.

use std::net::{IpAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use glob::Pattern;
use server::ClientPattern;
use store::error_text;
use tracing::{debug, warn};

use crate::getent;

/// Bytes of an answer about a host, and of a netgroup's hosts, that are read at most.
const HOST_BYTES_MAX: usize = 64 << 10;
const NETGROUP_BYTES_MAX: usize = 1 << 20;
/// Names of one address that are checked at most, and after how long no further one is: a client's connection waits for it.
const NAMES_MAX: usize = 4;
const NAMES_PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of a host's name at most (RFC 1123 §2.1).
const NAME_MAX: usize = 255;

/// What `clients` of an export may have.
pub const FORMS: &str = "an address, a network (10.0.0.0/8), a host name, a wildcard (*.example.org), \
                         a netgroup (@workstations), or * for everybody";

/// Reads one of an export's `clients`. Host names and netgroups are looked up here: what they stand for is as of now.
///
/// # Errors
/// What is wrong with it. A host or netgroup that the name services do not know is none: it lets nobody in, which is logged.
pub fn pattern(text: &str) -> Result<ClientPattern, String> {
    if text == "*" {
        return Ok(ClientPattern::Everyone);
    }
    if let Some(group) = text.strip_prefix('@') {
        return netgroup(group);
    }
    // What begins like an address is meant as one.
    if text.contains(['/', ':']) || text.parse::<IpAddr>().is_ok() {
        return text.parse().map(ClientPattern::Network);
    }
    if !is_name(text) {
        return Err(format!("expected {FORMS}, found `{text}`"));
    }
    if text.contains(['*', '?', '[']) {
        let wildcard = Pattern::new(&text.to_ascii_lowercase());
        return wildcard.map(ClientPattern::Wildcard).map_err(|error| format!("`{text}`: {error}"));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("`{text}` is neither an IP address nor a host name: expected {FORMS}"));
    }
    Ok(ClientPattern::Host(text.to_owned(), addresses_of(text)))
}

/// Whether all characters may be in a host's name or a wildcard.
fn is_name(text: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b".-_*?[]!".contains(&byte);
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(may_be)
}

fn addresses_of(host: &str) -> Vec<IpAddr> {
    match (host, 0).to_socket_addrs() {
        Ok(addresses) => addresses.map(|address| address.ip().to_canonical()).collect(),
        Err(error) => {
            let error = error_text(&error);
            warn!(
                host,
                error, "host name in `clients` not found; it matches no client until a reload (SIGHUP)"
            );
            Vec::new()
        }
    }
}

fn netgroup(group: &str) -> Result<ClientPattern, String> {
    if !is_name(group) {
        return Err(format!("`@{group}` names no netgroup"));
    }
    let listed = getent::print("netgroup", Some(group), NETGROUP_BYTES_MAX);
    let hosts = match listed {
        Ok(Some(line)) => hosts_of(&line),
        Ok(None) => {
            warn!(
                netgroup = group,
                "netgroup in `clients` not found; it matches no client until a reload (SIGHUP)"
            );
            Vec::new()
        }
        Err(why) => {
            warn!(
                netgroup = group,
                error = why,
                "netgroup in `clients` cannot be read; it matches no client until a reload (SIGHUP)"
            );
            Vec::new()
        }
    };
    Ok(ClientPattern::Netgroup(group.to_owned(), hosts))
}

/// The hosts in `getent netgroup`'s line: the name, and triples `(host,user,domain)`. One without a host means any; `-` means none.
fn hosts_of(line: &str) -> Vec<Option<String>> {
    let triples = line.split('(').skip(1).filter_map(|rest| rest.split_once(')')).map(|(triple, _)| triple);
    let hosts = triples.filter_map(|triple| triple.split(',').next()).map(str::trim);
    hosts.filter(|host| *host != "-").map(|host| (!host.is_empty()).then(|| host.to_owned())).collect()
}

/// Returns the names of a client's address that resolve back to it: the owner of a reverse zone can enter any name.
/// None where the name services do not answer. Names beyond [`NAMES_MAX`], and those left after [`NAMES_PATIENCE`], do not count.
pub fn names_of(address: IpAddr) -> Option<Vec<String>> {
    let ask = |database: &str, key: &str| getent::print(database, Some(key), HOST_BYTES_MAX);
    let begun = Instant::now();
    let line = match ask("hosts", &address.to_string()) {
        Ok(line) => line.unwrap_or_default(),
        Err(why) => {
            debug!(%address, "the name of a client cannot be found out: {why}");
            return None;
        }
    };
    let names = line.split_whitespace().skip(1).filter(|name| is_name(name)).take(NAMES_MAX);
    let has_address = |name: &&str| {
        let lines = ask("ahosts", name).ok().flatten().unwrap_or_default();
        let mut addresses =
            lines.lines().filter_map(|line| line.split_whitespace().next()?.parse::<IpAddr>().ok());
        addresses.any(|found| found.to_canonical() == address.to_canonical())
    };
    let in_time = names.take_while(|_| begun.elapsed() < NAMES_PATIENCE);
    Some(in_time.filter(has_address).map(str::to_owned).collect())
}

/// Clients of an export as people write them.
///
/// # Errors
/// Which is wrong, and what is wrong with it.
pub fn patterns(texts: &[String]) -> Result<Vec<ClientPattern>, (usize, String)> {
    let parsed = texts.iter().enumerate();
    parsed.map(|(index, text)| pattern(text).map_err(|why| (index, why))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_exports_5_has() {
        let kind = |text: &str| match pattern(text) {
            Ok(ClientPattern::Host(..)) => "host",
            Ok(ClientPattern::Network(_)) => "network",
            Ok(ClientPattern::Wildcard(_)) => "wildcard",
            Ok(ClientPattern::Netgroup(..)) => "netgroup",
            Ok(ClientPattern::Everyone) => "everyone",
            Err(_) => "wrong",
        };
        for (text, expected) in [
            ("10.0.0.0/8", "network"),
            ("192.0.2.7", "network"),
            ("fd00::/8", "network"),
            ("localhost", "host"),
            ("*.example.org", "wildcard"),
            ("node[0-9]", "wildcard"),
            ("@no-such-netgroup", "netgroup"),
            ("*", "everyone"),
            ("10.0.0.5/8", "wrong"),
            ("10.0.0", "wrong"),
            ("fd00:::", "wrong"),
            ("", "wrong"),
            ("@", "wrong"),
            ("a b", "wrong"),
            ("node[0-9", "wrong"),
            ("host(rw)", "wrong"),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
        let Ok(ClientPattern::Host(_, addresses)) = pattern("localhost") else { panic!("a host") };
        assert!(addresses.iter().any(IpAddr::is_loopback), "{addresses:?}");
    }

    #[test]
    fn reads_netgroups() {
        let host = |name: &str| Some(name.to_owned());
        let line = "lab                   (node1.lab,-,example.org) (node2,,) ( node3 , x , )\n";
        assert_eq!(hosts_of(line), [host("node1.lab"), host("node2"), host("node3")]);
        assert_eq!(hosts_of("all (,,)\n"), [None]);
        assert!(hosts_of("none (-,root,)\n").is_empty(), "no host at all");
        assert!(hosts_of("damaged (node1,").is_empty());
    }

    #[test]
    fn a_name_counts_only_where_it_has_the_address() {
        let names = names_of("127.0.0.1".parse().unwrap()).expect("name services");
        assert!(names.iter().any(|name| name == "localhost"), "{names:?}");
        // TEST-NET-1 (RFC 5737) has no names.
        assert!(names_of("192.0.2.1".parse().unwrap()).unwrap_or_default().is_empty());
    }
}
