//! Operations on background copies and on copies by other servers.

pub(crate) mod copy_notify;
pub(crate) mod offload;
