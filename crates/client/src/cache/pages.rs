//! Cached file data.
//!
//! A file's data are extents: slices of receive buffers or of the program's data, in an ordered map, never copied on
//! the way in or out. Bytes, extents and requests under way are found in logarithmic time. The kind of an extent's permit
//! tells its state: clean and read-ahead extents can be evicted, dirty and uncommitted ones cannot.
//!
//! **Reads**: [`PageCache::read`] returns slices, ranges that are being fetched, and holes. For each hole the caller takes a
//! [`FetchId`], sends its READ *after* it released the lock around this structure, and passes the data to
//! [`PageCache::end_fetch`]. Data of a READ that overlapped a write, a truncation or an invalidation are not cached.
//!
//! **Eviction** is CLOCK (second chance) over extents, here and not in a crate: extents are split, trimmed and change their
//! state in place, and a general cache would need an entry that follows each of these steps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::FileId;
use super::limiter::{Kind, Permit};

#[cfg(test)]
mod tests;

/// Bytes that are accounted for an extent besides its data; enough for the two parts into which a later write can split it.
pub const EXTENT_OVERHEAD: u64 = 256;
/// Writes below this size that continue a small extent are copied into it.
const SMALL_WRITE: usize = 4096;
/// Extents do not grow beyond this by small writes.
const SMALL_EXTENT: usize = 64 << 10;
/// Reads from the start of an extent that are counted.
const HITS_MAX: u8 = 3;

/// Returns the bytes to reserve for `len` bytes of data.
pub fn charge(len: usize) -> u64 {
    len as u64 + EXTENT_OVERHEAD
}

/// A READ under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FetchId(u64);

/// A part of the range of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Cached.
    Data {
        /// Its offset in the file.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Being fetched. Repeat the read when the fetch has ended.
    Coming {
        /// The part that is being fetched.
        range: Range<u64>,
        /// The request.
        fetch: FetchId,
    },
    /// Missing: fetch it.
    Hole(Range<u64>),
}

/// The data of many files.
#[derive(Debug, Default)]
pub struct PageCache {
    files: BTreeMap<FileId, FilePages>,
    /// Files with something to evict.
    evictable: BTreeSet<FileId>,
    /// The position at which eviction continues.
    hand: (FileId, u64),
    last_fetch: u64,
}

#[derive(Debug, Default)]
struct FilePages {
    /// Disjoint, by offset.
    extents: BTreeMap<u64, Extent>,
    /// Disjoint, by offset.
    fetches: BTreeMap<u64, Fetch>,
    /// Extents that can be evicted.
    evictable: usize,
}

#[derive(Debug)]
struct Extent {
    data: Bytes,
    permit: Permit,
    /// Length of the buffer that `data` keeps in memory, as far as known.
    buffer_len: usize,
    hits: u8,
    /// Set for data that were not stable when the file was invalidated: others may have written the file after them.
    invalid: bool,
}

#[derive(Debug)]
struct Fetch {
    id: FetchId,
    end: u64,
    /// Set if the range was written or invalidated since.
    stale: bool,
}

impl PageCache {
    /// Returns the cached and missing parts of `range`, in order and without gaps.
    pub fn read(&mut self, file: FileId, range: Range<u64>) -> Vec<Piece> {
        match self.files.get_mut(&file) {
            Some(pages) => pages.read(range),
            None if range.is_empty() => Vec::new(),
            None => vec![Piece::Hole(range)],
        }
    }

    /// Announces a READ of `range`, a hole that [`read`](Self::read) returned, or a part of it. Returns `None` if some of
    /// it is being fetched already.
    pub fn start_fetch(&mut self, file: FileId, range: Range<u64>) -> Option<FetchId> {
        let pages = self.files.entry(file).or_default();
        if range.is_empty() || pages.fetches_in(&range).next().is_some() {
            return None;
        }
        self.last_fetch += 1;
        let id = FetchId(self.last_fetch);
        pages.fetches.insert(range.start, Fetch { id, end: range.end, stale: false });
        Some(id)
    }

