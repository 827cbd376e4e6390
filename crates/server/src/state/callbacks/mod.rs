//! Calls to clients.

pub(crate) mod callback;
pub(crate) mod path;
