//! Copies trees: many files under way, holes and hard links kept on request.
//!
//! Directories are made and listed level by level ([`directories`]), and their entries are copied meanwhile: small files many
//! at a time ([`small`]), others separately. An object of the source is only copied after it was compared with the object of the same name in the
//! target ([`identity`]).

mod directories;
mod identity;
mod small;

mod at_server;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use bytes::Bytes;
use client::results::FileHandle;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::{Semaphore, mpsc};

pub use at_server::Reflink;
use at_server::{ByServer, Inability};

use super::attributes::{Attributes, FileKind, FsId};
use super::progress::Progress;
use super::session::Failure;
use super::tree::{NewAttributes, Tree, TreePath};

/// Files that are under way together.
const FILES: usize = 128;
/// Objects that were listed and wait to be copied.
const WAITING_MAX: usize = 4096;
/// Bytes of one read and write.
const CHUNK: usize = 1 << 20;
/// Maximum number of chunks that are under way together: they take this many times [`CHUNK`] bytes of memory.
const CHUNKS: usize = 64;
/// Chunks of one file that are under way together.
const CHUNKS_OF_FILE: usize = 16;
/// Unit of holes: of data without a known hole, whole units of zeros are not written if the source has holes.
const HOLE: usize = 4096;
/// Maximum number of remembered files with several names; every name of further ones becomes a file.
const LINKED_MAX: usize = 1 << 20;
/// Permissions that this program needs for a directory while it fills it.
const OWNER_BITS: u32 = 0o700;

/// The bits with which a program runs as its file's owner or group.
const SET_ID_BITS: u32 = 0o6000;

/// Attributes that a copy preserves.
#[derive(Debug, Clone, Copy)]
pub struct CopyOptions {
    /// Copies directories with everything below.
    pub is_recursive: bool,
    /// Keeps times, modes, owners, hard links.
    pub preserves: bool,
    /// Permission bits that new files do not get, unless modes are kept.
    pub umask: u32,
    /// Skips files that the target has already.
    pub skips: Option<Same>,
    /// Removes entries of the target's directories that the source does not have.
    pub deletes: bool,
    /// The condition for files of one server to share their blocks.
    pub reflink: Reflink,
}

/// The condition for a regular file of the target to count as equal to one of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Same {
    /// Size and time of modification are equal.
    SizeAndTime,
    /// The content is equal; both sides are read.
    Content,
}

/// A copy from one tree to another.
pub struct Copier<'a, S, D> {
    from: &'a S,
    to: &'a D,
    options: CopyOptions,
    progress: &'a Progress,
    files: Semaphore,
    chunks: Semaphore,
    state: RefCell<State>,
    /// The source object.
    source: OnceCell<Attributes>,
    /// The target directory.
    target: OnceCell<(TreePath, Attributes)>,
    /// Operations that the server does not support.
    inability: Inability,
}

/// An object to copy.
struct Job {
    source: TreePath,
    target: TreePath,
    attributes: Attributes,
    /// Its handle on the source's server.
    handle: Option<FileHandle>,
    /// The existing object with the target's name.
    found: Option<Attributes>,
}

/// Work at the end of the copy.
#[derive(Default)]
struct State {
    /// First names of files with several names.
    linked: HashMap<(FsId, u64), TreePath>,
    /// Further names: the first name, and the new one.
    links: Vec<(TreePath, TreePath)>,
    /// Attributes of directories, which filling them changes.
    directories: Vec<(TreePath, NewAttributes)>,
}

impl<'a, S: Tree, D: Tree> Copier<'a, S, D> {
    /// Creates a copy. Errors and counts go to `progress`.
    pub fn new(from: &'a S, to: &'a D, options: CopyOptions, progress: &'a Progress) -> Self {
        Self {
            from,
            to,
            options,
            progress,
            files: Semaphore::new(FILES),
            chunks: Semaphore::new(CHUNKS),
            state: RefCell::default(),
            source: OnceCell::new(),
            target: OnceCell::new(),
            inability: Inability::default(),
        }
    }

