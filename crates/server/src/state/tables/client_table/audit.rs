//! Checks that records, owners and sessions refer to each other; see [`State::audit`](crate::state::State::audit).

use std::collections::HashMap;
use std::sync::Arc;

use super::super::client::Client;
use super::super::wire::ClientId;
use super::{ClientKind, ClientTable, Record, RecordPhase};
use crate::state::tables::audit::same;
use crate::state::tables::session_table::SessionTable;

impl ClientTable {
    /// Returns all clients by ID.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(crate) fn audit(&self, sessions: &SessionTable) -> Result<HashMap<ClientId, Arc<Client>>, String> {
        let mut named = 0;
        for (number, record) in &self.records {
            let id = record.client.id();
            same("a record's number", (record.number, self.numbers.get(&id)), (*number, Some(number)))?;
            self.audit_record(id, record).map_err(|why| format!("record {id:#x}: {why}"))?;
            for session in &record.sessions {
                let session = sessions.get(session).ok_or("a record names a removed session")?;
                same("a session's client", session.client.id(), id)?;
                named += 1;
            }
        }
        same("sessions that records name", named, sessions.count().0)?;
        let owned = self.owners.iter().flat_map(HashMap::values);
        let owned: usize = owned.map(|owned| owned.confirmed.iter().chain(&owned.unconfirmed).count()).sum();
        same("records that owners name", owned, self.records.len())?;
        let unconfirmed =
            self.records.values().filter(|record| record.phase == RecordPhase::Unconfirmed).count();
        same("records that numbers name", self.numbers.len(), self.records.len())?;
        same("records of addresses", self.hosts.audit()?, (self.records.len(), unconfirmed))?;
        Ok(self.records.values().map(|record| (record.client.id(), Arc::clone(&record.client))).collect())
    }

    fn audit_record(&self, id: ClientId, record: &Record) -> Result<(), String> {
        same("the client's ID", record.client.id(), id)?;
        same("whether the client is removed", record.client.is_removed(), false)?;
        let owned = self.owned(ClientKind::of(&record.client), record.client.owner());
        match record.phase {
            RecordPhase::Confirmed => same("the owner's confirmed record", owned.confirmed, Some(id)),
            RecordPhase::Unconfirmed => {
                same("the owner's unconfirmed record", owned.unconfirmed, Some(id))?;
                same("sessions of an unconfirmed record", record.sessions.len(), 0)
            }
            RecordPhase::Removed => Err("it is gone".into()),
        }
    }
}
