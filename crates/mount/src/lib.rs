//! NFS as a FUSE file system: requests of the kernel become operations of the client.
//!
//! - [`Files`] has the operations, with the requests and answers of FUSE. It knows neither a device nor a runtime.
//! - [`Adapter`] is the [`fuse::Filesystem`] that passes requests to an [`Executor`], which runs the operations in the thread of the client's
//!   connections.
//! - [`DiskCache`] keeps blocks of files in a directory. The client asks it before the server.
//!
//! Numbers of inodes are those of the client ([`client::fs::inode`]). The kernel's counts of lookups keep them.

#![forbid(unsafe_code)]

mod acl;
mod adapter;
mod cached_names;
mod callers;
mod convert;
mod disk_cache;
mod files;
mod handles;
mod ids;
mod invalidator;
mod listing;
mod nodes;

pub use adapter::{Adapter, Executor};
pub use callers::Identity;
pub use disk_cache::{DISK_CACHE_MIN, DiskCache, DiskCacheError, WhileBusy};
pub use files::{Files, FilesState, Settings};
pub use ids::{IdMap, IdMapError, PAIRS_MAX};
