//! Calls of version 2 against opens of clients of version 4. Delegations: `nfs4/tests/delegations/recalls.rs`.

use protocol::nfs2::SattrArgs;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::open::{OpenArgs, OpenHow, ShareAccess, ShareDeny};
use protocol::nfs4::types::Status;

use super::*;
use crate::testing::{Lab, export, lab_with, open_args};

/// Returns a server that also serves version 2, and whose export has a file of five bytes.
fn lab() -> (Lab, FileHandle) {
    let mut lab = lab_with(vec![export(1, "/export")], |settings| settings.versions |= Versions::V2);
    let wire = lab.file(&["export", "file"], b"12345");
    let (id, inner) = KEY.open(&wire).unwrap();
    (lab, KEY.seal_short(id, &inner).unwrap())
}

/// Returns the results of a call of version 2; none without a reply.
fn call<R: Decode>(lab: &mut Lab, procedure: Proc, arguments: &impl Encode) -> R {
    let results = lab.ask((PROGRAM, VERSION, procedure.0), &xdr::to_bytes(arguments)).expect("results");
    xdr::from_bytes(results).expect("no bytes after the results")
}

#[test]
fn denied_access_is_refused() {
    let (mut lab, file) = lab();
    let deny = OpenArgs {
        share_deny: ShareDeny::BOTH,
        ..open_args("file", b"deny", ShareAccess::BOTH, OpenHow::NoCreate)
    };
    assert_eq!(lab.status_at(&["export"], Op::Open(deny)), Status::OK);
    let read = ReadArgs { file, offset: 0, count: 5, totalcount: 0 };
    assert_eq!(call::<ReadRes>(&mut lab, Proc::READ, &read), ReadRes::Fail(Stat::ACCES));
    let data = Opaque::from_static(b"x");
    let write = WriteArgs { file, beginoffset: 0, offset: 0, totalcount: 0, data };
    assert_eq!(call::<AttrStat>(&mut lab, Proc::WRITE, &write), AttrStat::Fail(Stat::ACCES));
    let cut = SattrArgs { file, attributes: Sattr { size: 0, ..Sattr::NONE } };
    assert_eq!(call::<AttrStat>(&mut lab, Proc::SETATTR, &cut), AttrStat::Fail(Stat::ACCES));
    let mode = SattrArgs { file, attributes: Sattr { mode: 0o600, ..Sattr::NONE } };
    assert_eq!(attributes(call(&mut lab, Proc::SETATTR, &mode)).size, 5, "the mode is not denied");
    let root = lab.handle(&["export"]);
    let (id, inner) = KEY.open(&root).unwrap();
    let where_ = place(KEY.seal_short(id, &inner).unwrap(), b"file");
    let create = CreateArgs { where_, attributes: Sattr { size: 0, ..Sattr::NONE } };
    assert_eq!(call::<DirOpRes>(&mut lab, Proc::CREATE, &create), DirOpRes::Fail(Stat::ACCES));
}
