//! Persistent sessions, as operations use them: see [`persist`](crate::state::tables::persist).

use std::sync::Arc;

use vfs::Op;

use super::sequence::SlotRequest;
use crate::replay::crash_replay::{CallId, Stable};
use crate::state::root::State;
use crate::state::tables::slot::Replay;
use crate::state::tables::wire::{SequenceArgs, SessionId, Status};

impl State {
    /// Makes sessions persistent when clients ask for it; `stable` is the call log.
    pub(crate) fn set_call_log(&mut self, stable: Arc<Stable>) {
        if let Some(persistence) = &mut self.persistence {
            persistence.set_call_log(stable);
        }
    }

    /// Returns the requests of earlier servers whose replies are kept, each with whether it succeeded.
    pub(crate) fn persisted_requests(&self) -> Vec<(CallId, bool)> {
        self.persistence.as_ref().map_or_else(Vec::new, |persistence| persistence.answered())
    }

    /// Keeps the reply of a request in a persistent session: `reply` from the compound's status on, if it is available.
    /// Returns false for an ordinary session.
    pub(crate) fn keep_reply(&self, running: &SlotRequest, digest: u64, reply: Option<&[u8]>) -> bool {
        let Some((persistence, logged)) = self.persistence.as_ref().zip(running.logged_slots()) else {
            return false;
        };
        persistence.keep(logged, running.sequence(), digest, reply);
        true
    }

    /// Waits until all kept replies are durable. The calling thread also waits for the call log.
    pub(crate) fn kept(&self) -> Op<'_, ()> {
        self.persistence.as_ref().map_or_else(|| Op::ok(()), |persistence| persistence.wait_durable())
    }

    /// Answers a request in a persistent session of an earlier server; `None` if the session is not one.
    pub(crate) fn remembered(&self, request: &SequenceArgs, digest: u64) -> Option<Result<Replay, Status>> {
        self.persistence.as_ref()?.replay(request, digest)
    }

    /// Returns the status for an operation on a session that does not exist.
    pub(crate) fn without_session(&self, id: &SessionId) -> Status {
        let is_dead = self.persistence.as_ref().is_some_and(|persistence| persistence.is_dead(id));
        if is_dead { Status::DEADSESSION } else { Status::BADSESSION }
    }

    /// DESTROY_SESSION of a dead session. No connection is bound to it; only its client knows the ID.
    ///
    /// # Errors
    /// BADSESSION.
    pub(crate) fn destroy_dead_session(&self, id: &SessionId) -> Result<(), Status> {
        let persistence = self.persistence.as_ref().ok_or(Status::BADSESSION)?;
        if persistence.destroy(id) { Ok(()) } else { Err(Status::BADSESSION) }
    }
}
