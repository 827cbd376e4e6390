//! Opens files again whose state at the server is gone (RFC 8881 §8.4, §8.5; RFC 7530 §9.6).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::open::{DelegationType, OpenClaim, OpenHow};
use protocol::nfs4::ops::stateid::FreeStateidArgs;
use protocol::nfs4::types::{Component, Handle, Stateid, Status};

use super::Nfs4;
use super::keeper::Reopening;
use super::open_args::{Wanted, granted};
use super::owned::{OpenedFile, Opening};
use super::session::{Session, Unexecuted};
use super::statuses::{Unopened, unopened};
use super::wire::{Results, put};
use crate::error::OpError;
use crate::opens::OpenFile;
use crate::owner::Owner;

/// Number of names by which a file that is renamed meanwhile is opened again.
pub(super) const RENAMES_MAX: u32 = 16;
/// The pause before such an open while a RENAME is under way.
const RENAME_PAUSE: Duration = Duration::from_millis(100);

impl Nfs4 {
    /// Opens a file again. A file that is gone is lost: its user gets the status. One that the server does not let this client
    /// reclaim is opened again when it is used next. Returns whether the file is open now.
    ///
    /// # Errors
    /// [`Status::BADSESSION`] if the session was lost again.
    pub(super) async fn reopen(
        &self,
        session: &Arc<Session>,
        file: &OpenFile,
        owner: &mut Owner,
        reopening: Reopening,
    ) -> Result<bool, OpError> {
        for _ in 0..RENAMES_MAX {
            // On the heap: this is rare, and would make the future of each READ and WRITE larger.
            let reopened = Box::pin(self.reopen_by_name(session, file, owner, reopening));
            if let Some(is_open) = reopened.await? {
                return Ok(is_open);
            }
            self.rename_pause().await;
        }
        file.lose(Status::STALE);
        Ok(false)
    }

    /// Returns whether this client may have renamed a file since it had this directory and name.
    pub(super) fn may_be_renamed(&self, file: &OpenFile, location: Option<&(Handle, Component)>) -> bool {
        file.location().as_ref() != location || self.renames.load(Ordering::Relaxed) > 0
    }

    /// Waits a little for RENAMEs under way. Not until they have ended: they may need the session whose opens are being reclaimed.
    pub(super) async fn rename_pause(&self) {
        if self.renames.load(Ordering::Relaxed) > 0 {
            self.engine.sleep(RENAME_PAUSE).await;
        }
    }

    /// As [`Self::reopen`]; `None` if this client may have renamed the file while it was opened by its old name.
    async fn reopen_by_name(
        &self,
        session: &Arc<Session>,
        file: &OpenFile,
        owner: &mut Owner,
        reopening: Reopening,
    ) -> Result<Option<bool>, OpError> {
        let location = file.location();
        let Some(opening) = opening(session, file, reopening, self.delegates_times()) else {
            file.lose(Status::STALE);
            return Ok(Some(false));
        };
        let by_name = matches!(opening.claim, OpenClaim::Null(_));
        let is_renamed = || by_name && self.may_be_renamed(file, location.as_ref());
        match self.open_in(session, &file.caller, owner, &opening).await.map_err(as_lost)? {
            Ok(OpenedFile { opened, object, .. }) if by_name && object.handle != file.handle => {
                // The name is another file's now.
                self.close_unwanted(session, file, owner, opened.stateid, object.handle).await?;
                if is_renamed() {
                    return Ok(None);
                }
                file.lose(Status::STALE);
            }
            Ok(OpenedFile { opened, object, .. }) => {
                file.reclaimed(opened.stateid);
                if let Some(granted) = granted(&opened.delegation)
                    && !self.delegations.reclaimed(&file.handle, &granted, object.attributes.change)
                {
                    self.return_unwanted(session, file, granted.stateid).await?;
                }
                return Ok(Some(true));
            }
            Err(OpError::Status(status)) => match unopened(status, by_name) {
                Some(Unopened::AtNextUse) => {}
                Some(Unopened::Stale) if is_renamed() => return Ok(None),
                Some(Unopened::Stale) => file.lose(Status::STALE),
                Some(Unopened::Lost) => file.lose(status),
                None => return Err(OpError::Status(status)),
            },
            Err(error) => return Err(error),
        }
        Ok(Some(false))
    }

