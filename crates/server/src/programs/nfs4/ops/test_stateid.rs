//! TEST_STATEID (RFC 8881 §18.48): tests stateids.

use protocol::nfs4::ops::stateid::TestStateidArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Encode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let TestStateidArgs { stateids } = TestStateidArgs::decode(arguments)?;
    let client = compound.client()?;
    reply.u32(stateids.len() as u32);
    for stateid in &stateids {
        // "Special stateids are always considered invalid (they result in the error code NFS4ERR_BAD_STATEID)" (§18.48.3).
        let status = if stateid.is_special() {
            Status::BAD_STATEID
        } else {
            compound.state().test_stateid(client, stateid)
        };
        status.encode(reply);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::types::Stateid;
    use xdr::List;

    use super::*;
    use crate::testing::lab;

    #[test]
    fn returns_a_status_per_stateid() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let (_, open) = lab.open(&["export", "file"], b"owner");
        let newer = Stateid { seqid: open.seqid + 1, ..open };
        let stateids = vec![open, Stateid::ANONYMOUS, Stateid { seqid: 1, other: [7; 12] }, newer];
        let stateids = List::new(stateids).unwrap();
        let op = Op::TestStateid(TestStateidArgs { stateids });
        let OpResult::TestStateid(tested) = lab.last(vec![op]) else { panic!() };
        let bad = Status::BAD_STATEID;
        assert_eq!(tested.into_result().unwrap().into_vec(), [Status::OK, bad, bad, bad]);
    }
}
