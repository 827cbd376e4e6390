//! Flags that a file system and the kernel exchange.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

bitflags! {
    /// Capabilities that INIT negotiates. A capability is on if the kernel offers it and the file system wants it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Capabilities: u64 {
        /// Several READs of one open file at a time.
        const ASYNC_READ = 1 << 0;
        /// fcntl locks are requests, not the kernel's own.
        const POSIX_LOCKS = 1 << 1;
        /// OPEN carries `O_TRUNC`, instead of a SETATTR before it.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// LOOKUP of `.` and `..` works, so that the mount can be exported and its handles outlive the kernel's cache.
        const EXPORT_SUPPORT = 1 << 4;
        /// WRITEs larger than a page.
        const BIG_WRITES = 1 << 5;
        /// The file system applies the umask.
        const DONT_MASK = 1 << 6;
        /// flock locks are requests.
        const FLOCK_LOCKS = 1 << 10;
        /// The kernel drops a file's pages when its mtime or size changed.
        const AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS instead of READDIR.
        const DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS only if the kernel expects that the attributes are used.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Several requests of one `O_DIRECT` call at a time. A program that waits for them **cannot be killed**.
        const ASYNC_DIO = 1 << 15;
        /// The kernel caches writes.
        const WRITEBACK_CACHE = 1 << 16;
        /// ENOSYS for OPEN means that files need no open.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// LOOKUP and READDIR of one directory in parallel.
        const PARALLEL_DIROPS = 1 << 18;
        /// The file system clears set-user-ID bits at writes, truncations and changes of the owner.
        const HANDLE_KILLPRIV = 1 << 19;
        /// POSIX ACLs; the kernel checks permissions by them.
        const POSIX_ACL = 1 << 20;
        /// Reads of the device end with ECONNABORTED, not ENODEV, after an abort.
        const ABORT_ERROR = 1 << 21;
        /// `max_pages` of the INIT reply counts: requests of more than 128 KiB.
        const MAX_PAGES = 1 << 22;
        /// The kernel caches targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// ENOSYS for OPENDIR means that directories need no open.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Only the file system invalidates pages.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// Clears set-user-ID bits if a request demands it.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has more flags.
        const SETXATTR_EXT = 1 << 29;
        /// INIT has 64 flags.
        const INIT_EXT = 1 << 30;
        /// A notification can expire an entry without dropping it.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Shared mappings of files that are open for direct I/O.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Handles of this mount are invalid after the kernel's cache has lost the inode.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// The kernel can send pending requests again.
        const HAS_RESEND = 1 << 39;
    }
}

bitflags! {
    /// Flags of a reply to OPEN, OPENDIR or CREATE.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// Bypasses the page cache.
        const DIRECT_IO = 1 << 0;
        /// Keeps the pages that the kernel has of this file.
        const KEEP_CACHE = 1 << 1;
        /// The file has no position.
        const NONSEEKABLE = 1 << 2;
        /// The kernel may cache the directory's listing.
        const CACHE_DIR = 1 << 3;
        /// The file is a stream.
        const STREAM = 1 << 4;
        /// No FLUSH when a descriptor is closed.
        const NOFLUSH = 1 << 5;
        /// Parallel direct writes to one file.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
    }
}

bitflags! {
    /// Flags of WRITE.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// From the page cache (a shared mapping): caller and open file may be any that has the file open.
        const CACHE = 1 << 0;
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 1;
        /// Clear the set-user-ID and set-group-ID bits.
        const KILL_SUIDGID = 1 << 2;
    }
}
