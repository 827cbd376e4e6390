//! Calls for extended attributes, by any kind of descriptor of an object.

use std::sync::Arc;

use rustix::fs::XattrFlags;
use rustix::io::{Errno, Result};
use rustix::path::Arg;

use crate::object::{OpenFile, Reach};

/// An object to call for its attributes.
pub(crate) enum Target {
    Open(Arc<OpenFile>),
    /// Its path in /proc: the calls take no O_PATH descriptor, and this process may not be allowed to open the
    /// object, or opening may have effects, as with a named pipe or a device.
    Named(String, #[allow(dead_code, reason = "keeps the path valid")] Arc<OpenFile>),
}

impl Target {
    /// Returns the target of a descriptor.
    pub(crate) fn of(file: Arc<OpenFile>) -> Self {
        if file.reach == Reach::Path { Self::Named(file.name_in_proc(), file) } else { Self::Open(file) }
    }

    /// Reads an attribute into `value` and returns its length in bytes. With an empty `value` only the length is
    /// returned.
    pub(crate) fn get(&self, name: impl Arg, value: &mut [u8]) -> Result<usize> {
        match self {
            Self::Open(file) => rustix::fs::fgetxattr(file, name, value),
            Self::Named(path, _) => rustix::fs::getxattr(path, name, value),
        }
    }

    /// Reads all names, each with a final NUL. Returns their length in bytes.
    pub(crate) fn list(&self, list: &mut [u8]) -> Result<usize> {
        match self {
            Self::Open(file) => rustix::fs::flistxattr(file, list),
            Self::Named(path, _) => rustix::fs::listxattr(path, list),
        }
    }

    pub(crate) fn set(&self, name: impl Arg, value: &[u8], flags: XattrFlags) -> Result<()> {
        match self {
            Self::Open(file) => rustix::fs::fsetxattr(file, name, value, flags),
            Self::Named(path, _) => rustix::fs::setxattr(path, name, value, flags),
        }
    }

    pub(crate) fn remove(&self, name: impl Arg) -> Result<()> {
        match self {
            Self::Open(file) => rustix::fs::fremovexattr(file, name),
            Self::Named(path, _) => rustix::fs::removexattr(path, name),
        }
    }
}

/// Reads a value of up to `limit` bytes, into a small buffer first, because most values are short.
pub(crate) fn read_whole(limit: usize, read: impl Fn(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    /// Enough for an ACL of about thirty entries.
    const USUAL_BYTES: usize = 256;
    let mut value = vec![0; USUAL_BYTES];
    let length = match read(&mut value) {
        Err(Errno::RANGE) => {
            value.resize(limit, 0);
            read(&mut value)
        }
        other => other,
    };
    value.truncate(length?);
    Ok(value)
}
