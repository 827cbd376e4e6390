//! Owners of version 4.0: requests with a seqid, RENEW and RELEASE_LOCKOWNER.

pub(crate) mod forget;
pub(crate) mod named;
pub(crate) mod request;
