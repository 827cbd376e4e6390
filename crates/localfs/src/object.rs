//! Objects in use, each with one open descriptor, found by handle.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, UnitWeighter};
use vfs::{Error, FileKind, Handle, RangeSource, Timestamp};

use crate::descriptors::Counted;
use crate::early_flush::EarlyFlush;
use crate::lock::{Lockable, ObjectLock};
use crate::nonblocking;
use crate::sync_state::{PendingChange, SyncState};

/// The permitted uses of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// `O_PATH`: attributes, and names relative to it.
    Path,
    /// Also reading.
    Read,
    /// Writing, but not reading: only if a server without root's capabilities may not read its own file.
    Write,
    /// Reading and writing.
    ReadWrite,
}

impl Reach {
    /// Returns whether content can be read.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// Returns whether content can be written.
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }
}

/// A descriptor and its permitted uses.
#[derive(Debug)]
pub(crate) struct OpenFile {
    fd: OwnedFd,
    /// Whether a read of it has failed.
    has_failed_read: AtomicBool,
    /// Its permitted uses.
    pub(crate) reach: Reach,
    /// Dropped after the descriptor.
    _counted: Counted,
}

impl OpenFile {
    pub(crate) fn new(fd: OwnedFd, reach: Reach, counted: Counted) -> Self {
        Self { fd, has_failed_read: AtomicBool::new(false), reach, _counted: counted }
    }

    /// Returns a path that leads to the same object, for calls that take no O_PATH descriptor. Valid while this
    /// descriptor is open.
    pub(crate) fn name_in_proc(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// Returns whether a read has failed. READ must report such an error; a splice would find it too late.
    pub(crate) fn has_failed_read(&self) -> bool {
        self.has_failed_read.load(Ordering::Relaxed)
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
        self.has_failed_read.store(true, Ordering::Relaxed);
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&self.fd, &mut into[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(rustix::io::Errno::INTR) => {}
                // The reply contains the length already. Unreadable data become zeros, as sendfile's caller would
                // fill it, and the next READ reports the error.
                Err(_) => break,
            }
        }
        into[done..].fill(0);
    }
}

/// READs that are copied, and must find everything cached, after a READ that did not.
const COPIES_AFTER_MISS: u32 = 16;

/// Flag in the count of pins: the cache has released this object.
const RELEASED: u32 = 1 << 31;
/// Flag in the count of pins: the object was seen without a name while an open held it.
const NAMELESS: u32 = 1 << 30;
const COUNT: u32 = NAMELESS - 1;

/// The state after an open has released its pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unpinned {
    /// Other opens hold the object.
    Held,
    /// No open holds it, and it was not seen without a name.
    Last,
    /// No open holds it, and it has no name.
    LastOfNameless,
}

/// The part of a file that READs have found in the page cache.
#[derive(Debug, Default)]
pub(crate) struct CacheHistory {
    /// READs to copy before the next splice.
    copies_left: AtomicU32,
    /// The [`minute`](nonblocking::minute) in which data were last seen to be cached.
    known_cached: AtomicU32,
}

impl CacheHistory {
    /// Notes that a READ found something missing.
    pub(crate) fn missed(&self) {
        self.copies_left.store(COPIES_AFTER_MISS, Ordering::Relaxed);
        self.known_cached.store(0, Ordering::Relaxed);
    }

    /// Notes that a READ found everything.
    pub(crate) fn hit(&self) {
        let copies_left = self.copies_left.load(Ordering::Relaxed);
        if copies_left > 0 {
            // Two concurrent updates may count as one, or as one after a miss. That costs at most a copy.
            self.copies_left.store(copies_left - 1, Ordering::Relaxed);
        }
    }

    pub(crate) fn must_copy(&self) -> bool {
        self.copies_left.load(Ordering::Relaxed) > 0
    }

    /// Notes that data were seen to be cached.
    pub(crate) fn mark_cached(&self) {
        self.known_cached.store(nonblocking::minute(), Ordering::Relaxed);
    }

    pub(crate) fn is_known_cached(&self) -> bool {
        nonblocking::is_recent(self.known_cached.load(Ordering::Relaxed), nonblocking::minute())
    }
}

