//! Who gets a delegation: all that speaks against one is looked at here.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::super::inquiry::Questions;
use super::super::local_change::Lookout;
use super::super::times::Keeping;
use super::{Against, DELEGATION_WEIGHT, Delegation, DelegationKind, NotDelegated, Recalls, Wish};
use crate::state::State;
use crate::state::callbacks::callback::Callback;
use crate::state::sessions::sequence::Running;
use crate::state::tables::client::Client;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::host;
use crate::state::tables::notices::Notices;
use crate::state::tables::phase::Phase;
use crate::state::tables::shard::{self, Dropped, Shard};
use crate::state::tables::wire::Stateid;

/// A file with more opens than this is not looked through for those of others: it is busy.
const OPENS_LOOKED_AT: usize = 64;
/// One client may have this part of all delegations, so that none shuts out the others.
const SHARE_PART: usize = 4;
/// Delegations that one client may have however small that part is.
const SHARE_MIN: usize = 1024;
/// Seconds between two CB_RECALL_ANY to one client.
const ASK_PERIOD_SECONDS: u64 = 5;
impl State {
    /// Grants a delegation beside an open, where all that speaks against one is absent. `lookout` is over the object, where others than
    /// clients are seen; what it has to tell speaks against one too, and recalls at once what is reclaimed.
    ///
    /// # Errors
    /// Why there is none.
    pub fn delegate(
        &self,
        now: Duration,
        client: &Arc<Client>,
        file: FileKey,
        wish: &Wish,
        granted_by: Option<&Running>,
        lookout: Option<Lookout>,
    ) -> Result<Stateid, NotDelegated> {
        self.may_delegate(now, client, file, wish.reclaim)?;
        let (mut dropped, mut recalls) = (Dropped::new(), Recalls::new());
        let mut shard = self.shards[self.shard_of(file)].lock();
        is_free(&shard, file, client, wish.kind)?;
        let delegation = Delegation {
            kind: wish.kind,
            judged: wish.judged,
            opener: wish.opener,
            phase: Phase::Granted,
            handle: wish.handle,
            granted_by: granted_by.map(Running::as_referring),
            recalled: None,
            questions: Questions::new(wish.change),
            keeping: wish.times.map(Keeping::since),
            notices: Notices::since(wish.change),
            lookout,
            at_file: 0,
        };
        let index = shard.add_delegation(client, file, delegation, &self.gauges);
        // Only now: a change that has not seen the delegation is seen here.
        let has_rung = shard.delegation_at(index).lookout.as_ref().is_some_and(Lookout::has_rung);
        let (busy, hash) = (&self.delegations.busy, self.busy_hash(&wish.inner));
        // In this order: what is under way no more has ended.
        let is_changing = busy.is_entered(hash);
        let has_changed = has_rung || busy.has_moved_on(hash, wish.looked);
        if is_changing || has_changed && !wish.reclaim {
            shard.end(index, shard::Event::Leave, &self.gauges, &mut dropped);
            return Err(NotDelegated::Contention);
        }
        if has_rung {
            recalls.extend(self.recall(&mut shard, index, now));
        }
        let counts = &self.delegations.counts;
        let counter = match wish.kind {
            DelegationKind::Read => &counts.granted_read,
            DelegationKind::Write => &counts.granted_write,
            DelegationKind::Directory(_) => &counts.granted_directory,
        };
        counter.fetch_add(1, Relaxed);
        let stateid = shard.stateid(index, self.ids.boot());
        drop(shard);
        self.recovery.holds(client);
        self.send_contended(now, file, recalls);
        Ok(stateid)
    }

    /// Whether [`Self::delegate`] would grant a delegation of this kind, as far as is known before it is asked.
    ///
    /// # Errors
    /// Why it would not.
    pub fn would_delegate(
        &self,
        now: Duration,
        client: &Arc<Client>,
        file: FileKey,
        kind: DelegationKind,
        reclaim: bool,
    ) -> Result<(), NotDelegated> {
        self.may_delegate(now, client, file, reclaim)?;
        is_free(&self.shards[self.shard_of(file)].lock(), file, client, kind)
    }

