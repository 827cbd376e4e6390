//! Data that were written without the cache and that the server has not stored yet. They are kept until a COMMIT: a server that
//! restarts may have lost them, and then they are written again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Inode;
use super::open::Description;
use crate::error::OpError;
use crate::results::{Stability, WriteReply};
use crate::write::Verifier;

/// Part of the memory budget that all files of a mount keep: a half. Beyond this each write call is committed before it ends.
const UNCOMMITTED_PART: u64 = 2;
/// Data below this length are copied: a slice may keep a larger buffer in memory.
const COPIED_BELOW: usize = 4096;
/// Bytes that are counted for each write besides its data.
const WRITE_OVERHEAD: u64 = 128;

/// The uncommitted writes of one file.
#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    /// Offsets and data in the order of acknowledgement, so that the newest ones apply.
    writes: Vec<(u64, Bytes)>,
    /// The description for which they are rewritten, and the newest verifier; `None` if there are no writes.
    last: Option<(Arc<Description>, Verifier)>,
    /// Set if the verifier has changed since the first write.
    is_lost: bool,
}

impl Uncommitted {
    /// Keeps data that the server has acknowledged. Stable ones are kept only if others are kept, which would overwrite them.
    fn add(&mut self, writer: &Arc<Description>, offset: u64, data: &Bytes, reply: &WriteReply) -> u64 {
        if reply.stability > Stability::Unstable && self.writes.is_empty() {
            return 0;
        }
        let verifier = reply.verifier;
        if reply.stability == Stability::Unstable {
            self.is_lost |= self.last.as_ref().is_some_and(|(_, known)| *known != verifier);
            self.last = Some((Arc::clone(writer), verifier));
        }
        let data = if data.len() < COPIED_BELOW { Bytes::copy_from_slice(data) } else { data.clone() };
        let bytes = data.len() as u64 + WRITE_OVERHEAD;
        self.writes.push((offset, data));
        bytes
    }

    /// Returns whether everything is committed.
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    fn pending(&self) -> Option<Pending> {
        let (writer, verifier) = self.last.clone()?;
        Some(Pending { count: self.writes.len(), writer, verifier, is_lost: self.is_lost })
    }

    /// Drops the first `count` writes, which are stable or lost permanently. Returns the number of dropped bytes, and whether no
    /// write remains.
    fn end(&mut self, count: usize, outcome: &Result<Done, OpError>) -> (u64, bool) {
        let released = self.writes.drain(..count).map(|(_, data)| data.len() as u64 + WRITE_OVERHEAD).sum();
        let is_empty = self.writes.is_empty();
        if is_empty {
            self.last = None;
        }
        self.is_lost = !is_empty && (self.is_lost || matches!(outcome, Ok(Done::Rewritten)));
        (released, is_empty)
    }
}

/// The writes to commit.
struct Pending {
    count: usize,
    writer: Arc<Description>,
    verifier: Verifier,
    is_lost: bool,
}

/// The way in which data became stable.
enum Done {
    Committed,
    Rewritten,
}

impl Inode {
    /// Notes the result of a WRITE without the cache. Returns whether the caller must commit, because too much is kept.
    pub(super) fn note_written(
        &self,
        writer: &Arc<Description>,
        offset: u64,
        data: &Bytes,
        reply: &WriteReply,
    ) -> bool {
        let added = self.node.uncommitted.lock().add(writer, offset, data, reply);
        let shared = &self.mount.shared;
        let kept = shared.uncommitted_bytes.fetch_add(added, Ordering::Relaxed) + added;
        kept > shared.limiter.budget().total / UNCOMMITTED_PART
    }

    /// Returns whether data written without the cache for this description are not committed.
    pub(super) fn has_uncommitted_of(&self, writer: &Description) -> bool {
        let uncommitted = self.node.uncommitted.lock();
        uncommitted.last.as_ref().is_some_and(|(last, _)| std::ptr::eq(&**last, writer))
    }

    /// Makes data stable that were written without the cache, and rewrites them if the server has lost them. All descriptions
    /// of the file get an error, also those that wrote the data.
    pub(super) async fn commit_uncached(&self) {
        // One at a time: the second caller waits until the data are stable.
        let _turn = self.node.commit_lock.lock().await;
        loop {
            let Some(pending) = self.node.uncommitted.lock().pending() else { return };
            let outcome = self.commit_or_rewrite(&pending).await;
            let (released, is_empty) = self.node.uncommitted.lock().end(pending.count, &outcome);
            self.mount.shared.uncommitted_bytes.fetch_sub(released, Ordering::Relaxed);
            match outcome {
                // Older data may now have replaced newer ones.
                Ok(Done::Rewritten) if !is_empty => {}
                Ok(_) => return,
                Err(error) => {
                    let mut state = self.mount.shared.state.lock();
                    return state.writes.note_error(self.node.id, error.errno());
                }
            }
        }
    }

    async fn commit_or_rewrite(&self, pending: &Pending) -> Result<Done, OpError> {
        let Pending { count, writer, verifier, is_lost } = pending;
        if !is_lost {
            let started = self.mount.start();
            let reply = self.client().commit(&writer.caller, self.handle(), 0, 0).await?;
            if let Some(attributes) = reply.file.after {
                self.learn(started, attributes);
            }
            if reply.verifier == *verifier {
                return Ok(Done::Committed);
            }
        }
        let writes = self.node.uncommitted.lock().writes[..*count].to_vec();
        for (mut offset, mut data) in writes {
            while !data.is_empty() {
                let reply = writer.write_once(offset, data.clone(), Stability::FileSync).await?;
                // They may have been read while the server did not have the data.
                self.drop_clean_data(offset..offset + u64::from(reply.count));
                offset += u64::from(reply.count);
                data = data.slice(reply.count as usize..);
            }
        }
        Ok(Done::Rewritten)
    }
}
