//! Calls to clients: over the back channels of sessions, and over connections to 4.0 clients.

pub(crate) mod replies;
pub(crate) mod send;
pub(crate) mod v40;
