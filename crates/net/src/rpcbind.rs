//! Registration with the system's port mapper (RFC 1833).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use protocol::portmap::{self, Mapping, Protocol};
use protocol::rpcbind::{self, Rpcb, Text};
use rpc::address::UniversalAddress;
use rpc::message::{AcceptStatus, CallHeader, RpcError, encode_call, parse_reply};
use server::Registration;
use xdr::{Decode, Encode, Writer};

use crate::reserved;

/// Time limit for an answer of the port mapper.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The registration of this server's programs; removed when dropped.
#[derive(Debug)]
pub struct Registered {
    mapper: Mapper,
    programs: Vec<Registration>,
}

impl Registered {
    /// Registers the programs of a server that listens at `addresses`, and replaces earlier registrations. Lock managers and status
    /// monitors at other ports keep their registration: this machine's own NFS client has them.
    ///
    /// # Errors
    /// Returns an error if the port mapper does not answer, or refuses.
    pub fn new(programs: Vec<Registration>, addresses: &[SocketAddr]) -> io::Result<Self> {
        let mut registered = Self { mapper: Mapper::new()?, programs: Vec::new() };
        let to_register = addresses_to_register(addresses);
        for registration in programs {
            if registered.mapper.is_of_client(registration, &to_register)? {
                let Registration { program, version, .. } = registration;
                tracing::warn!(
                    program,
                    version,
                    "this machine's NFS client is registered with the port mapper: clients of versions 2 and 3 cannot lock files here"
                );
                continue;
            }
            registered.add(registration, &to_register)?;
        }
        Ok(registered)
    }

    /// Registers the lock manager and the status monitor of a client at `port` of all addresses. Programs of other processes that
    /// accept connections keep their registration. `None` if all do.
    ///
    /// # Errors
    /// Returns an error if the port mapper does not answer, or refuses.
    pub(crate) fn of_client(port: u16, is_ipv6: bool) -> io::Result<Option<Self>> {
        let mut addresses = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
        addresses.extend(is_ipv6.then_some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))));
        let mut registered = Self { mapper: Mapper::new()?, programs: Vec::new() };
        for (program, version) in [
            (protocol::nlm::PROGRAM, protocol::nlm::VERSION),
            (protocol::nsm::PROGRAM, protocol::nsm::VERSION),
        ] {
            let registration = Registration { program, version, is_over_udp: true, port: Some(port) };
            if !registered.mapper.is_in_use(registration)? {
                registered.add(registration, &addresses)?;
            }
        }
        Ok(Some(registered).filter(|registered| !registered.programs.is_empty()))
    }

    /// Registers a program, and replaces its earlier registrations.
    fn add(&mut self, registration: Registration, addresses: &[SocketAddr]) -> io::Result<()> {
        self.mapper.unset(registration)?;
        self.programs.push(registration);
        let transports: &[_] = match registration.is_over_udp {
            true => &[Protocol::TCP, Protocol::UDP],
            false => &[Protocol::TCP],
        };
        let all = addresses.iter().flat_map(|address| transports.iter().map(move |it| (address, it)));
        for (address, transport) in all {
            let port = registration.port.unwrap_or(address.port());
            let address = SocketAddr::new(address.ip(), port);
            if !self.mapper.set(registration, *transport, address)? {
                let why = format!("the port mapper refuses program {}", registration.program);
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
        }
        Ok(())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        for registration in &self.programs {
            if let Err(error) = self.mapper.unset(*registration) {
                let program = registration.program;
                tracing::warn!("program {program} remains registered with the port mapper: {error}");
            }
        }
    }
}

