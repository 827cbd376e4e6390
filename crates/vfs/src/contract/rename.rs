use super::subject::{Subject, assert_fails};
use crate::{Error, Handle};

pub(super) fn moves_within_and_across_directories(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (file, other) = (me.file(&top, "f"), me.directory(&top, "other"));
    let within = me.rename((&top, "f"), (&top, "g")).unwrap();
    assert_eq!(within.from, within.to);
    assert_eq!(me.names(&top), [&b"g"[..], b"other"]);
    let before = (me.getattr(&top).unwrap(), me.getattr(&other).unwrap());
    let across = me.rename((&top, "g"), (&other, "h")).unwrap();
    assert!(t.is_same_change(before.0.change, across.from.before.change));
    assert!(t.is_same_change(before.1.change, across.to.before.change));
    assert!(t.is_same_change(across.from.after.change, me.getattr(&top).unwrap().change));
    assert!(t.is_same_change(across.to.after.change, me.getattr(&other).unwrap().change));
    assert_eq!(me.names(&top), [b"other"]);
    assert_eq!(me.lookup(&other, "h").unwrap().handle, file);
}

pub(super) fn replaces_a_file(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (file, replaced) = (me.file(&top, "f"), me.file(&top, "g"));
    me.rename((&top, "f"), (&top, "g")).unwrap();
    assert_eq!(me.names(&top), [b"g"]);
    assert_eq!(me.lookup(&top, "g").unwrap().handle, file);
    assert_fails(me.getattr(&replaced), &[Error::Stale]);
    // A link is itself replaced, not its target; another name keeps a replaced file.
    let kept = me.file(&top, "kept");
    me.link(&kept, &top, "second").unwrap();
    let _ = me.symlink(&top, "link", "g");
    me.rename((&top, "g"), (&top, "link")).unwrap();
    me.rename((&top, "link"), (&top, "second")).unwrap();
    assert_eq!(me.names(&top), [&b"kept"[..], b"second"]);
    assert_eq!(me.getattr(&kept).unwrap().links, 1);
}

pub(super) fn replaces_an_empty_directory_only(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (directory, target) = (me.directory(&top, "d"), me.directory(&top, "target"));
    let file = me.file(&target, "f");
    assert_fails(me.rename((&top, "d"), (&top, "target")), &[Error::NotEmpty, Error::Exists]);
    assert_eq!(me.lookup(&target, "f").unwrap().handle, file);
    me.rename((&target, "f"), (&directory, "f")).unwrap();
    me.rename((&top, "d"), (&top, "target")).unwrap();
    assert_eq!(me.lookup(&top, "target").unwrap().handle, directory);
    assert_fails(me.getattr(&target), &[Error::Stale]);
    assert_eq!(me.names(&directory), [b"f"]);
}

pub(super) fn kinds_do_not_replace_each_other(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let _ = (me.file(&top, "f"), me.directory(&top, "d"), me.symlink(&top, "l", "d"));
    assert_fails(me.rename((&top, "f"), (&top, "d")), &[Error::IsDirectory]);
    assert_fails(me.rename((&top, "l"), (&top, "d")), &[Error::IsDirectory]);
    assert_fails(me.rename((&top, "d"), (&top, "f")), &[Error::NotDirectory]);
    assert_fails(me.rename((&top, "d"), (&top, "l")), &[Error::NotDirectory]);
    assert_eq!(me.names(&top).len(), 3);
}

/// Renames, and requires that nothing changed.
fn does_nothing(t: &Subject, objects: &[Handle], from: &str, to: &str) {
    let state = || objects.iter().map(|object| t.me().getattr(object).unwrap()).collect::<Vec<_>>();
    let (before, names) = (state(), t.me().names(&t.top()));
    t.me().rename((&t.top(), from), (&t.top(), to)).unwrap();
    for (before, after) in before.iter().zip(state()) {
        assert!(t.is_same_change(before.change, after.change));
        assert_eq!(before.modified, after.modified);
    }
    assert_eq!(t.me().names(&t.top()), names);
}

pub(super) fn onto_itself_does_nothing(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let objects = [top, me.file(&top, "f"), me.directory(&top, "d")];
    does_nothing(t, &objects, "f", "f");
    does_nothing(t, &objects, "d", "d");
}

// POSIX.1-2024 rename(): if old and new are entries of the same file, it succeeds and does nothing. RFC 8881 §18.26.3:
// "RENAME MUST perform no action and return NFS4_OK."
pub(super) fn two_names_of_one_file_do_nothing(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "a");
    me.link(&file, &top, "b").unwrap();
    does_nothing(t, &[top, file], "a", "b");
}

pub(super) fn a_directory_cannot_move_into_itself(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let outer = me.directory(&top, "outer");
    let inner = me.directory(&outer, "inner");
    assert_fails(me.rename((&top, "outer"), (&outer, "x")), &[Error::Invalid]);
    assert_fails(me.rename((&top, "outer"), (&inner, "x")), &[Error::Invalid]);
    assert_fails(me.rename((&top, "outer"), (&outer, "inner")), &[Error::Invalid]);
    assert_eq!(me.parent(&inner).unwrap().handle, outer);
}

pub(super) fn a_directory_does_not_replace_its_ancestor(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let outer = me.directory(&top, "outer");
    let inner = me.directory(&outer, "inner");
    let _ = (me.directory(&inner, "d"), me.file(&inner, "f"));
    assert_fails(me.rename((&inner, "d"), (&top, "outer")), &[Error::NotEmpty, Error::Exists]);
    assert_fails(me.rename((&inner, "f"), (&top, "outer")), &[Error::IsDirectory, Error::NotEmpty]);
}

pub(super) fn keeps_the_handle_and_the_content(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (from, to) = (me.directory(&top, "from"), me.directory(&top, "to"));
    let file = me.file(&from, "f");
    me.write(&file, 0, "content").unwrap();
    let before = me.getattr(&file).unwrap();
    me.rename((&from, "f"), (&to, "g")).unwrap();
    let after = me.getattr(&file).unwrap();
    assert_eq!(after.fileid, before.fileid);
    assert_eq!((after.modified, after.accessed), (before.modified, before.accessed));
    assert_eq!(me.lookup(&to, "g").unwrap().handle, file);
    assert_eq!(me.read(&file, 0, 10).unwrap(), b"content");
}

pub(super) fn counts_subdirectories(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (a, b) = (me.directory(&top, "a"), me.directory(&top, "b"));
    let moving = me.directory(&a, "moving");
    let links = |directory: &Handle| me.getattr(directory).unwrap().links;
    // If the file system counts them: POSIX does not require it, and btrfs does not.
    if links(&a) != 3 {
        return;
    }
    assert_eq!((links(&top), links(&b), links(&moving)), (4, 2, 2));
    let _ = me.directory(&b, "target");
    me.rename((&a, "moving"), (&b, "target")).unwrap();
    assert_eq!((links(&a), links(&b)), (2, 3));
    me.remove(&b, "target", crate::Removal::Directory).unwrap();
    assert_eq!(links(&b), 2);
}

pub(super) fn a_missing_name_cannot_be_renamed(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    assert_fails(me.rename((&top, "nothing"), (&top, "f")), &[Error::NotFound]);
    assert_fails(me.rename((&file, "x"), (&top, "y")), &[Error::NotDirectory]);
    assert_fails(me.rename((&top, "f"), (&file, "y")), &[Error::NotDirectory]);
    assert_eq!(me.names(&top), [b"f"]);
}
