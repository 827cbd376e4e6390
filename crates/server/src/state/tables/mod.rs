//! Tables of the state: each module owns its data and the rules between them. None of them knows [`State`](super::State).

pub(crate) mod backchannel;
pub(crate) mod binding;
pub(crate) mod client;
pub(crate) mod client_table;
pub(crate) mod contention;
pub(crate) mod file;
pub(crate) mod gauges;
pub(crate) mod host;
pub(crate) mod ids;
pub(crate) mod lease;
pub(crate) mod notices;
pub(crate) mod persist;
pub(crate) mod phase;
pub(crate) mod range;
pub(crate) mod recovery;
pub(crate) mod session;
pub(crate) mod shard;
pub(crate) mod share;
pub(crate) mod slot;
pub(crate) mod slot_memory;
pub(crate) mod stateid;
pub(crate) mod transitions;
pub(crate) mod tree;
pub(crate) mod waiter;
pub(crate) mod window;
pub(crate) mod wire;
