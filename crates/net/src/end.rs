//! Reasons why a connection ends.

use std::io;

use rpc::record::RecordError;

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer closed it between records, or the server shuts down and all calls have replies.
    Closed,
    /// The peer sent something other than RPC, or a record above the limit.
    Protocol(String),
    /// The peer is reachable, but makes no progress.
    Stalled(Stall),
    /// The peer's host acknowledges nothing, so it or the network is down.
    Unreachable(io::Error),
    /// The socket failed otherwise.
    Io(io::Error),
}

/// How a peer stalls.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    /// It does not send the rest of a record: bytes received, and the minimum of missing bytes.
    Sending { received: usize, missing: usize },
    /// It does not receive its replies: bytes not sent.
    Receiving { unsent: usize },
}

impl std::fmt::Display for Stall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sending { received, missing } => {
                write!(
                    f,
                    "the peer stopped within a record, {missing} bytes or more missing after {received}"
                )
            }
            Self::Receiving { unsent } => {
                write!(f, "the peer stopped taking replies, {unsent} bytes unsent")
            }
        }
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
        match error.kind() {
            // tcp(7): keepalive probes or data were not acknowledged in time, or an ICMP message arrived.
            TimedOut | HostUnreachable | NetworkUnreachable => Self::Unreachable(error),
            _ => Self::Io(error),
        }
    }
}

impl From<RecordError> for End {
    fn from(error: RecordError) -> Self {
        Self::Protocol(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_peer_that_acknowledges_nothing_is_unreachable_and_not_stalled() {
        for errno in [Errno::TIMEDOUT, Errno::HOSTUNREACH, Errno::NETUNREACH] {
            let end = End::from(io::Error::from(errno));
            assert!(matches!(end, End::Unreachable(_)), "{end:?}");
        }
        assert!(matches!(End::from(io::Error::from(Errno::CONNRESET)), End::Io(_)));
    }
}
