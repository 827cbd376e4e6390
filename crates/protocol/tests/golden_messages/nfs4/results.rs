//! Results of the recorded operations, without status.

use protocol::nfs4::attributes::acl::Ace;
use protocol::nfs4::callback::CbOpResult;
use protocol::nfs4::compound::OpResult;
use protocol::nfs4::layout::flex_files::{FlexDeviceAddress, FlexLayout};
use protocol::nfs4::layout::{Layout, LayoutType};
use protocol::nfs4::ops::copy::CopyResult;
use protocol::nfs4::ops::device::GetDeviceInfoResult;
use protocol::nfs4::ops::exchange_id::{ExchangeIdOk, StateProtectResult};
use protocol::nfs4::ops::layout::LayoutGetResult;
use protocol::nfs4::ops::lock::LockOutcome;
use protocol::nfs4::ops::open::{OpenDelegation, OpenOk};
use protocol::nfs4::ops::readdir::ReadDirOk;
use protocol::nfs4::ops::secinfo::{GssInfo, SecInfo};
use protocol::nfs4::ops::session::{CreateSessionOk, SequenceOk};
use protocol::nfs4::ops::setclientid::SetClientIdResult;
use protocol::nfs4::types::Outcome;
use xdr::{Decode, Reader, from_bytes, to_bytes};

use super::arguments::lock_owner;
use super::rare;
use crate::shown;
use crate::shown::{Shown, Shows};

/// Shows the results of a success.
pub(super) fn ok<T>(outcome: &Outcome<T>, shows: &mut Shows, show: impl FnOnce(&T, &mut Shows)) {
    if let Outcome::Ok(value) = outcome {
        show(value, shows);
    }
}

shown!(SequenceOk, |ok, shows| {
    shows.slot(&ok.session_id, ok.sequence_id, ok.slot_id, ok.highest_slot_id);
    shows.put("nfs.target_high_slotid", ok.target_highest_slot_id);
    shows.hex("nfs.sequence.flags", ok.status_flags.bits());
});

shown!(ExchangeIdOk, |ok, shows| {
    shows.hex64("nfs.clientid", ok.client_id);
    shows.hex("nfs.seqid", ok.sequence_id);
    shows.hex("nfs.exchange_id.reply_flags", ok.flags.bits());
    assert_eq!(ok.state_protect, StateProtectResult::None, "nothing else was recorded");
    shows.put("nfs.exchange_id.state_protect", 0);
    shows.put("nfs.minorid4", ok.server_owner.minor_id);
    shows.bytes("nfs.majorid4", &ok.server_owner.major_id);
    shows.bytes("nfs.scope", &ok.server_scope);
    assert!(ok.implementation.is_empty(), "none was recorded");
});

shown!(CreateSessionOk, |ok, shows| {
    shows.bytes("nfs.session_id4", &ok.session_id);
    shows.hex("nfs.seqid", ok.sequence);
    shows.hex("nfs.create_session_flags", ok.flags.bits());
    ok.fore_channel.show(shows);
    ok.back_channel.show(shows);
});

shown!(Ace, |ace, shows| {
    shows.put("nfs.acetype4", ace.ace_type.0);
    shows.hex("nfs.aceflags4", ace.flags.bits());
    shows.hex("nfs.acemask4", ace.mask.bits());
});

shown!(OpenOk, |ok, shows| {
    ok.stateid.show(shows);
    ok.change.show(shows);
    shows.hex("nfs.open_rflags", ok.flags.bits());
    shows.bitmap("nfs.attr_mask", &ok.attributes_set);
    match &ok.delegation {
        OpenDelegation::None => shows.put("nfs.open.delegation_type", 0),
        OpenDelegation::Read(delegation) => {
            shows.put("nfs.open.delegation_type", 1);
            delegation.stateid.show(shows);
            shows.flag("nfs.recall4", delegation.recall);
            delegation.permissions.show(shows);
        }
        other => panic!("{other:?} was not recorded"),
    }
});

shown!(ReadDirOk, |ok, shows| {
    shows.verifier(&ok.cookie_verifier);
    for entry in &ok.entries {
        shows.flag("nfs.value_follows", true);
        shows.put("nfs.cookie4", entry.cookie);
        shows.text("nfs.entry_name", &entry.name);
        entry.attributes.show(shows);
    }
    shows.flag("nfs.value_follows", false);
    shows.flag("nfs.dirlist4.eof", ok.eof);
});

shown!(SecInfo, |info, shows| {
    match info {
        SecInfo::Gss(GssInfo { oid, qop, service }) => {
            shows.put("nfs.secinfo.flavor", 6);
            shows.bytes("nfs.secinfo.flavor_info.rpcsec_gss_info.oid", oid);
            shows.put("nfs.secinfo.flavor_info.rpcsec_gss_info.qop", qop);
            shows.put("nfs.secinfo.rpcsec_gss_info.service", *service as u32);
        }
        SecInfo::Flavor(flavor) => shows.put("nfs.secinfo.flavor", flavor),
    }
});

