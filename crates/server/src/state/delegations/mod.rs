//! Operations on delegations.

pub(crate) mod delegation;
pub(crate) mod directory;
pub(crate) mod inquiry;
pub(crate) mod local_change;
pub(crate) mod times;
