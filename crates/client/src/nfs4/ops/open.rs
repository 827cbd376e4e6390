//! OPEN and CLOSE (RFC 8881 §18.16, §18.2; RFC 7530 §16.16, §16.2).

use std::sync::Arc;

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::open::{CreateHow, CreateVerifierAttributes, OpenClaim, OpenHow, OpenResultFlags};
use protocol::nfs4::types::{Component, Status};

use super::super::Nfs4;
use super::super::convert::{changed, component, set_attributes};
use super::super::owned::{OpenedFile, Opening};
use super::super::session::{Session, Unexecuted};
use super::super::statuses::{Recovery, recovery};
use super::super::wire::put;
use crate::attributes::{Attributes, SetAttributes, SetTime};
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::LockRange;
use crate::opens::{NewOpen, OpenFile, OpenFiles};
use crate::owner::Owner;
use crate::results::{Creation, FileHandle, OpenMode, OpenState, Opened};

/// Releases the owner of an OPEN that failed, or whose caller has dropped it.
struct OwnerGuard<'a> {
    opens: &'a OpenFiles,
    owner: Owner,
}

impl OwnerGuard<'_> {
    /// Returns the owner, which then belongs to an open file.
    fn take(mut self) -> Owner {
        std::mem::replace(&mut self.owner, Owner::unknown())
    }
}

impl Drop for OwnerGuard<'_> {
    fn drop(&mut self) {
        self.opens.free_owner(std::mem::replace(&mut self.owner, Owner::unknown()));
    }
}

impl Nfs4 {
    /// Opens a file by its name in a directory, and creates it if asked to.
    pub(crate) async fn open(
        self: &Arc<Self>,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: OpenMode,
        creation: Creation,
        set: &SetAttributes,
    ) -> Result<Opened, OpError> {
        let name = component(name)?;
        let how = match creation {
            Creation::No => OpenHow::NoCreate,
            Creation::IfMissing => OpenHow::Create(CreateHow::Unchecked(set_attributes(set))),
            Creation::Guarded => OpenHow::Create(CreateHow::Guarded(set_attributes(set))),
            Creation::Exclusive(verifier) => OpenHow::Create(self.exclusive(verifier, set)),
        };
        let sets_later = matches!(how, OpenHow::Create(CreateHow::Exclusive(_)));
        let (claim, location) = (OpenClaim::Null(name.clone()), Some((directory, name)));
        let want = self.wanted_delegation(mode);
        let opening = Opening { at: directory, mode, how, claim, want };
        // An OPEN without creation changes no names.
        let changed = (creation != Creation::No).then_some(directory);
        let mut opened = self.changing_names(changed, self.open_claiming(caller, opening, location)).await?;
        if sets_later {
            let outcome = self.set_created(caller, &opened, set).await;
            match outcome {
                Ok(attributes) => opened.object.attributes = attributes,
                Err(error) => {
                    // The caller gets no file: the result of CLOSE does not matter.
                    let _ = self.close_file(caller, opened.object.handle, &opened.state).await;
                    return Err(error);
                }
            }
        }
        Ok(opened)
    }

    /// Returns the method of creation of a file that must be missing. 4.0's EXCLUSIVE4 has no attributes.
    fn exclusive(&self, verifier: [u8; 8], set: &SetAttributes) -> CreateHow {
        match self.has_sessions() {
            true => {
                let attributes = set_attributes(set);
                CreateHow::Exclusive41(CreateVerifierAttributes { verifier, attributes })
            }
            false => CreateHow::Exclusive(verifier),
        }
    }

    /// Sets the attributes of a file that EXCLUSIVE4 has created. RFC 7530 §16.16.5: servers keep the verifier in attributes,
    /// usually in the times, so that those are set in any case.
    async fn set_created(
        &self,
        caller: &Caller,
        opened: &Opened,
        set: &SetAttributes,
    ) -> Result<Attributes, OpError> {
        let or_now = |time| if time == SetTime::Keep { SetTime::Now } else { time };
        let set = SetAttributes { atime: or_now(set.atime), mtime: or_now(set.mtime), size: None, ..*set };
        self.set_attributes(caller, opened.object.handle, &opened.state, &set).await
    }

    /// Opens a file by its handle (`CLAIM_FH`), which version 4.0 does not have: there it is opened by a name that it had.
    pub(crate) async fn open_handle(
        self: &Arc<Self>,
        caller: &Caller,
        handle: FileHandle,
        name: Option<(FileHandle, &[u8])>,
        mode: OpenMode,
    ) -> Result<Opened, OpError> {
        if self.has_sessions() {
            let (how, claim, want) = (OpenHow::NoCreate, OpenClaim::Fh, self.wanted_delegation(mode));
            let opening = Opening { at: handle, mode, how, claim, want };
            return self.open_claiming(caller, opening, None).await;
        }
        let (directory, name) = name.ok_or(OpError::Status(Status::STALE))?;
        let set = SetAttributes::default();
        let opened = self.open(caller, directory, name, mode, Creation::No, &set).await;
        // The file may exist under another name, which is to be looked up.
        let renamed =
            |error: OpError| if error.is_missing() { OpError::Status(Status::STALE) } else { error };
        let opened = opened.map_err(renamed)?;
        if opened.object.handle != handle {
            self.close_file(caller, opened.object.handle, &opened.state).await?;
            return Err(OpError::Status(Status::STALE));
        }
        Ok(opened)
    }

