//! SETXATTR (RFC 8276 §8.4.2): creates or replaces an extended attribute.

use protocol::nfs4::ops::xattr::{SetXattrArgs, SetXattrOption};
use protocol::nfs4::types::Status;
use vfs::SetXattr;
use xdr::{Decode, Reader, Writer};

use super::getxattr::check_name;
use crate::files::rights::Right;
use crate::programs::nfs4::compound::{Compound, put_change};
use crate::programs::nfs4::status::Result;
use crate::state::Conflict;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let SetXattrArgs { option, key, value } = SetXattrArgs::decode(arguments)?;
    let how = match option {
        SetXattrOption::EITHER => SetXattr::Either,
        SetXattrOption::CREATE => SetXattr::Create,
        SetXattrOption::REPLACE => SetXattr::Replace,
        _ => return Err(Status::INVAL.into()),
    };
    check_name(&key)?;
    let file = compound.writable(Status::NOTSUPP)?;
    // A delegation covers extended attributes too: its holder does not revalidate them.
    let _changing = compound.announce_change(&file);
    compound.recall_conflicts(&file, Conflict::Any, Right::Xattrs).await?;
    let context = compound.changing_context(file.export);
    let (handle, value) = (&file.handle, value.bytes());
    let change = match how {
        SetXattr::Create => {
            compound.logged_ops().create_xattr(file.export, &context, handle, (&key, value)).await?
        }
        // These options are idempotent.
        SetXattr::Either | SetXattr::Replace => {
            file.export.backend.set_xattr(&context, handle, &key, value, how).await?
        }
    };
    put_change(&change, reply);
    compound.set_fresh(change.after);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::OpResult;
    use protocol::nfs4::ops::xattr::SetXattrOption;
    use protocol::nfs4::types::Status;

    use crate::programs::nfs4::ops::getxattr::tests::{get, set};
    use crate::testing::{attributes_in, getattr, lab_42, putfh, read_only};

    #[test]
    fn creates_and_replaces_by_option() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        let mut status =
            |option, value: &'static [u8]| lab.status(vec![putfh(file), set(option, "name", value)]);
        assert_eq!(status(SetXattrOption::REPLACE, b"1"), Status::NOXATTR);
        assert_eq!(status(SetXattrOption::CREATE, b"2"), Status::OK);
        assert_eq!(status(SetXattrOption::CREATE, b"3"), Status::EXIST);
        assert_eq!(status(SetXattrOption(3), b"4"), Status::INVAL);
        assert_eq!(get(&mut lab, file, "name"), Ok(b"2".to_vec()));
        let mut status =
            |option, value: &'static [u8]| lab.status(vec![putfh(file), set(option, "name", value)]);
        assert_eq!(status(SetXattrOption::REPLACE, b"5"), Status::OK);
        assert_eq!(status(SetXattrOption::EITHER, b"6"), Status::OK);
        assert_eq!(get(&mut lab, file, "name"), Ok(b"6".to_vec()));
    }

    #[test]
    fn returns_the_change() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        let attributes = || getattr(&[n::CHANGE, n::TIME_METADATA]);
        let ops =
            vec![putfh(file), attributes(), set(SetXattrOption::CREATE, "name", &b"v"[..]), attributes()];
        lab.seconds += 1;
        let results = lab.ok(ops);
        let (before, after) = (attributes_in(&results[1]), attributes_in(&results[3]));
        let OpResult::SetXattr(change) = &results[2] else { panic!("{results:?}") };
        let change = change.as_result().unwrap();
        assert!(change.atomic);
        assert_eq!((Some(change.before), Some(change.after)), (before.change, after.change));
        assert!(before.time_metadata < after.time_metadata);
    }

    #[test]
    fn refuses_values_and_names_beyond_the_limits() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        let too_big = set(SetXattrOption::EITHER, "name", vec![1; 65_537]);
        assert_eq!(lab.status(vec![putfh(file), too_big]), Status::XATTR2BIG);
        let longest = set(SetXattrOption::EITHER, &"x".repeat(250), vec![1; 65_536]);
        assert_eq!(lab.status(vec![putfh(file), longest]), Status::OK);
        let too_long = set(SetXattrOption::EITHER, &"x".repeat(251), vec![1]);
        assert_eq!(lab.status(vec![putfh(file), too_long]), Status::NAMETOOLONG);
        assert_eq!(lab.status(vec![putfh(file), set(SetXattrOption::EITHER, "", vec![1])]), Status::INVAL);
    }

    #[test]
    fn refuses_on_read_only_exports_and_pseudo_directories() {
        let (mut lab, file) = read_only();
        let op = || set(SetXattrOption::EITHER, "name", vec![1]);
        assert_eq!(lab.status(vec![putfh(file), op()]), Status::ROFS);
        assert_eq!(lab.status_at(&[], op()), Status::NOTSUPP);
    }
}
