//! Reclaims the locks that existed when the server restarted (RFC 8881 §8.4.2.1; RFC 7530 §9.6.2).

use std::collections::HashSet;
use std::sync::Arc;

use protocol::nfs4::compound::OpResult;
use protocol::nfs4::ops::lock::LockOutcome;
use protocol::nfs4::types::Status;

use super::Nfs4;
use super::locking::Locking;
use super::ops::lock_type;
use super::owned::check_client_known;
use super::recovery::as_lost;
use super::session::Session;
use crate::error::OpError;
use crate::locks::{HeldRange, LockerUse};
use crate::opens::OpenFile;
use crate::owner::Seqid;

impl Nfs4 {
    /// Reclaims the locks of one owner on one file, in the order of their offsets. `open` are the numbers of the opens that were
    /// reclaimed; locks through others are lost, as are those that the server refuses.
    ///
    /// # Errors
    /// If the session was lost again.
    pub(super) async fn reclaim_locks(
        &self,
        session: &Arc<Session>,
        locker: &LockerUse,
        open: &HashSet<u32>,
    ) -> Result<(), OpError> {
        {
            // The server knows no owner under its new client ID: the first seqid may be any.
            let mut seqid = locker.seqid().await;
            if !seqid.is_known() {
                *seqid = Seqid::new(session.minor_version == 0);
            }
        }
        let keeps_local = self.delegations.stateid(&locker.file).is_some();
        for (held, file) in locker.begin_reclaim(keeps_local) {
            let is_open = open.contains(&held.open);
            if !is_open || !self.reclaim_lock(session, locker, held, &file).await? {
                locker.lose(held);
                self.locks_lost(&locker.file);
            }
        }
        locker.end_reclaim();
        Ok(())
    }

    /// Reclaims one range. Returns false if the server refuses.
    async fn reclaim_lock(
        &self,
        session: &Arc<Session>,
        locker: &LockerUse,
        held: HeldRange,
        file: &OpenFile,
    ) -> Result<bool, OpError> {
        let (range, lock_type) = (held.range, lock_type(held.kind, false));
        let locking = Locking { caller: &file.caller, file, range, lock_type, reclaim: true };
        let Ok(mut sent) = self.lock_in(session, locker, &locking).await.map_err(as_lost)? else {
            return Ok(false);
        };
        // The server may have restarted again. EXPIRED refuses this lock.
        if sent.results.status() != Status::EXPIRED {
            check_client_known(session, sent.results.status()).map_err(as_lost)?;
        }
        // PUTFH and LOCK.
        match sent.results.take_results(2).pop() {
            Some(OpResult::Lock(LockOutcome::Ok(stateid))) => {
                locker.reclaimed(held.open, stateid);
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
