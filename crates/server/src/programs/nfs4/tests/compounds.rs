//! Rules for compounds in general, valid and invalid.

use protocol::nfs4::attributes::number as n;
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::session::{DestroySessionArgs, ReclaimCompleteArgs};
use protocol::nfs4::types::{HasStatus, OpNum, Status, Utf8};
use rpc::message::{AcceptStatus, RpcError};
use xdr::{Encode, List, Writer};

use crate::testing::{Lab, at, channel, compound, create, getattr, lab, lab_42, name, putfh, session_args};

/// Returns a compound's arguments: header and encoded operations separately.
fn raw(minor: u32, count: u32, operations: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.opaque(b"");
    writer.u32(minor);
    writer.u32(count);
    writer.raw(operations);
    writer.into_bytes().to_vec()
}

fn send(lab: &mut Lab, arguments: &[u8]) -> CompoundResult {
    xdr::from_bytes(lab.raw(arguments).expect("results")).expect("a COMPOUND4res")
}

#[test]
fn echoes_any_tag() {
    let mut lab = lab();
    let tag = Utf8::from_static(b"\xff\0 any bytes");
    let next = lab.next(false);
    let result =
        lab.send(&CompoundArgs { tag: tag.clone(), minor_version: 1, ops: List::new(vec![next]).unwrap() });
    assert_eq!((result.tag, result.status), (tag, Status::OK));
}

#[test]
fn refuses_tag_over_limit() {
    let mut writer = Writer::new();
    writer.opaque(&[b'x'; 1028]);
    writer.u32(1);
    writer.u32(0);
    let garbage = lab().raw(&writer.into_bytes()).unwrap_err();
    assert_eq!(garbage, RpcError::NotExecuted(AcceptStatus::GarbageArguments));
}

#[test]
fn refuses_unknown_minor_versions() {
    let mut lab = lab();
    for minor in [3, u32::MAX] {
        let result = send(&mut lab, &raw(minor, 0, &[]));
        assert_eq!((result.status, result.results.len()), (Status::MINOR_VERS_MISMATCH, 0), "{minor}");
    }
}

#[test]
fn empty_compound_succeeds() {
    for minor in [1, 2] {
        let result = send(&mut lab(), &raw(minor, 0, &[]));
        assert_eq!((result.status, result.results.len()), (Status::OK, 0), "{minor}");
    }
}

#[test]
fn sequence_must_be_first_and_single() {
    let mut lab = lab();
    let next = lab.next(false);
    let result = lab.send(&compound(vec![next.clone(), next]));
    assert_eq!((result.status, result.results.len()), (Status::SEQUENCE_POS, 2));
    let result = lab.send(&compound(vec![Op::PutRootFh, Op::GetFh]));
    assert_eq!((result.status, result.results.len()), (Status::OP_NOT_IN_SESSION, 1));
    let destroy = Op::DestroySession(DestroySessionArgs { session_id: lab.session });
    let result = lab.send(&compound(vec![destroy, Op::PutRootFh]));
    assert_eq!((result.status, result.results.len()), (Status::NOT_ONLY_OP, 1));
}

#[test]
fn distinguishes_illegal_and_unsupported_operations() {
    let mut lab = lab();
    for number in [0, 1, 2, OpNum::ALLOCATE.0, 76, OpNum::ILLEGAL.0, u32::MAX] {
        let mut operations = Writer::new();
        lab.next(false).encode(&mut operations);
        operations.u32(number);
        let result = send(&mut lab, &raw(1, 2, operations.inline()));
        assert_eq!(result.results[1], OpResult::Illegal(Err(Status::OP_ILLEGAL).into()), "{number}");
        let alone = send(&mut lab, &raw(1, 1, &number.to_be_bytes()));
        assert_eq!(alone.status, Status::OP_ILLEGAL);
    }
    for number in [OpNum::RENEW, OpNum::OPEN_CONFIRM, OpNum::SETCLIENTID, OpNum::GETDEVICEINFO] {
        let mut operations = Writer::new();
        lab.next(false).encode(&mut operations);
        operations.u32(number.0);
        let result = send(&mut lab, &raw(1, 2, operations.inline()));
        assert_eq!(result.status, Status::NOTSUPP, "{number:?}");
        assert_eq!(result.results[1].opnum(), number);
    }
}

