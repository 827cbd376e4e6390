//! SEQUENCE (RFC 8881 §18.46): begins and ends a request on a slot.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::ConnectionId;
use crate::state::State;
use crate::state::tables::callback::ReferringRequest;
use crate::state::tables::client::Client;
use crate::state::tables::persist::{LoggedSlots, Persistence};
use crate::state::tables::session::{MIN_RESPONSE, Session};
use crate::state::tables::slot::{Arrival, Replay, Verdict, whole_seconds};
use crate::state::tables::wire::{ChannelAttributes, OpNum, SequenceArgs, SequenceOk, Status};

/// Bytes of a compound that its digest covers. They include all operations except bulk data as in WRITE: a hash of a megabyte
/// would cost more than its write.
const DIGEST_BYTES: usize = 512;

/// Position of `sa_highest_slotid` in a compound that begins with SEQUENCE: after the minor version, the number of operations, the
/// operation, session ID, sequence ID and slot. Linux updates it when it retransmits over a new connection, so the digest must
/// not cover it.
const HIGHEST_SLOT: Range<usize> = 36..40;
const FIRST_OPERATION: Range<usize> = 8..12;

/// The treatment of a request after SEQUENCE.
#[derive(Debug)]
pub enum Sequenced {
    /// Execute the rest of the compound.
    New(SlotRequest),
    /// Send this reply without executing anything.
    Replay(Replay),
}

/// A request on a slot. It is executed once, even if it is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the request without a reply"]
pub struct SlotRequest {
    pub(super) session: Arc<Session>,
    sequence: SequenceOk,
    cache_this: bool,
    ended: bool,
}

impl SlotRequest {
    /// SEQUENCE's result.
    #[must_use]
    pub fn sequence(&self) -> &SequenceOk {
        &self.sequence
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Arc<Client> {
        &self.session.client
    }

    /// Limits of the fore channel: operations, request, reply and cached reply (REP_TOO_BIG_TO_CACHE).
    #[must_use]
    pub fn channel(&self) -> &ChannelAttributes {
        &self.session.fore
    }

    /// Returns whether the session survives a restart of the server.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.session.is_persistent
    }

    /// Returns the logged slots of a persistent session.
    pub(crate) fn logged_slots(&self) -> Option<&LoggedSlots> {
        self.session.is_persistent.then_some(&self.session.logged_slots)
    }

    /// Returns the request as a referring call of a callback (RFC 8881 §20.9).
    pub(crate) fn as_referring(&self) -> ReferringRequest {
        let (slot, sequence) = (self.sequence.slot_id, self.sequence.sequence_id);
        ReferringRequest { session: self.session.id, slot, sequence }
    }

    /// `sa_cachethis`.
    #[must_use]
    pub fn cache_this(&self) -> bool {
        self.cache_this
    }

    /// Ends the request and renews the lease. `reply` is the encoded COMPOUND result, beginning with its status; `None` if it is not
    /// available as bytes. It is kept (copied) if the client requested that and it has at most `ca_maxresponsesize_cached` bytes.
    pub fn finish(mut self, now: Duration, reply: Option<&[u8]>) {
        self.end(Some(now), reply.filter(|_| self.cache_this));
    }

    /// As [`Self::finish`], for a request that had to wait, so that the current time is unknown.
    pub fn finish_untimed(mut self, reply: Option<&[u8]>) {
        self.end(None, reply.filter(|_| self.cache_this));
    }

    fn end(&mut self, now: Option<Duration>, reply: Option<&[u8]>) {
        self.ended = true;
        self.session.slots.finish(self.sequence.slot_id, reply);
        self.session.client.end(now);
    }
}

impl Drop for SlotRequest {
    /// Ends a request that was dropped in the middle. It may have had effects, so a retransmission must not execute it.
    fn drop(&mut self) {
        if !self.ended {
            self.end(None, None);
        }
    }
}

