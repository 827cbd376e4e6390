use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use protocol::nfs4::types::OpNum;

/// Receives the duration of each operation of a compound. The driver itself measures whole calls.
pub trait Observer: Send + Sync + fmt::Debug {
    /// Returns the time since a fixed moment; never goes backwards.
    fn now(&self) -> Duration;

    /// Notes an NFSv4 operation; [`OpNum::ILLEGAL`] means an unknown one.
    fn nfs4_operation(&self, operation: OpNum, effort: Effort);
}

/// The effort of one operation of a compound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// From its beginning to its end.
    pub took: Duration,
    /// Bytes of its number and arguments, as far as they were read.
    pub received: usize,
    /// Bytes of its results, with number and status.
    pub sent: usize,
}

/// The operation that a record asks for, as metrics distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// No operation that is served.
    None,
    /// An NFSv2 procedure.
    Nfs2(u32),
    /// An NFSv3 procedure.
    Nfs3(u32),
    /// An NFSv4 procedure: NULL or COMPOUND.
    Nfs4(u32),
    /// A MOUNT procedure.
    Mount(u32),
    /// An NFS_ACL procedure.
    NfsAcl(u32),
    /// An NLM procedure.
    Nlm(u32),
    /// A procedure of the status monitor.
    Nsm(u32),
    /// A portmap or rpcbind procedure.
    Portmap(u32),
    /// An RQUOTA procedure.
    Rquota(u32),
}

/// Counts of one operation.
#[derive(Debug, Default)]
pub struct OperationMetrics {
    /// Calls answered, including errors.
    pub calls: AtomicU64,
    /// Calls answered with an error status.
    pub errors: AtomicU64,
}

impl OperationMetrics {
    /// Counts one call.
    pub fn count(&self, is_error: bool) {
        self.calls.fetch_add(1, Relaxed);
        if is_error {
            self.errors.fetch_add(1, Relaxed);
        }
    }
}

/// Number of NFSv4 counters; the last one counts all unknown operations.
const NFS4_OPERATIONS: usize = 80;

/// The counters of a server. They can be read at any time, without a lock.
#[derive(Debug)]
pub struct Metrics {
    /// NFSv2 procedures by number.
    pub nfs2: [OperationMetrics; 18],
    /// NFSv3 procedures by number.
    pub nfs3: [OperationMetrics; 22],
    /// NFSv4 operations by number (RFC 7863); numbers beyond the table at its end.
    pub nfs4: [OperationMetrics; NFS4_OPERATIONS],
    /// MOUNT procedures by number, of versions 1 to 3: those of one number ask for the same.
    pub mount: [OperationMetrics; 8],
    /// NFS_ACL procedures by number.
    pub nfsacl: [OperationMetrics; 3],
    /// NLM procedures by number, of all versions.
    pub nlm: [OperationMetrics; 24],
    /// Procedures of the status monitor by number.
    pub nsm: [OperationMetrics; 7],
    /// Port mapper procedures by number, of versions 2 to 4: those of one number ask for the same.
    pub portmap: [OperationMetrics; 13],
    /// RQUOTA procedures by number, of both versions.
    pub rquota: [OperationMetrics; 5],
    /// Records that were not valid calls, and streams that were not records.
    pub malformed: AtomicU64,
    /// Calls and operations refused for their credentials or RPC version, or because the client's address may not use the
    /// export.
    pub refused: AtomicU64,
    /// Calls of a program, version or procedure that is not served.
    pub unserved: AtomicU64,
    /// File handles that this server never made.
    pub bad_handles: AtomicU64,
    /// Connections closed because the peer stopped in the middle of a record or took no reply.
    pub stalled_connections: AtomicU64,
    /// Connections lost because the peer's machine acknowledged nothing.
    pub unreachable_connections: AtomicU64,
    /// Connections refused because there were too many.
    pub refused_connections: AtomicU64,
    /// Replies that came from a reply cache.
    pub replayed: AtomicU64,
    /// Replies to READDIR from the listing cache.
    pub cached_listings_used: AtomicU64,
    /// Replies to READDIR that were stored in the listing cache.
    pub cached_listings_made: AtomicU64,
    /// Clients that the administrator evicted.
    pub evicted: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            nfs2: std::array::from_fn(|_| OperationMetrics::default()),
            nfs3: std::array::from_fn(|_| OperationMetrics::default()),
            nfs4: std::array::from_fn(|_| OperationMetrics::default()),
            mount: std::array::from_fn(|_| OperationMetrics::default()),
            nfsacl: std::array::from_fn(|_| OperationMetrics::default()),
            nlm: std::array::from_fn(|_| OperationMetrics::default()),
            nsm: std::array::from_fn(|_| OperationMetrics::default()),
            portmap: std::array::from_fn(|_| OperationMetrics::default()),
            rquota: std::array::from_fn(|_| OperationMetrics::default()),
            malformed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            unserved: AtomicU64::new(0),
            bad_handles: AtomicU64::new(0),
            stalled_connections: AtomicU64::new(0),
            unreachable_connections: AtomicU64::new(0),
            refused_connections: AtomicU64::new(0),
            replayed: AtomicU64::new(0),
            cached_listings_used: AtomicU64::new(0),
            cached_listings_made: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }
}

impl Metrics {
    /// Counters of an NFSv4 operation; all numbers beyond the table share one.
    #[must_use]
    pub fn nfs4_operation(&self, number: u32) -> &OperationMetrics {
        &self.nfs4[(number as usize).min(NFS4_OPERATIONS - 1)]
    }

    /// Returns the counters of a call that is one operation. The driver counts NULL and COMPOUND of NFSv4; here the operations of a
    /// compound are counted.
    #[must_use]
    pub fn call(&self, operation: Operation) -> Option<&OperationMetrics> {
        match operation {
            Operation::Nfs2(number) => self.nfs2.get(number as usize),
            Operation::Nfs3(number) => self.nfs3.get(number as usize),
            Operation::Mount(number) => self.mount.get(number as usize),
            Operation::NfsAcl(number) => self.nfsacl.get(number as usize),
            Operation::Nlm(number) => self.nlm.get(number as usize),
            Operation::Nsm(number) => self.nsm.get(number as usize),
            Operation::Portmap(number) => self.portmap.get(number as usize),
            Operation::Rquota(number) => self.rquota.get(number as usize),
            Operation::Nfs4(_) | Operation::None => None,
        }
    }
}
