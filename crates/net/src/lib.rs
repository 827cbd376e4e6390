//! Listeners and connections on tokio, one current-thread runtime for each core.
//!
//! A connection stays on its core. All complete records of a read are parsed, each call is polled once in place, and the replies
//! leave in one write. Only pending calls join the connection's bounded set of waiting calls. No task is spawned for a call: that
//! alone costs ten times as much as a GETATTR.
#![deny(unsafe_code)]

mod accept;
pub mod blocking;
mod budget;
mod busy_poll;
mod clock;
pub mod connect;
mod connection;
mod cores;
mod end;
pub mod guide;
mod host_calls;
mod host_listener;
#[cfg(feature = "krb5")]
pub mod kerberos;
pub mod local;
mod memory_server;
pub mod modelled_disk;
mod output;
mod peers;
mod pool;
pub mod proxy;
mod reserved;
mod rpcbind;
mod slot;
mod sources;
pub mod transport;
mod udp;

use std::time::Duration;

pub use accept::{AcceptLog, accept};
pub use clock::Clock;
pub use cores::{Listeners, Running, serve};
pub use host_listener::answer_host_calls;
pub use memory_server::MemoryServer;
pub use peers::{NameServices, PeerPolicy};
pub use rpcbind::Registered;
use server::Operation;

/// Limits on connections and their memory.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Serving threads, each with its own runtime.
    pub cores: usize,
    /// Maximum number of open connections; further ones are closed at once.
    pub max_connections: usize,
    /// Maximum number of open connections of one client. Addresses of one IPv6 /64 network count as one client.
    pub max_connections_per_address: usize,
    /// Memory for requests of more than 4 KiB, over all connections, while they arrive or wait for replies. Beyond it, no more of
    /// them is read until some are answered. It can be exceeded by one read of each connection.
    pub request_memory_bytes: usize,
    /// Maximum number of pending calls of one connection; beyond it, nothing more is read.
    pub max_waiting_calls: usize,
    /// Time without progress of a reply or of a partial record after which the connection is closed. A whole record may take five
    /// times as long.
    pub stall_timeout: Duration,
    /// Time without an answer to the kernel's probes, or an acknowledgement of data, after which the connection is closed; at least
    /// 9 seconds.
    pub silence: Duration,
    /// Maximum time that a core polls for the next request of a client that sends one at a time, before it sleeps; zero for never.
    pub busy_poll: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            max_connections: 10_000,
            max_connections_per_address: 8_000,
            request_memory_bytes: 256 << 20,
            max_waiting_calls: 128,
            stall_timeout: Duration::from_secs(60),
            silence: Duration::from_secs(90),
            // About the time of sleeping and waking up.
            busy_poll: Duration::from_micros(50),
        }
    }
}

/// Observes calls, for metrics.
pub trait Observe: Send + Sync {
    /// Notes a call that was answered or dropped.
    fn observe(&self, call: Call);
}

/// A completed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Its operation.
    pub operation: Operation,
    /// Time from the complete record to the complete reply.
    pub took: Duration,
    /// Whether the reply is an error.
    pub is_error: bool,
    /// Bytes of the record.
    pub received: usize,
    /// Bytes of the reply, with a stream's record mark; 0 if the call was dropped.
    pub sent: usize,
}
