//! The reply caches and the reply log around calls of versions 2 and 3 that must not be executed twice.

use std::sync::atomic::Ordering::Relaxed;

use xdr::{Mark, Writer};

use crate::Server;
use crate::replay::crash_replay::RecoveredCall;
use crate::replay::reply_cache::{Begin, CallKey, Execution};
use crate::request::{Request, Served};

impl Server {
    /// Begins a call that is executed for the first time, or answers a repeated one.
    pub(super) async fn begin_once(
        &self,
        request: &Request<'_>,
        key: CallKey,
        start: Mark,
        reply: &mut Writer,
    ) -> Result<Execution<'_>, Served> {
        match self.shared.reply_cache.begin(key, request.now.monotonic) {
            Begin::Execute(execution) => Ok(execution),
            Begin::InProgress => Err(Served::Drop),
            Begin::Replay(cached) => {
                request.sync_log_of_earlier_call().await;
                Err(self.replay(&cached, start, reply))
            }
        }
    }

    /// As [`Self::begin_once`], for a call that is also executed only once over a crash.
    pub(super) async fn begin_logged(
        &self,
        request: &mut Request<'_>,
        key: CallKey,
        start: Mark,
        reply: &mut Writer,
    ) -> Result<Execution<'_>, Served> {
        let execution = self.begin_once(request, key, start, reply).await?;
        if let Some(journal) = &self.shared.journal {
            request.logged.id = Some(key.id());
            if let RecoveredCall::Replied(kept) =
                journal.recognize(key.id(), request.logged.owner, request.now, false)
            {
                execution.finish(&kept);
                return Err(self.replay(&kept, start, reply));
            }
        }
        Ok(execution)
    }

    /// Keeps the results of a call that [`Self::begin_logged`] began.
    pub(super) async fn end_logged(
        &self,
        request: &Request<'_>,
        (key, execution): (CallKey, Execution<'_>),
        results: &[u8],
    ) {
        execution.finish(results);
        if let Some(journal) = self.shared.journal.as_ref().filter(|_| request.logged.has_operations()) {
            journal.finish(key.id(), request.now.wall, results);
            request.sync_log().await;
        }
    }

    /// Answers with the results of the first execution.
    fn replay(&self, kept: &[u8], start: Mark, reply: &mut Writer) -> Served {
        self.shared.metrics.replayed.fetch_add(1, Relaxed);
        reply.rewind(start);
        reply.raw(kept);
        Served::Done { is_error: false }
    }
}
