//! ACCESS: check access rights (RFC 8881 §18.1; RFC 8276 §8.5 adds the bits of extended attributes).

use xdr::{Decode, Encode};

use crate::nfs4::macros::flags;
use crate::nfs4::types::Outcome;

flags! {
    /// Access rights, `ACCESS4_*`.
    pub struct AccessMask {
        /// Read a file's data, list a directory.
        READ = 0x001,
        /// Look up a name in a directory.
        LOOKUP = 0x002,
        /// Modify data, change entries.
        MODIFY = 0x004,
        /// Extend data, add entries.
        EXTEND = 0x008,
        /// Delete an entry of a directory.
        DELETE = 0x010,
        /// Execute a file.
        EXECUTE = 0x020,
        /// Read extended attributes.
        XAREAD = 0x040,
        /// Change extended attributes.
        XAWRITE = 0x080,
        /// List extended attributes.
        XALIST = 0x100,
    }
}

/// `ACCESS4args`. Current handle: the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct AccessArgs {
    /// Requested rights.
    pub access: AccessMask,
}

/// `ACCESS4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct AccessOk {
    /// Rights that the server can check.
    pub supported: AccessMask,
    /// Rights that the caller has.
    pub access: AccessMask,
}

/// `ACCESS4res`.
pub type AccessResult = Outcome<AccessOk>;
