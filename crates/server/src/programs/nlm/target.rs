//! The target of a call: the file, the owner, the bytes.

use std::sync::Arc;

use protocol::nlm::{Lock, Stats};
use vfs::{Authority, Error, OpenAccess, Pin};

use super::Call;
use crate::files::object::File;
use crate::files::rights::Right;
use crate::request::{Target, TargetError};
use crate::state::{FileKey, IoKind, LockRange, NlmHost, NlmOwner, NlmRefusal};

/// The file and the bytes of a lock.
pub(super) struct LockTarget<'r> {
    pub(super) target: Target<'r>,
    pub(super) file: FileKey,
    pub(super) range: LockRange,
    /// The owner's bytes: its process and its handle.
    pub(super) owner: Arc<[u8]>,
}

impl<'r> Call<'r> {
    /// Finds the file that a handle names.
    pub(super) fn file(&self, handle: &[u8]) -> Result<(Target<'r>, FileKey), Stats> {
        let target = self.request.target(handle).map_err(|error| match error {
            TargetError::BadHandle | TargetError::Stale | TargetError::Moved => Stats::STALE_FH,
            // Clients do not see the status for a weak flavor: the RPC reply refuses the call.
            TargetError::NotAdmitted | TargetError::TooWeak | TargetError::UnprivilegedPort => Stats::FAILED,
        })?;
        let key = File::new(target.export, target.handle).key(self.request.server);
        Ok((target, key))
    }

    /// Finds the file and the bytes of a lock.
    pub(super) fn lock_target(&self, lock: &Lock) -> Result<LockTarget<'r>, Stats> {
        let (target, file) = self.file(&lock.fh)?;
        let range = range_of(lock).ok_or(Stats::FBIG)?;
        // XNFS: a lock is owned by `svid`, the process, and `oh`, "an opaque object that identifies the host, or the process on the host".
        let owner = [&lock.svid.to_be_bytes()[..], &lock.oh].concat().into();
        Ok(LockTarget { target, file, range, owner })
    }

    /// Returns the host that a call names; makes it if there is none.
    pub(super) fn host(&self, name: &[u8]) -> Result<Arc<NlmHost>, Stats> {
        let now = self.request.now.monotonic;
        self.request.server.state.nlm_host(now, name, self.path()).ok_or(Stats::DENIED_NOLOCKS)
    }

    /// Returns the owner that a call of an existing host names.
    pub(super) fn known_owner(&self, lock: &Lock, target: &LockTarget<'_>) -> Option<NlmOwner> {
        let address = self.request.connection.peer.ip();
        let host = self.request.server.state.known_nlm_host(&lock.caller_name, address)?;
        Some(NlmOwner { host, file: target.file, owner: Arc::clone(&target.owner) })
    }
}

/// Returns the bytes of a lock; `None` if they reach beyond 2^64. XNFS: a length of zero "means to the end of the file".
fn range_of(lock: &Lock) -> Option<LockRange> {
    let last = lock.l_len.checked_sub(1).map_or(Some(u64::MAX), |more| lock.l_offset.checked_add(more))?;
    let length = if last == u64::MAX { u64::MAX } else { lock.l_len };
    LockRange::new(lock.l_offset, length)
}

/// Opens a file for a lock. The caller must be able to read it, or to write it if `may_write` is enough; owners may do both, regardless
/// of the mode, as with READ and WRITE.
pub(super) async fn open(target: &Target<'_>, may_write: bool) -> Result<Arc<dyn Pin>, Stats> {
    let (export, context, handle) = (target.export, &target.context, &target.handle);
    let read = Right::Content(IoKind::Read).check(export, context, handle).await;
    if let Err(error) = read {
        let write = Right::Content(IoKind::Write);
        let is_refused = !may_write || write.check(export, context, handle).await.is_err();
        if error != Error::Access || is_refused {
            return Err(status(error));
        }
    }
    let access = OpenAccess { read: true, write: false };
    let opened = export.backend.open(context, handle, access, Authority::Opened).await;
    opened.map(|opened| opened.pin).map_err(status)
}

/// Returns the status for an error of the backend. With [`Stats::DENIED_GRACE_PERIOD`] clients try again, blocking calls too.
pub(super) fn status(error: Error) -> Stats {
    match error {
        Error::Stale | Error::BadHandle | Error::NotFound => Stats::STALE_FH,
        Error::Later | Error::Busy => Stats::DENIED_GRACE_PERIOD,
        Error::ReadOnly => Stats::ROFS,
        Error::NoSpace | Error::Quota => Stats::DENIED_NOLOCKS,
        _ => Stats::FAILED,
    }
}

/// Returns the status for a refusal by the tables of locks.
pub(super) fn refusal(refusal: NlmRefusal) -> Stats {
    match refusal {
        NlmRefusal::Denied => Stats::DENIED,
        NlmRefusal::Blocked => Stats::BLOCKED,
        NlmRefusal::Grace => Stats::DENIED_GRACE_PERIOD,
        NlmRefusal::NoRoom => Stats::DENIED_NOLOCKS,
    }
}

#[cfg(test)]
mod tests {
    use protocol::nlm::{Name, NetObj};

    use super::*;

    #[test]
    fn ranges_end_with_the_last_byte_of_64_bits() {
        let range = |l_offset, l_len| {
            let lock = Lock {
                caller_name: Name::default(),
                fh: NetObj::default(),
                oh: NetObj::default(),
                svid: 1,
                l_offset,
                l_len,
            };
            range_of(&lock).map(|range| (range.offset(), range.length()))
        };
        assert_eq!(range(7, 0), Some((7, u64::MAX)), "to the end of the file");
        assert_eq!(range(7, 3), Some((7, 3)));
        assert_eq!(range(u64::MAX, 1), Some((u64::MAX, u64::MAX)));
        assert_eq!(range(u64::MAX, 2), None);
        assert_eq!(range(2, u64::MAX), None);
        assert_eq!(range(1, u64::MAX), Some((1, u64::MAX)));
    }
}
