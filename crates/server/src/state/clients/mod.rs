//! Operations on client records: EXCHANGE_ID, SETCLIENTID, state protection, administration.

pub(crate) mod administer;
pub(crate) mod exchange;
pub(crate) mod protect;
pub(crate) mod setclientid;
