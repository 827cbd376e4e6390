use super::subject::{Subject, assert_fails};
use crate::{Create, CreateMode, Error, Removal};

pub(super) fn bad_names_are_refused_by_every_operation(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    for name in [&b""[..], b".", b"..", b"/", b"a/b", b"../f", b"/etc/passwd", b"a\0b", b"\0"] {
        let bad = &[Error::BadName];
        assert_fails(me.lookup(&top, name), bad);
        for what in [
            Create::File(CreateMode::Unchecked),
            Create::Directory,
            Create::Symlink("x".into()),
            Create::Fifo,
        ] {
            assert_fails(me.make(&top, name, &what, 0o600), bad);
        }
        for removal in [Removal::File, Removal::Directory, Removal::Any] {
            assert_fails(me.remove(&top, name, removal), bad);
        }
        assert_fails(me.link(&file, &top, name), bad);
        assert_fails(me.rename((&top, name), (&top, "g")), bad);
        assert_fails(me.rename((&top, "f"), (&top, name)), bad);
    }
    assert_eq!(me.names(&top), [b"f"]);
}

pub(super) fn the_longest_name_is_allowed_and_one_more_byte_is_not(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let longest = vec![b'n'; t.backend().properties().max_name as usize];
    let longer = [&longest[..], b"n"].concat();
    let file = me.file(&top, &longest);
    assert_eq!(me.lookup(&top, &longest).unwrap().handle, file);
    assert_eq!(me.names(&top), [&longest[..]]);
    let refused = &[Error::NameTooLong];
    assert_fails(me.lookup(&top, &longer), refused);
    assert_fails(me.make(&top, &longer, &Create::Directory, 0o700), refused);
    assert_fails(me.make(&top, &longer, &Create::File(CreateMode::Guarded), 0o600), refused);
    assert_fails(me.link(&file, &top, &longer), refused);
    assert_fails(me.rename((&top, &longest), (&top, &longer)), refused);
    assert_fails(me.rename((&top, &longer), (&top, &longest)), refused);
    assert_fails(me.remove(&top, &longer, Removal::Any), refused);
    me.remove(&top, &longest, Removal::File).unwrap();
}

pub(super) fn names_are_raw_bytes(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let mut names: Vec<Vec<u8>> = vec![
        b"\xff\xfe".to_vec(),
        b"\xc3\x28 not UTF-8".to_vec(),
        "f\u{fc}r".into(),
        "fu\u{308}r".into(),
        "\u{1f308}".into(),
        b"...".to_vec(),
        b".hidden".to_vec(),
        b" ".to_vec(),
        b"new\nline".to_vec(),
        b"back\\slash".to_vec(),
        b"-rf *".to_vec(),
    ];
    let handles: Vec<_> = names.iter().map(|name| me.file(&top, name)).collect();
    for (name, handle) in names.iter().zip(&handles) {
        assert_eq!(me.lookup(&top, name).unwrap().handle, *handle, "{name:?}");
    }
    names.sort();
    assert_eq!(me.names(&top), names);
}

pub(super) fn case_sensitivity_is_as_declared(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let _ = me.file(&top, "Name");
    assert_eq!(me.lookup(&top, "nAME").is_ok(), t.backend().properties().case_insensitive);
    if t.backend().properties().case_preserving {
        assert_eq!(me.names(&top), [b"Name"]);
    }
}
