//! Client IDs of version 4.0, and RENEW.

use std::sync::Arc;
use std::time::Duration;

use super::super::State;
use super::request::V40Caller;
use crate::state::tables::client::Client;
use crate::state::tables::recovery::V40Request;
use crate::state::tables::wire::{ClientId, Status};

impl State {
    /// Returns the client of a client ID of version 4.0, and renews its lease.
    ///
    /// OPEN and RELEASE_LOCKOWNER name their client so. No principal is checked: only the client knows its client ID, which cannot
    /// be guessed. CLOSE and other operations with a stateid check the principal of the open instead.
    /// # Errors
    /// STALE_CLIENTID if this instance did not issue it, or it was not confirmed; EXPIRED if the client was removed, or lost
    /// state.
    pub fn named_client(&self, now: Duration, id: ClientId) -> Result<Arc<Client>, Status> {
        let client = self.find_sessionless(id)?;
        client.renew(now);
        Ok(client)
    }

    /// RENEW.
    ///
    /// # Errors
    /// As [`Self::named_client`]; ACCESS (RFC 7530 §16.28.5) if `by` neither created the client ID nor "currently has an OPEN file
    /// on the server".
    pub fn renewed(&self, now: Duration, id: ClientId, by: V40Caller<'_>) -> Result<Arc<Client>, Status> {
        let client = self.find_sessionless(id)?;
        if client.principal() != by.principal && !has_open(&client, by.caller) {
            return Err(Status::ACCESS);
        }
        client.renew(now);
        self.note_v40_request(now, &client, V40Request::Renews);
        Ok(client)
    }
}

/// Returns whether a caller has a file open: whether any open holds a reference to one of its open-owners.
fn has_open(client: &Client, caller: u64) -> bool {
    let Some(v40) = client.v40() else { return false };
    let owners = v40.owners.lock();
    let mut openers = owners.open.iter().filter(|(_, owner)| owner.callers.contains(&caller));
    openers.any(|(name, _)| Arc::strong_count(name) > 1)
}
