//! Listings.

use client::fs::inode::{Entry, Inode};
use fuse::{Data, Errno, Fsync, ListingPlus, NodeId, Open, Opened, Readdir, Release};

use super::{Files, errno};
use crate::convert::kind_bits;
use crate::handles::Directory;
use crate::listing::{Position, Step};

/// Positions of `.` and `..`, which the client leaves out; entries follow.
const SELF: u64 = 0;
const PARENT: u64 = 1;
const ENTRIES_FROM: u64 = 2;
/// `st_mode` of a directory.
const DIRECTORY: u32 = 0o040_000;

/// A part of a listing for the kernel, with or without attributes.
trait Sink {
    /// Whether attributes of entries are used.
    const IS_PLUS: bool;

    fn new(size: u32) -> Self;

    /// Adds `.` or `..`, and returns whether it fits.
    fn push_dot(&mut self, inode: u64, next: u64, name: &[u8]) -> bool;

    /// Adds an entry of a directory, and returns whether it fits.
    fn push(&mut self, files: &Files, directory: &Inode, entry: &Entry, next: u64) -> bool;
}

impl Sink for fuse::Listing {
    const IS_PLUS: bool = false;

    fn new(size: u32) -> Self {
        Self::new(size)
    }

    fn push_dot(&mut self, inode: u64, next: u64, name: &[u8]) -> bool {
        self.push(inode, next, DIRECTORY, name)
    }

    fn push(&mut self, files: &Files, _directory: &Inode, entry: &Entry, next: u64) -> bool {
        let mode = entry.kind.map_or(0, kind_bits);
        self.push(files.inode_number(entry), next, mode, &entry.name)
    }
}

/// A listing with attributes, and the lookups in it.
struct Plus {
    listing: ListingPlus,
    lookups: Vec<NodeId>,
}

impl Sink for Plus {
    const IS_PLUS: bool = true;

    fn new(size: u32) -> Self {
        Self { listing: ListingPlus::new(size), lookups: Vec::new() }
    }

    fn push_dot(&mut self, inode: u64, next: u64, name: &[u8]) -> bool {
        self.listing.push(&without_node(inode, DIRECTORY), next, name)
    }

    fn push(&mut self, files: &Files, directory: &Inode, entry: &Entry, next: u64) -> bool {
        let Some((inode, attributes)) = &entry.object else {
            let mode = entry.kind.map_or(0, kind_bits);
            return self.listing.push(&without_node(files.inode_number(entry), mode), next, &entry.name);
        };
        let granted = files.entry(directory, &entry.name, inode, attributes);
        let has_room = self.listing.push(&granted, next, &entry.name);
        if has_room {
            self.lookups.push(granted.node);
        } else {
            files.forget_one(granted.node);
        }
        has_room
    }
}

/// Returns an entry that does not count as a lookup.
fn without_node(inode: u64, mode: u32) -> fuse::Entry {
    fuse::Entry {
        node: NodeId(0),
        generation: 0,
        attributes: fuse::Attributes { inode, mode, ..fuse::Attributes::default() },
        entry_timeout: std::time::Duration::ZERO,
        attribute_timeout: std::time::Duration::ZERO,
    }
}

impl Files {
    pub(crate) async fn opendir(&self, program: fuse::Caller, request: Open) -> Result<Opened, Errno> {
        let node = self.nodes.get(request.node)?;
        let open = node.inode.open_directory().map_err(|error| errno(&error))?;
        let caller = self.caller(program);
        let directory = Directory { open, caller, position: Default::default() };
        Ok(Opened { handle: self.open_directories.add(directory), flags: fuse::OpenFlags::empty() })
    }

    pub(crate) async fn readdir(&self, _: fuse::Caller, request: Readdir) -> Result<Data, Errno> {
        Ok(self.list::<fuse::Listing>(&request).await?.into())
    }

    /// Returns the listing and the lookups in it.
    pub(crate) async fn readdirplus(&self, request: Readdir) -> Result<(Data, Vec<NodeId>), Errno> {
        let Plus { listing, lookups } = self.list::<Plus>(&request).await?;
        Ok((listing.into(), lookups))
    }

    async fn list<S: Sink>(&self, request: &Readdir) -> Result<S, Errno> {
        let directory = self.open_directories.get(request.handle)?;
        let mut position = directory.position.lock().await;
        let (mut sink, mut at) = (S::new(request.size), request.offset);
        if at == SELF {
            // rewinddir(3) shows new entries.
            *position = Position::default();
        }
        let own = directory.open.inode().id().0;
        loop {
            let next = at.checked_add(1).ok_or(Errno::INVAL)?;
            let has_room = match at {
                SELF => sink.push_dot(own, next, b"."),
                PARENT => sink.push_dot(own, next, b".."),
                _ => {
                    let index = usize::try_from(at - ENTRIES_FROM).map_err(|_| Errno::INVAL)?;
                    match position.entry(index)? {
                        Step::Entry(entry) => sink.push(self, directory.open.inode(), entry, next),
                        Step::End => return Ok(sink),
                        // Available entries are returned before more are fetched.
                        Step::Fetch(_) if at > request.offset && at > ENTRIES_FROM => return Ok(sink),
                        Step::Fetch(cookie) => {
                            let (open, caller) = (&directory.open, &directory.caller);
                            let part = open.read(caller, cookie, S::IS_PLUS).await;
                            position.fetched(index, part.map_err(|error| errno(&error))?)?;
                            continue;
                        }
                    }
                }
            };
            if !has_room {
                return Ok(sink);
            }
            at = next;
        }
    }

    fn inode_number(&self, entry: &Entry) -> u64 {
        let fsid = entry.object.as_ref().map_or(self.view.fsid, |(_, attributes)| attributes.fsid);
        self.view.inode(fsid, entry.fileid)
    }

    pub(crate) async fn releasedir(&self, _: fuse::Caller, request: Release) -> Result<(), Errno> {
        self.close(request.handle).await;
        Ok(())
    }

    /// Changes of names are stable when they are answered (RFC 1813 §4.8, RFC 8881 §18.4).
    pub(crate) async fn fsyncdir(&self, _: fuse::Caller, _: Fsync) -> Result<(), Errno> {
        Ok(())
    }
}
