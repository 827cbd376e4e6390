use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;

/// Where the data of a READ are.
#[derive(Debug)]
pub enum Payload {
    /// Appended to the buffer that the caller lent.
    Appended,
    /// In memory of the backend's own.
    Bytes(Bytes),
    /// Still in the file, to be spliced to the connection.
    Range(FileRange),
}

/// An open file that a range can be sent from.
pub trait RangeSource: Send + Sync + fmt::Debug {
    /// The open file, for `sendfile`.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// The transport could not read from [`descriptor`](Self::descriptor), and had to give its connection up, since a reply
    /// that is half sent cannot become an error. The backend must not offer it again: asked once more, it is to say
    /// itself what is wrong.
    fn failed(&self);
    /// Reads from byte `offset` on; what lies behind the end of the file, or cannot be read, becomes zeros.
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