/// Returns the addresses to register: one of each family, since a port mapper takes one for each network. Several with one port become
/// the wildcard, for which a port mapper reports the address at which it was called. If the ports differ, the first is registered.
fn addresses_to_register(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let of_family = |is_ipv4: bool, wildcard: IpAddr| {
        let mut all = addresses.iter().filter(|address| address.is_ipv4() == is_ipv4);
        let first = *all.next()?;
        let others: Vec<_> = all.collect();
        let is_one_port = others.iter().all(|other| other.port() == first.port());
        if !is_one_port {
            tracing::warn!(
                "only {first} is registered with the port mapper: the other addresses have other ports"
            );
        }
        let is_first_only = others.is_empty() || !is_one_port;
        Some(if is_first_only { first } else { SocketAddr::new(wildcard, first.port()) })
    };
    let ipv6 = of_family(false, Ipv6Addr::UNSPECIFIED.into());
    let ipv4 = of_family(true, Ipv4Addr::UNSPECIFIED.into()).or_else(|| {
        // Alone, `[::]` takes IPv4 too.
        let both = ipv6.filter(|address| address.ip().is_unspecified())?;
        Some(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), both.port()))
    });
    ipv4.into_iter().chain(ipv6).collect()
}

/// The port mapper of this machine, called from a privileged port.
#[derive(Debug)]
struct Mapper {
    socket: UdpSocket,
    /// Whether it supports version 4 of rpcbind. Version 2 has no IPv6.
    knows_networks: bool,
}

