//! Attempts at what fails when the server loses sessions or state.

use std::sync::Arc;
use std::time::Duration;

use super::Nfs4;
use super::keeper::SESSIONS_LOST_MAX;
use super::session::{Session, Unexecuted};
use crate::error::OpError;

/// A session or a client ID that lived this long was not refused: a hard mount does not count its loss.
const LIVED_MIN: Duration = Duration::from_secs(1);

impl Nfs4 {
    /// Begins attempts at a request in the session, and in the next one if that is lost.
    pub(super) fn attempts(&self) -> Attempts<'_> {
        Attempts { nfs4: self, left: SESSIONS_LOST_MAX, began: None, is_repeated: false }
    }

    /// Begins at most `max` attempts at an operation on state that the server may lose.
    pub(super) fn tries(&self, max: u32) -> Tries<'_> {
        Tries { nfs4: self, max, left: max, since: (self.client_id(), self.engine.now()) }
    }
}

/// Attempts at an operation on state that the server may lose. On a hard mount they begin anew with a new client ID: a server that
/// restarts often is not one that refuses all state. A soft mount gives up all the same.
pub(super) struct Tries<'a> {
    nfs4: &'a Nfs4,
    max: u32,
    left: u32,
    /// The client ID, and when it was seen first.
    since: (u64, Duration),
}

impl Tries<'_> {
    /// Counts an attempt. Returns whether there may be one.
    pub(super) fn count(&mut self) -> bool {
        let (client, now) = (self.nfs4.client_id(), self.nfs4.engine.now());
        let (known, at) = self.since;
        if self.nfs4.is_hard() && client != known && now >= at + LIVED_MIN {
            (self.left, self.since) = (self.max, (client, now));
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

/// Attempts at a request in one session after the other.
pub(super) struct Attempts<'a> {
    nfs4: &'a Nfs4,
    left: u32,
    /// When the last attempt began.
    began: Option<Duration>,
    /// Whether the server may have executed an attempt that has failed.
    is_repeated: bool,
}

impl Attempts<'_> {
    /// Returns the session for the next attempt.
    pub(super) async fn session(&mut self) -> Result<Arc<Session>, OpError> {
        let now = || self.nfs4.engine.now();
        // A server that restarts often is not one that refuses each session. A soft mount gives up all the same.
        if self.nfs4.is_hard() && self.began.is_some_and(|began| now() >= began + LIVED_MIN) {
            self.left = SESSIONS_LOST_MAX;
        }
        let Some(left) = self.left.checked_sub(1) else {
            return Err(OpError::BadReply("it loses every session"));
        };
        self.left = left;
        let session = self.nfs4.session().await?;
        self.began = Some(now());
        Ok(session)
    }

    /// Returns whether the server may have executed an attempt that has failed.
    pub(super) fn is_repeated(&self) -> bool {
        self.is_repeated
    }

    /// Handles a failed attempt.
    ///
    /// # Errors
    /// If another session would not help.
    pub(super) fn handle(&mut self, error: Unexecuted) -> Result<(), OpError> {
        match error {
            Unexecuted::SessionLost { was_sent } => self.is_repeated |= was_sent,
            Unexecuted::ReplyLost => self.is_repeated = true,
            Unexecuted::Refused(status) => return Err(OpError::Status(status)),
            Unexecuted::Call(error) => return Err(OpError::Call(error)),
        }
        Ok(())
    }
}
