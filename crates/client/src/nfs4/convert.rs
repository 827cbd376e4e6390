//! Conversions between attributes of version 4 and those of the client.

use protocol::nfs4::attributes::number;
use protocol::nfs4::attributes::values::SetTime as WireSetTime;
use protocol::nfs4::attributes::{Attributes as WireAttributes, FileAttributes, SetAttributes as WireSet};
use protocol::nfs4::types::{Bitmap, ChangeInfo, Component, FileType, Mode, Time, Utf8};

use crate::attributes::{
    Attributes, Before, Changed, FileKind, FsId, NOBODY, SetAttributes, SetTime, Timestamp,
};
use crate::errno::Errno;
use crate::error::OpError;

/// The attributes that the client asks for with each object.
pub(super) const WANTED: Bitmap = Bitmap::of(&[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FSID,
    number::FILEID,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::RAWDEV,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
    number::MOUNTED_ON_FILEID,
]);

/// Converts the attributes of an object.
///
/// # Errors
/// [`OpError::BadReply`] if they cannot be decoded or the type is missing.
pub(super) fn attributes(wire: &FileAttributes) -> Result<Attributes, OpError> {
    let wire = WireAttributes::from_file_attributes(wire)
        .map_err(|_| OpError::BadReply("attributes that cannot be decoded"))?;
    from_decoded(&wire)
}

pub(super) fn from_decoded(wire: &WireAttributes) -> Result<Attributes, OpError> {
    let kind = match wire.file_type {
        Some(FileType::REGULAR | FileType::NAMED_ATTRIBUTE) => FileKind::Regular,
        Some(FileType::DIRECTORY | FileType::ATTRIBUTE_DIRECTORY) => FileKind::Directory,
        Some(FileType::BLOCK) => FileKind::BlockDevice,
        Some(FileType::CHARACTER) => FileKind::CharacterDevice,
        Some(FileType::LINK) => FileKind::Symlink,
        Some(FileType::SOCKET) => FileKind::Socket,
        Some(FileType::FIFO) => FileKind::Fifo,
        _ => return Err(OpError::BadReply("an object without a known type")),
    };
    let is_directory = kind == FileKind::Directory;
    let size = wire.size.unwrap_or(0);
    let id = |name: &Option<Utf8>| name.as_ref().and_then(|name| numeric(name)).unwrap_or(NOBODY);
    let fsid = wire.fsid.unwrap_or_default();
    let device = wire.rawdev.unwrap_or_default();
    Ok(Attributes {
        kind,
        mode: wire.mode.map_or(if is_directory { 0o755 } else { 0o644 }, |mode| mode.bits() & 0o7777),
        nlink: wire.numlinks.unwrap_or(1),
        uid: id(&wire.owner),
        gid: id(&wire.owner_group),
        size,
        used: wire.space_used.unwrap_or(size),
        device: (device.major, device.minor),
        fsid: FsId { major: fsid.major, minor: fsid.minor },
        fileid: wire.fileid.or(wire.mounted_on_fileid).unwrap_or(0),
        atime: time(wire.time_access)?,
        mtime: time(wire.time_modify)?,
        ctime: time(wire.time_metadata)?,
        change: wire.change,
    })
}

/// Returns the number that a name of a user or group represents (RFC 8881 §5.9: a decimal number for AUTH_SYS).
fn numeric(name: &[u8]) -> Option<u32> {
    // "root" is 0 on every system.
    if name == b"root" || name.starts_with(b"root@") {
        return Some(0);
    }
    std::str::from_utf8(name).ok()?.parse().ok()
}

fn time(time: Option<Time>) -> Result<Timestamp, OpError> {
    let Time { seconds, nanoseconds } = time.unwrap_or_default();
    if nanoseconds >= 1_000_000_000 {
        return Err(OpError::BadReply("a time with too many nanoseconds"));
    }
    Ok(Timestamp { seconds, nanoseconds })
}

/// Converts the change of a directory or file.
pub(super) fn changed(info: ChangeInfo, after: Option<Attributes>) -> Changed {
    Changed {
        before: info.atomic.then_some(Before::Change(info.before)),
        change_after: Some(info.after),
        after,
    }
}

/// Converts attributes to set.
pub(super) fn set_attributes(set: &SetAttributes) -> FileAttributes {
    let number = |id: u32| Utf8::new(id.to_string().into_bytes()).unwrap_or_default();
    let time = |time: SetTime| match time {
        SetTime::Keep => None,
        SetTime::Now => Some(WireSetTime::ServerTime),
        SetTime::To(Timestamp { seconds, nanoseconds }) => {
            Some(WireSetTime::ClientTime(Time { seconds, nanoseconds }))
        }
    };
    let wire = WireSet {
        size: set.size,
        mode: set.mode.map(|mode| Mode::from_bits_retain(mode & 0o7777)),
        owner: set.uid.map(number),
        owner_group: set.gid.map(number),
        time_access_set: time(set.atime),
        time_modify_set: time(set.mtime),
        ..WireSet::default()
    };
    wire.to_file_attributes()
}

/// Converts a name to look up or create.
///
/// # Errors
/// [`OpError::Invalid`] for names that no directory can contain.
pub(super) fn component(name: &[u8]) -> Result<Component, OpError> {
    crate::names::check(name)?;
    Component::new(bytes::Bytes::copy_from_slice(name))
        .map_err(|_| OpError::Invalid(Errno::ENAMETOOLONG, "the name is too long"))
}
