use super::change::assert_joined;
use super::subject::{Subject, assert_fails};
use crate::{Create, Error, Removal};

pub(super) fn two_names_are_one_file(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (file, directory) = (me.file(&top, "a"), me.directory(&top, "d"));
    let around = me.getattr(&directory).unwrap();
    let linked = me.link(&file, &directory, "b").unwrap();
    assert_eq!(linked.attributes.links, 2);
    assert_joined(t, &around.before(), &linked.directory.before);
    assert!(t.is_same_change(linked.directory.after.change, me.getattr(&directory).unwrap().change));
    assert_joined(t, &linked.attributes.before(), &me.getattr(&file).unwrap().before());
    let found = me.lookup(&directory, "b").unwrap();
    assert_eq!(found.attributes.fileid, linked.attributes.fileid);
    // RFC 1813 §2.5: "If two file handles from the same server are equal, they must refer to the same file, but if
    // they are not equal, no conclusions can be drawn." RFC 8881 §4.2.1: where all paths lead to one object, "the server
    // SHOULD return the same filehandle for each path."
    assert_eq!(found.handle, file);
    me.write(&found.handle, 0, "content").unwrap();
    me.remove(&top, "a", Removal::File).unwrap();
    assert_eq!(me.read(&file, 0, 10).unwrap(), b"content");
    assert_eq!(me.getattr(&file).unwrap().links, 1);
}

pub(super) fn an_existing_name_is_refused(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (file, _) = (me.file(&top, "a"), me.directory(&top, "d"));
    for name in ["a", "d"] {
        assert_fails(me.link(&file, &top, name), &[Error::Exists]);
    }
    assert_eq!(me.getattr(&file).unwrap().links, 1);
}

pub(super) fn directories_have_one_name(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (file, directory) = (me.file(&top, "f"), me.directory(&top, "d"));
    assert_fails(me.link(&directory, &top, "e"), &[Error::IsDirectory]);
    assert_fails(me.link(&file, &file, "e"), &[Error::NotDirectory]);
}

pub(super) fn other_kinds_may_be_linked(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let symlink = me.symlink(&top, "l", "text");
    assert_eq!(me.link(&symlink, &top, "l2").unwrap().attributes.links, 2);
    assert_eq!(me.readlink(&me.lookup(&top, "l2").unwrap().handle).unwrap(), "text");
    let fifo = me.make(&top, "p", &Create::Fifo, 0o600).unwrap().handle;
    assert_eq!(me.link(&fifo, &top, "p2").unwrap().attributes.links, 2);
}

pub(super) fn a_file_has_many_names(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "0");
    for number in 1..200 {
        assert_eq!(me.link(&file, &top, format!("{number}")).unwrap().attributes.links, number + 1);
    }
    for number in 0..199 {
        me.remove(&top, format!("{number}"), Removal::Any).unwrap();
    }
    assert_eq!(me.getattr(&file).unwrap().links, 1);
}
