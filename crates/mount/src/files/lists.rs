//! Access control lists of objects: POSIX lists with version 3, the list of version 4 with version 4.

use bytes::Bytes;
use client::acl::{Acl, PosixAcl};
use client::attributes::FileKind;
use client::config::{Caller, Version};
use client::fs::inode::Inode;
use fuse::Errno;

use super::{Files, errno};
use crate::acl::{self, ACCESS, DEFAULT, Ids, NFS4};

/// The list that the name of an extended attribute stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Access,
    Default,
    Nfs4,
}

impl List {
    /// Returns the list of this name; `None` for other names.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        match name {
            ACCESS => Some(Self::Access),
            DEFAULT => Some(Self::Default),
            NFS4 => Some(Self::Nfs4),
            _ => None,
        }
    }

    fn is_of(self, version: Version) -> bool {
        (self == Self::Nfs4) == version.minor().is_some()
    }
}

impl Files {
    /// Returns the value of a list.
    ///
    /// # Errors
    /// ENODATA if a POSIX list says no more than the mode; EOPNOTSUPP if the version or the server does not have it.
    pub(super) async fn get_list(&self, caller: &Caller, inode: &Inode, list: List) -> Result<Bytes, Errno> {
        self.check_list(list)?;
        let lists = inode.get_acl(caller).await.map_err(|error| errno(&error))?;
        match (lists, list) {
            (Acl::Nfs4(entries), List::Nfs4) => Ok(acl::from_nfs4(&entries)),
            (Acl::Posix(lists), List::Access) if !acl::is_mode(&lists.access) => {
                Ok(acl::from_posix(&lists.access, self.ids()))
            }
            (Acl::Posix(lists), List::Default) if !lists.default.is_empty() => {
                Ok(acl::from_posix(&lists.default, self.ids()))
            }
            (Acl::Posix(_), List::Access | List::Default) => Err(Errno::NODATA),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Sets a list, or removes it: then only the mode counts.
    ///
    /// # Errors
    /// EINVAL for a value that is not a list, EACCES for the default list of what is no directory, EPERM for callers other than the
    /// owner.
    pub(super) async fn set_list(
        &self,
        caller: &Caller,
        inode: &Inode,
        list: List,
        value: Option<Bytes>,
    ) -> Result<(), Errno> {
        self.check_list(list)?;
        let set = match (list, value) {
            (List::Nfs4, Some(value)) => Acl::Nfs4(acl::to_nfs4(value)?),
            (List::Nfs4, None) => return Err(Errno::OPNOTSUPP),
            (list, value) => self.changed_posix(caller, inode, list, value).await?,
        };
        inode.set_acl(caller, &set).await.map(drop).map_err(|error| errno(&error))
    }

    /// Returns both POSIX lists, one of them changed: the protocol sets them together.
    async fn changed_posix(
        &self,
        caller: &Caller,
        inode: &Inode,
        list: List,
        value: Option<Bytes>,
    ) -> Result<Acl, Errno> {
        let entries = value.map(|value| acl::to_posix(value, self.ids())).transpose()?;
        let Acl::Posix(before) = inode.get_acl(caller).await.map_err(|error| errno(&error))? else {
            return Err(Errno::OPNOTSUPP);
        };
        // A list without entries removes it, as in Linux.
        let entries = entries.filter(|entries| !entries.is_empty());
        Ok(Acl::Posix(match (list, entries) {
            (List::Default, Some(_)) if inode.kind() != FileKind::Directory => return Err(Errno::ACCESS),
            (List::Default, entries) => PosixAcl { default: entries.unwrap_or_default(), ..before },
            (_, Some(access)) => PosixAcl { access, ..before },
            (_, None) => {
                let attributes = inode.attributes(caller).await.map_err(|error| errno(&error))?;
                PosixAcl { access: acl::of_mode(attributes.mode), ..before }
            }
        }))
    }

    fn check_list(&self, list: List) -> Result<(), Errno> {
        if list.is_of(self.version()) { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }

    fn ids(&self) -> Ids<'_> {
        Ids { users: &self.view.users, groups: &self.view.groups }
    }
}
