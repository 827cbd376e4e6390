//! Delegations of directories (RFC 8881 §10.9): their holders give them back before others change the entries, or are told
//! of the change by CB_NOTIFY (§20.4) where they asked for that.
//!
//! Criteria first. A holder that is told keeps its delegation, so what it is told must add up to the directory: every change,
//! in the order in which they were made. Notices of one delegation therefore go one callback after the other, what comes
//! meanwhile gathers and goes with the next; and each must begin where the last one ended, by the directory's change
//! attribute. Where one does not (two changes were made at once and told in the other order, somebody changed the directory's
//! own attributes, or a local process its entries), the delegation is recalled. So it is where the holder refuses a notice, or
//! more gathers than may ([`Notices`](crate::state::tables::notices::Notices)): it reads the directory anew then, as §10.9.4 has it. The alternative, a lock of the
//! directory over each change, would make all who change it wait for each other.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::callback::CbOp;
use protocol::nfs4::callback::notify::{
    CbNotifyArgs, Notification, NotifyAdd, NotifyEntry, NotifyRemove, NotifyRename, notify_type,
};
use protocol::nfs4::types::{Bitmap, Component};
use vfs::Change;
use xdr::{Encode, List, Opaque, Writer};

use super::delegation::{Delegation, DelegationKind, Recalls};
use crate::state::State;
use crate::state::callbacks::callback::{Callback, Purpose};
use crate::state::tables::client::Client;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::shard::Shard;
use crate::state::tables::stateid::Place;
use crate::state::tables::wire::{ClientId, Status};

/// What is told here at all. Attributes are not: a server that tells them makes a callback of each WRITE.
const TOLD: Bitmap =
    Bitmap::of(&[notify_type::REMOVE_ENTRY, notify_type::ADD_ENTRY, notify_type::RENAME_ENTRY]);

/// A kind of change of a directory's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryChange {
    /// An entry comes, and may take the place of another.
    Add,
    /// An entry goes.
    Remove,
    /// An entry gets another name within the directory, and may take the place of another.
    Rename,
}

/// What happened to a directory's entries.
#[derive(Debug, Clone, Copy)]
pub enum Entries<'n> {
    /// An entry came.
    Added {
        /// Its name.
        name: &'n [u8],
        /// Whether another had that name.
        replaced: bool,
    },
    /// An entry went.
    Removed {
        /// Its name.
        name: &'n [u8],
    },
    /// An entry got another name.
    Renamed {
        /// Before.
        from: &'n [u8],
        /// After.
        to: &'n [u8],
        /// Whether another had that name.
        replaced: bool,
    },
}

impl EntryChange {
    /// The notification that tells it.
    fn bit(self) -> u32 {
        match self {
            Self::Add => notify_type::ADD_ENTRY,
            Self::Remove => notify_type::REMOVE_ENTRY,
            Self::Rename => notify_type::RENAME_ENTRY,
        }
    }
}

impl Entries<'_> {
    fn kind(&self) -> EntryChange {
        match self {
            Self::Added { .. } => EntryChange::Add,
            Self::Removed { .. } => EntryChange::Remove,
            Self::Renamed { .. } => EntryChange::Rename,
        }
    }

    /// As the wire has it; none where a name is longer than any that a client can have sent.
    pub(crate) fn notification(&self) -> Option<Notification> {
        let mut values = Writer::new();
        match *self {
            Self::Added { name, replaced } => added(name, replaced)?.encode(&mut values),
            Self::Removed { name } => removed(name)?.encode(&mut values),
            Self::Renamed { from, to, replaced } => {
                let renamed = NotifyRename { old_entry: removed(from)?, new_entry: added(to, replaced)? };
                renamed.encode(&mut values);
            }
        }
        let values = Opaque::new(values.into_bytes()).ok()?;
        Some(Notification { mask: Bitmap::of(&[self.kind().bit()]), values })
    }
}

/// Without attributes, as the grant said.
fn entry(name: &[u8]) -> Option<NotifyEntry> {
    let file = Component::new(name.to_vec()).ok()?;
    Some(NotifyEntry { file, attributes: FileAttributes::default() })
}

/// The cookie of an entry that is gone is not known here any more; 0 is none's (§18.23.3), and the name says which it was.
fn removed(name: &[u8]) -> Option<NotifyRemove> {
    Some(NotifyRemove { old_entry: entry(name)?, old_entry_cookie: 0 })
}

fn added(name: &[u8], replaced: bool) -> Option<NotifyAdd> {
    let old_entry = if replaced { List::new(vec![removed(name)?]).ok()? } else { List::default() };
    Some(NotifyAdd {
        old_entry,
        new_entry: entry(name)?,
        new_entry_cookie: List::default(),
        previous_entry: List::default(),
        last_entry: false,
    })
}

impl Delegation {
    /// Whether its holder is told of such a change, and need not return it for that.
    pub(crate) fn is_told_of(&self, change: EntryChange) -> bool {
        self.is_granted() && matches!(self.kind, DelegationKind::Directory(told) if told.has(change.bit()))
    }
}

