//! NLM hosts: their creation, and their removal by a notification of their restart.

use core::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tracing::info;

use super::lock::NlmRefusal;
use crate::Quoted;
use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::host::HostKey;
use crate::state::tables::host_calls::CallKind;
use crate::state::tables::nlm_hosts::{HostName, HostPath, NlmHost};
use crate::state::tables::principal::Principal;
use crate::state::tables::shard::{Deferred, Notice};
use crate::state::tables::slot_memory::SlotMemory;

impl State {
    /// Returns a host; creates it if there is none. `None` if there are too many.
    pub fn nlm_host(&self, now: Duration, name: &[u8], path: HostPath) -> Option<Arc<NlmHost>> {
        let name = HostName::new(path.address, name);
        let of_clients = {
            let table = self.clients.lock();
            table.hosts.host(HostKey::of(Some(name.address)))
        };
        let host = self.nlm_hosts.get_or_insert(&name, |neighbor| {
            let id = self.ids.next_client_id(false, |_| true)?;
            let slots = Arc::new(SlotMemory::share_of(&self.slot_memory));
            let client = Client::new(id, name.name.clone(), [0; 8], Principal::Anonymous, slots, now);
            let limits = neighbor.map_or(of_clients, |host| Arc::clone(host.client.host()));
            Some(NlmHost::new(name.clone(), path, Arc::new(client.at(limits)), now))
        })?;
        host.set_path(path);
        host.set_reachable();
        Some(host)
    }

    /// Returns a host that holds something, or did so recently.
    #[must_use]
    pub fn known_nlm_host(&self, name: &[u8], address: IpAddr) -> Option<Arc<NlmHost>> {
        self.nlm_hosts.get(&HostName::new(address, name))
    }

    /// Returns the state number of this server's status monitor.
    #[must_use]
    pub fn monitor_state(&self) -> i32 {
        self.recovery.monitor_state()
    }

    /// Checks that a host may lock files now.
    ///
    /// # Errors
    /// [`NlmRefusal::Grace`].
    pub(super) fn admit_host(&self, now: Duration, host: &NlmHost, reclaim: bool) -> Result<(), NlmRefusal> {
        match (self.recovery.in_grace(now), reclaim) {
            (false, false) => Ok(()),
            (true, true) if self.recovery.host_may_reclaim(host.name()) => {
                self.recovery.reclaims(now);
                Ok(())
            }
            _ => Err(NlmRefusal::Grace),
        }
    }

    /// Frees all locks and shares of the hosts of an address whose status monitor reports a restart (SM_NOTIFY, FREE_ALL).
    /// Returns the number of hosts that lost something.
    ///
    /// A notification is accepted for its source address only. SM_NOTIFY without a host of that name is about the only host of the
    /// address, if there is only one: the monitor may call the machine otherwise. `state` is the number after the restart: locks
    /// taken in that state remain. FREE_ALL, without such a number, comes from the lock manager itself, and names it exactly.
    pub fn nlm_host_restarted(&self, address: IpAddr, name: &[u8], state: Option<i32>) -> usize {
        let meant = |names: Vec<HostName>| -> Vec<HostName> {
            let is_only = names.len() == 1;
            let is_meant = |host: &HostName| match state {
                Some(_) => is_only || host.may_be_called(name),
                None => *host == HostName::new(address, name),
            };
            names.into_iter().filter(is_meant).collect()
        };
        let live: Vec<_> = self.nlm_hosts.at(address).iter().map(|host| host.name().clone()).collect();
        for host in meant(self.recovery.recorded_hosts_at(address)).iter().filter(|host| !live.contains(host))
        {
            // It held locks of the previous server, and will not reclaim them.
            self.recovery.host_restarted(host);
        }
        let hosts = meant(live).into_iter().filter_map(|name| self.nlm_hosts.get(&name));
        let restarted: Vec<_> =
            hosts.filter(|host| state.is_none_or(|state| !host.is_of_state(state))).collect();
        for host in &restarted {
            self.free_nlm_host(host);
            self.recovery.host_restarted(host.name());
            info!(client = %Quoted(&host.name().name), %address, "client restarted: its locks are free");
        }
        restarted.len()
    }

    /// Frees all locks and shares that a host holds, and ends its waits.
    pub(in crate::state) fn free_nlm_host(&self, host: &NlmHost) {
        let is_its =
            |call: &CallKind| matches!(call, CallKind::Granted(grant) if grant.host.id() == host.id());
        for shard in &self.shards {
            let mut deferred = Deferred::new();
            let mut shard = shard.lock();
            for file in shard.lock_queues.keys().copied().collect::<Vec<_>>() {
                shard.leave_queue(file, &self.gauges, &mut deferred, |waiter| {
                    matches!(&waiter.notify.how, Notice::Grant(grant) if grant.host.id() == host.id())
                });
            }
            self.unlock_shard(shard, deferred);
        }
        self.host_calls.withdraw(host.name().address, is_its);
        self.release_state(host.id());
    }

    /// Removes hosts that hold nothing, and their records.
    pub(crate) fn sweep_nlm_hosts(&self, now: Duration) {
        if !self.recovery.in_grace(now) {
            self.nlm_hosts.take_unused().iter().for_each(|name| self.recovery.forget_host(name));
            self.recovery.sweep_hosts();
        }
    }
}
