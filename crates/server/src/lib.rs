//! The behavior of NFS, MOUNT and portmap: requests in, replies out; no sockets, clocks, files or randomness.
//!
//! One [`Server`] is shared by all cores. A transport gives it each complete RPC record with its [`Connection`]
//! and the time ([`Now`]), and sends the reply. Everything here can therefore be run in one
//! thread and in virtual time, as `sim` does.
//!
//! The path of a request: [`Server::handle`] → [`caller`] (credentials) → reply cache → program, version, procedure →
//! `programs::nfs3::<procedure>`, `programs::nfs4::ops::<op>`, … → [`vfs::Backend`] → encoded reply.
#![deny(unsafe_code)]

mod admin;
pub mod caller;
mod client_log;
mod connection;
mod copy;
mod dispatch;
mod driver;
mod exports;
mod files;
mod flavor;
pub mod gss;
mod gss_mechanism;
mod handle;
mod id_names;
mod identity;
mod listing_cache;
mod metrics;
mod network;
mod nfs3_reply;
mod nfs4_status;
mod now;
mod outbox;
mod payload;
pub mod peer;
mod prefetch;
mod programs;
mod quoted;
mod remote_read;
mod replay;
mod request;
mod server;
mod settings;
mod shared;
pub mod state;
mod throttle;
mod transport;
mod versions;
mod wait_limit;
mod work;
mod work_signal;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use admin::{DelegationTotals, EvictError, EvictedName, RecallError, Snapshot};
pub use connection::Connection;
pub use dispatch::{Disposition, Outcome};
pub use exports::junction::Junction;
pub use exports::{
    ClientPattern, DEFAULT_ANONYMOUS, Export, ExportCounts, ExportError, ExportOptions, ExportTable,
    LargeFiles, Location, Locations, Squash,
};
pub use flavor::{Flavor, Flavors, FlavorsError};
pub use handle::{ExportId, HandleKey, SHORT_HANDLE_BYTES, WIRE_HANDLE_MAX, WireHandle};
pub use id_names::{IdNames, MAX_ID_NAMES};
pub use metrics::{Effort, Metrics, Observer, Operation, OperationMetrics};
pub use network::Network;
pub use now::Now;
pub use peer::{FIRST_UNPRIVILEGED_PORT, LocalUser, PeerOwner};
pub use prefetch::prefetch;
pub use programs::portmap::Registration;
pub use quoted::Quoted;
pub use remote_read::{Fetch, FetchError, Fetched, SourceFile};
pub use replay::crash_replay::{RECORD_BYTES_MAX, ReplyLog, StableLog};
pub use server::Server;
pub use settings::Settings;
pub use state::state_log::{KEY_BYTES_MAX, StateLog, VALUE_BYTES_MAX};
pub use state::{
    CallbackPath, ClientSnapshot, ClientStatus, Counts, DelegationCounts, Evicted, ExternalChange,
    FileRecall, GraceSnapshot, HostSnapshot, Offload, OffloadCounts, Outbox, PersistenceSnapshot, Principal,
    Reclaimers, RecordsSnapshot, SessionSnapshot, SlotUse,
};
pub use state::{HostName, HostPath};
pub(crate) use throttle::LOG_LINES_A_SECOND;
pub use throttle::{Suppressed, Throttle};
pub use transport::{ConnectionId, Transport, host_of};
pub use versions::Versions;
pub use work::{Connect, CopyStep, HostAnswer, HostCall, Work};
