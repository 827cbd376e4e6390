//! EXCHANGE_ID (RFC 8881 §18.35).

use core::net::IpAddr;
use std::time::Duration;

use super::new_record::{Confirmed, NewProtocol, NewRecord};
use crate::state::root::State;
use crate::state::tables::client::ClientKind;
use crate::state::tables::client_table::{FIRST_SEQUENCE, Record, RecordEvent};
use crate::state::tables::principal::Credential;
use crate::state::tables::protect::StateProtect;
use crate::state::tables::wire::{ClientId, Status, Verifier};

/// Arguments of EXCHANGE_ID. The operation checks the flags.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeId<'a> {
    /// `co_ownerid`.
    pub owner: &'a [u8],
    /// `co_verifier`.
    pub verifier: Verifier,
    /// The caller.
    pub by: &'a Credential,
    /// `EXCHGID4_FLAG_UPD_CONFIRMED_REC_A`.
    pub update: bool,
    /// The requested protection of a new record's state.
    pub protect: StateProtect,
    /// The client's address, if known.
    pub from: Option<IpAddr>,
}

/// Result of EXCHANGE_ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangedId {
    /// `eir_clientid`.
    pub client_id: ClientId,
    /// `eir_sequenceid`.
    pub sequence_id: u32,
    /// `EXCHGID4_FLAG_CONFIRMED_R`.
    pub confirmed: bool,
    /// The protection of the record's state, which may differ from the request.
    pub protect: StateProtect,
}

/// The effect of EXCHANGE_ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// Adds an unconfirmed record, which replaces any unconfirmed one. A confirmed record remains until CREATE_SESSION.
    New,
    /// As `New`, and removes the confirmed record with all state.
    Replace,
    /// Returns the confirmed record unchanged.
    Existing,
    /// Fails. The records are unchanged.
    Refuse(Status),
}

/// Decides among the scenarios of §18.35.4, with their numbers there. `is_reserved`: another principal's client of this
/// name may still reclaim state from before a restart.
fn decide(update: bool, confirmed: Option<Confirmed>, is_reserved: bool) -> Decision {
    match (update, confirmed) {
        // 3, for a record that the restart removed and whose state may be reclaimed: its lease is the grace period.
        (false, None) if is_reserved => Decision::Refuse(Status::CLID_INUSE),
        // 1 New Owner ID; 4 Replacement of Unconfirmed Record.
        (false, None) => Decision::New,
        // 2 Non-Update on Existing Client ID: "The confirmed record is unchanged."
        (false, Some(Confirmed { same_verifier: true, same_principal: true, .. })) => Decision::Existing,
        // 3 Client Collision: "If old_clientid_ret has an unexpired lease with state … The server returns NFS4ERR_CLID_INUSE".
        (false, Some(Confirmed { same_principal: false, in_use: true, .. })) => {
            Decision::Refuse(Status::CLID_INUSE)
        }
        // 3: "If there is currently no state associated with old_clientid_ret, or if there is state but the lease has expired,
        // … The confirmed record is deleted, the old_clientid_ret and its lock state are deleted".
        (false, Some(Confirmed { same_principal: false, in_use: false, .. })) => Decision::Replace,
        // 5 Client Restart: "The previously described confirmed record continues to exist".
        (false, Some(Confirmed { same_verifier: false, same_principal: true, .. })) => Decision::New,
        // 7 Update but No Confirmed Record: "leaves any unconfirmed record intact".
        (true, None) => Decision::Refuse(Status::NOENT),
        // 8 Update but Wrong Verifier, for any principal.
        (true, Some(Confirmed { same_verifier: false, .. })) => Decision::Refuse(Status::NOT_SAME),
        // 9 Update but Wrong Principal.
        (true, Some(Confirmed { same_principal: false, .. })) => Decision::Refuse(Status::PERM),
        // 6 Update: "The server allows the update, and the client record is left intact."
        (true, Some(_)) => Decision::Existing,
    }
}

