//! Changes that holders of directory delegations have not confirmed, and the memory that these take.
//!
//! A holder that does not answer determines the time for which a change is kept, and a holder that changes much determines their number.
//! So the bytes are bounded for one delegation, for one client (so that its silence costs others nothing), and over all. When
//! a bound is reached, the directory is recalled, and the client reads it again.
//!
//! The changes in a callback count until the holder has answered it or returned the directory, and as long as the callback
//! waits in a queue ([`Charge`]): returning directories does not free queued notifications.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use protocol::nfs4::callback::notify::Notification;
use vfs::Change;

use super::delegation::entry_change::EntryChange;

/// Bytes of changes in one CB_NOTIFY: two renames with the longest names. Little enough for a back channel of one page, as
/// Linux has it.
pub(crate) const NOTICE_BYTES_MAX: usize = 2048;
/// Changes queued for one delegation while a callback is unanswered: 26 KiB with the longest names.
const GATHERED_MAX: usize = 32;
/// Bytes of all unconfirmed changes: six hundred holders with full queues.
pub(crate) const ALL_BYTES_MAX: usize = 16 << 20;
/// Bytes of one client's unconfirmed changes.
pub(crate) const CLIENT_BYTES_MAX: usize = ALL_BYTES_MAX / 4;
/// Bytes of a change besides its values: the record, the allocator's overhead and a shared buffer.
const RECORD_BYTES: usize = size_of::<Notification>() + 64;

/// Bytes of unconfirmed changes.
#[derive(Debug, Default)]
pub(crate) struct Unconfirmed(AtomicUsize);

impl Unconfirmed {
    fn take(&self, bytes: usize, max: usize) -> bool {
        let fits = self.0.fetch_add(bytes, Relaxed) + bytes <= max;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    fn release(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// The counters of the memory for one client's notifications.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account<'a> {
    pub(crate) all: &'a Arc<Unconfirmed>,
    pub(crate) own: &'a Arc<Unconfirmed>,
}

/// The charge for the changes in one callback. It counts as long as the delegation (until the answer) or a queue holds it.
#[derive(Debug)]
pub(crate) struct Charge {
    bytes: usize,
    all: Arc<Unconfirmed>,
    own: Arc<Unconfirmed>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        Account { all: &self.all, own: &self.own }.release(self.bytes);
    }
}

impl Account<'_> {
    fn take(self, bytes: usize) -> bool {
        let is_own = self.own.take(bytes, CLIENT_BYTES_MAX);
        if is_own && !self.all.take(bytes, ALL_BYTES_MAX) {
            self.own.release(bytes);
            return false;
        }
        is_own
    }

    fn release(self, bytes: usize) {
        self.own.release(bytes);
        self.all.release(bytes);
    }

    /// Turns a charge into one that is released by its drop.
    fn hand_over(self, bytes: usize) -> Arc<Charge> {
        Arc::new(Charge { bytes, all: Arc::clone(self.all), own: Arc::clone(self.own) })
    }
}

/// The notifications of one directory delegation.
#[derive(Debug)]
pub(crate) struct Notices {
    /// The directory's `change` after the last change that the holder was notified of; at first, as of the grant.
    notified_until: u64,
    gathered: Vec<Notification>,
    /// The charge of the callback in progress.
    under_way: Option<Arc<Charge>>,
}

impl Notices {
    /// Returns the notifications of a delegation granted at this `change` of the directory. If the directory has changed since, the next
    /// change causes a recall.
    pub(crate) fn since(change: u64) -> Self {
        Self { notified_until: change, gathered: Vec::new(), under_way: None }
    }

    /// Queues a change. Returns false if it does not follow the last one, or the queue is full.
    pub(crate) fn push(
        &mut self,
        change: &Change,
        entries: &EntryChange<'_>,
        is_subscribed: bool,
        account: Account<'_>,
    ) -> bool {
        let goes_on = self.notified_until == change.before.change;
        self.notified_until = change.after.change;
        if !change.atomic || !goes_on || self.gathered.len() >= GATHERED_MAX {
            return false;
        }
        if !is_subscribed {
            return true;
        }
        let notification = entries.notification().filter(|one| account.take(bytes(one)));
        let is_kept = notification.is_some();
        self.gathered.extend(notification);
        is_kept
    }

    /// Returns the changes for the next callback, with their charge; `None` while a callback is in progress.
    pub(crate) fn take(&mut self, account: Account<'_>) -> Option<(Vec<Notification>, Weak<Charge>)> {
        if self.under_way.is_some() || self.gathered.is_empty() {
            return None;
        }
        let mut length = 0;
        let fits = |notification: &&Notification| {
            length += xdr::to_bytes(*notification).len();
            length <= NOTICE_BYTES_MAX
        };
        let count = self.gathered.iter().take_while(fits).count();
        let taken: Vec<Notification> = self.gathered.drain(..count).collect();
        let charge = account.hand_over(taken.iter().map(bytes).sum());
        let weak = Arc::downgrade(&charge);
        self.under_way = Some(charge);
        Some((taken, weak))
    }

    /// Notes that the holder has answered the callback.
    pub(crate) fn answered(&mut self) {
        self.under_way = None;
    }

    /// Drops queued changes: the delegation is being returned, and the holder gets no more notifications.
    pub(crate) fn forget(&mut self, account: Account<'_>) {
        account.release(std::mem::take(&mut self.gathered).iter().map(bytes).sum());
    }

    /// Ends the delegation.
    pub(crate) fn end(&mut self, account: Account<'_>) {
        self.forget(account);
        self.answered();
    }
}

/// Returns the memory of a queued change.
fn bytes(notification: &Notification) -> usize {
    RECORD_BYTES + notification.values.len()
}
