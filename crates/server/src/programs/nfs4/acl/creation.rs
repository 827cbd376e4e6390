//! ACLs given to new objects (RFC 8881 §6.4.3), which replace inherited ones.
//!
//! The object is created without permissions, which an inherited list cannot widen (its mask is the mode's group bits). Then it
//! gets its ACL, so no user gains access in between. If setting the ACL fails, the object is removed again.

use protocol::nfs4::attributes::acl::Acl as WireAcl;
use protocol::nfs4::types::Status;
use vfs::{Attributes, Created, FileKind, SetAttributes};

use super::PosixAcls;
use crate::files::object::File;
use crate::files::rights::Right;
use crate::files::undo_create::undo_create;
use crate::programs::nfs4::attributes::NO_ATTRIBUTES;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::set_attributes::AttributeChanges;
use crate::programs::nfs4::status::Result;
use crate::state::Conflict;

/// The mode bits that an ACL replaces.
const PERMISSIONS: u32 = 0o777;

/// Returns the attributes to create an object with: without permissions if an ACL follows. Checks the ACL before anything is
/// created.
///
/// # Errors
/// As [`PosixAcls::parse`]; INVAL for a symbolic link.
pub(crate) fn first_attributes(
    compound: &Compound<'_>,
    directory: &File<'_>,
    wanted: &AttributeChanges,
    kind: FileKind,
) -> Result<SetAttributes> {
    let Some(acl) = &wanted.acl else { return Ok(wanted.set) };
    if kind == FileKind::Symlink {
        return Err(Status::INVAL.into());
    }
    // The owner, known after the creation, affects the conversion of the ACL but not its validity.
    PosixAcls::parse(compound, directory, acl, &Attributes { kind, ..NO_ATTRIBUTES })?;
    // §6.4.1.3: the mode is set before the ACL, which replaces all its bits but these. A umask does not apply to an ACL.
    Ok(SetAttributes { mode: Some(wanted.set.mode.unwrap_or(0) & !PERMISSIONS), umask: None, ..wanted.set })
}

