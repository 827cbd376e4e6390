//! Sockets bound to given addresses.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use protocol::portmap;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use store::error_text;

use crate::address::Address;

/// Connections that can wait to be accepted.
const BACKLOG: i32 = 1024;
/// Lower ports need root.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// Listens on all addresses of each host; one that exists is enough.
///
/// # Errors
/// One line that names the address.
pub fn listen_on_all(addresses: &[Address]) -> Result<Vec<TcpListener>, String> {
    let resolved: Vec<_> = addresses.iter().map(Address::resolve).collect::<Result<_, _>>()?;
    let all = resolved.concat();
    let mut listeners = Vec::new();
    for addresses in &resolved {
        let bound = addresses.iter().map(|address| (address, bind_to(*address, &all)));
        let (bound, failed): (Vec<_>, Vec<_>) = bound.partition(|(_, result)| result.is_ok());
        let has_one = !bound.is_empty();
        listeners.extend(bound.into_iter().filter_map(|(_, result)| result.ok()));
        // A name may have addresses that this machine lacks: `localhost` is also `::1`. One that exists is enough.
        let is_missing = |error: &io::Error| has_one && is_missing_address(error);
        let failed = failed.into_iter().filter_map(|(address, result)| Some((address, result.err()?)));
        if let Some((address, error)) = failed.into_iter().find(|(_, error)| !is_missing(error)) {
            return Err(refused("", *address, &error));
        }
    }
    Ok(listeners)
}

/// Returns whether this machine lacks the address or its family.
fn is_missing_address(error: &io::Error) -> bool {
    let lacks = [Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT];
    lacks.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Listens on `address`, in addition to the other addresses in `all`.
///
/// # Errors
/// One line that names the address.
pub fn listen_on(address: SocketAddr, all: &[SocketAddr]) -> Result<TcpListener, String> {
    bind_to(address, all).map_err(|error| refused("", address, &error))
}

fn bind_to(address: SocketAddr, all: &[SocketAddr]) -> io::Result<TcpListener> {
    // `[::]` accepts IPv4 too, unless another socket has that port of IPv4.
    let is_ipv4_elsewhere = all.iter().any(|other| other.is_ipv4() && other.port() == address.port());
    let bind = || -> rustix::io::Result<OwnedFd> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
        // Connections of the previous server in TIME_WAIT must not block the port.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, is_ipv4_elsewhere)?;
        }
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    bind().map(TcpListener::from).map_err(io::Error::from)
}

/// Receives datagrams at `address`, in addition to the other addresses in `all`.
///
/// # Errors
/// As bind(2).
pub fn bind_udp(address: SocketAddr, all: &[SocketAddr]) -> io::Result<UdpSocket> {
    let is_ipv4_elsewhere = all.iter().any(|other| other.is_ipv4() && other.port() == address.port());
    let bind = || -> rustix::io::Result<OwnedFd> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket =
            rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(ipproto::UDP))?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, is_ipv4_elsewhere)?;
        }
        rustix::net::bind(&socket, &address)?;
        Ok(socket)
    };
    bind().map(UdpSocket::from).map_err(io::Error::from)
}

/// Returns one line about an address that cannot be listened on, with a remedy.
pub fn refused(transport: &str, address: SocketAddr, error: &io::Error) -> String {
    let why = match error.kind() {
        // The port of port mappers is fixed.
        io::ErrorKind::AddrInUse if address.port() == portmap::PORT => {
            "the port is in use by a port mapper that does not answer: stop it, or serve without --portmap"
                .into()
        }
        io::ErrorKind::AddrInUse => "the port is in use: give another with --listen".into(),
        io::ErrorKind::PermissionDenied if address.port() < FIRST_UNPRIVILEGED_PORT => {
            format!("ports below {FIRST_UNPRIVILEGED_PORT} need root or CAP_NET_BIND_SERVICE")
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".into(),
        _ => error_text(error),
    };
    format!("cannot listen on {transport}{address}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_listen_on_one_port() {
        let ipv6 = listen_on("[::1]:0".parse().unwrap(), &[]);
        let Ok(ipv6) = ipv6 else { return println!("skipped: no IPv6 on this machine") };
        drop(ipv6);
        let ipv4 = listen_on("0.0.0.0:0".parse().unwrap(), &[]).unwrap();
        let ipv4 = ipv4.local_addr().unwrap();
        let wildcard = SocketAddr::new("::".parse().unwrap(), ipv4.port());
        listen_on(wildcard, &[ipv4, wildcard]).unwrap();
        let error = listen_on(wildcard, &[wildcard]).unwrap_err();
        assert!(error.ends_with("the port is in use: give another with --listen"), "{error}");
    }

    #[test]
    fn errors_name_a_remedy() {
        let explain = |errno: rustix::io::Errno, address: &str| {
            refused("", address.parse().unwrap(), &io::Error::from(errno))
        };
        assert_eq!(
            explain(rustix::io::Errno::ACCESS, "127.0.0.1:111"),
            "cannot listen on 127.0.0.1:111: ports below 1024 need root or CAP_NET_BIND_SERVICE"
        );
        assert_eq!(
            explain(rustix::io::Errno::ADDRINUSE, "127.0.0.1:111"),
            "cannot listen on 127.0.0.1:111: the port is in use by a port mapper that does not answer: stop it, or \
             serve without --portmap"
        );
        assert_eq!(
            explain(rustix::io::Errno::ADDRNOTAVAIL, "192.0.2.1:2049"),
            "cannot listen on 192.0.2.1:2049: this machine has no such address"
        );
        assert_eq!(
            explain(rustix::io::Errno::ACCESS, "127.0.0.1:2049"),
            "cannot listen on 127.0.0.1:2049: Permission denied"
        );
    }
}
