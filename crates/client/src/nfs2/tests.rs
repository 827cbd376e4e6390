use protocol::nfs2::{self, TimeVal};
use protocol::nfs3::{Fattr, FileType, NfsTime, Sattr, SetTime, SpecData};
use protocol::nfs4::types::Status;

use super::convert::{attributes, mode, set_attributes, with_type};
use crate::error::OpError;

fn fattr() -> nfs2::Fattr {
    nfs2::Fattr {
        file_type: nfs2::FileType::REG,
        mode: 0o100_644,
        nlink: 2,
        uid: 3,
        gid: 4,
        size: u32::MAX,
        blocksize: 4096,
        rdev: 0,
        blocks: u32::MAX,
        fsid: 5,
        fileid: 6,
        atime: TimeVal { seconds: u32::MAX, useconds: 999_999 },
        mtime: TimeVal { seconds: 7, useconds: 8 },
        ctime: TimeVal::default(),
    }
}

#[test]
fn attributes_become_those_of_version_3() {
    let expected = Fattr {
        file_type: FileType::REG,
        mode: 0o100_644,
        nlink: 2,
        uid: 3,
        gid: 4,
        size: 4_294_967_295,
        used: 512 * 4_294_967_295,
        rdev: SpecData { major: 0, minor: 0 },
        fsid: 5,
        fileid: 6,
        atime: NfsTime { seconds: u32::MAX, nseconds: 999_999_000 },
        mtime: NfsTime { seconds: 7, nseconds: 8000 },
        ctime: NfsTime::default(),
    };
    assert_eq!(attributes(&fattr()), expected);
}

/// The numbers that Linux's and Solaris' servers send, and those of RFC 1094.
#[test]
fn types_follow_from_type_mode_and_device() {
    let none = nfs2::FileType::NON;
    for (file_type, mode, rdev, expected, device) in [
        (nfs2::FileType::CHR, 0o020_644, 0x0501, FileType::CHR, (5, 1)),
        // `new_encode_dev` of Linux.
        (nfs2::FileType::BLK, 0o060_644, 0x4561_2378, FileType::BLK, (0x123, 0x4_5678)),
        (nfs2::FileType::CHR, 0o020_644, u32::MAX, FileType::FIFO, (0, 0)),
        (nfs2::FileType::CHR, 0o010_644, u32::MAX, FileType::FIFO, (0, 0)),
        (nfs2::FileType(8), 0o010_644, 0, FileType::FIFO, (0, 0)),
        (none, 0o140_644, 0, FileType::SOCK, (0, 0)),
        (nfs2::FileType(6), 0o140_644, 0, FileType::SOCK, (0, 0)),
        (nfs2::FileType::LNK, 0o120_777, 0, FileType::LNK, (0, 0)),
        (nfs2::FileType::DIR, 0o040_755, 0, FileType::DIR, (0, 0)),
        (none, 0o644, 0, FileType(0), (0, 0)),
    ] {
        let found = attributes(&nfs2::Fattr { file_type, mode, rdev, ..fattr() });
        let expected = (expected, SpecData { major: device.0, minor: device.1 });
        assert_eq!((found.file_type, found.rdev), expected, "{file_type:?} {mode:o}");
    }
}

#[test]
fn only_given_attributes_are_set() {
    assert_eq!(set_attributes(&Sattr::default()), Ok(nfs2::Sattr::NONE));
    let time = NfsTime { seconds: u32::MAX, nseconds: 1999 };
    let set = Sattr {
        mode: Some(0o4755),
        uid: Some(0),
        gid: Some(1),
        size: Some(0),
        atime: SetTime::ToServerTime,
        mtime: SetTime::ToClientTime(time),
    };
    let expected = nfs2::Sattr {
        mode: 0o104_755,
        uid: 0,
        gid: 1,
        size: 0,
        // A convention of Sun: "1000000 microseconds" mean the server's time.
        atime: TimeVal { seconds: 0, useconds: 1_000_000 },
        mtime: TimeVal { seconds: u32::MAX - 1, useconds: 1 },
    };
    assert_eq!(with_type(&set, mode::REGULAR), Ok(expected));
    assert_eq!(with_type(&Sattr::default(), mode::REGULAR), Ok(nfs2::Sattr::NONE), "no mode, no type");
    for (size, expected) in [(0xffff_fffe, Ok(0xffff_fffe)), (0xffff_ffff, Err(())), (1 << 32, Err(()))] {
        let set = set_attributes(&Sattr { size: Some(size), ..Sattr::default() });
        let expected = expected.map_err(|()| OpError::Status(Status::FBIG));
        assert_eq!(set.map(|set| set.size), expected, "{size}");
    }
}
