//! Tests that a watch of a directory's entries shows whether a listing is still valid.

use std::sync::Arc;

use super::{Caller, Subject};
use crate::{
    Acl, AclEntry, AclKind, AclTag, Authority, CopyRange, Create, EntriesWatch, Error, Handle, Removal,
    Result, SetAttributes, SetTime, SetXattr, Timestamp,
};

/// Starts a watch; `None` with a message if the backend has none.
fn watch(t: &Subject, directory: &Handle) -> Option<Arc<dyn EntriesWatch>> {
    let watch = t.wait(t.backend().watch_entries(&t.me().context(), directory)).expect("a directory");
    if watch.is_none() {
        assert!(t.lacks(false, "a watch of entries"));
    }
    watch
}

/// The objects that are changed: a directory that is watched, its entries, and another directory.
struct Scene<'t> {
    t: &'t Subject,
    me: Caller<'t>,
    watched: Handle,
    beside: Handle,
    file: Handle,
    inner: Handle,
}

impl<'t> Scene<'t> {
    fn new(t: &'t Subject) -> Self {
        let (me, top) = (t.me(), t.top());
        let watched = me.directory(&top, "watched");
        let beside = me.directory(&top, "beside");
        let file = me.file(&watched, "file");
        let inner = me.directory(&watched, "inner");
        let _ = (me.file(&watched, "goes"), me.file(&inner, "leaf"), me.file(&beside, "over"));
        me.write(&file, 0, [7; 8192]).expect("written");
        me.link(&file, &beside, "second name").expect("linked");
        Self { t, me, watched, beside, file, inner }
    }

    fn times(&self, accessed: Option<SetTime>, modified: Option<SetTime>) {
        let set = SetAttributes { accessed, modified, ..SetAttributes::default() };
        self.me.setattr(&self.file, set).expect("times");
    }

    fn range(&self) -> CopyRange {
        let source = self.me.lookup(&self.beside, "source").expect("made before").handle;
        CopyRange {
            source,
            source_offset: 0,
            source_authority: Authority::Caller,
            destination: self.file,
            destination_offset: 0,
            destination_authority: Authority::Caller,
            count: 4096,
        }
    }

