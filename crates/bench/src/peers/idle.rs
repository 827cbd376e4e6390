//! The cost of an idle server.

use std::fmt;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use super::server::{Peer, PeerConfig, RunningPeer};
use crate::load::null_call;
use crate::process;

/// Time after which the memory of a new server is read.
const IDLE_DELAY: Duration = Duration::from_secs(1);

/// Resident memory of one server.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// With no connection, in bytes.
    pub rest_bytes: u64,
    /// Bytes with the requested connections, after one NULL call on each.
    pub connected_bytes: u64,
    /// Number of these connections.
    pub connections: usize,
}

/// The target: resident bytes without connections, and with [`CONNECTIONS`] idle ones.
const REST_BYTES_MAX: u64 = 20_000_000;
const CONNECTED_BYTES_MAX: u64 = 100_000_000;
/// Connections of that target.
pub const CONNECTIONS: usize = 5000;

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let verdict = |bytes, limit| if bytes <= limit { "met" } else { "not met" };
        write!(
            f,
            "{:.1} MB at rest (target {:.0} MB: {}), {:.1} MB with {} idle connections",
            megabytes(self.rest_bytes),
            megabytes(REST_BYTES_MAX),
            verdict(self.rest_bytes, REST_BYTES_MAX),
            megabytes(self.connected_bytes),
            self.connections,
        )?;
        if self.connections == CONNECTIONS {
            let reached = verdict(self.connected_bytes, CONNECTED_BYTES_MAX);
            write!(f, " (target {:.0} MB: {reached})", megabytes(CONNECTED_BYTES_MAX))?;
        }
        Ok(())
    }
}

/// Starts `peer` and reads its memory at rest and under idle connections.
///
/// # Errors
/// Why the server does not start, or refuses a connection.
pub fn idle(peer: Peer, place: &PeerConfig, connections: usize) -> Result<Idle, String> {
    let running = RunningPeer::start(peer, place)?;
    let resident = || {
        thread::sleep(IDLE_DELAY);
        process::resident_bytes(running.pid()).map_err(|error| format!("{}: {error}", peer.name()))
    };
    let rest_bytes = resident()?;
    let mut open = Vec::with_capacity(connections);
    for number in 0..connections {
        let failed = |error| format!("{}: connection {}: {error}", peer.name(), number + 1);
        let mut stream = TcpStream::connect(running.server).map_err(failed)?;
        null_call(&mut stream, number as u32).map_err(failed)?;
        open.push(stream);
    }
    let connected_bytes = resident()?;
    // An idle connection may not be dropped to save memory.
    for (number, stream) in open.iter_mut().enumerate().step_by(connections.div_ceil(100).max(1)) {
        null_call(stream, (connections + number) as u32)
            .map_err(|error| format!("{}: connection {} was dropped: {error}", peer.name(), number + 1))?;
    }
    Ok(Idle { rest_bytes, connected_bytes, connections })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_checked() {
        let text = |rest_bytes, connected_bytes, connections| {
            Idle { rest_bytes, connected_bytes, connections }.to_string()
        };
        let kept = text(20_000_000, 100_000_000, 5000);
        assert!(kept.contains("20 MB: met") && kept.contains("100 MB: met"), "{kept}");
        let broken = text(20_000_001, 100_000_001, 5000);
        assert!(broken.contains("20 MB: not met") && broken.contains("100 MB: not met"), "{broken}");
        assert!(!text(1, 1, 10).contains("100 MB"), "the target is for another number of connections");
    }
}
