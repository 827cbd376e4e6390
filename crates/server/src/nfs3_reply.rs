//! Conversions for NFS 3 and NFS_ACL: from handles to files, from attributes and errors to the wire.

use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs3::{
    Fattr, FileHandle, FileType, NfsStat, NfsTime, Outcome, PostOpAttr, Sattr, SetTime, SpecData, WccAttr,
    WccData,
};
use vfs::{Attributes, Before, Change, Error, FileKind, Handle, SetAttributes, Timestamp};
use xdr::{Decode, Encode, Reader, Writer};

use crate::Export;
use crate::files::rights::Right;
use crate::files::stateless;
use crate::files::stateless::Refusal;
use crate::request::{Request, Served, Target, TargetError};
use crate::state::{Conflict, IoKind};

/// Nanoseconds of a second.
const SECOND_NS: u32 = 1_000_000_000;

/// Returns the status for an error. If version 3 has no exact status, it is the nearest one that clients expect.
pub(crate) fn status(error: Error) -> NfsStat {
    match error {
        Error::NotPermitted => NfsStat::PERM,
        Error::NotFound | Error::NoXattr => NfsStat::NOENT,
        Error::Io => NfsStat::IO,
        Error::NoDevice => NfsStat::NXIO,
        // An invalid name is refused as RFC 1813 §3.3.8 allows: "the server may return NFS3ERR_ACCES".
        Error::Access | Error::BadName => NfsStat::ACCES,
        Error::Exists => NfsStat::EXIST,
        Error::CrossDevice => NfsStat::XDEV,
        Error::NotDirectory => NfsStat::NOTDIR,
        Error::IsDirectory => NfsStat::ISDIR,
        Error::IsSymlink | Error::WrongKind | Error::Invalid => NfsStat::INVAL,
        Error::TooLarge => NfsStat::FBIG,
        Error::NoSpace => NfsStat::NOSPC,
        Error::Quota => NfsStat::DQUOT,
        Error::ReadOnly => NfsStat::ROFS,
        Error::TooManyLinks => NfsStat::MLINK,
        Error::NameTooLong => NfsStat::NAMETOOLONG,
        Error::NotEmpty => NfsStat::NOTEMPTY,
        Error::Stale => NfsStat::STALE,
        Error::BadHandle => NfsStat::BADHANDLE,
        Error::BadCookie => NfsStat::BAD_COOKIE,
        Error::NotSync => NfsStat::NOT_SYNC,
        Error::NotSupported => NfsStat::NOTSUPP,
        Error::TooBig => NfsStat::TOOSMALL,
        // RFC 1813 §2.6: JUKEBOX is for a request that "was initiated but … not completed in a timely fashion".
        Error::Busy | Error::Later => NfsStat::JUKEBOX,
        Error::ServerFault => NfsStat::SERVERFAULT,
    }
}

/// Returns the status for a failed removal of a name. A busy object has a mount on it: with JUKEBOX the client would repeat the call
/// without end. Linux's server answers ACCES as well.
pub(crate) fn removal_status(error: Error) -> NfsStat {
    if error == Error::Busy { NfsStat::ACCES } else { status(error) }
}

/// Resolves a file handle.
pub(crate) fn resolve<'r>(request: &'r Request<'_>, handle: &FileHandle) -> Result<Target<'r>, NfsStat> {
    request.target(handle).map_err(target_status)
}

/// As [`resolve`], for procedures that clients call when they mount.
pub(crate) fn resolve_at_mount<'r>(
    request: &'r Request<'_>,
    handle: &FileHandle,
) -> Result<Target<'r>, NfsStat> {
    request.target_at_mount(handle).map_err(target_status)
}

fn target_status(error: TargetError) -> NfsStat {
    match error {
        TargetError::BadHandle => NfsStat::BADHANDLE,
        TargetError::Stale => NfsStat::STALE,
        // Clients do not see the status for a weak flavor: the RPC reply refuses the call.
        TargetError::NotAdmitted | TargetError::TooWeak => NfsStat::ACCES,
        // As Linux's server answers.
        TargetError::UnprivilegedPort => NfsStat::PERM,
        // RFC 1813 §2.6: the handle "referred to a file on a non-local file system on the server".
        TargetError::Moved => NfsStat::REMOTE,
    }
}

/// As [`stateless::check_denials`].
pub(crate) fn check_denials(request: &Request<'_>, target: &Target<'_>, kind: IoKind) -> Result<(), NfsStat> {
    stateless::check_denials(request, target, kind).map_err(refusal_status)
}

/// As [`stateless::recall_conflicts`].
pub(crate) async fn recall_conflicts(
    request: &Request<'_>,
    target: &Target<'_>,
    against: Conflict,
    right: Right<'_>,
) -> Result<(), NfsStat> {
    stateless::recall_conflicts(request, target, against, right).await.map_err(status)
}

/// As [`stateless::admit_io`].
pub(crate) async fn admit_io(
    request: &Request<'_>,
    target: &Target<'_>,
    kind: IoKind,
) -> Result<(), NfsStat> {
    stateless::admit_io(request, target, kind).await.map_err(refusal_status)
}

/// Returns the status for an operation that conflicts. Version 3 has no status for a denied share; with JUKEBOX its client tries again.
pub(crate) fn refusal_status(refusal: Refusal) -> NfsStat {
    match refusal {
        Refusal::Denied => NfsStat::JUKEBOX,
        Refusal::Failed(error) => status(error),
    }
}

