//! Whose a client ID is, and RENEW.

use std::sync::Arc;
use std::time::Duration;

use super::super::State;
use super::request::V40Caller;
use crate::state::tables::client::Client;
use crate::state::tables::recovery::V40Request;
use crate::state::tables::wire::{ClientId, Status};

impl State {
    /// Whose a client ID is, in version 4.0. Renews the lease.
    ///
    /// OPEN and RELEASE_LOCKOWNER name their client here. No principal is checked: only the client learns its client ID, which cannot be
    /// guessed. CLOSE and the others that name a stateid check the principal of the open instead.
    ///
    /// # Errors
    /// STALE_CLIENTID for one that this instance has not given, or that was not confirmed; EXPIRED for one that was forgotten, or
    /// that has lost something to another client.
    pub fn named_client(&self, now: Duration, id: ClientId) -> Result<Arc<Client>, Status> {
        let client = self.find_sessionless(id)?;
        client.renew(now);
        Ok(client)
    }

    /// RENEW.
    ///
    /// # Errors
    /// As [`Self::named_client`]; ACCESS (RFC 7530 §16.28.5) where `by` neither made the client ID nor "currently has an OPEN file
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

/// Whether a caller has a file open: whether an open-owner of its holds on to any.
fn has_open(client: &Client, caller: u64) -> bool {
    let Some(v40) = client.v40() else { return false };
    let owners = v40.owners.lock();
    let mut openers = owners.open.iter().filter(|(_, owner)| owner.callers.contains(&caller));
    openers.any(|(name, _)| Arc::strong_count(name) > 1)
}
