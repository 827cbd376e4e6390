//! RENAME (RFC 8881 §18.26): moves a name from the saved directory to the current one.

use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader, Writer};

use super::link::both;
use crate::files::names;
use crate::programs::nfs4::compound::{Compound, put_change};
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let RenameArgs { old_name, new_name } = RenameArgs::decode(arguments)?;
    let (from, to) = both(compound)?;
    names::check(&old_name)?;
    names::check(&new_name)?;
    let context = compound.changing_context(to.export);
    let names = ((&from.handle, &old_name[..]), (&to.handle, &new_name[..]));
    match compound.changer().rename(to.export, &context, names.0, names.1).await {
        Ok(renamed) => {
            put_change(&renamed.from, reply);
            put_change(&renamed.to, reply);
            compound.set_fresh(renamed.to.after);
            Ok(())
        }
        // RFC 8881 §18.26.3: "If the source object and the target are not compatible …, the server will return the
        // error NFS4ERR_EXIST"; RENAME's errors do not include ISDIR (§15.2).
        Err(vfs::Error::IsDirectory) => Err(Status::EXIST.into()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::ops::rename::RenameArgs;
    use protocol::nfs4::types::Status;

    use crate::testing::{Lab, export, lab, lab_of, lookup, mode, name};

    fn rename(from: &[&'static str], old: &'static str, to: &[&'static str], new: &'static str) -> Vec<Op> {
        let mut ops = vec![Op::PutRootFh];
        ops.extend(from.iter().map(|name| lookup(name)));
        ops.extend([Op::SaveFh, Op::PutRootFh]);
        ops.extend(to.iter().map(|name| lookup(name)));
        ops.push(Op::Rename(RenameArgs { old_name: name(old), new_name: name(new) }));
        ops
    }

    fn directory(lab: &mut Lab, path: &[&'static str], text: &'static str) {
        let args =
            CreateArgs { object_type: CreateType::DIRECTORY, name: name(text), attributes: mode(0o755) };
        lab.ok(crate::testing::at(path, vec![Op::Create(args)]));
    }

    #[test]
    fn moves_between_directories_and_over_files() {
        let mut lab = lab();
        directory(&mut lab, &["export"], "d");
        let file = lab.file(&["export", "a"], b"a");
        lab.file(&["export", "d", "b"], b"b");
        let OpResult::Rename(done) = lab.last(rename(&["export"], "a", &["export", "d"], "b")) else {
            panic!()
        };
        let done = done.into_result().unwrap();
        assert!(done.source.before != done.source.after && done.target.before != done.target.after);
        assert_eq!(lab.handle(&["export", "d", "b"]), file, "a handle survives renaming");
    }

    #[test]
    fn refuses_incompatible_targets() {
        let mut lab = lab_of(vec![export(1, "/export"), export(2, "/other")]);
        directory(&mut lab, &["export"], "d");
        lab.file(&["export", "d", "inside"], b"");
        directory(&mut lab, &["export"], "e");
        lab.file(&["export", "f"], b"");
        let here = ["export"];
        assert_eq!(lab.status(rename(&here, "f", &here, "e")), Status::EXIST);
        assert_eq!(lab.status(rename(&here, "e", &here, "d")), Status::NOTEMPTY);
        assert_eq!(lab.status(rename(&here, "e", &here, "f")), Status::NOTDIR);
        assert_eq!(lab.status(rename(&here, "d", &["export", "d"], "x")), Status::INVAL);
        assert_eq!(lab.status(rename(&here, "absent", &here, "x")), Status::NOENT);
        assert_eq!(lab.status(rename(&here, "f", &here, "")), Status::INVAL);
        assert_eq!(lab.status(rename(&here, "..", &here, "x")), Status::BADNAME);
        assert_eq!(lab.status(rename(&here, "f", &["other"], "x")), Status::XDEV);
        assert_eq!(lab.status(rename(&here, "f", &[], "x")), Status::XDEV);
        assert_eq!(lab.status(rename(&[], "export", &[], "x")), Status::ROFS);
    }

    #[test]
    fn needs_a_saved_file_handle() {
        let args = RenameArgs { old_name: name("a"), new_name: name("b") };
        assert_eq!(lab().status_at(&["export"], Op::Rename(args)), Status::NOFILEHANDLE);
    }
}
