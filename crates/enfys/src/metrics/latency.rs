//! Durations and bytes of calls and operations, counted without locks on every core.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use net::{Call, Observe};
use protocol::nfs4::types::OpNum;
use protocol::procedure::ProgramVersion;
use server::{Effort, Observer, Operation};

/// Upper bound of the first bucket in nanoseconds. Each next bound is twice as large.
const FIRST_BOUND_NS: u64 = 250;
/// Number of buckets: up to 16.8 s, and one without a bound.
const BUCKETS: usize = 28;

/// Number of procedures of each program; all others share one class.
const NFS3: usize = 22;
const NFS4: usize = 2;
const MOUNT: usize = 8;
const NFSACL: usize = 3;
const PORTMAP: usize = 13;
const NFS2: usize = 18;
const NLM: usize = 24;
const NSM: usize = 7;
const RQUOTA: usize = 5;
/// First class of each program.
const NFS4_AT: usize = NFS3;
const MOUNT_AT: usize = NFS4_AT + NFS4;
const NFSACL_AT: usize = MOUNT_AT + MOUNT;
const PORTMAP_AT: usize = NFSACL_AT + NFSACL;
const NFS2_AT: usize = PORTMAP_AT + PORTMAP;
const NLM_AT: usize = NFS2_AT + NFS2;
const NSM_AT: usize = NLM_AT + NLM;
const RQUOTA_AT: usize = NSM_AT + NSM;
const OTHER: usize = RQUOTA_AT + RQUOTA;
const CLASSES: usize = OTHER + 1;

/// Number of NFSv4 operations; the last class is for unknown ones.
const NFS4_OPERATIONS: usize = 80;

/// Measurements of all calls.
#[derive(Debug)]
pub struct Latencies {
    start: Instant,
    calls: [Calls; CLASSES],
    nfs4_operations: [Calls; NFS4_OPERATIONS],
}

/// Measurements of one procedure or NFSv4 operation.
#[derive(Debug, Default)]
pub struct Calls {
    pub took: Histogram,
    /// Calls answered with an error. The server itself counts those of NFSv4 operations.
    pub errors: AtomicU64,
    /// Bytes of records or arguments, and of replies or results.
    pub received: AtomicU64,
    pub sent: AtomicU64,
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    total_ns: AtomicU64,
}

/// The contents of a histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    pub count: u64,
    pub total_s: f64,
    /// Upper bound of each bucket in seconds, and its count.
    pub buckets: Vec<(f64, u64)>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            calls: std::array::from_fn(|_| Calls::default()),
            nfs4_operations: std::array::from_fn(|_| Calls::default()),
        }
    }
}

impl Observe for Latencies {
    fn observe(&self, call: Call) {
        let calls = &self.calls[class(call.operation)];
        calls.count(call.took, call.received, call.sent);
        if call.is_error {
            calls.errors.fetch_add(1, Relaxed);
        }
    }
}

impl Observer for Latencies {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn nfs4_operation(&self, operation: OpNum, effort: Effort) {
        let Effort { took, received, sent } = effort;
        self.nfs4_operations[(operation.0 as usize).min(NFS4_OPERATIONS - 1)].count(took, received, sent);
    }
}

impl Latencies {
    /// Returns program, procedure and measurements of each procedure that was called.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, &'static str, &Calls)> {
        let named = self.calls.iter().enumerate().map(|(index, calls)| {
            let (program, procedure) = name(index);
            (program, procedure, calls)
        });
        named.filter(|(_, _, calls)| !calls.took.is_empty())
    }

    /// Returns name and measurements of each NFSv4 operation that was called.
    pub fn nfs4_operations(&self) -> impl Iterator<Item = (&'static str, &Calls)> {
        let named = self.nfs4_operations.iter().zip(0..);
        named
            .map(|(calls, number)| (OpNum(number).name().unwrap_or("OTHER"), calls))
            .filter(|(_, calls)| !calls.took.is_empty())
    }
}

impl Calls {
    fn count(&self, took: Duration, received: usize, sent: usize) {
        self.took.count(took);
        self.received.fetch_add(received as u64, Relaxed);
        self.sent.fetch_add(sent as u64, Relaxed);
    }
}

impl Histogram {
    fn count(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
        self.total_ns.fetch_add(ns, Relaxed);
    }

    fn is_empty(&self) -> bool {
        self.buckets.iter().all(|bucket| bucket.load(Relaxed) == 0)
    }

    /// Returns the current contents.
    pub fn snapshot(&self) -> Snapshot {
        let bounds = (0..BUCKETS as u32).map(|index| match index as usize {
            last if last == BUCKETS - 1 => f64::INFINITY,
            _ => (FIRST_BOUND_NS << index) as f64 / 1e9,
        });
        let buckets: Vec<_> =
            bounds.zip(&self.buckets).map(|(bound, count)| (bound, count.load(Relaxed))).collect();
        Snapshot {
            count: buckets.iter().map(|(_, count)| count).sum(),
            total_s: self.total_ns.load(Relaxed) as f64 / 1e9,
            buckets,
        }
    }
}

