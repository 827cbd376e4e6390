//! Operations on opens.

pub(crate) mod io;
pub(crate) mod open;
pub(crate) mod stateids;
