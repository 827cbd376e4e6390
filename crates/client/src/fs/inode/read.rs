//! Reading through the cache, with read-ahead.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::open::Description;
use super::state::State;
use super::{OpenFile, PAGE};
use crate::block_store::{BLOCK, FileVersion};
use crate::cache::FileId;
use crate::cache::limiter::{Kind, Permit};
use crate::cache::pages::{FetchId, PageCache, Piece, charge};
use crate::cache::read_ahead::Cached;
use crate::errno::Errno;
use crate::error::OpError;

/// A READ that is announced to the cache. It counts as failed unless another outcome is noted.
struct Fetch {
    description: Arc<Description>,
    id: FetchId,
    range: Range<u64>,
    /// The version that the file has as far as known, if there is a block store.
    version: Option<Arc<FileVersion>>,
    has_ended: bool,
}

/// The data of a READ: bytes from the start of a range, fewer than its length if the file ended there.
struct Fetched {
    range: Range<u64>,
    data: Vec<Bytes>,
}

/// The result of a search in the cache.
enum Found {
    /// All of it.
    Data(Vec<Bytes>),
    /// This read must fetch some of it.
    Fetch(Vec<Fetch>),
    /// Other reads are fetching the rest.
    Coming,
}

impl OpenFile {
    /// Reads `count` bytes at `offset`, or less at the end of the file. The result is slices of received data.
    ///
    /// # Errors
    /// As pread(2).
    pub async fn read(&self, offset: u64, count: usize) -> Result<Vec<Bytes>, OpError> {
        if !self.flags().mode.read {
            return Err(OpError::Invalid(Errno::EBADF, "the file is not open for reading"));
        }
        if self.is_direct() {
            return self.read_direct(offset, count).await;
        }
        let wanted = offset..offset.saturating_add(count as u64);
        let mut fetched = Vec::new();
        let mut is_first = true;
        let known_size = self.inode().size(self.caller()).await?;
        loop {
            self.check_state()?;
            match self.find(&wanted, known_size, &fetched, std::mem::take(&mut is_first)) {
                Found::Data(data) => return Ok(data),
                Found::Fetch(fetches) => {
                    let mut running: FuturesUnordered<_> = fetches.into_iter().map(Fetch::run).collect();
                    let mut is_short = false;
                    while let Some(outcome) = running.next().await {
                        let part = outcome?;
                        is_short |= part.is_short();
                        fetched.push(part);
                    }
                    if is_short {
                        // The file ended before the known size: others truncated it, or the rest is not written yet.
                        self.inode().refresh(self.caller()).await?;
                    }
                }
                Found::Coming => self.fetch_ended(&wanted).await,
            }
        }
    }

    /// Searches the cache, and starts read-ahead at the first search.
    fn find(&self, wanted: &Range<u64>, known_size: u64, fetched: &[Fetched], is_first: bool) -> Found {
        let (inode, shared) = (self.inode(), &self.inode().mount.shared);
        let file = inode.node.id;
        let mut state = shared.state.lock();
        let known_size = state.metadata.attributes.last_known(file).map_or(known_size, |known| known.size);
        let size = state.size(file, known_size);
        let range = wanted.start..wanted.end.min(size);
        if range.is_empty() {
            return Found::Data(Vec::new());
        }
        let pieces = state.writes.pages_mut().read(file, range.clone());
        let holes = pieces.iter().filter_map(|piece| match piece {
            Piece::Hole(hole) => Some(not_fetched(hole, fetched)),
            _ => None,
        });
        let holes: Vec<_> = holes.flatten().collect();
        let pages = state.writes.pages_mut();
        let unit = if shared.blocks.is_some() { BLOCK } else { PAGE };
        let holes: Vec<_> =
            holes.iter().flat_map(|hole| whole_units(pages, file, hole, size, unit)).collect();
        let is_coming = pieces.iter().any(|piece| matches!(piece, Piece::Coming { .. }));
        let step = inode.read_step();
        let mut fetches = Vec::new();
        for hole in &holes {
            fetches.extend(self.description.start_fetches(&mut state, hole, step));
        }
        if is_first {
            let missing = holes
                .iter()
                .map(|hole| hole.end.min(range.end).saturating_sub(hole.start.max(range.start)))
                .sum::<u64>();
            shared.counts.data_bytes.add(range.end - range.start - missing, missing);
            let cached = match (holes.is_empty(), is_coming) {
                (false, _) => Cached::No,
                (true, true) => Cached::Coming,
                (true, false) => Cached::Yes,
            };
            self.description.read_ahead(&mut state, range.clone(), cached, size, step);
        }
        drop(state);
        match (fetches.is_empty(), is_coming) {
            (false, _) => Found::Fetch(fetches),
            (true, true) => Found::Coming,
            (true, false) => Found::Data(assemble(pieces, fetched)),
        }
    }

