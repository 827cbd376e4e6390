//! Operations on names and directories.

use super::{Arguments, Decode, Malformed, reply_size};
use crate::abi::{self, opcode};
use crate::types::{FileHandle, NAME_MAX, Name, NodeId, TARGET_MAX};

request! {
    /// Asks for the entry of a name.
    Lookup {
        /// The directory.
        parent: NodeId,
        /// The name in it. `.` and `..` only with `Capabilities::EXPORT_SUPPORT`.
        name: Name,
    } |a| { Ok(Self { parent: a.node(), name: a.name()? }) }
}

request! {
    /// Reads the target of a symbolic link.
    Readlink {
        /// The link.
        node: NodeId,
    } |a| { Ok(Self { node: a.node() }) }
}

request! {
    /// Creates a symbolic link.
    Symlink {
        /// The directory.
        parent: NodeId,
        /// Name of the link.
        name: Name,
        /// Its target.
        target: Name,
    } |a| { Ok(Self { parent: a.node(), name: a.name()?, target: a.terminated(TARGET_MAX)? }) }
}

request! {
    /// Creates a file, device, socket or pipe.
    Mknod {
        /// The directory.
        parent: NodeId,
        /// The new name.
        name: Name,
        /// Type and permissions.
        mode: u32,
        /// Number of a device.
        device: u32,
        /// The caller's umask; applied by the kernel unless `Capabilities::DONT_MASK` is on.
        umask: u32,
    } |a| {
        let args: abi::MknodIn = a.take()?;
        Ok(Self { parent: a.node(), name: a.name()?, mode: args.mode, device: args.rdev, umask: args.umask })
    }
}

request! {
    /// Creates a directory.
    Mkdir {
        /// The directory above.
        parent: NodeId,
        /// The new name.
        name: Name,
        /// Permissions.
        mode: u32,
        /// As in [`Mknod`].
        umask: u32,
    } |a| {
        let args: abi::MkdirIn = a.take()?;
        Ok(Self { parent: a.node(), name: a.name()?, mode: args.mode, umask: args.umask })
    }
}

request! {
    /// Removes a name of a file.
    Unlink {
        /// The directory.
        parent: NodeId,
        /// The name.
        name: Name,
    } |a| { Ok(Self { parent: a.node(), name: a.name()? }) }
}

request! {
    /// Removes an empty directory.
    Rmdir {
        /// The directory above.
        parent: NodeId,
        /// The name.
        name: Name,
    } |a| { Ok(Self { parent: a.node(), name: a.name()? }) }
}

request! {
    /// Renames.
    Rename {
        /// The old directory.
        parent: NodeId,
        /// The old name.
        name: Name,
        /// The new directory.
        new_parent: NodeId,
        /// The new name.
        new_name: Name,
        /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
        flags: u32,
    } |a| {
        let (new_parent, flags) = if a.header.opcode == opcode::RENAME2 {
            let args: abi::Rename2In = a.take()?;
            (args.newdir, args.flags)
        } else {
            (a.take::<abi::RenameIn>()?.newdir, 0)
        };
        Ok(Self { parent: a.node(), name: a.name()?, new_parent: NodeId(new_parent), new_name: a.name()?, flags })
    }
}

request! {
    /// Creates one more name of a file.
    Link {
        /// The file.
        node: NodeId,
        /// The directory.
        parent: NodeId,
        /// The new name.
        name: Name,
    } |a| {
        let args: abi::LinkIn = a.take()?;
        Ok(Self { node: NodeId(args.oldnodeid), parent: a.node(), name: a.name()? })
    }
}

request! {
    /// Creates and opens a file.
    Create {
        /// The directory.
        parent: NodeId,
        /// The new name.
        name: Name,
        /// Flags of open(2).
        flags: u32,
        /// Type and permissions.
        mode: u32,
        /// As in [`Mknod`].
        umask: u32,
        /// As in [`Open`].
        kill_suidgid: bool,
    } |a| {
        let args: abi::CreateIn = a.take()?;
        let kill_suidgid = args.open_flags & abi::OPEN_KILL_SUIDGID != 0;
        Ok(Self { parent: a.node(), name: a.name()?, flags: args.flags, mode: args.mode, umask: args.umask, kill_suidgid })
    }
}

request! {
    /// Creates and opens a file without a name (`O_TMPFILE`).
    Tmpfile {
        /// The directory.
        parent: NodeId,
        /// Flags of open(2).
        flags: u32,
        /// Type and permissions.
        mode: u32,
        /// As in [`Mknod`].
        umask: u32,
    } |a| {
        let args: abi::CreateIn = a.take()?;
        // The kernel sends a name without meaning, `/`.
        a.terminated(NAME_MAX)?;
        Ok(Self { parent: a.node(), flags: args.flags, mode: args.mode, umask: args.umask })
    }
}

request! {
    /// Reads a listing. An empty reply is its end.
    Readdir {
        /// The directory.
        node: NodeId,
        /// The open directory.
        handle: FileHandle,
        /// 0, or the position that the file system gave to the last entry read.
        offset: u64,
        /// Maximum number of bytes of the reply; at most [`REPLY_DATA_MAX`].
        size: u32,
    } |a| {
        let args: abi::ReadIn = a.take()?;
        Ok(Self { node: a.node(), handle: FileHandle(args.fh), offset: args.offset, size: reply_size(args.size)? })
    }
}
