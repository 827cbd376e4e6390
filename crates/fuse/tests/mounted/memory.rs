//! A small file system in memory. READs of a file `stall` and FLUSHes of a file `stall-flush` are answered only by the test.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fuse::*;

const KIND: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Inode {
    attributes: Attributes,
    content: Vec<u8>,
    entries: BTreeMap<Vec<u8>, u64>,
    parent: u64,
    xattrs: BTreeMap<Vec<u8>, Bytes>,
    /// READs of it stall.
    stalls: bool,
    /// FLUSHes of it stall.
    stalls_close: bool,
}

#[derive(Clone)]
struct Held {
    node: NodeId,
    owner: LockOwner,
    range: LockRange,
    is_flock: bool,
}

impl Held {
    fn conflicts(&self, wanted: &Lock) -> bool {
        self.node == wanted.node
            && self.is_flock == wanted.is_flock
            && self.owner != wanted.owner
            && self.range.start <= wanted.range.end
            && wanted.range.start <= self.range.end
            && (self.range.kind == LockKind::Write || wanted.range.kind == LockKind::Write)
    }
}

#[derive(Default)]
pub(crate) struct State {
    inodes: HashMap<u64, Inode>,
    next: u64,
    locks: Vec<Held>,
    /// Lock waits.
    pub(crate) waiting: Vec<(u64, Lock, Reply<()>)>,
    /// READs without a reply.
    pub(crate) stalled_reads: Vec<(Read, Reply<Data>)>,
    /// FLUSHes without a reply.
    pub(crate) stalled_flushes: Vec<Reply<()>>,
    /// Sizes of the largest requests in bytes.
    pub(crate) largest_write: usize,
    pub(crate) largest_read: usize,
    /// Lookups that the kernel has forgotten.
    pub(crate) forgotten: u64,
}

#[derive(Clone, Default)]
pub(crate) struct MemoryFs(Arc<Mutex<State>>);

/// Removes a lock wait when it is no longer needed.
struct Waiting {
    files: MemoryFs,
    number: u64,
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.files.state().waiting.retain(|(number, ..)| *number != self.number);
    }
}

type Result<T> = std::result::Result<T, Errno>;

impl MemoryFs {
    pub(crate) fn new() -> Self {
        let files = Self::default();
        let mut state = files.state();
        state.next = 2;
        let root = Inode { attributes: attributes(1, DIRECTORY | 0o755), parent: 1, ..Inode::default() };
        state.inodes.insert(1, root);
        drop(state);
        files
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics with it")
    }
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
}

fn attributes(inode: u64, mode: u32) -> Attributes {
    let links = if mode & KIND == DIRECTORY { 2 } else { 1 };
    Attributes {
        inode,
        mode,
        links,
        atime: now(),
        mtime: now(),
        ctime: now(),
        block_size: 4096,
        ..Attributes::default()
    }
}

impl State {
    fn inode(&mut self, node: NodeId) -> Result<&mut Inode> {
        self.inodes.get_mut(&node.0).ok_or(Errno::STALE)
    }

    fn entry(&mut self, node: u64) -> Result<Entry> {
        let attributes = self.inode(NodeId(node))?.attributes;
        Ok(Entry {
            node: NodeId(node),
            generation: 0,
            attributes,
            entry_timeout: TIMEOUT,
            attribute_timeout: TIMEOUT,
        })
    }

    fn granted(&mut self, node: NodeId) -> Result<GrantedAttributes> {
        Ok(GrantedAttributes { attributes: self.inode(node)?.attributes, timeout: TIMEOUT })
    }

    fn find(&mut self, parent: NodeId, name: &[u8]) -> Result<u64> {
        self.inode(parent)?.entries.get(name).copied().ok_or(Errno::NOENT)
    }

