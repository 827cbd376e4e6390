//! Objects of all kinds: the status with which each procedure refuses them.

use super::*;

#[test]
fn readlink_returns_the_text_unchanged() {
    let pair = pair();
    let text = b"/no\xffwhere/../at all";
    let link = pair.symlink(b"link", text);
    let read = |symlink| pair.call::<ReadlinkResult>(Proc::READLINK, &ReadlinkArgs { symlink });
    let ok = read(link).into_result().unwrap();
    assert_eq!(&*ok.data, text);
    let attributes = ok.symlink_attributes.unwrap();
    assert_eq!((attributes.file_type, attributes.size), (FileType::LNK, text.len() as u64));
    // RFC 1813 §3.3.5: "The READLINK operation is only allowed on objects of type, NF3LNK. The server should return the error,
    // NFS3ERR_INVAL, if the object is not of type, NF3LNK."
    for other in [pair.file(b"file"), pair.root] {
        assert_eq!(read(other).status(), NfsStat::INVAL);
    }
}

#[test]
fn access_is_granted_by_the_mode_bits() {
    let mut pair = pair();
    let (file, program) = (pair.file(b"file"), pair.file(b"program"));
    let dir = pair.mkdir(b"dir", 0o750);
    for (object, mode) in [(file, 0o640), (program, 0o751), (dir, 0o754)] {
        let new_attributes = Sattr { mode: Some(mode), uid: Some(1000), gid: Some(2000), ..Sattr::default() };
        assert_eq!(
            pair.status(Proc::SETATTR, &SetattrArgs { object, new_attributes, guard: None }),
            NfsStat::OK
        );
    }
    let (read, write, execute) = (Access::READ, Access::MODIFY | Access::EXTEND, Access::EXECUTE);
    let (search, change) = (Access::LOOKUP, Access::MODIFY | Access::EXTEND | Access::DELETE);
    let none = Access::empty();
    // RFC 1813 §3.3.4: LOOKUP and DELETE apply to directories, and EXECUTE "has no meaning" there. Changing a directory needs search
    // permission too.
    let (owner, group, others) = (1000, 2000, 3000);
    for (uid, object, expected) in [
        (owner, file, read | write),
        (group, file, read),
        (others, file, none),
        (owner, program, read | write | execute),
        (group, program, read | execute),
        (others, program, execute),
        (owner, dir, read | search | change),
        (group, dir, read | search),
        (others, dir, read),
    ] {
        // Callers here have a group of the same number as their uid.
        pair.uid = uid;
        for asked in [Access::all(), expected, read, none] {
            let reported: AccessResult = pair.call(Proc::ACCESS, &AccessArgs { object, access: asked });
            assert_eq!(reported.into_result().unwrap().access, expected & asked, "{uid} {object:?}");
        }
    }
}

#[test]
fn mknod_creates_special_files_only() {
    let mut pair = pair();
    let attributes = Sattr { mode: Some(0o622), ..Sattr::default() };
    let device = || DeviceData { dev_attributes: attributes, spec: SpecData { major: 5, minor: 0x1_0001 } };
    let mknod = |pair: &Pair, name, what| -> MknodResult {
        pair.call(Proc::MKNOD, &MknodArgs { where_: pair.at(name), what })
    };
    for (name, what, kind, rdev) in [
        (&b"chr"[..], MknodData::CharacterDevice(device()), FileType::CHR, device().spec),
        (b"blk", MknodData::BlockDevice(device()), FileType::BLK, device().spec),
        (b"sock", MknodData::Socket(attributes), FileType::SOCK, SpecData::default()),
        (b"fifo", MknodData::Fifo(attributes), FileType::FIFO, SpecData::default()),
    ] {
        let made = mknod(&pair, name, what).into_result().unwrap();
        let reported = made.obj_attributes.unwrap();
        assert_eq!((reported.file_type, reported.rdev, reported.mode), (kind, rdev, 0o622));
        assert_eq!(pair.attributes(made.obj.unwrap()), reported);
        assert_eq!(mknod(&pair, name, what).status(), NfsStat::EXIST);
    }
    // RFC 1813 §3.3.11: "If the target type is illegal, the error, NFS3ERR_BADTYPE, should be returned. … illegal types for
    // MKNOD": the types that CREATE, MKDIR and SYMLINK create, and unknown ones.
    for kind in [FileType::REG.0, FileType::DIR.0, FileType::LNK.0, 0, 8, u32::MAX] {
        assert_eq!(mknod(&pair, b"new", MknodData::Other(kind)).status(), NfsStat::BADTYPE, "{kind}");
    }
    let new_attributes = Sattr { mode: Some(0o777), ..Sattr::default() };
    let args = SetattrArgs { object: pair.root, new_attributes, guard: None };
    assert_eq!(pair.status(Proc::SETATTR, &args), NfsStat::OK);
    // POSIX: only the superuser may create a device; any user may create a pipe.
    pair.uid = 1000;
    assert_eq!(mknod(&pair, b"mine", MknodData::CharacterDevice(device())).status(), NfsStat::PERM);
    assert_eq!(mknod(&pair, b"mine", MknodData::Fifo(attributes)).status(), NfsStat::OK);
}

