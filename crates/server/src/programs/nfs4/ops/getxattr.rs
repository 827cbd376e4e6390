//! GETXATTR (RFC 8276 §8.4.1): the value of an extended attribute.

use protocol::nfs4::ops::xattr::GetXattrArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = GetXattrArgs::decode(arguments)?;
    check_name(&arguments.name)?;
    let file = compound.file(Status::NOTSUPP)?;
    let context = compound.context(file.export);
    let value = file.export.backend.get_xattr(&context, &file.handle, &arguments.name).await?;
    reply.opaque(&value);
    Ok(())
}

/// Checks an attribute name; the file system limits its length.
pub(super) fn check_name(name: &[u8]) -> std::result::Result<(), Status> {
    match name {
        [] => Err(Status::INVAL),
        _ if name.contains(&0) => Err(Status::BADCHAR),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::xattr::{GetXattrArgs, SetXattrArgs, SetXattrOption};
    use protocol::nfs4::types::{Component, Handle, Status};
    use xdr::Opaque;

    use crate::testing::{Lab, channel, lab_42, mode, putfh};

    pub(crate) fn key(name: &str) -> Component {
        Component::new(Bytes::copy_from_slice(name.as_bytes())).unwrap()
    }

    pub(crate) fn set(option: SetXattrOption, name: &str, value: impl Into<Bytes>) -> Op {
        Op::SetXattr(SetXattrArgs { option, key: key(name), value: Opaque::new(value).unwrap() })
    }

    pub(crate) fn get(lab: &mut Lab, file: Handle, name: &str) -> Result<Vec<u8>, Status> {
        let result = lab.run(vec![putfh(file), Op::GetXattr(GetXattrArgs { name: key(name) })]);
        match result.results.last() {
            Some(OpResult::GetXattr(result)) => result.as_result().map(|value| value.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn returns_the_value_or_noxattr() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        assert_eq!(get(&mut lab, file, "name"), Err(Status::NOXATTR));
        lab.ok(vec![putfh(file), set(SetXattrOption::EITHER, "name", &b"any \0 value"[..])]);
        assert_eq!(get(&mut lab, file, "name"), Ok(b"any \0 value".to_vec()));
        let directory = lab.handle(&["export"]);
        lab.ok(vec![putfh(directory), set(SetXattrOption::EITHER, "empty", &b""[..])]);
        assert_eq!(get(&mut lab, directory, "empty"), Ok(Vec::new()));
    }

    #[test]
    fn refuses_bad_names_and_the_pseudo_file_system() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        assert_eq!(get(&mut lab, file, ""), Err(Status::INVAL));
        assert_eq!(get(&mut lab, file, "a\0b"), Err(Status::BADCHAR));
        assert_eq!(get(&mut lab, file, &"x".repeat(251)), Err(Status::NAMETOOLONG));
        let root = lab.handle(&[]);
        assert_eq!(get(&mut lab, root, "name"), Err(Status::NOTSUPP));
        lab.minor = 1;
        let op = Op::GetXattr(GetXattrArgs { name: key("name") });
        assert_eq!(lab.status(vec![putfh(file), op]), Status::OP_ILLEGAL);
    }

    #[test]
    fn a_value_without_room_is_too_big() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        lab.ok(vec![putfh(file), set(SetXattrOption::EITHER, "name", vec![7; 4096])]);
        let mut small = channel();
        small.max_response_size = 2048;
        lab.connect_with(b"small", small);
        // RFC 8276 §8.4.1.3: "the server MUST return NFS4ERR_REP_TOO_BIG in gxr_status."
        assert_eq!(get(&mut lab, file, "name"), Err(Status::REP_TOO_BIG));
    }

    #[test]
    fn needs_permission_to_read() {
        use protocol::nfs4::ops::setattr::SetAttrArgs;
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        let stateid = protocol::nfs4::types::Stateid::ANONYMOUS;
        let private = Op::SetAttr(SetAttrArgs { stateid, attributes: mode(0o600) });
        lab.ok(vec![putfh(file), set(SetXattrOption::EITHER, "name", &b"value"[..]), private]);
        lab.uid = 1000;
        assert_eq!(get(&mut lab, file, "name"), Err(Status::ACCESS));
    }
}
