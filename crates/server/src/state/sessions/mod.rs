//! Operations on sessions.

pub(crate) mod sequence;
