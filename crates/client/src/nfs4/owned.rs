//! Compounds with an operation of an owner: OPEN, OPEN_CONFIRM, CLOSE, LOCK, LOCKU.
//!
//! Version 4.0 orders them by the owner's seqid (RFC 7530 §9.1.7). A compound that is sent again because its connection was lost
//! is the same record, with the same seqid; a new attempt after DELAY or GRACE has the next one. Later versions ignore seqids.

use std::sync::Arc;

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::open::{
    CreateHow, OpenArgs, OpenClaim, OpenHow, OpenOk, OpenResultFlags, ShareDeny,
};
use protocol::nfs4::ops::open_state::OpenConfirmArgs;
use protocol::nfs4::types::{Handle, Stateid, Status};

use super::Nfs4;
use super::getattr::{get_attributes, take_attributes, take_handle};
use super::open_args::{Wanted, open_owner, share_access};
use super::session::{DELAY_FIRST, DELAY_MAX, GRACE_PAUSE, Session, Unexecuted};
use super::wire::{Results, put, take};
use crate::attributes::Attributes;
use crate::config::Caller;
use crate::error::OpError;
use crate::opens::OpenMode;
use crate::owner::{Owner, Seqid};
use crate::results::Object;

/// Maximum number of attempts of an OPEN with another owner after BAD_SEQID.
const OWNERS_MAX: u32 = 3;

/// Maximum number of attempts of an OPEN that the server forgets before it is confirmed.
const CONFIRMS_MAX: u32 = 3;

/// An OPEN without its owner and seqid.
#[derive(Clone)]
pub(super) struct Opening {
    /// The directory or the file, according to the claim.
    pub(super) at: Handle,
    pub(super) mode: OpenMode,
    pub(super) how: OpenHow,
    pub(super) claim: OpenClaim,
    pub(super) want: Wanted,
}

impl Opening {
    /// Returns whether the OPEN may change a directory. Its attributes are then read in the same compound: otherwise the next
    /// operation in the directory needs another round trip for them.
    fn may_change_directory(&self) -> bool {
        matches!(self.claim, OpenClaim::Null(_)) && !matches!(self.how, OpenHow::NoCreate)
    }

    /// Returns the OPEN that follows if this one has succeeded, and its open was forgotten.
    fn again(&self) -> Self {
        let how = match &self.how {
            // This one has created the file.
            OpenHow::Create(CreateHow::Guarded(_)) => OpenHow::NoCreate,
            how => how.clone(),
        };
        Self { how, ..self.clone() }
    }
}

/// An opened file.
pub(super) struct OpenedFile {
    pub(super) opened: OpenOk,
    pub(super) object: Object,
    /// The attributes of the directory after an OPEN that may have changed it, if they could be read.
    pub(super) directory: Option<Attributes>,
}

/// Returns whether an operation has the seqid of an owner.
pub(super) fn has_seqid(op: &Op) -> bool {
    matches!(
        op,
        Op::Open(_) | Op::OpenConfirm(_) | Op::OpenDowngrade(_) | Op::Close(_) | Op::Lock(_) | Op::LockU(_)
    )
}

/// Sets the seqid of an operation that has one and can be part of a batch.
pub(super) fn set_seqid(op: &mut Op, seqid: u32) {
    match op {
        Op::Open(args) => args.seqid = seqid,
        Op::OpenConfirm(args) => args.seqid = seqid,
        Op::Close(args) => args.seqid = seqid,
        _ => {}
    }
}

/// Executes a compound in a session, and updates the seqids of its owners by its status. Returns the status of the
/// operation with the seqids, or that of the operation before it which failed.
async fn send_as<const OWNERS: usize>(
    session: &Arc<Session>,
    caller: &Caller,
    mut seqids: [&mut Seqid; OWNERS],
    ops: impl Fn([u32; OWNERS]) -> Vec<Op>,
) -> Result<(Results, Status), Unexecuted> {
    let sent = seqids.each_mut().map(|seqid| seqid.start_request());
    let mut end = |status| {
        for (seqid, sent) in seqids.iter_mut().zip(sent) {
            seqid.end_request(sent, status);
        }
    };
    let ops = ops(sent);
    let outcome = session.compound(caller.credential(), &ops, true).await;
    match outcome {
        Ok(results) => {
            let status = ops.iter().position(has_seqid).and_then(|at| results.status_at(at));
            end(status);
            let status = status.unwrap_or(results.status());
            Ok((results, status))
        }
        Err(error) => {
            if error == (Unexecuted::SessionLost { was_sent: false }) {
                end(None);
            }
            Err(error)
        }
    }
}

