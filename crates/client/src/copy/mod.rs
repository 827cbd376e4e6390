//! Copies trees: many files under way, holes and hard links kept on request.
//!
//! [`copy_tree`] copies one directory to another and returns a result for each object. [`Copier`] copies any object and tells a
//! [`Report`] what it does. Both sides are [`Tree`]s: of a server, or of this machine, which is implemented outside of this crate.
//!
//! Directories are made and listed level by level ([`directories`]), and their entries are copied meanwhile: small files many
//! at a time ([`small`]), others separately. So the number of round trips depends on the depth and the bytes, not on the number of
//! files. An object of the source is only copied after it was compared with the object of the same name in the
//! target ([`identity`]).

mod at_server;
mod directories;
mod error;
mod identity;
mod queue;
mod small;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use at_server::Unsupported;
pub use at_server::{ByServer, Reflink};
pub use error::{CopyError, Item, Refusal};
use queue::Queue;

use crate::attributes::{Attributes, FileKind, FsId, Timestamp};
use crate::permits::Permits;
use crate::results::FileHandle;
use crate::tree::{NewAttributes, Tree, TreePath};

/// Files that are under way together.
const FILES: usize = 128;
/// Objects that were listed and wait to be copied.
const WAITING_MAX: usize = 4096;
/// Bytes of one read and write.
const CHUNK: usize = 1 << 20;
/// Maximum number of chunks that are under way together: they take this many times [`CHUNK`] bytes of memory.
const CHUNKS: usize = 64;
/// Number of times that a file is copied whose server restarts meanwhile and loses data.
const TRIES_MAX: u32 = 8;
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

/// Options of a copy. The default copies everything below, and keeps nothing but contents and permission bits.
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

impl Default for CopyOptions {
    fn default() -> Self {
        Self {
            is_recursive: true,
            preserves: false,
            umask: 0o022,
            skips: None,
            deletes: false,
            reflink: Reflink::Auto,
        }
    }
}

/// The failure of an object of a copy between these trees.
pub type Failed<S, D> = CopyError<<S as Tree>::Error, <D as Tree>::Error>;

