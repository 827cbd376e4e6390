//! Calls of RQUOTA about file systems in memory, whose users have quotas.

use std::sync::Arc;

use bytes::Bytes;
use protocol::nfs4::attributes::number as n;
use protocol::rquota::{DqBlk, PROGRAM, Path, Rquota, VERSION_2};
use rpc::message::{AcceptStatus, RpcError, VersionRange};
use vfs::{MemFs, MemOptions};

use super::*;
use crate::testing::{Lab, at, export, export_for, getattr, lab, lab_of};
use crate::{Export, Locations, Squash};

const QUOTA_BYTES: u64 = 1 << 20;

fn with_quota(export: Export) -> Export {
    let options = MemOptions { quota_bytes: Some(QUOTA_BYTES), root_mode: 0o777, ..MemOptions::default() };
    Export { backend: Arc::new(MemFs::new(&options)), ..export }
}

/// A server with quotas, and the user 1000 of a client, who has a file of 8192 bytes.
fn site() -> Lab {
    let mut moved = with_quota(export(3, "/moved"));
    moved.options.locations = Locations::Moved(Arc::from(["there:/".parse().unwrap()]));
    let exports = vec![
        with_quota(export(1, "/data/with")),
        export(2, "/data/without"),
        moved,
        with_quota(export_for(4, "/closed", "192.0.2.0/24")),
    ];
    let mut lab = lab_of(exports);
    (lab.uid, lab.gids) = (1000, vec![50]);
    lab.file(&["data", "with", "file"], &[7; 8192]);
    lab
}

impl Lab {
    fn quota(
        &mut self,
        (version, procedure): (u32, Proc),
        arguments: &impl Encode,
    ) -> Result<Rquota, QuotaStatus> {
        let results = self.ask((PROGRAM, version, procedure.0), &xdr::to_bytes(arguments)).expect("results");
        match xdr::from_bytes(results).unwrap() {
            QuotaResult::Ok(quota) => Ok(quota),
            QuotaResult::Fail(status) => Err(status),
        }
    }

    fn of_user(&mut self, path: &'static str, uid: i32) -> Result<Rquota, QuotaStatus> {
        let args = GetQuotaArgs { path: Path::from_static(path.as_bytes()), uid };
        let found = self.quota((VERSION_1, Proc::GETQUOTA), &args);
        let args = ExtGetQuotaArgs { path: args.path, kind: WireKind::USER, id: uid };
        assert_eq!(self.quota((VERSION_2, Proc::GETACTIVEQUOTA), &args), found);
        found
    }
}

#[test]
fn a_user_gets_its_own_quota_and_root_that_of_all() {
    let mut lab = site();
    // quota(1), -m: "pathnames of NFSv4 mountpoints are sent without leading slash".
    for path in ["/data/with", "/data/with/", "/data/with/some/directory", "data/with"] {
        let quota = lab.of_user(path, 1000).unwrap();
        assert_eq!((quota.bsize, quota.bhardlimit, quota.active), (1024, 1024, true));
        // Content, and what the entry takes.
        assert!((8..16).contains(&quota.curblocks), "{quota:?}");
    }
    assert_eq!(lab.of_user("/data/with", 1001), Err(QuotaStatus::EPERM));
    assert_eq!(lab.of_user("/data/with", 0), Err(QuotaStatus::EPERM));
    lab.uid = 0;
    assert_eq!(lab.of_user("/data/with", 1001).unwrap().curblocks, 0);
    assert!(lab.of_user("/data/with", 1000).unwrap().curblocks >= 8);
}

#[test]
fn squashed_root_asks_for_nobody_else() {
    let mut exported = with_quota(export(1, "/export"));
    exported.options.squash = Squash::Root;
    let mut lab = lab_of(vec![exported]);
    assert_eq!(lab.of_user("/export", 1000), Err(QuotaStatus::EPERM));
    assert_eq!(lab.of_user("/export", 0), Err(QuotaStatus::EPERM));
    assert!(lab.of_user("/export", 65_534).is_ok());
}

#[test]
fn paths_without_quotas_have_none() {
    let mut lab = site();
    lab.uid = 0;
    for path in ["/data/without", "/data", "/", "", "/data/withx", "data/without", "/moved"] {
        assert_eq!(lab.of_user(path, 0), Err(QuotaStatus::NOQUOTA), "{path}");
    }
    assert_eq!(lab.of_user("/closed", 0), Err(QuotaStatus::EPERM), "it is for other clients");
    // A file system in memory has no quotas of groups; a client may ask only for its own.
    let mut group = |id| {
        let args = ExtGetQuotaArgs { path: Path::from_static(b"/data/with"), kind: WireKind::GROUP, id };
        lab.uid = 1000;
        lab.quota((VERSION_2, Proc::GETQUOTA), &args)
    };
    assert_eq!((group(50), group(51)), (Err(QuotaStatus::NOQUOTA), Err(QuotaStatus::EPERM)));
    let args = ExtGetQuotaArgs { path: Path::from_static(b"/data/with"), kind: WireKind(2), id: 1000 };
    assert_eq!(lab.quota((VERSION_2, Proc::GETQUOTA), &args), Err(QuotaStatus::NOQUOTA));
}

