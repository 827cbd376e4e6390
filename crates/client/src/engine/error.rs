//! Why a call has no reply.

use std::fmt;

use rpc::message::RpcError;

use super::connection::ConnectError;

/// Why a call has no usable reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// No connection could be made.
    Unreachable(ConnectError),
    /// The server answered none of the transmissions that `retrans` allows (`soft`).
    TimedOut,
    /// The server rejected the call, or its reply cannot be decoded.
    Rpc(RpcError),
    /// The client or the connection was closed.
    Closed,
    /// Too many calls or connections.
    Busy,
}

impl From<RpcError> for CallError {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => error.fmt(f),
            Self::TimedOut => write!(f, "the server does not answer"),
            Self::Rpc(error) => error.fmt(f),
            Self::Closed => write!(f, "the client was closed"),
            Self::Busy => write!(f, "too many calls are under way"),
        }
    }
}

impl std::error::Error for CallError {}
