//! A bound on how many operations of one connection wait for the same reason.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Counts the operations of a connection that wait.
#[derive(Debug, Default)]
pub(crate) struct WaitLimit(AtomicU32);

/// The permission to wait; dropping it makes room for another operation.
#[derive(Debug)]
pub(crate) struct WaitPermit<'l>(&'l WaitLimit);

impl WaitLimit {
    /// Returns a permit if fewer than `most` operations wait.
    pub(crate) fn enter(&self, most: u32) -> Option<WaitPermit<'_>> {
        let permit = WaitPermit(self);
        (self.0.fetch_add(1, Relaxed) < most).then_some(permit)
    }
}

impl Drop for WaitPermit<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}
