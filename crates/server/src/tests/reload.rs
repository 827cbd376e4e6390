//! Replacement of exports while clients hold state.

use std::pin::pin;
use std::task::{Context, Waker};

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::open::ShareAccess;
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::session::SequenceStatus;
use protocol::nfs4::ops::stateid::FreeStateidArgs;
use protocol::nfs4::types::{Handle, Stateid, Status};

use vfs::fault::{Fault, Gate, Method, Rule};
use xdr::Writer;

use crate::ExportTable;
use crate::testing::{Lab, at, compound, export, faulty, lab_of, open, putfh};

fn read(handle: Handle, stateid: Stateid) -> Vec<Op> {
    vec![putfh(handle), Op::Read(ReadArgs { stateid, offset: 0, count: 10 })]
}

#[test]
fn revokes_opens_made_while_the_export_is_removed() {
    let (export, backend) = faulty();
    let mut lab = lab_of(vec![export]);
    lab.file(&["export", "file"], b"hello");
    let gate = Gate::new();
    backend.add(Rule::on(Method::Open, Fault::Hold(gate.clone())));
    let opening = at(&["export"], vec![open("file", b"owner", ShareAccess::READ)]);
    let args = xdr::to_bytes(&compound([vec![lab.next(true)], opening].concat()));
    let (record, now) = (lab.record(&args), lab.now());
    let (server, connection) = (lab.server.clone(), lab.connection.clone());
    let mut reply = Writer::new();
    {
        let mut call = pin!(server.handle(&connection, now, record, &mut reply));
        let mut context = Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending());
        server.replace_exports(ExportTable::new(Vec::new()).unwrap());
        server.maintain(now);
        gate.open();
        assert!(call.as_mut().poll(&mut context).is_ready());
    }
    server.maintain(now);
    let counts = server.counts();
    assert_eq!((counts.opens, counts.revoked), (0, 1));
}

/// Returns the status flags of SEQUENCE.
fn status_flags(lab: &mut Lab) -> SequenceStatus {
    match &lab.run(Vec::new()).results[0] {
        OpResult::Sequence(result) => result.as_result().unwrap().status_flags,
        other => panic!("{other:?}"),
    }
}

#[test]
fn removing_export_revokes_its_opens_only() {
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

    // The export returns with its state.
    let all = before.iter().map(|export| (**export).clone()).collect();
    lab.server.replace_exports(ExportTable::new(all).unwrap());
    let (again, open) = lab.open(&["removed", "file"], b"owner");
    assert_eq!(again, removed);
    assert_eq!(lab.status(read(again, open)), Status::OK);
}

#[test]
fn nfs3_respects_share_reservations() {
    use protocol::nfs3::{CreateArgs, CreateHow, DirOpArgs, Filename};
    use protocol::nfs3::{NfsStat, Proc, ReadArgs, Sattr, SetattrArgs, StableHow, WriteArgs};
    use protocol::nfs4::ops::open::{OpenHow, ShareDeny};
    let mut lab = lab_of(vec![export(1, "/export")]);
    let file = lab.file(&["export", "file"], b"hello");
    let mut denying = crate::testing::open_args("file", b"owner", ShareAccess::BOTH, OpenHow::NoCreate);
    denying.share_deny = ShareDeny::BOTH;
    lab.ok(at(&["export"], vec![Op::Open(denying)]));
    let file = protocol::nfs3::FileHandle::new(&file).unwrap();
    let data = xdr::Opaque::from_static(b"HELLO");
    let write = WriteArgs { file, offset: 0, count: 5, stable: StableHow::FileSync, data };
    let new_attributes = |size| Sattr { size, mode: Some(0o600), ..Sattr::default() };
    let set = |size| SetattrArgs { object: file, new_attributes: new_attributes(size), guard: None };
    let dir = protocol::nfs3::FileHandle::new(&lab.handle(&["export"])).unwrap();
    let where_ = || DirOpArgs { dir, name: Filename::new(b"file".to_vec()).unwrap() };
    // RFC 1813 §3.3.8: without a size an existing file is unchanged.
    let create =
        |size| CreateArgs { where_: where_(), how: CreateHow::Unchecked(Sattr { size, ..Sattr::default() }) };
    let all = |lab: &mut Lab| {
        [
            lab.nfs3(Proc::CREATE.0, &create(Some(0))),
            lab.nfs3(Proc::CREATE.0, &create(None)),
            lab.nfs3(Proc::READ.0, &ReadArgs { file, offset: 0, count: 5 }),
            lab.nfs3(Proc::WRITE.0, &write),
            lab.nfs3(Proc::SETATTR.0, &set(Some(0))),
            lab.nfs3(Proc::SETATTR.0, &set(None)),
        ]
    };
    let jukebox = NfsStat::JUKEBOX;
    assert_eq!(all(&mut lab), [jukebox, NfsStat::OK, jukebox, jukebox, jukebox, NfsStat::OK]);
    // As for every client, the lease has expired.
    lab.seconds += 100;
    assert_eq!(all(&mut lab), [NfsStat::OK; 6]);
}
