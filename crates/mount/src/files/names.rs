//! Operations on names.

use bytes::Bytes;
use client::attributes::{FileKind, SetAttributes};
use client::error::OpError;
use client::fs::inode::{Inode, OpenFlags};
use client::results::{Creation, NewObject, OpenMode};
use fuse::{Created, Entry, Errno, Link, Lookup, Mkdir, Mknod, NodeId, Rename, Rmdir, Symlink, Unlink};
use rustix::fs::OFlags;

use super::content::open_flags;
use super::{Files, errno};
use crate::cached_names::Target;
use crate::convert::{device_numbers, kind_of};

/// Mode bits of symbolic links.
const LINK_MODE: u32 = 0o777;

impl Files {
    pub(crate) async fn lookup(&self, program: fuse::Caller, request: Lookup) -> Result<Entry, Errno> {
        let parent = self.nodes.get(request.parent)?;
        match parent.inode.lookup(&self.caller(program), &request.name).await {
            Ok((inode, attributes)) => Ok(self.entry(&parent.inode, &request.name, &inode, &attributes)),
            Err(error) if errno(&error) == Errno::NOENT && self.caches_missing_names => {
                let entry = missing(&parent.inode);
                if !entry.entry_timeout.is_zero() {
                    self.cached_names.insert(request.parent, &request.name, Target::Absent);
                    self.forget_unused();
                }
                Ok(entry)
            }
            Err(error) => Err(errno(&error)),
        }
    }

    pub(crate) async fn create(
        &self,
        program: fuse::Caller,
        request: fuse::Create,
    ) -> Result<Created, Errno> {
        let parent = self.nodes.get(request.parent)?;
        let flags = OFlags::from_bits_retain(request.flags);
        let is_exclusive = flags.contains(OFlags::EXCL);
        let creation = if is_exclusive { Creation::Exclusive(self.verifier()) } else { Creation::IfMissing };
        let mut set = SetAttributes::with_mode(request.mode & 0o7777);
        if flags.contains(OFlags::TRUNC) && !is_exclusive {
            set.size = Some(0);
        }
        let caller = self.caller(program);
        let flags = open_flags(request.flags);
        let created = parent.inode.create(&caller, &request.name, flags, creation, &set).await;
        let file = created.map_err(|error| errno(&error))?;
        let mut attributes = file.opened_attributes();
        if set.size == Some(0) {
            attributes.size = 0;
        }
        let entry = self.entry(&parent.inode, &request.name, file.inode(), &attributes);
        let opened = self.opened(file, &attributes, request.flags)?;
        Ok(Created { entry, opened })
    }

    pub(crate) async fn mknod(&self, program: fuse::Caller, request: Mknod) -> Result<Entry, Errno> {
        let (major, minor) = device_numbers(request.device);
        let kind = match kind_of(request.mode).ok_or(Errno::INVAL)? {
            FileKind::Regular => return self.make_file(program, &request).await,
            FileKind::BlockDevice => NewObject::BlockDevice(major, minor),
            FileKind::CharacterDevice => NewObject::CharacterDevice(major, minor),
            FileKind::Socket => NewObject::Socket,
            FileKind::Fifo => NewObject::Fifo,
            FileKind::Directory | FileKind::Symlink => return Err(Errno::INVAL),
        };
        self.make(program, request.parent, &request.name, &kind, request.mode).await
    }

    /// Creates a regular file, which only an open can do.
    async fn make_file(&self, program: fuse::Caller, request: &Mknod) -> Result<Entry, Errno> {
        let parent = self.nodes.get(request.parent)?;
        let set = SetAttributes::with_mode(request.mode & 0o7777);
        let creation = Creation::Exclusive(self.verifier());
        let flags = OpenFlags::of(OpenMode::WRITE);
        let caller = self.caller(program);
        let created = parent.inode.create(&caller, &request.name, flags, creation, &set).await;
        let file = created.map_err(|error| errno(&error))?;
        let entry = self.entry(&parent.inode, &request.name, file.inode(), &file.opened_attributes());
        // The file exists, regardless of CLOSE's result.
        let _ = file.release().await;
        Ok(entry)
    }

    pub(crate) async fn mkdir(&self, program: fuse::Caller, request: Mkdir) -> Result<Entry, Errno> {
        self.make(program, request.parent, &request.name, &NewObject::Directory, request.mode).await
    }

    pub(crate) async fn symlink(&self, program: fuse::Caller, request: Symlink) -> Result<Entry, Errno> {
        let link = NewObject::Symlink(Bytes::copy_from_slice(&request.target));
        self.make(program, request.parent, &request.name, &link, LINK_MODE).await
    }

    async fn make(
        &self,
        program: fuse::Caller,
        parent: NodeId,
        name: &[u8],
        kind: &NewObject,
        mode: u32,
    ) -> Result<Entry, Errno> {
        let parent = self.nodes.get(parent)?;
        let set = SetAttributes::with_mode(mode & 0o7777);
        let made = parent.inode.make(&self.caller(program), name, kind, &set).await;
        let (inode, attributes) = made.map_err(|error| errno(&error))?;
        Ok(self.entry(&parent.inode, name, &inode, &attributes))
    }

    pub(crate) async fn link(&self, program: fuse::Caller, request: Link) -> Result<Entry, Errno> {
        let (node, parent) = (self.nodes.get(request.node)?, self.nodes.get(request.parent)?);
        let linked = node.inode.link(&self.caller(program), &parent.inode, &request.name).await;
        let attributes = linked.map_err(|error| errno(&error))?;
        Ok(self.entry(&parent.inode, &request.name, &node.inode, &attributes))
    }

    pub(crate) async fn unlink(&self, program: fuse::Caller, request: Unlink) -> Result<(), Errno> {
        let parent = self.nodes.get(request.parent)?;
        let removed = parent.inode.unlink(&self.caller(program), &request.name).await;
        removed.map_err(|error: OpError| errno(&error))?;
        self.cached_names.remove(request.parent, &request.name);
        Ok(())
    }

    pub(crate) async fn rmdir(&self, program: fuse::Caller, request: Rmdir) -> Result<(), Errno> {
        let parent = self.nodes.get(request.parent)?;
        let removed = parent.inode.rmdir(&self.caller(program), &request.name).await;
        removed.map_err(|error| errno(&error))?;
        self.cached_names.remove(request.parent, &request.name);
        Ok(())
    }

    pub(crate) async fn rename(&self, program: fuse::Caller, request: Rename) -> Result<(), Errno> {
        if request.flags != 0 {
            // The protocol has no such rename. Programs then check for the name themselves.
            return Err(Errno::INVAL);
        }
        let (from, to) = (self.nodes.get(request.parent)?, self.nodes.get(request.new_parent)?);
        let caller = self.caller(program);
        let renamed = from.inode.rename(&caller, &request.name, &to.inode, &request.new_name).await;
        renamed.map_err(|error| errno(&error))?;
        let from = (request.parent, (*request.name).into());
        self.cached_names.rename(from, (request.new_parent, (*request.new_name).into()));
        Ok(())
    }
}

/// Returns an entry with which the kernel caches the absence of a name in a directory.
fn missing(directory: &Inode) -> Entry {
    Entry {
        node: NodeId(0),
        generation: 0,
        attributes: fuse::Attributes::default(),
        entry_timeout: directory.names_usable_for(),
        attribute_timeout: std::time::Duration::ZERO,
    }
}
