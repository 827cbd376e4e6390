//! How a client that waits for a lock is notified.

use std::sync::Arc;

use protocol::nfs4::types::Handle;

use super::super::client::Client;
use crate::state::tables::callback::ReferringRequest;

/// The client of a waiter for a lock, and what CB_NOTIFY_LOCK tells it (RFC 8881 §20.11).
#[derive(Debug)]
pub(crate) struct LockNotify {
    pub(crate) client: Arc<Client>,
    /// The open under which it asked.
    pub(crate) open: u32,
    pub(crate) handle: Handle,
    /// The request that asked last.
    pub(crate) asked_by: Option<ReferringRequest>,
}
