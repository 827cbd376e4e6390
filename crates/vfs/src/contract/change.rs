use super::subject::{Subject, done};
use crate::{Before, Create, Handle, Removal, SetAttributes, SetTime, SetXattr, Stability};

/// Makes changes one by one and requires the object's change attribute to grow with each.
fn each_moves(t: &Subject, object: &Handle, changes: &[(&str, &dyn Fn())]) {
    for (what, change) in changes {
        let before = t.me().getattr(object).unwrap().change;
        change();
        let after = t.me().getattr(object).unwrap().change;
        assert!(after > before, "{what}: the change attribute went from {before} to {after}");
    }
}

pub(super) fn every_change_of_a_file_moves_its_change_attribute(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (file, target) = (me.file(&top, "f"), me.file(&top, "target"));
    let times = SetAttributes { accessed: Some(SetTime::Now), ..SetAttributes::default() };
    let write = |data: &'static str, stability| {
        me.write_with(&file, 0, data, stability, crate::Authority::Caller).unwrap();
    };
    each_moves(
        t,
        &file,
        &[
            ("write", &|| write("a", Stability::FileSync)),
            ("the same write again", &|| write("a", Stability::FileSync)),
            ("unstable write", &|| write("b", Stability::Unstable)),
            ("data-sync write", &|| write("c", Stability::DataSync)),
            ("extension", &|| done(me.truncate(&file, 9_000).unwrap())),
            ("cut", &|| done(me.truncate(&file, 1).unwrap())),
            ("chmod", &|| done(me.chmod(&file, 0o600).unwrap())),
            ("times", &|| done(me.setattr(&file, times).unwrap())),
            ("link", &|| done(me.link(&file, &top, "g").unwrap())),
            ("rename", &|| done(me.rename((&top, "g"), (&top, "h")).unwrap())),
            ("unlink", &|| done(me.remove(&top, "h", Removal::File).unwrap())),
            ("rename over", &|| done(me.rename((&top, "f"), (&top, "target")).unwrap())),
        ],
    );
    assert!(me.getattr(&target).is_err(), "the replaced file no longer exists");
    if t.backend().properties().xattrs {
        each_moves(
            t,
            &file,
            &[
                ("set xattr", &|| done(me.set_xattr(&file, "a", "1", SetXattr::Either).unwrap())),
                ("remove xattr", &|| done(me.remove_xattr(&file, "a").unwrap())),
            ],
        );
    }
    if t.capabilities().holes {
        each_moves(
            t,
            &file,
            &[
                ("allocate", &|| done(me.allocate(&file, 0, 100_000).unwrap())),
                ("deallocate", &|| done(me.deallocate(&file, 0, 50_000).unwrap())),
                ("write hole", &|| done(me.write_hole(&file, 0, 50_000).unwrap().change)),
            ],
        );
    }
}

pub(super) fn every_change_of_a_directory_moves_its_change_attribute(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let (directory, file) = (me.directory(&top, "d"), me.file(&top, "f"));
    each_moves(
        t,
        &directory,
        &[
            ("create", &|| done(me.file(&directory, "a"))),
            ("mkdir", &|| done(me.directory(&directory, "b"))),
            ("symlink", &|| done(me.symlink(&directory, "s", "text"))),
            ("mknod", &|| done(me.make(&directory, "p", &Create::Fifo, 0o600).unwrap())),
            ("link", &|| done(me.link(&file, &directory, "l").unwrap())),
            ("rename within", &|| done(me.rename((&directory, "a"), (&directory, "c")).unwrap())),
            ("rename over", &|| done(me.rename((&directory, "c"), (&directory, "l")).unwrap())),
            ("rename away", &|| done(me.rename((&directory, "l"), (&top, "l")).unwrap())),
            ("rename here", &|| done(me.rename((&top, "l"), (&directory, "l")).unwrap())),
            ("remove", &|| done(me.remove(&directory, "l", Removal::File).unwrap())),
            ("rmdir", &|| done(me.remove(&directory, "b", Removal::Directory).unwrap())),
            ("chmod", &|| done(me.chmod(&directory, 0o700).unwrap())),
        ],
    );
}

