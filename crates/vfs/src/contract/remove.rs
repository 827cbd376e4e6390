use super::subject::{Subject, assert_fails};
use crate::{Create, Error, Removal};

const ANY: [Removal; 3] = [Removal::File, Removal::Directory, Removal::Any];

pub(super) fn a_file_is_removed_with_its_last_name(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "a");
    me.write(&file, 0, "content").unwrap();
    me.link(&file, &top, "b").unwrap();
    me.remove(&top, "a", Removal::File).unwrap();
    assert_fails(me.lookup(&top, "a"), &[Error::NotFound]);
    assert_eq!(me.getattr(&file).unwrap().links, 1);
    assert_eq!(me.read(&file, 0, 10).unwrap(), b"content");
    me.remove(&top, "b", Removal::File).unwrap();
    assert_fails(me.getattr(&file), &[Error::Stale]);
    assert!(me.names(&top).is_empty());
}

pub(super) fn kinds_are_distinguished(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    for removal in [Removal::File, Removal::Any] {
        let _ = (me.file(&top, "f"), me.symlink(&top, "l", "d"));
        me.make(&top, "p", &Create::Fifo, 0o600).unwrap();
        for name in ["f", "l", "p"] {
            assert_fails(me.remove(&top, name, Removal::Directory), &[Error::NotDirectory]);
            me.remove(&top, name, removal).unwrap();
        }
    }
    for removal in [Removal::Directory, Removal::Any] {
        let directory = me.directory(&top, "d");
        assert_fails(me.remove(&top, "d", Removal::File), &[Error::IsDirectory]);
        me.remove(&top, "d", removal).unwrap();
        assert_fails(me.getattr(&directory), &[Error::Stale]);
    }
    let file = me.file(&top, "f");
    for removal in ANY {
        assert_fails(me.remove(&file, "x", removal), &[Error::NotDirectory]);
    }
}

pub(super) fn a_nonempty_directory_is_not_removed(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let directory = me.directory(&top, "d");
    let _ = me.file(&directory, "f");
    for removal in [Removal::Directory, Removal::Any] {
        assert_fails(me.remove(&top, "d", removal), &[Error::NotEmpty]);
    }
    me.remove(&directory, "f", Removal::File).unwrap();
    me.remove(&top, "d", Removal::Any).unwrap();
}

pub(super) fn a_missing_name_cannot_be_removed(t: &Subject) {
    let before = t.me().getattr(&t.top()).unwrap().change;
    for removal in ANY {
        assert_fails(t.me().remove(&t.top(), "nothing", removal), &[Error::NotFound]);
    }
    assert!(t.is_same_change(before, t.me().getattr(&t.top()).unwrap().change));
}

pub(super) fn a_removed_name_can_be_reused(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    for _ in 0..3 {
        let file = me.file(&top, "x");
        me.remove(&top, "x", Removal::File).unwrap();
        let directory = me.directory(&top, "x");
        assert_ne!(file, directory);
        me.remove(&top, "x", Removal::Directory).unwrap();
    }
}
