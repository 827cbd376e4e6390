//! LOCKU (RFC 8881 §18.12): unlocks a range of bytes.

use protocol::nfs4::ops::lock::LockUArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Encode, Reader, Writer};

use crate::nfs4::compound::Compound;
use crate::nfs4::state::LockRange;
use crate::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = LockUArgs::decode(arguments)?;
    let file = compound.file(Status::BAD_STATEID)?;
    let range = LockRange::new(arguments.offset, arguments.length)?;
    let stateid = compound.stateid(arguments.lock_stateid)?;
    let key = file.key(compound.server());
    let unlocked = compound.state().unlock(compound.now(), compound.client()?, key, &stateid, range)?;
    unlocked.encode(reply);
    compound.set_stateid(unlocked);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::lock::LockType;
    use protocol::nfs4::types::Stateid;

    use super::*;
    use crate::testing::{lab, putfh};

    #[test]
    fn an_open_s_stateid_is_no_lock_s() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let (file, open) = lab.open(&["export", "file"], b"owner");
        for lock_stateid in [open, Stateid::ANONYMOUS, Stateid { seqid: 1, other: [7; 12] }] {
            let unlock = Op::LockU(LockUArgs {
                lock_type: LockType::Write,
                seqid: 0,
                lock_stateid,
                offset: 0,
                length: 1,
            });
            assert_eq!(lab.status(vec![putfh(file), unlock]), Status::BAD_STATEID);
        }
    }
}
