//! Clients of the servers that URLs name.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::time::Duration;

use bytes::Bytes;
use client::config::{Caller, Config, TRANSFER_MAX, Version};
use client::engine::RetryPolicy;
use client::url::{self, Host, Options, Recovery, Transport, Url};
use rpc::auth::{AuthSys, GroupList, MAX_GROUPS};
use rustix::process::{getegid, geteuid, getgroups};
use xdr::Opaque;

use crate::transport::Route;

/// Maximum bytes of a record from a server: a READ and its headers.
const RECORD_MAX: usize = TRANSFER_MAX as usize + (1 << 20);
/// Time until a silent server's connection is made again, without `timeo=`.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The same over UDP for calls whose round trip time is not measured (nfs(5)).
const TIMEOUT_UDP: Duration = Duration::from_millis(1100);
/// Repetitions of `soft` without `retrans=` (nfs(5)).
const RETRANSMISSIONS: u32 = 2;
/// The same over UDP.
const RETRANSMISSIONS_UDP: u32 = 3;
/// Maximum bytes of this machine's name.
const MACHINE_NAME_MAX: usize = 255;

/// Returns the caller of a URL's options: this process with its groups, or the user and group of the options without others.
#[must_use]
pub fn caller(options: &Options) -> Caller {
    let own: Vec<u32> = getgroups().unwrap_or_default().iter().map(|group| group.as_raw()).collect();
    // Another user's groups are unknown here.
    let groups = if options.uid.is_some() || options.gid.is_some() { Vec::new() } else { own };
    let groups = &groups[..groups.len().min(MAX_GROUPS)];
    let name = Opaque::new(Bytes::from(machine_name()));
    Caller::sys(&AuthSys {
        stamp: 0,
        machine_name: name.unwrap_or_else(|_| Opaque::from_static(b"localhost")),
        uid: options.uid.unwrap_or_else(|| geteuid().as_raw()),
        gid: options.gid.unwrap_or_else(|| getegid().as_raw()),
        gids: GroupList::new(groups).unwrap_or_default(),
    })
}

/// Returns the configuration of a client of a URL's server, with a name that no other client has, and the caches of
/// [`Config::new`].
#[must_use]
pub fn config(url: &Url) -> Config {
    let options = &url.options;
    let (timeout, retrans) = match options.transport {
        Some(Transport::Udp) => (TIMEOUT_UDP, RETRANSMISSIONS_UDP),
        Some(Transport::Tcp) | None => (TIMEOUT, RETRANSMISSIONS),
    };
    let retrans = options.retransmissions.unwrap_or(retrans);
    let timeout =
        options.timeout_deciseconds.map_or(timeout, |tenths| Duration::from_millis(u64::from(tenths) * 100));
    let retries = match options.recovery {
        None | Some(Recovery::Hard) => None,
        Some(Recovery::Soft | Recovery::Softerr) => Some(retrans),
    };
    let owner = format!("enfys {} {} {:016x}", machine_name(), std::process::id(), random_u64());
    let name = url.host().to_string();
    Config {
        version: versions(url).first().copied().flatten(),
        retry: RetryPolicy { timeout, retries, fails_fast: true },
        // A server of version 2 or 3 distinguishes the clients of a machine, and frees the locks of one, by this name.
        host_name: Bytes::from(format!(
            "{}-{}-{:08x}",
            machine_name(),
            std::process::id(),
            random_u64() as u32
        )),
        ..Config::new(&name, owner.as_bytes(), random_u64().to_be_bytes(), caller(options))
    }
    .with_options(options)
}

/// Returns the versions to try for a URL, in this order; `None` stands for the highest that the server has.
#[must_use]
pub fn versions(url: &Url) -> Vec<Option<Version>> {
    match url.options.version {
        None => vec![None],
        Some(url::Version::V2) => vec![Some(Version::V2)],
        Some(url::Version::V3) => vec![Some(Version::V3)],
        Some(url::Version::V4) => vec![Some(Version::V42), Some(Version::V41), Some(Version::V40)],
        Some(url::Version::V4_0) => vec![Some(Version::V40)],
        Some(url::Version::V4_1) => vec![Some(Version::V41)],
        Some(url::Version::V4_2) => vec![Some(Version::V42)],
    }
}

/// Returns the way to a URL's server. May query name services.
///
/// # Errors
/// The host has no address, or one with a scope, which is not supported.
pub fn route(url: &Url) -> io::Result<Route> {
    let addresses = addresses(url.host())?;
    let reserved_port = url.options.reserved_port.unwrap_or(true);
    Ok(Route { addresses, reserved_port, record_max: RECORD_MAX })
}

fn addresses(host: &Host) -> io::Result<Vec<IpAddr>> {
    let name = match host {
        Host::V4(address) => return Ok(vec![(*address).into()]),
        Host::V6(address, None) => return Ok(vec![(*address).into()]),
        // Only the system knows the number of an interface.
        Host::V6(_, Some(_)) => return Err(io::Error::other("addresses with a scope are not supported")),
        Host::Name(name) => name,
    };
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in (name.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// Returns this machine's name, for credentials and names of clients.
#[must_use]
pub fn machine_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    name.chars().filter(char::is_ascii_graphic).take(MACHINE_NAME_MAX).collect()
}

/// Returns a random number.
#[must_use]
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    // Early at boot there may be no random numbers; the process ID still distinguishes clients.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_noresvport_gives_up_reserved_ports() {
        for (options, expected) in [("", true), ("?resvport", true), ("?noresvport", false)] {
            let url = format!("nfs://127.0.0.1/export{options}").parse().unwrap();
            assert_eq!(route(&url).unwrap().reserved_port, expected, "{options}");
        }
    }
}
