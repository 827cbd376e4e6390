//! Identifiers that clients cannot guess: client IDs, session IDs, verifiers, and the generations of stateids.
//!
//! All are SipHash-2-4 of a counter, keyed with the server's secret and the number of this server instance. So the state
//! needs no random numbers, and two instances do not assign the same identifiers. Only the number of a client's incarnation, a part
//! of its session IDs, is the same in all instances.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use siphasher::sip::SipHasher24;

use super::client::Client;
use super::stateid::Generations;
use super::wire::{ClientId, SessionId, Verifier};
use crate::StateLog;
use crate::state::state_log::key;
use crate::{HandleKey, Settings};

/// Maximum number of client IDs to try until one is free.
pub(crate) const CLIENT_IDS_TRIED: usize = 1024;
/// Bits of the keyed number in a client ID of version 4.0; the instance mark is above them.
const CLIENT_ID_TAG_BITS: u32 = 48;

/// The bytes of a session ID that have the number of the client's incarnation.
const INCARNATION: std::ops::Range<usize> = 4..8;

/// Returns the number of the client's incarnation in a session ID of any server instance: a client that has restarted does not repeat
/// requests of its earlier sessions.
pub(crate) fn incarnation_of(session: &SessionId) -> u32 {
    session[INCARNATION].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Generator of the identifiers of one server instance.
#[derive(Debug)]
pub(crate) struct Ids {
    secret: [u8; 16],
    instance: u64,
    /// The key of the numbers of clients' incarnations: that of file handles, which all instances have.
    shared_secret: HandleKey,
    /// Distinguishes this instance's stateids and 4.0 client IDs from those of earlier instances. Never 0 or 0xffff, as in special
    /// stateids.
    boot: u16,
    /// Number of client IDs tried.
    client_ids: AtomicU64,
    /// Number of session IDs and verifiers made.
    session_ids: AtomicU64,
}

/// Separates the keyed numbers of different uses.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Mark,
    ClientId,
    Generation,
    DeniedOwner,
}

impl Ids {
    /// Returns the identifiers of the instance that `settings` describe. `entries` are those of the state log, which gets the new
    /// instance's mark.
    pub(crate) fn new(settings: &Settings, entries: &[(Bytes, Bytes)], log: Option<&dyn StateLog>) -> Self {
        let Settings { secret, instance, .. } = *settings;
        let (client_ids, session_ids) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared_secret = settings.handle_key.clone();
        let ids = Self { secret, instance, shared_secret, boot: 0, client_ids, session_ids };
        let boot = ids.choose_mark(entries);
        if let Some(log) = log {
            // Changes become durable in order: this one before the record of any client of this instance.
            log.set(&[key::MARK], Some(&xdr::to_bytes(&u32::from(boot))));
        }
        Self { boot, ..ids }
    }

    /// Chooses a mark that differs from the previous instance's. With the same mark, a client that may reclaim would get
    /// EXPIRED instead of STALE_CLIENTID.
    fn choose_mark(&self, entries: &[(Bytes, Bytes)]) -> u16 {
        const MARKS: u64 = 0xfffe;
        let number = self.keyed_for(Purpose::Mark, 0) % MARKS;
        let previous = entries.iter().find(|(key, _)| **key == [key::MARK]);
        let previous = previous.and_then(|(_, value)| xdr::from_bytes::<u32>(value.clone()).ok());
        let mark = |number: u64| (number % MARKS + 1) as u16;
        if previous == Some(mark(number).into()) { mark(number + 1) } else { mark(number) }
    }

    /// Returns the mark of this instance in stateids.
    pub(crate) fn boot(&self) -> u16 {
        self.boot
    }

    /// Returns an unused client ID; `None` if [`CLIENT_IDS_TRIED`] in a row are in use. The next call tries others.
    ///
    /// In version 4.0, the ID alone names a client in RENEW, OPEN and RELEASE_LOCKOWNER. Later, CREATE_SESSION takes it from
    /// any principal, unless the client's state is protected (RFC 8881 §18.36.4). A 4.0 ID starts with the instance mark:
    /// a forgotten ID is answered differently from an ID of another instance.
    pub(crate) fn next_client_id(
        &self,
        is_v40: bool,
        is_free: impl Fn(ClientId) -> bool,
    ) -> Option<ClientId> {
        let next = || {
            let tag = self.keyed_for(Purpose::ClientId, self.client_ids.fetch_add(1, Relaxed));
            if is_v40 {
                u64::from(self.boot) << CLIENT_ID_TAG_BITS | tag >> (u64::BITS - CLIENT_ID_TAG_BITS)
            } else {
                tag
            }
        };
        let mut ids = std::iter::repeat_with(next).take(CLIENT_IDS_TRIED);
        ids.find(|id| *id != 0 && is_free(*id))
    }