    /// Waits until nothing of the range is being fetched any more.
    async fn fetch_ended(&self, range: &Range<u64>) {
        let (file, shared) = (self.inode().node.id, &self.inode().mount.shared);
        poll_fn(|context| {
            let mut state = shared.state.lock();
            if !state.writes.pages().is_fetching(file, range) {
                return Poll::Ready(());
            }
            let waiters = state.fetch_waiters.entry(file).or_default();
            waiters.retain(|waker| !waker.will_wake(context.waker()));
            waiters.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Returns the range to fetch for a hole: whole units, unless other parts of them are cached or being fetched.
fn whole_units(
    pages: &mut PageCache,
    file: FileId,
    hole: &Range<u64>,
    size: u64,
    unit: u64,
) -> Vec<Range<u64>> {
    let aligned = hole.start / unit * unit..hole.end.next_multiple_of(unit).min(size);
    let pieces = pages.read(file, aligned).into_iter();
    pieces
        .filter_map(|piece| match piece {
            Piece::Hole(part) if part.start < hole.end && hole.start < part.end => Some(part),
            _ => None,
        })
        .collect()
}

/// Returns the parts of a hole that this read has not fetched yet.
fn not_fetched(hole: &Range<u64>, fetched: &[Fetched]) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut at = hole.start;
    while at < hole.end {
        if let Some(known) = fetched.iter().find(|fetched| fetched.range.contains(&at)) {
            at = known.range.end;
            continue;
        }
        let starts = fetched.iter().map(|fetched| fetched.range.start).filter(|start| *start > at);
        let end = starts.min().unwrap_or(hole.end).min(hole.end);
        parts.push(at..end);
        at = end;
    }
    parts
}

/// Returns the data of a read, with zeros where the server's file ended before bytes that are written behind.
fn assemble(pieces: Vec<Piece>, fetched: &[Fetched]) -> Vec<Bytes> {
    let mut result = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Data { data, .. } => result.push(data),
            Piece::Hole(hole) | Piece::Coming { range: hole, .. } => {
                let mut at = hole.start;
                while at < hole.end {
                    let source = fetched.iter().rev().find(|fetched| fetched.range.contains(&at));
                    let end = source.map_or(hole.end, |source| source.range.end.min(hole.end));
                    let length = source.map_or(0, |source| source.copy_to(&(at..end), &mut result));
                    let zeros = (end - at - length) as usize;
                    if zeros > 0 {
                        result.push(Bytes::from(vec![0; zeros]));
                    }
                    at = end;
                }
            }
        }
    }
    result
}

impl Fetched {
    fn is_short(&self) -> bool {
        (self.data.iter().map(Bytes::len).sum::<usize>() as u64) < self.range.end - self.range.start
    }

