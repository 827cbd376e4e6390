//! READ (RFC 8881 §18.22).

use std::sync::atomic::Ordering::Relaxed;

use bytes::BytesMut;
use protocol::nfs4::types::{Stateid, Status};
use vfs::{Authority, Later, Op, Read, ReadRequest};
use xdr::{Decode, Mark, Reader, Writer};

use crate::Export;
use crate::files::object::{File, not_regular};
use crate::payload;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::in_place::InPlace;
use crate::programs::nfs4::status::{Failure, Result};
use crate::state::{Conflict, IoKind};

/// Bytes before the data: `eof` and their length.
const BEFORE_DATA: usize = 8;
/// The largest offset: offsets are signed on POSIX systems.
const LAST_OFFSET: u64 = i64::MAX as u64;

/// A READ that passed all checks except the one for delegations.
struct CheckedRead<'r> {
    file: File<'r>,
    stateid: Stateid,
    request: ReadRequest,
}

pub(crate) async fn run(
    compound: &mut Compound<'_>,
    call: Option<Later<'_, Read>>,
    arguments: &mut Reader,
    reply: &mut Writer,
) -> Result {
    let mut wanted = check(compound, arguments, reply)?;
    let call = match call {
        Some(read) if !may_be_delegated(compound, &wanted) => Some(read),
        _ => None,
    };
    if call.is_none() {
        let permit = compound.admit_io(&wanted.file, wanted.stateid, IoKind::Read).await?;
        wanted.request.authority = permit.authority;
    }
    let head = reply.mark();
    reply.raw(&[0; BEFORE_DATA]);
    let read = match call {
        Some(read) => read.await,
        None => begin(compound, &wanted, reply.buffer_mut()).await,
    };
    match read {
        Ok(read) => {
            answer(compound, wanted.file.export, read, head, reply);
            Ok(())
        }
        Err(error) => Err(wrong_kind(compound, error).await),
    }
}

/// As [`run`], without a future, if the backend answers without a wait.
pub(crate) fn run_in_place<'r>(
    compound: &mut Compound<'r>,
    arguments: &mut Reader,
    reply: &mut Writer,
) -> Result<InPlace<Later<'r, Read>>> {
    let wanted = check(compound, arguments, reply)?;
    if may_be_delegated(compound, &wanted) || wanted.request.count > payload::AT_ONCE_MAX {
        return Ok(InPlace::Pending(None));
    }
    let head = reply.mark();
    reply.raw(&[0; BEFORE_DATA]);
    let read = begin(compound, &wanted, reply.buffer_mut()).at_once();
    let call = match read {
        Ok(Ok(read)) => {
            answer(compound, wanted.file.export, read, head, reply);
            return Ok(InPlace::Done);
        }
        // `run` determines the kind of the object.
        Ok(Err(vfs::Error::WrongKind)) => None,
        Ok(Err(error)) => return Err(error.into()),
        Err(read) => Some(read),
    };
    reply.rewind(head);
    Ok(InPlace::Pending(call))
}

/// Returns whether the holder of a write delegation may have to be asked first.
fn may_be_delegated(compound: &Compound<'_>, wanted: &CheckedRead<'_>) -> bool {
    wanted.stateid.is_special() && compound.state().has_delegations(Conflict::Write)
}

/// Reads the arguments, and makes the checks that need no backend.
fn check<'r>(compound: &Compound<'r>, arguments: &mut Reader, reply: &Writer) -> Result<CheckedRead<'r>> {
    let stateid = Stateid::decode(arguments)?;
    let (offset, count) = (arguments.u64()?, arguments.u32()?);
    let file = compound.file(Status::ISDIR)?;
    let permit = compound.check_io(&file, stateid, IoKind::Read)?;
    // "The server may choose to return fewer bytes than specified by the client" (§18.22.3): at most the limit of a READ and
    // the room in the reply.
    let room = compound.room(reply).saturating_sub(BEFORE_DATA) & !3;
    let count = count.min(compound.server().settings().max_io);
    if count > 0 && room == 0 {
        return Err(compound.no_room().into());
    }
    // A read beyond the largest offset is at the end of the file, not an overflow.
    let offset = offset.min(LAST_OFFSET);
    let count = count.min(room as u32).min((LAST_OFFSET - offset).min(u64::from(u32::MAX)) as u32);
    let may_splice = compound.request.may_splice;
    Ok(CheckedRead {
        file,
        stateid,
        request: ReadRequest { offset, count, may_splice, authority: permit.authority },
    })
}

/// Starts the read; the data go after the fields that precede them.
fn begin<'r>(compound: &Compound<'r>, wanted: &CheckedRead<'r>, into: &mut BytesMut) -> Op<'r, Read> {
    let (export, handle) = (wanted.file.export, &wanted.file.handle);
    let context = compound.context(export);
    // For an open file, the attributes of the previous operation still hold.
    match compound.fresh() {
        Some(seen) if wanted.request.authority == Authority::Opened => {
            export.backend.read_seen(&context, handle, seen, wanted.request, into)
        }
        _ => export.backend.read(&context, handle, wanted.request, into),
    }
}

