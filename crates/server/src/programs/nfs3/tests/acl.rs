//! The NFS_ACL side protocol.

use protocol::nfsacl::{
    Acl, AclEntry, AclTag, GetAclArgs, GetAclResult, Mask, PROGRAM, Proc, SecAttr, SetAclArgs, SetAclResult,
    VERSION,
};
use xdr::List;

use super::*;

impl Pair {
    fn acl<T: Decode>(&self, procedure: Proc, args: &impl Encode) -> T {
        self.xid.set(self.xid.get() + 1);
        let reply = self.raw(self.xid.get(), PROGRAM, VERSION, procedure.0, args).expect("a reply");
        parse_reply(reply).expect("results")
    }

    fn get_acl(&self, fh: FileHandle, mask: Mask) -> SecAttr {
        let result: GetAclResult = self.acl(Proc::GETACL, &GetAclArgs { fh, mask });
        let ok = result.into_result().unwrap();
        assert!(ok.attributes.is_some());
        ok.acl
    }

    fn set_acl(&self, fh: FileHandle, acl: SecAttr) -> NfsStat {
        let result: SetAclResult = self.acl(Proc::SETACL, &SetAclArgs { fh, acl });
        result.status()
    }
}

fn list(entries: &[(AclTag, u32, u32)], marker: u32) -> Acl {
    let entry =
        |(tag, id, perm): &(AclTag, u32, u32)| AclEntry { tag: AclTag(tag.0 | marker), id: *id, perm: *perm };
    let entries: Vec<_> = entries.iter().map(entry).collect();
    Acl { count: entries.len() as u32, entries: List::new(entries).unwrap() }
}

const LISTED: [(AclTag, u32, u32); 5] = [
    (AclTag::USER_OBJ, 0, 6),
    (AclTag::USER, 1000, 4),
    (AclTag::GROUP_OBJ, 0, 4),
    (AclTag::CLASS_OBJ, 0, 5),
    (AclTag::OTHER_OBJ, 0, 0),
];

#[test]
fn a_file_without_an_acl_returns_its_mode_with_a_mask() {
    let pair = pair();
    let file = pair.file(b"file");
    let all = Mask::all();
    let got = pair.get_acl(file, all);
    let minimal = [
        (AclTag::USER_OBJ, 0, 6),
        (AclTag::GROUP_OBJ, 0, 4),
        (AclTag::CLASS_OBJ, 0, 4),
        (AclTag::OTHER_OBJ, 0, 4),
    ];
    assert_eq!(got, SecAttr { mask: all, acl: list(&minimal, 0), dfacl: Acl::default() });
    let counted = pair.get_acl(file, Mask::ACLCNT);
    assert_eq!((counted.acl.count, counted.acl.entries.len()), (4, 0));
    // An ACL that equals the mode is returned as it was set, and is not stored.
    assert_eq!(pair.set_acl(file, SecAttr { mask: Mask::ACL, ..got.clone() }), NfsStat::OK);
    assert_eq!(pair.get_acl(file, all), got);
}

#[test]
fn a_late_copy_of_setacl_is_not_executed() {
    let pair = pair();
    let file = pair.file(b"file");
    let with = |entries: &[(AclTag, u32, u32)]| SetAclArgs {
        fh: file,
        acl: SecAttr { mask: Mask::ACL, acl: list(entries, 0), dfacl: Acl::default() },
    };
    let closed = LISTED.map(|(tag, id, perm)| (tag, id, if tag == AclTag::USER { 0 } else { perm }));
    let send =
        |xid, args: &SetAclArgs| pair.raw(xid, PROGRAM, VERSION, Proc::SETACL.0, args).expect("a reply");
    let first = send(7_000, &with(&LISTED));
    send(7_001, &with(&closed));
    assert_eq!(send(7_000, &with(&LISTED)), first, "the cached reply is sent again");
    assert_eq!(pair.get_acl(file, Mask::ACL).acl, list(&closed, 0));
}

