//! Operations on sessions: creation, connections, SEQUENCE, persistence.

pub(crate) mod bind;
pub(crate) mod create;
pub(crate) mod persistent;
pub(crate) mod sequence;
