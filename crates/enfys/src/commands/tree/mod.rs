//! Trees of this machine and of servers, as copies see them.

mod local;
mod local_io;
mod path;
mod remote;

use bytes::Bytes;

pub use local::{LocalTree, NewAttributes};
pub use path::TreePath;
pub use remote::RemoteTree;

use super::attributes::{Attributes, FileKind};
use super::session::Failure;

/// A tree that can be read and written. Paths never lead out of it, also not over symbolic links.
///
/// Every operation fails with what was tried, on which path, and why.
pub trait Tree {
    /// A file that is open for reading.
    type Reader;
    /// A file that is open for writing.
    type Writer;

    /// Returns the attributes of an object, of a symbolic link itself; `None` if there is none.
    async fn attributes(&self, path: &TreePath) -> Result<Option<Attributes>, Failure>;
    /// Lists a directory.
    async fn list(&self, path: &TreePath) -> Result<Vec<(Vec<u8>, Attributes)>, Failure>;
    /// Returns where a symbolic link leads.
    async fn read_link(&self, path: &TreePath) -> Result<Vec<u8>, Failure>;
    /// Opens a regular file for reading.
    async fn open(&self, path: &TreePath) -> Result<Self::Reader, Failure>;
    /// Returns the next range at or after `offset` that may have data: its first byte, and the one after it.
    async fn next_data(
        &self,
        file: &Self::Reader,
        offset: u64,
        size: u64,
    ) -> Result<Option<(u64, u64)>, Failure>;
    /// Reads at most `length` bytes; fewer only at the end of the file.
    async fn read(&self, file: &Self::Reader, offset: u64, length: usize) -> Result<Bytes, Failure>;
    /// Closes a file that was read.
    async fn close(&self, file: Self::Reader) -> Result<(), Failure>;
    /// Creates an empty file with this mode, or empties one that exists. A symbolic link in its place is removed.
    async fn create(&self, path: &TreePath, mode: u32) -> Result<Self::Writer, Failure>;
    /// Writes all of `data`.
    async fn write(&self, file: &Self::Writer, offset: u64, data: Bytes) -> Result<(), Failure>;
    /// Gives a file this size and these attributes, and closes it. Written data are then as safe as the tree promises.
    async fn finish(&self, file: Self::Writer, size: u64, new: &NewAttributes) -> Result<(), Failure>;
    /// Creates a directory; one that exists is left as it is, and returned as `false`.
    async fn make_directory(&self, path: &TreePath, mode: u32) -> Result<bool, Failure>;
    /// Creates a symbolic link.
    async fn make_link(&self, path: &TreePath, target: &[u8]) -> Result<(), Failure>;
    /// Gives a file another name.
    async fn make_hard_link(&self, existing: &TreePath, path: &TreePath) -> Result<(), Failure>;
    /// Creates a pipe, socket or device.
    async fn make_special(&self, path: &TreePath, like: &Attributes) -> Result<(), Failure>;
    /// Removes a name; of a directory only if it is empty.
    async fn remove(&self, path: &TreePath, kind: FileKind) -> Result<(), Failure>;
    /// Sets attributes.
    async fn set_attributes(&self, path: &TreePath, new: &NewAttributes) -> Result<(), Failure>;
    /// Returns the user that writes to the tree. Only 0 may set owners.
    fn user(&self) -> u32;
    /// Returns the server that holds the tree; `None` for this machine.
    fn server(&self) -> Option<String>;
    /// Returns a path as messages show it.
    fn show(&self, path: &TreePath) -> String;
}