    /// Copies an object and everything below. One copier copies one object.
    pub async fn copy(&self, source: TreePath, target: TreePath, attributes: Attributes) {
        self.progress.found(1, data_size(&attributes));
        self.source.get_or_init(|| attributes);
        let found = match self.to.attributes(&target).await {
            Ok(found) => found,
            Err(failure) => return self.progress.failed(&failure.to_string()),
        };
        let job = Job { source, target, attributes, handle: None, found };
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let directories = async move {
            match job.attributes.kind {
                FileKind::Directory => self.directories(vec![job], &sender).await,
                _ => self.send(job, &sender).await,
            }
        };
        futures_util::future::join(directories, self.others(receiver)).await;
        self.finish().await;
    }

    /// Makes hard links, and sets the attributes of directories, which filling them has changed.
    async fn finish(&self) {
        let State { links, mut directories, .. } = self.state.take();
        let links = stream::iter(links).for_each_concurrent(FILES, async |(existing, path)| {
            self.report(self.hard_link(&existing, &path).await);
        });
        links.await;
        // The deepest first: afterwards a directory may not be searched any more.
        directories.sort_by_key(|(path, _)| std::cmp::Reverse(path.names().count()));
        for level in directories.chunk_by(|(one, _), (other, _)| one.names().count() == other.names().count())
        {
            for done in self.to.set_attributes_of_directories(level).await {
                self.report(done);
            }
        }
    }

    fn report(&self, done: Result<(), Failure>) {
        match done {
            Ok(()) => self.progress.done(1, 0),
            Err(failure) => self.progress.failed(&failure.to_string()),
        }
    }

    /// Copies a single object other than a directory.
    async fn object(&self, job: &Job) {
        let _permit = self.files.acquire().await;
        let Job { source, target, attributes, found, .. } = job;
        let done = match attributes.kind {
            FileKind::Regular => self.file(source, target, attributes, found.as_ref()).await,
            _ => self.special(source, target, attributes, found.as_ref()).await,
        };
        self.report(done);
    }

    /// Notes a file with several names. Returns whether it was copied under another name.
    fn is_further_name(&self, attributes: &Attributes, target: &TreePath) -> bool {
        if !self.options.preserves || attributes.nlink < 2 {
            return false;
        }
        let mut state = self.state.borrow_mut();
        let State { linked, links, .. } = &mut *state;
        let is_full = linked.len() >= LINKED_MAX;
        match linked.entry((attributes.fsid, attributes.fileid)) {
            Slot::Occupied(first) => {
                links.push((first.get().clone(), target.clone()));
                true
            }
            Slot::Vacant(slot) => {
                if !is_full {
                    slot.insert(target.clone());
                }
                false
            }
        }
    }

    async fn hard_link(&self, existing: &TreePath, path: &TreePath) -> Result<(), Failure> {
        self.clear(path).await?;
        self.to.make_hard_link(existing, path).await
    }

    /// Removes an existing object in the place of one that is not a directory.
    async fn clear(&self, path: &TreePath) -> Result<(), Failure> {
        match self.to.attributes(path).await? {
            Some(found) if found.kind == FileKind::Directory => {
                let shown = self.to.show(path);
                Err(Failure::new(format!(
                    "cannot overwrite the directory {shown} with another type of object"
                )))
            }
            Some(found) => self.to.remove(path, found.kind).await,
            None => Ok(()),
        }
    }

    /// Returns whether the target has the same file already; its other attributes are made the same.
    async fn is_same(
        &self,
        source: &TreePath,
        target: &TreePath,
        attributes: &Attributes,
        found: Option<&Attributes>,
    ) -> Result<bool, Failure> {
        let (Some(same), Some(found)) = (self.options.skips, found) else { return Ok(false) };
        if found.kind != FileKind::Regular || found.size != attributes.size {
            return Ok(false);
        }
        let is_same = match same {
            Same::SizeAndTime => found.mtime == attributes.mtime,
            Same::Content => self.has_same_content(source, target, attributes.size).await?,
        };
        if is_same {
            self.make_attributes_same(target, attributes, found).await?;
        }
        Ok(is_same)
    }

