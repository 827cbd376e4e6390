//! The tables of the state. Each module owns its data and keeps its invariants; none knows
//! [`State`](super::root::State), and all take what they need as arguments.

pub(crate) mod audit;
pub(crate) mod backchannel;
pub(crate) mod callback;
pub(crate) mod client;
pub(crate) mod client_table;
pub(crate) mod connections;
pub(crate) mod copies;
pub(crate) mod copy_notify;
pub(crate) mod delegation;
pub(crate) mod file_key;
pub(crate) mod gauges;
pub(crate) mod hashing;
pub(crate) mod host;
pub(crate) mod ids;
pub(crate) mod io;
pub(crate) mod lease;
pub(crate) mod locks;
pub(crate) mod notices;
pub(crate) mod persist;
pub(crate) mod principal;
pub(crate) mod protect;
pub(crate) mod recovery;
pub(crate) mod session;
pub(crate) mod session_table;
pub(crate) mod shard;
pub(crate) mod slot;
pub(crate) mod slot_memory;
pub(crate) mod stateid;
pub(crate) mod transitions;
pub(crate) mod v40_client;
pub(crate) mod v40_owners;
pub(crate) mod v40_path;
pub(crate) mod waiter;
pub(crate) mod window;
pub(crate) mod wire;
