//! Trees, as copies and removals see them: a directory of a server ([`ServerTree`]), or any other implementation of [`Tree`],
//! for instance a directory of this machine (`net::local::LocalTree`).

mod path;
mod removal;
mod server;

use std::fmt;

use bytes::Bytes;

pub use path::{DEPTH_MAX, NAME_MAX, NameError, PATH_MAX, TreePath};
pub use removal::{ObjectToRemove, Removal, RemoveError, RemoveReport};
pub use server::{ServerFile, ServerTree};

use crate::attributes::{Attributes, FileKind, SetAttributes, SetTime, Timestamp};
use crate::results::FileHandle;

/// Maximum number of bytes of a file that is read and written in one step.
pub const SMALL_MAX: u64 = 64 << 10;
/// Listings of many directories end early once they have this many entries: about 50 MB.
pub const ENTRIES_MAX: usize = 1 << 17;

/// An entry of a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name, which may be one that leads elsewhere: [`TreePath::join`] refuses such names.
    pub name: Vec<u8>,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its handle on its server.
    pub handle: Option<FileHandle>,
}

/// A regular file that is read in one step.
#[derive(Debug)]
pub struct ReadFile<'a> {
    /// Its path.
    pub path: &'a TreePath,
    /// Its handle on its server.
    pub handle: Option<FileHandle>,
    /// Bytes to read, at most [`SMALL_MAX`].
    pub size: u64,
}

/// A regular file that is written in one step.
#[derive(Debug)]
pub struct WriteFile<'a> {
    /// Its path.
    pub path: &'a TreePath,
    /// Mode bits until `new` is set.
    pub mode: u32,
    /// All its content, at most [`SMALL_MAX`] bytes.
    pub data: Bytes,
    /// Attributes to set after the data were written.
    pub new: NewAttributes,
}

/// New attributes; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NewAttributes {
    /// The lower twelve mode bits; ignored for symbolic links, which have none on Linux.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The owning group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of the data.
    pub mtime: Option<Timestamp>,
}

impl NewAttributes {
    fn to_set(self) -> SetAttributes {
        let time = |time: Option<Timestamp>| time.map_or(SetTime::Keep, SetTime::To);
        SetAttributes {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            size: None,
            atime: time(self.atime),
            mtime: time(self.mtime),
        }
    }
}

/// A tree that can be read and written. Paths never lead out of it, not even over symbolic links: an implementation follows
/// none, whether it was there before or is made meanwhile.
///
/// Operations on many objects have a result for each, in their order. Their default implementations call the operation on one
/// object for each; a tree with a long way overrides them.
#[allow(
    async_fn_in_trait,
    reason = "a copy runs in one task, so that no future needs to be sent to another thread"
)]
pub trait Tree {
    /// The failure of an operation: it names the operation, the path, and the reason.
    type Error: fmt::Debug + fmt::Display;
    /// A file that is open for reading.
    type Reader;
    /// A file that is open for writing.
    type Writer;

    /// Returns the attributes of an object, of a symbolic link itself; `None` if there is none.
    async fn attributes(&self, path: &TreePath) -> Result<Option<Attributes>, Self::Error>;
    /// Lists a directory.
    async fn list(&self, path: &TreePath) -> Result<Vec<Entry>, Self::Error>;
    /// Returns the target of a symbolic link.
    async fn read_link(&self, path: &TreePath) -> Result<Vec<u8>, Self::Error>;
    /// Opens a regular file for reading.
    async fn open(&self, path: &TreePath) -> Result<Self::Reader, Self::Error>;
    /// Returns the next range at or after `offset` that may have data: its first byte, and the one after it.
    async fn next_data(
        &self,
        file: &Self::Reader,
        offset: u64,
        size: u64,
    ) -> Result<Option<(u64, u64)>, Self::Error>;
    /// Reads at most `length` bytes; fewer only at the end of the file.
    async fn read(&self, file: &Self::Reader, offset: u64, length: usize) -> Result<Bytes, Self::Error>;
    /// Closes a file that was read.
    async fn close(&self, file: Self::Reader) -> Result<(), Self::Error>;
    /// Creates an empty file with this mode, or empties one that exists. A symbolic link in its place is removed.
    async fn create(&self, path: &TreePath, mode: u32) -> Result<Self::Writer, Self::Error>;
    /// Writes all of `data`.
    async fn write(&self, file: &Self::Writer, offset: u64, data: Bytes) -> Result<(), Self::Error>;
    /// Gives a file this size and these attributes, and closes it. Written data are then as safe as the tree promises.
    async fn finish(&self, file: Self::Writer, size: u64, new: &NewAttributes) -> Result<(), Self::Error>;
    /// Creates a directory; `false` if it exists, which is not an error.
    async fn make_directory(&self, path: &TreePath, mode: u32) -> Result<bool, Self::Error>;
    /// Creates a symbolic link.
    async fn make_link(&self, path: &TreePath, target: &[u8]) -> Result<(), Self::Error>;
    /// Gives a file another name.
    async fn make_hard_link(&self, existing: &TreePath, path: &TreePath) -> Result<(), Self::Error>;
    /// Creates a pipe, socket or device.
    async fn make_special(&self, path: &TreePath, like: &Attributes) -> Result<(), Self::Error>;
    /// Removes a name; of a directory only if it is empty.
    async fn remove(&self, path: &TreePath, kind: FileKind) -> Result<(), Self::Error>;
    /// Sets attributes.
    async fn set_attributes(&self, path: &TreePath, new: &NewAttributes) -> Result<(), Self::Error>;

