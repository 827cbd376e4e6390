use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;

/// Where the data of a READ are.
#[derive(Debug)]
pub enum Payload {
    /// Appended to the caller's buffer.
    Appended,
    /// In memory of the backend.
    Bytes(Bytes),
    /// Still in the file, to be spliced to the connection.
    Range(FileRange),
}

/// An open file from which a range can be sent.
pub trait RangeSource: Send + Sync + fmt::Debug {
    /// Returns the open file, for `sendfile`.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Notes that the transport could not read from [`descriptor`](Self::descriptor), and had to close its
    /// connection, because a reply that is half sent cannot become an error. The backend must not offer it again, and
    /// has to report the error itself.
    fn failed(&self);
    /// Reads from byte `offset` on. Bytes after the end of the file, or that cannot be read, become zeros.
    fn read_at(&self, offset: u64, into: &mut [u8]);
}

/// `length` bytes of a file from `offset` on.
#[derive(Debug, Clone)]
pub struct FileRange {
    /// The open file.
    pub source: Arc<dyn RangeSource>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}
