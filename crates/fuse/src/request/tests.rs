//! Golden bytes of requests, and malformed requests.

use bytes::Bytes;

use super::*;
use crate::flags::WriteFlags;
use crate::types::{FileHandle, LockKind, LockOwner, Timestamp};

/// Returns a message with a valid length.
fn message(opcode: u32, body: &[u8]) -> Bytes {
    let mut bytes = Vec::new();
    bytes.extend((40 + body.len() as u32).to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(0x1122_u64.to_ne_bytes());
    bytes.extend(7_u64.to_ne_bytes());
    for word in [1000_u32, 100, 4242, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend_from_slice(body);
    bytes.into()
}

fn decoded<T: Decode>(opcode: u32, body: &[u8]) -> Result<T, Malformed> {
    let (header, rest) = split_header(message(opcode, body)).expect("a true header");
    decode(&header, rest, true)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn name(text: &'static [u8]) -> Name {
    Name(Bytes::from_static(text))
}

#[test]
fn header_names_the_thread() {
    let (header, rest) = split_header(message(opcode::GETATTR, b"rest")).expect("a true header");
    assert_eq!((header.opcode, header.unique, &rest[..]), (opcode::GETATTR, 0x1122, &b"rest"[..]));
    assert_eq!(caller(&header), Caller { uid: 1000, gid: 100, tid: 4242, is_resent: false });
    let resent = InHeader { unique: 1 << 63 | 5, ..header };
    assert!(caller(&resent).is_resent);
}

#[test]
fn header_must_fit_the_message() {
    let whole = message(opcode::READLINK, b"");
    for end in 0..40 {
        assert_eq!(split_header(whole.slice(..end)).unwrap_err(), Malformed::Truncated);
    }
    let longer = [&whole[..], b"x"].concat();
    assert_eq!(split_header(longer.into()).unwrap_err(), Malformed::Length);
}

#[test]
fn extensions_are_cut_off() {
    let with = |units: u16| {
        let mut bytes = message(opcode::LOOKUP, b"name\0\0\0\0\0\0\0\0\0").to_vec();
        bytes[36..38].copy_from_slice(&units.to_ne_bytes());
        split_header(bytes.into())
    };
    assert_eq!(&with(1).expect("eight bytes of extension").1[..], b"name\0");
    assert_eq!(with(2).unwrap_err(), Malformed::Truncated);
}

#[test]
fn names_end_with_nul_and_have_no_slash() {
    let lookup = |body: &[u8]| decoded::<Lookup>(opcode::LOOKUP, body);
    assert_eq!(lookup(b"a\xff\0"), Ok(Lookup { parent: NodeId(7), name: name(b"a\xff") }));
    assert_eq!(lookup(b"abc"), Err(Malformed::Name));
    assert_eq!(lookup(b""), Err(Malformed::Name));
    assert_eq!(lookup(b"\0"), Err(Malformed::Name));
    assert_eq!(lookup(b"a/b\0"), Err(Malformed::Name));
    assert_eq!(lookup(b"a\0b\0"), Err(Malformed::TrailingBytes));
    let long =
        |length: usize| lookup(&[vec![b'n'; length], vec![0]].concat()).map(|lookup| lookup.name.len());
    assert_eq!(long(NAME_MAX), Ok(NAME_MAX));
    assert_eq!(long(NAME_MAX + 1), Err(Malformed::TooLong));
}

#[test]
fn setattr_has_only_valid_fields() {
    let body = |valid: u32| {
        joined(&[
            &words(&[valid, 0]),
            &longs(&[9, 1 << 40, 11, u64::MAX, 13, 14]),
            &words(&[21, 22, 23, 0o644, 0, 501, 502, 0]),
        ])
    };
    let none = Setattr {
        node: NodeId(7),
        handle: None,
        mode: None,
        uid: None,
        gid: None,
        size: None,
        atime: None,
        mtime: None,
        ctime: None,
        lock_owner: None,
        kill_suidgid: false,
    };
    assert_eq!(decoded::<Setattr>(opcode::SETATTR, &body(0)), Ok(none.clone()));
    // MODE, GID, SIZE, ATIME, MTIME with MTIME_NOW, FH, KILL_SUIDGID
    let expected = Setattr {
        handle: Some(FileHandle(9)),
        mode: Some(0o644),
        gid: Some(502),
        size: Some(1 << 40),
        atime: Some(SetTime::To(Timestamp { seconds: -1, nanoseconds: 21 })),
        mtime: Some(SetTime::Now),
        kill_suidgid: true,
        ..none
    };
    assert_eq!(decoded::<Setattr>(opcode::SETATTR, &body(0b1001_0111_1101)), Ok(expected));
}

#[test]
fn write_is_a_slice_of_the_message() {
    let body = |size: u32| {
        joined(&[
            &longs(&[3, 4096]),
            &words(&[size, 0b111]),
            &longs(&[77]),
            &words(&[0o2_000_001, 0]),
            b"data",
        ])
    };
    let write = decoded::<Write>(opcode::WRITE, &body(4)).expect("a valid length");
    assert_eq!((write.handle, write.offset, &write.data[..]), (FileHandle(3), 4096, &b"data"[..]));
    assert_eq!(write.lock_owner, Some(LockOwner(77)));
    assert_eq!(write.write_flags, WriteFlags::all());
    assert_eq!(decoded::<Write>(opcode::WRITE, &body(5)), Err(Malformed::Truncated));
    assert_eq!(decoded::<Write>(opcode::WRITE, &body(3)), Err(Malformed::TrailingBytes));
    assert_eq!(decoded::<Write>(opcode::WRITE, &body(u32::MAX)), Err(Malformed::TooLong));
}

#[test]
fn read_is_bounded() {
    let read = |size: u32| {
        let body = joined(&[&longs(&[3, 8]), &words(&[size, 0]), &longs(&[5]), &words(&[0, 0])]);
        decoded::<Read>(opcode::READ, &body).map(|read| (read.size, read.lock_owner))
    };
    assert_eq!(read(1 << 20), Ok((1 << 20, None)));
    assert_eq!(read(REPLY_DATA_MAX), Ok((REPLY_DATA_MAX, None)));
    assert_eq!(read(REPLY_DATA_MAX + 1), Err(Malformed::TooLong));
}

#[test]
fn rename_has_two_forms() {
    let names = b"old\0new\0";
    let rename = |flags| Rename {
        parent: NodeId(7),
        name: name(b"old"),
        new_parent: NodeId(8),
        new_name: name(b"new"),
        flags,
    };
    assert_eq!(decoded(opcode::RENAME, &joined(&[&longs(&[8]), names])), Ok(rename(0)));
    assert_eq!(decoded(opcode::RENAME2, &joined(&[&longs(&[8]), &words(&[2, 0]), names])), Ok(rename(2)));
}

#[test]
fn setxattr_has_two_forms() {
    let long = joined(&[&words(&[3, 1, 1, 0]), b"user.a\0val"]);
    let set = decoded::<Setxattr>(opcode::SETXATTR, &long).expect("the long form");
    assert_eq!(
        (&set.name[..], &set.value[..], set.flags, set.kills_sgid),
        (&b"user.a"[..], &b"val"[..], 1, true)
    );
    let short = message(opcode::SETXATTR, &joined(&[&words(&[3, 1]), b"user.a\0val"]));
    let (header, rest) = split_header(short).expect("a true header");
    let old = decode::<Setxattr>(&header, rest, false).expect("the short form");
    assert_eq!(
        (&old.name[..], &old.value[..], old.flags, old.kills_sgid),
        (&b"user.a"[..], &b"val"[..], 1, false)
    );
    let lying = joined(&[&words(&[XATTR_VALUE_MAX as u32 + 1, 0, 0, 0]), b"user.a\0val"]);
    assert_eq!(decoded::<Setxattr>(opcode::SETXATTR, &lying), Err(Malformed::TooLong));
    let lying = joined(&[&words(&[4, 0, 0, 0]), b"user.a\0val"]);
    assert_eq!(decoded::<Setxattr>(opcode::SETXATTR, &lying), Err(Malformed::Truncated));
}

#[test]
fn locks_have_a_kind_and_a_range() {
    let lock = |start: u64, end: u64, kind: u32, flags: u32| {
        let body = joined(&[&longs(&[3, 99, start, end]), &words(&[kind, 4242, flags, 0])]);
        decoded::<Lock>(opcode::SETLKW, &body).map(|lock| (lock.range.kind, lock.owner, lock.is_flock))
    };
    assert_eq!(lock(0, i64::MAX as u64, 1, 1), Ok((LockKind::Write, LockOwner(99), true)));
    assert_eq!(lock(5, 5, 2, 0), Ok((LockKind::Unlock, LockOwner(99), false)));
    assert_eq!(lock(0, 0, 3, 0), Err(Malformed::Value));
    assert_eq!(lock(6, 5, 0, 0), Err(Malformed::Value));
}

#[test]
fn tmpfile_ignores_its_name() {
    let body = joined(&[&words(&[0o100_002, 0o100_600, 0o022, 0]), b"/\0"]);
    let expected = Tmpfile { parent: NodeId(7), flags: 0o100_002, mode: 0o100_600, umask: 0o022 };
    assert_eq!(decoded(opcode::TMPFILE, &body), Ok(expected));
}

#[test]
fn forgets_are_counted() {
    let forgets = |opcode, body: &[u8]| {
        let (header, rest) = split_header(message(opcode, body)).expect("a true header");
        decode_forgets(&header, rest)
    };
    let forget = |node, lookups| Forget { node: NodeId(node), lookups };
    assert_eq!(forgets(opcode::FORGET, &longs(&[2])), Ok(vec![forget(7, 2)]));
    let batch = |count: u32| joined(&[&words(&[count, 0]), &longs(&[10, 1, 11, 3])]);
    assert_eq!(forgets(opcode::BATCH_FORGET, &batch(2)), Ok(vec![forget(10, 1), forget(11, 3)]));
    assert_eq!(forgets(opcode::BATCH_FORGET, &batch(1)), Err(Malformed::TrailingBytes));
    assert_eq!(forgets(opcode::BATCH_FORGET, &batch(u32::MAX)), Err(Malformed::Truncated));
}

/// Every structure refuses a message that is a byte shorter or longer.
#[test]
fn structures_have_exact_lengths() {
    fn exact<T: Decode + std::fmt::Debug>(opcode: u32, body: &[u8]) {
        assert!(decoded::<T>(opcode, body).is_ok(), "{opcode}");
        for end in 0..body.len() {
            assert!(decoded::<T>(opcode, &body[..end]).is_err(), "{opcode}: {end} bytes");
        }
        let longer = joined(&[body, b"\0"]);
        assert_eq!(decoded::<T>(opcode, &longer).unwrap_err(), Malformed::TrailingBytes, "{opcode}");
    }
    let zeros = |length: usize| vec![0; length];
    let named = |length: usize, names: &[u8]| joined(&[&zeros(length), names]);
    exact::<Getattr>(opcode::GETATTR, &zeros(16));
    exact::<Setattr>(opcode::SETATTR, &zeros(88));
    exact::<Symlink>(opcode::SYMLINK, b"name\0target\0");
    exact::<Mknod>(opcode::MKNOD, &named(16, b"n\0"));
    exact::<Mkdir>(opcode::MKDIR, &named(8, b"n\0"));
    exact::<Unlink>(opcode::UNLINK, b"n\0");
    exact::<Rmdir>(opcode::RMDIR, b"n\0");
    exact::<Rename>(opcode::RENAME2, &named(16, b"a\0b\0"));
    exact::<Link>(opcode::LINK, &named(8, b"n\0"));
    exact::<Open>(opcode::OPEN, &zeros(8));
    exact::<Create>(opcode::CREATE, &named(16, b"n\0"));
    exact::<Read>(opcode::READ, &zeros(40));
    exact::<Write>(opcode::WRITE, &zeros(40));
    exact::<Release>(opcode::RELEASE, &zeros(24));
    exact::<Flush>(opcode::FLUSH, &zeros(24));
    exact::<Fsync>(opcode::FSYNC, &zeros(16));
    exact::<Getxattr>(opcode::GETXATTR, &named(8, b"user.a\0"));
    exact::<Listxattr>(opcode::LISTXATTR, &zeros(8));
    exact::<Removexattr>(opcode::REMOVEXATTR, b"user.a\0");
    exact::<Readdir>(opcode::READDIR, &zeros(40));
    exact::<Lock>(opcode::GETLK, &zeros(48));
    exact::<Access>(opcode::ACCESS, &zeros(8));
    exact::<Fallocate>(opcode::FALLOCATE, &zeros(32));
    exact::<Lseek>(opcode::LSEEK, &zeros(24));
    exact::<CopyFileRange>(opcode::COPY_FILE_RANGE, &zeros(56));
    exact::<Syncfs>(opcode::SYNCFS, &zeros(8));
    exact::<Statx>(opcode::STATX, &zeros(24));
}