    /// Stores data of the READ `fetch` at `offset`, at most as many as it requested. They fill the holes of the cache.
    /// `permit` holds [`charge`] of their length; the surplus is released.
    ///
    /// `data` keep their whole buffer in memory: if that is much larger, pass a copy. A reader that waits gets what
    /// [`overlay`](Self::overlay) returns for `data`: the cache may evict them before it reads again.
    pub fn end_fetch(&mut self, file: FileId, fetch: FetchId, offset: u64, data: Bytes, permit: Permit) {
        let Some(pages) = self.files.get_mut(&file) else { return };
        if let Some(ended) = pages.end_fetch(fetch, offset).filter(|ended| !ended.stale) {
            let len = usize::try_from(ended.end.saturating_sub(offset)).unwrap_or(usize::MAX);
            pages.fill(offset, data.slice(..len.min(data.len())), permit);
        }
        self.note(file);
    }

    /// Notes that the READ `fetch` that began at `offset` failed.
    pub fn fail_fetch(&mut self, file: FileId, fetch: FetchId, offset: u64) {
        if let Some(pages) = self.files.get_mut(&file) {
            pages.end_fetch(fetch, offset);
            self.note(file);
        }
    }

    /// Returns whether some of `range` is being fetched.
    pub fn is_fetching(&self, file: FileId, range: &Range<u64>) -> bool {
        self.files.get(&file).is_some_and(|pages| pages.fetches_in(range).next().is_some())
    }

    /// Returns `data`, which a READ at `offset` returned, overwritten by newer bytes of the cache.
    pub fn overlay(&self, file: FileId, offset: u64, data: &Bytes) -> Vec<Bytes> {
        let Some(pages) = self.files.get(&file) else { return vec![data.clone()] };
        let range = offset..offset + data.len() as u64;
        let mut result = Vec::new();
        let mut at = offset;
        let mut push = |bytes: Bytes| {
            if !bytes.is_empty() {
                result.push(bytes);
            }
        };
        for (start, extent) in pages.extents_in(&range) {
            let (from, to) = (start.max(range.start), extent.end(start).min(range.end));
            push(data.slice((at - offset) as usize..(from - offset) as usize));
            push(extent.slice(start, &(from..to)));
            at = to;
        }
        push(data.slice((at - offset) as usize..));
        result
    }

    /// Stores data that the program wrote, below offset 2⁶³. `permit` holds [`charge`] of its length. Returns the memory of the replaced
    /// data, which the caller holds as long as requests still use those data.
    pub fn write(&mut self, file: FileId, offset: u64, data: Bytes, permit: Permit) -> Vec<Permit> {
        let pages = self.files.entry(file).or_default();
        let range = offset..offset + data.len() as u64;
        pages.make_stale(&range);
        let replaced = pages.remove(&range);
        pages.append_or_insert(offset, data, permit);
        self.note(file);
        replaced
    }

    /// Returns the data of `range`, all of which must be cached, without counting a use.
    pub fn slices(&self, file: FileId, range: Range<u64>) -> Vec<Bytes> {
        let Some(pages) = self.files.get(&file) else { return Vec::new() };
        pages.extents_in(&range).map(|(start, extent)| extent.slice(start, &range)).collect()
    }

    /// Accounts the cached data of `range` as `kind`. Data that become clean are dropped if the file was invalidated since they were
    /// written.
    pub fn convert(&mut self, file: FileId, range: Range<u64>, kind: Kind) {
        if let Some(pages) = self.files.get_mut(&file) {
            pages.convert(&range, kind);
            self.note(file);
        }
    }

    /// Drops `range` in any state, even if it is being fetched. Returns its memory.
    pub fn remove(&mut self, file: FileId, range: Range<u64>) -> Vec<Permit> {
        let Some(pages) = self.files.get_mut(&file) else { return Vec::new() };
        pages.make_stale(&range);
        let removed = pages.remove(&range);
        self.note(file);
        removed
    }

