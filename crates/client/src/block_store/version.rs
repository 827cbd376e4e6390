//! The version of a file to which blocks belong.

use std::ops::Range;

use protocol::nfs4::types::Handle as FileHandle;

use super::BLOCK;
use crate::attributes::{Attributes, Timestamp};

/// The key of a block: server, file, version and number of the block, as bytes.
pub type BlockKey = Vec<u8>;

/// A version of a file's content at its server.
///
/// The change attribute of version 4 differs after every change. The size and both times are compared too: they are all that
/// versions 2 and 3 have, and they differ where a server that crashed uses a change attribute again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    /// All but the number of the block.
    key: Vec<u8>,
    size: u64,
}

impl FileVersion {
    /// Returns the version of a file of a server that these attributes show.
    #[must_use]
    pub fn new(server: (&str, u16), handle: &FileHandle, attributes: &Attributes) -> Self {
        let Attributes { size, mtime, ctime, change, .. } = *attributes;
        let mut key = Vec::new();
        for variable in [server.0.as_bytes(), handle] {
            key.extend((variable.len() as u64).to_be_bytes());
            key.extend(variable);
        }
        key.extend(server.1.to_be_bytes());
        key.push(u8::from(change.is_some()));
        key.extend(change.unwrap_or_default().to_be_bytes());
        key.extend(size.to_be_bytes());
        for Timestamp { seconds, nanoseconds } in [mtime, ctime] {
            key.extend(seconds.to_be_bytes());
            key.extend(nanoseconds.to_be_bytes());
        }
        Self { key, size }
    }

    /// Returns the key of a block.
    #[must_use]
    pub fn key(&self, block: u64) -> BlockKey {
        [&self.key[..], &block.to_be_bytes()].concat()
    }

    /// Returns the range of a block in the file.
    #[must_use]
    pub fn range(&self, block: u64) -> Range<u64> {
        let start = block * BLOCK;
        start..start.saturating_add(BLOCK).min(self.size)
    }

    /// Returns the numbers of the blocks with bytes in `range`.
    #[must_use]
    pub fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        range.start / BLOCK..range.end.min(self.size).div_ceil(BLOCK)
    }

    /// Returns the part of `range` that consists of whole blocks, which is empty if there are none.
    #[must_use]
    pub fn whole_blocks(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start.next_multiple_of(BLOCK);
        let end = if range.end >= self.size { self.size } else { range.end / BLOCK * BLOCK };
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{FileKind, FsId};

    fn attributes() -> Attributes {
        let time = |seconds| Timestamp { seconds, nanoseconds: 7 };
        Attributes {
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 3 * BLOCK + 100,
            used: 0,
            device: (0, 0),
            fsid: FsId::default(),
            fileid: 1,
            atime: time(1),
            mtime: time(2),
            ctime: time(3),
            change: Some(4),
        }
    }

    fn version(attributes: &Attributes) -> FileVersion {
        FileVersion::new(("server", 2049), &FileHandle::new(b"handle").unwrap(), attributes)
    }

    #[test]
    fn differs_by_server_file_and_everything_that_changes_with_the_content() {
        let one = attributes();
        let changed = [
            Attributes { size: 1, ..one },
            Attributes { change: Some(5), ..one },
            Attributes { change: None, ..one },
            Attributes { mtime: Timestamp { nanoseconds: 8, ..one.mtime }, ..one },
            Attributes { ctime: Timestamp { seconds: 4, ..one.ctime }, ..one },
        ];
        let mut keys: Vec<_> = changed.iter().map(|of| version(of).key(0)).collect();
        for (server, handle) in
            [(("server", 2050), "handle"), (("serve", 2049), "rhandle"), (("server", 2049), "h")]
        {
            keys.push(FileVersion::new(server, &FileHandle::new(handle.as_bytes()).unwrap(), &one).key(0));
        }
        keys.extend([version(&one).key(0), version(&one).key(1)]);
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        let used = Attributes { atime: Timestamp::default(), mode: 0o600, nlink: 2, ..one };
        assert_eq!(version(&used), version(&one));
    }

    #[test]
    fn the_last_block_ends_with_the_file() {
        let file = version(&attributes());
        let size = 3 * BLOCK + 100;
        assert_eq!((file.range(0), file.range(3)), (0..BLOCK, 3 * BLOCK..size));
        assert_eq!(file.blocks(&(BLOCK - 1..BLOCK + 1)), 0..2);
        assert_eq!(file.blocks(&(BLOCK..u64::MAX)), 1..4);
        assert_eq!(file.whole_blocks(&(1..2 * BLOCK + 1)), BLOCK..2 * BLOCK);
        assert_eq!(file.whole_blocks(&(BLOCK..size)), BLOCK..size);
        assert!(file.whole_blocks(&(1..BLOCK)).is_empty());
        assert!(file.whole_blocks(&(size + 5..size + 9)).is_empty());
    }
}
