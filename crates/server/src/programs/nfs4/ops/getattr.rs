//! GETATTR (RFC 8881 §18.7).

use protocol::nfs4::attributes::number as n;
use protocol::nfs4::types::{Bitmap, Status};
use vfs::{Attributes, Later};
use xdr::{Decode, Reader, Writer};

use crate::files::object::Object;
use crate::programs::nfs4::absent;
use crate::programs::nfs4::acl;
use crate::programs::nfs4::attributes::{Space, needs_space, readable};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::in_place::InPlace;
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(
    compound: &mut Compound<'_>,
    call: Option<Later<'_, Attributes>>,
    arguments: &mut Reader,
    reply: &mut Writer,
) -> Result {
    let mask = readable(Bitmap::decode(arguments)?, compound.minor)?;
    if let Some(look) = call {
        // As if an earlier operation had fetched it.
        compound.set_fresh(look.await?);
    }
    write_attributes(compound, mask, reply).await
}

/// As [`run`], without a future, if the backend answers without a wait.
pub(crate) fn run_in_place<'r>(
    compound: &mut Compound<'r>,
    arguments: &mut Reader,
    reply: &mut Writer,
) -> Result<InPlace<Later<'r, Attributes>>> {
    let asked = Bitmap::decode(arguments)?;
    let mask = readable(asked, compound.minor)?;
    let object = compound.current()?;
    let Object::File(file) = &object else { return Ok(InPlace::Pending(None)) };
    if file.export.is_absent() {
        compound.write_absent(*file, absent::of_getattr(file, asked)?, Status::OK, reply);
        return Ok(InPlace::Done);
    }
    if compound.may_have_holder(mask) || needs_space(mask) || mask.has(n::ACL) {
        return Ok(InPlace::Pending(None));
    }
    if compound.fresh().is_none() {
        let context = compound.context(file.export);
        match file.export.backend.getattr(&context, &file.handle).at_once() {
            Ok(attributes) => compound.set_fresh(attributes?),
            Err(pending) => return Ok(InPlace::Pending(Some(pending))),
        }
    }
    let Some(attributes) = compound.fresh() else { return Ok(InPlace::Pending(None)) };
    let as_granted = compound.granted_change(file, mask).map(|change| Attributes { change, ..*attributes });
    compound.subject(object, as_granted.as_ref().unwrap_or(attributes)).write(mask, reply);
    Ok(InPlace::Done)
}

/// Fetches attributes of the current object, and of its file system if requested.
async fn read_attributes(
    compound: &mut Compound<'_>,
    object: &Object<'_>,
    mask: Bitmap,
) -> Result<(Option<Space>, Attributes)> {
    match object {
        Object::File(file) if needs_space(mask) => {
            let (space, attributes) = compound.space_of(file, mask).await?;
            compound.set_fresh(attributes);
            Ok((Some(space), attributes))
        }
        _ => Ok((None, compound.attributes().await?)),
    }
}

/// Writes the attributes of the current object, with those that the holder of a write delegation has changed.
pub(super) async fn write_attributes(
    compound: &mut Compound<'_>,
    mask: Bitmap,
    reply: &mut Writer,
) -> Result {
    let object = compound.current()?;
    let held = compound.ask_holder(&object, mask).await?;
    let (mut space, mut attributes) = read_attributes(compound, &object, mask).await?;
    // Not kept for the next operation: these are the holder's values, not the file's.
    if !compound.state().apply_held_attributes(held, &mut attributes) {
        compound.forget_fresh();
        (space, attributes) = read_attributes(compound, &object, mask).await?;
    }
    if let Object::File(file) = &object
        && let Some(change) = compound.granted_change(file, mask)
    {
        attributes.change = change;
    }
    let acl = acl::get(compound, &object, mask, &attributes).await?;
    let mut subject = compound.subject(object, &attributes);
    subject.acl = acl.as_ref();
    if let Some(space) = space {
        subject.space = space;
    }
    subject.write(mask, reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::{known, number as n};
    use protocol::nfs4::types::{FileType, Fsid, Status};

    use crate::testing::{at, attributes_in, create, export, getattr, lab, lab_of};

    /// Returns all attributes of version 4.1 that can be read.
    fn everything() -> Vec<u32> {
        let set_only = [
            n::TIME_ACCESS_SET,
            n::TIME_MODIFY_SET,
            n::MODE_SET_MASKED,
            n::LAYOUT_HINT,
            n::RETENTION_SET,
            n::RETENTEVT_SET,
        ];
        known(1).iter().filter(|number| !set_only.contains(number)).collect()
    }

    #[test]
    fn returns_every_supported_attribute() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"hello");
        for path in [&[][..], &["export"], &["export", "file"]] {
            let all = lab.attributes(path, &everything());
            let set_only = [n::TIME_ACCESS_SET, n::TIME_MODIFY_SET, n::MODE_SET_MASKED];
            let mut supported = all.supported_attrs.unwrap();
            set_only.iter().for_each(|number| supported.remove(*number));
            assert_eq!(all.mask(), supported, "{path:?}");
        }
    }

    #[test]
    fn returns_the_attributes_of_a_file() {
        let mut lab = lab();
        (lab.uid, lab.gids) = (0, vec![]);
        lab.file(&["export", "file"], b"hello");
        let file = lab.attributes(&["export", "file"], &everything());
        assert_eq!(file.file_type, Some(FileType::REGULAR));
        assert_eq!((file.size, file.numlinks), (Some(5), Some(1)));
        assert_eq!(file.mode.map(|mode| mode.bits()), Some(0o644));
        assert_eq!(file.owner.as_deref(), Some(&b"0"[..]));
        assert_eq!(file.mounted_on_fileid, file.fileid);
        assert_eq!(file.filehandle, Some(lab.handle(&["export", "file"])));
        assert_eq!(file.lease_time, Some(90));
        assert_eq!((file.maxread, file.maxwrite), (Some(1 << 20), Some(1 << 20)));
        assert_eq!(file.fh_expire_type.map(|kind| kind.bits()), Some(0));
        assert!(file.space_total >= file.space_free && file.space_free > Some(0));
        assert!(file.files_total >= file.files_free && file.files_free > Some(0));
    }

    #[test]
    fn the_root_of_an_export_has_a_mounted_on_fileid() {
        // RFC 8881 §5.8.2.23: the fileid in the file system above.
        let mut lab = lab_of(vec![export(1, "/data/a"), export(2, "/data/b")]);
        let mut seen = Vec::new();
        for path in [["data", "a"], ["data", "b"]] {
            let root = lab.attributes(&path, &[n::FILEID, n::MOUNTED_ON_FILEID, n::FSID]);
            assert_ne!(root.fileid, root.mounted_on_fileid);
            seen.push((root.mounted_on_fileid, root.fsid));
        }
        assert_ne!(seen[0].0, seen[1].0);
        assert_ne!(seen[0].1, seen[1].1, "two exports are two file systems");
        let above = lab.attributes(&["data"], &[n::FSID]);
        assert_eq!(above.fsid, Some(Fsid { major: 0, minor: 0 }));
    }

    #[test]
    fn set_only_attributes_are_invalid() {
        let mut lab = lab();
        assert_eq!(lab.status_at(&["export"], getattr(&[n::TIME_MODIFY_SET])), Status::INVAL);
    }

    #[test]
    fn sees_the_change_of_the_previous_operation() {
        let mut lab = lab();
        let results =
            lab.ok(at(&["export"], vec![getattr(&[n::CHANGE]), create("new", b"o"), getattr(&[n::SIZE])]));
        assert_eq!(attributes_in(results.last().unwrap()).size, Some(0));
    }
}