    /// Starts again with the first client ID.
    #[cfg(test)]
    pub(crate) fn repeat_client_ids(&self) {
        self.client_ids.store(0, Relaxed);
    }

    /// Returns whether a 4.0 client ID has the mark of this instance.
    pub(crate) fn is_of_this_instance(&self, id: ClientId) -> bool {
        id >> CLIENT_ID_TAG_BITS == u64::from(self.boot)
    }

    /// Returns the client ID that `asker` sees in LOCK4denied: the real one only for its own locks, otherwise a number for
    /// the holder.
    ///
    /// RFC 8881 §18.10.3 wants the real ID. But §18.36.4 lets any principal create a session for a confirmed client ID, so
    /// a client that knows another's ID can act as that client. No known client uses the field.
    pub(crate) fn denied_owner(&self, asker: ClientId, holder: ClientId) -> ClientId {
        if asker == holder { holder } else { self.keyed_for(Purpose::DeniedOwner, holder) }
    }

    /// Returns a verifier that was not used before.
    pub(crate) fn next_verifier(&self) -> Verifier {
        self.keyed(self.session_ids.fetch_add(1, Relaxed)).to_be_bytes()
    }

    /// Returns a new session ID: the first half of the client ID, which helps readers of packet captures; the number of the client's
    /// incarnation ([`incarnation_of`]); and eight unguessable bytes.
    pub(crate) fn next_session_id(&self, client: &Client) -> SessionId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&client.id().to_be_bytes());
        id[INCARNATION].copy_from_slice(&self.incarnation(client).to_be_bytes());
        let number = self.session_ids.fetch_add(1, Relaxed);
        id[8..].copy_from_slice(&self.keyed(number).to_be_bytes());
        id
    }

    /// Returns a number for a client's owner string and verifier, the same in every instance.
    fn incarnation(&self, client: &Client) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.shared_secret.0);
        hasher.write(b"enfys: incarnations of clients");
        hasher.write(client.verifier());
        hasher.write(client.owner());
        hasher.finish() as u32
    }

    /// Returns the stateid generations of one shard.
    pub(crate) fn generations(&self, shard: usize) -> Generations {
        let mut hasher = self.hasher_for(Purpose::Generation);
        hasher.write_u64(shard as u64);
        Generations::new(hasher)
    }

    /// Returns the seed of hash tables, so that clients cannot choose keys that collide.
    pub(crate) fn table_seed(&self) -> u64 {
        self.keyed(u64::MAX)
    }

    fn hasher(&self) -> SipHasher24 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write_u64(self.instance);
        hasher
    }

    fn hasher_for(&self, purpose: Purpose) -> SipHasher24 {
        let mut hasher = self.hasher();
        hasher.write_u64(purpose as u64);
        hasher
    }

    fn keyed_for(&self, purpose: Purpose, number: u64) -> u64 {
        let mut hasher = self.hasher_for(purpose);
        hasher.write_u64(number);
        hasher.finish()
    }

    /// Returns an unguessable number that belongs to `number`.
    pub(crate) fn keyed(&self, number: u64) -> u64 {
        let mut hasher = self.hasher();
        hasher.write_u64(number);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::state::tables::principal::Principal;
    use crate::state::tables::slot_memory::SlotMemory;

    #[test]
    fn sessions_of_one_incarnation_share_its_number_in_all_instances() {
        let ids = |instance: u8| {
            let settings =
                Settings::new(HandleKey([7; 16]), instance.into(), [instance; 16], b"test".to_vec());
            Ids::new(&settings, &[], None)
        };
        let session = |ids: &Ids, id: ClientId, owner: &'static [u8], verifier: u8| {
            let (owner, slots) = (Bytes::from_static(owner), Arc::new(SlotMemory::new(0)));
            let client = Client::new(id, owner, [verifier; 8], Principal::Anonymous, slots, Duration::ZERO);
            ids.next_session_id(&client)
        };
        let (first, second) = (ids(1), ids(2));
        let known = session(&first, 10, b"client", 1);
        let again = session(&second, 20, b"client", 1);
        assert_ne!(known, again);
        assert_eq!(incarnation_of(&known), incarnation_of(&again));
        for (owner, verifier) in [(&b"client"[..], 2), (b"other", 1)] {
            assert_ne!(incarnation_of(&known), incarnation_of(&session(&second, 20, owner, verifier)));
        }
    }
}
