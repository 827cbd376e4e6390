//! Collects all metrics at each scrape.
//!
//! Names follow the conventions of Prometheus: `enfys_` first, base units (seconds, bytes), and `_total` for counters. The page
//! `docs/manual/metrics.md` lists them with the same texts; a test compares both.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use localfs::Descriptors;
use net::Clock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use server::{ExportCounts, Metrics, OffloadCounts, OperationMetrics, Server};
use vfs::journal::JournalCounts;

use super::encode::{begin, counter, counter_seconds, gauge, gauge_seconds, histogram, metric};
use super::grace;
use super::latency::{Calls, Latencies};
use super::process::Process;
use crate::figures::{DelegationFigures, Totals};

/// The sources of the metrics.
#[derive(Debug)]
pub struct Sources {
    pub server: Arc<Server>,
    pub latencies: Arc<Latencies>,
    /// Open connections.
    pub connections: Arc<AtomicUsize>,
    pub max_connections: usize,
    /// The budget of open files, if there is one.
    pub files: Option<&'static Descriptors>,
    /// The counters of all journals.
    pub journals: Arc<JournalCounts>,
    pub clock: Clock,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    program: &'static str,
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExportLabels {
    export: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    version: &'static str,
}

/// A counter's name, help text and value.
type Counter = (&'static str, &'static str, u64);

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let encoder = &mut encoder;
        let build = VersionLabels { version: env!("CARGO_PKG_VERSION") };
        let mut family = begin(
            encoder,
            "enfys_build_info",
            "Always 1; the label has the server's version.",
            MetricType::Gauge,
        )?;
        ConstGauge::new(1_i64).encode(family.encode_family(&build)?)?;
        self.encode_operations(encoder)?;
        self.encode_exports(encoder)?;
        self.encode_figures(encoder)?;
        self.encode_delegations(encoder)?;
        self.encode_counters(encoder)?;
        self.encode_gauges(encoder)?;
        let grace = self.server.snapshot_grace(self.clock.now(), grace::NAMES_MAX);
        grace::encode(encoder, grace.as_ref())?;
        self.encode_durations(encoder)?;
        encode_process(encoder)
    }
}

impl Sources {
    fn encode_operations(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        self.encode_calls(
            encoder,
            "enfys_operations_total",
            "Procedures and NFSv4 operations answered, with or without an error.",
            |counts| &counts.calls,
        )?;
        self.encode_calls(
            encoder,
            "enfys_operation_errors_total",
            "Procedures and NFSv4 operations answered with an error status.",
            |counts| &counts.errors,
        )?;
        self.encode_bytes(
            encoder,
            "enfys_received_bytes_total",
            "Bytes received in calls; for an NFSv4 operation, the bytes of its arguments within the COMPOUND.",
            |calls| &calls.received,
        )?;
        self.encode_bytes(
            encoder,
            "enfys_sent_bytes_total",
            "Bytes sent in replies; for an NFSv4 operation, the bytes of its results within the COMPOUND.",
            |calls| &calls.sent,
        )
    }