impl State {
    /// SEQUENCE (RFC 8881 §18.46). `digest` is [`Self::digest`] of the request.
    ///
    /// # Errors
    /// BADSESSION, CONN_NOT_BOUND_TO_SESSION, DEADSESSION (a persistent session that can no longer be kept), BADSLOT,
    /// BAD_HIGH_SLOT, REP_TOO_BIG_TO_CACHE, SEQ_MISORDERED, SEQ_FALSE_RETRY, DELAY (the original is in progress, or there is no
    /// memory for another reply). "If SEQUENCE returns an error, then the state of the slot (sequence ID, cached reply) MUST NOT
    /// change, and the associated lease MUST NOT be renewed."
    pub fn sequence(
        &self,
        now: Duration,
        connection: ConnectionId,
        request: &SequenceArgs,
        digest: u64,
    ) -> Result<Sequenced, Status> {
        let session = self.sessions.get(&request.session_id).ok_or(Status::BADSESSION)?;
        // §18.46.3: "If SEQUENCE is received on a connection not associated with the session via CREATE_SESSION or
        // BIND_CONN_TO_SESSION, and connection association enforcement is enabled". Without this, any client that has seen the session's
        // ID could advance its slots.
        if session.client.binds_connections() && !session.is_bound(connection) {
            return Err(Status::CONN_NOT_BOUND_TO_SESSION);
        }
        let slots = &session.slots;
        // §2.10.6.1 has BAD_HIGH_SLOT for clients that ignore a lowered limit. Here the limit is never lowered.
        if request.slot_id < slots.granted() && request.highest_slot_id >= slots.granted() {
            return Err(Status::BAD_HIGH_SLOT);
        }
        // §2.10.6.4: "If the reply exceeds ca_maxresponsesize_cached (and sa_cachethis or csa_cachethis is TRUE), then the server
        // MUST return NFS4ERR_REP_TOO_BIG_TO_CACHE". If SEQUENCE's own result is too big, fail before the slot is taken.
        if request.cache_this && session.fore.max_response_size_cached < MIN_RESPONSE {
            return Err(Status::REP_TOO_BIG_TO_CACHE);
        }
        // If the session can no longer be kept, only retransmissions are answered, and the client creates an ordinary session.
        let is_lost = session.is_persistent && !self.persistence.as_ref().is_some_and(Persistence::is_usable);
        if is_lost && !slots.is_last(request.slot_id, request.sequence_id) {
            return Err(Status::DEADSESSION);
        }
        let verdict = slots.arrive(Arrival {
            slot: request.slot_id,
            sequence_id: request.sequence_id,
            highest: request.highest_slot_id,
            digest,
            keep: request.cache_this,
            now_s: whole_seconds(now),
        })?;
        session.touch(connection, &self.connections);
        let highest_slot_id = slots.granted() - 1;
        let sequence = SequenceOk {
            session_id: request.session_id,
            sequence_id: request.sequence_id,
            slot_id: request.slot_id,
            highest_slot_id,
            // Another core may have widened the window in between.
            target_highest_slot_id: slots.target_highest().min(highest_slot_id),
            status_flags: session.status_flags(),
        };
        Ok(match verdict {
            Verdict::New => {
                session.client.begin(now);
                Sequenced::New(SlotRequest {
                    session,
                    sequence,
                    cache_this: request.cache_this,
                    ended: false,
                })
            }
            // §8.3: "or successful retrieval of the result of SEQUENCE from the reply cache".
            Verdict::Replay(reply) => {
                session.client.renew(now);
                Sequenced::Replay(Replay { sequence, reply })
            }
        })
    }

    /// Returns the callback program of a session.
    #[cfg(test)]
    pub(crate) fn callback_program(&self, session: &crate::state::tables::wire::SessionId) -> Option<u32> {
        Some(self.sessions.get(session)?.back.lock().program())
    }

    /// Returns the client of a session.
    #[cfg(test)]
    pub(crate) fn client_of(&self, session: &crate::state::tables::wire::SessionId) -> Option<Arc<Client>> {
        Some(Arc::clone(&self.sessions.get(session)?.client))
    }

    /// Returns a digest that identifies a request. `caller` is the effective user as a number, `compound` the encoded COMPOUND
    /// after its tag (or a prefix of it), `length` its length in bytes. Covers the first 512 bytes.
    #[must_use]
    pub fn digest(&self, caller: u64, compound: &[u8], length: usize) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hash_request(&mut hasher, caller, compound, length);
        hasher.finish()
    }

    /// Returns a digest for a request with an owner's seqid: caller, operation, a number for the current file handle, and
    /// arguments.
    #[must_use]
    pub fn digest_of_turn(&self, caller: u64, operation: OpNum, object: u64, arguments: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(u64::from(operation.0));
        hasher.write_u64(object);
        hash_request(&mut hasher, caller, arguments, arguments.len());
        hasher.finish()
    }
}

/// Hashes the parts that identify a request; see [`State::digest`].
pub(crate) fn hash_request(hasher: &mut impl Hasher, caller: u64, compound: &[u8], length: usize) {
    hasher.write_u64(caller);
    hasher.write_u64(length as u64);
    let compound = &compound[..compound.len().min(DIGEST_BYTES)];
    match compound.split_at_checked(HIGHEST_SLOT.end) {
        Some((head, rest)) if head[FIRST_OPERATION] == OpNum::SEQUENCE.0.to_be_bytes() => {
            hasher.write(&head[..HIGHEST_SLOT.start]);
            hasher.write(rest);
        }
        _ => hasher.write(compound),
    }
}
