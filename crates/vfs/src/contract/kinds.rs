use super::subject::{Subject, assert_fails};
use crate::{Create, CreateMode, Error, FileKind, Removal};

pub(super) fn content_is_for_regular_files(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let fifo = me.make(&top, "p", &Create::Fifo, 0o666).unwrap().handle;
    let socket = me.make(&top, "s", &Create::Socket, 0o666).unwrap().handle;
    let link = me.symlink(&top, "l", "p");
    for (handle, error) in [
        (top, Error::IsDirectory),
        (fifo, Error::WrongKind),
        (socket, Error::WrongKind),
        (link, Error::WrongKind),
    ] {
        assert_fails(me.read(&handle, 0, 1), &[error]);
        assert_fails(me.write(&handle, 0, "x"), &[error]);
        assert_fails(me.commit(&handle, 0, 0), &[error]);
        let error = if handle == link { Error::IsSymlink } else { error };
        assert_fails(me.open(&handle, true, false), &[error]);
        assert_fails(me.open(&handle, false, true), &[error]);
    }
}

pub(super) fn entries_are_for_directories(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (file, link) = (me.file(&top, "f"), me.symlink(&top, "l", "."));
    for handle in [file, link] {
        let refused = &[Error::NotDirectory];
        assert_fails(me.lookup(&handle, "x"), refused);
        assert_fails(me.page(&handle, (0, [0; 8]), 1), refused);
        assert_fails(me.make(&handle, "x", &Create::File(CreateMode::Guarded), 0o600), refused);
        assert_fails(me.remove(&handle, "x", Removal::Any), refused);
        assert_fails(me.link(&file, &handle, "x"), refused);
        assert_fails(me.parent(&handle), refused);
    }
}

pub(super) fn special_files_have_attributes_like_others(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    for (name, what, kind) in [("p", Create::Fifo, FileKind::Fifo), ("s", Create::Socket, FileKind::Socket)] {
        let file = me.make(&top, name, &what, 0o600).unwrap().handle;
        assert_eq!(me.chmod(&file, 0o640).unwrap().after.mode, 0o640);
        me.link(&file, &top, "second").unwrap();
        me.rename((&top, "second"), (&top, "third")).unwrap();
        let attributes = me.lookup(&top, "third").unwrap().attributes;
        assert_eq!((attributes.kind, attributes.links), (kind, 2));
        me.remove(&top, "third", Removal::File).unwrap();
        me.remove(&top, name, Removal::Any).unwrap();
        assert_fails(me.getattr(&file), &[Error::Stale]);
    }
}
