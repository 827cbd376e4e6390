use super::subject::{COMMON_GROUP, Subject, assert_fails};
use crate::{Create, CreateMode, Device, Error, Handle, SetAttributes, SetTime, Stability, Timestamp};

const GUARDED: Create = Create::File(CreateMode::Guarded);

fn skipped(t: &Subject) -> bool {
    t.lacks(t.capabilities().identities, "identities")
}

/// Returns a file of `user(1)`, in its own group.
fn file_of_one(t: &Subject, mode: u32) -> Handle {
    let (root, file) = (t.root(), t.root().file(&t.top(), format!("file{mode:o}")));
    root.chown(&file, 1001, 1001).unwrap();
    root.chmod(&file, mode).unwrap();
    file
}

pub(super) fn only_the_owner_changes_the_mode(t: &Subject) {
    if skipped(t) {
        return;
    }
    let file = file_of_one(t, 0o666);
    assert_fails(t.user(2).chmod(&file, 0o777), &[Error::NotPermitted]);
    t.user(1).chmod(&file, 0o600).unwrap();
    t.root().chmod(&file, 0o640).unwrap();
    assert_eq!(t.root().getattr(&file).unwrap().mode, 0o640);
}

pub(super) fn only_root_gives_files_away(t: &Subject) {
    if skipped(t) || !t.backend().properties().chown_restricted {
        return;
    }
    let (file, one) = (file_of_one(t, 0o644), t.user(1));
    let owner = |uid| SetAttributes { uid: Some(uid), ..SetAttributes::default() };
    assert_fails(one.setattr(&file, owner(1002)), &[Error::NotPermitted]);
    assert_fails(t.user(2).setattr(&file, owner(1002)), &[Error::NotPermitted]);
    one.setattr(&file, owner(1001)).unwrap();
    let given = t.root().chown(&file, 1002, 1002).unwrap().after;
    assert_eq!((given.uid, given.gid), (1002, 1002));
}

pub(super) fn the_owner_chooses_among_its_groups(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (file, one) = (file_of_one(t, 0o644), t.user(1));
    let group = |gid| SetAttributes { gid: Some(gid), ..SetAttributes::default() };
    assert_eq!(one.setattr(&file, group(COMMON_GROUP)).unwrap().after.gid, COMMON_GROUP);
    assert_fails(one.setattr(&file, group(9999)), &[Error::NotPermitted]);
    assert_fails(t.user(2).setattr(&file, group(COMMON_GROUP)), &[Error::NotPermitted]);
    assert_eq!(t.root().setattr(&file, group(9999)).unwrap().after.gid, 9999);
}

pub(super) fn new_objects_belong_to_the_caller(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (user, top) = (t.user(1), t.top());
    t.root().chmod(&top, 0o777).unwrap();
    for (name, what) in
        [("f", GUARDED), ("d", Create::Directory), ("l", Create::Symlink("x".into())), ("p", Create::Fifo)]
    {
        let made = user.create(&top, name, &what, &SetAttributes::default()).unwrap().attributes;
        assert_eq!((made.uid, made.gid), (1001, 1001), "{name}");
    }
}

pub(super) fn objects_are_not_created_for_others(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (user, top) = (t.user(1), t.top());
    t.root().chmod(&top, 0o777).unwrap();
    let set = |uid, gid| SetAttributes { uid, gid, ..SetAttributes::default() };
    assert_fails(user.create(&top, "f", &GUARDED, &set(Some(1002), None)), &[Error::NotPermitted]);
    assert_fails(user.create(&top, "f", &GUARDED, &set(None, Some(9999))), &[Error::NotPermitted]);
    assert_fails(user.lookup(&top, "f"), &[Error::NotFound]);
    let own = user.create(&top, "g", &GUARDED, &set(Some(1001), Some(COMMON_GROUP))).unwrap().attributes;
    assert_eq!((own.uid, own.gid), (1001, COMMON_GROUP));
    let other = t.root().create(&top, "h", &GUARDED, &set(Some(1002), Some(9999))).unwrap().attributes;
    assert_eq!((other.uid, other.gid), (1002, 9999));
}

