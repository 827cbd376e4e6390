//! Copies in the background: what one step does (RFC 7862 §4.4).
//!
//! A step is to the file what a WRITE of its bytes would be: judged by the client's stateids as they are then, and settled with
//! what others have delegated. A stateid that was closed or given back meanwhile does not end the copy; the caller must have
//! the right by itself then, and no open may deny it. What was revoked does end it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::types::{Stateid, Status};
use vfs::{Authority, Context};

use super::inter_server::{Piece, of_source};
use crate::files::recall::recall_in_background;
use crate::nfs4_status::of_backend;
use crate::remote_read::Reading;
use crate::shared::Shared;
use crate::state::{Client, Conflict, Copied, FileKey, IoKind, Offload, Origin};
use crate::{Export, ExportId, FetchError, Now};

/// How long a copy from another server goes on while that gives nothing: long enough for it to be started again.
const SOURCE_PATIENCE: Duration = Duration::from_secs(60);

/// What is to be done with a copy next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advanced {
    /// Another step.
    More,
    /// Another step, but not at once: what it needs is not there (a medium that is offline, a delegation that does not come
    /// back, another server).
    Later,
    /// Nothing: it is over.
    Done,
}

impl Shared {
    /// A copy cannot go on, for a reason that is the server's own.
    pub(crate) fn fail_offload(&self, offload: &Arc<Offload>) {
        if let Some(step) = self.state.begin_step(offload) {
            let copied = step.copied();
            step.end(copied, Status::SERVERFAULT);
        }
    }

    /// Makes a copy's next step, which may wait for the backend and for delegations. Where that is dropped because the server
    /// stops, nothing is told, and the client copies anew after a restart.
    pub(crate) async fn advance(&self, offload: &Arc<Offload>, now: Now) -> Advanced {
        let Some(step) = self.state.begin_step(offload) else { return Advanced::Done };
        let before = step.copied();
        let next = |goes_on, then| if goes_on { then } else { Advanced::Done };
        match self.copy_on(offload, before, now).await {
            Ok((copied, false)) => next(step.rest(copied), Advanced::More),
            Ok((copied, true)) => {
                step.end(copied, Status::OK);
                Advanced::Done
            }
            Err(Status::DELAY) => {
                offload.pause();
                next(step.rest(before), Advanced::Later)
            }
            Err(status) => {
                // What is missing of a source that became shorter is no failure: a copy that begins now would end there too.
                // (Another server's end is told by its READs.)
                let is_short = status == Status::INVAL && before.count > 0 && !offload.is_from_elsewhere();
                step.end(before, if is_short { Status::OK } else { status });
                Advanced::Done
            }
        }
    }

    /// Copies a step's bytes; how far the copy has come with them, and whether that is all.
    async fn copy_on(&self, offload: &Offload, before: Copied, now: Now) -> Result<(Copied, bool), Status> {
        let task = offload.task();
        let piece = match &task.source {
            Origin::There(source) => {
                // Nothing is read for what cannot be written.
                self.may_write(offload, now)?;
                Some(self.fetch_on(offload, source, before.count, now).await?)
            }
            Origin::Here { .. } => None,
        };
        // What was read ahead came before.
        let now = piece.as_ref().map_or(now, |piece| piece.at.or_later(now));
        let client = offload.client();
        let _changing = self.state.begin_change(&task.span.destination);
        let at = (self, now.monotonic);
        recall_in_background(at, client, task.destination, Conflict::Any).await?;
        // Behind the wait: see `Compound::admit_io`.
        let (export, written) = self.may_write(offload, now)?;
        let context = Context { peer: task.peer, ..Context::new(Arc::clone(&task.credentials), now.wall) };
        let copied = match (&task.source, piece) {
            (Origin::Here { file, handle, stateid }, _) => {
                recall_in_background(at, client, *file, Conflict::Write).await?;
                let read = self.authority(offload, now, *file, *stateid, IoKind::Read)?;
                let step = task.span.within(*handle, [read, written]).behind(before.count);
                export.backend.copy_range(&context, &step).await
            }
            (Origin::There(_), Some(piece)) => piece.write(&export, &context, written).await,
            (Origin::There(_), None) => return Err(Status::SERVERFAULT),
        };
        let copied = copied.map_err(of_backend)?;
        let count = before.count + copied.count;
        let stability = before.stability.min(copied.stability);
        Ok((Copied { count, stability }, copied.is_all))
    }

    /// Has a step's bytes read from another server.
    async fn fetch_on(
        &self,
        offload: &Offload,
        source: &Reading,
        done: u64,
        now: Now,
    ) -> Result<Piece, Status> {
        let span = &offload.task().span;
        let mut fetching = pin!(Piece::fetch(&self.fetches, source, span, (done, u64::MAX)));
        let fetched = poll_fn(|context| {
            // OFFLOAD_CANCEL does not wait for a source that is silent; this step is none then.
            let stopping = offload.poll_stopping(context).map(|()| Err(FetchError::Busy));
            if stopping.is_ready() { stopping } else { fetching.as_mut().poll(context) }
        });
        let piece = fetched.await.map_err(|error| {
            // Where it has not been asked, it has not refused either.
            let is_asked = error != FetchError::Busy;
            let is_given_up = is_asked && offload.stuck_for(now.monotonic) >= SOURCE_PATIENCE;
            of_source(error, is_given_up, done)
        })?;
        offload.unstuck();
        Ok(piece)
    }

    /// The export that a copy's destination is in, and on whose word that is written, where it may be.
    fn may_write(&self, offload: &Offload, now: Now) -> Result<(Arc<Export>, Authority), Status> {
        let task = offload.task();
        let export = self.check_export(task.export, offload.client())?;
        let written =
            self.authority(offload, now, task.destination, task.destination_stateid, IoKind::Write)?;
        Ok((export, written))
    }

    /// The export as it is now, where `client` may still change what is in it.
    ///
    /// # Errors
    /// STALE where there is none for this client any more, ROFS where it is read-only.
    pub(crate) fn check_export(&self, id: ExportId, client: &Client) -> Result<Arc<Export>, Status> {
        let exports = self.exports();
        let export = match client.address() {
            Some(address) => exports.for_client(id, address.ip()),
            None => exports.by_id(id),
        };
        let export = export.ok_or(Status::STALE)?;
        if export.options.read_only { Err(Status::ROFS) } else { Ok(Arc::clone(export)) }
    }

    fn authority(
        &self,
        offload: &Offload,
        now: Now,
        file: FileKey,
        stateid: Stateid,
        kind: IoKind,
    ) -> Result<Authority, Status> {
        let check = |stateid| self.state.check_io(now.monotonic, offload.client(), file, &stateid, kind);
        let permit = match check(stateid) {
            Err(Status::BAD_STATEID) => check(Stateid::ANONYMOUS)?,
            permit => permit?,
        };
        Ok(permit.for_caller(offload.task().caller).authority)
    }
}
