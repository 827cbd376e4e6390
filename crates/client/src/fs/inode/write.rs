//! Write-behind, and fsync.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::flusher::poll_reserve;
use super::open::Description;
use super::{Inode, OpenFile};
use crate::cache::limiter::{Kind, Permit, Refused};
use crate::cache::pages::charge;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::Stability;

/// Bytes that are put into the cache at a time: a large write does not wait for memory for all of its data at once.
const PIECE: usize = 1 << 20;
/// Offsets are below this, as in POSIX.
const OFFSET_MAX: u64 = i64::MAX as u64;

impl OpenFile {
    /// Writes all of `data` at `offset`. They are sent later, unless the file was opened with O_SYNC, O_DSYNC or O_DIRECT, and
    /// stable after [`Self::sync`]. The call waits only for memory.
    ///
    /// # Errors
    /// As pwrite(2); also an error of earlier writes that was not reported yet. Some of the data may have been written.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), OpError> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= OFFSET_MAX);
        let Some(end) = end.filter(|end| *end <= self.inode().mount.info().file_size_max) else {
            return Err(OpError::Invalid(
                Errno::EFBIG,
                "the file would be larger than its file system allows",
            ));
        };
        if !self.flags().mode.write {
            return Err(OpError::Invalid(Errno::EBADF, "the file is not open for writing"));
        }
        self.take_error()?;
        if self.is_direct() {
            return self.write_direct(offset, data).await;
        }
        self.check_state()?;
        self.become_writer().await;
        for start in (0..data.len()).step_by(PIECE) {
            let piece = data.slice(start..data.len().min(start + PIECE));
            self.write_piece(offset + start as u64, piece).await?;
        }
        if self.flags().stability > Stability::Unstable {
            self.sync_range(offset..end).await?;
        }
        Ok(())
    }

    async fn write_piece(&self, offset: u64, data: Bytes) -> Result<(), OpError> {
        let mount = &self.inode().mount;
        let shared = &mount.shared;
        let delay = shared.limiter.write_delay(mount.now(), data.len() as u64);
        if !delay.is_zero() {
            mount.client().engine().sleep(delay).await;
        }
        let permit = self.description.reserve(Kind::Dirty, charge(data.len())).await?;
        let now = mount.now();
        mount.client().note_modified(&self.inode().handle());
        {
            let mut state = shared.state.lock();
            state.writes.write(self.inode().node.id, offset, data, permit, self.flags().stability, now);
            state.give_up(&shared.limiter);
        }
        shared.flusher.raise();
        Ok(())
    }

    /// Makes this description the writer of the file. Data of another caller are sent first, with that caller's credential.
    async fn become_writer(&self) {
        let (description, node) = (&self.description, &self.inode().node);
        loop {
            {
                let mut opens = node.opens.lock();
                let is_other =
                    opens.writer.as_ref().is_some_and(|writer| writer.caller != description.caller);
                if !is_other || self.inode().unstable_bytes() == 0 {
                    if !opens.writer.as_ref().is_some_and(|writer| Arc::ptr_eq(writer, description)) {
                        let before = opens.writer.replace(Arc::clone(description));
                        if std::mem::take(&mut opens.lingers) {
                            before.into_iter().for_each(Description::close_later);
                        }
                    }
                    return;
                }
            }
            self.inode().sync_data().await;
        }
    }

    /// Makes all written data stable.
    ///
    /// # Errors
    /// As fsync(2): errors of writes since the last report.
    pub async fn sync(&self) -> Result<(), OpError> {
        self.inode().commit_uncached().await;
        self.sync_range(0..u64::MAX).await
    }

    async fn sync_range(&self, range: Range<u64>) -> Result<(), OpError> {
        self.inode().wait_stable(range).await?;
        self.take_error()
    }
}

impl Inode {
    /// Returns the bytes of this file that are not stable.
    pub(super) fn unstable_bytes(&self) -> u64 {
        self.mount.shared.state.lock().writes.unstable_bytes(self.node.id)
    }

    /// Waits until earlier data of this file are stable or have failed: then the file's descriptions get
    /// the error.
    pub(super) async fn sync_data(&self) {
        self.commit_uncached().await;
        self.sync_cached_data().await;
    }

    /// As [`Self::sync_data`], for data that were written to the cache.
    pub(super) async fn sync_cached_data(&self) {
        if self.unstable_bytes() > 0 {
            // The client has ended: there is nothing to wait for.
            let _ = self.wait_stable(0..u64::MAX).await;
        }
    }

    /// Waits until the server has acknowledged the data of this file that were written before, stable or not. Returns whether
    /// there were any.
    pub(super) async fn send_data(&self) -> bool {
        let shared = &self.mount.shared;
        let ticket = shared.state.lock().writes.flush(self.node.id);
        let Some(ticket) = ticket else { return false };
        // The client has ended: there is nothing to wait for.
        let _ = shared.flusher.wait(ticket).await;
        true
    }

    /// Begins to send the data of this file that were written before.
    pub(super) fn start_sending(&self) {
        let shared = &self.mount.shared;
        // Nobody waits for it.
        drop(shared.state.lock().writes.flush(self.node.id));
        shared.flusher.raise();
    }

    async fn wait_stable(&self, range: Range<u64>) -> Result<(), OpError> {
        let shared = &self.mount.shared;
        let ticket = shared.state.lock().writes.sync(self.node.id, range);
        shared.flusher.wait(ticket).await
    }
}

impl Description {
    /// Reserves memory, and waits for it if there is none.
    pub(super) async fn reserve(&self, kind: Kind, bytes: u64) -> Result<Permit, OpError> {
        let mut reserve = std::pin::pin!(self.user.reserve(kind, bytes));
        let shared = &self.inode.mount.shared;
        let reserved = poll_fn(|context| poll_reserve(shared, reserve.as_mut(), context)).await;
        reserved.map_err(|refused| match refused {
            Refused::Full | Refused::TooLarge => {
                OpError::Invalid(Errno::ENOMEM, "the memory budget is too small")
            }
        })
    }
}