#[test]
fn removes_only_empty_objects_of_the_right_kind() {
    let pair = pair();
    let dir = pair.mkdir(b"dir", 0o755);
    pair.file(b"file");
    let inner = |name: &'static [u8]| DirOpArgs { dir, name: Filename::from_static(name) };
    let how = CreateHow::Guarded(Sattr::default());
    assert_eq!(pair.status(Proc::CREATE, &CreateArgs { where_: inner(b"inner"), how }), NfsStat::OK);
    let rmdir = |name| pair.status(Proc::RMDIR, &RemoveArgs { object: pair.at(name) });
    let remove = |object| pair.status(Proc::REMOVE, &RemoveArgs { object });
    assert_eq!(rmdir(b"dir"), NfsStat::NOTEMPTY);
    assert_eq!(rmdir(b"file"), NfsStat::NOTDIR);
    assert_eq!((rmdir(b"none"), remove(pair.at(b"none"))), (NfsStat::NOENT, NfsStat::NOENT));
    assert_eq!(remove(pair.at(b"dir")), NfsStat::ISDIR);
    assert_eq!(remove(inner(b"inner")), NfsStat::OK);
    assert_eq!(rmdir(b"dir"), NfsStat::OK);
    assert_eq!(remove(inner(b"inner")), NfsStat::STALE, "the directory is gone");
}

#[test]
fn rename_replaces_only_empty_objects_of_the_same_kind() {
    let pair = pair();
    let full = pair.mkdir(b"full", 0o755);
    for name in [&b"empty"[..], b"dir"] {
        pair.mkdir(name, 0o755);
    }
    let (file, _) = (pair.file(b"file"), pair.file(b"other"));
    let inner = |name: &'static [u8]| DirOpArgs { dir: full, name: Filename::from_static(name) };
    let rename = |from, to| pair.status(Proc::RENAME, &RenameArgs { from, to });
    assert_eq!(rename(pair.at(b"other"), inner(b"other")), NfsStat::OK);
    // RFC 1813 §3.3.14: "either both are non-directories or both are directories and the target must be empty". The errors are those
    // of Linux's server.
    for (from, to, expected) in [
        (pair.at(b"dir"), pair.at(b"full"), NfsStat::NOTEMPTY),
        (pair.at(b"file"), pair.at(b"empty"), NfsStat::ISDIR),
        (pair.at(b"dir"), pair.at(b"file"), NfsStat::NOTDIR),
        (pair.at(b"full"), inner(b"below"), NfsStat::INVAL),
        (pair.at(b"none"), pair.at(b"file"), NfsStat::NOENT),
        (pair.at(b"dir"), pair.at(b"empty"), NfsStat::OK),
        (pair.at(b"file"), inner(b"other"), NfsStat::OK),
    ] {
        assert_eq!(rename(from.clone(), to.clone()), expected, "{from:?} {to:?}");
    }
    // "If from and to both refer to the same file (they might be hard links of each other), then RENAME should perform no action
    // and return NFS3_OK."
    assert_eq!(pair.status(Proc::LINK, &LinkArgs { file, link: pair.at(b"hard") }), NfsStat::OK);
    assert_eq!(rename(pair.at(b"hard"), inner(b"other")), NfsStat::OK);
    assert_eq!((pair.attributes(file).nlink, pair.lookup(b"hard").status()), (2, NfsStat::OK));
}

#[test]
fn link_and_rename_stay_within_one_export() {
    let export = |id: u32, path: &str| Export {
        id: ExportId(id),
        path: path.into(),
        backend: Arc::new(MemFs::new(&MemOptions { identity: [id as u8; 16], ..MemOptions::default() })),
        options: ExportOptions { squash: Squash::None, ..ExportOptions::default() },
        fsid: (u64::from(id), 0),
        counts: Arc::default(),
    };
    let exports = vec![export(1, "/one"), export(2, "/two")];
    let elsewhere = top(&exports[1]);
    let pair = pair_of(exports, 0);
    let file = pair.file(b"file");
    let to = || DirOpArgs { dir: elsewhere, name: Filename::from_static(b"file") };
    // RFC 1813 §3.3.14, §3.3.15: "If they reside on different file systems, the error, NFS3ERR_XDEV, is returned."
    let rename = RenameArgs { from: pair.at(b"file"), to: to() };
    assert_eq!(pair.status(Proc::RENAME, &rename), NfsStat::XDEV);
    assert_eq!(pair.status(Proc::LINK, &LinkArgs { file, link: to() }), NfsStat::XDEV);
    assert_eq!(pair.attributes(file).nlink, 1);
    assert_eq!(pair.status(Proc::LOOKUP, &LookupArgs { what: to() }), NfsStat::NOENT);
}