/// As [`resolve`], for procedures that change the object.
pub(crate) fn resolve_writable<'r>(
    request: &'r Request<'_>,
    handle: &FileHandle,
) -> Result<Target<'r>, NfsStat> {
    let target = resolve(request, handle)?;
    if target.export.options.read_only { Err(NfsStat::ROFS) } else { Ok(target) }
}

/// Writes the results. Returns their status.
pub(crate) fn answer<T: Encode, F: Encode>(reply: &mut Writer, outcome: &Outcome<T, F>) -> NfsStat {
    outcome.encode(reply);
    outcome.status()
}

impl Target<'_> {
    /// Returns the file's attributes for the reply to a failed call, if they can be read.
    pub(crate) async fn post_op(&self) -> PostOpAttr {
        let attributes = self.export.backend.getattr(&self.context, &self.handle).await;
        attributes.ok().map(|attributes| fattr(self.export, &attributes))
    }

    /// As [`Self::post_op`], without attributes from before the call.
    pub(crate) async fn wcc(&self) -> WccData {
        WccData { before: None, after: self.post_op().await }
    }

    /// Encodes a handle of this export.
    pub(crate) fn seal(&self, request: &Request<'_>, handle: &Handle) -> FileHandle {
        seal(request, self.export, handle)
    }
}

/// Encodes a backend's handle.
pub(crate) fn seal(request: &Request<'_>, export: &Export, handle: &Handle) -> FileHandle {
    let wire = export.seal(&request.server.settings.handle_key, handle);
    FileHandle::new(&wire).expect("wire handles fit version 3's bound")
}

/// Encodes attributes.
pub(crate) fn fattr(export: &Export, attributes: &Attributes) -> Fattr {
    Fattr {
        file_type: file_type(attributes.kind),
        mode: attributes.mode,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        size: attributes.size,
        used: attributes.used,
        rdev: SpecData { major: attributes.device.major, minor: attributes.device.minor },
        fsid: export.fsid.0 ^ export.fsid.1 ^ attributes.fsid,
        fileid: attributes.fileid,
        atime: nfs_time(attributes.accessed),
        mtime: nfs_time(attributes.modified),
        ctime: nfs_time(attributes.changed),
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::REG,
        FileKind::Directory => FileType::DIR,
        FileKind::Symlink => FileType::LNK,
        FileKind::BlockDevice => FileType::BLK,
        FileKind::CharDevice => FileType::CHR,
        FileKind::Fifo => FileType::FIFO,
        FileKind::Socket => FileType::SOCK,
    }
}

/// Encodes a time. The wire has 1970 to 2106 only; other times become the nearest one.
pub(crate) fn nfs_time(time: Timestamp) -> NfsTime {
    match u32::try_from(time.seconds) {
        Ok(seconds) => NfsTime { seconds, nseconds: time.nanoseconds },
        Err(_) if time.seconds < 0 => NfsTime { seconds: 0, nseconds: 0 },
        Err(_) => NfsTime { seconds: u32::MAX, nseconds: SECOND_NS - 1 },
    }
}

/// Decodes a time.
pub(crate) fn timestamp(time: NfsTime) -> Result<Timestamp, NfsStat> {
    if time.nseconds >= SECOND_NS {
        return Err(NfsStat::INVAL);
    }
    Ok(Timestamp { seconds: i64::from(time.seconds), nanoseconds: time.nseconds })
}

/// Encodes an object's attributes around a change. RFC 1813 §2.6: a server that does not know the earlier ones omits them.
pub(crate) fn wcc_data(export: &Export, change: &Change) -> WccData {
    let Before { size, modified, changed, .. } = change.before;
    let before = WccAttr { size, mtime: nfs_time(modified), ctime: nfs_time(changed) };
    WccData { before: change.atomic.then_some(before), after: Some(fattr(export, &change.after)) }
}

/// Decodes attributes to set.
pub(crate) fn set_attributes(sattr: &Sattr) -> Result<SetAttributes, NfsStat> {
    let set_time = |time| {
        Ok(match time {
            SetTime::DontChange => None,
            SetTime::ToServerTime => Some(vfs::SetTime::Now),
            SetTime::ToClientTime(time) => Some(vfs::SetTime::To(timestamp(time)?)),
        })
    };
    Ok(SetAttributes {
        mode: sattr.mode.map(|mode| mode & 0o7777),
        umask: None,
        uid: sattr.uid,
        gid: sattr.gid,
        size: sattr.size,
        accessed: set_time(sattr.atime)?,
        modified: set_time(sattr.mtime)?,
    })
}

/// Returns the outcome of a call whose results have this status.
pub(crate) fn done(request: &Request<'_>, status: NfsStat) -> Served {
    match status {
        _ if request.is_too_weak.load(Relaxed) => Served::TooWeak,
        NfsStat::JUKEBOX => Served::Later,
        status => Served::Done { is_error: status != NfsStat::OK },
    }
}

/// Decodes arguments. Ignores bytes after them, like Linux's server: some clients pad.
pub(crate) fn whole<T: Decode>(mut arguments: Reader) -> Option<T> {
    T::decode(&mut arguments).ok()
}
