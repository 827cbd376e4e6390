//! A client's session slots (RFC 8881 §2.10.6.1).

use protocol::nfs4::ops::session::{SequenceArgs, SequenceOk};
use protocol::nfs4::types::SessionId;

/// The slots of a session.
#[derive(Debug)]
pub(crate) struct Slots {
    session: SessionId,
    slots: Vec<Slot>,
    /// The highest slot that the server wants to be used (`sr_target_highest_slotid`).
    target: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// The sequence ID of the last executed request; 0 before the first.
    sequence: u32,
    is_busy: bool,
}

impl Slots {
    /// Creates `count` unused slots.
    pub(crate) fn new(session: SessionId, count: u32) -> Self {
        let slots = vec![Slot::default(); count as usize];
        Self { session, slots, target: count.saturating_sub(1) }
    }

    /// Returns whether a slot is free.
    pub(crate) fn has_free(&self) -> bool {
        self.free().is_some()
    }

    fn free(&self) -> Option<usize> {
        // RFC 8881 §2.10.6.1: "The requester SHOULD use the lowest available slot when sending a new request."
        let wanted = self.slots.iter().take(self.target as usize + 1);
        wanted.enumerate().find(|(_, slot)| !slot.is_busy).map(|(index, _)| index)
    }

    /// Takes a free slot and returns its SEQUENCE; `None` if all are busy.
    pub(crate) fn take(&mut self) -> Option<SequenceArgs> {
        let index = self.free()?;
        self.slots[index].is_busy = true;
        let highest = self.slots.iter().rposition(|slot| slot.is_busy).unwrap_or(index);
        Some(SequenceArgs {
            session_id: self.session,
            sequence_id: self.slots[index].sequence.wrapping_add(1),
            slot_id: index as u32,
            highest_slot_id: highest as u32,
            cache_this: false,
        })
    }

    /// Handles the successful result of SEQUENCE; returns false if it belongs to another request.
    pub(crate) fn executed(&mut self, sent: &SequenceArgs, ok: &SequenceOk) -> bool {
        let of = |ok: &SequenceOk| (ok.session_id, ok.slot_id, ok.sequence_id);
        if of(ok) != (sent.session_id, sent.slot_id, sent.sequence_id) {
            return false;
        }
        self.target = ok.target_highest_slot_id;
        self.release(sent);
        self.slots[sent.slot_id as usize].sequence = sent.sequence_id;
        true
    }

    /// Handles a failed SEQUENCE. RFC 8881 §18.46.3: "If SEQUENCE returns an error, then the state of the slot (sequence ID, cached
    /// reply) MUST NOT change, and the associated lease MUST NOT be renewed."
    pub(crate) fn release(&mut self, sent: &SequenceArgs) {
        self.slots[sent.slot_id as usize].is_busy = false;
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
            highest_slot_id: 7,
            target_highest_slot_id,
            status_flags: SequenceStatus::empty(),
        }
    }

    #[test]
    fn takes_the_lowest_free_slot_and_counts_executed_requests() {
        let mut slots = Slots::new([1; 16], 2);
        let (first, second) = (slots.take().unwrap(), slots.take().unwrap());
        assert_eq!((first.slot_id, first.sequence_id, first.highest_slot_id), (0, 1, 0));
        assert_eq!((second.slot_id, second.sequence_id, second.highest_slot_id), (1, 1, 1));
        assert!(!slots.has_free() && slots.take().is_none());
        assert!(slots.executed(&first, &answer(&first, 1)));
        let next = slots.take().unwrap();
        assert_eq!((next.slot_id, next.sequence_id, next.highest_slot_id), (0, 2, 1));
        slots.release(&next);
        assert_eq!(slots.take(), Some(next), "a refused request leaves the slot unchanged");
    }

    #[test]
    fn rejects_results_of_another_request() {
        let mut slots = Slots::new([1; 16], 1);
        let sent = slots.take().unwrap();
        let wrong = SequenceOk { sequence_id: 2, ..answer(&sent, 0) };
        assert!(!slots.executed(&sent, &wrong));
        assert!(!slots.executed(&sent, &SequenceOk { session_id: [2; 16], ..answer(&sent, 0) }));
        assert!(slots.executed(&sent, &answer(&sent, 0)));
    }

    #[test]
    fn leaves_slots_above_the_target_unused() {
        let mut slots = Slots::new([1; 16], 4);
        let sent = slots.take().unwrap();
        assert!(slots.executed(&sent, &answer(&sent, 0)));
        assert!(slots.take().is_some());
        assert!(slots.take().is_none());
    }
}
