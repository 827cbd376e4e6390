//! The identity of a file.

/// Identifies a file of any export, independent of the handle that leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The export's `fsid`.
    pub fsid: (u64, u64),
    /// Inode number. It is not reused while the file is open: the pin of the open prevents it.
    pub fileid: u64,
}
