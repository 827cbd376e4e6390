//! Limits by client address.
//!
//! A client can give itself any number of names, and each name has its own share of a limit. So limits also count by
//! address:
//! - One address may use the whole limit while no other address needs it.
//! - When a limit is reached, an eighth more is reserved for addresses that hold little: an address may use the rest of
//!   it, but may not hold more than that in total. So a new address always gets a part and leaves a part.
//! - Unconfirmed records are replaced first, beginning with the address that has most of them. A flood replaces its own
//!   records.
//! - A record without state is cheap to recreate. It is replaced for addresses with fewer records, beginning with the address
//!   that has most. A record with state is replaced for another address only when its lease has expired and its address has more.
//!
//! Clients behind one NAT, or on one machine, share the limits of their address. IPv6 addresses count by their first 64
//! bits, because one machine can choose the other 64.

use core::net::IpAddr;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::host_of;

/// A limit is extended by one part in this many, for addresses that hold little.
const EXTRA_PART: usize = 8;
/// Addresses searched for a replaceable record.
const HOSTS_LOOKED_AT: usize = 16;
/// Records of one address searched for a replaceable one. The next search continues after them.
const RECORDS_LOOKED_AT: usize = 64;

/// An address as limits count it; `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct HostKey(Option<IpAddr>);

impl HostKey {
    pub(crate) fn of(address: Option<IpAddr>) -> Self {
        Self(address.map(host_of))
    }
}

/// Totals over the clients of one address.
#[derive(Debug, Default)]
pub(crate) struct Host {
    key: HostKey,
    /// Weights of opens, locks and other state.
    pub(crate) charged: AtomicU32,
    /// Delegations.
    pub(crate) delegations: AtomicU32,
}

impl Host {
    pub(crate) fn key(&self) -> HostKey {
        self.key
    }
}

/// Returns whether an address that holds `held` may get `more`, given the limit and the total in use by all addresses.
pub(crate) fn has_room(limit: usize, used: usize, held: usize, more: usize) -> bool {
    let left = (limit + (limit / EXTRA_PART).max(1)).saturating_sub(used);
    used + more <= limit || (more <= left && held + more <= left)
}

/// The records of one address, by number.
#[derive(Debug, Default)]
struct Records {
    host: Arc<Host>,
    all: BTreeSet<u64>,
    unconfirmed: BTreeSet<u64>,
    /// The last record that a search examined.
    looked_at: u64,
}

impl Records {
    /// Returns the number of records, and of unconfirmed ones.
    fn counts(&self) -> (usize, usize) {
        (self.all.len(), self.unconfirmed.len())
    }

    fn oldest_unconfirmed(&self) -> Option<u64> {
        self.unconfirmed.first().copied()
    }
}

/// The records of each address.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    by_key: HashMap<HostKey, Records>,
    /// By the number of records.
    by_count: BTreeSet<(usize, HostKey)>,
    /// By the number of unconfirmed records, for addresses that have any.
    by_unconfirmed: BTreeSet<(usize, HostKey)>,
}

impl Hosts {
    /// Returns the totals of an address, for a new client. They are kept as long as the address has records.
    pub(crate) fn host(&self, key: HostKey) -> Arc<Host> {
        let known = self.by_key.get(&key).map(|records| Arc::clone(&records.host));
        known.unwrap_or_else(|| Arc::new(Host { key, ..Host::default() }))
    }

    /// Adds a new, unconfirmed record.
    pub(crate) fn add(&mut self, host: &Arc<Host>, number: u64) {
        let records = self
            .by_key
            .entry(host.key)
            .or_insert_with(|| Records { host: Arc::clone(host), ..Records::default() });
        let before = records.counts();
        records.all.insert(number);
        records.unconfirmed.insert(number);
        self.sort(host.key, before);
    }

    pub(crate) fn confirm(&mut self, host: &Host, number: u64) {
        let Some(records) = self.by_key.get_mut(&host.key) else { return };
        let before = records.counts();
        records.unconfirmed.remove(&number);
        self.sort(host.key, before);
    }

    pub(crate) fn remove(&mut self, host: &Host, number: u64) {
        let Some(records) = self.by_key.get_mut(&host.key) else { return };
        let before = records.counts();
        records.all.remove(&number);
        records.unconfirmed.remove(&number);
        self.sort(host.key, before);
    }

    /// Updates the position of an address after its counts changed from `before`.
    fn sort(&mut self, key: HostKey, before: (usize, usize)) {
        let (all, unconfirmed) = self.by_key.get(&key).map(Records::counts).unwrap_or_default();
        self.by_count.remove(&(before.0, key));
        self.by_unconfirmed.remove(&(before.1, key));
        if all > 0 {
            self.by_count.insert((all, key));
        } else {
            self.by_key.remove(&key);
        }
        if unconfirmed > 0 {
            self.by_unconfirmed.insert((unconfirmed, key));
        }
    }

    /// Returns the number of records of an address.
    pub(crate) fn count(&self, key: HostKey) -> usize {
        self.by_key.get(&key).map_or(0, |records| records.all.len())
    }