    /// Gives a file of the target the attributes of its source, if they differ.
    async fn make_attributes_same(
        &self,
        target: &TreePath,
        attributes: &Attributes,
        found: &Attributes,
    ) -> Result<(), Failure> {
        let new = self.preserved(attributes);
        let differs = new.mode != Some(found.mode)
            || new.uid.is_some_and(|uid| uid != found.uid)
            || new.gid.is_some_and(|gid| gid != found.gid)
            || found.mtime != attributes.mtime;
        if differs { self.to.set_attributes(target, &new).await } else { Ok(()) }
    }

    async fn has_same_content(
        &self,
        source: &TreePath,
        target: &TreePath,
        size: u64,
    ) -> Result<bool, Failure> {
        let one = self.from.open(source).await?;
        let other = match self.to.open(target).await {
            Ok(other) => other,
            Err(failure) => {
                self.from.close(one).await?;
                return Err(failure);
            }
        };
        let mut offsets = (0..size).step_by(CHUNK);
        let compared = loop {
            let Some(offset) = offsets.next() else { break Ok(true) };
            let _permit = self.chunks.acquire().await;
            let reads = (self.from.read(&one, offset, CHUNK), self.to.read(&other, offset, CHUNK));
            match futures_util::future::try_join(reads.0, reads.1).await {
                Ok((one, other)) if one == other => {}
                Ok(_) => break Ok(false),
                Err(failure) => break Err(failure),
            }
        };
        let closed = (self.from.close(one).await, self.to.close(other).await);
        let same = compared?;
        closed.0.and(closed.1).map(|()| same)
    }

    async fn file(
        &self,
        source: &TreePath,
        target: &TreePath,
        attributes: &Attributes,
        found: Option<&Attributes>,
    ) -> Result<(), Failure> {
        if self.is_same(source, target, attributes, found).await? {
            self.progress.done(0, attributes.size);
            return Ok(());
        }
        let reader = self.from.open(source).await?;
        let mode = attributes.mode & 0o777 & !self.options.umask;
        // Others do not see the content before owner and mode are set.
        let mode = if self.options.preserves { mode & OWNER_BITS | 0o200 } else { mode };
        let copied = match self.to.create(target, mode).await {
            Ok(writer) => {
                let data = match self.by_server(&reader, &writer, attributes).await {
                    Ok(true) => Ok(()),
                    Ok(false) => self.data(source, &reader, &writer, attributes).await,
                    Err(failure) => Err(failure),
                };
                let new = if self.options.preserves && data.is_ok() {
                    self.preserved(attributes)
                } else {
                    NewAttributes::default()
                };
                // The written part of a failed file is not extended with zeros.
                let size = if data.is_ok() { attributes.size } else { 0 };
                let finished = self.to.finish(writer, size, &new).await;
                data.and(finished)
            }
            Err(failure) => Err(failure),
        };
        let closed = self.from.close(reader).await;
        copied.and(closed)
    }

    /// Lets the server copy one of its files. Returns whether it did.
    async fn by_server(
        &self,
        reader: &S::Reader,
        writer: &D::Writer,
        attributes: &Attributes,
    ) -> Result<bool, Failure> {
        let reflink = self.options.reflink;
        let (from, to) = (self.from.at_server(), self.to.at_server());
        let files = (S::reader_at_server(reader), D::writer_at_server(writer));
        let (Some(from), Some(to), (Some(reader), Some(writer))) = (from, to, files) else {
            return match reflink {
                Reflink::Always => Err(Failure::new("--reflink=always: the files are not of one server")),
                Reflink::Auto | Reflink::Never => Ok(false),
            };
        };
        if reflink == Reflink::Always && !from.shares_server(to) {
            return Err(Failure::new("--reflink=always: the files are not of one server"));
        }
        if reflink == Reflink::Never || attributes.size == 0 || !from.shares_server(to) {
            return Ok(false);
        }
        let what = (attributes.size, self.options.preserves);
        let done = self.inability.copy((from, reader), (to, writer), what, reflink).await?;
        match done {
            ByServer::Cloned => self.progress.by_server(1, 0),
            ByServer::Copied => self.progress.by_server(0, 1),
            ByServer::Nothing => return Ok(false),
        }
        self.progress.done(0, attributes.size);
        Ok(true)
    }

