//! The delegations with which an operation conflicts.

use super::super::io::IoKind;
use super::entry_change::EntryChangeKind;

/// The delegations of others with which an operation conflicts (§10.4, §10.4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// Write delegations: READ, OPEN for reading.
    Write,
    /// All delegations: any change, OPEN for writing or with a deny.
    Any,
    /// Delegations of the directory whose holders are not notified of this change of its entries.
    Directory(EntryChangeKind),
}

impl Conflict {
    /// Returns the delegations that I/O without an open conflicts with.
    pub fn io(kind: IoKind) -> Self {
        if kind == IoKind::Read { Self::Write } else { Self::Any }
    }

    /// Returns whether the operation changes something. An OPEN alone does not, even if it conflicts.
    pub fn is_by_change(self) -> bool {
        !matches!(self, Self::Write)
    }

    /// Returns the delegations that an OPEN with these bits of access and deny conflicts with. A deny conflicts with opens that the holder makes
    /// locally.
    pub(crate) fn open((access, deny): (u8, u8)) -> Self {
        if access & IoKind::Write.bit() != 0 || deny != 0 { Self::Any } else { Self::Write }
    }
}
