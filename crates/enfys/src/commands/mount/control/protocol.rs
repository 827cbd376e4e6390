//! The messages on the control socket of a mount. Numbers are current values, or counts since the start; units are in the names.

use std::collections::BTreeMap;

use client::block_store::BlockCounts;
use client::cache::counts::{CacheCounts, Uses};
use client::cache::limiter::Kind;
use client::delegations::DelegationCounts;
use client::engine::Traffic;
use client::fs::inode::Mount;
use serde::{Deserialize, Serialize};

/// The version of the protocol. Both sides refuse another one, and name it.
pub const VERSION: u32 = 1;
/// Maximum number of bytes of a request.
pub const MAX_REQUEST: usize = 4 << 10;
/// Maximum number of bytes of a response: some hundred operations.
pub const MAX_RESPONSE: u64 = 1 << 20;

/// The command of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// Show statistics.
    Stats,
    /// Hand the mount over: see [`crate::commands::mount::hand_over`].
    HandOver,
}

/// The reply to a command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To `stats`.
    Stats(Box<Stats>),
    /// The command failed.
    Error(String),
}

/// The properties of a mount that do not change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Identity {
    /// Name and version of the program.
    pub software: String,
    /// What is mounted: a URL without options.
    pub source: String,
    /// The URL with the options of the mount; empty from a process of an older version.
    #[serde(default)]
    pub url: String,
    /// The directory.
    pub directory: String,
    /// The version of NFS: `3`, `4.2` and so on.
    pub protocol: String,
    /// The mount's process.
    pub pid: u32,
}

/// Statistics of a mount.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stats {
    /// The mount.
    #[serde(flatten)]
    pub mount: Identity,
    /// Time since the process mounted or took the mount over.
    pub age_seconds: f64,
    /// Requests by operation: procedures of version 3, and compounds of version 4 as their main operation.
    pub operations: BTreeMap<String, Operation>,
    /// Uses of each cache.
    pub caches: CacheStats,
    /// The disk cache, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_cache: Option<DiskCacheStats>,
    /// Requests in flight.
    pub slots: Slots,
    /// Delegations of files.
    pub delegations: DelegationCounts,
    /// Delegations of directories.
    #[serde(default)]
    pub directory_delegations: DelegationCounts,
    /// Bytes of memory for caches and requests.
    pub memory: Memory,
    /// Files that are open.
    pub open_files: usize,
    /// Inodes that the kernel knows, besides the root.
    pub known_inodes: usize,
}

/// Counters of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Operation {
    /// Requests that were sent, each once.
    pub requests: u64,
    /// Retransmissions.
    pub retransmissions: u64,
    /// Requests that ended without a reply.
    pub timeouts: u64,
    /// Replies with an error status.
    pub errors: u64,
    /// Bytes of calls.
    pub bytes_sent: u64,
    /// Bytes of replies.
    pub bytes_received: u64,
    /// Sum of the times until requests were sent, after they had a slot.
    pub queue_us: u64,
    /// Sum of the times from the first sending to the reply.
    pub round_trip_us: u64,
    /// Sum of the times from the start of a request to its end.
    pub execute_us: u64,
}

/// Uses of one cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CacheUse {
    /// Answered from the cache.
    pub hits: u64,
    /// Needed a request.
    pub misses: u64,
}

/// Uses of all caches.
#[derive(Debug, Serialize, Deserialize)]
pub struct CacheStats {
    /// Attributes of objects.
    pub attributes: CacheUse,
    /// Names in directories.
    pub names: CacheUse,
    /// Permissions.
    pub access: CacheUse,
    /// Parts of listings.
    pub listings: CacheUse,
    /// Bytes of files; those that read-ahead has requested are hits.
    pub data_bytes: CacheUse,
}

impl CacheStats {
    /// Returns all caches with their names.
    pub fn all(&self) -> [(&'static str, CacheUse); 5] {
        [
            ("attributes", self.attributes),
            ("names", self.names),
            ("access", self.access),
            ("listings", self.listings),
            ("data_bytes", self.data_bytes),
        ]
    }
}

/// Use of the disk cache. Blocks have 64 KiB, the last one of a file less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCacheStats {
    /// Blocks that were read from it.
    pub hits: u64,
    /// Blocks that it did not have.
    pub misses: u64,
    /// Bytes that were read from it.
    pub hit_bytes: u64,
    /// Blocks that were written to it.
    pub stored: u64,
    /// Blocks that were not written: the disk is slow, full, or fails.
    pub dropped: u64,
    /// Blocks whose content was damaged. They are misses too.
    pub damaged: u64,
    /// Bytes on the disk.
    pub bytes: u64,
    /// The limit (`cache_size=`).
    pub bytes_max: u64,
}

