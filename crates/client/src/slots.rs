//! The slots of a session at the client (RFC 8881 §2.10.6.1).

use std::collections::BTreeSet;

use protocol::nfs4::ops::session::{SequenceArgs, SequenceOk};
use protocol::nfs4::types::SessionId;

/// The slots of a session.
#[derive(Debug)]
pub(crate) struct Slots {
    session: SessionId,
    /// The sequence ID of each slot's last executed request; 0 before the first.
    sequences: Vec<u32>,
    free: BTreeSet<u32>,
    busy: BTreeSet<u32>,
    /// The highest slot that the server wants to be used (`sr_target_highest_slotid`).
    target: u32,
    /// Maximum number of slots.
    max: u32,
}

impl Slots {
    /// Creates `count` unused slots, which can become `max`.
    pub(crate) fn new(session: SessionId, count: u32, max: u32) -> Self {
        let (sequences, free) = (vec![0; count as usize], (0..count).collect());
        Self { session, sequences, free, busy: BTreeSet::new(), target: count.saturating_sub(1), max }
    }

    /// Takes a free slot and returns its SEQUENCE; `None` if all are busy.
    pub(crate) fn take(&mut self, cache_this: bool) -> Option<SequenceArgs> {
        // RFC 8881 §2.10.6.1: "The requester SHOULD use the lowest available slot when sending a new request."
        let slot = self.free.first().copied().filter(|slot| *slot <= self.target)?;
        self.free.remove(&slot);
        self.busy.insert(slot);
        Some(SequenceArgs {
            session_id: self.session,
            sequence_id: self.sequences[slot as usize].wrapping_add(1),
            slot_id: slot,
            highest_slot_id: self.busy.last().copied().unwrap_or(slot),
            cache_this,
        })
    }

    /// Handles the successful result of SEQUENCE; returns false if it belongs to another request.
    pub(crate) fn executed(&mut self, sent: &SequenceArgs, ok: &SequenceOk) -> bool {
        let of = |ok: &SequenceOk| (ok.session_id, ok.slot_id, ok.sequence_id);
        if of(ok) != (sent.session_id, sent.slot_id, sent.sequence_id) {
            return false;
        }
        self.set_target(ok.target_highest_slot_id.min(ok.highest_slot_id));
        self.advance(sent);
        true
    }

    /// Frees the slot of a request that was executed.
    pub(crate) fn advance(&mut self, sent: &SequenceArgs) {
        self.sequences[sent.slot_id as usize] = sent.sequence_id;
        self.release(sent);
    }

    /// Frees the slot of a request that was not executed. RFC 8881 §18.46.3: "If SEQUENCE returns an error, then the state of
    /// the slot (sequence ID, cached reply) MUST NOT change, and the associated lease MUST NOT be renewed."
    pub(crate) fn release(&mut self, sent: &SequenceArgs) {
        if self.busy.remove(&sent.slot_id) {
            self.free.insert(sent.slot_id);
        }
    }

    /// Returns the sequence ID of each slot's last executed request; 0 before the first.
    pub(crate) fn sequences(&self) -> &[u32] {
        &self.sequences
    }

    /// Returns the number of slots that the server wants to be used, at most.
    pub(crate) fn usable(&self) -> u32 {
        self.target.saturating_add(1).min(self.max)
    }

    /// Returns the number of busy slots.
    pub(crate) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// Follows the server's target, up or down.
    pub(crate) fn set_target(&mut self, target: u32) {
        self.target = target.min(self.max.saturating_sub(1));
        let count = self.sequences.len() as u32;
        if self.target >= count {
            // §2.10.6.1: a slot that becomes usable begins with sequence ID 1.
            self.sequences.resize(self.target as usize + 1, 0);
            self.free.extend(count..=self.target);
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::ops::session::SequenceStatus;

    use super::*;

    fn answer(sent: &SequenceArgs, target_highest_slot_id: u32) -> SequenceOk {
        SequenceOk {
            session_id: sent.session_id,
            sequence_id: sent.sequence_id,
            slot_id: sent.slot_id,
            highest_slot_id: 99,
            target_highest_slot_id,
            status_flags: SequenceStatus::empty(),
        }
    }

    #[test]
    fn takes_the_lowest_free_slot_and_counts_executed_requests() {
        let mut slots = Slots::new([1; 16], 2, 2);
        let (first, second) = (slots.take(false).unwrap(), slots.take(true).unwrap());
        assert_eq!((first.slot_id, first.sequence_id, first.highest_slot_id), (0, 1, 0));
        assert_eq!((second.slot_id, second.sequence_id, second.highest_slot_id), (1, 1, 1));
        assert!(slots.take(false).is_none());
        assert!(slots.executed(&first, &answer(&first, 1)));
        let next = slots.take(false).unwrap();
        assert_eq!((next.slot_id, next.sequence_id, next.highest_slot_id), (0, 2, 1));
        slots.release(&next);
        assert_eq!(slots.take(false), Some(next), "a refused request leaves the slot unchanged");
    }

    #[test]
    fn rejects_results_of_another_request() {
        let mut slots = Slots::new([1; 16], 1, 1);
        let sent = slots.take(false).unwrap();
        let wrong = SequenceOk { sequence_id: 2, ..answer(&sent, 0) };
        assert!(!slots.executed(&sent, &wrong));
        assert!(!slots.executed(&sent, &SequenceOk { session_id: [2; 16], ..answer(&sent, 0) }));
        assert!(slots.executed(&sent, &answer(&sent, 0)));
    }

    #[test]
    fn follows_the_target_down_and_up() {
        let mut slots = Slots::new([1; 16], 4, 12);
        let sent = slots.take(false).unwrap();
        assert!(slots.executed(&sent, &answer(&sent, 0)));
        assert!(slots.take(false).is_some() && slots.take(false).is_none());
        slots.set_target(9);
        let taken: Vec<u32> = std::iter::from_fn(|| slots.take(false)).map(|sent| sent.slot_id).collect();
        assert_eq!(taken, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        slots.set_target(u32::MAX);
        assert_eq!(std::iter::from_fn(|| slots.take(false)).count(), 2, "never more than wanted");
    }
}