/// The server has no layouts and does not advertise any. RFC 8881 §17 has these operations as parts of pNFS, which is optional.
#[test]
fn pnfs_operations_are_not_supported() {
    use OpNum as O;
    let mut lab = lab();
    let mut ask = |minor, operations: &[OpNum]| {
        let mut written = Writer::new();
        lab.next(false).encode(&mut written);
        operations.iter().for_each(|number| written.u32(number.0));
        let result = send(&mut lab, &raw(minor, 1 + operations.len() as u32, written.inline()));
        assert_eq!(result.results.len(), 1 + operations.len());
        result.status
    };
    for number in [O::GETDEVICEINFO, O::LAYOUTRETURN] {
        assert_eq!(ask(1, &[number]), Status::NOTSUPP, "{number:?}");
    }
    for number in [O::GETDEVICELIST, O::LAYOUTCOMMIT, O::LAYOUTGET] {
        assert_eq!(ask(1, &[O::PUTROOTFH, number]), Status::NOTSUPP, "{number:?}");
        assert_eq!(ask(1, &[number]), Status::NOFILEHANDLE, "{number:?}");
    }
    for number in [O::LAYOUTERROR, O::LAYOUTSTATS] {
        assert_eq!(ask(1, &[O::PUTROOTFH, number]), Status::OP_ILLEGAL, "of version 4.2: {number:?}");
    }
    let layouts = [n::FS_LAYOUT_TYPES, n::LAYOUT_TYPES, n::LAYOUT_HINT, n::LAYOUT_BLKSIZE, n::MDSTHRESHOLD];
    let supported = lab.attributes(&["export"], &[n::SUPPORTED_ATTRS]).supported_attrs.unwrap();
    assert!(layouts.iter().all(|number| !supported.has(*number)));
    let mut newer = lab_42();
    for number in [O::LAYOUTERROR, O::LAYOUTSTATS] {
        let mut written = Writer::new();
        newer.next(false).encode(&mut written);
        written.u32(O::PUTROOTFH.0);
        written.u32(number.0);
        let result = send(&mut newer, &raw(2, 3, written.inline()));
        assert_eq!((result.status, result.results.len()), (Status::NOTSUPP, 3), "{number:?}");
    }
}

#[test]
fn refuses_ten_thousand_operations() {
    let mut lab = lab();
    let mut operations = Writer::new();
    lab.next(false).encode(&mut operations);
    for _ in 1..10_000 {
        Op::PutRootFh.encode(&mut operations);
    }
    let result = send(&mut lab, &raw(1, 10_000, operations.inline()));
    assert_eq!((result.status, result.results.len()), (Status::TOO_MANY_OPS, 2));
    // Without a session, and with a count of operations that do not follow.
    let result = send(&mut lab, &raw(1, 10_000, &OpNum::PUTROOTFH.0.to_be_bytes()));
    assert_eq!(result.status, Status::OP_NOT_IN_SESSION);
    let result = send(&mut lab, &raw(1, u32::MAX, &[]));
    assert_eq!((result.status, result.results.len()), (Status::BADXDR, 1));
}

#[test]
fn operations_need_current_filehandle() {
    let mut lab = lab();
    for op in [Op::GetFh, Op::LookupParent, Op::ReadLink, getattr(&[n::TYPE]), create("x", b"o")] {
        assert_eq!(lab.status(vec![op]), Status::NOFILEHANDLE);
    }
}

