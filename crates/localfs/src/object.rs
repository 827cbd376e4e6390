//! Objects in use, each with one open descriptor, known by handle.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, UnitWeighter};
use vfs::{Error, FileKind, Handle, RangeSource, Timestamp};

use crate::descriptors::Counted;
use crate::lock::{Lockable, ObjectLock};
use crate::patience;
use crate::sync_state::{Begun, Dirt};

/// What a descriptor may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// `O_PATH`: attributes, and names relative to it.
    Path,
    /// Reading too.
    Read,
    /// Writing, but not reading: only where a server without root's powers may not read its own file.
    Write,
    /// Reading and writing.
    ReadWrite,
}

impl Reach {
    /// Whether content can be read.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Whether content can be written.
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

/// A descriptor and what it is good for.
#[derive(Debug)]
pub(crate) struct OpenFile {
    fd: OwnedFd,
    /// Reading it has failed.
    is_unsound: AtomicBool,
    /// What it may be used for.
    pub(crate) reach: Reach,
    /// Dropped behind the descriptor.
    _counted: Counted,
}

impl OpenFile {
    pub(crate) fn new(fd: OwnedFd, reach: Reach, counted: Counted) -> Self {
        Self { fd, is_unsound: AtomicBool::new(false), reach, _counted: counted }
    }

    /// A name that leads to the very same object, for calls that take no O_PATH descriptor; good while this one is open.
    pub(crate) fn name_in_proc(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// Whether reading has failed: what cannot be read is told by READ, not found out by splicing.
    pub(crate) fn is_unsound(&self) -> bool {
        self.is_unsound.load(Ordering::Relaxed)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl RangeSource for OpenFile {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn failed(&self) {
        self.is_unsound.store(true, Ordering::Relaxed);
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&self.fd, &mut into[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(rustix::io::Errno::INTR) => {}
                // The length is promised already; what cannot be read now becomes zeros, as sendfile's caller would
                // fill it, and the next READ reports the error.
                Err(_) => break,
            }
        }
        into[done..].fill(0);
    }
}

/// READs that must find everything before a file that missed something is spliced again.
const DOUBTS: u32 = 16;

/// In the count of pins: nobody looks for this object any more.
const LET_GO: u32 = 1 << 31;
/// In the count of pins: it was seen without a name while an open held it.
const NAMELESS: u32 = 1 << 30;
const COUNT: u32 = NAMELESS - 1;

/// What an open that lets go leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unpinned {
    /// Others hold the object.
    Held,
    /// Nobody does, and nobody has seen that it has no name any more.
    Last,
    /// Nobody does, and it has no name.
    LastOfNameless,
}

/// What READs have found of a file in the page cache.
#[derive(Debug, Default)]
pub(crate) struct Residence {
    /// READs to copy before the next splice.
    doubts: AtomicU32,
    /// The [`era`](patience::era) in which data were last shown to be there.
    proven: AtomicU32,
}

impl Residence {
    /// A READ found something missing.
    pub(crate) fn missed(&self) {
        self.doubts.store(DOUBTS, Ordering::Relaxed);
        self.proven.store(0, Ordering::Relaxed);
    }

