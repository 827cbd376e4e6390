//! WRITE (RFC 8881 §18.32).

use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs4::types::{StableHow, Stateid, Status};
use vfs::Stability;
use xdr::{Decode, Reader, Writer};

use super::read::wrong_kind;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::{IoKind, stable_how};

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let stateid = Stateid::decode(arguments)?;
    let offset = arguments.u64()?;
    let stable = StableHow::decode(arguments)?;
    // The record bounds the length: `max_record` has room for `max_io` bytes and little more.
    let data = arguments.opaque(arguments.remaining())?;
    let file = compound.writable(Status::ISDIR)?;
    // No delegation is granted between the check for conflicts and the write.
    let _changing = compound.announce_change(&file);
    let permit = compound.admit_io(&file, stateid, IoKind::Write).await?;
    if offset.checked_add(data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
        return Err(Status::FBIG.into());
    }
    let context = compound.changing_context(file.export);
    let backend = &file.export.backend;
    let stability = match stable {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    };
    // The verifier is read before the data are written: otherwise a loss in between would be hidden from the client.
    let verifier = backend.write_verifier();
    let write = backend.write(&context, &file.handle, offset, &data, stability, permit.authority);
    let written = match write.await {
        Ok(written) => written,
        Err(error) => return Err(wrong_kind(compound, error).await),
    };
    reply.u32(written.count);
    reply.u32(stable_how(written.stability) as u32);
    reply.opaque_fixed(&verifier);
    file.export.counts.written_bytes.fetch_add(u64::from(written.count), Relaxed);
    compound.set_fresh(written.change.after);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::open::ShareAccess;
    use protocol::nfs4::ops::write::WriteArgs;
    use protocol::nfs4::types::{Handle, StableHow, Stateid, Status};
    use xdr::Opaque;

    use crate::testing::{Lab, at, attributes_in, create, getattr, lab, open, putfh, read_only};

    fn write(stateid: Stateid, offset: u64, stable: StableHow, data: &'static [u8]) -> Op {
        Op::Write(WriteArgs { stateid, offset, stable, data: Opaque::from_static(data) })
    }

    #[test]
    fn writes_as_stable_as_wanted_and_getattr_sees_it() {
        let mut lab = lab();
        let (file, stateid) = {
            lab.file(&["export", "file"], b"");
            lab.open(&["export", "file"], b"owner")
        };
        for stable in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync] {
            let ops = vec![putfh(file), write(stateid, 10, stable, b"abc"), getattr(&[n::SIZE])];
            let results = lab.ok(ops);
            match &results[1..] {
                [OpResult::Write(written), getattr] => {
                    let written = written.as_result().unwrap();
                    assert_eq!(written.count, 3);
                    assert!(written.committed >= stable);
                    assert_eq!(attributes_in(getattr).size, Some(13));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_open_for_reading_does_not_write() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let op = write(Stateid::CURRENT, 0, StableHow::Unstable, b"x");
        let ops = vec![open("file", b"reader", ShareAccess::READ), op];
        assert_eq!(lab.status(at(&["export"], ops)), Status::OPENMODE);
    }

    #[test]
    fn refuses_offsets_beyond_the_largest_file() {
        let mut lab = lab();
        let file = lab.file(&["export", "file"], b"");
        for offset in [u64::MAX, i64::MAX as u64] {
            let op = write(Stateid::ANONYMOUS, offset, StableHow::Unstable, b"x");
            assert_eq!(lab.status(vec![putfh(file), op]), Status::FBIG);
        }
        let nothing = write(Stateid::ANONYMOUS, 0, StableHow::Unstable, b"");
        assert_eq!(lab.status(vec![putfh(file), nothing]), Status::OK);
        let op = || write(Stateid::ANONYMOUS, 0, StableHow::Unstable, b"x");
        assert_eq!(lab.status_at(&["export"], op()), Status::ISDIR);
        assert_eq!(lab.status_at(&[], op()), Status::ISDIR);
    }

    #[test]
    fn refuses_on_a_read_only_export() {
        let (mut lab, file) = read_only();
        let op = write(Stateid::ANONYMOUS, 0, StableHow::Unstable, b"x");
        assert_eq!(lab.status(vec![putfh(file), op]), Status::ROFS);
    }

    /// Returns a file of mode 0644 that user 1000 has created, and has open.
    fn created() -> (Lab, Handle, Stateid) {
        let mut lab = lab();
        let mode = protocol::nfs4::ops::setattr::SetAttrArgs {
            stateid: Stateid::ANONYMOUS,
            attributes: crate::testing::mode(0o777),
        };
        lab.ok(at(&["export"], vec![Op::SetAttr(mode)]));
        lab.uid = 1000;
        let results = lab.ok(at(&["export"], vec![create("file", b"owner"), Op::GetFh]));
        let [OpResult::Open(open), OpResult::GetFh(file)] = &results[2..] else { panic!("{results:?}") };
        (lab, *file.as_result().unwrap(), open.as_result().unwrap().stateid)
    }

    #[test]
    fn an_open_grants_its_opener_access_and_no_other() {
        let (mut lab, file, stateid) = created();
        let write = write(stateid, 0, StableHow::FileSync, b"x");
        assert_eq!(lab.status(vec![putfh(file), write.clone()]), Status::OK);
        lab.uid = 2000;
        assert_eq!(lab.status(vec![putfh(file), write]), Status::ACCESS);
    }

    #[test]
    fn an_open_of_two_users_needs_permission_of_each() {
        let (mut lab, file, _) = created();
        // The mode, 0644, lets the other read, who upgrades the first one's open for both.
        lab.uid = 2000;
        let upgraded = lab.ok(at(&["export"], vec![open("file", b"owner", ShareAccess::READ)]));
        let stateid = crate::testing::open_result(&upgraded[2]).stateid;
        let write = write(stateid, 0, StableHow::FileSync, b"x");
        assert_eq!(lab.status(vec![putfh(file), write.clone()]), Status::ACCESS);
        lab.uid = 1000;
        assert_eq!(lab.status(vec![putfh(file), write]), Status::OK, "by the file's mode");
    }
}
