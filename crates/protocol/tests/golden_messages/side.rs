//! The side protocols of NFS: locks, status monitor, quotas, access lists.

use protocol::nfs3::PostOpAttr;
use protocol::{nfsacl, nlm, nsm, rquota};

use crate::golden::{Golden, all};
use crate::shown::{Shown, Shows};
use crate::{same_as_tshark, same_bytes, shown};

fn lock(shows: &mut Shows, lock: &nlm::Lock) {
    shows.text("nlm.lock.caller_name", &lock.caller_name);
    shows.bytes("nfs.fhandle", &lock.fh);
    shows.bytes("nlm.lock.owner", &lock.oh);
    shows.put("nlm.lock.svid", lock.svid);
    shows.put("nlm.lock.l_offset64", lock.l_offset);
    shows.put("nlm.lock.l_len64", lock.l_len);
}

shown!(nlm::TestArgs, |args, shows| {
    shows.bytes("nlm.cookie", &args.cookie);
    shows.flag("nlm.exclusive", args.exclusive);
    lock(shows, &args.alock);
});
shown!(nlm::LockArgs, |args, shows| {
    shows.bytes("nlm.cookie", &args.cookie);
    shows.flag("nlm.block", args.block);
    shows.flag("nlm.exclusive", args.exclusive);
    lock(shows, &args.alock);
    shows.flag("nlm.reclaim", args.reclaim);
    shows.put("nlm.state", args.state);
});
shown!(nlm::UnlockArgs, |args, shows| {
    shows.bytes("nlm.cookie", &args.cookie);
    lock(shows, &args.alock);
});
shown!(nlm::Res, |result, shows| {
    shows.bytes("nlm.cookie", &result.cookie);
    shows.put("nlm.stat", result.stat.0);
});
shown!(nlm::TestRes, |result, shows| {
    shows.bytes("nlm.cookie", &result.cookie);
    match &result.stat {
        nlm::TestReply::Denied(holder) => {
            shows.put("nlm.test_stat.stat", 1);
            shows.flag("nlm.exclusive", holder.exclusive);
            shows.put("nlm.lock.svid", holder.svid);
            shows.bytes("nlm.lock.owner", &holder.oh);
            shows.put("nlm.lock.l_offset64", holder.l_offset);
            shows.put("nlm.lock.l_len64", holder.l_len);
        }
        nlm::TestReply::Other(stat) => shows.put("nlm.test_stat.stat", stat.0),
    }
});
shown!(nlm::ShareArgs, |args, shows| {
    shows.bytes("nlm.cookie", &args.cookie);
    shows.text("nlm.lock.caller_name", &args.share.caller_name);
    shows.bytes("nfs.fhandle", &args.share.fh);
    shows.bytes("nlm.lock.owner", &args.share.oh);
    shows.put("nlm.share.mode", args.share.mode.0);
    shows.put("nlm.share.access", args.share.access.0);
    shows.flag("nlm.reclaim", args.reclaim);
});
shown!(nlm::ShareRes, |result, shows| {
    shows.bytes("nlm.cookie", &result.cookie);
    shows.put("nlm.stat", result.stat.0);
    shows.put("nlm.sequence", result.sequence);
});

#[test]
fn nlm_messages_match_tshark() {
    for golden in all("nlm") {
        let (procedure, way) = golden.name.rsplit_once("_call").unwrap_or_else(|| {
            let (procedure, _) = golden.name.split_once("_reply").unwrap();
            (procedure, "reply")
        });
        let check: fn(&Golden) = match (procedure, way) {
            ("null", _) | ("sm_status", "reply") => same_as_tshark::<()>,
            ("test", "reply") => same_as_tshark::<nlm::TestRes>,
            ("test", _) => same_as_tshark::<nlm::TestArgs>,
            ("lock" | "unlock" | "nm_lock", "reply") => same_as_tshark::<nlm::Res>,
            ("lock" | "nm_lock", _) => same_as_tshark::<nlm::LockArgs>,
            ("unlock", _) => same_as_tshark::<nlm::UnlockArgs>,
            ("share" | "unshare", "reply") => same_as_tshark::<nlm::ShareRes>,
            ("share" | "unshare", _) => same_as_tshark::<nlm::ShareArgs>,
            ("sm_status", _) => |golden| {
                // The procedure that the status monitor calls after a restart of host 10.99.0.2.
                let status: nsm::Status = same_bytes(golden);
                assert_eq!((&status.mon_name[..], status.state), (&b"10.99.0.2"[..], 5));
            },
            _ => panic!("{} belongs to no procedure", golden.name),
        };
        check(&golden);
    }
}

fn my_id(shows: &mut Shows, id: &nsm::MyId) {
    shows.text("stat.my_id.hostname", &id.my_name);
    shows.put("stat.my_id.prog", id.my_prog);
    shows.put("stat.my_id.vers", id.my_vers);
    shows.put("stat.my_id.proc", id.my_proc);
}

shown!(nsm::MyId, |id, shows| { my_id(shows, id) });
shown!(nsm::MonId, |id, shows| {
    shows.text("stat.mon_id.name", &id.mon_name);
    my_id(shows, &id.my_id);
});
shown!(nsm::Mon, |args, shows| {
    args.mon_id.show(shows);
    shows.bytes("stat.priv", &args.priv_);
});
shown!(nsm::SmStat, |result, shows| { shows.put("stat.state", result.state) });
shown!(nsm::StatRes, |result, shows| {
    shows.put("stat.stat_res.res", result.res_stat.0);
    // tshark shows the state only on success.
    if result.res_stat == nsm::Outcome::SUCC {
        shows.put("stat.stat_res.state", result.state);
    }
});
shown!(nsm::StateChange, |change, shows| {
    shows.text("stat.mon_id.name", &change.mon_name);
    shows.put("stat.state", change.state);
});