    /// Drops the clean pages, because another client changed the file. Dirty and uncommitted pages stay until they are stable.
    pub fn invalidate(&mut self, file: FileId) {
        if let Some(pages) = self.files.get_mut(&file) {
            pages.make_stale(&(0..u64::MAX));
            pages.extents.retain(|_, extent| !extent.is_evictable());
            pages.extents.values_mut().for_each(|extent| extent.invalid = true);
            pages.evictable = 0;
            self.note(file);
        }
    }

    /// Drops the clean pages of `range`, whose content the server has changed for this client. Dirty and uncommitted pages stay.
    pub fn invalidate_range(&mut self, file: FileId, range: &Range<u64>) {
        if let Some(pages) = self.files.get_mut(&file) {
            pages.make_stale(range);
            pages.remove_if(range, Extent::is_evictable);
            self.note(file);
        }
    }

    /// Evicts extents of `kind`, [`Kind::Clean`] or [`Kind::ReadAhead`], of `bytes` if it has that many. Returns the bytes
    /// released.
    pub fn evict(&mut self, kind: Kind, bytes: u64) -> u64 {
        let mut released = 0;
        let mut rounds = 0;
        while released < bytes && rounds <= HITS_MAX {
            let Some(file) = self.evictable.range(self.hand.0..).next().copied() else {
                self.hand = (FileId(0), 0);
                rounds += 1;
                continue;
            };
            let from = if file == self.hand.0 { self.hand.1 } else { 0 };
            let Some(pages) = self.files.get_mut(&file) else { break };
            self.hand = match pages.evict(from, kind, bytes, &mut released) {
                Some(next) => (file, next),
                None => (FileId(file.0.saturating_add(1)), 0),
            };
            self.note(file);
        }
        released
    }

    /// Returns the files that have anything cached or under way.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns true if nothing is cached.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the number of extents of a file.
    pub fn extents(&self, file: FileId) -> usize {
        self.files.get(&file).map_or(0, |pages| pages.extents.len())
    }

    fn note(&mut self, file: FileId) {
        let Some(pages) = self.files.get(&file) else { return };
        if pages.evictable > 0 {
            self.evictable.insert(file);
            return;
        }
        self.evictable.remove(&file);
        if pages.extents.is_empty() && pages.fetches.is_empty() {
            self.files.remove(&file);
        }
    }
}

impl FilePages {
    fn read(&mut self, range: Range<u64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        let first = self.first_extent(&range);
        for (start, extent) in self.extents.range_mut(first..range.end) {
            let start = *start;
            if extent.end(start) <= range.start {
                continue;
            }
            let part = start.max(range.start)..extent.end(start).min(range.end);
            push_missing(&self.fetches, at..part.start, &mut pieces);
            at = part.end;
            if part.start == start {
                extent.hits = (extent.hits + 1).min(HITS_MAX);
            }
            if extent.permit.kind() == Kind::ReadAhead {
                extent.permit.convert(Kind::Clean);
            }
            pieces.push(Piece::Data { offset: part.start, data: extent.slice(start, &part) });
        }
        push_missing(&self.fetches, at..range.end, &mut pieces);
        pieces
    }