#[test]
fn acls_are_set_returned_and_enforced() {
    let pair = pair();
    let file = pair.file(b"file");
    let mask = Mask::ACL | Mask::ACLCNT;
    let wanted = SecAttr { mask, acl: list(&LISTED, 0), dfacl: Acl::default() };
    assert_eq!(pair.set_acl(file, wanted.clone()), NfsStat::OK);
    assert_eq!(pair.get_acl(file, mask), wanted);
    let attributes: GetattrResult = pair.call(super::Proc::GETATTR, &GetattrArgs { object: file });
    assert_eq!(attributes.into_result().unwrap().mode, 0o650);
    let user = Pair { uid: 1000, ..pair };
    let other = |pair: &Pair| pair.read(file, 0, 1).status();
    assert_eq!(other(&user), NfsStat::OK);
    assert_eq!(other(&Pair { uid: 1001, ..user }), NfsStat::ACCES);
}

#[test]
fn a_default_acl_is_set_alone_and_removed() {
    let pair = pair();
    let mask = Mask::DFACL | Mask::DFACLCNT;
    let wanted = SecAttr { mask, acl: Acl::default(), dfacl: list(&LISTED, AclTag::DEFAULT) };
    assert_eq!(pair.set_acl(pair.root, wanted.clone()), NfsStat::OK);
    assert_eq!(pair.get_acl(pair.root, mask), wanted);
    assert_eq!(pair.get_acl(pair.root, Mask::ACL).acl.entries.len(), 4, "the access ACL is unchanged");
    assert_eq!(pair.set_acl(pair.root, SecAttr { mask, ..SecAttr::default() }), NfsStat::OK);
    assert_eq!(pair.get_acl(pair.root, mask), SecAttr { mask, ..SecAttr::default() });
}

#[test]
fn refuses_invalid_acls_and_unpermitted_callers() {
    let pair = pair();
    let file = pair.file(b"file");
    let set =
        |pair: &Pair, acl, dfacl| pair.set_acl(file, SecAttr { mask: Mask::ACL | Mask::DFACL, acl, dfacl });
    for wrong in [&LISTED[1..], &LISTED[..4], &[LISTED[0], LISTED[0]]] {
        assert_eq!(set(&pair, list(wrong, 0), Acl::default()), NfsStat::INVAL);
    }
    let impossible = [(AclTag::USER_OBJ, 0, 8), LISTED[2], LISTED[4]];
    assert_eq!(set(&pair, list(&impossible, 0), Acl::default()), NfsStat::INVAL);
    let default = list(&LISTED, AclTag::DEFAULT);
    assert_eq!(set(&pair, list(&LISTED, 0), default), NfsStat::INVAL, "no directory");
    let result: GetAclResult =
        pair.acl(Proc::GETACL, &GetAclArgs { fh: file, mask: Mask::from_bits_retain(0x10) });
    assert_eq!(result.status(), NfsStat::INVAL);
    let stranger = Pair { uid: 1000, ..pair };
    assert_eq!(set(&stranger, list(&LISTED, 0), Acl::default()), NfsStat::PERM);
    let read_only = pair_with(
        ExportOptions { squash: Squash::None, read_only: true, ..ExportOptions::default() },
        &MemOptions::default(),
        0,
    );
    let refused = read_only
        .set_acl(read_only.root, SecAttr { mask: Mask::ACL, acl: list(&LISTED, 0), ..SecAttr::default() });
    assert_eq!(refused, NfsStat::ROFS);
}

#[test]
fn unknown_versions_and_procedures_are_refused() {
    let pair = pair();
    let reply = pair.raw(50, PROGRAM, 2, 0, &()).unwrap();
    let refused = parse_reply::<()>(reply).unwrap_err();
    let range = rpc::message::VersionRange { low: 3, high: 3 };
    assert_eq!(refused, RpcError::NotExecuted(AcceptStatus::ProgramMismatch(range)));
    let reply = pair.raw(51, PROGRAM, VERSION, 5, &()).unwrap();
    let refused = parse_reply::<()>(reply).unwrap_err();
    assert_eq!(refused, RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable));
}