    /// A READ found everything.
    pub(crate) fn hit(&self) {
        let doubts = self.doubts.load(Ordering::Relaxed);
        if doubts > 0 {
            // Two at once may count as one, or as one after a miss: doubts cost a copy, no more.
            self.doubts.store(doubts - 1, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubts.load(Ordering::Relaxed) > 0
    }

    /// Data were shown to be there.
    pub(crate) fn proven(&self) {
        self.proven.store(patience::era(), Ordering::Relaxed);
    }

    pub(crate) fn is_proven(&self) -> bool {
        patience::is_recent(self.proven.load(Ordering::Relaxed), patience::era())
    }
}

/// A file, directory or other object that some request has used.
///
/// It holds exactly one descriptor, replaced when a request needs more of it. There is at most one `Object` a handle:
/// the cache never lets go of one that is in use or dirty, so that what is remembered here (dirt above all)
/// is remembered once. One that an open pins stays too, unless descriptors are short ([`Objects::close_pinned`]).
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) handle: Handle,
    pub(crate) kind: FileKind,
    /// Held while the object is changed and looked at before and after, so that both attributes and the change are one unit.
    pub(crate) lock: ObjectLock,
    /// As told to clients.
    pub(crate) fsid: u64,
    /// Device and inode number, while this server runs.
    pub(crate) key: (u64, u64),
    /// What is not on stable storage yet.
    pub(crate) dirt: Dirt,
    /// When it was created, where the file system keeps that.
    pub(crate) created: Option<Timestamp>,
    /// Whether it is sealed, and the change time for which that is known: nanoseconds << 1 | is sealed; 0 if unknown.
    pub(crate) sealed: AtomicU64,
    /// Whether there is an ACL, and the change time for which that is known: nanoseconds << 1 | has one; 0 if unknown.
    pub(crate) acl: AtomicU64,
    /// The janitor's clock at the last write.
    pub(crate) last_write: AtomicU32,
    /// A directory: the last [`era`](crate::patience::era) in which an entry was looked for on the disk. A file: in which
    /// what a write needs to know of it was read.
    pub(crate) visited: AtomicU32,
    pub(crate) residence: Residence,
    /// Number of the page in which the last write ended, plus one.
    pub(crate) last_page: AtomicU64,
    pins: AtomicU32,
    /// The janitor will look whether it has a name.
    awaits_look: AtomicBool,
    file: RwLock<Arc<OpenFile>>,
}

impl Object {
    pub(crate) fn new(
        handle: Handle,
        kind: FileKind,
        fsid: u64,
        (key, created): ((u64, u64), Option<Timestamp>),
        file: OpenFile,
        dirt: Dirt,
    ) -> Self {
        Self {
            handle,
            kind,
            lock: ObjectLock::default(),
            fsid,
            key,
            dirt,
            created,
            sealed: AtomicU64::new(0),
            acl: AtomicU64::new(0),
            last_write: AtomicU32::new(0),
            visited: AtomicU32::new(0),
            residence: Residence::default(),
            last_page: AtomicU64::new(0),
            pins: AtomicU32::new(0),
            awaits_look: AtomicBool::new(false),
            file: RwLock::new(Arc::new(file)),
        }
    }

    /// The descriptor, whatever it is good for.
    pub(crate) fn file(&self) -> Arc<OpenFile> {
        Arc::clone(&self.file.read())
    }

    /// The descriptor, lent for a short call. Where that may wait, no lock is held meanwhile.
    pub(crate) fn with_fd<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        if patience::may_wait() {
            return call(self.file().as_fd());
        }
        call(self.file.read().as_fd())
    }

    /// The descriptor, lent for a call that does not wait: fstat(2) and the like.
    #[inline]
    pub(crate) fn lend<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        call(self.file.read().as_fd())
    }

    /// A descriptor that can write, and the change that is about to be made with it; `None` where the present descriptor
    /// cannot. From here on the object is dirty and keeps this descriptor.
    pub(crate) fn begin_change(&self) -> Option<(Arc<OpenFile>, Begun<'_>)> {
        let file = self.file.read();
        file.reach.writes().then(|| (Arc::clone(&file), self.dirt.begin()))
    }

    /// Replaces the descriptor by a better one, unless another thread has done so. `better` is called with the present
    /// one under the lock, and may decline.
    pub(crate) fn replace_file(
        &self,
        better: impl FnOnce(&OpenFile) -> Result<Option<OpenFile>, Error>,
    ) -> Result<Arc<OpenFile>, Error> {
        let mut slot = self.file.write();
        if let Some(file) = better(&slot)? {
            *slot = Arc::new(file);
        }
        Ok(Arc::clone(&slot))
    }