    /// Returns the offset of the first extent that may overlap `range`.
    fn first_extent(&self, range: &Range<u64>) -> u64 {
        self.extents.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start).min(range.end)
    }

    fn extents_in(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Extent)> {
        let from = range.start;
        self.extents
            .range(self.first_extent(range)..range.end)
            .filter(move |(start, extent)| extent.end(**start) > from)
            .map(|(start, extent)| (*start, extent))
    }

    fn fetches_in(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Fetch)> {
        overlapping(&self.fetches, range)
    }

    fn make_stale(&mut self, range: &Range<u64>) {
        let starts: Vec<u64> = self.fetches_in(range).map(|(start, _)| start).collect();
        for start in starts {
            self.fetches.get_mut(&start).expect("the fetch was just found").stale = true;
        }
    }

    fn end_fetch(&mut self, id: FetchId, offset: u64) -> Option<Fetch> {
        let known = self.fetches.get(&offset).is_some_and(|fetch| fetch.id == id);
        if known { self.fetches.remove(&offset) } else { None }
    }

    /// Inserts `data` where nothing is cached.
    fn fill(&mut self, offset: u64, data: Bytes, mut permit: Permit) {
        let range = offset..offset + data.len() as u64;
        let mut holes = Vec::new();
        let mut at = offset;
        for (start, extent) in self.extents_in(&range) {
            holes.push(at..start.max(at));
            at = extent.end(start);
        }
        holes.push(at.min(range.end)..range.end);
        holes.retain(|hole| !hole.is_empty());
        let overhead = EXTENT_OVERHEAD / (holes.len() as u64).max(1);
        for hole in holes {
            let part = data.slice((hole.start - offset) as usize..(hole.end - offset) as usize);
            let permit = permit.split(part.len() as u64 + overhead);
            let extent = Extent { data: part, permit, buffer_len: data.len(), hits: 0, invalid: false };
            self.insert(hole.start, extent);
            self.shrink(hole.start);
        }
    }

    fn insert(&mut self, offset: u64, extent: Extent) {
        self.evictable += usize::from(extent.is_evictable());
        let replaced = self.extents.insert(offset, extent);
        debug_assert!(replaced.is_none(), "extents are disjoint");
    }

    /// Appends small writes to the extent before them, so that a program that writes a few bytes at a time does not make an
    /// extent of each.
    fn append_or_insert(&mut self, offset: u64, data: Bytes, mut permit: Permit) {
        if data.is_empty() {
            return;
        }
        if data.len() < SMALL_WRITE
            && let Some((start, before)) = self.extents.range_mut(..offset).next_back()
            && before.end(*start) == offset
            && before.permit.kind() == permit.kind()
            && before.data.len() + data.len() <= SMALL_EXTENT
        {
            // A request that uses the buffer keeps it unchanged.
            match std::mem::take(&mut before.data).try_into_mut() {
                Ok(mut buffer) => {
                    buffer.extend_from_slice(&data);
                    before.data = buffer.freeze();
                    before.buffer_len = before.data.len();
                    before.permit.merge(permit.split(data.len() as u64));
                    return;
                }
                Err(shared) => before.data = shared,
            }
        }
        let data = if data.len() < SMALL_WRITE { BytesMut::from(&data[..]).freeze() } else { data };
        let buffer_len = data.len();
        self.insert(offset, Extent { data, permit, buffer_len, hits: 0, invalid: false });
    }

    fn convert(&mut self, range: &Range<u64>, kind: Kind) {
        self.cut(range.start);
        self.cut(range.end);
        for (_, extent) in self.extents.range_mut(range.start..range.end) {
            self.evictable -= usize::from(extent.is_evictable());
            extent.permit.convert(kind);
            self.evictable += usize::from(extent.is_evictable());
        }
        if kind == Kind::Clean {
            // The memory is free now: no request uses stable data.
            drop(self.remove_if(range, |extent| extent.invalid));
        }
    }

    /// Makes `at` the boundary of two extents if it is inside one.
    fn cut(&mut self, at: u64) {
        let Some((start, extent)) = self.extents.range_mut(..at).next_back() else { return };
        if extent.end(*start) <= at {
            return;
        }
        let data = extent.data.split_off((at - start) as usize);
        let permit = extent.permit.split(data.len() as u64);
        let (buffer_len, hits, invalid) = (extent.buffer_len, extent.hits, extent.invalid);
        let right = Extent { data, permit, buffer_len, hits, invalid };
        self.insert(at, right);
    }

    fn remove(&mut self, range: &Range<u64>) -> Vec<Permit> {
        self.remove_if(range, |_| true)
    }

    /// Removes the extents in `range` that `is_meant` selects.
    fn remove_if(&mut self, range: &Range<u64>, is_meant: impl Fn(&Extent) -> bool) -> Vec<Permit> {
        if range.is_empty() {
            return Vec::new();
        }
        self.cut(range.start);
        self.cut(range.end);
        let within = self.extents.range(range.start..range.end);
        let starts: Vec<u64> =
            within.filter(|(_, extent)| is_meant(extent)).map(|(start, _)| *start).collect();
        let mut permits = Vec::with_capacity(starts.len());
        for extent in starts.iter().filter_map(|start| self.extents.remove(start)) {
            self.evictable -= usize::from(extent.is_evictable());
            permits.push(extent.permit);
        }
        if !permits.is_empty() {
            let left = self.extents.range(..range.start).next_back().map(|(start, _)| *start);
            left.into_iter().chain([range.end]).for_each(|start| self.shrink(start));
        }
        permits
    }

    /// Copies the rest of a buffer if it is less than half, so that memory is at most twice the accounted amount.
    fn shrink(&mut self, start: u64) {
        if let Some(extent) = self.extents.get_mut(&start)
            && extent.data.len() < extent.buffer_len / 2
        {
            extent.data = Bytes::copy_from_slice(&extent.data);
            extent.buffer_len = extent.data.len();
        }
    }

    /// Evicts from `from` until `released` is `bytes`. Returns the offset at which to continue in this file.
    fn evict(&mut self, from: u64, kind: Kind, bytes: u64, released: &mut u64) -> Option<u64> {
        let mut victims = Vec::new();
        let mut next = None;
        for (start, extent) in self.extents.range_mut(from..) {
            if *released >= bytes {
                next = Some(*start);
                break;
            }
            if extent.permit.kind() != kind {
                continue;
            }
            if extent.hits > 1 {
                extent.hits -= 1;
            } else {
                *released += extent.permit.bytes();
                victims.push(*start);
            }
        }
        self.evictable -= victims.len();
        victims.iter().for_each(|start| drop(self.extents.remove(start)));
        next
    }
}

