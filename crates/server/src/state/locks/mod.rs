//! Operations on byte-range locks.

pub(crate) mod lock;
pub(crate) mod request;
pub(crate) mod wait;