    /// What can be said before the file is looked at.
    fn may_delegate(
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
            false => self.may_delegate_anew(now, client, file)?,
        }
        let has_room = self.has_room_for_delegation(client) && self.recovery.has_room_for(client);
        if has_room { Ok(()) } else { Err(NotDelegated::Resource) }
    }

    /// The same of what was not delegated before.
    fn may_delegate_anew(
        &self,
        now: Duration,
        client: &Arc<Client>,
        file: FileKey,
    ) -> Result<(), NotDelegated> {
        // §10.4.1, and the paper of 2015: the back channel works. A delegation that cannot be recalled would keep others
        // waiting for a lease time.
        if !client.is_reachable() || self.recovery.in_grace(now) {
            return Err(NotDelegated::Resource);
        }
        if self.delegations.contended.is_marked(self.contention_hash(file), now) {
            return Err(NotDelegated::Contention);
        }
        self.ask_to_return(now, client);
        Ok(())
    }

    /// Whether one more is within all bounds; what is reclaimed counts as well.
    fn has_room_for_delegation(&self, client: &Client) -> bool {
        let held = client.holdings.delegations.load(Relaxed) as usize;
        let of_host = client.host().delegations.load(Relaxed) as usize;
        let all = self.gauges.delegations.load(Relaxed) as usize;
        held < self.delegation_share()
            && host::has_room(self.delegations.max, all, of_host, 1)
            && self.gauges.has_room_for(client, DELEGATION_WEIGHT)
            && self.gauges.has_share(client, DELEGATION_WEIGHT)
    }

    /// CB_RECALL_ANY (§20.6) to a client near its bound, or near that of all: it knows best which ones it does not need.
    fn ask_to_return(&self, now: Duration, client: &Arc<Client>) {
        let held = client.holdings.delegations.load(Relaxed) as usize;
        let all = self.gauges.delegations.load(Relaxed) as usize;
        let is_near = |count: usize, bound: usize| count >= bound - bound / 8;
        // Version 4.0 has no such callback.
        let is_full = is_near(held, self.delegation_share()) || is_near(all, self.delegations.max);
        if !is_full || client.sessionless().is_some() {
            return;
        }
        let seconds = now.as_secs() + 1;
        let last = client.asked_to_return.load(Relaxed);
        if last == 0 || seconds >= last + ASK_PERIOD_SECONDS {
            client.asked_to_return.store(seconds, Relaxed);
            let keep = u32::try_from(held - held / 4).unwrap_or(u32::MAX);
            self.call(client, Callback::recall_any(keep));
        }
    }

    /// What one client may have.
    fn delegation_share(&self) -> usize {
        (self.delegations.max / SHARE_PART).max(SHARE_MIN)
    }
}

/// Whether an object can be delegated to a client, as it is now.
fn is_free(shard: &Shard, file: FileKey, client: &Client, kind: DelegationKind) -> Result<(), NotDelegated> {
    if let Some(index) = shard.find_delegation(file, client.id()) {
        let is_other = shard.delegation_at(index).kind != kind;
        return Err(if is_other { NotDelegated::OtherKind } else { NotDelegated::Resource });
    }
    if client.is_gone() || is_in_use(shard, file, client, kind) {
        return Err(NotDelegated::Contention);
    }
    Ok(())
}

/// Whether others use what is to be delegated. A directory may have any number of holders, and is not opened.
fn is_in_use(shard: &Shard, file: FileKey, client: &Client, kind: DelegationKind) -> bool {
    let against = match kind {
        DelegationKind::Read => Against::Writers,
        DelegationKind::Write => Against::All,
        DelegationKind::Directory(_) => return false,
    };
    is_used_by_others(shard, file, client, kind.is_write())
        || shard.has_conflict(file, Some(client.id()), against)
}

/// Whether other clients have the file open in a way that stands against a delegation: for writing, or with a deny, or at
/// all where the delegation is for writing (§10.4; the paper of 2015, §5.1: "the file is not open for write by any client").
fn is_used_by_others(shard: &Shard, file: FileKey, client: &Client, is_write: bool) -> bool {
    let Some(record) = shard.files.get(&file) else { return false };
    if !is_write && !record.opens.has_writer_or_deny() {
        return false;
    }
    let stands = |index: &u32| {
        let modes = &shard.open_at(*index).modes;
        let is_other = shard.entry(*index).client.id() != client.id();
        is_other && (is_write || modes.writes() || modes.deny() != 0)
    };
    record.opens.len() > OPENS_LOOKED_AT || record.opens.iter().any(stands)
}
