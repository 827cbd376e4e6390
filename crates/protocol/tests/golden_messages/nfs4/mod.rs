//! NFS version 4: whole compounds of all three minor versions, and callbacks.

mod arguments;
mod attributes;
mod rare;
mod results;

use std::collections::BTreeSet;

use protocol::nfs4::callback::{CbCompoundArgs, CbCompoundResult, CbOp};
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::layout::files::MultipathList;
use protocol::nfs4::ops::TABLE;
use protocol::nfs4::types::*;
use xdr::{Decode, Encode, to_bytes};

use crate::golden::{Golden, all};
use crate::shown::{Shown, Shows};
use crate::{body, same_as_tshark, same_bytes, shown};

/// Replies of Linux 6.1 knfsd and NFS-Ganesha 4.3 that this crate decodes but encodes differently, and how many bytes its
/// encodings are shorter. They end some bitmaps with a zero word, and knfsd pads the value of an extended attribute with stale
/// memory.
const DIFFERENT_ENCODINGS: [(&str, usize); 5] = [
    ("v40_open_reclaim_reply", 4),
    ("v41_open_reclaim_reply", 4),
    ("v42_getxattr_reply", 0),
    ("v42_setattr_reply", 4),
    ("v42_io_advise_reply", 4),
];

/// All callbacks. CB_ILLEGAL is not recorded, because it is not an operation.
const RECORDED_CALLBACKS: [CallbackOpNum; 13] = [
    CallbackOpNum::GETATTR,
    CallbackOpNum::RECALL,
    CallbackOpNum::LAYOUTRECALL,
    CallbackOpNum::NOTIFY,
    CallbackOpNum::PUSH_DELEG,
    CallbackOpNum::RECALL_ANY,
    CallbackOpNum::RECALLABLE_OBJ_AVAIL,
    CallbackOpNum::RECALL_SLOT,
    CallbackOpNum::SEQUENCE,
    CallbackOpNum::WANTS_CANCELLED,
    CallbackOpNum::NOTIFY_LOCK,
    CallbackOpNum::NOTIFY_DEVICEID,
    CallbackOpNum::OFFLOAD,
];

/// Operations that no recorded server supports, or whose reply this server encodes differently, and why. No recorded client sends
/// them; the calls are from pynfs with arguments chosen by hand.
const UNSUPPORTED: [(OpNum, &str); 9] = [
    (OpNum::DELEGPURGE, "neither knfsd nor NFS-Ganesha supports reclaims by CLAIM_DELEGATE_PREV"),
    (OpNum::OPENATTR, "neither knfsd nor NFS-Ganesha has named attributes"),
    (OpNum::GET_DIR_DELEGATION, "knfsd of Linux 6.1 does not support it, NFS-Ganesha 4.3 returns OP_ILLEGAL"),
    (OpNum::GETDEVICELIST, "knfsd and NFS-Ganesha have removed it"),
    (OpNum::WANT_DELEGATION, "knfsd does not support it, NFS-Ganesha 4.3 returns OP_ILLEGAL"),
    (OpNum::IO_ADVISE, "knfsd does not support it; NFS-Ganesha's reply is in DIFFERENT_ENCODINGS"),
    (OpNum::LAYOUTERROR, "knfsd does not support it, NFS-Ganesha 4.3 closes the connection"),
    (OpNum::LAYOUTSTATS, "knfsd does not support it, NFS-Ganesha 4.3 cannot decode it"),
    (OpNum::WRITE_SAME, "knfsd does not support it, NFS-Ganesha 4.3 crashes"),
];

fn is_encoded_differently(golden: &Golden) -> bool {
    DIFFERENT_ENCODINGS.iter().any(|(name, _)| *name == golden.name)
}

fn is_callback(golden: &Golden) -> bool {
    golden.name.contains("_cb_")
}

#[test]
fn calls_match_tshark() {
    let (mut ops, mut callbacks) = (BTreeSet::new(), BTreeSet::new());
    for golden in all("nfs4").iter().filter(|golden| golden.name.ends_with("_call")) {
        if is_callback(golden) {
            same_as_tshark::<CbCompoundArgs>(golden);
            callbacks.extend(same_bytes::<CbCompoundArgs>(golden).ops.iter().map(CbOp::opnum));
        } else {
            same_as_tshark::<CompoundArgs>(golden);
            ops.extend(same_bytes::<CompoundArgs>(golden).ops.iter().map(Op::opnum));
        }
    }
    let unrecorded: Vec<_> =
        TABLE.iter().map(|row| row.opcode.number()).filter(|op| !ops.contains(op)).collect();
    assert_eq!(unrecorded, [], "a recording was lost");
    assert_eq!(callbacks, BTreeSet::from(RECORDED_CALLBACKS), "of callbacks");
}