    fn encode_calls(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&OperationMetrics) -> &AtomicU64,
    ) -> Result<(), Error> {
        let metrics = self.server.metrics();
        let mut family = begin(encoder, name, help, MetricType::Counter)?;
        let mut one = |program, operation, counts: &OperationMetrics| {
            if counts.calls.load(Relaxed) == 0 {
                return Ok(());
            }
            let labels = OperationLabels { program, operation };
            ConstCounter::new(value(counts).load(Relaxed)).encode(family.encode_family(&labels)?)
        };
        for (row, counts) in protocol::nfs3::TABLE.procedures.iter().zip(&metrics.nfs3) {
            one("nfs3", row.name, counts)?;
        }
        for (row, counts) in protocol::nfs2::TABLE.procedures.iter().zip(&metrics.nfs2) {
            one("nfs2", row.name, counts)?;
        }
        for (row, counts) in protocol::mount::TABLE_2.procedures.iter().zip(&metrics.mount) {
            one("mount", row.name, counts)?;
        }
        for (row, counts) in protocol::nfsacl::TABLE.procedures.iter().zip(&metrics.nfsacl) {
            one("nfsacl3", row.name, counts)?;
        }
        // The numbers of NLM have a gap.
        for row in protocol::nlm::TABLE.procedures {
            one("nlm", row.name, &metrics.nlm[row.number as usize])?;
        }
        for (row, counts) in protocol::nsm::TABLE.procedures.iter().zip(&metrics.nsm) {
            one("nsm", row.name, counts)?;
        }
        for (row, counts) in protocol::rquota::TABLE_2.procedures.iter().zip(&metrics.rquota) {
            one("rquota", row.name, counts)?;
        }
        for (row, counts) in protocol::rpcbind::TABLE_4.procedures.iter().zip(&metrics.portmap) {
            one("portmap", row.name, counts)?;
        }
        // COMPOUNDs are counted with their durations; a second count would cost every call.
        for (program, operation, calls) in self.latencies.calls().filter(|(program, ..)| *program == "nfs4") {
            let errors = AtomicU64::new(calls.errors.load(Relaxed));
            let counts = OperationMetrics { calls: AtomicU64::new(calls.took.snapshot().count), errors };
            one(program, operation, &counts)?;
        }
        for (counts, number) in metrics.nfs4.iter().zip(0..) {
            one("nfs4", protocol::nfs4::types::OpNum(number).name().unwrap_or("OTHER"), counts)?;
        }
        Ok(())
    }

    fn encode_bytes(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&Calls) -> &AtomicU64,
    ) -> Result<(), Error> {
        let mut family = begin(encoder, name, help, MetricType::Counter)?;
        let operations = self.latencies.nfs4_operations().map(|(name, calls)| ("nfs4", name, calls));
        for (program, operation, calls) in self.latencies.calls().chain(operations) {
            let labels = OperationLabels { program, operation };
            ConstCounter::new(value(calls).load(Relaxed)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_exports(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        type Value = fn(&ExportCounts) -> &AtomicU64;
        let families: [(&str, &str, Value); 3] = [
            (
                "enfys_export_requests_total",
                "Calls of NFSv3 and NFS_ACL, and PUTFH operations of NFSv4, that named a file of the export.",
                |counts| &counts.requests,
            ),
            (
                "enfys_export_read_bytes_total",
                "Bytes of files of the export that READ and READ_PLUS returned.",
                |counts| &counts.read_bytes,
            ),
            (
                "enfys_export_written_bytes_total",
                "Bytes that WRITE and WRITE_SAME wrote to files of the export.",
                |counts| &counts.written_bytes,
            ),
        ];
        let exports = self.server.exports();
        for (name, help, value) in families {
            let mut family = begin(encoder, name, help, MetricType::Counter)?;
            for export in exports.iter().chain(exports.nested()) {
                let labels = ExportLabels { export: export.path.clone() };
                let value = value(&export.counts).load(Relaxed);
                ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Encodes the values that `enfys status` also shows.
    fn encode_figures(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let replayed = self.server.metrics().replayed.load(Relaxed);
        let totals = Totals::from((&self.server.counts(), replayed));
        let delegations = DelegationFigures::from(&self.server.delegation_totals());
        totals.metrics().chain(delegations.metrics()).try_for_each(|figure| metric(encoder, figure))
    }

    fn encode_delegations(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let delegations = self.server.delegation_counts();
        let mut family = begin(
            encoder,
            "enfys_delegations_granted_total",
            "Delegations granted, by kind: read, write, or directory.",
            MetricType::Counter,
        )?;
        for (kind, granted) in [
            ("read", &delegations.granted_read),
            ("write", &delegations.granted_write),
            ("directory", &delegations.granted_directory),
        ] {
            let labels = KindLabels { kind };
            ConstCounter::new(granted.load(Relaxed)).encode(family.encode_family(&labels)?)?;
        }
        let counters = [
            (
                "enfys_delegation_recalls_for_local_changes_total",
                "Delegations that the server recalled because a local process used the file.",
                &delegations.local_changes,
            ),
            (
                "enfys_delegation_getattr_callbacks_total",
                "CB_GETATTR callbacks sent to holders of write delegations.",
                &delegations.inquiries,
            ),
            (
                "enfys_directory_notifications_total",
                "Directory changes sent to holders of directory delegations (CB_NOTIFY).",
                &delegations.notices,
            ),
        ];
        for (name, help, value) in counters {
            counter(encoder, name, help, value.load(Relaxed))?;
        }
        counter_seconds(
            encoder,
            "enfys_delegation_recall_seconds_total",
            "Time between conflicts and the returns of the recalled delegations, summed over all answered recalls.",
            delegations.return_micros.load(Relaxed) as f64 / 1e6,
        )
    }

    fn encode_counters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let metrics = self.server.metrics();
        let counters = refusal_counters(metrics)
            .into_iter()
            .chain(copy_counters(self.server.offload_counts()))
            .chain(listing_cache_counters(metrics))
            .chain(journal_counters(&self.journals))
            .chain([(
                "enfys_early_flushes_total",
                "Ranges of growing files whose way to the disk began before a COMMIT.",
                localfs::early_flushes(),
            )]);
        for (name, help, value) in counters {
            counter(encoder, name, help, value)?;
        }
        Ok(())
    }

    fn encode_gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (listing_bytes, listed_directories) = self.server.cached_listings();
        let records = self.server.snapshot_records();
        let gauges = [
            ("enfys_connections", "Open TCP connections of clients.", self.connections.load(Relaxed) as u64),
            ("enfys_connections_limit", "Connections that may be open at once.", self.max_connections as u64),
            (
                "enfys_open_files",
                "File descriptors open for files and directories of all exports.",
                self.files.map_or(0, Descriptors::open_now) as u64,
            ),
            (
                "enfys_open_files_limit",
                "File descriptors that may be open for files and directories of all exports.",
                self.files.map_or(0, Descriptors::limit) as u64,
            ),
            (
                "enfys_client_records_full",
                "1 while the state directory has no space for records of new NFSv4 clients, whose opens are delayed.",
                u64::from(records.is_some_and(|records| !records.has_room)),
            ),
            (
                "enfys_client_records_unwritten",
                "1 while records of NFSv4 clients cannot be written to the disk.",
                u64::from(records.is_some_and(|records| !records.is_written)),
            ),
            ("enfys_gss_contexts", "RPCSEC_GSS security contexts.", self.server.gss_contexts() as u64),
            ("enfys_listing_cache_bytes", "Memory charged for the listing cache.", listing_bytes as u64),
            (
                "enfys_listing_cache_directories",
                "Directories watched for changes because of the listing cache.",
                listed_directories as u64,
            ),
        ];
        for (name, help, value) in gauges {
            gauge(encoder, name, help, value)?;
        }
        Ok(())
    }

    fn encode_durations(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let calls =
            self.latencies.calls().map(|(program, operation, calls)| (program, operation, &calls.took));
        let operations =
            self.latencies.nfs4_operations().map(|(operation, calls)| ("nfs4", operation, &calls.took));
        let mut family = begin(
            encoder,
            "enfys_operation_duration_seconds",
            "Time from a call's last byte to its reply; for an NFSv4 operation, its own time within the COMPOUND.",
            MetricType::Histogram,
        )?;
        for (program, operation, took) in calls.chain(operations) {
            histogram(&mut family, &OperationLabels { program, operation }, took)?;
        }
        Ok(())
    }
}

fn encode_process(encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let Some(process) = Process::read() else { return Ok(()) };
    counter_seconds(
        encoder,
        "process_cpu_seconds_total",
        "Processor time that the process used, in user and system mode.",
        process.cpu_s,
    )?;
    gauge_seconds(
        encoder,
        "process_start_time_seconds",
        "When the process was started, in seconds since 1970 (Unix time).",
        process.start_s,
    )?;
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Memory of the process in RAM.", process.resident_bytes),
        ("process_virtual_memory_bytes", "Address space of the process.", process.virtual_bytes),
        ("process_threads", "Threads of the process.", process.threads),
        ("process_open_fds", "Open file descriptors of the process.", process.open_fds),
        ("process_max_fds", "File descriptors that the process may have open.", process.max_fds),
    ] {
        gauge(encoder, name, help, value)?;
    }
    Ok(())
}

/// Returns the counters of refused calls, lost connections and evicted clients.
fn refusal_counters(metrics: &Metrics) -> [Counter; 8] {
    [
        (
            "enfys_malformed_records_total",
            "Records that were not a valid RPC call, or whose arguments could not be decoded.",
            metrics.malformed.load(Relaxed),
        ),
        (
            "enfys_refused_calls_total",
            "Calls refused because of their credentials, RPC version, or client address.",
            metrics.refused.load(Relaxed),
        ),
        (
            "enfys_unserved_calls_total",
            "Calls of programs, versions, or procedures that this server does not have.",
            metrics.unserved.load(Relaxed),
        ),
        (
            "enfys_bad_handles_total",
            "File handles received that this server never issued.",
            metrics.bad_handles.load(Relaxed),
        ),
        (
            "enfys_stalled_connections_total",
            "Connections closed because the peer stopped in the middle of a call or a reply.",
            metrics.stalled_connections.load(Relaxed),
        ),
        (
            "enfys_unreachable_connections_total",
            "Connections lost because the peer stopped acknowledging data.",
            metrics.unreachable_connections.load(Relaxed),
        ),
        (
            "enfys_refused_connections_total",
            "Connections closed at once because a limit on connections was reached.",
            metrics.refused_connections.load(Relaxed),
        ),
        (
            "enfys_evicted_clients_total",
            "Clients evicted by the administrator (enfys evict).",
            metrics.evicted.load(Relaxed),
        ),
    ]
}

fn copy_counters(copies: &OffloadCounts) -> [Counter; 4] {
    [
        (
            "enfys_copies_started_total",
            "NFSv4.2 COPY operations that continued in the background.",
            copies.begun.load(Relaxed),
        ),
        (
            "enfys_copies_failed_total",
            "Background copies that ended with an error.",
            copies.failed.load(Relaxed),
        ),
        (
            "enfys_copies_cancelled_total",
            "Background copies that clients cancelled.",
            copies.cancelled.load(Relaxed),
        ),
        ("enfys_copied_bytes_total", "Bytes copied in the background.", copies.bytes.load(Relaxed)),
    ]
}

fn journal_counters(journals: &JournalCounts) -> [Counter; 6] {
    [
        (
            "enfys_journal_changes_total",
            "Changes that were answered when they were in an export's journal.",
            journals.changes.load(Relaxed),
        ),
        (
            "enfys_journal_syncs_total",
            "Writes of journals, each with one sync.",
            journals.syncs.load(Relaxed),
        ),
        (
            "enfys_journal_bypasses_total",
            "Changes that were too large for the journal or found it full, and went to the file system first.",
            journals.bypasses.load(Relaxed),
        ),
        (
            "enfys_journal_checkpoints_total",
            "Checkpoints: what journals had was synced in the file system, and their space is free.",
            journals.checkpoints.load(Relaxed),
        ),
        (
            "enfys_journal_checkpointed_objects_total",
            "Files and directories that checkpoints synced.",
            journals.checkpointed_objects.load(Relaxed),
        ),
        (
            "enfys_journal_failures_total",
            "Journals that take no more changes because their device or their file system failed.",
            journals.failures.load(Relaxed),
        ),
    ]
}

fn listing_cache_counters(metrics: &Metrics) -> [Counter; 2] {
    [
        (
            "enfys_listing_cache_hits_total",
            "READDIR and READDIRPLUS replies sent from the listing cache.",
            metrics.cached_listings_used.load(Relaxed),
        ),
        (
            "enfys_listing_cache_insertions_total",
            "READDIR and READDIRPLUS replies put into the listing cache.",
            metrics.cached_listings_made.load(Relaxed),
        ),
    ]
}
