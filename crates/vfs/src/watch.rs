//! Notifications of changes that do not come through a backend.

use std::fmt;

use crate::Attributes;

/// The events that a watch reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Changes: of a file's content, attributes and names; of a directory's entries, attributes and name.
    Changes,
    /// Changes, and opens, also for reading.
    Uses,
}

/// Receives notifications of other users' changes of an object.
pub trait ChangeListener: Send + Sync + fmt::Debug {
    /// Notifies that another user has made, or may have made, a watched change. Called on any thread, any number of
    /// times; it must neither block nor call the backend.
    fn notify(&self);
}

/// Notifies a [`ChangeListener`] until it is dropped.
pub trait Watch: Send + Sync + fmt::Debug {}

/// Knows whether a listing of a directory is still valid. It must exist before the entries are read, and is checked
/// before they are reused.
pub trait EntriesWatch: Send + Sync + fmt::Debug {
    /// Returns whether nothing that READDIR returns of the directory's entries has changed since the watch began: their
    /// names, handles and attributes. Includes every answered change through any backend of this process, and changes
    /// by other users, except times of access, storage used, and changes that the backend documents as unseen. Once false, it
    /// stays false.
    fn is_unchanged(&self) -> bool;

    /// Returns whether these attributes of an entry are final until something changes. A change attribute made of a coarse
    /// clock is not, until the clock has advanced.
    fn is_final(&self, _: &Attributes) -> bool {
        true
    }

    /// Returns the number of watched entries.
    fn entries(&self) -> usize;
}
