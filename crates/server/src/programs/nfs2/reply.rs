//! Conversions of version 2: handles to files, and attributes and errors to their wire formats.

use protocol::nfs2::{DirOpOk, FHSIZE, Fattr, FileHandle, FileType, Outcome, Sattr, Stat, TimeVal};
use tracing::warn;
use vfs::{Attributes, Device, Error, FileKind, Handle, SetAttributes, SetTime, Timestamp};
use xdr::{Encode, Writer};

use crate::files::stateless::Refusal;
use crate::request::{Request, Target, TargetError};
use crate::{Export, LargeFiles, SHORT_HANDLE_BYTES};

const _: () = assert!(FHSIZE == SHORT_HANDLE_BYTES);

/// The reason why a call has no results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The reply is this status.
    Status(Stat),
    /// There is no reply, because version 2 has no status for it: the client repeats the call.
    Later,
}

impl From<Stat> for Failure {
    fn from(status: Stat) -> Self {
        Self::Status(status)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Later => Self::Later,
            error => Self::Status(status(error)),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            // As Linux's server: a client would repeat the call for as long as the file is open.
            Refusal::Denied => Self::Status(Stat::ACCES),
            Refusal::Failed(error) => error.into(),
        }
    }
}

/// Returns the status for an error. RFC 1094 §2.3.1 has few; other errors become IO.
pub(super) fn status(error: Error) -> Stat {
    match error {
        Error::NotPermitted => Stat::PERM,
        Error::NotFound | Error::NoXattr => Stat::NOENT,
        Error::NoDevice => Stat::NXIO,
        // Linux's server answers these for other exports and mount points.
        Error::Access | Error::BadName | Error::CrossDevice | Error::Busy => Stat::ACCES,
        Error::Exists => Stat::EXIST,
        Error::NotDirectory => Stat::NOTDIR,
        Error::IsDirectory => Stat::ISDIR,
        Error::TooLarge => Stat::FBIG,
        Error::NoSpace => Stat::NOSPC,
        Error::Quota => Stat::DQUOT,
        Error::ReadOnly => Stat::ROFS,
        Error::NameTooLong => Stat::NAMETOOLONG,
        Error::NotEmpty => Stat::NOTEMPTY,
        Error::Stale | Error::BadHandle => Stat::STALE,
        Error::Io
        | Error::IsSymlink
        | Error::WrongKind
        | Error::Invalid
        | Error::TooManyLinks
        | Error::BadCookie
        | Error::NotSync
        | Error::NotSupported
        | Error::TooBig
        | Error::Later
        | Error::ServerFault => Stat::IO,
    }
}

/// Resolves a file handle.
pub(super) fn resolve<'r>(request: &'r Request<'_>, handle: &FileHandle) -> Result<Target<'r>, Failure> {
    request.target(handle).map_err(target_failure)
}

/// As [`resolve`], for procedures that clients call when they mount.
pub(super) fn resolve_at_mount<'r>(
    request: &'r Request<'_>,
    handle: &FileHandle,
) -> Result<Target<'r>, Failure> {
    request.target_at_mount(handle).map_err(target_failure)
}

/// As [`resolve`], for procedures that change the object.
pub(super) fn resolve_writable<'r>(
    request: &'r Request<'_>,
    handle: &FileHandle,
) -> Result<Target<'r>, Failure> {
    let target = resolve(request, handle)?;
    if target.export.options.read_only { Err(Stat::ROFS.into()) } else { Ok(target) }
}

fn target_failure(error: TargetError) -> Failure {
    Failure::Status(match error {
        // Version 2 has no status for a file system that has moved.
        TargetError::BadHandle | TargetError::Stale | TargetError::Moved => Stat::STALE,
        // Clients do not see the status for a weak flavor: the RPC reply refuses the call.
        TargetError::NotAdmitted | TargetError::TooWeak => Stat::ACCES,
        TargetError::UnprivilegedPort => Stat::PERM,
    })
}

/// Writes the results of a successful call.
pub(super) fn answer<T: Encode>(reply: &mut Writer, results: T) -> Result<(), Failure> {
    Outcome::Ok(results).encode(reply);
    Ok(())
}