    /// Appends slices of the bytes of `wanted`, and returns their number.
    fn copy_to(&self, wanted: &Range<u64>, result: &mut Vec<Bytes>) -> u64 {
        let mut at = self.range.start;
        let mut length = 0;
        for part in &self.data {
            let end = at + part.len() as u64;
            let (from, to) = (wanted.start.max(at), wanted.end.min(end));
            if from < to {
                result.push(part.slice((from - at) as usize..(to - at) as usize));
                length += to - from;
            }
            at = end;
        }
        length
    }
}

impl Description {
    /// Announces READs for a hole, each of at most `step` bytes.
    fn start_fetches(self: &Arc<Self>, state: &mut State, hole: &Range<u64>, step: u64) -> Vec<Fetch> {
        let version = self.inode.block_version(state);
        let mut fetches = Vec::new();
        let mut start = hole.start;
        while start < hole.end {
            // READs end at multiples of their size, so that several readers request the same ones.
            let end = hole.end.min((start / step + 1) * step);
            let range = start..end;
            let announced = state.writes.pages_mut().start_fetch(self.inode.node.id, range.clone());
            if let Some(id) = announced {
                let (description, version) = (Arc::clone(self), version.clone());
                fetches.push(Fetch { description, id, range, version, has_ended: false });
            }
            start = end;
        }
        fetches
    }

