//! Types of NFS version 3 round-trip.

mod common;

use common::{chain, inline, opaque, round_trip};
use proptest::option;
use proptest::prelude::*;
use protocol::nfs3::*;
use xdr::{Decode, from_bytes, to_bytes};

fn time() -> impl Strategy<Value = NfsTime> + Clone {
    (any::<u32>(), any::<u32>()).prop_map(|(seconds, nseconds)| NfsTime { seconds, nseconds })
}

fn fattr() -> impl Strategy<Value = Fattr> + Clone {
    let small = (0u32..9, any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    let large = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<[u32; 2]>());
    (small, large, time(), time(), time()).prop_map(|(small, large, atime, mtime, ctime)| {
        let (file_type, mode, nlink, uid, gid) = small;
        let (size, used, fsid, fileid, [major, minor]) = large;
        let (file_type, rdev) = (FileType(file_type), SpecData { major, minor });
        Fattr { file_type, mode, nlink, uid, gid, size, used, rdev, fsid, fileid, atime, mtime, ctime }
    })
}

fn post() -> impl Strategy<Value = PostOpAttr> {
    option::of(fattr())
}

fn wcc() -> impl Strategy<Value = WccData> {
    let before =
        (any::<u64>(), time(), time()).prop_map(|(size, mtime, ctime)| WccAttr { size, mtime, ctime });
    (option::of(before), post()).prop_map(|(before, after)| WccData { before, after })
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![
        Just(SetTime::DontChange),
        Just(SetTime::ToServerTime),
        time().prop_map(SetTime::ToClientTime)
    ]
}

fn sattr() -> impl Strategy<Value = Sattr> {
    let word = || any::<Option<u32>>();
    (word(), word(), word(), any::<Option<u64>>(), set_time(), set_time())
        .prop_map(|(mode, uid, gid, size, atime, mtime)| Sattr { mode, uid, gid, size, atime, mtime })
}

fn handle() -> impl Strategy<Value = FileHandle> {
    inline()
}

fn dir_op() -> impl Strategy<Value = DirOpArgs> {
    (handle(), opaque()).prop_map(|(dir, name)| DirOpArgs { dir, name })
}

fn stable() -> impl Strategy<Value = StableHow> {
    prop_oneof![Just(StableHow::Unstable), Just(StableHow::DataSync), Just(StableHow::FileSync)]
}

fn outcome<T: std::fmt::Debug, F: std::fmt::Debug>(
    ok: impl Strategy<Value = T>,
    fail: impl Strategy<Value = F>,
) -> impl Strategy<Value = Outcome<T, F>> {
    let status = prop_oneof![
        prop::sample::select(&NfsStat::ALL[1..]),
        any::<u32>().prop_filter("not OK", |s| *s != 0).prop_map(NfsStat)
    ];
    prop_oneof![
        ok.prop_map(Outcome::Ok),
        (status, fail).prop_map(|(status, fail)| Outcome::Fail(status, fail)),
    ]
}

fn create_how() -> impl Strategy<Value = CreateHow> {
    prop_oneof![
        sattr().prop_map(CreateHow::Unchecked),
        sattr().prop_map(CreateHow::Guarded),
        any::<CreateVerf>().prop_map(CreateHow::Exclusive)
    ]
}