    fn create(&mut self, parent: NodeId, name: &[u8], mode: u32, content: Vec<u8>) -> Result<Entry> {
        if self.find(parent, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let node = self.next;
        self.next += 1;
        let mut attributes = attributes(node, mode);
        attributes.size = content.len() as u64;
        let (stalls, stalls_close) = (name == b"stall", name == b"stall-flush");
        let inode = Inode { attributes, content, parent: parent.0, stalls, stalls_close, ..Inode::default() };
        self.inodes.insert(node, inode);
        let parent = self.inode(parent)?;
        parent.entries.insert(name.to_vec(), node);
        parent.attributes.mtime = now();
        self.entry(node)
    }

    fn remove(&mut self, parent: NodeId, name: &[u8], directory: bool) -> Result<()> {
        let node = self.find(parent, name)?;
        let inode = self.inode(NodeId(node))?;
        if (inode.attributes.mode & KIND == DIRECTORY) != directory {
            return Err(if directory { Errno::NOTDIR } else { Errno::ISDIR });
        }
        if !inode.entries.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        inode.attributes.links -= if directory { 2 } else { 1 };
        let parent = self.inode(parent)?;
        parent.entries.remove(name);
        parent.attributes.mtime = now();
        Ok(())
    }

    fn resize(&mut self, node: NodeId, size: u64) -> Result<()> {
        let inode = self.inode(node)?;
        inode.content.resize(size as usize, 0);
        inode.attributes.size = size;
        inode.attributes.blocks = size.div_ceil(512);
        inode.attributes.mtime = now();
        Ok(())
    }

    fn slice(&mut self, node: NodeId, offset: u64, size: u32) -> Result<Bytes> {
        let content = &self.inode(node)?.content;
        let start = (offset as usize).min(content.len());
        let end = (start + size as usize).min(content.len());
        Ok(Bytes::copy_from_slice(&content[start..end]))
    }

    fn write(&mut self, node: NodeId, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset + data.len() as u64;
        if end > self.inode(node)?.attributes.size {
            self.resize(node, end)?;
        }
        let inode = self.inode(node)?;
        inode.attributes.mtime = now();
        inode.content[offset as usize..end as usize].copy_from_slice(data);
        Ok(())
    }

    fn lock(&mut self, wanted: &Lock) -> Result<()> {
        if wanted.range.kind != LockKind::Unlock && self.locks.iter().any(|held| held.conflicts(wanted)) {
            return Err(Errno::AGAIN);
        }
        // Ranges of the tests are equal or disjoint: a lock replaces those that it overlaps.
        self.locks.retain(|held| {
            held.owner != wanted.owner
                || held.node != wanted.node
                || held.range.end < wanted.range.start
                || wanted.range.end < held.range.start
        });
        if wanted.range.kind != LockKind::Unlock {
            let Lock { node, owner, range, is_flock, .. } = wanted.clone();
            self.locks.push(Held { node, owner, range, is_flock });
        }
        Ok(())
    }

    fn unlock_all(&mut self, node: NodeId, owner: LockOwner, is_flock: bool) {
        self.locks.retain(|held| held.node != node || held.owner != owner || held.is_flock != is_flock);
        self.grant();
    }

    fn grant(&mut self) {
        for (number, lock, reply) in std::mem::take(&mut self.waiting) {
            match self.lock(&lock) {
                Err(_) => self.waiting.push((number, lock, reply)),
                Ok(()) => {
                    if reply.ok(()).is_err() {
                        self.locks.retain(|held| held.owner != lock.owner);
                    }
                }
            }
        }
    }

    fn list(&mut self, node: NodeId) -> Result<Vec<(Vec<u8>, u64)>> {
        let parent = self.inode(node)?.parent;
        let mut all = vec![(b".".to_vec(), node.0), (b"..".to_vec(), parent)];
        all.extend(self.inode(node)?.entries.iter().map(|(name, node)| (name.clone(), *node)));
        Ok(all)
    }
}

/// Provides a function from which `?` in an operation returns.
fn execute<T>(operation: impl FnOnce() -> Result<T>) -> Result<T> {
    operation()
}

/// Defines operations that are answered at once.
macro_rules! at_once {
    ($($method:ident($request:ident: $type:ty) -> $answer:ty = |$state:ident| $body:expr;)*) => {
        $(
            fn $method(&self, _: Caller, $request: $type, reply: Reply<$answer>) {
                let result = {
                    #[allow(unused_mut)]
                    let mut $state = self.state();
                    execute(|| -> Result<$answer> { $body })
                };
                // A program that was killed needs no answer.
                let _ = reply.send(result);
            }
        )*
    };
}

impl Filesystem for MemoryFs {
    at_once! {
        lookup(r: Lookup) -> Entry = |state| {
            let node = state.find(r.parent, &r.name)?;
            state.entry(node)
        };
        getattr(r: Getattr) -> GrantedAttributes = |state| state.granted(r.node);
        setattr(r: Setattr) -> GrantedAttributes = |state| {
            if let Some(size) = r.size {
                state.resize(r.node, size)?;
            }
            let attributes = &mut state.inode(r.node)?.attributes;
            if let Some(mode) = r.mode {
                attributes.mode = attributes.mode & KIND | mode & !KIND;
            }
            attributes.uid = r.uid.unwrap_or(attributes.uid);
            attributes.gid = r.gid.unwrap_or(attributes.gid);
            for (set, time) in [(r.atime, &mut attributes.atime), (r.mtime, &mut attributes.mtime)] {
                match set {
                    Some(SetTime::Now) => *time = now(),
                    Some(SetTime::To(new)) => *time = new,
                    None => {}
                }
            }
            attributes.ctime = now();
            state.granted(r.node)
        };
        readlink(r: Readlink) -> Data = |state| Ok(state.inode(r.node)?.content.clone().into());
        symlink(r: Symlink) -> Entry = |state| state.create(r.parent, &r.name, LINK | 0o777, r.target.to_vec());
        mknod(r: Mknod) -> Entry = |state| state.create(r.parent, &r.name, r.mode, Vec::new());
        mkdir(r: Mkdir) -> Entry = |state| state.create(r.parent, &r.name, DIRECTORY | r.mode & 0o7777, Vec::new());
        unlink(r: Unlink) -> () = |state| state.remove(r.parent, &r.name, false);
        rmdir(r: Rmdir) -> () = |state| state.remove(r.parent, &r.name, true);
        rename(r: Rename) -> () = |state| {
            let node = state.find(r.parent, &r.name)?;
            let is_directory = state.inode(NodeId(node))?.attributes.mode & KIND == DIRECTORY;
            match state.find(r.new_parent, &r.new_name) {
                // RENAME_NOREPLACE
                Ok(_) if r.flags & 1 != 0 => return Err(Errno::EXIST),
                Ok(_) => state.remove(r.new_parent, &r.new_name, is_directory)?,
                Err(_) => {}
            }
            state.inode(r.parent)?.entries.remove(&r.name[..]);
            state.inode(r.new_parent)?.entries.insert(r.new_name.to_vec(), node);
            state.inode(NodeId(node))?.parent = r.new_parent.0;
            Ok(())
        };
        link(r: Link) -> Entry = |state| {
            state.inode(r.parent)?.entries.insert(r.name.to_vec(), r.node.0);
            state.inode(r.node)?.attributes.links += 1;
            state.entry(r.node.0)
        };
        open(r: Open) -> Opened = |state| {
            // Cached pages of a stalled file must not answer READs.
            let flags = if state.inode(r.node)?.stalls { OpenFlags::DIRECT_IO } else { OpenFlags::KEEP_CACHE };
            // O_TRUNC
            if r.flags & 0o1000 != 0 {
                state.resize(r.node, 0)?;
            }
            Ok(Opened { handle: FileHandle(0), flags })
        };
        create(r: Create) -> Created = |state| {
            let entry = state.create(r.parent, &r.name, r.mode, Vec::new())?;
            Ok(Created { entry, opened: Opened::default() })
        };
        write(r: Write) -> Copied = |state| {
            state.largest_write = state.largest_write.max(r.data.len());
            state.write(r.node, r.offset, &r.data)?;
            Ok(Copied(r.data.len() as u64))
        };
        statfs(r: Statfs) -> Statistics = |state| {
            let files = state.inode(r.node).map(|_| 1000)?;
            let free = 1 << 20;
            let blocks = [free; 3];
            Ok(Statistics {
                blocks: blocks[0], blocks_free: blocks[1], blocks_available: blocks[2], files, files_free: 900,
                block_size: 4096, fragment_size: 4096, name_max: 255,
            })
        };
        release(r: Release) -> () = |state| {
            if r.unlocks_flock {
                state.unlock_all(r.node, r.lock_owner, true);
            }
            Ok(())
        };
        opendir(r: Open) -> Opened = |state| state.inode(r.node).map(|_| Opened::default());
        releasedir(_r: Release) -> () = |_state| Ok(());
        fsync(_r: Fsync) -> () = |_state| Ok(());
        readdir(r: Readdir) -> Data = |state| {
            let mut listing = Listing::new(r.size);
            for (place, (name, node)) in (1..).zip(state.list(r.node)?).skip(r.offset as usize) {
                let mode = state.inode(NodeId(node))?.attributes.mode;
                if !listing.push(node, place, mode, &name) {
                    break;
                }
            }
            Ok(listing.into())
        };
        readdirplus(r: Readdir) -> Data = |state| {
            let mut listing = ListingPlus::new(r.size);
            for (place, (name, node)) in (1..).zip(state.list(r.node)?).skip(r.offset as usize) {
                let mut entry = state.entry(node)?;
                if name == b"." || name == b".." {
                    entry.node = NodeId(0);
                }
                if !listing.push(&entry, place, &name) {
                    break;
                }
            }
            Ok(listing.into())
        };
        setxattr(r: Setxattr) -> () = |state| {
            state.inode(r.node)?.xattrs.insert(r.name.to_vec(), r.value);
            Ok(())
        };
        getxattr(r: Getxattr) -> XattrReply = |state| {
            xattr_reply(state.inode(r.node)?.xattrs.get(&r.name[..]).cloned().ok_or(Errno::NODATA)?, r.size)
        };
        listxattr(r: Listxattr) -> XattrReply = |state| {
            let names = state.inode(r.node)?.xattrs.keys().flat_map(|name| [name, &b"\0"[..]].concat());
            xattr_reply(names.collect::<Vec<u8>>().into(), r.size)
        };
        removexattr(r: Removexattr) -> () = |state| {
            state.inode(r.node)?.xattrs.remove(&r.name[..]).map(drop).ok_or(Errno::NODATA)
        };
        getlk(r: Lock) -> LockRange = |state| {
            let none = LockRange { kind: LockKind::Unlock, ..r.range };
            Ok(state.locks.iter().find(|held| held.conflicts(&r)).map_or(none, |held| held.range))
        };
        setlk(r: Lock) -> () = |state| {
            state.lock(&r)?;
            state.grant();
            Ok(())
        };
        fallocate(r: Fallocate) -> () = |state| {
            let end = r.offset + r.length;
            if r.mode == 0 && end > state.inode(r.node)?.attributes.size {
                state.resize(r.node, end)?;
            }
            Ok(())
        };
        lseek(r: Lseek) -> u64 = |state| {
            let size = state.inode(r.node)?.attributes.size;
            // SEEK_DATA: everything is data.
            if r.offset >= size { Err(Errno::NXIO) } else { Ok(if r.whence == 3 { r.offset } else { size }) }
        };
        copy_file_range(r: CopyFileRange) -> Copied = |state| {
            let data = state.slice(r.node, r.offset, r.length.min(1 << 30) as u32)?;
            state.write(r.target, r.target_offset, &data)?;
            Ok(Copied(data.len() as u64))
        };
    }

