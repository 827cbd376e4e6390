//! recvmmsg(2) and sendmmsg(2) with the local address of each datagram, which rustix does not have.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Maximum number of datagrams of one system call.
pub(super) const BATCH: usize = 16;

/// Bytes for the control messages of a datagram: one `in_pktinfo` or `in6_pktinfo`, with room for alignment.
const CONTROL: usize = 64;

/// Control messages, aligned for their headers.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// The local address of the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Local {
    pub(super) ip: IpAddr,
    /// The interface of a link-local address; 0 for others, whose replies take any route.
    pub(super) interface: u32,
}

/// A datagram that arrived. Its bytes lie in the buffer of the same index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) length: usize,
    pub(super) peer: SocketAddr,
    pub(super) local: Local,
}

/// A datagram to send.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) bytes: Vec<u8>,
    pub(super) peer: SocketAddr,
    pub(super) local: Local,
}

/// Makes the kernel report the local address of each datagram of this socket.
pub(super) fn report_addresses(socket: BorrowedFd<'_>, is_ipv6: bool) -> io::Result<()> {
    let (level, option) = match is_ipv6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        false => (libc::IPPROTO_IP, libc::IP_PKTINFO),
    };
    let on: libc::c_int = 1;
    // SAFETY: the value is an int that lives over the call.
    let status = unsafe {
        let value = ptr::from_ref(&on).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, size_of::<libc::c_int>() as u32)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives the datagrams that have arrived, at most one for each buffer and [`BATCH`]. `None` means a datagram that must not be answered: it
/// was cut off, was sent to many hosts at once, or came without addresses.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if none has arrived.
pub(super) fn receive(socket: BorrowedFd<'_>, buffers: &mut [Vec<u8>]) -> io::Result<Vec<Option<Received>>> {
    let mut names: [libc::sockaddr_storage; BATCH] = [const { unsafe_zeroed() }; BATCH];
    let mut controls = [Control([0; CONTROL]); BATCH];
    let mut pieces = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; BATCH];
    let mut headers: [libc::mmsghdr; BATCH] = [const { unsafe_zeroed_header() }; BATCH];
    let count = buffers.len().min(BATCH);
    for (index, buffer) in buffers.iter_mut().take(BATCH).enumerate() {
        pieces[index] = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let header = &mut headers[index].msg_hdr;
        header.msg_name = ptr::from_mut(&mut names[index]).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iov = ptr::from_mut(&mut pieces[index]);
        header.msg_iovlen = 1;
        header.msg_control = ptr::from_mut(&mut controls[index]).cast();
        header.msg_controllen = CONTROL as _;
    }
    // SAFETY: the first `count` headers point to names, pieces, controls and buffers that live over the call and have the given lengths.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let outcome = |(header, name): (&libc::mmsghdr, &libc::sockaddr_storage)| {
        if header.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return None;
        }
        Some(Received {
            length: header.msg_len as usize,
            peer: address_in(name)?,
            local: local_in(&header.msg_hdr)?,
        })
    };
    Ok(headers[..received].iter().zip(&names).map(outcome).collect())
}

/// Sends datagrams, at most [`BATCH`], by a socket of IPv6 or of IPv4. Returns their number.
///
/// # Errors
/// The error of the first one: it, and none after it, was sent.
pub(super) fn send(socket: BorrowedFd<'_>, is_ipv6: bool, datagrams: &[Datagram]) -> io::Result<usize> {
    let mut names: [libc::sockaddr_storage; BATCH] = [const { unsafe_zeroed() }; BATCH];
    let mut controls = [Control([0; CONTROL]); BATCH];
    let mut pieces = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; BATCH];
    let mut headers: [libc::mmsghdr; BATCH] = [const { unsafe_zeroed_header() }; BATCH];
    let count = datagrams.len().min(BATCH);
    for (index, datagram) in datagrams.iter().take(BATCH).enumerate() {
        // sendmmsg(2) reads only.
        let base = datagram.bytes.as_ptr().cast_mut().cast();
        pieces[index] = libc::iovec { iov_base: base, iov_len: datagram.bytes.len() };
        let header = &mut headers[index].msg_hdr;
        header.msg_namelen = put_address(datagram.peer, &mut names[index]);
        header.msg_name = ptr::from_mut(&mut names[index]).cast();
        header.msg_iov = ptr::from_mut(&mut pieces[index]);
        header.msg_iovlen = 1;
        header.msg_control = ptr::from_mut(&mut controls[index]).cast();
        header.msg_controllen = CONTROL as _;
        put_local(datagram.local, is_ipv6, header);
    }
    // SAFETY: the first `count` headers point to names, pieces, controls and bytes that live over the call and have the given lengths.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

