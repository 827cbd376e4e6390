//! The procedures with their results, JUKEBOX, and the way to version 2.

use std::time::Duration;

use bytes::Bytes;
use protocol::nfs3::{
    AccessArgs, CommitArgs, CreateArgs, FileHandle as WireHandle, FsinfoArgs, FsstatArgs, GetattrArgs,
    LinkArgs, LinkWcc, LookupArgs, MkdirArgs, MknodArgs, NfsStat, Outcome, PathconfArgs, PostOpAttr, Proc,
    ReadArgs, ReaddirArgs, ReaddirplusArgs, ReadlinkArgs, RemoveArgs, RenameArgs, RenameWcc, SetattrArgs,
    StableHow, SymlinkArgs, WccData, WriteOk,
};
use protocol::nfs4::types::Status;
use protocol::{nfs3, nfsacl};
use xdr::{Decode, Encode};

use super::Nfs3;
use crate::calls::{Procedure, Replied};
use crate::config::{Caller, Version};
use crate::error::OpError;
use crate::nfs2::{self, ByVersion2, Link};
use crate::record::{RecordWriter, length};
use crate::results::FileHandle;

const fn nfs(procedure: Proc) -> Procedure {
    Procedure { program: nfs3::PROGRAM, version: nfs3::VERSION, number: procedure.0 }
}

const fn acl(procedure: nfsacl::Proc) -> Procedure {
    Procedure { program: nfsacl::PROGRAM, version: nfsacl::VERSION, number: procedure.0 }
}

/// Arguments of a procedure, and its results.
pub(super) trait Arguments: ByVersion2<Results: Decode> {
    const PROCEDURE: Procedure;
    /// The results that follow the status of a failure.
    type Fail: Decode;

    fn encode_to(&self, record: &mut RecordWriter);
}

/// The arguments of RMDIR, which are those of REMOVE.
#[derive(Encode)]
pub(super) struct RmdirArgs(pub(super) RemoveArgs);

impl ByVersion2 for RmdirArgs {
    type Results = WccData;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<WccData>, OpError> {
        nfs2::remove_directory(link, &self.0).await
    }
}

/// Defines procedures: arguments, number, results on failure.
macro_rules! procedures {
    ($($arguments:ty: $procedure:expr => $fail:ty;)*) => {$(
        impl Arguments for $arguments {
            const PROCEDURE: Procedure = $procedure;
            type Fail = $fail;

            fn encode_to(&self, record: &mut RecordWriter) {
                self.encode(record.writer());
            }
        }
    )*};
}

procedures! {
    GetattrArgs: nfs(Proc::GETATTR) => ();
    SetattrArgs: nfs(Proc::SETATTR) => WccData;
    LookupArgs: nfs(Proc::LOOKUP) => PostOpAttr;
    AccessArgs: nfs(Proc::ACCESS) => PostOpAttr;
    ReadlinkArgs: nfs(Proc::READLINK) => PostOpAttr;
    ReadArgs: nfs(Proc::READ) => PostOpAttr;
    CreateArgs: nfs(Proc::CREATE) => WccData;
    MkdirArgs: nfs(Proc::MKDIR) => WccData;
    SymlinkArgs: nfs(Proc::SYMLINK) => WccData;
    MknodArgs: nfs(Proc::MKNOD) => WccData;
    RemoveArgs: nfs(Proc::REMOVE) => WccData;
    RmdirArgs: nfs(Proc::RMDIR) => WccData;
    RenameArgs: nfs(Proc::RENAME) => RenameWcc;
    LinkArgs: nfs(Proc::LINK) => LinkWcc;
    ReaddirArgs: nfs(Proc::READDIR) => PostOpAttr;
    ReaddirplusArgs: nfs(Proc::READDIRPLUS) => PostOpAttr;
    FsstatArgs: nfs(Proc::FSSTAT) => PostOpAttr;
    FsinfoArgs: nfs(Proc::FSINFO) => PostOpAttr;
    PathconfArgs: nfs(Proc::PATHCONF) => PostOpAttr;
    CommitArgs: nfs(Proc::COMMIT) => WccData;
    nfsacl::GetAclArgs: acl(nfsacl::Proc::GETACL) => PostOpAttr;
    nfsacl::SetAclArgs: acl(nfsacl::Proc::SETACL) => PostOpAttr;
}

