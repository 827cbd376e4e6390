//! Statistics of a proxy.

use std::fmt;
use std::time::Duration;

/// Counters of a proxy since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Connections that were accepted and reached the target.
    pub connections: u64,
    /// Of them, those that are open.
    pub open: u64,
    /// Of them, those that ended by a reset or another error of one side.
    pub broken: u64,
    /// Connections that were closed at once, since as many as allowed were open.
    pub refused: u64,
    /// Connections that were reset, since the target could not be reached.
    pub unreachable: u64,
    /// From the client to the target.
    pub up: DirectionCounts,
    /// From the target to the client.
    pub down: DirectionCounts,
}

/// Counters of one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectionCounts {
    /// Bytes that were taken from senders.
    pub bytes: u64,
    /// Transmissions that the model lost.
    pub lost_segments: u64,
    /// The sum of the stalls that they caused.
    pub stalled: Duration,
    /// Maximum number of bytes that waited for the rate or the end of an outage, with 64 for each piece.
    pub queue_bytes_max: u64,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, open, broken, refused, unreachable, up, down } = self;
        writeln!(
            f,
            "connections: {connections} accepted, {open} open, {broken} broken, {refused} refused, {unreachable} without target"
        )?;
        writeln!(f, "up:          {up}")?;
        writeln!(f, "down:        {down}")
    }
}

impl fmt::Display for DirectionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, lost_segments, stalled, queue_bytes_max } = self;
        let stalled = stalled.as_secs_f64();
        write!(
            f,
            "{bytes} bytes, {lost_segments} segments lost ({stalled:.3} s of stalls), at most {queue_bytes_max} bytes queued"
        )
    }
}
