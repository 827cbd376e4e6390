//! Operations on attributes.

use bytes::Bytes;

use super::{Arguments, Decode, Malformed, XATTR_VALUE_MAX, reply_size};
use crate::abi::{self, fattr};
use crate::types::{FileHandle, LockOwner, Name, NodeId, Timestamp};

request! {
    /// Requests attributes.
    Getattr |a| {
        let args: abi::GetattrIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// An open file through which they are requested.
        handle: Option<FileHandle> = (args.getattr_flags & abi::GETATTR_FH != 0).then_some(FileHandle(args.fh)),
    }
}

/// A new time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the server.
    Now,
    /// A given time.
    To(Timestamp),
}

request! {
    /// Changes attributes; the reply contains all attributes.
    Setattr |a| {
        let args: abi::SetattrIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// An open file through which they are changed (ftruncate).
        handle: Option<FileHandle> = args.has(fattr::FH).then_some(FileHandle(args.fh)),
        /// New permissions.
        mode: Option<u32> = args.has(fattr::MODE).then_some(args.mode),
        /// New owner.
        uid: Option<u32> = args.has(fattr::UID).then_some(args.uid),
        /// New group.
        gid: Option<u32> = args.has(fattr::GID).then_some(args.gid),
        /// New length in bytes.
        size: Option<u64> = args.has(fattr::SIZE).then_some(args.size),
        /// New time of access.
        atime: Option<SetTime> = set_time(&args, fattr::ATIME, fattr::ATIME_NOW, args.atime, args.atimensec),
        /// New time of modification.
        mtime: Option<SetTime> = set_time(&args, fattr::MTIME, fattr::MTIME_NOW, args.mtime, args.mtimensec),
        /// New time of change; only with the kernel's writeback cache.
        ctime: Option<Timestamp> = args.has(fattr::CTIME).then_some(timestamp(args.ctime, args.ctimensec)),
        /// Owner of mandatory locks at a truncation.
        lock_owner: Option<LockOwner> = args.has(fattr::LOCKOWNER).then_some(LockOwner(args.lock_owner)),
        /// Clear the set-user-ID and set-group-ID bits.
        kill_suidgid: bool = args.has(fattr::KILL_SUIDGID),
    }
}

fn timestamp(seconds: u64, nanoseconds: u32) -> Timestamp {
    Timestamp { seconds: seconds.cast_signed(), nanoseconds }
}

/// Returns the new time if the bit `set` is there, and the server's if the bit `now` is too.
fn set_time(args: &abi::SetattrIn, set: u32, now: u32, seconds: u64, nanoseconds: u32) -> Option<SetTime> {
    let time = if args.has(now) { SetTime::Now } else { SetTime::To(timestamp(seconds, nanoseconds)) };
    args.has(set).then_some(time)
}

request! {
    /// Requests statistics of the file system.
    Statfs |a| {
        /// Any inode of it.
        node: NodeId = a.node(),
    }
}

request! {
    /// Sets an extended attribute.
    Setxattr |a| {
        let args: abi::SetxattrIn = setxattr_arguments(a)?;
        /// The inode.
        node: NodeId = a.node(),
        /// Its name.
        name: Name = a.attribute_name()?,
        /// Its value; at most [`XATTR_VALUE_MAX`] bytes.
        value: Bytes = a.data(args.size, XATTR_VALUE_MAX)?,
        /// `XATTR_CREATE`, `XATTR_REPLACE`.
        flags: u32 = args.flags,
        /// Clear the set-group-ID bit (an ACL is set).
        kills_sgid: bool = args.setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0,
    }
}

fn setxattr_arguments(a: &mut Arguments<'_>) -> Result<abi::SetxattrIn, Malformed> {
    if a.setxattr_ext {
        return a.take();
    }
    let abi::SetxattrCompatIn { size, flags } = a.take()?;
    Ok(abi::SetxattrIn { size, flags, ..abi::SetxattrIn::default() })
}

request! {
    /// Reads an extended attribute.
    Getxattr |a| {
        let args: abi::GetxattrIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// Its name.
        name: Name = a.attribute_name()?,
        /// Maximum number of bytes of the value; 0 requests its length. The reply to a longer value is ERANGE.
        size: u32 = reply_size(args.size)?,
    }
}

request! {
    /// Lists names of extended attributes, each with a NUL.
    Listxattr |a| {
        let args: abi::GetxattrIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// As in [`Getxattr`].
        size: u32 = reply_size(args.size)?,
    }
}

request! {
    /// Removes an extended attribute.
    Removexattr |a| {
        /// The inode.
        node: NodeId = a.node(),
        /// Its name.
        name: Name = a.attribute_name()?,
    }
}

request! {
    /// Checks access, as access(2); not sent if the kernel checks permissions (`default_permissions`).
    Access |a| {
        /// The inode.
        node: NodeId = a.node(),
        /// `R_OK`, `W_OK`, `X_OK`.
        mask: u32 = a.take::<abi::AccessIn>()?.mask,
    }
}

request! {
    /// Requests attributes as statx(2), including the time of birth.
    Statx |a| {
        let args: abi::StatxIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// An open file through which they are requested.
        handle: Option<FileHandle> = (args.getattr_flags & abi::GETATTR_FH != 0).then_some(FileHandle(args.fh)),
        /// `AT_STATX_…`.
        flags: u32 = args.sx_flags,
        /// `STATX_…`: the requested attributes.
        mask: u32 = args.sx_mask,
    }
}
