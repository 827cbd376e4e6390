//! Requests with a seqid, and other operations of version 4.0 clients.

pub(crate) mod forget;
pub(crate) mod named;
pub(crate) mod request;
