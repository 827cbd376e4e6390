//! Compounds in the log of calls that outlives the process ([`crate::once`]).

use std::hash::Hasher;

use protocol::nfs4::ops::session::SequenceArgs;
use protocol::nfs4::types::Status;
use siphasher::sip::SipHasher24;

use super::{Compound, caller};
use crate::nfs4::entries::Changer;
use crate::nfs4::state;
use crate::nfs4::status::Failure;
use crate::once::{CallId, Once, Recognised};

impl<'r> Compound<'r> {
    /// The answer to a request in a session that is not known. A client sends what was under way again before it learns that
    /// the server was started anew: what is written down as finished gets its reply, as RFC 8881 §2.10.6.5 has it for a
    /// persistent reply cache, and what is written down as begun it may ask for in its next session.
    pub(super) fn recall_unknown(&self, arguments: &SequenceArgs) -> Failure {
        let Some(journal) = &self.request.server.journal else { return Status::BADSESSION.into() };
        let call = self.call_id(arguments.slot_id, arguments.sequence_id);
        match journal.recognise(call, self.request.who(), self.request.now, true) {
            Recognised::Finished(reply) => Failure::Replay(reply),
            Recognised::Begun | Recognised::Unknown => Status::BADSESSION.into(),
        }
    }

    /// The request for the log of calls, the same in every process; the session is among the bytes.
    fn call_id(&self, slot: u32, sequence_id: u32) -> CallId {
        let mut hasher = SipHasher24::new_with_key(&self.request.server.call_secret);
        state::hash_request(
            &mut hasher,
            caller(&self.request.identity),
            &self.request.arguments[self.body..],
            self.request.arguments.len(),
        );
        CallId { digest: hasher.finish(), number: u64::from(slot) << 32 | u64::from(sequence_id) }
    }

    /// The way in which the next operation changes names.
    fn once(&mut self) -> Once<'r> {
        let server = self.request.server;
        if self.logged.is_none() && server.journal.is_some() {
            let in_session = self.session.as_ref().map(|running| {
                let sequence = running.sequence();
                self.call_id(sequence.slot_id, sequence.sequence_id)
            });
            self.logged = in_session.or(self.call);
        }
        Once::new(server.journal.as_ref(), self.logged, self.request.who(), self.request.now)
    }

    /// Whoever asks, as who changes names.
    pub(crate) fn changer(&mut self) -> Changer<'_> {
        let once = self.once();
        Changer { request: self.request, who: self.who(), once }
    }
}
