//! What must be on stable storage before something is answered: a small map from keys to values.
//!
//! Whoever changes it goes on at once and holds back the *answer* until the change is stable: state is changed under its own
//! locks, and what nobody was told of need not outlive a crash. A map and not a list of events, so that whoever keeps it
//! can write it anew without knowing what it means.
//!
//! Keys begin with a byte that says what they are about ([`key`]).

use std::fmt;

use vfs::{Op, Thread};

/// Bytes of a key at most: a client's name is the longest.
pub const KEY_BYTES_MAX: usize = 1100;
/// Bytes of a value at most.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// First bytes of keys.
pub(crate) mod key {
    /// The lease time of the server that wrote last.
    pub(crate) const LEASE: u8 = b'l';
    /// The mark of the server that wrote last, in its stateids and client IDs.
    pub(crate) const MARK: u8 = b'm';
    /// A client that may hold state, and its name.
    pub(crate) const CLIENT: u8 = b'c';
    /// A persistent session, and its ID. Before [`SLOT`] in order, so that damage that costs any of its slots costs the session.
    pub(crate) const SESSION: u8 = b'p';
    /// When a persistent session was found dead, by its ID. Not in [`SESSION`]'s value, which would come behind its slots in the log then,
    /// and stay where damage costs those.
    pub(crate) const DEAD: u8 = b'd';
    /// A slot of a persistent session, by the session's ID and its number.
    pub(crate) const SLOT: u8 = b'r';
}

/// A map on stable storage. Changes become stable in the order in which they were made, and when somebody asks for that: by waiting
/// ([`Self::reached`]), so that nobody else need be woken who could write them meanwhile, or without ([`Self::push`]).
///
/// Where what is read is damaged, an implementation believes nothing that was written before the damage. What it writes anew, it
/// writes in the order of keys.
///
/// An implementation whose disk is full keeps what is stable, and says that it has [no room](StateLog::has_room) while there still is some
/// for changes of keys that it has. Changes for which there is no space at all are not stable before there is: who waits for them waits.
///
/// An implementation that cannot write any more for another reason makes sure that the next server finds nothing (then nobody reclaims,
/// and that is always right), says so, and counts every change as stable; it tries to write the whole map anew from time to time.
pub trait StateLog: Send + Sync + fmt::Debug {
    /// Sets the value of a key, or takes the key away. `key` has [`KEY_BYTES_MAX`] bytes at most, `value`
    /// [`VALUE_BYTES_MAX`]. Returns the change's number, one more than that of the change before. Does not wait, and has nothing
    /// written.
    fn set(&self, key: &[u8], value: Option<&[u8]>) -> u64;

    /// Whether changes do reach stable storage at present.
    fn is_written(&self) -> bool;

    /// Whether more keys may be set. To be asked before a client gets something for which it needs a record.
    fn has_room(&self) -> bool {
        true
    }

    /// The number up to which all changes are stable; zero where none is.
    fn stable(&self) -> u64;

    /// Has changes up to this number written, from this call on; ready when they are stable. `thread` is what the calling thread may be
    /// used for: a log that is known to be quick may be written by it. It never fails: see above.
    fn reached(&self, number: u64, thread: Thread) -> Op<'_, ()>;

    /// Has all changes written for which nobody waits. Does not wait either.
    fn push(&self);
}