    /// Opens a file; `location` is its directory and name, as far as they are known. If the caller drops the future, the file is
    /// closed when the reply has arrived.
    async fn open_claiming(
        self: &Arc<Self>,
        caller: &Caller,
        opening: Opening,
        location: Option<(FileHandle, Component)>,
    ) -> Result<Opened, OpError> {
        let (nfs4, caller) = (Arc::clone(self), caller.clone());
        let (undo_nfs4, undo_caller) = (Arc::clone(self), caller.clone());
        let operation = async move { nfs4.open_in_sessions(&caller, opening, location).await };
        let guarded = self.background.guard(operation, async move |outcome: Result<Opened, OpError>| {
            if let Ok(Opened { object, state, .. }) = outcome {
                // No caller is left to handle a failure.
                let _ = undo_nfs4.close_file(&undo_caller, object.handle, &state).await;
            }
        });
        guarded.await
    }

    /// Opens a file with an owner of its own, again if a session is lost meanwhile.
    async fn open_in_sessions(
        &self,
        caller: &Caller,
        opening: Opening,
        location: Option<(FileHandle, Component)>,
    ) -> Result<Opened, OpError> {
        // Freed too if the client is closed meanwhile.
        let mut guard = OwnerGuard { opens: &self.opens, owner: self.opens.take_owner() };
        let _opening = self.delegations.opening();
        let mut attempts = self.attempts();
        let OpenedFile { opened, object, directory } = loop {
            let session = attempts.session().await?;
            match self.open_in(&session, caller, &mut guard.owner, &opening).await {
                Ok(outcome) => break outcome?,
                Err(error) => attempts.handle(error)?,
            }
        };
        let owner = guard.take();
        let delegation =
            self.take_delegation(caller, &object, location.as_ref(), opening.mode, &opened).await;
        let (handle, mode, stateid) = (object.handle, opening.mode, opened.stateid);
        let new = NewOpen { handle, location, mode, stateid, is_local: false };
        let file = self.opens.add(owner, caller, new);
        if mode.write {
            // Own changes would make what was read under it obsolete.
            self.give_back_read(&handle).await;
        }
        let preserves_unlinked = opened.flags.contains(OpenResultFlags::PRESERVE_UNLINKED);
        let state = OpenState { file: Some(file), preserves_unlinked };
        Ok(Opened { object, state, directory: Some(changed(opened.change, directory)), delegation })
    }

    /// Closes a file, and releases the locks through it. Its state ends regardless of the server's answer.
    pub(crate) async fn close_file(
        self: &Arc<Self>,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
    ) -> Result<(), OpError> {
        let Some(file) = &state.file else { return Ok(()) };
        // RFC 8881 §18.2.3: a server may refuse to close a file with locks.
        for locker in self.locks.of_open(file) {
            // CLOSE ends the locks too, or says why not.
            let _ = self.unlock(caller, handle, locker.owner, LockRange::WHOLE).await;
            locker.closed(file.owner);
        }
        if self.close_delegated(file).await {
            return Ok(());
        }
        let closed = self.close_open(caller, handle, file).await;
        self.opens.remove(file);
        closed
    }

    /// CLOSE.
    pub(in crate::nfs4) async fn close_open(
        &self,
        caller: &Caller,
        handle: FileHandle,
        file: &OpenFile,
    ) -> Result<(), OpError> {
        let mut attempts = self.attempts();
        loop {
            let session = attempts.session().await?;
            match self.close_in(&session, caller, handle, file).await {
                Ok(Status::OK) => return Ok(()),
                // Lost already.
                Ok(status) if recovery(status) != Recovery::Fail => return Ok(()),
                Ok(status) => return Err(OpError::Status(status)),
                Err(error) => attempts.handle(error)?,
            }
        }
    }

    /// Closes a file in a session, and returns the status.
    async fn close_in(
        &self,
        session: &Arc<Session>,
        caller: &Caller,
        handle: FileHandle,
        file: &OpenFile,
    ) -> Result<Status, Unexecuted> {
        let mut owner = file.turn().await;
        // An open that is lost needs no CLOSE.
        let Ok(open_stateid) = file.stateid() else { return Ok(Status::OK) };
        if !owner.is_known() {
            // There is no seqid that the server would take.
            return Ok(Status::BAD_SEQID);
        }
        let ops = |[seqid]: [u32; 1]| vec![put(handle), Op::Close(CloseArgs { seqid, open_stateid })];
        let closed = self.run_as(session, caller, [&mut owner.seqid], ops).await.map(|(_, status)| status);
        if closed.is_ok() {
            file.note_closed();
        }
        closed
    }
}
