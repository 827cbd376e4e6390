//! Paths: their names, and their resolution to objects.

use std::collections::VecDeque;

use protocol::nfs4::types::Status;

use super::{FileSystem, Inode};
use crate::attributes::FileKind;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::Object;

/// Maximum number of symbolic links in the resolution of one path, as on Linux.
const LINKS_MAX: u32 = 40;
/// Maximum length of a path in bytes (`PATH_MAX`).
const PATH_MAX: usize = 4096;

/// Splits a path into its names; empty ones and `.` are omitted.
pub(super) fn split(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").collect()
}

impl FileSystem {
    /// Returns the object at `path`. `follow` tells whether a symbolic link at the end is followed.
    ///
    /// # Errors
    /// The status of the first name that is missing or refused; `ELOOP` after [`LINKS_MAX`] symbolic links.
    pub async fn resolve(&self, path: &[u8], follow: bool) -> Result<Object, OpError> {
        if path.len() > PATH_MAX {
            return Err(OpError::Invalid(Errno::ENAMETOOLONG, "the path is too long"));
        }
        let names = split(path);
        for name in names.iter().filter(|name| **name != b"..") {
            self.mounted().check_name(name)?;
        }
        if !names.contains(&&b".."[..]) {
            // Nearly all paths have no symbolic link: one chain of LOOKUPs finds the object.
            match self.resolve_plain(&names).await {
                Ok(object) if !(follow && object.attributes.kind == FileKind::Symlink) => return Ok(object),
                // A symbolic link on the way; version 3 reports that it is not a directory.
                Ok(_) | Err(OpError::Status(Status::SYMLINK | Status::NOTDIR)) => {}
                Err(error) => return Err(error),
            }
        }
        self.resolve_names(&names, follow).await
    }

    /// Resolves names without symbolic links: by the cache as far as possible, and by one chain of LOOKUPs for the rest.
    async fn resolve_plain(&self, names: &[&[u8]]) -> Result<Object, OpError> {
        let (mount, caller) = (self.mounted(), self.caller());
        let mut inode = self.root_inode();
        let mut left = names;
        while let Some((name, others)) = left.split_first() {
            let Some((found, attributes)) = inode.lookup_cached(caller, name).await? else { break };
            (inode, left) = (found, others);
            if left.is_empty() {
                return Ok(inode.object(attributes));
            }
        }
        match left {
            [] => Ok(inode.object(inode.attributes(caller).await?)),
            [name] => {
                let (found, attributes) = inode.lookup(caller, name).await?;
                Ok(found.object(attributes))
            }
            _ => {
                let started = mount.start();
                let object = self.client().lookup_chain(caller, inode.handle(), left).await?;
                let (found, attributes) = mount.found(&object, started);
                let (found, attributes) = found.with_sent_data(caller, attributes).await?;
                Ok(found.object(attributes))
            }
        }
    }

    /// Resolves names one by one, following symbolic links. `..` above the root is the root.
    async fn resolve_names(&self, names: &[&[u8]], follow: bool) -> Result<Object, OpError> {
        let mut left: VecDeque<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
        let mut way = vec![self.root()];
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            let directory = way.last().copied().unwrap_or_else(|| self.root());
            if name == b".." {
                if way.len() > 1 {
                    way.pop();
                }
                continue;
            }
            if directory.attributes.kind != FileKind::Directory {
                return Err(OpError::Status(Status::NOTDIR));
            }
            let (inode, attributes) = self.mounted().inode(&directory).lookup(self.caller(), &name).await?;
            let object = inode.object(attributes);
            if object.attributes.kind != FileKind::Symlink || (left.is_empty() && !follow) {
                way.push(object);
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(OpError::Invalid(Errno::ELOOP, "too many symbolic links"));
            }
            let target = self.client().read_link(self.caller(), object.handle).await?;
            if target.starts_with(b"/") {
                way.truncate(1);
            }
            for name in split(&target).iter().rev() {
                left.push_front(name.to_vec());
            }
            if left.len() > PATH_MAX {
                return Err(OpError::Invalid(Errno::ENAMETOOLONG, "the path is too long"));
            }
        }
        Ok(way.last().copied().unwrap_or_else(|| self.root()))
    }

    /// Returns the directory of `path` and the last name, for an operation on that name.
    pub(super) async fn parent(&self, path: &[u8]) -> Result<(Inode, Vec<u8>), OpError> {
        let names = split(path);
        let Some((name, parents)) = names.split_last() else {
            return Err(OpError::Invalid(Errno::EBUSY, "the root has no name"));
        };
        self.mounted().check_name(name)?;
        // Its attributes tell only whether cached names are still valid.
        if parents.is_empty() && !self.mounted().caches_names() {
            return Ok((self.root_inode(), name.to_vec()));
        }
        let directory = self.resolve(&parents.join(&b'/'), true).await?;
        if directory.attributes.kind != FileKind::Directory {
            return Err(OpError::Status(Status::NOTDIR));
        }
        Ok((self.mounted().inode(&directory), name.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_at_slashes() {
        assert_eq!(split(b"/a//b/./c/"), [&b"a"[..], b"b", b"c"]);
        assert_eq!(split(b"a/../b"), [&b"a"[..], b"..", b"b"]);
        assert!(split(b"/").is_empty() && split(b"").is_empty() && split(b"./").is_empty());
    }
}
