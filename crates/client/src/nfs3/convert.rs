//! Converts attributes, names and types between version 3 and the client.

use bytes::Bytes;
use protocol::nfs3::{
    DirOpArgs, Fattr, FileType, Filename, NfsTime, PostOpAttr, Sattr, SetTime as WireSetTime, WccAttr,
    WccData,
};

use super::calls::to_wire;
use crate::attributes::{Attributes, Before, Changed, FileKind, FsId, SetAttributes, SetTime, Timestamp};
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::FileHandle;

/// Converts attributes.
///
/// # Errors
/// [`OpError::BadReply`] for a type or a time that does not exist.
pub(super) fn attributes(wire: &Fattr) -> Result<Attributes, OpError> {
    let kind = match wire.file_type {
        FileType::REG => FileKind::Regular,
        FileType::DIR => FileKind::Directory,
        FileType::BLK => FileKind::BlockDevice,
        FileType::CHR => FileKind::CharacterDevice,
        FileType::LNK => FileKind::Symlink,
        FileType::SOCK => FileKind::Socket,
        FileType::FIFO => FileKind::Fifo,
        _ => return Err(OpError::BadReply("an object without a known type")),
    };
    Ok(Attributes {
        kind,
        mode: wire.mode & 0o7777,
        nlink: wire.nlink,
        uid: wire.uid,
        gid: wire.gid,
        size: wire.size,
        used: wire.used,
        device: (wire.rdev.major, wire.rdev.minor),
        fsid: FsId { major: wire.fsid, minor: 0 },
        fileid: wire.fileid,
        atime: time(wire.atime)?,
        mtime: time(wire.mtime)?,
        ctime: time(wire.ctime)?,
        change: None,
    })
}

/// Converts attributes that a reply may have.
pub(super) fn post_op(wire: &PostOpAttr) -> Result<Option<Attributes>, OpError> {
    wire.as_ref().map(attributes).transpose()
}

fn time(wire: NfsTime) -> Result<Timestamp, OpError> {
    if wire.nseconds >= 1_000_000_000 {
        return Err(OpError::BadReply("a time with too many nanoseconds"));
    }
    Ok(Timestamp { seconds: wire.seconds.into(), nanoseconds: wire.nseconds })
}

/// Converts weak cache consistency data (RFC 1813 §2.6).
pub(super) fn changed(wire: &WccData) -> Result<Changed, OpError> {
    let before = |WccAttr { size, mtime, ctime }: WccAttr| {
        Ok::<_, OpError>(Before::Weak { size, mtime: time(mtime)?, ctime: time(ctime)? })
    };
    let before = wire.before.map(before).transpose()?;
    Ok(Changed { before, change_after: None, after: post_op(&wire.after)? })
}

/// Converts attributes to set. Times outside of version 3's range become the nearest possible ones, as on Linux.
pub(super) fn set_attributes(set: &SetAttributes) -> Sattr {
    let time = |time: SetTime| match time {
        SetTime::Keep => WireSetTime::DontChange,
        SetTime::Now => WireSetTime::ToServerTime,
        SetTime::To(time) => WireSetTime::ToClientTime(nearest_time(time)),
    };
    Sattr {
        mode: set.mode.map(|mode| mode & 0o7777),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: time(set.atime),
        mtime: time(set.mtime),
    }
}

fn nearest_time(time: Timestamp) -> NfsTime {
    match u32::try_from(time.seconds) {
        Ok(seconds) => NfsTime { seconds, nseconds: time.nanoseconds },
        Err(_) if time.seconds < 0 => NfsTime::default(),
        Err(_) => NfsTime { seconds: u32::MAX, nseconds: 999_999_999 },
    }
}

/// Returns the arguments that name an entry of a directory.
///
/// # Errors
/// [`OpError::Invalid`] for names that no directory has.
pub(super) fn entry_of(directory: &FileHandle, name: &[u8]) -> Result<DirOpArgs, OpError> {
    crate::names::check(name)?;
    let name = Filename::new(Bytes::copy_from_slice(name))
        .map_err(|_| OpError::Invalid(Errno::ENAMETOOLONG, "the name is too long"))?;
    Ok(DirOpArgs { dir: to_wire(directory)?, name })
}

#[cfg(test)]
mod tests {
    use protocol::nfs3::SpecData;

    use super::*;

    fn fattr() -> Fattr {
        let time = NfsTime { seconds: u32::MAX, nseconds: 999_999_999 };
        Fattr {
            file_type: FileType::CHR,
            mode: 0o170_644,
            nlink: 2,
            uid: 3,
            gid: 4,
            size: 5,
            used: 6,
            rdev: SpecData { major: 7, minor: 8 },
            fsid: 9,
            fileid: 10,
            atime: time,
            mtime: NfsTime { seconds: 11, nseconds: 12 },
            ctime: time,
        }
    }

    #[test]
    fn attributes_are_converted_and_impossible_ones_refused() {
        let taken = attributes(&fattr()).unwrap();
        assert_eq!((taken.kind, taken.mode, taken.device), (FileKind::CharacterDevice, 0o644, (7, 8)));
        assert_eq!((taken.fsid, taken.fileid), (FsId { major: 9, minor: 0 }, 10));
        assert_eq!(taken.mtime, Timestamp { seconds: 11, nanoseconds: 12 });
        assert_eq!(taken.atime, Timestamp { seconds: 4_294_967_295, nanoseconds: 999_999_999 });
        let late = NfsTime { seconds: 1, nseconds: 1_000_000_000 };
        for wrong in [
            Fattr { file_type: FileType(0), ..fattr() },
            Fattr { file_type: FileType(8), ..fattr() },
            Fattr { atime: late, ..fattr() },
            Fattr { mtime: late, ..fattr() },
            Fattr { ctime: late, ..fattr() },
        ] {
            assert!(matches!(attributes(&wrong), Err(OpError::BadReply(_))), "{wrong:?}");
        }
    }

    #[test]
    fn weak_data_are_converted_and_impossible_times_refused() {
        let before =
            WccAttr { size: 1, mtime: NfsTime { seconds: 2, nseconds: 3 }, ctime: NfsTime::default() };
        let taken = changed(&WccData { before: Some(before), after: None }).unwrap();
        let mtime = Timestamp { seconds: 2, nanoseconds: 3 };
        assert_eq!(taken.before, Some(Before::Weak { size: 1, mtime, ctime: Timestamp::default() }));
        assert_eq!((taken.after, taken.change_after), (None, None));
        let wrong = WccAttr { ctime: NfsTime { seconds: 2, nseconds: u32::MAX }, ..before };
        let wrong = changed(&WccData { before: Some(wrong), after: None });
        assert!(matches!(wrong, Err(OpError::BadReply(_))));
    }

    #[test]
    fn times_outside_of_version_3_become_the_nearest() {
        let at = |seconds| Timestamp { seconds, nanoseconds: 7 };
        assert_eq!(nearest_time(at(-1)), NfsTime { seconds: 0, nseconds: 0 });
        assert_eq!(nearest_time(at(0)), NfsTime { seconds: 0, nseconds: 7 });
        assert_eq!(nearest_time(at(u32::MAX.into())), NfsTime { seconds: u32::MAX, nseconds: 7 });
        assert_eq!(nearest_time(at(1 << 32)), NfsTime { seconds: u32::MAX, nseconds: 999_999_999 });
    }
}
