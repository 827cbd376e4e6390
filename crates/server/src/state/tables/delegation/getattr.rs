//! The holder's answer to CB_GETATTR (RFC 8881 §10.4.3, §20.1): the file's size and whether it has changed, and its times if the
//! holder maintains them (RFC 9754 §5).

use std::sync::Arc;

use protocol::nfs4::attributes::{Attributes as Reported, number};
use protocol::nfs4::types::Bitmap;
use vfs::{Attributes, Timestamp};

use super::super::stateid::EntryId;
use super::super::waiter::DelegationWaiter;
use super::times::{DelegatedTimes, FileTimes, ReportedTimes, timestamp};

/// Attributes requested from every holder.
const REQUESTED: Bitmap = Bitmap::of(&[number::CHANGE, number::SIZE]);
/// Also requested if the holder maintains the times. RFC 9754 §5: the server "MUST query the client via a CB_GETATTR for" both.
const REQUESTED_TIMES: Bitmap = Bitmap::of(&[number::TIME_DELEG_ACCESS, number::TIME_DELEG_MODIFY]);

/// A holder's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HolderReply {
    /// Bytes.
    size: u64,
    /// Whether the holder has changes that the server has not seen.
    is_modified: bool,
    /// The change attribute that others see with this size; see [`HeldAttributes::change`].
    change: u64,
}

/// Attributes that the holder of a delegation knows better than the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldAttributes {
    /// The delegation.
    pub(crate) entry_id: EntryId,
    /// Bytes, if the holder has changes that the server has not seen.
    size: Option<u64>,
    /// The change attribute that goes with `size`. The file had it before the holder was asked, or it was made for this answer: no
    /// state of the file after the answer has it, except with this size.
    pub(crate) change: u64,
    /// The file's times, if the holder maintains them.
    pub(crate) times: Option<FileTimes>,
    /// Whether the file has changed and the file system does not show it yet.
    pub is_changed: bool,
}

impl HeldAttributes {
    /// Overwrites attributes of the file system. `newest_size` is that of the holder's last answer, and `times` are the newest known
    /// times, if the holder maintains them.
    ///
    /// The file system's change attribute may include changes that the holder has sent since its answer. With the old size it would
    /// hide them for good, so that the older one is shown. A newer size with an older change attribute hides nothing.
    pub(crate) fn apply(
        &self,
        newest_size: Option<u64>,
        times: Option<FileTimes>,
        attributes: &mut Attributes,
    ) {
        if let Some(size) = self.size {
            (attributes.size, attributes.change) = (newest_size.unwrap_or(size), self.change);
        }
        if let Some(FileTimes { accessed, modified }) = times {
            (attributes.accessed, attributes.modified) = (accessed, modified);
            // RFC 9754 §5: "The change time can be derived from the modify time."
            attributes.changed = attributes.changed.max(modified);
        }
    }
}

/// The CB_GETATTRs of one delegation. Requests that come while one is under way share its answer.
#[derive(Debug, Default)]
pub(crate) struct HolderQueries {
    /// `change` at the grant.
    granted_change: u64,
    asked: u64,
    answered: u64,
    /// The file's `change` before the last query.
    change_before: u64,
    reply: Option<HolderReply>,
}

impl HolderQueries {
    pub(crate) fn new(granted_change: u64) -> Self {
        Self { granted_change, ..Self::default() }
    }

    /// Returns the file's `change` at the grant.
    pub(crate) fn granted_change(&self) -> u64 {
        self.granted_change
    }

    /// Returns whether an answer is awaited.
    pub(crate) fn is_pending(&self) -> bool {
        self.asked > self.answered
    }

    /// Returns whether query `number` was answered.
    pub(crate) fn is_answered(&self, number: u64) -> bool {
        self.answered >= number
    }

    /// Begins a query, or joins the pending one. Returns its number, and whether it is new. `change` is the file's, read before this.
    pub(crate) fn ask(&mut self, change: u64) -> (u64, bool) {
        let is_new = !self.is_pending();
        if is_new {
            self.asked += 1;
            self.change_before = change;
        }
        (self.asked, is_new)
    }

    /// Returns the size in the last answer, if the holder has changed the file.
    pub(crate) fn newest_size(&self) -> Option<u64> {
        self.reply.filter(|reply| reply.is_modified).map(|reply| reply.size)
    }

    /// Notes that others see another change attribute with the answer that had `before`.
    pub(crate) fn change_shown(&mut self, before: u64, change: u64) {
        if let Some(reply) = &mut self.reply
            && reply.change == before
        {
            reply.change = change;
        }
    }

    /// Returns the attributes to request.
    pub(crate) fn requested(has_times: bool) -> Bitmap {
        if has_times { REQUESTED.union(REQUESTED_TIMES) } else { REQUESTED }
    }

    /// Takes the holder's answer; `None`, or one that lacks attributes, counts as no reply.
    pub(crate) fn answer(&mut self, reported: Option<Reported>, times: Option<&mut DelegatedTimes>) {
        self.answered = self.asked;
        self.reply = reported.and_then(|reported| {
            if let Some(times) = times {
                // RFC 9754 §5: a client that asked to maintain the times "MUST support" them here.
                let accessed = Some(timestamp(reported.time_deleg_access?)?);
                let modified = Some(timestamp(reported.time_deleg_modify?)?);
                times.report(ReportedTimes { accessed, modified });
            }
            // §10.4.3: "If the value cc is equal to sc, the file is not modified".
            let is_modified = reported.change? != self.granted_change;
            Some(HolderReply { size: reported.size?, is_modified, change: self.change_before })
        });
    }

    /// Returns the attributes that other clients see after the last answer. Each request that shares an answer sees the change until the file
    /// system shows it.
    pub(crate) fn attributes(
        &self,
        entry_id: EntryId,
        times: Option<&mut DelegatedTimes>,
        now: Timestamp,
    ) -> Option<HeldAttributes> {
        let HolderReply { size, is_modified, change } = self.reply?;
        let size = is_modified.then_some(size);
        let Some(times) = times else {
            return Some(HeldAttributes { entry_id, size, change, times: None, is_changed: is_modified });
        };
        times.accept_reported(now);
        // Every change of the holder has a time. An answer from before a SETATTR of the times does not count as a change: it
        // would give the file another time.
        let (known, is_changed) = (times.known, times.is_changed);
        Some(HeldAttributes { entry_id, size, change, times: Some(known), is_changed })
    }
}

/// The result of asking a holder.
#[derive(Debug)]
pub enum HolderQuery {
    /// No other client has a write delegation of the file.
    NoHolder,
    /// The answer to this query is awaited: wait, and ask again with its number.
    Pending(u64, Arc<DelegationWaiter>),
    /// The holder has answered.
    Answered(HeldAttributes),
    /// The holder has answered with an error, or without the attributes.
    Refused,
}
