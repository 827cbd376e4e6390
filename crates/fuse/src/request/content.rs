//! Operations on open files and locks.

use bytes::Bytes;

use super::{Arguments, Decode, Malformed, REPLY_DATA_MAX, reply_size};
use crate::abi;
use crate::flags::WriteFlags;
use crate::types::{FileHandle, LockKind, LockOwner, LockRange, NodeId};

request! {
    /// Opens a file or a directory.
    Open {
        /// The inode.
        node: NodeId,
        /// Flags of open(2), without `O_CREAT`, `O_EXCL`, `O_NOCTTY`.
        flags: u32,
        /// Clear the set-user-ID and set-group-ID bits (a truncation).
        kill_suidgid: bool,
    } |a| {
        let args: abi::OpenIn = a.take()?;
        Ok(Self { node: a.node(), flags: args.flags, kill_suidgid: args.open_flags & abi::OPEN_KILL_SUIDGID != 0 })
    }
}

request! {
    /// Reads a file. A reply with fewer bytes means the end of the file.
    Read {
        /// The inode.
        node: NodeId,
        /// The open file.
        handle: FileHandle,
        /// First byte.
        offset: u64,
        /// Maximum number of bytes of the reply; at most [`REPLY_DATA_MAX`].
        size: u32,
        /// Owner of mandatory locks.
        lock_owner: Option<LockOwner>,
        /// Flags of the open file.
        flags: u32,
    } |a| {
        let args: abi::ReadIn = a.take()?;
        let has_owner = args.read_flags & abi::READ_LOCKOWNER != 0;
        Ok(Self {
            node: a.node(),
            handle: FileHandle(args.fh),
            offset: args.offset,
            size: reply_size(args.size)?,
            lock_owner: has_owner.then_some(LockOwner(args.lock_owner)),
            flags: args.flags,
        })
    }
}

request! {
    /// Writes a file.
    Write {
        /// The inode.
        node: NodeId,
        /// The open file.
        handle: FileHandle,
        /// First byte.
        offset: u64,
        /// The data: a slice of a buffer of the session, which is reused when all slices are dropped. It may keep up to twice its length of
        /// memory.
        data: Bytes,
        /// Kind of write.
        write_flags: WriteFlags,
        /// Owner of mandatory locks.
        lock_owner: Option<LockOwner>,
        /// Flags of the open file, with those of this call (`O_SYNC`, `O_DSYNC`).
        flags: u32,
    } |a| {
        let args: abi::WriteIn = a.take()?;
        let write_flags = WriteFlags::from_bits_truncate(args.write_flags);
        Ok(Self {
            node: a.node(),
            handle: FileHandle(args.fh),
            offset: args.offset,
            data: a.data(args.size, REPLY_DATA_MAX as usize)?,
            write_flags,
            lock_owner: write_flags.contains(WriteFlags::LOCKOWNER).then_some(LockOwner(args.lock_owner)),
            flags: args.flags,
        })
    }
}

request! {
    /// Releases an open file or directory: the last descriptor is closed. No program waits for the reply.
    Release {
        /// The inode.
        node: NodeId,
        /// The open file.
        handle: FileHandle,
        /// Flags of the open file.
        flags: u32,
        /// Owner whose flock lock ends; only if `unlocks_flock`.
        lock_owner: LockOwner,
        /// Whether to flush.
        flushes: bool,
        /// Whether a flock lock ends.
        unlocks_flock: bool,
    } |a| {
        let args: abi::ReleaseIn = a.take()?;
        Ok(Self {
            node: a.node(),
            handle: FileHandle(args.fh),
            flags: args.flags,
            lock_owner: LockOwner(args.lock_owner),
            flushes: args.release_flags & abi::RELEASE_FLUSH != 0,
            unlocks_flock: args.release_flags & abi::RELEASE_FLOCK_UNLOCK != 0,
        })
    }
}

