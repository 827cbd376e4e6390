//! Operations on open files and locks.

use bytes::Bytes;

use super::{Arguments, Decode, Malformed, REPLY_DATA_MAX, reply_size};
use crate::abi;
use crate::flags::WriteFlags;
use crate::types::{FileHandle, LockKind, LockOwner, LockRange, NodeId};

request! {
    /// Opens a file or a directory.
    Open |a| {
        let args: abi::OpenIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// Flags of open(2), without `O_CREAT`, `O_EXCL`, `O_NOCTTY`.
        flags: u32 = args.flags,
        /// Clear the set-user-ID and set-group-ID bits (a truncation).
        kill_suidgid: bool = args.open_flags & abi::OPEN_KILL_SUIDGID != 0,
    }
}

request! {
    /// Reads a file. A reply with fewer bytes means the end of the file.
    Read |a| {
        let args: abi::ReadIn = a.take()?;
        let has_owner: bool = args.read_flags & abi::READ_LOCKOWNER != 0;
        /// The inode.
        node: NodeId = a.node(),
        /// The open file.
        handle: FileHandle = FileHandle(args.fh),
        /// First byte.
        offset: u64 = args.offset,
        /// Maximum number of bytes of the reply; at most [`REPLY_DATA_MAX`].
        size: u32 = reply_size(args.size)?,
        /// Owner of mandatory locks.
        lock_owner: Option<LockOwner> = has_owner.then_some(LockOwner(args.lock_owner)),
        /// Flags of the open file.
        flags: u32 = args.flags,
    }
}

request! {
    /// Writes a file.
    Write |a| {
        let args: abi::WriteIn = a.take()?;
        let write_flags: WriteFlags = WriteFlags::from_bits_truncate(args.write_flags);
        let has_owner: bool = write_flags.contains(WriteFlags::LOCKOWNER);
        /// The inode.
        node: NodeId = a.node(),
        /// The open file.
        handle: FileHandle = FileHandle(args.fh),
        /// First byte.
        offset: u64 = args.offset,
        /// The data: a slice of a buffer of the session, which is reused when all slices are dropped. It may keep up to twice its length of
        /// memory.
        data: Bytes = a.data(args.size, REPLY_DATA_MAX as usize)?,
        /// Kind of write.
        write_flags: WriteFlags = write_flags,
        /// Owner of mandatory locks.
        lock_owner: Option<LockOwner> = has_owner.then_some(LockOwner(args.lock_owner)),
        /// Flags of the open file, with those of this call (`O_SYNC`, `O_DSYNC`).
        flags: u32 = args.flags,
    }
}

request! {
    /// Releases an open file or directory: the last descriptor is closed. No program waits for the reply.
    Release |a| {
        let args: abi::ReleaseIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// The open file.
        handle: FileHandle = FileHandle(args.fh),
        /// Flags of the open file.
        flags: u32 = args.flags,
        /// Owner whose flock lock ends; only if `unlocks_flock`.
        lock_owner: LockOwner = LockOwner(args.lock_owner),
        /// Whether to flush.
        flushes: bool = args.release_flags & abi::RELEASE_FLUSH != 0,
        /// Whether a flock lock ends.
        unlocks_flock: bool = args.release_flags & abi::RELEASE_FLOCK_UNLOCK != 0,
    }
}

request! {
    /// A descriptor is closed; others may exist. close(2) returns the reply's error. All fcntl locks of the owner end.
    ///
    /// A request of a dying process is answered by the session when the file system does not answer soon; the file system continues.
    Flush |a| {
        let args: abi::FlushIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// The open file.
        handle: FileHandle = FileHandle(args.fh),
        /// Owner of the fcntl locks that end.
        lock_owner: LockOwner = LockOwner(args.lock_owner),
    }
}

request! {
    /// Makes a file or directory stable.
    Fsync |a| {
        let args: abi::FsyncIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// The open file.
        handle: FileHandle = FileHandle(args.fh),
        /// Only content and the attributes needed to read it.
        data_only: bool = args.fsync_flags & abi::FSYNC_FDATASYNC != 0,
    }
}

request! {
    /// Requests a lock, or a query for a conflicting one.
    Lock |a| {
        let args: abi::LkIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// The open file.
        handle: FileHandle = FileHandle(args.fh),
        /// The owner of the lock.
        owner: LockOwner = LockOwner(args.owner),
        /// The lock.
        range: LockRange = lock_range(args.lk)?,
        /// A flock lock on the whole file, not an fcntl lock.
        is_flock: bool = args.lk_flags & abi::LK_FLOCK != 0,
    }
}

fn lock_range(abi::FileLock { start, end, kind, pid }: abi::FileLock) -> Result<LockRange, Malformed> {
    let kind = match kind {
        0 => LockKind::Read,
        1 => LockKind::Write,
        2 => LockKind::Unlock,
        _ => return Err(Malformed::Value),
    };
    if start > end { Err(Malformed::Value) } else { Ok(LockRange { start, end, kind, pid }) }
}

request! {
    /// Allocates or frees space.
    Fallocate |a| {
        let args: abi::FallocateIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// The open file.
        handle: FileHandle = FileHandle(args.fh),
        /// First byte.
        offset: u64 = args.offset,
        /// Number of bytes.
        length: u64 = args.length,
        /// `FALLOC_FL_…`.
        mode: u32 = args.mode,
    }
}

request! {
    /// Finds data or a hole (`SEEK_DATA`, `SEEK_HOLE`).
    Lseek |a| {
        let args: abi::LseekIn = a.take()?;
        /// The inode.
        node: NodeId = a.node(),
        /// The open file.
        handle: FileHandle = FileHandle(args.fh),
        /// The start offset.
        offset: u64 = args.offset,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        whence: u32 = args.whence,
    }
}

request! {
    /// Copies between two files of the mount.
    CopyFileRange |a| {
        let args: abi::CopyFileRangeIn = a.take()?;
        /// The source.
        node: NodeId = a.node(),
        /// The source as open file.
        handle: FileHandle = FileHandle(args.fh_in),
        /// First byte of the source.
        offset: u64 = args.off_in,
        /// The target.
        target: NodeId = NodeId(args.nodeid_out),
        /// The target as open file.
        target_handle: FileHandle = FileHandle(args.fh_out),
        /// First byte of the target.
        target_offset: u64 = args.off_out,
        /// Number of bytes; fewer may be copied.
        length: u64 = args.len,
        /// None is defined.
        flags: u64 = args.flags,
    }
}

request! {
    /// Makes the whole file system stable (syncfs).
    Syncfs |a| {
        let _args: abi::SyncfsIn = a.take()?;
        /// The root.
        node: NodeId = a.node(),
    }
}
