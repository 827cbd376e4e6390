//! Records in datagrams: one record each, without a record mark.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use client::engine::{ConnectError, ConnectionId, Engine};
use tokio::net::UdpSocket;

use super::Route;

/// Room for the largest datagram of UDP.
const DATAGRAM_MAX: usize = 64 << 10;

/// Opens a socket for datagrams to and from a port of the server: the first of the addresses to which there is a route. The error is
/// about the last.
pub(super) async fn open(route: &Route, port: u16) -> Result<UdpSocket, String> {
    let mut reason = String::from("the server has no address");
    for address in &route.addresses {
        let address = SocketAddr::new(*address, port);
        match open_to(address, route.reserved_port).await {
            Ok(socket) => return Ok(socket),
            Err(error) => reason = format!("cannot send to {address}: {error}"),
        }
    }
    Err(reason)
}

async fn open_to(address: SocketAddr, reserved_port: bool) -> io::Result<UdpSocket> {
    let any: IpAddr = if address.is_ipv4() { [0, 0, 0, 0].into() } else { [0; 16].into() };
    let local = SocketAddr::new(any, 0);
    let socket = match reserved_port {
        true => crate::reserved::bind_udp(local).await?,
        false => UdpSocket::bind(local).await?,
    };
    // From now on the kernel drops datagrams of others.
    socket.connect(address).await?;
    Ok(socket)
}

/// Carries records in both directions until the engine closes the connection.
pub(super) async fn serve(engine: &Engine, id: ConnectionId, socket: &UdpSocket) {
    tokio::select! {
        () = receive(engine, id, socket) => {}
        () = send(engine, id, socket) => {}
    }
}

async fn receive(engine: &Engine, id: ConnectionId, socket: &UdpSocket) {
    let mut buffer = vec![0; DATAGRAM_MAX];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(length) => {
                engine.handle_bytes(id);
                // Malformed datagrams are ignored.
                let _ = engine.handle_record(id, Bytes::copy_from_slice(&buffer[..length]));
            }
            Err(error) => report(engine, id, socket, &error),
        }
    }
}

async fn send(engine: &Engine, id: ConnectionId, socket: &UdpSocket) {
    while let Some(record) = poll_fn(|context| engine.poll_record(id, context)).await {
        // A datagram that cannot be sent counts as lost.
        if let Err(error) = socket.send(&record.concat()).await {
            report(engine, id, socket, &error);
        }
    }
}

/// Reports an error, mostly of an earlier datagram: an ICMP message says that nobody has the port.
fn report(engine: &Engine, id: ConnectionId, socket: &UdpSocket, error: &io::Error) {
    let address = socket.peer_addr().map_or_else(|_| "the server".to_owned(), |address| address.to_string());
    engine.handle_refused(id, ConnectError { reason: format!("{address}: {error}").into() });
}
