//! Arguments of the recorded operations.

use protocol::nfs4::callback::offload::OffloadInfo;
use protocol::nfs4::callback::{CbOp, sequence};
use protocol::nfs4::compound::Op;
use protocol::nfs4::layout::flex_files::{FlexIoLatency, FlexLayoutReturn};
use protocol::nfs4::layout::{LayoutReturn, LayoutType};
use protocol::nfs4::ops::backchannel::CallbackSecParms;
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::exchange_id::{ExchangeIdArgs, StateProtectArgs};
use protocol::nfs4::ops::layout::{LayoutGetArgs, LayoutReturnArgs};
use protocol::nfs4::ops::layout_report::IoInfo;
use protocol::nfs4::ops::lock::{LockArgs, Locker};
use protocol::nfs4::ops::open::{CreateHow, OpenArgs, OpenClaim, OpenHow};
use protocol::nfs4::ops::readdir::ReadDirArgs;
use protocol::nfs4::ops::session::{ChannelAttributes, CreateSessionArgs, SequenceArgs};
use protocol::nfs4::ops::setclientid::SetClientIdArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{StateOwner, Status};
use xdr::from_bytes;

use super::rare;
use crate::shown;
use crate::shown::{Shown, Shows};

/// Shows an owner by the name of its field, unless it is empty.
fn owner(shows: &mut Shows, name: &'static str, owner: &StateOwner) {
    shows.hex64("nfs.clientid", owner.client_id);
    if !owner.owner.is_empty() {
        shows.bytes(name, &owner.owner);
    }
}

pub(super) fn lock_owner(shows: &mut Shows, lock_owner: &StateOwner) {
    owner(shows, "nfs.lock_owner4", lock_owner);
}

shown!(SequenceArgs, |a, shows| {
    shows.slot(&a.session_id, a.sequence_id, a.slot_id, a.highest_slot_id);
    shows.flag("nfs.cachethis4", a.cache_this);
});

shown!(sequence::CbSequenceArgs, |a, shows| {
    shows.slot(&a.session_id, a.sequence_id, a.slot_id, a.highest_slot_id);
    shows.flag("nfs.cachethis4", a.cache_this);
    assert!(a.referring_calls.is_empty(), "none was recorded");
});

shown!(SetClientIdArgs, |a, shows| {
    shows.verifier(&a.client.verifier);
    shows.bytes("nfs.nfs_client_id4.id", &a.client.owner_id);
    shows.hex("nfs.cb_program", a.callback.program);
    a.callback.location.show(shows);
    shows.hex("nfs.callback.ident", a.callback_ident);
});

shown!(ExchangeIdArgs, |a, shows| {
    shows.verifier(&a.client_owner.verifier);
    shows.bytes("nfs.data", &a.client_owner.owner_id);
    shows.hex("nfs.exchange_id.call_flags", a.flags.bits());
    assert_eq!(a.state_protect, StateProtectArgs::None, "nothing else was recorded");
    shows.put("nfs.exchange_id.state_protect", 0);
    for implementation in &a.implementation {
        shows.text("nfs.nii_domain4", &implementation.domain);
        shows.text("nfs.nii_name4", &implementation.name);
        implementation.date.show(shows);
    }
});

shown!(ChannelAttributes, |channel, shows| {
    shows.put("nfs.padsize4", channel.header_pad_size);
    shows.put("nfs.maxreqsize4", channel.max_request_size);
    shows.put("nfs.maxrespsize4", channel.max_response_size);
    shows.put("nfs.maxrespsizecached4", channel.max_response_size_cached);
    shows.put("nfs.maxops4", channel.max_operations);
    shows.put("nfs.maxreqs4", channel.max_requests);
});

shown!(CreateSessionArgs, |a, shows| {
    shows.hex64("nfs.clientid", a.client_id);
    shows.hex("nfs.seqid", a.sequence);
    shows.hex("nfs.create_session_flags", a.flags.bits());
    a.fore_channel.show(shows);
    a.back_channel.show(shows);
    shows.hex("nfs.cb_program", a.callback_program);
    for parms in &a.sec_parms {
        let CallbackSecParms::Sys(sys) = parms else { panic!("{parms:?} was not recorded") };
        shows.put("nfs.flavor4", 1);
        shows.put("nfs.stamp4", sys.stamp);
        shows.text("nfs.machinename4", &sys.machine_name);
        shows.put("nfs.uid4", sys.uid);
        shows.put("nfs.gid4", sys.gid);
    }
});