/// Observes a copy.
pub trait Report<S: Tree, D: Tree> {
    /// Notes objects and bytes of regular files that will be copied.
    fn found(&self, _objects: u64, _bytes: u64) {}
    /// Notes bytes that were copied, or that the target has already.
    fn copied(&self, _bytes: u64) {}
    /// Notes a file that the server cloned, or copied itself.
    fn by_server(&self, _how: ByServer) {}
    /// Notes the outcome of an object. Each object of the source has one; of objects that are removed from the target, only
    /// failures are reported. An entry whose name could lead elsewhere is a failure of its directory, which may have others.
    fn done(&self, item: Item<'_>, outcome: Result<(), Failed<S, D>>);
}

/// The outcome of an object of [`copy_tree`].
pub struct Copied<S: Tree, D: Tree> {
    /// Its path in the source; `None` for an object of the target only.
    pub source: Option<TreePath>,
    /// Its path in the target.
    pub target: TreePath,
    /// Why it was not copied.
    pub outcome: Result<(), Failed<S, D>>,
}

/// Copies everything below the root of a tree to the root of another, and returns an outcome for each object, in the order in which
/// they ended. The root of the source is an object, too.
///
/// The failure of an object affects no other, except that nothing below a directory that cannot be made or listed is copied. The
/// target of a file that failed is missing, or has a part of the content: it has both the size and the times of the source only
/// after a success. The same copy may be run again to complete it; with [`CopyOptions::skips`] it leaves out files that are the same already.
///
/// The round trips depend on the depth of the tree and its bytes, not on the number of files. The future is not `Send`.
pub async fn copy_tree<S: Tree, D: Tree>(from: &S, to: &D, options: CopyOptions) -> Vec<Copied<S, D>> {
    struct All<S: Tree, D: Tree>(Mutex<Vec<Copied<S, D>>>);

    impl<S: Tree, D: Tree> Report<S, D> for All<S, D> {
        fn done(&self, item: Item<'_>, outcome: Result<(), Failed<S, D>>) {
            let (source, target) = (item.source.cloned(), item.target.clone());
            self.0.lock().push(Copied { source, target, outcome });
        }
    }

    let all = All(Mutex::default());
    let root = TreePath::root();
    match from.attributes(&root).await {
        Ok(Some(attributes)) => {
            Copier::new(from, to, options, &all).copy(root.clone(), root, attributes).await;
        }
        Ok(None) => {
            all.done(Item { source: Some(&root), target: &root }, Err(CopyError::Refused(Refusal::Missing)))
        }
        Err(error) => all.done(Item { source: Some(&root), target: &root }, Err(CopyError::Source(error))),
    }
    all.0.into_inner()
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
    report: &'a dyn Report<S, D>,
    files: Arc<Permits>,
    chunks: Arc<Permits>,
    state: Mutex<State>,
    /// The source object.
    source: OnceLock<Attributes>,
    /// The target directory.
    target: OnceLock<(TreePath, Attributes)>,
    /// Operations that the server does not support.
    unsupported: Unsupported,
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

impl Job {
    fn item(&self) -> Item<'_> {
        Item { source: Some(&self.source), target: &self.target }
    }
}

/// Work at the end of the copy.
#[derive(Default)]
struct State {
    /// First names of files with several names.
    linked: HashMap<(FsId, u64), TreePath>,
    /// Further names: the first name, and the object to copy.
    links: Vec<(TreePath, Job)>,
    /// Attributes of directories, which filling them changes.
    directories: Vec<LateAttributes>,
}

/// Attributes of a directory to set at the end.
struct LateAttributes {
    source: TreePath,
    target: TreePath,
    new: NewAttributes,
    /// Whether a failure of the directory has been reported.
    is_failed: bool,
}

impl<'a, S: Tree, D: Tree> Copier<'a, S, D> {
    /// Creates a copy.
    pub fn new(from: &'a S, to: &'a D, options: CopyOptions, report: &'a dyn Report<S, D>) -> Self {
        Self {
            from,
            to,
            options,
            report,
            files: Arc::new(Permits::new(FILES)),
            chunks: Arc::new(Permits::new(CHUNKS)),
            state: Mutex::default(),
            source: OnceLock::new(),
            target: OnceLock::new(),
            unsupported: Unsupported::default(),
        }
    }

    /// Copies an object and everything below. One copier copies one object.
    pub async fn copy(&self, source: TreePath, target: TreePath, attributes: Attributes) {
        self.report.found(1, data_size(&attributes));
        self.source.get_or_init(|| attributes);
        let found = match self.to.attributes(&target).await {
            Ok(found) => found,
            Err(error) => {
                let item = Item { source: Some(&source), target: &target };
                return self.report.done(item, Err(CopyError::Target(error)));
            }
        };
        let job = Job { source, target, attributes, handle: None, found };
        let others = Queue::new(WAITING_MAX);
        let directories = async {
            match job.attributes.kind {
                FileKind::Directory => self.directories(vec![job], &others).await,
                _ => others.send(job).await,
            }
            others.close();
        };
        futures_util::future::join(directories, self.others(&others)).await;
        self.finish().await;
    }

