//! ALLOCATE (RFC 7862 §15.1): reserves space for a range.

use protocol::nfs4::ops::space::AllocateArgs;
use protocol::nfs4::types::{Stateid, Status};
use vfs::{Authority, Backend, Change, Context, Handle};
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::{Failure, Result};
use crate::state::IoKind;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let AllocateArgs { stateid, offset, length } = AllocateArgs::decode(arguments)?;
    change(compound, stateid, |backend, context, file, authority| {
        backend.allocate(context, file, offset, length, authority)
    })
    .await
}

/// Changes the allocated space of the current file.
pub(super) async fn change(
    compound: &mut Compound<'_>,
    stateid: Stateid,
    work: impl for<'a> FnOnce(&'a dyn Backend, &'a Context, &'a Handle, Authority) -> vfs::Op<'a, Change>,
) -> Result {
    let file = compound.writable(Status::WRONG_TYPE)?;
    let _changing = compound.announce_change(&file);
    // "The aa_stateid MUST refer to a stateid that is valid for a WRITE operation" (§15.1.3), and alike in §15.4.3.
    let permit = compound.admit_io(&file, stateid, IoKind::Write).await?;
    let context = compound.changing_context(file.export);
    match work(&*file.export.backend, &context, &file.handle, permit.authority).await {
        Ok(change) => {
            compound.set_fresh(change.after);
            Ok(())
        }
        Err(error) => Err(regular_only(error)),
    }
}

/// Converts the error of an operation that only regular files support.
///
/// RFC 7862 §15.1.3, and alike in §15.2.3, §15.4.3, §15.13.3: "If CURRENT_FH is not a regular file, the operation MUST fail
/// and return NFS4ERR_WRONG_TYPE."
pub(super) fn regular_only(error: vfs::Error) -> Failure {
    match error {
        vfs::Error::IsDirectory | vfs::Error::IsSymlink => Status::WRONG_TYPE.into(),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::open::ShareAccess;
    use protocol::nfs4::ops::space::AllocateArgs;
    use protocol::nfs4::types::{Stateid, Status};

    use crate::testing::{at, attributes_in, export, getattr, lab_42, lab_of, open, putfh, read_only};

    fn allocate(stateid: Stateid, offset: u64, length: u64) -> Op {
        Op::Allocate(AllocateArgs { stateid, offset, length })
    }

    #[test]
    fn reserves_and_extends() {
        let mut lab = lab_42();
        lab.file(&["export", "file"], b"data");
        let (file, stateid) = lab.open(&["export", "file"], b"owner");
        let ops = vec![putfh(file), allocate(stateid, 100, 10_000), getattr(&[n::SIZE, n::SPACE_USED])];
        let after = attributes_in(&lab.last(ops));
        assert_eq!(after.size, Some(10_100));
        assert!(after.space_used.is_some_and(|used| used >= 10_100));
        let inside = vec![putfh(file), allocate(stateid, 0, 1), getattr(&[n::SIZE])];
        assert_eq!(attributes_in(&lab.last(inside)).size, Some(10_100));
    }

    #[test]
    fn refuses_wrong_ranges_kinds_and_stateids() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"data");
        for (offset, length, status) in
            [(0, 0, Status::INVAL), (u64::MAX, 2, Status::INVAL), (i64::MAX as u64, 1, Status::FBIG)]
        {
            let op = allocate(Stateid::ANONYMOUS, offset, length);
            assert_eq!(lab.status(vec![putfh(file), op]), status, "{length} at {offset}");
        }
        let op = || allocate(Stateid::ANONYMOUS, 0, 1);
        assert_eq!(lab.status_at(&["export"], op()), Status::WRONG_TYPE);
        assert_eq!(lab.status_at(&[], op()), Status::WRONG_TYPE);
        let ops = vec![open("file", b"reader", ShareAccess::READ), allocate(Stateid::CURRENT, 0, 1)];
        assert_eq!(lab.status(at(&["export"], ops)), Status::OPENMODE);
    }

    #[test]
    fn fails_without_free_space() {
        let options = vfs::MemOptions { max_bytes: 1 << 20, ..vfs::MemOptions::default() };
        let backend = std::sync::Arc::new(vfs::MemFs::new(&options));
        let mut lab = lab_of(vec![crate::Export { backend, ..export(1, "/export") }]);
        lab.minor = 2;
        let file = lab.file(&["export", "file"], b"data");
        let too_much = allocate(Stateid::ANONYMOUS, 0, 2 << 20);
        assert_eq!(lab.status(vec![putfh(file), too_much]), Status::NOSPC);
        assert_eq!(lab.attributes(&["export", "file"], &[n::SIZE]).size, Some(4));
    }

    #[test]
    fn refuses_on_a_read_only_export() {
        let (mut lab, file) = read_only();
        assert_eq!(lab.status(vec![putfh(file), allocate(Stateid::ANONYMOUS, 0, 1)]), Status::ROFS);
    }
}