/// Returns the handle and the attributes of an object.
pub(super) fn object(
    request: &Request<'_>,
    export: &Export,
    handle: &Handle,
    attributes: Fattr,
) -> Result<DirOpOk, Failure> {
    Ok(DirOpOk { file: seal(request, export, handle)?, attributes })
}

/// Encodes a backend's handle.
///
/// # Errors
/// IO if it is too long for version 2.
fn seal(request: &Request<'_>, export: &Export, handle: &Handle) -> Result<FileHandle, Failure> {
    let wire = request.server.settings.handle_key.seal_short(export.id, handle);
    wire.ok_or_else(|| {
        if let Some(suppressed) = request.server.throttle.admit(request.now) {
            let (export, bytes) = (&export.path, handle.len());
            warn!(export, bytes, suppressed, "NFSv2 call failed: the file system's handles are too long");
        }
        Failure::Status(Stat::IO)
    })
}

/// Bytes of a block in [`Fattr::blocks`].
const BLOCK_BYTES: u64 = 512;

/// Encodes attributes.
///
/// # Errors
/// FBIG for a file that is too long for version 2, unless its export clamps sizes.
pub(super) fn fattr(export: &Export, attributes: &Attributes) -> Result<Fattr, Failure> {
    if attributes.kind == FileKind::Regular && export.options.v2_large_files == LargeFiles::Refuse {
        check_size(export, attributes.size)?;
    }
    Ok(fattr_after_change(export, attributes))
}

/// Encodes the attributes after a change that was made. A file that is too long for version 2 has the greatest size: FBIG would deny the
/// change.
pub(super) fn fattr_after_change(export: &Export, attributes: &Attributes) -> Fattr {
    let (file_type, kind_bits) = kind(attributes.kind);
    Fattr {
        file_type,
        mode: kind_bits | attributes.mode,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        size: clamp(attributes.size).min(export.options.v2_max_size()),
        blocksize: 4096,
        rdev: rdev(attributes),
        blocks: clamp(attributes.used.div_ceil(BLOCK_BYTES)),
        fsid: fold(export.fsid.0 ^ export.fsid.1 ^ attributes.fsid),
        fileid: fold(attributes.fileid),
        atime: time_val(attributes.accessed),
        mtime: time_val(attributes.modified),
        ctime: time_val(attributes.changed),
    }
}

