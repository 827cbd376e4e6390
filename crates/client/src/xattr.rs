//! Extended attributes (RFC 8276).

/// The treatment of an existing extended attribute (setxattr(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Created or replaced.
    Either,
    /// Created; EEXIST if it exists.
    Create,
    /// Replaced; ENODATA if it does not exist.
    Replace,
}

/// Maximum length of a value, in bytes (`XATTR_SIZE_MAX` of Linux).
pub const VALUE_MAX: usize = 64 << 10;
/// Maximum length of all names of an object, in bytes, each with an additional byte: sixteen times Linux's `XATTR_LIST_MAX`.
pub const NAMES_MAX: usize = 1 << 20;
