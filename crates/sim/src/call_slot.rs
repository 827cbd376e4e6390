//! One call at a time, retransmitted until it is answered.

use std::time::Duration;

use bytes::Bytes;
use rpc::message::peek;

/// Retransmission interval.
const RETRANSMIT_INTERVAL: Duration = Duration::from_secs(1);

/// Holds one call; `P` is its purpose.
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

    /// Returns a new call, which `encode` makes with the next transaction number.
    pub(crate) fn send(&mut self, purpose: P, now: Duration, encode: impl FnOnce(u32) -> Bytes) -> Bytes {
        self.xid = self.xid.wrapping_add(1);
        let bytes = encode(self.xid);
        self.pending = Some(Pending { purpose, bytes: bytes.clone(), asked: now, sent: now });
        bytes
    }

    /// Returns the call again if it was not answered in time.
    pub(crate) fn retransmit(&mut self, now: Duration) -> Option<Bytes> {
        let pending = self.pending.as_mut().filter(|pending| pending.sent + RETRANSMIT_INTERVAL <= now)?;
        pending.sent = now;
        Some(pending.bytes.clone())
    }

    /// Returns the purpose of the call that a message answers, if any, and when it was first sent.
    pub(crate) fn match_reply(&self, bytes: &Bytes) -> Option<(P, Duration)> {
        let (xid, _) = peek(bytes).ok()?;
        let pending = self.pending.as_ref().filter(|_| xid == self.xid)?;
        Some((pending.purpose.clone(), pending.asked))
    }

    /// Frees the slot.
    pub(crate) fn free(&mut self) {
        self.pending = None;
    }
}
