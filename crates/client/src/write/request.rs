//! Requests to the server and their results, independent of the protocol.

use std::ops::Range;

use bytes::Bytes;

use crate::cache::FileId;
use crate::errno::Errno;
use crate::results::Stability;

/// A WRITE or COMMIT under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(super) u64);

/// The server's write verifier, which changes when the server may have lost uncommitted data.
pub type Verifier = [u8; 8];

/// A request to send, after the lock around the caches is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteAction {
    /// Send a WRITE. Its end comes by `handle_written`.
    Write {
        /// The file.
        file: FileId,
        /// Where the data begin.
        offset: u64,
        /// The data in order, at most `wsize` bytes, not copied.
        data: Vec<Bytes>,
        /// The least that the server must do before it replies.
        stability: Stability,
        /// The request.
        id: RequestId,
    },
    /// Send a COMMIT. Its end comes by `handle_committed`.
    Commit {
        /// The file.
        file: FileId,
        /// Where the range begins.
        offset: u64,
        /// Length of the range; 0 up to the end of the file.
        count: u32,
        /// The request.
        id: RequestId,
    },
}

/// The reply to a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes written, from the offset on. Less than was sent is legal; the rest is sent again.
    pub count: u32,
    /// The stability that the server reports, which may exceed the request.
    pub stability: Stability,
    /// The verifier.
    pub verifier: Verifier,
}

/// How a request ended without an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// Not executed: the same has to be asked again.
    Retry,
    /// Refused for good.
    Failed(Errno),
}

/// The next request of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Write { range: Range<u64>, stability: Stability },
    Commit { range: Range<u64> },
}