/// A file, directory or other object that some request has used.
///
/// It has exactly one descriptor, which is replaced when a request needs more access. There is at most one `Object`
/// per handle: the cache never evicts one that is in use or dirty, so that its state, above all its unsynced changes,
/// exists once. An object that an open pins is not evicted either, unless descriptors are short ([`Objects::close_pinned`]).
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) handle: Handle,
    pub(crate) kind: FileKind,
    /// Held from reading the attributes before a change until reading those after it, so that both and the change are
    /// one unit.
    pub(crate) lock: ObjectLock,
    /// The handle for clients.
    pub(crate) fsid: u64,
    /// Device and inode number, while this server runs.
    pub(crate) key: (u64, u64),
    /// The changes that are not durable yet.
    pub(crate) sync_state: SyncState,
    /// When it was created, if the file system keeps that.
    pub(crate) created: Option<Timestamp>,
    /// Whether it is immutable, and the change time for which that is known: nanoseconds << 1 | is immutable; 0 if
    /// unknown.
    pub(crate) immutable: AtomicU64,
    /// Whether there is an ACL, and the change time for which that is known: nanoseconds << 1 | has one; 0 if
    /// unknown.
    pub(crate) acl: AtomicU64,
    /// The cleanup round of the last write.
    pub(crate) last_write: AtomicU32,
    /// For a directory the last [`minute`](crate::nonblocking::minute) in which an entry was looked up on the disk.
    /// For a file the last one in which its blocks became known.
    pub(crate) cached_minute: AtomicU32,
    pub(crate) cache_history: CacheHistory,
    /// Number of the page in which the last write ended, plus one.
    pub(crate) last_page: AtomicU64,
    pub(crate) early_flush: EarlyFlush,
    pins: AtomicU32,
    /// Whether the cleanup thread will check if it still has a name.
    is_check_queued: AtomicBool,
    file: RwLock<Arc<OpenFile>>,
}

impl Object {
    pub(crate) fn new(
        handle: Handle,
        kind: FileKind,
        fsid: u64,
        (key, created): ((u64, u64), Option<Timestamp>),
        file: OpenFile,
        sync_state: SyncState,
    ) -> Self {
        Self {
            handle,
            kind,
            lock: ObjectLock::default(),
            fsid,
            key,
            sync_state,
            created,
            immutable: AtomicU64::new(0),
            acl: AtomicU64::new(0),
            last_write: AtomicU32::new(0),
            cached_minute: AtomicU32::new(0),
            cache_history: CacheHistory::default(),
            last_page: AtomicU64::new(0),
            early_flush: EarlyFlush::default(),
            pins: AtomicU32::new(0),
            is_check_queued: AtomicBool::new(false),
            file: RwLock::new(Arc::new(file)),
        }
    }

    /// Returns the descriptor, regardless of its permitted uses.
    pub(crate) fn file(&self) -> Arc<OpenFile> {
        Arc::clone(&self.file.read())
    }

