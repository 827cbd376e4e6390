//! What the fuzz targets do with their input. The workspace's tests run the same functions over the seeds.
//!
//! A function panics if something is wrong. Common to all: a decoder never panics, and what it made of any input is encoded to
//! bytes that decode to the same value.

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use protocol::{mount, nfs2, nfs3, nfs4, nfsacl, nlm, nsm, portmap, rpcbind, rquota};
use rpc::address::UniversalAddress;
use rpc::auth::{Identity, OpaqueAuth, authenticate};
use rpc::gss::GssCredential;
use rpc::message::{CallError, CallHeader, ReplyHeader, peek};
use rpc::record::{HEADER_LENGTH, RecordDecoder, RecordError};
use xdr::{Decode, Encode, Reader, from_bytes, to_bytes};

/// A target: its name, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("records", records),
    ("headers", headers),
    ("nfs3", nfs3),
    ("services", services),
    ("nfs4", nfs4),
    ("compounds", compounds),
    ("nfs2", nfs2_calls),
    ("replies", replies),
    ("rquota", rquota_calls),
    ("nlm", nlm_calls),
    ("nsm", nsm_calls),
];

/// The program of a target: fuzzed by `cargo fuzz`, and otherwise played with the files that it is given.
#[macro_export]
macro_rules! target {
    ($body:path) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $body(data));

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            std::env::args_os().skip(1).try_for_each(|file| Ok($body(&std::fs::read(file)?)))
        }
    };
}

/// The limit on records, in bytes, that [`records`] sets.
const MAX_RECORD: usize = 300;

/// A stream of records. The first byte is the size of the pieces that it comes in; whole or in pieces, the records are the same, and the
/// decoder never keeps more than it may.
pub fn records(data: &[u8]) {
    let Some((piece, stream)) = data.split_first() else { return };
    let piece = usize::from(*piece).max(1);
    let whole = decode_records(stream, stream.len().max(1));
    assert_eq!(decode_records(stream, piece), whole);
    assert!(whole.0.iter().all(|record| record.len() <= MAX_RECORD));
}

fn decode_records(stream: &[u8], piece: usize) -> (Vec<Bytes>, Option<RecordError>) {
    let mut decoder = RecordDecoder::new(MAX_RECORD);
    let mut buffer = BytesMut::new();
    let mut records = Vec::new();
    for piece in stream.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => break,
                Err(error) => return (records, Some(error)),
            }
        }
        let wanted = decoder.bytes_wanted();
        assert!(0 < wanted && wanted + buffer.len() <= MAX_RECORD + HEADER_LENGTH, "wants {wanted} bytes");
    }
    (records, None)
}

/// Sessions and clients of all minor versions against a server in memory.
pub fn compounds(data: &[u8]) {
    sim::compounds::play(data);
}

/// Calls of version 2 against a server in memory.
pub fn nfs2_calls(data: &[u8]) {
    sim::nfs2::play(data);
}

/// Calls of NLM and NSM by several hosts against a server in memory.
pub fn nlm_calls(data: &[u8]) {
    sim::nlm::play(data);
}

/// Calls of NSM, with any bytes as arguments, by hosts that hold locks.
pub fn nsm_calls(data: &[u8]) {
    sim::nsm::play(data);
}

/// Calls of RQUOTA against a server in memory.
pub fn rquota_calls(data: &[u8]) {
    sim::rquota::play(data);
}

/// A client of each version whose server's messages are altered.
pub fn replies(data: &[u8]) {
    sim::altered::play(data);
}

