//! Listeners and connections on tokio, one current-thread runtime a core.
//!
//! A connection stays on the core it was given to. All complete records of a read are parsed, each call is polled once in
//! place, and the replies of those that were answered leave in one write; only calls that are still pending join the
//! connection's bounded set of waiting ones. No task is spawned for a call: that alone cost ten times what a GETATTR does.
#![deny(unsafe_code)]

mod accept;
mod budget;
mod busy_poll;
mod clock;
mod connection;
mod cores;
mod end;
#[cfg(feature = "krb5")]
pub mod kerberos;
mod output;
mod peers;
mod pool;
mod reserved;
mod rpcbind;
mod slot;
mod sources;
mod udp;

use std::time::Duration;

pub use accept::{AcceptLog, accept};
pub use clock::Clock;
pub use cores::{Listeners, Running, serve};
pub use peers::{NameServices, PeerPolicy};
pub use rpcbind::Registered;
use server::Operation;

/// Bounds on what peers can make the transport do.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Threads that serve, each with its own runtime.
    pub cores: usize,
    /// Connections open at once; further ones are closed as they come.
    pub max_connections: usize,
    /// Connections of one client at once, so that it cannot take them all. Addresses of one IPv6 /64 network count as one client.
    pub max_connections_per_address: usize,
    /// Bytes that requests of more than 4 KiB may hold, over all connections, while they arrive or wait for their answers;
    /// beyond, no more of them is read until some are answered. What one read has brought is held all the same.
    pub request_memory_bytes: usize,
    /// Calls of one connection that may wait at once; beyond, nothing more is read from it.
    pub max_waiting_calls: usize,
    /// How long a peer may take none of a reply, or send none of a record it began, before the connection is closed. A
    /// whole record may take five times as long.
    pub stall_timeout: Duration,
    /// How long a peer may answer none of the kernel's probes, or acknowledge nothing that was sent, before the connection
    /// is closed; at least 9 seconds.
    pub silence: Duration,
    /// How long a core at most looks for the next request of a client that asks for one thing after the other before it goes to
    /// sleep; zero for not at all.
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
            // About what falling asleep and waking up take.
            busy_poll: Duration::from_micros(50),
        }
    }
}

/// Told of each call; for metrics.
pub trait Observe: Send + Sync {
    /// A call was answered or dropped.
    fn observe(&self, call: Call);
}

/// A call that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// What it asked for.
    pub operation: Operation,
    /// From the moment its record was complete to the moment its reply was.
    pub took: Duration,
    /// Whether its answer says failure.
    pub is_error: bool,
    /// Bytes of its record.
    pub received: usize,
    /// Bytes of its reply, with a stream's record mark; none where it was dropped.
    pub sent: usize,
}
