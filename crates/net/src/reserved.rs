//! Ports below 1024, from which only a machine's superuser can call.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// Ports that only the superuser may use. Well-known services have most of the lower ones.
pub(crate) const PORTS: std::ops::Range<u16> = 600..1024;

/// Connects to `address` from a reserved port of `local` if this process may use one and one is free, otherwise from any.
///
/// # Errors
/// Returns the error of connect(2).
pub(crate) async fn connect(local: SocketAddr, address: SocketAddr) -> io::Result<TcpStream> {
    for port in PORTS.rev() {
        let socket = socket_for(address)?;
        // An own connection in TIME_WAIT may hold the port, which is still free for other addresses.
        socket.set_reuseaddr(true)?;
        match socket.bind(SocketAddr::new(local.ip(), port)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
            Err(_) => break,
        }
        match socket.connect(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => continue,
            connected => return connected,
        }
    }
    let socket = socket_for(address)?;
    socket.bind(local)?;
    socket.connect(address).await
}

/// Returns a datagram socket at a reserved port of `local` if this process may use one and one is free, otherwise at any.
///
/// # Errors
/// Returns the error of bind(2).
pub(crate) async fn bind_udp(local: SocketAddr) -> io::Result<UdpSocket> {
    for port in PORTS.rev() {
        match UdpSocket::bind(SocketAddr::new(local.ip(), port)).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(_) => break,
            bound => return bound,
        }
    }
    UdpSocket::bind(local).await
}

fn socket_for(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[tokio::test]
    async fn connects_from_a_reserved_port_if_permitted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut ports = Vec::new();
        for _ in 0..3 {
            let stream = connect(local, address).await.unwrap();
            ports.push(stream.local_addr().unwrap().port());
            // It is in TIME_WAIT at this end.
            drop(stream);
        }
        let may =
            std::net::UdpSocket::bind(("127.0.0.1", 1023)).is_ok() || rustix::process::geteuid().is_root();
        assert_eq!(ports.iter().all(|port| PORTS.contains(port)), may, "{ports:?}");
    }
}
