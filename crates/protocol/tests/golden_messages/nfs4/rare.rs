//! Rare operations and callbacks, sent by pynfs, also those that tshark does not dissect.

use protocol::nfs4::callback::notify::{
    CbNotifyArgs, CbNotifyDeviceIdArgs, Notification, notify_device_type, notify_type,
};
use protocol::nfs4::callback::recall::{
    CbLayoutRecallArgs, CbPushDelegArgs, CbRecallAnyArgs, CbRecallSlotArgs, CbWantsCancelledArgs,
    LayoutRecall, recallable,
};
use protocol::nfs4::callback::{CbCompoundArgs, CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundArgs, Op, OpResult};
use protocol::nfs4::ops::backchannel::{BindConnToSessionArgs, BindConnToSessionOk, CallbackSecParms};
use protocol::nfs4::ops::copy::CopyNotifyOk;
use protocol::nfs4::ops::delegation::{DelegationClaim, GetDirDelegationArgs, WantDelegationArgs};
use protocol::nfs4::ops::layout::LayoutCommitArgs;
use protocol::nfs4::ops::layout_report::{LayoutErrorArgs, LayoutStatsArgs};
use protocol::nfs4::ops::open::{DelegationWant, OpenDelegation, ShareAccess};
use protocol::nfs4::ops::read_plus::{ReadPlusContent, ReadPlusOk};
use protocol::nfs4::ops::ssv::SetSsvArgs;
use protocol::nfs4::types::{Bitmap, CallbackOpNum, NetLocation, OpNum, Stateid, Time};

use super::arguments::lock_owner;
use super::results::ok;
use crate::golden::{Golden, all};
use crate::shown::{Shown, Shows};
use crate::{same_bytes, shown};

/// Operations of which tshark 4.0 shows only the number, without the status of the result.
const NOT_DISSECTED: [OpNum; 3] = [OpNum::GET_DIR_DELEGATION, OpNum::SET_SSV, OpNum::WANT_DELEGATION];

pub(super) fn is_dissected(op: OpNum) -> bool {
    !NOT_DISSECTED.contains(&op)
}

shown!(NetLocation, |location, shows| {
    let NetLocation::Address(address) = location else { panic!("{location:?} was not recorded") };
    shows.put("nfs.netloctype", 3);
    address.show(shows);
});

shown!(BindConnToSessionArgs, |a, shows| {
    shows.bytes("nfs.session_id4", &a.session_id);
    shows.hex("nfs.bctsa_dir", a.direction.0);
    shows.flag("nfs.bctsa_use_conn_in_rdma_mode", a.use_rdma);
});

shown!(BindConnToSessionOk, |ok, shows| {
    shows.bytes("nfs.session_id4", &ok.session_id);
    shows.hex("nfs.bctsr_dir", ok.direction.0);
    shows.flag("nfs.bctsr_use_conn_in_rdma_mode", ok.use_rdma);
});

shown!(LayoutCommitArgs, |a, shows| {
    shows.range(a.offset, a.length);
    shows.flag("nfs.reclaim4", a.reclaim);
    a.stateid.show(shows);
    shows.flag("nfs.newoffset", a.last_write_offset.is_some());
    a.last_write_offset.iter().for_each(|offset| shows.put("nfs.offset4", offset));
    shows.flag("nfs.newtime", a.time_modify.is_some());
    a.time_modify.iter().for_each(|time| time.show(shows));
    shows.put("nfs.layouttype", a.update.layout_type.0);
    if !a.update.body.is_empty() {
        shows.bytes("nfs.layoutupdate", &a.update.body);
    }
});

shown!(LayoutErrorArgs, |a, shows| {
    shows.range(a.offset, a.length);
    a.stateid.show(shows);
    shows.put("nfs.device_error_count", a.errors.len());
    for error in &a.errors {
        shows.device(&error.device_id);
        shows.put("nfs.nfsstat4", error.status.0);
        shows.put("nfs.ff_ioerrs_op", error.op.0);
    }
});

shown!(LayoutStatsArgs, |a, shows| {
    shows.range(a.offset, a.length);
    a.stateid.show(shows);
    a.read.show(shows);
    a.write.show(shows);
    shows.device(&a.device_id);
    shows.put("nfs.layouttype", a.update.layout_type.0);
});