    /// Lends the descriptor for a short call. No lock is held if the call may block.
    pub(crate) fn with_fd<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        if nonblocking::may_block() {
            return call(self.file().as_fd());
        }
        call(self.file.read().as_fd())
    }

    /// Lends the descriptor for a call that does not block, such as fstat(2).
    #[inline]
    pub(crate) fn lend<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        call(self.file.read().as_fd())
    }

    /// Returns a writable descriptor, and the change that is about to be made with it; `None` if the present
    /// descriptor is not writable. From here on the object is dirty and keeps this descriptor.
    pub(crate) fn begin_change(&self) -> Option<(Arc<OpenFile>, PendingChange<'_>)> {
        let file = self.file.read();
        file.reach.writes().then(|| (Arc::clone(&file), self.sync_state.begin_change()))
    }

    /// Replaces the descriptor by a better one, unless another thread has done so. `better` gets the present one,
    /// under the lock, and may decline.
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

    /// Returns whether its descriptor may be closed although an open pins it: it has a name, so that its handle finds it
    /// again.
    pub(crate) fn can_be_found_again(&self) -> bool {
        // This must not wait for the lock: a thread that opens the object may itself be closing descriptors.
        let linked =
            |file: &Arc<OpenFile>| rustix::fs::fstat(&**file).is_ok_and(|status| status.st_nlink > 0);
        self.kind == FileKind::Regular
            && self.pins.load(Ordering::Acquire) & (RELEASED | NAMELESS) == 0
            && self.file.try_read().is_some_and(|file| linked(&file))
    }

    /// Returns whether an open holds it.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins() > 0
    }

    /// Returns the number of opens that hold it.
    pub(crate) fn pins(&self) -> u32 {
        self.pins.load(Ordering::Acquire) & COUNT
    }

    /// Pins it for an open. Returns false if the cache has [released](Self::release) it before.
    #[cfg(test)]
    pub(crate) fn pin(&self) -> bool {
        self.pins.fetch_add(1, Ordering::AcqRel) & RELEASED == 0
    }

    /// Releases the pin of an open.
    pub(crate) fn unpin(&self) -> Unpinned {
        let before = self.pins.fetch_sub(1, Ordering::AcqRel);
        match before & COUNT {
            1 if before & (RELEASED | NAMELESS) != 0 => Unpinned::LastOfNameless,
            1 => Unpinned::Last,
            _ => Unpinned::Held,
        }
    }

    /// Releases an object that was seen without a name, so that later opens fail. Returns false if an open holds
    /// it: then the last of them releases it.
    pub(crate) fn release(&self) -> bool {
        let nameless = |pins: u32| Some(if pins & COUNT == 0 { pins | RELEASED } else { pins | NAMELESS });
        let before = self.pins.fetch_update(Ordering::AcqRel, Ordering::Acquire, nameless);
        before.is_ok_and(|pins| pins & COUNT == 0)
    }

    /// Returns true if the caller has to queue a check whether the object still has a name.
    pub(crate) fn queue_check(&self) -> bool {
        !self.is_check_queued.load(Ordering::Relaxed) && !self.is_check_queued.swap(true, Ordering::AcqRel)
    }

    /// Notes that the check begins.
    pub(crate) fn begin_check(&self) {
        self.is_check_queued.store(false, Ordering::Release);
    }
}

impl Lockable for Object {
    fn object_lock(&self) -> &ObjectLock {
        &self.lock
    }
}

/// Lends the descriptors of two objects, which may be the same. No lock is held meanwhile: a thread that takes a
/// `RwLock` for reading twice deadlocks once another waits to write.
pub(crate) fn with_both<T>(
    one: &Object,
    other: &Object,
    call: impl FnOnce(BorrowedFd<'_>, BorrowedFd<'_>) -> T,
) -> T {
    let (one, other) = (one.file(), other.file());
    call(one.as_fd(), other.as_fd())
}

/// Keeps objects in the cache that must not be evicted.
#[derive(Debug, Clone)]
pub(crate) struct KeepUsed;

impl Lifecycle<Handle, Arc<Object>> for KeepUsed {
    /// The objects that a request evicted, closed after the shard's lock is released.
    type RequestState = Vec<Arc<Object>>;

    // Clones are taken only under the lock of the cache's shard, which eviction holds too: an object with one
    // reference here cannot get another before it is evicted.
    fn is_pinned(&self, _: &Handle, object: &Arc<Object>) -> bool {
        Arc::strong_count(object) > 1 || object.is_pinned() || object.sync_state.is_dirty()
    }

    fn on_evict(&self, evicted: &mut Self::RequestState, _: Handle, object: Arc<Object>) {
        evicted.push(object);
    }
}

type Cache = quick_cache::sync::Cache<Handle, Arc<Object>, UnitWeighter, DefaultHashBuilder, KeepUsed>;

/// Locks under which objects are inserted into a cache.
const INSERT_LOCKS: usize = 16;

/// Objects by handle, one for each.
pub(crate) struct Objects {
    cache: Cache,
    /// Each for a part of all handles.
    insert_locks: [Mutex<()>; INSERT_LOCKS],
    /// Pins of files whose descriptors were closed, by handle.
    closed: Mutex<HashMap<Handle, u32>>,
    /// The number of such files, for threads without the lock. Raised before a file leaves the cache.
    closed_count: AtomicUsize,
    /// Cached objects that opens pin.
    pinned: AtomicUsize,
}

