//! Prometheus metrics: counters, current state, and durations of calls.

mod collect;
mod encode;
mod grace;
mod http;
mod latency;
mod process;
mod text;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use net::AcceptLog;
use prometheus_client::registry::Registry;
use store::error_text;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

pub use collect::Sources;
use http::{Format, Request};
pub use latency::Latencies;

/// Maximum number of bytes of an HTTP request.
const MAX_REQUEST: usize = 8 << 10;

/// Maximum number of connections. For another one, the oldest is closed.
const MAX_CONNECTIONS: usize = 8;

/// Longest time to receive a request, and to send an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The HTTP server for metrics.
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
        let failed = |error: io::Error| format!("metrics on {address}: {}", error_text(&error));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Returns the address that it listens on, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to serve `/metrics`. Needs a tokio runtime.
    pub fn start(self, sources: Sources) {
        let log = AcceptLog::new("metrics", sources.clock);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(sources));
        let registry = Arc::new(registry);
        tokio::spawn(async move {
            let mut connections = Connections::default();
            loop {
                let accepted = net::accept(|| self.listener.accept(), |error| log.failed(error));
                let ((stream, _), registry) = (accepted.await, Arc::clone(&registry));
                connections.make_room();
                let answering = tokio::spawn(async move {
                    // An error means that the scraper is gone.
                    let _ = serve(stream, &registry).await;
                });
                connections.0.push_back(answering.abort_handle());
            }
        });
    }
}

/// Open connections, the oldest first.
#[derive(Debug, Default)]
struct Connections(VecDeque<AbortHandle>);

impl Connections {
    /// Closes the oldest connections if there is no room for another one.
    fn make_room(&mut self) {
        self.0.retain(|connection| !connection.is_finished());
        while self.0.len() >= MAX_CONNECTIONS
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
    }
}

async fn serve(mut stream: TcpStream, registry: &Registry) -> io::Result<()> {
    let request = tokio::time::timeout(REQUEST_TIMEOUT, receive(&mut stream)).await??;
    let Some(request) = request else { return Ok(()) };
    tokio::time::timeout(ANSWER_TIMEOUT, answer(&mut stream, request, registry)).await?
}

/// Reads the head of a request; `None` if the peer closes first, or the head is too long.
async fn receive(stream: &mut TcpStream) -> io::Result<Option<Request>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_REQUEST || stream.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(Request::parse(&head)))
}

async fn answer(stream: &mut TcpStream, request: Request, registry: &Registry) -> io::Result<()> {
    let (status, format, body, is_head) = match request {
        Request::Metrics { format, is_head } => match exposition(registry, format) {
            Some(body) => ("200 OK", format, body, is_head),
            None => ("500 Internal Server Error", Format::Text, String::new(), is_head),
        },
        Request::NotFound => ("404 Not Found", Format::Text, "metrics are at /metrics\n".into(), false),
        Request::NotAllowed => {
            ("405 Method Not Allowed\r\nAllow: GET, HEAD", Format::Text, String::new(), false)
        }
        Request::Malformed => ("400 Bad Request", Format::Text, String::new(), false),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nVary: Accept\r\nConnection: close\r\n\r\n",
        format.content_type(),
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if !is_head {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await
}

fn exposition(registry: &Registry, format: Format) -> Option<String> {
    let mut open_metrics = String::new();
    prometheus_client::encoding::text::encode(&mut open_metrics, registry).ok()?;
    Some(match format {
        Format::OpenMetrics => open_metrics,
        Format::Text => text::from_open_metrics(&open_metrics),
    })
}