shown!(CopyNotifyOk, |ok, shows| {
    ok.lease_time.show(shows);
    ok.stateid.show(shows);
    shows.put("nfs.source_servers", ok.source_servers.len());
    ok.source_servers.iter().for_each(|server| server.show(shows));
});

shown!(ReadPlusOk, |ok, shows| {
    shows.flag("nfs.eof", ok.eof);
    for content in &ok.contents {
        let ReadPlusContent::Data(data) = content else { panic!("{content:?} was not recorded") };
        shows.put("nfs.content.type", 0);
        shows.put("nfs.offset4", data.offset);
        shows.put("nfs.read.data_length", data.data.len());
        shows.bytes("nfs.data", &data.data);
    }
});

/// Shows operations of version 4.2.
fn newer_op(op: &Op, shows: &mut Shows) {
    match op {
        Op::CopyNotify(a) => {
            a.source_stateid.show(shows);
            a.destination_server.show(shows);
        }
        Op::IoAdvise(a) => {
            a.stateid.show(shows);
            shows.range(a.offset, a.count);
            shows.bitmap("nfs.hint.mask", &a.hints);
        }
        Op::LayoutError(a) => a.show(shows),
        Op::LayoutStats(a) => a.show(shows),
        Op::OffloadCancel(a) | Op::OffloadStatus(a) => a.stateid.show(shows),
        Op::ReadPlus(a) => {
            a.stateid.show(shows);
            shows.put("nfs.offset4", a.offset);
            shows.put("nfs.count4", a.count);
        }
        // tshark reads the 64-bit block length as the count, and so misreads all later fields.
        Op::WriteSame(a) => {
            a.stateid.show(shows);
            shows.put("nfs.stable_how4", a.stable as u32);
            shows.put("nfs.offset4", a.block.offset);
        }
        other => panic!("{other:?} was not recorded"),
    }
}

/// Shows operations that the Linux client does not use.
pub(super) fn op(op: &Op, shows: &mut Shows) {
    match op {
        Op::LookupParent | Op::PutPubFh => {}
        other if !is_dissected(other.opnum()) => {}
        Op::BackchannelCtl(a) => {
            shows.hex("nfs.cb_program", a.program);
            for parms in &a.sec_parms {
                assert_eq!(*parms, CallbackSecParms::None, "nothing else was recorded");
                shows.put("nfs.flavor4", 0);
            }
        }
        Op::BindConnToSession(a) => a.show(shows),
        Op::DelegPurge(a) => shows.hex64("nfs.clientid", a.client_id),
        Op::GetDeviceList(a) => {
            shows.put("nfs.layouttype", a.layout_type.0);
            shows.put("nfs.maxcount", a.max_devices);
            shows.put("nfs.cookie4", a.cookie);
            shows.put("nfs.cookie_verf4", u64::from_be_bytes(a.cookie_verifier));
        }
        Op::LayoutCommit(a) => a.show(shows),
        Op::NVerify(a) | Op::Verify(a) => a.attributes.show(shows),
        Op::OpenAttr(a) => shows.flag("nfs.openattr4.createdir", a.create_directory),
        Op::SecInfo(a) => shows.name(&a.name),
        Op::TestStateid(a) => a.stateids.iter().for_each(|stateid| stateid.show(shows)),
        other => newer_op(other, shows),
    }
}