/// Sets the requested ACL, if any, on a new object and updates its attributes.
///
/// # Errors
/// The reason why the ACL cannot be set; the object is then removed.
pub(crate) async fn finish(
    compound: &Compound<'_>,
    (directory, name): (&File<'_>, &[u8]),
    acl: Option<&WireAcl>,
    created: &mut Created,
) -> Result {
    let Some(acl) = acl else { return Ok(()) };
    let file = directory.with(created.handle);
    let given = give(compound, &file, acl, &created.attributes).await;
    if given.is_err() && created.is_new {
        // A directory may already have one of its lists, but no other user had access.
        let context = compound.context(file.export);
        let now = file.export.backend.getattr(&context, &file.handle).await.unwrap_or(created.attributes);
        undo_create(compound.request, compound.who(), (directory, name), &file, &now).await;
    }
    created.attributes = given?;
    Ok(())
}

async fn give(
    compound: &Compound<'_>,
    file: &File<'_>,
    acl: &WireAcl,
    attributes: &Attributes,
) -> Result<Attributes> {
    let _changing = compound.announce_change(file);
    compound.recall_conflicts(file, Conflict::Any, Right::Own).await?;
    let context = compound.opening_context(file.export);
    PosixAcls::parse(compound, file, acl, attributes)?.set(&context, file, attributes.kind).await
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::SetAttributes;
    use protocol::nfs4::attributes::acl::{Ace, AceFlags, AceMask};
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::ops::open::{CreateHow, CreateVerifierAttributes, OpenHow, ShareAccess};
    use protocol::nfs4::types::Mode;
    use vfs::Error;
    use vfs::fault::{Fault, Gate, Method, Rule};
    use xdr::List;

    use super::super::INHERITANCE;
    use super::super::tests::{R, W, allow, set_acl};
    use super::{Status, WireAcl};
    use crate::programs::nfs4::status::of_backend;
    use crate::testing::{
        at, attributes_in, faulty, getattr, lab, lab_of, lookup, name, open, open_args, open_result,
    };

    /// CREATE of a directory, and OPEN of a file, with a list and perhaps a mode.
    fn making(text: &'static str, acl: WireAcl, mode: Option<u32>) -> [Op; 3] {
        let mode = mode.map(Mode::from_bits_retain);
        let set = SetAttributes { acl: Some(acl), mode, ..SetAttributes::default() };
        let attributes = || set.to_file_attributes();
        let opening = |how| open_args(text, b"owner", ShareAccess::BOTH, OpenHow::Create(how));
        let exclusive = CreateVerifierAttributes { verifier: [7; 8], attributes: attributes() };
        let object_type = CreateType::DIRECTORY;
        [
            Op::Create(CreateArgs { object_type, name: name(text), attributes: attributes() }),
            Op::Open(opening(CreateHow::Guarded(attributes()))),
            Op::Open(opening(CreateHow::Exclusive41(exclusive))),
        ]
    }

    #[test]
    fn new_object_gets_given_acl_only() {
        let mut lab = lab();
        let inherited = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
        let ace = |ace: Ace| Ace { flags: ace.flags | inherited, ..ace };
        let on_top =
            List::new(vec![ace(allow("EVERYONE@", R | W | AceMask::EXECUTE)), ace(allow("1002", R))]);
        lab.ok(at(&["export"], vec![set_acl(on_top.unwrap())]));
        let given = || List::new(vec![allow("OWNER@", R | W), allow("1000", R)]).unwrap();
        for (number, text) in ["directory", "guarded", "exclusive"].into_iter().enumerate() {
            // RFC 8881 §6.4.1.3: first the mode, then the list.
            let make = making(text, given(), Some(0o1777))[number].clone();
            let results = lab.ok(at(&["export"], vec![make, getattr(&[n::MODE, n::ACL])]));
            let set = match &results[2] {
                OpResult::Create(created) => created.as_result().unwrap().attributes_set,
                open => open_result(open).attributes_set,
            };
            assert!(set.has(n::ACL) && set.has(n::MODE), "{text}");
            let shown = attributes_in(&results[3]);
            // A caller who may not remove names may not write to a directory.
            let mode = if text == "directory" { 0o1440 } else { 0o1640 };
            assert_eq!(shown.mode.unwrap().bits(), mode, "{text}");
            let acl = shown.acl.unwrap();
            let names = |who: &[u8]| acl.iter().any(|ace| ace.who[..] == *who);
            assert!(names(b"1000") && !names(b"1002"), "{text}");
            assert!(!acl.iter().any(|ace| ace.flags.intersects(INHERITANCE)), "{text}");
        }
    }

    #[test]
    fn failed_acl_undoes_create() {
        let (exported, backend) = faulty();
        let mut lab = lab_of(vec![exported]);
        let acl = || List::new(vec![allow("OWNER@", R)]).unwrap();
        let unknown = List::new(vec![allow("bob@example.org", R)]).unwrap();
        for make in making("new", unknown, None) {
            assert_eq!(lab.status_at(&["export"], make), Status::BADOWNER);
        }
        assert_eq!(backend.calls(Method::Create), 0, "it is refused before");
        for fault in [Error::NoSpace, Error::Later] {
            backend.add(Rule::on(Method::SetAcl, Fault::Fail(fault)));
            for make in making("new", acl(), None) {
                assert_eq!(lab.status_at(&["export"], make), of_backend(fault));
                assert_eq!(lab.status_at(&["export"], lookup("new")), Status::NOENT);
            }
            backend.heal();
        }
        // The second of a directory's two ACLs.
        backend.add(Rule::on(Method::SetAcl, Fault::Fail(Error::NoSpace)).after(1));
        let [make, ..] = making("new", acl(), None);
        assert_eq!(lab.status_at(&["export"], make), Status::NOSPC);
        assert_eq!(lab.status_at(&["export"], lookup("new")), Status::NOENT);
        backend.heal();
        let mut link = making("link", acl(), None)[0].clone();
        if let Op::Create(create) = &mut link {
            create.object_type = CreateType::Link(xdr::Opaque::from_static(b"target"));
        }
        assert_eq!(lab.status_at(&["export"], link), Status::INVAL);
    }

    #[test]
    fn new_file_is_closed_until_acl_is_set() {
        let (exported, backend) = faulty();
        let mut lab = lab_of(vec![exported]);
        let inherited = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
        let everyone = allow("EVERYONE@", R | W | AceMask::DELETE_CHILD | AceMask::EXECUTE);
        let everyone = Ace { flags: everyone.flags | inherited, ..everyone };
        lab.ok(at(&["export"], vec![set_acl(List::new(vec![everyone]).unwrap())]));
        let gate = Gate::new();
        backend.add(Rule::on(Method::SetAcl, Fault::Hold(gate.clone())));
        let mut other = lab.other(b"other");
        other.uid = 1000;
        let [_, make, _] = making("new", List::new(vec![allow("1000", R)]).unwrap(), Some(0o666));
        let mut flight = lab.start(1, at(&["export"], vec![make]));
        assert!(flight.poll().is_none());
        let mut open = || other.status_at(&["export"], open("new", b"o", ShareAccess::READ));
        assert_eq!(open(), Status::ACCESS);
        gate.open();
        assert_eq!(flight.poll().expect("answered").status, Status::OK);
        assert_eq!(open(), Status::OK);
    }
}
