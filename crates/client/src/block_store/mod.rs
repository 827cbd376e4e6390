//! Blocks of files outside memory, which outlive the client: the interface of a disk cache.
//!
//! A block belongs to one version of a file ([`FileVersion`]): the server, the handle, and the attributes that change with the
//! content. A file that has changed has other blocks; nothing is invalidated. Only data that a READ returned are stored.
//!
//! A store may lose blocks at any time. It never returns wrong data: a [`record`] has a checksum of key and data.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::cache::limiter::Permit;

mod counts;
mod memory;
pub mod record;
mod version;

pub use counts::{BlockCounters, BlockCounts};
pub use memory::MemoryBlocks;
pub use version::{BlockKey, FileVersion};

/// Bytes of a block. The last block of a file ends with the file. A READ fetches whole blocks, so a small random read costs at
/// most this, and a file of this size takes one record.
pub const BLOCK: u64 = 64 << 10;

/// A store of blocks. It never blocks its caller.
pub trait BlockStore: Send + Sync + fmt::Debug {
    /// Returns the blocks with these numbers; `None` for those that are not stored or damaged.
    fn get(&self, file: &Arc<FileVersion>, blocks: Range<u64>) -> BoxFuture<'static, Vec<Option<Bytes>>>;

    /// Stores data, all blocks of which are whole, from the block `first` on. Works in the background, and may drop them. `memory`
    /// accounts for the data, and is released with them.
    fn put(&self, file: &Arc<FileVersion>, first: u64, data: Bytes, memory: Permit);

    /// Returns the counters.
    fn counts(&self) -> BlockCounts;
}
