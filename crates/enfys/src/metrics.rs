//! Prometheus metrics: what the server counts, what there is, and how long calls take.

mod grace;

use std::fmt::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use net::Clock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use server::{OperationMetrics, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::latency::{Calls, Histogram, Latencies};

/// Bytes of an HTTP request that are read at most.
const MAX_REQUEST: usize = 8 << 10;

/// How long a scraper may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers scrapes.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl MetricsServer {
    /// Listens on `address`.
    ///
    /// # Errors
    /// One line that names the address.
    pub async fn bind(address: SocketAddr) -> Result<Self, String> {
        let failed = |error: io::Error| format!("metrics on {address}: {}", crate::said(&error));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where it listens; the port is a real one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `/metrics` of `server` from now on; within a runtime.
    pub fn start(
        self,
        server: Arc<Server>,
        latencies: Arc<Latencies>,
        connections: Arc<AtomicUsize>,
        clock: Clock,
    ) {
        let mut registry = Registry::with_prefix("enfys");
        registry.register_collector(Box::new(Everything { server, latencies, connections, clock }));
        tokio::spawn(async move {
            loop {
                if let Ok((stream, _)) = self.listener.accept().await {
                    // One at a time: scrapes are rare, and nobody can hold more than one of our descriptors.
                    let _ = tokio::time::timeout(REQUEST_TIMEOUT, answer(stream, &registry)).await;
                }
            }
        });
    }
}

async fn answer(mut stream: TcpStream, registry: &Registry) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > MAX_REQUEST || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let is_known = [&b"GET /metrics "[..], b"GET / "].iter().any(|start| request.starts_with(start));
    let mut body = String::new();
    let status = match is_known {
        true if text::encode(&mut body, registry).is_ok() => "200 OK",
        true => "500 Internal Server Error",
        false => "404 Not Found",
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    program: &'static str,
    operation: &'static str,
}

/// Reads everything at the moment of a scrape.
#[derive(Debug)]
struct Everything {
    server: Arc<Server>,
    latencies: Arc<Latencies>,
    connections: Arc<AtomicUsize>,
    clock: Clock,
}

impl Collector for Everything {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.encode_operations(&mut encoder, "operations", "Calls and operations answered", |o| &o.calls)?;
        self.encode_operations(&mut encoder, "operation_errors", "Those answered with an error", |o| {
            &o.errors
        })?;
        self.encode_bytes(
            &mut encoder,
            "received_bytes",
            "Bytes of calls; of NFSv4 operations, within the COMPOUND",
            |calls| &calls.received,
        )?;
        self.encode_bytes(
            &mut encoder,
            "sent_bytes",
            "Bytes of replies; of NFSv4 operations, within the COMPOUND",
            |calls| &calls.sent,
        )?;
        self.encode_counters(&mut encoder)?;
        self.encode_state_counters(&mut encoder)?;
        self.encode_gauges(&mut encoder)?;
        let grace = self.server.look_at_grace(self.clock.now(), grace::NAMES_MAX);
        grace::encode(&mut encoder, grace.as_ref())?;
        self.encode_latencies(&mut encoder)
    }
}

