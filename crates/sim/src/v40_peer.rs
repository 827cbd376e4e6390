//! What every client of version 4.0 does by itself, as [`Peer`](crate::peer::Peer) does it for later versions: it makes itself known,
//! sends again what is not answered, and renews its lease. Its processes have a slot each.

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

/// How often a client that has nothing to do renews its lease.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Calls of its programs under way at once.
const SLOTS: usize = 4;

/// What a call is for.
#[derive(Debug, Clone)]
enum Purpose<P> {
    Introduce,
    Confirm,
    Renew,
    Own(P),
}

/// Where a client and the server stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Unknown,
    /// SETCLIENTID was answered with this.
    Introduced([u8; 8]),
    Known,
    Gone,
}

/// See the module; `P` is what the client's own calls are for.
#[derive(Debug)]
pub(crate) struct V40Peer<P> {
    pub(crate) name: String,
    pub(crate) client_id: u64,
    stage: Stage,
    /// Of its programs, and at the end its own.
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

    /// The version has no way to leave but the end of the lease.
    pub(crate) fn leave(&mut self) {
        self.stage = Stage::Gone;
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.stage == Stage::Gone
    }

    /// What was not answered in time, again.
    pub(crate) fn again(&mut self, now: Duration) -> Vec<Bytes> {
        self.slots.iter_mut().filter_map(|slot| slot.again(now)).collect()
    }

    /// What is to be said before, and beside, what the client wants to say.
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
        vec![self.slots[SLOTS].say(purpose, now, |xid| compound(xid, 0, vec![op]))]
    }

    /// A call of the client's own, in a slot that is free.
    pub(crate) fn send(&mut self, slot: usize, ops: Vec<Op>, purpose: P, now: Duration) -> Bytes {
        self.slots[slot].say(Purpose::Own(purpose), now, |xid| compound(xid, 0, ops))
    }

    /// Looks at a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn hear(&mut self, bytes: Bytes) -> Result<Incoming<P>, String> {
        let heard = self.slots.iter_mut().find_map(|slot| Some((slot.answered(&bytes)?.0, slot)));
        // Otherwise: answered before.
        let Some((purpose, slot)) = heard else { return Ok(Incoming::Nothing) };
        let result: CompoundResult = parse_reply(bytes).map_err(|error| error.to_string())?;
        // RFC 7530 §9.1.7: another request of the owner is still under way.
        if result.status == Status::RESOURCE {
            return Ok(Incoming::Nothing);
        }
        slot.over();
        match (purpose, result.status, result.results.first()) {
            (Purpose::Introduce, _, Some(OpResult::SetClientId(SetClientIdResult::Ok(ok)))) => {
                (self.client_id, self.stage) = (ok.client_id, Stage::Introduced(ok.confirm));
            }
            (Purpose::Confirm, Status::OK, _) => self.stage = Stage::Known,
            // The server is another one since.
            (Purpose::Confirm, Status::STALE_CLIENTID, _) => self.stage = Stage::Unknown,
            (Purpose::Renew, Status::OK, _) => {}
            // RFC 7530 §9.6.3: the server was restarted, or something was taken away and everything with it.
            (_, Status::STALE_CLIENTID | Status::STALE_STATEID | Status::EXPIRED, _) => {
                return Ok(self.lose());
            }
            (Purpose::Own(purpose), ..) => return Ok(Incoming::Answer(purpose, result)),
            (purpose, status, _) => return Err(format!("{}: {purpose:?}: {status:?}", self.name)),
        }
        Ok(Incoming::Nothing)
    }

    /// The server does not know it any more: it begins anew, under its name.
    fn lose(&mut self) -> Incoming<P> {
        self.stage = Stage::Unknown;
        self.slots.iter_mut().for_each(CallSlot::over);
        Incoming::Lost
    }
}
