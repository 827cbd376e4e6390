//! The behaviour of NFS, MOUNT and portmap: requests in, replies out; no sockets, clocks, files or randomness.
//!
//! One [`Server`] is shared by all cores. A transport gives it each complete RPC record with the [`Connection`] it came
//! over and the time ([`Now`]), and sends what was written into the reply. Everything here can therefore be run in one
//! thread and in virtual time, as `sim` does.
//!
//! A request's way: [`Server::handle`] → [`caller`] (credentials) → reply cache → program, version, procedure →
//! `programs::nfs3::<procedure>`, `programs::nfs4::ops::<op>`, … → [`vfs::Backend`] → encoded reply.
#![deny(unsafe_code)]

mod admin;
pub mod caller;
mod connection;
mod copy;
mod dispatch;
mod driver;
mod exports;
mod files;
mod flavor;
pub mod gss;
mod handle;
mod id_names;
mod metrics;
mod outbox;
mod payload;
pub mod peer;
mod prefetch;
mod programs;
mod quoted;
mod replay;
mod request;
mod settings;
pub mod state;
mod throttle;
mod versions;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use admin::{DelegationTotals, EvictError, RecallError, Snapshot};
pub use connection::{Connection, ConnectionId, Transport};
pub use copy::fetch::{Fetch, FetchError, Fetched, SourceFile};
pub(crate) use dispatch::LOG_LINES_A_SECOND;
pub use dispatch::{Disposition, Operation, Outcome, Server};
pub use driver::{Connect, CopyStep, Work};
pub use exports::junction::Junction;
pub use exports::{
    ClientPattern, DEFAULT_ANONYMOUS, Export, ExportCounts, ExportError, ExportId, ExportOptions,
    ExportTable, Network, Squash,
};
pub use flavor::{Flavor, Flavors, FlavorsError};
pub use handle::{HandleKey, WIRE_HANDLE_MAX, WireHandle};
pub use id_names::{IdNames, MAX_ID_NAMES};
pub use metrics::{Effort, Metrics, Observer, OperationMetrics};
pub use outbox::Outbox;
pub use peer::{LocalUser, PeerOwner};
pub use prefetch::prefetch;
pub use programs::nfs4::executed_once;
pub use programs::portmap::{Registration, registrations};
pub use quoted::Quoted;
pub use replay::crash_replay::{RECORD_BYTES_MAX, ReplyLog, StableLog};
pub use settings::{Now, Settings};
pub use state::state_log::{KEY_BYTES_MAX, StateLog, VALUE_BYTES_MAX};
pub use state::{
    CallbackPath, ClientSnapshot, Counts, DelegationCounts, Evicted, FileRecall, GraceSnapshot, LocalChange,
    Offload, OffloadCounts, PersistenceSnapshot, Principal, Reclaimers, RecordsSnapshot, SessionSnapshot,
    SlotUse, Standing,
};
pub use throttle::Throttle;
pub use versions::Versions;
