//! FREE_STATEID (RFC 8881 §18.38): frees a stateid without locks.

use protocol::nfs4::ops::stateid::FreeStateidArgs;
use protocol::nfs4::types::{Stateid, Status};
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let FreeStateidArgs { stateid } = FreeStateidArgs::decode(arguments)?;
    // RFC 8881 §18.38.3 permits only stateids that the server returned; the current one is such a stateid.
    let stateid = compound.stateid(stateid)?;
    if stateid.is_special() && stateid != Stateid::CURRENT {
        return Err(Status::BAD_STATEID.into());
    }
    Ok(compound.state().free_stateid(compound.client()?, &stateid)?)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;

    use super::*;
    use crate::testing::lab;

    #[test]
    fn an_open_is_not_free() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let (_, open) = lab.open(&["export", "file"], b"owner");
        let free = |stateid| Op::FreeStateid(FreeStateidArgs { stateid });
        assert_eq!(lab.status(vec![free(open)]), Status::LOCKS_HELD);
        for stateid in [Stateid::ANONYMOUS, Stateid::CURRENT, Stateid { seqid: 1, other: [7; 12] }] {
            assert_eq!(lab.status(vec![free(stateid)]), Status::BAD_STATEID);
        }
    }
}
