//! NFS version 2 (RFC 1094): its procedures perform those of version 3, so that both versions have the same operations.
//!
//! [`ByVersion2`] has one implementation for each procedure of version 3. Most are one call, whose arguments and results are
//! [converted](convert). Version 2 has no ACCESS: permissions follow from the mode ([`access`]). It has neither READDIRPLUS nor
//! access control lists, and nothing to COMMIT, as every WRITE is stable.

mod access;
mod convert;
mod perform;
#[cfg(test)]
mod tests;

pub(crate) use perform::{ByVersion2, Link, remove_directory, write};

/// Maximum size of a file in bytes: sizes have 32 bits, of which all ones mean none (RFC 1094 §2.3.6), and in attributes probably a
/// file that is larger.
pub(crate) const FILE_SIZE_MAX: u64 = u32::MAX as u64 - 1;