pub(super) fn reading_does_not_move_the_change_attribute(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    me.write(&file, 0, "content").unwrap();
    let (before, around) = (me.getattr(&file).unwrap().change, me.getattr(&top).unwrap().change);
    me.read(&file, 0, 100).unwrap();
    me.commit(&file, 0, 0).unwrap();
    done(me.open(&file, true, true).unwrap());
    me.lookup(&top, "f").unwrap();
    assert_eq!(me.names(&top), [b"f"]);
    assert!(t.is_same_change(before, me.getattr(&file).unwrap().change));
    assert!(t.is_same_change(around, me.getattr(&top).unwrap().change));
}

pub(super) fn the_change_attribute_moves_while_the_clock_does_not(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    t.stop_clock();
    let write = |byte: u8| me.write(&file, 0, [byte]).unwrap().change.after.change;
    let (first, second) = (write(1), write(2));
    assert!(second > first);
    let names =
        (0..3).map(|n| me.make(&top, format!("n{n}"), &Create::Fifo, 0o600).unwrap().directory.after.change);
    assert!(names.collect::<Vec<_>>().is_sorted_by(|earlier, later| earlier < later));
}

// RFC 8881 §5.8.1.4: "A value created by the server that the client can use to determine if file data, directory
// contents, or attributes of the object have been modified." A clock's tick is too coarse for that.
pub(super) fn a_thousand_writes_are_a_thousand_changes(t: &Subject) {
    let (me, file) = (t.me(), t.me().file(&t.top(), "f"));
    let mut last = me.getattr(&file).unwrap().change;
    for number in 0..1000_u32 {
        let written = me
            .write_with(&file, 0, number.to_be_bytes(), Stability::Unstable, crate::Authority::Caller)
            .unwrap();
        assert!(written.change.after.change > last, "write {number}");
        last = written.change.after.change;
        let read = me.getattr(&file).unwrap().change;
        assert!(t.is_same_change(last, read), "WRITE and GETATTR return the same");
        last = read;
    }
}

// The same for a directory, which on some file systems gets the time of the removed object.
pub(super) fn two_hundred_removals_are_two_hundred_changes(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let names: Vec<_> = (0..200).map(|number| format!("f{number}")).collect();
    for name in &names {
        done(me.file(&top, name));
    }
    let mut last = me.getattr(&top).unwrap().change;
    for name in &names {
        let removed = me.remove(&top, name, Removal::File).unwrap();
        assert!(removed.after.change > last, "removal of {name}");
        let read = me.getattr(&top).unwrap().change;
        assert!(t.is_same_change(removed.after.change, read), "REMOVE and GETATTR return the same");
        last = read;
    }
}

pub(super) fn attributes_before_are_those_after_the_last_change(t: &Subject) {
    let (me, top) = (t.me(), t.top());
    let file = me.file(&top, "f");
    let seen = me.getattr(&file).unwrap();
    let first = me.write(&file, 0, "abc").unwrap().change;
    let second = me.write(&file, 3, "def").unwrap().change;
    assert_joined(t, &seen.before(), &first.before);
    assert_joined(t, &first.after.before(), &second.before);
    assert_eq!((second.before.size, second.after.size), (3, 6));
    assert_joined(t, &second.after.before(), &me.getattr(&file).unwrap().before());
    let around = me.getattr(&top).unwrap();
    let created = me.make(&top, "g", &Create::Fifo, 0o600).unwrap().directory;
    let removed = me.remove(&top, "g", Removal::Any).unwrap();
    assert_joined(t, &around.before(), &created.before);
    assert_joined(t, &created.after.before(), &removed.before);
    assert!(t.is_same_change(removed.after.change, me.getattr(&top).unwrap().change));
    let renamed = me.rename((&top, "f"), (&top, "h")).unwrap();
    assert_eq!(renamed.from, renamed.to, "one directory changed once");
}

/// Requires the attributes before an operation to be those after the earlier one.
pub(super) fn assert_joined(t: &Subject, earlier: &Before, later: &Before) {
    assert!(t.is_same_change(earlier.change, later.change), "from {} to {}", earlier.change, later.change);
    assert_eq!(Before { change: 0, ..*earlier }, Before { change: 0, ..*later });
}