const fn unsafe_zeroed() -> libc::sockaddr_storage {
    // SAFETY: integers and arrays of them may be zero.
    unsafe { zeroed() }
}

const fn unsafe_zeroed_header() -> libc::mmsghdr {
    // SAFETY: integers may be zero, and pointers null.
    unsafe { zeroed() }
}

/// Returns the address in a buffer that the kernel has filled.
fn address_in(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a `sockaddr_in`, which is shorter than the storage and no more aligned.
            let name = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from_bits(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above, of a `sockaddr_in6`.
            let name = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(name.sin6_addr.s6_addr), u16::from_be(name.sin6_port));
            Some(SocketAddrV6::new(ip, port, name.sin6_flowinfo, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Writes an address. Returns its length in bytes.
fn put_address(address: SocketAddr, storage: &mut libc::sockaddr_storage) -> libc::socklen_t {
    let place: *mut libc::sockaddr_storage = storage;
    match address {
        SocketAddr::V4(address) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: address.ip().to_bits().to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is longer than any address, and as aligned.
            unsafe { place.cast::<libc::sockaddr_in>().write(name) };
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(address) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(name) };
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

/// Returns the local address in the control messages of a datagram that arrived; none for one that was sent to many hosts.
fn local_in(header: &libc::msghdr) -> Option<Local> {
    // SAFETY: the kernel has filled control messages of the length in the header.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: the macros return only headers that lie within the control messages as a whole; their data may be unaligned.
        let (level, kind, data) =
            unsafe { ((*message).cmsg_level, (*message).cmsg_type, libc::CMSG_DATA(message)) };
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // SAFETY: the kernel writes a whole `in_pktinfo`.
                let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                // They differ for a datagram to a broadcast or multicast address.
                let own = info.ipi_spec_dst.s_addr;
                let ip = IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(own)));
                return (own == info.ipi_addr.s_addr).then_some(Local { ip, interface: 0 });
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // SAFETY: the kernel writes a whole `in6_pktinfo`.
                let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                let interface = if ip.is_unicast_link_local() { info.ipi6_ifindex } else { 0 };
                return (!is_for_many(ip)).then_some(Local { ip: ip.into(), interface });
            }
            _ => {}
        }
        // SAFETY: as for the first one.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    None
}

fn is_for_many(ip: Ipv6Addr) -> bool {
    let mapped = ip.to_ipv4_mapped();
    ip.is_multicast() || mapped.is_some_and(|ip| ip.is_multicast() || ip.is_broadcast())
}

/// Writes the control message that makes a datagram leave from `local` into the buffer that the header points to.
fn put_local(local: Local, is_ipv6: bool, header: &mut libc::msghdr) {
    if is_ipv6 {
        let ip = match local.ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let address = libc::in6_addr { s6_addr: ip.octets() };
        let info = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: local.interface as _ };
        return put_control(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info, header);
    }
    let IpAddr::V4(ip) = local.ip.to_canonical() else {
        header.msg_controllen = 0;
        return;
    };
    let address = libc::in_addr { s_addr: ip.to_bits().to_be() };
    let none = libc::in_addr { s_addr: 0 };
    let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: none };
    put_control(libc::IPPROTO_IP, libc::IP_PKTINFO, info, header);
}

