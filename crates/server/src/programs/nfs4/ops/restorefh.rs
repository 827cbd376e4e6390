//! RESTOREFH (RFC 8881 §18.27): makes the saved file handle and stateid current again.

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>) -> Result {
    compound.restore()
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::types::Status;

    use crate::testing::{at, lab};

    #[test]
    fn needs_a_saved_file_handle() {
        // RFC 8881 §18.27.3; version 4.0 has the status RESTOREFH.
        assert_eq!(lab().status(vec![Op::PutRootFh, Op::RestoreFh]), Status::NOFILEHANDLE);
    }

    #[test]
    fn restores_the_saved_handle() {
        let mut lab = lab();
        let export = lab.handle(&["export"]);
        let ops = at(&["export"], vec![Op::SaveFh, Op::PutRootFh, Op::RestoreFh, Op::GetFh]);
        assert_eq!(lab.last(ops), protocol::nfs4::compound::OpResult::GetFh(Ok(export).into()));
    }
}
