//! Steps that EXCHANGE_ID and SETCLIENTID share: the comparison with the confirmed record, and the addition of an unconfirmed one.

use core::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::client_table::{ClientTable, OwnerRecords, Record};
use crate::state::tables::host::HostKey;
use crate::state::tables::principal::Principal;
use crate::state::tables::protect::StateProtect;
use crate::state::tables::slot_memory::SlotMemory;
use crate::state::tables::v40_client::{CallbackClient, Confirmation};
use crate::state::tables::wire::{ClientId, Status, Verifier};

/// The comparison of a request with the owner's confirmed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Confirmed {
    /// The verifier is the same.
    pub(super) same_verifier: bool,
    /// The principal is the same.
    pub(super) same_principal: bool,
    /// The client has sessions, opens, locks or delegations, or may reclaim them, and its lease has not expired.
    pub(super) in_use: bool,
}

/// A record to be added.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewRecord<'a> {
    /// `co_ownerid`, or `client.id`.
    pub(super) owner: &'a [u8],
    pub(super) verifier: Verifier,
    pub(super) principal: &'a Principal,
    /// The client's address, if known.
    pub(super) from: Option<IpAddr>,
    pub(super) protocol: NewProtocol<'a>,
}

/// The part of a new record that depends on the version.
#[derive(Debug, Clone, Copy)]
pub(super) enum NewProtocol<'a> {
    /// Version 4.0: the callback address, and the verifier that confirms the record.
    V40(&'a CallbackClient, Verifier),
    /// Version 4.1 and later.
    V41(StateProtect),
}

impl State {
    /// Adds an unconfirmed record, which replaces the owner's unconfirmed one. Pushes the records that make room for it to
    /// `removed`; the caller releases them after the table's lock.
    ///
    /// # Errors
    /// DELAY if there is no room for a record, or no client ID is free.
    pub(super) fn add_record(
        &self,
        now: Duration,
        table: &mut ClientTable,
        owned: OwnerRecords,
        new: NewRecord<'_>,
        removed: &mut Vec<Record>,
    ) -> Result<ClientId, Status> {
        removed.extend(table.replace_unconfirmed(owned));
        let host = HostKey::of(new.from);
        if !table.has_room(self.max_clients, now, self.lease, host, removed) {
            return Err(Status::DELAY);
        }
        let is_v40 = matches!(new.protocol, NewProtocol::V40(..));
        let id = self.ids.next_client_id(is_v40, |id| table.record(id).is_none()).ok_or(Status::DELAY)?;
        let (owner, principal) = (Bytes::copy_from_slice(new.owner), new.principal.clone());
        let slots = Arc::new(SlotMemory::share_of(&self.slot_memory));
        let client = Client::new(id, owner, new.verifier, principal, slots, now).at(table.hosts.host(host));
        let (client, confirmation) = match new.protocol {
            NewProtocol::V40(callback, verifier) => {
                (client.into_v40(callback.clone()), Some(Confirmation { verifier, update: None }))
            }
            NewProtocol::V41(protect) => (client.with_protection(protect), None),
        };
        table.insert(Arc::new(client), confirmation);
        Ok(id)
    }
}