    /// Makes hard links, and sets the attributes of directories, which filling them has changed.
    async fn finish(&self) {
        let State { links, mut directories, .. } = std::mem::take(&mut *self.state.lock());
        let links = stream::iter(links).for_each_concurrent(FILES, async |(existing, job)| {
            self.report.done(job.item(), self.hard_link(&existing, &job.target).await);
        });
        links.await;
        // The deepest first: afterwards a directory may not be searched any more.
        let depth = |late: &LateAttributes| late.target.names().count();
        directories.sort_by_key(|late| std::cmp::Reverse(depth(late)));
        for level in directories.chunk_by(|one, other| depth(one) == depth(other)) {
            let new: Vec<_> = level.iter().map(|late| (late.target.clone(), late.new)).collect();
            for (late, done) in level.iter().zip(self.to.set_attributes_of_directories(&new).await) {
                let item = Item { source: Some(&late.source), target: &late.target };
                if !late.is_failed {
                    self.report.done(item, done.map_err(CopyError::Target));
                }
            }
        }
    }

    /// Copies a single object other than a directory.
    async fn object(&self, job: &Job) {
        let _permit = self.files.take().await;
        let done = match job.attributes.kind {
            FileKind::Regular => self.whole_file(job).await,
            _ => self.special(job).await,
        };
        self.report.done(job.item(), done);
    }

    /// Copies a file, again if the server loses a part of it.
    async fn whole_file(&self, job: &Job) -> Result<(), Failed<S, D>> {
        for _ in 1..TRIES_MAX {
            match self.file(job).await {
                Err(CopyError::Target(error)) if D::has_lost_data(&error) => {}
                done => return done,
            }
        }
        self.file(job).await
    }

    /// Notes a file with several names. Returns one that has no other name yet in the target.
    fn note_names(&self, job: Job) -> Option<Job> {
        let Job { attributes, target, .. } = &job;
        if !self.options.preserves || attributes.nlink < 2 {
            return Some(job);
        }
        let mut state = self.state.lock();
        let State { linked, links, .. } = &mut *state;
        let is_full = linked.len() >= LINKED_MAX;
        match linked.entry((attributes.fsid, attributes.fileid)) {
            Slot::Occupied(first) => {
                links.push((first.get().clone(), job));
                None
            }
            Slot::Vacant(slot) => {
                if !is_full {
                    slot.insert(target.clone());
                }
                Some(job)
            }
        }
    }

    async fn hard_link(&self, existing: &TreePath, path: &TreePath) -> Result<(), Failed<S, D>> {
        self.clear(path).await?;
        self.to.make_hard_link(existing, path).await.map_err(CopyError::Target)
    }

    /// Removes an existing object in the place of one that is not a directory.
    async fn clear(&self, path: &TreePath) -> Result<(), Failed<S, D>> {
        match self.to.attributes(path).await.map_err(CopyError::Target)? {
            Some(found) if found.kind == FileKind::Directory => {
                Err(CopyError::Refused(Refusal::OverwritesDirectory))
            }
            Some(found) => self.to.remove(path, found.kind).await.map_err(CopyError::Target),
            None => Ok(()),
        }
    }

    /// Returns whether the target has the same file already; its other attributes are made the same.
    async fn is_same(&self, job: &Job) -> Result<bool, Failed<S, D>> {
        let (Some(same), Some(found)) = (self.options.skips, &job.found) else { return Ok(false) };
        let attributes = &job.attributes;
        if found.kind != FileKind::Regular || found.size != attributes.size {
            return Ok(false);
        }
        let is_same = match same {
            Same::SizeAndTime => is_same_time(found.mtime, attributes.mtime),
            Same::Content => self.has_same_content(job).await?,
        };
        if is_same {
            self.make_attributes_same(&job.target, attributes, found).await.map_err(CopyError::Target)?;
        }
        Ok(is_same)
    }

    /// Gives a file of the target the attributes of its source, if they differ.
    async fn make_attributes_same(
        &self,
        target: &TreePath,
        attributes: &Attributes,
        found: &Attributes,
    ) -> Result<(), D::Error> {
        let new = self.preserved(attributes);
        let differs = new.mode != Some(found.mode)
            || new.uid.is_some_and(|uid| uid != found.uid)
            || new.gid.is_some_and(|gid| gid != found.gid)
            || !is_same_time(found.mtime, attributes.mtime);
        if differs { self.to.set_attributes(target, &new).await } else { Ok(()) }
    }