/// The arguments of WRITE, with data in parts that are not copied.
pub(super) struct GatheredWrite<'a> {
    pub(super) file: WireHandle,
    pub(super) offset: u64,
    pub(super) stable: StableHow,
    pub(super) data: &'a [Bytes],
}

impl ByVersion2 for GatheredWrite<'_> {
    type Results = WriteOk;

    async fn perform(&self, link: &Link<'_>) -> Result<Replied<WriteOk>, OpError> {
        nfs2::write(link, &self.file, self.offset, self.data).await
    }
}

impl Arguments for GatheredWrite<'_> {
    const PROCEDURE: Procedure = nfs(Proc::WRITE);
    type Fail = WccData;

    fn encode_to(&self, record: &mut RecordWriter) {
        let writer = record.writer();
        self.file.encode(writer);
        self.offset.encode(writer);
        writer.u32(length(self.data) as u32);
        self.stable.encode(writer);
        record.opaque(self.data);
    }
}

impl Nfs3 {
    /// Calls a procedure whose second execution has the same result.
    pub(super) async fn call<A: Arguments>(
        &self,
        caller: &Caller,
        arguments: &A,
    ) -> Result<A::Results, OpError> {
        Ok(self.call_once(caller, arguments).await?.result?)
    }

    /// Calls a procedure, in version 2 those that perform it.
    pub(super) async fn call_once<A: Arguments>(
        &self,
        caller: &Caller,
        arguments: &A,
    ) -> Result<Replied<A::Results>, OpError> {
        match self.version {
            Version::V2 => {
                let link = Link { calls: &self.calls, caller };
                // On the heap, so that futures of version 3 stay small.
                Box::pin(arguments.perform(&link)).await
            }
            _ => self.call_version_3(caller, arguments).await,
        }
    }

    /// Calls a procedure, again with a new transaction ID while the server answers JUKEBOX (RFC 1813 §2.6); on a soft mount not
    /// forever.
    async fn call_version_3<A: Arguments>(
        &self,
        caller: &Caller,
        arguments: &A,
    ) -> Result<Replied<A::Results>, OpError> {
        let mut is_repeated = false;
        let limit = self.config.retry.delay_limit();
        let end = limit.map_or(Duration::MAX, |limit| self.engine.now() + limit);
        loop {
            let encode = |record: &mut RecordWriter| arguments.encode_to(record);
            let call = self.calls.call::<Outcome<A::Results, A::Fail>>(caller, A::PROCEDURE, encode);
            let (outcome, is_sent_again) = call.await?;
            is_repeated |= is_sent_again;
            if matches!(outcome, Outcome::Fail(..)) {
                self.engine.note_error(A::PROCEDURE.label());
            }
            let result = match outcome {
                Outcome::Ok(ok) => Ok(ok),
                Outcome::Fail(NfsStat::JUKEBOX, _) if self.engine.now() < end => {
                    self.engine.sleep(self.config.jukebox_pause).await;
                    continue;
                }
                Outcome::Fail(status, _) => Err(Status(status.0)),
            };
            return Ok(Replied { result, is_repeated });
        }
    }
}

/// Converts a handle for the wire.
///
/// # Errors
/// If it is longer than those of version 3.
pub(super) fn to_wire(handle: &FileHandle) -> Result<WireHandle, OpError> {
    WireHandle::new(handle).map_err(|_| OpError::Status(Status::BADHANDLE))
}

/// Converts a handle from the wire.
///
/// # Errors
/// [`OpError::BadReply`] for an empty one, which identifies no file.
pub(super) fn from_wire(handle: &WireHandle) -> Result<FileHandle, OpError> {
    match FileHandle::new(handle) {
        Ok(handle) if !handle.is_empty() => Ok(handle),
        _ => Err(OpError::BadReply("an empty file handle")),
    }
}
