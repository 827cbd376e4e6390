//! The back channel's side of a session: which slots callbacks may use (RFC 8881 §2.10.6, with the roles changed).
//!
//! Nothing is called back yet: recalls come with delegations. The bookkeeping stands here because CREATE_SESSION fixes
//! what it starts from.

use super::transitions::{Row, step};
use super::wire::ChannelAttributes;

/// Callbacks under way on one session at most, whatever the client offers.
const CALLBACKS_MAX: u32 = 64;

/// What a callback slot is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// May carry a new callback.
    Idle,
    /// Waits for the client's reply.
    Sent,
    /// The connection was lost before the reply: the client may have executed the callback or not.
    Unsure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Send,
    Answer,
    Lose,
}

/// RFC 8881 §18.46.3: "The server cannot be sure whether or not the client received the callback operation, and so, per
/// rules on request retry, the server MUST retry the callback operation over the same session."
const TRANSITIONS: &[Row<Phase, Event>] = &[
    (Phase::Idle, Event::Send, Phase::Sent),
    (Phase::Sent, Event::Answer, Phase::Idle),
    (Phase::Sent, Event::Lose, Phase::Unsure),
    (Phase::Unsure, Event::Send, Phase::Sent),
];

#[derive(Debug)]
struct CallbackSlot {
    phase: Phase,
    sequence_id: u32,
}

/// A callback's place: what its CB_SEQUENCE says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallbackTurn {
    /// `csa_slotid`.
    pub slot_id: u32,
    /// `csa_sequenceid`.
    pub sequence_id: u32,
    /// `csa_highest_slotid`.
    pub highest_slot_id: u32,
}

/// A session's back channel.
#[derive(Debug)]
pub struct BackChannel {
    program: u32,
    attributes: ChannelAttributes,
    slots: Vec<CallbackSlot>,
}

impl BackChannel {
    /// As CREATE_SESSION agreed.
    #[must_use]
    pub fn new(program: u32, attributes: ChannelAttributes) -> Self {
        Self { program, attributes, slots: Vec::new() }
    }

    /// `csa_cb_program`.
    #[must_use]
    pub fn program(&self) -> u32 {
        self.program
    }

    /// BACKCHANNEL_CTL (RFC 8881 §18.33): callbacks go to this program from now on.
    pub fn set_program(&mut self, program: u32) {
        self.program = program;
    }

    /// Limits of what may be sent.
    #[must_use]
    pub fn attributes(&self) -> &ChannelAttributes {
        &self.attributes
    }

    /// A slot for a new callback, the lowest that is idle; `None` while all are taken.
    pub fn send(&mut self) -> Option<CallbackTurn> {
        let idle = self.slots.iter().position(|slot| slot.phase == Phase::Idle);
        let index = match idle {
            Some(index) => index,
            None if (self.slots.len() as u32) < self.attributes.max_requests.min(CALLBACKS_MAX) => {
                self.slots.push(CallbackSlot { phase: Phase::Idle, sequence_id: 0 });
                self.slots.len() - 1
            }
            None => return None,
        };
        // §18.36.4: "the first CB_SEQUENCE operation on a slot after session creation MUST have a sequence ID of one".
        self.slots[index].sequence_id = self.slots[index].sequence_id.wrapping_add(1);
        Some(self.sent(index))
    }

    /// Sends again what may have been lost, under the same sequence ID; `None` where nothing was lost on this slot.
    pub fn send_again(&mut self, slot_id: u32) -> Option<CallbackTurn> {
        let index = slot_id as usize;
        (self.slots.get(index)?.phase == Phase::Unsure).then(|| self.sent(index))
    }

    /// The client replied.
    pub fn answered(&mut self, turn: CallbackTurn) {
        self.turn(turn, Event::Answer);
    }

    /// The connection went before the reply came.
    pub fn lost(&mut self, turn: CallbackTurn) {
        self.turn(turn, Event::Lose);
    }

    fn turn(&mut self, turn: CallbackTurn, event: Event) {
        if let Some(slot) = self.slots.get_mut(turn.slot_id as usize)
            && slot.sequence_id == turn.sequence_id
            && let Some(next) = step(TRANSITIONS, slot.phase, event)
        {
            slot.phase = next;
        }
    }

    fn sent(&mut self, index: usize) -> CallbackTurn {
        let slot = &mut self.slots[index];
        slot.phase =
            step(TRANSITIONS, slot.phase, Event::Send).expect("only idle and unsure slots are sent on");
        let sequence_id = slot.sequence_id;
        let highest = self.slots.iter().rposition(|slot| slot.phase != Phase::Idle).unwrap_or(index);
        CallbackTurn { slot_id: index as u32, sequence_id, highest_slot_id: highest as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::transitions::check_table;
    use super::*;

    fn turn(slot_id: u32, sequence_id: u32, highest_slot_id: u32) -> Option<CallbackTurn> {
        Some(CallbackTurn { slot_id, sequence_id, highest_slot_id })
    }

    #[test]
    fn the_table_of_phases_is_sound() {
        check_table(TRANSITIONS, Phase::Idle, &[Phase::Idle, Phase::Sent, Phase::Unsure]);
    }

    #[test]
    fn callbacks_take_the_lowest_idle_slot_and_retry_what_was_lost() {
        let mut back = BackChannel::new(7, ChannelAttributes { max_requests: 2, ..Default::default() });
        let (first, second) = (back.send(), back.send());
        assert_eq!((first, second), (turn(0, 1, 0), turn(1, 1, 1)));
        assert_eq!(back.send(), None, "the client offered two");
        back.answered(first.unwrap());
        assert_eq!(back.send(), turn(0, 2, 1));
        back.answered(first.unwrap());
        assert_eq!(back.send(), None, "an answer to what was answered before frees nothing");
        back.lost(second.unwrap());
        assert_eq!(back.send(), None, "a lost callback keeps its slot");
        assert_eq!(back.send_again(0), None);
        assert_eq!(back.send_again(1), turn(1, 1, 1));
    }
}
