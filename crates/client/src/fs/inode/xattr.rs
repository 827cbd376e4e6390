//! Extended attributes and access control lists of objects.

use bytes::Bytes;

use super::Inode;
use crate::acl::Acl;
use crate::attributes::{Attributes, Changed};
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::xattr::XattrMode;

/// The prefix of names that NFS carries: those of users (RFC 8276 §5).
const PREFIX: &[u8] = b"user.";

/// Extended attributes, with names as in xattr(7). The protocol carries only those with the prefix `user.`.
impl Inode {
    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// As getxattr(2): ENODATA if there is none; EOPNOTSUPP if the name does not begin with `user.`, or if the version (below 4.2)
    /// or the server does not have extended attributes.
    pub async fn get_xattr(&self, caller: &Caller, name: &[u8]) -> Result<Bytes, OpError> {
        self.client().get_xattr(caller, self.handle(), of_user(name)?).await
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As setxattr(2): EEXIST, ENODATA, E2BIG, ENOSPC, and as [`Self::get_xattr`].
    pub async fn set_xattr(
        &self,
        caller: &Caller,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<(), OpError> {
        let name = of_user(name)?;
        let change = self.start_change();
        change.end_changed(self.client().set_xattr(caller, self.handle(), name, value, mode).await)
    }

    /// Lists the names of all extended attributes.
    ///
    /// # Errors
    /// As listxattr(2).
    pub async fn list_xattrs(&self, caller: &Caller) -> Result<Vec<Bytes>, OpError> {
        let names = self.client().list_xattrs(caller, self.handle()).await?;
        Ok(names.into_iter().map(|name| [PREFIX, &name].concat().into()).collect())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As removexattr(2): ENODATA, and as [`Self::get_xattr`].
    pub async fn remove_xattr(&self, caller: &Caller, name: &[u8]) -> Result<(), OpError> {
        let name = of_user(name)?;
        let change = self.start_change();
        change.end_changed(self.client().remove_xattr(caller, self.handle(), name).await)
    }
}

/// Access control lists.
impl Inode {
    /// Returns the lists: POSIX lists with version 3, the list of version 4 with version 4.
    ///
    /// # Errors
    /// EOPNOTSUPP if the server has none.
    pub async fn get_acl(&self, caller: &Caller) -> Result<Acl, OpError> {
        self.client().get_acl(caller, self.handle()).await
    }

    /// Sets the lists, and returns the attributes if the server sends them: the mode follows the list.
    ///
    /// # Errors
    /// EOPNOTSUPP if the server has no lists of this kind, EPERM for callers other than the owner.
    pub async fn set_acl(&self, caller: &Caller, acl: &Acl) -> Result<Option<Attributes>, OpError> {
        // A WRITE afterwards may be refused.
        self.sync_cached_data().await;
        let change = self.start_change();
        let set = self.client().set_acl(caller, self.handle(), acl).await;
        self.client().forget_permissions(&self.handle());
        match set {
            Ok(after) => {
                change.end(Some(Changed { after, ..Changed::default() }));
                Ok(after)
            }
            Err(error) => {
                change.end_failed(&error);
                Err(error)
            }
        }
    }
}

fn of_user(name: &[u8]) -> Result<&[u8], OpError> {
    let what = "NFS has extended attributes of users only: the name begins with `user.`";
    name.strip_prefix(PREFIX).ok_or(OpError::Invalid(Errno::EOPNOTSUPP, what))
}
