//! READ_PLUS (RFC 7862 §15.10): reads data, and reports holes without sending their zeros.

use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs4::ops::read_plus::ReadPlusArgs;
use protocol::nfs4::ops::space::DataContent;
use protocol::nfs4::types::Status;
use vfs::{Authority, Context, Error, FileKind, ReadRequest, Seek};
use xdr::{Decode, Encode, Reader, Writer};

use crate::files::object::{File, not_regular};
use crate::payload;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::IoKind;

/// Bytes of a data piece before its data: kind, offset, length.
const DATA_HEADER: usize = 4 + 8 + 4;
/// Bytes of a hole: kind, offset, length.
const HOLE: usize = 4 + 8 + 8;
/// Maximum number of pieces in one reply: each costs two system calls in a file of many small holes.
const MAX_PIECES: u32 = 64;
/// Number of times that announced data may be missing before the rest counts as a hole.
const MAX_MISSES: u32 = 2;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let ReadPlusArgs { stateid, offset, count } = ReadPlusArgs::decode(arguments)?;
    let file = compound.file(Status::ISDIR)?;
    let permit = compound.admit_io(&file, stateid, IoKind::Read).await?;
    // Attributes before content: a GETATTR that follows must not be newer than the bytes.
    let seen = compound.attributes().await?;
    if seen.kind != FileKind::Regular {
        return Err(not_regular(seen.kind).into());
    }
    let count = count.min(compound.server().settings().max_io);
    let reading = Reading { context: compound.context(file.export), file, authority: permit.authority };
    let eof_at = reply.reserve_u32();
    let pieces_at = reply.reserve_u32();
    let (mut at, mut pieces) = (offset, 0);
    let end = offset.saturating_add(u64::from(count)).min(seen.size);
    // Called even for zero bytes: the backend checks the permission.
    let mut piece = reading.next(at).await?;
    let mut misses = 0;
    while at < end && pieces < MAX_PIECES {
        let length = match piece {
            Piece::Hole(until) if compound.room(reply) >= HOLE => {
                let length = until.min(end) - at;
                DataContent::HOLE.encode(reply);
                reply.u64(at);
                reply.u64(length);
                length
            }
            Piece::Data(until) if compound.room(reply) > DATA_HEADER => {
                let room = (compound.room(reply) - DATA_HEADER) & !3;
                let wanted = (until.min(end) - at).min(room as u64);
                let read = match wanted {
                    0 => break,
                    wanted => reading.data(compound, at, wanted as u32, reply).await?,
                };
                if read == 0 {
                    // Data were announced, and then the file ended before: another client truncated it. If
                    // they do not come to rest, that moment is answered: nothing there, up to the size that was seen.
                    misses += 1;
                    piece = if misses < MAX_MISSES { reading.next(at).await? } else { Piece::Hole(end) };
                    continue;
                }
                u64::from(read)
            }
            // The reply has no room.
            _ => break,
        };
        (at, pieces) = (at + length, pieces + 1);
        if at < end {
            piece = if at < piece.until() { piece } else { reading.next(at).await? };
        }
    }
    if pieces == 0 && offset < end {
        return Err(compound.no_room().into());
    }
    reply.patch_u32(eof_at, u32::from(at >= seen.size));
    reply.patch_u32(pieces_at, pieces);
    compound.set_fresh(seen);
    Ok(())
}

/// A piece of a file from one offset to another.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Data(u64),
    Hole(u64),
}

impl Piece {
    fn until(self) -> u64 {
        match self {
            Self::Data(until) | Self::Hole(until) => until,
        }
    }
}

/// The file to read.
struct Reading<'r> {
    context: Context,
    file: File<'r>,
    authority: Authority,
}