    /// Copies the content of a file, with many chunks under way.
    ///
    /// # Errors
    /// Also if the file has become shorter meanwhile.
    async fn data(
        &self,
        source: &TreePath,
        reader: &S::Reader,
        writer: &D::Writer,
        attributes: &Attributes,
    ) -> Result<(), Failure> {
        let size = attributes.size;
        let has_holes = attributes.used.saturating_add(HOLE as u64) <= size;
        let mut offset = 0;
        while let Some((begins, ends)) = self.from.next_data(reader, offset, size).await? {
            let ends = ends.min(size);
            if begins >= ends {
                break;
            }
            let offsets = (begins..ends).step_by(CHUNK).map(Ok::<u64, Failure>);
            let chunks = stream::iter(offsets).try_for_each_concurrent(CHUNKS_OF_FILE, async |offset| {
                let _permit = self.chunks.acquire().await;
                let length = usize::try_from(ends - offset).unwrap_or(CHUNK).min(CHUNK);
                let data = self.from.read(reader, offset, length).await?;
                if data.len() < length {
                    return Err(self.shorter(source, size));
                }
                self.progress.done(0, data.len() as u64);
                self.write(writer, offset, data, has_holes).await
            });
            chunks.await?;
            offset = ends;
        }
        // The rest is a hole only if the file still has that length.
        if offset < size && self.from.read(reader, size - 1, 1).await?.is_empty() {
            return Err(self.shorter(source, size));
        }
        Ok(())
    }

    fn shorter(&self, source: &TreePath, size: u64) -> Failure {
        let shown = self.from.show(source);
        Failure::new(format!("{shown} has become shorter than its {size} bytes while it was copied"))
    }

    /// Writes a chunk, without its zeros if the source has holes.
    async fn write(
        &self,
        writer: &D::Writer,
        offset: u64,
        data: Bytes,
        has_holes: bool,
    ) -> Result<(), Failure> {
        if !has_holes {
            return self.to.write(writer, offset, data).await;
        }
        let is_zero = |unit: &[u8]| unit.iter().all(|byte| *byte == 0);
        let mut at = 0;
        while at < data.len() {
            let rest = data[at..].chunks(HOLE);
            let is_hole = is_zero(&data[at..(at + HOLE).min(data.len())]);
            let length: usize = rest.take_while(|unit| is_zero(unit) == is_hole).map(<[u8]>::len).sum();
            if !is_hole {
                self.to.write(writer, offset + at as u64, data.slice(at..at + length)).await?;
            }
            at += length;
        }
        Ok(())
    }

    /// Returns the attributes of an object that a copy keeps: owners only if its user may set them.
    fn preserved(&self, attributes: &Attributes) -> NewAttributes {
        let user = self.to.user();
        let is_root = user == 0;
        // A program must not run as a user whom the copy does not belong to.
        let is_owned = is_root || user == attributes.uid;
        NewAttributes {
            mode: Some(if is_owned { attributes.mode } else { attributes.mode & !SET_ID_BITS }),
            uid: is_root.then_some(attributes.uid),
            gid: is_root.then_some(attributes.gid),
            atime: Some(attributes.atime),
            mtime: Some(attributes.mtime),
        }
    }

    /// Copies a symbolic link, pipe, socket or device.
    async fn special(
        &self,
        source: &TreePath,
        target: &TreePath,
        attributes: &Attributes,
        found: Option<&Attributes>,
    ) -> Result<(), Failure> {
        if !self.options.is_recursive {
            let shown = self.from.show(source);
            return Err(Failure::new(format!(
                "{shown} is not a regular file (-r copies it as the same type)"
            )));
        }
        if found.is_some() {
            self.clear(target).await?;
        }
        if attributes.kind == FileKind::Symlink {
            let link = self.from.read_link(source).await?;
            self.to.make_link(target, &link).await?;
        } else {
            self.to.make_special(target, attributes).await?;
        }
        if self.options.preserves {
            self.to.set_attributes(target, &self.preserved(attributes)).await
        } else {
            Ok(())
        }
    }
}

/// Returns the bytes that are copied of an object.
fn data_size(attributes: &Attributes) -> u64 {
    if attributes.kind == FileKind::Regular { attributes.size } else { 0 }
}
