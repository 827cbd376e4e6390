//! Attributes of files in the form of the client's library, for all versions of the protocol.

#[cfg(test)]
pub use client::attributes::FsId;
pub use client::attributes::{Attributes, FileKind, Timestamp};

/// The unit in which storage is counted, bytes: that of `st_blocks`.
pub const STORAGE_UNIT: u64 = 512;

/// Returns the bytes of storage that a file uses, rounded up as `stat` on the kernel's mount does; servers may report any
/// number of bytes.
pub fn storage(attributes: &Attributes) -> u64 {
    attributes.used.checked_next_multiple_of(STORAGE_UNIT).unwrap_or(u64::MAX)
}

/// Returns the nanoseconds since 1970.
pub fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

/// Returns the time of this machine's clock.
pub fn now() -> Timestamp {
    use std::time::{SystemTime, UNIX_EPOCH};
    // A clock set before 1970 counts as 1970.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs().cast_signed(), nanoseconds: since.subsec_nanos() }
}

/// Makes attributes for tests.
#[cfg(test)]
pub trait OfTest {
    /// Returns an empty object of root with mode 0644.
    fn of_test(kind: FileKind) -> Self;
}

#[cfg(test)]
impl OfTest for Attributes {
    fn of_test(kind: FileKind) -> Self {
        let time = Timestamp::default();
        let fsid = FsId::default();
        Self {
            kind,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: (0, 0),
            fsid,
            fileid: 1,
            atime: time,
            mtime: time,
            ctime: time,
            change: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_is_counted_in_whole_blocks() {
        let storage = |used| storage(&Attributes { used, ..Attributes::of_test(FileKind::Symlink) });
        assert_eq!([0, 1, 8, 512, 513, u64::MAX].map(storage), [0, 512, 512, 512, 1024, u64::MAX]);
    }
}