    fn read(&self, _: Caller, request: Read, reply: Reply<Data>) {
        let mut state = self.state();
        state.largest_read = state.largest_read.max(request.size as usize);
        if state.inode(request.node).is_ok_and(|inode| inode.stalls) {
            state.stalled_reads.push((request, reply));
            return;
        }
        let result = state.slice(request.node, request.offset, request.size).map(Data::from);
        let _ = reply.send(result);
    }

    fn flush(&self, _: Caller, request: Flush, reply: Reply<()>) {
        let mut state = self.state();
        state.unlock_all(request.node, request.lock_owner, false);
        if state.inode(request.node).is_ok_and(|inode| inode.stalls_close) {
            state.stalled_flushes.push(reply);
        } else {
            let _ = reply.ok(());
        }
    }

    fn setlkw(&self, _: Caller, request: Lock, reply: Reply<()>) {
        let mut state = self.state();
        if state.lock(&request).is_ok() {
            let _ = reply.ok(());
            return;
        }
        state.next += 1;
        let number = state.next;
        let waker = Waker::from(Arc::new(Waiting { files: self.clone(), number }));
        if reply.poll_unwanted(&mut Context::from_waker(&waker)).is_pending() {
            state.waiting.push((number, request, reply));
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        self.state().forgotten += forgets.iter().map(|forget| forget.lookups).sum::<u64>();
    }
}

fn xattr_reply(value: Bytes, size: u32) -> Result<XattrReply> {
    match size {
        0 => Ok(XattrReply::Length(value.len() as u32)),
        size if (size as usize) < value.len() => Err(Errno::RANGE),
        _ => Ok(XattrReply::Value(value)),
    }
}
