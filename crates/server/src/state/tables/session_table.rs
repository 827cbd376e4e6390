//! The table of sessions.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::RwLock;

use super::session::Session;
use super::wire::SessionId;

/// Hashes a session ID by its second half, which is a keyed hash already.
#[derive(Debug, Default)]
pub(crate) struct SessionHasher(u64);

impl Hasher for SessionHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.last_chunk().map_or(0, |tail| u64::from_le_bytes(*tail));
    }

    fn write_usize(&mut self, _length: usize) {}
}

type SessionMap = HashMap<SessionId, Arc<Session>, BuildHasherDefault<SessionHasher>>;

/// Parts of the session table, to reduce contention between cores.
const PARTS: usize = 16;

/// All sessions by ID.
#[derive(Debug, Default)]
pub(crate) struct SessionTable([RwLock<SessionMap>; PARTS]);

impl SessionTable {
    fn part(&self, id: &SessionId) -> &RwLock<SessionMap> {
        // Not the bits that choose a place within the map.
        &self.0[usize::from(id[12]) % PARTS]
    }

    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.part(id).read().get(id).cloned()
    }

    pub(crate) fn contains(&self, id: &SessionId) -> bool {
        self.part(id).read().contains_key(id)
    }

    /// Returns whether one of these sessions has a connection for callbacks, is wide enough for them, and agrees with the client
    /// about its slots.
    pub(crate) fn carry_callbacks(&self, ids: &[SessionId]) -> bool {
        let carries = |session: Arc<Session>| {
            !session.has_fault.load(Relaxed)
                && session.bound.read().back().is_some()
                && session.back.lock().is_usable()
        };
        ids.iter().filter_map(|id| self.get(id)).any(carries)
    }

    /// Returns whether one of these sessions has room for notifications.
    pub(crate) fn carry_notices(&self, ids: &[SessionId]) -> bool {
        ids.iter().filter_map(|id| self.get(id)).any(|session| session.back.lock().carries_notices())
    }

    pub(crate) fn insert(&self, session: Session) -> Arc<Session> {
        let session = Arc::new(session);
        self.part(&session.id).write().insert(session.id, Arc::clone(&session));
        session
    }

    pub(crate) fn remove(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.part(id).write().remove(id)
    }

    /// Sessions of one of the parts, in turn.
    pub(crate) fn some(&self, turn: u64) -> Vec<Arc<Session>> {
        self.0[turn as usize % PARTS].read().values().cloned().collect()
    }

    /// Sessions, the slots granted to them, and those in use.
    pub(crate) fn count(&self) -> (u64, u64, u64) {
        let mut total = (0, 0, 0);
        for part in &self.0 {
            let part = part.read();
            total.0 += part.len() as u64;
            total.1 += part.values().map(|session| u64::from(session.slots.granted())).sum::<u64>();
            total.2 += part.values().map(|session| u64::from(session.slots.in_use())).sum::<u64>();
        }
        total
    }
}