impl Extent {
    fn end(&self, start: u64) -> u64 {
        start + self.data.len() as u64
    }

    /// Returns the part of `range` of an extent that begins at `start`.
    fn slice(&self, start: u64, range: &Range<u64>) -> Bytes {
        let from = range.start.max(start) - start;
        let to = range.end.min(self.end(start)) - start;
        self.data.slice(from as usize..to as usize)
    }

    fn is_evictable(&self) -> bool {
        matches!(self.permit.kind(), Kind::Clean | Kind::ReadAhead)
    }
}

fn overlapping<'a>(
    fetches: &'a BTreeMap<u64, Fetch>,
    range: &Range<u64>,
) -> impl Iterator<Item = (u64, &'a Fetch)> + use<'a> {
    let from = range.start;
    let first = fetches.range(..=from).next_back().map_or(from, |(start, _)| *start).min(range.end);
    fetches
        .range(first..range.end)
        .filter(move |(_, fetch)| fetch.end > from)
        .map(|(start, fetch)| (*start, fetch))
}

/// Divides `range`, which is not cached, into parts that are being fetched and other parts.
fn push_missing(fetches: &BTreeMap<u64, Fetch>, range: Range<u64>, pieces: &mut Vec<Piece>) {
    if range.is_empty() {
        return;
    }
    let mut at = range.start;
    for (start, fetch) in overlapping(fetches, &range) {
        if at < start {
            pieces.push(Piece::Hole(at..start));
        }
        let part = start.max(at)..fetch.end.min(range.end);
        at = part.end;
        pieces.push(Piece::Coming { range: part, fetch: fetch.id });
    }
    if at < range.end {
        pieces.push(Piece::Hole(at..range.end));
    }
}
