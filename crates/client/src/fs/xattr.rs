//! Extended attributes and access control lists by path.

use bytes::Bytes;

use super::FileSystem;
use crate::acl::Acl;
use crate::attributes::Attributes;
use crate::error::Error;
use crate::xattr::XattrMode;

/// Extended attributes. Names are those of xattr(7): with `user.` in front. They need version 4.2. `follow` tells whether symbolic
/// links are followed.
impl FileSystem {
    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// As getxattr(2) and lgetxattr(2).
    pub async fn get_xattr(&self, path: &[u8], name: &[u8], follow: bool) -> Result<Bytes, Error> {
        let failed = |cause| self.failed("get extended attribute of", path, cause);
        let inode = self.inode(path, follow).await.map_err(failed)?;
        inode.get_xattr(self.caller(), name).await.map_err(failed)
    }

    /// Sets an extended attribute to a value of at most 65,536 bytes.
    ///
    /// # Errors
    /// As setxattr(2) and lsetxattr(2).
    pub async fn set_xattr(
        &self,
        path: &[u8],
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
        follow: bool,
    ) -> Result<(), Error> {
        let failed = |cause| self.failed("set extended attribute of", path, cause);
        let inode = self.inode(path, follow).await.map_err(failed)?;
        inode.set_xattr(self.caller(), name, value, mode).await.map_err(failed)
    }

    /// Lists the names of all extended attributes.
    ///
    /// # Errors
    /// As listxattr(2) and llistxattr(2).
    pub async fn list_xattrs(&self, path: &[u8], follow: bool) -> Result<Vec<Bytes>, Error> {
        let failed = |cause| self.failed("list extended attributes of", path, cause);
        let inode = self.inode(path, follow).await.map_err(failed)?;
        inode.list_xattrs(self.caller()).await.map_err(failed)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As removexattr(2) and lremovexattr(2).
    pub async fn remove_xattr(&self, path: &[u8], name: &[u8], follow: bool) -> Result<(), Error> {
        let failed = |cause| self.failed("remove extended attribute of", path, cause);
        let inode = self.inode(path, follow).await.map_err(failed)?;
        inode.remove_xattr(self.caller(), name).await.map_err(failed)
    }
}

/// Access control lists, following symbolic links.
impl FileSystem {
    /// Returns the lists of an object: POSIX ACLs with version 3, the NFSv4 ACL with version 4.
    ///
    /// # Errors
    /// EOPNOTSUPP if the server has none, and as stat(2).
    pub async fn get_acl(&self, path: &[u8]) -> Result<Acl, Error> {
        let failed = |cause| self.failed("get access control list of", path, cause);
        let inode = self.inode(path, true).await.map_err(failed)?;
        inode.get_acl(self.caller()).await.map_err(failed)
    }

    /// Sets the lists of an object, and returns its attributes if the server sends them: the mode follows the list.
    ///
    /// # Errors
    /// EOPNOTSUPP if the server has no lists of this kind, and as chmod(2).
    pub async fn set_acl(&self, path: &[u8], acl: &Acl) -> Result<Option<Attributes>, Error> {
        let failed = |cause| self.failed("set access control list of", path, cause);
        let inode = self.inode(path, true).await.map_err(failed)?;
        inode.set_acl(self.caller(), acl).await.map_err(failed)
    }
}
