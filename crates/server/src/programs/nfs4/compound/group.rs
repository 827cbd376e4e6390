//! Group commit: the changes of a compound become durable together, before its reply.
//!
//! On exports whose changes are durable when they are answered, operations defer their changes ([`GroupCommit`]). At the end of the
//! compound each changed object is synced once. If that fails, the reply ends at the first operation whose change is not durable, with
//! its error. Operations after it were executed all the same, so what they changed in the client's state has to be withdrawn: opens
//! are. Operations on state that cannot be withdrawn first make the changes before them durable.

use std::sync::Arc;

use protocol::nfs4::ops::open::OpenDelegation;
use protocol::nfs4::types::{OpNum, Stateid};
use vfs::{Context, GroupCommit, NotDurable};

use super::Compound;
use crate::Export;
use crate::state::{Client, FileKey, OpenGrant};

/// What an OPEN granted.
#[derive(Debug)]
pub(super) struct GrantedOpen {
    /// Index of the OPEN.
    index: u32,
    client: Arc<Client>,
    file: FileKey,
    grant: OpenGrant,
    delegation: Option<Stateid>,
}

impl Compound<'_> {
    /// Returns the context of an operation that changes something. Its change becomes durable at the end of the compound.
    pub(crate) fn changing_context(&self, export: &Export) -> Context {
        let context = self.context(export);
        if !export.backend.is_stable() {
            return context;
        }
        let group = self.group.get_or_init(Arc::<GroupCommit>::default);
        group.begin_operation(self.index);
        Context { group: Some(Arc::clone(group)), ..context }
    }

    /// As [`Self::changing_context`], for changes that may be part of an OPEN. Version 4.0 keeps the result of an OPEN for its
    /// repetition, so it must be final.
    pub(crate) fn opening_context(&self, export: &Export) -> Context {
        if self.minor == 0 { self.context(export) } else { self.changing_context(export) }
    }

    /// Returns the index of the last operation whose change is not durable yet.
    pub(crate) fn last_deferred(&self) -> Option<u32> {
        self.group.get()?.last_deferred()
    }

    /// Returns whether an operation has to wait until the changes before it are durable.
    pub(crate) fn must_commit_before(&self, number: OpNum) -> bool {
        self.last_deferred().is_some()
            && match number {
                // 4.0 keeps the results of operations with a seqid.
                OpNum::OPEN => self.minor == 0,
                OpNum::CLOSE => self.minor == 0 || self.granted.is_empty(),
                OpNum::LOCK
                | OpNum::LOCKU
                | OpNum::OPEN_CONFIRM
                | OpNum::OPEN_DOWNGRADE
                | OpNum::RELEASE_LOCKOWNER
                | OpNum::FREE_STATEID
                | OpNum::DELEGPURGE
                | OpNum::DELEGRETURN
                | OpNum::GET_DIR_DELEGATION
                | OpNum::WANT_DELEGATION
                | OpNum::COPY
                | OpNum::COPY_NOTIFY
                | OpNum::OFFLOAD_CANCEL
                | OpNum::RECLAIM_COMPLETE
                | OpNum::DESTROY_SESSION
                | OpNum::DESTROY_CLIENTID => true,
                _ => false,
            }
    }

    /// Notes a granted open, which has to be withdrawn if the changes before it do not become durable.
    pub(crate) fn note_open(
        &mut self,
        client: &Arc<Client>,
        file: FileKey,
        grant: OpenGrant,
        delegation: &OpenDelegation,
    ) {
        if self.last_deferred().is_none() {
            return;
        }
        let delegation = match delegation {
            OpenDelegation::Read(read) | OpenDelegation::ReadAttributes(read) => Some(read.stateid),
            OpenDelegation::Write(write) | OpenDelegation::WriteAttributes(write) => Some(write.stateid),
            OpenDelegation::None | OpenDelegation::NoneExt(_) => None,
        };
        let (index, client) = (self.index, Arc::clone(client));
        self.granted.push(GrantedOpen { index, client, file, grant, delegation });
    }

    /// Makes the deferred changes durable, then logs the ends of their operations.
    ///
    /// # Errors
    /// The first operation whose change is not durable. Opens from there on are withdrawn.
    pub(crate) async fn commit_group(&mut self) -> Result<(), NotDurable> {
        let Some(group) = self.group.get() else { return Ok(()) };
        let committed = group.commit(self.request.thread(), self.request.peer()).await;
        let failed = committed.err().map(|failed| failed.operation);
        if let Some(journal) = &self.request.server.journal {
            journal.end_deferred(&self.request.logged, failed);
        }
        let granted = std::mem::take(&mut self.granted);
        if let Some(failed) = failed {
            granted
                .into_iter()
                .rev()
                .filter(|open| open.index >= failed)
                .for_each(|open| self.withdraw(&open));
        }
        committed
    }

    fn withdraw(&self, open: &GrantedOpen) {
        let state = self.state();
        state.withdraw_open(&open.client, open.grant);
        if let Some(delegation) = &open.delegation {
            // It may have been revoked meanwhile.
            let _ = state.return_delegation(self.now(), &open.client, open.file, delegation);
        }
    }
}
