//! Hearing of changes that come past a backend.

use std::fmt;

use crate::Attributes;

/// What somebody wants to hear of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Changes: of a file's content, attributes and names; of a directory's entries, attributes and name.
    Changes,
    /// These, and that somebody opens it, be it to read.
    Uses,
}

/// Is told of what others do to an object.
pub trait Alarm: Send + Sync + fmt::Debug {
    /// Somebody has done what is watched for, or may have. Called by any thread, any number of times; must neither wait nor call
    /// the backend.
    fn ring(&self);
}

/// Has an [`Alarm`] rung for as long as it is held.
pub trait Watch: Send + Sync + fmt::Debug {}

/// Knows whether a listing of a directory still tells the truth: kept from before the look on, it is asked before what was seen is
/// told once more.
pub trait EntriesWatch: Send + Sync + fmt::Debug {
    /// Whether nothing that READDIR tells of the directory's entries has changed since the watch stands: their names, handles and
    /// attributes. Whatever was done through any backend of this process, and answered, is known; what others do too, but for
    /// times of access, storage used, and what the backend says that it cannot see. Once false, it stays so.
    fn is_unchanged(&self) -> bool;

    /// Whether what was told of an entry is what will be told of it until something changes. A change attribute that is made of a coarse
    /// clock is not, until the clock has moved on.
    fn is_final(&self, _: &Attributes) -> bool {
        true
    }

    /// How many entries are watched.
    fn entries(&self) -> usize;
}
