//! Steps of background copies (RFC 7862 §4.4).
//!
//! A step is like a WRITE of its bytes: it is checked by the client's stateids at that time, and recalls conflicting delegations. A stateid
//! that was closed or returned meanwhile does not end the copy; the caller then needs the right itself, and no open may deny it. A revoked
//! stateid ends the copy.

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

/// Time limit of a copy for a source that sends nothing: long enough for a restart of the source.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(60);

/// The next action of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advanced {
    /// Run another step.
    More,
    /// Run another step later: it waits for a medium that is offline, a delegation, or another server.
    Later,
    /// Nothing: the copy is over.
    Done,
}

impl Shared {
    /// Fails a copy because of a fault of this server.
    pub(crate) fn fail_offload(&self, offload: &Arc<Offload>) {
        if let Some(step) = self.state.begin_step(offload) {
            let copied = step.copied();
            step.end(copied, Status::SERVERFAULT);
        }
    }

    /// Runs a copy's next step, which may wait for the backend and for delegations. If the future is dropped because the server stops, the
    /// client is not notified and copies again after the restart.
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
                // A source that became shorter is not a failure: a copy that begins now would end there too. (READs show the end of a
                // source on another server.)
                let is_short = status == Status::INVAL && before.count > 0 && !offload.is_from_elsewhere();
                step.end(before, if is_short { Status::OK } else { status });
                Advanced::Done
            }
        }
    }

    /// Copies the bytes of a step. Returns the progress of the copy, and whether it is complete.
    async fn copy_on(&self, offload: &Offload, before: Copied, now: Now) -> Result<(Copied, bool), Status> {
        let task = offload.task();
        let piece = match &task.source {
            Origin::There(source) => {
                // Do not read data that cannot be written.
                self.may_write(offload, now)?;
                Some(self.fetch_on(offload, source, before.count, now).await?)
            }
            Origin::Here { .. } => None,
        };
        // Bytes read ahead arrived earlier.
        let now = piece.as_ref().map_or(now, |piece| piece.at.or_later(now));
        let client = offload.client();
        let _changing = self.state.begin_change(&task.span.destination);
        let at = (self, now.monotonic);
        recall_in_background(at, client, task.destination, Conflict::Any).await?;
        // After the wait: see `Compound::admit_io`.
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

    /// Reads the bytes of a step from another server.
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
            // OFFLOAD_CANCEL does not wait for a silent source; the step ends without effect.
            let stopping = offload.poll_stopping(context).map(|()| Err(FetchError::Busy));
            if stopping.is_ready() { stopping } else { fetching.as_mut().poll(context) }
        });
        let piece = fetched.await.map_err(|error| {
            // Busy: the READ was not sent, so the source has not failed.
            let is_asked = error != FetchError::Busy;
            let is_given_up = is_asked && offload.stuck_for(now.monotonic) >= SOURCE_TIMEOUT;
            of_source(error, is_given_up, done)
        })?;
        offload.unstuck();
        Ok(piece)
    }

    /// Returns the export of a copy's destination and the authority to write it, if it may be written.
    fn may_write(&self, offload: &Offload, now: Now) -> Result<(Arc<Export>, Authority), Status> {
        let task = offload.task();
        let export = self.check_export(task.export, offload.client())?;
        let written =
            self.authority(offload, now, task.destination, task.destination_stateid, IoKind::Write)?;
        Ok((export, written))
    }

    /// Returns the current export, if `client` may still write to it.
    ///
    /// # Errors
    /// STALE if this client has no such export any more, ROFS if it is read-only.
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
