use super::subject::Subject;
use crate::{Create, CreateMode, Removal, SetAttributes};

pub(super) fn handles_and_identity_survive(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (directory, file) = (me.directory(&top, "d"), me.file(&top, "f"));
    me.rename((&top, "f"), (&directory, "renamed")).unwrap();
    me.write(&file, 0, "content").unwrap();
    let gone = me.file(&top, "gone");
    me.remove(&top, "gone", Removal::File).unwrap();
    let Some(again) = t.restart() else {
        let _ = t.lacks(false, "storage that outlives it");
        return;
    };
    let context = me.context();
    assert_eq!(again.root(), t.backend().root());
    assert_eq!(again.identity(), t.backend().identity());
    for handle in [top, directory, file] {
        let attributes = t.wait(again.getattr(&context, &handle)).unwrap();
        let before = me.getattr(&handle).unwrap();
        assert_eq!((attributes.fileid, attributes.fsid), (before.fileid, before.fsid));
        assert_eq!(attributes.size, before.size);
    }
    assert_eq!(t.wait(again.lookup(&context, &directory, b"renamed")).unwrap().handle, file);
    assert_eq!(t.wait(again.getattr(&context, &gone)), Err(crate::Error::Stale));
}

// RFC 1813 §3.3.8: the verifier is kept "in stable storage", since the server may have crashed before its answer
// arrived.
pub(super) fn exclusive_creates_are_recognized(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let what = Create::File(CreateMode::Exclusive(*b"verifier"));
    let file = me.create(&top, "f", &what, &SetAttributes::default()).unwrap().handle;
    let Some(again) = t.restart() else {
        let _ = t.lacks(false, "storage that outlives it");
        return;
    };
    let (context, none) = (me.context(), SetAttributes::default());
    let repeated = t.wait(again.create(&context, &top, b"f", &what, &none)).unwrap();
    assert_eq!((repeated.handle, repeated.is_new), (file, false));
    let other = Create::File(CreateMode::Exclusive(*b"Verifier"));
    assert_eq!(t.wait(again.create(&context, &top, b"f", &other, &none)).err(), Some(crate::Error::Exists));
}

pub(super) fn the_change_attribute_does_not_go_back(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    for _ in 0..50 {
        me.write(&file, 0, "content").unwrap();
    }
    let before = me.getattr(&file).unwrap().change;
    let Some(again) = t.restart() else {
        let _ = t.lacks(false, "storage that outlives it");
        return;
    };
    let context = me.context();
    let seen = t.wait(again.getattr(&context, &file)).unwrap().change;
    assert!(seen >= before, "{seen} after the restart, {before} before");
    let data = bytes::Bytes::from_static(b"changed");
    let (stability, authority) = (crate::Stability::FileSync, crate::Authority::Caller);
    let written = t.wait(again.write(&context, &file, 0, &data, stability, authority)).unwrap();
    assert!(written.change.after.change > before);
}