fn mknod_data() -> impl Strategy<Value = MknodData> {
    let device = || {
        (sattr(), any::<u32>(), any::<u32>()).prop_map(|(dev_attributes, major, minor)| DeviceData {
            dev_attributes,
            spec: SpecData { major, minor },
        })
    };
    prop_oneof![
        device().prop_map(MknodData::CharacterDevice),
        device().prop_map(MknodData::BlockDevice),
        sattr().prop_map(MknodData::Socket),
        sattr().prop_map(MknodData::Fifo),
        prop::sample::select(vec![0, 1, 2, 5, 8, u32::MAX]).prop_map(MknodData::Other),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (any::<u64>(), opaque(), any::<u64>()).prop_map(|(fileid, name, cookie)| Entry { fileid, name, cookie })
}

fn entry_plus() -> impl Strategy<Value = EntryPlus> {
    (entry(), post(), option::of(handle())).prop_map(|(entry, name_attributes, name_handle)| {
        let Entry { fileid, name, cookie } = entry;
        EntryPlus { fileid, name, cookie, name_attributes, name_handle }
    })
}

proptest! {
    #[test]
    fn getattr_and_setattr_round_trip(
        object in handle(),
        result in outcome(fattr(), Just(())),
        new_attributes in sattr(),
        guard in option::of(time()),
        set in outcome(wcc(), wcc()),
    ) {
        round_trip(&GetattrArgs { object });
        round_trip::<GetattrResult>(&result);
        round_trip(&SetattrArgs { object, new_attributes, guard });
        round_trip::<SetattrResult>(&set);
    }

    #[test]
    fn lookup_round_trips(what in dir_op(), object in handle(), attributes in [post(), post()], fail in post()) {
        let [obj_attributes, dir_attributes] = attributes;
        round_trip(&LookupArgs { what });
        round_trip(&LookupResult::Ok(LookupOk { object, obj_attributes, dir_attributes }));
        round_trip(&LookupResult::Fail(NfsStat::NOENT, fail));
    }

    #[test]
    fn access_and_readlink_round_trip(
        object in handle(),
        bits in any::<u32>(),
        attributes in post(),
        data in opaque(),
        fail in post(),
    ) {
        let access = Access::from_bits_retain(bits);
        round_trip(&AccessArgs { object, access });
        round_trip(&AccessResult::Ok(AccessOk { obj_attributes: attributes, access }));
        round_trip(&AccessResult::Fail(NfsStat::STALE, fail));
        round_trip(&ReadlinkArgs { symlink: object });
        round_trip(&ReadlinkResult::Ok(ReadlinkOk { symlink_attributes: attributes, data }));
        round_trip(&ReadlinkResult::Fail(NfsStat::INVAL, fail));
    }

    #[test]
    fn read_round_trips(
        file in handle(),
        offset in any::<u64>(),
        count in any::<u32>(),
        file_attributes in post(),
        eof in any::<bool>(),
        data in opaque(),
        fail in post(),
    ) {
        round_trip(&ReadArgs { file, offset, count });
        round_trip(&ReadResult::Ok(ReadOk { file_attributes, count, eof, data }));
        round_trip(&ReadResult::Fail(NfsStat::ISDIR, fail));
    }

    #[test]
    fn read_head_and_data_are_the_whole_result(
        file_attributes in post(),
        eof in any::<bool>(),
        data in opaque(),
    ) {
        let mut writer = xdr::Writer::new();
        let count = data.len() as u32;
        ReadOk::encode_head(&mut writer, &file_attributes, count, eof);
        writer.opaque_fixed(&data);
        prop_assert_eq!(
            writer.into_bytes(),
            to_bytes(&ReadResult::Ok(ReadOk { file_attributes, count, eof, data })),
        );
    }

    #[test]
    fn write_and_commit_round_trip(
        file in handle(),
        offset in any::<u64>(),
        count in any::<u32>(),
        stable in stable(),
        data in opaque(),
        file_wcc in wcc(),
        verf in any::<WriteVerf>(),
    ) {
        round_trip(&WriteArgs { file, offset, count, stable, data });
        round_trip(&WriteResult::Ok(WriteOk { file_wcc, count, committed: stable, verf }));
        round_trip(&WriteResult::Fail(NfsStat::NOSPC, file_wcc));
        round_trip(&CommitArgs { file, offset, count });
        round_trip(&CommitResult::Ok(CommitOk { file_wcc, verf }));
        round_trip(&CommitResult::Fail(NfsStat::IO, file_wcc));
    }

    #[test]
    fn creation_round_trips(
        where_ in dir_op(),
        how in create_how(),
        what in mknod_data(),
        attributes in sattr(),
        symlink_data in opaque(),
        obj in option::of(handle()),
        obj_attributes in post(),
        dir_wcc in wcc(),
    ) {
        round_trip(&CreateArgs { where_: where_.clone(), how });
        round_trip(&MkdirArgs { where_: where_.clone(), attributes });
        round_trip(&SymlinkArgs { where_: where_.clone(), symlink_attributes: attributes, symlink_data });
        round_trip(&MknodArgs { where_, what });
        round_trip(&CreateResult::Ok(CreateOk { obj, obj_attributes, dir_wcc }));
        round_trip(&CreateResult::Fail(NfsStat::EXIST, dir_wcc));
    }

    #[test]
    fn remove_rename_and_link_round_trip(
        from in dir_op(),
        to in dir_op(),
        file in handle(),
        file_attributes in post(),
        wccs in [wcc(), wcc()],
    ) {
        let [fromdir_wcc, todir_wcc] = wccs;
        round_trip(&RemoveArgs { object: from.clone() });
        round_trip(&RemoveResult::Ok(todir_wcc));
        round_trip(&RemoveResult::Fail(NfsStat::NOTEMPTY, todir_wcc));
        round_trip(&RenameArgs { from, to: to.clone() });
        round_trip(&RenameResult::Ok(RenameWcc { fromdir_wcc, todir_wcc }));
        round_trip(&RenameResult::Fail(NfsStat::XDEV, RenameWcc { fromdir_wcc, todir_wcc }));
        round_trip(&LinkArgs { file, link: to });
        round_trip(&LinkResult::Ok(LinkWcc { file_attributes, linkdir_wcc: todir_wcc }));
        round_trip(&LinkResult::Fail(NfsStat::MLINK, LinkWcc { file_attributes, linkdir_wcc: todir_wcc }));
    }

    #[test]
    fn readdir_round_trips(
        dir in handle(),
        cookie in any::<u64>(),
        cookieverf in any::<CookieVerf>(),
        sizes in any::<[u32; 2]>(),
        dir_attributes in post(),
        eof in any::<bool>(),
        entries in chain(entry()),
        plus in chain(entry_plus()),
    ) {
        let [dircount, maxcount] = sizes;
        round_trip(&ReaddirArgs { dir, cookie, cookieverf, count: maxcount });
        round_trip(
            &ReaddirResult::Ok(ReaddirOk { dir_attributes, cookieverf, reply: DirList { entries, eof } })
        );
        round_trip(&ReaddirResult::Fail(NfsStat::BAD_COOKIE, dir_attributes));
        round_trip(&ReaddirplusArgs { dir, cookie, cookieverf, dircount, maxcount });
        round_trip(
            &ReaddirplusResult::Ok(
                ReaddirplusOk { dir_attributes, cookieverf, reply: DirListPlus { entries: plus, eof } }
            )
        );
        round_trip(&ReaddirplusResult::Fail(NfsStat::TOOSMALL, dir_attributes));
    }

    #[test]
    fn filesystem_round_trips(
        fsroot in handle(),
        obj_attributes in post(),
        longs in any::<[u64; 7]>(),
        words in any::<[u32; 8]>(),
        flags in any::<[bool; 4]>(),
        time_delta in time(),
    ) {
        let [tbytes, fbytes, abytes, tfiles, ffiles, afiles, maxfilesize] = longs;
        let [rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref, invarsec] = words;
        let [no_trunc, chown_restricted, case_insensitive, case_preserving] = flags;
        round_trip(&FsstatArgs { fsroot });
        round_trip(
            &FsstatResult::Ok(
                FsstatOk { obj_attributes, tbytes, fbytes, abytes, tfiles, ffiles, afiles, invarsec }
            )
        );
        round_trip(&FsstatResult::Fail(NfsStat::IO, obj_attributes));
        round_trip(&FsinfoArgs { fsroot });
        let properties = FsProperties::from_bits_retain(invarsec);
        round_trip(
            &FsinfoResult::Ok(
                FsinfoOk {
                    obj_attributes, rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref, maxfilesize,
                    time_delta, properties,
                }
            )
        );
        round_trip(&FsinfoResult::Fail(NfsStat::SERVERFAULT, obj_attributes));
        round_trip(&PathconfArgs { object: fsroot });
        round_trip(
            &PathconfResult::Ok(
                PathconfOk {
                    obj_attributes, linkmax: rtmax, name_max: wtmax, no_trunc, chown_restricted,
                    case_insensitive, case_preserving,
                }
            )
        );
        round_trip(&PathconfResult::Fail(NfsStat::BADHANDLE, obj_attributes));
    }

    #[test]
    fn values_decoded_from_random_bytes_round_trip(
        bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..160)
    ) {
        fn stable<T: Decode + xdr::Encode + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
            let mut reader = xdr::Reader::new(bytes.to_vec().into());
            if let Ok(value) = T::decode(&mut reader) {
                assert_eq!(from_bytes::<T>(to_bytes(&value)).as_ref(), Ok(&value));
            }
        }
        stable::<SetattrArgs>(&bytes);
        stable::<CreateArgs>(&bytes);
        stable::<MknodArgs>(&bytes);
        stable::<WriteArgs>(&bytes);
        stable::<RenameArgs>(&bytes);
        stable::<ReaddirplusResult>(&bytes);
        stable::<WriteResult>(&bytes);
    }
}

