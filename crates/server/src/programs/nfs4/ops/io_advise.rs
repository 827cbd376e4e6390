//! IO_ADVISE (RFC 7862 §15.5): takes hints on how a client will use a range.

use protocol::nfs4::ops::space::{IoAdviseArgs, IoAdviseOk, advice};
use protocol::nfs4::types::{Bitmap, Status};
use vfs::{Advice, Authority};
use xdr::{Decode, Encode, Reader, Writer};

use super::read::wrong_kind;
use crate::files::object::not_regular;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::IoKind;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = IoAdviseArgs::decode(arguments)?;
    let file = compound.file(Status::ISDIR)?;
    let permit = compound.check_io(&file, arguments.stateid, IoKind::Read)?;
    let kind = compound.attributes().await?.kind;
    if kind != vfs::FileKind::Regular {
        return Err(not_regular(kind).into());
    }
    // Without an open the advice is ignored. "The server MAY ignore the advice" (§15.5.3).
    let wanted = wanted(arguments.hints).filter(|_| permit.authority == Authority::Opened);
    let mut hints = Bitmap::EMPTY;
    if let Some((advice, number)) = wanted {
        let context = compound.context(file.export);
        let advised =
            file.export.backend.advise(&context, &file.handle, arguments.offset, arguments.count, advice);
        match advised.await {
            Ok(true) => hints.insert(number),
            Ok(false) => {}
            Err(error) => return Err(wrong_kind(compound, error).await),
        }
    }
    IoAdviseOk { hints }.encode(reply);
    Ok(())
}

/// Returns the hint to follow, with its bit. "The server MUST NOT return an error if the client sends contradictory
/// hints": of those, the cheapest wins.
fn wanted(hints: Bitmap) -> Option<(Advice, u32)> {
    let known = [(Advice::WillNeed, advice::WILLNEED), (Advice::DontNeed, advice::DONTNEED)];
    known.into_iter().find(|(_, number)| hints.has(*number))
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::space::{IoAdviseArgs, advice};
    use protocol::nfs4::types::{Bitmap, Stateid, Status};

    use crate::testing::{lab_42, putfh};

    fn advise(stateid: Stateid, hints: &[u32]) -> Op {
        Op::IoAdvise(IoAdviseArgs { stateid, offset: 0, count: 0, hints: Bitmap::of(hints) })
    }

    #[test]
    fn the_memory_file_system_accepts_any_advice() {
        let mut lab = lab_42();
        lab.file(&["export", "file"], b"data");
        let (file, stateid) = lab.open(&["export", "file"], b"owner");
        // RFC 7862 §15.5.3: "MUST NOT return an error if the client sends contradictory hints", nor for unknown ones.
        for hints in
            [&[][..], &[advice::SEQUENTIAL, advice::RANDOM], &[advice::WILLNEED, advice::DONTNEED], &[60]]
        {
            let result = lab.last(vec![putfh(file), advise(stateid, hints)]);
            let OpResult::IoAdvise(result) = result else { panic!("{result:?}") };
            assert!(result.into_result().unwrap().hints.is_empty(), "{hints:?}");
        }
    }

    #[test]
    fn checks_stateids_and_kinds() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"data");
        let wrong = advise(Stateid { seqid: 1, other: [7; 12] }, &[advice::WILLNEED]);
        assert_eq!(lab.status(vec![putfh(file), wrong]), Status::BAD_STATEID);
        assert_eq!(lab.status_at(&["export"], advise(Stateid::ANONYMOUS, &[advice::NORMAL])), Status::ISDIR);
    }
}
