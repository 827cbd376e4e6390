//! Compounds as records: encoding without a copy of WRITE's data, and access to results one by one.

use bytes::Bytes;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::session::SequenceArgs;
use protocol::nfs4::types::{Handle, HasStatus, OpNum, Status};
use protocol::nfs4::{PROC_COMPOUND, PROGRAM, VERSION};
use rpc::auth::OpaqueAuth;
use rpc::message::{CallHeader, encode_call};
use xdr::Encode;

use crate::engine::{Label, Record};
use crate::error::OpError;
use crate::record::RecordWriter;

/// Bytes of a request or reply apart from its operations, rounded up: headers, credentials, SEQUENCE.
pub(super) const OVERHEAD: usize = 1024;

/// Encodes a compound, with SEQUENCE in front if there is one.
pub(crate) fn encode_compound(
    xid: u32,
    credential: &OpaqueAuth,
    minor_version: u32,
    sequence: Option<SequenceArgs>,
    ops: &[Op],
) -> Record {
    encode_gathered(xid, credential, minor_version, sequence, ops, &[])
}

/// Encodes a compound whose WRITE without data gets the data of these parts, with SEQUENCE in front if there is one.
pub(super) fn encode_gathered(
    xid: u32,
    credential: &OpaqueAuth,
    minor_version: u32,
    sequence: Option<SequenceArgs>,
    ops: &[Op],
    gathered: &[Bytes],
) -> Record {
    let header = CallHeader {
        credential: credential.clone(),
        ..CallHeader::new(xid, PROGRAM, VERSION, PROC_COMPOUND)
    };
    let mut record = RecordWriter::default();
    let writer = record.writer();
    encode_call(writer, &header, &());
    // The tag is empty.
    writer.u32(0);
    writer.u32(minor_version);
    writer.u32(ops.len() as u32 + u32::from(sequence.is_some()));
    if let Some(sequence) = sequence {
        Op::Sequence(sequence).encode(writer);
    }
    for op in ops {
        match op {
            Op::Write(args) => {
                let writer = record.writer();
                OpNum::WRITE.encode(writer);
                args.stateid.encode(writer);
                args.offset.encode(writer);
                args.stable.encode(writer);
                match args.data.is_empty() {
                    true => record.opaque(gathered),
                    false => record.opaque(std::slice::from_ref(args.data.bytes())),
                }
            }
            op => op.encode(record.writer()),
        }
    }
    record.finish()
}

/// Returns the label of a compound: its first operation that does more than examine objects, or else the first that examines one.
pub(crate) fn label(ops: &[Op]) -> Label {
    let rank = |op: &Op| match op {
        Op::PutFh(_) | Op::PutRootFh | Op::SaveFh | Op::RestoreFh | Op::GetFh => 3,
        Op::GetAttr(_) => 2,
        Op::Lookup(_) | Op::LookupParent | Op::Access(_) => 1,
        _ => 0,
    };
    let main = ops.iter().min_by_key(|op| rank(op));
    Label { program: PROGRAM, version: VERSION, number: main.map_or(0, |op| op.opnum().0) }
}

/// Returns PUTFH.
pub(crate) fn put(handle: Handle) -> Op {
    Op::PutFh(PutFhArgs { handle })
}

/// The results of a compound, taken one by one.
#[derive(Debug)]
pub(crate) struct Results {
    status: Status,
    results: std::vec::IntoIter<OpResult>,
    /// Whether the server may have executed the compound before, in a session that was lost.
    pub(crate) is_repeated: bool,
}

impl Results {
    pub(crate) fn new(status: Status, results: Vec<OpResult>, is_repeated: bool) -> Self {
        Self { status, results: results.into_iter(), is_repeated }
    }

    /// Takes the next result and returns the part that `get` extracts.
    ///
    /// # Errors
    /// The status of the operation, if it failed; [`OpError::BadReply`] if it is another operation's result.
    pub(crate) fn next<T>(&mut self, get: impl FnOnce(OpResult) -> Option<T>) -> Result<T, OpError> {
        let Some(result) = self.results.next() else {
            return Err(match self.status {
                Status::OK => OpError::BadReply("results are missing"),
                status => OpError::Status(status),
            });
        };
        match result.status() {
            Status::OK => get(result).ok_or(OpError::BadReply("the result of another operation")),
            status => Err(OpError::Status(status)),
        }
    }

    /// Takes the next result of an operation without further results.
    pub(crate) fn skip(&mut self) -> Result<(), OpError> {
        self.next(|_| Some(()))
    }

