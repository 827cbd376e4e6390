//! A tree of a server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;

use super::{Entry, NewAttributes, ReadFile, Tree, TreePath, WriteFile};
use crate::attributes::{Attributes, FileKind, NOBODY, SetAttributes};
use crate::errno::Errno;
use crate::error::{Error, OpError};
use crate::fs::{FileSystem, Listing};
use crate::many;
use crate::results::{
    Content, Creation, DirEntry, FileHandle, NewObject, Object, OpenMode, OpenState, Ranges, Stability,
};

/// Maximum number of directories whose handles are remembered; others are looked up again.
const DIRECTORIES_MAX: usize = 1 << 20;

/// Lookups of directories that are in flight together.
const LOOKUPS: usize = 64;

/// A directory of a server and everything below it. Symbolic links are never followed.
pub struct ServerTree {
    fs: FileSystem,
    root: FileHandle,
    directories: Mutex<HashMap<TreePath, FileHandle>>,
    /// Set after the server has reported that it cannot find holes.
    lacks_seek: AtomicBool,
}

/// The directory of a path, and the name in it.
type Parent<'p> = Result<(FileHandle, &'p [u8]), OpError>;

/// Makes an item for each of `list` whose directory was found.
fn with_parents<'p, T, I>(
    parents: &[Parent<'p>],
    list: &[T],
    item: impl Fn(FileHandle, &'p [u8], &T) -> I,
) -> Vec<I> {
    let item = |(parent, of): (&Parent<'p>, &T)| {
        let (directory, name) = *parent.as_ref().ok()?;
        Some(item(directory, name, of))
    };
    parents.iter().zip(list).filter_map(item).collect()
}

/// An open file of a server.
pub struct ServerFile {
    handle: FileHandle,
    state: OpenState,
    path: TreePath,
    /// Whether it takes less space than its size.
    has_holes: bool,
    /// The end of the written data.
    end: AtomicU64,
    /// The verifier of unstable WRITEs.
    verifier: Mutex<Option<[u8; 8]>>,
}

impl ServerFile {
    /// Notes that data were written which are not stable yet.
    fn written_as(&self, verifier: [u8; 8]) -> Result<(), OpError> {
        let before = self.verifier.lock().replace(verifier);
        if before.is_some_and(|before| before != verifier) { Err(LOST) } else { Ok(()) }
    }
}

impl ServerTree {
    /// Takes the directory `root` of a file system as root of a tree.
    #[must_use]
    pub fn new(fs: FileSystem, root: &Object) -> Self {
        Self { fs, root: root.handle, directories: Mutex::default(), lacks_seek: AtomicBool::new(false) }
    }

    /// Takes the directory at `path` as root of a tree, following symbolic links.
    ///
    /// # Errors
    /// As opendir(3).
    pub async fn open(fs: &FileSystem, path: &[u8]) -> Result<Self, Error> {
        let failed = |cause| fs.failed("open directory", path, cause);
        let root = fs.resolve(path, true).await.map_err(failed)?;
        if root.attributes.kind != FileKind::Directory {
            return Err(failed(OpError::Invalid(Errno::ENOTDIR, "not a directory")));
        }
        Ok(Self::new(fs.clone(), &root))
    }

    /// Returns the handle of a directory.
    async fn directory(&self, path: &TreePath) -> Result<FileHandle, OpError> {
        if path.is_root() {
            return Ok(self.root);
        }
        if let Some(handle) = self.directories.lock().get(path) {
            return Ok(*handle);
        }
        let names: Vec<&[u8]> = path.names().collect();
        let object = self.fs.client().lookup_chain(self.fs.caller(), self.root, &names).await?;
        self.remember(path, object.handle);
        Ok(object.handle)
    }

    fn remember(&self, path: &TreePath, handle: FileHandle) {
        let mut directories = self.directories.lock();
        if directories.len() < DIRECTORIES_MAX {
            directories.insert(path.clone(), handle);
        }
    }

    /// Returns the handle of a path's directory, and the name in it.
    async fn parent<'p>(&self, path: &'p TreePath) -> Result<(FileHandle, &'p [u8]), OpError> {
        let Some((parent, _)) = path.split_last() else {
            return Err(OpError::Invalid(Errno::EBUSY, "the root has no name"));
        };
        Ok((self.directory(&parent).await?, path.names().last().unwrap_or_default()))
    }

    /// Returns an object without following a symbolic link.
    async fn object(&self, path: &TreePath) -> Result<Object, OpError> {
        if path.is_root() {
            let attributes = self.fs.client().get_attributes(self.fs.caller(), self.root).await?;
            return Ok(Object { handle: self.root, attributes });
        }
        let (parent, name) = self.parent(path).await?;
        self.fs.client().lookup(self.fs.caller(), parent, name).await
    }

    /// Returns directories, of which only handle and kind are valid.
    async fn directories(&self, paths: &[TreePath]) -> Vec<Result<Object, OpError>> {
        let root = self.fs.root();
        let directory = async |path: &TreePath| {
            let handle = self.directory(path).await?;
            // The root of the file system is a directory, too.
            let attributes = Attributes { kind: FileKind::Directory, ..root.attributes };
            Ok(Object { handle, attributes })
        };
        stream::iter(paths).map(directory).buffered(LOOKUPS).collect().await
    }

    /// Returns the directories of paths, and the names in them.
    async fn parents<'p>(&self, paths: impl Iterator<Item = &'p TreePath>) -> Vec<Parent<'p>> {
        stream::iter(paths).map(|path| self.parent(path)).buffered(LOOKUPS).collect().await
    }

    /// Returns an outcome for each path: why its directory was not found, or the next of `outcomes`.
    fn outcomes<'p, P, T>(
        &self,
        operation: &'static str,
        paths: impl Iterator<Item = &'p TreePath>,
        found: Vec<Result<P, OpError>>,
        mut outcomes: impl Iterator<Item = Result<T, OpError>>,
    ) -> Vec<Result<T, Error>> {
        let mut next =
            |found: Result<P, OpError>| found.and_then(|_| outcomes.next().unwrap_or(Err(MISSING)));
        let outcome = |(path, found)| next(found).map_err(|cause| self.failed(operation, path, cause));
        paths.zip(found).map(outcome).collect()
    }

    /// Returns the entries of a directory whose listing has begun.
    async fn whole(
        &self,
        path: &TreePath,
        directory: &Object,
        listing: Listing,
    ) -> Result<Vec<Entry>, OpError> {
        let entries = self.fs.list_whole(directory, listing).await?;
        let entry = |(name, object): (Vec<u8>, Object)| {
            if let Ok(path) = path.join(&name) {
                self.remember_directory(&path, &object);
            }
            Entry { name, attributes: object.attributes, handle: Some(object.handle) }
        };
        Ok(entries.into_iter().filter_map(named).map(entry).collect())
    }

    fn remember_directory(&self, path: &TreePath, object: &Object) {
        if object.attributes.kind == FileKind::Directory {
            self.remember(path, object.handle);
        }
    }

    fn failed(&self, operation: &'static str, path: &TreePath, cause: OpError) -> Error {
        self.fs.failed(operation, path.as_bytes(), cause)
    }

    async fn open_file(
        &self,
        path: &TreePath,
        mode: OpenMode,
        creation: Creation,
        set: &SetAttributes,
    ) -> Result<ServerFile, OpError> {
        let (parent, name) = self.parent(path).await?;
        let opened = self.fs.client().open(self.fs.caller(), parent, name, mode, creation, set).await?;
        let (object, path) = (opened.object, path.clone());
        let (end, verifier) = (AtomicU64::new(object.attributes.size), Mutex::default());
        let has_holes = object.attributes.used.saturating_add(HOLE) <= object.attributes.size;
        Ok(ServerFile { handle: object.handle, state: opened.state, path, has_holes, end, verifier })
    }

    async fn write_all(&self, file: &ServerFile, offset: u64, data: Bytes) -> Result<(), OpError> {
        let (mut offset, mut data) = (offset, data);
        let most = self.fs.info().write_max.max(1) as usize;
        while !data.is_empty() {
            let part = data.slice(..data.len().min(most));
            let (client, caller) = (self.fs.client(), self.fs.caller());
            let written = client.write(caller, file.handle, &file.state, offset, part, Stability::Unstable);
            let reply = written.await?;
            if reply.stability == Stability::Unstable {
                file.written_as(reply.verifier)?;
            }
            offset += u64::from(reply.count);
            data = data.slice((reply.count as usize).min(data.len())..);
        }
        file.end.fetch_max(offset, Ordering::Relaxed);
        Ok(())
    }

    /// Clones all of a file into an empty one.
    ///
    /// # Errors
    /// The server's status; EOPNOTSUPP without version 4.2.
    pub async fn clone_from(&self, from: &ServerFile, to: &ServerFile, size: u64) -> Result<(), OpError> {
        let ranges = Ranges { source_offset: 0, destination_offset: 0, count: 0 };
        let (source, destination) = ((from.handle, &from.state), (to.handle, &to.state));
        self.fs.client().clone_range(self.fs.caller(), source, destination, ranges).await?;
        to.end.store(size, Ordering::Relaxed);
        Ok(())
    }

    /// Copies bytes of a file to the same place of another, at the server. Returns how many; 0 at the end of the source.
    ///
    /// # Errors
    /// The server's status; EOPNOTSUPP without version 4.2.
    pub async fn copy_from(
        &self,
        from: &ServerFile,
        to: &ServerFile,
        offset: u64,
        count: u64,
    ) -> Result<u64, OpError> {
        let ranges = Ranges { source_offset: offset, destination_offset: offset, count };
        let (source, destination) = ((from.handle, &from.state), (to.handle, &to.state));
        let reply = self.fs.client().copy(self.fs.caller(), source, destination, ranges).await?;
        if reply.stability == Stability::Unstable && reply.count > 0 {
            to.written_as(reply.verifier)?;
        }
        to.end.fetch_max(offset.saturating_add(reply.count), Ordering::Relaxed);
        Ok(reply.count)
    }

    /// Returns the ranges of a file that may have data.
    ///
    /// # Errors
    /// The failure of SEEK.
    pub async fn data_ranges(&self, file: &ServerFile, size: u64) -> Result<Vec<(u64, u64)>, Error> {
        let (mut ranges, mut offset) = (Vec::new(), 0);
        while let Some((begins, ends)) = self.next_data(file, offset, size).await? {
            ranges.push((begins, ends.min(size)));
            if ends >= size || ends <= offset {
                break;
            }
            offset = ends;
        }
        Ok(ranges)
    }

    /// Returns whether both trees are of one server, which is reached by one client.
    #[must_use]
    pub fn shares_server(&self, other: &Self) -> bool {
        self.fs.client().is_same(other.fs.client())
    }

    /// Returns the failure of an operation on an open file.
    #[must_use]
    pub fn cannot(&self, operation: &'static str, file: &ServerFile, cause: OpError) -> Error {
        self.failed(operation, &file.path, cause)
    }

    /// Returns the next range with data by SEEK; the whole rest if the server has none.
    async fn seek_data(
        &self,
        file: &ServerFile,
        offset: u64,
        size: u64,
    ) -> Result<Option<(u64, u64)>, OpError> {
        let seek = async |offset, content| {
            self.fs.client().seek(self.fs.caller(), file.handle, &file.state, offset, content).await
        };
        match seek(offset, Content::Data).await {
            Ok(None) => Ok(None),
            Ok(Some(begins)) => {
                let ends = seek(begins, Content::Hole).await?.unwrap_or(size);
                Ok(Some((begins, if ends > begins { ends } else { size })))
            }
            Err(cause) if cause.errno() == Errno::EOPNOTSUPP => {
                self.lacks_seek.store(true, Ordering::Relaxed);
                Ok(Some((offset, size)))
            }
            Err(cause) => Err(cause),
        }
    }

    async fn commit(&self, file: &ServerFile) -> Result<(), OpError> {
        let Some(verifier) = file.verifier.lock().take() else { return Ok(()) };
        let reply = self.fs.client().commit(self.fs.caller(), file.handle, 0, 0).await?;
        if reply.verifier == verifier { Ok(()) } else { Err(LOST) }
    }

    async fn set(&self, file: &ServerFile, size: u64, new: &NewAttributes) -> Result<(), OpError> {
        let (client, caller) = (self.fs.client(), self.fs.caller());
        if file.end.load(Ordering::Relaxed) < size {
            // A hole at the end.
            let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
            client.set_attributes(caller, file.handle, &file.state, &set).await?;
        }
        let set = new.to_set();
        if !set.is_empty() {
            client.set_attributes(caller, file.handle, &file.state, &set).await?;
        }
        Ok(())
    }

    async fn make(&self, path: &TreePath, kind: &NewObject, mode: u32) -> Result<Object, OpError> {
        let (parent, name) = self.parent(path).await?;
        let set = SetAttributes::with_mode(mode);
        let made = self.fs.client().create_object(self.fs.caller(), parent, name, kind, &set).await;
        made.map(|(object, _)| object)
    }
}

