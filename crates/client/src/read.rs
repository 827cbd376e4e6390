//! READ (RFC 8881 §18.22) and READ_PLUS (RFC 7862 §15.10) of a file that is known by its handle.

use protocol::nfs4::attributes::{Attributes, number};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::read::{ReadArgs, ReadOk};
use protocol::nfs4::ops::read_plus::{Extent, ReadPlusContent, ReadPlusOk};
use protocol::nfs4::types::{Bitmap, Handle, Outcome, Stateid};

/// What is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub handle: Handle,
    /// Right to read it.
    pub stateid: Stateid,
    /// First byte.
    pub offset: u64,
    /// Bytes at most.
    pub count: u32,
    /// Whether the file's size is asked for too.
    pub wants_size: bool,
}

/// By which operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// READ: holes come as zeros.
    Read,
    /// READ_PLUS, which a server need not have.
    ReadPlus,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadData {
    /// The bytes, one extent behind the other; as many as were asked for at most.
    pub content: Vec<Extent>,
    /// Whether they reach the end of the file.
    pub is_end: bool,
    /// The file's size behind the READ, where it was asked for.
    pub size: Option<u64>,
}

impl Read {
    /// The operations that do it, behind SEQUENCE.
    #[must_use]
    pub fn operations(&self, way: Way) -> Vec<Op> {
        let Self { handle, stateid, offset, count, wants_size } = *self;
        let args = ReadArgs { stateid, offset, count };
        let read = match way {
            Way::Read => Op::Read(args),
            Way::ReadPlus => Op::ReadPlus(args),
        };
        let mut operations = vec![Op::PutFh(PutFhArgs { handle }), read];
        if wants_size {
            operations.push(Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&[number::SIZE]) }));
        }
        operations
    }

    /// What their results say; none where a server has answered something else, or more than was asked for.
    #[must_use]
    pub fn data(&self, results: &[OpResult]) -> Option<ReadData> {
        let (read, size) = match results {
            [OpResult::PutFh(_), read] if !self.wants_size => (read, None),
            [OpResult::PutFh(_), read, OpResult::GetAttr(Outcome::Ok(told))] => {
                (read, Some(Attributes::from_file_attributes(told).ok()?.size?))
            }
            _ => return None,
        };
        let (content, is_end) = match read {
            OpResult::Read(Outcome::Ok(read)) => self.of_read(read)?,
            OpResult::ReadPlus(Outcome::Ok(read)) => self.of_read_plus(read)?,
            _ => return None,
        };
        // RFC 8881 §18.22.3: "If the server returns a "short read" (i.e., fewer data than requested and eof is set to FALSE),
        // the client should send another READ"; one of no data would have it ask for ever.
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
        for told in &read.contents[..] {
            let (start, length) = match told {
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
            content.push(match told {
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

/// Whether a READ_PLUS tells of what version 4.2 does not have.
pub(crate) fn has_other_arms(result: &OpResult) -> bool {
    let OpResult::ReadPlus(Outcome::Ok(read)) = result else { return false };
    read.contents.iter().any(|told| matches!(told, ReadPlusContent::Other(_)))
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
    fn answers_that_lead_nowhere_are_none() {
        let read = four_bytes_at(0);
        let told = |eof, data: &'static [u8]| {
            let ok = ReadOk { eof, data: Opaque::from_static(data) };
            read.data(&[OpResult::PutFh(Outcome::Ok(())), OpResult::Read(Outcome::Ok(ok))])
        };
        assert_eq!(told(false, b"1234"), of([data(b"1234")], false));
        assert_eq!(told(false, b"12"), of([data(b"12")], false));
        assert_eq!(told(true, b""), of([], true));
        assert_eq!(told(false, b""), None, "nothing, and not the end");
        assert_eq!(told(false, b"12345"), None, "more than was asked for");
        let failed = OpResult::Read(Outcome::Error(Status::IO));
        assert_eq!(read.data(&[OpResult::PutFh(Outcome::Ok(())), failed]), None);
        assert_eq!(read.data(&[]), None);
    }

    #[test]
    fn holes_are_cut_to_what_was_asked_for() {
        let read = four_bytes_at(100);
        let told = |eof, contents: &[(u64, Result<&'static [u8], u64>)]| {
            let contents = contents.iter().map(|(offset, what)| match *what {
                Ok(data) => ReadPlusContent::Data(Data { offset: *offset, data: Opaque::from_static(data) }),
                Err(length) => ReadPlusContent::Hole(DataInfo { offset: *offset, length }),
            });
            let ok = ReadPlusOk { eof, contents: List::new(contents.collect()).unwrap() };
            read.data(&[OpResult::PutFh(Outcome::Ok(())), OpResult::ReadPlus(Outcome::Ok(ok))])
        };
        assert_eq!(
            told(false, &[(100, Ok(b"12")), (102, Err(2))]),
            of([data(b"12"), Extent::Hole(2)], false)
        );
        // RFC 7862 §15.10.3: "Holes SHOULD be returned in their entirety".
        assert_eq!(told(true, &[(50, Err(1 << 40))]), of([Extent::Hole(4)], false), "the end is behind it");
        assert_eq!(told(true, &[(50, Err(54))]), of([Extent::Hole(4)], true));
        assert_eq!(told(true, &[(100, Err(1)), (101, Err(1))]), of([Extent::Hole(1), Extent::Hole(1)], true));
        assert_eq!(told(false, &[(50, Err(51)), (101, Ok(b"2"))]), of([Extent::Hole(1), data(b"2")], false));
        assert_eq!(told(false, &[(98, Ok(b"abcd"))]), of([data(b"cd")], false));
        assert_eq!(told(true, &[]), of([], true));
        assert_eq!(told(true, &[(101, Ok(b"2"))]), None, "what is before it is missing");
        assert_eq!(told(false, &[(100, Ok(b"1")), (102, Ok(b"3"))]), None, "a gap");
        assert_eq!(told(false, &[(u64::MAX, Err(2))]), None, "no such offset");
        assert_eq!(told(false, &[(100, Err(0))]), None, "nothing, and not the end");
        assert_eq!(told(false, &[]), None);
    }
}
