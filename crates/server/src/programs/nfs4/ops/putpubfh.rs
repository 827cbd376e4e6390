//! PUTPUBFH (RFC 8881 §18.20): the public file handle is the root's, as both "SHOULD be equivalent".

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>) -> Result {
    super::putrootfh::run(compound)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;

    use crate::testing::lab;

    #[test]
    fn the_public_handle_is_the_root() {
        let mut lab = lab();
        let root = lab.last(vec![Op::PutRootFh, Op::GetFh]);
        assert_eq!(lab.last(vec![Op::PutPubFh, Op::GetFh]), root);
    }
}
