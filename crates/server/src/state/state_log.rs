//! The map of keys and values that must be on stable storage before certain replies.
//!
//! A change takes effect at once, and the *reply* waits until the change is stable: state is changed under its own locks, and
//! a change that no client has seen may be lost in a crash. It is a map, not a list of events, so that an implementation can
//! rewrite it without understanding the content.
//!
//! The first byte of a key is the kind of the entry ([`key`]).

use std::fmt;

use vfs::{Op, Thread};

/// Bytes of a key. Client names are the longest.
pub const KEY_BYTES_MAX: usize = 1100;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// First bytes of keys.
pub(crate) mod key {
    /// The lease time of the last server.
    pub(crate) const LEASE: u8 = b'l';
    /// The mark of the last server in its stateids and client IDs.
    pub(crate) const MARK: u8 = b'm';
    /// A client that may hold state, by name.
    pub(crate) const CLIENT: u8 = b'c';
    /// An NLM host that may hold locks, by address and name.
    pub(crate) const HOST: u8 = b'h';
    /// The state number of the status monitor.
    pub(crate) const MONITOR_STATE: u8 = b'n';
    /// A persistent session, by ID. Sorts before [`SLOT`], so that damage to any slot also loses the session.
    pub(crate) const SESSION: u8 = b'p';
    /// When a persistent session was found dead, by session ID. Not part of [`SESSION`]'s value: that would be rewritten after
    /// the session's slots in the log, and survive damage to them.
    pub(crate) const DEAD: u8 = b'd';
    /// A slot of a persistent session, by session ID and slot number.
    pub(crate) const SLOT: u8 = b'r';
}

/// A map on stable storage. Changes become stable in the order in which they were made, once a caller requests it: by waiting
/// ([`Self::reached`]), which lets the waiting thread write, or without waiting ([`Self::push`]).
///
/// After damage, an implementation discards everything written before the damage. It rewrites the map in the order of keys.
///
/// If the disk is full, an implementation keeps the stable content and reports [no room](StateLog::has_room) while there is
/// still space for changes of existing keys. Changes without space do not become stable until there is space again.
///
/// If an implementation can no longer write for another reason, it makes sure that the next server finds nothing (then no client
/// reclaims, which is always correct), logs this, and counts every change as stable. It retries to rewrite the whole map from
/// time to time.
pub trait StateLog: Send + Sync + fmt::Debug {
    /// Sets or removes a key. `key` has at most [`KEY_BYTES_MAX`] bytes, `value` at most [`VALUE_BYTES_MAX`]. Returns the number
    /// of the change, which is one greater than the last one's. Does not wait or write.
    fn set(&self, key: &[u8], value: Option<&[u8]>) -> u64;

    /// Returns whether changes reach stable storage at present.
    fn is_written(&self) -> bool;

    /// Returns whether new keys may be added. Checked before a client gets state for which it needs a record.
    fn has_room(&self) -> bool {
        true
    }

    /// Returns the number up to which all changes are stable, or zero.
    fn stable(&self) -> u64;

    /// Writes changes up to this number, beginning with this call; completes when they are stable. `thread` has the permitted uses of the calling
    /// thread: a fast log may write on it. Never fails, see the trait's documentation.
    fn reached(&self, number: u64, thread: Thread) -> Op<'_, ()>;

    /// Starts to write all changes for which no caller waits. Does not wait.
    fn push(&self);
}
