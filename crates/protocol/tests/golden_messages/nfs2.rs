//! NFS version 2.

use std::collections::BTreeSet;

use protocol::nfs2::*;

use crate::golden::{Golden, all};
use crate::shown::{Shown, Shows};
use crate::{same_as_tshark, same_bytes, shown};

fn time(shows: &mut Shows, [seconds, useconds]: [&'static str; 2], time: TimeVal) {
    shows.put(seconds, time.seconds);
    shows.put(useconds, time.useconds);
}

const ATIME: [&str; 2] = ["nfs.atime.sec", "nfs.atime.usec"];
const MTIME: [&str; 2] = ["nfs.mtime.sec", "nfs.mtime.usec"];
const CTIME: [&str; 2] = ["nfs.ctime.sec", "nfs.ctime.usec"];

shown!(Stat, |status, shows| { shows.put("nfs.status2", status.0) });

impl<T: Shown> Shown for Outcome<T> {
    fn show(&self, shows: &mut Shows) {
        self.status().show(shows);
        if let Self::Ok(ok) = self {
            ok.show(shows);
        }
    }
}

shown!(Fattr, |a, shows| {
    shows.put("nfs.ftype", a.file_type.0);
    shows.put("nfs.mode", a.mode);
    shows.put("nfs.fattr.nlink", a.nlink);
    shows.put("nfs.fattr.uid", a.uid);
    shows.put("nfs.fattr.gid", a.gid);
    shows.put("nfs.fattr.size", a.size);
    shows.put("nfs.fattr.blocksize", a.blocksize);
    shows.put("nfs.fattr.rdev", a.rdev);
    shows.put("nfs.fattr.blocks", a.blocks);
    shows.put("nfs.fattr.fsid", format!("{:#010x}", a.fsid));
    shows.put("nfs.fattr.fileid", a.fileid);
    time(shows, ATIME, a.atime);
    time(shows, MTIME, a.mtime);
    time(shows, CTIME, a.ctime);
});

shown!(Sattr, |a, shows| {
    shows.put("nfs.mode", a.mode);
    shows.put("nfs.fattr.uid", a.uid);
    shows.put("nfs.fattr.gid", a.gid);
    shows.put("nfs.fattr.size", a.size);
    // tshark shows a time that is not to be set as one in 2106.
    for (names, to) in [(ATIME, a.atime), (MTIME, a.mtime)] {
        if to != Sattr::NONE.atime {
            time(shows, names, to);
        }
    }
});

shown!(FileHandle, |handle, shows| { shows.bytes("nfs.fhandle", handle) });
shown!(DirOpArgs, |what, shows| {
    what.dir.show(shows);
    shows.text("nfs.name", &what.name);
});
shown!(DirOpOk, |ok, shows| {
    ok.file.show(shows);
    ok.attributes.show(shows);
});
shown!(SattrArgs, |args, shows| {
    args.file.show(shows);
    args.attributes.show(shows);
});
shown!(ReadArgs, |args, shows| {
    args.file.show(shows);
    shows.put("nfs.read.offset", args.offset);
    shows.put("nfs.read.count", args.count);
    shows.put("nfs.read.totalcount", args.totalcount);
});
shown!(ReadOk, |ok, shows| {
    ok.attributes.show(shows);
    shows.bytes("nfs.data", &ok.data);
});
shown!(WriteArgs, |args, shows| {
    args.file.show(shows);
    shows.put("nfs.write.beginoffset", args.beginoffset);
    shows.put("nfs.write.offset", args.offset);
    shows.put("nfs.write.totalcount", args.totalcount);
    shows.bytes("nfs.data", &args.data);
});
shown!(CreateArgs, |args, shows| {
    args.where_.show(shows);
    args.attributes.show(shows);
});
shown!(RenameArgs, |args, shows| {
    args.from.show(shows);
    args.to.show(shows);
});
shown!(LinkArgs, |args, shows| {
    args.from.show(shows);
    args.to.show(shows);
});
shown!(SymlinkArgs, |args, shows| {
    args.from.show(shows);
    // tshark shows other bytes as replacement characters.
    if args.to.is_ascii() {
        shows.text("nfs.symlink.to", &args.to);
    }
    args.attributes.show(shows);
});
shown!(ReaddirArgs, |args, shows| {
    args.dir.show(shows);
    shows.put("nfs.readdir.cookie", u32::from_be_bytes(args.cookie));
    shows.put("nfs.readdir.count", args.count);
});
shown!(ReaddirOk, |ok, shows| {
    for entry in ok.entries.iter() {
        shows.put("rpc.value_follows", 1);
        shows.put("nfs.readdir.entry.fileid", entry.fileid);
        shows.text("nfs.readdir.entry.name", &entry.name);
        shows.put("nfs.readdir.entry.cookie", u32::from_be_bytes(entry.cookie));
    }
    shows.put("rpc.value_follows", 0);
    shows.flag("nfs.readdir.eof", ok.eof);
});
shown!(StatfsOk, |ok, shows| {
    shows.put("nfs.statfs.tsize", ok.tsize);
    shows.put("nfs.statfs.bsize", ok.bsize);
    shows.put("nfs.statfs.blocks", ok.blocks);
    shows.put("nfs.statfs.bfree", ok.bfree);
    shows.put("nfs.statfs.bavail", ok.bavail);
});

fn check(golden: &Golden) {
    let parts: Vec<&str> = golden.name.split('_').take(2).collect();
    let check: fn(&Golden) = match parts[..] {
        ["null", _] => same_as_tshark::<()>,
        ["getattr" | "statfs", "call"] => same_as_tshark::<FileHandle>,
        ["getattr" | "setattr" | "write", "reply"] => same_as_tshark::<AttrStat>,
        ["setattr", _] => same_as_tshark::<SattrArgs>,
        ["lookup" | "remove" | "rmdir", "call"] => same_as_tshark::<DirOpArgs>,
        ["lookup" | "create" | "mkdir", "reply"] => same_as_tshark::<DirOpRes>,
        ["remove" | "rmdir" | "rename" | "link" | "symlink", "reply"] => same_as_tshark::<Stat>,
        ["read", "call"] => same_as_tshark::<ReadArgs>,
        ["read", _] => same_as_tshark::<ReadRes>,
        ["write", _] => same_as_tshark::<WriteArgs>,
        ["create" | "mkdir", _] => same_as_tshark::<CreateArgs>,
        ["rename", _] => same_as_tshark::<RenameArgs>,
        ["link", _] => same_as_tshark::<LinkArgs>,
        ["symlink", _] => same_as_tshark::<SymlinkArgs>,
        ["readdir", "call"] => same_as_tshark::<ReaddirArgs>,
        ["readdir", _] => same_as_tshark::<ReaddirRes>,
        ["statfs", _] => same_as_tshark::<StatfsRes>,
        _ => panic!("{} belongs to no procedure", golden.name),
    };
    check(golden);
}

#[test]
fn messages_match_tshark() {
    all("nfs2").iter().for_each(check);
}

/// RFC 1094 §2.2: ROOT and WRITECACHE are obsolete. The client had no cause for READLINK.
#[test]
fn every_other_procedure_has_a_recorded_call_and_reply() {
    let seen: BTreeSet<String> =
        all("nfs2").iter().map(|g| g.name.split('_').take(2).collect::<Vec<_>>().join("_")).collect();
    for procedure in TABLE.procedures {
        let is_missing = ["ROOT", "WRITECACHE", "READLINK"].contains(&procedure.name);
        for way in ["call", "reply"] {
            let name = format!("{}_{way}", procedure.name.to_lowercase());
            assert_eq!(seen.contains(&name), !is_missing, "{name}");
        }
    }
}

#[test]
fn error_reply_has_its_status() {
    let golden = all("nfs2");
    let named = |name: &str| golden.iter().find(|g| g.name == name).unwrap();
    assert_eq!(same_bytes::<DirOpRes>(named("lookup_reply_noent")).status(), Stat::NOENT);
    assert_eq!(same_bytes::<Stat>(named("rmdir_reply_notempty")), Stat::NOTEMPTY);
}
