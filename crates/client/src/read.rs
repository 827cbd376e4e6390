//! READ (RFC 8881 §18.22) and READ_PLUS (RFC 7862 §15.10) of a file, by its handle.

use protocol::nfs4::attributes::{Attributes, number};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::read::{ReadArgs, ReadOk};
use protocol::nfs4::ops::read_plus::{Extent, ReadPlusContent, ReadPlusOk};
use protocol::nfs4::types::{Bitmap, Handle, Outcome, Stateid};

/// A range of a file to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The file's handle.
    pub handle: Handle,
    /// The stateid to read with.
    pub stateid: Stateid,
    /// First byte.
    pub offset: u64,
    /// Maximum number of bytes.
    pub count: u32,
    /// Whether to get the file's size too.
    pub wants_size: bool,
}

/// The operation to read with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOp {
    /// READ, which returns holes as zeros.
    Read,
    /// READ_PLUS, which is optional for servers.
    ReadPlus,
}

/// The result of a READ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadData {
    /// Consecutive extents, with at most the requested number of bytes.
    pub content: Vec<Extent>,
    /// Whether they end at the end of the file.
    pub is_end: bool,
    /// The file's size after the READ, if requested.
    pub size: Option<u64>,
}

impl Read {
    /// Returns the operations to send after SEQUENCE.
    #[must_use]
    pub fn operations(&self, way: ReadOp) -> Vec<Op> {
        let Self { handle, stateid, offset, count, wants_size } = *self;
        let args = ReadArgs { stateid, offset, count };
        let read = match way {
            ReadOp::Read => Op::Read(args),
            ReadOp::ReadPlus => Op::ReadPlus(args),
        };
        let mut operations = vec![Op::PutFh(PutFhArgs { handle }), read];
        if wants_size {
            operations.push(Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&[number::SIZE]) }));
        }
        operations
    }

    /// Decodes the results of [`Self::operations`]; `None` if they do not match, or have more data than requested.
    #[must_use]
    pub fn data(&self, results: &[OpResult]) -> Option<ReadData> {
        let (read, size) = match results {
            [OpResult::PutFh(_), read] if !self.wants_size => (read, None),
            [OpResult::PutFh(_), read, OpResult::GetAttr(Outcome::Ok(attributes))] => {
                (read, Some(Attributes::from_file_attributes(attributes).ok()?.size?))
            }
            _ => return None,
        };
        let (content, is_end) = match read {
            OpResult::Read(Outcome::Ok(read)) => self.of_read(read)?,
            OpResult::ReadPlus(Outcome::Ok(read)) => self.of_read_plus(read)?,
            _ => return None,
        };
        // RFC 8881 §18.22.3: "If the server returns a "short read" (i.e., fewer data than requested and eof is set to FALSE),
        // the client should send another READ". With an empty short read the client would retry forever.
        let is_progress = !content.is_empty() || is_end || self.count == 0;
        is_progress.then_some(ReadData { content, is_end, size })
    }

    fn of_read(&self, read: &ReadOk) -> Option<(Vec<Extent>, bool)> {
        if read.data.len() > self.count as usize {
            return None;
        }
        let data = (!read.data.is_empty()).then(|| Extent::Data(read.data.bytes().clone()));
        Some((data.into_iter().collect(), read.eof))
    }

    /// RFC 7862 §15.10.3: "The array contents MUST be contiguous in the file"; and of holes, "Both the start and the end of the
    /// hole may exceed what was requested."
    fn of_read_plus(&self, read: &ReadPlusOk) -> Option<(Vec<Extent>, bool)> {
        let end = self.offset.saturating_add(self.count.into());
        let (mut at, mut content, mut exceeds) = (self.offset, Vec::new(), false);
        for piece in &read.contents[..] {
            let (start, length) = match piece {
                ReadPlusContent::Data(data) => (data.offset, data.data.len() as u64),
                ReadPlusContent::Hole(hole) => (hole.offset, hole.length),
                ReadPlusContent::Other(_) => return None,
            };
            let until = start.checked_add(length)?;
            if start > at {
                return None;
            }
            exceeds |= until > end;
            let until = until.min(end);
            if until <= at {
                continue;
            }
            content.push(match piece {
                ReadPlusContent::Data(data) => {
                    Extent::Data(data.data.bytes().slice((at - start) as usize..(until - start) as usize))
                }
                _ => Extent::Hole(until - at),
            });
            at = until;
        }
        Some((content, read.eof && !exceeds))
    }
}

