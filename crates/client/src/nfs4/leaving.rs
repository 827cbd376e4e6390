//! The end of a client: it gives up its state, its session and its client ID (RFC 8881 §18.37, §18.50).

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use protocol::nfs4::types::Status;

use super::Nfs4;
use super::keeper::SESSIONS_LOST_MAX;
use super::session::Session;
use crate::config::LEAVE_MAX;
use crate::engine::CallError;
use crate::error::OpError;

/// Number of refused attempts to make a session after which the server is not expected to make one. A restart refuses one or two.
const REFUSALS_MIN: u64 = 3;

impl Nfs4 {
    /// Destroys session and client ID. The client must have closed its files before. A server that has restarted meanwhile waits for
    /// this client in its grace period, and new opens of all clients wait too: it learns that there is nothing to reclaim.
    ///
    /// # Errors
    /// CLIENTID_BUSY if the server still has state of this client, TimedOut if it refuses a new session for [`LEAVE_MAX`].
    pub(crate) async fn leave(&self) -> Result<(), OpError> {
        // Without a session nothing can be given back.
        self.next_session().await?;
        self.give_back_all().await;
        self.unwatch_all().await;
        self.background.idle().await;
        let mut session = self.next_session().await?;
        let mut has_registered = false;
        for _ in 0..SESSIONS_LOST_MAX {
            match self.setup().leave(&session).await {
                Ok(true) => return Ok(()),
                // It knew the client a moment ago.
                Ok(false) if has_registered => return Ok(()),
                Ok(false) => {
                    // The keeper makes the next session: another task that made one would be in its way.
                    session.lose(Status::STALE_CLIENTID);
                    has_registered = true;
                }
                // The keeper has made another session meanwhile.
                Err(OpError::Status(Status::CLIENTID_BUSY)) if session.lost().is_some() => {}
                Err(error) => return Err(error),
            }
            session = self.next_session().await?;
        }
        Err(OpError::BadReply("it loses every session"))
    }

    /// Waits for a session. A server that refuses it does not keep the client from ending. For one that is silent,
    /// as while it restarts, a hard mount waits as with any other call, and those of a soft mount fail.
    async fn next_session(&self) -> Result<Arc<Session>, OpError> {
        let refused_before = self.refused_sessions();
        loop {
            match select(pin!(self.session()), pin!(self.engine.sleep(LEAVE_MAX))).await {
                Either::Left((session, _)) => return session,
                Either::Right(_) if self.refused_sessions() < refused_before + REFUSALS_MIN => {}
                Either::Right(_) => return Err(CallError::TimedOut.into()),
            }
        }
    }
}