/// The smallest hole worth a SEEK, in bytes.
const HOLE: u64 = 4096;

/// The server lost written data.
const LOST: OpError = OpError::Invalid(
    Errno::EIO,
    "the server restarted and has lost data that were written: copy the file again",
);

const MISSING: OpError = OpError::BadReply("results are missing");

/// Returns an entry whose object is known, which is that of all entries of whole listings.
fn named(entry: DirEntry) -> Option<(Vec<u8>, Object)> {
    Some((entry.name.to_vec(), entry.object?))
}

/// Mode bits of symbolic links, which servers ignore.
const LINK_MODE: u32 = 0o777;

impl Tree for ServerTree {
    type Error = Error;
    type Reader = ServerFile;
    type Writer = ServerFile;

    async fn attributes(&self, path: &TreePath) -> Result<Option<Attributes>, Error> {
        match self.object(path).await {
            Ok(object) => {
                self.remember_directory(path, &object);
                Ok(Some(object.attributes))
            }
            Err(cause) if cause.errno() == Errno::ENOENT => Ok(None),
            Err(cause) => Err(self.failed("access", path, cause)),
        }
    }

    async fn list(&self, path: &TreePath) -> Result<Vec<Entry>, Error> {
        let listing = async {
            let object = self.object(path).await?;
            self.whole(path, &object, Listing::default()).await
        };
        listing.await.map_err(|cause| self.failed("list", path, cause))
    }

