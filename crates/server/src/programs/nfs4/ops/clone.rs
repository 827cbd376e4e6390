//! CLONE (RFC 7862 §15.13): makes a range of a file share the blocks of another range.

use protocol::nfs4::ops::space::CloneArgs;
use protocol::nfs4::types::{Stateid, Status};
use vfs::CopyRange;
use xdr::{Decode, Reader};

use super::allocate::regular_only;
use crate::files::object::{File, Object};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::{ChangeGuard, IoKind};

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let arguments = CloneArgs::decode(arguments)?;
    let stateids = (arguments.source_stateid, arguments.destination_stateid);
    let (range, destination, _changing) = judge(compound, stateids).await?;
    let range = CopyRange {
        source_offset: arguments.source_offset,
        destination_offset: arguments.destination_offset,
        count: arguments.count,
        ..range
    };
    let context = compound.changing_context(destination.export);
    match destination.export.backend.clone_range(&context, &range).await {
        Ok(change) => {
            compound.set_fresh(change.after);
            Ok(())
        }
        Err(error) => Err(regular_only(error)),
    }
}

/// Checks that CLONE or COPY may read the one file and write the other. The destination is not delegated until the guard is
/// dropped: the wait for the source may be long.
pub(super) async fn judge<'r>(
    compound: &Compound<'r>,
    (source_stateid, destination_stateid): (Stateid, Stateid),
) -> Result<(CopyRange, File<'r>, ChangeGuard<'r>)> {
    let Object::File(source) = compound.saved()? else { return Err(Status::WRONG_TYPE.into()) };
    let destination = compound.writable(Status::WRONG_TYPE)?;
    let changing = compound.announce_change(&destination);
    // "The ca_dst_stateid MUST refer to a stateid that is valid for a WRITE operation … The ca_src_stateid MUST refer to a
    // stateid that is valid for a READ operation" (§15.13.3).
    compound.check_io(&destination, destination_stateid, IoKind::Write)?;
    compound.check_io(&source, source_stateid, IoKind::Read)?;
    if source.export.id != destination.export.id {
        return Err(Status::XDEV.into());
    }
    let written = compound.admit_io(&destination, destination_stateid, IoKind::Write).await?;
    let read = compound.admit_io(&source, source_stateid, IoKind::Read).await?;
    let range = CopyRange {
        source: source.handle,
        source_offset: 0,
        source_authority: read.authority,
        destination: destination.handle,
        destination_offset: 0,
        destination_authority: written.authority,
        count: 0,
    };
    Ok((range, destination, changing))
}

#[cfg(test)]
pub(super) mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::space::CloneArgs;
    use protocol::nfs4::types::{Handle, Stateid, Status};

    use crate::testing::{Lab, content, export, lab_42, lab_of, putfh};

    /// Returns a source and a destination in one export, a file in another one, and a directory.
    pub(crate) fn between_two() -> (Lab, [Handle; 4]) {
        let mut lab = lab_of(vec![export(1, "/export"), export(2, "/other")]);
        lab.minor = 2;
        let from = lab.file(&["export", "source"], b"content");
        let to = lab.file(&["export", "destination"], b"x");
        let elsewhere = lab.file(&["other", "file"], b"x");
        let directory = lab.handle(&["export"]);
        (lab, [from, to, elsewhere, directory])
    }

    const ANY: CloneArgs = CloneArgs {
        source_stateid: Stateid::ANONYMOUS,
        destination_stateid: Stateid::ANONYMOUS,
        source_offset: 0,
        destination_offset: 0,
        count: 0,
    };

    #[test]
    fn the_destination_keeps_the_cloned_data() {
        let mut lab = lab_42();
        lab.file(&["export", "source"], b"content of the source");
        lab.file(&["export", "destination"], b"");
        let (from, read) = lab.open(&["export", "source"], b"owner");
        let (to, write) = lab.open(&["export", "destination"], b"owner");
        let args = CloneArgs { source_stateid: read, destination_stateid: write, ..ANY };
        lab.ok(vec![putfh(from), Op::SaveFh, putfh(to), Op::Clone(args)]);
        lab.file(&["export", "other"], b"");
        assert_eq!(content(&mut lab, to), b"content of the source");
        assert_eq!(lab.attributes(&["export"], &[n::CLONE_BLKSIZE]).clone_blksize, Some(4096));
        lab.minor = 1;
        assert_eq!(lab.attributes(&["export"], &[n::CLONE_BLKSIZE]).clone_blksize, None);
    }

    #[test]
    fn refuses_invalid_sources_and_ranges() {
        let (mut lab, [from, to, elsewhere, directory]) = between_two();
        let root = lab.handle(&[]);
        let mut status =
            |from, to, args| lab.status(vec![putfh(from), Op::SaveFh, putfh(to), Op::Clone(args)]);
        assert_eq!(status(from, to, CloneArgs { source_offset: 8, ..ANY }), Status::INVAL);
        assert_eq!(status(from, to, CloneArgs { count: 8, ..ANY }), Status::INVAL);
        assert_eq!(status(from, to, CloneArgs { destination_offset: 1, ..ANY }), Status::INVAL);
        assert_eq!(status(from, from, ANY), Status::INVAL, "it overlaps");
        assert_eq!(status(from, elsewhere, ANY), Status::XDEV);
        assert_eq!(status(directory, to, ANY), Status::WRONG_TYPE);
        assert_eq!(status(from, directory, ANY), Status::WRONG_TYPE);
        assert_eq!(status(root, to, ANY), Status::WRONG_TYPE);
        assert_eq!(status(from, root, ANY), Status::WRONG_TYPE);
        let wrong = Stateid { seqid: 1, other: [7; 12] };
        assert_eq!(status(from, to, CloneArgs { source_stateid: wrong, ..ANY }), Status::BAD_STATEID);
        assert_eq!(status(from, to, CloneArgs { destination_stateid: wrong, ..ANY }), Status::BAD_STATEID);
        assert_eq!(content(&mut lab, to), b"x");
        let alone = lab.status(vec![putfh(to), Op::Clone(ANY)]);
        assert_eq!(alone, Status::NOFILEHANDLE, "no saved file handle");
    }
}
