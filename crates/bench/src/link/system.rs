//! The system calls of a link: TUN devices, addresses of interfaces, and namespaces.
//!
//! Everything here works on the network namespace of the calling thread.

use std::ffi::c_short;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// Bytes of the header in front of each packet of a TUN device: `struct virtio_net_hdr`.
pub(super) const HEADER_BYTES: usize = 10;

const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0_u32 as libc::Ioctl;
/// Checksums, and packets of TCP over IPv4 that are cut later.
const OFFLOADS: libc::c_ulong = 1 | 2;

/// Attempts to move a process into a user namespace, with pauses of a millisecond.
const UNSHARE_TRIES_MAX: u32 = 200;

/// Opens a TUN device with this name (at most 15 bytes), which disappears when the file is closed.
///
/// Packets have a [`HEADER_BYTES`] long header. With `large`, the system passes packets of up to 64 KiB uncut.
pub(super) fn open_tun(name: &str, large: bool) -> io::Result<File> {
    let context = |error: io::Error| io::Error::new(error.kind(), format!("/dev/net/tun: {error}"));
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    let tun = options.open("/dev/net/tun").map_err(context)?;
    let mut request = interface(name)?;
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF, &raw mut request) }).map_err(context)?;
    let offloads: libc::c_ulong = if large { OFFLOADS } else { 0 };
    // SAFETY: the argument of TUNSETOFFLOAD is a number, no pointer.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETOFFLOAD, offloads) }).map_err(context)?;
    Ok(tun)
}

/// Gives an interface an address in a network of 24 bits, an MTU and a queue length, and sets it up.
pub(super) fn configure(name: &str, address: Ipv4Addr, mtu: u32, queue: u32) -> io::Result<()> {
    let socket = control_socket()?;
    let set = |call, request: &mut libc::ifreq| {
        // SAFETY: the call reads one `ifreq`, which `request` is.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), call, std::ptr::from_mut(request)) })
    };
    let number = |value: u32| libc::c_int::try_from(value).map_err(io::Error::other);
    let mut request = interface(name)?;
    request.ifr_ifru.ifru_addr = socket_address(address);
    set(libc::SIOCSIFADDR, &mut request)?;
    request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::new(255, 255, 255, 0));
    set(libc::SIOCSIFNETMASK, &mut request)?;
    request.ifr_ifru.ifru_mtu = number(mtu)?;
    set(libc::SIOCSIFMTU, &mut request)?;
    // Linux reads the length of the queue from the same place as a metric.
    request.ifr_ifru.ifru_metric = number(queue)?;
    // Inside a user namespace the kernel refuses this; its default of 500 packets remains.
    let _ = set(libc::SIOCSIFTXQLEN, &mut request);
    up(&socket, name)
}

/// Sets an interface up.
pub(super) fn set_up(name: &str) -> io::Result<()> {
    up(&control_socket()?, name)
}

fn up(socket: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = interface(name)?;
    request.ifr_ifru.ifru_flags = libc::IFF_UP as c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) })
}

/// Moves the calling thread into a new network namespace.
pub(super) fn new_network() -> io::Result<()> {
    // SAFETY: only UnshareFlags::FILES lets threads disagree about file descriptors.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// Moves this process into a new user namespace in which it is root; it must have one thread only.
pub(super) fn new_user() -> io::Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut tries = UNSHARE_TRIES_MAX;
    loop {
        // SAFETY: only UnshareFlags::FILES lets threads disagree about file descriptors.
        match unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) } {
            Ok(()) => break,
            // A thread that was joined may still be exiting.
            Err(rustix::io::Errno::INVAL) if tries > 0 => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.into()),
        }
        tries -= 1;
    }
    // Without this, the kernel refuses a map of groups from an unprivileged process.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Moves the calling thread into a network namespace.
pub(super) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
}

/// Lets the calling thread run before all ordinary ones, if this process may: a wire does not wait for a processor.
///
/// The kernel keeps a twentieth of each second for the others (`sched_rt_runtime_us`).
pub(super) fn run_first() -> io::Result<()> {
    // SAFETY: `sched_param` has only integers, for which zero is a value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the call reads one `sched_param`, which `parameters` is; 0 is the calling thread.
    check(unsafe {
        libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    })
}

/// Ends [`run_first`].
pub(super) fn run_as_others() -> io::Result<()> {
    // SAFETY: `sched_param` has only integers, for which zero is a value, and the priority of SCHED_OTHER.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the call reads one `sched_param`, which `parameters` is; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) })
}

/// Makes the kernel kill the command's process when the thread that starts it ends.
pub(crate) fn die_with_this_thread(command: &mut Command) {
    let set_signal = || {
        let signal = rustix::process::Signal::KILL;
        Ok(rustix::process::set_parent_process_death_signal(Some(signal))?)
    };
    // SAFETY: between fork and exec only async-signal-safe functions may run; prctl is a system call, and allocates
    // nothing.
    unsafe { command.pre_exec(set_signal) };
}

fn control_socket() -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Returns a request about an interface, with everything else zero.
fn interface(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` has only integers, and arrays and unions of them, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte is for the end of the string.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::other(format!("{name}: too long for an interface")));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Returns an address of IPv4 in the form of the older calls.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    // sockaddr_in: two bytes of port, then the address in network order.
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interfaces_are_bounded() {
        assert!(interface("sixteen-bytes-xx").is_err());
        let request = interface("fifteen-bytes-x").unwrap();
        assert_eq!(request.ifr_name[15], 0);
    }

    #[test]
    fn address_has_the_layout_of_sockaddr_in() {
        let address = socket_address(Ipv4Addr::new(10, 77, 0, 255));
        assert_eq!(address.sa_family, 2);
        assert_eq!(address.sa_data[..6].iter().map(|b| *b as u8).collect::<Vec<_>>(), [0, 0, 10, 77, 0, 255]);
        assert_eq!(size_of::<libc::sockaddr>(), size_of::<libc::sockaddr_in>());
    }
}
