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
//! **OPEN in order**: [`State::admit_open`] (grace; before anything is created) → backend: lookup or create, open (gives
//! the [`Pin`](vfs::Pin)) → [`State::open`] (share reservations) → truncation, if any, by the backend; where that fails,
//! [`State::withdraw_open`].
//!
//! **Layout.** Client records and sessions are rare things in maps of their own. All opens and locks of a file, with the
//! stateids that name them, live in one of some shards chosen by the file; the stateid says which, so that a READ takes
//! one short lock. A client's part of each shard is listed there, so that it leaves in time proportional to what it holds.
//! The rejected alternative, a lock a file and a table of stateids beside it, takes three locks a READ.
//! Order of locks: client table, then client, then shard, then gauges; a slot's lock is taken alone.

mod skeleton;
mod wire;

pub use skeleton::*;
