//! NVERIFY (RFC 8881 §18.15): ends the compound if attributes have the given values.

use protocol::nfs4::types::Status;
use xdr::Reader;

use super::verify::is_same;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    if is_same(compound, arguments).await? { Err(Status::SAME.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::Attributes;
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::verify::VerifyArgs;
    use protocol::nfs4::types::{FileType, Status};

    use crate::testing::lab;

    #[test]
    fn works_on_the_pseudo_file_system_too() {
        let of = |file_type| {
            let attributes = Attributes { file_type: Some(file_type), ..Attributes::default() };
            Op::NVerify(VerifyArgs { attributes: attributes.to_file_attributes() })
        };
        let mut lab = lab();
        assert_eq!(lab.status_at(&[], of(FileType::DIRECTORY)), Status::SAME);
        assert_eq!(lab.status_at(&[], of(FileType::REGULAR)), Status::OK);
    }
}
