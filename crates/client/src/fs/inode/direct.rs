//! Reads and writes that bypass the cache (O_DIRECT).

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{FuturesOrdered, FuturesUnordered, StreamExt};

use super::OpenFile;
use super::open::Description;
use crate::error::OpError;
use crate::results::{Stability, WriteReply};

/// READs or WRITEs of one call that are in flight: 32 MiB of 1 MiB each fill a link of 25 Gbit/s over 10 ms.
const REQUESTS_MAX: usize = 32;

impl OpenFile {
    /// Reads from `offset` on until `count` bytes or the end of the file. Several READs are in flight.
    pub(super) async fn read_direct(&self, offset: u64, count: usize) -> Result<Vec<Bytes>, OpError> {
        self.inode().sync_cached_data().await;
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
                // The other READs are beyond the end of the file.
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
        let inode = self.inode();
        inode.sync_cached_data().await;
        inode.client().note_modified(&inode.handle());
        let range = offset..offset + data.len() as u64;
        let size = inode.mount.info().write_max as usize;
        let mut starts = (0..data.len()).step_by(size);
        let mut running = FuturesUnordered::new();
        let mut needs_commit = false;
        let outcome = loop {
            while running.len() < REQUESTS_MAX
                && let Some(start) = starts.next()
            {
                let part = data.slice(start..data.len().min(start + size));
                let stability = self.flags().stability;
                running.push(self.description.write_range(offset + start as u64, part, stability));
            }
            match running.next().await {
                Some(Ok(too_much)) => needs_commit |= too_much,
                Some(Err(error)) => break Err(error),
                None => break Ok(()),
            }
        };
        inode.drop_clean_data(range);
        if needs_commit {
            inode.commit_uncached().await;
        }
        outcome
    }
}

impl Description {
    /// Writes data that fit one WRITE, with further WRITEs if the server takes less. They are kept until a COMMIT if they are not
    /// stable. Returns whether too much is kept.
    async fn write_range(
        self: &Arc<Self>,
        mut offset: u64,
        mut data: Bytes,
        stability: Stability,
    ) -> Result<bool, OpError> {
        let mut needs_commit = false;
        while !data.is_empty() {
            let reply = self.write_once(offset, data.clone(), stability).await?;
            let rest = data.split_off(reply.count as usize);
            needs_commit |= self.inode.note_written(self, offset, &data, &reply);
            offset += u64::from(reply.count);
            data = rest;
        }
        Ok(needs_commit)
    }

    /// Sends a WRITE.
    pub(super) async fn write_once(
        &self,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<WriteReply, OpError> {
        let (inode, change) = (&self.inode, self.inode.start_change());
        let written =
            inode.client().write(&self.caller, inode.handle(), &self.state, offset, data, stability);
        match written.await {
            Ok(reply) => {
                change.end(Some(reply.file));
                Ok(reply)
            }
            Err(error) => {
                change.end_failed(&error);
                Err(error)
            }
        }
    }
}
