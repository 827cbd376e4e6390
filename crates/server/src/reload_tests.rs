//! What becomes of clients when the exports are replaced.

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::session::SequenceStatus;
use protocol::nfs4::ops::stateid::FreeStateidArgs;
use protocol::nfs4::types::{Handle, Stateid, Status};

use crate::ExportTable;
use crate::testing::{Lab, export, lab_of, putfh};

fn read(handle: Handle, stateid: Stateid) -> Vec<Op> {
    vec![putfh(handle), Op::Read(ReadArgs { stateid, offset: 0, count: 10 })]
}

/// What SEQUENCE says of the client's state.
fn status_flags(lab: &mut Lab) -> SequenceStatus {
    match &lab.run(Vec::new()).results[0] {
        OpResult::Sequence(result) => result.as_result().unwrap().status_flags,
        other => panic!("{other:?}"),
    }
}

#[test]
fn opens_in_a_removed_export_are_revoked_and_others_stay() {
    let mut lab = lab_of(vec![export(1, "/kept"), export(2, "/removed")]);
    lab.file(&["kept", "file"], b"kept");
    lab.file(&["removed", "file"], b"removed");
    let (kept, kept_open) = lab.open(&["kept", "file"], b"owner");
    let (removed, removed_open) = lab.open(&["removed", "file"], b"owner");
    assert_eq!(lab.status(read(removed, removed_open)), Status::OK);

    let before = lab.server.exports();
    let left = before.iter().filter(|export| export.path == "/kept").map(|export| (**export).clone());
    lab.server.replace_exports(ExportTable::new(left.collect()).unwrap());

    assert_eq!(lab.status(read(kept, kept_open)), Status::OK);
    assert_eq!(lab.status(read(removed, removed_open)), Status::STALE);
    let counts = lab.server.counts();
    assert_eq!((counts.opens, counts.revoked), (1, 1));
    // RFC 8881 §18.46.3, SEQ4_STATUS_ADMIN_STATE_REVOKED: "This status bit remains set on all SEQUENCE replies until the
    // loss of all such locks has been acknowledged by use of FREE_STATEID."
    assert!(status_flags(&mut lab).contains(SequenceStatus::ADMIN_STATE_REVOKED));
    lab.ok(vec![Op::FreeStateid(FreeStateidArgs { stateid: removed_open })]);
    assert!(status_flags(&mut lab).is_empty());

    // Back again, with what it held.
    let all = before.iter().map(|export| (**export).clone()).collect();
    lab.server.replace_exports(ExportTable::new(all).unwrap());
    let (again, open) = lab.open(&["removed", "file"], b"owner");
    assert_eq!(again, removed);
    assert_eq!(lab.status(read(again, open)), Status::OK);
}
