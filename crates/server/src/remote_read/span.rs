use vfs::{Authority, CopyRange};

/// The range of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    /// First byte in the source.
    pub(crate) source_offset: u64,
    /// The file to write.
    pub(crate) destination: vfs::Handle,
    /// First byte in it.
    pub(crate) destination_offset: u64,
    /// Bytes; 0 for all bytes to the end of the source.
    pub(crate) count: u64,
}

impl Span {
    /// Returns the number of bytes to copy; the greatest number if unknown.
    pub(crate) fn end(&self) -> u64 {
        if self.count == 0 { u64::MAX } else { self.count }
    }

    /// Returns the range for a backend, with a source on the same file system.
    pub(crate) fn within(&self, source: vfs::Handle, [read, written]: [Authority; 2]) -> CopyRange {
        CopyRange {
            source,
            source_offset: self.source_offset,
            source_authority: read,
            destination: self.destination,
            destination_offset: self.destination_offset,
            destination_authority: written,
            count: self.count,
        }
    }
}
