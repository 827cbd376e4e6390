//! The contract with a file system: one method for each operation.

use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;

use crate::abi::{InHeader, opcode};
use crate::channel::Channel;
use crate::reply::{
    Copied, Created, Data, GrantedAttributes, Opened, Reply, Statistics, StatxAttributes, Ticket, XattrReply,
};
use crate::request::{
    Access, CopyFileRange, Create, Fallocate, Flush, Forget, Fsync, Getattr, Getxattr, Link, Listxattr, Lock,
    Lookup, Lseek, Malformed, Mkdir, Mknod, Open, Read, Readdir, Readlink, Release, Removexattr, Rename,
    Rmdir, Setattr, Setxattr, Statfs, Statx, Symlink, Syncfs, Tmpfile, Unlink, Write, caller, decode,
};
use crate::types::{Caller, Entry, LockRange};

/// Defines the trait and the dispatcher from one row for each operation.
macro_rules! operations {
    ($($(#[$doc:meta])* $method:ident($request:ty) -> $answer:ty: $($opcode:ident)|+;)*) => {
        /// A file system.
        ///
        /// Workers call the methods, several at a time, in any order. A method must not block: it answers at once, or moves the reply
        /// elsewhere and returns. An operation that is not implemented is answered by ENOSYS, after which the kernel works without it or
        /// does not send it any more. A method that panics answers EIO.
        pub trait Filesystem: Send + Sync + 'static {
            $(
                $(#[$doc])*
                fn $method(&self, caller: Caller, request: $request, reply: Reply<$answer>) {
                    let _ = (caller, request);
                    reply.error(Errno::NOSYS);
                }
            )*

            /// Lookups that the kernel has forgotten. The kernel no longer uses an inode without lookups.
            fn forget(&self, forgets: &[Forget]) {
                let _ = forgets;
            }
        }

        /// Decodes a registered request and calls its method.
        pub(crate) fn dispatch(
            filesystem: &impl Filesystem,
            channel: &Arc<Channel>,
            header: &InHeader,
            arguments: Bytes,
            setxattr_ext: bool,
        ) -> Result<(), Malformed> {
            let ticket = Ticket { channel: Arc::clone(channel), unique: header.unique, opcode: header.opcode };
            match header.opcode {
                $(
                    $(opcode::$opcode)|+ => {
                        let request = decode::<$request>(header, arguments, setxattr_ext)?;
                        filesystem.$method(caller(header), request, Reply::new(ticket));
                    }
                )*
                _ => Reply::<()>::new(ticket).error(Errno::NOSYS),
            }
            Ok(())
        }
    };
}

operations! {
    /// Finds a name.
    lookup(Lookup) -> Entry: LOOKUP;
    /// Returns attributes.
    getattr(Getattr) -> GrantedAttributes: GETATTR;
    /// Changes attributes.
    setattr(Setattr) -> GrantedAttributes: SETATTR;
    /// Returns the target of a symbolic link.
    readlink(Readlink) -> Data: READLINK;
    /// Creates a symbolic link.
    symlink(Symlink) -> Entry: SYMLINK;
    /// Creates a file that is not opened, or a special file.
    mknod(Mknod) -> Entry: MKNOD;
    /// Creates a directory.
    mkdir(Mkdir) -> Entry: MKDIR;
    /// Removes a name of a file.
    unlink(Unlink) -> (): UNLINK;
    /// Removes a directory.
    rmdir(Rmdir) -> (): RMDIR;
    /// Renames.
    rename(Rename) -> (): RENAME | RENAME2;
    /// Creates a name of a file.
    link(Link) -> Entry: LINK;
    /// Opens a file. An open file whose reply is not delivered must be released.
    open(Open) -> Opened: OPEN;
    /// Reads.
    read(Read) -> Data: READ;
    /// Writes; a program sees a count less than the request's as a short write.
    write(Write) -> Copied: WRITE;
    /// Returns statistics of the file system.
    statfs(Statfs) -> Statistics: STATFS;
    /// Releases an open file.
    release(Release) -> (): RELEASE;
    /// Makes a file stable.
    fsync(Fsync) -> (): FSYNC;
    /// Sets an extended attribute.
    setxattr(Setxattr) -> (): SETXATTR;
    /// Returns an extended attribute.
    getxattr(Getxattr) -> XattrReply: GETXATTR;
    /// Returns names of extended attributes.
    listxattr(Listxattr) -> XattrReply: LISTXATTR;
    /// Removes an extended attribute.
    removexattr(Removexattr) -> (): REMOVEXATTR;
    /// A descriptor is closed.
    flush(Flush) -> (): FLUSH;
    /// Opens a directory.
    opendir(Open) -> Opened: OPENDIR;
    /// Lists names: see [`Listing`](crate::Listing).
    readdir(Readdir) -> Data: READDIR;
    /// Lists names with attributes: see [`ListingPlus`](crate::ListingPlus).
    readdirplus(Readdir) -> Data: READDIRPLUS;
    /// Releases an open directory.
    releasedir(Release) -> (): RELEASEDIR;
    /// Makes a directory stable.
    fsyncdir(Fsync) -> (): FSYNCDIR;
    /// Returns a lock that conflicts, or one of kind `Unlock`.
    getlk(Lock) -> LockRange: GETLK;
    /// Sets or releases a lock; EAGAIN if another conflicts.
    setlk(Lock) -> (): SETLK;
    /// Sets a lock, and waits while others conflict. The session answers EINTR at any signal of the thread that waits;
    /// [`Reply::poll_unwanted`] then ends the wait. A lock whose reply is not delivered must be released.
    setlkw(Lock) -> (): SETLKW;
    /// Checks access.
    access(Access) -> (): ACCESS;
    /// Creates and opens a file.
    create(Create) -> Created: CREATE;
    /// Creates and opens a file without a name.
    tmpfile(Tmpfile) -> Created: TMPFILE;
    /// Allocates or frees space.
    fallocate(Fallocate) -> (): FALLOCATE;
    /// Finds data or a hole.
    lseek(Lseek) -> u64: LSEEK;
    /// Copies between files of the mount.
    copy_file_range(CopyFileRange) -> Copied: COPY_FILE_RANGE | COPY_FILE_RANGE_64;
    /// Makes the file system stable.
    syncfs(Syncfs) -> (): SYNCFS;
    /// Returns attributes with the time of birth.
    statx(Statx) -> StatxAttributes: STATX;
}
