//! Grants of delegations, and their conditions.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use protocol::nfs4::types::Handle;

use super::recall::Calls;
use crate::state::State;
use crate::state::sessions::sequence::SlotRequest;
use crate::state::tables::callback::Callback;
use crate::state::tables::client::Client;
use crate::state::tables::delegation::active_changes::ChangeEpoch;
use crate::state::tables::delegation::conflict::Conflict;
use crate::state::tables::delegation::external_changes::DelegationWatch;
use crate::state::tables::delegation::getattr::HolderQueries;
use crate::state::tables::delegation::kind::DelegationKind;
use crate::state::tables::delegation::phase::DelegationPhase;
use crate::state::tables::delegation::shared::DelegationCounts;
use crate::state::tables::delegation::times::{DelegatedTimes, FileTimes};
use crate::state::tables::file_key::FileKey;
use crate::state::tables::host;
use crate::state::tables::notices::Notices;
use crate::state::tables::shard::delegation::{DELEGATION_WEIGHT, Delegation};
use crate::state::tables::shard::{Deferred, EntryEvent, Shard};
use crate::state::tables::wire::Stateid;

/// A file with more opens than this counts as used by other clients without a check of each.
const OPENS_CHECKED_MAX: usize = 64;
/// One client may have this part of all delegations, so that no client takes all.
const CLIENT_PART: usize = 4;
/// Delegations that one client may have even if that part is smaller.
const CLIENT_MIN: usize = 1024;
/// Seconds between two CB_RECALL_ANY to one client.
const RECALL_ANY_PERIOD_SECONDS: u64 = 5;

/// A delegation that a client requests.
#[derive(Debug, Clone, Copy)]
pub struct GrantRequest {
    /// The kind.
    pub kind: DelegationKind,
    /// The bits of `share_access` whose permission the OPEN has checked.
    pub checked_access: u8,
    /// A number of the user who opens.
    pub opener: u64,
    /// `change` of the file as in the OPEN's reply; of a directory, the present one.
    pub change: u64,
    /// The file's times, if the client will maintain them.
    pub times: Option<FileTimes>,
    /// The file as the client knows it, for CB_RECALL.
    pub handle: Handle,
    /// The file as the backend knows it.
    pub inner: vfs::Handle,
    /// [`State::change_epoch`] from before the attributes above were read.
    pub epoch: ChangeEpoch,
    /// CLAIM_PREVIOUS: it was granted before the server's restart.
    pub reclaim: bool,
}

/// The reason why no delegation is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDelegated {
    /// Other clients use the file, or did recently.
    Contention,
    /// The client cannot be called back, or a bound is reached.
    Resource,
    /// The client has a delegation of another kind.
    OtherKind,
}

impl State {
    /// Grants a delegation with an open, if nothing conflicts. `watch` reports changes by local processes. A change that it has
    /// reported prevents the grant, and so does an operation under way that may change the file; a delegation that is reclaimed is
    /// granted and recalled at once.
    ///
    /// # Errors
    /// The reason why none is granted.
    pub fn grant_delegation(
        &self,
        now: Duration,
        client: &Arc<Client>,
        file: FileKey,
        request: &GrantRequest,
        granted_by: Option<&SlotRequest>,
        watch: Option<DelegationWatch>,
    ) -> Result<Stateid, NotDelegated> {
        self.check_grant(now, client, file, request.reclaim)?;
        let (mut deferred, mut calls) = (Deferred::new(), Calls::new());
        let mut shard = self.shards[self.shard_of(file)].lock();
        check_free(&shard, file, client, request.kind)?;
        let delegation = Delegation {
            kind: request.kind,
            checked_access: request.checked_access,
            opener: request.opener,
            phase: DelegationPhase::Granted,
            handle: request.handle,
            granted_by: granted_by.map(SlotRequest::as_referring),
            recalled_at: None,
            queries: HolderQueries::new(request.change),
            times: request.times.map(DelegatedTimes::new),
            notices: Notices::since(request.change),
            watch,
            at_file: 0,
        };
        let index = shard.add_delegation(client, file, delegation, &self.gauges);
        // After the delegation is added: a change either sees the delegation or is seen here.
        let is_notified = shard.delegation_at(index).watch.as_ref().is_some_and(DelegationWatch::is_notified);
        let (changes, hash) = (&self.delegations.active_changes, self.change_hash(&request.inner));
        // In this order: a change that is no longer under way has ended.
        let is_changing = changes.is_changing(hash);
        let has_changed = is_notified || changes.has_changed_since(hash, request.epoch);
        if !request.reclaim && (is_changing || has_changed) {
            shard.end(index, EntryEvent::ClientRemoved, &self.gauges, &mut deferred);
            return Err(NotDelegated::Contention);
        }
        // Without the delegation, others could open the file before the client has written its data back.
        if is_notified || is_changing {
            calls.extend(self.recall(&mut shard, index, now));
        }
        count_grant(&self.delegations.counts, request.kind);
        let stateid = shard.stateid(index, self.ids.boot());
        drop(shard);
        self.recovery.note_holder(client);
        self.send_recalls(now, file, calls);
        Ok(stateid)
    }

    /// Checks whether [`Self::grant_delegation`] would grant a delegation of this kind, as far as is known before.
    ///
    /// # Errors
    /// The reason why it would not.
    pub fn can_grant_delegation(
        &self,
        now: Duration,
        client: &Arc<Client>,
        file: FileKey,
        kind: DelegationKind,
        reclaim: bool,
    ) -> Result<(), NotDelegated> {
        self.check_grant(now, client, file, reclaim)?;
        check_free(&self.shards[self.shard_of(file)].lock(), file, client, kind)
    }

