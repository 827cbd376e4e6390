//! LOCKT (RFC 8881 §18.11; RFC 7530 §16.11): returns a lock that conflicts.

use std::sync::Arc;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::lock::{LockDenied, LockOutcome, LockTArgs, LockType};
use protocol::nfs4::types::Status;

use super::super::Nfs4;
use super::super::lock_owner::{lock_owner, number_of};
use super::super::wire::put;
use super::lock::lock_type;
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::{LockConflict, LockKind, LockOwner, LockRange};
use crate::results::FileHandle;

/// Number of times that a LOCKT of version 4.0 is repeated because the client ID was lost, before the caller gets an error.
const TRIES_MAX: u32 = 8;

impl Nfs4 {
    /// Returns a lock that a lock of this owner conflicts with.
    pub(crate) async fn test_lock(
        self: &Arc<Self>,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<LockConflict>, OpError> {
        if let Some(conflict) = self.test_delegated(&handle, owner, range, kind) {
            return Ok(conflict);
        }
        // An owner without locks is forgotten afterwards.
        let locker = self.locks.locker(handle, owner);
        let asking = locker.ask();
        if asking.has_local {
            // The server does not know them: they become known with the end of the delegation.
            self.give_back(&handle).await;
        }
        let mut tries = self.tries(TRIES_MAX);
        while tries.count() {
            let session = self.session().await?;
            let test = Op::LockT(LockTArgs {
                lock_type: lock_type(kind, false),
                offset: range.offset(),
                length: range.wire_length(),
                owner: lock_owner(session.client_id, locker.number()),
            });
            let mut results = self.read_only(caller, &[put(handle), test]).await?;
            results.skip()?;
            return match results.take_results(1).pop() {
                Some(OpResult::LockT(LockOutcome::Ok(()))) => Ok(None),
                Some(OpResult::LockT(LockOutcome::Denied(denied))) => {
                    Ok(Some(self.conflict(session.client_id, &denied)))
                }
                // RFC 7530 §9.6.2, §9.6.3: the server has restarted, or the lease has ended.
                Some(OpResult::LockT(LockOutcome::Error(
                    status @ (Status::STALE_CLIENTID | Status::EXPIRED),
                ))) if !self.has_sessions() => {
                    session.lose(status);
                    continue;
                }
                Some(OpResult::LockT(LockOutcome::Error(status))) => Err(OpError::Status(status)),
                _ => Err(OpError::BadReply("the result of another operation")),
            };
        }
        Err(OpError::BadReply("it loses the client ID with every LOCKT"))
    }

    fn conflict(&self, client_id: u64, denied: &LockDenied) -> LockConflict {
        let LockDenied { offset, length, lock_type, owner } = denied;
        let is_own = owner.client_id == client_id;
        let number = if is_own { number_of(&owner.owner) } else { None };
        LockConflict {
            range: LockRange::of_wire(*offset, *length),
            kind: match lock_type {
                LockType::Read | LockType::ReadWait => LockKind::Shared,
                LockType::Write | LockType::WriteWait => LockKind::Exclusive,
            },
            owner: number.and_then(|number| self.locks.owner_of(number)),
            name: owner.owner.bytes().clone(),
        }
    }
}
