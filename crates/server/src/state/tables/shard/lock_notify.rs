//! How a client that waits for a lock is notified.

use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::types::Handle;
use vfs::LocalLocks;

use super::super::client::Client;
use super::super::host_calls::Grant;
use super::super::locks::LockWaiter;
use crate::state::tables::callback::ReferringRequest;

/// The client of a waiter for a lock, and how it is notified.
#[derive(Debug)]
pub(crate) struct LockNotify {
    pub(crate) client: Arc<Client>,
    pub(crate) how: Notice,
}

/// The action when a waiter may have its lock.
#[derive(Debug)]
pub(crate) enum Notice {
    /// CB_NOTIFY_LOCK (RFC 8881 §20.11): the client repeats its request.
    Callback {
        /// The open under which it asked.
        open: u32,
        handle: Handle,
        /// The request that asked last.
        asked_by: Option<ReferringRequest>,
    },
    /// The lock is granted, and the NLM host is called.
    Grant(Arc<Grant>),
}

impl LockNotify {
    /// Returns the open under which the client asked; `None` for NLM hosts.
    pub(crate) fn open(&self) -> Option<u32> {
        match &self.how {
            Notice::Callback { open, .. } => Some(*open),
            Notice::Grant(_) => None,
        }
    }

    /// Returns the locks against local processes of a file that may not be in the tables; `None` for clients of NFSv4, which have
    /// it open.
    pub(crate) fn local(&self) -> Option<&Arc<dyn LocalLocks>> {
        match &self.how {
            Notice::Callback { .. } => None,
            Notice::Grant(grant) => grant.local.as_ref(),
        }
    }
}

/// Returns the waiter whose lock a grant is.
pub(crate) fn waiting_host(grant: Arc<Grant>, now: Duration) -> LockWaiter<LockNotify> {
    LockWaiter {
        owner: grant.name.clone(),
        range: grant.range,
        kind: grant.kind,
        asked_at: now,
        notified_at: None,
        notify: LockNotify { client: Arc::clone(&grant.host.client), how: Notice::Grant(grant) },
    }
}
