//! Operations on byte-range locks.

pub(crate) mod lock;
pub(crate) mod lock_wait;
