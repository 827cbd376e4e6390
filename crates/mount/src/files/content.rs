//! Open files.

use client::attributes::Attributes;
use client::fs::inode::{OpenFile, OpenFlags};
use client::results::{OpenMode, Stability};
use fuse::{Copied, Data, Errno, Flush, Fsync, Open, Opened, Read, Release, Write};
use rustix::fs::OFlags;

use super::{Files, errno};

/// Returns the client's options for an open with these flags of open(2).
pub(super) fn open_flags(flags: u32) -> OpenFlags {
    let flags = OFlags::from_bits_retain(flags);
    let mode = match flags & OFlags::ACCMODE {
        OFlags::WRONLY => OpenMode::WRITE,
        OFlags::RDWR => OpenMode::BOTH,
        _ => OpenMode::READ,
    };
    let stability = if flags.contains(OFlags::SYNC) {
        Stability::FileSync
    } else if flags.contains(OFlags::DSYNC) {
        Stability::DataSync
    } else {
        Stability::Unstable
    };
    OpenFlags { mode, stability, direct: flags.contains(OFlags::DIRECT) }
}

/// Returns whether a file is opened for appending, and not for reading.
fn only_appends(flags: u32) -> bool {
    let flags = OFlags::from_bits_retain(flags);
    flags.contains(OFlags::APPEND) && flags & OFlags::ACCMODE == OFlags::WRONLY
}

impl Files {
    pub(crate) async fn open(&self, program: fuse::Caller, request: Open) -> Result<Opened, Errno> {
        let node = self.nodes.get(request.node)?;
        let caller = self.caller(program);
        let file = node.inode.open(&caller, open_flags(request.flags)).await;
        let file = file.map_err(|error| errno(&error))?;
        let attributes = file.opened_attributes();
        self.opened(file, &attributes, request.flags)
    }

    /// Registers an open file. The kernel keeps its pages only if the content is that of the last open.
    pub(super) fn opened(
        &self,
        file: OpenFile,
        attributes: &Attributes,
        open_flags: u32,
    ) -> Result<Opened, Errno> {
        let node = self.nodes.get(crate::nodes::node_id(file.inode()))?;
        let valid = node.validate(attributes);
        if !valid.attributes {
            // The kernel would read up to the size that it knows.
            self.expire_attributes(node.id());
        }
        let mut flags = if valid.pages { fuse::OpenFlags::KEEP_CACHE } else { fuse::OpenFlags::empty() };
        if only_appends(open_flags) {
            // See `write`: the kernel's pages would have the data at the wrong place.
            flags |= fuse::OpenFlags::DIRECT_IO;
        }
        Ok(Opened { handle: self.open_files.add(file), flags })
    }

    pub(crate) async fn read(&self, _: fuse::Caller, request: Read) -> Result<Data, Errno> {
        let file = self.open_files.get(request.handle)?;
        let parts = file.read(request.offset, request.size as usize).await;
        parts.map(Data).map_err(|error| errno(&error))
    }

    pub(crate) async fn write(&self, _: fuse::Caller, request: Write) -> Result<Copied, Errno> {
        let file = self.open_files.get(request.handle)?;
        let length = request.data.len() as u64;
        let appends = OFlags::from_bits_retain(request.flags).contains(OFlags::APPEND);
        // The kernel appends at the end that it knows, which may be that of an earlier open: it does not ask for attributes before. Where
        // the client knows a smaller size, the kernel's counts: own data may be in it that the server's attributes do not show yet.
        let end = match file.known_size() {
            _ if !appends => 0,
            Some(size) => size,
            None => file.attributes().await.map_err(|error| errno(&error))?.size,
        };
        let offset = request.offset.max(end);
        file.write(offset, request.data).await.map_err(|error| errno(&error))?;
        if offset > request.offset {
            self.drop_pages_later(request.node);
        }
        Ok(Copied(length))
    }

    pub(crate) async fn flush(&self, _: fuse::Caller, request: Flush) -> Result<(), Errno> {
        let file = self.open_files.get(request.handle)?;
        let flushed = file.flush().await;
        self.end_locks(&file, request.node, request.lock_owner).await;
        flushed.map_err(|error| errno(&error))
    }

    pub(crate) async fn fsync(&self, _: fuse::Caller, request: Fsync) -> Result<(), Errno> {
        let file = self.open_files.get(request.handle)?;
        file.sync().await.map_err(|error| errno(&error))
    }

    pub(crate) async fn release(&self, _: fuse::Caller, request: Release) -> Result<(), Errno> {
        if request.unlocks_flock
            && let Ok(file) = self.open_files.get(request.handle)
        {
            // The server ends remaining state with the file.
            let _ = file.funlock().await;
        }
        self.close(request.handle).await;
        Ok(())
    }
}