impl Everything {
    fn encode_operations(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&OperationMetrics) -> &AtomicU64,
    ) -> Result<(), Error> {
        let metrics = self.server.metrics();
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        let mut one = |program, operation, counts: &OperationMetrics| {
            if counts.calls.load(Relaxed) == 0 {
                return Ok(());
            }
            let labels = Labels { program, operation };
            ConstCounter::new(value(counts).load(Relaxed)).encode(family.encode_family(&labels)?)
        };
        for (row, counts) in protocol::nfs3::TABLE.procedures.iter().zip(&metrics.nfs3) {
            one("nfs3", row.name, counts)?;
        }
        for (row, counts) in protocol::mount::TABLE_3.procedures.iter().zip(&metrics.mount) {
            one("mount3", row.name, counts)?;
        }
        for (row, counts) in protocol::nfsacl::TABLE.procedures.iter().zip(&metrics.nfsacl) {
            one("nfsacl3", row.name, counts)?;
        }
        for (row, counts) in protocol::rpcbind::TABLE_4.procedures.iter().zip(&metrics.portmap) {
            one("portmap", row.name, counts)?;
        }
        // Which COMPOUNDs there were is known already, so that none pays for a second count.
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
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        let operations = self.latencies.nfs4_operations().map(|(name, calls)| ("nfs4", name, calls));
        for (program, operation, calls) in self.latencies.calls().chain(operations) {
            let labels = Labels { program, operation };
            ConstCounter::new(value(calls).load(Relaxed)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_counters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (metrics, delegations) = (self.server.metrics(), self.server.delegation_counts());
        let copies = self.server.offload_counts();
        let counters = [
            ("read_bytes", "Payload of READs", &metrics.read_bytes),
            ("write_bytes", "Payload of WRITEs", &metrics.write_bytes),
            ("malformed_records", "Records that were no valid call", &metrics.malformed),
            ("refused_calls", "Calls refused for credentials, RPC version or address", &metrics.refused),
            ("unserved_calls", "Calls of unknown programs, versions and procedures", &metrics.unserved),
            ("bad_handles", "File handles that this server never made", &metrics.bad_handles),
            (
                "stalled_connections",
                "Connections closed in mid-record or mid-reply",
                &metrics.stalled_connections,
            ),
            (
                "unreachable_connections",
                "Connections lost because the peer acknowledged nothing",
                &metrics.unreachable_connections,
            ),
            ("read_delegations", "Delegations for reading granted", &delegations.granted_read),
            ("write_delegations", "Delegations for writing granted", &delegations.granted_write),
            ("directory_delegations", "Delegations of directories granted", &delegations.granted_directory),
            ("notices", "Changes of directories that holders were told of", &delegations.notices),
            ("recalls", "Delegations recalled because of a conflict", &delegations.recalls),
            (
                "recalls_for_local_changes",
                "Those recalled because of what a local process did",
                &delegations.local_changes,
            ),
            ("recalls_answered", "Delegations that came back after a recall", &delegations.returned),
            ("recall_microseconds", "Time that these took, from the conflict on", &delegations.return_micros),
            ("delegations_revoked", "Delegations that did not come back", &delegations.revoked),
            ("inquiries", "Questions to holders of write delegations", &delegations.inquiries),
            ("delegation_waits", "Times that operations waited for a delegation", &delegations.waits),
            ("delegation_waits_overdue", "Those that took too long", &delegations.overdue),
            ("copies_begun", "Copies that went on in the background", &copies.begun),
            ("copies_failed", "Those that ended with an error", &copies.failed),
            ("copies_cancelled", "Those that their clients cancelled", &copies.cancelled),
            ("copies_bytes", "Bytes copied in the background", &copies.bytes),
            ("refused_connections", "Connections over the limit", &metrics.refused_connections),
            ("replayed_calls", "Retransmissions answered from a reply cache", &metrics.replayed),
            (
                "listings_told_again",
                "Replies to READDIR told again without a look at entries",
                &metrics.kept_listings_told,
            ),
            ("listings_kept", "Replies to READDIR kept to be told again", &metrics.kept_listings_made),
            ("evicted_clients", "NFSv4 clients evicted by the administrator", &metrics.evicted),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value.load(Relaxed));
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }

    fn encode_state_counters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let counts = self.server.counts();
        let counters = [
            ("slots_full", "Requests that took the last slot that their client may use", counts.slots_full),
            ("slots_deferred", "Requests put off for want of memory for slots", counts.slots_deferred),
            (
                "lock_notices",
                "Waiters told that their lock may be had (CB_NOTIFY_LOCK)",
                counts.locks_notified,
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }

    fn encode_gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let counts = self.server.counts();
        let (listing_bytes, listed_directories) = self.server.kept_listings();
        let records = self.server.look_at_records();
        let are_full = u64::from(records.is_some_and(|records| !records.has_room));
        let are_lost = u64::from(records.is_some_and(|records| !records.is_written));
        let gauges = [
            (
                "client_records_full",
                "1 while the state directory has no space for records of new clients, whose opens are put off",
                are_full,
            ),
            (
                "client_records_unwritten",
                "1 while records of clients cannot be written to the disk",
                are_lost,
            ),
            ("connections", "Open connections", self.connections.load(Relaxed) as u64),
            ("clients", "NFSv4 client records", counts.clients),
            ("sessions", "NFSv4.1 sessions", counts.sessions),
            ("persistent_sessions", "Those that outlive the server", counts.persistent_sessions),
            ("dead_sessions", "Persistent sessions of servers before", counts.dead_sessions),
            ("slots", "Slots granted to sessions", counts.slots),
            ("slots_in_use", "Slots whose requests are in progress", counts.slots_in_use),
            ("opens", "NFSv4 opens", counts.opens),
            ("locks", "Byte ranges locked", counts.locks),
            ("locks_waiting", "Denied LOCKs whose clients wait for the lock", counts.locks_waiting),
            ("delegations", "Delegations", counts.delegations),
            ("copies", "Copies in the background, or over and not acknowledged", counts.copies),
            ("revoked", "Opens and locks revoked and not acknowledged", counts.revoked),
            ("gss_contexts", "Security contexts of RPCSEC_GSS", self.server.gss_contexts() as u64),
            ("slot_cache_bytes", "Memory charged for replies kept in slots", counts.slot_cache_bytes),
            ("kept_listings_bytes", "Memory charged for listings told again", listing_bytes as u64),
            ("kept_listings_directories", "Directories watched for that", listed_directories as u64),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }

    fn encode_latencies(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let calls =
            self.latencies.calls().map(|(program, operation, calls)| (program, operation, &calls.took));
        let operations =
            self.latencies.nfs4_operations().map(|(operation, calls)| ("nfs4", operation, &calls.took));
        let help = "From a call's last byte to its reply; of NFSv4 operations, within the COMPOUND";
        let mut family = encoder.encode_descriptor("operation_seconds", help, None, MetricType::Histogram)?;
        for (program, operation, took) in calls.chain(operations) {
            encode_histogram(&mut family, &Labels { program, operation }, took)?;
        }
        Ok(())
    }
}

fn encode_histogram(
    family: &mut prometheus_client::encoding::MetricEncoder<'_>,
    labels: &Labels,
    histogram: &Histogram,
) -> Result<(), Error> {
    let snapshot = histogram.snapshot();
    let mut encoder = family.encode_family(labels)?;
    encoder.encode_histogram::<NoLabelSet>(snapshot.total_s, snapshot.count, &snapshot.buckets, None)
}
