//! What a server costs when nobody asks it anything.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use super::server::{Peer, Place, Running};
use crate::load::null_call;
use crate::process;

/// Time for a server to settle before its memory is read.
const SETTLE: Duration = Duration::from_secs(1);

/// Resident memory of one server.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// With no connection, in bytes.
    pub rest_bytes: u64,
    /// With the connections that were asked for, each of which has had one NULL answered.
    pub connected_bytes: u64,
    /// How many those are.
    pub connections: usize,
}

/// Starts `peer` and reads its memory at rest and under idle connections.
///
/// # Errors
/// Why the server does not start, or refuses a connection.
pub fn idle(peer: Peer, place: &Place, connections: usize) -> Result<Idle, String> {
    let running = Running::start(peer, place)?;
    let resident = || {
        thread::sleep(SETTLE);
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
    // Still there after all that time: an idle connection may not be dropped to save memory.
    for (number, stream) in open.iter_mut().enumerate().step_by(connections.div_ceil(100).max(1)) {
        null_call(stream, (connections + number) as u32)
            .map_err(|error| format!("{}: connection {} was dropped: {error}", peer.name(), number + 1))?;
    }
    Ok(Idle { rest_bytes, connected_bytes, connections })
}
