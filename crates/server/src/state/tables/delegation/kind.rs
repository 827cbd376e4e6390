//! Kinds of delegations.

use protocol::nfs4::types::Bitmap;

/// The kind of a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelegationKind {
    /// A file, for reading.
    Read,
    /// A file, for writing and reading.
    Write,
    /// A directory (§10.9). The holder is notified of changes of these kinds, by
    /// [`notify_type`](protocol::nfs4::callback::notify::notify_type).
    Directory(Bitmap),
}

impl DelegationKind {
    /// Returns whether it is for writing.
    #[must_use]
    pub fn is_write(self) -> bool {
        self == Self::Write
    }

    /// Returns whether a directory is delegated.
    #[must_use]
    pub fn is_directory(self) -> bool {
        matches!(self, Self::Directory(_))
    }
}
