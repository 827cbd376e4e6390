//! RECLAIM_COMPLETE (RFC 8881 §18.51): ends the reclaims of a client.

use protocol::nfs4::ops::session::ReclaimCompleteArgs;
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let ReclaimCompleteArgs { one_fs } = ReclaimCompleteArgs::decode(arguments)?;
    if one_fs {
        // §18.51.3: for a migrated file system, which "is specified by the current filehandle". Migration is not supported, so
        // there is nothing to remember.
        compound.current()?;
        return Ok(());
    }
    Ok(compound.state().reclaim_complete(compound.client()?)?)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::types::Status;

    use super::*;
    use crate::testing::{at, lab};

    #[test]
    fn succeeds_once_globally_and_always_for_one_file_system() {
        let mut lab = lab();
        let done = |one_fs| Op::ReclaimComplete(ReclaimCompleteArgs { one_fs });
        assert_eq!(lab.status(vec![done(false)]), Status::COMPLETE_ALREADY);
        assert_eq!(lab.status(vec![done(true)]), Status::NOFILEHANDLE);
        assert_eq!(lab.status(at(&["export"], vec![done(true)])), Status::OK);
    }
}