    /// Takes the next `count` results of operations without further results.
    pub(crate) fn skip_many(&mut self, count: usize) -> Result<(), OpError> {
        (0..count).try_for_each(|_| self.skip())
    }

    /// Takes at most `count` results, of any status.
    pub(crate) fn take_results(&mut self, count: usize) -> Vec<OpResult> {
        self.results.by_ref().take(count).collect()
    }

    /// Returns the remaining results.
    pub(crate) fn all(&self) -> &[OpResult] {
        self.results.as_slice()
    }

    /// Returns the status of one of the remaining results; `None` if the operation was not executed.
    pub(crate) fn status_at(&self, position: usize) -> Option<Status> {
        self.results.as_slice().get(position).map(HasStatus::status)
    }

    /// Returns the number of remaining results.
    pub(crate) fn len(&self) -> usize {
        self.results.len()
    }

    /// Returns the status of the last operation executed.
    pub(crate) fn status(&self) -> Status {
        self.status
    }
}

/// Takes the next result of the given operation: `take!(results, GetFh)`.
macro_rules! take {
    ($results:expr, $variant:ident) => {
        $results.next(|result| match result {
            ::protocol::nfs4::compound::OpResult::$variant(::protocol::nfs4::types::Outcome::Ok(ok)) => {
                Some(ok)
            }
            _ => None,
        })
    };
}
pub(crate) use take;

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::CompoundArgs;
    use protocol::nfs4::ops::write::WriteArgs;
    use protocol::nfs4::types::{StableHow, Stateid};
    use xdr::{Decode, List, Opaque, Reader};

    use super::*;
    use crate::record::{SHARED_FROM, joined};

    #[test]
    fn data_of_a_write_are_not_copied_and_arrive_padded() {
        for length in [0, 1, 4095, 4096, 4097, 10_001] {
            let data = Bytes::from(vec![7; length]);
            let write = Op::Write(WriteArgs {
                stateid: Stateid::ANONYMOUS,
                offset: 3,
                stable: StableHow::Unstable,
                data: Opaque::new(data.clone()).unwrap(),
            });
            let ops = vec![Op::PutRootFh, write, Op::GetFh];
            let record = encode_compound(9, &OpaqueAuth::NONE, 2, None, &ops);
            assert_eq!(record.iter().any(|part| part.as_ptr() == data.as_ptr()), length >= SHARED_FROM);
            let mut reader = Reader::new(joined(&record));
            CallHeader::parse(&mut reader).unwrap();
            let compound = CompoundArgs::decode(&mut reader).unwrap();
            reader.finish().unwrap();
            assert_eq!((compound.minor_version, compound.ops), (2, List::new(ops).unwrap()));
        }
    }

    #[test]
    fn data_in_parts_arrive_in_order_and_only_small_parts_are_copied() {
        let parts = [5000, 3, 8192, 4096, 1].map(|length: usize| Bytes::from(vec![length as u8; length]));
        let write = |data| {
            let data = Opaque::new(data).unwrap();
            Op::Write(WriteArgs { stateid: Stateid::ANONYMOUS, offset: 3, stable: StableHow::Unstable, data })
        };
        let ops = [Op::PutRootFh, write(Bytes::new())];
        let record = encode_gathered(9, &OpaqueAuth::NONE, 2, None, &ops, &parts);
        for part in &parts {
            let is_shared = record.iter().any(|sent| sent.as_ptr() == part.as_ptr());
            assert_eq!(is_shared, part.len() >= SHARED_FROM);
        }
        let mut reader = Reader::new(joined(&record));
        CallHeader::parse(&mut reader).unwrap();
        let compound = CompoundArgs::decode(&mut reader).unwrap();
        reader.finish().unwrap();
        assert_eq!(compound.ops.last(), Some(&write(joined(&parts))));
    }

    #[test]
    fn results_end_with_the_status_of_the_failure() {
        let root = || OpResult::PutRootFh(Ok(()).into());
        let mut results = Results::new(Status::NOENT, vec![root()], false);
        assert_eq!(results.skip(), Ok(()));
        assert_eq!(take!(results, GetFh), Err(OpError::Status(Status::NOENT)));
        let mut wrong = Results::new(Status::OK, vec![root()], false);
        assert!(matches!(take!(wrong, GetFh), Err(OpError::BadReply(_))));
        assert!(matches!(wrong.skip(), Err(OpError::BadReply(_))));
    }
}
