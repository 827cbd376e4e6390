//! Operations on client records: EXCHANGE_ID, SETCLIENTID, expiry, recovery after a restart, administration.

pub(crate) mod administer;
pub(crate) mod exchange_id;
pub(crate) mod expiry;
mod new_record;
pub(crate) mod protect;
pub(crate) mod restart;
pub(crate) mod setclientid;
