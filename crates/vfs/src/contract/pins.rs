use super::subject::{Subject, assert_fails};
use crate::{Authority, Error, OpenAccess, Removal, Stability};

/// Reads and writes through an open file without a name.
fn works_without_a_name(t: &Subject, file: &crate::Handle) {
    let me = t.me();
    assert_eq!(me.getattr(file).unwrap().links, 0);
    assert_eq!(me.read_with(file, 0, 10, Authority::Opened).unwrap().0, b"content");
    me.write_with(file, 7, " more", Stability::FileSync, Authority::Opened).unwrap();
    assert_eq!(me.read_with(file, 0, 20, Authority::Opened).unwrap().0, b"content more");
    me.commit(file, 0, 0).unwrap();
    assert_eq!(me.truncate(file, 3).unwrap().after.size, 3);
    me.chmod(file, 0o600).unwrap();
}

pub(super) fn an_unlinked_open_file_stays(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    me.write(&file, 0, "content").unwrap();
    let opened = me.open(&file, true, true).unwrap();
    assert_eq!(opened.attributes.size, 7);
    me.remove(&top, "f", Removal::File).unwrap();
    assert!(me.names(&top).is_empty());
    let second = me.file(&top, "f");
    works_without_a_name(t, &file);
    assert_eq!(me.getattr(&second).unwrap().size, 0, "another file has the name now");
    drop(opened);
    assert_fails(me.getattr(&file), &[Error::Stale]);
}

pub(super) fn a_replaced_open_file_stays(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (file, other) = (me.file(&top, "f"), me.file(&top, "other"));
    me.write(&file, 0, "content").unwrap();
    let opened = me.open(&file, true, true).unwrap();
    me.rename((&top, "other"), (&top, "f")).unwrap();
    works_without_a_name(t, &file);
    drop(opened);
    assert_fails(me.read(&file, 0, 1), &[Error::Stale]);
    assert_eq!(me.lookup(&top, "f").unwrap().handle, other);
}

pub(super) fn the_last_of_several_opens_counts(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    let (first, second) = (me.open(&file, true, false).unwrap(), me.open(&file, true, false).unwrap());
    let clone = second.clone();
    me.remove(&top, "f", Removal::File).unwrap();
    drop((first, second));
    me.getattr(&file).unwrap();
    drop(clone);
    assert_fails(me.getattr(&file), &[Error::Stale]);
}

pub(super) fn an_open_of_a_named_file_changes_nothing(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    let before = me.getattr(&file).unwrap();
    for (read, write) in [(true, false), (false, true), (true, true)] {
        t.assert_same(&before, &me.open(&file, read, write).unwrap().attributes);
    }
    t.assert_same(&before, &me.getattr(&file).unwrap());
}

pub(super) fn a_file_is_opened_and_read_with_known_attributes(t: &Subject) {
    let (me, top, access) = (t.me(), t.top(), OpenAccess { read: true, write: true });
    let file = me.file(&top, "f");
    me.write(&file, 0, "content").unwrap();
    let found = me.lookup(&top, "f").unwrap();
    let opened = me.open_seen(&file, &found.attributes, access).unwrap();
    t.assert_same(&opened.attributes, &me.getattr(&file).unwrap());
    let (data, read) = me.read_seen(&file, &found.attributes, 10).unwrap();
    assert_eq!((&data[..], read.eof), (&b"content"[..], true));
    let (data, read) = me.read_seen(&file, &found.attributes, 6).unwrap();
    assert_eq!((&data[..], read.eof), (&b"conten"[..], false));
    // Whatever its size was before: no more is read than there is, and the old content is not kept.
    me.truncate(&file, 3).unwrap();
    assert_eq!(me.read_seen(&file, &found.attributes, 10).unwrap().0, b"con");
    // Its name may be removed while it is open.
    me.remove(&top, "f", Removal::File).unwrap();
    assert_eq!(me.read_seen(&file, &found.attributes, 3).unwrap().0, b"con");
    drop(opened);
    assert_fails(me.open_seen(&file, &found.attributes, access).map(drop), &[Error::Stale]);
}