#[test]
fn runs_open_only_with_room_for_result() {
    let mut lab = lab();
    let mut fore = channel();
    fore.max_response_size = 300;
    lab.connect_with(b"small", fore);
    // PUTROOTFH, LOOKUP and four GETFH leave less than OPEN and the following GETFH may need.
    let mut ops = at(&["export"], vec![Op::GetFh, Op::GetFh]);
    ops.push(create("file", b"owner"));
    assert_eq!(lab.status(ops), Status::REP_TOO_BIG);
    assert_eq!(lab.status_at(&["export"], crate::testing::lookup("file")), Status::NOENT);
    assert_eq!(lab.status(at(&["export"], vec![create("file", b"owner")])), Status::OK);
}

#[test]
fn refuses_cached_reply_over_limit() {
    let mut lab = lab();
    let mut fore = channel();
    fore.max_response_size_cached = 200;
    lab.connect_with(b"small", fore);
    let ops = || at(&["export"], vec![Op::GetFh, Op::GetFh, Op::GetFh, Op::GetFh]);
    assert_eq!(lab.status(ops()), Status::OK);
    let mut cached = vec![lab.next(true)];
    cached.extend(ops());
    let args = xdr::to_bytes(&compound(cached));
    let first: CompoundResult = send(&mut lab, &args);
    assert_eq!(first.status, Status::REP_TOO_BIG_TO_CACHE);
    // RFC 8881 §2.10.6.4: the reply up to that operation "MUST be cached".
    assert_eq!(send(&mut lab, &args), first);
}

#[test]
fn tiny_cache_limit_fails_before_slot_is_used() {
    let mut lab = lab();
    let mut fore = channel();
    fore.max_response_size_cached = 0;
    lab.connect_with(b"small", fore);
    let cached = vec![lab.next(true), Op::PutRootFh];
    let result = lab.send(&compound(cached));
    let statuses: Vec<_> = result.results.iter().map(HasStatus::status).collect();
    assert_eq!(statuses, [Status::REP_TOO_BIG_TO_CACHE]);
    // RFC 8881 §2.10.6.1.2: if SEQUENCE fails, "the sequence ID of the slot MUST NOT change".
    lab.sequence -= 1;
    assert_eq!(lab.status(vec![Op::PutRootFh]), Status::OK);
}

#[test]
fn current_stateid_ignores_seqid() {
    use protocol::nfs4::ops::close::CloseArgs;
    use protocol::nfs4::ops::open::ShareAccess;
    use protocol::nfs4::ops::read::ReadArgs;
    use protocol::nfs4::types::Stateid;
    let mut lab = lab();
    lab.file(&["export", "file"], b"data");
    let opening = || crate::testing::open("file", b"owner", ShareAccess::READ);
    // The second OPEN returns the same open, so that the stateid saved before is an old one.
    let upgraded = |last| {
        let root = at(&["export"], vec![]);
        [at(&["export"], vec![opening(), Op::SaveFh]), root, vec![opening(), Op::RestoreFh, last]].concat()
    };
    let read = Op::Read(ReadArgs { stateid: Stateid::CURRENT, offset: 0, count: 4 });
    assert_eq!(lab.status(upgraded(read)), Status::OK);
    let close = || Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT });
    assert_eq!(lab.status(upgraded(close())), Status::OLD_STATEID, "CLOSE uses the current stateid");
    assert_eq!(lab.status(at(&["export"], vec![opening(), close()])), Status::OK);
}

#[test]
fn creates_no_session_without_room_for_reply() {
    let mut lab = lab();
    let mut fore = channel();
    fore.max_response_size = 120;
    lab.connect_with(b"small", fore);
    let id = lab.exchange(b"another");
    let sessions = lab.server.counts().sessions;
    let create = Op::CreateSession(session_args(id.client_id, id.sequence_id));
    assert_eq!(lab.status(vec![create]), Status::REP_TOO_BIG);
    assert_eq!(lab.server.counts().sessions, sessions);
}

