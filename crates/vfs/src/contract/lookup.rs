use super::subject::{Subject, assert_fails};
use crate::{Create, Error, FileKind};

pub(super) fn finds_every_kind(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let fifo = me.make(&top, "fifo", &Create::Fifo, 0o600).unwrap().handle;
    for (name, handle, kind) in [
        ("file", me.file(&top, "file"), FileKind::Regular),
        ("directory", me.directory(&top, "directory"), FileKind::Directory),
        ("symlink", me.symlink(&top, "symlink", "file"), FileKind::Symlink),
        ("fifo", fifo, FileKind::Fifo),
    ] {
        let found = me.lookup(&top, name).unwrap();
        assert_eq!((found.handle, found.attributes.kind), (handle, kind), "{name}");
        assert_eq!(found.attributes, me.getattr(&handle).unwrap(), "{name}");
    }
    let found = me.lookup(&top, "file").unwrap();
    assert_eq!(found.directory, me.getattr(&top).unwrap());
}

pub(super) fn a_missing_name_is_not_found(t: &Subject) {
    assert_fails(t.me().lookup(&t.top(), "nothing"), &[Error::NotFound]);
}

pub(super) fn only_directories_have_entries(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    assert_fails(me.lookup(&me.file(&top, "f"), "x"), &[Error::NotDirectory]);
    assert_fails(me.lookup(&me.symlink(&top, "l", "."), "f"), &[Error::NotDirectory]);
}

pub(super) fn links_are_not_followed(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    for (name, text) in [("out", "/"), ("up", "../../.."), ("nowhere", "nothing"), ("loop", "loop")] {
        let link = me.symlink(&top, name, text);
        assert_eq!(me.lookup(&top, name).unwrap().handle, link);
        assert_eq!(me.readlink(&link).unwrap(), text);
    }
}

pub(super) fn parent_leads_up_to_the_root(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let outer = me.directory(&top, "outer");
    let inner = me.directory(&outer, "inner");
    let found = me.parent(&inner).unwrap();
    assert_eq!(found.handle, outer);
    assert_eq!(found.attributes, me.getattr(&outer).unwrap());
    assert_eq!(found.directory, me.getattr(&inner).unwrap());
    me.rename((&outer, "inner"), (&top, "moved")).unwrap();
    assert_eq!(me.parent(&inner).unwrap().handle, top);
    // An export ends at its root.
    assert_fails(me.parent(&t.backend().root()), &[Error::NotFound]);
    assert_fails(me.parent(&me.file(&top, "f")), &[Error::NotDirectory]);
}

pub(super) fn readlink_is_for_links_only(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    assert_fails(me.readlink(&me.file(&top, "f")), &[Error::Invalid]);
    assert_fails(me.readlink(&top), &[Error::Invalid]);
}
