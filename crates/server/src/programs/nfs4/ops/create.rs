//! CREATE (RFC 8881 §18.4): creates an object that is not a regular file.

use protocol::nfs4::attributes::number;
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::types::{Bitmap, FileType, Status};
use vfs::{Create, Device};
use xdr::{Decode, Encode, Reader, Writer};

use crate::files::names;
use crate::files::object::Object;
use crate::programs::nfs4::acl::creation::{finish, first_attributes};
use crate::programs::nfs4::attributes::can_set_with_creation;
use crate::programs::nfs4::compound::{Compound, put_change};
use crate::programs::nfs4::set_attributes::AttributeChanges;
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = CreateArgs::decode(arguments)?;
    let directory = compound.writable(Status::ROFS)?;
    names::check(&arguments.name)?;
    let what = what(&arguments.object_type)?;
    // Only regular files have a settable size.
    let allowed = can_set_with_creation(compound.minor).difference(Bitmap::of(&[number::SIZE]));
    let wanted =
        AttributeChanges::parse(&arguments.attributes, compound.minor, allowed, compound.id_names())?;
    let context = compound.changing_context(directory.export);
    let place = directory.place(&context);
    let set = first_attributes(compound, &directory, &wanted, what.kind())?;
    let mut created = compound.changer().create(place, &arguments.name, &what, &set).await?;
    let made_in = (&directory, &arguments.name[..]);
    finish(compound, made_in, wanted.acl.as_ref(), &mut created).await?;
    put_change(&created.directory, reply);
    wanted.mask.encode(reply);
    compound.set_current(Object::File(directory.with(created.handle)), Some(created.attributes));
    Ok(())
}

/// RFC 8881 §18.4.3: "If the object type specified is that of an ordinary file, a named attribute, or a named attribute
/// directory, the error NFS4ERR_BADTYPE results."
fn what(wanted: &CreateType) -> std::result::Result<Create, Status> {
    Ok(match wanted {
        // symlink(2) refuses an empty text, and none of its bytes can be NUL.
        CreateType::Link(text) if text.is_empty() || text.contains(&0) => return Err(Status::INVAL),
        CreateType::Link(text) => Create::Symlink(text.bytes().clone()),
        CreateType::Block(number) => Create::BlockDevice(Device { major: number.major, minor: number.minor }),
        CreateType::Character(number) => {
            Create::CharDevice(Device { major: number.major, minor: number.minor })
        }
        CreateType::Other(_) => match wanted.file_type() {
            FileType::DIRECTORY => Create::Directory,
            FileType::SOCKET => Create::Socket,
            FileType::FIFO => Create::Fifo,
            _ => return Err(Status::BADTYPE),
        },
    })
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::types::{FileType, SpecData, Status};
    use xdr::Opaque;

    use crate::testing::{at, attributes_in, export, getattr, lab, lab_of, mode, name, size};

    fn create(object_type: CreateType, text: &'static str) -> Op {
        Op::Create(CreateArgs { object_type, name: name(text), attributes: mode(0o640) })
    }

    #[test]
    fn creates_every_kind_and_makes_it_current() {
        let mut lab = lab();
        let device = SpecData { major: 8, minor: 1 };
        for (kind, text) in [
            (CreateType::DIRECTORY, "directory"),
            (CreateType::SOCKET, "socket"),
            (CreateType::FIFO, "fifo"),
            (CreateType::Block(device), "block"),
            (CreateType::Character(device), "character"),
            (CreateType::Link(Opaque::from_static(b"target")), "link"),
        ] {
            let expected = kind.file_type();
            let ops = vec![getattr(&[n::CHANGE]), create(kind, text), getattr(&[n::TYPE, n::RAWDEV])];
            let results = lab.ok(at(&["export"], ops));
            let before = attributes_in(&results[2]).change.unwrap();
            let OpResult::Create(created) = &results[3] else { panic!("{results:?}") };
            let created = created.as_result().unwrap();
            assert!(created.change.atomic && created.change.before == before);
            assert_ne!(created.change.after, before);
            assert_eq!(created.attributes_set.iter().collect::<Vec<_>>(), [n::MODE]);
            let object = attributes_in(&results[4]);
            assert_eq!(object.file_type, Some(expected));
            if matches!(expected, FileType::BLOCK | FileType::CHARACTER) {
                assert_eq!(object.rawdev, Some(device));
            }
        }
    }

    #[test]
    fn refuses_invalid_kinds_and_names() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let at_export = |lab: &mut crate::testing::Lab, op| lab.status_at(&["export"], op);
        for kind in [1, 8, 9, 0, 77] {
            assert_eq!(at_export(&mut lab, create(CreateType::Other(kind), "x")), Status::BADTYPE);
        }
        assert_eq!(at_export(&mut lab, create(CreateType::DIRECTORY, "file")), Status::EXIST);
        assert_eq!(at_export(&mut lab, create(CreateType::DIRECTORY, "")), Status::INVAL);
        assert_eq!(at_export(&mut lab, create(CreateType::DIRECTORY, "..")), Status::BADNAME);
        let empty = CreateType::Link(Opaque::default());
        assert_eq!(at_export(&mut lab, create(empty, "link")), Status::INVAL);
        // RFC 8881 §6.2.5: "only valid in a SETATTR operation".
        let masked = protocol::nfs4::attributes::SetAttributes {
            mode_set_masked: Some(protocol::nfs4::attributes::values::ModeMasked {
                value: protocol::nfs4::types::Mode::RUSR,
                mask: protocol::nfs4::types::Mode::RUSR,
            }),
            ..Default::default()
        };
        let attributes = masked.to_file_attributes();
        let masked = CreateArgs { object_type: CreateType::FIFO, name: name("f"), attributes };
        assert_eq!(at_export(&mut lab, Op::Create(masked)), Status::INVAL);
        let sized = CreateArgs { object_type: CreateType::FIFO, name: name("f"), attributes: size(1) };
        assert_eq!(at_export(&mut lab, Op::Create(sized)), Status::INVAL);
        let inside = lab.status_at(&["export", "file"], create(CreateType::DIRECTORY, "x"));
        assert_eq!(inside, Status::NOTDIR);
        assert_eq!(lab.status_at(&[], create(CreateType::DIRECTORY, "x")), Status::ROFS);
    }

    #[test]
    fn refuses_on_a_read_only_export() {
        let mut exported = export(1, "/export");
        exported.options.read_only = true;
        let mut lab = lab_of(vec![exported]);
        assert_eq!(lab.status_at(&["export"], create(CreateType::DIRECTORY, "x")), Status::ROFS);
    }
}
