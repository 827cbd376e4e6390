//! Extended attributes. Version 4.2 has them, of users only; access control lists are attributes of the system here.

use bytes::Bytes;
use client::config::Version;
use client::xattr::XattrMode;
use fuse::{Errno, Getxattr, Listxattr, Removexattr, Setxattr, XattrReply};

use super::lists::List;
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
        let node = self.nodes.get(request.node)?;
        if let Some(list) = self.list_of(&request.name)? {
            let value = self.get_list(&self.caller(program), &node.inode, list).await?;
            return sized(value, request.size);
        }
        let value = node.inode.get_xattr(&self.caller(program), &request.name).await;
        sized(value.map_err(|error| errno(&error))?, request.size)
    }

    pub(crate) async fn listxattr(
        &self,
        program: fuse::Caller,
        request: Listxattr,
    ) -> Result<XattrReply, Errno> {
        self.list_of(PREFIX)?;
        let node = self.nodes.get(request.node)?;
        let names = node.inode.list_xattrs(&self.caller(program)).await.map_err(|error| errno(&error))?;
        let all: Vec<u8> = names.iter().flat_map(|name| name.iter().copied().chain([0])).collect();
        sized(all.into(), request.size)
    }

    pub(crate) async fn setxattr(&self, program: fuse::Caller, request: Setxattr) -> Result<(), Errno> {
        let list = self.list_of(&request.name)?;
        let mode = match request.flags & (XATTR_CREATE | XATTR_REPLACE) {
            0 => XattrMode::Either,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::INVAL),
        };
        let node = self.nodes.get(request.node)?;
        if let Some(list) = list {
            return self.set_list(&self.caller(program), &node.inode, list, Some(request.value)).await;
        }
        let set = node.inode.set_xattr(&self.caller(program), &request.name, request.value, mode).await;
        set.map_err(|error| errno(&error))
    }

    pub(crate) async fn removexattr(&self, program: fuse::Caller, request: Removexattr) -> Result<(), Errno> {
        let node = self.nodes.get(request.node)?;
        if let Some(list) = self.list_of(&request.name)? {
            return self.set_list(&self.caller(program), &node.inode, list, None).await;
        }
        let removed = node.inode.remove_xattr(&self.caller(program), &request.name).await;
        removed.map_err(|error| errno(&error))
    }

    /// Returns the access control list of this name; `None` for attributes of users. Answers for other names without asking the
    /// server: the kernel asks for `security.capability` at each write.
    fn list_of(&self, name: &[u8]) -> Result<Option<List>, Errno> {
        let has_attributes = self.version() == Version::V42;
        if !has_attributes && !self.has_lists {
            // The kernel does not repeat the request.
            return Err(Errno::NOSYS);
        }
        match List::of(name) {
            None if has_attributes && name.starts_with(PREFIX) => Ok(None),
            None => Err(Errno::OPNOTSUPP),
            list => Ok(list),
        }
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
