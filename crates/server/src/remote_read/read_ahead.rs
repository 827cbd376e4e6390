//! Read-ahead of a copy from another server.
//!
//! A link carries one READ per round trip unless several run at once, so several run at once. Bytes are still written in order, so that a
//! count describes the whole copy. The first READ runs alone: it shows whether the source can be read, how large the file is, and the number of bytes that the
//! source returns at once. So does the first READ after an error. A READ that is late, or returned less than requested, is repeated
//! when its bytes are needed.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::nfs4::types::Status;

use super::{Asking, FETCH_BYTES, Fetches, Need, Span};
use crate::{FetchError, Fetched, Now, SourceFile};

/// Maximum number of READs of a copy that run or wait to be written: with [`FETCH_BYTES`] each, they fill a link of 1 Gbit/s up to a
/// round trip of 60 ms.
const ASKED_MAX: usize = 8;

/// A file of another server that is being copied.
#[derive(Debug)]
pub(crate) struct Reading {
    file: Arc<SourceFile>,
    ahead: Mutex<Ahead>,
}

#[derive(Debug, Default)]
struct Ahead {
    /// In the order of the file, without gaps.
    asked: VecDeque<PendingRead>,
    /// Results of READs since the last error.
    known: Option<Known>,
    /// The time of the latest answer.
    latest: Option<Now>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// Bytes of the copy up to the end of the source at that time.
    end: u64,
    /// Maximum bytes that one READ returns.
    granted: u32,
}

#[derive(Debug)]
struct PendingRead {
    /// Bytes of the copy before it.
    from: u64,
    count: u32,
    asking: Asking,
}

impl PendingRead {
    fn end(&self) -> u64 {
        self.from + u64::from(self.count)
    }
}

impl Reading {
    /// Starts without any READ.
    pub(crate) fn new(file: SourceFile) -> Self {
        Self { file: Arc::new(file), ahead: Mutex::default() }
    }

    /// Returns bytes after the first `done` ones of `span`. Reads ahead up to `most`. If the source reports its size, `judge` checks it
    /// before the first byte is taken.
    pub(crate) async fn next(
        &self,
        fetches: &Fetches,
        span: &Span,
        (done, most): (u64, u64),
        judge: impl FnOnce(u64) -> Result<(), FetchError>,
    ) -> Result<Fetched, FetchError> {
        let asked = self.ask(fetches, span, (done, most));
        let answer = match asked {
            Ok(asking) => asking.answer().await,
            Err(error) => Err(error),
        };
        let taken = answer.and_then(|fetched| match fetched.size {
            Some(size) if done == 0 => judge(size).map(|()| fetched),
            _ => Ok(fetched),
        });
        self.learn(span, taken)
    }

    /// Drops all READs made ahead.
    pub(crate) fn forget(&self) {
        let forgotten = std::mem::take(&mut self.ahead.lock().asked);
        // Not under the lock.
        drop(forgotten);
    }

    /// Reads the bytes after the first `done` ones, and more ahead.
    fn ask(&self, fetches: &Fetches, span: &Span, (done, most): (u64, u64)) -> Result<Asking, FetchError> {
        let mut ahead = self.ahead.lock();
        while ahead.asked.front().is_some_and(|asked| asked.from < done) {
            ahead.asked.pop_front();
        }
        let before = ahead.asked.front().map_or(u64::MAX, |asked| asked.from);
        let first = if before == done {
            ahead.asked.pop_front().ok_or(FetchError::Busy)?
        } else {
            let wants_size = ahead.known.is_none_or(|known| known.end <= done);
            let count = ahead.piece(span.end().min(before) - done);
            self.ask_at(fetches, span, (done, count), (Need::Now, wants_size))?
        };
        let mut next = ahead.asked.back().map_or(first.end(), PendingRead::end);
        let end = ahead.known.map_or(0, |known| known.end).min(span.end()).min(most);
        while next < end && ahead.asked.len() + 1 < ASKED_MAX {
            let count = ahead.piece(end - next);
            let Ok(asked) = self.ask_at(fetches, span, (next, count), (Need::Later, false)) else { break };
            next = asked.end();
            ahead.asked.push_back(asked);
        }
        Ok(first.asking)
    }

    fn ask_at(
        &self,
        fetches: &Fetches,
        span: &Span,
        (from, count): (u64, u32),
        (need, wants_size): (Need, bool),
    ) -> Result<PendingRead, FetchError> {
        let offset = span.source_offset.checked_add(from).ok_or(FetchError::Refused(Status::INVAL))?;
        let asking = fetches.ask(&self.file, (offset, count), wants_size, need)?;
        Ok(PendingRead { from, count, asking })
    }

    /// Updates the knowledge about the source from a READ.
    fn learn(&self, span: &Span, answer: Result<Fetched, FetchError>) -> Result<Fetched, FetchError> {
        let mut ahead = self.ahead.lock();
        match answer {
            Ok(fetched) => {
                let end = fetched.size.map(|size| size.saturating_sub(span.source_offset));
                if let Some(end) = end.or(ahead.known.map(|known| known.end)) {
                    ahead.known = Some(Known { end, granted: fetched.granted });
                }
                // READs are answered in any order; time must not go backwards.
                let at = ahead.latest.map_or(fetched.at, |latest| latest.or_later(fetched.at));
                ahead.latest = Some(at);
                Ok(Fetched { at, ..fetched })
            }
            Err(error) => {
                ahead.known = None;
                drop(ahead);
                self.forget();
                Err(error)
            }
        }
    }
}

impl Ahead {
    /// Returns how many of the `left` bytes to read at once.
    fn piece(&self, left: u64) -> u32 {
        let granted = self.known.map_or(FETCH_BYTES, |known| known.granted.clamp(1, FETCH_BYTES));
        left.min(granted.into()) as u32
    }
}