    /// Fails unless it is a directory.
    pub(crate) fn require_directory(&self) -> Result<(), Error> {
        if self.kind == FileKind::Directory { Ok(()) } else { Err(Error::NotDirectory) }
    }

    /// Fails unless it is a regular file.
    pub(crate) fn require_regular(&self) -> Result<(), Error> {
        match self.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::WrongKind),
        }
    }

    /// Whether its descriptor may be closed although an open pins it: the handle finds it again, since it has a name.
    pub(crate) fn can_be_found_again(&self) -> bool {
        // Not by a lock that is waited for: a thread that opens it anew may itself be making room.
        let linked =
            |file: &Arc<OpenFile>| rustix::fs::fstat(&**file).is_ok_and(|status| status.st_nlink > 0);
        self.kind == FileKind::Regular
            && self.pins.load(Ordering::Acquire) & (LET_GO | NAMELESS) == 0
            && self.file.try_read().is_some_and(|file| linked(&file))
    }

    /// Whether an open holds it.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins() > 0
    }

    /// How many opens hold it.
    pub(crate) fn pins(&self) -> u32 {
        self.pins.load(Ordering::Acquire) & COUNT
    }

    /// An open holds it from now on; false where it is too late for that to keep what has lost its last name
    /// ([`Self::let_go`]).
    #[cfg(test)]
    pub(crate) fn pin(&self) -> bool {
        self.pins.fetch_add(1, Ordering::AcqRel) & LET_GO == 0
    }

    /// An open lets go.
    pub(crate) fn unpin(&self) -> Unpinned {
        let before = self.pins.fetch_sub(1, Ordering::AcqRel);
        match before & COUNT {
            1 if before & (LET_GO | NAMELESS) != 0 => Unpinned::LastOfNameless,
            1 => Unpinned::Last,
            _ => Unpinned::Held,
        }
    }

    /// Gives up what was seen without a name, so that an open that comes later is told so. False where one holds it: then the
    /// last of them is told when it lets go.
    pub(crate) fn let_go(&self) -> bool {
        let nameless = |pins: u32| Some(if pins & COUNT == 0 { pins | LET_GO } else { pins | NAMELESS });
        let before = self.pins.fetch_update(Ordering::AcqRel, Ordering::Acquire, nameless);
        before.is_ok_and(|pins| pins & COUNT == 0)
    }

    /// Whether somebody will look whether it has a name still, without being asked once more.
    pub(crate) fn await_look(&self) -> bool {
        !self.awaits_look.load(Ordering::Relaxed) && !self.awaits_look.swap(true, Ordering::AcqRel)
    }

    /// Somebody looks.
    pub(crate) fn begin_look(&self) {
        self.awaits_look.store(false, Ordering::Release);
    }
}

impl Lockable for Object {
    fn object_lock(&self) -> &ObjectLock {
        &self.lock
    }
}

/// Lends the descriptors of two objects, which may be one. No lock is held meanwhile: a thread that asks for a
/// `RwLock` it reads already waits for ever once another waits to write.
pub(crate) fn with_both<T>(
    one: &Object,
    other: &Object,
    call: impl FnOnce(BorrowedFd<'_>, BorrowedFd<'_>) -> T,
) -> T {
    let (one, other) = (one.file(), other.file());
    call(one.as_fd(), other.as_fd())
}

/// Keeps what must not be forgotten.
#[derive(Debug, Clone)]
pub(crate) struct KeepUsed;

impl Lifecycle<Handle, Arc<Object>> for KeepUsed {
    /// What the request evicted: closed after the shard's lock is let go.
    type RequestState = Vec<Arc<Object>>;

    // A clone is taken only under the lock of the cache's shard, which eviction holds too: who is counted once here
    // cannot get another user before it is gone.
    fn is_pinned(&self, _: &Handle, object: &Arc<Object>) -> bool {
        Arc::strong_count(object) > 1 || object.is_pinned() || object.dirt.is_dirty()
    }

