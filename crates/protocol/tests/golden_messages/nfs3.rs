//! NFS version 3.

use std::collections::BTreeSet;

use protocol::nfs3::*;

use crate::golden::{Golden, all};
use crate::shown::{Shown, Shows};
use crate::{same_as_tshark, same_bytes, shown};

fn handle(shows: &mut Shows, handle: &FileHandle) {
    shows.bytes("nfs.fhandle", handle);
}

fn attributes(shows: &mut Shows, attributes: &PostOpAttr) {
    shows.flag("nfs.attributes_follow", attributes.is_some());
    attributes.iter().for_each(|a| a.show(shows));
}

fn time(shows: &mut Shows, [seconds, nseconds]: [&'static str; 2], time: &NfsTime) {
    shows.put(seconds, time.seconds);
    shows.put(nseconds, time.nseconds);
}

const ATIME: [&str; 2] = ["nfs.atime.sec", "nfs.atime.nsec"];
const MTIME: [&str; 2] = ["nfs.mtime.sec", "nfs.mtime.nsec"];
const CTIME: [&str; 2] = ["nfs.ctime.sec", "nfs.ctime.nsec"];

impl<T: Shown, F: Shown> Shown for Outcome<T, F> {
    fn show(&self, shows: &mut Shows) {
        shows.put("nfs.status3", self.status().0);
        match self {
            Self::Ok(ok) => ok.show(shows),
            Self::Fail(_, fail) => fail.show(shows),
        }
    }
}

shown!(Fattr, |a, shows| {
    shows.put("nfs.fattr3.type", a.file_type.0);
    shows.put("nfs.mode3", a.mode);
    shows.put("nfs.fattr3.nlink", a.nlink);
    shows.put("nfs.fattr3.uid", a.uid);
    shows.put("nfs.fattr3.gid", a.gid);
    shows.put("nfs.fattr3.size", a.size);
    shows.put("nfs.fattr3.used", a.used);
    a.rdev.show(shows);
    shows.put("nfs.fattr3.fsid", format!("{:#018x}", a.fsid));
    shows.put("nfs.fattr3.fileid", a.fileid);
    time(shows, ATIME, &a.atime);
    time(shows, MTIME, &a.mtime);
    time(shows, CTIME, &a.ctime);
});

shown!(SpecData, |numbers, shows| {
    shows.put("nfs.specdata1", numbers.major);
    shows.put("nfs.specdata2", numbers.minor);
});

shown!(PostOpAttr, |this, shows| { attributes(shows, this) });

shown!(WccData, |wcc, shows| {
    shows.flag("nfs.attributes_follow", wcc.before.is_some());
    if let Some(before) = &wcc.before {
        shows.put("nfs.wcc_attr.size", before.size);
        time(shows, MTIME, &before.mtime);
        time(shows, CTIME, &before.ctime);
    }
    attributes(shows, &wcc.after);
});

shown!(Sattr, |a, shows| {
    let word = |shows: &mut Shows, name, value: Option<u64>| {
        shows.flag("nfs.set_it", value.is_some());
        value.iter().for_each(|value| shows.put(name, value));
    };
    word(shows, "nfs.mode3", a.mode.map(u64::from));
    word(shows, "nfs.uid3", a.uid.map(u64::from));
    word(shows, "nfs.gid3", a.gid.map(u64::from));
    word(shows, "nfs.set_size", a.size);
    // tshark 4.0 calls both times atime.
    for set in [a.atime, a.mtime] {
        match set {
            SetTime::DontChange => shows.put("nfs.set_it", 0),
            SetTime::ToServerTime => shows.put("nfs.set_it", 1),
            SetTime::ToClientTime(to) => {
                shows.put("nfs.set_it", 2);
                time(shows, ATIME, &to);
            }
        }
    }
});

shown!(DirOpArgs, |what, shows| {
    handle(shows, &what.dir);
    shows.text("nfs.name", &what.name);
});

shown!(GetattrArgs, |args, shows| { handle(shows, &args.object) });

shown!(SetattrArgs, |args, shows| {
    handle(shows, &args.object);
    args.new_attributes.show(shows);
    shows.flag("nfs.sattrguard3", args.guard.is_some());
    args.guard.iter().for_each(|guard| time(shows, CTIME, guard));
});

shown!(LookupArgs, |args, shows| { args.what.show(shows) });
shown!(LookupOk, |ok, shows| {
    handle(shows, &ok.object);
    attributes(shows, &ok.obj_attributes);
    attributes(shows, &ok.dir_attributes);
});

shown!(AccessArgs, |args, shows| {
    handle(shows, &args.object);
    shows.put("nfs.access_check", format!("{:#04x}", args.access.bits()));
});
shown!(AccessOk, |ok, shows| {
    attributes(shows, &ok.obj_attributes);
    shows.put("nfs.access_rights", format!("{:#04x}", ok.access.bits()));
});

shown!(ReadlinkArgs, |args, shows| { handle(shows, &args.symlink) });
shown!(ReadlinkOk, |ok, shows| {
    attributes(shows, &ok.symlink_attributes);
    shows.text("nfs.readlink.data", &ok.data);
});

shown!(ReadArgs, |args, shows| {
    handle(shows, &args.file);
    shows.put("nfs.offset3", args.offset);
    shows.put("nfs.count3", args.count);
});
shown!(ReadOk, |ok, shows| {
    attributes(shows, &ok.file_attributes);
    shows.put("nfs.count3", ok.count);
    shows.flag("nfs.read.eof", ok.eof);
    shows.bytes("nfs.data", &ok.data);
});

shown!(WriteArgs, |args, shows| {
    handle(shows, &args.file);
    shows.put("nfs.offset3", args.offset);
    shows.put("nfs.count3", args.count);
    shows.put("nfs.write.stable", args.stable as u32);
    shows.bytes("nfs.data", &args.data);
});
shown!(WriteOk, |ok, shows| {
    ok.file_wcc.show(shows);
    shows.put("nfs.count3", ok.count);
    shows.put("nfs.write.committed", ok.committed as u32);
    shows.bytes("nfs.verifier", &ok.verf);
});

shown!(CreateArgs, |args, shows| {
    args.where_.show(shows);
    match &args.how {
        CreateHow::Unchecked(attributes) => {
            shows.put("nfs.createmode", 0);
            attributes.show(shows);
        }
        CreateHow::Guarded(attributes) => {
            shows.put("nfs.createmode", 1);
            attributes.show(shows);
        }
        CreateHow::Exclusive(verf) => {
            shows.put("nfs.createmode", 2);
            shows.bytes("nfs.verifier", verf);
        }
    }
});
shown!(CreateOk, |ok, shows| {
    shows.flag("nfs.handle_follow", ok.obj.is_some());
    ok.obj.iter().for_each(|obj| handle(shows, obj));
    attributes(shows, &ok.obj_attributes);
    ok.dir_wcc.show(shows);
});

shown!(MkdirArgs, |args, shows| {
    args.where_.show(shows);
    args.attributes.show(shows);
});
shown!(SymlinkArgs, |args, shows| {
    args.where_.show(shows);
    args.symlink_attributes.show(shows);
    shows.text("nfs.symlink.to", &args.symlink_data);
});
shown!(MknodArgs, |args, shows| {
    args.where_.show(shows);
    let (file_type, attributes, device) = match &args.what {
        MknodData::CharacterDevice(device) => (FileType::CHR, device.dev_attributes, Some(device.spec)),
        MknodData::BlockDevice(device) => (FileType::BLK, device.dev_attributes, Some(device.spec)),
        MknodData::Socket(attributes) => (FileType::SOCK, *attributes, None),
        MknodData::Fifo(attributes) => (FileType::FIFO, *attributes, None),
        MknodData::Other(file_type) => panic!("a type {file_type} was not recorded"),
    };
    shows.put("nfs.type", file_type.0);
    attributes.show(shows);
    device.iter().for_each(|device| device.show(shows));
});

shown!(RemoveArgs, |args, shows| { args.object.show(shows) });
shown!(RenameArgs, |args, shows| {
    args.from.show(shows);
    args.to.show(shows);
});
shown!(RenameWcc, |wcc, shows| {
    wcc.fromdir_wcc.show(shows);
    wcc.todir_wcc.show(shows);
});
shown!(LinkArgs, |args, shows| {
    handle(shows, &args.file);
    args.link.show(shows);
});
shown!(LinkWcc, |wcc, shows| {
    attributes(shows, &wcc.file_attributes);
    wcc.linkdir_wcc.show(shows);
});

shown!(ReaddirArgs, |args, shows| {
    handle(shows, &args.dir);
    shows.put("nfs.cookie3", args.cookie);
    shows.bytes("nfs.verifier", &args.cookieverf);
    shows.put("nfs.count3", args.count);
});
shown!(ReaddirOk, |ok, shows| {
    attributes(shows, &ok.dir_attributes);
    shows.bytes("nfs.verifier", &ok.cookieverf);
    for entry in &ok.reply.entries {
        shows.put("nfs.readdir.entry3.fileid", entry.fileid);
        shows.text("nfs.readdir.entry3.name", &entry.name);
        shows.put("nfs.readdir.entry3.cookie", entry.cookie);
    }
    shows.flag("nfs.readdir.eof", ok.reply.eof);
});

shown!(ReaddirplusArgs, |args, shows| {
    handle(shows, &args.dir);
    shows.put("nfs.cookie3", args.cookie);
    shows.bytes("nfs.verifier", &args.cookieverf);
    shows.put("nfs.count3_dircount", args.dircount);
    shows.put("nfs.count3_maxcount", args.maxcount);
});
shown!(ReaddirplusOk, |ok, shows| {
    attributes(shows, &ok.dir_attributes);
    shows.bytes("nfs.verifier", &ok.cookieverf);
    for entry in &ok.reply.entries {
        shows.put("nfs.readdirplus.entry.fileid", entry.fileid);
        shows.text("nfs.readdirplus.entry.name", &entry.name);
        shows.put("nfs.readdirplus.entry.cookie", entry.cookie);
        attributes(shows, &entry.name_attributes);
        shows.flag("nfs.handle_follow", entry.name_handle.is_some());
        entry.name_handle.iter().for_each(|name| handle(shows, name));
    }
    shows.flag("nfs.readdir.eof", ok.reply.eof);
});

shown!(FsstatArgs, |args, shows| { handle(shows, &args.fsroot) });
shown!(FsstatOk, |ok, shows| {
    attributes(shows, &ok.obj_attributes);
    shows.put("nfs.fsstat3_resok.tbytes", ok.tbytes);
    shows.put("nfs.fsstat3_resok.fbytes", ok.fbytes);
    shows.put("nfs.fsstat3_resok.abytes", ok.abytes);
    shows.put("nfs.fsstat3_resok.tfiles", ok.tfiles);
    shows.put("nfs.fsstat3_resok.ffiles", ok.ffiles);
    shows.put("nfs.fsstat3_resok.afiles", ok.afiles);
    shows.put("nfs.fsstat.invarsec", ok.invarsec);
});

shown!(FsinfoArgs, |args, shows| { handle(shows, &args.fsroot) });
shown!(FsinfoOk, |ok, shows| {
    attributes(shows, &ok.obj_attributes);
    shows.put("nfs.fsinfo.rtmax", ok.rtmax);
    shows.put("nfs.fsinfo.rtpref", ok.rtpref);
    shows.put("nfs.fsinfo.rtmult", ok.rtmult);
    shows.put("nfs.fsinfo.wtmax", ok.wtmax);
    shows.put("nfs.fsinfo.wtpref", ok.wtpref);
    shows.put("nfs.fsinfo.wtmult", ok.wtmult);
    shows.put("nfs.fsinfo.dtpref", ok.dtpref);
    shows.put("nfs.fsinfo.maxfilesize", ok.maxfilesize);
    time(shows, ["nfs.dtime.sec", "nfs.dtime.nsec"], &ok.time_delta);
    shows.put("nfs.fsinfo.properties", format!("{:#010x}", ok.properties.bits()));
});

shown!(PathconfArgs, |args, shows| { handle(shows, &args.object) });
shown!(PathconfOk, |ok, shows| {
    attributes(shows, &ok.obj_attributes);
    shows.put("nfs.pathconf.linkmax", ok.linkmax);
    shows.put("nfs.pathconf.name_max", ok.name_max);
    shows.flag("nfs.pathconf.no_trunc", ok.no_trunc);
    shows.flag("nfs.pathconf.chown_restricted", ok.chown_restricted);
    shows.flag("nfs.pathconf.case_insensitive", ok.case_insensitive);
    shows.flag("nfs.pathconf.case_preserving", ok.case_preserving);
});

shown!(CommitArgs, |args, shows| {
    handle(shows, &args.file);
    shows.put("nfs.offset3", args.offset);
    shows.put("nfs.count3", args.count);
});
shown!(CommitOk, |ok, shows| {
    ok.file_wcc.show(shows);
    shows.bytes("nfs.verifier", &ok.verf);
});

fn check(golden: &Golden) {
    let check = match golden.name.split('_').take(2).collect::<Vec<_>>()[..] {
        ["null", _] => same_as_tshark::<()>,
        ["getattr", "call"] => same_as_tshark::<GetattrArgs>,
        ["getattr", _] => same_as_tshark::<GetattrResult>,
        ["setattr", "call"] => same_as_tshark::<SetattrArgs>,
        ["setattr", _] => same_as_tshark::<SetattrResult>,
        ["lookup", "call"] => same_as_tshark::<LookupArgs>,
        ["lookup", _] => same_as_tshark::<LookupResult>,
        ["access", "call"] => same_as_tshark::<AccessArgs>,
        ["access", _] => same_as_tshark::<AccessResult>,
        ["readlink", "call"] => same_as_tshark::<ReadlinkArgs>,
        ["readlink", _] => same_as_tshark::<ReadlinkResult>,
        ["read", "call"] => same_as_tshark::<ReadArgs>,
        ["read", _] => same_as_tshark::<ReadResult>,
        ["write", "call"] => same_as_tshark::<WriteArgs>,
        ["write", _] => same_as_tshark::<WriteResult>,
        ["create", "call"] => same_as_tshark::<CreateArgs>,
        ["create", _] => same_as_tshark::<CreateResult>,
        ["mkdir", "call"] => same_as_tshark::<MkdirArgs>,
        ["mkdir", _] => same_as_tshark::<MkdirResult>,
        ["symlink", "call"] => same_as_tshark::<SymlinkArgs>,
        ["symlink", _] => same_as_tshark::<SymlinkResult>,
        ["mknod", "call"] => same_as_tshark::<MknodArgs>,
        ["mknod", _] => same_as_tshark::<MknodResult>,
        ["remove", "call"] => same_as_tshark::<RemoveArgs>,
        ["remove", _] => same_as_tshark::<RemoveResult>,
        ["rmdir", "call"] => same_as_tshark::<RmdirArgs>,
        ["rmdir", _] => same_as_tshark::<RmdirResult>,
        ["rename", "call"] => same_as_tshark::<RenameArgs>,
        ["rename", _] => same_as_tshark::<RenameResult>,
        ["link", "call"] => same_as_tshark::<LinkArgs>,
        ["link", _] => same_as_tshark::<LinkResult>,
        ["readdir", "call"] => same_as_tshark::<ReaddirArgs>,
        ["readdir", _] => same_as_tshark::<ReaddirResult>,
        ["readdirplus", "call"] => same_as_tshark::<ReaddirplusArgs>,
        ["readdirplus", _] => same_as_tshark::<ReaddirplusResult>,
        ["fsstat", "call"] => same_as_tshark::<FsstatArgs>,
        ["fsstat", _] => same_as_tshark::<FsstatResult>,
        ["fsinfo", "call"] => same_as_tshark::<FsinfoArgs>,
        ["fsinfo", _] => same_as_tshark::<FsinfoResult>,
        ["pathconf", "call"] => same_as_tshark::<PathconfArgs>,
        ["pathconf", _] => same_as_tshark::<PathconfResult>,
        ["commit", "call"] => same_as_tshark::<CommitArgs>,
        ["commit", _] => same_as_tshark::<CommitResult>,
        _ => panic!("{} belongs to no procedure", golden.name),
    };
    check(golden);
}

#[test]
fn messages_match_tshark() {
    all("nfs3").iter().for_each(check);
}

#[test]
fn every_procedure_has_a_recorded_call_and_reply() {
    let seen: BTreeSet<String> =
        all("nfs3").iter().map(|g| g.name.split('_').take(2).collect::<Vec<_>>().join("_")).collect();
    for procedure in TABLE.procedures {
        for way in ["call", "reply"] {
            let name = format!("{}_{way}", procedure.name.to_lowercase());
            assert!(seen.contains(&name), "no {name} was recorded");
        }
    }
}

#[test]
fn error_reply_has_its_status() {
    let reply = |name: &str| same_bytes::<RemoveResult>(all("nfs3").iter().find(|g| g.name == name).unwrap());
    assert_eq!(reply("remove_reply_noent").status(), NfsStat::NOENT);
    assert_eq!(reply("rmdir_reply_notempty").status(), NfsStat::NOTEMPTY);
}