    /// Starts READs for data that the program will probably read next.
    fn read_ahead(
        self: &Arc<Self>,
        state: &mut State,
        range: Range<u64>,
        cached: Cached,
        size: u64,
        step: u64,
    ) {
        let mut ahead = self.ahead.lock();
        let plan = ahead.read(range, cached, size);
        if plan.fetch.is_empty() {
            return;
        }
        let mut planned = plan.fetch;
        if self.inode.mount.shared.blocks.is_some() {
            // The next window begins with a whole block.
            planned.end = planned.end.next_multiple_of(BLOCK).min(size);
        }
        let holes: Vec<_> = state.writes.pages_mut().read(self.inode.node.id, planned);
        for hole in holes {
            let Piece::Hole(hole) = hole else { continue };
            let mut start = hole.start;
            while start < hole.end {
                let end = hole.end.min((start / step + 1) * step);
                let bytes = charge((end - start) as usize);
                let Ok(permit) = self.user.try_reserve(Kind::ReadAhead, bytes) else {
                    ahead.refused(start);
                    return;
                };
                if let Some(fetch) = self.start_fetches(state, &(start..end), step).pop() {
                    self.fetch_in_background(fetch, permit);
                }
                start = end;
            }
        }
    }
}

impl Description {
    fn fetch_in_background(self: &Arc<Self>, fetch: Fetch, permit: Permit) {
        self.fetches.lock().count += 1;
        let counted = Counted(Arc::clone(self));
        self.inode.client().background().spawn(async move {
            // A later reader repeats the request, and gets the error.
            let _ = fetch.run_with(permit).await;
            drop(counted);
        });
    }
}

/// A READ in the background, which a release waits for.
struct Counted(Arc<Description>);

impl Drop for Counted {
    fn drop(&mut self) {
        let waker = {
            let mut fetches = self.0.fetches.lock();
            fetches.count -= 1;
            if fetches.count == 0 { fetches.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Fetch {
    async fn run(self) -> Result<Fetched, OpError> {
        let bytes = charge((self.range.end - self.range.start) as usize);
        let permit = self.description.reserve(Kind::Clean, bytes).await?;
        self.run_with(permit).await
    }

    async fn run_with(mut self, permit: Permit) -> Result<Fetched, OpError> {
        let data = self.read().await?;
        let (file, range) = (self.description.inode.node.id, self.range.clone());
        let shared = Arc::clone(&self.description.inode.mount.shared);
        let (data, waiters) = {
            let mut state = shared.state.lock();
            let pages = state.writes.pages_mut();
            let overlaid = pages.overlay(file, range.start, &data);
            if data.is_empty() {
                pages.fail_fetch(file, self.id, range.start);
            } else {
                pages.end_fetch(file, self.id, range.start, data, permit);
            }
            self.has_ended = true;
            state.give_up(&shared.limiter);
            (overlaid, state.fetch_waiters.remove(&file).unwrap_or_default())
        };
        waiters.into_iter().for_each(std::task::Waker::wake);
        Ok(Fetched { range, data })
    }

    /// Reads the range: blocks that are stored, and READs for the rest.
    async fn read(&self) -> Result<Bytes, OpError> {
        let mut parts: Vec<Bytes> = Vec::new();
        let mut at = self.range.start;
        for (start, data) in self.stored().await {
            if at < start {
                let missing = self.request(at..start).await?;
                at += missing.len() as u64;
                parts.push(missing);
            }
            if at < start {
                // The file has become shorter.
                return Ok(joined(parts));
            }
            at += data.len() as u64;
            parts.push(data);
        }
        if at < self.range.end {
            parts.push(self.request(at..self.range.end).await?);
        }
        Ok(joined(parts))
    }

    /// Returns the stored blocks of the range, each with its offset.
    async fn stored(&self) -> Vec<(u64, Bytes)> {
        let (Some(store), Some(version)) = (&self.description.inode.mount.shared.blocks, &self.version)
        else {
            return Vec::new();
        };
        let blocks = version.blocks(&self.range);
        let found = store.get(version, blocks.clone()).await;
        let part = |(block, data): (u64, Option<Bytes>)| {
            let (data, of) = (data?, version.range(block));
            let (from, to) = (of.start.max(self.range.start), of.end.min(self.range.end));
            let is_whole = data.len() as u64 == of.end - of.start;
            // Unsent writes may have made the file longer than this version is: the range then begins behind its end.
            (is_whole && from < to)
                .then(|| (from, data.slice((from - of.start) as usize..(to - of.start) as usize)))
        };
        blocks.zip(found).filter_map(part).collect()
    }

    /// Sends READs for a range, further ones if the server returns less, and stores the data.
    async fn request(&self, range: Range<u64>) -> Result<Bytes, OpError> {
        let description = &self.description;
        let inode = &description.inode;
        let mut parts: Vec<Bytes> = Vec::new();
        let mut is_of_version = true;
        let mut at = range.start;
        while at < range.end {
            let started = inode.mount.start();
            let count = (range.end - at).min(inode.mount.info().read_max.into()) as u32;
            let (handle, state) = (inode.handle(), &description.state);
            let reply = inode.client().read(&description.caller, handle, state, at, count).await?;
            is_of_version &= inode.has_version(self.version.as_deref(), reply.attributes.as_ref());
            if let Some(attributes) = reply.attributes {
                inode.learn(started, attributes);
            }
            at += reply.data.len() as u64;
            let is_end = reply.eof || reply.data.is_empty();
            parts.push(reply.data);
            if is_end {
                break;
            }
        }
        let data = joined(parts);
        if is_of_version {
            self.store(range.start, &data);
        }
        Ok(data)
    }

    /// Puts the whole blocks of data that the server has returned into the block store.
    fn store(&self, offset: u64, data: &Bytes) {
        let (Some(store), Some(version)) = (&self.description.inode.mount.shared.blocks, &self.version)
        else {
            return;
        };
        let whole = version.whole_blocks(&(offset..offset + data.len() as u64));
        if whole.is_empty() {
            return;
        }
        let data = data.slice((whole.start - offset) as usize..(whole.end - offset) as usize);
        // Without memory for them, they are not stored.
        if let Ok(memory) = self.description.user.try_reserve(Kind::Requests, charge(data.len())) {
            store.put(version, whole.start / BLOCK, data, memory);
        }
    }
}

fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut joined = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| joined.extend_from_slice(part));
    joined.freeze()
}

impl Drop for Fetch {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let (file, shared) = (self.description.inode.node.id, &self.description.inode.mount.shared);
        let waiters = {
            let mut state = shared.state.lock();
            state.writes.pages_mut().fail_fetch(file, self.id, self.range.start);
            state.fetch_waiters.remove(&file).unwrap_or_default()
        };
        waiters.into_iter().for_each(std::task::Waker::wake);
    }
}