    /// Returns false if the backend does not support the operation.
    fn try_it<T>(done: Result<T>) -> bool {
        match done {
            Ok(_) => true,
            Err(Error::NotSupported) => false,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Makes a change. Returns false if the backend does not support it.
type Make = fn(&Scene<'_>) -> bool;

fn done<T>(made: Result<T>) -> bool {
    made.expect("changed");
    true
}

/// Each needs those before it.
const CHANGES: &[(&str, Make)] = &[
    ("write", |s| done(s.me.write(&s.file, 3, b"data"))),
    ("truncate", |s| done(s.me.truncate(&s.file, 5000))),
    ("mode", |s| done(s.me.chmod(&s.file, 0o600))),
    ("owner", |s| done(s.me.chown(&s.file, s.me.credentials().uid, s.me.credentials().gid))),
    ("time of access", |s| {
        s.times(Some(SetTime::To(Timestamp { seconds: 5, nanoseconds: 0 })), None);
        true
    }),
    ("time of modification", |s| {
        s.times(None, Some(SetTime::To(Timestamp { seconds: 6, nanoseconds: 0 })));
        true
    }),
    ("both times", |s| {
        s.times(Some(SetTime::Now), Some(SetTime::Now));
        true
    }),
    ("create", |s| done(s.me.make(&s.watched, "new", &Create::Fifo, 0o644))),
    ("create, of an existing file", |s| {
        let set = SetAttributes { size: Some(1), ..SetAttributes::default() };
        done(s.me.create(&s.watched, "file", &Create::File(crate::CreateMode::Unchecked), &set))
    }),
    ("create a directory", |s| done(s.me.make(&s.watched, "new directory", &Create::Directory, 0o755))),
    ("remove", |s| done(s.me.remove(&s.watched, "new", Removal::File))),
    ("remove a directory", |s| done(s.me.remove(&s.watched, "new directory", Removal::Directory))),
    ("link", |s| done(s.me.link(&s.file, &s.watched, "third name"))),
    ("link elsewhere", |s| done(s.me.link(&s.file, &s.beside, "fourth name"))),
    ("remove a name elsewhere", |s| done(s.me.remove(&s.beside, "fourth name", Removal::File))),
    ("rename within", |s| done(s.me.rename((&s.watched, "third name"), (&s.watched, "fifth name")))),
    ("rename away", |s| done(s.me.rename((&s.watched, "fifth name"), (&s.beside, "sixth name")))),
    ("rename over", |s| done(s.me.rename((&s.beside, "over"), (&s.watched, "goes")))),
    ("an entry of a subdirectory", |s| done(s.me.make(&s.inner, "leaf 2", &Create::Fifo, 0o644))),
    ("rename in a subdirectory", |s| done(s.me.rename((&s.inner, "leaf 2"), (&s.inner, "leaf 3")))),
    ("the directory's own mode", |s| done(s.me.chmod(&s.watched, 0o750))),
    ("extended attribute", |s| {
        let (context, value) = (s.me.context(), bytes::Bytes::from_static(b"v"));
        Scene::try_it(s.t.wait(s.t.backend().set_xattr(&context, &s.file, b"a", &value, SetXattr::Either)))
    }),
    ("removal of an extended attribute", |s| {
        Scene::try_it(s.t.wait(s.t.backend().remove_xattr(&s.me.context(), &s.file, b"a")))
    }),
    ("ACL", |s| {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let acl = Acl::new(vec![
            entry(AclTag::Owner, 6),
            entry(AclTag::User(4321), 4),
            entry(AclTag::OwningGroup, 4),
            entry(AclTag::Mask, 4),
            entry(AclTag::Other, 0),
        ]);
        let acl = acl.expect("a good one");
        Scene::try_it(s.t.wait(s.t.backend().set_acl(&s.me.context(), &s.file, AclKind::Access, Some(&acl))))
    }),
    ("allocate", |s| {
        Scene::try_it(s.t.wait(s.t.backend().allocate(
            &s.me.context(),
            &s.file,
            0,
            100_000,
            Authority::Caller,
        )))
    }),
    ("deallocate", |s| {
        Scene::try_it(s.t.wait(s.t.backend().deallocate(
            &s.me.context(),
            &s.file,
            0,
            4096,
            Authority::Caller,
        )))
    }),
    ("write a hole", |s| {
        Scene::try_it(s.t.wait(s.t.backend().write_hole(
            &s.me.context(),
            &s.file,
            0,
            4096,
            Authority::Caller,
        )))
    }),
    ("copy", |s| {
        let source = s.me.file(&s.beside, "source");
        s.me.write(&source, 0, [1; 8192]).expect("written");
        Scene::try_it(s.t.wait(s.t.backend().copy_range(&s.me.context(), &s.range())))
    }),
    ("clone", |s| Scene::try_it(s.t.wait(s.t.backend().clone_range(&s.me.context(), &s.range())))),
    ("a write by another name", |s| {
        let file = s.me.lookup(&s.beside, "second name").expect("there").handle;
        done(s.me.write(&file, 0, b"more"))
    }),
    ("rename of the directory", |s| done(s.me.rename((&s.t.top(), "watched"), (&s.t.top(), "moved")))),
];

pub(super) fn every_change_of_a_listing_ends_the_watch(t: &Subject) {
    let scene = Scene::new(t);
    for (what, make) in CHANGES {
        let Some(watch) = watch(t, &scene.watched) else { return };
        assert!(watch.is_unchanged(), "before: {what}");
        if make(&scene) {
            assert!(!watch.is_unchanged(), "{what}");
            assert!(!watch.is_unchanged(), "it is still changed: {what}");
        }
    }
}

pub(super) fn unlisted_changes_do_not_end_the_watch(t: &Subject) {
    let scene = Scene::new(t);
    let stays = || {
        let Some(watch) = watch(t, &scene.watched) else { return true };
        assert_eq!(watch.entries(), 3);
        let (me, watched) = (&scene.me, &scene.watched);
        assert_eq!(me.names(watched).len(), 3);
        me.getattr(&scene.file).expect("there");
        me.lookup(watched, "file").expect("there");
        assert_eq!(me.lookup(watched, "nothing").err(), Some(Error::NotFound));
        watch.is_unchanged()
    };
    // A back end may end a watch for other reasons: `localfs` when an access time is set anywhere, as other tests do meanwhile.
    assert!((0..20).any(|_| stays()));
}

pub(super) fn only_a_directory_has_entries_to_watch(t: &Subject) {
    let scene = Scene::new(t);
    if watch(t, &scene.watched).is_none() {
        return;
    }
    let context = scene.me.context();
    let of_a_file = t.wait(t.backend().watch_entries(&context, &scene.file));
    assert_eq!(of_a_file.err(), Some(Error::NotDirectory));
    scene.me.remove(&scene.inner, "leaf", Removal::File).expect("removed");
    scene.me.remove(&scene.watched, "inner", Removal::Directory).expect("removed");
    let of_nothing = t.wait(t.backend().watch_entries(&context, &scene.inner));
    assert_eq!(of_nothing.err(), Some(Error::Stale));
}
