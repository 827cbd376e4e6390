//! Compounds in the crash-replay log ([`crate::replay::crash_replay`]).

use std::hash::Hasher;

use protocol::nfs4::ops::session::SequenceArgs;
use protocol::nfs4::types::{SessionId, Status};
use siphasher::sip::SipHasher13;

use super::Compound;
use crate::files::name_changes::Changer;
use crate::programs::nfs4::status::{Failure, Result};
use crate::replay::crash_replay::{CallId, CallOwner, LoggedOps, RecoveredCall};
use crate::state;
use crate::state::{Replay, Sequenced, SlotRequest};

impl<'r> Compound<'r> {
    /// Answers a request in an unknown session. After a restart of the server, a client repeats its pending requests before it
    /// learns of the restart. A request that was logged as finished gets its reply, as from a persistent reply cache (RFC 8881
    /// §2.10.6.5). A request that was logged as begun may be repeated in the client's next session.
    pub(crate) fn recall_unknown(&self, arguments: &SequenceArgs) -> Result<Sequenced> {
        let call = self.call_id(arguments.slot_id, arguments.sequence_id);
        let status = match self.state().remembered(arguments, call.digest) {
            Some(Ok(Replay { reply: Some(reply), .. })) => return Err(Failure::Replay(reply)),
            Some(Ok(replay)) => return Ok(Sequenced::Replay(replay)),
            Some(Err(status)) => status,
            None => Status::BADSESSION,
        };
        // A persistent session's reply is answered even if this server runs without a crash-replay log.
        let Some(journal) = &self.request.server.journal else { return Err(status.into()) };
        let owner = self.owner_in(&arguments.session_id);
        match journal.recognize(call, owner, self.request.now, true) {
            RecoveredCall::Replied(reply) => Err(Failure::Replay(reply)),
            RecoveredCall::Pending => {
                // The client does not repeat the request in this session: the claim must be durable before the answer.
                self.request.logged.set_must_sync();
                Err(status.into())
            }
            RecoveredCall::Unknown => Err(status.into()),
        }
    }

    /// Returns the caller in a session of this server or an earlier one.
    fn owner_in(&self, session: &SessionId) -> CallOwner {
        CallOwner { incarnation: state::incarnation_of(session), ..self.request.logged.owner }
    }

    /// Identifies the request in the crash-replay log, the same way in every process; the session ID is among the bytes.
    // One round for each block, as for version 3's calls: see the reply cache.
    fn call_id(&self, slot: u32, sequence_id: u32) -> CallId {
        let mut hasher = SipHasher13::new_with_key(&self.request.server.call_secret);
        state::hash_request(
            &mut hasher,
            self.request.caller_number(),
            &self.request.arguments[self.body..],
            self.request.arguments.len(),
        );
        CallId::in_slot(hasher.finish(), slot, sequence_id)
    }

    /// Returns the crash-replay guard for the next operation that changes names.
    pub(crate) fn logged_ops(&mut self) -> LoggedOps<'r> {
        if self.logged.is_none() && self.request.server.journal.is_some() {
            let in_session = self.session.as_ref().map(|running| {
                let sequence = running.sequence();
                self.call_id(sequence.slot_id, sequence.sequence_id)
            });
            self.logged = in_session.or(self.call);
        }
        let logged = &self.request.logged;
        let session = self.session.as_ref().map(|running| running.sequence().session_id);
        let owner = session.map_or(logged.owner, |session| self.owner_in(&session));
        LoggedOps::new(self.request.server.journal.as_ref(), logged, owner, self.logged)
    }

    /// Logs the reply of a compound, from its status on, if one of its operations was logged.
    pub(crate) fn write_reply(&mut self, running: Option<&SlotRequest>, reply: Option<&[u8]>) {
        let Some((call, journal)) = self.logged.zip(self.request.server.journal.as_ref()) else { return };
        if running.is_some_and(|running| self.state().keep_reply(running, call.digest, reply)) {
            self.is_kept = true;
            // On an async export the reply does not wait for stable storage: the crash-replay log takes it as well.
            if self.request.logged.must_sync() {
                return;
            }
        }
        if let Some(reply) = reply {
            journal.finish(call, self.request.now.wall, reply);
        }
    }

    /// Waits until the logged reply is as durable as the changes. From then on, a reply that the slot keeps answers for its
    /// operations.
    pub(crate) async fn settle_written(&self) {
        self.request.sync_log().await;
        if self.is_kept
            && self.request.logged.must_sync()
            && let Some((call, journal)) = self.logged.zip(self.request.server.journal.as_ref())
        {
            journal.answered(call, self.request.now.wall);
        }
    }

    /// Returns the client and crash-replay guard for a change of names.
    pub(crate) fn changer(&mut self) -> Changer<'_> {
        let ops = self.logged_ops();
        Changer { request: self.request, client: self.who(), ops }
    }
}
