use std::collections::BTreeMap;

use bytes::Bytes;

use super::directory::Directory;
use super::pages::{PAGE, Pages};
use super::space::ENTRY_BYTES;
use crate::{Acl, Attributes, Change, Device, Error, FileKind, Result, Timestamp, Verifier};

pub(super) const SETUID: u32 = 0o4000;
pub(super) const SETGID: u32 = 0o2000;
pub(super) const STICKY: u32 = 0o1000;

/// The kind and content of an object.
#[derive(Debug)]
pub(super) enum Body {
    File(Pages),
    Directory(Directory),
    Symlink(Bytes),
    Fifo,
    Socket,
    CharDevice(Device),
    BlockDevice(Device),
}

/// An object of the file system.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Names of other objects than directories; a directory's links are counted from its subdirectories.
    pub(super) names: u32,
    /// Open files that keep the content alive.
    pub(super) pins: u32,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
    pub(super) created: Timestamp,
    pub(super) change: u64,
    /// The verifier of an exclusive create.
    pub(super) verifier: Option<Verifier>,
    pub(super) xattrs: BTreeMap<Bytes, Bytes>,
    /// Set if it says more than the mode's bits, which show it.
    pub(super) acl: Option<Acl>,
    /// The ACL that new objects in a directory inherit.
    pub(super) default_acl: Option<Acl>,
    pub(super) body: Body,
}

impl Inode {
    pub(super) fn new(body: Body, mode: u32, (uid, gid): (u32, u32), now: Timestamp) -> Self {
        Self {
            mode,
            uid,
            gid,
            names: 1,
            pins: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            change: 1,
            verifier: None,
            xattrs: BTreeMap::new(),
            acl: None,
            default_acl: None,
            body,
        }
    }

    /// Notes a change of content or entries.
    pub(super) fn content_changed(&mut self, now: Timestamp) {
        self.modified = now;
        self.attributes_changed(now);
    }

    /// Notes a change of attributes. The change attribute moves even if the clock does not.
    pub(super) fn attributes_changed(&mut self, now: Timestamp) {
        // Requests may run in another order than their times.
        self.changed = self.changed.max(now);
        self.change += 1;
    }

    pub(super) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    pub(super) fn pages(&self) -> Result<&Pages> {
        match &self.body {
            Body::File(pages) => Ok(pages),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::WrongKind),
        }
    }

    pub(super) fn pages_mut(&mut self) -> Result<&mut Pages> {
        match &mut self.body {
            Body::File(pages) => Ok(pages),
            Body::Directory(_) => Err(Error::IsDirectory),
            _ => Err(Error::WrongKind),
        }
    }

    pub(super) fn links(&self) -> u32 {
        match &self.body {
            Body::Directory(directory) => 2 + directory.subdirectories,
            _ => self.names,
        }
    }

    /// Returns the bytes charged to the owner.
    pub(super) fn charged(&self) -> u64 {
        let xattrs: u64 = self.xattrs.iter().map(|(name, value)| xattr_bytes(name, value)).sum();
        self.stored() + xattrs + acl_bytes(self.acl.as_ref()) + acl_bytes(self.default_acl.as_ref())
    }

    /// Sets the permission bits, and the ACL entries that show as them.
    pub(super) fn set_permissions(&mut self, mode: u32) {
        self.mode = mode;
        self.acl = self.acl.as_ref().map(|acl| acl.with_mode(mode));
    }

    pub(super) fn attributes(&self, fsid: u64, fileid: u64) -> Attributes {
        Attributes {
            kind: self.kind(),
            mode: self.mode,
            links: self.links(),
            uid: self.uid,
            gid: self.gid,
            size: match &self.body {
                Body::File(pages) => pages.size(),
                _ => self.stored(),
            },
            used: self.stored(),
            device: match self.body {
                Body::CharDevice(device) | Body::BlockDevice(device) => device,
                _ => Device::default(),
            },
            fsid,
            fileid,
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
            created: Some(self.created),
            change: self.change,
        }
    }

    fn kind(&self) -> FileKind {
        match self.body {
            Body::File(_) => FileKind::Regular,
            Body::Directory(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Fifo => FileKind::Fifo,
            Body::Socket => FileKind::Socket,
            Body::CharDevice(_) => FileKind::CharDevice,
            Body::BlockDevice(_) => FileKind::BlockDevice,
        }
    }

    fn stored(&self) -> u64 {
        match &self.body {
            Body::File(pages) => pages.kept() * PAGE,
            Body::Directory(directory) => directory.len() * ENTRY_BYTES,
            Body::Symlink(text) => text.len() as u64,
            _ => 0,
        }
    }
}

/// Returns the bytes charged for an extended attribute: those of an entry, of the name and of the value.
pub(super) fn xattr_bytes(name: &[u8], value: &[u8]) -> u64 {
    ENTRY_BYTES + (name.len() + value.len()) as u64
}

/// Returns the bytes charged for an ACL.
pub(super) fn acl_bytes(acl: Option<&Acl>) -> u64 {
    acl.map_or(0, |acl| size_of_val(acl.entries()) as u64)
}

/// Returns the change of an operation.
pub(super) fn change(before: &Attributes, after: Attributes) -> Change {
    // Both were read under one lock.
    Change { before: before.before(), after, atomic: true }
}
