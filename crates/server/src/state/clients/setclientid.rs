//! SETCLIENTID and SETCLIENTID_CONFIRM of version 4.0 (RFC 7530 §16.33, §16.34). The records are those of EXCHANGE_ID.
//!
//! Owners of version 4.0 have their own name space: the same string in EXCHANGE_ID names another client. RFC 8881 §2.4.1 allows
//! a server to match both, for a client that was upgraded. Here the state of the old client is removed on a conflict when its lease has expired.

use std::sync::Arc;
use std::time::Duration;

use super::new_record::{Confirmed, NewProtocol, NewRecord};
use crate::state::State;
use crate::state::tables::client::{Client, ClientKind};
use crate::state::tables::client_table::{ClientTable, Record, RecordEvent, RecordPhase};
use crate::state::tables::principal::Principal;
use crate::state::tables::v40_client::CallbackClient;
use crate::state::tables::wire::{ClientId, NetAddress, SetClientIdOk, Status, Verifier};

/// Arguments of SETCLIENTID.
#[derive(Debug, Clone, Copy)]
pub struct SetClientId<'a> {
    /// `client.id`.
    pub owner: &'a [u8],
    /// `client.verifier`.
    pub verifier: Verifier,
    /// The caller.
    pub principal: &'a Principal,
    /// Address and program for callbacks, once confirmed.
    pub callback: &'a CallbackClient,
}

/// The failure of SETCLIENTID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetClientIdError {
    /// CLID_INUSE, with the callback address of the client that uses the name.
    InUse(NetAddress),
    /// Any other status.
    Status(Status),
}

/// The effect of SETCLIENTID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// Adds an unconfirmed record with a new client ID, which replaces any unconfirmed one.
    New,
    /// Adds new callback information to the confirmed record, for a later confirmation.
    Update,
    /// CLID_INUSE.
    Refuse,
}

/// Decides among the cases of §16.33.5. `is_kept`: another principal's client of this name may still reclaim state from before a
/// restart.
fn decide(confirmed: Option<Confirmed>, is_kept: bool) -> Decision {
    match confirmed {
        // The restart removed the record, but its client may still reclaim.
        None if is_kept => Decision::Refuse,
        // "For any confirmed record with the same id string x, if the recorded principal does not match that of the SETCLIENTID
        // call, then the server returns an NFS4ERR_CLID_INUSE error." A record without state may be replaced, as for
        // EXCHANGE_ID (RFC 8881 §18.35.4) and in Linux's server.
        Some(Confirmed { same_principal: false, in_use: true, .. }) => Decision::Refuse,
        // "since the id verifier v of the request matches that which is confirmed and recorded, the server treats this as a
        // probable callback information update".
        Some(Confirmed { same_principal: true, same_verifier: true, .. }) => Decision::Update,
        // "{ u, x, c, l, s } record such that v != u", with or without an unconfirmed one; and "no confirmed { *, x, *, *, * }".
        Some(_) | None => Decision::New,
    }
}

impl State {
    /// SETCLIENTID.
    ///
    /// # Errors
    /// CLID_INUSE; DELAY if there is no room for a record, or no client ID is free.
    pub fn set_client_id(
        &self,
        now: Duration,
        request: &SetClientId<'_>,
    ) -> Result<SetClientIdOk, SetClientIdError> {
        let mut removed = Vec::new();
        let result = self.decide_set_client_id(now, request, &mut removed);
        self.release_records(removed);
        result
    }

    fn decide_set_client_id(
        &self,
        now: Duration,
        request: &SetClientId<'_>,
        removed: &mut Vec<Record>,
    ) -> Result<SetClientIdOk, SetClientIdError> {
        let confirm = self.ids.next_verifier();
        let mut table = self.clients.lock();
        let mut owned = table.owned(ClientKind::V40, request.owner);
        // A client that lost some of its state starts again: see `find_sessionless`.
        let lost = owned.confirmed.and_then(|id| table.record_mut(id)).filter(|record| {
            record.client.has_lost_state() && record.client.principal() == request.principal
        });
        if let Some(id) = lost.map(|record| record.client.id()) {
            removed.extend(table.remove(id, RecordEvent::Expire));
            owned = table.owned(ClientKind::V40, request.owner);
        }
        let is_kept = self.recovery.is_name_reserved(now, ClientKind::V40, request.owner, request.principal);
        let confirmed = owned.confirmed.and_then(|id| table.record_mut(id));
        let known = confirmed.as_ref().map(|record| Confirmed {
            same_verifier: *record.client.verifier() == request.verifier,
            same_principal: record.client.principal() == request.principal,
            in_use: record.blocks_collision(now, self.lease, is_kept),
        });
        match (decide(known, is_kept), confirmed) {
            (Decision::Update, Some(record)) => {
                // "Any pre-existing unconfirmed { v, x, c, *, * } is removed."
                if let Some(confirmation) = &mut record.confirmation {
                    confirmation.update = Some((request.callback.clone(), confirm));
                }
                return Ok(SetClientIdOk { client_id: record.client.id(), confirm });
            }
            (Decision::Refuse, record) => {
                let callback = record.and_then(|record| record.client.v40()).map(|it| &it.callback);
                return Err(SetClientIdError::InUse(
                    callback.map(|callback| callback.lock().location.clone()).unwrap_or_default(),
                ));
            }
            (Decision::New | Decision::Update, _) => {}
        }
        let new = NewRecord {
            owner: request.owner,
            verifier: request.verifier,
            principal: request.principal,
            from: request.callback.from,
            protocol: NewProtocol::V40(request.callback, confirm),
        };
        let client_id = self.add_record(now, &mut table, owned, new, removed);
        Ok(SetClientIdOk { client_id: client_id.map_err(SetClientIdError::Status)?, confirm })
    }

