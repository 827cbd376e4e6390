//! Locks and share reservations of NLM hosts. They belong to no open: an entry has all locks of an owner of a host in a
//! file, or one share reservation.

use std::sync::Arc;

use vfs::Pin;

use super::super::client::Client;
use super::super::file_key::FileKey;
use super::super::gauges::{Gauges, adjust};
use super::super::locks::{LockOwner, OwnerName};
use super::entry::{Entry, EntryKind};
use super::file::File;
use super::nlm_entry::{NlmLock, NlmShare};
use super::table::Shard;

impl Shard {
    /// Returns the entry of an owner's locks in a file.
    pub(crate) fn find_nlm_lock(&self, file: FileKey, name: &OwnerName) -> Option<u32> {
        let owner = self.files.get(&file)?.lock_owners.find(name)?;
        self.nlm_locks.get(&(file, owner)).copied()
    }

    /// Returns the entry of an owner's locks in a file; creates it if there is none.
    pub(crate) fn nlm_lock_entry(
        &mut self,
        file: FileKey,
        (client, name): (&Arc<Client>, &OwnerName),
        pin: &Arc<dyn Pin>,
        gauges: &Gauges,
    ) -> u32 {
        if let Some(index) = self.find_nlm_lock(file, name) {
            return index;
        }
        let record = self.nlm_file(file);
        record.nlm_locks += 1;
        let owner = record.lock_owners.add_set(name.clone());
        let lock = NlmLock { name: name.clone(), owner, pin: Arc::clone(pin) };
        let index = self.add(client, file, EntryKind::NlmLock(Box::new(lock)), gauges);
        self.nlm_locks.insert((file, owner), index);
        index
    }

    /// Returns the number of an owner's locks in a file.
    pub(crate) fn nlm_lock_owner(&self, index: u32) -> LockOwner {
        match &self.entry(index).kind {
            EntryKind::NlmLock(lock) => lock.owner,
            _ => unreachable!("the index is that of an NLM host's locks"),
        }
    }

    /// Returns an NLM host's share reservation.
    pub(crate) fn nlm_share_at(&self, index: u32) -> &NlmShare {
        match &self.entry(index).kind {
            EntryKind::NlmShare(share) => share,
            _ => unreachable!("the index is that of an NLM host's share reservation"),
        }
    }

    /// Returns the share reservations of NLM hosts on a file.
    pub(crate) fn nlm_shares(&self, file: FileKey) -> impl Iterator<Item = (u32, &Entry, &NlmShare)> {
        let shares = self.files.get(&file).into_iter().flat_map(|record| record.nlm_shares.iter());
        shares.map(|index| (*index, self.entry(*index), self.nlm_share_at(*index)))
    }

    /// Adds a share reservation, which must not conflict and whose owner has no other on this file.
    pub(crate) fn add_nlm_share(
        &mut self,
        file: FileKey,
        (client, owner): (&Arc<Client>, &Arc<[u8]>),
        bits: (u8, u8),
        pin: Arc<dyn Pin>,
        gauges: &Gauges,
    ) {
        let share = NlmShare { owner: Arc::clone(owner), bits, pin };
        let index = self.add(client, file, EntryKind::NlmShare(Box::new(share)), gauges);
        self.nlm_file(file).nlm_shares.push(index);
        adjust(&gauges.denying, i64::from(bits.1 != 0));
    }

    /// Removes a share reservation from its file.
    pub(super) fn leave_nlm_shares(&mut self, file: FileKey, index: u32) {
        let record = self.file_mut(file);
        record.nlm_shares.retain(|share| *share != index);
        self.forget_unused(file);
    }

    fn nlm_file(&mut self, file: FileKey) -> &mut File {
        let seed = self.seed ^ file.fileid;
        self.files.entry(file).or_insert_with(|| File::new(seed))
    }
}