    /// Runs the checks that do not need the file's state.
    fn check_grant(
        &self,
        now: Duration,
        client: &Arc<Client>,
        file: FileKey,
        reclaim: bool,
    ) -> Result<(), NotDelegated> {
        if !self.delegations.grants_any() {
            return Err(NotDelegated::Resource);
        }
        match reclaim {
            true if !self.recovery.may_reclaim(client, file) => return Err(NotDelegated::Contention),
            true => {}
            false => self.check_new_grant(now, client, file)?,
        }
        let has_room = self.has_room_for_delegation(client) && self.recovery.has_room_for(client);
        if has_room { Ok(()) } else { Err(NotDelegated::Resource) }
    }

    /// Runs the checks for a delegation that is not reclaimed.
    fn check_new_grant(
        &self,
        now: Duration,
        client: &Arc<Client>,
        file: FileKey,
    ) -> Result<(), NotDelegated> {
        // §10.4.1, and the paper of 2015: the back channel must work. A delegation that cannot be recalled would make others
        // wait for a lease time.
        if !client.is_reachable() || self.recovery.in_grace(now) {
            return Err(NotDelegated::Resource);
        }
        if self.delegations.recent_recalls.contains(self.recall_hash(file), now) {
            return Err(NotDelegated::Contention);
        }
        self.recall_any_if_full(now, client);
        Ok(())
    }

    /// Returns whether one more delegation is within all bounds; a reclaimed one counts too.
    fn has_room_for_delegation(&self, client: &Client) -> bool {
        let held = client.holdings.delegations.load(Relaxed) as usize;
        let of_host = client.host().delegations.load(Relaxed) as usize;
        let all = self.gauges.delegations.load(Relaxed) as usize;
        held < self.delegations_per_client_max()
            && host::has_room(self.delegations.max, all, of_host, 1)
            && self.gauges.has_room_for(client, DELEGATION_WEIGHT)
            && self.gauges.has_share(client, DELEGATION_WEIGHT)
    }

    /// Sends CB_RECALL_ANY (§20.6) to a client near its bound, or if all are near theirs: the client knows best which delegations
    /// it does not need.
    fn recall_any_if_full(&self, now: Duration, client: &Arc<Client>) {
        let held = client.holdings.delegations.load(Relaxed) as usize;
        let all = self.gauges.delegations.load(Relaxed) as usize;
        let is_near = |count: usize, bound: usize| count >= bound - bound / 8;
        // Version 4.0 has no such callback.
        let is_full = is_near(held, self.delegations_per_client_max()) || is_near(all, self.delegations.max);
        if !is_full || client.v40().is_some() {
            return;
        }
        let seconds = now.as_secs() + 1;
        let last = client.asked_to_return.load(Relaxed);
        if last == 0 || seconds >= last + RECALL_ANY_PERIOD_SECONDS {
            client.asked_to_return.store(seconds, Relaxed);
            let keep = u32::try_from(held - held / 4).unwrap_or(u32::MAX);
            self.call(client, Callback::recall_any(keep));
        }
    }

    fn delegations_per_client_max(&self) -> usize {
        (self.delegations.max / CLIENT_PART).max(CLIENT_MIN)
    }
}

fn count_grant(counts: &DelegationCounts, kind: DelegationKind) {
    let counter = match kind {
        DelegationKind::Read => &counts.granted_read,
        DelegationKind::Write => &counts.granted_write,
        DelegationKind::Directory(_) => &counts.granted_directory,
    };
    counter.fetch_add(1, Relaxed);
}

/// Checks that an object can be delegated to a client in its present state.
fn check_free(
    shard: &Shard,
    file: FileKey,
    client: &Client,
    kind: DelegationKind,
) -> Result<(), NotDelegated> {
    if let Some(index) = shard.find_delegation(file, client.id()) {
        let is_other = shard.delegation_at(index).kind != kind;
        return Err(if is_other { NotDelegated::OtherKind } else { NotDelegated::Resource });
    }
    if client.is_removed() || is_used(shard, file, client, kind) {
        return Err(NotDelegated::Contention);
    }
    Ok(())
}

/// Returns whether other clients' opens or delegations conflict. A directory may have any number of holders, and is not opened.
fn is_used(shard: &Shard, file: FileKey, client: &Client, kind: DelegationKind) -> bool {
    let conflict = match kind {
        DelegationKind::Read => Conflict::Write,
        DelegationKind::Write => Conflict::Any,
        DelegationKind::Directory(_) => return false,
    };
    is_open_by_others(shard, file, client, kind.is_write())
        || shard.has_conflict(file, Some(client.id()), conflict)
}

/// Returns whether other clients have the file open in a way that conflicts with a delegation: for writing or with a deny; in any
/// way if the delegation is for writing (§10.4; the paper of 2015, §5.1: "the file is not open for write by any client").
fn is_open_by_others(shard: &Shard, file: FileKey, client: &Client, is_write: bool) -> bool {
    // The holder would lock bytes locally that an NLM host gets later, without asking again.
    if shard.has_waiting_host(file) {
        return true;
    }
    let Some(record) = shard.files.get(&file) else { return false };
    // Or that it has locked here.
    if record.is_held_by_nlm() {
        return true;
    }
    if !is_write && !record.opens.has_writer_or_deny() {
        return false;
    }
    let conflicts = |index: &u32| {
        let modes = &shard.open_at(*index).modes;
        let is_other = shard.entry(*index).client.id() != client.id();
        is_other && (is_write || modes.writes() || modes.deny() != 0)
    };
    record.opens.len() > OPENS_CHECKED_MAX || record.opens.iter().any(conflicts)
}
