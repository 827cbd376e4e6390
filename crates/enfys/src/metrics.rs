//! Prometheus metrics: what the server counts, and how long calls take.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use net::Observe;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use protocol::procedure::ProgramVersion;
use server::{Operation, OperationMetrics, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Bytes of an HTTP request that are read at most.
const MAX_REQUEST: usize = 8 << 10;

/// How long a scraper may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Procedures whose latency is told apart: NFSv3's, NFSv4's two, MOUNT's, and one for all else.
const NFS3: usize = 22;
const NFS4: usize = 2;
const MOUNT: usize = 6;
const CLASSES: usize = NFS3 + NFS4 + MOUNT + 1;

/// How long calls took, by procedure.
#[derive(Debug)]
pub struct Latencies {
    histograms: [Histogram; CLASSES],
}

impl Default for Latencies {
    fn default() -> Self {
        // 1 µs to 33 s.
        Self { histograms: std::array::from_fn(|_| Histogram::new(exponential_buckets(1e-6, 2.0, 26))) }
    }
}

impl Observe for Latencies {
    fn observe(&self, operation: Operation, took: Duration, _is_error: bool) {
        self.histograms[class(operation)].observe(took.as_secs_f64());
    }
}

fn class(operation: Operation) -> usize {
    match operation {
        Operation::Nfs3(number) if (number as usize) < NFS3 => number as usize,
        Operation::Nfs4(number) if (number as usize) < NFS4 => NFS3 + number as usize,
        Operation::Mount(number) if (number as usize) < MOUNT => NFS3 + NFS4 + number as usize,
        _ => CLASSES - 1,
    }
}

fn class_labels(index: usize) -> ProcedureLabels {
    let name = |table: &'static ProgramVersion, number: usize| {
        table.procedure(number as u32).map_or("OTHER", |row| row.name)
    };
    let (program, procedure) = match index {
        _ if index < NFS3 => ("nfs3", name(&protocol::nfs3::TABLE, index)),
        _ if index == NFS3 => ("nfs4", "NULL"),
        _ if index < NFS3 + NFS4 => ("nfs4", "COMPOUND"),
        _ if index < CLASSES - 1 => ("mount3", name(&protocol::mount::TABLE_3, index - NFS3 - NFS4)),
        _ => ("other", "OTHER"),
    };
    ProcedureLabels { program, procedure }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProcedureLabels {
    program: &'static str,
    procedure: &'static str,
}

/// Answers scrapes.
#[derive(Debug)]
pub struct MetricsServer {
    registry: Registry,
}

impl MetricsServer {
    /// Metrics of `server`.
    pub fn new(server: Arc<Server>, latencies: Arc<Latencies>, connections: Arc<AtomicUsize>) -> Self {
        let mut registry = Registry::with_prefix("enfys");
        registry.register_collector(Box::new(Everything { server, latencies, connections }));
        Self { registry }
    }

    /// Serves `/metrics` on `address` from now on.
    ///
    /// # Errors
    /// Where the address cannot be listened on.
    pub async fn start(self, address: SocketAddr) -> io::Result<()> {
        let listener = TcpListener::bind(address).await?;
        let registry = Arc::new(self.registry);
        tokio::spawn(async move {
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    // One at a time: scrapes are rare, and nobody can hold more than one of our descriptors.
                    let _ = tokio::time::timeout(REQUEST_TIMEOUT, answer(stream, &registry)).await;
                }
            }
        });
        Ok(())
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

/// Reads everything at the moment of a scrape.
#[derive(Debug)]
struct Everything {
    server: Arc<Server>,
    latencies: Arc<Latencies>,
    connections: Arc<AtomicUsize>,
}

impl Collector for Everything {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.encode_operations(&mut encoder, "operations", "Calls and operations answered", |o| &o.calls)?;
        self.encode_operations(&mut encoder, "operation_errors", "Those answered with an error", |o| {
            &o.errors
        })?;
        let metrics = self.server.metrics();
        let counters = [
            ("read_bytes", "Payload of READs", &metrics.read_bytes),
            ("write_bytes", "Payload of WRITEs", &metrics.write_bytes),
            ("malformed_records", "Records that were no valid call", &metrics.malformed),
            ("refused_calls", "Calls refused for credentials, RPC version or address", &metrics.refused),
            ("bad_handles", "File handles that this server never made", &metrics.bad_handles),
            (
                "stalled_connections",
                "Connections closed in mid-record or mid-reply",
                &metrics.stalled_connections,
            ),
            ("refused_connections", "Connections over the limit", &metrics.refused_connections),
            ("replayed_calls", "Retransmissions answered from the reply cache", &metrics.replayed),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value.load(Relaxed));
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let connections = ConstGauge::new(self.connections.load(Relaxed) as i64);
        connections.encode(encoder.encode_descriptor(
            "connections",
            "Open connections",
            None,
            connections.metric_type(),
        )?)?;
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
    ) -> Result<(), std::fmt::Error> {
        let metrics = self.server.metrics();
        let zero = ConstCounter::new(0u64);
        let mut family = encoder.encode_descriptor(name, help, None, zero.metric_type())?;
        let mut one = |program, procedure, operation: &OperationMetrics| {
            let count = value(operation).load(Relaxed);
            if count == 0 {
                return Ok(());
            }
            let labels = ProcedureLabels { program, procedure };
            ConstCounter::new(count).encode(family.encode_family(&labels)?)
        };
        for (row, operation) in protocol::nfs3::TABLE.procedures.iter().zip(&metrics.nfs3) {
            one("nfs3", row.name, operation)?;
        }
        for (row, operation) in protocol::mount::TABLE_3.procedures.iter().zip(&metrics.mount) {
            one("mount3", row.name, operation)?;
        }
        for (number, operation) in metrics.nfs4.iter().enumerate() {
            one("nfs4", protocol::nfs4::types::OpNum(number as u32).name().unwrap_or("OTHER"), operation)?;
        }
        Ok(())
    }

    fn encode_latencies(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let histograms = &self.latencies.histograms;
        let (name, help) = ("call_seconds", "From a call's last byte to its reply");
        let mut family = encoder.encode_descriptor(name, help, None, histograms[0].metric_type())?;
        for (index, histogram) in histograms.iter().enumerate() {
            histogram.encode(family.encode_family(&class_labels(index))?)?;
        }
        Ok(())
    }
}
