//! The order and the bound of requests: by the slots of a session (4.1 and later), or only by their number (4.0).

use protocol::nfs4::ops::session::{SequenceArgs, SequenceOk};

use crate::slots::Slots;

/// Assigns permits for requests.
#[derive(Debug)]
pub(crate) enum Sequencer {
    /// RFC 8881 §2.10.6.1: each request has a slot and begins with SEQUENCE.
    Slots(Slots),
    /// RFC 7530 has no slots: the transaction ID alone identifies a request.
    Calls {
        /// Requests in flight.
        in_use: u32,
        /// Maximum of them.
        max: u32,
    },
}

/// The permit of a request: its SEQUENCE, or nothing in 4.0.
pub(crate) type Place = Option<SequenceArgs>;

impl Sequencer {
    /// Takes a permit; `None` if all are in use.
    pub(crate) fn take(&mut self, cache_this: bool) -> Option<Place> {
        match self {
            Self::Slots(slots) => slots.take(cache_this).map(Some),
            Self::Calls { in_use, max } => (*in_use < *max).then(|| {
                *in_use += 1;
                None
            }),
        }
    }

    /// Frees the permit of a request that was executed. `ok` is the result of its SEQUENCE.
    pub(crate) fn executed(&mut self, sent: &Place, ok: Option<&SequenceOk>) {
        match (&mut *self, sent, ok) {
            (Self::Slots(slots), Some(sent), Some(ok)) => {
                slots.executed(sent, ok);
            }
            _ => self.release(sent),
        }
    }

    /// Frees the permit of a request that was executed and whose reply is lost.
    pub(crate) fn advance(&mut self, sent: &Place) {
        match (&mut *self, sent) {
            (Self::Slots(slots), Some(sent)) => slots.advance(sent),
            _ => self.release(sent),
        }
    }

    /// Frees the permit of a request that was not executed.
    pub(crate) fn release(&mut self, sent: &Place) {
        match (self, sent) {
            (Self::Slots(slots), Some(sent)) => slots.release(sent),
            (Self::Calls { in_use, .. }, None) => *in_use -= 1,
            // A permit of another kind of sequencer was never taken here.
            _ => {}
        }
    }

    /// Returns how many permits can be in use.
    pub(crate) fn max(&self) -> u32 {
        match self {
            Self::Slots(slots) => slots.usable(),
            Self::Calls { max, .. } => *max,
        }
    }

    /// Returns the number of permits in use.
    pub(crate) fn busy(&self) -> usize {
        match self {
            Self::Slots(slots) => slots.busy(),
            Self::Calls { in_use, .. } => *in_use as usize,
        }
    }

    /// Obeys the server's target for its slots.
    pub(crate) fn set_target(&mut self, target: u32) {
        if let Self::Slots(slots) = self {
            slots.set_target(target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_slots_are_bounded() {
        let mut calls = Sequencer::Calls { in_use: 0, max: 2 };
        let (first, second) = (calls.take(true).unwrap(), calls.take(false).unwrap());
        assert_eq!((first, second, calls.take(true)), (None, None, None));
        calls.executed(&first, None);
        assert_eq!((calls.busy(), calls.take(false)), (1, Some(None)));
        calls.release(&second);
        calls.advance(&None);
        assert_eq!(calls.busy(), 0);
    }
}
