//! Quotas of file systems, for the server: asked by a helper process, since asking for other users takes CAP_SYS_ADMIN, which the server
//! does not keep.
//!
//! The helper is this binary, started before the server gives up its privileges. It has that capability and nothing else: no files, no
//! root user, few system calls. It answers one kind of question, in messages of fixed size. It ends with the server.

pub mod helper;
mod kernel;
mod messages;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use localfs::QuotaSource;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use rustix::thread::{CapabilitySet, capabilities};
use store::error_text;
use tracing::{info, warn};
use vfs::{Quota, QuotaKind};

use self::messages::{Answer, Request};
use crate::exports::{ExportPlan, Source};

/// Longest time for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Starts the helper if it is needed: a file system of an export has quotas, and this process has the capability. Called before the
/// process gives it up.
pub fn start(exports: &[ExportPlan]) -> Option<Arc<dyn QuotaSource>> {
    if !exports.iter().any(has_quotas) {
        return None;
    }
    let has_capability = rustix::process::geteuid().is_root()
        && capabilities(None).is_ok_and(|sets| sets.permitted.contains(CapabilitySet::SYS_ADMIN));
    if !has_capability {
        info!("quotas of file systems are not served: that takes CAP_SYS_ADMIN at the start");
        return None;
    }
    match Helper::start() {
        Ok(helper) => Some(Arc::new(helper)),
        Err(error) => {
            warn!("quotas of file systems are not served: the helper does not start: {}", error_text(&error));
            None
        }
    }
}

/// Returns whether the file system of an export keeps quotas.
fn has_quotas(export: &ExportPlan) -> bool {
    let Source::Directory(path) = &export.source else { return false };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()) else { return false };
    [QuotaKind::User, QuotaKind::Group].iter().any(|kind| {
        match kernel::quota(directory.as_fd(), *kind, 0) {
            Ok(quota) => quota.is_some(),
            // Quotas are there, but this process may not ask.
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        }
    })
}

/// The helper process.
#[derive(Debug)]
struct Helper {
    socket: Mutex<Conversation>,
    _child: Child,
}

#[derive(Debug)]
struct Conversation {
    socket: OwnedFd,
    /// The number of the last request.
    number: u32,
}

impl Helper {
    fn start() -> io::Result<Self> {
        // Messages keep their bounds.
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&ours, sockopt::Timeout::Recv, Some(ANSWER_LIMIT))?;
        sockopt::set_socket_timeout(&ours, sockopt::Timeout::Send, Some(ANSWER_LIMIT))?;
        let child = Command::new("/proc/self/exe")
            .arg0("enfys")
            .arg(helper::ARGUMENT)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .env_clear()
            .current_dir("/")
            // A signal of the terminal is for the server.
            .process_group(0)
            .spawn()?;
        Ok(Self { socket: Mutex::new(Conversation { socket: ours, number: 0 }), _child: child })
    }
}

impl QuotaSource for Helper {
    fn quota(&self, file: BorrowedFd<'_>, kind: QuotaKind, id: u32) -> io::Result<Option<Quota>> {
        let mut conversation = self.socket.lock();
        conversation.number = conversation.number.wrapping_add(1);
        let request = Request { number: conversation.number, kind, id };
        messages::send(conversation.socket.as_fd(), &request, file)?;
        loop {
            let answer = Answer::receive(conversation.socket.as_fd())?;
            // An older one came too late for its request.
            if answer.number == request.number {
                return answer.result();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread in place of the process: quotas are asked with this process's rights.
    #[test]
    fn questions_are_answered_over_the_socket() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let answering = std::thread::spawn(move || {
            helper::answer_all(theirs.as_fd(), |_, kind, id| match (kind, id) {
                (QuotaKind::User, 1000) => Ok(Some(messages::tests::QUOTA)),
                (QuotaKind::User, _) => Ok(None),
                (QuotaKind::Group, _) => Err(io::Error::from_raw_os_error(libc::EIO)),
            })
        });
        let helper = Helper {
            socket: Mutex::new(Conversation { socket: ours, number: u32::MAX }),
            _child: Command::new("true").spawn().unwrap(),
        };
        let file = std::fs::File::open("/").unwrap();
        assert_eq!(helper.quota(file.as_fd(), QuotaKind::User, 1000).unwrap(), Some(messages::tests::QUOTA));
        assert_eq!(helper.quota(file.as_fd(), QuotaKind::User, 7).unwrap(), None);
        let failed = helper.quota(file.as_fd(), QuotaKind::Group, 7).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::EIO));
        drop(helper);
        assert!(answering.join().unwrap().is_ok(), "it ends with the server");
    }
}
