//! Bitmaps, attributes and tables of NFS version 4 compared with the RFCs.

use bytes::Bytes;
use protocol::nfs4::attributes::values::{ModeUmask, SetTime};
use protocol::nfs4::attributes::{
    self, Access, AttributeError, Attributes, FileAttributes, SetAttributes, number,
};
use protocol::nfs4::ops::{Needs, Position, TABLE, executed_once, operation};
use protocol::nfs4::types::*;
use xdr::{DecodeError, Opaque, Writer, from_bytes, to_bytes};

#[test]
fn bitmap_omits_trailing_zero_words() {
    assert_eq!(to_bytes(&Bitmap::EMPTY)[..], [0, 0, 0, 0]);
    assert_eq!(to_bytes(&Bitmap::of(&[0, 33]))[..], [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
    let padded: Bitmap = from_bytes(&b"\0\0\0\x03\0\0\0\x10\0\0\0\0\0\0\0\0"[..]).unwrap();
    assert_eq!(padded, Bitmap::of(&[4]));
    assert_eq!(padded.encoded_words(), 1);
}

#[test]
fn bitmap_reports_bits_beyond_its_limit() {
    let mut wire = vec![0, 0, 0, 32];
    wire.resize(4 + 4 * 32, 0);
    let zeros: Bitmap = from_bytes(Bytes::from(wire.clone())).unwrap();
    assert!(zeros.is_empty() && !zeros.has_beyond());
    *wire.last_mut().unwrap() = 1;
    let set: Bitmap = from_bytes(Bytes::from(wire)).unwrap();
    assert!(set.has_beyond() && !set.is_empty() && set.length() == 0);
    assert!(!set.is_subset(Bitmap::from_words([u32::MAX; Bitmap::WORDS])));
    let huge = from_bytes::<Bitmap>(&b"\xff\xff\xff\xff"[..]);
    assert_eq!(huge, Err(DecodeError::TooLong { length: u32::MAX as usize, max: Bitmap::MAX_WIRE_WORDS }));
}

#[test]
fn bitmap_is_a_set() {
    let a = Bitmap::of(&[0, 31, 32, 127]);
    let b = Bitmap::of(&[31, 64]);
    assert_eq!(a.iter().collect::<Vec<_>>(), [0, 31, 32, 127]);
    assert_eq!(a.intersection(b), Bitmap::of(&[31]));
    assert_eq!(a.union(b).length(), 5);
    assert_eq!(a.difference(b), Bitmap::of(&[0, 32, 127]));
    assert!(a.has(127) && !a.has(126) && !a.has(128) && !a.has(u32::MAX));
    assert_eq!((&a).into_iter().collect::<Bitmap>(), a);
    assert_eq!(format!("{a:?}"), "{0, 31, 32, 127}");
}

/// RFC 8881 §8.2.3 defines the special stateids.
#[test]
fn special_stateids_are_those_of_the_rfc() {
    assert_eq!(to_bytes(&Stateid::ANONYMOUS)[..], [0; 16]);
    assert_eq!(to_bytes(&Stateid::READ_BYPASS)[..], [0xff; 16]);
    assert_eq!(to_bytes(&Stateid::CURRENT)[..], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(to_bytes(&Stateid::INVALID)[..], [255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(Stateid { seqid: 7, other: [0xff; 12] }.is_special());
    assert!(!Stateid { seqid: 0, other: [1; 12] }.is_special());
}

/// The attributes that RFC 8881 §5.6 lists as REQUIRED, and those that §5.7, RFC 7862 §12.2, RFC 8275 and RFC 9754
/// mark as settable.
#[test]
fn attribute_table_matches_the_rfcs() {
    for (index, row) in attributes::TABLE.iter().enumerate() {
        assert_eq!(row.number as usize, index, "{}", row.name);
    }
    let required: Vec<u32> = attributes::TABLE.iter().filter(|r| r.required).map(|r| r.number).collect();
    assert_eq!(required, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 19, 75]);
    let write_only: Vec<&str> =
        attributes::TABLE.iter().filter(|r| r.access == Access::Write).map(|r| r.name).collect();
    assert_eq!(
        write_only,
        [
            "time_access_set",
            "time_modify_set",
            "layout_hint",
            "retention_set",
            "retentevt_set",
            "mode_set_masked",
            "mode_umask"
        ]
    );
    assert_eq!(attributes::settable(2), SetAttributes::FIELDS);
    assert_eq!(
        attributes::settable(0).iter().collect::<Vec<_>>(),
        [4, 12, 14, 25, 32, 33, 36, 37, 46, 48, 49, 50, 54]
    );
    assert_eq!(attributes::known(0).iter().last(), Some(number::MOUNTED_ON_FILEID));
    assert_eq!(attributes::known(1).iter().last(), Some(number::FS_CHARSET_CAP));
    assert_eq!(attributes::known(2), Attributes::FIELDS);
    assert_eq!(attributes::name(33), "mode");
    assert_eq!(attributes::name(4000), "unknown");
}

fn example() -> (Attributes, FileAttributes) {
    let attributes = Attributes {
        file_type: Some(FileType::REGULAR),
        size: Some(5),
        mode: Some(Mode::from_bits_retain(0o644)),
        owner: Some(Opaque::from_static(b"0")),
        time_modify: Some(Time { seconds: -1, nanoseconds: 7 }),
        ..Attributes::default()
    };
    let mask = Bitmap::of(&[1, 4, 33, 36, 53]);
    let values = b"\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\x01\xa4\0\0\0\x010\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\x07";
    (attributes, FileAttributes::new(mask, &values[..]).unwrap())
}

#[test]
fn attribute_values_are_in_ascending_order() {
    let (attributes, wire) = example();
    assert_eq!(attributes.to_file_attributes(), wire);
    assert_eq!(Attributes::from_file_attributes(&wire), Ok(attributes));
}

#[test]
fn write_attributes_encodes_the_same_bytes() {
    let (_, expected) = example();
    let mut writer = Writer::new();
    writer.u32(1);
    let written = attributes::write_attributes(&mut writer, expected.mask, |number, writer| {
        match number {
            number::TYPE => writer.u32(1),
            number::SIZE => writer.u64(5),
            number::MODE => writer.u32(0o644),
            number::OWNER => writer.opaque(b"0"),
            number::TIME_MODIFY => {
                writer.i64(-1);
                writer.u32(7);
            }
            other => return Err(other),
        }
        Ok(())
    });
    assert_eq!(written, Ok(()));
    assert_eq!(writer.inline()[4..], to_bytes(&expected)[..]);
    let failed = attributes::write_attributes(
        &mut writer,
        Bitmap::of(&[number::SIZE, number::ACL]),
        |number, writer| {
            writer.u64(1);
            if number == number::ACL { Err(Status::NOTSUPP) } else { Ok(()) }
        },
    );
    assert_eq!(failed, Err(Status::NOTSUPP));
    assert_eq!(writer.length(), 4 + to_bytes(&expected).len(), "a failure writes nothing");
}

#[test]
fn set_attributes_distinguish_unsupported_and_malformed() {
    let wanted = SetAttributes {
        size: Some(9),
        time_access_set: Some(SetTime::ServerTime),
        mode_umask: Some(ModeUmask {
            mode: Mode::from_bits_retain(0o666),
            umask: Mode::from_bits_retain(0o22),
        }),
        ..SetAttributes::default()
    };
    let wire = wanted.to_file_attributes();
    assert_eq!(SetAttributes::from_file_attributes(&wire, attributes::known(2)), Ok(wanted));
    let refused = SetAttributes::from_file_attributes(&wire, attributes::known(1)).unwrap_err();
    assert_eq!(refused, AttributeError::Unsupported(number::MODE_UMASK));
    assert_eq!(refused.status(), Status::ATTRNOTSUPP);

    let read_only = FileAttributes::new(Bitmap::of(&[number::SIZE, number::FILEID]), vec![0; 16]).unwrap();
    let refused = SetAttributes::from_file_attributes(&read_only, attributes::known(1)).unwrap_err();
    assert_eq!((refused, refused.status()), (AttributeError::NotSettable(number::FILEID), Status::INVAL));

    let short = FileAttributes::new(Bitmap::of(&[number::SIZE]), vec![0; 4]).unwrap();
    let refused = SetAttributes::from_file_attributes(&short, attributes::known(1)).unwrap_err();
    assert_eq!(refused.status(), Status::BADXDR);
    let long = FileAttributes::new(Bitmap::of(&[number::SIZE]), vec![0; 12]).unwrap();
    assert_eq!(
        SetAttributes::from_file_attributes(&long, attributes::known(1)),
        Err(AttributeError::Malformed(DecodeError::TrailingBytes(4)))
    );

    let unknown = to_bytes(&FileAttributes::new(Bitmap::of(&[100]), vec![0; 4]).unwrap());
    let unknown: FileAttributes = from_bytes(unknown).unwrap();
    assert_eq!(Attributes::from_file_attributes(&unknown), Err(AttributeError::Unsupported(100)));
    let mut beyond = vec![0, 0, 0, 5];
    beyond.extend([0; 16]);
    beyond.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    let beyond: FileAttributes = from_bytes(beyond).unwrap();
    assert_eq!(Attributes::from_file_attributes(&beyond), Err(AttributeError::Unsupported(Bitmap::LIMIT)));
}

#[test]
fn operation_table_has_every_operation() {
    let numbers: Vec<OpNum> = TABLE.iter().map(|row| row.opcode.number()).collect();
    let all: Vec<OpNum> = OpNum::ALL.iter().copied().filter(|op| *op != OpNum::ILLEGAL).collect();
    assert_eq!(numbers, all);
    for op in all {
        assert_eq!(operation(op.0, 2).unwrap().opcode.number(), op);
    }
    for absent in [0, 1, 2, 76, 10_044, u32::MAX] {
        assert_eq!(operation(absent, 2), None);
    }
}

fn names(mut select: impl FnMut(&protocol::nfs4::ops::Operation) -> bool) -> Vec<&'static str> {
    TABLE.iter().filter(|row| select(row)).map(|row| row.name()).collect()
}

/// RFC 8881 §8.8 lists the operations that v4.1 removed, RFC 7862 §13 those of v4.2.
#[test]
fn operations_belong_to_their_minor_versions() {
    assert_eq!(
        names(|row| row.last_minor == 0),
        ["OPEN_CONFIRM", "RENEW", "SETCLIENTID", "SETCLIENTID_CONFIRM", "RELEASE_LOCKOWNER"]
    );
    assert_eq!(names(|row| row.last_minor == 1), ["GETDEVICELIST"]);
    assert_eq!(names(|row| row.is_in(0)).len(), 37);
    assert_eq!(names(|row| row.first_minor == 1).len(), 19);
    assert_eq!(names(|row| row.first_minor == 2).len(), 17);
}

/// RFC 8881 §18.34.3, §18.35.3, §18.36.3, §18.37.3, §18.46.3, §18.50.3.
#[test]
fn few_operations_may_come_first() {
    assert_eq!(
        names(|row| row.position == Position::SessionOrAlone),
        ["EXCHANGE_ID", "CREATE_SESSION", "DESTROY_SESSION", "DESTROY_CLIENTID"]
    );
    assert_eq!(names(|row| row.position == Position::Alone), ["BIND_CONN_TO_SESSION"]);
    assert_eq!(names(|row| row.position == Position::First), ["SEQUENCE"]);
}

/// From the comments `SAVED_FH:` and `CURRENT_FH:` in RFC 7863.
#[test]
fn operations_need_file_handles_as_the_rfc_says() {
    assert_eq!(names(|row| row.needs == Needs::CurrentAndSaved), ["LINK", "RENAME", "COPY", "CLONE"]);
    assert_eq!(names(|row| row.needs == Needs::Saved), ["RESTOREFH"]);
    let without = names(|row| row.needs == Needs::Nothing);
    assert_eq!(
        without,
        [
            "DELEGPURGE",
            "PUTFH",
            "PUTPUBFH",
            "PUTROOTFH",
            "RENEW",
            "SETCLIENTID",
            "SETCLIENTID_CONFIRM",
            "RELEASE_LOCKOWNER",
            "BACKCHANNEL_CTL",
            "BIND_CONN_TO_SESSION",
            "EXCHANGE_ID",
            "CREATE_SESSION",
            "DESTROY_SESSION",
            "FREE_STATEID",
            "GETDEVICEINFO",
            "LAYOUTRETURN",
            "SEQUENCE",
            "SET_SSV",
            "TEST_STATEID",
            "DESTROY_CLIENTID",
            "RECLAIM_COMPLETE"
        ]
    );
}

/// The reply cache of version 4.0 must know every operation that a late copy would repeat.
#[test]
fn operations_that_change_something_are_executed_once() {
    use OpNum as O;
    let changes = [
        O::CLOSE,
        O::CREATE,
        O::DELEGRETURN,
        O::LINK,
        O::LOCK,
        O::LOCKU,
        O::OPEN,
        O::OPEN_CONFIRM,
        O::OPEN_DOWNGRADE,
        O::REMOVE,
        O::RENAME,
        O::SETATTR,
        O::SETCLIENTID,
        O::SETCLIENTID_CONFIRM,
        O::WRITE,
        O::RELEASE_LOCKOWNER,
    ];
    assert_eq!(executed_once(0).collect::<Vec<_>>(), changes);
    let of = |minor: u32| executed_once(minor).collect::<Vec<_>>();
    assert!(of(0).contains(&O::OPEN_CONFIRM) && !of(1).contains(&O::OPEN_CONFIRM));
    assert!(!of(0).contains(&O::CREATE_SESSION) && of(1).contains(&O::CREATE_SESSION));
    assert!(of(1).contains(&O::GET_DIR_DELEGATION) && of(1).contains(&O::WANT_DELEGATION));
    assert!(!of(1).contains(&O::CLONE) && of(2).contains(&O::CLONE) && of(2).contains(&O::COPY_NOTIFY));
    assert!((0..=2).all(|minor| !of(minor).contains(&O::READ)));
}

#[test]
fn statuses_have_the_numbers_of_the_rfcs() {
    assert_eq!(Status::BADHANDLE.0, 10_001);
    assert_eq!(Status::SEQ_FALSE_RETRY.0, 10_076);
    assert_eq!(Status::OFFLOAD_NO_REQS.0, 10_094);
    assert_eq!(Status::XATTR2BIG.0, 10_096);
    assert_eq!(format!("{:?} {:?}", Status::DELAY, Status(10_073)), "DELAY Status(10073)");
}
