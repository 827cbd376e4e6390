//! TEST (RFC 1813 §6.3.1; XNFS): returns a lock that conflicts.

use protocol::nlm::{Holder, Stats, TestArgs, TestReply};

use super::Nlm;
use super::calls::{check_cookie, refused};
use super::lock::GRACE_PAUSE;
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::{LockConflict, LockKind, LockOwner, LockRange};
use crate::results::FileHandle;

impl Nlm {
    /// Returns a lock that a lock of this owner conflicts with.
    pub(crate) async fn test_lock(
        &self,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<LockConflict>, OpError> {
        // An owner without locks is forgotten afterwards.
        let locker = self.table.locker(handle, owner);
        loop {
            let arguments = TestArgs {
                cookie: self.cookie(),
                exclusive: kind == LockKind::Exclusive,
                alock: self.wire_lock(&locker, range),
            };
            let reply = self.call_test(caller, &arguments).await?;
            check_cookie(&arguments.cookie, &reply.cookie)?;
            match reply.stat {
                TestReply::Other(Stats::GRANTED) => return Ok(None),
                TestReply::Denied(holder) => return Ok(Some(self.conflict(holder))),
                TestReply::Other(Stats::DENIED_GRACE_PERIOD) if !self.engine.is_shut_down() => {
                    self.engine.sleep(GRACE_PAUSE).await;
                }
                TestReply::Other(status) => return Err(refused(status)),
            }
        }
    }

    fn conflict(&self, holder: Holder) -> LockConflict {
        let Holder { exclusive, svid, oh, l_offset, l_len } = holder;
        let is_own = oh == self.owner_handle(svid);
        LockConflict {
            range: LockRange::of_nlm(l_offset, l_len),
            kind: if exclusive { LockKind::Exclusive } else { LockKind::Shared },
            owner: if is_own { self.table.owner_of(svid) } else { None },
            name: oh.bytes().clone(),
        }
    }
}
