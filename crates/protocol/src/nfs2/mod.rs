//! NFS version 2 (RFC 1094): constants, types, and the arguments and results of all procedures.
//!
//! Offsets, sizes and file IDs have 32 bits, and every modification is synchronous. A failure has only a status.

use crate::procedure::{Effect, Procedure, ProgramVersion};

mod ops;
mod types;

pub use ops::*;
pub use types::*;

/// The program's number (RFC 1094 §2.1).
pub const PROGRAM: u32 = 100_003;

/// This version.
pub const VERSION: u32 = 2;

/// The well-known port (RFC 1094 §2.1).
pub const PORT: u16 = 2049;

xdr::constants! {
    /// The procedures (RFC 1094 §2.2).
    pub struct Proc: u32 {
        /// Does nothing.
        NULL = 0,
        /// Gets attributes. Arguments: [`FileHandle`]; results: [`AttrStat`].
        GETATTR = 1,
        /// Sets attributes. Arguments: [`SattrArgs`]; results: [`AttrStat`].
        SETATTR = 2,
        /// Obsolete: MOUNT gives the root's handle.
        ROOT = 3,
        /// Looks up a name in a directory. Arguments: [`DirOpArgs`]; results: [`DirOpRes`].
        LOOKUP = 4,
        /// Reads a symbolic link's content. Arguments: [`FileHandle`]; results: [`ReadlinkRes`].
        READLINK = 5,
        /// Reads from a file. Arguments: [`ReadArgs`]; results: [`ReadRes`].
        READ = 6,
        /// Never used.
        WRITECACHE = 7,
        /// Writes to a file. Arguments: [`WriteArgs`]; results: [`AttrStat`].
        WRITE = 8,
        /// Creates a file. Arguments: [`CreateArgs`]; results: [`DirOpRes`].
        CREATE = 9,
        /// Removes a file's name. Arguments: [`DirOpArgs`]; results: [`Stat`].
        REMOVE = 10,
        /// Renames. Arguments: [`RenameArgs`]; results: [`Stat`].
        RENAME = 11,
        /// Creates a hard link. Arguments: [`LinkArgs`]; results: [`Stat`].
        LINK = 12,
        /// Creates a symbolic link. Arguments: [`SymlinkArgs`]; results: [`Stat`].
        SYMLINK = 13,
        /// Creates a directory. Arguments: [`CreateArgs`]; results: [`DirOpRes`].
        MKDIR = 14,
        /// Removes a directory. Arguments: [`DirOpArgs`]; results: [`Stat`].
        RMDIR = 15,
        /// Lists a directory. Arguments: [`ReaddirArgs`]; results: [`ReaddirRes`].
        READDIR = 16,
        /// Gets the free space. Arguments: [`FileHandle`]; results: [`StatfsRes`].
        STATFS = 17,
    }
}

/// The procedures.
///
/// SETATTR is [`Effect::Repeatable`], because version 2 has no guard. A late second truncation destroys newer data, as does a
/// late second WRITE.
pub static TABLE: ProgramVersion = ProgramVersion {
    program: PROGRAM,
    version: VERSION,
    name: "nfs2",
    procedures: &[
        Procedure::new(0, "NULL", Effect::None),
        Procedure::new(1, "GETATTR", Effect::None),
        Procedure::new(2, "SETATTR", Effect::Repeatable),
        Procedure::new(3, "ROOT", Effect::None),
        Procedure::new(4, "LOOKUP", Effect::None),
        Procedure::new(5, "READLINK", Effect::None),
        Procedure::new(6, "READ", Effect::None),
        Procedure::new(7, "WRITECACHE", Effect::None),
        Procedure::new(8, "WRITE", Effect::Repeatable),
        Procedure::new(9, "CREATE", Effect::Once),
        Procedure::new(10, "REMOVE", Effect::Once),
        Procedure::new(11, "RENAME", Effect::Once),
        Procedure::new(12, "LINK", Effect::Once),
        Procedure::new(13, "SYMLINK", Effect::Once),
        Procedure::new(14, "MKDIR", Effect::Once),
        Procedure::new(15, "RMDIR", Effect::Once),
        Procedure::new(16, "READDIR", Effect::None),
        Procedure::new(17, "STATFS", Effect::None),
    ],
};