#[test]
fn reports_conflicting_lock_if_it_fits() {
    use protocol::nfs4::ops::lock::{LockArgs, LockTArgs, LockType, Locker, OpenToLockOwner};
    use protocol::nfs4::types::StateOwner;
    let mut lab = lab();
    lab.file(&["export", "file"], b"");
    let (file, open_stateid) = lab.open(&["export", "file"], b"owner");
    let owner = xdr::Opaque::from_static(&[b'x'; 1024]);
    let lock_owner = StateOwner { client_id: 0, owner };
    let new = OpenToLockOwner { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner };
    let lock_type = LockType::Write;
    let locker = Locker::New(new);
    let lock = LockArgs { lock_type, reclaim: false, offset: 0, length: 1, locker };
    lab.ok(vec![putfh(file), Op::Lock(lock)]);
    let test = || {
        let args = LockTArgs { lock_type, offset: 0, length: 1, owner: StateOwner::default() };
        vec![putfh(file), Op::LockT(args)]
    };
    assert_eq!(lab.status(test()), Status::DENIED);
    let mut fore = channel();
    fore.max_response_size = 1000;
    lab.connect_with(b"small", fore);
    assert_eq!(lab.status(test()), Status::REP_TOO_BIG);
}

#[test]
fn detects_false_retry_behind_long_tag() {
    let mut lab = lab();
    let sequence = lab.next(true);
    let tagged = |op| CompoundArgs {
        tag: Utf8::from_static(&[b't'; 1000]),
        minor_version: 1,
        ops: List::new(vec![sequence.clone(), op]).unwrap(),
    };
    assert_eq!(lab.send(&tagged(Op::PutRootFh)).status, Status::OK);
    // RFC 8881 §2.10.6.1.3.1: not a retry, though the slot, the sequence ID and the length are the same.
    assert_eq!(lab.send(&tagged(Op::PutPubFh)).status, Status::SEQ_FALSE_RETRY);
    assert_eq!(lab.send(&tagged(Op::PutRootFh)).status, Status::OK);
}

#[test]
fn refuses_request_over_channel_limit() {
    let mut lab = lab();
    let mut fore = channel();
    fore.max_request_size = 1024;
    lab.connect_with(b"small", fore);
    let long = Box::leak(vec![b'x'; 1000].into_boxed_slice());
    let lookup = Op::Lookup(protocol::nfs4::ops::lookup::LookupArgs { name: xdr::Opaque::from_static(long) });
    assert_eq!(lab.status(vec![Op::PutRootFh, lookup]), Status::REQ_TOO_BIG);
}

#[test]
fn retransmission_without_cached_reply_gets_retry_uncached_rep() {
    let mut lab = lab();
    // Too long to be cached without a request.
    let mut ops = vec![lab.next(false)];
    ops.extend(at(&["export"], std::iter::repeat_n(Op::GetFh, 60).collect()));
    let args = compound(ops);
    assert_eq!(lab.send(&args).status, Status::OK);
    let again = lab.send(&args);
    let statuses: Vec<_> = again.results.iter().map(HasStatus::status).collect();
    let is_kept = again.results.len() == 63;
    assert!(is_kept || statuses == [Status::OK, Status::RETRY_UNCACHED_REP], "{statuses:?}");
}

#[test]
fn detects_false_retry() {
    let mut lab = lab();
    let next = lab.next(true);
    let first = compound(vec![next.clone(), Op::PutRootFh]);
    assert_eq!(lab.send(&first).status, Status::OK);
    let other = compound(vec![next, Op::PutRootFh, Op::GetFh]);
    assert_eq!(lab.send(&other).status, Status::SEQ_FALSE_RETRY);
}