/// Returns a number, or the greatest one of 32 bits.
pub(super) fn clamp(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns 32 bits of an identity: the number itself if it is that small.
pub(super) fn fold(identity: u64) -> u32 {
    (identity ^ (identity >> 32)) as u32
}

/// Bits of a mode for the type (RFC 1094 §2.3.5).
pub(super) mod mode {
    pub(crate) const TYPE: u32 = 0o170_000;
    pub(crate) const FIFO: u32 = 0o010_000;
    pub(crate) const CHARACTER: u32 = 0o020_000;
    pub(crate) const DIRECTORY: u32 = 0o040_000;
    pub(crate) const BLOCK: u32 = 0o060_000;
    pub(crate) const REGULAR: u32 = 0o100_000;
    pub(crate) const SYMLINK: u32 = 0o120_000;
    pub(crate) const SOCKET: u32 = 0o140_000;
    pub(crate) const PERMISSIONS: u32 = 0o7777;
}

/// The device number of a named pipe. Version 2 has no type for it; by a convention of Sun it is a character device with this number.
pub(super) const FIFO_DEVICE: u32 = u32::MAX;

fn kind(kind: FileKind) -> (FileType, u32) {
    match kind {
        FileKind::Regular => (FileType::REG, mode::REGULAR),
        FileKind::Directory => (FileType::DIR, mode::DIRECTORY),
        FileKind::Symlink => (FileType::LNK, mode::SYMLINK),
        FileKind::BlockDevice => (FileType::BLK, mode::BLOCK),
        FileKind::CharDevice | FileKind::Fifo => (FileType::CHR, mode::CHARACTER),
        FileKind::Socket => (FileType::NON, mode::SOCKET),
    }
}

fn rdev(attributes: &Attributes) -> u32 {
    match attributes.kind {
        FileKind::BlockDevice | FileKind::CharDevice => encode_device(attributes.device),
        FileKind::Fifo => FIFO_DEVICE,
        _ => 0,
    }
}

/// Encodes a device number as Linux does. Numbers below 256 have the layout of every UNIX.
fn encode_device(Device { major, minor }: Device) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// Decodes a device number.
pub(super) fn decode_device(rdev: u32) -> Device {
    Device { major: rdev >> 8 & 0xfff, minor: (rdev & 0xff) | (rdev >> 12 & 0xf_ff00) }
}

/// Encodes a time. The wire format has only 1970 to 2106; other times become the nearest one.
fn time_val(time: Timestamp) -> TimeVal {
    match u32::try_from(time.seconds) {
        Ok(seconds) => TimeVal { seconds, useconds: time.nanoseconds / 1000 },
        Err(_) if time.seconds < 0 => TimeVal::default(),
        Err(_) => TimeVal { seconds: u32::MAX, useconds: MICROSECONDS - 1 },
    }
}

/// Microseconds of a second. In a time to set, this number means the server's time: a convention of Sun that Linux's client follows.
const MICROSECONDS: u32 = 1_000_000;

/// The mode that old clients send if they set none: 16 bits of -1.
const NO_MODE_16: u32 = 0xffff;

/// Decodes attributes to set. The type in the mode is ignored.
pub(super) fn set_attributes(sattr: &Sattr) -> Result<SetAttributes, Failure> {
    let given = |value: u32| (value != Sattr::IGNORE).then_some(value);
    let modified = set_time(sattr.mtime)?;
    let accessed = set_time(sattr.atime)?;
    Ok(SetAttributes {
        mode: given(sattr.mode).filter(|mode| *mode != NO_MODE_16).map(|mode| mode & mode::PERMISSIONS),
        umask: None,
        uid: given(sattr.uid),
        gid: given(sattr.gid),
        size: given(sattr.size).map(u64::from),
        // Sun's clients mark only one of the two times.
        accessed: accessed.map(|time| if modified == Some(SetTime::Now) { SetTime::Now } else { time }),
        modified,
    })
}

fn set_time(time: TimeVal) -> Result<Option<SetTime>, Failure> {
    match time {
        TimeVal { seconds: Sattr::IGNORE, .. } | TimeVal { useconds: Sattr::IGNORE, .. } => Ok(None),
        TimeVal { useconds: MICROSECONDS, .. } => Ok(Some(SetTime::Now)),
        TimeVal { seconds, useconds } if useconds < MICROSECONDS => {
            let (seconds, nanoseconds) = (i64::from(seconds), useconds * 1000);
            Ok(Some(SetTime::To(Timestamp { seconds, nanoseconds })))
        }
        _ => Err(status(Error::Invalid).into()),
    }
}

/// Refuses a size above the export's maximum in version 2.
pub(super) fn check_size(export: &Export, size: u64) -> Result<(), Failure> {
    if size > u64::from(export.options.v2_max_size()) { Err(Stat::FBIG.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::export;

    fn attributes(kind: FileKind, size: u64) -> Attributes {
        let time = Timestamp { seconds: 7, nanoseconds: 8_999 };
        Attributes {
            kind,
            mode: 0o644,
            links: 1,
            uid: 2,
            gid: 3,
            size,
            used: 513,
            device: Device { major: 0, minor: 0 },
            fsid: 0,
            fileid: 5,
            accessed: time,
            modified: time,
            changed: time,
            created: None,
            change: 0,
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused_or_clamped() {
        let mut export = export(1, "/export");
        let size = |export: &Export, size| {
            fattr(export, &attributes(FileKind::Regular, size)).map(|fattr| fattr.size)
        };
        let refused = Err(Failure::Status(Stat::FBIG));
        let (four, two) = (u64::from(u32::MAX), i32::MAX as u64);
        assert_eq!((size(&export, four), size(&export, four + 1)), (Ok(u32::MAX), refused));
        export.options.v2_signed_sizes = true;
        assert_eq!((size(&export, two), size(&export, two + 1)), (Ok(i32::MAX as u32), refused));
        export.options.v2_large_files = LargeFiles::Clamp;
        assert_eq!((size(&export, 9), size(&export, u64::MAX)), (Ok(9), Ok(i32::MAX as u32)));
        export.options.v2_large_files = LargeFiles::Refuse;
        let directory = fattr(&export, &attributes(FileKind::Directory, u64::MAX)).unwrap();
        assert_eq!(directory.size, i32::MAX as u32, "any size is valid for a directory");
    }

    #[test]
    fn numbers_are_clamped_and_identities_folded() {
        let export = Export { fsid: (1 << 32, 2), ..export(1, "/export") };
        let far = |seconds| Timestamp { seconds, nanoseconds: 999_999_999 };
        let (used, fileid) = (u64::MAX, 0x0000_0003_0000_0004);
        let (accessed, modified) = (far(-1), far(1 << 32));
        let shown = attributes(FileKind::Regular, 1);
        let shown = fattr(&export, &Attributes { used, fileid, accessed, modified, ..shown }).unwrap();
        assert_eq!((shown.blocks, shown.fileid, shown.fsid), (u32::MAX, 7, 3));
        assert_eq!(shown.atime, TimeVal { seconds: 0, useconds: 0 });
        assert_eq!(shown.mtime, TimeVal { seconds: u32::MAX, useconds: 999_999 });
        assert_eq!(shown.ctime, TimeVal { seconds: 7, useconds: 8 });
        assert_eq!(fattr(&export, &attributes(FileKind::Regular, 1)).unwrap().blocks, 2);
    }

    /// RFC 1094 §2.3.5: "the file type is specified both in the mode bits and in the file type".
    #[test]
    fn mode_and_type_agree() {
        let export = export(1, "/export");
        let device = Device { major: 0x123, minor: 0x4_5678 };
        for (kind, expected) in [
            (FileKind::Regular, (FileType::REG, 0o100_644, 0)),
            (FileKind::Directory, (FileType::DIR, 0o040_644, 0)),
            (FileKind::Symlink, (FileType::LNK, 0o120_644, 0)),
            (FileKind::BlockDevice, (FileType::BLK, 0o060_644, 0x4561_2378)),
            (FileKind::CharDevice, (FileType::CHR, 0o020_644, 0x4561_2378)),
            (FileKind::Fifo, (FileType::CHR, 0o020_644, u32::MAX)),
            (FileKind::Socket, (FileType::NON, 0o140_644, 0)),
        ] {
            let fattr = fattr(&export, &Attributes { device, ..attributes(kind, 1) }).unwrap();
            assert_eq!((fattr.file_type, fattr.mode, fattr.rdev), expected, "{kind:?}");
        }
        assert_eq!(decode_device(0x4561_2378), device);
        assert_eq!(decode_device(0x0801), Device { major: 8, minor: 1 });
    }

    #[test]
    fn fields_of_minus_one_are_unchanged() {
        assert_eq!(set_attributes(&Sattr::NONE), Ok(SetAttributes::default()));
        let old = Sattr { mode: 0xffff, ..Sattr::NONE };
        assert_eq!(set_attributes(&old), Ok(SetAttributes::default()));
        let sattr = Sattr { mode: 0o104_755, uid: 0, gid: 0, size: 0, ..Sattr::NONE };
        let expected = SetAttributes {
            mode: Some(0o4755),
            uid: Some(0),
            gid: Some(0),
            size: Some(0),
            ..SetAttributes::default()
        };
        assert_eq!(set_attributes(&sattr), Ok(expected));
    }

    #[test]
    fn a_million_microseconds_are_the_servers_time() {
        let times = |atime, mtime| {
            let set = set_attributes(&Sattr { atime, mtime, ..Sattr::NONE })?;
            Ok::<_, Failure>((set.accessed, set.modified))
        };
        let (none, now) = (Sattr::NONE.mtime, TimeVal { seconds: 5, useconds: 1_000_000 });
        let some = TimeVal { seconds: 5, useconds: 6 };
        let to = Some(SetTime::To(Timestamp { seconds: 5, nanoseconds: 6000 }));
        assert_eq!(times(some, some), Ok((to, to)));
        assert_eq!(times(none, now), Ok((None, Some(SetTime::Now))));
        assert_eq!(times(now, none), Ok((Some(SetTime::Now), None)));
        assert_eq!(times(some, now), Ok((Some(SetTime::Now), Some(SetTime::Now))));
        let wrong = TimeVal { seconds: 5, useconds: 1_000_001 };
        assert_eq!(times(wrong, none), Err(Failure::Status(Stat::IO)));
    }
}