    /// Lists directories, at least one; `None` for those to list again after the others were used.
    async fn list_many(&self, paths: &[TreePath]) -> Vec<Option<Result<Vec<Entry>, Self::Error>>> {
        let (mut listings, mut entries) = (Vec::new(), 0);
        for path in paths {
            let listing = if entries < ENTRIES_MAX { Some(self.list(path).await) } else { None };
            entries += listing.as_ref().and_then(|listing| listing.as_ref().ok()).map_or(0, Vec::len);
            listings.push(listing);
        }
        listings
    }

    /// Creates directories as [`Self::make_directory`] does.
    async fn make_directories(&self, new: &[(&TreePath, u32)]) -> Vec<Result<bool, Self::Error>> {
        let mut made = Vec::new();
        for (path, mode) in new {
            made.push(self.make_directory(path, *mode).await);
        }
        made
    }

    /// Reads small files; the result is shorter for a file that became shorter.
    async fn read_files(&self, files: &[ReadFile<'_>]) -> Vec<Result<Bytes, Self::Error>> {
        let mut contents = Vec::new();
        for file in files {
            let content = async {
                let reader = self.open(file.path).await?;
                let content = self.read(&reader, 0, file.size as usize).await;
                self.close(reader).await?;
                content
            };
            contents.push(content.await);
        }
        contents
    }

    /// Creates small files, or overwrites existing ones. They are then as safe as after [`Self::finish`].
    async fn write_files(&self, files: &[WriteFile<'_>]) -> Vec<Result<(), Self::Error>> {
        let mut written = Vec::new();
        for file in files {
            let outcome = async {
                let writer = self.create(file.path, file.mode).await?;
                let data = self.write(&writer, 0, file.data.clone()).await;
                let size = file.data.len() as u64;
                data.and(self.finish(writer, size, &file.new).await)
            };
            written.push(outcome.await);
        }
        written
    }

    /// Removes names as [`Self::remove`] does, in any order.
    async fn remove_many(&self, objects: &[(&TreePath, FileKind)]) -> Vec<Result<(), Self::Error>> {
        let mut removed = Vec::new();
        for (path, kind) in objects {
            removed.push(self.remove(path, *kind).await);
        }
        removed
    }

    /// Sets attributes of directories, in any order.
    async fn set_attributes_of_directories(
        &self,
        directories: &[(TreePath, NewAttributes)],
    ) -> Vec<Result<(), Self::Error>> {
        let mut outcomes = Vec::new();
        for (path, new) in directories {
            outcomes.push(self.set_attributes(path, new).await);
        }
        outcomes
    }

    /// Returns the user that writes to the tree. Only 0 may set owners.
    fn user(&self) -> u32;
    /// Returns the name and port of the server that holds the tree; `None` for this machine.
    fn server(&self) -> Option<String>;
    /// Returns whether an operation failed because a server has restarted and lost data of the file: it must be written again.
    fn has_lost_data(_error: &Self::Error) -> bool {
        false
    }
    /// Returns whether an operation failed because there is no such object.
    fn is_missing(error: &Self::Error) -> bool;

    /// Returns this tree if it is one of a server, which may copy between its files itself.
    fn at_server(&self) -> Option<&ServerTree> {
        None
    }
    /// Returns a file of [`Self::at_server`] that is open for reading.
    fn reader_at_server(_: &Self::Reader) -> Option<&ServerFile> {
        None
    }
    /// Returns a file of [`Self::at_server`] that is open for writing.
    fn writer_at_server(_: &Self::Writer) -> Option<&ServerFile> {
        None
    }
}
