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
    /// Send a WRITE. `handle_written` reports its end.
    Write {
        /// The file.
        file: FileId,
        /// Offset of the data.
        offset: u64,
        /// The data in order, at most `wsize` bytes, not copied.
        data: Vec<Bytes>,
        /// The stability that the server must reach before it replies.
        stability: Stability,
        /// The request.
        id: RequestId,
    },
    /// Send a COMMIT. `handle_committed` reports its end.
    Commit {
        /// The file.
        file: FileId,
        /// Start of the range.
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
    /// Bytes written from the offset. A part is legal; the rest is sent again.
    pub count: u32,
    /// The stability that the server reports, which may exceed the request.
    pub stability: Stability,
    /// The verifier.
    pub verifier: Verifier,
}

/// The end of a request without an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// Not executed: the same request must be repeated.
    Retry,
    /// Refused permanently.
    Failed(Errno),
}

/// The next request of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Write { range: Range<u64>, stability: Stability },
    Commit { range: Range<u64> },
}
