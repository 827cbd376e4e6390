//! ACCESS (RFC 8881 §18.1): the access rights of the caller.

use protocol::nfs4::types::Status;
use vfs::{Access, FileKind};
use xdr::{Reader, Writer};

use crate::files::object::Object;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

/// Bits that are defined in versions 4.0 and 4.1.
const KNOWN: Access = Access::READ
    .union(Access::LOOKUP)
    .union(Access::MODIFY)
    .union(Access::EXTEND)
    .union(Access::DELETE)
    .union(Access::EXECUTE);
/// Bits that version 4.2 adds with extended attributes (RFC 8276 §8.5).
const XATTRS: Access = Access::XAREAD.union(Access::XAWRITE).union(Access::XALIST);
/// Bits that a read-only export never grants.
const CHANGES: Access = Access::MODIFY.union(Access::EXTEND).union(Access::DELETE).union(Access::XAWRITE);

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let asked = Access::from_bits_retain(arguments.u32()?);
    let known = if compound.minor < 2 { KNOWN } else { KNOWN.union(XATTRS) };
    // RFC 8881 §15.1.1.4 among ACCESS's errors: INVAL, for bits that are not defined.
    if !known.contains(asked) {
        return Err(Status::INVAL.into());
    }
    let (supported, granted) = match compound.current()? {
        Object::Pseudo(_) => {
            let supported = asked & meaningful(FileKind::Directory);
            (supported, supported & (Access::READ | Access::LOOKUP))
        }
        Object::File(file) => {
            let context = compound.context(file.export);
            let (granted, attributes) = file.export.backend.access(&context, &file.handle, asked).await?;
            compound.set_fresh(attributes);
            let supported = asked & meaningful(attributes.kind);
            let refused = if file.export.options.read_only { CHANGES } else { Access::empty() };
            (supported, granted & supported & !refused)
        }
    };
    reply.u32(supported.bits());
    reply.u32(granted.bits());
    Ok(())
}

/// Returns the access bits that apply to a kind of object.
///
/// RFC 8881 §18.1.3: "ACCESS4_LOOKUP … no meaning for non-directory objects", "ACCESS4_EXECUTE … no meaning for a
/// directory".
const fn meaningful(kind: FileKind) -> Access {
    let all = Access::READ.union(Access::MODIFY).union(Access::EXTEND).union(XATTRS);
    match kind {
        FileKind::Directory => all.union(Access::LOOKUP).union(Access::DELETE),
        _ => all.union(Access::EXECUTE),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::access::{AccessArgs, AccessMask, AccessOk};
    use protocol::nfs4::types::Status;

    use crate::testing::{Lab, at, export, lab, lab_of};

    const ALL: AccessMask = AccessMask::from_bits_retain(0x3f);

    fn access(lab: &mut Lab, path: &[&'static str], access: AccessMask) -> AccessOk {
        match lab.last(at(path, vec![Op::Access(AccessArgs { access })])) {
            OpResult::Access(result) => result.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reports_the_rights_of_the_mode() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"x");
        let root = access(&mut lab, &["export", "file"], ALL);
        let of_files = AccessMask::READ | AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::EXECUTE;
        assert_eq!(root.supported, of_files);
        // Mode 0644: even the superuser may not execute it.
        assert_eq!(root.access, of_files & !AccessMask::EXECUTE);
        lab.uid = 1000;
        assert_eq!(access(&mut lab, &["export", "file"], ALL).access, AccessMask::READ);
        let directory = access(&mut lab, &["export"], ALL);
        assert_eq!(directory.supported, ALL & !AccessMask::EXECUTE);
        assert_eq!(directory.access, AccessMask::READ | AccessMask::LOOKUP);
    }

    #[test]
    fn the_pseudo_file_system_is_readable_and_never_writable() {
        let mut lab = lab();
        assert_eq!(access(&mut lab, &[], ALL).access, AccessMask::READ | AccessMask::LOOKUP);
    }

    #[test]
    fn a_read_only_export_grants_no_changes() {
        let mut exported = export(1, "/export");
        exported.options.read_only = true;
        let mut lab = lab_of(vec![exported]);
        let granted = access(&mut lab, &["export"], ALL);
        assert!(granted.supported.contains(AccessMask::DELETE));
        assert_eq!(granted.access, AccessMask::READ | AccessMask::LOOKUP);
    }

    #[test]
    fn refuses_bits_of_later_minor_versions() {
        let mut lab = lab();
        for bits in [0x40, 0x80, 0x200, 0x8000_0001] {
            let access = AccessMask::from_bits_retain(bits);
            assert_eq!(lab.status_at(&["export"], Op::Access(AccessArgs { access })), Status::INVAL);
        }
    }
}
