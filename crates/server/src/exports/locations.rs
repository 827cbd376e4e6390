//! Locations of an export's file system: replicas on other servers, or the servers that have it instead of this one.

use core::net::{IpAddr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use protocol::nfs4::attributes::locations::{FsLocation, FsLocations};
use protocol::nfs4::types::{Component, Pathname, Utf8};
use xdr::List;

use crate::Export;

/// The place of an export's file system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Locations {
    /// This server alone.
    #[default]
    Here,
    /// This server, with replicas elsewhere.
    Replicated(Arc<[Location]>),
    /// Other servers only: operations on it are answered MOVED.
    Moved(Arc<[Location]>),
}

/// A file system on another server, written `HOST[:PORT]:/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    text: String,
    /// A name or a universal address, as `fs_location4` has it.
    server: Utf8,
    path: Pathname,
}

impl Locations {
    /// Maximum number of locations of an export.
    pub const COUNT_MAX: usize = 64;

    /// Returns whether the file system is absent from this server (RFC 8881 §11.3).
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Moved(_))
    }

    /// Returns the locations on other servers.
    #[must_use]
    pub fn elsewhere(&self) -> &[Location] {
        match self {
            Self::Here => &[],
            Self::Replicated(all) | Self::Moved(all) => all,
        }
    }
}

impl Export {
    /// Returns the value of `fs_locations` (RFC 8881 §11.16, RFC 7530 §8.8).
    ///
    /// "The server MUST return an fs_root that is equal to the path the client used": the path of the export.
    pub(crate) fn fs_locations(&self) -> FsLocations {
        let root = pathname(&self.path).unwrap_or_default();
        let locations = &self.options.locations;
        // "A zero-length string SHOULD be used to indicate the current address being used for the RPC call."
        let here = matches!(locations, Locations::Replicated(_))
            .then(|| FsLocation { servers: one(Utf8::default()), root_path: root.clone() });
        let elsewhere = locations.elsewhere().iter().map(|location| FsLocation {
            servers: one(location.server.clone()),
            root_path: location.path.clone(),
        });
        let all = here.into_iter().chain(elsewhere).collect();
        FsLocations { fs_root: root, locations: List::new(all).unwrap_or_default() }
    }
}

fn one<const MAX: usize>(server: Utf8) -> List<Utf8, MAX> {
    List::new(vec![server]).unwrap_or_default()
}

/// Returns the names in a path; an error if there are too many, or one is too long.
fn pathname(path: &str) -> Result<Pathname, String> {
    let names = path.split('/').filter(|name| !name.is_empty());
    let names = names.map(|name| Component::new(name.as_bytes().to_vec())).collect::<Result<Vec<_>, _>>();
    names.and_then(List::new).map_err(|_| format!("`{path}` is too long for a path"))
}

/// The forms of a location, for messages.
const FORMS: &str = "expected HOST:/PATH, as in \"nfs.example.org:/data\", or ADDRESS:PORT:/PATH";

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}`: {FORMS}");
        let at = text.find(":/").ok_or_else(wrong)?;
        let (host, path) = (&text[..at], &text[at + 1..]);
        if path.contains('\0') || path.split('/').any(|name| name == "." || name == "..") {
            return Err(format!("`{text}`: the path must not contain `.` or `..`"));
        }
        let server = server(host).ok_or_else(wrong)?;
        let server = Utf8::new(server.into_bytes()).map_err(|_| wrong())?;
        Ok(Self { text: text.into(), server, path: pathname(path)? })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns a host as `fs_location4` has it: a name, or a universal address. Without a port, clients use 2049.
fn server(host: &str) -> Option<String> {
    if let Some(rest) = host.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        return with_port(&address.to_string(), port.strip_prefix(':'), port.is_empty());
    }
    if let Some((address, port)) = host.split_once(':') {
        let address: IpAddr = address.parse().ok()?;
        return with_port(&address.to_string(), Some(port), false);
    }
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (!host.is_empty() && host.bytes().all(is_of_name)).then(|| host.to_owned())
}

/// RFC 8881 §11.16: an address may have "the trailing ".p1.p2" suffix that represents the port number" (RFC 5665 §5.2.3.3).
fn with_port(address: &str, port: Option<&str>, is_default: bool) -> Option<String> {
    match port {
        Some(port) => {
            let [high, low] = port.parse::<u16>().ok().filter(|port| *port > 0)?.to_be_bytes();
            Some(format!("{address}.{high}.{low}"))
        }
        None => is_default.then(|| address.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::types::MAX_NAME;

    use super::*;
    use crate::testing::export;

    fn names(path: &Pathname) -> Vec<&[u8]> {
        path.iter().map(|name| &**name).collect()
    }

    #[test]
    fn hosts_are_names_or_universal_addresses() {
        for (text, server) in [
            ("nfs.example.org:/a/b", "nfs.example.org"),
            ("10.0.0.1:/a/b", "10.0.0.1"),
            // RFC 5665 §5.2.3.3: 2049 is 8 * 256 + 1.
            ("10.0.0.1:2049:/a/b", "10.0.0.1.8.1"),
            ("[fd00::7]:/a/b", "fd00::7"),
            ("[fd00::7]:20049:/a/b", "fd00::7.78.81"),
        ] {
            let location: Location = text.parse().unwrap();
            assert_eq!(
                (&*location.server, names(&location.path)),
                (server.as_bytes(), vec![&b"a"[..], b"b"])
            );
            assert_eq!(location.to_string(), text);
        }
        let root: Location = "host:/".parse().unwrap();
        assert!(root.path.is_empty());
        for wrong in [
            "",
            "host",
            "host:",
            "host:path",
            ":/a",
            "/a",
            "name:2049:/a",
            "10.0.0.1:0:/a",
            "10.0.0.1:70000:/a",
            "[fd00::7:/a",
            "[fd00::7]x:/a",
            "[host]:/a",
            "fd00::7:/a",
            "ho st:/a",
            "host:/a/../b",
        ] {
            assert!(wrong.parse::<Location>().is_err(), "{wrong}");
        }
        let long = format!("host:/{}", "x".repeat(MAX_NAME + 1));
        assert!(long.parse::<Location>().unwrap_err().contains("too long"));
    }

    #[test]
    fn a_replicated_file_system_is_also_here() {
        let elsewhere: Arc<[Location]> = Arc::from(["b:/x/y".parse().unwrap(), "c:/z".parse().unwrap()]);
        let mut export = export(1, "/data/a");
        let servers = |export: &Export| -> Vec<Vec<u8>> {
            let all = export.fs_locations();
            assert_eq!(names(&all.fs_root), [&b"data"[..], b"a"]);
            all.locations
                .iter()
                .flat_map(|location| location.servers.iter().map(|name| name.to_vec()))
                .collect()
        };
        assert!(servers(&export).is_empty());
        export.options.locations = Locations::Replicated(Arc::clone(&elsewhere));
        assert_eq!(servers(&export), [&b""[..], b"b", b"c"]);
        assert_eq!(names(&export.fs_locations().locations[0].root_path), [&b"data"[..], b"a"]);
        export.options.locations = Locations::Moved(elsewhere);
        assert_eq!(servers(&export), [&b"b"[..], b"c"]);
        assert_eq!(names(&export.fs_locations().locations[0].root_path), [&b"x"[..], b"y"]);
    }
}