shown!(OpenHow, |how, shows| {
    let OpenHow::Create(how) = how else {
        shows.put("nfs.open.opentype", 0);
        return;
    };
    shows.put("nfs.open.opentype", 1);
    let mode = |shows: &mut Shows, mode| shows.put("nfs.createmode4", mode);
    match how {
        CreateHow::Unchecked(attributes) => {
            mode(shows, 0);
            attributes.show(shows);
        }
        CreateHow::Guarded(attributes) => {
            mode(shows, 1);
            attributes.show(shows);
        }
        CreateHow::Exclusive(verifier) => {
            mode(shows, 2);
            shows.verifier(verifier);
        }
        CreateHow::Exclusive41(both) => {
            mode(shows, 3);
            shows.verifier(&both.verifier);
            both.attributes.show(shows);
        }
    }
});

shown!(OpenArgs, |a, shows| {
    shows.hex("nfs.seqid", a.seqid);
    shows.put("nfs.open4.share_access", a.share_access.bits());
    shows.put("nfs.open4.share_deny", a.share_deny.bits());
    owner(shows, "nfs.open_owner4", &a.owner);
    a.how.show(shows);
    match &a.claim {
        OpenClaim::Null(name) => {
            shows.put("nfs.open.claim_type", 0);
            shows.name(name);
        }
        OpenClaim::Previous(delegation) => {
            shows.put("nfs.open.claim_type", 1);
            shows.put("nfs.delegate_type", delegation.0);
        }
        OpenClaim::Fh => shows.put("nfs.open.claim_type", 4),
        other => panic!("{other:?} was not recorded"),
    }
});

shown!(LockArgs, |a, shows| {
    shows.put("nfs.locktype4", a.lock_type as u32);
    shows.flag("nfs.lock.reclaim", a.reclaim);
    shows.range(a.offset, a.length);
    let Locker::New(new) = &a.locker else { panic!("{:?} was not recorded", a.locker) };
    shows.put("nfs.lock.locker.new_lock_owner", 1);
    shows.hex("nfs.seqid", new.open_seqid);
    new.open_stateid.show(shows);
    shows.hex("nfs.lock_seqid", new.lock_seqid);
    lock_owner(shows, &new.lock_owner);
});

shown!(CreateArgs, |a, shows| {
    shows.put("nfs.nfs_ftype4", a.object_type.file_type().0);
    match &a.object_type {
        CreateType::Link(text) => shows.text("nfs.symlink.linktext", text),
        CreateType::Block(device) | CreateType::Character(device) => {
            shows.put("nfs.specdata1", device.major);
            shows.put("nfs.specdata2", device.minor);
        }
        CreateType::Other(_) => {}
    }
    shows.name(&a.name);
    a.attributes.show(shows);
});

shown!(ReadDirArgs, |a, shows| {
    shows.put("nfs.cookie4", a.cookie);
    shows.put("nfs.cookie_verf4", u64::from_be_bytes(a.cookie_verifier));
    shows.put("nfs.dircount", a.dircount);
    shows.put("nfs.maxcount", a.maxcount);
    shows.bitmap("nfs.attr_mask", &a.attributes);
});

shown!(WriteArgs, |a, shows| {
    a.stateid.show(shows);
    shows.put("nfs.offset4", a.offset);
    shows.put("nfs.stable_how4", a.stable as u32);
    shows.put("nfs.write.data_length", a.data.len());
    shows.bytes("nfs.data", &a.data);
});

shown!(LayoutGetArgs, |a, shows| {
    shows.flag("nfs.layoutavail", a.signal_available);
    shows.put("nfs.layouttype", a.layout_type.0);
    shows.put("nfs.iomode", a.iomode.0);
    shows.range(a.offset, a.length);
    shows.put("nfs.minlength4", a.min_length);
    a.stateid.show(shows);
    shows.put("nfs.maxcount", a.maxcount);
});

shown!(IoInfo, |io, shows| {
    shows.put("nfs.io_count", io.count);
    shows.put("nfs.io_bytes", io.bytes);
});

