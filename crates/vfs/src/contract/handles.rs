use std::collections::BTreeSet;

use super::subject::{Subject, assert_fails};
use crate::{Access, Create, CreateMode, Error, Handle, MAX_HANDLE, Removal, Seek, SetAttributes, SetXattr};

pub(super) fn lookups_return_equal_handles(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    me.write(&file, 0, "content").unwrap();
    me.chmod(&file, 0o600).unwrap();
    for _ in 0..3 {
        assert_eq!(me.lookup(&top, "f").unwrap().handle, file);
    }
    assert!(!file.is_empty() && file.len() <= MAX_HANDLE);
}

/// Requires every operation on `handle` to fail with one of `errors`.
fn assert_dead(t: &Subject, handle: &Handle, errors: &[Error]) {
    let (me, top) = (t.me(), t.top());
    let alive = me.lookup(&top, "alive").unwrap().handle;
    assert_fails(me.getattr(handle), errors);
    assert_fails(me.setattr(handle, SetAttributes::default()), errors);
    assert_fails(me.chmod(handle, 0o600), errors);
    assert_fails(me.lookup(handle, "x"), errors);
    assert_fails(me.parent(handle), errors);
    assert_fails(me.access(handle, Access::all()), errors);
    assert_fails(me.readlink(handle), errors);
    assert_fails(me.read(handle, 0, 1), errors);
    assert_fails(me.write(handle, 0, "x"), errors);
    assert_fails(me.commit(handle, 0, 0), errors);
    assert_fails(me.make(handle, "x", &Create::File(CreateMode::Unchecked), 0o600), errors);
    assert_fails(me.make(handle, "x", &Create::Directory, 0o700), errors);
    assert_fails(me.remove(handle, "x", Removal::Any), errors);
    assert_fails(me.rename((handle, "x"), (&top, "y")), errors);
    assert_fails(me.rename((&top, "alive"), (handle, "y")), errors);
    assert_fails(me.link(handle, &top, "y"), errors);
    assert_fails(me.link(&alive, handle, "y"), errors);
    assert_fails(me.page(handle, (0, [0; 8]), 1), errors);
    assert_fails(me.open(handle, true, true), errors);
    assert_fails(me.statfs(handle), errors);
    if t.capabilities().holes {
        assert_fails(me.seek(handle, 0, Seek::Data), errors);
        assert_fails(me.allocate(handle, 0, 1), errors);
        assert_fails(me.deallocate(handle, 0, 1), errors);
        assert_fails(me.write_hole(handle, 0, 1), errors);
    }
    if t.backend().properties().xattrs {
        assert_fails(me.get_xattr(handle, "a"), errors);
        assert_fails(me.set_xattr(handle, "a", "b", SetXattr::Either), errors);
        assert_fails(me.list_xattrs(handle), errors);
        assert_fails(me.remove_xattr(handle, "a"), errors);
    }
    assert_eq!(me.names(&top), [b"alive"]);
}

pub(super) fn removed_files_are_stale_for_every_operation(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (_, file, directory) = (me.file(&top, "alive"), me.file(&top, "f"), me.directory(&top, "d"));
    let link = me.symlink(&top, "l", "x");
    for name in ["f", "d", "l"] {
        me.remove(&top, name, Removal::Any).unwrap();
    }
    for handle in [file, directory, link] {
        assert_dead(t, &handle, &[Error::Stale]);
    }
}

pub(super) fn malformed_handles_are_refused(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let good = me.file(&top, "alive").to_vec();
    let zeros = vec![0; good.len()];
    let ones = vec![0xff; good.len()];
    let longer = [&good[..], b"\0"].concat();
    for bytes in
        [&b""[..], b"\0", &[0xff; MAX_HANDLE], &good[..good.len() - 1], &good[..1], &longer, &zeros, &ones]
    {
        if let Ok(handle) = Handle::new(bytes) {
            assert_dead(t, &handle, &[Error::BadHandle, Error::Stale]);
        }
    }
}

// RFC 1813 §2.6 on NFS3ERR_STALE, and the assumption of clients' caches: an inode number may be reused, a handle not.
pub(super) fn a_handle_never_refers_to_another_file(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let mut gone = Vec::new();
    for _ in 0..100 {
        gone.push(me.file(&top, "same name"));
        me.remove(&top, "same name", Removal::File).unwrap();
    }
    let last = me.file(&top, "same name");
    for handle in gone {
        assert_ne!(handle, last);
        assert_fails(me.getattr(&handle), &[Error::Stale]);
    }
}

pub(super) fn handles_differ(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let handles: BTreeSet<Vec<u8>> =
        (0..200).map(|number| me.file(&top, format!("{number}")).to_vec()).collect();
    assert_eq!(handles.len(), 200);
}

pub(super) fn handles_survive_the_move_of_an_ancestor(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (outer, other) = (me.directory(&top, "outer"), me.directory(&top, "other"));
    let inner = me.directory(&outer, "inner");
    let file = me.file(&inner, "f");
    me.write(&file, 0, "content").unwrap();
    me.rename((&top, "outer"), (&other, "renamed")).unwrap();
    assert_eq!(me.read(&file, 0, 10).unwrap(), b"content");
    assert_eq!(me.lookup(&inner, "f").unwrap().handle, file);
    assert_eq!(me.parent(&inner).unwrap().handle, outer);
    assert_eq!(me.parent(&outer).unwrap().handle, other);
    let _ = me.file(&inner, "new");
    assert_eq!(me.names(&inner), [&b"f"[..], b"new"]);
}
