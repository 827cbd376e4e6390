//! Attributes, permissions, free space.

use client::fs::inode::OpenFile;
use fuse::{Access, Data, Errno, Getattr, GrantedAttributes, Readlink, Setattr, Statfs, Statistics};

use super::{Files, errno};
use crate::convert::{access_bits, statistics};

impl Files {
    pub(crate) async fn getattr(
        &self,
        _: fuse::Caller,
        request: Getattr,
    ) -> Result<GrantedAttributes, Errno> {
        let node = self.nodes.get(request.node)?;
        let attributes = node.inode.attributes(&self.machine).await.map_err(|error| errno(&error))?;
        Ok(self.granted(&node, &attributes))
    }

    pub(crate) async fn setattr(
        &self,
        program: fuse::Caller,
        request: Setattr,
    ) -> Result<GrantedAttributes, Errno> {
        let node = self.nodes.get(request.node)?;
        let file = request.handle.and_then(|handle| self.open_files.get(handle).ok());
        // A program with a file open for writing may set its size even if its user has changed (ftruncate(2)).
        let writer = file.as_deref().filter(|file| file.flags().mode.write && request.size.is_some());
        let caller = writer.map_or_else(|| self.caller(program), |file: &OpenFile| file.caller().clone());
        let set = self.view.set_attributes(&request);
        let attributes = if set.is_empty() {
            // A new ctime alone, or bits that the server clears itself.
            node.inode.attributes(&caller).await
        } else {
            node.inode.set_attributes(&caller, writer, &set).await
        };
        Ok(self.granted(&node, &attributes.map_err(|error| errno(&error))?))
    }

    pub(crate) async fn readlink(&self, program: fuse::Caller, request: Readlink) -> Result<Data, Errno> {
        let node = self.nodes.get(request.node)?;
        let target = node.inode.read_link(&self.caller(program)).await;
        target.map(Data::from).map_err(|error| errno(&error))
    }

    pub(crate) async fn access(&self, program: fuse::Caller, request: Access) -> Result<(), Errno> {
        let node = self.nodes.get(request.node)?;
        let asked = access_bits(node.inode.kind(), request.mask);
        let caller = self.caller(program);
        if asked == 0 {
            // F_OK: the object must exist.
            return node.inode.attributes(&caller).await.map(drop).map_err(|error| errno(&error));
        }
        let granted = node.inode.access(&caller, asked).await.map_err(|error| errno(&error))?;
        if granted & asked == asked { Ok(()) } else { Err(Errno::ACCESS) }
    }

    pub(crate) async fn statfs(&self, _: fuse::Caller, request: Statfs) -> Result<Statistics, Errno> {
        let node = self.nodes.get(request.node)?;
        let space = node.inode.stat_fs(&self.machine).await.map_err(|error| errno(&error))?;
        Ok(statistics(&space, &self.mount.info()))
    }
}
