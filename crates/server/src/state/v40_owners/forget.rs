//! What of owners is forgotten, and when: by RELEASE_LOCKOWNER, when nobody has used them for long, and with their client.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::request::BUSY;
use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::gauges::weight;
use crate::state::tables::shard::{Deferred, EntryEvent};
use crate::state::tables::stateid::{Flaw, Place};
use crate::state::tables::v40_owners::{Other, Owner, Owners, Role};
use crate::state::tables::wire::{StateOwner, Stateid, Status};

/// Lock stateids of an owner that are remembered before those that are gone are forgotten.
const STATEIDS_BEFORE_PRUNING: usize = 16;

impl State {
    /// RELEASE_LOCKOWNER (RFC 7530 §16.37).
    ///
    /// # Errors
    /// STALE_CLIENTID, EXPIRED; LOCKS_HELD; RESOURCE where a request of the owner runs.
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
        // and no further action will be taken." Nobody adds one meanwhile: that takes the owner's turn.
        if known.stateids.iter().any(|other| self.holds_locks(&client, *other)) {
            return Err(Status::LOCKS_HELD);
        }
        for other in &known.stateids {
            self.cancel(&client, *other);
        }
        self.forget(&client, &mut owners, Role::Lock, &name);
        Ok(())
    }

    /// Keeps a lock stateid for RELEASE_LOCKOWNER.
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
        let place = Place::parse(&Stateid { seqid: 0, other }, self.ids.boot());
        place.is_ok_and(|place| self.shards[place.shard].lock().find(place, client, None).is_ok())
    }

    fn holds_locks(&self, client: &Client, other: Other) -> bool {
        let Ok(place) = Place::parse(&Stateid { seqid: 0, other }, self.ids.boot()) else { return false };
        let shard = self.shards[place.shard].lock();
        shard.find(place, client, None).is_ok_and(|index| shard.holds_ranges(index))
    }

    /// Ends what a stateid stands for.
    pub(crate) fn cancel(&self, client: &Client, other: Other) {
        let Ok(place) = Place::parse(&Stateid { seqid: 0, other }, self.ids.boot()) else { return };
        let mut deferred = Deferred::new();
        let mut shard = self.shards[place.shard].lock();
        let event = match shard.find(place, client, None) {
            Ok(_) => EntryEvent::Close,
            Err(Flaw::Revoked(_)) => EntryEvent::Acknowledge,
            Err(_) => return,
        };
        shard.end(place.index, event, &self.gauges, &mut deferred);
        self.unlock_shard(shard, deferred);
    }

    /// Forgets an owner.
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

    /// Forgets the owners that have nothing and that nobody has used for a lease time, and what waits for a confirmation as
    /// long. Looks twice a lease at most, as it looks at all of them.
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

    /// Forgets all owners of a client whose record is gone.
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
