//! Room for one more: which records go where something does not fit; see [`host`].

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::super::client::Client;
use super::super::host::{self, Host, HostKey};
use super::super::wire::ClientId;
use super::{ClientTable, Event, Record, is_over};
use crate::state::State;

impl ClientTable {
    /// The client whose record yields to a new one of an address, where one does.
    fn yielding(&mut self, to: HostKey) -> Option<ClientId> {
        let yields = |number| self.records.get(&number).is_some_and(|record| record.client.yields());
        let number = self.hosts.yielding(to, yields)?;
        self.records.get(&number).map(|record| record.client.id())
    }
}

impl State {
    /// Whether there is room for one more record of an address, now or by what had to go for it.
    pub(crate) fn has_room_for_record(
        &self,
        table: &mut ClientTable,
        now: Duration,
        host: HostKey,
        removed: &mut Vec<Record>,
    ) -> bool {
        if table.len() >= self.max_clients {
            removed.extend(self.make_room_for_record(table, now, host));
        }
        host::has_room(self.max_clients, table.len(), table.hosts.count(host), 1)
    }

    /// A flood of EXCHANGE_IDs or SETCLIENTIDs pushes out its own; else what holds nothing goes, of an address with more
    /// records; only then, clients whose lease has expired.
    fn make_room_for_record(&self, table: &mut ClientTable, now: Duration, host: HostKey) -> Vec<Record> {
        if let Some(id) = table.yielding(host) {
            return table.remove(id, Event::Yield).into_iter().collect();
        }
        let count = table.hosts.count(host);
        let is_its = |table: &ClientTable, client: &Client| {
            let other = client.host().key();
            other == host || table.hosts.count(other) > count
        };
        self.take_expired_of(table, now, true, is_its).0
    }

    /// Something does not fit: expired clients go, courtesy or not. One sweep's worth, so that the cost is bounded.
    pub fn press(&self, now: Duration) {
        let removed = self.take_expired(&mut self.clients.lock(), now, true).0;
        self.let_go(removed);
    }

    /// The same for opens, locks and the like of an address: expired clients of its own go, and of addresses that hold more.
    pub(crate) fn press_for(&self, now: Duration, host: &Host) {
        let held = host.charged.load(Relaxed);
        let is_its = |_: &ClientTable, client: &Client| {
            client.host().key() == host.key() || client.host().charged.load(Relaxed) > held
        };
        let mut table = self.clients.lock();
        let removed = self.take_expired_of(&mut table, now, true, is_its).0;
        drop(table);
        self.let_go(removed);
    }

    pub(super) fn take_expired(
        &self,
        table: &mut ClientTable,
        now: Duration,
        press: bool,
    ) -> (Vec<Record>, bool) {
        self.take_expired_of(table, now, press, |_, _| true)
    }

    /// Of the next batch, those whose time is over and which `are_meant`.
    fn take_expired_of(
        &self,
        table: &mut ClientTable,
        now: Duration,
        press: bool,
        are_meant: impl Fn(&ClientTable, &Client) -> bool,
    ) -> (Vec<Record>, bool) {
        let (batch, more) = table.next_batch();
        let goes =
            |record: &Record| is_over(record, now, self.lease, press) && are_meant(table, &record.client);
        let over = batch.into_iter().filter(|id| table.record(*id).is_some_and(goes));
        let over: Vec<ClientId> = over.collect();
        (over.into_iter().filter_map(|id| table.remove(id, Event::Expire)).collect(), more)
    }
}
