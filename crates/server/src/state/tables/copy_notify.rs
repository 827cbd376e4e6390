//! The permissions for other servers to read files here (COPY_NOTIFY, RFC 7862 §4.5, §15.3).

use core::net::IpAddr;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::client::Client;
use super::file_key::FileKey;
use super::wire::Stateid;

/// A permission for one address to read one file.
#[derive(Debug, Clone)]
pub(crate) struct CopyNotify {
    pub(crate) client: Arc<Client>,
    /// A number of the requesting user, as in [`OpenRequest::opener`](crate::state::OpenRequest::opener).
    pub(crate) caller: u64,
    pub(crate) file: FileKey,
    /// The open or the locks that it is based on.
    pub(crate) stateid: Stateid,
    pub(crate) reader: IpAddr,
}

impl CopyNotify {
    /// Returns whether both permit the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.client.id(), one.caller, one.file, one.reader);
        key(self) == key(other) && self.stateid.other == other.stateid.other
    }
}

/// All permissions.
#[derive(Debug, Default)]
pub(crate) struct CopyNotifies(pub(crate) Mutex<CopyNotifyTable>);

#[derive(Debug, Default)]
pub(crate) struct CopyNotifyTable {
    /// By number, each with its end.
    pub(crate) granted: HashMap<u32, (CopyNotify, Duration)>,
    pub(crate) last: u32,
}
