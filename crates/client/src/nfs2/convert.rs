//! Converts arguments and results between the wire formats of versions 2 and 3.

use protocol::nfs2::{self, FHSIZE, FileHandle, TimeVal};
use protocol::nfs3::{
    self, CreateOk, DirOpArgs, Fattr, FileType, MknodData, NfsTime, PostOpAttr, Sattr, SetTime, SpecData,
    WccData,
};
use protocol::nfs4::types::Status;
use xdr::Opaque;

use super::FILE_SIZE_MAX;
use crate::attributes::Timestamp;
use crate::error::OpError;

/// Bytes of a unit of [`nfs2::Fattr::blocks`] in practice: those of `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// The device number of a named pipe, for which version 2 has no type: a convention of Sun.
const FIFO_DEVICE: u32 = u32::MAX;
/// Microseconds of a second. In a time to set, this number means the server's time: a convention of Sun.
const MICROSECONDS: u32 = 1_000_000;
const NANOSECONDS_OF_MICROSECOND: u32 = 1000;

/// The type in a mode (RFC 1094 §2.3.5).
pub(super) mod mode {
    pub(in super::super) const TYPE: u32 = 0o170_000;
    pub(in super::super) const FIFO: u32 = 0o010_000;
    pub(in super::super) const CHARACTER: u32 = 0o020_000;
    pub(in super::super) const DIRECTORY: u32 = 0o040_000;
    pub(in super::super) const BLOCK: u32 = 0o060_000;
    pub(in super::super) const REGULAR: u32 = 0o100_000;
    pub(in super::super) const SOCKET: u32 = 0o140_000;
}

/// Converts a handle.
///
/// # Errors
/// BADHANDLE if it is not one of version 2.
pub(super) fn handle(wire: &nfs3::FileHandle) -> Result<FileHandle, OpError> {
    <[u8; FHSIZE]>::try_from(&wire[..]).map_err(|_| OpError::Status(Status::BADHANDLE))
}

/// Converts a handle of the server.
pub(super) fn handle_back(wire: &FileHandle) -> nfs3::FileHandle {
    // Those of version 3 are longer.
    nfs3::FileHandle::new(wire).unwrap_or_default()
}

/// Converts the name of an entry.
///
/// # Errors
/// As [`handle`].
pub(super) fn place(wire: &DirOpArgs) -> Result<nfs2::DirOpArgs, OpError> {
    Ok(nfs2::DirOpArgs { dir: handle(&wire.dir)?, name: wire.name.clone() })
}

/// Converts attributes. A type that version 2 does not have becomes 0, which is none of version 3 either.
pub(super) fn attributes(wire: &nfs2::Fattr) -> Fattr {
    let file_type = match (wire.file_type, wire.mode & mode::TYPE) {
        (nfs2::FileType::CHR, _) if wire.rdev == FIFO_DEVICE => FileType::FIFO,
        (_, mode::FIFO) => FileType::FIFO,
        (_, mode::SOCKET) => FileType::SOCK,
        (nfs2::FileType::REG, _) => FileType::REG,
        (nfs2::FileType::DIR, _) => FileType::DIR,
        (nfs2::FileType::BLK, _) => FileType::BLK,
        (nfs2::FileType::CHR, _) => FileType::CHR,
        (nfs2::FileType::LNK, _) => FileType::LNK,
        _ => FileType(0),
    };
    let is_device = matches!(file_type, FileType::BLK | FileType::CHR);
    Fattr {
        file_type,
        mode: wire.mode,
        nlink: wire.nlink,
        uid: wire.uid,
        gid: wire.gid,
        size: wire.size.into(),
        used: u64::from(wire.blocks) * BLOCK_BYTES,
        rdev: if is_device { device(wire.rdev) } else { SpecData { major: 0, minor: 0 } },
        fsid: wire.fsid.into(),
        fileid: wire.fileid.into(),
        atime: time(wire.atime),
        mtime: time(wire.mtime),
        ctime: time(wire.ctime),
    }
}

/// Converts a time. Too many microseconds become too many nanoseconds, which are refused later.
fn time(wire: TimeVal) -> NfsTime {
    let nseconds = wire.useconds.saturating_mul(NANOSECONDS_OF_MICROSECOND);
    NfsTime { seconds: wire.seconds, nseconds }
}

/// Decodes a device number as Linux does. Numbers below 256 have the layout of every UNIX.
fn device(rdev: u32) -> SpecData {
    SpecData { major: rdev >> 8 & 0xfff, minor: (rdev & 0xff) | (rdev >> 12 & 0xf_ff00) }
}

