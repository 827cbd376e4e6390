//! Notifications to a service manager, if there is one: sd_notify(3); and its store of file descriptors: sd_pid_notify_with_fds(3).

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use sd_notify::NotifyState;
use store::error_text;
use tracing::warn;

/// Reports that clients are served, at the start and after a reload.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Reports that a reload begins; [`ready`] must follow.
pub fn reloading() {
    // sd_notify(3): RELOADING=1 needs MONOTONIC_USEC.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(_) => notify(&[NotifyState::Reloading]),
    }
}

/// Reports that the server stops.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Longest time until the manager has read all notifications.
const BARRIER_MAX: Duration = Duration::from_secs(10);

/// Returns whether there is a service manager.
pub fn has_manager() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Returns the number of descriptors that the manager stores; `None` if it does not say so.
pub fn store_size() -> Option<usize> {
    std::env::var("FDSTORE").ok()?.parse().ok()
}

/// Puts descriptors into the manager's store, under names without `:`, and waits until it has read that. A manager without room drops
/// them silently.
///
/// # Errors
/// There is no manager, or it does not read.
pub fn store(named: &[(String, BorrowedFd<'_>)]) -> io::Result<()> {
    let socket = manager()?;
    for (name, descriptor) in named {
        send_with(&socket, &format!("FDSTORE=1\nFDNAME={name}\n"), *descriptor)?;
    }
    // As sd_notify_barrier(3): the manager closes this pipe after it has read all earlier messages.
    let (reader, writer) = io::pipe()?;
    send_with(&socket, "BARRIER=1", writer.as_fd())?;
    drop(writer);
    let limit = Timespec { tv_sec: BARRIER_MAX.as_secs().cast_signed(), tv_nsec: 0 };
    let mut polled = [PollFd::new(&reader, PollFlags::empty())];
    if poll(&mut polled, Some(&limit))? == 0 { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
}

/// Removes descriptors with a name from the manager's store.
pub fn forget_stored(name: &str) {
    notify(&[NotifyState::Custom("FDSTOREREMOVE=1"), NotifyState::Custom(&format!("FDNAME={name}"))]);
}

fn manager() -> io::Result<UnixDatagram> {
    let path: OsString = std::env::var_os("NOTIFY_SOCKET").ok_or(io::ErrorKind::NotFound)?;
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

fn send_with(socket: &UnixDatagram, text: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    // There is room for one.
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes the descriptors that the manager has passed, with their names: sd_listen_fds_with_names(3). Call it once, before anything else
/// may have opened a descriptor with one of their numbers.
#[allow(unsafe_code)]
pub fn passed_descriptors() -> io::Result<Vec<(String, OwnedFd)>> {
    if std::env::var_os("LISTEN_FDS").is_none_or(|number| number == "0") {
        return Ok(Vec::new());
    }
    let passed = sd_notify::listen_fds_with_names()?;
    let owned = passed.map(|(number, name)| {
        // SAFETY: the manager has passed this descriptor to this process, and nothing else has taken it: the function is called once.
        (name, unsafe { OwnedFd::from_raw_fd(number) })
    });
    Ok(owned.collect())
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(error = error_text(&error), "cannot notify the service manager");
    }
}
