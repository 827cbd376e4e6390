//! REMOVE (RFC 8881 §18.25): removes the name of a file or of an empty directory.

use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::types::{Component, Status};
use vfs::{Change, Removal};
use xdr::{Decode, Reader, Writer};

use crate::files::names;
use crate::files::object::File;
use crate::programs::nfs4::compound::{Compound, put_change};
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let (directory, target) = want(compound, arguments)?;
    let context = compound.changing_context(directory.export);
    // An open file remains until its last CLOSE: opens hold a pin.
    let removed = compound.changer().remove(directory.place(&context), &target, Removal::Any).await?;
    answer(compound, &removed, reply);
    Ok(())
}

/// Reads the arguments, and makes the checks that need no backend.
fn want<'r>(compound: &Compound<'r>, arguments: &mut Reader) -> Result<(File<'r>, Component)> {
    let RemoveArgs { target } = RemoveArgs::decode(arguments)?;
    let directory = compound.writable(Status::ROFS)?;
    names::check(&target)?;
    Ok((directory, target))
}

fn answer(compound: &mut Compound<'_>, change: &Change, reply: &mut Writer) {
    put_change(change, reply);
    compound.set_fresh(change.after);
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::ops::read::ReadArgs;
    use protocol::nfs4::ops::remove::RemoveArgs;
    use protocol::nfs4::types::Status;

    use crate::testing::{at, lab, mode, name, putfh};

    fn remove(text: &'static str) -> Op {
        Op::Remove(RemoveArgs { target: name(text) })
    }

    #[test]
    fn removes_files_and_empty_directories() {
        let mut lab = lab();
        let directory = || {
            Op::Create(CreateArgs {
                object_type: CreateType::DIRECTORY,
                name: name("directory"),
                attributes: mode(0o755),
            })
        };
        lab.ok(at(&["export"], vec![directory()]));
        lab.file(&["export", "directory", "file"], b"");
        assert_eq!(lab.status_at(&["export"], remove("directory")), Status::NOTEMPTY);
        let OpResult::Remove(removed) = lab.last(at(&["export", "directory"], vec![remove("file")])) else {
            panic!()
        };
        let change = removed.into_result().unwrap();
        assert!(change.atomic && change.before != change.after);
        assert_eq!(lab.status_at(&["export"], remove("directory")), Status::OK);
        assert_eq!(lab.status_at(&["export"], remove("directory")), Status::NOENT);
        assert_eq!(lab.status_at(&["export"], remove("")), Status::INVAL);
        assert_eq!(lab.status_at(&["export"], remove(".")), Status::BADNAME);
        assert_eq!(lab.status_at(&[], remove("export")), Status::ROFS);
    }

    #[test]
    fn an_open_file_is_readable_without_a_name() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"still here");
        let (file, stateid) = lab.open(&["export", "file"], b"owner");
        assert_eq!(lab.status_at(&["export"], remove("file")), Status::OK);
        let read = Op::Read(ReadArgs { stateid, offset: 0, count: 100 });
        let OpResult::Read(read) = lab.last(vec![putfh(file), read]) else { panic!() };
        assert_eq!(&read.into_result().unwrap().data[..], b"still here");
    }
}
