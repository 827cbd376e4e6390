//! SEEK (RFC 7862 §15.11): finds the next data or hole.

use protocol::nfs4::ops::space::{DataContent, SeekArgs};
use protocol::nfs4::types::Status;
use vfs::Seek;
use xdr::{Decode, Reader, Writer};

use super::read::wrong_kind;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::IoKind;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = SeekArgs::decode(arguments)?;
    let what = match arguments.what {
        DataContent::DATA => Seek::Data,
        DataContent::HOLE => Seek::Hole,
        // RFC 7862 §11.1.1.1: "One of the arguments to the operation is a discriminated union, and while the server supports
        // the given operation, it does not support the selected arm".
        _ => return Err(Status::UNION_NOTSUPP.into()),
    };
    let file = compound.file(Status::ISDIR)?;
    let permit = compound.admit_io(&file, arguments.stateid, IoKind::Read).await?;
    let context = compound.context(file.export);
    let backend = &file.export.backend;
    // "If the sa_offset is beyond the end of the file, then SEEK MUST return NFS4ERR_NXIO" (§15.11.3): the backend's NoDevice.
    let found = match backend.seek(&context, &file.handle, arguments.offset, what, permit.authority).await {
        Ok(found) => found,
        Err(error) => return Err(wrong_kind(compound, error).await),
    };
    // "All files MUST have a virtual hole at the end of the file": SEEK then returns the size.
    let size = compound.attributes().await?.size;
    let offset = found.unwrap_or(size);
    reply.bool(offset >= size);
    reply.u64(offset);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::open::ShareAccess;
    use protocol::nfs4::ops::space::{DataContent, SeekArgs};
    use protocol::nfs4::types::{Stateid, Status};

    use crate::testing::{at, lab_42, open, putfh, sparse};

    fn seek(stateid: Stateid, offset: u64, what: DataContent) -> Op {
        Op::Seek(SeekArgs { stateid, offset, what })
    }

    #[test]
    fn finds_data_holes_and_the_virtual_hole_at_the_end() {
        let mut lab = lab_42();
        // Data from 64 KiB to 68 KiB, then a hole up to 128 KiB.
        let file = sparse(&mut lab, "file", 65_536, 4096, 131_072);
        for (offset, what, eof, found) in [
            (0, DataContent::HOLE, false, 0),
            (0, DataContent::DATA, false, 65_536),
            (65_537, DataContent::DATA, false, 65_537),
            (65_536, DataContent::HOLE, false, 69_632),
            (131_071, DataContent::HOLE, false, 131_071),
            (70_000, DataContent::DATA, true, 131_072),
        ] {
            let result = lab.last(vec![putfh(file), seek(Stateid::ANONYMOUS, offset, what)]);
            let OpResult::Seek(result) = result else { panic!("{result:?}") };
            let result = result.into_result().unwrap();
            assert_eq!((result.eof, result.offset), (eof, found), "{what:?} from {offset}");
        }
        let data = lab.file(&["export", "data"], b"all data");
        let result = lab.last(vec![putfh(data), seek(Stateid::ANONYMOUS, 0, DataContent::HOLE)]);
        let OpResult::Seek(result) = result else { panic!("{result:?}") };
        // RFC 7862 §15.11.3: "would return a result of {SEEK 1 X;}, where "X" was the size of the file".
        assert_eq!(result.into_result().map(|ok| (ok.eof, ok.offset)), Ok((true, 8)));
    }

    #[test]
    fn refuses_offsets_beyond_the_end_and_unknown_contents() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"data");
        for offset in [4, 5, u64::MAX] {
            let op = seek(Stateid::ANONYMOUS, offset, DataContent::DATA);
            assert_eq!(lab.status(vec![putfh(file), op]), Status::NXIO, "{offset}");
        }
        let unknown = seek(Stateid::ANONYMOUS, 0, DataContent(2));
        assert_eq!(lab.status(vec![putfh(file), unknown]), Status::UNION_NOTSUPP);
        assert_eq!(lab.status_at(&["export"], seek(Stateid::ANONYMOUS, 0, DataContent::DATA)), Status::ISDIR);
        assert_eq!(lab.status_at(&[], seek(Stateid::ANONYMOUS, 0, DataContent::DATA)), Status::ISDIR);
        let wrong = seek(Stateid { seqid: 1, other: [7; 12] }, 0, DataContent::DATA);
        assert_eq!(lab.status(vec![putfh(file), wrong]), Status::BAD_STATEID);
    }

    #[test]
    fn an_open_grants_permission() {
        let mut lab = lab_42();
        lab.file(&["export", "file"], b"data");
        let ops =
            vec![open("file", b"reader", ShareAccess::READ), seek(Stateid::CURRENT, 0, DataContent::DATA)];
        assert_eq!(lab.status(at(&["export"], ops)), Status::OK);
    }
}
