//! Names of hosts: the host names, wildcards and netgroups in a configuration, and the names of a client's address.

use std::net::{IpAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use glob::Pattern;
use server::ClientPattern;
use store::error_text;
use tracing::debug;

use super::getent;

/// Maximum number of bytes of an answer about a host, and about a netgroup.
const HOST_BYTES_MAX: usize = 64 << 10;
const NETGROUP_BYTES_MAX: usize = 1 << 20;
/// Maximum number of names of an address that are checked, and the time limit for the checks. The client's connection waits
/// meanwhile.
const NAMES_MAX: usize = 4;
const NAMES_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of bytes of a host's name (RFC 1123 §2.1).
const NAME_MAX: usize = 255;

/// The forms of an entry of `clients`.
pub const FORMS: &str = "an address, a network (10.0.0.0/8), a host name, a wildcard (*.example.org), \
                         a netgroup (@workstations), or * for all clients";

/// The treatment of a host name or netgroup that was not found.
const MATCHES_NOTHING: &str = "it matches no client until a reload (SIGHUP)";

/// Parses the `clients` of an export. Host names and netgroups are looked up now. One that the name services do not know is
/// a warning, and matches no client.
///
/// # Errors
/// The index of the first invalid entry, and its error.
pub fn patterns(
    texts: &[String],
    warnings: &mut Vec<(usize, String)>,
) -> Result<Vec<ClientPattern>, (usize, String)> {
    let mut parse = |(index, text): (usize, &String)| {
        let mut warn = |warning| warnings.push((index, warning));
        pattern(text, &mut warn).map_err(|why| (index, why))
    };
    texts.iter().enumerate().map(&mut parse).collect()
}

fn pattern(text: &str, warn: &mut dyn FnMut(String)) -> Result<ClientPattern, String> {
    if text == "*" {
        return Ok(ClientPattern::Everyone);
    }
    if let Some(group) = text.strip_prefix('@') {
        return netgroup(group, warn);
    }
    // An entry that looks like an address is parsed as one.
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
    Ok(ClientPattern::Host(text.to_owned(), addresses_of(text, warn)))
}

/// Returns whether the text can be a host's name, or a wildcard.
fn is_name(text: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b".-_*?[]!".contains(&byte);
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(may_be)
}

fn addresses_of(host: &str, warn: &mut dyn FnMut(String)) -> Vec<IpAddr> {
    match (host, 0).to_socket_addrs() {
        Ok(addresses) => addresses.map(|address| address.ip().to_canonical()).collect(),
        Err(error) => {
            warn(format!("host name `{host}` not found ({}): {MATCHES_NOTHING}", error_text(&error)));
            Vec::new()
        }
    }
}

fn netgroup(group: &str, warn: &mut dyn FnMut(String)) -> Result<ClientPattern, String> {
    if !is_name(group) {
        return Err(format!("`@{group}` is not the name of a netgroup"));
    }
    let hosts = match getent::query("netgroup", Some(group), NETGROUP_BYTES_MAX) {
        Ok(Some(line)) => hosts_of(&line),
        Ok(None) => {
            warn(format!("netgroup `@{group}` not found: {MATCHES_NOTHING}"));
            Vec::new()
        }
        Err(why) => {
            warn(format!("netgroup `@{group}` cannot be read ({why}): {MATCHES_NOTHING}"));
            Vec::new()
        }
    };
    Ok(ClientPattern::Netgroup(group.to_owned(), hosts))
}

/// Parses the output of `getent netgroup`: the name, and triples `(host,user,domain)`. `None` means any host; `-` is not a host.
fn hosts_of(line: &str) -> Vec<Option<String>> {
    let triples = line.split('(').skip(1).filter_map(|rest| rest.split_once(')')).map(|(triple, _)| triple);
    let hosts = triples.filter_map(|triple| triple.split(',').next()).map(str::trim);
    hosts.filter(|host| *host != "-").map(|host| (!host.is_empty()).then(|| host.to_owned())).collect()
}

/// Returns the names of a client's address that resolve to it; `None` if the name services do not answer. Other names are ignored,
/// because the owner of a reverse zone can enter any name. At most [`NAMES_MAX`] names are checked, for [`NAMES_TIMEOUT`].
pub fn names_of(address: IpAddr) -> Option<Vec<String>> {
    let begun = Instant::now();
    let query = |database: &str, key: &str| getent::query(database, Some(key), HOST_BYTES_MAX);
    names_by(address, query, || begun.elapsed())
}

fn names_by(
    address: IpAddr,
    query: impl Fn(&str, &str) -> Result<Option<String>, String>,
    elapsed: impl Fn() -> Duration,
) -> Option<Vec<String>> {
    let line = match query("hosts", &address.to_string()) {
        Ok(line) => line.unwrap_or_default(),
        Err(why) => {
            debug!(%address, error = why, "cannot look up the name of a client");
            return None;
        }
    };
    let names = line.split_whitespace().skip(1).filter(|name| is_name(name)).take(NAMES_MAX);
    let has_address = |name: &&str| {
        let lines = query("ahosts", name).ok().flatten().unwrap_or_default();
        let mut addresses =
            lines.lines().filter_map(|line| line.split_whitespace().next()?.parse::<IpAddr>().ok());
        addresses.any(|found| found.to_canonical() == address.to_canonical())
    };
    let in_time = names.take_while(|_| elapsed() < NAMES_TIMEOUT);
    Some(in_time.filter(has_address).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    fn pattern_of(text: &str) -> Result<ClientPattern, String> {
        pattern(text, &mut drop)
    }

    #[test]
    fn the_forms_of_exports_5_are_parsed() {
        let kind = |text: &str| match pattern_of(text) {
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
        let Ok(ClientPattern::Host(_, addresses)) = pattern_of("localhost") else { panic!("a host") };
        assert!(addresses.iter().any(IpAddr::is_loopback), "{addresses:?}");
    }

    #[test]
    fn netgroups_are_parsed() {
        let host = |name: &str| Some(name.to_owned());
        let line = "lab                   (node1.lab,-,example.org) (node2,,) ( node3 , x , )\n";
        assert_eq!(hosts_of(line), [host("node1.lab"), host("node2"), host("node3")]);
        assert_eq!(hosts_of("all (,,)\n"), [None]);
        assert!(hosts_of("none (-,root,)\n").is_empty(), "no hosts");
        assert!(hosts_of("damaged (node1,").is_empty());
    }

    #[test]
    fn an_unknown_host_or_netgroup_is_a_warning() {
        let texts = ["10.0.0.0/8", "no-such-host.invalid", "@no-such-netgroup"].map(String::from);
        let mut warnings = Vec::new();
        assert_eq!(patterns(&texts, &mut warnings).map(|patterns| patterns.len()), Ok(3));
        let [(1, host), (2, group)] = &*warnings else { panic!("{warnings:?}") };
        assert!(host.starts_with("host name `no-such-host.invalid` not found"), "{host}");
        assert!(group.starts_with("netgroup `@no-such-netgroup` "), "{group}");
        assert!(warnings.iter().all(|(_, warning)| warning.ends_with(MATCHES_NOTHING)));
    }

    /// Looks an address up that has 10 names, which all resolve to it. Each query takes `seconds`. Returns the names, and the queries.
    fn names_with_slow_queries(seconds: u64) -> (Vec<String>, Vec<String>) {
        let (clock, queries) = (Cell::new(Duration::ZERO), RefCell::new(Vec::new()));
        let query = |database: &str, key: &str| {
            queries.borrow_mut().push(format!("{database} {key}"));
            clock.set(clock.get() + Duration::from_secs(seconds));
            let all: Vec<_> = (0..10).map(|number| format!("name{number}")).collect();
            Ok(Some(if database == "hosts" {
                format!("192.0.2.1 {}", all.join(" "))
            } else {
                "192.0.2.1\n".into()
            }))
        };
        let names = names_by("192.0.2.1".parse().unwrap(), query, || clock.get());
        (names.expect("an answer"), queries.into_inner())
    }

    #[test]
    fn at_most_four_names_are_checked() {
        let (names, queries) = names_with_slow_queries(0);
        assert_eq!(names, ["name0", "name1", "name2", "name3"]);
        assert_eq!(queries.len(), 1 + NAMES_MAX, "{queries:?}");
    }

    #[test]
    fn no_name_is_checked_after_the_timeout() {
        // The third query ends at the timeout.
        let (names, queries) = names_with_slow_queries(1);
        assert_eq!((names.len(), queries.len()), (2, 3), "{queries:?}");
        let (names, queries) = names_with_slow_queries(3);
        assert_eq!((names.len(), queries.len()), (0, 1), "{queries:?}");
    }

    #[test]
    fn a_name_counts_only_if_it_resolves_to_the_address() {
        let names = names_of("127.0.0.1".parse().unwrap()).expect("name services");
        assert!(names.iter().any(|name| name == "localhost"), "{names:?}");
        // TEST-NET-1 (RFC 5737) has no names.
        assert!(names_of("192.0.2.1".parse().unwrap()).unwrap_or_default().is_empty());
    }
}