impl Reading<'_> {
    /// Returns the piece at `at`. Beyond the end, which may have moved, all is hole.
    async fn next(&self, at: u64) -> Result<Piece> {
        match self.seek(at, Seek::Data).await? {
            Some(data) if data == at => Ok(Piece::Data(self.seek(at, Seek::Hole).await?.unwrap_or(u64::MAX))),
            Some(data) => Ok(Piece::Hole(data)),
            None => Ok(Piece::Hole(u64::MAX)),
        }
    }

    async fn seek(&self, at: u64, what: Seek) -> Result<Option<u64>> {
        match self.file.export.backend.seek(&self.context, &self.file.handle, at, what, self.authority).await
        {
            Err(Error::NoDevice) => Ok(None),
            // A backend without holes: all is data.
            Err(Error::NotSupported) => Ok(Some(if what == Seek::Data { at } else { u64::MAX })),
            found => Ok(found?),
        }
    }

    /// Writes a data piece, and returns its length; writes nothing if it is zero.
    async fn data(
        &self,
        compound: &Compound<'_>,
        offset: u64,
        count: u32,
        reply: &mut Writer,
    ) -> Result<u32> {
        let start = reply.mark();
        DataContent::DATA.encode(reply);
        reply.u64(offset);
        let length_at = reply.reserve_u32();
        let may_splice = compound.request.may_splice;
        let request = ReadRequest { offset, count, may_splice, authority: self.authority };
        let backend = &self.file.export.backend;
        let read = backend.read(&self.context, &self.file.handle, request, reply.buffer_mut()).await?;
        if read.count == 0 {
            reply.rewind(start);
            return Ok(0);
        }
        reply.patch_u32(length_at, read.count);
        payload::attach(reply, read.payload, read.count);
        self.file.export.counts.read_bytes.fetch_add(u64::from(read.count), Relaxed);
        Ok(read.count)
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::read_plus::{Data, DataInfo, ReadPlusArgs, ReadPlusContent, ReadPlusOk};
    use protocol::nfs4::types::{Handle, Stateid, Status};
    use vfs::fault::{Fault, Method, Rule};

    use crate::testing::{Lab, channel, faulty, lab_42, lab_of, putfh, sparse};

    fn op(stateid: Stateid, offset: u64, count: u32) -> Op {
        Op::ReadPlus(ReadPlusArgs { stateid, offset, count })
    }

    fn read(lab: &mut Lab, file: Handle, offset: u64, count: u32) -> ReadPlusOk {
        match lab.last(vec![putfh(file), op(Stateid::ANONYMOUS, offset, count)]) {
            OpResult::ReadPlus(result) => result.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Holes as (offset, length, 0), data as (offset, length, their first byte).
    fn pieces(ok: &ReadPlusOk) -> Vec<(u64, u64, u8)> {
        let piece = |content: &ReadPlusContent| match content {
            ReadPlusContent::Data(Data { offset, data }) => (*offset, data.len() as u64, data[0]),
            ReadPlusContent::Hole(DataInfo { offset, length }) => (*offset, *length, 0),
            ReadPlusContent::Other(kind) => panic!("kind {kind}"),
        };
        ok.contents.iter().map(piece).collect()
    }

    #[test]
    fn reports_data_and_holes_in_order() {
        let mut lab = lab_42();
        // Sevens from 64 KiB to 68 KiB, then a hole up to 128 KiB.
        let file = sparse(&mut lab, "file", 65_536, 4096, 131_072);
        let whole = read(&mut lab, file, 0, 1 << 20);
        assert!(whole.eof);
        assert_eq!(pieces(&whole), [(0, 65_536, 0), (65_536, 4096, 7), (69_632, 61_440, 0)]);
        for (offset, count, wanted, eof) in [
            (65_540, 10, vec![(65_540, 10, 7)], false),
            (10, 20, vec![(10, 20, 0)], false),
            (69_000, 1000, vec![(69_000, 632, 7), (69_632, 368, 0)], false),
            (131_000, 72, vec![(131_000, 72, 0)], true),
            (131_072, 5, vec![], true),
            (u64::MAX, u32::MAX, vec![], true),
            (0, 0, vec![], false),
        ] {
            let part = read(&mut lab, file, offset, count);
            assert_eq!((pieces(&part), part.eof), (wanted, eof), "{count} bytes at {offset}");
        }
        let empty = lab.file(&["export", "empty"], b"");
        // RFC 7862 §15.10.3: "A successful READ_PLUS of an empty file will always return eof as TRUE."
        assert!(read(&mut lab, empty, 0, 0).eof);
    }

    #[test]
    fn reads_less_if_the_reply_has_less_room() {
        let mut lab = lab_42();
        let file = sparse(&mut lab, "file", 0, 8192, 8192);
        let mut small = channel();
        small.max_response_size = 1024;
        lab.connect_with(b"small", small);
        let part = read(&mut lab, file, 0, 8192);
        let [(0, length, 7)] = pieces(&part)[..] else { panic!("{part:?}") };
        assert!(!part.eof && length > 512 && length < 1024, "{length}");
    }

    #[test]
    fn truncated_data_are_read_again_and_then_a_hole() {
        let (export, backend) = faulty();
        let mut lab = lab_of(vec![export]);
        lab.minor = 2;
        let file = sparse(&mut lab, "file", 0, 10, 10);
        for (misses, wanted) in [(1, 7), (2, 0), (1000, 0)] {
            backend.add(Rule::on(Method::Read, Fault::Short(0)).times(misses));
            let whole = read(&mut lab, file, 0, 10);
            assert_eq!((pieces(&whole), whole.eof), (vec![(0, 10, wanted)], true), "{misses}");
        }
    }

    #[test]
    fn checks_permission_kinds_and_stateids() {
        let mut lab = lab_42();
        let file = sparse(&mut lab, "file", 0, 10, 10);
        let wrong = op(Stateid { seqid: 1, other: [7; 12] }, 0, 1);
        assert_eq!(lab.status(vec![putfh(file), wrong]), Status::BAD_STATEID);
        assert_eq!(lab.status_at(&["export"], op(Stateid::ANONYMOUS, 0, 1)), Status::ISDIR);
        assert_eq!(lab.status_at(&[], op(Stateid::ANONYMOUS, 0, 1)), Status::ISDIR);
        let set = Op::SetAttr(protocol::nfs4::ops::setattr::SetAttrArgs {
            stateid: Stateid::ANONYMOUS,
            attributes: crate::testing::mode(0o600),
        });
        lab.ok(vec![putfh(file), set]);
        lab.uid = 1000;
        for count in [0, 1] {
            let status = lab.status(vec![putfh(file), op(Stateid::ANONYMOUS, 0, count)]);
            assert_eq!(status, Status::ACCESS, "{count}");
        }
    }
}
