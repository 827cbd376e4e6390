//! The caches of a client: the memory budget, attributes, names, directories, pages and read-ahead.
//!
//! Synchronous data structures. They know neither the protocol nor its versions, and time is an argument.

pub mod attributes;
mod bounded;
pub mod counts;
pub mod directory;
pub mod limiter;
pub mod metadata;
pub mod names;
pub mod pages;
pub mod read_ahead;

/// A file or directory of one server. The layer above assigns the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);