shown!(Layout, |layout, shows| {
    shows.range(layout.offset, layout.length);
    shows.put("nfs.iomode", layout.iomode.0);
    shows.put("nfs.layouttype", layout.content.layout_type.0);
    assert_eq!(layout.content.layout_type, LayoutType::FLEX_FILES);
    // knfsd of Linux 6.1 does not count the padding of user and group names, so the last value, which is zero, ends in the
    // padding of the whole.
    let mut wire = layout.content.body.to_vec();
    wire.resize(wire.len().next_multiple_of(4), 0);
    let body: FlexLayout = from_bytes(wire.clone()).unwrap();
    assert_eq!(to_bytes(&body), wire);
    shows.put("nfs.stripeunit", body.stripe_unit);
    shows.put("nfs.nfl_mirrors", body.mirrors.len());
    for server in body.mirrors.iter().flat_map(|mirror| mirror.data_servers.iter()) {
        shows.device(&server.device_id);
        shows.hex("nfs.nff_mirror_eff", server.efficiency);
        server.stateid.show(shows);
        server.handles.iter().for_each(|handle| shows.handle(handle));
        shows.text("nfs.ff.synthetic_owner", &server.user);
        shows.text("nfs.ff.synthetic_owner_group", &server.group);
    }
    shows.hex("nfs.ff.layout_flags", body.flags.bits());
});

shown!(GetDeviceInfoResult, |result, shows| {
    let GetDeviceInfoResult::Ok(ok) = result else { panic!("{result:?} was not recorded") };
    shows.put("nfs.layouttype", ok.address.layout_type.0);
    assert_eq!(ok.address.layout_type, LayoutType::FLEX_FILES);
    // knfsd of Linux 6.1 counts one word too many.
    let mut reader = Reader::new(ok.address.body.bytes().clone());
    let body = FlexDeviceAddress::decode(&mut reader).unwrap();
    assert_eq!(to_bytes(&body), reader.since(0));
    assert_eq!(reader.rest()[..], [0; 4]);
    shows.multipath(&body.addresses);
    for version in &body.versions {
        shows.put("nfs.ff.version", version.version);
        shows.put("nfs.ff.minorversion", version.minor_version);
        shows.put("nfs.ff.rsize", version.rsize);
        shows.put("nfs.ff.wsize", version.wsize);
        shows.flag("nfs.ff.tightly_coupled", version.tightly_coupled);
    }
});

impl<T> Shown for LockOutcome<T> {
    fn show(&self, shows: &mut Shows) {
        if let Self::Denied(denied) = self {
            shows.range(denied.offset, denied.length);
            shows.put("nfs.locktype4", denied.lock_type as u32);
            lock_owner(shows, &denied.owner);
        }
    }
}

/// Shows results of operations on data and layouts, and of v4.2.
fn data_result(result: &OpResult, shows: &mut Shows) {
    match result {
        OpResult::Commit(r) => ok(r, shows, |ok, shows| shows.verifier(&ok.verifier)),
        OpResult::Read(r) => ok(r, shows, |ok, shows| {
            shows.flag("nfs.eof", ok.eof);
            shows.put("nfs.read.data_length", ok.data.len());
            shows.bytes("nfs.data", &ok.data);
        }),
        OpResult::Write(r) => ok(r, shows, |ok, shows| {
            shows.put("nfs.count4", ok.count);
            shows.put("nfs.stable_how4", ok.committed as u32);
            shows.verifier(&ok.verifier);
        }),
        OpResult::Seek(r) => ok(r, shows, |ok, shows| {
            shows.flag("nfs.eof", ok.eof);
            shows.put("nfs.offset4", ok.offset);
        }),
        OpResult::Copy(CopyResult::Ok(ok)) => {
            ok.response.show(shows);
            shows.flag("nfs.consecutive", ok.requirements.consecutive);
            shows.flag("nfs.synchronous", ok.requirements.synchronous);
        }
        OpResult::Copy(CopyResult::Error(_)) => {}
        OpResult::LayoutGet(LayoutGetResult::Ok(ok)) => {
            shows.flag("nfs.retclose4", ok.return_on_close);
            ok.stateid.show(shows);
            ok.layouts.iter().for_each(|layout| layout.show(shows));
        }
        OpResult::LayoutGet(LayoutGetResult::Error(_)) => {}
        OpResult::LayoutReturn(r) => ok(r, shows, |ok, shows| {
            shows.flag("nfs.lrs_present", ok.is_some());
            ok.iter().for_each(|stateid| stateid.show(shows));
        }),
        OpResult::GetDeviceInfo(r) => r.show(shows),
        OpResult::GetXattr(r) => ok(r, shows, |value, shows| shows.bytes("nfs.data", value)),
        OpResult::SetXattr(r) | OpResult::RemoveXattr(r) => ok(r, shows, |change, shows| change.show(shows)),
        OpResult::ListXattrs(r) => ok(r, shows, |ok, shows| {
            shows.put("nfs.lisxtattr.cookie", ok.cookie);
            shows.put("nfs.listxattr.names.count", ok.names.len());
            ok.names.iter().for_each(|name| shows.text("nfs.xattr.key", name));
            shows.flag("nfs.lisxtattr.eof", ok.eof);
        }),
        other => rare::result(other, shows),
    }
}