fn device_back(SpecData { major, minor }: SpecData) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// Converts attributes to set.
///
/// # Errors
/// FBIG for a size that version 2 cannot set.
pub(super) fn set_attributes(set: &Sattr) -> Result<nfs2::Sattr, OpError> {
    let ignore = nfs2::Sattr::IGNORE;
    Ok(nfs2::Sattr {
        mode: set.mode.unwrap_or(ignore),
        uid: set.uid.unwrap_or(ignore),
        gid: set.gid.unwrap_or(ignore),
        size: set.size.map_or(Ok(ignore), size)?,
        atime: time_back(set.atime),
        mtime: time_back(set.mtime),
    })
}

/// Converts a size.
///
/// # Errors
/// FBIG above [`FILE_SIZE_MAX`].
fn size(size: u64) -> Result<u32, OpError> {
    match u32::try_from(size) {
        Ok(short) if size <= FILE_SIZE_MAX => Ok(short),
        _ => Err(OpError::Status(Status::FBIG)),
    }
}

fn time_back(time: SetTime) -> TimeVal {
    match time {
        SetTime::DontChange => nfs2::Sattr::NONE.mtime,
        SetTime::ToServerTime => TimeVal { seconds: 0, useconds: MICROSECONDS },
        // All ones mean that nothing is set.
        SetTime::ToClientTime(time) => TimeVal {
            seconds: time.seconds.min(u32::MAX - 1),
            useconds: time.nseconds / NANOSECONDS_OF_MICROSECOND,
        },
    }
}

/// Replaces the server's time by this machine's, if only one of both times is to be the server's: by Sun's convention it is requested
/// by `mtime`, and then for both.
pub(super) fn with_known_times(set: &Sattr, now: Option<Timestamp>) -> Sattr {
    let Some(now) = now else { return *set };
    let now = SetTime::ToClientTime(NfsTime {
        seconds: u32::try_from(now.seconds).unwrap_or(u32::MAX),
        nseconds: now.nanoseconds,
    });
    match (set.atime, set.mtime) {
        (SetTime::ToServerTime, SetTime::DontChange | SetTime::ToClientTime(_)) => {
            Sattr { atime: now, ..*set }
        }
        (SetTime::ToClientTime(_), SetTime::ToServerTime) => Sattr { mtime: now, ..*set },
        _ => *set,
    }
}

/// Adds a type to the mode that is set, as clients of version 2 do.
pub(super) fn with_type(set: &Sattr, of_type: u32) -> Result<nfs2::Sattr, OpError> {
    let set = set_attributes(set)?;
    let mode = if set.mode == nfs2::Sattr::IGNORE { set.mode } else { set.mode | of_type };
    Ok(nfs2::Sattr { mode, ..set })
}

/// Returns attributes by which CREATE makes a special file, and the type that it then has. By a convention of Sun, the type is in the
/// mode, and the size is the device number.
///
/// # Errors
/// BADTYPE for a type that cannot be created.
pub(super) fn special_file(what: &MknodData) -> Result<(nfs2::Sattr, FileType), OpError> {
    let made = |set: &Sattr, of_type: u32, rdev: u32| {
        let set = with_type(&Sattr { mode: Some(set.mode.unwrap_or(0)), ..*set }, of_type)?;
        Ok::<_, OpError>(nfs2::Sattr { size: rdev, ..set })
    };
    Ok(match what {
        MknodData::CharacterDevice(data) => {
            (made(&data.dev_attributes, mode::CHARACTER, device_back(data.spec))?, FileType::CHR)
        }
        MknodData::BlockDevice(data) => {
            (made(&data.dev_attributes, mode::BLOCK, device_back(data.spec))?, FileType::BLK)
        }
        MknodData::Fifo(set) => (made(set, mode::CHARACTER, FIFO_DEVICE)?, FileType::FIFO),
        MknodData::Socket(set) => (made(set, mode::SOCKET, 0)?, FileType::SOCK),
        MknodData::Other(_) => return Err(OpError::Status(Status::BADTYPE)),
    })
}

/// Converts the results of an operation that creates an object.
pub(super) fn created(wire: &nfs2::DirOpOk) -> CreateOk {
    CreateOk {
        obj: Some(handle_back(&wire.file)),
        obj_attributes: Some(attributes(&wire.attributes)),
        dir_wcc: WccData::default(),
    }
}

/// Returns the attributes after an operation. Those before it are not known.
pub(super) fn after(wire: &nfs2::Fattr) -> WccData {
    WccData { before: None, after: Some(attributes(wire)) }
}

/// Returns attributes of a reply.
pub(super) fn some(wire: &nfs2::Fattr) -> PostOpAttr {
    Some(attributes(wire))
}

/// Converts data, whose maximum is greater in version 3.
///
/// # Errors
/// None in practice.
pub(super) fn opaque<const FROM: usize, const TO: usize>(data: Opaque<FROM>) -> Result<Opaque<TO>, OpError> {
    Opaque::new(data.into_bytes()).map_err(|_| OpError::BadReply("more data than version 3 can carry"))
}