    /// Returns a delegation that was not asked for. The server's answer does not matter.
    pub(super) async fn return_unwanted(
        &self,
        session: &Arc<Session>,
        file: &OpenFile,
        stateid: Stateid,
    ) -> Result<(), OpError> {
        let ops = [put(file.handle), Op::DelegReturn(DelegReturnArgs { stateid })];
        run(session, file, &ops).await.map(|_| ())
    }

    /// Closes a file that was opened by mistake. The server's answer does not matter.
    pub(super) async fn close_unwanted(
        &self,
        session: &Arc<Session>,
        file: &OpenFile,
        owner: &mut Owner,
        open_stateid: Stateid,
        handle: Handle,
    ) -> Result<(), OpError> {
        let ops = |[seqid]: [u32; 1]| vec![put(handle), Op::Close(CloseArgs { seqid, open_stateid })];
        self.run_as(session, &file.caller, [&mut owner.seqid], ops).await.map(|_| ()).map_err(as_lost)
    }

    /// Opens a file again whose stateid the server has refused. The locks through it are lost. First, the client tells a server of 4.1
    /// that it can forget a stateid that it has revoked (RFC 8881 §18.38). One of 4.0 is asked whether it knows the client: if
    /// not, a new client ID and reclaims come first.
    ///
    /// # Errors
    /// [`Status::BADSESSION`] if the session is lost.
    pub(super) async fn replace_open(
        &self,
        session: &Arc<Session>,
        file: &OpenFile,
        owner: &mut Owner,
    ) -> Result<(), OpError> {
        if session.minor_version == 0 {
            self.setup().renew(session).await?;
        }
        self.lose_locks_of(file);
        let refused = file.stateid()?;
        if file.is_local() {
            self.delegation_revoked(&file.handle, &refused);
        }
        if session.minor_version > 0 {
            let free = Op::FreeStateid(FreeStateidArgs { stateid: refused });
            // Whether the server knew the stateid does not matter.
            run(session, file, &[free]).await?;
        }
        self.reopen(session, file, owner, Reopening::Anew).await.map(|_| ())
    }
}

/// Returns the OPEN for opening a file again. In 4.0 there is no CLAIM_FH: outside the grace period a file is opened by the name
/// that it had; `None` if there is no name.
fn opening(
    session: &Session,
    file: &OpenFile,
    reopening: Reopening,
    delegates_times: bool,
) -> Option<Opening> {
    let (at, claim) = match reopening {
        Reopening::Reclaim(delegation) => (file.handle, OpenClaim::Previous(delegation)),
        Reopening::Anew if session.minor_version > 0 => (file.handle, OpenClaim::Fh),
        Reopening::Anew => {
            let (directory, name) = file.location()?;
            (directory, OpenClaim::Null(name))
        }
    };
    let times = delegates_times && reopening == Reopening::Reclaim(DelegationType::WRITE);
    let want = Wanted { times, ..Wanted::NONE };
    Some(Opening { at, mode: file.mode, how: OpenHow::NoCreate, claim, want })
}

/// Executes a compound in this session only.
pub(super) async fn run(session: &Arc<Session>, file: &OpenFile, ops: &[Op]) -> Result<Results, OpError> {
    session.compound(file.caller.credential(), ops, true).await.map_err(as_lost)
}

/// Returns the error of a compound that is executed in one session only.
pub(super) fn as_lost(error: Unexecuted) -> OpError {
    match error {
        Unexecuted::Call(error) => OpError::Call(error),
        Unexecuted::Refused(status) => OpError::Status(status),
        Unexecuted::SessionLost { .. } | Unexecuted::ReplyLost => OpError::Status(Status::BADSESSION),
    }
}
