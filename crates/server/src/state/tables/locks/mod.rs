//! Byte-range locks of one file, for every protocol version.
//!
//! A lock belongs to an owner of the file: a [number](LockOwner) that this module gives to a [name](OwnerName), and that it
//! compares with others. The rules are those of POSIX (RFC 8881 §9.2, §9.3, §18.10). Opens, stateids, clients and the errors of
//! a protocol are above: an NFSv4 LOCK and an NLM lock of one file exclude each other here.

mod held;
mod interval_tree;
mod owners;
mod queue;
mod range;
mod ranges;

pub(crate) use held::{HeldLock, LockKind, LockSet};
pub(crate) use owners::{LockOwner, LockOwners, OwnerName};
pub(crate) use queue::{LockQueue, LockWaiter};
pub use range::LockRange;
pub(crate) use ranges::LockedRanges;