impl Mapper {
    fn new() -> io::Result<Self> {
        let socket = bind()?;
        socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, portmap::PORT)))?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut mapper = Self { socket, knows_networks: true };
        mapper.knows_networks = match mapper.call::<()>(rpcbind::VERSION_4, rpcbind::Proc::NULL.0, &())? {
            Ok(()) => true,
            Err(RpcError::NotExecuted(AcceptStatus::ProgramMismatch(_))) => false,
            Err(error) => return Err(as_io_error(&error)),
        };
        Ok(mapper)
    }

    /// Returns whether a lock manager or a status monitor at another port than that of this server is registered.
    fn is_of_client(&self, wanted: Registration, addresses: &[SocketAddr]) -> io::Result<bool> {
        if !matches!(wanted.program, protocol::nlm::PROGRAM | protocol::nsm::PROGRAM) {
            return Ok(false);
        }
        let Registration { program, version, .. } = wanted;
        for protocol in [Protocol::TCP, Protocol::UDP] {
            let mapping = Mapping { program, version, protocol, port: 0 };
            let port = self.call::<u32>(portmap::VERSION, portmap::Proc::GETPORT.0, &mapping)?;
            let port = port.map_err(|error| as_io_error(&error))?;
            let is_own = |address: &SocketAddr| u32::from(wanted.port.unwrap_or(address.port())) == port;
            if port != 0 && !addresses.iter().any(is_own) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a process that accepts connections is registered. A killed process leaves its registration.
    fn is_in_use(&self, wanted: Registration) -> io::Result<bool> {
        let Registration { program, version, .. } = wanted;
        let mapping = Mapping { program, version, protocol: Protocol::TCP, port: 0 };
        let port = self.call::<u32>(portmap::VERSION, portmap::Proc::GETPORT.0, &mapping)?;
        let port = port.map_err(|error| as_io_error(&error))?;
        let Some(port) = u16::try_from(port).ok().filter(|port| *port != 0) else { return Ok(false) };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(std::net::TcpStream::connect_timeout(&address, ANSWER_TIMEOUT).is_ok())
    }

    /// Registers a program at `address`, if there is one; returns false if that is refused.
    fn set(&self, registration: Registration, transport: Protocol, address: SocketAddr) -> io::Result<bool> {
        if self.knows_networks {
            let netid: &[u8] = match (transport, address.is_ipv4()) {
                (Protocol::UDP, true) => b"udp",
                (Protocol::UDP, false) => b"udp6",
                (_, true) => b"tcp",
                (_, false) => b"tcp6",
            };
            let universal = UniversalAddress(address).to_string();
            return self.change(rpcbind::Proc::SET, &service(registration, netid, universal.as_bytes()));
        }
        let port = u32::from(address.port());
        Ok(address.is_ipv6() || self.change_old(portmap::Proc::SET, registration, (transport, port))?)
    }

    /// Removes a program from all networks; returns false if it was not registered.
    fn unset(&self, registration: Registration) -> io::Result<bool> {
        if self.knows_networks {
            // RFC 1833 §2.2.1: 'If "r_netid" is NULL, all mappings specified by the ordered set ("r_prog", "r_vers", *)
            // … are deleted.'
            return self.change(rpcbind::Proc::UNSET, &service(registration, b"", b""));
        }
        // RFC 1833 §3.2: "The protocol and port number fields of the argument are ignored."
        self.change_old(portmap::Proc::UNSET, registration, (Protocol::TCP, 0))
    }

    fn change(&self, procedure: rpcbind::Proc, service: &Rpcb) -> io::Result<bool> {
        self.call(rpcbind::VERSION_4, procedure.0, service)?.map_err(|error| as_io_error(&error))
    }

    fn change_old(
        &self,
        procedure: portmap::Proc,
        wanted: Registration,
        (protocol, port): (Protocol, u32),
    ) -> io::Result<bool> {
        let (program, version) = (wanted.program, wanted.version);
        let mapping = Mapping { program, version, protocol, port };
        self.call(portmap::VERSION, procedure.0, &mapping)?.map_err(|error| as_io_error(&error))
    }

    fn call<T: Decode>(
        &self,
        version: u32,
        procedure: u32,
        arguments: &impl Encode,
    ) -> io::Result<Result<T, RpcError>> {
        // One call at a time on its own socket, which is dropped if no answer arrives.
        let xid = (version << 8) | procedure;
        let mut call = Writer::new();
        encode_call(&mut call, &CallHeader::new(xid, portmap::PROGRAM, version, procedure), arguments);
        self.socket.send(call.inline())?;
        let mut reply = vec![0; 1024];
        let length = self.socket.recv(&mut reply)?;
        reply.truncate(length);
        Ok(parse_reply(reply.into()))
    }
}

fn as_io_error(error: &RpcError) -> io::Error {
    io::Error::other(format!("port mapper: {error}"))
}

fn service(registration: Registration, netid: &[u8], address: &[u8]) -> Rpcb {
    let text = |bytes: &[u8]| Text::new(bytes.to_vec()).expect("netids and addresses are short");
    let Registration { program, version, .. } = registration;
    Rpcb { program, version, netid: text(netid), addr: text(address), owner: text(b"enfys") }
}

fn bind() -> io::Result<UdpSocket> {
    let mut last = None;
    // A port mapper accepts registrations from privileged ports.
    for port in reserved::PORTS.rev() {
        match UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_one_address_of_each_family() {
        let registered_of = |listened: &[&str]| -> Vec<String> {
            let addresses: Vec<SocketAddr> =
                listened.iter().map(|address| address.parse().unwrap()).collect();
            addresses_to_register(&addresses).iter().map(SocketAddr::to_string).collect()
        };
        assert_eq!(registered_of(&["127.0.0.1:2049"]), ["127.0.0.1:2049"]);
        assert_eq!(registered_of(&["[::1]:2049"]), ["[::1]:2049"], "no listener on IPv4");
        assert_eq!(registered_of(&["[::]:2049"]), ["0.0.0.0:2049", "[::]:2049"]);
        assert_eq!(registered_of(&["192.0.2.1:20", "[::]:30"]), ["192.0.2.1:20", "[::]:30"]);
        assert_eq!(registered_of(&["192.0.2.1:20", "192.0.2.2:20", "[::1]:20"]), ["0.0.0.0:20", "[::1]:20"]);
        let ports_differ = ["192.0.2.1:20", "192.0.2.2:30", "[::1]:20", "[::1]:30"];
        assert_eq!(registered_of(&ports_differ), ["192.0.2.1:20", "[::1]:20"], "no listener at 192.0.2.2:20");
    }
}