impl State {
    /// Of the notifications that a client asks for, those that it will get. None for a while, where it refused one: a delegation
    /// that is recalled at the first change is less work for both than one that is recalled behind it.
    #[must_use]
    pub fn notices_for(now: Duration, client: &Client, asked: Bitmap) -> Bitmap {
        if client.takes_notices(now) { asked.intersection(TOLD) } else { Bitmap::EMPTY }
    }

    /// An operation of `who` has changed a directory's entries: the holders are told, the one that made the change too
    /// (§10.9.2: "the server will notify the delegation-holding client … of the changes made as a result of that client's
    /// directory-modifying operations").
    pub fn entries_changed(
        &self,
        now: Duration,
        who: Option<&Client>,
        directory: FileKey,
        change: &Change,
        entries: &Entries<'_>,
    ) {
        // Two names of one file, one renamed to the other: nothing changed (RENAME, §18.26.3).
        if change.before.change == change.after.change {
            return;
        }
        let mut recalls = Recalls::new();
        let mut shard = self.shards[self.shard_of(directory)].lock();
        for (index, is_own) in shard.holders_of_directory(directory, who.map(Client::id)) {
            let client = Arc::clone(&shard.entry(index).client);
            let account = self.gauges.notices_of(&client);
            let delegation = shard.delegation_at_mut(index);
            let is_told = delegation.is_told_of(entries.kind());
            // Its own change a holder knows; another's it was to give the delegation back for, or to be told of.
            if is_own && delegation.kind == DelegationKind::Directory(Bitmap::EMPTY) {
                continue;
            }
            if !(is_told || is_own) || !delegation.notices.push(change, entries, is_told, account) {
                recalls.extend(self.recall(&mut shard, index, now));
            } else if is_told {
                recalls.extend(self.next_notice(&mut shard, index));
            }
        }
        drop(shard);
        self.send_contended(now, directory, recalls);
    }

    /// It is not known what became of a change: the holders that would have been told look for themselves.
    pub fn entries_unsure(&self, now: Duration, directory: FileKey) {
        let mut recalls = Recalls::new();
        let mut shard = self.shards[self.shard_of(directory)].lock();
        for (index, _) in shard.holders_of_directory(directory, None) {
            recalls.extend(self.recall(&mut shard, index, now));
        }
        drop(shard);
        self.send_contended(now, directory, recalls);
    }

    /// What the holder said to CB_NOTIFY.
    pub(crate) fn notify_answered(&self, now: Duration, place: Place, status: Status) {
        let mut shard = self.shards[place.shard].lock();
        if !shard.is_delegation(place) {
            return;
        }
        let client = Arc::clone(&shard.entry(place.index).client);
        let delegation = shard.delegation_at_mut(place.index);
        delegation.notices.answered();
        let call = match status {
            _ if !delegation.is_granted() => None,
            Status::OK => self.next_notice(&mut shard, place.index),
            _ => {
                if is_refusal(status) {
                    client.refused_notice(now);
                }
                self.recall(&mut shard, place.index, now)
            }
        };
        drop(shard);
        self.send_recalls(call.into_iter().collect());
    }

    /// The callback that tells a holder what has gathered.
    fn next_notice(&self, shard: &mut Shard, index: u32) -> Option<(Arc<Client>, Callback)> {
        let client = Arc::clone(&shard.entry(index).client);
        let account = self.gauges.notices_of(&client);
        let (changes, charge) = shard.delegation_at_mut(index).notices.take(account)?;
        self.delegations.counts.notices.fetch_add(changes.len() as u64, Relaxed);
        let (place, delegation) = (shard.place(index), shard.delegation_at(index));
        let args = CbNotifyArgs {
            stateid: shard.stateid(index, self.ids.boot()),
            handle: delegation.handle,
            changes: List::new(changes).unwrap_or_default(),
        };
        let referring = delegation.granted_by.clone();
        Some((client, Callback::new(CbOp::Notify(args), Purpose::Notify(place, charge), referring)))
    }
}

/// Whether a client that answers CB_NOTIFY so takes none. One that is busy, or whose DELEGRETURN or whose grant's reply is still on
/// its way, says so (RFC 8881 §15.3) and takes the next.
fn is_refusal(status: Status) -> bool {
    !matches!(status, Status::OK | Status::DELAY | Status::BAD_STATEID | Status::BADHANDLE)
}

impl Shard {
    /// Delegations of a directory that are in effect, and whether each is that of `who`.
    fn holders_of_directory(&self, directory: FileKey, who: Option<ClientId>) -> Vec<(u32, bool)> {
        let held = self.files.get(&directory).map_or(&[][..], |record| &record.delegations);
        let is_granted = |index: &u32| self.delegation_at(*index).is_granted();
        let with_owner = |index: u32| (index, Some(self.entry(index).client.id()) == who);
        held.iter().copied().filter(is_granted).map(with_owner).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tables::notices::NOTICE_BYTES_MAX;

    #[test]
    fn the_longest_notifications_fit_a_callback() {
        let name = [b'n'; 255];
        let longest = Entries::Renamed { from: &name, to: &name, replaced: true }.notification().unwrap();
        assert!(2 * xdr::to_bytes(&longest).len() <= NOTICE_BYTES_MAX);
    }
}
