//! NFS version 3 (RFC 1813): constants, types, and the arguments and results of all 22 procedures.
//!
//! The results of a procedure are an [`Outcome`]: the status, then one body on success and another on failure. Names are those
//! of the RFC without the version digit. Optional attributes are `Option`s.

use crate::procedure::{Effect, Procedure, ProgramVersion};

mod data;
mod directory;
mod filesystem;
mod object;
mod readdir;
mod types;

pub use data::*;
pub use directory::*;
pub use filesystem::*;
pub use object::*;
pub use readdir::*;
pub use types::*;

/// The program's number (RFC 1813 §2.1).
pub const PROGRAM: u32 = 100_003;

/// This version.
pub const VERSION: u32 = 3;

/// The well-known port (RFC 1813 §2.2).
pub const PORT: u16 = 2049;

xdr::constants! {
    /// The procedures (RFC 1813 §3).
    pub struct Proc: u32 {
        /// Does nothing.
        NULL = 0,
        /// Gets attributes.
        GETATTR = 1,
        /// Sets attributes.
        SETATTR = 2,
        /// Looks up a name in a directory.
        LOOKUP = 3,
        /// Checks permissions.
        ACCESS = 4,
        /// Reads a symbolic link's content.
        READLINK = 5,
        /// Reads from a file.
        READ = 6,
        /// Writes to a file.
        WRITE = 7,
        /// Creates a regular file.
        CREATE = 8,
        /// Creates a directory.
        MKDIR = 9,
        /// Creates a symbolic link.
        SYMLINK = 10,
        /// Creates a device, a socket or a pipe.
        MKNOD = 11,
        /// Removes a file's name.
        REMOVE = 12,
        /// Removes a directory.
        RMDIR = 13,
        /// Renames.
        RENAME = 14,
        /// Creates a hard link.
        LINK = 15,
        /// Lists a directory.
        READDIR = 16,
        /// Lists a directory with handles and attributes.
        READDIRPLUS = 17,
        /// Gets the variable properties of a file system: free space and files.
        FSSTAT = 18,
        /// Gets the constant properties of a file system: sizes and capabilities.
        FSINFO = 19,
        /// Gets POSIX limits.
        PATHCONF = 20,
        /// Writes unstable data to stable storage.
        COMMIT = 21,
    }
}

/// The properties of each procedure for dispatch, reply cache and metrics, by number.
///
/// WRITE is [`Effect::Repeatable`], because a second execution has the same result. SETATTR is not, because of its guard.
pub static TABLE: ProgramVersion = ProgramVersion {
    program: PROGRAM,
    version: VERSION,
    name: "nfs3",
    procedures: &[
        Procedure::new(0, "NULL", Effect::None),
        Procedure::new(1, "GETATTR", Effect::None),
        Procedure::new(2, "SETATTR", Effect::Once),
        Procedure::new(3, "LOOKUP", Effect::None),
        Procedure::new(4, "ACCESS", Effect::None),
        Procedure::new(5, "READLINK", Effect::None),
        Procedure::new(6, "READ", Effect::None),
        Procedure::new(7, "WRITE", Effect::Repeatable),
        Procedure::new(8, "CREATE", Effect::Once),
        Procedure::new(9, "MKDIR", Effect::Once),
        Procedure::new(10, "SYMLINK", Effect::Once),
        Procedure::new(11, "MKNOD", Effect::Once),
        Procedure::new(12, "REMOVE", Effect::Once),
        Procedure::new(13, "RMDIR", Effect::Once),
        Procedure::new(14, "RENAME", Effect::Once),
        Procedure::new(15, "LINK", Effect::Once),
        Procedure::new(16, "READDIR", Effect::None),
        Procedure::new(17, "READDIRPLUS", Effect::None),
        Procedure::new(18, "FSSTAT", Effect::None),
        Procedure::new(19, "FSINFO", Effect::None),
        Procedure::new(20, "PATHCONF", Effect::None),
        Procedure::new(21, "COMMIT", Effect::Repeatable),
    ],
};