    async fn has_same_content(&self, job: &Job) -> Result<bool, Failed<S, D>> {
        let one = self.from.open(&job.source).await.map_err(CopyError::Source)?;
        let other = match self.to.open(&job.target).await {
            Ok(other) => other,
            Err(error) => {
                self.from.close(one).await.map_err(CopyError::Source)?;
                return Err(CopyError::Target(error));
            }
        };
        let mut offsets = (0..job.attributes.size).step_by(CHUNK);
        let compared = loop {
            let Some(offset) = offsets.next() else { break Ok(true) };
            let _permit = self.chunks.take().await;
            let reads = (self.from.read(&one, offset, CHUNK), self.to.read(&other, offset, CHUNK));
            match futures_util::future::join(reads.0, reads.1).await {
                (Ok(one), Ok(other)) if one == other => {}
                (Ok(_), Ok(_)) => break Ok(false),
                (Err(error), _) => break Err(CopyError::Source(error)),
                (_, Err(error)) => break Err(CopyError::Target(error)),
            }
        };
        let closed = (self.from.close(one).await, self.to.close(other).await);
        let same = compared?;
        closed.0.map_err(CopyError::Source)?;
        closed.1.map_err(CopyError::Target)?;
        Ok(same)
    }

    async fn file(&self, job: &Job) -> Result<(), Failed<S, D>> {
        let Job { source, target, attributes, .. } = job;
        if self.is_same(job).await? {
            self.report.copied(attributes.size);
            return Ok(());
        }
        let reader = self.from.open(source).await.map_err(CopyError::Source)?;
        let mode = attributes.mode & 0o777 & !self.options.umask;
        // Others do not see the content before owner and mode are set.
        let mode = if self.options.preserves { mode & OWNER_BITS | 0o200 } else { mode };
        let copied = match self.to.create(target, mode).await {
            Ok(writer) => {
                let data = match self.by_server(&reader, &writer, attributes).await {
                    Ok(true) => Ok(()),
                    Ok(false) => self.data(&reader, &writer, attributes).await,
                    Err(error) => Err(error),
                };
                let new = if self.options.preserves && data.is_ok() {
                    self.preserved(attributes)
                } else {
                    NewAttributes::default()
                };
                // The written part of a failed file is not extended with zeros.
                let size = if data.is_ok() { attributes.size } else { 0 };
                let finished = self.to.finish(writer, size, &new).await;
                data.and(finished.map_err(CopyError::Target))
            }
            Err(error) => Err(CopyError::Target(error)),
        };
        let closed = self.from.close(reader).await;
        copied.and(closed.map_err(CopyError::Source))
    }

    /// Lets the server copy one of its files. Returns whether it did.
    async fn by_server(
        &self,
        reader: &S::Reader,
        writer: &D::Writer,
        attributes: &Attributes,
    ) -> Result<bool, Failed<S, D>> {
        let reflink = self.options.reflink;
        let (from, to) = (self.from.at_server(), self.to.at_server());
        let files = (S::reader_at_server(reader), D::writer_at_server(writer));
        let (Some(from), Some(to), (Some(reader), Some(writer))) = (from, to, files) else {
            return match reflink {
                Reflink::Always => Err(CopyError::Refused(Refusal::OtherServer)),
                Reflink::Auto | Reflink::Never => Ok(false),
            };
        };
        if reflink == Reflink::Always && !from.shares_server(to) {
            return Err(CopyError::Refused(Refusal::OtherServer));
        }
        if reflink == Reflink::Never || attributes.size == 0 || !from.shares_server(to) {
            return Ok(false);
        }
        let what = (attributes.size, self.options.preserves);
        let done = self.unsupported.copy((from, reader), (to, writer), what, reflink).await;
        let Some(how) = done.map_err(CopyError::AtServer)? else { return Ok(false) };
        self.report.by_server(how);
        self.report.copied(attributes.size);
        Ok(true)
    }

