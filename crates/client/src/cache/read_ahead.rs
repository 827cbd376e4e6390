//! Plans read-ahead. Knows no protocol and holds no data.
//!
//! A file has some streams, each a sequential reader. A stream's window is the requested range beyond the reader. The first
//! is 128 KiB + 1 MiB, and it doubles each time the reader must wait: the window then covers bandwidth × delay. A seek
//! back inside the window keeps the stream. A read elsewhere begins a stream on probation, which reads ahead from its
//! second sequential read. Random reads never leave probation, so nothing is read ahead for them.

use std::ops::Range;

#[cfg(test)]
mod tests;

/// The first window: a small read at once, and a large one after it.
pub const FIRST_WINDOW: u64 = (128 << 10) + (1 << 20);
/// The largest window.
pub const WINDOW_MAX: u64 = 64 << 20;
/// The smallest window that short memory leaves.
pub const WINDOW_MIN: u64 = 128 << 10;
/// Bytes before a reader's position that should stay cached, for seeks back.
pub const BEHIND: u64 = 1 << 20;
/// Maximum number of sequential streams that are tracked for one file.
pub const STREAMS_MAX: usize = 8;

/// Whether the data that the program reads were cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// All of it.
    Yes,
    /// Its request is under way, and the reader has to wait.
    Coming,
    /// Some of it must be requested: it was never read, or memory was short.
    No,
}

/// Work in addition to the program's read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Request this now; often empty.
    pub fetch: Range<u64>,
    /// Keep this cached as long as memory allows.
    pub keep: Range<u64>,
}

#[derive(Debug)]
struct Stream {
    /// The start of the next sequential read.
    next: u64,
    /// Everything between [`Self::start`] and here was requested.
    end: u64,
    /// The start of the stream.
    start: u64,
    /// 0 on probation.
    window: u64,
    last_use: u64,
}

/// The streams of one file.
#[derive(Debug, Default)]
pub struct ReadAhead {
    streams: Vec<Stream>,
    uses: u64,
}

impl ReadAhead {
    /// Notes that the program reads `range` of a file of `size` bytes. Returns the plan for read-ahead.
    pub fn read(&mut self, range: Range<u64>, cached: Cached, size: u64) -> Plan {
        self.uses += 1;
        let uses = self.uses;
        let stream = match self.streams.iter().position(|stream| stream.serves(&range)) {
            Some(index) => &mut self.streams[index],
            None => self.start(range.start),
        };
        stream.last_use = uses;
        stream.advance(range, cached, size)
    }

    /// Notes that memory is short: the last plan's `fetch` was requested up to `end` only, or not at all. The window becomes smaller.
    pub fn refused(&mut self, end: u64) {
        let Some(stream) = self.streams.iter_mut().max_by_key(|stream| stream.last_use) else { return };
        stream.end = stream.end.min(end.max(stream.next));
        stream.window = (stream.window / 2).max(WINDOW_MIN);
    }

    /// Notes that the content changed or the cache was dropped: earlier requests no longer count.
    pub fn invalidate(&mut self) {
        self.streams.iter_mut().for_each(|stream| stream.end = stream.next);
    }

    fn start(&mut self, offset: u64) -> &mut Stream {
        if self.streams.len() == STREAMS_MAX {
            let oldest = self.streams.iter().enumerate().min_by_key(|(_, stream)| stream.last_use);
            let oldest = oldest.map_or(0, |(index, _)| index);
            self.streams.swap_remove(oldest);
        }
        // A reader that begins at the start probably continues.
        let window = if offset == 0 { FIRST_WINDOW } else { 0 };
        self.streams.push(Stream { next: offset, end: offset, start: offset, window, last_use: 0 });
        self.streams.last_mut().expect("a stream was pushed")
    }
}

impl Stream {
    /// Returns true if a read belongs to this stream: it continues it, or lies in its window or just before its reader.
    fn serves(&self, range: &Range<u64>) -> bool {
        let behind = self.next.saturating_sub(BEHIND).max(self.start);
        if self.window == 0 {
            return range.start == self.next;
        }
        (behind..=self.end.max(self.next)).contains(&range.start)
    }

    fn advance(&mut self, range: Range<u64>, cached: Cached, size: u64) -> Plan {
        let sequential = range.start == self.next && range.start > self.start;
        if self.window == 0 && sequential {
            self.window = FIRST_WINDOW;
        } else if self.window > 0 && sequential && cached != Cached::Yes {
            self.window = (self.window * 2).min(WINDOW_MAX);
        }
        if cached == Cached::No {
            // The data read ahead were evicted.
            self.end = self.end.min(range.start);
        }
        self.next = range.end;
        // The caller requests the range itself.
        self.end = self.end.max(range.end);
        let target = range.end.saturating_add(self.window).min(size);
        let fetch = match target.checked_sub(self.end) {
            // Small pieces would make many small requests: wait until half the window is used.
            Some(missing) if missing > 0 && (missing >= self.window / 2 || target == size) => {
                self.end..target
            }
            _ => self.end..self.end,
        };
        self.end = fetch.end;
        Plan { fetch, keep: self.next.saturating_sub(BEHIND).max(self.start)..self.end }
    }
}