shown!(FlexIoLatency, |latency, shows| {
    shows.put("nfs.ff.ops_requested", latency.ops_requested);
    shows.put("nfs.ff.bytes_requested", latency.bytes_requested);
    shows.put("nfs.ff.ops_completed", latency.ops_completed);
    shows.put("nfs.ff.bytes_completed", latency.bytes_completed);
    shows.put("nfs.ff.bytes_not_delivered", latency.bytes_not_delivered);
    latency.total_busy_time.show(shows);
    latency.aggregate_completion_time.show(shows);
});

shown!(FlexLayoutReturn, |body, shows| {
    shows.put("nfs.ff.ioerrs_count", body.io_errors.len());
    assert!(body.io_errors.is_empty(), "none was recorded");
    shows.put("nfs.ff.iostats_count", body.io_stats.len());
    for stats in &body.io_stats {
        shows.range(stats.offset, stats.length);
        stats.stateid.show(shows);
        stats.read.show(shows);
        stats.write.show(shows);
        shows.device(&stats.device_id);
        stats.update.address.show(shows);
        shows.handle(&stats.update.handle);
        stats.update.read.show(shows);
        stats.update.write.show(shows);
        stats.update.duration.show(shows);
        shows.flag("nfs.ff.local", stats.update.local);
    }
});

shown!(LayoutReturnArgs, |a, shows| {
    shows.flag("nfs.reclaim4", a.reclaim);
    shows.put("nfs.layouttype", a.layout_type.0);
    shows.put("nfs.iomode", a.iomode.0);
    let LayoutReturn::File(file) = &a.layout_return else { panic!("{:?} was not recorded", a.layout_return) };
    shows.put("nfs.returntype", 1);
    shows.range(file.offset, file.length);
    file.stateid.show(shows);
    assert_eq!(a.layout_type, LayoutType::FLEX_FILES);
    let body: FlexLayoutReturn = from_bytes(file.body.bytes().clone()).unwrap();
    assert_eq!(xdr::to_bytes(&body), file.body.bytes());
    body.show(shows);
});

/// Shows operations on state.
fn state_op(op: &Op, shows: &mut Shows) {
    match op {
        Op::Close(a) => {
            shows.hex("nfs.seqid", a.seqid);
            a.open_stateid.show(shows);
        }
        Op::DelegReturn(a) => a.stateid.show(shows),
        Op::FreeStateid(a) => a.stateid.show(shows),
        Op::LockT(a) => {
            shows.put("nfs.locktype4", a.lock_type as u32);
            shows.range(a.offset, a.length);
            lock_owner(shows, &a.owner);
        }
        Op::LockU(a) => {
            shows.put("nfs.locktype4", a.lock_type as u32);
            a.lock_stateid.show(shows);
            shows.range(a.offset, a.length);
            shows.hex("nfs.seqid", a.seqid); // after the type on the wire
        }
        Op::OpenConfirm(a) => {
            a.open_stateid.show(shows);
            shows.hex("nfs.seqid", a.seqid);
        }
        Op::OpenDowngrade(a) => {
            a.open_stateid.show(shows);
            shows.hex("nfs.seqid", a.seqid);
            shows.put("nfs.open4.share_access", a.share_access.bits());
            shows.put("nfs.open4.share_deny", a.share_deny.bits());
        }
        Op::ReleaseLockOwner(a) => lock_owner(shows, &a.lock_owner),
        Op::Renew(a) => shows.hex64("nfs.clientid", a.client_id),
        Op::SetClientIdConfirm(a) => {
            shows.hex64("nfs.clientid", a.client_id);
            shows.verifier(&a.confirm);
        }
        Op::DestroyClientId(a) => shows.hex64("nfs.clientid", a.client_id),
        Op::DestroySession(a) => shows.bytes("nfs.session_id4", &a.session_id),
        Op::ReclaimComplete(a) => shows.flag("nfs.reclaim_one_fs4", a.one_fs),
        other => rare::op(other, shows),
    }
}