    /// Copies the content of a file, with many chunks under way.
    ///
    /// # Errors
    /// Also if the file has become shorter meanwhile.
    async fn data(
        &self,
        reader: &S::Reader,
        writer: &D::Writer,
        attributes: &Attributes,
    ) -> Result<(), Failed<S, D>> {
        let size = attributes.size;
        let has_holes = attributes.used.saturating_add(HOLE as u64) <= size;
        let read =
            async |offset, length| self.from.read(reader, offset, length).await.map_err(CopyError::Source);
        let shorter = || CopyError::Refused(Refusal::Shorter { size });
        let mut offset = 0;
        while let Some((begins, ends)) =
            self.from.next_data(reader, offset, size).await.map_err(CopyError::Source)?
        {
            let ends = ends.min(size);
            if begins >= ends {
                break;
            }
            let offsets = (begins..ends).step_by(CHUNK).map(Ok::<u64, Failed<S, D>>);
            let chunks = stream::iter(offsets).try_for_each_concurrent(CHUNKS_OF_FILE, async |offset| {
                let _permit = self.chunks.take().await;
                let length = usize::try_from(ends - offset).unwrap_or(CHUNK).min(CHUNK);
                let data = read(offset, length).await?;
                if data.len() < length {
                    return Err(shorter());
                }
                self.report.copied(data.len() as u64);
                self.write(writer, offset, data, has_holes).await.map_err(CopyError::Target)
            });
            chunks.await?;
            offset = ends;
        }
        // The rest is a hole only if the file still has that length.
        if offset < size && read(size - 1, 1).await?.is_empty() {
            return Err(shorter());
        }
        Ok(())
    }

    /// Writes a chunk, without its zeros if the source has holes.
    async fn write(
        &self,
        writer: &D::Writer,
        offset: u64,
        data: Bytes,
        has_holes: bool,
    ) -> Result<(), D::Error> {
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
    async fn special(&self, job: &Job) -> Result<(), Failed<S, D>> {
        let Job { source, target, attributes, found, .. } = job;
        if !self.options.is_recursive {
            return Err(CopyError::Refused(Refusal::NotRegular));
        }
        if found.is_some() {
            self.clear(target).await?;
        }
        let made = if attributes.kind == FileKind::Symlink {
            let link = self.from.read_link(source).await.map_err(CopyError::Source)?;
            self.to.make_link(target, &link).await
        } else {
            self.to.make_special(target, attributes).await
        };
        made.map_err(CopyError::Target)?;
        if self.options.preserves {
            let set = self.to.set_attributes(target, &self.preserved(attributes)).await;
            set.map_err(CopyError::Target)
        } else {
            Ok(())
        }
    }
}

/// Returns whether two times are the same as far as both are known: version 2 has microseconds only.
fn is_same_time(one: Timestamp, other: Timestamp) -> bool {
    let micros = |time: Timestamp| (time.seconds, time.nanoseconds / 1000);
    let has_micros_only = [one, other].iter().any(|time| time.nanoseconds % 1000 == 0);
    one == other || (has_micros_only && micros(one) == micros(other))
}

/// Returns the bytes that are copied of an object.
fn data_size(attributes: &Attributes) -> u64 {
    if attributes.kind == FileKind::Regular { attributes.size } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_microseconds_are_compared_as_such() {
        let same = |one, other| {
            let time = |nanoseconds| Timestamp { seconds: 1, nanoseconds };
            is_same_time(time(one), time(other)) && is_same_time(time(other), time(one))
        };
        assert!(same(1_234_567, 1_234_567) && same(1_234_567, 1_234_000));
        assert!(!same(1_234_567, 1_234_568) && !same(1_234_567, 1_235_000) && !same(1_234_999, 1_235_000));
    }
}
