//! Extended attributes. Version 4.2 has them, of users only.

use bytes::Bytes;
use client::config::Version;
use client::xattr::XattrMode;
use fuse::{Errno, Getxattr, Listxattr, Removexattr, Setxattr, XattrReply};

use super::{Files, errno};

/// Flags of setxattr(2).
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
/// Names that the protocol carries.
const PREFIX: &[u8] = b"user.";

impl Files {
    pub(crate) async fn getxattr(
        &self,
        program: fuse::Caller,
        request: Getxattr,
    ) -> Result<XattrReply, Errno> {
        self.check_xattr(&request.name)?;
        let node = self.nodes.get(request.node)?;
        let value = node.inode.get_xattr(&self.caller(program), &request.name).await;
        sized(value.map_err(|error| errno(&error))?, request.size)
    }

    pub(crate) async fn listxattr(
        &self,
        program: fuse::Caller,
        request: Listxattr,
    ) -> Result<XattrReply, Errno> {
        self.check_xattr(PREFIX)?;
        let node = self.nodes.get(request.node)?;
        let names = node.inode.list_xattrs(&self.caller(program)).await.map_err(|error| errno(&error))?;
        let all: Vec<u8> = names.iter().flat_map(|name| name.iter().copied().chain([0])).collect();
        sized(all.into(), request.size)
    }

    pub(crate) async fn setxattr(&self, program: fuse::Caller, request: Setxattr) -> Result<(), Errno> {
        self.check_xattr(&request.name)?;
        let mode = match request.flags & (XATTR_CREATE | XATTR_REPLACE) {
            0 => XattrMode::Either,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::INVAL),
        };
        let node = self.nodes.get(request.node)?;
        let set = node.inode.set_xattr(&self.caller(program), &request.name, request.value, mode).await;
        set.map_err(|error| errno(&error))
    }

    pub(crate) async fn removexattr(&self, program: fuse::Caller, request: Removexattr) -> Result<(), Errno> {
        self.check_xattr(&request.name)?;
        let node = self.nodes.get(request.node)?;
        let removed = node.inode.remove_xattr(&self.caller(program), &request.name).await;
        removed.map_err(|error| errno(&error))
    }

    /// Answers for names that the server does not have, without asking it: the kernel asks for `security.capability` at each write.
    fn check_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        if self.version() != Version::V42 {
            // The kernel does not repeat the request.
            return Err(Errno::NOSYS);
        }
        if name.starts_with(PREFIX) { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }
}

/// Returns a value, or its length if only that was requested.
fn sized(value: Bytes, size: u32) -> Result<XattrReply, Errno> {
    let length = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    match size {
        0 => Ok(XattrReply::Length(length)),
        size if length <= size => Ok(XattrReply::Value(value)),
        _ => Err(Errno::RANGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_longer_than_requested_is_an_error() {
        let value = Bytes::from_static(b"abc");
        assert_eq!(sized(value.clone(), 0), Ok(XattrReply::Length(3)));
        assert_eq!(sized(value.clone(), 3), Ok(XattrReply::Value(value.clone())));
        assert_eq!(sized(value, 2), Err(Errno::RANGE));
    }
}
