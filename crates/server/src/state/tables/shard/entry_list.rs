//! Lists of entries.

use smallvec::SmallVec;

/// Entries of a shard, by index. Four fit without an allocation, in the memory that a list takes anyway: most files are open
/// once, and most opens have one lock-owner.
pub(crate) type EntryList = SmallVec<[u32; 4]>;
