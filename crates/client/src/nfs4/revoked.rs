//! Finds the opens, locks and delegations that the server has revoked (RFC 8881 §8.4.2.4, §18.48), and lets the server forget them.

use std::sync::Arc;

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::stateid::{FreeStateidArgs, TestStateidArgs};
use protocol::nfs4::types::{Handle, Stateid, Status};
use xdr::List;

use super::Nfs4;
use super::session::{Session, Unexecuted};
use super::wire::{Results, take};
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::LockerUse;
use crate::opens::OpenFile;

/// Stateids that are tested at a time.
const TESTED_AT_ONCE: usize = 256;

/// A state to test.
enum Tested {
    Open(Arc<OpenFile>),
    Lock(Arc<LockerUse>, u32),
    Delegation(Handle),
    Directory(Handle),
}

impl Nfs4 {
    /// Tests all opens, locks and delegations. Revoked locks are lost; revoked opens are opened again when they are used next.
    /// Returns whether any were revoked.
    ///
    /// # Errors
    /// If the session was lost.
    pub(super) async fn free_revoked(&self, session: &Arc<Session>) -> Result<bool, OpError> {
        let mut has_found = false;
        let machine = &self.config.machine;
        for part in self.tested().chunks(TESTED_AT_ONCE) {
            let stateids = List::new(part.iter().map(|(stateid, _)| *stateid).collect()).unwrap_or_default();
            let test = Op::TestStateid(TestStateidArgs { stateids });
            let statuses = take!(run(session, machine, test).await?, TestStateid)?;
            for ((stateid, state), status) in part.iter().zip(statuses.iter()) {
                if matches!(*status, Status::OK | Status::OLD_STATEID) {
                    continue;
                }
                has_found = true;
                match state {
                    Tested::Lock(locker, open) => {
                        if locker.lose_of_open(*open) {
                            self.locks_lost(&locker.file);
                        }
                    }
                    Tested::Open(file) => self.lose_locks_of(file),
                    Tested::Delegation(handle) => self.delegation_revoked(handle, stateid),
                    Tested::Directory(handle) => self.directory_watches.lost(Some(handle)),
                }
                // Whether the server knew the stateid does not matter.
                run(session, machine, Op::FreeStateid(FreeStateidArgs { stateid: *stateid })).await?;
            }
        }
        Ok(has_found)
    }

    /// Returns the stateids of all state.
    fn tested(&self) -> Vec<(Stateid, Tested)> {
        let delegated = self.delegations.stateids().into_iter();
        let mut tested: Vec<_> =
            delegated.map(|(handle, stateid)| (stateid, Tested::Delegation(handle))).collect();
        let watched = self.directory_watches.held().into_iter();
        tested.extend(watched.map(|(handle, stateid)| (stateid, Tested::Directory(handle))));
        for locker in self.locks.all().into_iter().map(Arc::new) {
            let states = locker.stateids();
            tested.extend(
                states.into_iter().map(|(open, stateid)| (stateid, Tested::Lock(Arc::clone(&locker), open))),
            );
        }
        for file in self.opens.all().into_iter().filter(|file| !file.is_local()) {
            tested.extend(file.stateid().ok().map(|stateid| (stateid, Tested::Open(file))));
        }
        tested
    }
}

async fn run(session: &Arc<Session>, machine: &Caller, op: Op) -> Result<Results, OpError> {
    match session.compound(machine.credential(), &[op], true).await {
        Ok(results) => Ok(results),
        Err(Unexecuted::Call(error)) => Err(OpError::Call(error)),
        Err(Unexecuted::Refused(status)) => Err(OpError::Status(status)),
        Err(_) => Err(OpError::Status(Status::BADSESSION)),
    }
}
