use super::subject::{Subject, assert_fails, done};
use crate::{Create, CreateMode, Error, Handle, Removal, SetAttributes, SetTime, Timestamp};

fn to(seconds: i64, nanoseconds: u32) -> SetTime {
    SetTime::To(Timestamp { seconds, nanoseconds })
}

fn set_both(t: &Subject, file: &Handle, accessed: SetTime, modified: SetTime) -> crate::Attributes {
    let set =
        SetAttributes { accessed: Some(accessed), modified: Some(modified), ..SetAttributes::default() };
    t.me().setattr(file, set).unwrap().after
}

pub(super) fn times_are_kept_to_the_granularity(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let delta = t.backend().properties().time_delta_ns;
    let grain = |nanoseconds: u32| nanoseconds / delta * delta;
    for handle in [me.file(&top, "f"), me.directory(&top, "d"), me.symlink(&top, "l", "f")] {
        // The epoch, before it, after 2038, and the last nanosecond of a second.
        for (seconds, nanoseconds) in [(0, 0), (-1, 123_456_789), (4_000_000_000, 1), (1, 999_999_999)] {
            let nanoseconds = grain(nanoseconds);
            let after = set_both(t, &handle, to(seconds, nanoseconds), to(seconds + 1, nanoseconds));
            assert_eq!(after.accessed, Timestamp { seconds, nanoseconds });
            assert_eq!(after.modified, Timestamp { seconds: seconds + 1, nanoseconds });
            assert_eq!(me.getattr(&handle).unwrap(), after);
        }
        let one = SetAttributes { accessed: Some(to(5, 0)), ..SetAttributes::default() };
        let after = me.setattr(&handle, one).unwrap().after;
        assert_eq!(after.accessed.seconds, 5);
        assert_eq!(after.modified.seconds, 2, "a time not named is unchanged");
    }
}

pub(super) fn now_is_later_than_the_past(t: &Subject) {
    let file = t.me().file(&t.top(), "f");
    let created = t.me().getattr(&file).unwrap();
    set_both(t, &file, to(1, 0), to(1, 0));
    let after = set_both(t, &file, SetTime::Now, SetTime::Now);
    assert!(after.accessed >= created.modified && after.modified >= created.modified);
}

/// Sets both times to the past, runs `change`, and returns whether access and modification moved since.
fn moved(t: &Subject, file: &Handle, change: impl FnOnce()) -> (bool, bool) {
    let old = set_both(t, file, to(1, 0), to(1, 0));
    change();
    let new = t.me().getattr(file).unwrap();
    assert!(new.changed >= old.changed, "change time goes backwards");
    (new.accessed != old.accessed, new.modified != old.modified)
}

// POSIX.1-2024 §4.12: what write(), ftruncate(), chmod(), link(), open(), unlink(), rename() and mkdir() mark for update.
pub(super) fn changes_move_the_right_times(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (file, directory) = (me.file(&top, "f"), me.directory(&top, "d"));
    me.write(&file, 0, "content").unwrap();
    let content = (false, true);
    assert_eq!(moved(t, &file, || done(me.write(&file, 0, "x"))), content, "write");
    assert_eq!(moved(t, &file, || done(me.truncate(&file, 3))), content, "truncate");
    let attributes = (false, false);
    assert_eq!(moved(t, &file, || done(me.chmod(&file, 0o600))), attributes, "chmod");
    assert_eq!(moved(t, &file, || done(me.link(&file, &top, "g"))), attributes, "link");
    assert_eq!(moved(t, &file, || done(me.rename((&top, "g"), (&top, "h")))), attributes, "rename");
    let entries = |change: &dyn Fn(), what: &str| assert_eq!(moved(t, &directory, change), content, "{what}");
    entries(&|| done(me.make(&directory, "a", &Create::File(CreateMode::Guarded), 0o600)), "create");
    entries(&|| done(me.make(&directory, "b", &Create::Directory, 0o700)), "mkdir");
    entries(&|| done(me.link(&file, &directory, "c")), "link");
    entries(&|| done(me.rename((&directory, "c"), (&directory, "e"))), "rename");
    entries(&|| done(me.rename((&directory, "e"), (&top, "e"))), "rename away");
    entries(&|| done(me.rename((&top, "e"), (&directory, "e"))), "rename here");
    entries(&|| done(me.remove(&directory, "e", Removal::File)), "remove");
    entries(&|| done(me.remove(&directory, "b", Removal::Directory)), "rmdir");
}

pub(super) fn context_time_is_used_exactly(t: &Subject) {
    if t.lacks(t.capabilities().context_clock, "the context's clock") {
        return;
    }
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    let created = t.now();
    let new = me.getattr(&file).unwrap();
    assert_eq!(
        (new.accessed, new.modified, new.changed, new.created),
        (created, created, created, Some(created))
    );
    assert_eq!(me.getattr(&top).unwrap().modified, created);
    let written = me.write(&file, 0, "x").unwrap().change.after;
    assert_eq!((written.modified, written.changed, written.accessed), (t.now(), t.now(), created));
    let written = t.now();
    let read = me.read_with(&file, 0, 1, crate::Authority::Caller).unwrap().1.attributes;
    assert!(
        read.accessed > written && read.accessed <= t.now(),
        "a read after a write moves the access time"
    );
    assert_eq!((read.modified, read.changed), (written, written));
    let changed = me.chmod(&file, 0o600).unwrap().after;
    assert_eq!((changed.modified, changed.changed, changed.created), (written, t.now(), Some(created)));
}

/// Access and modification under a delegation.
pub(super) fn delegated_times_are_set_exactly(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let before = me.getattr(&file).unwrap();
    let kept = |seconds| Some(SetTime::Kept(Timestamp { seconds, nanoseconds: 0 }));
    let both = SetAttributes { accessed: kept(3), modified: kept(4), ..SetAttributes::default() };
    let after = me.setattr(&file, both).unwrap().after;
    assert_eq!((after.accessed.seconds, after.modified.seconds), (3, 4));
    assert!(after.changed >= before.changed && after.change > before.change);
    if t.lacks(t.capabilities().context_clock, "the context's clock") {
        return;
    }
    // RFC 9754 §5: the change time does not move to now or back, and not at all for an access.
    assert_eq!(after.changed, before.changed);
    let read = SetAttributes { accessed: kept(5), ..SetAttributes::default() };
    let read = me.setattr(&file, read).unwrap().after;
    assert_eq!(read, crate::Attributes { accessed: Timestamp { seconds: 5, nanoseconds: 0 }, ..after });
    let later = Timestamp { seconds: before.changed.seconds + 1, nanoseconds: 0 };
    let written = SetAttributes { modified: Some(SetTime::Kept(later)), ..SetAttributes::default() };
    let written = me.setattr(&file, written).unwrap().after;
    assert_eq!((written.modified, written.changed), (later, later));
    assert!(written.change > read.change);
    let also = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes { modified: Some(SetTime::Kept(later)), ..SetAttributes::default() }
    };
    assert_eq!(me.setattr(&file, also).unwrap().after.mode, 0o600);
}

// RFC 8881 §3.3.1: "Values greater than 999,999,999 for nseconds are invalid."
pub(super) fn a_bad_time_is_refused(t: &Subject) {
    let file = t.me().file(&t.top(), "f");
    let set = SetAttributes { modified: Some(to(1, 1_000_000_000)), ..SetAttributes::default() };
    assert_fails(t.me().setattr(&file, set), &[Error::Invalid]);
}