    /// Returns the record that a new record of the address `by` replaces. In this order:
    /// - the oldest unconfirmed record of the address with most of them, if it has several;
    /// - a record of an address with more records, beginning with the one that has most: unconfirmed, or one that `may_go`;
    /// - its own unconfirmed record.
    pub(crate) fn replaceable(&mut self, by: HostKey, may_go: impl Fn(u64) -> bool) -> Option<u64> {
        let flood = self.by_unconfirmed.last().filter(|(count, _)| *count > 1);
        if let Some(records) = flood.and_then(|(_, key)| self.by_key.get(key)) {
            return records.oldest_unconfirmed();
        }
        let count = self.count(by);
        let greedier =
            self.by_count.iter().rev().take(HOSTS_LOOKED_AT).take_while(|(other, _)| *other > count);
        for (_, key) in greedier {
            let records = self.by_key.get_mut(key)?;
            if let Some(number) = records.oldest_unconfirmed() {
                return Some(number);
            }
            let behind = records.all.range((Excluded(records.looked_at), Unbounded)).chain(&records.all);
            let looked_at: Vec<u64> = behind.take(RECORDS_LOOKED_AT).copied().collect();
            records.looked_at = looked_at.last().copied().unwrap_or_default();
            if let Some(number) = looked_at.into_iter().find(|number| may_go(*number)) {
                return Some(number);
            }
        }
        self.by_key.get(&by)?.oldest_unconfirmed()
    }

    /// Checks the tables, for [`State::audit`](crate::state::State::audit). Returns the number of records, and of unconfirmed
    /// ones.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(crate) fn audit(&self) -> Result<(usize, usize), String> {
        let counts = || self.by_key.iter().map(|(key, records)| (records.counts(), *key));
        let all: BTreeSet<_> = counts().map(|((all, _), key)| (all, key)).collect();
        let unconfirmed = counts().map(|((_, unconfirmed), key)| (unconfirmed, key));
        let unconfirmed: BTreeSet<_> = unconfirmed.filter(|(count, _)| *count > 0).collect();
        if (&all, &unconfirmed) != (&self.by_count, &self.by_unconfirmed) {
            return Err(format!("addresses by their records are not {all:?} and {unconfirmed:?}"));
        }
        let sums = counts().fold((0, 0), |sum, (counts, _)| (sum.0 + counts.0, sum.1 + counts.1));
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> HostKey {
        HostKey::of(Some(text.parse().unwrap()))
    }

    #[test]
    fn addresses_of_one_machine_count_together() {
        assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.1"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:0:0:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    }

    #[test]
    fn beyond_a_limit_addresses_that_hold_little_get_more() {
        assert!(has_room(800, 799, 799, 1), "one address may use the whole limit");
        assert!(!has_room(800, 800, 800, 1));
        // Of the hundred beyond the limit, the first address gets half, the next one half of the rest.
        let (mut used, mut got) = (800, Vec::new());
        for _ in 0..4 {
            let held = (0..).find(|held| !has_room(800, used + held, *held, 1)).unwrap();
            got.push(held);
            used += held;
        }
        assert_eq!(got, [50, 25, 13, 6]);
        assert!(has_room(800, used, 0, 1));
    }

    #[test]
    fn records_of_the_address_with_most_are_replaced_first() {
        let mut hosts = Hosts::default();
        let [a, b, c] = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|text| hosts.host(key(text)));
        for (host, numbers) in [(&a, 1..=3), (&b, 4..=5), (&c, 6..=6)] {
            for number in numbers {
                hosts.add(host, number);
                hosts.confirm(host, number);
            }
        }
        assert_eq!(hosts.replaceable(key("192.0.2.9"), |number| number != 1), Some(2));
        assert_eq!(
            hosts.replaceable(key("192.0.2.9"), |number| number == 1),
            Some(1),
            "the search continues and wraps"
        );
        assert_eq!(hosts.replaceable(key("192.0.2.9"), |number| number > 3), Some(4));
        assert_eq!(hosts.replaceable(b.key(), |number| number > 3), None);
        hosts.add(&b, 7);
        assert_eq!(hosts.replaceable(c.key(), |_| false), Some(7), "of an address with more");
        assert_eq!(hosts.replaceable(b.key(), |_| false), Some(7), "its own, which is not confirmed");
        hosts.add(&c, 8);
        hosts.add(&c, 9);
        assert_eq!(hosts.replaceable(a.key(), |_| true), Some(8), "several are a flood");
        assert_eq!(hosts.audit(), Ok((9, 3)));
        for (host, number) in [(&b, 7), (&c, 8), (&c, 9)] {
            hosts.remove(host, number);
        }
        assert_eq!((hosts.audit(), hosts.count(b.key())), (Ok((6, 0)), 2));
        for (host, number) in [(&a, 1), (&a, 2), (&a, 3), (&b, 4), (&b, 5), (&c, 6)] {
            hosts.remove(host, number);
        }
        assert!(hosts.by_key.is_empty() && hosts.by_count.is_empty() && hosts.by_unconfirmed.is_empty());
    }
}