/// The header of a call or of a reply, the credential in it, and an address.
pub fn headers(data: &[u8]) {
    let record = Bytes::copy_from_slice(data);
    match CallHeader::parse(&mut Reader::new(record.clone())) {
        Ok(header) => {
            assert_eq!(peek(&record).map(|(xid, _)| xid), Ok(header.xid));
            let again = to_bytes(&header);
            assert_eq!(CallHeader::parse(&mut Reader::new(again)).as_ref(), Ok(&header));
            if let Ok(Identity::Sys(sys)) = authenticate(&header.credential) {
                assert_eq!(authenticate(&OpaqueAuth::sys(&sys)), Ok(Identity::Sys(sys)));
            }
            if let Ok(gss) = GssCredential::parse(&header.credential.body) {
                assert_eq!(GssCredential::parse(&gss.to_body()), Ok(gss));
            }
        }
        Err(CallError::Refused(reply)) => {
            assert_eq!(ReplyHeader::parse(&mut Reader::new(to_bytes(&reply))), Ok(reply));
        }
        Err(CallError::Unanswerable(_)) => {}
    }
    if let Ok(header) = ReplyHeader::parse(&mut Reader::new(record)) {
        assert_eq!(ReplyHeader::parse(&mut Reader::new(to_bytes(&header))), Ok(header));
    }
    if let Ok(address) = UniversalAddress::from_bytes(data) {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
}

/// Decodes a `T` from the front of `body`.
fn stable<T: Decode + Encode + PartialEq + Debug>(body: &[u8]) {
    let Ok(value) = T::decode(&mut Reader::new(Bytes::copy_from_slice(body))) else { return };
    let wire = to_bytes(&value);
    assert_eq!(from_bytes::<T>(wire).as_ref(), Ok(&value));
}

/// As [`stable`], but something may be lost once: of bits that no registry has, NFSv4's bitmaps keep only that there were some.
fn stable_once_encoded<T: Decode + Encode + PartialEq + Debug>(body: &[u8]) {
    let Ok(value) = T::decode(&mut Reader::new(Bytes::copy_from_slice(body))) else { return };
    let wire = to_bytes(&value);
    let again = from_bytes::<T>(wire.clone()).expect("what was encoded is decoded");
    assert_eq!(to_bytes(&again), wire);
    stable::<T>(&wire);
}

/// Declares a target whose first byte chooses among types, and the names of these: `getattr_call`.
macro_rules! types {
    ($(#[$doc:meta])* $target:ident, $names:ident, $check:ident: $($name:literal => $type:ty,)*) => {
        $(#[$doc])*
        pub fn $target(data: &[u8]) {
            const BODIES: &[fn(&[u8])] = &[$($check::<$type>),*];
            let Some((choice, body)) = data.split_first() else { return };
            BODIES[usize::from(*choice) % BODIES.len()](body);
        }

        /// What the first byte of the target's input chooses.
        pub const $names: &[&str] = &[$($name),*];
    };
}

types! {
    /// Arguments and results of NFS version 3.
    nfs3, NFS3_TYPES, stable:
    "getattr_call" => nfs3::GetattrArgs, "getattr_reply" => nfs3::GetattrResult,
    "setattr_call" => nfs3::SetattrArgs, "setattr_reply" => nfs3::SetattrResult,
    "lookup_call" => nfs3::LookupArgs, "lookup_reply" => nfs3::LookupResult,
    "access_call" => nfs3::AccessArgs, "access_reply" => nfs3::AccessResult,
    "readlink_call" => nfs3::ReadlinkArgs, "readlink_reply" => nfs3::ReadlinkResult,
    "read_call" => nfs3::ReadArgs, "read_reply" => nfs3::ReadResult,
    "write_call" => nfs3::WriteArgs, "write_reply" => nfs3::WriteResult,
    "create_call" => nfs3::CreateArgs, "create_reply" => nfs3::CreateResult,
    "mkdir_call" => nfs3::MkdirArgs, "mkdir_reply" => nfs3::MkdirResult,
    "symlink_call" => nfs3::SymlinkArgs, "symlink_reply" => nfs3::SymlinkResult,
    "mknod_call" => nfs3::MknodArgs, "mknod_reply" => nfs3::MknodResult,
    "remove_call" => nfs3::RemoveArgs, "remove_reply" => nfs3::RemoveResult,
    "rmdir_call" => nfs3::RmdirArgs, "rmdir_reply" => nfs3::RmdirResult,
    "rename_call" => nfs3::RenameArgs, "rename_reply" => nfs3::RenameResult,
    "link_call" => nfs3::LinkArgs, "link_reply" => nfs3::LinkResult,
    "readdir_call" => nfs3::ReaddirArgs, "readdir_reply" => nfs3::ReaddirResult,
    "readdirplus_call" => nfs3::ReaddirplusArgs, "readdirplus_reply" => nfs3::ReaddirplusResult,
    "fsstat_call" => nfs3::FsstatArgs, "fsstat_reply" => nfs3::FsstatResult,
    "fsinfo_call" => nfs3::FsinfoArgs, "fsinfo_reply" => nfs3::FsinfoResult,
    "pathconf_call" => nfs3::PathconfArgs, "pathconf_reply" => nfs3::PathconfResult,
    "commit_call" => nfs3::CommitArgs, "commit_reply" => nfs3::CommitResult,
}

types! {
    /// Arguments and results of MOUNT, the port mapper and rpcbind, of NFS version 2, and of the side protocols.
    services, SERVICES_TYPES, stable:
    "mnt1_call" => mount::DirPath, "mnt1_reply" => mount::FhStatus,
    "mnt3_call" => mount::DirPath, "mnt3_reply" => mount::MountResult,
    "umnt3_call" => mount::DirPath,
    "dump1_reply" => mount::MountList, "export1_reply" => mount::Exports,
    "dump3_reply" => mount::MountList, "export3_reply" => mount::Exports,
    "set_call" => portmap::Mapping, "unset_call" => portmap::Mapping, "getport_call" => portmap::Mapping,
    "dump_reply" => portmap::MappingList,
    "callit_call" => portmap::CallArgs, "callit_reply" => portmap::CallResult,
    "set3_call" => rpcbind::Rpcb, "unset3_call" => rpcbind::Rpcb, "getaddr3_call" => rpcbind::Rpcb,
    "set4_call" => rpcbind::Rpcb, "unset4_call" => rpcbind::Rpcb, "getaddr4_call" => rpcbind::Rpcb,
    "getversaddr4_call" => rpcbind::Rpcb, "getaddrlist4_call" => rpcbind::Rpcb,
    "getaddr3_reply" => rpcbind::Text, "getaddr4_reply" => rpcbind::Text, "getversaddr4_reply" => rpcbind::Text,
    "dump3_reply" => rpcbind::RpcbList, "dump4_reply" => rpcbind::RpcbList,
    "callit3_call" => rpcbind::RmtCallArgs, "callit3_reply" => rpcbind::RmtCallResult,
    "uaddr2taddr3_call" => rpcbind::Text, "uaddr2taddr3_reply" => rpcbind::NetBuf,
    "uaddr2taddr4_call" => rpcbind::Text, "uaddr2taddr4_reply" => rpcbind::NetBuf,
    "taddr2uaddr3_call" => rpcbind::NetBuf, "taddr2uaddr3_reply" => rpcbind::Text,
    "taddr2uaddr4_call" => rpcbind::NetBuf, "taddr2uaddr4_reply" => rpcbind::Text,
    "getaddrlist4_reply" => rpcbind::EntryList, "getstat4_reply" => rpcbind::StatByVersion,
    "nfs2_getattr_reply" => nfs2::AttrStat, "nfs2_setattr_call" => nfs2::SattrArgs,
    "nfs2_lookup_call" => nfs2::DirOpArgs, "nfs2_lookup_reply" => nfs2::DirOpRes,
    "nfs2_readlink_reply" => nfs2::ReadlinkRes, "nfs2_read_call" => nfs2::ReadArgs,
    "nfs2_read_reply" => nfs2::ReadRes, "nfs2_write_call" => nfs2::WriteArgs,
    "nfs2_create_call" => nfs2::CreateArgs, "nfs2_rename_call" => nfs2::RenameArgs,
    "nfs2_link_call" => nfs2::LinkArgs, "nfs2_symlink_call" => nfs2::SymlinkArgs,
    "nfs2_readdir_call" => nfs2::ReaddirArgs, "nfs2_readdir_reply" => nfs2::ReaddirRes,
    "nfs2_statfs_reply" => nfs2::StatfsRes,
    "nlm_test_call" => nlm::TestArgs, "nlm_test_reply" => nlm::TestRes,
    "nlm_lock_call" => nlm::LockArgs, "nlm_lock_reply" => nlm::Res, "nlm_nm_lock_call" => nlm::LockArgs,
    "nlm_cancel_call" => nlm::CancelArgs, "nlm_unlock_call" => nlm::UnlockArgs, "nlm_unlock_reply" => nlm::Res,
    "nlm_test3_call" => nlm::TestArgs<u32>, "nlm_test3_reply" => nlm::TestRes<u32>,
    "nlm_lock3_call" => nlm::LockArgs<u32>, "nlm_cancel3_call" => nlm::CancelArgs<u32>,
    "nlm_unlock3_call" => nlm::UnlockArgs<u32>,
    "nlm_share_call" => nlm::ShareArgs, "nlm_share_reply" => nlm::ShareRes, "nlm_free_all_call" => nlm::Notify,
    "nsm_stat_call" => nsm::Name, "nsm_stat_reply" => nsm::StatRes, "nsm_mon_call" => nsm::Mon,
    "nsm_mon_reply" => nsm::StatRes, "nsm_unmon_call" => nsm::MonId, "nsm_unmon_all_call" => nsm::MyId,
    "nsm_unmon_reply" => nsm::SmStat, "nsm_notify_call" => nsm::StateChange, "nlm_sm_status_call" => nsm::Status,
    "rquota_getquota1_call" => rquota::GetQuotaArgs, "rquota_getquota1_reply" => rquota::QuotaResult,
    "rquota_getquota2_call" => rquota::ExtGetQuotaArgs, "rquota_getquota2_reply" => rquota::QuotaResult,
    "rquota_setquota1_call" => rquota::SetQuotaArgs, "rquota_setquota2_call" => rquota::ExtSetQuotaArgs,
    "nfsacl_getacl_call" => nfsacl::GetAclArgs, "nfsacl_getacl_reply" => nfsacl::GetAclResult,
    "nfsacl_setacl_call" => nfsacl::SetAclArgs, "nfsacl_setacl_reply" => nfsacl::SetAclResult,
}

types! {
    /// Whole compounds of NFS version 4, of both directions.
    nfs4, NFS4_TYPES, stable_once_encoded:
    "compound_call" => nfs4::compound::CompoundArgs, "compound_reply" => nfs4::compound::CompoundResult,
    "cb_compound_call" => nfs4::callback::CbCompoundArgs, "cb_compound_reply" => nfs4::callback::CbCompoundResult,
}

/// Turns a recorded message into inputs: (target, input). `name` says what it is, as `lookup_reply_noent` and `v41_cb_recall_call` do.
pub fn seeds(program: &str, name: &str, message: &Bytes) -> Vec<(&'static str, Vec<u8>)> {
    let mark = 0x8000_0000 | u32::try_from(message.len()).expect("recorded messages are short");
    let record = [&[7], &mark.to_be_bytes()[..], message].concat();
    let mut seeds = vec![("headers", message.to_vec()), ("records", record)];
    let mut reader = Reader::new(message.clone());
    let is_call = name.contains("_call");
    let has_body = match is_call {
        true => CallHeader::parse(&mut reader).is_ok(),
        false => ReplyHeader::parse(&mut reader).is_ok_and(|header| header.success().is_ok()),
    };
    let compound = match (name.contains("_cb_"), is_call) {
        (false, true) => "compound_call",
        (false, false) => "compound_reply",
        (true, true) => "cb_compound_call",
        (true, false) => "cb_compound_reply",
    };
    let (target, types, name) = match program {
        "nfs3" => ("nfs3", NFS3_TYPES, name.to_owned()),
        "nfs4" => ("nfs4", NFS4_TYPES, compound.to_owned()),
        "mount" | "portmap" | "rpcbind" => ("services", SERVICES_TYPES, name.to_owned()),
        side => ("services", SERVICES_TYPES, format!("{side}_{name}")),
    };
    if let Some(choice) = types.iter().position(|kind| name.starts_with(kind))
        && has_body
    {
        let choice = u8::try_from(choice).expect("fewer than 256 types");
        seeds.push((target, [&[choice], reader.peek()].concat()));
    }
    seeds
}
