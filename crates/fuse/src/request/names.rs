//! Operations on names and directories.

use super::{Arguments, Decode, Malformed, reply_size};
use crate::abi::{self, opcode};
use crate::types::{FileHandle, NAME_MAX, Name, NodeId, TARGET_MAX};

request! {
    /// Asks for the entry of a name.
    Lookup |a| {
        /// The directory.
        parent: NodeId = a.node(),
        /// The name in it. `.` and `..` only with `Capabilities::EXPORT_SUPPORT`.
        name: Name = a.name()?,
    }
}

request! {
    /// Reads the target of a symbolic link.
    Readlink |a| {
        /// The link.
        node: NodeId = a.node(),
    }
}

request! {
    /// Creates a symbolic link.
    Symlink |a| {
        /// The directory.
        parent: NodeId = a.node(),
        /// Name of the link.
        name: Name = a.name()?,
        /// Its target.
        target: Name = a.terminated(TARGET_MAX)?,
    }
}

request! {
    /// Creates a file, device, socket or pipe.
    Mknod |a| {
        let args: abi::MknodIn = a.take()?;
        /// The directory.
        parent: NodeId = a.node(),
        /// The new name.
        name: Name = a.name()?,
        /// Type and permissions.
        mode: u32 = args.mode,
        /// Number of a device.
        device: u32 = args.rdev,
        /// The caller's umask; applied by the kernel unless `Capabilities::DONT_MASK` is on.
        umask: u32 = args.umask,
    }
}

request! {
    /// Creates a directory.
    Mkdir |a| {
        let args: abi::MkdirIn = a.take()?;
        /// The directory above.
        parent: NodeId = a.node(),
        /// The new name.
        name: Name = a.name()?,
        /// Permissions.
        mode: u32 = args.mode,
        /// As in [`Mknod`].
        umask: u32 = args.umask,
    }
}

request! {
    /// Removes a name of a file.
    Unlink |a| {
        /// The directory.
        parent: NodeId = a.node(),
        /// The name.
        name: Name = a.name()?,
    }
}

request! {
    /// Removes an empty directory.
    Rmdir |a| {
        /// The directory above.
        parent: NodeId = a.node(),
        /// The name.
        name: Name = a.name()?,
    }
}

request! {
    /// Renames.
    Rename |a| {
        let args: abi::Rename2In = match a.header.opcode {
            opcode::RENAME2 => a.take()?,
            _ => abi::Rename2In { newdir: a.take::<abi::RenameIn>()?.newdir, ..abi::Rename2In::default() },
        };
        /// The old directory.
        parent: NodeId = a.node(),
        /// The old name.
        name: Name = a.name()?,
        /// The new directory.
        new_parent: NodeId = NodeId(args.newdir),
        /// The new name.
        new_name: Name = a.name()?,
        /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
        flags: u32 = args.flags,
    }
}

request! {
    /// Creates one more name of a file.
    Link |a| {
        /// The file.
        node: NodeId = NodeId(a.take::<abi::LinkIn>()?.oldnodeid),
        /// The directory.
        parent: NodeId = a.node(),
        /// The new name.
        name: Name = a.name()?,
    }
}

request! {
    /// Creates and opens a file.
    Create |a| {
        let args: abi::CreateIn = a.take()?;
        /// The directory.
        parent: NodeId = a.node(),
        /// The new name.
        name: Name = a.name()?,
        /// Flags of open(2).
        flags: u32 = args.flags,
        /// Type and permissions.
        mode: u32 = args.mode,
        /// As in [`Mknod`].
        umask: u32 = args.umask,
        /// As in [`Open`].
        kill_suidgid: bool = args.open_flags & abi::OPEN_KILL_SUIDGID != 0,
    }
}

request! {
    /// Creates and opens a file without a name (`O_TMPFILE`).
    Tmpfile |a| {
        let args: abi::CreateIn = a.take()?;
        // The kernel sends a name without meaning, `/`.
        let _name: Name = a.terminated(NAME_MAX)?;
        /// The directory.
        parent: NodeId = a.node(),
        /// Flags of open(2).
        flags: u32 = args.flags,
        /// Type and permissions.
        mode: u32 = args.mode,
        /// As in [`Mknod`].
        umask: u32 = args.umask,
    }
}

request! {
    /// Reads a listing. An empty reply is its end.
    Readdir |a| {
        let args: abi::ReadIn = a.take()?;
        /// The directory.
        node: NodeId = a.node(),
        /// The open directory.
        handle: FileHandle = FileHandle(args.fh),
        /// 0, or the position that the file system gave to the last entry read.
        offset: u64 = args.offset,
        /// Maximum number of bytes of the reply; at most [`REPLY_DATA_MAX`].
        size: u32 = reply_size(args.size)?,
    }
}