impl State {
    /// EXCHANGE_ID (RFC 8881 §18.35).
    ///
    /// # Errors
    /// CLID_INUSE, NOENT, NOT_SAME, PERM as in §18.35.4; DELAY if there is no room for a record, or no client ID is free.
    pub fn exchange_id(&self, now: Duration, request: &ExchangeId<'_>) -> Result<ExchangedId, Status> {
        let mut removed = Vec::new();
        let result = self.try_exchange_id(now, request, &mut removed);
        self.release_records(removed);
        result
    }

    fn try_exchange_id(
        &self,
        now: Duration,
        request: &ExchangeId<'_>,
        removed: &mut Vec<Record>,
    ) -> Result<ExchangedId, Status> {
        let mut table = self.clients.lock();
        let owned = table.owned(ClientKind::V41, request.owner);
        let is_reserved =
            self.recovery.is_name_reserved(now, ClientKind::V41, request.owner, &request.by.principal);
        let confirmed = owned.confirmed.and_then(|id| table.record(id));
        let compared = confirmed.map(|record| Confirmed {
            same_verifier: *record.client.verifier() == request.verifier,
            same_principal: record.client.protect().is_of(record.client.principal(), request.by),
            in_use: record.blocks_collision(now, self.lease, is_reserved),
        });
        match decide(request.update, compared, is_reserved) {
            Decision::Refuse(status) => return Err(status),
            Decision::Existing => {
                // The slot's next ID, as Linux's server returns it; the client ignores it if CONFIRMED_R is set.
                let record = confirmed.expect("`Existing` needs a confirmed record");
                let sequence_id = record.create.next();
                let (client_id, protect) = (record.client.id(), record.client.protect());
                let found = ExchangedId { client_id, sequence_id, confirmed: true, protect };
                // Scenario 4, and the end of 5: an additional unconfirmed record is deleted first.
                if let Some(id) = owned.unconfirmed.filter(|_| !request.update) {
                    removed.extend(table.remove(id, RecordEvent::Replace));
                }
                return Ok(found);
            }
            Decision::Replace => {
                removed.extend(owned.confirmed.and_then(|id| table.remove(id, RecordEvent::Replace)))
            }
            Decision::New => {}
        }
        let new = NewRecord {
            owner: request.owner,
            verifier: request.verifier,
            principal: &request.by.principal,
            from: request.from,
            protocol: NewProtocol::V41(request.protect),
        };
        let client_id = self.add_record(now, &mut table, owned, new, removed)?;
        let (sequence_id, protect) = (FIRST_SEQUENCE, request.protect);
        Ok(ExchangedId { client_id, sequence_id, confirmed: false, protect })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decides_every_scenario_of_the_rfc() {
        let known =
            |same_verifier, same_principal, in_use| Some(Confirmed { same_verifier, same_principal, in_use });
        let refuse = Decision::Refuse;
        // The nine scenarios, with both values of the fields that the RFC leaves unspecified.
        let table = [
            (false, None, Decision::New),
            (false, known(true, true, false), Decision::Existing),
            (false, known(true, true, true), Decision::Existing),
            (false, known(true, false, true), refuse(Status::CLID_INUSE)),
            (false, known(false, false, true), refuse(Status::CLID_INUSE)),
            (false, known(true, false, false), Decision::Replace),
            (false, known(false, false, false), Decision::Replace),
            (false, known(false, true, false), Decision::New),
            (false, known(false, true, true), Decision::New),
            (true, None, refuse(Status::NOENT)),
            (true, known(false, true, false), refuse(Status::NOT_SAME)),
            (true, known(false, false, true), refuse(Status::NOT_SAME)),
            (true, known(true, false, false), refuse(Status::PERM)),
            (true, known(true, false, true), refuse(Status::PERM)),
            (true, known(true, true, false), Decision::Existing),
            (true, known(true, true, true), Decision::Existing),
        ];
        for (update, confirmed, decision) in table {
            assert_eq!(decide(update, confirmed, false), decision, "update {update}, {confirmed:?}");
        }
        assert_eq!(decide(false, None, true), refuse(Status::CLID_INUSE));
        assert_eq!(decide(true, None, true), refuse(Status::NOENT));
    }
}