/// Returns every operation of 4.1 that has arguments and is served, with arguments that decode.
fn operations_with_arguments() -> Vec<Op> {
    use protocol::nfs4::attributes::FileAttributes;
    use protocol::nfs4::ops::*;
    use protocol::nfs4::types::{Bitmap, Handle, SpecData, StableHow, StateOwner, Stateid};
    use xdr::Opaque;
    let stateid = Stateid { seqid: 1, other: [7; 12] };
    let owner = || StateOwner { client_id: 1, owner: Opaque::from_static(b"owner") };
    let (lock_type, offset, length) = (lock::LockType::Write, 0, 1);
    let device = create::CreateType::Block(SpecData { major: 1, minor: 2 });
    let verify = || verify::VerifyArgs { attributes: crate::testing::size(1) };
    let existing = lock::ExistingLockOwner { lock_stateid: stateid, lock_seqid: 0 };
    vec![
        Op::Access(access::AccessArgs { access: access::AccessMask::READ }),
        Op::Close(close::CloseArgs { seqid: 0, open_stateid: stateid }),
        Op::Commit(commit::CommitArgs { offset: 0, count: 0 }),
        Op::Create(create::CreateArgs {
            object_type: device,
            name: name("device"),
            attributes: crate::testing::mode(0o600),
        }),
        Op::DelegPurge(delegation::DelegPurgeArgs { client_id: 1 }),
        Op::DelegReturn(delegation::DelegReturnArgs { stateid }),
        getattr(&[n::TYPE, n::SPACE_FREE]),
        Op::Link(link::LinkArgs { new_name: name("link") }),
        Op::Lock(lock::LockArgs {
            lock_type,
            reclaim: false,
            offset,
            length,
            locker: lock::Locker::Existing(existing),
        }),
        Op::LockT(lock::LockTArgs { lock_type, offset, length, owner: owner() }),
        Op::LockU(lock::LockUArgs { lock_type, seqid: 0, lock_stateid: stateid, offset, length }),
        crate::testing::lookup("name"),
        Op::NVerify(verify()),
        create("name", b"owner"),
        Op::OpenAttr(open_state::OpenAttrArgs { create_directory: false }),
        Op::OpenDowngrade(open_state::OpenDowngradeArgs {
            open_stateid: stateid,
            seqid: 0,
            share_access: open::ShareAccess::READ,
            share_deny: open::ShareDeny::empty(),
        }),
        crate::testing::putfh(Handle::new(&[7; 60]).unwrap()),
        Op::Read(read::ReadArgs { stateid, offset: 0, count: 1 }),
        Op::ReadDir(readdir::ReadDirArgs {
            cookie: 0,
            cookie_verifier: [0; 8],
            dircount: 0,
            maxcount: 1000,
            attributes: Bitmap::of(&[n::TYPE, n::OWNER]),
        }),
        Op::Remove(RemoveArgs { target: name("absent") }),
        Op::Rename(rename::RenameArgs { old_name: name("old"), new_name: name("new") }),
        Op::SecInfo(secinfo::SecInfoArgs { name: name("name") }),
        Op::SetAttr(setattr::SetAttrArgs { stateid, attributes: FileAttributes::default() }),
        Op::Verify(verify()),
        Op::Write(write::WriteArgs {
            stateid,
            offset: 0,
            stable: StableHow::Unstable,
            data: Opaque::from_static(b"data"),
        }),
        Op::BackchannelCtl(backchannel::BackchannelCtlArgs { program: 1, sec_parms: List::default() }),
        Op::DestroySession(DestroySessionArgs { session_id: [7; 16] }),
        Op::FreeStateid(stateid::FreeStateidArgs { stateid }),
        Op::SecInfoNoName(secinfo::SecInfoNoNameArgs { style: secinfo::SecInfoStyle::CURRENT_FH }),
        Op::SetSsv(ssv::SetSsvArgs { ssv: Opaque::from_static(b"ssv"), digest: Opaque::default() }),
        Op::TestStateid(stateid::TestStateidArgs { stateids: List::new(vec![stateid; 2]).unwrap() }),
        Op::DestroyClientId(exchange_id::DestroyClientIdArgs { client_id: 1 }),
        Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: true }),
    ]
}

