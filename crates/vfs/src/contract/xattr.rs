use super::subject::{Subject, assert_fails};
use crate::{Error, Removal, SetXattr};

/// Linux's XATTR_SIZE_MAX in bytes.
const VALUE_MAX: usize = 65_536;
/// Linux's XATTR_NAME_MAX in bytes, less the prefix `user.`.
const NAME_MAX: usize = 250;

fn skipped(t: &Subject) -> bool {
    t.lacks(t.backend().properties().xattrs, "extended attributes")
}

pub(super) fn values_are_kept(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    assert!(me.list_xattrs(&file).unwrap().is_empty());
    let longest = "n".repeat(NAME_MAX);
    for (name, value) in [
        ("b", &b"value"[..]),
        ("a", b"\0\xff binary"),
        ("empty", b""),
        ("with.dots/slash", b"x"),
        (&longest, b"y"),
    ] {
        let change = me.set_xattr(&file, name, value, SetXattr::Either).unwrap();
        assert!(change.after.change > change.before.change);
        assert_eq!(me.get_xattr(&file, name).unwrap(), value, "{name}");
    }
    assert_eq!(me.list_xattrs(&file).unwrap(), ["a", "b", "empty", &longest, "with.dots/slash"]);
    me.set_xattr(&file, "b", "other", SetXattr::Either).unwrap();
    assert_eq!(me.get_xattr(&file, "b").unwrap(), "other");
    me.remove_xattr(&file, "b").unwrap();
    assert_fails(me.get_xattr(&file, "b"), &[Error::NoXattr]);
    assert_eq!(me.list_xattrs(&file).unwrap().len(), 4);
}

pub(super) fn create_and_replace_are_exact(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    assert_fails(me.set_xattr(&file, "a", "1", SetXattr::Replace), &[Error::NoXattr]);
    me.set_xattr(&file, "a", "1", SetXattr::Create).unwrap();
    assert_fails(me.set_xattr(&file, "a", "2", SetXattr::Create), &[Error::Exists]);
    assert_eq!(me.get_xattr(&file, "a").unwrap(), "1");
    me.set_xattr(&file, "a", "3", SetXattr::Replace).unwrap();
    assert_eq!(me.get_xattr(&file, "a").unwrap(), "3");
}

pub(super) fn a_missing_attribute_is_an_error(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let before = me.getattr(&file).unwrap().change;
    assert_fails(me.get_xattr(&file, "nothing"), &[Error::NoXattr]);
    assert_fails(me.remove_xattr(&file, "nothing"), &[Error::NoXattr]);
    assert!(t.is_same_change(before, me.getattr(&file).unwrap().change));
}

pub(super) fn bad_names_and_sizes_are_refused(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    for (name, error) in
        [(&b""[..], Error::BadName), (b"a\0b", Error::BadName), (&[b'n'; NAME_MAX + 1], Error::NameTooLong)]
    {
        assert_fails(me.set_xattr(&file, name, "x", SetXattr::Either), &[error]);
        assert_fails(me.get_xattr(&file, name), &[error]);
        assert_fails(me.remove_xattr(&file, name), &[error]);
    }
    let value = vec![1; VALUE_MAX + 1];
    assert_fails(me.set_xattr(&file, "big", value, SetXattr::Either), &[Error::TooBig]);
    assert!(me.list_xattrs(&file).unwrap().is_empty());
}

pub(super) fn directories_have_extended_attributes(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, directory) = (t.me(), t.me().directory(&t.top(), "d"));
    me.set_xattr(&directory, "a", "1", SetXattr::Create).unwrap();
    assert_eq!(me.get_xattr(&directory, "a").unwrap(), "1");
    assert_eq!(me.list_xattrs(&directory).unwrap(), ["a"]);
    me.remove_xattr(&directory, "a").unwrap();
}

pub(super) fn extended_attributes_need_permission(t: &Subject) {
    if skipped(t) || t.lacks(t.capabilities().identities, "identities") {
        return;
    }
    let (root, user) = (t.root(), t.user(1));
    let file = root.file(&t.top(), "f");
    root.set_xattr(&file, "a", "1", SetXattr::Create).unwrap();
    assert_eq!(user.get_xattr(&file, "a").unwrap(), "1");
    assert_fails(user.set_xattr(&file, "a", "2", SetXattr::Either), &[Error::Access]);
    assert_fails(user.remove_xattr(&file, "a"), &[Error::Access]);
    root.chmod(&file, 0o600).unwrap();
    assert_fails(user.get_xattr(&file, "a"), &[Error::Access]);
    root.chmod(&file, 0o602).unwrap();
    user.set_xattr(&file, "a", "2", SetXattr::Either).unwrap();
    assert_eq!(root.get_xattr(&file, "a").unwrap(), "2");
}

pub(super) fn extended_attributes_belong_to_the_file(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    me.set_xattr(&file, "a", "1", SetXattr::Create).unwrap();
    me.link(&file, &top, "g").unwrap();
    me.remove(&top, "f", Removal::File).unwrap();
    me.rename((&top, "g"), (&top, "h")).unwrap();
    assert_eq!(me.get_xattr(&file, "a").unwrap(), "1");
    let new = me.file(&top, "f");
    assert_fails(me.get_xattr(&new, "a"), &[Error::NoXattr]);
}
