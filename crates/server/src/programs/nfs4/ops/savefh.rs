//! SAVEFH (RFC 8881 §18.28): saves the current file handle and stateid.

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>) -> Result {
    compound.save()
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::types::Status;

    use crate::testing::lab;

    #[test]
    fn needs_a_current_file_handle() {
        assert_eq!(lab().status(vec![Op::SaveFh]), Status::NOFILEHANDLE);
    }
}
