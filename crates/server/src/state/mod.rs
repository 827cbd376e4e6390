//! State of NFSv4 clients: client records, sessions, opens, byte-range locks and delegations (RFC 8881 §2.10, §8, §9, §10).
//!
//! Operations use the state from any core, so everything here is `Send + Sync` and synchronous. No lock is held for longer
//! than a few map operations, and none while anything waits. The state reads no clock and draws no random numbers: `now` is an
//! argument (monotonic, as in [`Now`](crate::Now)); identifiers come from counters and the secret in
//! [`Settings`](crate::Settings). Everything is bounded: records by `max_clients`, opens, locks and ranges by `max_state`,
//! cached replies by `slot_cache_bytes`.
//!
//! **Modules.** [`tables`] own the data and keep its invariants; they do not know [`State`], which has all of them ([`root`]).
//! The other folders are operations: `impl State` blocks that use several tables. Imports go in one direction.
//!
//! **How a compound uses it.**
//! 1. SEQUENCE first: [`State::sequence`] returns [`Sequenced::New`] with a [`SlotRequest`] guard, or [`Sequenced::Replay`].
//!    Errors leave the slot unchanged. EXCHANGE_ID, CREATE_SESSION, BIND_CONN_TO_SESSION, DESTROY_SESSION and
//!    DESTROY_CLIENTID may come without it.
//! 2. Operations take the client from [`SlotRequest::client`] and call [`State::open`], [`State::lock`],
//!    [`State::check_io`], …; each error is the status of the operation. None of these waits; a
//!    [`Backend`](vfs::Backend) is awaited between them.
//! 3. [`SlotRequest::finish`] with the encoded reply. If the guard is dropped without it, the slot answers retransmissions with
//!    RETRY_UNCACHED_REP: a request that ran in part must not run again.
//! 4. [`State::expire`] about every second, and [`State::connection_closed`] when a connection closes.
//!
//! **OPEN in order**: [`State::admit_open`] (grace period, room; before anything is created) → backend: lookup or create, open
//! (returns the [`Pin`](vfs::Pin)) → [`State::open`] (share reservations) → truncation by the backend; if that fails,
//! [`State::withdraw_open`].
//!
//! **Shards.** All opens, locks and delegations of a file, with their stateids, are in one of [`SHARDS`] shards, chosen by the
//! file. The stateid names the shard, so that a READ takes one short lock. Each shard lists the entries of each client, so that
//! removing a client takes time in proportion to its state. A lock per file and a separate table of stateids would take
//! three locks per READ.
//!
//! **Version 4.0** uses the same records, opens and locks. SETCLIENTID ([`State::set_client_id`]) takes the place of EXCHANGE_ID.
//! Owners have seqids and last replies instead of slots ([`State::begin_open_request`], [`State::end_owner_request`]).
//! [`State::holder`] returns the client of a stateid.
//!
//! **Restarts.** Clients reclaim their state. [`tables::recovery`] records the data that the next server needs for that. Answers
//! wait until that is durable ([`State::pending_change`]); changes of the state do not.
//!
//! **Order of locks**: client table, client, shard, recovery records, gauges. For callbacks: client table, a client's queue, the
//! connections of a session, its back channel, an outbox. A slot's lock is last.

mod callbacks;
mod clients;
mod copies;
mod delegations;
mod files;
mod locks;
mod nlm;
mod root;
mod sessions;
mod tables;

mod audit;
pub(crate) mod connection_owner;
mod snapshot;
pub(crate) mod state_log;
mod v40_owners;

#[cfg(test)]
mod tests;

pub use clients::administer::Evicted;
pub use clients::exchange_id::{ExchangeId, ExchangedId};
pub use clients::expiry::Swept;
pub use clients::setclientid::{SetClientId, SetClientIdError};
pub use delegations::grant::{GrantRequest, NotDelegated};
pub use delegations::recall::FileRecall;
pub use files::open::{OpenGrant, OpenRequest};
pub use locks::request::{LockError, LockNotice, LockRequest, LockTest, Locker};
pub(crate) use nlm::calls::HostAnswer;
pub use nlm::lock::{NlmHolder, NlmLockRequest, NlmOwner, NlmRefusal};
pub use root::State;
pub(crate) use sessions::sequence::hash_request;
pub use sessions::sequence::{Sequenced, SlotRequest};
pub use snapshot::{
    CallbackPath, ClientSnapshot, ClientStatus, GraceSnapshot, HostSnapshot, SessionSnapshot,
};
pub use tables::callback::{Outbox, Sent, SentCallback};
pub use tables::client::Client;
pub(crate) use tables::copies::{Copied, CopyTask, Origin};
pub use tables::copies::{Offload, OffloadCounts};
pub(crate) use tables::copy_notify::CopyNotify;
pub use tables::delegation::active_changes::{ChangeEpoch, ChangeGuard};
pub use tables::delegation::conflict::Conflict;
pub use tables::delegation::entry_change::{EntryChange, EntryChangeKind};
pub use tables::delegation::external_changes::{ChangeNotifier, DelegationWatch, ExternalChange};
pub use tables::delegation::getattr::{HeldAttributes, HolderQuery};
pub use tables::delegation::kind::DelegationKind;
pub use tables::delegation::shared::DelegationCounts;
pub use tables::delegation::times::{FileTimes, ReportedTimes, timestamp};
pub use tables::file_key::FileKey;
pub use tables::gauges::Counts;
pub(crate) use tables::host_calls::{CallKind, PendingCall};
pub(crate) use tables::ids::incarnation_of;
pub use tables::io::{IoKind, IoPermit};
pub use tables::locks::LockRange;
pub use tables::nlm_hosts::{HostName, HostPath, NlmHost};
pub use tables::persist::PersistenceSnapshot;
pub use tables::principal::{Credential, Principal};
pub use tables::protect::StateProtect;
pub use tables::recovery::RecordsSnapshot;
#[cfg(test)]
pub(crate) use tables::recovery::tests::MemoryLog;
pub use tables::recovery::{Reclaimers, Records};
pub use tables::session::{CreateSession, MAX_OPERATIONS};
pub use tables::slot::Replay;
pub use tables::slot::SlotUse;
pub use tables::stateid::SHARDS;
pub use tables::v40_client::CallbackClient;
pub use tables::v40_owners::SavedReply;
pub use tables::v40_path::ConnectRequest;
pub use tables::waiter::DelegationWaiter;
pub(crate) use tables::wire::stable_how;
pub use v40_owners::request::{OwnerEffect, OwnerRequest, V40Caller, V40Sequenced};
