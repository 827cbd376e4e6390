//! The protocol work of every NFSv4.0 client: client ID, retransmission and lease renewal. [`Peer`](crate::peer::Peer) does it for later
//! versions. Each process has a call slot.

use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::setclientid::{RenewArgs, SetClientIdConfirmArgs, SetClientIdResult};
use protocol::nfs4::types::Status;
use rpc::message::parse_reply;

use crate::call_slot::CallSlot;
use crate::client::{compound, set_client_id};
use crate::peer::Incoming;
use crate::rng::Rng;

/// Interval in which an idle client renews its lease.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Concurrent calls of its processes.
const SLOTS: usize = 4;

/// The purpose of a call.
#[derive(Debug, Clone)]
enum Purpose<P> {
    Introduce,
    Confirm,
    Renew,
    Own(P),
}

/// The state of the client ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unknown,
    /// SETCLIENTID returned this verifier.
    Introduced([u8; 8]),
    Known,
    Gone,
}

/// The protocol state of a client; `P` is the purpose of its own calls.
#[derive(Debug)]
pub(crate) struct V40Peer<P> {
    pub(crate) name: String,
    pub(crate) client_id: u64,
    stage: Stage,
    /// Those of the processes; the last is for protocol work.
    slots: Vec<CallSlot<Purpose<P>>>,
    renewed: Duration,
}

impl<P: Clone + std::fmt::Debug> V40Peer<P> {
    pub(crate) fn new(index: usize, rng: &mut Rng) -> Self {
        Self {
            name: format!("client-{index}"),
            client_id: 0,
            stage: Stage::Unknown,
            slots: (0..=SLOTS).map(|_| CallSlot::new(rng.next_u64() as u32)).collect(),
            renewed: Duration::ZERO,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.stage == Stage::Known
    }

    pub(crate) fn is_free(&self, slot: usize) -> bool {
        self.slots[slot].is_free()
    }

    /// Stops: in this version only the end of the lease removes the client.
    pub(crate) fn leave(&mut self) {
        self.stage = Stage::Gone;
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// Returns calls that were not answered in time.
    pub(crate) fn retransmit(&mut self, now: Duration) -> Vec<Bytes> {
        self.slots.iter_mut().filter_map(|slot| slot.retransmit(now)).collect()
    }

    /// Returns calls that precede or accompany the client's own.
    pub(crate) fn proceed(&mut self, now: Duration) -> Vec<Bytes> {
        if !self.is_free(SLOTS) {
            return Vec::new();
        }
        let client_id = self.client_id;
        let (purpose, op) = match self.stage {
            Stage::Unknown => (Purpose::Introduce, set_client_id(&self.name)),
            Stage::Introduced(confirm) => {
                let args = SetClientIdConfirmArgs { client_id, confirm };
                (Purpose::Confirm, Op::SetClientIdConfirm(args))
            }
            Stage::Known if self.renewed + KEEPALIVE <= now => {
                self.renewed = now;
                (Purpose::Renew, Op::Renew(RenewArgs { client_id }))
            }
            Stage::Known | Stage::Gone => return Vec::new(),
        };
        vec![self.slots[SLOTS].send(purpose, now, |xid| compound(xid, 0, vec![op]))]
    }

    /// Returns a call of the client's own, in a free slot.
    pub(crate) fn send(&mut self, slot: usize, ops: Vec<Op>, purpose: P, now: Duration) -> Bytes {
        self.slots[slot].send(Purpose::Own(purpose), now, |xid| compound(xid, 0, ops))
    }

    /// Handles a message.
    ///
    /// # Errors
    /// Returns the error in it.
    pub(crate) fn receive(&mut self, bytes: Bytes) -> Result<Incoming<P>, String> {
        let received = self.slots.iter_mut().find_map(|slot| Some((slot.match_reply(&bytes)?.0, slot)));
        // Otherwise the call was answered before.
        let Some((purpose, slot)) = received else { return Ok(Incoming::Nothing) };
        let result: CompoundResult = parse_reply(bytes).map_err(|error| error.to_string())?;
        // RFC 7530 §9.1.7: another request of the owner still runs.
        if result.status == Status::RESOURCE {
            return Ok(Incoming::Nothing);
        }
        slot.free();
        match (purpose, result.status, result.results.first()) {
            (Purpose::Introduce, _, Some(OpResult::SetClientId(SetClientIdResult::Ok(ok)))) => {
                (self.client_id, self.stage) = (ok.client_id, Stage::Introduced(ok.confirm));
            }
            (Purpose::Confirm, Status::OK, _) => self.stage = Stage::Known,
            // The server was restarted.
            (Purpose::Confirm, Status::STALE_CLIENTID, _) => self.stage = Stage::Unknown,
            (Purpose::Renew, Status::OK, _) => {}
            // RFC 7530 §9.6.3: the server was restarted, or has revoked state, and with it everything.
            (_, Status::STALE_CLIENTID | Status::STALE_STATEID | Status::EXPIRED, _) => {
                return Ok(self.lose());
            }
            (Purpose::Own(purpose), ..) => return Ok(Incoming::Answer(purpose, result)),
            (purpose, status, _) => return Err(format!("{}: {purpose:?}: {status:?}", self.name)),
        }
        Ok(Incoming::Nothing)
    }

    /// Starts over after the server has forgotten the client.
    fn lose(&mut self) -> Incoming<P> {
        self.stage = Stage::Unknown;
        self.slots.iter_mut().for_each(CallSlot::free);
        Incoming::Lost
    }
}