/// Fills in the fields before the data, at `head`, and appends the padding.
fn answer(compound: &mut Compound<'_>, export: &Export, read: Read, head: Mark, reply: &mut Writer) {
    reply.patch(head, 0, &u32::from(read.eof).to_be_bytes());
    reply.patch(head, 4, &read.count.to_be_bytes());
    payload::attach(reply, read.payload, read.count);
    export.counts.read_bytes.fetch_add(u64::from(read.count), Relaxed);
    compound.set_fresh(read.attributes);
}

/// Converts a backend error; for objects without content to the status of their kind.
pub(super) async fn wrong_kind(compound: &mut Compound<'_>, error: vfs::Error) -> Failure {
    if error != vfs::Error::WrongKind {
        return error.into();
    }
    match compound.attributes().await {
        Ok(attributes) => not_regular(attributes.kind).into(),
        Err(failure) => failure,
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::ops::read::{ReadArgs, ReadOk};
    use protocol::nfs4::types::{Stateid, Status};
    use xdr::Opaque;

    use crate::testing::{at, lab, mode, name, putfh};

    fn read(stateid: Stateid, offset: u64, count: u32) -> Op {
        Op::Read(ReadArgs { stateid, offset, count })
    }

    fn result(result: OpResult) -> ReadOk {
        match result {
            OpResult::Read(result) => result.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reads_and_reports_the_end() {
        let mut lab = lab();
        let file = lab.file(&["export", "file"], b"hello, world");
        for (offset, count, data, eof) in [
            (0, 5, &b"hello"[..], false),
            (7, 100, b"world", true),
            (7, 5, b"world", true),
            (12, 1, b"", true),
            (u64::MAX, 1, b"", true),
            (u64::MAX, u32::MAX, b"", true),
            (0, 0, b"", false),
            (0, u32::MAX, b"hello, world", true),
        ] {
            let got = result(lab.last(vec![putfh(file), read(Stateid::ANONYMOUS, offset, count)]));
            assert_eq!((&got.data[..], got.eof), (data, eof), "{count} bytes at {offset}");
        }
    }

    #[test]
    fn reads_by_an_open_and_by_the_current_stateid() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"data");
        let (file, stateid) = lab.open(&["export", "file"], b"owner");
        let got = result(lab.last(vec![putfh(file), read(stateid, 0, 9)]));
        assert_eq!(&got.data[..], b"data");
        // RFC 8881 §16.2.3.1.2, figure 6: there is no current stateid after PUTFH.
        let status = lab.status(vec![putfh(file), read(Stateid::CURRENT, 0, 9)]);
        assert_eq!(status, Status::BAD_STATEID);
        assert_eq!(lab.status(vec![putfh(file), read(Stateid::READ_BYPASS, 0, 9)]), Status::OK);
        assert_eq!(lab.status(vec![putfh(file), read(Stateid::INVALID, 0, 9)]), Status::BAD_STATEID);
        let unknown = Stateid { seqid: 1, other: [7; 12] };
        assert_eq!(lab.status(vec![putfh(file), read(unknown, 0, 9)]), Status::BAD_STATEID);
    }

    #[test]
    fn only_regular_files_can_be_read() {
        let mut lab = lab();
        for (kind, text) in
            [(CreateType::FIFO, "fifo"), (CreateType::Link(Opaque::from_static(b"x")), "link")]
        {
            let args = CreateArgs { object_type: kind, name: name(text), attributes: mode(0o600) };
            lab.ok(at(&["export"], vec![Op::Create(args)]));
        }
        let op = || read(Stateid::ANONYMOUS, 0, 1);
        assert_eq!(lab.status_at(&["export"], op()), Status::ISDIR);
        assert_eq!(lab.status_at(&[], op()), Status::ISDIR);
        assert_eq!(lab.status_at(&["export", "link"], op()), Status::SYMLINK);
        assert_eq!(lab.status_at(&["export", "fifo"], op()), Status::WRONG_TYPE);
    }

    #[test]
    fn needs_permission() {
        let mut lab = lab();
        let file = lab.file(&["export", "file"], b"data");
        let set = Op::SetAttr(protocol::nfs4::ops::setattr::SetAttrArgs {
            stateid: Stateid::ANONYMOUS,
            attributes: mode(0o600),
        });
        lab.ok(vec![putfh(file), set]);
        lab.uid = 1000;
        assert_eq!(lab.status(vec![putfh(file), read(Stateid::ANONYMOUS, 0, 1)]), Status::ACCESS);
    }

    #[test]
    fn reads_less_if_the_reply_has_less_room() {
        let mut lab = lab();
        let file = lab.file(&["export", "file"], &[7; 4096]);
        let mut small = crate::testing::channel();
        small.max_response_size = 1024;
        lab.connect_with(b"small", small);
        let got = result(lab.last(vec![putfh(file), read(Stateid::ANONYMOUS, 0, 4096)]));
        assert!(!got.eof && got.data.len() > 512 && got.data.len() < 1024, "{}", got.data.len());
    }
}
