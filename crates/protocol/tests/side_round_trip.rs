//! Types of NFS version 2 and of the side protocols round-trip.

mod common;

use common::{chain, inline, opaque, round_trip};
use proptest::prelude::*;
use protocol::{nfs2, nfs3, nfsacl, nlm, nsm, rquota};
use xdr::List;

fn time() -> impl Strategy<Value = nfs2::TimeVal> {
    any::<[u32; 2]>().prop_map(|[seconds, useconds]| nfs2::TimeVal { seconds, useconds })
}

fn fattr() -> impl Strategy<Value = nfs2::Fattr> {
    (any::<[u32; 11]>(), time(), time(), time()).prop_map(|(words, atime, mtime, ctime)| {
        let [file_type, mode, nlink, uid, gid, size, blocksize, rdev, blocks, fsid, fileid] = words;
        let file_type = nfs2::FileType(file_type);
        nfs2::Fattr {
            file_type,
            mode,
            nlink,
            uid,
            gid,
            size,
            blocksize,
            rdev,
            blocks,
            fsid,
            fileid,
            atime,
            mtime,
            ctime,
        }
    })
}

fn sattr() -> impl Strategy<Value = nfs2::Sattr> {
    (any::<[u32; 4]>(), time(), time()).prop_map(|([mode, uid, gid, size], atime, mtime)| nfs2::Sattr {
        mode,
        uid,
        gid,
        size,
        atime,
        mtime,
    })
}

fn dir_op() -> impl Strategy<Value = nfs2::DirOpArgs> {
    (any::<[u8; 32]>(), opaque()).prop_map(|(dir, name)| nfs2::DirOpArgs { dir, name })
}

fn entry() -> impl Strategy<Value = nfs2::Entry> {
    (any::<u32>(), opaque(), any::<[u8; 4]>()).prop_map(|(fileid, name, cookie)| nfs2::Entry {
        fileid,
        name,
        cookie,
    })
}

fn holder() -> impl Strategy<Value = nlm::Holder> {
    (any::<bool>(), any::<i32>(), opaque(), any::<[u64; 2]>()).prop_map(
        |(exclusive, svid, oh, [l_offset, l_len])| nlm::Holder { exclusive, svid, oh, l_offset, l_len },
    )
}

fn lock() -> impl Strategy<Value = nlm::Lock> {
    (opaque(), opaque(), opaque(), any::<i32>(), any::<[u64; 2]>()).prop_map(
        |(caller_name, fh, oh, svid, [l_offset, l_len])| nlm::Lock {
            caller_name,
            fh,
            oh,
            svid,
            l_offset,
            l_len,
        },
    )
}

fn my_id() -> impl Strategy<Value = nsm::MyId> {
    (opaque(), any::<[i32; 3]>()).prop_map(|(my_name, [my_prog, my_vers, my_proc])| nsm::MyId {
        my_name,
        my_prog,
        my_vers,
        my_proc,
    })
}

fn acl() -> impl Strategy<Value = nfsacl::Acl> {
    let entry = any::<[u32; 3]>().prop_map(|[tag, id, perm]| {
        let tag = nfsacl::AclTag(tag);
        nfsacl::AclEntry { tag, id, perm }
    });
    (any::<u32>(), prop::collection::vec(entry, 0..6))
        .prop_map(|(count, entries)| nfsacl::Acl { count, entries: List::new(entries).unwrap() })
}

