//! The slots of a session, as the client sees them (RFC 8881 §2.10.6.1).

use protocol::nfs4::ops::session::{SequenceArgs, SequenceOk};
use protocol::nfs4::types::SessionId;

/// All slots of a session.
#[derive(Debug)]
pub(crate) struct Slots {
    session: SessionId,
    slots: Vec<Slot>,
    /// The highest that the server would like to see.
    target: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Of the last request that the server has executed; 0 before the first.
    sequence: u32,
    is_busy: bool,
}

impl Slots {
    /// `count` slots that nothing was sent on.
    pub(crate) fn new(session: SessionId, count: u32) -> Self {
        let slots = vec![Slot::default(); count as usize];
        Self { session, slots, target: count.saturating_sub(1) }
    }

    /// Whether one is free.
    pub(crate) fn has_free(&self) -> bool {
        self.free().is_some()
    }

    fn free(&self) -> Option<usize> {
        // RFC 8881 §2.10.6.1: "The requester SHOULD use the lowest available slot when sending a new request."
        let wanted = self.slots.iter().take(self.target as usize + 1);
        wanted.enumerate().find(|(_, slot)| !slot.is_busy).map(|(index, _)| index)
    }

    /// Takes a slot; the SEQUENCE to send on it. None where all are taken.
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

    /// A request was executed as far as SEQUENCE at least; false where what SEQUENCE returned is for another one.
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

    /// A request was refused. RFC 8881 §18.46.3: "If SEQUENCE returns an error, then the state of the slot (sequence ID, cached
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
    fn the_lowest_free_slot_is_taken_and_counts_what_was_executed() {
        let mut slots = Slots::new([1; 16], 2);
        let (first, second) = (slots.take().unwrap(), slots.take().unwrap());
        assert_eq!((first.slot_id, first.sequence_id, first.highest_slot_id), (0, 1, 0));
        assert_eq!((second.slot_id, second.sequence_id, second.highest_slot_id), (1, 1, 1));
        assert!(!slots.has_free() && slots.take().is_none());
        assert!(slots.executed(&first, &answer(&first, 1)));
        let next = slots.take().unwrap();
        assert_eq!((next.slot_id, next.sequence_id, next.highest_slot_id), (0, 2, 1));
        slots.release(&next);
        assert_eq!(slots.take(), Some(next), "what was refused has not happened");
    }

    #[test]
    fn answers_to_something_else_are_told_apart() {
        let mut slots = Slots::new([1; 16], 1);
        let sent = slots.take().unwrap();
        let wrong = SequenceOk { sequence_id: 2, ..answer(&sent, 0) };
        assert!(!slots.executed(&sent, &wrong));
        assert!(!slots.executed(&sent, &SequenceOk { session_id: [2; 16], ..answer(&sent, 0) }));
        assert!(slots.executed(&sent, &answer(&sent, 0)));
    }

    #[test]
    fn slots_above_the_servers_target_are_left_alone() {
        let mut slots = Slots::new([1; 16], 4);
        let sent = slots.take().unwrap();
        assert!(slots.executed(&sent, &answer(&sent, 0)));
        assert!(slots.take().is_some());
        assert!(slots.take().is_none());
    }
}
