//! An NFS client without sockets, clocks or randomness: records in, records out.
//!
//! Bottom up:
//! - [`engine`] has connections and calls. A transport carries its records (`net::transport`, or a simulation).
//! - [`Client`] implements one version of the protocol: its session with its slots, and the operations of NFS on it.
//! - [`cache`] and [`mod@write`] cache read and written data; they know no protocol.
//! - [`block_store`] is the interface of a disk cache.
//! - [`fs`] has files by path, with POSIX semantics.
//! - [`watch`] reports changes of a tree.
//! - [`mod@tree`] and [`copy`] remove and copy whole directories, with few round trips.
//!
//! [`raw`] is the low-level interface: sessions and compounds of any operations.
//! A [`Reader`] reads files with it for copies between servers.
#![forbid(unsafe_code)]

mod abandoned;
pub mod acl;
pub mod attributes;
mod background;
pub mod block_store;
pub mod cache;
mod calls;
mod client;
pub mod config;
pub mod copy;
pub mod delegations;
mod directory_watches;
pub mod engine;
pub mod errno;
pub mod error;
pub mod fs;
pub mod hand_over;
pub mod locks;
pub mod many;
pub mod names;
mod nfs2;
mod nfs3;
mod nfs4;
mod opens;
mod owner;
mod permits;
pub mod raw;
mod read;
mod read_retry;
mod reader;
mod record;
mod repeated;
pub mod results;
mod slots;
pub mod tree;
pub mod url;
pub mod watch;
pub mod write;
pub mod xattr;

pub use client::{CONNECTIONS_MAX, Client};
pub use directory_watches::{DirectoryEvent, DirectoryWatch};
pub use read::{Read, ReadData, ReadOp};
pub use read_retry::{READ_TIMEOUT, read_with_retries};
pub use reader::{CALL_TIMEOUT, IDLE_TIMEOUT, MAX_REPLY, ReadError, Reader, SILENCE_TIMEOUT};