impl Objects {
    /// Creates a cache of `capacity` unused objects, and of all that are in use.
    pub(crate) fn new(capacity: usize) -> Self {
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(capacity).weight_capacity(capacity as u64);
        // Shards divide the capacity; with few large ones a small cache holds its capacity.
        options.shards(if capacity < 1024 { 1 } else { 16 });
        let options = options.build().unwrap_or_else(|_| unreachable!("both capacities are set"));
        let cache = Cache::with_options(options, UnitWeighter, DefaultHashBuilder::default(), KeepUsed);
        Self {
            cache,
            insert_locks: Default::default(),
            closed: Mutex::default(),
            closed_count: AtomicUsize::new(0),
            pinned: AtomicUsize::new(0),
        }
    }

    /// Sets the capacity.
    pub(crate) fn set_capacity(&self, capacity: usize) {
        if self.cache.capacity() != capacity as u64 {
            self.cache.set_capacity(capacity as u64);
        }
    }

    /// Returns the number of cached objects that opens pin.
    pub(crate) fn pinned(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Returns whether every pinned file has its descriptor.
    #[cfg(test)]
    pub(crate) fn closed_is_empty(&self) -> bool {
        self.closed.lock().is_empty() && self.closed_count.load(Ordering::Acquire) == 0
    }

    /// Pins `object` for one more open. Returns false if it was [released](Object::release) before.
    pub(crate) fn pin(&self, object: &Arc<Object>) -> bool {
        let before = object.pins.fetch_add(1, Ordering::AcqRel);
        if before & RELEASED != 0 {
            object.unpin();
            return false;
        }
        if before & COUNT == 0 {
            self.pinned.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Releases a pin of the object of `handle`. Returns the object, unless its descriptor was closed meanwhile.
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
                // It was cached again in between.
                self.cache.peek(handle)?
            }
        };
        let unpinned = object.unpin();
        if unpinned != Unpinned::Held {
            self.pinned.fetch_sub(1, Ordering::Relaxed);
        }
        Some((object, unpinned))
    }