request! {
    /// A descriptor is closed; others may exist. close(2) returns the reply's error. All fcntl locks of the owner end.
    ///
    /// A request of a dying process is answered by the session when the file system does not answer soon; the file system continues.
    Flush {
        /// The inode.
        node: NodeId,
        /// The open file.
        handle: FileHandle,
        /// Owner of the fcntl locks that end.
        lock_owner: LockOwner,
    } |a| {
        let args: abi::FlushIn = a.take()?;
        Ok(Self { node: a.node(), handle: FileHandle(args.fh), lock_owner: LockOwner(args.lock_owner) })
    }
}

request! {
    /// Makes a file or directory stable.
    Fsync {
        /// The inode.
        node: NodeId,
        /// The open file.
        handle: FileHandle,
        /// Only content and the attributes needed to read it.
        data_only: bool,
    } |a| {
        let args: abi::FsyncIn = a.take()?;
        Ok(Self { node: a.node(), handle: FileHandle(args.fh), data_only: args.fsync_flags & abi::FSYNC_FDATASYNC != 0 })
    }
}

request! {
    /// Requests a lock, or a query for a conflicting one.
    Lock {
        /// The inode.
        node: NodeId,
        /// The open file.
        handle: FileHandle,
        /// The owner of the lock.
        owner: LockOwner,
        /// The lock.
        range: LockRange,
        /// A flock lock on the whole file, not an fcntl lock.
        is_flock: bool,
    } |a| {
        let args: abi::LkIn = a.take()?;
        let kind = match args.lk.kind {
            0 => LockKind::Read,
            1 => LockKind::Write,
            2 => LockKind::Unlock,
            _ => return Err(Malformed::Value),
        };
        if args.lk.start > args.lk.end {
            return Err(Malformed::Value);
        }
        Ok(Self {
            node: a.node(),
            handle: FileHandle(args.fh),
            owner: LockOwner(args.owner),
            range: LockRange { start: args.lk.start, end: args.lk.end, kind, pid: args.lk.pid },
            is_flock: args.lk_flags & abi::LK_FLOCK != 0,
        })
    }
}

request! {
    /// Allocates or frees space.
    Fallocate {
        /// The inode.
        node: NodeId,
        /// The open file.
        handle: FileHandle,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// `FALLOC_FL_…`.
        mode: u32,
    } |a| {
        let args: abi::FallocateIn = a.take()?;
        Ok(Self { node: a.node(), handle: FileHandle(args.fh), offset: args.offset, length: args.length, mode: args.mode })
    }
}

request! {
    /// Finds data or a hole (`SEEK_DATA`, `SEEK_HOLE`).
    Lseek {
        /// The inode.
        node: NodeId,
        /// The open file.
        handle: FileHandle,
        /// The start offset.
        offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        whence: u32,
    } |a| {
        let args: abi::LseekIn = a.take()?;
        Ok(Self { node: a.node(), handle: FileHandle(args.fh), offset: args.offset, whence: args.whence })
    }
}

request! {
    /// Copies between two files of the mount.
    CopyFileRange {
        /// The source.
        node: NodeId,
        /// The source as open file.
        handle: FileHandle,
        /// First byte of the source.
        offset: u64,
        /// The target.
        target: NodeId,
        /// The target as open file.
        target_handle: FileHandle,
        /// First byte of the target.
        target_offset: u64,
        /// Number of bytes; fewer may be copied.
        length: u64,
        /// None is defined.
        flags: u64,
    } |a| {
        let args: abi::CopyFileRangeIn = a.take()?;
        Ok(Self {
            node: a.node(),
            handle: FileHandle(args.fh_in),
            offset: args.off_in,
            target: NodeId(args.nodeid_out),
            target_handle: FileHandle(args.fh_out),
            target_offset: args.off_out,
            length: args.len,
            flags: args.flags,
        })
    }
}

request! {
    /// Makes the whole file system stable (syncfs).
    Syncfs {
        /// The root.
        node: NodeId,
    } |a| {
        a.take::<abi::SyncfsIn>()?;
        Ok(Self { node: a.node() })
    }
}
