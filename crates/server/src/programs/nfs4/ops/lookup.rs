//! LOOKUP (RFC 8881 §18.13): makes an entry of the current directory current.

use protocol::nfs4::types::Status;
use vfs::{Attributes, FileKind};
use xdr::Reader;

use crate::exports::pseudo::Node;
use crate::files::mount_points::cross;
use crate::files::names;
use crate::files::object::{File, Object};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::{Failure, Result};

/// Longest name in the pseudo file system, in bytes, as on the file systems below.
const PSEUDO_NAME_MAX: usize = 255;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let longest = arguments.remaining();
    let name = arguments.opaque_ref(longest)?;
    compound.check_flavor_within()?;
    let (object, fresh) = find(compound, name).await?;
    compound.check_flavor(&object)?;
    compound.set_current(object, fresh);
    Ok(())
}

/// Finds `name` in the current directory; also for SECINFO.
pub(crate) async fn find<'r>(
    compound: &Compound<'r>,
    name: &[u8],
) -> Result<(Object<'r>, Option<Attributes>)> {
    names::check(name)?;
    match compound.current()? {
        Object::Pseudo(_) if name.len() > PSEUDO_NAME_MAX => Err(Status::NAMETOOLONG.into()),
        Object::Pseudo(directory) => {
            let child = child(compound, directory, name).ok_or(Status::NOENT)?;
            Ok((enter(compound, child)?, None))
        }
        Object::File(directory) => {
            let context = compound.context(directory.export);
            match directory.export.backend.lookup(&context, &directory.handle, name).await {
                Ok(found) => Ok((Object::File(directory.with(found.handle)), Some(found.attributes))),
                Err(vfs::Error::NotDirectory) => Err(not_directory(compound, &directory).await),
                Err(vfs::Error::Access) => {
                    let from = (directory.export, &context);
                    let inner = Box::pin(cross(compound.request, from, &directory.handle, name)).await;
                    let inner = inner.ok_or(Status::ACCESS)?;
                    compound.uses(inner);
                    Ok((Object::File(File::root(inner)), None))
                }
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// Returns an entry of a pseudo directory that the client may see.
pub(crate) fn child<'r>(compound: &Compound<'r>, directory: &'r Node, name: &[u8]) -> Option<&'r Node> {
    let (exports, peer) = (compound.exports(), compound.request.connection.peer.ip());
    let node = exports.pseudo().children(directory).find(|node| *node.name == *name)?;
    let is_visible = node.is_visible(exports, peer);
    if !is_visible {
        compound.request.log_hidden_export(&node.name);
    }
    is_visible.then_some(node)
}

/// Returns the object at a node: the root of the export that is mounted there. A client that may not use an export at the root
/// of the tree gets an empty directory.
pub(crate) fn enter<'r>(compound: &Compound<'r>, node: &'r Node) -> Result<Object<'r>> {
    match node.mounted(compound.exports(), compound.request.connection.peer.ip()) {
        Some(export) => {
            compound.uses(export);
            Ok(Object::File(File::root(export)))
        }
        None if node.export.is_none() || node.is_root() => Ok(Object::Pseudo(node)),
        None => Err(Status::NOENT.into()),
    }
}

/// RFC 8881 §18.13.4: "If the current filehandle supplied is not a directory but a symbolic link, the error
/// NFS4ERR_SYMLINK is returned as the error. For all other non-directory file types, the error NFS4ERR_NOTDIR is returned."
pub(crate) async fn not_directory(compound: &Compound<'_>, file: &File<'_>) -> Failure {
    match compound.attributes_of(&Object::File(*file)).await {
        Ok(attributes) if attributes.kind == FileKind::Symlink => Status::SYMLINK.into(),
        _ => Status::NOTDIR.into(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::ops::lookup::LookupArgs;
    use protocol::nfs4::types::{Component, Status};
    use xdr::Opaque;

    use crate::testing::{at, export, export_for, lab, lab_of, lookup, mode, name};

    #[test]
    fn refuses_bad_names() {
        let mut lab = lab();
        for (bytes, status) in [
            (&b""[..], Status::INVAL),
            (b".", Status::BADNAME),
            (b"..", Status::BADNAME),
            (b"a/b", Status::BADNAME),
            (b"a\0", Status::BADCHAR),
            (&[b'x'; 256], Status::NAMETOOLONG),
            (&[b'x'; 1024], Status::NAMETOOLONG),
            (b"absent", Status::NOENT),
        ] {
            let name: Component = Opaque::new(bytes.to_vec()).unwrap();
            let op = Op::Lookup(LookupArgs { name });
            assert_eq!(lab.status_at(&["export"], op), status, "{bytes:?}");
        }
    }

    #[test]
    fn only_directories_have_entries() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let link = CreateArgs {
            object_type: CreateType::Link(Opaque::from_static(b"file")),
            name: name("link"),
            attributes: mode(0o777),
        };
        lab.ok(at(&["export"], vec![Op::Create(link)]));
        assert_eq!(lab.status_at(&["export", "file"], lookup("x")), Status::NOTDIR);
        assert_eq!(lab.status_at(&["export", "link"], lookup("x")), Status::SYMLINK);
    }

    #[test]
    fn crosses_from_the_pseudo_file_system_into_exports() {
        let mut lab = lab_of(vec![export(1, "/data/a"), export_for(2, "/secret/b", "192.0.2.0/24")]);
        lab.file(&["data", "a", "file"], b"");
        assert_eq!(lab.status(at(&["data", "b"], vec![])), Status::NOENT);
        let long = Op::Lookup(LookupArgs { name: Component::new(vec![b'x'; 256]).unwrap() });
        assert_eq!(lab.status(at(&[], vec![long])), Status::NAMETOOLONG);
        // Paths that lead only to exports of other clients do not exist.
        assert_eq!(lab.status(at(&["secret"], vec![])), Status::NOENT);
    }

    #[test]
    fn names_need_not_be_utf_8() {
        let mut lab = lab();
        let latin1: &[u8] = b"caf\xe9";
        let directory = CreateArgs {
            object_type: CreateType::DIRECTORY,
            name: Opaque::from_static(latin1),
            attributes: mode(0o755),
        };
        lab.ok(at(&["export"], vec![Op::Create(directory)]));
        let found = Op::Lookup(LookupArgs { name: Opaque::from_static(latin1) });
        assert_eq!(lab.status_at(&["export"], found), Status::OK);
    }

    #[test]
    fn needs_permission_to_search() {
        let mut lab = lab();
        let directory =
            CreateArgs { object_type: CreateType::DIRECTORY, name: name("closed"), attributes: mode(0o700) };
        lab.ok(at(&["export"], vec![Op::Create(directory)]));
        lab.uid = 1000;
        assert_eq!(lab.status_at(&["export", "closed"], lookup("x")), Status::ACCESS);
    }
}