/// Operations that give a truncated operation its current and saved file handles.
fn before(lab: &mut Lab) -> Vec<Op> {
    let mut ops = vec![lab.next(false)];
    ops.extend(at(&["export"], vec![Op::SaveFh]));
    ops
}

#[test]
fn truncated_operation_is_bad_xdr() {
    let mut lab = lab();
    for op in operations_with_arguments() {
        let bytes = xdr::to_bytes(&op);
        for length in 0..bytes.len() {
            let first = before(&mut lab);
            let mut operations = Writer::new();
            first.iter().for_each(|op| op.encode(&mut operations));
            operations.raw(&bytes[..length]);
            let count = first.len() as u32 + 1;
            let result = send(&mut lab, &raw(1, count, operations.inline()));
            assert_eq!(result.status, Status::BADXDR, "{op:?} cut at {length} of {}", bytes.len());
            assert_eq!(result.results.len(), first.len() + 1);
            let shown = if length < 4 { OpNum::ILLEGAL } else { op.opnum() };
            assert_eq!(result.results[first.len()].opnum(), shown);
        }
    }
}

#[test]
fn truncated_standalone_operation_is_bad_xdr() {
    use protocol::nfs4::ops::{backchannel, exchange_id};
    let mut lab = lab();
    let operations = [
        Op::ExchangeId(exchange_id::ExchangeIdArgs {
            client_owner: Default::default(),
            flags: exchange_id::ExchangeIdFlags::empty(),
            state_protect: exchange_id::StateProtectArgs::None,
            implementation: List::default(),
        }),
        Op::CreateSession(session_args(1, 1)),
        Op::DestroySession(DestroySessionArgs { session_id: [7; 16] }),
        Op::BindConnToSession(backchannel::BindConnToSessionArgs {
            session_id: [7; 16],
            direction: backchannel::DirFromClient::FORE,
            use_rdma: false,
        }),
        lab.next(false),
    ];
    for op in operations {
        let bytes = xdr::to_bytes(&op);
        for length in 4..bytes.len() {
            let result = send(&mut lab, &raw(1, 1, &bytes[..length]));
            assert_eq!(result.status, Status::BADXDR, "{op:?} cut at {length}");
        }
    }
}

#[test]
fn corrupted_arguments_never_panic() {
    let mut lab = lab();
    // Each byte of each operation's arguments in turn becomes 0xff and 0x80.
    for op in operations_with_arguments() {
        let bytes = xdr::to_bytes(&op);
        for (position, value) in (4..bytes.len()).flat_map(|at| [(at, 0xff), (at, 0x80)]) {
            let first = before(&mut lab);
            let mut operations = Writer::new();
            first.iter().for_each(|op| op.encode(&mut operations));
            let mut wrong = bytes.to_vec();
            wrong[position] = value;
            operations.raw(&wrong);
            let result = send(&mut lab, &raw(1, first.len() as u32 + 1, operations.inline()));
            assert_eq!(result.results.len(), first.len() + 1, "{op:?} with {value:x} at {position}");
        }
    }
}

#[test]
fn version_4_2_operations_are_illegal_in_4_1() {
    use protocol::nfs4::ops::space::{DataContent, SeekArgs};
    let mut lab = lab_42();
    let file = lab.file(&["export", "file"], b"");
    let seek = || {
        let stateid = protocol::nfs4::types::Stateid::ANONYMOUS;
        Op::Seek(SeekArgs { stateid, offset: 0, what: DataContent::DATA })
    };
    assert_ne!(lab.status(vec![putfh(file), seek()]), Status::OP_ILLEGAL);
    lab.minor = 1;
    assert_eq!(lab.status(vec![putfh(file), seek()]), Status::OP_ILLEGAL);
}