#[test]
fn replies_match_tshark() {
    let (mut statuses, mut answered) = (BTreeSet::new(), BTreeSet::new());
    for golden in all("nfs4").iter().filter(|golden| golden.name.ends_with("_reply")) {
        if is_encoded_differently(golden) {
            continue;
        }
        if is_callback(golden) {
            same_as_tshark::<CbCompoundResult>(golden);
        } else {
            same_as_tshark::<CompoundResult>(golden);
            let result = same_bytes::<CompoundResult>(golden);
            statuses.insert(result.status);
            let known = result.results.iter().filter(|op| op.status() != Status::NOTSUPP);
            answered.extend(known.map(OpResult::opnum));
        }
    }
    let refused: BTreeSet<_> =
        TABLE.iter().map(|row| row.opcode.number()).filter(|op| !answered.contains(op)).collect();
    assert_eq!(refused, UNSUPPORTED.iter().map(|(op, _)| *op).collect(), "an answer was lost, or is new");
    for expected in
        [Status::OK, Status::NOENT, Status::GRACE, Status::DENIED, Status::NOTSUPP, Status::NOXATTR]
    {
        assert!(statuses.contains(&expected), "{expected:?} among {statuses:?}");
    }
}

#[test]
fn redundant_bytes_are_decoded_but_not_encoded() {
    let all = all("nfs4");
    for (name, shorter) in DIFFERENT_ENCODINGS {
        let golden = all.iter().find(|golden| golden.name == name).unwrap();
        let (mut reader, mut writer) = body(golden);
        let value = CompoundResult::decode(&mut reader).unwrap();
        reader.finish().unwrap();
        let mut shows = Shows::default();
        value.show(&mut shows);
        let expected: Vec<_> =
            golden.fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        assert_eq!(shows.0, expected, "{name}");
        value.encode(&mut writer);
        let sent = writer.into_bytes();
        assert_eq!(sent.len() + shorter, golden.message.len(), "{name}");
        assert_ne!(sent, golden.message, "{name}");
    }
}

impl Shows {
    fn hex(&mut self, name: &'static str, value: u32) {
        self.put(name, format!("{value:#010x}"));
    }

    fn hex64(&mut self, name: &'static str, value: u64) {
        self.put(name, format!("{value:#018x}"));
    }

    fn verifier(&mut self, verifier: &Verifier) {
        self.hex64("nfs.verifier4", u64::from_be_bytes(*verifier));
    }

    fn handle(&mut self, handle: &Handle) {
        self.bytes("nfs.fhandle", handle);
    }

    fn name(&mut self, name: &Component) {
        self.text("nfs.pathname.component", name);
    }

    /// Shows the words that are not zero.
    fn bitmap(&mut self, name: &'static str, bitmap: &Bitmap) {
        for word in bitmap.words().iter().filter(|word| **word != 0) {
            self.hex(name, *word);
        }
    }

    fn range(&mut self, offset: u64, length: u64) {
        self.put("nfs.offset4", offset);
        self.put("nfs.length4", length);
    }

    fn device(&mut self, device: &DeviceId) {
        self.bytes("nfs.deviceid", device);
    }

    fn multipath(&mut self, addresses: &MultipathList) {
        addresses.iter().for_each(|address| address.show(self));
    }

    fn slot(&mut self, session: &SessionId, sequence: u32, slot: u32, highest: u32) {
        self.bytes("nfs.session_id4", session);
        self.hex("nfs.seqid", sequence);
        self.put("nfs.slotid", slot);
        self.put("nfs.high_slotid", highest);
    }
}

shown!(Stateid, |stateid, shows| { shows.bytes("nfs.stateid", &to_bytes(stateid)) });

shown!(Time, |time, shows| {
    shows.put("nfs.nfstime4.seconds", time.seconds);
    shows.put("nfs.nfstime4.nseconds", time.nanoseconds);
});

shown!(ChangeInfo, |change, shows| {
    shows.flag("nfs.change_info.atomic", change.atomic);
    shows.put("nfs.changeid4.before", change.before);
    shows.put("nfs.changeid4.after", change.after);
});

shown!(NetAddress, |address, shows| {
    shows.text("nfs.r_netid", &address.netid);
    shows.text("nfs.r_addr", &address.address);
});

shown!(WriteResponse, |response, shows| {
    shows.put("nfs.callback_ids", response.callback_id.len());
    response.callback_id.iter().for_each(|stateid| stateid.show(shows));
    shows.put("nfs.length4", response.count);
    shows.put("nfs.stable_how4", response.committed as u32);
    shows.verifier(&response.verifier);
});

shown!(CompoundArgs, |compound, shows| {
    shows.put("nfs.minorversion", compound.minor_version);
    shows.put("nfs.ops.count", compound.ops.len());
    for op in &compound.ops {
        shows.put("nfs.opcode", op.opnum().0);
        op.show(shows);
    }
});

shown!(CompoundResult, |compound, shows| {
    shows.put("nfs.nfsstat4", compound.status.0);
    shows.put("nfs.ops.count", compound.results.len());
    for result in &compound.results {
        shows.put("nfs.opcode", result.opnum().0);
        if rare::is_dissected(result.opnum()) {
            shows.put("nfs.nfsstat4", result.status().0);
        }
        result.show(shows);
    }
});

shown!(CbCompoundArgs, |compound, shows| {
    shows.put("nfs.minorversion", compound.minor_version);
    shows.hex("nfs.callback.ident", compound.callback_ident);
    for op in &compound.ops {
        shows.put("nfs.cb.operation", op.opnum().0);
        op.show(shows);
    }
});

shown!(CbCompoundResult, |compound, shows| {
    shows.put("nfs.nfsstat4", compound.status.0);
    for result in &compound.results {
        shows.put("nfs.cb.operation", result.opnum().0);
        shows.put("nfs.nfsstat4", result.status().0);
        result.show(shows);
    }
});
