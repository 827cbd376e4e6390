//! The kernel's socket table by sock_diag(7): one request and one reply over netlink(7), in host byte order except for addresses and
//! ports.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use super::Entry;

const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const RTM_GETROUTE: u16 = 26;
/// `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// `struct inet_diag_req_v2` begins with the family, the protocol, the extensions, padding and the states.
const REQUEST_HEAD_BYTES: usize = 8;
/// Offset of `struct inet_diag_sockid` in `struct inet_diag_msg`, and its length.
const SOCKID: std::ops::Range<usize> = 4..52;
/// Offsets in `struct inet_diag_msg`.
const STATE: usize = 1;
const UID: usize = 64;
const INODE: usize = 68;
const ANSWER_BYTES: usize = 72;
const TCP_LISTEN: u8 = 10;
/// `struct rtmsg` has the kind of route at this offset.
const ROUTE_KIND: usize = 7;
const RTA_DST: u16 = 1;
const RTN_LOCAL: u8 = 2;
/// Bytes of a datagram; a route has more attributes than are read here.
const RECEIVE_BYTES: usize = 8192;

/// Netlink sockets of this process, for sockets and routes.
#[derive(Debug)]
pub(super) struct SockDiag {
    sockets: OwnedFd,
    routes: OwnedFd,
    sequence: u32,
}

impl SockDiag {
    /// # Errors
    /// Returns an error if netlink is unavailable, as under a seccomp filter.
    pub(super) fn open() -> io::Result<Self> {
        let open = |protocol: Option<Protocol>| {
            socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, protocol)
        };
        Ok(Self { sockets: open(Some(netlink::SOCK_DIAG))?, routes: open(None)?, sequence: 0 })
    }

    /// A table whose requests fail.
    #[cfg(test)]
    pub(super) fn broken() -> Self {
        let open = || std::fs::File::open("/dev/null").expect("it exists").into();
        Self { sockets: open(), routes: open(), sequence: 0 }
    }

    /// Returns this table if it finds a connection: a kernel without `tcp_diag` finds no socket.
    ///
    /// # Errors
    /// Returns an error if it finds none.
    pub(super) fn tried(mut self) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let found = self.find(client.local_addr()?, client.peer_addr()?)?;
        found.map(|_| self).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Returns the TCP socket of this network namespace that is bound to `bound` and connected to `connected`.
    ///
    /// # Errors
    /// Returns an error if the kernel does not answer.
    pub(super) fn find(&mut self, bound: SocketAddr, connected: SocketAddr) -> io::Result<Option<Entry>> {
        self.sequence += 1;
        let question = message(SOCK_DIAG_BY_FAMILY, self.sequence, &request(bound, connected));
        let Some(answer) = ask(&self.sockets, &question, self.sequence)? else { return Ok(None) };
        if answer.len() < ANSWER_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // Without such a connection the kernel returns a listener on the port.
        let is_meant =
            answer[STATE] != TCP_LISTEN && is_between(answer[0], &answer[SOCKID], bound, connected);
        let number = |at: usize| u32::from_ne_bytes(answer[at..at + 4].try_into().expect("four bytes"));
        Ok(is_meant.then(|| Entry { uid: number(UID), inode: u64::from(number(INODE)) }))
    }

    /// Returns whether the address is one of this machine's.
    ///
    /// # Errors
    /// Returns an error if the kernel does not answer.
    pub(super) fn is_own(&mut self, address: IpAddr) -> io::Result<bool> {
        self.sequence += 1;
        let question = message(RTM_GETROUTE, self.sequence, &route_to(address));
        let answer = ask(&self.routes, &question, self.sequence)?;
        Ok(answer.is_some_and(|answer| answer.get(ROUTE_KIND) == Some(&RTN_LOCAL)))
    }
}

/// `struct inet_diag_sockid`: ports, addresses, interface, cookie (none).
fn socket_id(bound: SocketAddr, connected: SocketAddr) -> [u8; 48] {
    let mut id = [0; 48];
    id[..2].copy_from_slice(&bound.port().to_be_bytes());
    id[2..4].copy_from_slice(&connected.port().to_be_bytes());
    put_address(&mut id[4..20], bound.ip());
    put_address(&mut id[20..36], connected.ip());
    if let SocketAddr::V6(bound) = bound {
        id[36..40].copy_from_slice(&bound.scope_id().to_ne_bytes());
    }
    id[40..].fill(0xff);
    id
}

/// Returns whether a reply's `struct inet_diag_sockid` has these ends. An IPv6 socket reports IPv4 addresses mapped.
fn is_between(family: u8, id: &[u8], bound: SocketAddr, connected: SocketAddr) -> bool {
    let address = |at: usize| match id[at..at + 16].first_chunk::<4>() {
        Some(v4) if family == AddressFamily::INET.as_raw() as u8 => IpAddr::from(*v4),
        _ => IpAddr::from(<[u8; 16]>::try_from(&id[at..at + 16]).expect("sixteen bytes")).to_canonical(),
    };
    let port = |at: usize| u16::from_be_bytes([id[at], id[at + 1]]);
    (port(0), address(4)) == (bound.port(), bound.ip())
        && (port(2), address(20)) == (connected.port(), connected.ip())
}

fn put_address(into: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(address) => into[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => into.copy_from_slice(&address.octets()),
    }
}

fn family_of(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    family.as_raw() as u8
}

/// `struct inet_diag_req_v2` for a socket in any state.
fn request(bound: SocketAddr, connected: SocketAddr) -> Vec<u8> {
    const IPPROTO_TCP: u8 = 6;
    let id = socket_id(bound, connected);
    let mut request = Vec::with_capacity(REQUEST_HEAD_BYTES + id.len());
    request.extend([family_of(bound.ip()), IPPROTO_TCP, 0, 0]);
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(id);
    request
}

/// `struct rtmsg`, and the destination as its attribute.
fn route_to(address: IpAddr) -> Vec<u8> {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut route = vec![0; 12];
    route[0] = family_of(address);
    route[1] = octets.len() as u8 * 8;
    route.extend((4 + octets.len() as u16).to_ne_bytes());
    route.extend(RTA_DST.to_ne_bytes());
    route.extend(octets);
    route
}

fn message(kind: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let length = HEADER_BYTES + payload.len();
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(payload);
    message
}

/// Returns the payload of the kernel's reply, or `None` if the object does not exist. The kernel answers within send(2).
fn ask(socket: &OwnedFd, question: &[u8], sequence: u32) -> io::Result<Option<Vec<u8>>> {
    send(socket, question, SendFlags::empty())?;
    let mut answer = vec![0; RECEIVE_BYTES];
    loop {
        let (length, _) = recv(socket, answer.as_mut_slice(), RecvFlags::DONTWAIT)?;
        let Some((header, payload)) = answer[..length].split_at_checked(HEADER_BYTES) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if header[8..12] != sequence.to_ne_bytes() {
            // The reply to an earlier request.
            continue;
        }
        if header[4..6] != NLMSG_ERROR.to_ne_bytes() {
            return Ok(Some(payload.to_vec()));
        }
        let Some(code) = payload.first_chunk().map(|code| i32::from_ne_bytes(*code)) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let error = io::Error::from_raw_os_error(-code);
        return match error.kind() {
            // There is no route to such an address.
            io::ErrorKind::NotFound | io::ErrorKind::NetworkUnreachable => Ok(None),
            _ => Err(error),
        };
    }
}
