//! READ (RFC 8881 §18.22) of a file that is known by its handle.

use bytes::Bytes;
use protocol::nfs4::attributes::{Attributes, number};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::read::ReadArgs;
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

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadData {
    /// The bytes, sharing the record's memory; as many as were asked for at most.
    pub data: Bytes,
    /// Whether they reach the end of the file.
    pub is_end: bool,
    /// The file's size behind the READ, where it was asked for.
    pub size: Option<u64>,
}

impl Read {
    /// The operations that do it, behind SEQUENCE.
    #[must_use]
    pub fn operations(&self) -> Vec<Op> {
        let Self { handle, stateid, offset, count, wants_size } = *self;
        let mut operations =
            vec![Op::PutFh(PutFhArgs { handle }), Op::Read(ReadArgs { stateid, offset, count })];
        if wants_size {
            operations.push(Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&[number::SIZE]) }));
        }
        operations
    }

    /// What their results say; none where a server has answered something else, or more than was asked for.
    #[must_use]
    pub fn data(&self, results: &[OpResult]) -> Option<ReadData> {
        let (read, size) = match results {
            [OpResult::PutFh(_), OpResult::Read(Outcome::Ok(read))] if !self.wants_size => (read, None),
            [OpResult::PutFh(_), OpResult::Read(Outcome::Ok(read)), OpResult::GetAttr(Outcome::Ok(told))] => {
                (read, Some(Attributes::from_file_attributes(told).ok()?.size?))
            }
            _ => return None,
        };
        // RFC 8881 §18.22.3: "If the server returns a "short read" (i.e., fewer data than requested and eof is set to FALSE),
        // the client should send another READ"; one of no data would have it ask for ever.
        let is_progress = !read.data.is_empty() || read.eof || self.count == 0;
        let is_asked = read.data.len() <= self.count as usize;
        (is_progress && is_asked).then(|| ReadData {
            data: read.data.bytes().clone(),
            is_end: read.eof,
            size,
        })
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::ops::read::ReadOk;
    use protocol::nfs4::types::Status;
    use xdr::Opaque;

    use super::*;

    #[test]
    fn answers_that_lead_nowhere_are_none() {
        let handle = Handle::new(b"file").unwrap();
        let read = Read { handle, stateid: Stateid::ANONYMOUS, offset: 0, count: 4, wants_size: false };
        let told = |eof, data: &'static [u8]| {
            let ok = ReadOk { eof, data: Opaque::from_static(data) };
            read.data(&[OpResult::PutFh(Outcome::Ok(())), OpResult::Read(Outcome::Ok(ok))])
        };
        let data = |data: &'static [u8], is_end| {
            Some(ReadData { data: Bytes::from_static(data), is_end, size: None })
        };
        assert_eq!(told(false, b"1234"), data(b"1234", false));
        assert_eq!(told(false, b"12"), data(b"12", false));
        assert_eq!(told(true, b""), data(b"", true));
        assert_eq!(told(false, b""), None, "nothing, and not the end");
        assert_eq!(told(false, b"12345"), None, "more than was asked for");
        let failed = OpResult::Read(Outcome::Error(Status::IO));
        assert_eq!(read.data(&[OpResult::PutFh(Outcome::Ok(())), failed]), None);
        assert_eq!(read.data(&[]), None);
    }
}