proptest! {
    #[test]
    fn nfs2_arguments_round_trip(
        file in any::<[u8; 32]>(),
        attributes in sattr(),
        words in any::<[u32; 3]>(),
        from in dir_op(),
        to in dir_op(),
        path in opaque(),
        data in opaque(),
        cookie in any::<[u8; 4]>(),
    ) {
        let [offset, count, totalcount] = words;
        round_trip(&nfs2::SattrArgs { file, attributes });
        round_trip(&from);
        round_trip(&nfs2::ReadArgs { file, offset, count, totalcount });
        round_trip(&nfs2::WriteArgs { file, beginoffset: count, offset, totalcount, data });
        round_trip(&nfs2::CreateArgs { where_: from.clone(), attributes });
        round_trip(&nfs2::SymlinkArgs { from: from.clone(), to: path, attributes });
        round_trip(&nfs2::RenameArgs { from, to: to.clone() });
        round_trip(&nfs2::LinkArgs { from: file, to });
        round_trip(&nfs2::ReaddirArgs { dir: file, cookie, count });
    }

    #[test]
    fn nfs2_results_round_trip(
        status in 1u32..,
        attributes in fattr(),
        file in any::<[u8; 32]>(),
        path in opaque(),
        data in opaque(),
        entries in chain(entry()),
        eof in any::<bool>(),
        words in any::<[u32; 5]>(),
    ) {
        let status = nfs2::Stat(status);
        round_trip(&nfs2::AttrStat::Ok(attributes));
        round_trip(&nfs2::AttrStat::Fail(status));
        round_trip(&nfs2::DirOpRes::Ok(nfs2::DirOpOk { file, attributes }));
        round_trip(&nfs2::ReadlinkRes::Ok(path));
        round_trip(&nfs2::ReadRes::Ok(nfs2::ReadOk { attributes, data }));
        round_trip(&nfs2::ReaddirRes::Ok(nfs2::ReaddirOk { entries, eof }));
        round_trip(&nfs2::ReaddirRes::Fail(status));
        let [tsize, bsize, blocks, bfree, bavail] = words;
        round_trip(&nfs2::StatfsRes::Ok(nfs2::StatfsOk { tsize, bsize, blocks, bfree, bavail }));
    }

    #[test]
    fn nlm_types_round_trip(
        cookie in opaque(),
        flags in any::<[bool; 3]>(),
        alock in lock(),
        holder in holder(),
        state in any::<i32>(),
        words in any::<[u32; 3]>(),
    ) {
        let [block, exclusive, reclaim] = flags;
        let [status, mode, access] = words;
        let stat = nlm::Stats(status);
        round_trip(&nlm::TestArgs { cookie: cookie.clone(), exclusive, alock: alock.clone() });
        round_trip(&nlm::LockArgs {
            cookie: cookie.clone(),
            block,
            exclusive,
            alock: alock.clone(),
            reclaim,
            state,
        });
        round_trip(&nlm::CancelArgs { cookie: cookie.clone(), block, exclusive, alock: alock.clone() });
        round_trip(&nlm::UnlockArgs { cookie: cookie.clone(), alock: alock.clone() });
        round_trip(&nlm::Res { cookie: cookie.clone(), stat });
        round_trip(&nlm::TestRes { cookie: cookie.clone(), stat: nlm::TestReply::Denied(holder) });
        if stat != nlm::Stats::DENIED {
            round_trip(&nlm::TestRes { cookie: cookie.clone(), stat: nlm::TestReply::<u64>::Other(stat) });
        }
        let (mode, access) = (nlm::ShareMode(mode), nlm::ShareAccess(access));
        let nlm::Lock { caller_name, fh, oh, .. } = alock;
        round_trip(&nlm::Notify { name: caller_name.clone(), state });
        let share = nlm::Share { caller_name, fh, oh, mode, access };
        round_trip(&nlm::ShareArgs { cookie: cookie.clone(), share, reclaim });
        round_trip(&nlm::ShareRes { cookie, stat, sequence: state });
    }

    #[test]
    fn nsm_types_round_trip(
        mon_name in opaque(),
        my_id in my_id(),
        priv_ in any::<[u8; 16]>(),
        state in any::<i32>(),
        res in any::<u32>(),
    ) {
        round_trip(&nsm::StatRes { res_stat: nsm::Outcome(res), state });
        round_trip(&nsm::SmStat { state });
        round_trip(&my_id);
        round_trip(&nsm::StateChange { mon_name: mon_name.clone(), state });
        round_trip(&nsm::Status { mon_name: mon_name.clone(), state, priv_ });
        let mon_id = nsm::MonId { mon_name, my_id };
        round_trip(&mon_id);
        round_trip(&nsm::Mon { mon_id, priv_ });
    }

    #[test]
    fn rquota_types_round_trip(
        path in opaque(),
        numbers in any::<[i32; 3]>(),
        words in any::<[u32; 8]>(),
        kind in any::<u32>(),
        active in any::<bool>(),
        status in 2u32..,
    ) {
        let [command, id, bsize] = numbers;
        let kind = rquota::QuotaKind(kind);
        let [bhardlimit, bsoftlimit, curblocks, fhardlimit, fsoftlimit, curfiles, btimeleft, ftimeleft] = words;
        let dqblk = rquota::DqBlk {
            bhardlimit, bsoftlimit, curblocks, fhardlimit, fsoftlimit, curfiles, btimeleft, ftimeleft,
        };
        round_trip(&rquota::GetQuotaArgs { path: path.clone(), uid: id });
        round_trip(&rquota::ExtGetQuotaArgs { path: path.clone(), kind, id });
        round_trip(&rquota::SetQuotaArgs { command, path: path.clone(), id, dqblk });
        round_trip(&rquota::ExtSetQuotaArgs { command, path, id, kind, dqblk });
        round_trip(&rquota::QuotaResult::Ok(rquota::Rquota {
            bsize, active, bhardlimit, bsoftlimit, curblocks, fhardlimit, fsoftlimit, curfiles, btimeleft, ftimeleft,
        }));
        round_trip(&rquota::QuotaResult::Fail(rquota::QuotaStatus(status)));
    }

    #[test]
    fn nfsacl_types_round_trip(fh in inline(), mask in any::<u32>(), acl in acl(), dfacl in acl()) {
        let mask = nfsacl::Mask::from_bits_retain(mask);
        let acl = nfsacl::SecAttr { mask, acl, dfacl };
        round_trip(&nfsacl::GetAclArgs { fh, mask });
        round_trip(&nfsacl::SetAclArgs { fh, acl: acl.clone() });
        round_trip(&nfsacl::GetAclResult::Ok(nfsacl::GetAclOk { attributes: None, acl }));
        round_trip(&nfsacl::GetAclResult::Fail(nfs3::NfsStat::STALE, None));
        round_trip(&nfsacl::SetAclResult::Ok(None));
    }
}

/// RFC 1094 §2.3.5 and §2.3.6: seventeen and eight words; "A value of -1 indicates a field that should be ignored".
#[test]
fn nfs2_attributes_have_the_layout_of_the_rfc() {
    let words: Vec<u8> = (1..=17u32).flat_map(u32::to_be_bytes).collect();
    let fattr: nfs2::Fattr = xdr::from_bytes(words).unwrap();
    assert_eq!(
        (fattr.file_type, fattr.mode, fattr.nlink, fattr.uid, fattr.gid),
        (nfs2::FileType::REG, 2, 3, 4, 5)
    );
    assert_eq!((fattr.size, fattr.blocksize, fattr.rdev, fattr.blocks), (6, 7, 8, 9));
    assert_eq!((fattr.fsid, fattr.fileid), (10, 11));
    assert_eq!(fattr.ctime, nfs2::TimeVal { seconds: 16, useconds: 17 });
    assert_eq!(xdr::to_bytes(&nfs2::Sattr::NONE)[..], [0xff; 32]);
}
