//! Removal of owners: by RELEASE_LOCKOWNER, after a lease without use, and with their client.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::request::BUSY;
use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::gauges::weight;
use crate::state::tables::shard::{Deferred, EntryEvent};
use crate::state::tables::stateid::{EntryId, StateidError};
use crate::state::tables::v40_owners::{Other, Owner, Owners, Role};
use crate::state::tables::wire::{StateOwner, Stateid, Status};

/// Lock stateids remembered for an owner before ended ones are pruned.
const STATEIDS_BEFORE_PRUNING: usize = 16;

impl State {
    /// RELEASE_LOCKOWNER (RFC 7530 §16.37).
    ///
    /// # Errors
    /// STALE_CLIENTID, EXPIRED; LOCKS_HELD; RESOURCE if a request of the owner runs.
    pub fn release_lock_owner(&self, now: Duration, owner: &StateOwner) -> Result<(), Status> {
        let client = self.named_client(now, owner.client_id)?;
        let v40 = client.v40().ok_or(Status::STALE_CLIENTID)?;
        let mut owners = v40.owners.lock();
        let Some((name, known)) = owners.lock.get_key_value(&*owner.owner) else { return Ok(()) };
        if known.running {
            return Err(BUSY);
        }
        let name = Arc::clone(name);
        // "If file locks associated with the lock_owner are held at the server, the error NFS4ERR_LOCKS_HELD will be returned
        // and no further action will be taken." None is added meanwhile, because that is a request of the same owner.
        if known.stateids.iter().any(|other| self.holds_locks(&client, *other)) {
            return Err(Status::LOCKS_HELD);
        }
        for other in &known.stateids {
            self.cancel(&client, *other);
        }
        self.forget(&client, &mut owners, Role::Lock, &name);
        Ok(())
    }

    /// Remembers a lock stateid for RELEASE_LOCKOWNER.
    pub(crate) fn remember(&self, client: &Client, owner: &mut Owner, other: Other) {
        if owner.stateids.contains(&other) {
            return;
        }
        let (length, capacity) = (owner.stateids.len(), owner.stateids.capacity());
        if length >= STATEIDS_BEFORE_PRUNING && length == capacity {
            owner.stateids.retain(|other| self.is_held(client, *other));
        }
        owner.stateids.push(other);
    }

    fn is_held(&self, client: &Client, other: Other) -> bool {
        let entry_id = EntryId::parse(&Stateid { seqid: 0, other }, self.ids.boot());
        entry_id.is_ok_and(|entry_id| self.shards[entry_id.shard].lock().find(entry_id, client, None).is_ok())
    }

    fn holds_locks(&self, client: &Client, other: Other) -> bool {
        let Ok(entry_id) = EntryId::parse(&Stateid { seqid: 0, other }, self.ids.boot()) else {
            return false;
        };
        let shard = self.shards[entry_id.shard].lock();
        shard.find(entry_id, client, None).is_ok_and(|index| shard.holds_ranges(index))
    }

    /// Ends the open or lock of a stateid.
    pub(crate) fn cancel(&self, client: &Client, other: Other) {
        let Ok(entry_id) = EntryId::parse(&Stateid { seqid: 0, other }, self.ids.boot()) else { return };
        let mut deferred = Deferred::new();
        let mut shard = self.shards[entry_id.shard].lock();
        let event = match shard.find(entry_id, client, None) {
            Ok(_) => EntryEvent::Close,
            Err(StateidError::Revoked(_)) => EntryEvent::Acknowledge,
            Err(_) => return,
        };
        shard.end(entry_id.index, event, &self.gauges, &mut deferred);
        self.unlock_shard(shard, deferred);
    }

    /// Removes an owner.
    pub(crate) fn forget(&self, client: &Client, owners: &mut Owners, role: Role, name: &Arc<[u8]>) {
        let Some(owner) = owners.of(role).remove(name) else { return };
        self.gauges.charge(client, -(weight(name) as i32));
        if let Some(closed) = owner.closed {
            self.closed.0.lock().remove(&closed);
        }
        if !owner.confirmed
            && let Some(v40) = client.v40()
        {
            v40.unconfirmed.fetch_sub(1, Relaxed);
        }
    }

    /// Removes owners without state that were not used for a lease, and opens that were not confirmed for as long. Looks at all
    /// owners, so at most twice a lease.
    pub(crate) fn sweep_owners(&self, now: Duration, client: &Client) {
        let Some(v40) = client.v40() else { return };
        let mut owners = v40.owners.lock();
        if now.saturating_sub(owners.swept) < self.lease / 2 {
            return;
        }
        owners.swept = now;
        for role in [Role::Open, Role::Lock] {
            let idle = |owner: &Owner| !owner.running && now.saturating_sub(owner.used) >= self.lease;
            for (_, owner) in owners.of(role).iter_mut().filter(|(_, owner)| idle(owner)) {
                // §16.18.5: "neither of the two aforementioned events occurs for the open_owner4 within the lease period. In this
                // case, the OPEN state is canceled and disposal of the open_owner4 can occur."
                if let Some(opened) = owner.opened.take() {
                    self.cancel(client, opened);
                }
            }
            let gone =
                owners.of(role).iter().filter(|(name, owner)| idle(owner) && Arc::strong_count(name) == 1);
            let gone: Vec<Arc<[u8]>> = gone.map(|(name, _)| Arc::clone(name)).collect();
            for name in gone {
                self.forget(client, &mut owners, role, &name);
            }
        }
    }

    /// Removes all owners of a removed client.
    pub(crate) fn release_owners(&self, client: &Client) {
        let Some(v40) = client.v40() else { return };
        let mut owners = v40.owners.lock();
        for role in [Role::Open, Role::Lock] {
            let names: Vec<Arc<[u8]>> = owners.of(role).keys().cloned().collect();
            for name in names {
                self.forget(client, &mut owners, role, &name);
            }
        }
    }
}
