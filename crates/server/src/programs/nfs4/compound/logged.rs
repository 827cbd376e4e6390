//! Compounds in the log of calls that outlives the process ([`crate::replay::crash_replay`]).

use std::hash::Hasher;

use protocol::nfs4::ops::session::SequenceArgs;
use protocol::nfs4::types::Status;
use siphasher::sip::SipHasher13;

use super::Compound;
use crate::files::entries::Changer;
use crate::programs::nfs4::status::{Failure, Result};
use crate::replay::crash_replay::{CallId, LoggedOps, RecoveredCall};
use crate::state;
use crate::state::{Replay, Running, Sequenced};

impl<'r> Compound<'r> {
    /// The answer to a request in a session that is not known. A client sends what was under way again before it learns that
    /// the server was started anew: what is written down as finished gets its reply, as RFC 8881 §2.10.6.5 has it for a
    /// persistent reply cache, and what is written down as begun it may ask for in its next session.
    pub(crate) fn recall_unknown(&self, arguments: &SequenceArgs) -> Result<Sequenced> {
        let call = self.call_id(arguments.slot_id, arguments.sequence_id);
        let status = match self.state().remembered(arguments, call.digest) {
            Some(Ok(Replay { reply: Some(reply), .. })) => return Err(Failure::Replay(reply)),
            Some(Ok(replay)) => return Ok(Sequenced::Replay(replay)),
            Some(Err(status)) => status,
            None => Status::BADSESSION,
        };
        // What was kept of a session is told though there is no log of calls this time.
        let Some(journal) = &self.request.server.journal else { return Err(status.into()) };
        match journal.recognise(call, self.request.logged.owner, self.request.now, true) {
            RecoveredCall::Replied(reply) => Err(Failure::Replay(reply)),
            RecoveredCall::Pending => {
                // The client will not ask here again: what it may claim from now on is kept before it hears so.
                self.request.logged.set_must_sync();
                Err(status.into())
            }
            RecoveredCall::Unknown => Err(status.into()),
        }
    }

    /// The request for the log of calls, the same in every process; the session is among the bytes.
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

    /// The way in which the next operation changes names.
    pub(crate) fn logged_ops(&mut self) -> LoggedOps<'r> {
        if self.logged.is_none() && self.request.server.journal.is_some() {
            let in_session = self.session.as_ref().map(|running| {
                let sequence = running.sequence();
                self.call_id(sequence.slot_id, sequence.sequence_id)
            });
            self.logged = in_session.or(self.call);
        }
        LoggedOps::new(self.request.server.journal.as_ref(), &self.request.logged, self.logged)
    }

    /// Writes the reply of a compound down, from its status on, where an operation in it was.
    pub(crate) fn write_reply(&mut self, running: Option<&Running>, reply: Option<&[u8]>) {
        let Some((call, journal)) = self.logged.zip(self.request.server.journal.as_ref()) else { return };
        if running.is_some_and(|running| self.state().keep_reply(running, call.digest, reply)) {
            self.is_kept = true;
            // On an async export nobody waits until it is on stable storage: the log of calls has it from now on.
            if self.request.logged.must_sync() {
                return;
            }
        }
        if let Some(reply) = reply {
            journal.finish(call, self.request.now.wall, reply);
        }
    }

    /// Waits until what was written down is as safe as what was changed. A reply that is kept of its slot vouches for its
    /// operations from then on, and not before.
    pub(crate) async fn settle_written(&self) {
        self.request.sync_log().await;
        if self.is_kept
            && self.request.logged.must_sync()
            && let Some((call, journal)) = self.logged.zip(self.request.server.journal.as_ref())
        {
            journal.answered(call, self.request.now.wall);
        }
    }

    /// Whoever asks, as who changes names.
    pub(crate) fn changer(&mut self) -> Changer<'_> {
        let ops = self.logged_ops();
        Changer { request: self.request, who: self.who(), ops }
    }
}