    async fn read_link(&self, path: &TreePath) -> Result<Vec<u8>, Error> {
        let target = async {
            let object = self.object(path).await?;
            self.fs.client().read_link(self.fs.caller(), object.handle).await
        };
        let target = target.await.map_err(|cause| self.failed("read the link", path, cause))?;
        Ok(target.to_vec())
    }

    async fn open(&self, path: &TreePath) -> Result<ServerFile, Error> {
        let none = SetAttributes::default();
        let opened = self.open_file(path, OpenMode::READ, Creation::No, &none).await;
        opened.map_err(|cause| self.failed("open", path, cause))
    }

    async fn next_data(
        &self,
        file: &ServerFile,
        offset: u64,
        size: u64,
    ) -> Result<Option<(u64, u64)>, Error> {
        if offset >= size {
            return Ok(None);
        }
        if !file.has_holes || self.lacks_seek.load(Ordering::Relaxed) {
            return Ok(Some((offset, size)));
        }
        self.seek_data(file, offset, size).await.map_err(|cause| self.failed("seek in", &file.path, cause))
    }

    async fn read(&self, file: &ServerFile, offset: u64, length: usize) -> Result<Bytes, Error> {
        let (client, caller) = (self.fs.client(), self.fs.caller());
        let most = self.fs.info().read_max.max(1) as usize;
        let mut parts = Vec::new();
        let mut done = 0;
        while done < length {
            let ask = (length - done).min(most) as u32;
            let reply = client.read(caller, file.handle, &file.state, offset + done as u64, ask).await;
            let reply = reply.map_err(|cause| self.failed("read", &file.path, cause))?;
            done += reply.data.len();
            let is_end = reply.eof || reply.data.is_empty();
            parts.push(reply.data);
            if is_end {
                break;
            }
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Bytes::from(parts.concat()) })
    }

    async fn close(&self, file: ServerFile) -> Result<(), Error> {
        let closed = self.fs.client().close_file(self.fs.caller(), file.handle, &file.state).await;
        closed.map_err(|cause| self.failed("close", &file.path, cause))
    }

    async fn create(&self, path: &TreePath, mode: u32) -> Result<ServerFile, Error> {
        let set = SetAttributes { mode: Some(mode), size: Some(0), ..SetAttributes::default() };
        let open = || self.open_file(path, OpenMode::WRITE, Creation::IfMissing, &set);
        let opened = match open().await {
            // A symbolic link has the name.
            Err(OpError::Status(status)) if OpError::Status(status).errno() == Errno::ELOOP => {
                self.remove(path, FileKind::Symlink).await?;
                open().await
            }
            opened => opened,
        };
        let file = opened.map_err(|cause| self.failed("create", path, cause))?;
        if file.end.load(Ordering::Relaxed) > 0 {
            // The server kept the content of a file that was there.
            let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
            let set =
                self.fs.client().set_attributes(self.fs.caller(), file.handle, &file.state, &empty).await;
            if let Err(cause) = set {
                // The file has failed already: the result of CLOSE does not matter.
                let _ = self.fs.client().close_file(self.fs.caller(), file.handle, &file.state).await;
                return Err(self.failed("empty", path, cause));
            }
            file.end.store(0, Ordering::Relaxed);
        }
        Ok(file)
    }

    async fn write(&self, file: &ServerFile, offset: u64, data: Bytes) -> Result<(), Error> {
        let written = self.write_all(file, offset, data).await;
        written.map_err(|cause| self.failed("write", &file.path, cause))
    }

    async fn finish(&self, file: ServerFile, size: u64, new: &NewAttributes) -> Result<(), Error> {
        let finished = async {
            self.commit(&file).await?;
            self.set(&file, size, new).await
        };
        let finished = finished.await;
        let closed = self.fs.client().close_file(self.fs.caller(), file.handle, &file.state).await;
        finished.and(closed).map_err(|cause| self.failed("write", &file.path, cause))
    }

    async fn make_directory(&self, path: &TreePath, mode: u32) -> Result<bool, Error> {
        match self.make(path, &NewObject::Directory, mode).await {
            Ok(object) => {
                self.remember(path, object.handle);
                Ok(true)
            }
            Err(cause) if cause.errno() == Errno::EEXIST => {
                let found = self.object(path).await.map_err(|cause| self.failed("access", path, cause))?;
                if found.attributes.kind != FileKind::Directory {
                    return Err(self.failed("create directory", path, cause));
                }
                self.remember(path, found.handle);
                Ok(false)
            }
            Err(cause) => Err(self.failed("create directory", path, cause)),
        }
    }

    async fn make_link(&self, path: &TreePath, target: &[u8]) -> Result<(), Error> {
        let link = NewObject::Symlink(Bytes::copy_from_slice(target));
        let made = self.make(path, &link, LINK_MODE).await;
        made.map(|_| ()).map_err(|cause| self.failed("create symbolic link", path, cause))
    }

    async fn make_hard_link(&self, existing: &TreePath, path: &TreePath) -> Result<(), Error> {
        let linked = async {
            let file = self.object(existing).await?;
            let (parent, name) = self.parent(path).await?;
            self.fs.client().link(self.fs.caller(), file.handle, parent, name).await
        };
        linked.await.map(|_| ()).map_err(|cause| self.failed("create hard link", path, cause))
    }

    async fn make_special(&self, path: &TreePath, like: &Attributes) -> Result<(), Error> {
        let (major, minor) = like.device;
        let kind = match like.kind {
            FileKind::BlockDevice => NewObject::BlockDevice(major, minor),
            FileKind::CharacterDevice => NewObject::CharacterDevice(major, minor),
            FileKind::Socket => NewObject::Socket,
            _ => NewObject::Fifo,
        };
        let made = self.make(path, &kind, like.mode).await;
        made.map(|_| ()).map_err(|cause| self.failed("create special file", path, cause))
    }

    async fn remove(&self, path: &TreePath, kind: FileKind) -> Result<(), Error> {
        let removed = async {
            let (parent, name) = self.parent(path).await?;
            let (client, caller) = (self.fs.client(), self.fs.caller());
            if kind == FileKind::Directory {
                client.remove_directory(caller, parent, name).await
            } else {
                client.remove_file(caller, parent, name).await
            }
        };
        removed.await.map(|_| ()).map_err(|cause| self.failed("remove", path, cause))
    }

    async fn set_attributes(&self, path: &TreePath, new: &NewAttributes) -> Result<(), Error> {
        let changed = async {
            let object = self.object(path).await?;
            let mut set = new.to_set();
            if object.attributes.kind == FileKind::Symlink {
                set.mode = None;
            }
            let (client, caller) = (self.fs.client(), self.fs.caller());
            client.set_attributes(caller, object.handle, &OpenState::default(), &set).await
        };
        changed.await.map(|_| ()).map_err(|cause| self.failed("set attributes of", path, cause))
    }

    async fn list_many(&self, paths: &[TreePath]) -> Vec<Option<Result<Vec<Entry>, Error>>> {
        let directories = self.directories(paths).await;
        let known: Vec<Object> =
            directories.iter().filter_map(|object| object.as_ref().ok().copied()).collect();
        let mut listed = self.fs.list_many(&known).await.into_iter();
        let (mut listings, mut has_whole) = (Vec::new(), false);
        for (path, directory) in paths.iter().zip(directories) {
            let listing = match directory {
                Ok(directory) => match listed.next().unwrap_or(Ok(Listing::default())) {
                    Ok(listing) if listing.is_whole() || !has_whole => {
                        has_whole = true;
                        self.whole(path, &directory, listing).await
                    }
                    Ok(_) => {
                        listings.push(None);
                        continue;
                    }
                    Err(cause) => Err(cause),
                },
                Err(cause) => Err(cause),
            };
            listings.push(Some(listing.map_err(|cause| self.failed("list", path, cause))));
        }
        listings
    }

    async fn make_directories(&self, new: &[(&TreePath, u32)]) -> Vec<Result<bool, Error>> {
        let parents = self.parents(new.iter().map(|(path, _)| *path)).await;
        let items = with_parents(&parents, new, |parent, name, (_, mode)| many::NewDirectory {
            parent,
            name,
            mode: *mode,
        });
        let mut made = self.fs.client().create_directories(self.fs.caller(), &items).await.into_iter();
        let mut outcomes = Vec::new();
        for ((path, mode), parent) in new.iter().zip(&parents) {
            let outcome = match parent {
                Ok(_) => made.next().unwrap_or(Err(MISSING)),
                Err(cause) => Err(cause.clone()),
            };
            outcomes.push(match outcome {
                Ok(object) => {
                    self.remember(path, object.handle);
                    Ok(true)
                }
                // Something has the name.
                Err(cause) if cause.errno() == Errno::EEXIST => self.make_directory(path, *mode).await,
                Err(cause) => Err(self.failed("create directory", path, cause)),
            });
        }
        outcomes
    }

    async fn read_files(&self, files: &[ReadFile<'_>]) -> Vec<Result<Bytes, Error>> {
        let parents = self.parents(files.iter().map(|file| file.path)).await;
        let items = with_parents(&parents, files, |directory, name, file| many::ReadFile {
            directory,
            name,
            handle: file.handle,
            without_open: false,
            count: file.size as u32,
        });
        let read = self.fs.client().read_many(self.fs.caller(), &items).await;
        let read = read.into_iter().map(|whole| whole.map(|whole| whole.data));
        self.outcomes("read", files.iter().map(|file| file.path), parents, read)
    }

    async fn write_files(&self, files: &[WriteFile<'_>]) -> Vec<Result<(), Error>> {
        let parents = self.parents(files.iter().map(|file| file.path)).await;
        let items = with_parents(&parents, files, |directory, name, file| many::NewFile {
            directory,
            name,
            mode: file.mode,
            data: file.data.clone(),
            set: file.new.to_set(),
        });
        let written = self.fs.client().write_many(self.fs.caller(), &items).await;
        let written = written.into_iter().map(|object| object.map(|_| ()));
        self.outcomes("write", files.iter().map(|file| file.path), parents, written)
    }

    async fn remove_many(&self, objects: &[(&TreePath, FileKind)]) -> Vec<Result<(), Error>> {
        let parents = self.parents(objects.iter().map(|(path, _)| *path)).await;
        let (client, caller) = (self.fs.client(), self.fs.caller());
        let mut removed: Vec<Option<Result<(), OpError>>> = vec![None; objects.len()];
        for directories in [false, true] {
            let numbers: Vec<usize> = (0..objects.len())
                .filter(|at| (objects[*at].1 == FileKind::Directory) == directories && parents[*at].is_ok())
                .collect();
            let names: Vec<_> = numbers.iter().filter_map(|at| parents[*at].as_ref().ok().copied()).collect();
            for (at, outcome) in
                numbers.into_iter().zip(client.remove_many(caller, &names, directories).await)
            {
                removed[at] = Some(outcome);
            }
        }
        let removed = removed.into_iter().flatten();
        self.outcomes("remove", objects.iter().map(|(path, _)| *path), parents, removed)
    }

    async fn set_attributes_of_directories(
        &self,
        directories: &[(TreePath, NewAttributes)],
    ) -> Vec<Result<(), Error>> {
        let paths: Vec<TreePath> = directories.iter().map(|(path, _)| path.clone()).collect();
        let handles = self.directories(&paths).await;
        let item = |(object, (_, new)): (&Result<Object, OpError>, &(TreePath, NewAttributes))| {
            Some((object.as_ref().ok()?.handle, new.to_set()))
        };
        let items: Vec<_> = handles.iter().zip(directories).filter_map(item).collect();
        let set = self.fs.client().set_attributes_many(self.fs.caller(), &items).await;
        let set = set.into_iter().map(|attributes| attributes.map(|_| ()));
        self.outcomes("set attributes of", paths.iter(), handles, set)
    }

    fn has_lost_data(error: &Error) -> bool {
        error.cause == LOST
    }

    fn user(&self) -> u32 {
        self.fs.caller().uid().unwrap_or(NOBODY)
    }

    fn server(&self) -> Option<String> {
        let config = self.fs.client().config();
        Some(format!("{} {}", config.server, config.port))
    }

    fn is_missing(error: &Error) -> bool {
        error.errno() == Errno::ENOENT
    }

    fn at_server(&self) -> Option<&ServerTree> {
        Some(self)
    }

    fn reader_at_server(file: &ServerFile) -> Option<&ServerFile> {
        Some(file)
    }

    fn writer_at_server(file: &ServerFile) -> Option<&ServerFile> {
        Some(file)
    }
}