fn put_control<T: Copy>(level: libc::c_int, kind: libc::c_int, data: T, header: &mut libc::msghdr) {
    const { assert!(size_of::<T>() <= 20 && size_of::<MaybeUninit<T>>() + 32 <= CONTROL) };
    let bytes = size_of::<T>() as libc::c_uint;
    // SAFETY: the control buffer of the header has `CONTROL` zeroed bytes, more than CMSG_SPACE of `T`, and is aligned; so the first
    // header and its data lie within.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(bytes) as _;
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = level;
        (*message).cmsg_type = kind;
        (*message).cmsg_len = libc::CMSG_LEN(bytes) as _;
        libc::CMSG_DATA(message).cast::<T>().write_unaligned(data);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    /// Returns a socket at `address` that reports addresses; none if this machine lacks the family.
    fn socket(address: &str) -> Option<UdpSocket> {
        let socket = UdpSocket::bind(address).ok()?;
        report_addresses(socket.as_fd(), address.starts_with('[')).unwrap();
        Some(socket)
    }

    fn buffers() -> Vec<Vec<u8>> {
        vec![vec![0; 100]; BATCH + 1]
    }

    #[test]
    fn answers_are_sent_from_the_called_address() {
        for (bound, asked) in [
            ("0.0.0.0:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.77"),
            ("[::]:0", "127.0.0.78"),
            ("[::]:0", "::1"),
            ("[::1]:0", "::1"),
        ] {
            let Some(server) = socket(bound) else { continue };
            let asked: IpAddr = asked.parse().unwrap();
            let client = if asked.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
            let Ok(client) = UdpSocket::bind(client) else { continue };
            let server_at = SocketAddr::new(asked, server.local_addr().unwrap().port());
            client.send_to(b"question", server_at).unwrap();
            let mut buffers = buffers();
            let received = receive(server.as_fd(), &mut buffers).unwrap();
            let [Some(Received { length: 8, peer, local })] = received[..] else { panic!("{received:?}") };
            assert_eq!(&buffers[0][..8], b"question");
            assert_eq!(local.ip.to_canonical(), asked);
            let datagram = Datagram { bytes: b"answer".to_vec(), peer, local };
            let is_ipv6 = bound.starts_with('[');
            assert_eq!(send(server.as_fd(), is_ipv6, &[datagram]).unwrap(), 1);
            let mut answer = [0; 100];
            let (length, from) = client.recv_from(&mut answer).unwrap();
            assert_eq!((&answer[..length], from), (&b"answer"[..], server_at), "{bound} asked at {asked}");
        }
    }

    #[test]
    fn many_datagrams_take_one_call_each_way() {
        let server = socket("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        for number in 0..=BATCH as u8 {
            client.send_to(&[number; 3], at).unwrap();
        }
        let mut buffers = buffers();
        let first = receive(server.as_fd(), &mut buffers).unwrap();
        assert_eq!(first.len(), BATCH);
        assert!((0..BATCH).all(|index| buffers[index][..3] == [index as u8; 3]));
        let answers: Vec<_> = first
            .iter()
            .flatten()
            .map(|Received { peer, local, .. }| Datagram { bytes: vec![9; 5], peer: *peer, local: *local })
            .collect();
        assert_eq!(send(server.as_fd(), false, &answers).unwrap(), BATCH);
        let mut answer = [0; 100];
        for _ in 0..BATCH {
            assert_eq!(client.recv(&mut answer).unwrap(), 5);
        }
        assert_eq!(receive(server.as_fd(), &mut buffers).unwrap().len(), 1);
        let none = receive(server.as_fd(), &mut buffers).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn datagrams_that_are_cut_off_are_not_answered() {
        let server = socket("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        for length in [0, 100, 101] {
            client.send_to(&vec![1; length], at).unwrap();
        }
        let received = receive(server.as_fd(), &mut buffers()).unwrap();
        let lengths: Vec<_> = received.iter().map(|it| it.map(|it| it.length)).collect();
        assert_eq!(lengths, [Some(0), Some(100), None]);
    }

    #[test]
    fn an_answer_that_cannot_be_sent_is_an_error() {
        let server = socket("127.0.0.1:0").unwrap();
        let elsewhere = Local { ip: "192.0.2.1".parse().unwrap(), interface: 0 };
        let peer = server.local_addr().unwrap();
        let datagram = Datagram { bytes: vec![1], peer, local: elsewhere };
        assert!(send(server.as_fd(), false, &[datagram]).is_err(), "this machine has no such address");
    }
}