#[test]
fn nsm_messages_match_tshark() {
    for golden in all("nsm") {
        let (procedure, _) = golden.name.split_once("_call").or(golden.name.split_once("_reply")).unwrap();
        let check: fn(&Golden) = match (procedure, golden.name.contains("_call")) {
            ("null", _) | ("notify", false) => same_as_tshark::<()>,
            ("stat", true) => |golden| {
                let mut shows = Shows::default();
                shows.text("stat.name", &same_bytes::<nsm::Name>(golden));
                shows.must_be(golden);
            },
            ("mon", true) => same_as_tshark::<nsm::Mon>,
            ("stat" | "mon", false) => same_as_tshark::<nsm::StatRes>,
            ("unmon", true) => same_as_tshark::<nsm::MonId>,
            ("unmon_all", true) => same_as_tshark::<nsm::MyId>,
            ("unmon" | "unmon_all", false) => same_as_tshark::<nsm::SmStat>,
            ("notify", true) => same_as_tshark::<nsm::StateChange>,
            _ => panic!("{} belongs to no procedure", golden.name),
        };
        check(&golden);
    }
}

shown!(rquota::GetQuotaArgs, |args, shows| {
    shows.text("rquota.pathp", &args.path);
    shows.put("rquota.uid", args.uid);
});
shown!(rquota::ExtGetQuotaArgs, |args, shows| {
    shows.text("rquota.pathp", &args.path);
    shows.put("rquota.type", args.kind.0);
    shows.put("rquota.id", args.id);
});
shown!(rquota::QuotaResult, |result, shows| {
    match result {
        rquota::QuotaResult::Ok(_) => panic!("no quota was recorded"),
        rquota::QuotaResult::Fail(status) => shows.put("rquota.status", status.0),
    }
});

#[test]
fn rquota_messages_match_tshark() {
    for golden in all("rquota") {
        let check: fn(&Golden) = match golden.name.split_once('_').unwrap() {
            ("getquota1" | "getactivequota1", "call") => same_as_tshark::<rquota::GetQuotaArgs>,
            ("getquota2" | "getactivequota2", "call") => same_as_tshark::<rquota::ExtGetQuotaArgs>,
            ("getquota1" | "getquota2", "reply") => same_as_tshark::<rquota::QuotaResult>,
            _ => panic!("{} belongs to no procedure", golden.name),
        };
        check(&golden);
    }
}

fn lists(shows: &mut Shows, lists: &nfsacl::SecAttr) {
    shows.put("nfsacl.mask", format!("{:#010x}", lists.mask.bits()));
    for (name, acl) in [("nfsacl.aclcnt", &lists.acl), ("nfsacl.dfaclcnt", &lists.dfacl)] {
        // tshark shows one of the two counts before the entries.
        assert_eq!(acl.count as usize, acl.entries.len());
        shows.put(name, acl.count);
        for entry in &acl.entries {
            shows.put("nfsacl.aclent.type", entry.tag.0);
            shows.put("nfsacl.aclent.uid", entry.id);
            shows.put("nfsacl.aclent.perm", entry.perm);
        }
    }
}

shown!(nfsacl::GetAclArgs, |args, shows| {
    shows.bytes("nfs.fhandle", &args.fh);
    shows.put("nfsacl.mask", format!("{:#010x}", args.mask.bits()));
});
shown!(nfsacl::SetAclArgs, |args, shows| {
    shows.bytes("nfs.fhandle", &args.fh);
    lists(shows, &args.acl);
});

/// tshark uses other names for the status here than in NFS, and does not show a failure's attributes.
fn acl_status(shows: &mut Shows, status: protocol::nfs3::NfsStat) {
    shows.put("nfs.status", status.0);
}

fn get_acl_reply(golden: &Golden) {
    let result: nfsacl::GetAclResult = same_bytes(golden);
    let mut shows = Shows::default();
    acl_status(&mut shows, result.status());
    if let Ok(ok) = result.into_result() {
        ok.attributes.show(&mut shows);
        lists(&mut shows, &ok.acl);
    }
    shows.must_be(golden);
}

fn set_acl_reply(golden: &Golden) {
    let result: nfsacl::SetAclResult = same_bytes(golden);
    let mut shows = Shows::default();
    acl_status(&mut shows, result.status());
    let attributes: PostOpAttr = result.into_result().unwrap();
    attributes.show(&mut shows);
    shows.must_be(golden);
}

#[test]
fn nfsacl_messages_match_tshark() {
    for golden in all("nfsacl") {
        let check: fn(&Golden) = match golden.name.split('_').take(2).collect::<Vec<_>>()[..] {
            ["null", _] => same_as_tshark::<()>,
            ["getacl", "call"] => same_as_tshark::<nfsacl::GetAclArgs>,
            ["getacl", _] => get_acl_reply,
            ["setacl", "call"] => same_as_tshark::<nfsacl::SetAclArgs>,
            ["setacl", _] => set_acl_reply,
            _ => panic!("{} belongs to no procedure", golden.name),
        };
        check(&golden);
    }
}