/// Shows the results, except bare statuses and failures.
pub(super) fn result(result: &OpResult, shows: &mut Shows) {
    match result {
        OpResult::BackchannelCtl(_)
        | OpResult::DelegPurge(_)
        | OpResult::LayoutError(_)
        | OpResult::LayoutStats(_)
        | OpResult::LookupParent(_)
        | OpResult::NVerify(_)
        | OpResult::OffloadCancel(_)
        | OpResult::OpenAttr(_)
        | OpResult::PutPubFh(_)
        | OpResult::Verify(_) => {}
        OpResult::GetDeviceList(r) => assert!(r.as_result().is_err(), "was not recorded"),
        OpResult::GetDirDelegation(r) => assert!(r.as_result().is_err(), "was not recorded"),
        OpResult::IoAdvise(r) => ok(r, shows, |ok, shows| shows.bitmap("nfs.hint.mask", &ok.hints)),
        OpResult::SetSsv(r) => {
            ok(r, shows, |ok, _| assert!(ok.digest.is_empty(), "NFS-Ganesha 4.3 supports none"))
        }
        OpResult::WantDelegation(r) => assert!(r.as_result().is_err(), "was not recorded"),
        OpResult::WriteSame(r) => assert!(r.as_result().is_err(), "was not recorded"),
        OpResult::BindConnToSession(r) => ok(r, shows, |ok, shows| ok.show(shows)),
        OpResult::CopyNotify(r) => ok(r, shows, |ok, shows| ok.show(shows)),
        OpResult::LayoutCommit(r) => ok(r, shows, |ok, shows| {
            shows.flag("nfs.newsize", ok.new_size.is_some());
            ok.new_size.iter().for_each(|size| shows.put("nfs.length4", size));
        }),
        OpResult::OffloadStatus(r) => ok(r, shows, |ok, shows| {
            shows.put("nfs.length4", ok.count);
            shows.put("nfs.num_offload_status", ok.complete.len());
            assert!(ok.complete.is_empty(), "none was recorded");
        }),
        OpResult::ReadPlus(r) => ok(r, shows, |ok, shows| ok.show(shows)),
        OpResult::TestStateid(r) => ok(r, shows, |statuses, shows| {
            statuses.iter().for_each(|status| shows.put("nfs.nfsstat4", status.0));
        }),
        other => panic!("{other:?} was not recorded"),
    }
}

shown!(CbLayoutRecallArgs, |a, shows| {
    shows.put("nfs.layouttype", a.layout_type.0);
    shows.put("nfs.iomode", a.iomode.0);
    shows.flag("nfs.clorachanged", a.changed);
    let LayoutRecall::File(file) = &a.recall else { panic!("{:?} was not recorded", a.recall) };
    shows.put("nfs.recalltype", 1);
    shows.handle(&file.handle);
    shows.range(file.offset, file.length);
    file.stateid.show(shows);
});

/// Shows callbacks, except those of which tshark shows only the number.
pub(super) fn callback(op: &CbOp, shows: &mut Shows) {
    match op {
        CbOp::GetAttr(a) => {
            shows.handle(&a.handle);
            shows.bitmap("nfs.attr_mask", &a.attributes);
        }
        CbOp::LayoutRecall(a) => a.show(shows),
        CbOp::NotifyLock(a) => {
            shows.handle(&a.handle);
            lock_owner(shows, &a.lock_owner);
        }
        _ => {}
    }
}

pub(super) fn callback_result(result: &CbOpResult) {
    if let CbOpResult::GetAttr(r) = result {
        assert!(r.as_result().is_err(), "was not recorded");
    }
}

fn golden(name: &str) -> Golden {
    all("nfs4").into_iter().find(|golden| golden.name == name).unwrap()
}

fn last_op(name: &str) -> Op {
    same_bytes::<CompoundArgs>(&golden(name)).ops.into_vec().pop().unwrap()
}

fn last_callback(opnum: CallbackOpNum, name: &str) -> CbOp {
    let op = same_bytes::<CbCompoundArgs>(&golden(name)).ops.into_vec().pop().unwrap();
    assert_eq!(op.opnum(), opnum);
    op
}

/// The values that pynfs sent.
const STATEID: Stateid = Stateid { seqid: 1, other: [0x17; 12] };

