//! The behaviour of NFS, MOUNT and portmap: requests in, replies out; no sockets, clocks, files or randomness.
//!
//! One [`Server`] is shared by all cores. A transport gives it each complete RPC record with the [`Connection`] it came
//! over and the time ([`Now`]), and sends what was written into the reply. Everything here can therefore be run in one
//! thread and in virtual time, as `sim` does.
//!
//! A request's way: [`Server::handle`] → [`caller`] (credentials) → reply cache → program, version, procedure →
//! `nfs3::<procedure>`, `nfs4::compound` → `nfs4::ops::<op>`, `mount`, `portmap` → [`vfs::Backend`] → encoded reply.
#![deny(unsafe_code)]

mod administer;
pub mod caller;
mod connection;
mod dispatch;
mod export;
mod fetch;
mod flavor;
pub mod gss;
mod handle;
mod id_names;
mod junction;
mod listings;
#[cfg(test)]
mod malformed_tests;
mod metrics;
mod mount;
mod nfs3;
pub mod nfs4;
mod once;
mod outbox;
mod payload;
pub mod peer;
mod portmap;
mod prefetch;
mod quoted;
#[cfg(test)]
mod reload_tests;
mod reply_cache;
mod request;
mod settings;
mod state_log;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testing0;
mod throttle;
mod versions;

pub use administer::{DelegationTotals, EvictError, RecallError, Snapshot};
pub use connection::{Connection, ConnectionId, Transport};
pub(crate) use dispatch::LOG_LINES_A_SECOND;
pub use dispatch::{Disposition, Operation, Outcome, Server};
pub use export::{
    ClientPattern, DEFAULT_ANONYMOUS, Export, ExportCounts, ExportError, ExportId, ExportOptions,
    ExportTable, Network, Squash,
};
pub use fetch::{Extent, Fetch, FetchError, Fetched, SourceFile};
pub use flavor::{Flavor, Flavors, FlavorsError};
pub use handle::{HandleKey, WIRE_HANDLE_MAX, WireHandle};
pub use id_names::{IdNames, MAX_ID_NAMES};
pub use junction::Junction;
pub use metrics::{Effort, Metrics, Observer, OperationMetrics};
pub use nfs4::Advanced;
pub use nfs4::state::{
    CallbackPath, ClientSnapshot, Counts, DelegationCounts, Dial, Evicted, FileRecall, GraceSnapshot,
    LocalChange, Offload, OffloadCounts, PersistenceSnapshot, Principal, Reclaimers, RecordsSnapshot,
    SessionSnapshot, SlotUse, Standing,
};
pub use once::{RECORD_BYTES_MAX, ReplyLog, StableLog};
pub use outbox::Outbox;
pub use peer::{LocalUser, PeerOwner};
pub use portmap::{Registration, registrations};
pub use prefetch::prefetch;
pub use quoted::Quoted;
pub use settings::{Now, Settings};
pub use state_log::{KEY_BYTES_MAX, StateLog, VALUE_BYTES_MAX};
pub use throttle::Throttle;
pub use versions::Versions;
