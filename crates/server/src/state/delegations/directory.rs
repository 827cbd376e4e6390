//! Delegations of directories (RFC 8881 §10.9). Holders return them before other clients change the entries, or are notified of
//! the change by CB_NOTIFY (§20.4) if they asked for that.
//!
//! A notified holder keeps its delegation, so the notifications must add up to the directory: every change, in order. So
//! those of one delegation are sent one callback after the other; changes meanwhile gather for the next callback. Each change
//! must begin at the change attribute at which the last one ended. If one does not, the delegation is recalled: two changes were
//! made at once and reported in the other order, a client changed the directory's own attributes, or a local process changed
//! entries. It is also recalled if the holder refuses a notification, or too many gather
//! ([`Notices`](crate::state::tables::notices::Notices)). The holder then reads the directory again (§10.9.4). The alternative, a
//! lock of the directory over each change, would make all clients that change it wait for each other.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use protocol::nfs4::callback::CbOp;
use protocol::nfs4::callback::notify::CbNotifyArgs;
use protocol::nfs4::types::Bitmap;
use vfs::Change;
use xdr::List;

use super::recall::Calls;
use crate::state::State;
use crate::state::tables::callback::{Callback, CallbackPurpose};
use crate::state::tables::client::Client;
use crate::state::tables::delegation::entry_change::{EntryChange, SUPPORTED_NOTIFICATIONS};
use crate::state::tables::delegation::kind::DelegationKind;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::shard::Shard;
use crate::state::tables::stateid::EntryId;
use crate::state::tables::wire::Status;

impl State {
    /// Returns the notifications that a client gets of those that it asks for. A client that refused one recently gets none: a
    /// recall at the first change is less work for both sides than one after a refusal.
    #[must_use]
    pub fn granted_notifications(&self, now: Duration, client: &Client, requested: Bitmap) -> Bitmap {
        if self.takes_notices(client, now) {
            requested.intersection(SUPPORTED_NOTIFICATIONS)
        } else {
            Bitmap::EMPTY
        }
    }

    /// Notifies the holders of a directory's delegations of a change of its entries by `client`, that client too. §10.9.2: "the
    /// server will notify the delegation-holding client … of the changes made as a result of that client's directory-modifying
    /// operations".
    pub fn notify_entry_change(
        &self,
        now: Duration,
        client: Option<&Client>,
        directory: FileKey,
        change: &Change,
        entry: &EntryChange<'_>,
    ) {
        // One of two names of a file was renamed to the other: nothing changed (RENAME, §18.26.3).
        if change.before.change == change.after.change {
            return;
        }
        let mut calls = Calls::new();
        let mut shard = self.shards[self.shard_of(directory)].lock();
        for (index, is_own) in shard.directory_holders(directory, client.map(Client::id)) {
            let holder = Arc::clone(&shard.entry(index).client);
            let account = self.gauges.notices_of(&holder);
            let delegation = shard.delegation_at_mut(index);
            let is_notified = delegation.is_notified_of(entry.kind());
            // A holder knows its own change. Without notifications, another's change has recalled the delegation.
            if is_own && delegation.kind == DelegationKind::Directory(Bitmap::EMPTY) {
                continue;
            }
            let is_in_order =
                (is_notified || is_own) && delegation.notices.push(change, entry, is_notified, account);
            if !is_in_order {
                calls.extend(self.recall(&mut shard, index, now));
            } else if is_notified {
                calls.extend(self.next_notice(&mut shard, index));
            }
        }
        drop(shard);
        self.send_recalls(now, directory, calls);
    }

    /// Recalls all delegations of a directory: it is unknown whether a change of its entries was made.
    pub fn recall_directory(&self, now: Duration, directory: FileKey) {
        let mut calls = Calls::new();
        let mut shard = self.shards[self.shard_of(directory)].lock();
        for (index, _) in shard.directory_holders(directory, None) {
            calls.extend(self.recall(&mut shard, index, now));
        }
        drop(shard);
        self.send_recalls(now, directory, calls);
    }

    /// Handles the reply to CB_NOTIFY.
    pub(crate) fn notify_answered(&self, now: Duration, entry_id: EntryId, status: Status) {
        let mut shard = self.shards[entry_id.shard].lock();
        if !shard.is_delegation(entry_id) {
            return;
        }
        let client = Arc::clone(&shard.entry(entry_id.index).client);
        let delegation = shard.delegation_at_mut(entry_id.index);
        delegation.notices.answered();
        let call = match status {
            _ if !delegation.is_granted() => None,
            Status::OK => self.next_notice(&mut shard, entry_id.index),
            _ => {
                if is_refusal(status) {
                    client.refused_notice(now);
                }
                self.recall(&mut shard, entry_id.index, now)
            }
        };
        drop(shard);
        self.send_calls(call.into_iter().collect());
    }

    /// Returns the callback with the notifications that have gathered.
    fn next_notice(&self, shard: &mut Shard, index: u32) -> Option<(Arc<Client>, Callback)> {
        let client = Arc::clone(&shard.entry(index).client);
        let account = self.gauges.notices_of(&client);
        let (changes, charge) = shard.delegation_at_mut(index).notices.take(account)?;
        self.delegations.counts.notices.fetch_add(changes.len() as u64, Relaxed);
        let (entry_id, delegation) = (shard.entry_id(index), shard.delegation_at(index));
        let args = CbNotifyArgs {
            stateid: shard.stateid(index, self.ids.boot()),
            handle: delegation.handle,
            changes: List::new(changes).unwrap_or_default(),
        };
        let referring = delegation.granted_by;
        Some((
            client,
            Callback::new(CbOp::Notify(args), CallbackPurpose::Notify(entry_id, charge), referring),
        ))
    }
}

/// Returns whether this reply to CB_NOTIFY means that the client takes no notifications. A client that is busy, or whose
/// DELEGRETURN or grant is still on its way, answers so too (RFC 8881 §15.3), and takes the next.
fn is_refusal(status: Status) -> bool {
    !matches!(status, Status::OK | Status::DELAY | Status::BAD_STATEID | Status::BADHANDLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tables::notices::NOTICE_BYTES_MAX;

    #[test]
    fn the_longest_notifications_fit_in_a_callback() {
        let name = [b'n'; 255];
        let longest = EntryChange::Renamed { from: &name, to: &name, replaced: true }.notification().unwrap();
        assert!(2 * xdr::to_bytes(&longest).len() <= NOTICE_BYTES_MAX);
    }
}
