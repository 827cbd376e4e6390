//! How records travel: the number of a connection, and its kind.

/// Number of a connection, never used twice while the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// What carries the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP, record-marked.
    Tcp,
    /// UDP: a datagram is a record; replies are at most a datagram long.
    Udp,
}