#[test]
fn encoded_attributes_have_their_length() {
    let fattr = Fattr {
        file_type: FileType::REG,
        mode: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        rdev: SpecData::default(),
        fsid: 0,
        fileid: 0,
        atime: NfsTime::default(),
        mtime: NfsTime::default(),
        ctime: NfsTime::default(),
    };
    assert_eq!(to_bytes(&fattr).len(), FATTR_LENGTH);
}

#[test]
fn rejects_names_above_the_bound() {
    let name = |length: usize| {
        let mut writer = xdr::Writer::new();
        writer.opaque(b"handle");
        writer.opaque(&vec![b'n'; length]);
        from_bytes::<LookupArgs>(writer.into_bytes())
    };
    // RFC 1813 §3.2: the server rejects a long name with NAMETOOLONG, so it must be decodable.
    assert_eq!(name(300).unwrap().what.name.len(), 300);
    assert_eq!(name(MAX_NAME_WIRE).unwrap().what.name.len(), MAX_NAME_WIRE);
    assert_eq!(name(MAX_NAME_WIRE + 1), Err(xdr::DecodeError::TooLong { length: 1025, max: 1024 }));
}

#[test]
fn rejects_handles_above_64_bytes() {
    let mut writer = xdr::Writer::new();
    writer.opaque(&[0; 65]);
    assert_eq!(
        from_bytes::<GetattrArgs>(writer.into_bytes()),
        Err(xdr::DecodeError::TooLong { length: 65, max: 64 })
    );
}

#[test]
fn write_data_share_the_receive_buffer() {
    let args = WriteArgs {
        file: FileHandle::new(b"handle").unwrap(),
        offset: 0,
        count: 5,
        stable: StableHow::FileSync,
        data: xdr::Opaque::new(&b"hello"[..]).unwrap(),
    };
    let wire = to_bytes(&args);
    let decoded = from_bytes::<WriteArgs>(wire.clone()).unwrap();
    assert!(wire.as_ptr_range().contains(&decoded.data.as_ptr()), "the data were copied");
}
