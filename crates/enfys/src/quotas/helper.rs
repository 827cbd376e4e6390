//! The helper process: `enfys quota-helper`, with the socket as standard input.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use vfs::{Quota, QuotaKind};

use super::kernel;
use super::messages::{self, Answer};
use crate::sandbox;

/// Its argument; people do not start it.
pub const ARGUMENT: &str = "quota-helper";
/// The user and group that it becomes: `nobody`.
const NOBODY: u32 = 65_534;

/// Returns whether the command line starts the helper.
pub fn is_called() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().as_deref() == Some(OsStr::new(ARGUMENT)) && arguments.next().is_none()
}

/// Answers the server until it ends.
///
/// # Errors
/// One line.
pub fn run() -> Result<(), String> {
    // Inherited signals of a terminal are for the server; it closes the socket.
    drop_privileges().map_err(|error| format!("quota helper: {error}"))?;
    let socket = rustix::stdio::stdin();
    answer_all(socket, kernel::quota).map_err(|error| format!("quota helper: {error}"))
}

/// Answers the requests of a socket until it is closed.
pub fn answer_all(
    socket: BorrowedFd<'_>,
    quota: impl Fn(BorrowedFd<'_>, QuotaKind, u32) -> io::Result<Option<Quota>>,
) -> io::Result<()> {
    use std::os::fd::AsFd;
    while let Some((request, file)) = messages::receive(socket)? {
        let found = quota(file.as_fd(), request.kind, request.id);
        drop(file);
        match Answer::new(request.number, found).send(socket) {
            // The server has ended.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            sent => sent?,
        }
    }
    Ok(())
}

/// Keeps CAP_SYS_ADMIN alone, as user `nobody`, and the few system calls that answering takes.
fn drop_privileges() -> io::Result<()> {
    rustix::thread::set_keep_capabilities(true)?;
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    let only = CapabilitySet::SYS_ADMIN;
    let sets = CapabilitySets { effective: only, permitted: only, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)?;
    // Without seccomp it still has one capability and no files.
    if let Err(why) = sandbox::restrict_helper() {
        eprintln!("enfys: quota helper: system calls are not restricted: {why}");
    }
    Ok(())
}
