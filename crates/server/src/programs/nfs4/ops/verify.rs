//! VERIFY (RFC 8881 §18.31): ends the compound unless attributes have the given values.

use protocol::nfs4::attributes::{Attributes, FileAttributes, number};
use protocol::nfs4::types::{Bitmap, Status};
use xdr::{Decode, Reader, Writer};

use super::getattr::write_attributes;
use crate::programs::nfs4::absent;
use crate::programs::nfs4::attributes::{readable, supported};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    if is_same(compound, arguments).await? { Ok(()) } else { Err(Status::NOT_SAME.into()) }
}

/// Returns whether the current object has the given attributes. Each value has one encoding, so bytes are compared.
pub(super) async fn is_same(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result<bool> {
    let sent = FileAttributes::decode(arguments)?;
    let mask = comparable(&sent, compound.minor)?;
    let mut ours = Writer::new();
    match compound.current_absent() {
        Some(file) => compound.write_absent(file, absent::of_verify(&file, mask)?, Status::OK, &mut ours),
        // As for GETATTR, the holder of a write delegation is queried first.
        None => write_attributes(compound, mask, &mut ours).await?,
    }
    let ours = FileAttributes::decode(&mut Reader::new(ours.into_bytes()))?;
    // An attribute that this object lacks equals no value.
    Ok(ours == sent)
}

/// Returns the attributes to compare.
///
/// RFC 8881 §18.31.4: "When the attribute rdattr_error or any set-only attribute … is specified, the error NFS4ERR_INVAL
/// is returned to the client"; ATTRNOTSUPP for an unsupported one.
fn comparable(sent: &FileAttributes, minor: u32) -> Result<Bitmap> {
    let mask = sent.mask;
    readable(mask, minor)?;
    if mask.has(number::RDATTR_ERROR) {
        return Err(Status::INVAL.into());
    }
    if !mask.is_subset(supported(minor)) {
        return Err(Status::ATTRNOTSUPP.into());
    }
    Attributes::from_file_attributes(sent).map_err(|error| error.status())?;
    Ok(mask)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::{Attributes, FileAttributes, number as n};
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::verify::VerifyArgs;
    use protocol::nfs4::types::{Bitmap, FileType, Status};

    use crate::testing::{Lab, lab};

    fn both(lab: &mut Lab, attributes: FileAttributes) -> (Status, Status) {
        let verify = Op::Verify(VerifyArgs { attributes: attributes.clone() });
        let nverify = Op::NVerify(VerifyArgs { attributes });
        (lab.status_at(&["export", "file"], verify), lab.status_at(&["export", "file"], nverify))
    }

    #[test]
    fn continues_or_stops_by_comparison() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"hello");
        let of = |size| {
            Attributes { size: Some(size), file_type: Some(FileType::REGULAR), ..Attributes::default() }
                .to_file_attributes()
        };
        assert_eq!(both(&mut lab, of(5)), (Status::OK, Status::SAME));
        assert_eq!(both(&mut lab, of(6)), (Status::NOT_SAME, Status::OK));
        let seen = lab.attributes(&["export", "file"], &[n::SPACE_TOTAL, n::OWNER, n::TIME_METADATA]);
        assert_eq!(both(&mut lab, seen.to_file_attributes()), (Status::OK, Status::SAME));
    }

    #[test]
    fn refuses_incomparable_attributes() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let of = |number, length: usize| FileAttributes::new(Bitmap::of(&[number]), vec![0; length]).unwrap();
        let same = |status| (status, status);
        assert_eq!(both(&mut lab, of(n::RDATTR_ERROR, 4)), same(Status::INVAL));
        assert_eq!(both(&mut lab, of(n::TIME_MODIFY_SET, 4)), same(Status::INVAL));
        assert_eq!(both(&mut lab, of(n::HIDDEN, 4)), same(Status::ATTRNOTSUPP));
        assert_eq!(both(&mut lab, of(n::SIZE, 4)), same(Status::BADXDR));
    }
}
