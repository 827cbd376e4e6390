//! Calls: a bound for those in flight, transaction IDs, JUKEBOX, and the procedures with their results.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs3::{
    AccessArgs, AccessOk, CommitArgs, CommitOk, CreateArgs, CreateOk, Fattr, FileHandle as WireHandle,
    FsinfoArgs, FsinfoOk, FsstatArgs, FsstatOk, GetattrArgs, LinkArgs, LinkWcc, LookupArgs, LookupOk,
    MkdirArgs, MknodArgs, NfsStat, Outcome, PathconfArgs, PathconfOk, PostOpAttr, Proc, ReadArgs, ReadOk,
    ReaddirArgs, ReaddirOk, ReaddirplusArgs, ReaddirplusOk, ReadlinkArgs, ReadlinkOk, RemoveArgs, RenameArgs,
    RenameWcc, SetattrArgs, StableHow, SymlinkArgs, WccData, WriteOk,
};
use protocol::nfs4::types::Status;
use protocol::{nfs3, nfsacl};
use rpc::message::{CallHeader, encode_call, parse_reply};
use xdr::{Decode, Encode};

use super::{Nfs3, lacks_program};
use crate::config::Caller;
use crate::engine::{CallError, Completion, ConnectionId, Label};
use crate::error::OpError;
use crate::permits::Permit;
use crate::record::{RecordWriter, length};
use crate::results::FileHandle;

/// The pause before the repetition of a call that the server answered with JUKEBOX, as in Linux. The file may be on a tape.
pub(super) const JUKEBOX_PAUSE: Duration = Duration::from_secs(5);

/// A procedure of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Procedure {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) number: u32,
}

const fn nfs(procedure: Proc) -> Procedure {
    Procedure { program: nfs3::PROGRAM, version: nfs3::VERSION, number: procedure.0 }
}

const fn acl(procedure: nfsacl::Proc) -> Procedure {
    Procedure { program: nfsacl::PROGRAM, version: nfsacl::VERSION, number: procedure.0 }
}

/// Arguments of a procedure, and its results.
pub(super) trait Arguments {
    const PROCEDURE: Procedure;
    /// Results on success.
    type Ok: Decode;
    /// The results that follow the status of a failure.
    type Fail: Decode;

    fn encode_to(&self, record: &mut RecordWriter);
}

/// The arguments of RMDIR, which are those of REMOVE.
#[derive(Encode)]
pub(super) struct RmdirArgs(pub(super) RemoveArgs);

/// Defines procedures: arguments, number, results on success and on failure.
macro_rules! procedures {
    ($($arguments:ty: $procedure:expr => $ok:ty, $fail:ty;)*) => {$(
        impl Arguments for $arguments {
            const PROCEDURE: Procedure = $procedure;
            type Ok = $ok;
            type Fail = $fail;

            fn encode_to(&self, record: &mut RecordWriter) {
                self.encode(record.writer());
            }
        }
    )*};
}

procedures! {
    GetattrArgs: nfs(Proc::GETATTR) => Fattr, ();
    SetattrArgs: nfs(Proc::SETATTR) => WccData, WccData;
    LookupArgs: nfs(Proc::LOOKUP) => LookupOk, PostOpAttr;
    AccessArgs: nfs(Proc::ACCESS) => AccessOk, PostOpAttr;
    ReadlinkArgs: nfs(Proc::READLINK) => ReadlinkOk, PostOpAttr;
    ReadArgs: nfs(Proc::READ) => ReadOk, PostOpAttr;
    CreateArgs: nfs(Proc::CREATE) => CreateOk, WccData;
    MkdirArgs: nfs(Proc::MKDIR) => CreateOk, WccData;
    SymlinkArgs: nfs(Proc::SYMLINK) => CreateOk, WccData;
    MknodArgs: nfs(Proc::MKNOD) => CreateOk, WccData;
    RemoveArgs: nfs(Proc::REMOVE) => WccData, WccData;
    RmdirArgs: nfs(Proc::RMDIR) => WccData, WccData;
    RenameArgs: nfs(Proc::RENAME) => RenameWcc, RenameWcc;
    LinkArgs: nfs(Proc::LINK) => LinkWcc, LinkWcc;
    ReaddirArgs: nfs(Proc::READDIR) => ReaddirOk, PostOpAttr;
    ReaddirplusArgs: nfs(Proc::READDIRPLUS) => ReaddirplusOk, PostOpAttr;
    FsstatArgs: nfs(Proc::FSSTAT) => FsstatOk, PostOpAttr;
    FsinfoArgs: nfs(Proc::FSINFO) => FsinfoOk, PostOpAttr;
    PathconfArgs: nfs(Proc::PATHCONF) => PathconfOk, PostOpAttr;
    CommitArgs: nfs(Proc::COMMIT) => CommitOk, WccData;
    nfsacl::GetAclArgs: acl(nfsacl::Proc::GETACL) => nfsacl::GetAclOk, PostOpAttr;
    nfsacl::SetAclArgs: acl(nfsacl::Proc::SETACL) => PostOpAttr, PostOpAttr;
}