/// Returns whether READ_PLUS returned content types that version 4.2 does not define.
pub(crate) fn has_other_arms(result: &OpResult) -> bool {
    let OpResult::ReadPlus(Outcome::Ok(read)) = result else { return false };
    read.contents.iter().any(|piece| matches!(piece, ReadPlusContent::Other(_)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use protocol::nfs4::ops::read_plus::{Data, DataInfo};
    use protocol::nfs4::types::Status;
    use xdr::{List, Opaque};

    use super::*;

    fn four_bytes_at(offset: u64) -> Read {
        let handle = Handle::new(b"file").unwrap();
        Read { handle, stateid: Stateid::ANONYMOUS, offset, count: 4, wants_size: false }
    }

    fn data(data: &'static [u8]) -> Extent {
        Extent::Data(Bytes::from_static(data))
    }

    fn of(content: impl Into<Vec<Extent>>, is_end: bool) -> Option<ReadData> {
        Some(ReadData { content: content.into(), is_end, size: None })
    }

    #[test]
    fn rejects_results_without_progress_or_with_too_much_data() {
        let read = four_bytes_at(0);
        let result = |eof, data: &'static [u8]| {
            let ok = ReadOk { eof, data: Opaque::from_static(data) };
            read.data(&[OpResult::PutFh(Outcome::Ok(())), OpResult::Read(Outcome::Ok(ok))])
        };
        assert_eq!(result(false, b"1234"), of([data(b"1234")], false));
        assert_eq!(result(false, b"12"), of([data(b"12")], false));
        assert_eq!(result(true, b""), of([], true));
        assert_eq!(result(false, b""), None, "no data, but not the end");
        assert_eq!(result(false, b"12345"), None, "more than requested");
        let failed = OpResult::Read(Outcome::Error(Status::IO));
        assert_eq!(read.data(&[OpResult::PutFh(Outcome::Ok(())), failed]), None);
        assert_eq!(read.data(&[]), None);
    }

    #[test]
    fn clips_holes_to_the_requested_range() {
        let read = four_bytes_at(100);
        let result = |eof, contents: &[(u64, Result<&'static [u8], u64>)]| {
            let contents = contents.iter().map(|(offset, what)| match *what {
                Ok(data) => ReadPlusContent::Data(Data { offset: *offset, data: Opaque::from_static(data) }),
                Err(length) => ReadPlusContent::Hole(DataInfo { offset: *offset, length }),
            });
            let ok = ReadPlusOk { eof, contents: List::new(contents.collect()).unwrap() };
            read.data(&[OpResult::PutFh(Outcome::Ok(())), OpResult::ReadPlus(Outcome::Ok(ok))])
        };
        assert_eq!(
            result(false, &[(100, Ok(b"12")), (102, Err(2))]),
            of([data(b"12"), Extent::Hole(2)], false)
        );
        // RFC 7862 §15.10.3: "Holes SHOULD be returned in their entirety".
        assert_eq!(
            result(true, &[(50, Err(1 << 40))]),
            of([Extent::Hole(4)], false),
            "the file ends after the range"
        );
        assert_eq!(result(true, &[(50, Err(54))]), of([Extent::Hole(4)], true));
        assert_eq!(
            result(true, &[(100, Err(1)), (101, Err(1))]),
            of([Extent::Hole(1), Extent::Hole(1)], true)
        );
        assert_eq!(
            result(false, &[(50, Err(51)), (101, Ok(b"2"))]),
            of([Extent::Hole(1), data(b"2")], false)
        );
        assert_eq!(result(false, &[(98, Ok(b"abcd"))]), of([data(b"cd")], false));
        assert_eq!(result(true, &[]), of([], true));
        assert_eq!(result(true, &[(101, Ok(b"2"))]), None, "the first byte is missing");
        assert_eq!(result(false, &[(100, Ok(b"1")), (102, Ok(b"3"))]), None, "a gap");
        assert_eq!(result(false, &[(u64::MAX, Err(2))]), None, "no such offset");
        assert_eq!(result(false, &[(100, Err(0))]), None, "no data, but not the end");
        assert_eq!(result(false, &[]), None);
    }
}
