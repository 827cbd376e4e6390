//! Extended attributes: GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR (RFC 8276).

use xdr::{Decode, Encode, List, Opaque};

use crate::nfs4::types::{ChangeInfo, Component, Cookie, Outcome};

/// Maximum length of a value, in bytes: twice that of Linux (`XATTR_SIZE_MAX`), so that a longer value is rejected with
/// XATTR2BIG instead of BADXDR.
pub const MAX_XATTR_VALUE: usize = 128 << 10;
/// Maximum number of names in a reply: Linux lists at most 64 KiB (`XATTR_LIST_MAX`), a name and its NUL are two
/// bytes or more.
pub const MAX_XATTR_NAMES: usize = 32 << 10;

/// `xattrkey4`: the name without `user.`.
pub type XattrKey = Component;
/// `xattrvalue4`.
pub type XattrValue = Opaque<MAX_XATTR_VALUE>;

/// `GETXATTR4args`. Current handle: the object.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GetXattrArgs {
    /// The name.
    pub name: XattrKey,
}

/// `GETXATTR4res`.
pub type GetXattrResult = Outcome<XattrValue>;

xdr::constants! {
    /// `setxattr_option4`. Unknown values are kept, because the server rejects them with INVAL.
    pub struct SetXattrOption: u32 {
        /// Create or replace.
        EITHER = 0,
        /// Create; an existing attribute is an error.
        CREATE = 1,
        /// Replace; a missing attribute is an error.
        REPLACE = 2,
    }
}

/// `SETXATTR4args`. Current handle: the object.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetXattrArgs {
    /// Create or replace.
    pub option: SetXattrOption,
    /// The name.
    pub key: XattrKey,
    /// The value.
    pub value: XattrValue,
}

/// `SETXATTR4res`: the object's change.
pub type SetXattrResult = Outcome<ChangeInfo>;

/// `LISTXATTRS4args`. Current handle: the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ListXattrsArgs {
    /// 0, or the cookie to continue from.
    pub cookie: Cookie,
    /// Maximum size of `LISTXATTRS4resok` in bytes.
    pub maxcount: u32,
}

/// `LISTXATTRS4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ListXattrsOk {
    /// The cookie to continue from.
    pub cookie: Cookie,
    /// Names.
    pub names: List<XattrKey, MAX_XATTR_NAMES>,
    /// Whether these are the last.
    pub eof: bool,
}

/// `LISTXATTRS4res`.
pub type ListXattrsResult = Outcome<ListXattrsOk>;

/// `REMOVEXATTR4args`. Current handle: the object.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RemoveXattrArgs {
    /// The name.
    pub name: XattrKey,
}

/// `REMOVEXATTR4res`: the object's change.
pub type RemoveXattrResult = Outcome<ChangeInfo>;
