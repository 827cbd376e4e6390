//! One call at a time, sent again until it is answered.

use std::time::Duration;

use bytes::Bytes;
use rpc::message::peek;

/// A call is sent again when it is not answered within a second.
const PATIENCE: Duration = Duration::from_secs(1);

/// See the module; `P` is what a call is for.
#[derive(Debug)]
pub(crate) struct CallSlot<P> {
    xid: u32,
    pending: Option<Pending<P>>,
}

#[derive(Debug)]
struct Pending<P> {
    purpose: P,
    bytes: Bytes,
    asked: Duration,
    sent: Duration,
}

impl<P: Clone> CallSlot<P> {
    pub(crate) fn new(first_xid: u32) -> Self {
        Self { xid: first_xid, pending: None }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.pending.is_none()
    }

    /// Sends what `encode` makes of the next transaction number.
    pub(crate) fn say(&mut self, purpose: P, now: Duration, encode: impl FnOnce(u32) -> Bytes) -> Bytes {
        self.xid = self.xid.wrapping_add(1);
        let bytes = encode(self.xid);
        self.pending = Some(Pending { purpose, bytes: bytes.clone(), asked: now, sent: now });
        bytes
    }

    /// What was not answered in time, again.
    pub(crate) fn again(&mut self, now: Duration) -> Option<Bytes> {
        let pending = self.pending.as_mut().filter(|pending| pending.sent + PATIENCE <= now)?;
        pending.sent = now;
        Some(pending.bytes.clone())
    }

    /// What a message answers, if anything, and when that was asked first.
    pub(crate) fn answered(&self, bytes: &Bytes) -> Option<(P, Duration)> {
        let (xid, _) = peek(bytes).ok()?;
        let pending = self.pending.as_ref().filter(|_| xid == self.xid)?;
        Some((pending.purpose.clone(), pending.asked))
    }

    /// The answer was taken.
    pub(crate) fn over(&mut self) {
        self.pending = None;
    }
}
