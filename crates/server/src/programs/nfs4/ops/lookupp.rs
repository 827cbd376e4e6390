//! LOOKUPP (RFC 8881 §18.14): makes the parent directory current, also from an export into the pseudo file system.

use protocol::nfs4::types::Status;
use vfs::Attributes;

use super::lookup::not_directory;
use crate::files::object::{File, Object};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>) -> Result {
    check_within(compound)?;
    let (object, fresh) = parent(compound).await?;
    compound.check_flavor(&object)?;
    compound.set_current(object, fresh);
    Ok(())
}

/// Checks access: the parent is in the same export, except at its root.
fn check_within(compound: &Compound<'_>) -> Result {
    match compound.current()? {
        Object::File(file) if file.is_root() => Ok(()),
        _ => compound.check_flavor_within(),
    }
}

/// Returns the parent of the current directory; also for SECINFO_NO_NAME.
///
/// RFC 8881 §18.14.3: "If there is no parent directory, an NFS4ERR_NOENT error must be returned."
pub(crate) async fn parent<'r>(compound: &Compound<'r>) -> Result<(Object<'r>, Option<Attributes>)> {
    let pseudo = compound.exports().pseudo();
    match compound.current()? {
        Object::Pseudo(node) => {
            let parent = pseudo.parent(node).ok_or(Status::NOENT)?;
            Ok((Object::Pseudo(parent), None))
        }
        Object::File(file) if file.is_root() => {
            if let Some(junction) = compound.exports().junction_of(file.export.id) {
                let outer = compound.export(junction.outer).ok_or(Status::STALE)?;
                return Ok((Object::File(File::new(outer, junction.directory)), None));
            }
            let mount = pseudo.mount_of(file.export.id).ok_or(Status::STALE)?;
            Ok((Object::Pseudo(pseudo.parent(mount).ok_or(Status::NOENT)?), None))
        }
        Object::File(file) => {
            let context = compound.context(file.export);
            match file.export.backend.parent(&context, &file.handle).await {
                Ok(found) => Ok((Object::File(file.with(found.handle)), Some(found.attributes))),
                Err(vfs::Error::NotDirectory) => Err(not_directory(compound, &file).await),
                Err(error) => Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::types::Status;

    use crate::testing::{at, export, lab, lab_of};

    #[test]
    fn goes_up_out_of_an_export_to_the_root() {
        let mut lab = lab_of(vec![export(1, "/data/a")]);
        let (root, data) = (lab.handle(&[]), lab.handle(&["data"]));
        let ups = |count| {
            let ups = std::iter::repeat_n(Op::LookupParent, count).chain([Op::GetFh]).collect();
            at(&["data", "a"], ups)
        };
        assert_eq!(lab.last(ups(1)), OpResult::GetFh(Ok(data).into()));
        assert_eq!(lab.last(ups(2)), OpResult::GetFh(Ok(root).into()));
        assert_eq!(lab.status(ups(3)), Status::NOENT);
    }

    #[test]
    fn a_file_has_no_parent() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        assert_eq!(lab.status_at(&["export", "file"], Op::LookupParent), Status::NOTDIR);
    }
}