/// Returns the first bucket whose bound is at least `ns`.
fn bucket(ns: u64) -> usize {
    let multiple = ns.div_ceil(FIRST_BOUND_NS).max(1);
    // Bounds double, so the index is the logarithm, rounded up.
    let index = (u64::BITS - (multiple - 1).leading_zeros()) as usize;
    index.min(BUCKETS - 1)
}

fn class(operation: Operation) -> usize {
    match operation {
        Operation::Nfs3(number) if (number as usize) < NFS3 => number as usize,
        Operation::Nfs4(number) if (number as usize) < NFS4 => NFS4_AT + number as usize,
        Operation::Mount(number) if (number as usize) < MOUNT => MOUNT_AT + number as usize,
        Operation::NfsAcl(number) if (number as usize) < NFSACL => NFSACL_AT + number as usize,
        Operation::Portmap(number) if (number as usize) < PORTMAP => PORTMAP_AT + number as usize,
        Operation::Nfs2(number) if (number as usize) < NFS2 => NFS2_AT + number as usize,
        Operation::Nlm(number) if (number as usize) < NLM => NLM_AT + number as usize,
        Operation::Nsm(number) if (number as usize) < NSM => NSM_AT + number as usize,
        Operation::Rquota(number) if (number as usize) < RQUOTA => RQUOTA_AT + number as usize,
        _ => OTHER,
    }
}

/// Returns program and procedure of a class.
fn name(class: usize) -> (&'static str, &'static str) {
    let procedure = |table: &'static ProgramVersion, number: usize| {
        table.procedure(number as u32).map_or("OTHER", |row| row.name)
    };
    match class {
        _ if class < NFS4_AT => ("nfs3", procedure(&protocol::nfs3::TABLE, class)),
        NFS4_AT => ("nfs4", "NULL"),
        _ if class < MOUNT_AT => ("nfs4", "COMPOUND"),
        _ if class < NFSACL_AT => ("mount", procedure(&protocol::mount::TABLE_2, class - MOUNT_AT)),
        _ if class < PORTMAP_AT => ("nfsacl3", procedure(&protocol::nfsacl::TABLE, class - NFSACL_AT)),
        _ if class < NFS2_AT => ("portmap", procedure(&protocol::rpcbind::TABLE_4, class - PORTMAP_AT)),
        _ if class < NLM_AT => ("nfs2", procedure(&protocol::nfs2::TABLE, class - NFS2_AT)),
        _ if class < NSM_AT => ("nlm", procedure(&protocol::nlm::TABLE, class - NLM_AT)),
        _ if class < RQUOTA_AT => ("nsm", procedure(&protocol::nsm::TABLE, class - NSM_AT)),
        _ if class < OTHER => ("rquota", procedure(&protocol::rquota::TABLE_2, class - RQUOTA_AT)),
        _ => ("other", "OTHER"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_with_a_large_enough_bound() {
        for (ns, expected) in [
            (0, 0),
            (250, 0),
            (251, 1),
            (500, 1),
            (501, 2),
            (1000, 2),
            (1001, 3),
            (FIRST_BOUND_NS << 26, 26),
            ((FIRST_BOUND_NS << 26) + 1, 27),
            (u64::MAX, 27),
        ] {
            assert_eq!(bucket(ns), expected, "{ns} ns");
        }
    }

    #[test]
    fn calls_and_operations_are_counted_by_name() {
        let latencies = Latencies::default();
        let took = Duration::from_micros(3);
        for operation in [
            Operation::Nfs3(6),
            Operation::Nfs4(1),
            Operation::Mount(1),
            Operation::Mount(77),
            Operation::NfsAcl(2),
            Operation::Portmap(12),
            Operation::Nfs2(8),
            Operation::None,
        ] {
            let is_error = operation == Operation::Nfs4(1);
            latencies.observe(Call { operation, took, is_error, received: 100, sent: 40 });
        }
        let effort = Effort { took, received: 7, sent: 9 };
        latencies.nfs4_operation(OpNum::GETATTR, effort);
        latencies.nfs4_operation(OpNum::ILLEGAL, effort);
        let named: Vec<_> = latencies.calls().map(|(program, procedure, _)| (program, procedure)).collect();
        let expected = [
            ("nfs3", "READ"),
            ("nfs4", "COMPOUND"),
            ("mount", "MNT"),
            ("nfsacl3", "SETACL"),
            ("portmap", "GETSTAT"),
            ("nfs2", "WRITE"),
            ("other", "OTHER"),
        ];
        assert_eq!(named, expected);
        let failed: Vec<_> = latencies.calls().map(|(_, _, calls)| calls.errors.load(Relaxed)).collect();
        assert_eq!(failed, [0, 1, 0, 0, 0, 0, 0]);
        let (_, _, other) = latencies.calls().last().unwrap();
        assert_eq!((other.received.load(Relaxed), other.sent.load(Relaxed)), (200, 80));
        let snapshot = other.took.snapshot();
        assert_eq!((snapshot.count, snapshot.buckets[4]), (2, (4e-6, 2)));
        let bytes = |calls: &Calls| (calls.received.load(Relaxed), calls.sent.load(Relaxed));
        let operations: Vec<_> =
            latencies.nfs4_operations().map(|(name, calls)| (name, bytes(calls))).collect();
        assert_eq!(operations, [("GETATTR", (7, 9)), ("OTHER", (7, 9))]);
    }
}
