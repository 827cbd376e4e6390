//! DEALLOCATE (RFC 7862 §15.4): turns a range into a hole.

use protocol::nfs4::ops::space::DeallocateArgs;
use xdr::{Decode, Reader};

use super::allocate::change;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let DeallocateArgs { stateid, offset, length } = DeallocateArgs::decode(arguments)?;
    change(compound, stateid, |backend, context, file, authority| {
        backend.deallocate(context, file, offset, length, authority)
    })
    .await
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::open::ShareAccess;
    use protocol::nfs4::ops::read::ReadArgs;
    use protocol::nfs4::ops::space::DeallocateArgs;
    use protocol::nfs4::types::{Stateid, Status};

    use crate::testing::{at, lab_42, open, putfh};

    fn deallocate(stateid: Stateid, offset: u64, length: u64) -> Op {
        Op::Deallocate(DeallocateArgs { stateid, offset, length })
    }

    #[test]
    fn the_range_reads_as_zeros_and_the_size_is_unchanged() {
        let mut lab = lab_42();
        lab.file(&["export", "file"], b"0123456789");
        let (file, stateid) = lab.open(&["export", "file"], b"owner");
        let before = lab.attributes(&["export", "file"], &[n::CHANGE]).change;
        lab.ok(vec![putfh(file), deallocate(stateid, 2, 3), deallocate(stateid, 8, 1 << 40)]);
        let read = Op::Read(ReadArgs { stateid, offset: 0, count: 100 });
        let OpResult::Read(read) = lab.last(vec![putfh(file), read]) else { panic!("READ") };
        assert_eq!(&read.into_result().unwrap().data[..], b"01\0\0\x00567\0\0");
        assert_ne!(lab.attributes(&["export", "file"], &[n::CHANGE]).change, before);
    }

    #[test]
    fn refuses_wrong_ranges_kinds_and_stateids() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"data");
        for (offset, length) in [(0, 0), (u64::MAX, 2), (2, u64::MAX)] {
            let op = deallocate(Stateid::ANONYMOUS, offset, length);
            assert_eq!(lab.status(vec![putfh(file), op]), Status::INVAL, "{length} at {offset}");
        }
        assert_eq!(lab.status_at(&["export"], deallocate(Stateid::ANONYMOUS, 0, 1)), Status::WRONG_TYPE);
        let ops = vec![open("file", b"reader", ShareAccess::READ), deallocate(Stateid::CURRENT, 0, 1)];
        assert_eq!(lab.status(at(&["export"], ops)), Status::OPENMODE);
    }
}
