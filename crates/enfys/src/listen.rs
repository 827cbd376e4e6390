//! The server's listening sockets: passed by the service manager, or bound here.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use net::Listeners;
use protocol::portmap;
use store::error_text;

use crate::plan::Plan;
use crate::sockets::{bind_udp, listen_on, listen_on_all, refused};

/// The port mapper that tells clients the server's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortMapper {
    /// None: the port is a mount option.
    None,
    /// The server's own one.
    Own,
    /// One that already runs on this machine, with which the server registers.
    Other,
}

/// The sockets, and the port mapper by which clients find them.
#[derive(Debug)]
pub struct Bound {
    pub listeners: Listeners,
    /// The addresses of NFS, with the real ports.
    pub addresses: Vec<SocketAddr>,
    pub port_mapper: PortMapper,
}

impl Bound {
    /// Returns the port of NFS.
    pub fn port(&self) -> u16 {
        self.addresses[0].port()
    }
}

/// Takes the sockets that the service manager passed, or binds the planned addresses. `has_quotas` tells whether an export has quotas.
///
/// # Errors
/// One line that names the address.
pub fn bind(plan: &Plan, has_quotas: bool) -> Result<Bound, String> {
    let mut listeners = Listeners { tcp: passed()?, udp: Vec::new() };
    if listeners.tcp.is_empty() {
        listeners.tcp = listen_on_all(&plan.listen).map_err(|why| plan.error("listen", why))?;
    }
    let addresses: io::Result<Vec<_>> = listeners.tcp.iter().map(TcpListener::local_addr).collect();
    let addresses = addresses.map_err(|error| format!("listening socket: {}", error_text(&error)))?;
    // Status monitors of clients notify only over UDP, and find the port by a port mapper.
    let is_notified = plan.serves_nlm() && plan.wants_port_mapper;
    // So do the questions of quota(1).
    let is_asked = has_quotas && plan.wants_port_mapper;
    if plan.udp || is_asked || (is_notified && plan.nsm_port.is_none()) {
        for address in &addresses {
            let bound = bind_udp(*address, &addresses).map_err(|error| refused("udp ", *address, &error))?;
            listeners.udp.push(bound);
        }
    }
    bind_own_ports(plan, &addresses, &mut listeners)?;
    let port_mapper = choose_port_mapper(plan.wants_port_mapper);
    if port_mapper == PortMapper::Own {
        let own: Vec<_> =
            addresses.iter().map(|address| SocketAddr::new(address.ip(), portmap::PORT)).collect();
        for address in &own {
            listeners.tcp.push(listen_on(*address, &own)?);
            listeners.udp.push(UdpSocket::bind(address).map_err(|error| refused("udp ", *address, &error))?);
        }
    }
    Ok(Bound { listeners, addresses, port_mapper })
}

/// Binds the separate ports of NLM and the status monitor, at the same addresses as NFS.
fn bind_own_ports(plan: &Plan, addresses: &[SocketAddr], listeners: &mut Listeners) -> Result<(), String> {
    if !plan.serves_nlm() {
        return Ok(());
    }
    let mut ports: Vec<(u16, bool)> = Vec::new();
    for (port, needs_udp) in [(plan.nlm_port, plan.udp), (plan.nsm_port, true)] {
        let Some(port) = port.filter(|port| addresses.iter().all(|address| address.port() != *port)) else {
            continue;
        };
        match ports.iter_mut().find(|(other, _)| *other == port) {
            Some((_, udp)) => *udp |= needs_udp,
            None => ports.push((port, needs_udp)),
        }
    }
    for (port, needs_udp) in ports {
        let own: Vec<_> = addresses.iter().map(|address| SocketAddr::new(address.ip(), port)).collect();
        for address in &own {
            listeners.tcp.push(listen_on(*address, &own)?);
            if needs_udp {
                let bound = bind_udp(*address, &own).map_err(|error| refused("udp ", *address, &error))?;
                listeners.udp.push(bound);
            }
        }
    }
    Ok(())
}

/// Returns the sockets that a service manager passed: sd_listen_fds(3).
fn passed() -> Result<Vec<TcpListener>, String> {
    let mut passed = listenfd::ListenFd::from_env();
    let mut listeners = Vec::new();
    for index in 0..passed.len() {
        let listener = passed.take_tcp_listener(index);
        let listener = listener.map_err(|error| {
            let why = error_text(&error);
            format!("socket {index} of the service manager is not a listening TCP socket: {why}")
        })?;
        listeners.extend(listener);
    }
    Ok(listeners)
}

fn choose_port_mapper(is_wanted: bool) -> PortMapper {
    let is_running = || TcpStream::connect((core::net::Ipv4Addr::LOCALHOST, portmap::PORT)).is_ok();
    match is_wanted {
        false => PortMapper::None,
        true if is_running() => PortMapper::Other,
        true => PortMapper::Own,
    }
}