pub(super) fn writing_clears_set_id(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (root, user) = (t.root(), t.user(2));
    let file = file_of_one(t, 0o6777);
    let mode = || root.getattr(&file).unwrap().mode;
    root.write(&file, 0, "x").unwrap();
    assert_eq!(mode(), 0o6777, "the superuser may keep them");
    user.write(&file, 0, "").unwrap();
    assert_eq!(mode(), 0o6777, "nothing was written");
    user.write(&file, 0, "y").unwrap();
    assert_eq!(mode(), 0o777);
    root.chmod(&file, 0o6777).unwrap();
    user.truncate(&file, 0).unwrap();
    assert_eq!(mode(), 0o777, "cutting is writing");
    root.chmod(&file, 0o6777).unwrap();
    user.write_with(&file, 0, "z", Stability::Unstable, crate::Authority::Opened).unwrap();
    assert_eq!(mode(), 0o777, "through an open file too");
}

// POSIX.1-2024 chown(): clears the set-ID bits of a regular file, unless the caller is privileged.
pub(super) fn changing_the_group_clears_set_id(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (file, one) = (file_of_one(t, 0o6755), t.user(1));
    let group = SetAttributes { gid: Some(COMMON_GROUP), ..SetAttributes::default() };
    assert_eq!(one.setattr(&file, group).unwrap().after.mode, 0o755);
    let with_mode = SetAttributes { gid: Some(1001), mode: Some(0o4755), ..SetAttributes::default() };
    assert_eq!(one.setattr(&file, with_mode).unwrap().after.mode, 0o4755, "a mode given together remains");
}

pub(super) fn set_group_id_outside_the_group_is_dropped(t: &Subject) {
    if skipped(t) {
        return;
    }
    let (file, one, root) = (file_of_one(t, 0o755), t.user(1), t.root());
    root.chown(&file, 1001, 9999).unwrap();
    assert_eq!(one.chmod(&file, 0o2755).unwrap().after.mode, 0o755);
    assert_eq!(root.chmod(&file, 0o2755).unwrap().after.mode, 0o2755);
}

// POSIX.1-2024 futimens(): EACCES for the current time, EPERM for any other.
pub(super) fn writers_may_set_times_to_now(t: &Subject) {
    if skipped(t) {
        return;
    }
    let times =
        |time| SetAttributes { accessed: Some(time), modified: Some(time), ..SetAttributes::default() };
    let past = times(SetTime::To(Timestamp { seconds: 1, nanoseconds: 0 }));
    let (writable, readable) = (file_of_one(t, 0o666), file_of_one(t, 0o644));
    let (one, two) = (t.user(1), t.user(2));
    two.setattr(&writable, times(SetTime::Now)).unwrap();
    assert_fails(two.setattr(&writable, past), &[Error::NotPermitted]);
    assert_fails(two.setattr(&readable, times(SetTime::Now)), &[Error::Access]);
    assert_fails(two.setattr(&readable, past), &[Error::NotPermitted]);
    assert_eq!(one.setattr(&readable, past).unwrap().after.modified.seconds, 1);
    one.chmod(&readable, 0).unwrap();
    one.setattr(&readable, times(SetTime::Now)).unwrap();
}

pub(super) fn ordinary_callers_cannot_create_devices(t: &Subject) {
    if skipped(t) {
        return;
    }
    t.root().chmod(&t.top(), 0o777).unwrap();
    let device = Device { major: 1, minor: 3 };
    for what in [Create::CharDevice(device), Create::BlockDevice(device)] {
        assert_fails(t.user(1).make(&t.top(), "n", &what, 0o600), &[Error::NotPermitted]);
    }
    t.user(1).make(&t.top(), "p", &Create::Fifo, 0o600).unwrap();
}
