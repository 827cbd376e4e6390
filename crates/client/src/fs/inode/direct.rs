//! Reads and writes that bypass the cache (O_DIRECT).

use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, FuturesUnordered, StreamExt};

use super::OpenFile;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::Stability;

/// READs or WRITEs of one call that are in flight: 32 MiB of 1 MiB each fill a link of 25 Gbit/s over 10 ms.
const REQUESTS_MAX: usize = 32;

impl OpenFile {
    /// Reads from `offset` on until `count` bytes or the end of the file. Several READs are in flight.
    pub(super) async fn read_direct(&self, offset: u64, count: usize) -> Result<Vec<Bytes>, OpError> {
        self.inode().sync_data().await;
        let size = self.inode().mount.info().read_max as usize;
        let mut ranges =
            (0..count).step_by(size).map(|start| (offset + start as u64, size.min(count - start)));
        let (mut running, mut parts) = (FuturesOrdered::new(), Vec::new());
        loop {
            while running.len() < REQUESTS_MAX
                && let Some((offset, length)) = ranges.next()
            {
                running.push_back(self.read_range(offset, length));
            }
            let Some(outcome) = running.next().await else { return Ok(parts) };
            let (read, is_end) = outcome?;
            parts.extend(read);
            if is_end {
                // The other READs are behind the end.
                return Ok(parts);
            }
        }
    }

    /// Reads a range that fits one READ, with further READs if the server returns less. The second value tells whether the file
    /// ends in it.
    async fn read_range(&self, mut offset: u64, mut left: usize) -> Result<(Vec<Bytes>, bool), OpError> {
        let mut parts = Vec::new();
        let (client, handle) = (self.inode().client(), self.inode().handle());
        while left > 0 {
            let reply = client.read(self.caller(), handle, self.state(), offset, left as u32).await?;
            let length = reply.data.len();
            if length > 0 {
                parts.push(reply.data);
            }
            if reply.eof || length == 0 {
                return Ok((parts, true));
            }
            offset += length as u64;
            left -= length;
        }
        Ok((parts, false))
    }

    /// Writes all of `data` at `offset`, with several WRITEs in flight.
    pub(super) async fn write_direct(&self, offset: u64, data: Bytes) -> Result<(), OpError> {
        self.inode().sync_data().await;
        let size = self.inode().mount.info().write_max as usize;
        let mut starts = (0..data.len()).step_by(size);
        let mut running = FuturesUnordered::new();
        let outcome = loop {
            while running.len() < REQUESTS_MAX
                && let Some(start) = starts.next()
            {
                let part = data.slice(start..data.len().min(start + size));
                running.push(self.write_range(offset + start as u64, part));
            }
            match running.next().await {
                Some(Ok(())) => {}
                Some(Err(error)) => break Err(error),
                None => break Ok(()),
            }
        };
        self.inode().mount.shared.state.lock().writes.pages_mut().invalidate(self.inode().node.id);
        outcome
    }

    /// Writes data that fit one WRITE, with further WRITEs if the server takes less.
    async fn write_range(&self, mut offset: u64, mut data: Bytes) -> Result<(), OpError> {
        let (client, handle) = (self.inode().client(), self.inode().handle());
        while !data.is_empty() {
            let stability = self.flags().stability;
            let change = self.inode().start_change();
            let write = client.write(self.caller(), handle, self.state(), offset, data.clone(), stability);
            let reply = match write.await {
                Ok(reply) => reply,
                Err(error) => {
                    change.end_failed(&error);
                    return Err(error);
                }
            };
            change.end(Some(reply.file));
            if reply.stability == Stability::Unstable {
                self.note_unstable(reply.verifier)?;
            }
            offset += u64::from(reply.count);
            data = data.slice(reply.count as usize..);
        }
        Ok(())
    }

    /// Notes an unstable WRITE. A changed verifier shows that earlier ones may be lost, and their data are not cached.
    pub(super) fn note_unstable(&self, verifier: [u8; 8]) -> Result<(), OpError> {
        let before = self.unstable.lock().replace(verifier);
        if before.is_some_and(|before| before != verifier) { Err(data_lost()) } else { Ok(()) }
    }

    /// Makes data stable that were written around the cache.
    pub(super) async fn commit_direct(&self) -> Result<(), OpError> {
        let Some(verifier) = self.unstable.lock().take() else { return Ok(()) };
        let reply = self.inode().client().commit(self.caller(), self.inode().handle(), 0, 0).await?;
        if reply.verifier == verifier { Ok(()) } else { Err(data_lost()) }
    }
}

fn data_lost() -> OpError {
    OpError::Invalid(Errno::EIO, "the server restarted and has lost data that were written")
}
