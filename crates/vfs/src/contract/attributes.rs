use super::subject::{Subject, assert_fails};
use crate::{Attributes, Authority, Create, CreateMode, Error, FileKind, SetAttributes, SetTime, Timestamp};

pub(super) fn a_new_object_has_the_requested_attributes(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let root = me.getattr(&t.backend().root()).unwrap();
    for (name, what, kind, mode, links) in [
        ("file", Create::File(CreateMode::Guarded), FileKind::Regular, 0o640, 1),
        ("directory", Create::Directory, FileKind::Directory, 0o750, 2),
        ("fifo", Create::Fifo, FileKind::Fifo, 0o604, 1),
        ("socket", Create::Socket, FileKind::Socket, 0o755, 1),
    ] {
        let created = me.make(&top, name, &what, mode).unwrap();
        let attributes = me.getattr(&created.handle).unwrap();
        assert!(created.is_new);
        assert!(
            t.is_same_change(created.attributes.change, attributes.change),
            "{name}: nothing changed since CREATE"
        );
        let seen = Attributes { change: created.attributes.change, ..attributes };
        assert_eq!(created.attributes, seen, "{name}: CREATE and GETATTR agree");
        assert_eq!((attributes.kind, attributes.mode, attributes.links), (kind, mode, links), "{name}");
        assert_eq!((attributes.uid, attributes.gid), (me.credentials().uid, me.credentials().gid), "{name}");
        assert_eq!(attributes.fsid, root.fsid, "{name}: one file system");
        if kind == FileKind::Regular {
            assert_eq!((attributes.size, attributes.used), (0, 0));
        }
    }
}

pub(super) fn the_root_is_a_directory(t: &Subject) {
    let root = t.me().getattr(&t.backend().root()).unwrap();
    assert_eq!(root.kind, FileKind::Directory);
    assert!(root.links >= 2, "`.` and the name in the parent directory");
    assert_eq!(t.backend().root(), t.backend().root(), "the root's handle is the same");
}

pub(super) fn properties_and_identity_are_plausible(t: &Subject) {
    let properties = t.backend().properties();
    assert!(properties.max_file_size >= 1 << 31, "large files");
    assert!(properties.max_file_size <= i64::MAX as u64, "offsets fit into off_t");
    assert_eq!(properties.max_name, 255);
    assert!(properties.max_links >= 1000);
    assert!((1..=1_000_000_000).contains(&properties.time_delta_ns));
    assert!(!properties.read_only);
    assert_eq!(t.backend().identity(), t.backend().identity());
}

pub(super) fn setting_nothing_changes_nothing(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let before = me.getattr(&file).unwrap();
    let change = me.setattr(&file, SetAttributes::default()).unwrap();
    assert_eq!(change.before, before.before());
    assert_eq!(me.getattr(&file).unwrap(), before);
}

pub(super) fn mode_is_set_and_kept(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    for handle in [me.file(&top, "f"), me.directory(&top, "d")] {
        for mode in [0o000, 0o700, 0o644, 0o1755, 0o777, 0o4711, 0o6755, 0o7777] {
            let change = me.chmod(&handle, mode).unwrap();
            assert_eq!(change.after.mode, mode, "{mode:o}");
            assert_eq!(me.getattr(&handle).unwrap().mode, mode, "{mode:o}");
        }
        me.chmod(&handle, 0o755).unwrap();
    }
}

pub(super) fn a_symbolic_link_takes_no_mode(t: &Subject) {
    let (me, link) = (t.me(), t.me().symlink(&t.top(), "l", "f"));
    let before = me.getattr(&link).unwrap();
    assert_eq!(me.chmod(&link, 0o600).unwrap().before, before.before());
    assert_eq!(me.getattr(&link).unwrap(), before, "passed over");
    let modified = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
    let both =
        SetAttributes { mode: Some(0o600), modified: Some(SetTime::To(modified)), ..Default::default() };
    let after = me.setattr(&link, both).unwrap().after;
    assert_eq!((after.mode, after.modified), (before.mode, modified), "the rest is set");
}

pub(super) fn a_size_truncates_and_extends_with_zeros(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    me.write(&file, 0, [7; 10_000]).unwrap();
    let change = me.truncate(&file, 5_000).unwrap();
    assert_eq!((change.before.size, change.after.size), (10_000, 5_000));
    me.truncate(&file, 9_000).unwrap();
    assert_eq!(me.read(&file, 0, 20_000).unwrap(), [vec![7; 5_000], vec![0; 4_000]].concat());
    assert_eq!(me.truncate(&file, 0).unwrap().after.size, 0);
    assert!(me.read(&file, 0, 1).unwrap().is_empty());
    assert_eq!(me.truncate(&file, 1 << 33).unwrap().after.size, 1 << 33);
    assert_eq!(me.read(&file, (1 << 33) - 3, 8).unwrap(), [0; 3]);
}

pub(super) fn only_regular_files_have_a_size_to_set(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    assert_fails(me.truncate(&me.directory(&top, "d"), 0), &[Error::IsDirectory]);
    assert_fails(me.truncate(&me.symlink(&top, "l", "f"), 0), &[Error::WrongKind, Error::Invalid]);
    let fifo = me.make(&top, "p", &Create::Fifo, 0o644).unwrap().handle;
    assert_fails(me.truncate(&fifo, 0), &[Error::WrongKind, Error::Invalid]);
}

pub(super) fn a_size_beyond_the_limit_is_refused(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let most = t.backend().properties().max_file_size;
    for size in [most + 1, i64::MAX as u64 + 1, u64::MAX] {
        assert_fails(me.truncate(&file, size), &[Error::TooLarge]);
    }
    assert_eq!(me.getattr(&file).unwrap().size, 0);
}

// RFC 1813 §3.3.2: the guard is the change time that the client read last.
pub(super) fn a_guard_must_match_the_change_time(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let seen = me.getattr(&file).unwrap().changed;
    let earlier = Timestamp { seconds: seen.seconds - 1, ..seen };
    assert_fails(me.setattr_if(&file, set, Some(earlier), Authority::Caller), &[Error::NotSync]);
    assert_eq!(me.getattr(&file).unwrap().mode, 0o644);
    me.setattr_if(&file, set, Some(seen), Authority::Caller).unwrap();
    assert_eq!(me.getattr(&file).unwrap().mode, 0o600);
}

pub(super) fn a_refused_change_changes_nothing(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let before = me.getattr(&file).unwrap();
    let set = SetAttributes {
        mode: Some(0o600),
        size: Some(u64::MAX),
        modified: Some(SetTime::To(Timestamp { seconds: 1, nanoseconds: 0 })),
        ..SetAttributes::default()
    };
    assert_fails(me.setattr(&file, set), &[Error::TooLarge]);
    assert_eq!(me.getattr(&file).unwrap(), before);
}