impl Nfs4 {
    /// Executes a compound with an operation of an owner in a session; a lock-owner's first LOCK has the seqid of the open-owner
    /// too. `ops` gets the seqids. The compound is executed again as a new request while the operation returns DELAY or GRACE.
    /// Returns the operation's status too.
    pub(super) async fn run_as<const OWNERS: usize>(
        &self,
        session: &Arc<Session>,
        caller: &Caller,
        mut seqids: [&mut Seqid; OWNERS],
        ops: impl Fn([u32; OWNERS]) -> Vec<Op>,
    ) -> Result<(Results, Status), Unexecuted> {
        let (mut pause, end) = (DELAY_FIRST, self.retry_deadline());
        loop {
            let (results, status) =
                send_as(session, caller, seqids.each_mut().map(|seqid| &mut **seqid), &ops).await?;
            match status {
                Status::DELAY if self.engine.now() < end => {
                    self.engine.sleep(pause).await;
                    pause = (pause * 2).min(DELAY_MAX);
                }
                Status::GRACE => self.engine.sleep(GRACE_PAUSE).await,
                _ => return Ok((results, status)),
            }
        }
    }

    /// Opens a file in a session, and confirms the open if a server of 4.0 requests it. If the server has forgotten the open by then,
    /// because the lease has ended, the file is opened again.
    pub(super) async fn open_in(
        &self,
        session: &Arc<Session>,
        caller: &Caller,
        owner: &mut Owner,
        opening: &Opening,
    ) -> Result<Result<OpenedFile, OpError>, Unexecuted> {
        let mut again = None;
        for _ in 0..CONFIRMS_MAX {
            let opening = again.as_ref().unwrap_or(opening);
            // On the heap: futures around it stay as small as before.
            match Box::pin(self.try_open(session, caller, owner, opening)).await? {
                Ok(Some(opened)) => return Ok(Ok(opened)),
                Ok(None) => again = Some(opening.again()),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Err(OpError::Status(Status::BAD_STATEID)))
    }

    /// As [`Self::open_in`]; `None` if the server has forgotten the open before it was confirmed.
    async fn try_open(
        &self,
        session: &Arc<Session>,
        caller: &Caller,
        owner: &mut Owner,
        opening: &Opening,
    ) -> Result<Result<Option<OpenedFile>, OpError>, Unexecuted> {
        let mut owners_left = OWNERS_MAX;
        let results = loop {
            if !owner.is_known() {
                self.opens.replace_owner(owner);
            }
            let number = owner.number();
            let ops = |[seqid]: [u32; 1]| open_ops(session, number, seqid, opening);
            let (results, status) = self.run_as(session, caller, [&mut owner.seqid], ops).await?;
            match status {
                Status::BAD_SEQID if owners_left > 1 => {
                    owners_left -= 1;
                    self.opens.replace_owner(owner);
                }
                // Perhaps only the delegation has ended.
                Status::EXPIRED if matches!(opening.claim, OpenClaim::DelegateCur(_)) => break results,
                // The server has restarted, or the lease has ended (RFC 7530 §9.6.2, §9.6.3).
                Status::STALE_CLIENTID | Status::EXPIRED if session.minor_version == 0 => {
                    session.lose(status);
                    return Err(Unexecuted::SessionLost { was_sent: false });
                }
                _ => break results,
            }
        };
        let OpenReply { mut opened, handle, attributes, directory } = match opened(results) {
            Ok(reply) => reply,
            Err(error) => return Ok(Err(error)),
        };
        let attributes = match attributes {
            Ok(attributes) => Ok(attributes),
            Err(OpError::Status(Status::DELAY)) => self.attributes_of_opened(session, caller, handle).await?,
            failed => failed,
        };
        let object = match attributes {
            Ok(attributes) => Object { handle, attributes },
            Err(error) => return Ok(Err(error)),
        };
        if session.minor_version == 0 && opened.flags.contains(OpenResultFlags::CONFIRM) {
            match self.confirm(session, caller, owner, object.handle, opened.stateid).await? {
                Ok(stateid) => opened.stateid = stateid,
                Err(OpError::Status(Status::BAD_STATEID)) => {
                    self.opens.replace_owner(owner);
                    return Ok(Ok(None));
                }
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(Some(OpenedFile { opened, object, directory })))
    }

    /// Returns the attributes of a file after its OPEN, where GETATTR in the same compound has returned DELAY: a server of 4.0 does not
    /// see that the caller has the delegation that it has just granted, and sends CB_GETATTR (RFC 7530 §10.4.3).
    async fn attributes_of_opened(
        &self,
        session: &Arc<Session>,
        caller: &Caller,
        handle: Handle,
    ) -> Result<Result<Attributes, OpError>, Unexecuted> {
        let (mut pause, end) = (DELAY_FIRST, self.retry_deadline());
        let ops = [put(handle), get_attributes()];
        loop {
            let mut results = session.compound(caller.credential(), &ops, false).await?;
            match results.skip().and_then(|()| take_attributes(&mut results)) {
                Err(OpError::Status(Status::DELAY)) if self.engine.now() < end => {
                    self.engine.sleep(pause).await;
                    pause = (pause * 2).min(DELAY_MAX);
                }
                taken => return Ok(taken),
            }
        }
    }

    /// OPEN_CONFIRM (RFC 7530 §16.18), which the first OPEN of an owner needs.
    async fn confirm(
        &self,
        session: &Arc<Session>,
        caller: &Caller,
        owner: &mut Owner,
        handle: Handle,
        open_stateid: Stateid,
    ) -> Result<Result<Stateid, OpError>, Unexecuted> {
        let ops =
            |[seqid]: [u32; 1]| vec![put(handle), Op::OpenConfirm(OpenConfirmArgs { open_stateid, seqid })];
        let (mut results, status) = self.run_as(session, caller, [&mut owner.seqid], ops).await?;
        check_client_known(session, status)?;
        Ok(results.skip().and_then(|()| take!(results, OpenConfirm)))
    }
}

/// Notes if a server of 4.0 shows by the status of an operation with a new stateid that it has forgotten the client since (RFC 7530
/// §9.6.2, §9.6.3). Later versions refuse the session instead.
///
/// # Errors
/// The session is lost.
pub(super) fn check_client_known(session: &Session, status: Status) -> Result<(), Unexecuted> {
    let is_forgotten = matches!(status, Status::STALE_CLIENTID | Status::STALE_STATEID | Status::EXPIRED);
    if session.minor_version > 0 || !is_forgotten {
        return Ok(());
    }
    session.lose(Status::STALE_CLIENTID);
    Err(Unexecuted::SessionLost { was_sent: true })
}

fn open_ops(session: &Session, owner: u32, seqid: u32, opening: &Opening) -> Vec<Op> {
    let open = Op::Open(OpenArgs {
        seqid,
        share_access: share_access(opening.mode, session.minor_version, opening.want),
        share_deny: ShareDeny::empty(),
        owner: open_owner(session.client_id, owner),
        how: opening.how.clone(),
        claim: opening.claim.clone(),
    });
    let mut ops = vec![put(opening.at), open, Op::GetFh, get_attributes()];
    if opening.may_change_directory() {
        ops.extend([put(opening.at), get_attributes()]);
    }
    ops
}

/// The results of [`open_ops`].
struct OpenReply {
    opened: OpenOk,
    handle: Handle,
    attributes: Result<Attributes, OpError>,
    directory: Option<Attributes>,
}

fn opened(mut results: Results) -> Result<OpenReply, OpError> {
    results.skip()?;
    let opened = take!(results, Open)?;
    let handle = take_handle(&mut results)?;
    let attributes = take_attributes(&mut results);
    let directory = results.skip().and_then(|()| take_attributes(&mut results)).ok();
    Ok(OpenReply { opened, handle, attributes, directory })
}