/// Returns whether the result is a bare status.
fn is_bare(result: &OpResult) -> bool {
    matches!(
        result,
        OpResult::Allocate(_)
            | OpResult::Clone(_)
            | OpResult::Deallocate(_)
            | OpResult::DelegReturn(_)
            | OpResult::DestroyClientId(_)
            | OpResult::DestroySession(_)
            | OpResult::FreeStateid(_)
            | OpResult::Lookup(_)
            | OpResult::PutFh(_)
            | OpResult::PutRootFh(_)
            | OpResult::ReclaimComplete(_)
            | OpResult::ReleaseLockOwner(_)
            | OpResult::Renew(_)
            | OpResult::RestoreFh(_)
            | OpResult::SaveFh(_)
            | OpResult::SetClientIdConfirm(_)
    )
}

shown!(OpResult, |result, shows| {
    match result {
        bare if is_bare(bare) => {}
        OpResult::Access(r) => ok(r, shows, |ok, shows| {
            // tshark shows the lowest byte here, and the bits of extended attributes elsewhere.
            shows.put("nfs.access_supported", format!("{:#04x}", ok.supported.bits() & 0xff));
            shows.put("nfs.access_rights", format!("{:#04x}", ok.access.bits() & 0xff));
        }),
        OpResult::Close(r) | OpResult::LockU(r) | OpResult::OpenConfirm(r) | OpResult::OpenDowngrade(r) => {
            ok(r, shows, |stateid, shows| stateid.show(shows));
        }
        OpResult::Create(r) => ok(r, shows, |ok, shows| {
            ok.change.show(shows);
            shows.bitmap("nfs.attr_mask", &ok.attributes_set);
        }),
        OpResult::CreateSession(r) => ok(r, shows, |ok, shows| ok.show(shows)),
        OpResult::ExchangeId(r) => ok(r, shows, |ok, shows| ok.show(shows)),
        OpResult::GetAttr(r) => ok(r, shows, |attributes, shows| attributes.show(shows)),
        OpResult::GetFh(r) => ok(r, shows, |handle, shows| shows.handle(handle)),
        OpResult::Link(r) | OpResult::Remove(r) => ok(r, shows, |change, shows| change.show(shows)),
        OpResult::Lock(r) => {
            if let LockOutcome::Ok(stateid) = r {
                stateid.show(shows);
            }
            r.show(shows);
        }
        OpResult::LockT(r) => r.show(shows),
        OpResult::Open(r) => ok(r, shows, |ok, shows| ok.show(shows)),
        OpResult::ReadDir(r) => ok(r, shows, |ok, shows| ok.show(shows)),
        OpResult::ReadLink(r) => ok(r, shows, |text, shows| shows.text("nfs.symlink.linktext", text)),
        OpResult::Rename(r) => ok(r, shows, |ok, shows| {
            ok.source.show(shows);
            ok.target.show(shows);
        }),
        OpResult::SecInfo(r) | OpResult::SecInfoNoName(r) => ok(r, shows, |flavors, shows| {
            shows.put("nfs.flavors.info", "");
            flavors.iter().for_each(|flavor| flavor.show(shows));
        }),
        OpResult::Sequence(r) => ok(r, shows, |ok, shows| ok.show(shows)),
        OpResult::SetAttr(r) => shows.bitmap("nfs.attr_mask", &r.attributes_set),
        OpResult::SetClientId(SetClientIdResult::Ok(ok)) => {
            shows.hex64("nfs.clientid", ok.client_id);
            shows.verifier(&ok.confirm);
        }
        other => data_result(other, shows),
    }
});

shown!(CbOpResult, |result, shows| {
    match result {
        CbOpResult::Sequence(r) => ok(r, shows, |ok, shows| {
            shows.slot(&ok.session_id, ok.sequence_id, ok.slot_id, ok.highest_slot_id);
            shows.put("nfs.target_high_slotid", ok.target_highest_slot_id);
        }),
        CbOpResult::Recall(_) | CbOpResult::Offload(_) => {}
        other => rare::callback_result(other),
    }
});
