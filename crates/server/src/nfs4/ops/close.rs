//! CLOSE (RFC 8881 §18.2).

use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::types::{Stateid, Status};
use xdr::{Decode, Encode, Reader, Writer};

use crate::nfs4::compound::Compound;
use crate::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let CloseArgs { open_stateid, .. } = CloseArgs::decode(arguments)?;
    let file = compound.file(Status::BAD_STATEID)?;
    let stateid = compound.exact_stateid(open_stateid)?;
    compound.state().close(compound.client()?, file.key(compound.server()), &stateid)?;
    // RFC 8881 §18.2.4: "the server SHOULD return the invalid special stateid".
    Stateid::INVALID.encode(reply);
    compound.set_stateid(Stateid::INVALID);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::read::ReadArgs;

    use super::*;
    use crate::testing::{lab, putfh};

    #[test]
    fn the_stateid_is_gone_afterwards() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let other_file = lab.file(&["export", "other"], b"");
        let (file, stateid) = lab.open(&["export", "file"], b"owner");
        let close = || Op::Close(CloseArgs { seqid: 0, open_stateid: stateid });
        assert_eq!(lab.status(vec![putfh(other_file), close()]), Status::BAD_STATEID, "of another file");
        let OpResult::Close(closed) = lab.last(vec![putfh(file), close()]) else { panic!() };
        assert_eq!(closed.into_result(), Ok(Stateid::INVALID));
        assert_eq!(lab.status(vec![putfh(file), close()]), Status::BAD_STATEID);
        let read = Op::Read(ReadArgs { stateid, offset: 0, count: 1 });
        assert_eq!(lab.status(vec![putfh(file), read]), Status::BAD_STATEID);
    }
}
