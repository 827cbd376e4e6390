//! Checks that the tables of the state agree with each other and with the protocol's rules, for simulations and tests. Called
//! while no request is in progress. It takes every lock and its time is proportional to the state, so a running server never calls
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use super::State;
use crate::state::tables::audit::{Sum, Sums, same};
use crate::state::tables::client::{Client, Holdings};

impl State {
    /// Checks all tables: no opens, locks or delegations conflict; every entry is in all lists that must contain it, and lists
    /// contain only entries; records, owners and sessions refer to each other; counters match the tables.
    ///
    /// # Errors
    /// The first violation.
    pub fn audit(&self) -> Result<(), String> {
        let table = self.clients.lock();
        let mut clients = table.audit(&self.sessions)?;
        let hosts = self.nlm_hosts.all();
        clients.extend(hosts.iter().map(|host| (host.id(), Arc::clone(&host.client))));
        let mut sums = Sums::new();
        for shard in &self.shards {
            shard.lock().audit(&clients, &mut sums)?;
        }
        let mut total = Sum::default();
        for (id, client) in &clients {
            let sum = sums.get(id).copied().unwrap_or_default();
            audit_client(client, &sum).map_err(|why| format!("client {id:#x}: {why}"))?;
            total.add(&sum);
        }
        self.audit_gauges(&total)
    }

    fn audit_gauges(&self, total: &Sum) -> Result<(), String> {
        let gauges = &self.gauges;
        let count = |counter: &AtomicU64| counter.load(SeqCst);
        same("opens counted", count(&gauges.opens), total.opens)?;
        same("denying opens counted", count(&gauges.denying), total.denying)?;
        same("locked ranges counted", count(&gauges.locks), total.ranges)?;
        same("waiters for locks counted", count(&gauges.lock_waiters), total.lock_waiters)?;
        same("delegations counted", count(&gauges.delegations), total.delegations)?;
        same("write delegations counted", count(&gauges.write_delegations), total.write_delegations)?;
        let directories = count(&gauges.directory_delegations);
        same("directory delegations counted", directories, total.directory_delegations)?;
        same(
            "delegations counted as watched",
            count(&gauges.watched_delegations),
            total.watched_delegations,
        )?;
        same("revoked entries counted", count(&gauges.revoked), total.revoked)
    }
}

fn audit_client(client: &Client, sum: &Sum) -> Result<(), String> {
    let holdings = &client.holdings;
    let Holdings { state, charged, opens, locks, lock_waiters, delegations, lost_delegations, .. } = holdings;
    let count = |counter: &AtomicU32| u64::from(counter.load(Relaxed));
    same("entries counted", count(state), sum.state)?;
    same("opens counted", count(opens), sum.opens)?;
    same("locked ranges counted", count(locks), sum.ranges)?;
    same("waiters for locks counted", count(lock_waiters), sum.lock_waiters)?;
    same("delegations counted", count(delegations), sum.delegations)?;
    same("lost delegations counted", count(lost_delegations), sum.lost_delegations)?;
    same("lost entries counted", u64::from(client.revoked()), sum.revoked)?;
    // Owners of version 4.0 are charged besides their state.
    if client.v40().is_some() {
        return if count(charged) < sum.charged {
            Err("less is charged than is held".into())
        } else {
            Ok(())
        };
    }
    same("charges", count(charged), sum.charged)
}