/// The arguments of WRITE, with data in parts that are not copied.
pub(super) struct GatheredWrite<'a> {
    pub(super) file: WireHandle,
    pub(super) offset: u64,
    pub(super) stable: StableHow,
    pub(super) data: &'a [Bytes],
}

impl Arguments for GatheredWrite<'_> {
    const PROCEDURE: Procedure = nfs(Proc::WRITE);
    type Ok = WriteOk;
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

/// The results of a call.
#[derive(Debug)]
pub(super) struct Replied<T> {
    /// Results, or the status of a failure.
    pub(super) result: Result<T, Status>,
    /// Whether the server may have executed the call before, because it was sent more than once. A server without the reply
    /// in its cache has executed it again.
    pub(super) is_repeated: bool,
}

impl<T> Replied<T> {
    /// Returns whether the operation failed with this status, and was possibly executed before.
    pub(super) fn is_repeated_with(&self, status: Status) -> bool {
        self.is_repeated && self.result.as_ref().err() == Some(&status)
    }
}

/// Holds the permit of a call until the reply.
pub(super) struct HeldPermit(pub(super) Permit);

impl Completion for HeldPermit {
    fn complete(self: Box<Self>, _outcome: Option<&Result<Bytes, CallError>>) {
        drop(self.0);
    }
}

/// Begins a record with the header of a call.
pub(super) fn start_record(xid: u32, caller: &Caller, procedure: Procedure) -> RecordWriter {
    let Procedure { program, version, number } = procedure;
    let header = CallHeader {
        credential: caller.credential().clone(),
        ..CallHeader::new(xid, program, version, number)
    };
    let mut record = RecordWriter::default();
    encode_call(record.writer(), &header, &());
    record
}

impl Nfs3 {
    /// Calls NULL, which every version has.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] if the server does not have version 3.
    pub(super) async fn null(&self) -> Result<(), OpError> {
        let caller = Caller::anonymous();
        let call =
            self.engine.call(self.connections[0], |xid| start_record(xid, &caller, nfs(Proc::NULL)).finish());
        let replied = call.await.map_err(OpError::from).and_then(|record| Ok(parse_reply::<()>(record)?));
        replied.map_err(|error| match error {
            error if lacks_program(&error) => OpError::Unsupported("NFS version 3"),
            error => error,
        })
    }

    /// Calls a procedure whose second execution has the same result.
    pub(super) async fn call<A: Arguments>(&self, caller: &Caller, arguments: &A) -> Result<A::Ok, OpError> {
        Ok(self.call_once(caller, arguments).await?.result?)
    }

    /// Calls a procedure, again with a new transaction ID while the server answers JUKEBOX (RFC 1813 §2.6); on a soft mount not
    /// forever.
    pub(super) async fn call_once<A: Arguments>(
        &self,
        caller: &Caller,
        arguments: &A,
    ) -> Result<Replied<A::Ok>, OpError> {
        let mut is_repeated = false;
        let limit = self.config.retry.delay_limit();
        let end = limit.map_or(Duration::MAX, |limit| self.engine.now() + limit);
        loop {
            let permit = self.permits.take().await;
            let held = Box::new(HeldPermit(permit));
            let Procedure { program, version, number } = A::PROCEDURE;
            let label = Label { program, version, number };
            let mut call = self.engine.call_labelled(self.pick_connection(), label, held, |xid| {
                let mut record = start_record(xid, caller, A::PROCEDURE);
                arguments.encode_to(&mut record);
                record.finish()
            });
            let record = (&mut call).await?;
            is_repeated |= call.sendings() > 1;
            let outcome = parse_reply::<Outcome<A::Ok, A::Fail>>(record)?;
            if matches!(outcome, Outcome::Fail(..)) {
                self.engine.note_error(label);
            }
            let result = match outcome {
                Outcome::Ok(ok) => Ok(ok),
                Outcome::Fail(NfsStat::JUKEBOX, _) if self.engine.now() < end => {
                    self.engine.sleep(JUKEBOX_PAUSE).await;
                    continue;
                }
                Outcome::Fail(status, _) => Err(Status(status.0)),
            };
            return Ok(Replied { result, is_repeated });
        }
    }

    fn pick_connection(&self) -> ConnectionId {
        let next = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.connections[next % self.connections.len()]
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
