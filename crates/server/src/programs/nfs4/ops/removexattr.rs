//! REMOVEXATTR (RFC 8276 §8.4.4).

use protocol::nfs4::ops::xattr::RemoveXattrArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader, Writer};

use super::getxattr::check_name;
use crate::files::rights::Right;
use crate::programs::nfs4::compound::{Compound, put_change};
use crate::programs::nfs4::status::Result;
use crate::state::Conflict;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let RemoveXattrArgs { name } = RemoveXattrArgs::decode(arguments)?;
    check_name(&name)?;
    let file = compound.writable(Status::NOTSUPP)?;
    // A delegation covers extended attributes too: its holder does not revalidate them.
    let _changing = compound.announce_change(&file);
    compound.recall_conflicts(&file, Conflict::Any, Right::Xattrs).await?;
    let context = compound.changing_context(file.export);
    let change = compound.logged_ops().remove_xattr(file.export, &context, &file.handle, &name).await?;
    put_change(&change, reply);
    compound.set_fresh(change.after);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::xattr::{RemoveXattrArgs, SetXattrOption};
    use protocol::nfs4::types::Status;

    use crate::programs::nfs4::ops::getxattr::tests::{get, key, set};
    use crate::testing::{lab_42, putfh};

    fn remove(name: &str) -> Op {
        Op::RemoveXattr(RemoveXattrArgs { name: key(name) })
    }

    #[test]
    fn removes_once() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        lab.ok(vec![putfh(file), set(SetXattrOption::EITHER, "name", &b"value"[..])]);
        let before = lab.attributes(&["export", "file"], &[n::CHANGE]).change;
        let OpResult::RemoveXattr(change) = lab.last(vec![putfh(file), remove("name")]) else {
            panic!("REMOVEXATTR")
        };
        let change = change.into_result().unwrap();
        assert_eq!(Some(change.before), before);
        assert_ne!(change.after, change.before);
        assert_eq!(get(&mut lab, file, "name"), Err(Status::NOXATTR));
        assert_eq!(lab.status(vec![putfh(file), remove("name")]), Status::NOXATTR);
        assert_eq!(lab.status(vec![putfh(file), remove("")]), Status::INVAL);
        assert_eq!(lab.status_at(&[], remove("name")), Status::NOTSUPP);
    }
}
