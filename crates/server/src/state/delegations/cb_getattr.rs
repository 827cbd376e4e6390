//! CB_GETATTR (RFC 8881 §10.4.3, §20.1): asks the holder of a write delegation for the attributes that it may have changed.
//!
//! A request for attributes by another client makes the server ask the holder. Requests at the same time share one callback. If
//! the holder does not answer, the delegation is recalled.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use protocol::nfs4::attributes;
use protocol::nfs4::callback::recall::CbGetAttrArgs;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use vfs::Attributes;

use crate::Now;
use crate::state::State;
use crate::state::tables::callback::{Callback, CallbackPurpose};
use crate::state::tables::client::Client;
use crate::state::tables::delegation::conflict::Conflict;
use crate::state::tables::delegation::getattr::{HeldAttributes, HolderQueries, HolderQuery};
use crate::state::tables::file_key::FileKey;
use crate::state::tables::stateid::EntryId;

/// The longest wait for a holder's answer, which needs no disk.
const ANSWER_MAX: Duration = Duration::from_secs(2);

impl State {
    /// Returns the deadline of a holder's answer to a query at `now`.
    #[must_use]
    pub fn getattr_deadline(&self, now: Duration) -> Duration {
        now + ANSWER_MAX.min(self.lease / 3)
    }

    /// Asks the holder of another client's write delegation of a file, or gets the answer to query `number`. `change` is the file's
    /// change attribute, read before the call.
    pub fn query_holder(
        &self,
        now: Now,
        deadline: Duration,
        client: Option<&Client>,
        (file, change): (FileKey, u64),
        number: Option<u64>,
    ) -> HolderQuery {
        let mut shard = self.shards[self.shard_of(file)].lock();
        let holders = shard.conflicts(file, client.map(Client::id), Conflict::Write);
        let Some(index) = holders.first().copied() else { return HolderQuery::NoHolder };
        let holder = Arc::clone(&shard.entry(index).client);
        // §8.4.3: a client with an expired lease holds nothing that others need to know.
        if holder.is_expired(now.monotonic, self.lease) {
            return HolderQuery::NoHolder;
        }
        let entry_id = shard.entry_id(index);
        let delegation = shard.delegation_at_mut(index);
        if number.is_some_and(|number| delegation.queries.is_answered(number)) {
            let held = delegation.held_attributes(entry_id, now.wall);
            return held.map_or(HolderQuery::Refused, HolderQuery::Answered);
        }
        let (asked, is_new) = delegation.queries.ask(change);
        let number = number.unwrap_or(asked);
        let call = is_new.then(|| {
            let attributes = HolderQueries::requested(delegation.times.is_some());
            let args = CbGetAttrArgs { handle: delegation.handle, attributes };
            let referring = delegation.granted_by;
            Callback::new(CbOp::GetAttr(args), CallbackPurpose::GetAttr(entry_id), referring)
        });
        let waiter = self.add_waiter(&mut shard, file, deadline);
        drop(shard);
        if let Some(call) = call {
            self.delegations.counts.inquiries.fetch_add(1, Relaxed);
            self.call(&holder, call);
        }
        HolderQuery::Pending(number, waiter)
    }

    /// Overwrites attributes that were read later with the holder's answer. Its times are the newest known ones: it may have
    /// set others meanwhile, which the file shows already. The change attribute is that of the answer. Returns false if the delegation has ended: the attributes must be read
    /// again. The file may show all changes of the holder by then, and more; the old answer with a newer `change` would be
    /// used from then on.
    #[must_use]
    pub fn apply_held_attributes(&self, held: Option<HeldAttributes>, attributes: &mut Attributes) -> bool {
        let Some(held) = held else { return true };
        let shard = self.shards[held.entry_id.shard].lock();
        if !shard.is_delegation(held.entry_id) {
            return false;
        }
        let delegation = shard.delegation_at(held.entry_id.index);
        let times = delegation.times.as_ref().map(|times| times.known);
        held.apply(delegation.queries.newest_size(), times, attributes);
        true
    }

    /// Returns whether the delegation is still held.
    pub fn is_still_delegated(&self, held: &HeldAttributes) -> bool {
        self.shards[held.entry_id.shard].lock().is_delegation(held.entry_id)
    }

    /// Notes that the file system shows the change that the holder reported, and that others see it with this change attribute.
    pub fn change_shown(&self, held: &mut HeldAttributes, change: u64) {
        let before = std::mem::replace(&mut held.change, change);
        let (mut shard, entry_id) = (self.shards[held.entry_id.shard].lock(), held.entry_id);
        if !shard.is_delegation(entry_id) {
            return;
        }
        let delegation = shard.delegation_at_mut(entry_id.index);
        delegation.queries.change_shown(before, change);
        if let Some(times) = &mut delegation.times
            && let Some(shown) = held.times
        {
            times.is_changed &= times.known.modified > shown.modified;
        }
    }

    /// Handles the reply to CB_GETATTR.
    pub(crate) fn getattr_answered(&self, entry_id: EntryId, result: Option<CbOpResult>) {
        let reported = result.and_then(|result| match result {
            CbOpResult::GetAttr(result) => result.into_result().ok(),
            _ => None,
        });
        let reported =
            reported.and_then(|reported| attributes::Attributes::from_file_attributes(&reported).ok());
        let mut shard = self.shards[entry_id.shard].lock();
        if !shard.is_delegation(entry_id) {
            return;
        }
        let file = shard.entry(entry_id.index).file;
        let delegation = shard.delegation_at_mut(entry_id.index);
        delegation.queries.answer(reported, delegation.times.as_deref_mut());
        shard.wake_waiting(file);
    }
}
