//! What NFSv4 clients hold: client records, sessions with their slots, opens, byte-range locks (RFC 8881 §2.10, §8, §9).
//!
//! Criteria first. An operation reaches the state from any core, so everything here is `Send + Sync` and synchronous; no
//! lock is held longer than a few map operations, and none while anything waits. Nothing reads a clock or draws random
//! numbers: `now` is an argument (monotonic, as in [`Now`](crate::Now)), identifiers come from counters and the secret in
//! [`Settings`]. Everything is bounded: records by `max_clients`, opens, locks and ranges by `max_state`, cached replies by
//! `slot_cache_bytes`.
//!
//! **How a compound uses it.**
//! 1. SEQUENCE first: [`State::sequence`] gives [`Sequenced::New`] with a [`Running`] guard, or [`Sequenced::Replay`].
//!    Errors leave the slot as it was. EXCHANGE_ID, CREATE_SESSION, BIND_CONN_TO_SESSION, DESTROY_SESSION and
//!    DESTROY_CLIENTID may come without it.
//! 2. Operations take the client from [`Running::client`] and call [`State::open`], [`State::lock`],
//!    [`State::check_io`], …; every error is the operation's status. None of these waits; a
//!    [`Backend`](vfs::Backend) is awaited between them, never inside.
//! 3. [`Running::finish`] with the encoded reply. A guard that is dropped without it (the future was dropped) leaves a
//!    slot that answers retransmissions with RETRY_UNCACHED_REP: what ran partly must not run again.
//! 4. [`State::expire`] from time to time (a second is a good period), [`State::connection_closed`] when one closes.
//!
//! **OPEN in order**: [`State::admit_open`] (grace, room; before anything is created) → backend: lookup or create, open (gives
//! the [`Pin`](vfs::Pin)) → [`State::open`] (share reservations) → truncation, if any, by the backend; where that fails,
//! [`State::withdraw_open`].
//!
//! **Layout.** Client records and sessions are rare things in maps of their own. All opens and locks of a file, with the
//! stateids that name them, live in one of [`SHARDS`] shards chosen by the file; the stateid says which, so that a READ takes
//! one short lock. A client's part of each shard is listed there, so that it leaves in time proportional to what it holds.
//! The rejected alternative, a lock a file and a table of stateids beside it, takes three locks a READ.
//!
//! **Version 4.0** has the same records, opens and locks. SETCLIENTID is another decision table beside EXCHANGE_ID's
//! ([`State::set_client_id`]); in the place of slots its owners have seqids with their last replies, beside the client
//! ([`State::begin_open_request`], [`State::end_owner_request`]). Whose a stateid is, [`State::holder`] tells; from there on all is as above.
//!
//! **Delegations** are a third kind of shard entry (their legal transitions stand in
//! [`phase`](tables::delegation::phase)); recalls leave by [`callback`](callbacks::callback) over the slots of [`backchannel`](tables::backchannel).
//!
//! **Over a restart** clients reclaim what they held: [`recovery`](tables::recovery) writes down what the next server must know for that. Answers
//! wait until it is stable ([`State::pending_change`]); the state goes on.
//!
//! Order of locks: client table, then client, then shard, then records of clients, then gauges; for callbacks: client table, a client's calls, a session's
//! connections, its back channel, an outbox. A slot's lock comes last.

mod callbacks;
mod clients;
mod copies;
mod delegations;
mod files;
mod locks;
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
pub use root::State;
pub(crate) use sessions::sequence::hash_request;
pub use sessions::sequence::{Running, Sequenced};
pub use snapshot::{CallbackPath, ClientSnapshot, ClientStatus, GraceSnapshot, SessionSnapshot};
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
pub use tables::io::{IoKind, IoPermit};
pub use tables::locks::LockRange;
pub use tables::persist::PersistenceSnapshot;
pub use tables::principal::{Credential, Principal};
pub use tables::protect::StateProtect;
pub use tables::recovery::RecordsSnapshot;
#[cfg(test)]
pub(crate) use tables::recovery::tests::Disk;
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
