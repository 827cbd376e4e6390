//! Blocking forms of the library's calls that need no conversion.

use bytes::Bytes;
use client::acl::Acl;
use client::attributes::{Attributes, SetAttributes};
use client::error::Error;
use client::fs::{NewPath, WholeFile};
use client::locks::{LockConflict, LockKind, LockOwner, LockRange};
use client::results::{Content, FsStat, NewObject, Object};
use client::xattr::XattrMode;

use super::{File, FileSystem, wait};

/// Defines methods that wait for the methods of the same names.
macro_rules! blocking {
    ($of:ident: $($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl $of {
            $(
                $(#[$meta])*
                pub fn $name(&self, $($argument: $type),*) -> $result {
                    wait(self.inner.$name($($argument),*))
                }
            )*
        }
    };
}

blocking! { FileSystem:
    /// Returns the attributes at a path, of a symbolic link itself.
    ///
    /// # Errors
    /// As lstat(2).
    fn lstat(path: &[u8]) -> Result<Attributes, Error>;
    /// Gives the file at `from` another name; a symbolic link is not followed.
    ///
    /// # Errors
    /// As link(2).
    fn link(from: &[u8], to: &[u8]) -> Result<(), Error>;
    /// Creates a symbolic link with the content `target`.
    ///
    /// # Errors
    /// As symlink(2).
    fn symlink(target: &[u8], path: &[u8]) -> Result<Object, Error>;
    /// Returns the content of a symbolic link.
    ///
    /// # Errors
    /// As readlink(2).
    fn read_link(path: &[u8]) -> Result<Bytes, Error>;
    /// Creates a device, a socket or a named pipe.
    ///
    /// # Errors
    /// As mknod(2).
    fn mknod(path: &[u8], kind: &NewObject, mode: u32) -> Result<Object, Error>;
    /// Returns the caller's permissions among the requested ones ([`client::results::access`]).
    ///
    /// # Errors
    /// As access(2), except that missing permissions are not an error.
    fn access(path: &[u8], asked: u32) -> Result<u32, Error>;
    /// Returns the free space of the file system at a path.
    ///
    /// # Errors
    /// As statvfs(3).
    fn stat_fs(path: &[u8]) -> Result<FsStat, Error>;
    /// Returns the value of an extended attribute (version 4.2).
    ///
    /// # Errors
    /// As getxattr(2) and lgetxattr(2).
    fn get_xattr(path: &[u8], name: &[u8], follow: bool) -> Result<Bytes, Error>;
    /// Sets an extended attribute to a value of at most 65,536 bytes (version 4.2).
    ///
    /// # Errors
    /// As setxattr(2) and lsetxattr(2).
    fn set_xattr(path: &[u8], name: &[u8], value: Bytes, mode: XattrMode, follow: bool) -> Result<(), Error>;
    /// Lists the names of all extended attributes (version 4.2).
    ///
    /// # Errors
    /// As listxattr(2) and llistxattr(2).
    fn list_xattrs(path: &[u8], follow: bool) -> Result<Vec<Bytes>, Error>;
    /// Removes an extended attribute (version 4.2).
    ///
    /// # Errors
    /// As removexattr(2) and lremovexattr(2).
    fn remove_xattr(path: &[u8], name: &[u8], follow: bool) -> Result<(), Error>;
    /// Returns access control lists: POSIX ones with version 3, the NFSv4 one with version 4.
    ///
    /// # Errors
    /// EOPNOTSUPP if the server has none, and as stat(2).
    fn get_acl(path: &[u8]) -> Result<Acl, Error>;
    /// Sets access control lists, and returns the attributes if the server sends them.
    ///
    /// # Errors
    /// EOPNOTSUPP if the server has no lists of this kind, and as chmod(2).
    fn set_acl(path: &[u8], acl: &Acl) -> Result<Option<Attributes>, Error>;
    /// Reads whole files of at most `max` bytes; see [`client::fs::FileSystem::read_many`].
    fn read_many(paths: &[&[u8]], max: u32) -> Vec<Result<Bytes, Error>>;
    /// The same without OPEN and CLOSE; see [`client::fs::FileSystem::read_many_unopened`].
    fn read_many_unopened(paths: &[&[u8]], max: u32) -> Vec<Result<Bytes, Error>>;
    /// Writes whole files; see [`client::fs::FileSystem::write_many`].
    fn write_many(files: &[WholeFile<'_>]) -> Vec<Result<(), Error>>;
    /// Returns the attributes of many objects; see [`client::fs::FileSystem::stat_many`].
    fn stat_many(paths: &[&[u8]]) -> Vec<Result<Attributes, Error>>;
    /// Creates many objects; see [`client::fs::FileSystem::create_many`].
    fn create_many(new: &[NewPath<'_>]) -> Vec<Result<Object, Error>>;
    /// Removes many names; see [`client::fs::FileSystem::remove_many`].
    fn remove_many(paths: &[&[u8]], directories: bool) -> Vec<Result<(), Error>>;
}

blocking! { File:
    /// Sets attributes.
    ///
    /// # Errors
    /// As fchmod(2), ftruncate(2).
    fn set_attributes(set: &SetAttributes) -> Result<Attributes, Error>;
    /// Returns a lock that a lock of this owner would conflict with; `None` if it would be granted.
    ///
    /// # Errors
    /// As fcntl(2) with `F_GETLK`.
    fn test_lock(owner: LockOwner, range: LockRange, kind: LockKind) -> Result<Option<LockConflict>, Error>;
    /// Locks the file for this open file, and waits until it is free.
    ///
    /// # Errors
    /// As flock(2). An exclusive lock needs a file that is open for writing (EBADF).
    fn flock(kind: LockKind) -> Result<(), Error>;
    /// Locks the file for this open file if it is free.
    ///
    /// # Errors
    /// As [`Self::flock`], and EWOULDBLOCK (EAGAIN).
    fn try_flock(kind: LockKind) -> Result<(), Error>;
    /// Releases the lock of [`Self::flock`].
    ///
    /// # Errors
    /// As flock(2) with `LOCK_UN`.
    fn funlock() -> Result<(), Error>;
    /// Reserves space for a range (version 4.2); the file grows if the range ends after it.
    ///
    /// # Errors
    /// As fallocate(2) without flags.
    fn allocate(offset: u64, length: u64) -> Result<(), Error>;
    /// Turns a range into a hole (version 4.2); the size does not change.
    ///
    /// # Errors
    /// As fallocate(2) with `FALLOC_FL_PUNCH_HOLE`.
    fn punch_hole(offset: u64, length: u64) -> Result<(), Error>;
    /// Returns the first offset at or after `offset` with data, or in a hole (version 4.2). Every file ends with a hole.
    ///
    /// # Errors
    /// As lseek(2) with `SEEK_DATA` and `SEEK_HOLE`.
    fn seek(offset: u64, content: Content) -> Result<u64, Error>;
}

impl File {
    /// Copies at most `count` bytes of `source` at `source_offset` to `offset` of this file, at the server (version 4.2). Returns
    /// their number; 0 means that the source ends there.
    ///
    /// # Errors
    /// As copy_file_range(2).
    pub fn copy_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        count: u64,
    ) -> Result<u64, Error> {
        wait(self.inner.copy_from(&source.inner, source_offset, offset, count))
    }

    /// Lets a range of this file share the blocks of `source` (version 4.2); a count of 0 means all bytes that follow.
    ///
    /// # Errors
    /// As ioctl_ficlonerange(2).
    pub fn clone_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        count: u64,
    ) -> Result<(), Error> {
        wait(self.inner.clone_from(&source.inner, source_offset, offset, count))
    }
}