/// Shows operations on data and those of v4.2.
fn data_op(op: &Op, shows: &mut Shows) {
    match op {
        Op::Allocate(a) | Op::Deallocate(a) => {
            a.stateid.show(shows);
            shows.range(a.offset, a.length);
        }
        Op::Clone(a) => {
            a.source_stateid.show(shows);
            a.destination_stateid.show(shows);
            shows.put("nfs.offset4", a.source_offset);
            shows.range(a.destination_offset, a.count);
        }
        Op::Copy(a) => {
            a.source_stateid.show(shows);
            a.destination_stateid.show(shows);
            shows.put("nfs.offset4", a.source_offset);
            shows.range(a.destination_offset, a.count);
            shows.flag("nfs.consecutive", a.consecutive);
            shows.flag("nfs.synchronous", a.synchronous);
            shows.put("nfs.source_servers", a.source_servers.len());
        }
        Op::Seek(a) => {
            a.stateid.show(shows);
            shows.put("nfs.offset4", a.offset);
            shows.put("nfs.data_content", a.what.0);
        }
        Op::GetXattr(a) => shows.text("nfs.xattr.key", &a.name),
        Op::RemoveXattr(a) => shows.text("nfs.xattr.key", &a.name),
        Op::SetXattr(a) => {
            shows.put("nfs.setxattr.options", a.option.0);
            shows.text("nfs.xattr.key", &a.key);
            shows.bytes("nfs.data", &a.value);
        }
        Op::ListXattrs(a) => {
            shows.put("nfs.lisxtattr.cookie", a.cookie);
            shows.put("nfs.lisxtattr.maxcount", a.maxcount);
        }
        Op::Commit(a) => {
            shows.put("nfs.offset4", a.offset);
            shows.put("nfs.count4", a.count);
        }
        Op::Read(a) => {
            a.stateid.show(shows);
            shows.put("nfs.offset4", a.offset);
            shows.put("nfs.count4", a.count);
        }
        other => state_op(other, shows),
    }
}

shown!(Op, |op, shows| {
    match op {
        Op::GetFh | Op::PutRootFh | Op::SaveFh | Op::RestoreFh | Op::ReadLink => {}
        // tshark shows the lowest byte here, and the bits of extended attributes elsewhere.
        Op::Access(a) => shows.put("nfs.access_check", format!("{:#04x}", a.access.bits() & 0xff)),
        Op::Create(a) => a.show(shows),
        Op::CreateSession(a) => a.show(shows),
        Op::ExchangeId(a) => a.show(shows),
        Op::GetAttr(a) => shows.bitmap("nfs.attr_mask", &a.attributes),
        Op::GetDeviceInfo(a) => {
            shows.device(&a.device_id);
            shows.put("nfs.layouttype", a.layout_type.0);
            shows.put("nfs.maxcount", a.maxcount);
            shows.bitmap("nfs.notify_mask", &a.notify_types);
        }
        Op::LayoutGet(a) => a.show(shows),
        Op::LayoutReturn(a) => a.show(shows),
        Op::Link(a) => shows.name(&a.new_name),
        Op::Lock(a) => a.show(shows),
        Op::Lookup(a) => shows.name(&a.name),
        Op::Open(a) => a.show(shows),
        Op::PutFh(a) => shows.handle(&a.handle),
        Op::ReadDir(a) => a.show(shows),
        Op::Remove(a) => shows.name(&a.target),
        Op::Rename(a) => {
            shows.name(&a.old_name);
            shows.name(&a.new_name);
        }
        Op::SecInfoNoName(a) => shows.put("nfs.secinfo.style", a.style.0),
        Op::Sequence(a) => a.show(shows),
        Op::SetAttr(a) => {
            a.stateid.show(shows);
            a.attributes.show(shows);
        }
        Op::SetClientId(a) => a.show(shows),
        Op::Write(a) => a.show(shows),
        other => data_op(other, shows),
    }
});

shown!(CbOp, |op, shows| {
    match op {
        CbOp::Sequence(a) => a.show(shows),
        CbOp::Recall(a) => {
            a.stateid.show(shows);
            shows.flag("nfs.truncate", a.truncate);
            shows.handle(&a.handle);
        }
        CbOp::Offload(a) => {
            shows.handle(&a.handle);
            a.stateid.show(shows);
            let OffloadInfo::Ok(response) = &a.info else { panic!("{:?} was not recorded", a.info) };
            shows.put("nfs.nfsstat4", Status::OK.0);
            response.show(shows);
        }
        other => rare::callback(other, shows),
    }
});
