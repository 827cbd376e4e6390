//! OPEN and CLOSE (RFC 8881 §18.16, §18.2).

use std::sync::Arc;

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::open::{
    CreateHow, CreateVerifierAttributes, OpenArgs, OpenClaim, OpenHow, OpenResultFlags, ShareDeny,
};
use protocol::nfs4::types::Status;

use super::super::Nfs4;
use super::super::convert::{changed, component, set_attributes};
use super::super::recovery::{open_owner, share_access};
use super::super::statuses::{Recovery, recovery};
use super::super::wire::{put, take};
use super::{get_attributes, take_object};
use crate::attributes::SetAttributes;
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::LockRange;
use crate::opens::{OpenFile, OpenFiles};
use crate::results::{Creation, FileHandle, OpenMode, OpenState, Opened};

/// Frees the number of an owner whose OPEN failed.
struct OwnerGuard<'a> {
    opens: &'a OpenFiles,
    owner: u32,
}

impl Drop for OwnerGuard<'_> {
    fn drop(&mut self) {
        self.opens.free_owner(self.owner);
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
        let how = match creation {
            Creation::No => OpenHow::NoCreate,
            Creation::IfMissing => OpenHow::Create(CreateHow::Unchecked(set_attributes(set))),
            Creation::Exclusive(verifier) => {
                let attributes = set_attributes(set);
                OpenHow::Create(CreateHow::Exclusive41(CreateVerifierAttributes { verifier, attributes }))
            }
        };
        self.open_claiming(caller, directory, mode, how, OpenClaim::Null(component(name)?)).await
    }

    /// Opens a file by its handle (`CLAIM_FH`), which version 4.0 does not have: there it is opened by a name that it had.
    pub(crate) async fn open_handle(
        self: &Arc<Self>,
        caller: &Caller,
        handle: FileHandle,
        name: Option<(FileHandle, &[u8])>,
        mode: OpenMode,
    ) -> Result<Opened, OpError> {
        if self.minor_version > 0 {
            return self.open_claiming(caller, handle, mode, OpenHow::NoCreate, OpenClaim::Fh).await;
        }
        let (directory, name) = name.ok_or(OpError::Status(Status::STALE))?;
        let set = SetAttributes::default();
        let opened = self.open(caller, directory, name, mode, Creation::No, &set).await?;
        if opened.object.handle != handle {
            self.close_file(caller, opened.object.handle, &opened.state).await?;
            return Err(OpError::Status(Status::STALE));
        }
        Ok(opened)
    }

    /// Opens a file. If the caller drops the future, it is closed when the reply is there.
    async fn open_claiming(
        self: &Arc<Self>,
        caller: &Caller,
        current: FileHandle,
        mode: OpenMode,
        how: OpenHow,
        claim: OpenClaim,
    ) -> Result<Opened, OpError> {
        let (nfs4, caller) = (Arc::clone(self), caller.clone());
        let (undo_nfs4, undo_caller) = (Arc::clone(self), caller.clone());
        let operation = async move {
            let owner = nfs4.opens.take_owner();
            // Freed too if the client is closed meanwhile.
            let guard = OwnerGuard { opens: &nfs4.opens, owner };
            let opened = nfs4.open_as(&caller, current, mode, owner, how, claim).await?;
            std::mem::forget(guard);
            Ok(opened)
        };
        let guarded = self.background.guard(operation, async move |outcome: Result<Opened, OpError>| {
            if let Ok(Opened { object, state, .. }) = outcome {
                // Nobody is there who could handle a failure.
                let _ = undo_nfs4.close_file(&undo_caller, object.handle, &state).await;
            }
        });
        guarded.await
    }

    async fn open_as(
        &self,
        caller: &Caller,
        current: FileHandle,
        mode: OpenMode,
        owner: u32,
        how: OpenHow,
        claim: OpenClaim,
    ) -> Result<Opened, OpError> {
        let client_id = self.session().await?.client_id;
        let args = OpenArgs {
            seqid: 0,
            share_access: share_access(mode),
            share_deny: ShareDeny::empty(),
            owner: open_owner(client_id, owner),
            how,
            claim,
        };
        let ops = [put(current), Op::Open(args), Op::GetFh, get_attributes()];
        let mut results = self.change(caller, &ops).await?;
        results.skip()?;
        let opened = take!(results, Open)?;
        let object = take_object(&mut results)?;
        let file = self.opens.add(owner, object.handle, mode, caller, opened.stateid);
        let preserves_unlinked = opened.flags.contains(OpenResultFlags::PRESERVE_UNLINKED);
        let state = OpenState { file: Some(file), preserves_unlinked };
        Ok(Opened { object, state, directory: Some(changed(opened.change, None)) })
    }

    /// Closes a file, and unlocks what was locked through it. Its state ends whatever the server answers.
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
        let closed = self.close_open(caller, handle, file).await;
        self.opens.free_owner(file.owner);
        closed
    }

    async fn close_open(&self, caller: &Caller, handle: FileHandle, file: &OpenFile) -> Result<(), OpError> {
        loop {
            // An open that is lost needs no CLOSE.
            let Ok(open_stateid) = file.stateid() else { return Ok(()) };
            let close = Op::Close(CloseArgs { seqid: 0, open_stateid });
            match self.change(caller, &[put(handle), close]).await?.skip_many(2) {
                Err(OpError::Status(status)) if recovery(status) != Recovery::Fail => {
                    // Reclaimed meanwhile, with another stateid; or lost already.
                    if file.stateid() == Ok(open_stateid) {
                        return Ok(());
                    }
                }
                closed => return closed,
            }
        }
    }
}