    /// SETCLIENTID_CONFIRM. "SETCLIENTID_CONFIRM does not establish or renew a lease."
    ///
    /// # Errors
    /// STALE_CLIENTID, CLID_INUSE.
    pub fn confirm_client_id(
        &self,
        now: Duration,
        id: ClientId,
        confirm: Verifier,
        principal: &Principal,
    ) -> Result<Arc<Client>, Status> {
        let mut table = self.clients.lock();
        let result = self.try_confirm(&mut table, now, id, confirm, principal);
        let client = table.record_mut(id).map(|record| Arc::clone(&record.client));
        drop(table);
        let (replaced, is_news) = result?;
        self.release_records(replaced);
        let client = client.ok_or(Status::STALE_CLIENTID)?;
        if is_news {
            self.reconnect_v40(&client);
        }
        Ok(client)
    }

    /// Decides among the cases of §16.34.5. Returns the record that is replaced, and whether callbacks have a new address.
    fn try_confirm(
        &self,
        table: &mut ClientTable,
        now: Duration,
        id: ClientId,
        confirm: Verifier,
        principal: &Principal,
    ) -> Result<(Option<Record>, bool), Status> {
        // "The server has no record of a confirmed or unconfirmed { *, *, c, *, s }. The server returns NFS4ERR_STALE_CLIENTID."
        let record = table.record_mut(id).ok_or(Status::STALE_CLIENTID)?;
        let (client, phase) = (Arc::clone(&record.client), record.phase());
        let confirmation = record.confirmation.as_mut().ok_or(Status::STALE_CLIENTID)?;
        let updates = confirmation.update.as_ref().is_some_and(|(_, verifier)| *verifier == confirm);
        if !updates && confirmation.verifier != confirm {
            return Err(Status::STALE_CLIENTID);
        }
        // "If the principals of the records do not match that of the SETCLIENTID_CONFIRM, the server returns
        // NFS4ERR_CLID_INUSE".
        if client.principal() != principal {
            return Err(Status::CLID_INUSE);
        }
        match phase {
            // "{ v, x, c, k, s } is marked as confirmed, thereby modifying recorded and confirmed callback and callback_ident
            // information … The server does not remove any relevant leased client state."
            RecordPhase::Confirmed if updates => {
                if let (Some((callback, verifier)), Some(v40)) = (confirmation.update.take(), client.v40()) {
                    *v40.callback.lock() = callback;
                    confirmation.verifier = verifier;
                }
                Ok((None, true))
            }
            // "what has likely happened is that the client never got the response from the SETCLIENTID_CONFIRM".
            RecordPhase::Confirmed => Ok((None, false)),
            // "If there is also a confirmed { *, x, d, *, t }, the server MUST remove client x's relevant leased client state".
            RecordPhase::Unconfirmed => {
                // Another principal's record may have changed since SETCLIENTID: it is checked again before it is replaced.
                let old = table.owned(ClientKind::V40, client.owner()).confirmed;
                let is_kept = self.recovery.is_name_reserved(now, ClientKind::V40, client.owner(), principal);
                let is_others = |old: &&Record| {
                    old.client.principal() != principal && old.blocks_collision(now, self.lease, is_kept)
                };
                if old.and_then(|id| table.record(id)).filter(is_others).is_some() {
                    return Err(Status::CLID_INUSE);
                }
                if self.recovery.begin_reclaim(now, &client) {
                    client.set_reclaiming();
                }
                Ok((table.confirm(id), true))
            }
            RecordPhase::Removed => Err(Status::STALE_CLIENTID),
        }
    }

    /// Returns a confirmed client of version 4.0.
    pub(crate) fn find_sessionless(&self, id: ClientId) -> Result<Arc<Client>, Status> {
        let mut table = self.clients.lock();
        match table.record_mut(id) {
            // No flag tells a 4.0 client that it lost some of its state (RFC 7530 §9.6.3.1). So the client is removed and
            // starts again under another client ID.
            Some(record) if record.confirmation.is_some() && record.client.has_lost_state() => {
                let lost = table.remove(id, RecordEvent::Expire);
                drop(table);
                self.release_records(lost);
                Err(Status::EXPIRED)
            }
            Some(record) if record.phase() == RecordPhase::Confirmed && record.client.v40().is_some() => {
                Ok(Arc::clone(&record.client))
            }
            Some(_) => Err(Status::STALE_CLIENTID),
            // RFC 7530 §9.6.3.1: after "a lease that has expired", EXPIRED. An ID of another instance is STALE_CLIENTID (§9.6.2). An ID
            // with this instance's mark counts as expired, because the server does not remember which it issued.
            None if self.ids.is_of_this_instance(id) => Err(Status::EXPIRED),
            None => Err(Status::STALE_CLIENTID),
        }
    }

    /// Returns a client's callback address and program.
    #[must_use]
    pub fn callback_of(&self, client: &Client) -> Option<CallbackClient> {
        client.v40().map(|v40| v40.callback.lock().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decides_every_case_of_the_rfc() {
        let known = |same_verifier, same_principal, in_use| {
            decide(Some(Confirmed { same_verifier, same_principal, in_use }), false)
        };
        assert_eq!(decide(None, false), Decision::New);
        assert_eq!(decide(None, true), Decision::Refuse);
        assert_eq!(known(true, true, true), Decision::Update);
        assert_eq!(known(true, true, false), Decision::Update);
        assert_eq!(known(false, true, true), Decision::New, "a client that restarted");
        for same_verifier in [false, true] {
            assert_eq!(known(same_verifier, false, true), Decision::Refuse);
            assert_eq!(known(same_verifier, false, false), Decision::New);
        }
    }
}