#[test]
fn operations_unknown_to_tshark_match_those_of_pynfs() {
    let (zero, second) = (Time { seconds: 0, nanoseconds: 0 }, Time { seconds: 1, nanoseconds: 0 });
    let Op::GetDirDelegation(args) = last_op("v41_get_dir_delegation_notsupp_call") else { panic!() };
    let expected = GetDirDelegationArgs {
        signal_available: false,
        notification_types: Bitmap::of(&[notify_type::REMOVE_ENTRY, notify_type::ADD_ENTRY]),
        child_attribute_delay: zero,
        directory_attribute_delay: second,
        child_attributes: Bitmap::of(&[4]),     // size
        directory_attributes: Bitmap::of(&[3]), // change
    };
    assert_eq!(args, expected);
    let Op::SetSsv(SetSsvArgs { ssv, digest }) = last_op("v41_set_ssv_notsupp_call") else { panic!() };
    assert_eq!((&ssv[..], &digest[..]), (&[0x5a; 32][..], &[0xa5; 32][..]));
    let Op::WantDelegation(args) = last_op("v41_want_delegation_notsupp_call") else { panic!() };
    let want = ShareAccess::empty().with_want(DelegationWant::READ_DELEG);
    assert_eq!(args, WantDelegationArgs { want, claim: DelegationClaim::Fh });
    let Op::WriteSame(args) = last_op("v42_write_same_notsupp_call") else { panic!() };
    let block = args.block;
    assert_eq!((block.offset, block.block_size, block.block_count), (0, 4096, 4));
    assert_eq!((block.number_offset, block.block_number, block.pattern_offset), (0, 1, 8));
    assert_eq!(&block.pattern[..], b"pattern!");
}

#[test]
fn callbacks_unknown_to_tshark_match_those_of_pynfs() {
    let CbOp::RecallAny(args) = last_callback(CallbackOpNum::RECALL_ANY, "v42_cb_recall_any_call") else {
        panic!()
    };
    let kinds = |kind| Bitmap::of(&[kind]);
    assert_eq!(args, CbRecallAnyArgs { objects_to_keep: 16, type_mask: kinds(recallable::RDATA_DLG) });
    let name = "v42_cb_recallable_obj_avail_notsupp_call";
    let op = last_callback(CallbackOpNum::RECALLABLE_OBJ_AVAIL, name);
    let args = CbRecallAnyArgs { objects_to_keep: 1, type_mask: kinds(recallable::WDATA_DLG) };
    assert_eq!(op, CbOp::RecallableObjAvail(args));
    let op = last_callback(CallbackOpNum::RECALL_SLOT, "v42_cb_recall_slot_call");
    assert_eq!(op, CbOp::RecallSlot(CbRecallSlotArgs { target_highest_slot_id: 15 }));
    let op = last_callback(CallbackOpNum::WANTS_CANCELLED, "v42_cb_wants_cancelled_notsupp_call");
    assert_eq!(op, CbOp::WantsCancelled(CbWantsCancelledArgs { contended: true, resourced: false }));
}

#[test]
fn notifications_unknown_to_tshark_match_those_of_pynfs() {
    let name = "v42_cb_notify_deviceid_call";
    let CbOp::NotifyDeviceId(CbNotifyDeviceIdArgs { changes }) =
        last_callback(CallbackOpNum::NOTIFY_DEVICEID, name)
    else {
        panic!()
    };
    let [Notification { mask, values }] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(*mask, Bitmap::of(&[notify_device_type::DELETE]));
    assert_eq!(values[..], [&[0, 0, 0, 1][..], &[0x0d; 16]].concat());
    let CbOp::Notify(CbNotifyArgs { stateid, changes, .. }) =
        last_callback(CallbackOpNum::NOTIFY, "v42_cb_notify_notsupp_call")
    else {
        panic!()
    };
    let [Notification { mask, values }] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!((stateid, *mask), (STATEID, Bitmap::of(&[notify_type::REMOVE_ENTRY])));
    assert_eq!(values[..], [&[0, 0, 0, 1][..], b"gone", &[0; 16]].concat());
}

#[test]
fn pushed_delegation_unknown_to_tshark_matches_that_of_pynfs() {
    let name = "v42_cb_push_deleg_notsupp_call";
    let CbOp::PushDeleg(CbPushDelegArgs { delegation, .. }) = last_callback(CallbackOpNum::PUSH_DELEG, name)
    else {
        panic!()
    };
    let OpenDelegation::Read(read) = delegation else { panic!("{delegation:?}") };
    assert_eq!((read.stateid, read.recall), (STATEID, false));
    // ACE4_READ_DATA | ACE4_READ_ATTRIBUTES (RFC 8881 §6.2.1.3).
    assert_eq!((read.permissions.mask.bits(), &read.permissions.who[..]), (0x81, &b"EVERYONE@"[..]));
}
