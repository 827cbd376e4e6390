//! SECINFO_NO_NAME (RFC 8881 §18.45): lists the security flavors of the current object or its parent.

use protocol::nfs4::ops::secinfo::SecInfoStyle;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader, Writer};

use super::lookupp::parent;
use super::secinfo::put_flavors;
use crate::files::object::Object;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let current = compound.current()?;
    let flavors = match SecInfoStyle::decode(arguments)? {
        SecInfoStyle::CURRENT_FH => compound.flavors(&current),
        // As for SECINFO: the parent is in the same export, whose flavors are known.
        SecInfoStyle::PARENT if is_refused(compound, &current) => compound.flavors(&current),
        // "SECINFO should apply the same access methodology used for LOOKUPP" (§18.45.3).
        SecInfoStyle::PARENT => compound.flavors(&parent(compound).await?.0),
        _ => return Err(Status::BADXDR.into()),
    };
    put_flavors(flavors, reply);
    compound.consume_current();
    Ok(())
}

/// Returns whether the object is below the root of an export that this call may not enter.
fn is_refused(compound: &Compound<'_>, current: &Object<'_>) -> bool {
    matches!(current, Object::File(file) if !file.is_root()) && !compound.allows(current)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::secinfo::{SecInfoNoNameArgs, SecInfoStyle};
    use protocol::nfs4::types::Status;

    use crate::testing::{at, lab};

    fn ask(style: SecInfoStyle) -> Op {
        Op::SecInfoNoName(SecInfoNoNameArgs { style })
    }

    #[test]
    fn lists_flavors_of_the_object_or_its_parent() {
        let mut lab = lab();
        assert_eq!(lab.status_at(&[], ask(SecInfoStyle::CURRENT_FH)), Status::OK);
        assert_eq!(lab.status_at(&["export"], ask(SecInfoStyle::PARENT)), Status::OK);
        // RFC 8881 §18.45.3: "no parent directory … MUST return NFS4ERR_NOENT".
        assert_eq!(lab.status_at(&[], ask(SecInfoStyle::PARENT)), Status::NOENT);
        assert_eq!(lab.status_at(&[], ask(SecInfoStyle(2))), Status::BADXDR);
        let consumed = at(&["export"], vec![ask(SecInfoStyle::CURRENT_FH), Op::GetFh]);
        assert_eq!(lab.status(consumed), Status::NOFILEHANDLE);
    }
}