    /// Closes the descriptor of `object`, which opens pin, if only the caller uses it. Its pins move to the
    /// object that the next request creates for the handle. Returns false if it remains.
    pub(crate) fn close_pinned(&self, object: &Arc<Object>) -> bool {
        let mut closed = self.closed.lock();
        self.closed_count.fetch_add(1, Ordering::Release);
        let is_idle = |kept: &Arc<Object>| {
            Arc::ptr_eq(kept, object) && Arc::strong_count(kept) == 2 && !kept.sync_state.is_dirty()
        };
        // From now on no thread changes the pins: that takes the object, or the lock above.
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

    /// Returns the object without counting as use.
    pub(crate) fn peek(&self, handle: &Handle) -> Option<Arc<Object>> {
        self.cache.peek(handle)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<Object>> {
        self.cache.iter().map(|(_, object)| object)
    }

    /// Inserts the first object of its handle.
    pub(crate) fn put(&self, object: Arc<Object>) {
        self.cache.insert(object.handle, object);
    }

    /// Inserts the object that `make` creates from `file`; or returns the object that exists, and `file`. The cache's own
    /// `get_or_insert_with` allocates a waiter and takes its lock twice more.
    pub(crate) fn get_or_make<T>(
        &self,
        handle: &Handle,
        file: T,
        make: impl FnOnce(T) -> Object,
    ) -> Result<Arc<Object>, (Arc<Object>, T)> {
        let part = handle.iter().fold(0, |part, byte| part ^ byte);
        let arrival = self.insert_locks[usize::from(part) % INSERT_LOCKS].lock();
        if let Some(present) = self.cache.get(handle) {
            return Err((present, file));
        }
        let object = Arc::new(make(file));
        let mut evicted = Vec::new();
        // Held until the object is in the cache: releasing a pin looks in both places.
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
        // This reference makes it count as used, so that the cache cannot evict it meanwhile.
        self.cache.insert_with_lifecycle(*handle, Arc::clone(&object), &mut evicted);
        // Evicted objects are closed after the lock is released.
        drop(arrival);
        Ok(object)
    }

    pub(crate) fn remove(&self, handle: &Handle) {
        self.cache.remove(handle);
    }

    /// Evicts an object, unless [`KeepUsed`] keeps it for others than the caller, who has one reference. Returns
    /// false if it remains.
    pub(crate) fn remove_unused(&self, object: &Arc<Object>) -> bool {
        let is_unused = |kept: &Arc<Object>| {
            Arc::ptr_eq(kept, object)
                && Arc::strong_count(kept) == 2
                && !kept.is_pinned()
                && !kept.sync_state.is_dirty()
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
        let sync_state = SyncState::new(&Arc::default());
        Arc::new(Object::new(handle, FileKind::Regular, 1, ((1, u64::from(number)), None), open, sync_state))
    }

    #[test]
    fn the_cache_holds_its_capacity_and_evicts_only_unused_objects() {
        let cache = Objects::new(8);
        let used = object(0);
        cache.put(Arc::clone(&used));
        let dirty = object(1);
        dirty.sync_state.begin_change().finish();
        cache.put(dirty);
        for number in 2..200 {
            cache.put(object(number));
        }
        assert!(cache.len() <= 8, "{} objects", cache.len());
        assert!(cache.get(&Handle::new(&[0]).expect("short")).is_some_and(|kept| Arc::ptr_eq(&kept, &used)));
        assert!(cache.get(&Handle::new(&[1]).expect("short")).is_some(), "dirty ones are kept");
    }

    #[test]
    fn a_pin_keeps_an_object_unless_it_was_released() {
        let kept = object(1);
        assert!(kept.pin() && kept.pin());
        assert_eq!((kept.unpin(), kept.unpin()), (Unpinned::Held, Unpinned::Last));
        assert!(kept.pin() && !kept.release(), "an open holds it");
        assert!(kept.pin(), "another open may hold it too");
        assert_eq!((kept.unpin(), kept.unpin()), (Unpinned::Held, Unpinned::LastOfNameless));
        assert!(kept.release() && kept.release(), "no open holds it");
        assert!(!kept.pin() && kept.pins() == 1, "too late");
        assert_eq!(kept.unpin(), Unpinned::LastOfNameless);
        assert!(!kept.is_pinned());
    }

    #[test]
    fn concurrent_inserts_of_a_handle_share_one_object() {
        let cache = Objects::new(8);
        let handle = Handle::new(&[7]).expect("short");
        let bring = || {
            std::thread::scope(|scope| {
                let brought: Vec<_> = (0..4)
                    .map(|number| {
                        let cache = &cache;
                        scope.spawn(move || {
                            let made = cache
                                .get_or_make(&handle, number, |_| Arc::into_inner(object(7)).expect("free"));
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
    fn an_object_is_dirty_before_its_writable_descriptor_is_returned() {
        let object = object(1);
        assert!(!object.sync_state.is_dirty());
        let (file, pending) = object.begin_change().expect("open for writing");
        assert!(object.sync_state.is_dirty() && file.reach.writes());
        drop(pending);
        assert!(!object.sync_state.is_dirty(), "nothing was changed");
    }

    #[test]
    fn lending_two_descriptors_holds_no_lock() {
        let (one, other) = (object(1), object(2));
        with_both(&one, &other, |_, _| {
            assert!(one.file.try_write().is_some() && other.file.try_write().is_some());
        });
        with_both(&one, &one, |first, second| assert_eq!(first.as_raw_fd(), second.as_raw_fd()));
    }

    #[test]
    fn a_file_with_uncached_data_is_copied_until_enough_reads_hit() {
        let cache_history = CacheHistory::default();
        cache_history.mark_cached();
        cache_history.missed();
        assert!(cache_history.must_copy() && !cache_history.is_known_cached());
        for _ in 0..COPIES_AFTER_MISS {
            assert!(cache_history.must_copy());
            cache_history.hit();
        }
        assert!(!cache_history.must_copy() && !cache_history.is_known_cached(), "not known to be cached");
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
