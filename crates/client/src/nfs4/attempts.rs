//! Attempts at what fails when the server loses sessions or state.

use std::sync::Arc;
use std::time::Duration;

use super::Nfs4;
use super::keeper::SESSIONS_LOST_MAX;
use super::session::{Session, Unexecuted};
use crate::error::OpError;

/// A session or a client ID that lived this long was not refused: a hard mount does not count its loss.
pub(super) const LIVED_MIN: Duration = Duration::from_secs(1);

impl Nfs4 {
    /// Begins attempts at a request in the session, and in the next one if that is lost.
    pub(super) fn attempts(&self) -> Attempts<'_> {
        Attempts { tries: self.tries(SESSIONS_LOST_MAX), is_repeated: false }
    }

    /// Begins at most `max` attempts at something that fails when the server loses state.
    pub(super) fn tries(&self, max: u32) -> Tries<'_> {
        Tries { nfs4: self, max, left: max, began: None }
    }
}

/// Attempts at something that fails when the server loses state. On a hard mount those count that failed within [`LIVED_MIN`]: a server
/// that restarts often is not one that refuses all state. A soft mount gives up all the same.
pub(super) struct Tries<'a> {
    nfs4: &'a Nfs4,
    max: u32,
    left: u32,
    /// When the last attempt began.
    began: Option<Duration>,
}

impl Tries<'_> {
    /// Counts an attempt. Returns whether there may be one.
    pub(super) fn count(&mut self) -> bool {
        let now = self.nfs4.engine.now();
        if self.nfs4.is_hard() && self.began.is_some_and(|began| now >= began + LIVED_MIN) {
            self.left = self.max;
        }
        self.began = Some(now);
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    /// Notes that the attempt begins only now.
    fn begin(&mut self) {
        self.began = Some(self.nfs4.engine.now());
    }
}

/// Attempts at a request in one session after the other.
pub(super) struct Attempts<'a> {
    tries: Tries<'a>,
    /// Whether the server may have executed an attempt that has failed.
    is_repeated: bool,
}

impl Attempts<'_> {
    /// Returns the session for the next attempt.
    pub(super) async fn session(&mut self) -> Result<Arc<Session>, OpError> {
        if !self.tries.count() {
            return Err(OpError::BadReply("it loses every session"));
        }
        let session = self.tries.nfs4.session().await?;
        self.tries.begin();
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
