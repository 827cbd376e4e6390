//! Background copies, and copies from other servers (RFC 7862 §4).

pub(crate) mod inter_server;
pub(crate) mod offload;
