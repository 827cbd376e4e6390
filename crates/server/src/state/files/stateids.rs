//! TEST_STATEID, FREE_STATEID, and the revocation of state.

use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::shard::{Deferred, EntryEvent, EntryKind};
use crate::state::tables::stateid::{EntryId, StateidError, check_seqid};
use crate::state::tables::wire::{ClientId, Stateid, Status};

impl State {
    /// Returns one status of TEST_STATEID. RFC 8881 §18.48.3: "the status code that would be returned if that stateid were to be
    /// used in normal operation", without a check of kind and file; "Special stateids are always considered invalid".
    #[must_use]
    pub fn test_stateid(&self, client: &Client, stateid: &Stateid) -> Status {
        let tested = EntryId::parse(stateid, self.ids.boot()).and_then(|entry_id| {
            let shard = self.shards[entry_id.shard].lock();
            shard.find_present(entry_id, client, None, stateid.seqid, self.settings.max_slots, |_| true)
        });
        tested.map_or_else(|error| error.status(false), |_| Status::OK)
    }

    /// FREE_STATEID (RFC 8881 §18.38).
    ///
    /// # Errors
    /// LOCKS_HELD: "If there are valid locks (of any kind) associated with the stateid in question"; BAD_STATEID, OLD_STATEID.
    pub fn free_stateid(&self, client: &Client, stateid: &Stateid) -> Result<(), Status> {
        let entry_id = EntryId::parse(stateid, self.ids.boot()).map_err(|error| error.status(false))?;
        let mut deferred = Deferred::new();
        let mut shard = self.shards[entry_id.shard].lock();
        let event = match shard.find(entry_id, client, None) {
            // "by sending the FREE_STATEID operation, the client acknowledges the loss of those locks".
            Err(StateidError::Revoked(_)) => EntryEvent::Acknowledge,
            Err(error) => return Err(error.status(false)),
            Ok(index) => {
                let entry = shard.entry(index);
                check_seqid(stateid.seqid, entry.seqid, self.settings.max_slots, false)
                    .map_err(|error| error.status(false))?;
                match &entry.kind {
                    EntryKind::Open(_) | EntryKind::Delegation(_) => return Err(Status::LOCKS_HELD),
                    EntryKind::NlmLock(_) | EntryKind::NlmShare(_) => return Err(Status::BAD_STATEID),
                    // §8.2.4: lock stateids "remain valid even if a LOCKU frees all remaining locks, … unless the client frees the
                    // stateids via the FREE_STATEID operation".
                    EntryKind::Lock(_) if shard.holds_ranges(index) => return Err(Status::LOCKS_HELD),
                    EntryKind::Lock(_) => {}
                }
                EntryEvent::Close
            }
        };
        let file = shard.entry(entry_id.index).file;
        shard.end(entry_id.index, event, &self.gauges, &mut deferred);
        if event == EntryEvent::Acknowledge {
            shard.acknowledged(client, file);
        }
        self.unlock_shard(shard, deferred);
        Ok(())
    }

    /// Revokes an open, a lock stateid or a delegation for the administrator. The client learns it from
    /// SEQ4_STATUS_ADMIN_STATE_REVOKED and ADMIN_REVOKED.
    ///
    /// # Errors
    /// BAD_STATEID if the client has no such state; EXPIRED or ADMIN_REVOKED if it is revoked already.
    pub fn revoke(&self, client: &Client, stateid: &Stateid) -> Result<(), Status> {
        let entry_id = EntryId::parse(stateid, self.ids.boot()).map_err(|error| error.status(false))?;
        let mut deferred = Deferred::new();
        let mut shard = self.shards[entry_id.shard].lock();
        let index = shard.find(entry_id, client, None).map_err(|error| error.status(false))?;
        shard.end(index, EntryEvent::AdminRevoke, &self.gauges, &mut deferred);
        self.unlock_shard(shard, deferred);
        Ok(())
    }

    /// Revokes all state of files in exports that are no longer served, as [`Self::revoke`] does; `is_served` gets an export's
    /// `fsid`.
    pub fn revoke_unserved(&self, is_served: impl Fn((u64, u64)) -> bool) {
        for shard in &self.shards {
            let mut deferred = Deferred::new();
            let mut shard = shard.lock();
            shard.revoke_files(|file| !is_served(file.fsid), &self.gauges, &mut deferred);
            self.unlock_shard(shard, deferred);
        }
    }

    /// Releases all state of a client whose record is removed. It locks one shard at a time, so that other operations wait for
    /// one only.
    pub(crate) fn release_state(&self, client: ClientId) {
        for shard in &self.shards {
            let mut deferred = Deferred::new();
            let mut shard = shard.lock();
            shard.release_client(client, &self.gauges, &mut deferred);
            self.unlock_shard(shard, deferred);
        }
    }
}
