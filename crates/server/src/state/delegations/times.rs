//! SETATTR of the times that a holder maintains (RFC 9754 §5).

use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::delegation::times::{DelegatedTimes, FileTimes, ReportedTimes};
use crate::state::tables::file_key::FileKey;
use crate::state::tables::shard::EntryKind;
use crate::state::tables::wire::{Stateid, Status};

impl State {
    /// Returns the known times of a file that a client maintains by this delegation.
    ///
    /// # Errors
    /// As for every stateid; BAD_STATEID if the client does not maintain times by it.
    pub fn delegated_times(
        &self,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
    ) -> Result<FileTimes, Status> {
        let has_times = |kind: &EntryKind| matches!(kind, EntryKind::Delegation(delegation) if delegation.times.is_some());
        let (shard, index) = self.find_entry(client, file, stateid, has_times)?;
        Ok(shard.delegation_at(index).times.as_ref().expect("checked above").known)
    }

    /// Notes reported times that the file is about to get from the client that maintains them. Call it before the file has
    /// them, so that the times never go backwards for others ([`State::apply_held_attributes`]).
    pub fn advance_times(&self, client: &Client, file: FileKey, times: FileTimes) {
        self.change_times(client, file, |known, _| known.advance(times));
    }

    /// Notes times that a client has set, earlier or later ones. If it maintains them, they are the known ones.
    pub fn set_times(&self, client: &Client, file: FileKey, times: ReportedTimes) {
        self.change_times(client, file, |known, is_asked| known.set(times, is_asked));
    }

    fn change_times(&self, client: &Client, file: FileKey, change: impl FnOnce(&mut DelegatedTimes, bool)) {
        let mut shard = self.shards[self.shard_of(file)].lock();
        let Some(index) = shard.find_delegation(file, client.id()) else { return };
        let delegation = shard.delegation_at_mut(index);
        if let Some(times) = &mut delegation.times {
            change(times, delegation.queries.is_pending());
        }
    }
}