#[test]
fn quotas_cannot_be_set() {
    let mut lab = site();
    lab.uid = 0;
    let (path, dqblk) = (Path::from_static(b"/data/with"), DqBlk::default());
    let first = SetQuotaArgs { command: 0, path: path.clone(), id: 1000, dqblk };
    let second = ExtSetQuotaArgs { command: 0, path, id: 1000, kind: WireKind::USER, dqblk };
    for procedure in [Proc::SETQUOTA, Proc::SETACTIVEQUOTA] {
        assert_eq!(lab.quota((VERSION_1, procedure), &first), Err(QuotaStatus::EPERM));
        assert_eq!(lab.quota((VERSION_2, procedure), &second), Err(QuotaStatus::EPERM));
    }
}

#[test]
fn malformed_calls_are_refused() {
    let mut lab = site();
    let null: Result<Bytes, RpcError> = lab.ask((PROGRAM, VERSION_1, 0), &[]);
    assert_eq!(null.unwrap(), Bytes::new());
    let garbage = Err(RpcError::NotExecuted(AcceptStatus::GarbageArguments));
    let args = GetQuotaArgs { path: Path::from_static(b"/data/with"), uid: 1000 };
    let whole = xdr::to_bytes(&args);
    for length in 0..whole.len() {
        assert_eq!(lab.ask((PROGRAM, VERSION_1, 1), &whole[..length]), garbage, "{length} bytes");
    }
    // A path of 1025 bytes, and one of which only the length is there.
    let long = [&1025_u32.to_be_bytes()[..], &[b'x'; 1028], &[0; 4]].concat();
    assert_eq!(lab.ask((PROGRAM, VERSION_1, 1), &long), garbage);
    assert_eq!(lab.ask((PROGRAM, VERSION_2, 2), &u32::MAX.to_be_bytes()), garbage);
    assert_eq!(lab.ask((PROGRAM, VERSION_1, 3), &whole), garbage);
    let unknown = RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable);
    assert_eq!(lab.ask((PROGRAM, VERSION_1, 5), &[]), Err(unknown));
    let versions = VersionRange { low: 1, high: 2 };
    let mismatch = RpcError::NotExecuted(AcceptStatus::ProgramMismatch(versions));
    assert_eq!(lab.ask((PROGRAM, 3, 1), &[]), Err(mismatch));
}

#[test]
fn the_program_is_served_only_where_there_are_quotas() {
    let mut without = lab();
    let unavailable = RpcError::NotExecuted(AcceptStatus::ProgramUnavailable);
    assert_eq!(without.ask((PROGRAM, VERSION_1, 0), &[]), Err(unavailable));
    let is_registered =
        |lab: &Lab| lab.server.registrations().iter().filter(|row| row.program == PROGRAM).count();
    assert_eq!((is_registered(&without), is_registered(&site())), (0, 2));
}

/// RFC 8881 §5.8.2.28 to §5.8.2.30.
#[test]
fn version_4_has_the_callers_quota_as_attributes() {
    let mut lab = site();
    let numbers = [n::QUOTA_AVAIL_HARD, n::QUOTA_AVAIL_SOFT, n::QUOTA_USED];
    let path = ["data", "with", "file"];
    let mine = lab.attributes(&path, &numbers);
    let used = mine.quota_used.unwrap();
    assert!((8192..16_384).contains(&used), "{used}");
    assert_eq!(mine.quota_avail_hard, Some(QUOTA_BYTES - used));
    assert_eq!(mine.quota_avail_soft, Some(u64::MAX), "no soft limit");
    lab.uid = 1001;
    assert_eq!(lab.attributes(&path, &numbers).quota_used, Some(0), "another user's");
    // A listing has them too.
    let listed = lab.attributes(&["data", "with"], &[n::QUOTA_USED, n::SUPPORTED_ATTRS]);
    assert!(listed.supported_attrs.unwrap().has(n::QUOTA_USED));
    let without = lab.attributes(&["data", "without"], &[n::QUOTA_USED, n::SUPPORTED_ATTRS]);
    assert_eq!(without.quota_used, None);
    assert!(!without.supported_attrs.unwrap().has(n::QUOTA_USED));
    lab.ok(at(&[], vec![getattr(&numbers)]));
}
