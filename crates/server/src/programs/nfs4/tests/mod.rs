//! Scenarios of several operations, through the whole server.

mod compounds;
pub(crate) mod delegations;
mod faults;
mod group_commit;
mod inter_server;
mod offload;
mod recovery;
mod stateids;
mod takeover;
mod v40_callbacks;
