//! LINK (RFC 8881 §18.9): creates a name for the saved file in the current directory.

use protocol::nfs4::ops::link::LinkArgs;
use protocol::nfs4::types::Status;
use vfs::FileKind;
use xdr::{Decode, Reader, Writer};

use crate::files::names;
use crate::files::object::{File, Object};
use crate::programs::nfs4::compound::{Compound, put_change};
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let LinkArgs { new_name } = LinkArgs::decode(arguments)?;
    let (file, directory) = both(compound)?;
    names::check(&new_name)?;
    let context = compound.changing_context(directory.export);
    match compound.changer().link(directory.place(&context), &file.handle, &new_name).await {
        Ok(linked) => {
            put_change(&linked.directory, reply);
            compound.set_fresh(linked.directory.after);
            Ok(())
        }
        // link(2) returns EPERM for a directory; NFS has ISDIR (§15.2).
        Err(vfs::Error::NotPermitted) => match compound.attributes_of(&Object::File(file)).await {
            Ok(attributes) if attributes.kind == FileKind::Directory => Err(Status::ISDIR.into()),
            _ => Err(Status::PERM.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Returns the saved and the current object, of one writable export.
///
/// RFC 8881 §18.9.3, §18.26.3: both "must reside within the same file system"; else XDEV.
pub(super) fn both<'r>(compound: &Compound<'r>) -> Result<(File<'r>, File<'r>)> {
    match (compound.saved()?, compound.current()?) {
        (Object::Pseudo(_), Object::Pseudo(_)) => Err(Status::ROFS.into()),
        (Object::File(saved), Object::File(current)) if saved.export.id == current.export.id => {
            Ok((saved, compound.writable(Status::ROFS).map(|_| current)?))
        }
        _ => Err(Status::XDEV.into()),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::link::LinkArgs;
    use protocol::nfs4::types::Status;

    use crate::testing::{attributes_in, export, getattr, lab_of, lookup, name};

    fn link(file: &[&'static str], to: &[&'static str], new: &'static str) -> Vec<Op> {
        let mut ops = vec![Op::PutRootFh];
        ops.extend(file.iter().map(|name| lookup(name)));
        ops.extend([Op::SaveFh, Op::PutRootFh]);
        ops.extend(to.iter().map(|name| lookup(name)));
        ops.push(Op::Link(LinkArgs { new_name: name(new) }));
        ops
    }

    #[test]
    fn creates_another_name() {
        let mut lab = lab_of(vec![export(1, "/export"), export(2, "/other")]);
        let file = lab.file(&["export", "file"], b"");
        let mut ops = link(&["export", "file"], &["export"], "again");
        ops.extend([Op::RestoreFh, getattr(&[n::NUMLINKS])]);
        let mut results = lab.ok(ops);
        assert_eq!(attributes_in(&results.pop().unwrap()).numlinks, Some(2));
        results.pop();
        let Some(OpResult::Link(linked)) = results.pop() else { panic!() };
        assert_ne!(linked.as_result().unwrap().before, linked.as_result().unwrap().after);
        assert_eq!(lab.handle(&["export", "again"]), file);
        for (target, directory, new, status) in [
            (&["export", "file"][..], &["export"][..], "again", Status::EXIST),
            (&["export", "file"], &["export"], "", Status::INVAL),
            (&["export", "file"], &["other"], "x", Status::XDEV),
            (&["export", "file"], &["export", "file"], "x", Status::NOTDIR),
            (&["export"], &["export"], "x", Status::ISDIR),
            (&["export", "file"], &[], "x", Status::XDEV),
        ] {
            assert_eq!(lab.status(link(target, directory, new)), status, "{target:?} {directory:?} {new}");
        }
    }
}