    fn on_evict(&self, evicted: &mut Self::RequestState, _: Handle, object: Arc<Object>) {
        evicted.push(object);
    }
}

type Cache = quick_cache::sync::Cache<Handle, Arc<Object>, UnitWeighter, DefaultHashBuilder, KeepUsed>;

/// Locks under which objects come into a cache.
const ARRIVALS: usize = 16;

/// Objects by handle, one for each.
pub(crate) struct Objects {
    cache: Cache,
    /// Each for a part of all handles.
    arrivals: [Mutex<()>; ARRIVALS],
    /// Files that opens pin although their descriptors were closed: how many opens each.
    closed: Mutex<HashMap<Handle, u32>>,
    /// How many there are, for those who come without the lock. Raised before a file leaves the cache.
    closed_count: AtomicUsize,
    /// Objects here that opens pin.
    pinned: AtomicUsize,
}

impl Objects {
    /// Holds `capacity` objects that nobody uses now, and all that are in use.
    pub(crate) fn new(capacity: usize) -> Self {
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(capacity).weight_capacity(capacity as u64);
        // Shards divide the capacity; few large ones let a small cache hold what it says.
        options.shards(if capacity < 1024 { 1 } else { 16 });
        let options = options.build().unwrap_or_else(|_| unreachable!("both capacities are given"));
        let cache = Cache::with_options(options, UnitWeighter, DefaultHashBuilder::default(), KeepUsed);
        Self {
            cache,
            arrivals: Default::default(),
            closed: Mutex::default(),
            closed_count: AtomicUsize::new(0),
            pinned: AtomicUsize::new(0),
        }
    }

    /// Holds `capacity` objects from now on.
    pub(crate) fn set_capacity(&self, capacity: usize) {
        if self.cache.capacity() != capacity as u64 {
            self.cache.set_capacity(capacity as u64);
        }
    }

