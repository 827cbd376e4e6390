//! Operations on attributes.

use bytes::Bytes;

use super::{Arguments, Decode, Malformed, XATTR_VALUE_MAX, reply_size};
use crate::abi;
use crate::types::{FileHandle, LockOwner, Name, NodeId, Timestamp};

request! {
    /// Requests attributes.
    Getattr {
        /// The inode.
        node: NodeId,
        /// An open file through which they are requested.
        handle: Option<FileHandle>,
    } |a| {
        let node = a.node();
        let args: abi::GetattrIn = a.take()?;
        Ok(Self { node, handle: (args.getattr_flags & abi::GETATTR_FH != 0).then_some(FileHandle(args.fh)) })
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
    Setattr {
        /// The inode.
        node: NodeId,
        /// An open file through which they are changed (ftruncate).
        handle: Option<FileHandle>,
        /// New permissions.
        mode: Option<u32>,
        /// New owner.
        uid: Option<u32>,
        /// New group.
        gid: Option<u32>,
        /// New length in bytes.
        size: Option<u64>,
        /// New time of access.
        atime: Option<SetTime>,
        /// New time of modification.
        mtime: Option<SetTime>,
        /// New time of change; only with the kernel's writeback cache.
        ctime: Option<Timestamp>,
        /// Owner of mandatory locks at a truncation.
        lock_owner: Option<LockOwner>,
        /// Clear the set-user-ID and set-group-ID bits.
        kill_suidgid: bool,
    } |a| {
        use abi::fattr;
        let node = a.node();
        let args: abi::SetattrIn = a.take()?;
        let has = |bit: u32| args.valid & bit != 0;
        let time = |seconds: u64, nanoseconds| Timestamp { seconds: seconds.cast_signed(), nanoseconds };
        let set = |bit, now, to| has(bit).then_some(if has(now) { SetTime::Now } else { SetTime::To(to) });
        Ok(Self {
            node,
            handle: has(fattr::FH).then_some(FileHandle(args.fh)),
            mode: has(fattr::MODE).then_some(args.mode),
            uid: has(fattr::UID).then_some(args.uid),
            gid: has(fattr::GID).then_some(args.gid),
            size: has(fattr::SIZE).then_some(args.size),
            atime: set(fattr::ATIME, fattr::ATIME_NOW, time(args.atime, args.atimensec)),
            mtime: set(fattr::MTIME, fattr::MTIME_NOW, time(args.mtime, args.mtimensec)),
            ctime: has(fattr::CTIME).then_some(time(args.ctime, args.ctimensec)),
            lock_owner: has(fattr::LOCKOWNER).then_some(LockOwner(args.lock_owner)),
            kill_suidgid: has(fattr::KILL_SUIDGID),
        })
    }
}

request! {
    /// Requests statistics of the file system.
    Statfs {
        /// Any inode of it.
        node: NodeId,
    } |a| { Ok(Self { node: a.node() }) }
}

request! {
    /// Sets an extended attribute.
    Setxattr {
        /// The inode.
        node: NodeId,
        /// Its name.
        name: Name,
        /// Its value; at most [`XATTR_VALUE_MAX`] bytes.
        value: Bytes,
        /// `XATTR_CREATE`, `XATTR_REPLACE`.
        flags: u32,
        /// Clear the set-group-ID bit (an ACL is set).
        kills_sgid: bool,
    } |a| {
        let (size, flags, more) = if a.setxattr_ext {
            let args: abi::SetxattrIn = a.take()?;
            (args.size, args.flags, args.setxattr_flags)
        } else {
            let args: abi::SetxattrCompatIn = a.take()?;
            (args.size, args.flags, 0)
        };
        let name = a.attribute_name()?;
        let value = a.data(size, XATTR_VALUE_MAX)?;
        Ok(Self { node: a.node(), name, value, flags, kills_sgid: more & abi::SETXATTR_ACL_KILL_SGID != 0 })
    }
}

request! {
    /// Reads an extended attribute.
    Getxattr {
        /// The inode.
        node: NodeId,
        /// Its name.
        name: Name,
        /// Maximum number of bytes of the value; 0 requests its length. The reply to a longer value is ERANGE.
        size: u32,
    } |a| {
        let args: abi::GetxattrIn = a.take()?;
        Ok(Self { node: a.node(), name: a.attribute_name()?, size: reply_size(args.size)? })
    }
}

request! {
    /// Lists names of extended attributes, each with a NUL.
    Listxattr {
        /// The inode.
        node: NodeId,
        /// As in [`Getxattr`].
        size: u32,
    } |a| {
        let args: abi::GetxattrIn = a.take()?;
        Ok(Self { node: a.node(), size: reply_size(args.size)? })
    }
}

request! {
    /// Removes an extended attribute.
    Removexattr {
        /// The inode.
        node: NodeId,
        /// Its name.
        name: Name,
    } |a| { Ok(Self { node: a.node(), name: a.attribute_name()? }) }
}

request! {
    /// Checks access, as access(2); not sent if the kernel checks permissions (`default_permissions`).
    Access {
        /// The inode.
        node: NodeId,
        /// `R_OK`, `W_OK`, `X_OK`.
        mask: u32,
    } |a| { Ok(Self { node: a.node(), mask: a.take::<abi::AccessIn>()?.mask }) }
}

request! {
    /// Requests attributes as statx(2), including the time of birth.
    Statx {
        /// The inode.
        node: NodeId,
        /// An open file through which they are requested.
        handle: Option<FileHandle>,
        /// `AT_STATX_…`.
        flags: u32,
        /// `STATX_…`: the requested attributes.
        mask: u32,
    } |a| {
        let args: abi::StatxIn = a.take()?;
        let handle = (args.getattr_flags & abi::GETATTR_FH != 0).then_some(FileHandle(args.fh));
        Ok(Self { node: a.node(), handle, flags: args.sx_flags, mask: args.sx_mask })
    }
}
