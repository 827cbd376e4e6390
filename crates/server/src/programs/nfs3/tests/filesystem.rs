//! Replies about a whole file system: FSSTAT, FSINFO, PATHCONF.

use super::*;

const MIB: u64 = 1 << 20;

fn space(pair: &Pair) -> FsstatOk {
    let result: FsstatResult = pair.call(Proc::FSSTAT, &FsstatArgs { fsroot: pair.root });
    result.into_result().unwrap()
}

#[test]
fn fsstat_returns_free_and_available_space() {
    let memory = MemOptions {
        max_bytes: MIB,
        max_files: 100,
        quota_bytes: Some(MIB / 4),
        root_mode: 0o777,
        ..MemOptions::default()
    };
    let options = ExportOptions { squash: Squash::None, ..ExportOptions::default() };
    let mut pair = pair_with(options, &memory, 1000);
    let empty = space(&pair);
    assert_eq!((empty.tbytes, empty.tfiles), (MIB, 100));
    assert_eq!(empty.obj_attributes, Some(pair.attributes(pair.root)));
    // RFC 1813 §3.3.18, of abytes: "available to the user identified by the authentication information in the RPC".
    assert!(empty.abytes <= MIB / 4 && empty.abytes < empty.fbytes, "{empty:?}");
    let file = pair.file(b"file");
    pair.write(file, 0, &[7; 100_000], StableHow::FileSync).into_result().unwrap();
    let after = space(&pair);
    assert_eq!((after.tbytes, after.tfiles), (MIB, 100));
    assert!(after.fbytes + 100_000 <= empty.fbytes && after.abytes + 100_000 <= empty.abytes, "{after:?}");
    assert_eq!((after.ffiles, after.afiles), (empty.ffiles - 1, empty.afiles - 1));
    pair.uid = 0;
    assert_eq!(space(&pair).abytes, after.fbytes, "no quota is the superuser's");
}

#[test]
fn reads_and_writes_use_the_sizes_of_fsinfo() {
    let pair = pair();
    let info: FsinfoResult = pair.call(Proc::FSINFO, &FsinfoArgs { fsroot: pair.root });
    let info = info.into_result().unwrap();
    assert_eq!(info.obj_attributes, Some(pair.attributes(pair.root)));
    assert!((1..=info.rtmax).contains(&info.rtpref) && (1..=info.wtmax).contains(&info.wtpref), "{info:?}");
    assert!(info.rtmax.is_multiple_of(info.rtmult) && info.wtmax.is_multiple_of(info.wtmult), "{info:?}");
    let whole =
        FsProperties::LINK | FsProperties::SYMLINK | FsProperties::HOMOGENEOUS | FsProperties::CANSETTIME;
    assert_eq!(info.properties, whole);
    let file = pair.file(b"file");
    let data = Opaque::new(vec![7; info.wtmax as usize]).unwrap();
    let args = WriteArgs { file, offset: 0, count: info.wtmax, stable: StableHow::Unstable, data };
    let written = pair.call::<WriteResult>(Proc::WRITE, &args).into_result().unwrap();
    assert_eq!(written.count, info.wtmax);
    let read = pair.read(file, 0, info.rtmax).into_result().unwrap();
    assert_eq!((read.count, read.data.len()), (info.rtmax, info.rtmax as usize));
    // §3.3.6: READ of more than rtmax gives rtmax at most.
    assert_eq!(pair.read(file, 0, u32::MAX).into_result().unwrap().count, info.rtmax);
    let size = |size| {
        let new_attributes = Sattr { size: Some(size), ..Sattr::default() };
        pair.status(Proc::SETATTR, &SetattrArgs { object: file, new_attributes, guard: None })
    };
    assert_eq!(size(info.maxfilesize), NfsStat::OK);
    assert_eq!(size(info.maxfilesize + 1), NfsStat::FBIG);
}

#[test]
fn times_have_the_granularity_of_fsinfo() {
    let pair = pair();
    let info: FsinfoResult = pair.call(Proc::FSINFO, &FsinfoArgs { fsroot: pair.root });
    assert_eq!(info.into_result().unwrap().time_delta, NfsTime { seconds: 0, nseconds: 1 });
    let (object, time) = (pair.file(b"file"), NfsTime { seconds: 1_000_000, nseconds: 123_456_789 });
    let new_attributes = Sattr { mtime: SetTime::ToClientTime(time), ..Sattr::default() };
    assert_eq!(pair.status(Proc::SETATTR, &SetattrArgs { object, new_attributes, guard: None }), NfsStat::OK);
    assert_eq!(pair.attributes(object).mtime, time);
}

#[test]
fn pathconf_returns_enforced_limits() {
    let mut pair = pair();
    let limits: PathconfResult = pair.call(Proc::PATHCONF, &PathconfArgs { object: pair.root });
    let limits = limits.into_result().unwrap();
    assert_eq!(limits.obj_attributes, Some(pair.attributes(pair.root)));
    // Longer names are refused and two cases are two names: see the tests of names, and below.
    assert_eq!((limits.name_max, limits.no_trunc), (255, true));
    assert_eq!((limits.case_insensitive, limits.case_preserving), (false, true));
    pair.file(b"Name");
    assert_eq!(pair.lookup(b"name").status(), NfsStat::NOENT);
    // chown_restricted: "the server will reject any request to change either the owner or the group … if the caller is not
    // the privileged user".
    assert!(limits.chown_restricted);
    let file = pair.file(b"file");
    let give = |uid| SetattrArgs {
        object: file,
        new_attributes: Sattr { uid: Some(uid), ..Sattr::default() },
        guard: None,
    };
    assert_eq!(pair.status(Proc::SETATTR, &give(1000)), NfsStat::OK);
    pair.uid = 1000;
    assert_eq!(pair.status(Proc::SETATTR, &give(1001)), NfsStat::PERM);
}