    /// Objects here that opens pin.
    pub(crate) fn pinned(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Whether every pinned file has its descriptor.
    #[cfg(test)]
    pub(crate) fn closed_is_empty(&self) -> bool {
        self.closed.lock().is_empty() && self.closed_count.load(Ordering::Acquire) == 0
    }

    /// Has one more open pin `object`; false where it was [let go of](Object::let_go) before, which pins nothing.
    pub(crate) fn pin(&self, object: &Arc<Object>) -> bool {
        let before = object.pins.fetch_add(1, Ordering::AcqRel);
        if before & LET_GO != 0 {
            object.unpin();
            return false;
        }
        if before & COUNT == 0 {
            self.pinned.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// An open lets go of the object of `handle`. Returns it, unless its descriptor was closed meanwhile.
    pub(crate) fn unpin(&self, handle: &Handle) -> Option<(Arc<Object>, Unpinned)> {
        let object = match self.cache.peek(handle) {
            Some(object) => object,
            None => {
                let mut closed = self.closed.lock();
                if let Some(pins) = closed.get_mut(handle) {
                    *pins -= 1;
                    if *pins == 0 {
                        closed.remove(handle);
                        self.closed_count.fetch_sub(1, Ordering::Release);
                    }
                    return None;
                }
                // It came back in between.
                self.cache.peek(handle)?
            }
        };
        let unpinned = object.unpin();
        if unpinned != Unpinned::Held {
            self.pinned.fetch_sub(1, Ordering::Relaxed);
        }
        Some((object, unpinned))
    }

    /// Closes the descriptor of `object`, which opens pin, of which the caller has one clone and nobody else any. The pins count
    /// for the object that the next request makes of the handle. False where it stays.
    pub(crate) fn close_pinned(&self, object: &Arc<Object>) -> bool {
        let mut closed = self.closed.lock();
        self.closed_count.fetch_add(1, Ordering::Release);
        let is_idle = |kept: &Arc<Object>| {
            Arc::ptr_eq(kept, object) && Arc::strong_count(kept) == 2 && !kept.dirt.is_dirty()
        };
        // Behind this nobody changes the pins: for that one needs the object, or the lock above.
        let is_closed = self.cache.remove_if(&object.handle, is_idle).is_some();
        match object.pins() {
            pins if is_closed && pins > 0 => {
                closed.insert(object.handle, pins);
                self.pinned.fetch_sub(1, Ordering::Relaxed);
            }
            _ => _ = self.closed_count.fetch_sub(1, Ordering::Release),
        }
        is_closed
    }

    pub(crate) fn len(&self) -> usize {
        self.cache.len()
    }

    pub(crate) fn get(&self, handle: &Handle) -> Option<Arc<Object>> {
        self.cache.get(handle)
    }

    /// The same without counting as use.
    pub(crate) fn peek(&self, handle: &Handle) -> Option<Arc<Object>> {
        self.cache.peek(handle)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<Object>> {
        self.cache.iter().map(|(_, object)| object)
    }

    /// Puts in the first object of its handle.
    pub(crate) fn put(&self, object: Arc<Object>) {
        self.cache.insert(object.handle, object);
    }

    /// What `make` makes of `file`, put in; or the object that is there, and `file`.
    // Not by the cache's own way to do this, which allocates something to wait for and takes its lock twice more.
    pub(crate) fn get_or_make<T>(
        &self,
        handle: &Handle,
        file: T,
        make: impl FnOnce(T) -> Object,
    ) -> Result<Arc<Object>, (Arc<Object>, T)> {
        let part = handle.iter().fold(0, |part, byte| part ^ byte);
        let arrival = self.arrivals[usize::from(part) % ARRIVALS].lock();
        if let Some(present) = self.cache.get(handle) {
            return Err((present, file));
        }
        let object = Arc::new(make(file));
        let mut evicted = Vec::new();
        // Until it is in the cache: an open that lets go looks in both places.
        let closed = (self.closed_count.load(Ordering::Acquire) > 0).then(|| self.closed.lock());
        if let Some(mut closed) = closed
            && let Some(pins) = closed.remove(handle)
        {
            self.closed_count.fetch_sub(1, Ordering::Release);
            self.pinned.fetch_add(1, Ordering::Relaxed);
            object.pins.fetch_add(pins, Ordering::AcqRel);
            self.cache.insert_with_lifecycle(*handle, Arc::clone(&object), &mut evicted);
            return Ok(object);
        }
        // Held here as well, it counts as used, and the cache cannot let it go while it is put in.
        self.cache.insert_with_lifecycle(*handle, Arc::clone(&object), &mut evicted);
        // What gave way is closed behind the lock.
        drop(arrival);
        Ok(object)
    }

    pub(crate) fn remove(&self, handle: &Handle) {
        self.cache.remove(handle);
    }

    /// Lets go of an object as if there were no room for it, unless it [must stay](KeepUsed) for others than the caller, who has one clone. False where
    /// it stays.
    pub(crate) fn remove_unused(&self, object: &Arc<Object>) -> bool {
        let is_unused = |kept: &Arc<Object>| {
            Arc::ptr_eq(kept, object)
                && Arc::strong_count(kept) == 2
                && !kept.is_pinned()
                && !kept.dirt.is_dirty()
        };
        self.cache.remove_if(&object.handle, is_unused).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: u8) -> Arc<Object> {
        let file = tempfile::tempfile().expect("temporary file");
        let handle = Handle::new(&[number]).expect("short");
        let open = OpenFile::new(file.into(), Reach::ReadWrite, Counted::apart());
        let dirt = Dirt::new(&Arc::default());
        Arc::new(Object::new(handle, FileKind::Regular, 1, ((1, u64::from(number)), None), open, dirt))
    }

    #[test]
    fn the_cache_holds_its_number_and_forgets_only_the_unused() {
        let cache = Objects::new(8);
        let used = object(0);
        cache.put(Arc::clone(&used));
        let dirty = object(1);
        dirty.dirt.begin().made();
        cache.put(dirty);
        for number in 2..200 {
            cache.put(object(number));
        }
        assert!(cache.len() <= 8, "{} objects", cache.len());
        assert!(cache.get(&Handle::new(&[0]).expect("short")).is_some_and(|kept| Arc::ptr_eq(&kept, &used)));
        assert!(cache.get(&Handle::new(&[1]).expect("short")).is_some(), "dirty ones are kept");
    }

    #[test]
    fn an_open_keeps_an_object_or_comes_too_late() {
        let kept = object(1);
        assert!(kept.pin() && kept.pin());
        assert_eq!((kept.unpin(), kept.unpin()), (Unpinned::Held, Unpinned::Last));
        assert!(kept.pin() && !kept.let_go(), "an open holds it");
        assert!(kept.pin(), "and so may another");
        assert_eq!((kept.unpin(), kept.unpin()), (Unpinned::Held, Unpinned::LastOfNameless));
        assert!(kept.let_go() && kept.let_go(), "nobody holds it");
        assert!(!kept.pin() && kept.pins() == 1, "too late");
        assert_eq!(kept.unpin(), Unpinned::LastOfNameless);
        assert!(!kept.is_pinned());
    }

    #[test]
    fn a_handle_has_one_object_whoever_brings_it() {
        let cache = Objects::new(8);
        let handle = Handle::new(&[7]).expect("short");
        let bring = || {
            std::thread::scope(|scope| {
                let brought: Vec<_> = (0..4)
                    .map(|number| {
                        let cache = &cache;
                        scope.spawn(move || {
                            let made = cache.get_or_make(&handle, number, |_| {
                                Arc::into_inner(object(7)).expect("nobody else's")
                            });
                            made.map(|made| (made, true)).unwrap_or_else(|(there, back)| {
                                assert_eq!(back, number);
                                (there, false)
                            })
                        })
                    })
                    .collect();
                brought.into_iter().map(|thread| thread.join().expect("thread")).collect::<Vec<_>>()
            })
        };
        for round in 0..50 {
            let all = bring();
            assert_eq!(all.iter().filter(|(_, is_made)| *is_made).count(), 1, "round {round}");
            assert!(all.iter().all(|(one, _)| Arc::ptr_eq(one, &all[0].0)));
            cache.remove(&handle);
        }
    }

    #[test]
    fn a_change_is_dirt_before_the_descriptor_is_handed_out() {
        let object = object(1);
        assert!(!object.dirt.is_dirty());
        let (file, begun) = object.begin_change().expect("open for writing");
        assert!(object.dirt.is_dirty() && file.reach.writes());
        drop(begun);
        assert!(!object.dirt.is_dirty(), "nothing was changed");
    }

    #[test]
    fn two_lent_descriptors_leave_no_lock_behind_which_a_writer_could_queue() {
        let (one, other) = (object(1), object(2));
        with_both(&one, &other, |_, _| {
            assert!(one.file.try_write().is_some() && other.file.try_write().is_some());
        });
        with_both(&one, &one, |first, second| assert_eq!(first.as_raw_fd(), second.as_raw_fd()));
    }

    #[test]
    fn a_file_that_missed_something_is_copied_until_enough_reads_found_everything() {
        let residence = Residence::default();
        residence.proven();
        residence.missed();
        assert!(residence.is_doubtful() && !residence.is_proven());
        for _ in 0..DOUBTS {
            assert!(residence.is_doubtful());
            residence.hit();
        }
        assert!(!residence.is_doubtful() && !residence.is_proven(), "to be proven anew");
    }

    #[test]
    fn a_range_that_shrank_reads_as_zeros() {
        let object = object(1);
        let file = object.file();
        rustix::io::pwrite(&file, b"abc", 0).expect("write");
        let mut into = [7; 5];
        file.read_at(1, &mut into);
        assert_eq!(&into, b"bc\0\0\0");
    }
}