/// Use of slots.
#[derive(Debug, Serialize, Deserialize)]
pub struct Slots {
    /// Requests in flight.
    pub in_use: usize,
    /// Requests that had to wait for a slot, in this session.
    pub waits: usize,
}

/// Memory for caches and requests, in bytes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Memory {
    /// The limit (`memory=`).
    pub budget: u64,
    /// Written data that the server does not have.
    pub dirty: u64,
    /// Written data that the server has not made stable.
    pub uncommitted: u64,
    /// Cached data.
    pub clean: u64,
    /// Data that were read ahead.
    pub read_ahead: u64,
    /// Attributes, names and listings.
    pub metadata: u64,
    /// Requests and replies in progress.
    pub requests: u64,
}

impl Memory {
    /// Returns the bytes of each kind with its name.
    pub fn kinds(&self) -> [(&'static str, u64); 6] {
        [
            ("dirty", self.dirty),
            ("uncommitted", self.uncommitted),
            ("clean", self.clean),
            ("read_ahead", self.read_ahead),
            ("metadata", self.metadata),
            ("requests", self.requests),
        ]
    }
}

impl Stats {
    /// Returns the present statistics of a mount.
    pub fn of(identity: &Identity, age_seconds: f64, mount: &Mount, known_inodes: usize) -> Self {
        let client = mount.client();
        let (in_use, waits) = client.slot_use();
        let traffic = client.traffic().into_iter();
        Self {
            mount: identity.clone(),
            age_seconds,
            operations: traffic.map(|(name, traffic)| (name, traffic.into())).collect(),
            caches: mount.cache_counts().into(),
            disk_cache: mount.block_counts().map(DiskCacheStats::from),
            slots: Slots { in_use, waits },
            delegations: client.delegation_counts(),
            directory_delegations: client.directory_delegation_counts(),
            memory: Memory::of(mount),
            open_files: mount.open_files(),
            known_inodes,
        }
    }
}

impl Memory {
    fn of(mount: &Mount) -> Self {
        let (limiter, used) = (mount.memory(), mount.memory().used());
        Self {
            budget: limiter.budget().total,
            dirty: used.of(Kind::Dirty),
            uncommitted: used.of(Kind::Uncommitted),
            clean: used.of(Kind::Clean),
            read_ahead: used.of(Kind::ReadAhead),
            metadata: used.of(Kind::Metadata),
            requests: used.of(Kind::Requests),
        }
    }
}

impl From<Traffic> for Operation {
    fn from(traffic: Traffic) -> Self {
        let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            requests: traffic.requests,
            retransmissions: traffic.retransmissions,
            timeouts: traffic.failures,
            errors: traffic.errors,
            bytes_sent: traffic.bytes_sent,
            bytes_received: traffic.bytes_received,
            queue_us: micros(traffic.queue_time),
            round_trip_us: micros(traffic.round_trip_time),
            execute_us: micros(traffic.execute_time),
        }
    }
}

impl From<Uses> for CacheUse {
    fn from(Uses { hits, misses }: Uses) -> Self {
        Self { hits, misses }
    }
}

impl From<BlockCounts> for DiskCacheStats {
    fn from(counts: BlockCounts) -> Self {
        let BlockCounts { hits, misses, hit_bytes, stored, dropped, damaged, bytes, bytes_max } = counts;
        Self { hits, misses, hit_bytes, stored, dropped, damaged, bytes, bytes_max }
    }
}

impl From<CacheCounts> for CacheStats {
    fn from(counts: CacheCounts) -> Self {
        let CacheCounts { attributes, names, access, listings, data_bytes } = counts;
        Self {
            attributes: attributes.into(),
            names: names.into(),
            access: access.into(),
            listings: listings.into(),
            data_bytes: data_bytes.into(),
        }
    }
}
